"""The page of a report: its numbers, its words, its questions, hostile texts, and a browser."""

import base64
import gzip
import hashlib
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from conftest import ROOT, cases, run_command, suite_of
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.metrics.registry import label_of
from consilience.report.charts import interval_chart, percents
from consilience.report.layouts import in_one_line
from consilience.report.page import Page, render, repeat
from consilience.report.questions import question_data
from consilience.report.table import Cell, Column, Table, number_text
from consilience.runs.run import Run
from consilience.types import QUESTION_WORDS, Candidates, Relation, Suite
from pair_builders import write_pairs
from report_builders import (
    CASES,
    HOSTILE,
    PATTERNS,
    Html,
    change_record,
    kept_run,
    page_of,
    pair_run,
    write_hostile_suite,
)

RUNS = {
    "random": ("baseline:random", "--noise-floor", "256"),
    "majority": ("baseline:majority",),
    "oracle": ("baseline:oracle",),
    "judge": ("baseline:first", "--suite", ROOT / "examples/judge.csv", "--vary", "order=all"),
}
"""Runs on the suite whose words would break a page, or on another."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with ``RUNS``, which no test changes, and their suite."""
    folder = tmp_path_factory.mktemp("runs")
    suite = write_hostile_suite(folder / "suite")
    for name, (model, *more) in RUNS.items():
        options = ["--suite", suite, "--out", folder / name, *more]
        status, _, err = run_command("probe", "--model", model, *options)
        assert status == 0, err
    return folder


@pytest.fixture(scope="module")
def quiz(tmp_path_factory):
    """A run of ``baseline:first``, which chooses the option that is shown first.

    Eight questions in two phrasings and three orders; the right option is the first of the file.
    """
    rows = [
        {"question": f"{word}?", "question_2": f"Say: {word}?", "options": "yes;no;maybe",
         "answer": "yes", "group": "a" if at < 4 else "b"}
        for at, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight"])
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("questions") / "first"
    cs.evaluate(cs.Questions.from_frame(rows, name="quiz"), "baseline:first", out=folder)
    return folder


@pytest.fixture
def copied(runs, tmp_path):
    """``copied("random")``: a run that the test may change."""
    return lambda name: Path(shutil.copytree(runs / name, tmp_path / name))


@pytest.fixture(scope="module")
def html_of_one(runs):
    return page_of(runs / "random")


@pytest.fixture(scope="module")
def html_of_two(runs):
    return page_of(runs / "random", runs / "majority", "--out", runs / "both.html")


@pytest.fixture(scope="module")
def text_of_two(html_of_two, runs):
    return (runs / "both.html").read_text(encoding="utf-8")


def shown_number(value, template="{:.1f}"):
    return "-" if value is None or math.isnan(value) else template.format(100 * value)


def test_the_numbers_are_those_of_the_run(html_of_one, runs):
    metrics = pl.read_csv(runs / "random" / "metrics.csv").filter(kind="whole")
    means = {row["metric"]: row["value"] for row in metrics.filter(over="mean").to_dicts()}
    chance = f"Patterns agree ({shown_number(means['chance_consistency'])}\N{NO-BREAK SPACE}% expected by chance)."
    for name, meaning in (
        ("accuracy", "Right in the base pattern."), ("consistency", chance),
        ("consistent_accuracy", "Right in every pattern."),
    ):  # fmt: skip
        tile = rf"{label_of(name)}\n{shown_number(means[name])} %[^%]*\n{re.escape(meaning)}"
        assert re.search(tile, html_of_one.text), tile
    assert html_of_one.text.count("Majority baseline: ") == 2, "not beside consistency"
    table = html_of_one.rows("Each relation, in percent").values()
    rows = {row[1]: row for row in table}
    shown = [row[3].partition("\n")[0] for row in table]
    assert shown == ["25.9", "33.3", "33.3"], "the worst first"
    for name, group in (("consistency", "A"), ("determinism", "C")):
        (row,) = metrics.filter(metric=name, group=group).to_dicts()
        bounds = " to ".join(shown_number(row[bound]) for bound in ("low", "high"))
        below = "" if math.isnan(row["low"]) else f"\n{bounds}"
        assert rows[group][3] == shown_number(row["value"]) + below
        assert rows[group][-1] == "9"


@pytest.mark.parametrize(("name", "sentences"), [
    # 3 of 15 pairs of 6 variants have the same option first: 80 % differ.
    ("quiz", ["baseline:first changes its answer 80.0 % of the time when the same question is asked in "
              "another variant (expected by chance: ", "%). The order of the options (order) changes "
              "answers most: variants that differ in nothing else agree in 0.0 % of pairs."]),
    ("judge", ["It prefers the option that is shown first (+100.0 points)."]),
    # 3 of 12 labels change in one of two other forms.
    ("pairs", ["changes its label 12.5 % of the time when the same sentence pair is asked in another form"]),
    ("oracle", ["changes its answer 0.0 % of the time when the same fact is asked in another pattern"]),
])  # fmt: skip
def test_the_verdict_says_how_often_the_answer_changes(name, sentences, runs, quiz, tmp_path):
    known = {"quiz": quiz, "oracle": runs / "oracle", "judge": runs / "judge"}
    run = known.get(name) or pair_run(tmp_path / "p", {1, 4, 6})
    text = page_of(run, "--out", tmp_path / "page.html").text.replace("\N{NO-BREAK SPACE}", " ")
    assert all(sentence in text for sentence in sentences)


def test_a_run_in_one_variant_says_that_nothing_can_disagree(write_suite, consilience):
    """One pattern: no two answers to compare, and no chart or factor. No answer: no number."""
    pattern = "The capital of [X] is [Y]."
    suite = write_suite(patterns=[{"relation": "capital", "pattern": pattern}])
    output(consilience, "probe", "-m", "baseline:majority", "-s", suite, "--out", "one")
    html = page_of("one")
    assert "so nothing says how consistent baseline:majority is." in html.text
    assert [heading in html.text for heading in ("Factors", "Differences")] == [False, False]
    assert "agreement of each two" not in output(consilience, "analyze", "patterns", "one")
    run = Run.open("one")
    answers = run.answers.with_columns(answer=pl.lit(""), input=run.queries["input"])
    assert "Right in the base pattern." in page_of(kept_run("none", run.suite, answers)).text


def test_what_came_from_data_stays_text(html_of_two):
    assert all(text in html_of_two.text for text in HOSTILE[:3])
    assert not html_of_two.all("img") and len(html_of_two.all("script")) == 2
    assert not any("onerror" in attributes for _, attributes in html_of_two.elements)


def test_the_page_needs_nothing_else_and_runs_its_own_script_only(html_of_two, text_of_two):
    assert len(text_of_two.encode()) < 250_000
    for tag, attributes in html_of_two.elements:
        for name in {"src", "href", "action", "data", "style"} & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    policy = next(meta for meta in html_of_two.all("meta") if "http-equiv" in meta)["content"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for name in ("style", 'script type="module"'):
        (text,) = re.findall(f"<{name}>(.*?)</{name.split()[0]}>", text_of_two, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name.split()[0]}-src 'sha256-{digest}'" in policy
    assert "@import" not in text_of_two and "url(http" not in text_of_two


def test_the_page_can_be_used_by_keyboard_and_read_aloud(html_of_two):
    html = html_of_two
    assert html.all("html")[0]["lang"] == "en" and len(html.all("h1")) == len(html.all("main")) == 1
    ids = [attributes["id"] for _, attributes in html.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(html.all("table")) == len(html.tables), "captions are unique"
    boxes = [box for box in html.all("section") if box.get("class") == "scroll"]
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert all(cell["scope"] in ("row", "col", "rowgroup") for cell in html.all("th"))
    assert len(html.all("figure")) == len(html.all("figcaption")) == 1
    drawings = [svg for svg in html.all("svg") if "role" in svg]
    assert [svg["role"] for svg in drawings] == ["img"]
    assert all(len(svg["aria-label"]) > 20 for svg in drawings)


def test_the_order_of_the_page_is_the_result_then_all_questions_then_details(
    html_of_two, text_of_two
):
    assert "How consistent are baseline:random, baseline:majority on suite?" in html_of_two.text
    places = [
        text_of_two.index(mark)
        for mark in ('class="verdict"', 'class="cautions"', '"In percent"', 'id="questions"',
                     '<details id="details">', *(f"<h2>{name}</h2>" for name in (
                         "Relations", "Differences", "Examples", "Cautions", "Repeat")))
    ]  # fmt: skip
    assert places == sorted(places)
    assert text_of_two.count("<li>") > 3 and text_of_two.index("SHA-256") > places[-1]
    cautions = re.findall('<ul class="cautions">(.*?)</ul>', text_of_two, re.DOTALL)[0]
    assert cautions.count("<li>") <= 3
    rows = html_of_two.rows("In percent")
    assert rows.keys() == {"baseline:random", "baseline:majority", "majority baseline"}
    assert rows["baseline:majority"][2].startswith("100.0")
    assert rows["majority baseline"][1:3] == [rows["baseline:majority"][1][:4], "100.0"]


def test_runs_side_by_side_have_paired_differences(runs):
    chosen = [runs / name for name in ("majority", "oracle", "random")]
    html = page_of(*chosen, "--out", runs / "three.html")
    rows = json.loads(run_command("compare", *chosen, "--json")[1])["differences"]
    for run in ("baseline:oracle", "baseline:random"):
        differences = {
            row["metric"]: row["difference"]
            for row in rows
            if (row["kind"], row["over"], row["second"]) == ("whole", "mean", run)
        }
        title = f"suite: {run} minus baseline:majority, in percent and points"
        means = html.rows(title)
        assert means["Accuracy"][3] == shown_number(differences["accuracy"], "{:+.1f}")
        assert (means["Accuracy"][2] == "100.0") == (run == "baseline:oracle")
        label = label_of("consistent_accuracy")
        assert (float(means[label][3]) > 0) or run == "baseline:random"
        assert any(caption.startswith(f"Each relation: {title}") for caption in html.tables)
    assert "means over 2 relations, p is at least 0.5" in html.text


def plain(prompt):
    return "A"


def odd(prompt):
    """No answer to one of ``QUESTIONS``, and no option to another."""
    return {"two?": "", "three?": "no idea"}.get(prompt.split()[1], "A")


def test_a_run_has_0_of_what_only_others_have_and_missing_answers_are_the_first_caution(tmp_path):
    for one in (plain, odd):
        cs.evaluate(QUESTIONS, one, out=tmp_path / one.__name__)
    page = page_of(tmp_path / "plain", tmp_path / "odd", "--out", tmp_path / "page.html")
    names, *rows = page.tables["In percent"]  # of three questions there is no interval
    assert [row[names.index("No option")] for row in rows[:2]] == ["0.0", "33.3"]
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    cautions = re.findall("<li>(.*?)</li>", text.partition("<details")[0], re.DOTALL)
    first = ["odd: 3 of 18 queries (", "plain: In 1 of 1 group", "odd: 3 of 15 written a"]
    assert [caution[: len(of)] for caution, of in zip(cautions, first, strict=True)] == first


def test_a_run_without_some_answers_has_numbers_of_the_others(runs, tmp_path):
    run = Run.open(runs / "random")
    answers = run.answers.with_columns(input=run.queries["input"])
    rest = kept_run(tmp_path / "rest", run.suite, answers.filter(pl.col("variant") != PATTERNS[0]))
    text = page_of(rest).text
    assert "nan" not in text.replace("nano", "") and "in another pattern" in text


def test_a_run_that_was_stopped_does_not_look_whole(copied):
    """B is not answered yet, and the page says why."""
    run = copied("random")
    (run / "answers" / "1.parquet").unlink()
    change_record(run, finished=None)
    html = page_of(run)
    assert len(html.rows("Each relation, in percent")) == 2
    document = json.loads(run_command("report", run, "--json")[1])
    for note in (
        "Not finished: the numbers cover the answers so far", "1 of 3 relations (B) have no answers",
    ):  # fmt: skip
        assert note in html.text and any(note in warning for warning in document["warnings"])
    assert document["run"]["versions"]["consilience"] and "git" in document["run"]


def test_how_to_repeat_a_run_is_its_command(consilience, tmp_path, monkeypatch):
    """With --out and all; the suite may have changed or gone."""
    suite = write_hostile_suite(tmp_path / "suite")
    command = ["probe", "--suite", "suite", "--seed", "3", "--model", "baseline:random"]
    command += ["--out", "a b"]
    assert consilience(*command)[0] == 0
    assert consilience(*command)[0] == 0  # resumes it
    text = page_of("a b", "--out", "one.html").text
    typed = shlex.join(["consilience", *command])
    assert text.count(typed) == 1
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    shutil.rmtree(suite)
    assert page_of("../a b", "--out", "../two.html").text == text


def test_what_is_not_known_of_a_run_is_said():
    baseline = {"settings": {"model": {"kind": "baseline"}}, "versions": {}}
    _, first, second = repeat([("s1", baseline), ("answers.csv", {})])
    assert first["Model"] == "kind baseline"
    assert first.keys() == {"Run", "Command", "Model", "Finished"}
    assert second == {"Run": "answers.csv", "Command": "not known"}


def test_runs_on_sentence_pairs_are_reported_with_their_differences(tmp_path):
    """Three of twelve labels change, then one: C_R 75.0 and 91.7, and 16.7 points between."""
    first = pair_run(tmp_path / "one", {1, 4, 6})
    second = pair_run(tmp_path / "two", {1})
    specs = [f"one={first}", f"two={second}"]
    figures = ["--figures", tmp_path / "figures"]
    html = page_of(*specs, "--out", tmp_path / "page.html", *figures)
    differences = html.rows("rte: two minus one, in percent and points")["Consistency C_R"]
    assert [of.partition("\n")[0] for of in differences[1:4]] == ["75.0", "91.7", "+16.7"]
    assert "All runs: two items were truncated" in html.text
    assert not html.all("i")
    assert html.text.count("not known") == 2
    assert html.rows("In percent")["two"][1:3] == ["100.0\n73.5 to 100.0", "95.8\n69.8 to 99.6"]
    assert "reverse" in (tmp_path / "figures" / "forms.svg").read_text()


def test_a_report_compares_the_pairs_that_compare_does(tmp_path):
    """Of the second run one was not asked: its label changed in the first, which is not counted."""
    pair_run(tmp_path / "made", {2}, 9)
    run = Run.open(tmp_path / "made")
    is_asked = pl.col("item") != "3"
    answers = run.answers.with_columns(
        answer=pl.when(is_asked).then("answer"), excluded=pl.when(~is_asked).then(pl.lit("long"))
    )
    kept_run(tmp_path / "two", run.suite, answers.with_columns(input=run.queries["input"]))
    specs = [f"one={pair_run(tmp_path / 'one', {1, 3, 10})}", f"two={tmp_path / 'two'}"]
    note = (
        "Compared on the 27 queries (9 sentence pairs) that all runs have, of 36 in one, 27 in two"
    )
    html = page_of(*specs, "--out", tmp_path / "page.html")
    assert note in html.text
    differences = html.rows("rte: two minus one, in percent and points")
    assert differences["Consistency C_R"][3][:4] == "+0.0"
    assert note in run_command("compare", *specs)[2]
    assert html.text.count("were not asked and are in no number") == 2, "shown, and in Details"
    assert "two: 3 of 27 queries (" in html.text


def test_comparisons_and_examples_are_in_the_words_of_questions(consilience, quiz, tmp_path):
    html = page_of(quiz, "--out", tmp_path / "page.html")
    page = html.text.partition("Repeat")[0]
    assert not re.search(r"\brelation|\bpattern|\bfacts?\b|strict", page)
    out = output(consilience, "analyze", "examples", quiz, "--examples", "1")
    assert "right answer" in out and "gold" not in out
    assert re.findall("Question: one\\? / A. (yes|no|maybe) / B. ", out) == ["yes", "no", "maybe"]
    outs = [
        output(consilience, "score", quiz, "--format", "latex", *more)
        for more in ((), ("--by", "metric"))
    ]
    first, second = (re.findall("^Accuracy & ([^&]*&[^&]*)", of, re.M)[0] for of in outs)
    assert first == second, "details by metric have the interval of the summary"


@pytest.mark.parametrize("chat", [
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
    "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n", "<s>[INST] {} [/INST]",
    "<|user|>\n{}</s>\n<|assistant|>\n",
])  # fmt: skip
def test_prompts_of_one_question_keep_it_and_those_of_several_lose_what_they_share(chat):
    """ChatML, Llama 3, Gemma, Mistral and Zephyr; what is no special token stays."""
    prompts = [chat.format(f"Who?\n[1] <b>a</b>|b\nA. {name}") for name in ("I", "you")]
    shown = ["Who? / [1] <b>a</b>|b / A. I", "Who? / [1] <b>a</b>|b / A. you"]
    assert in_one_line(prompts, shared=False) == shown
    assert in_one_line(["Solved.\nWho?", "Solved.\nWhere?"]) == ["Who?", "Where?"]
    assert in_one_line([]) == []


# -- files ----------------------------------------------------------------------------------------


def test_figures_are_whole_files(copied, tmp_path):
    """No label is truncated."""
    run, figures = copied("random"), tmp_path / "figures"
    change_record(run, warnings=["mind the gap"])
    out = run_command("report", run, "--figures", figures, "--json")[1]
    document = json.loads(out)
    assert all(Path(file).is_file() for file in document["files"])
    assert {file.name for file in figures.iterdir()} == {"relations.svg"}
    drawn = {}
    for path in figures.iterdir():
        svg = path.read_text(encoding="utf-8")
        drawn[path.stem] = [node.text for node in ElementTree.fromstring(svg).iter() if node.text]
        assert not any("\N{HORIZONTAL ELLIPSIS}" in text for text in drawn[path.stem])
        assert "currentColor" not in svg
    relations = " ".join(drawn["relations"])
    assert "expected by chance" in drawn["relations"]
    assert all(label.split()[0][:20] in relations for label in HOSTILE[:3])
    assert "mind the gap" in document["warnings"]


@pytest.mark.parametrize(("arguments", "message"), cases("report_bad"))
def test_bad_input_is_refused_with_a_reason(arguments, message, consilience, runs, tmp_path):
    (tmp_path / "one").symlink_to(runs / "random")
    pair_run(tmp_path / "pairs", {1})
    (tmp_path / "empty").mkdir()
    err = refusal(consilience, "report", *arguments)
    assert message in " ".join(err.split())


# -- charts and parts -----------------------------------------------------------------------------


def test_charts_round_as_tables_do_and_draw_their_rows_in_order():
    """Halves go to the even digit: 6.25 to 6.2."""
    values = [0.0625, 0.125, 0.1875]
    rounded = pl.DataFrame({"v": [*values, math.nan]}).select(percents("v"))["v"].to_list()
    assert rounded == [*(float(number_text(value, "share")) for value in values), None]
    rows = pl.DataFrame({"run": ["a"] * 3, "name": ["z", "y", "x"], "value": values,
                         "chance": [0.5, 0.5, math.nan], "low": [0.0, 0.1, math.nan],
                         "high": [0.3, 0.2, math.nan]})  # fmt: skip
    drawn = interval_chart(rows, "about").svg
    assert re.findall("<title>(.*?)</title>", drawn) == [
        "a, z: 6.2 (0.0 to 30.0)", "a, y: 12.5 (10.0 to 20.0)", "a, x: 18.8",
    ]  # fmt: skip
    assert re.findall(r">([xyz]|-?\d+)</text>", drawn)[:7] == [*map(str, range(0, 101, 20)), "z"]


def test_a_chart_is_an_image_without_scripts_whose_text_is_visible():
    names = [HOSTILE[0], "a\x1b[2Jb\u202ec", "\x00"]
    numbers = dict.fromkeys(("value", "low", "high", "chance"), 0.5)
    rows = [{"run": of, "name": name, **numbers} for of in ("r", HOSTILE[0]) for name in names]
    drawn = interval_chart(pl.DataFrame(rows), 'it is "so"').svg
    root = ElementTree.fromstring(drawn)
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", 'it is "so"')
    assert "<script" not in drawn and "a\ufffd[2Jb\ufffdc" in drawn and "currentColor" in drawn
    tags = {of.tag.rpartition("}")[2] for of in root.iter()}
    assert tags == {"svg", "path", "text", "line", "title"}
    assert not [name for of in root.iter() for name in of.attrib if name.startswith("on")]


def test_a_page_of_every_part():
    hostile = "a\x1b[2Jb\u202ec\udcff"
    table = Table("a & b", [Column("name"), Column("n", "number")], [["x", 1.0], ["y", None]])
    columns = [Column("factor"), Column("value", "count"), Column("other", "count")]
    rows = [["order", Cell(1, low=0, high=2), ""], ["order", 3, None], ["", 4, ""]]
    blocks = Table("T", columns, rows, blocks=["a", "a", "b"])
    numbers = dict.fromkeys(("value", "low", "high", "chance"), 0.5)
    chart = interval_chart(pl.DataFrame([{"run": hostile[:-1], "name": "x", **numbers}]), hostile)
    parts = [table, blocks, {"a": "<b>"}, hostile, HOSTILE[3], ["p"], chart]
    text = render(Page("t", "s", ["So."], {"One": parts, "None": []}, ["c"]))
    html = Html(text)
    assert html.tables["a & b"] == [["name", "n"], ["x", "1.0"], ["y", "-"]]
    assert html.tables["T"] == [
        ["factor", "value", "other"], ["a"], ["order", "1\n0 to 2", ""], ["order", "3", "-"],
        ["b"], ["", "4", ""],
    ]  # fmt: skip
    for shown in ("<b>", HOSTILE[3], "So.", "Made by consilience.", "a\ufffd[2Jb\ufffdc\ufffd"):
        assert shown in html.text
    assert not re.search("[\x1b\u202e\udcff]", text) and "None" not in html.text
    assert len(html.all("script")) == 1


# -- all questions --------------------------------------------------------------------------------

MARKS = ("wrong", "right", "elsewhere", "none", "left out")
QUESTIONS = [
    {"question": f"{word}?", "question_2": f"Say: {word}?", "options": "yes;no;maybe", "answer": "yes"}
    for word in ("one", "two", "three")
]  # fmt: skip
OPEN = [{"question": f"{word}?", "answer": "yes"} for word in ("one", "two", "three")]


def data_of(page):
    """The data in a page."""
    text = page.read_text(encoding="utf-8") if hasattr(page, "read_text") else page
    (script,) = re.findall('<script type="application/gzip" id="data">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(script, validate=True)))


def rows_of(data, run=0):
    """Of every answer of a run: item, variant, prompt, gold, mark, answer, and what was written."""
    texts = [*data["texts"], None]  # -1 is none
    for group, item, _, gold, prompts, *replies in data["items"]:
        for name, prompt, reply in zip(
            data["groups"][group][1], prompts, replies[run], strict=True
        ):
            if reply >= 0:
                verdict, answer, said = data["replies"][reply]
                lines = data["prompts"][prompt] if prompt >= 0 else []
                sent = "\n".join(texts[line] for line in lines)
                heads = (texts[item], texts[name], sent, texts[gold])
                yield *heads, MARKS[verdict], texts[answer], texts[said]


def made(rows, suite, names=("only",)):
    """The data of made answers, of one run or of several equal ones."""
    queries = [
        {name: row[name] for name in ("group", "item", "variant")}
        | {"input": [row.get("text") or ""], "choices": row.get("choices", [])}
        for row in rows
    ]
    return question_data(dict.fromkeys(names, pl.DataFrame(rows)), suite, pl.DataFrame(queries))


@pytest.mark.parametrize(("suite", "options", "prompt", "factors", "asked"), [
    ("mini", {"groups": "capital", "limit": 3}, "^.*\\[Y\\].*[.]$", {}, "The capital of "),
    ("mini-languages", {"groups": "capital", "limit": 2}, "\\[Y\\]", {"language": 4}, ""),
    ("mrpc", {"perturbations": "reverse"}, "^Sentence[12]: .*\nSentence[12]: ", {"form": 2}, "Sentence1: "),
    (QUESTIONS, {}, "^Question: (Say: )?(one|two|three)\\?\nA. (yes|no|maybe)\nB. ",
     {"paraphrase": 2, "order": 3}, ""),
    (OPEN, {"generate": True}, "^Question: (one|two|three)\\?\nAnswer:$", {}, ""),
])  # fmt: skip
def test_a_page_has_every_answer_with_its_prompt(suite, options, prompt, factors, asked, tmp_path):
    if suite == "mrpc":
        options = {**options, "data": write_pairs(tmp_path / "pairs.jsonl")}
    run = tmp_path / "run"
    cs.evaluate(suite, "baseline:random", out=run, **options)
    cs.write_report(run, out=tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    rows = [*rows_of(data)]
    shown = [(item, name, gold, mark, answer) for item, name, _, gold, mark, answer, _ in rows]
    assert sorted(shown) == sorted(
        (of["item"], of["variant"], of["gold"],
         "right" if of["answer"] == of["gold"] else "wrong", of["answer"])
        for of in Run.open(run).answers.iter_rows(named=True)
    )  # fmt: skip
    assert len({row[:3] for row in rows}) == len(rows)
    assert all(re.search(prompt, row[2]) for row in rows), rows[0]
    assert {name: len(levels) for name, levels in data["factors"]} == factors
    headings = [data["texts"][item[2]] for item in data["items"]]
    assert all(of.startswith(asked) and "A. " not in of for of in headings), headings
    assert not any("Question:" in of or "Answer:" in of for of in headings)


@pytest.mark.parametrize(("reason", "mark"), [("excluded", "left out"), ("error", "none")])
def test_verdicts_and_what_was_written(reason, mark):
    """By hand: right, of another fact of the subject, wrong in other words, and no answer."""
    facts = [("Peru", "Chile"), ("Peru", "Brazil")]
    suite = suite_of(["[X] borders [Y].", "[Y] is next to [X]."], facts, name="near")
    items = [fact.item for fact in suite.relations[0].facts]
    names = suite.relations[0].design.variants
    head = {"group": "near", "subject": "Peru"}
    first, second = (
        {**head, "item": item, "gold": gold} for item, (_, gold) in zip(items, facts, strict=True)
    )
    rows = [
        first | {"variant": names[0], "answer": "Chile", "text": "Chile", reason: None},
        first | {"variant": names[1], "answer": "Brazil", "text": None, reason: None},
        second | {"variant": names[0], "answer": "the sea", "text": "The Sea\n!", reason: None},
        second | {"variant": names[1], "answer": None, "text": None, reason: "too long"},
    ]  # fmt: skip
    assert [row[-3:] for row in rows_of(made(rows, suite))] == [
        ("right", "Chile", None), ("elsewhere", "Brazil", None),
        ("wrong", "the sea", "The Sea\n!"), (mark, None, "too long"),
    ]  # fmt: skip


def test_two_runs_are_side_by_side_on_the_items_of_both(tmp_path, consilience):
    for name, limit, model in (("a", 3, "random"), ("b", 2, "random"), ("c", 3, "majority")):
        options = {"groups": "capital", "limit": limit, "out": tmp_path / name}
        cs.evaluate("mini", f"baseline:{model}", **options)
    output(consilience, "report", "one=a", "two=c", "--out", "both.html")
    data = data_of(tmp_path / "both.html")
    assert data["runs"] == ["one", "two"]
    for at, name in enumerate("ac"):
        answers = Run.open(tmp_path / name).answers.sort("item", "variant")["answer"].to_list()
        assert [row[5] for row in sorted(rows_of(data, at))] == answers
    output(consilience, "report", "a", "b", "--out", "few.html")
    assert len(data_of(tmp_path / "few.html")["items"]) == 2


ODD = ["\x00\x1b[2J\x9b", "\u202eabc\u2066", "\u2028", "<!--<script>", "\u200f\u05e9\u05dc"]
"""Controls of terminals and of direction, and what opens a script or a comment."""


def test_texts_of_models_neither_end_the_script_nor_run():
    design = replace(Design.of_cells(FactorialDesign.full(()), 0), writes_freely=True)
    group = Relation.of_design("g", (), Candidates((), ()), design)
    suite = Suite("<b>", (group,), words=QUESTION_WORDS)
    head = {"group": "g", "variant": design.variants[0], "gold": "x"}
    rows = [
        {**head, "item": str(at), "subject": str(at), "answer": text, "text": f"{text}!"}
        for at, text in enumerate([*HOSTILE, *ODD])
    ]
    data = made(rows, suite, ["</script><b>"])
    page = render(Page("t", "s", [], {}, questions=data))
    assert len(Html(page).all("script")) == 2 and not Html(page).all("b")
    packed = page[page.index('id="data"') :]
    assert "<!--" not in packed and packed.lower().count("<script") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", page)
    texts = data_of(page)["texts"]
    assert "\ufffd\ufffd[2J\ufffd" in texts and ODD[-1] in texts


CELLS = FactorialDesign.full(
    (Factor("paraphrase", ("1", "2")), Factor("order", ("ABCD", "BCDA", "CDAB", "DABC")))
)  # fmt: skip


def made_page(items, runs=("first", "second"), is_written=False):
    """Questions in eight variants: right in all, but every third has one other answer in each run.

    The other answer is in the second order; the runs give another one for every fifth item.
    """
    design = Design.of_cells(CELLS, 4)
    groups = [Relation.of_design(name, (), Candidates((), ()), design) for name in ("even", "odd")]
    suite = Suite("made", tuple(groups), words=QUESTION_WORDS)
    tables, queries = {name: [] for name in runs}, []
    for at in range(items):
        options = [f"City {at}", f"Town {at}", f"Village {at}", f"Port {at}"]
        for place, name in enumerate(design.variants):
            key = {"group": ("even", "odd")[at % 2], "item": f"q{at}", "variant": name}
            turned = options[place % 4 :] + options[: place % 4]
            lines = [f"{label}. {text}" for label, text in zip("ABCD", turned, strict=True)]
            question = f"Where did the {at}th meeting of the society of all travellers take place?"
            prompt = "\n".join(["Answer by a letter.", question, *lines, "Answer:"])
            queries.append({**key, "input": [prompt], "choices": [*"ABCD"]})
            for run, rows in enumerate(tables.values()):
                other = at % 3 == 0 and place % 4 == 1
                chosen = options[1 + run * (at % 5 == 0)] if other else options[0]
                rows.append({**key, "subject": f"q{at}", "gold": options[0], "answer": chosen})
                if is_written:
                    words = (f"{at * place * word % 9973:x}" for word in range(30))
                    rows[-1] |= {"text": " ".join([name, *words])}
    frames = {name: pl.DataFrame(rows) for name, rows in tables.items()}
    data = question_data(frames, suite, pl.DataFrame(queries))
    table = Table(
        "T", [Column("name"), Column("n", "number")], [["x", 2.0], ["y", None], ["z", 3.0]]
    )
    details = {"One": [table]}
    return render(Page("Made", "s", ["So."], details, questions=data))


@pytest.mark.parametrize(("is_written", "most"), [(False, 3e5), (True, 2e6)])
def test_ten_thousand_answers_take_two_megabytes(is_written, most):
    """Also if each answer is a text of 30 words of its own."""
    page = made_page(1250, ["only"], is_written)
    assert len(data_of(page)["items"]) == 1250
    assert len(page.encode()) < most


@pytest.mark.parametrize(("prompts", "headings"), [
    (["A.\nQuestion: Who?\nAnswer:", "B.\nQuestion: Who?\nAnswer:", "A.\nQuestion: When?\nAnswer:"],
     ["A.\nQuestion: Who?", "B.\nQuestion: Who?", "A.\nQuestion: When?"]),
    ([f"<|user|>\nI am {name}.\n<|assistant|>\nHi.\n<|user|>\n{text}?\n"
      for name, text in (("Ada", "Who"), ("Bob", "Who"), ("Ada", "When"))],
     ["I am Ada.\nHi.\nWho?", "I am Bob.\nHi.\nWho?", "I am Ada.\nHi.\nWhen?"]),
])  # fmt: skip
def test_a_heading_tells_items_apart(prompts, headings):
    """It has what comes before a question, too: a passage, turns of a chat."""
    design = Design.of_cells(FactorialDesign.full(()), 0)
    suite = Suite(
        "s", (Relation.of_design("g", (), Candidates((), ()), design),), words=QUESTION_WORDS
    )
    rows = [
        {"group": "g", "item": f"q{at}", "variant": design.variants[0], "subject": "s", "gold": "x",
         "answer": "x", "text": prompt}
        for at, prompt in enumerate(prompts)
    ]  # fmt: skip
    data = made(rows, suite)
    assert [data["texts"][item[2]] for item in data["items"]] == headings


FRAME = """<body><script>addEventListener("message", event => {{ document.body.dataset.seen = event.data; }});
</script><iframe src="driven.html" style="width: {width}px; height: 900px; border: 0"></iframe></body>"""


def seen_in(browse, page, width, folder):
    """What the driver saw of a page at a width in pixels; the page permits the driver's script."""
    driver = (CASES / "browser.html").read_text(encoding="utf-8")
    (script,) = re.findall("<script>(.*?)</script>", driver, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace("script-src '", f"script-src 'sha256-{digest}' '")
    (folder / "driven.html").write_text(page.rpartition("</body>")[0] + driver, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    document, logged = browse(folder / "frame.html", "--window-size=1400,1000")
    assert logged == []
    return json.loads(Html(document).all("body")[0]["data-seen"])


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_worst_first_filters_moves_and_links(width, browse, tmp_path):
    """6,000 questions, 96,000 answers. By hand: 2,000 disagree, and in 400 the runs differ."""
    seen = seen_in(browse, made_page(6000), width, tmp_path)
    assert (seen["blocked"], seen["failed"], seen["requests"]) == ([], [], [])
    assert seen["slash"] and seen["back"] and not seen["isOpen"] and seen["clipped"] == []
    assert seen["drawn"] < 40 and 380 < seen["height"] < 570
    assert seen["all"] == "6,000 of 6,000 questions"
    assert seen["row"].startswith("Where did the 0th meeting") and "\u2260\u00a02" in seen["row"]
    assert "\u2713\u00a0City 0 (right) \u00d76" in seen["row"]
    assert "A. City 0\nB. Town 0" in seen["item"] and "paraphrase=2, order=" in seen["item"]
    assert seen["marked"][:4] == ["Town", "Village", "Port", "City"]
    assert (seen["atFirst"], seen["address"]) == ("", "#q=odd/q75"), "of odd ones q15, q45 and q75"
    assert seen["linked"].startswith("even, q44. Right answer: City 44")
    assert seen["moves"][:5] == [1, 2, 1, 5999, 0] and 2 < seen["moves"][5] < 30
    assert seen["text"].startswith("111 ")
    assert seen["nothing"] == "0 of 6,000 questions Nothing passes the filters."
    counts = {name: seen[name].partition(" ")[0] for name in seen if " " in name}
    assert counts == {
        "show disagree": "2,000", "show agree": "4,000", "show wrong": "2,000", "show differ": "400",
        "show all": "6,000", "order 0": "6,000", "order -1": "6,000", "group 1": "3,000",
    }  # fmt: skip
    assert (seen["printed"], seen["isOpenOnPaper"]) == (50, True)
    assert seen["onPaper"] == ["none", "none", "none", "block"]
    assert seen["rest"].startswith("The first 50 of 3,000 questions")


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_a_browser_runs_no_text_and_clips_nothing(width, browse, text_of_two, tmp_path):
    seen = seen_in(browse, text_of_two, width, tmp_path)
    assert (seen["blocked"], seen["failed"], seen["owned"], seen["bold"]) == ([], [], "", 0)
    assert seen["clipped"] == [] and seen["drawn"] > 5


@pytest.mark.parametrize(("prompts", "choices", "heading", "panel"), cases("panels"))
def test_the_panel_has_all_lines_and_marks_what_differs(
    prompts, choices, heading, panel, browse, tmp_path
):
    """Of the first of two questions; ``panel``: the words of each variant, marked ones in []."""
    group = Relation.of_design("g", (), Candidates((), ()), Design.of_cells(CELLS, 4))
    rows = [
        {"group": "g", "item": item, "variant": name, "subject": item, "gold": "x", "answer": "x",
         "text": prompt.replace("~", end), "choices": choices}
        for item, end in (("q1", ""), ("q2", "!"))
        for name, prompt in zip(group.design.variants, prompts, strict=False)
    ]  # fmt: skip
    data = made(rows, Suite("s", (group,), words=QUESTION_WORDS))
    page = tmp_path / "page.html"
    page.write_text(render(Page("t", "s", [], {}, questions=data)), "utf-8")
    text = browse(page)[0]
    rows, text = text.partition('id="rows"')[2], text.partition('id="item"')[2]
    assert heading.replace("\n", " / ") in Html(rows.partition('id="item"')[0]).text
    blocks = re.findall('<div class="name">(.*?)<(?:details|/div)', text, re.DOTALL)
    blocks = [of.replace("<mark>", "[").replace("</mark>", "]") for of in blocks]
    shown = (re.sub("<small>.*</small>", "", block) for block in blocks)
    assert [" ".join(block.split()) for block in shown] == panel
