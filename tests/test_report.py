"""Reports of runs: the right numbers on one page that is whole, safe and usable; files."""

import json
import math
import re
import shlex
import shutil
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from checks import refusal
from conftest import cases, run_command
from consilience.metrics.registry import label_of
from consilience.runs.run import Run
from report_builders import (
    CASES,
    HOSTILE,
    LABELS,
    PATTERNS,
    Html,
    change_record,
    kept_run,
    page_of,
    pair_run,
    shown_number,
    write_hostile_suite,
)

RUNS = {
    "random": ("baseline:random", "--noise-floor", "256"),
    "majority": ("baseline:majority",),
    "oracle": ("baseline:oracle",),
    "published": ("baseline:majority", "--protocol", "published"),
}
"""Runs on the suite whose words would break a page."""


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


def by_relation(html):
    rows = html.rows("Each relation, in percent")
    return dict(zip("ABC", rows.values(), strict=True))


def test_the_numbers_are_those_of_the_run(html_of_one, runs):
    html = html_of_one
    metrics = pl.read_csv(runs / "random" / "metrics.csv").filter(kind="whole")
    means = {row["metric"]: row for row in metrics.filter(over="mean").to_dicts()}
    shown = {name: f"{100 * row['value']:.1f}\N{NO-BREAK SPACE}%" for name, row in means.items()}
    facts = "of a relation's facts, on average."
    for sentence in (
        f"The answer to the base pattern is right for {shown['accuracy']} {facts}",
        f"Two patterns of a fact agree {shown['consistency']} of the time "
        f"({shown['chance_consistency']} expected by chance).",
        f"The answer is right in every pattern for {shown['consistent_accuracy']} {facts}",
        "Majority baseline: 100.0 %",
    ):
        assert sentence in html.text

    def bounds_of(row, none):
        bounds = " to ".join(shown_number(row[bound]) for bound in ("low", "high"))
        return none if math.isnan(row["low"]) else bounds

    rows = by_relation(html)
    for name, group in (("consistency", "A"), ("determinism", "C")):
        (row,) = metrics.filter((pl.col("metric") == name) & (pl.col("group") == group)).to_dicts()
        mark = "*" * (name == "determinism")
        assert rows[group][3] == shown_number(row["value"]) + mark + bounds_of(row, "")


def test_what_came_from_data_stays_text(html_of_two):
    html = html_of_two
    for text in (*HOSTILE[:3], "{{ 7 * 7 }} {% raw %}"):
        assert text in html.text
    assert not html.all("img") and not html.all("b")
    scripts = [script for script in html.all("script") if script.get("type") != "application/json"]
    assert len(scripts) == 2
    assert not any("onerror" in attributes for _, attributes in html.elements)


def test_the_page_needs_nothing_else(html_of_two, text_of_two):
    assert len(text_of_two.encode()) < 2_000_000
    html = html_of_two
    for tag, attributes in html.elements:
        for name in {"src", "href", "action", "data"} & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    policy = next(meta for meta in html.all("meta") if "http-equiv" in meta)["content"]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in text_of_two and "url(http" not in text_of_two


def test_the_page_can_be_used_by_keyboard_and_read_aloud(html_of_two, text_of_two):
    html = html_of_two
    assert html.all("html")[0]["lang"] == "en" and len(html.all("h1")) == len(html.all("main")) == 1
    ids = [attributes["id"] for _, attributes in html.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and {link["href"][1:] for link in html.all("a")} <= set(ids)
    named = [of["aria-labelledby"] for of in html.all("section") if "id" in of]
    assert {*named} <= set(ids)
    tables = len(html.all("table"))
    assert tables == len(html.tables)  # captions are unique
    assert tables == sum(box.get("class") == "scroll" for box in html.all("section"))
    assert all(cell["scope"] in ("row", "col", "rowgroup") for cell in html.all("th"))
    assert all(all(rows[0]) and all(row[0] for row in rows) for rows in html.tables.values())
    assert len(html.all("figure")) == len(html.all("figcaption")) == 2
    specs = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', text_of_two)
    assert len(specs) == 2
    for spec in map(json.loads, specs):
        assert len(spec["description"]) > 20 and spec["background"] == "transparent"


def test_the_answer_is_on_the_first_screen_and_digests_are_folded(html_of_two, text_of_two):
    html = html_of_two
    assert "How consistent are baseline:random, baseline:majority?" in html.text
    assert [section["id"] for section in html.all("section") if "id" in section] == [
        "verdict", "summary", "differences", "flips", "by-relation", "patterns", "edits", "examples",
        "caveats", "repeat",
    ]  # fmt: skip
    first = text_of_two[: text_of_two.index('id="differences"')]
    assert first.index("headline numbers") < first.index("figure-relations")
    rows = html.rows("The headline numbers")
    assert rows.keys() == {"baseline:random", "baseline:majority", "majority baseline"}
    assert rows["baseline:majority"][2].startswith("100.0")
    assert rows["majority baseline"][1:3] == [rows["baseline:majority"][1][:4], "100.0"]
    unfolded = re.sub(r"<details>.*?</details>", "", text_of_two, flags=re.DOTALL)
    assert "SHA-256" in text_of_two
    assert "SHA-256" not in unfolded


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
        title = f"{run} minus baseline:majority, in percent and points"
        (means,) = (
            {row[0]: row for row in table}
            for name, table in html.tables.items()
            if name == f"suite: {title}"
        )
        assert means["Accuracy"][3] == shown_number(differences["accuracy"], "{:+.1f}")
        assert (means["Accuracy"][2] == "100.0") == (run == "baseline:oracle")
        label = label_of("consistent_accuracy")
        assert (float(means[label][3]) > 0) or run == "baseline:random"
        assert f"Each relation: suite: {title}" in html.tables
    assert "a mean over 2 relations has a p of at least 0.5" in html.text


def test_queries_without_an_answer_are_counted_by_their_reason(runs, tmp_path):
    run = Run.open(runs / "random")
    assert "Every query has an answer." in page_of(run.path).text
    blank = pl.when(pl.int_range(pl.len()) < 5).then(pl.lit(" ")).otherwise("answer")
    answers = run.answers.with_columns(answer=blank, error=pl.lit("a refusal"))
    answers = answers.with_columns(input=run.queries["input"])
    html = page_of(kept_run(tmp_path / "blank", run.suite, answers))
    rows = html.rows("5 queries not asked or without an answer")
    assert rows == {"A": ["A", "no answer: a refusal", "5"]}
    assert "Every query has an answer." not in html.text
    rest = kept_run(tmp_path / "rest", run.suite, answers.filter(pl.col("variant") != PATTERNS[0]))
    text = page_of(rest).text
    assert "nan" not in text.replace("nano", "") and "Two patterns of a fact agree" in text


def test_a_run_that_was_stopped_does_not_look_whole(copied):
    """B is not answered yet: its row is there, without numbers, and the page says why."""
    run = copied("random")
    (run / "answers" / "1.parquet").unlink()
    change_record(run, finished=None)
    html = page_of(run)
    rows = by_relation(html)
    assert set(rows["B"][1:]) == {"-"} and "-" not in rows["A"][1:]
    document = json.loads(run_command("report", run, "--json")[1])
    for note in (
        "not finished: the numbers are of the existing answers", "no answers for 1 relation: B",
    ):  # fmt: skip
        assert note in html.text and any(note in warning for warning in document["warnings"])
    assert document["run"]["versions"]["consilience"] and "git" in document["run"]


def test_how_to_repeat_a_run_is_its_command(consilience, tmp_path, monkeypatch):
    """As it was typed, --out and all; the suite may have changed or gone."""
    suite = write_hostile_suite(tmp_path / "suite")
    command = ["probe", "--model", "baseline:random", "--seed", "3", "--suite", "suite"]
    command += ["--out", "a b"]
    assert consilience(*command)[0] == 0
    assert consilience(*command, "--device", "cpu")[0] == 0  # resumes it
    text = page_of("a b", "--out", "one.html").text
    typed = shlex.join(["consilience", *command])
    assert text.count(typed) == 1 and "--device" not in text
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    shutil.rmtree(suite)
    assert page_of("../a b", "--out", "../two.html").text == text


def test_sections_without_data_are_left_out(consilience, write_suite):
    """One pattern: nothing can agree. No answer at all: only that is reported."""
    pattern = "The capital of [X] is [Y]."
    suite = write_suite(patterns=[{"relation": "capital", "pattern": pattern}])
    options = ["--model", "baseline:majority", "--suite", suite, "--out", "one"]
    assert consilience("probe", *options)[0] == 0
    headings = {section.get("id") for section in page_of("one").all("section")}
    assert headings - {None} == {"summary", "by-relation", "caveats", "repeat"}
    out = consilience("analyze", "patterns", "one")[1]
    assert "capital: patterns" in out and "agreement of each two" not in out
    run = Run.open("one")
    answers = run.answers.with_columns(answer=pl.lit(""), input=run.queries["input"])
    assert "No data." in page_of(kept_run("none", run.suite, answers)).text


# -- sentence pairs ------------------------------------------------------------------------------


def test_runs_on_sentence_pairs_are_reported_with_their_differences(tmp_path):
    """Three of twelve labels change, then one: C_R 75.0 and 91.7, and 16.7 points between."""
    first = pair_run(tmp_path / "one", {1, 4, 6})
    second = pair_run(tmp_path / "two", {1})
    files = ["--tables", tmp_path / "tables", "--figures", tmp_path / "figures"]
    specs = [f"one={first}", f"two={second}"]
    html = page_of(*specs, "--out", tmp_path / "page.html", *files)
    title = "rte: two minus one, in percent and points"
    differences = {row[0]: row for row in html.tables[title][1:]}
    assert differences["Consistency C_R"][1:4] == ["75.0", "91.7", "+16.7"]
    assert {tuple(row) for row in html.tables["one: labels that changed"][1:]} == {
        ("reverse", "rte", *LABELS, "2"), ("reverse", "rte", *LABELS[::-1], "1")
    }  # fmt: skip
    for text in (
        "one, rte, reverse: 3 right labels became wrong, 0 wrong labels became right",
        "<i>a</i>", "All runs: two items were truncated",
    ):  # fmt: skip
        assert text in html.text
    assert not html.all("i")
    assert html.text.count("no command is known; run.json has the settings") == 2
    assert html.text.count("All runs: two items were truncated") == 1
    tables = tmp_path / "tables"
    lines = (tables / "consistency.md").read_text().splitlines()
    for line in (  # the paper's rows first
        "| RoBERTa-large | 74.7 | 59.6 | 90.0 |", "| one | 100.0 | 75.0 | 100.0 |",
        "| two | 100.0 | 91.7 | 100.0 |", "* All runs: two items were truncated",
    ):  # fmt: skip
        assert line in lines
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
        "compared on the 27 queries that all runs have, of 9 sentence pairs (36 in one, 27 in two)"
    )
    html = page_of(*specs, "--out", tmp_path / "page.html")
    assert "rte: two minus one, in percent and points" in html.tables and note in html.text
    for name in ("one", "two"):
        assert [row[-1] for row in html.tables[f"{name}: labels that changed"][1:]] == ["1"]
    assert note in run_command("compare", *specs)[2]


# -- files ----------------------------------------------------------------------------------------


def test_figures_and_tables_are_whole_files(copied, tmp_path):
    """No label is truncated."""
    run, figures, tables = copied("random"), tmp_path / "figures", tmp_path / "tables"
    change_record(run, warnings=["mind the gap"])
    out = run_command("report", run, "--figures", figures, "--tables", tables, "--json")[1]
    document = json.loads(out)
    assert all(Path(file).is_file() for file in document["files"])
    names = {"relations", "edits"}
    assert {file.name for file in figures.iterdir()} == {f"{name}.svg" for name in names}
    drawn = {}
    for name in names:
        svg = (figures / f"{name}.svg").read_text(encoding="utf-8")
        drawn[name] = [node.text for node in ElementTree.fromstring(svg).iter() if node.text]
        assert not any("\N{HORIZONTAL ELLIPSIS}" in text for text in drawn[name])
        assert "currentColor" not in svg
    relations = " ".join(drawn["relations"])
    assert {"expected by chance", "majority baseline"} <= {*drawn["relations"]}
    assert all(label.split()[0][:20] in relations for label in HOSTILE[:3])
    rows = pl.read_csv(tables / "relations.csv")
    assert rows.select("group", "relation").rows() == [("baseline:random", name) for name in "ABC"]
    assert rows["Determinism"].is_not_null().to_list() == [False, False, True]
    assert rows["Consistency"].is_not_null().to_list() == [True, True, False]
    assert "mind the gap" in document["warnings"]
    for name in ("relations", "knowledge"):
        text = (tables / f"{name}.tex").read_text()
        assert "\\toprule" in text and "% mind the gap\n" in text
    assert "| Accuracy |" in (tables / "knowledge.md").read_text()


@pytest.mark.parametrize(("arguments", "message"), cases("report_bad"))
def test_bad_input_is_refused_with_a_reason(arguments, message, consilience, runs, tmp_path):
    (tmp_path / "one").symlink_to(runs / "random")
    pair_run(tmp_path / "pairs", {1})
    (tmp_path / "empty").mkdir()
    err = refusal(consilience, "report", *arguments)
    assert message in " ".join(err.split())


# -- in a browser ---------------------------------------------------------------------------------

DRIVER = (CASES / "browser.html").read_text(encoding="utf-8")
"""A script that uses a page and reports what it saw to the page around it."""

FRAME = """<body><script>addEventListener("message", event => {{ document.body.dataset.seen = event.data; }});
</script><iframe src="{page}" style="width: {width}px; height: 900px; border: 0"></iframe></body>"""
"""A page around another one, which may be narrower than a browser's window."""


@pytest.fixture
def seen_in(browse, tmp_path):
    """``seen_in(page, width)``: the report of the driver on a page at a width in pixels."""

    def seen(path, width):
        page, _, _ = path.read_text(encoding="utf-8").rpartition("</body>")
        (tmp_path / "driven.html").write_text(page + DRIVER, encoding="utf-8")
        frame = tmp_path / "frame.html"
        frame.write_text(FRAME.format(page="driven.html", width=width), encoding="utf-8")
        document, logged = browse(frame, "--window-size=1400,1000")
        assert logged == []
        return json.loads(Html(document).all("body")[0]["data-seen"])

    return seen


def check_layout(seen):
    """Nothing is clipped, also inside a box that does not say that it can be scrolled."""
    layout = seen["layout"]
    assert layout["clipped"] == []
    assert layout["texts"] > 6, "legible"
    assert not seen["wide"] and seen["requests"] == []
    assert not {"blocked", "failed"} & seen.keys()


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_a_browser_opens_sorts_and_switches(width, seen_in, text_of_two, runs):
    seen = seen_in(runs / "both.html", width)
    check_layout(seen)
    assert (seen["drawn"], seen["before"], seen["sorted"]) == (2, "ABC", "descending")
    assert seen["names"] == seen["ascending"][::-1]
    assert seen["numbers"] == sorted(seen["numbers"], reverse=True)
    assert seen["marks"] == 9  # with the majority baseline
    assert seen["focus-relations"]
    assert "Consistency" in seen["first"] and seen["first"] != seen["then"]
    assert "Accuracy" in seen["then"]
    assert seen["layout"]["tables"] > 5 and seen["layout"]["cards"] == (width == 390)
    assert (width > 390) or seen["layout"]["wider"] == []


def test_a_browser_shows_every_column_of_a_run_with_long_names(seen_in, tmp_path):
    """At 1280 pixels no table of one run on mini has to scroll; nor do pairs of one seed."""
    options = ["--suite", "mini", "--limit", 4, "--out", tmp_path / "run"]
    assert run_command("probe", "--model", "baseline:random", *options)[0] == 0
    pairs = pair_run(tmp_path / "pairs", {1, 4})
    for path, figures in ((tmp_path / "run", 2), (pairs, 1)):
        page_of(path)
        seen = seen_in(path / "report.html", 1280)
        check_layout(seen)
        assert (seen["layout"]["wider"], seen["drawn"]) == ([], figures)
    check_layout(seen_in(pairs / "report.html", 800))
