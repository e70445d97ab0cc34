"""Reports: the right numbers on one page that is whole, safe and usable; figures and tables as files."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import altair
import polars as pl
import pytest

from conftest import ROOT
from consilience.analysis.examples import Example, Reply
from consilience.analysis.patterns import item_table
from consilience.ask_pairs import CHANGED_ANSWERS_SCHEMA
from consilience.errors import ConsilienceError
from consilience.metrics.registry import label_of, main_metrics
from consilience.provenance import command_line
from consilience.report import charts, fact_sections
from consilience.report import html as html_module
from consilience.report.chart_parts import RUN_SHAPES
from consilience.report.charts import in_tenths
from consilience.report.figures import COLOURS, save_figure, spec_of
from consilience.report.html import html_rows, render
from consilience.report.page import Facts, Figure, Folded, Page, Points, Section, Text
from consilience.report.repeat import again
from consilience.report.report_page import report_page
from consilience.report.run_view import FactView, PairView, RunView
from consilience.report.table import Column, Table
from consilience.run import Run
from consilience.run_folder import RunFolder
from consilience.schemas import ANSWERS_SCHEMA, COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.suites.pairs import suite_of_task
from consilience.suites.tasks import TASKS
from test_metrics import make_suite, table

HOSTILE = [
    "<script>document.body.dataset.owned = 'yes'</script>",
    '"><img src=x onerror="document.body.dataset.owned=1">',
    "</script><b>bold</b>",
    "{{ 7 * 7 }} {% raw %}",
    "]]>&amp;<!--",
]
CASES = ROOT / "tests" / "cases"
PATTERNS = ("[X] is <b>[Y]</b>.", "[Y] {{ is }} [X]", "</script>[X], [Y]")


class Html(HTMLParser):
    """Elements with attributes, tables as rows of texts by caption, and all visible text."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.tables, self.text, self.open = [], {}, "", []
        self.caption, self.body = None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.caption, self.body = "", []
        elif tag == "tr":
            self.body.append([])
        elif tag in ("td", "th") and self.body:
            self.body[-1].append("")

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside not in ("script", "style"):
            self.text += data
        if inside == "caption":
            self.caption += data
        elif "tr" in self.open and data.strip():
            self.body[-1][-1] += data.strip()

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass
        if tag == "table":
            self.tables[self.caption] = self.body

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def rows(self, caption):
        """The rows of the one table with this in its caption, by their first cell."""
        (table,) = (rows for title, rows in self.tables.items() if caption in title)
        return {row[0]: row for row in table[1:]}


@pytest.fixture
def hostile_suite(write_suite):
    """Three relations, one with several right answers, whose words would break a page."""
    relations = [
        {"relation": each, "label": HOSTILE[at], "cardinality": "N-M" if each == "C" else "N-1"}
        for at, each in enumerate("ABC")
    ]
    patterns = [{"relation": each, "pattern": text} for each in "ABC" for text in PATTERNS]
    facts = [
        {"relation": each, "subject": f"{HOSTILE[at % 5]} {at}", "object": HOSTILE[at % 4]}
        for each, places in (("A", range(9)), ("B", range(3, 12)), ("C", range(9)))
        for at in places
    ]
    edges = [
        {"relation": each, "pattern_a": PATTERNS[first], "pattern_b": PATTERNS[second],
         "syntactic": first == 0, "lexical": second == 2, "determiner": False}
        for each in "AB"
        for first, second in ((0, 1), (0, 2), (1, 2))
    ]  # fmt: skip
    return write_suite(relations=relations, patterns=patterns, facts=facts, edges=edges)


@pytest.fixture
def probed(consilience, hostile_suite, tmp_path):
    """``probed(baseline, ...)``: the folder of a run on the hostile suite."""

    def run(model, *more, suite=hostile_suite):
        place = tmp_path / model.replace(":", "-")
        options = ["--suite", suite, "--out", place]
        assert consilience("probe", "--model", f"baseline:{model}", *options, *more)[0] == 0
        return place

    return run


@pytest.fixture
def report(consilience):
    """``report(run, ...)``: the page of a report, read."""

    def make(*arguments):
        status, out, err = consilience("report", *arguments)
        assert status == 0, err
        return Html(Path(out.splitlines()[0]).read_text(encoding="utf-8"))

    return make


def shown_number(value, template="{:.1f}"):
    return "-" if value is None or math.isnan(value) else template.format(100 * value)


def test_the_numbers_are_those_of_the_run(report, probed):
    run = probed("random", "--noise-floor")
    html = report(run)
    metrics = pl.read_csv(run / "metrics.csv").filter(pl.col("subset") == "all")
    macro = {row["metric"]: row for row in metrics.filter(pl.col("group") == "MACRO").to_dicts()}
    names = ("consistency", "accuracy", "consistent_accuracy")
    whole = [f"{100 * macro[name]['value']:.0f} %" for name in names]
    assert (
        "On average over 2 relations, {} gives the same answer to {} of the pairs of patterns of a "
        "fact, gets {} of the facts right in the base pattern and gets {} right in every pattern."
    ).format(f"baseline:{run.name}", *whole) in html.text
    expected = {}
    for name in set(main_metrics()) & macro.keys():
        row = macro[name]
        value = shown_number(row["value"]) + " ± " * (not math.isnan(row["std"]))
        value += "" if math.isnan(row["std"]) else shown_number(row["std"])
        bounds = " to ".join(shown_number(row[bound]) for bound in ("low", "high"))
        bounds = "-" if math.isnan(row["low"]) else bounds
        expected[label_of(name)] = [label_of(name), value, bounds, str(row["n"])]
    assert html.rows("Means over relations") == expected
    assert len(expected) == 11
    assert sum("±" in row[1] and row[2] != "-" for row in expected.values()) >= 3
    by = html.rows("Each relation, in percent")
    assert list(by) == ["A", "B", "C"]
    for name, group in (("consistency", "A"), ("determinism", "C")):
        chosen = metrics.filter((pl.col("metric") == name) & (pl.col("group") == group))
        assert by[group][5] == shown_number(chosen["value"][0])
    assert html.rows("noise floor").keys() >= {"repeated", "one by one"}


def test_the_same_answers_by_the_other_protocol(consilience, report, probed):
    """The oracle knows every fact: of what it does not know, strict has no data, published 0."""
    run = probed("oracle")
    values = []
    for protocol in ("strict", "published"):
        out = consilience("score", run, "--suite", "suite", "--protocol", protocol, "--json")[1]
        document = json.loads(out)
        rows = [row for row in document["metrics"] if row["group"] == "MACRO"]
        values.append({row["metric"]: row["value"] for row in rows if row["subset"] == "all"})
    strict, published = values
    differing = [name for name in main_metrics() if strict.get(name) != published.get(name)]
    assert differing, "this would not see which protocol counted"
    both = report(run).rows("counted by the protocol published")
    for name in differing:
        assert both[label_of(name)][1:3] == [shown_number(each[name]) for each in values]
    (note,) = (note for note in document["warnings"] if "asked under" in note)
    assert note in report(run, "--protocol", "published").text


@pytest.fixture
def page_of_two(report, probed):
    """The text of a page on two runs."""
    report(probed("random"), probed("majority"), "--out", "both.html")
    return Path("both.html").read_text(encoding="utf-8")


def test_what_came_from_data_stays_text(page_of_two):
    html = Html(page_of_two)
    for text in (*HOSTILE[:3], "{{ 7 * 7 }} {% raw %}"):
        assert text in html.text
    assert not html.all("img")
    assert not html.all("b")
    scripts = [script for script in html.all("script") if script.get("type") != "application/json"]
    assert len(scripts) == 2
    assert not any("onerror" in attributes for _, attributes in html.elements)


def test_the_page_needs_nothing_else(page_of_two):
    assert len(page_of_two.encode()) < 2_000_000
    html = Html(page_of_two)
    for tag, attributes in html.elements:
        for name in {"src", "href", "action", "data"} & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    policy = next(each for each in html.all("meta") if "http-equiv" in each)["content"]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in page_of_two
    assert "url(http" not in page_of_two


def test_the_page_can_be_used_by_keyboard_and_read_aloud(page_of_two):
    html = Html(page_of_two)
    assert html.all("html")[0]["lang"] == "en"
    assert len(html.all("h1")) == len(html.all("main")) == 1
    ids = [attributes["id"] for _, attributes in html.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in html.all("a")} <= set(ids)
    assert {section["aria-labelledby"] for section in html.all("section")} <= set(ids)
    tables = len(html.all("table"))
    assert tables == len(html.tables)  # each has a caption of its own
    assert tables == sum(box.get("role") == "region" for box in html.all("div"))
    assert all(cell["scope"] in ("row", "col") for cell in html.all("th"))
    assert all(all(rows[0]) and all(row[0] for row in rows) for rows in html.tables.values())
    assert len(html.all("figure")) == len(html.all("figcaption")) == 5
    specs = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', page_of_two)
    assert len(specs) == 5
    for spec in map(json.loads, specs):
        assert len(spec["description"]) > 20
        assert spec["background"] == "transparent"


def test_runs_side_by_side_have_paired_differences(consilience, report, probed):
    runs = probed("majority"), probed("oracle"), probed("random")
    html = report(*runs, "--out", "both.html")
    rows = json.loads(consilience("compare", *runs, "--json")[1])["differences"]
    for run in ("baseline:oracle", "baseline:random"):
        differences = {
            row["metric"]: row["difference"]
            for row in rows
            if (row["subset"], row["group"], row["second"]) == ("all", "MACRO", run)
        }
        by = html.rows(f"{run} minus baseline:majority: means over relations")
        assert by["Accuracy"][3] == shown_number(differences["accuracy"], "{:+.1f}")
        assert (by["Accuracy"][2] == "100.0") == (run == "baseline:oracle")
        assert (float(by["Consistent-Acc"][3]) > 0) or run == "baseline:random"
        assert list(html.rows(f"{run} minus baseline:majority: each relation")) == ["A", "B", "C"]
    assert "a mean over 2 relations has a p of at least 0.5" in html.text


def test_runs_that_were_asked_otherwise_are_noted(report, probed):
    first, second = probed("random"), probed("majority", "--protocol", "published")
    note = (
        "baseline:majority was asked with another protocol: published, baseline:random with strict"
    )
    assert note in report(first, second, "--out", "both.html").text


def test_a_table_of_answers_is_reported_as_far_as_it_goes(report, hostile_suite, probed):
    files = sorted((probed("random") / "answers").iterdir())
    answers = pl.concat([pl.read_parquet(file) for file in files]).select(
        "group", "item", "subject", "variant", "gold", "answer", "margin"
    )

    def page(table):
        table.write_csv("answers.csv")
        return report("answers.csv", "--suite", hostile_suite, "--out", "page.html")

    text = page(answers).text
    assert "how they came about is not known" in text
    assert "The noise floor was not measured" in text
    assert "Every question that was asked has an answer." in text
    blank = pl.when(pl.int_range(pl.len()) < 5).then(pl.lit(" ")).otherwise("answer")
    html = page(answers.with_columns(answer=blank))
    assert html.rows("5 questions without an answer") == {"A": ["A", "no answer", "5"]}
    assert "Every question that was asked has an answer." not in html.text
    is_base = pl.col("variant") == PATTERNS[0]
    text = page(answers.filter(~is_base)).text
    for name in "ABC":
        assert f"{name}: asked in 2 of 3 patterns, not in the base pattern" in text
    assert "nan" not in text
    assert "On average over 2 relations, answers.csv gives the same answer to" in text
    text = page(answers.filter(is_base)).text
    assert "A: asked in 1 of 3 patterns" in text
    assert "base pattern" not in text.split("asked in 1 of 3 patterns")[1].split("B:")[0]


def test_a_run_that_was_stopped_does_not_look_whole(consilience, report, probed):
    """B is not answered yet: its row is there, without numbers, and the page says why."""
    run = probed("random")
    (run / "answers" / "B.parquet").unlink()
    change_record(run, finished=None)
    html = report(run)
    assert "18 facts of 2 of 3 relations" in html.text
    by = html.rows("Each relation, in percent")
    assert set(by["B"][4:]) == {"-"}
    assert "-" not in by["A"][4:]
    document = json.loads(consilience("report", run, "--json")[1])
    for note in (
        "not finished: the numbers are of what is answered", "no answers for 1 relation: B",
    ):  # fmt: skip
        assert note in html.text
        assert any(note in warning for warning in document["warnings"])
    assert document["run"]["versions"]["consilience"]
    assert "git" in document["run"]


def change_record(run, **changes):
    """Change fields of run.json."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | changes))


def test_how_to_repeat_a_run_is_its_command(
    consilience, report, hostile_suite, tmp_path, monkeypatch
):
    """As it was typed, --out and all; a suite in a folder is found again from anywhere."""
    command = ["probe", "--model", "baseline:random", "--seed", "3", "--suite", "suite"]
    command += ["--out", "a b"]
    assert consilience(*command)[0] == 0
    assert consilience(*command, "--device", "cpu")[0] == 0  # resumes it
    typed = shlex.join(["consilience", *command])
    text = report("a b", "--out", "one.html").text
    assert text.count(typed) == 1
    assert "--device" not in text
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    changed = "the suite 'suite' is not as it was when ../a b was asked"
    text = report("../a b", "--out", "two.html").text
    assert typed in text
    assert changed not in text
    assert consilience("report", "../a b", "--data-dir", ".", "--out", "two.html")[0] == 2
    fact = json.dumps({"relation": "A", "subject": "new", "object": "word"})
    facts = hostile_suite / "facts.jsonl"
    facts.write_text(f"{facts.read_text()}{fact}\n")
    assert changed in report("../a b", "--out", "two.html").text
    assert changed in consilience("analyze", "patterns", "../a b")[2]
    shutil.rmtree(hostile_suite)
    status, _, err = consilience("report", "../a b", "--out", "two.html")
    assert (status, "no suite 'suite'" in err) == (2, True)


def test_what_there_is_no_data_for_is_left_out(consilience, report, write_suite):
    """One pattern: nothing can agree. No answer at all: nothing is said but that."""
    pattern = "The capital of [X] is [Y]."
    suite = write_suite(patterns=[{"relation": "capital", "pattern": pattern}])
    options = ["--model", "baseline:majority", "--suite", suite, "--out", "one"]
    assert consilience("probe", *options)[0] == 0
    headings = {section["id"] for section in report("one").all("section")}
    assert headings == {"asked", "numbers", "relations", "knowledge", "care", "again"}
    out = consilience("analyze", "patterns", "one")[1]
    assert "capital: patterns" in out
    assert "agreement of each two" not in out
    facts = {"subject": ["France", "Germany", "Italy"], "gold": ["Paris", "Berlin", "Rome"]}
    pl.DataFrame({"item": [0, 1, 2], **facts}).with_columns(
        group=pl.lit("capital"), variant=pl.lit(pattern), answer=pl.lit("")
    ).write_csv("none.csv")
    html = report("none.csv", "--suite", suite, "--out", "none.html")
    assert {row[1] for row in html.rows("Means over").values()} <= {"-", "50.0"}


def test_perturbed_facts_have_a_row_and_a_mark_for_each_form(report, probed):
    """What a majority baseline answers no form changes; nothing of it is above chance."""
    run = probed("majority", "--perturbations", "upper_case,typo")
    html = report(run)
    rows = html.rows("means over relations by form")
    assert list(rows) == ["original", "upper_case", "typo"]
    assert {(rows[form][3], rows[form][6]) for form in ("upper_case", "typo")} == {("100.0", "-")}
    assert rows["original"][3] == "-"
    assert "figure-forms" in {figure["id"] for figure in html.all("figure")}


def test_vectors_of_a_run_are_drawn(consilience, report, model_folder, tmp_path):
    options = ["--suite", "mini", "--groups", "capital,sport", "--limit", "8", "--out", "run"]
    model = ["--model", model_folder("bert")]
    assert consilience("analyze", "representations", *model, *options)[0] == 0
    html = report("run", "--figures", "figures")
    assert html.rows("k-means").keys() == {"pattern", "subject", "object"}
    assert len(html.all("figure")) == 6
    assert (tmp_path / "figures" / "vectors-0.svg").is_file()


# -- sentence pairs ------------------------------------------------------------------------------

LABELS = ("entailment", "not_entailment")
FORMS = suite_of_task(TASKS["rte"], ["original", "reverse", "signal"], writes_freely=False)


def pair_run(folder, flip):
    """Twelve pairs in three forms; ``flip``: the items whose label the reverse form changes."""
    task = {
        "name": "rte", "kind": "NLI", "first": ["sentence1"], "second": ["sentence2"],
        "label": ["label"], "indicators": ["Sentence1", "Sentence2"], "labels": list(LABELS),
        "t5_fields": [], "metrics": ["accuracy"], "hub": [], "splits": ["train", "", ""],
        "threshold": None,
    }  # fmt: skip
    model = {"model": "<b>model</b>", "kind": "masked", "architecture": "B", "parameters": 7,
             "dtype": "float32", "device": "cpu", "joined": "pair", "pool": "last",
             "longest": 64, "model_labels": None}  # fmt: skip
    asked = {"kind": "perturb", "suite": "calum", "task": task, "pairs": "d" * 64, "limit": None,
             "half": None, "perturbations": ["reverse", "signal"], "long": "truncate", "seed": 0}  # fmt: skip
    run = RunFolder(folder, {**asked, "model": model})
    rows, changed = [], []
    for at in range(12):
        gold = LABELS[at % 2]
        for index, form in enumerate(("original", "reverse", "signal")):
            moved = form == "reverse" and at in flip
            answer = LABELS[(at + moved) % 2]
            row = dict.fromkeys(ANSWERS_SCHEMA)
            rows.append(row | {
                "suite": "calum", "group": "rte", "item": str(at), "subject": f"s{at}",
                "variant": form, "variant_index": index, "gold": gold, "answer": answer,
                "n_candidates": 2,
            })  # fmt: skip
            if moved:
                changed.append({
                    "group": "rte", "perturbation": form, "item": str(at), "gold": gold,
                    "original_answer": gold, "answer": answer, "original_1": "Sentence1: <i>a</i>",
                    "original_2": "Sentence2: b", "text_1": "Sentence2: b",
                    "text_2": "Sentence1: <i>a</i>", "margin": 1.0,
                })  # fmt: skip
    run.write_answers("rte", pl.DataFrame(rows, schema=ANSWERS_SCHEMA))
    run.note(["two items were cut"])
    run.finish(pl.DataFrame())
    pl.DataFrame(changed).write_csv(folder / "inconsistent.csv")
    return folder


def test_runs_on_sentence_pairs_are_reported_with_their_differences(report, tmp_path):
    """Three of twelve labels change, then one: C_R 75.0 and 91.7, and 16.7 points between."""
    first = pair_run(tmp_path / "one", {1, 4, 6})
    second = pair_run(tmp_path / "two", {1})
    files = ["--tables", "tables", "--figures", "figures"]
    html = report(first, second, "--out", "page.html", *files)
    rows = html.rows("one, rte, in percent")
    assert rows["original"][1] == "100.0"
    assert (rows["reverse"][1], rows["reverse"][3]) == ("75.0", "75.0")
    assert rows["signal"][3] == "100.0"
    differences = {tuple(row[:2]): row for row in html.tables["rte: two minus one"][1:]}
    assert differences["C_R", "reverse"][2:5] == ["75.0", "91.7", "+16.7"]
    assert {tuple(row) for row in html.tables["one: labels that changed"][1:]} == {
        ("reverse", "rte", *LABELS, "2"), ("reverse", "rte", *LABELS[::-1], "1")
    }  # fmt: skip
    for text in (
        "one, rte, reverse: 3 that were right became wrong, 0 that were wrong became",
        "<i>a</i>", "one: two items were cut",
    ):  # fmt: skip
        assert text in html.text
    assert not html.all("i")
    assert html.text.count("no command is kept; its run.json says what was asked") == 2
    tables = tmp_path / "tables"
    assert (tables / "consistency.csv").read_text().startswith("group,,Acc,C_R,C_S\n")
    assert (tables / "consistency.md").read_text().splitlines()[-5:] == [  # the best in bold
        "| one | **100.0** | 75.0 | **100.0** |", "| two | **100.0** | **91.7** | **100.0** |",
        "", "* one: two items were cut", "* two: two items were cut",
    ]  # fmt: skip
    assert (tmp_path / "figures" / "forms.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("pairs", "e" * 64, "other pairs"), ("perturbations", ["reverse"], "other perturbations"),
        ("limit", 12, "another --limit"), ("half", 1, "another half"),
    ],
)  # fmt: skip
def test_runs_of_different_pairs_or_forms_have_no_differences(name, value, what, report, tmp_path):
    first, second, third = (
        pair_run(tmp_path / run, {at}) for at, run in enumerate(("one", "two", "three"), 1)
    )
    change_record(second, asked={**Run.open(second).settings, name: value})
    html = report(first, second, third, "--out", "page.html")
    assert {caption for caption in html.tables if "minus" in caption} == {
        "rte: three minus one", "rte: three minus one, all other numbers",
    }  # fmt: skip
    assert f"two has no differences from one: {what}" in html.text


def test_what_one_model_alone_wrote_is_in_no_difference(consilience, report, tmp_path):
    """A model that writes has a group more; what both chose is compared."""
    first, second = (pair_run(tmp_path / name, {at}) for at, name in enumerate(("one", "two")))
    answers = pl.read_parquet(second / "answers" / "rte.parquet")
    run = RunFolder(second, Run.open(second).settings)
    run.write_answers("rte-generated", answers.with_columns(group=pl.lit("rte-generated")))
    note = "rte-generated: not in all runs, so in no difference"
    assert note in consilience("compare", first, second)[2]
    html = report(first, second, "--out", "report.html")
    assert note in html.text
    assert "rte: two minus one" in html.tables
    assert not any(caption.startswith("rte-generated: two") for caption in html.tables)


def test_seeds_and_one_of_them(consilience, report, tmp_path):
    """The answers that changed are in the folder of all seeds, of a stopped run nowhere yet."""
    whole, alone = tmp_path / "whole", pair_run(tmp_path / "alone", {1})
    changed = []
    for at in (0, 1):
        file = pair_run(whole / f"seed-{at}", {1, at + 4}) / "inconsistent.csv"
        changed.append(pl.read_csv(file).with_columns(seed=pl.lit(f"seed-{at}")))
        file.unlink()
    status, _, err = consilience("report", whole / "seed-1")
    assert status == 2
    assert "no inconsistent.csv. Of one seed it is in the folder of all" in err
    pl.concat(changed).write_csv(whole / "inconsistent.csv")
    assert [
        row[-1]
        for row in report(f"seed-1={whole / 'seed-1'}").tables["seed-1: labels that changed"][1:]
    ] == ["2"]
    shutil.copytree(whole / "seed-1", whole / "renamed")
    assert consilience("report", whole / "renamed")[0] == 2, "its answers are not there"
    note = "whole has no differences from alone: another number of seeds"
    assert note in report(alone, whole, "--out", "page.html").text


# -- files ----------------------------------------------------------------------------------------


def test_figures_and_tables_are_whole_files(consilience, probed, tmp_path):
    """No label is cut; a PNG has 300 dots an inch at the width of a column."""
    run, figures, tables = probed("random"), tmp_path / "figures", tmp_path / "tables"
    change_record(run, warnings=["mind the gap"])
    out = consilience("report", run, "--figures", figures, "--tables", tables, "--json")[1]
    document = json.loads(out)
    assert all(Path(file).is_file() for file in document["files"])
    names = {"relations", "knowledge", "agreement", "edits", "items"}
    assert {file.stem for file in figures.iterdir()} == names
    drawn = {}
    for name in names:
        svg = (figures / f"{name}.svg").read_text(encoding="utf-8")
        drawn[name] = [node.text for node in ElementTree.fromstring(svg).iter() if node.text]
        assert not any("\N{HORIZONTAL ELLIPSIS}" in text for text in drawn[name])
        assert "currentColor" not in svg
        png = (figures / f"{name}.png").read_bytes()
        assert int.from_bytes(png[16:20], "big") >= 300 * 3.3
        assert (figures / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert set("ABC") <= set(drawn["relations"])
    labels = [f"{at}  {text}" for at, text in enumerate(PATTERNS, 1)]
    assert [drawn["agreement"].count(label) for label in labels] == [1, 1, 1]
    rows = pl.read_csv(tables / "relations.csv")
    assert rows.select("group", "relation").rows() == [
        (f"baseline:{run.name}", name) for name in "ABC"
    ]
    assert rows["Determinism"].is_not_null().to_list() == [False, False, True]
    assert rows["Consistency"].is_not_null().to_list() == [True, True, False]
    assert document["warnings"] == [f"baseline:{run.name}: mind the gap"]
    for name in ("relations", "knowledge"):
        text = (tables / f"{name}.tex").read_text()
        assert "\\toprule" in text
        assert text.endswith(f"% baseline:{run.name}: mind the gap\n")
    assert "| Accuracy |" in (tables / "knowledge.md").read_text()


def test_the_matrix_has_each_pair_in_two_cells_beside_its_patterns(tmp_path):
    """Of patterns 1 to 3: 10 percent of 1 and 2, 20 of 1 and 3, none of 2 and 3; 90 of a relation S."""
    rows = [("R", 0, 1, 0.1), ("R", 0, 2, 0.2), ("R", 1, 2, math.nan), ("S", 0, 1, 0.9)]
    pairs = pl.DataFrame(rows, schema=["group", "first", "second", "agreement"], orient="row")
    words = [("R", 0, "aa"), ("R", 1, "bb"), ("R", 2, "cc"), ("S", 0, "dd"), ("S", 1, "ee")]
    patterns = pl.DataFrame(words, schema=["group", "variant_index", "variant"], orient="row")
    named = [each.with_columns(run=pl.lit("a")) for each in (pairs, patterns)]
    save_figure(charts.matrix_figure(*named, "R"), tmp_path / "matrix.svg")

    def texts_in(role):
        """What is drawn there, with its place from the left and the top."""
        for group in ElementTree.parse(tmp_path / "matrix.svg").iter(
            "{http://www.w3.org/2000/svg}g"
        ):
            if role in group.get("class", ""):
                for each in group:
                    x, y = re.findall(r"-?[\d.]+", each.get("transform", ""))[:2]
                    yield each.text, float(x), float(y)

    labels = {text: (x, y) for text, x, y in texts_in("role-axis-label")}
    assert {"1  aa", "2  bb", "3  cc", "1", "2", "3"} == set(labels)
    columns = sorted(x for text, (x, _) in labels.items() if len(text) == 1)
    lines = [labels[text][1] for text in ("1  aa", "2  bb", "3  cc")]
    assert lines == sorted(lines)

    def nearest(places, place):
        return min(range(3), key=lambda at: abs(places[at] - place)) + 1

    cells = {
        (nearest(lines, y), nearest(columns, x)): text
        for text, x, y in texts_in("mark-text role-mark")
    }
    assert cells == {(1, 2): "10", (2, 1): "10", (1, 3): "20", (3, 1): "20"}


def _seen(colour, matrix):
    """A colour in CIELAB as an eye sees it whose cones are those of ``matrix`` (linear RGB)."""
    raw = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in raw]
    seen = [min(1, max(0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in matrix]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(a * b for a, b in zip(row, seen, strict=True)) for row in to_xyz]
    ratios = [a / b for a, b in zip(xyz, white, strict=True)]
    x, y, z = (r ** (1 / 3) if r > 0.008856 else 7.787 * r + 16 / 116 for r in ratios)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
}  # fmt: skip
"""Machado, Oliveira and Fernandes (2009), severity 1."""


@pytest.mark.parametrize("eye", EYES)
def test_the_colour_blind_tell_the_colours_of_runs_apart(eye):
    """A difference of 2.3 is just noticeable; shapes tell runs apart as well."""
    labs = [_seen(colour, EYES[eye]) for colour in COLOURS[: len(RUN_SHAPES)]]
    apart = [math.dist(a, b) for at, a in enumerate(labs) for b in labs[:at]]
    assert min(apart) > 10
    assert len(set(RUN_SHAPES)) == len(RUN_SHAPES)


# -- each table by hand ---------------------------------------------------------------------------


def metrics_rows(**values):
    """Means over relations, and one relation, of some metrics; std, low, high around the value."""
    rows = [
        {"metric": metric, "suite": "s", "group": group, "subset": "all", "value": value,
         "std": 0.01, "low": value - 0.02, "high": value + 0.03, "n": n, "n_excluded": 2}
        for metric, value in values.items()
        for group, n in (("MACRO", 1), ("R", 40))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def shown(**change):
    """A run of two patterns whose every number is another one; ``change``: fields of its facts."""
    of_sample = {
        "group": pl.lit("MICRO"),
        "subset": pl.lit("one_by_one"),
        "n": pl.lit(40, pl.Int64),
    }
    flips = metrics_rows(flips=0.05).filter(pl.col("group") == "MACRO").with_columns(**of_sample)
    replies = (Reply("[X] [Y]", "yes", True, 2.0), Reply("[Y] [X]", "no", False, 1.0))
    example = Example("right_and_wrong", "R", "1", "Ada", "yes", frozenset({"no"}), replies)
    metrics = metrics_rows(accuracy=0.2, consistency=0.5).vstack(flips)
    frames = json.loads((CASES / "report_view.json").read_text(encoding="utf-8"))
    facts = {name: pl.DataFrame(rows) for name, rows in frames.items()}
    facts |= {"protocol": "strict", "examples": {"both": [example]}}
    facts |= {"by_other": metrics_rows(accuracy=0.3, consistency=0.4)} | change
    return RunView("run", [], make_suite(), metrics, ["mind the gap"], FactView(**facts))


def texts(parts):
    """The headings and rows of every table among the parts of a section, as texts, by caption."""
    found = {}
    for part in parts:
        if isinstance(part, Table):
            rows = [[cell.text for cell in row] for row in html_rows(part)]
            found[part.title] = [[column.heading for column in part.columns], *rows]
        elif isinstance(part, Folded):
            found |= texts(part.parts)
    return found


def differences(**rows):
    """Rows of a comparison of the runs a and b; ``rows``: fields by any name."""
    row = {"suite": "s", "first": "a", "second": "b", "subset": "all", "first_value": 0.1,
           "second_value": 0.25, "difference": 0.15, "low": 0.05, "high": 0.2, "test": "t",
           "p": 0.02, "p_holm": 0.04, "q_value": 0.03, "detectable": 0.07, "n": 5, "n_excluded": 0,
           "seeds": 1}  # fmt: skip
    return pl.DataFrame([row | fields for fields in rows.values()], schema=COMPARISON_SCHEMA)


def changed_answers(**times):
    """Changed answers of the task rte: so many of each original answer, by form."""
    row = dict.fromkeys(CHANGED_ANSWERS_SCHEMA, "x") | {"group": "rte", "answer": "y", "gold": "y"}
    return [
        row | {"perturbation": "signal" if was == "r" else "reverse", "original_answer": was}
        for was, count in times.items()
        for _ in range(count)
    ]


def page_of_facts():
    rows = {group: {"metric": "accuracy", "group": group} for group in ("MACRO", "MICRO", "R")}
    return report_page([shown()], differences(**rows), ["so"], "R")


def page_of_pairs():
    """Two runs of two seeds each; of six changed answers the most frequent change is first."""
    metrics = form_metrics(
        ("accuracy", "all", 0.8), ("accuracy", "reverse", 0.7), ("consistency", "all", 0.65),
        ("consistency", "reverse", 0.6), ("corrected_consistency", "reverse", 0.3),
        ("f1", "all", 0.82), ("f1", "reverse", 0.72), ("top_label", "all", 0.55),
        ("top_label", "reverse", 0.55),
    )  # fmt: skip
    pairs = PairView(TASKS["rte"], pl.DataFrame(changed_answers(p=1, q=2, r=3)))
    runs = [RunView(name, [{}, {}], FORMS, metrics, pairs=pairs) for name in "ab"]
    row = {"metric": "consistency", "group": "rte", "subset": "reverse", "seeds": 2, "p_seeds": 0.3}
    return report_page(runs, differences(row=row))


@pytest.mark.parametrize("page", [page_of_facts, page_of_pairs])
def test_every_number_stands_under_its_heading(page):
    """The tables of a page, section by section, are those of a file that was checked by hand."""
    expected = json.loads((CASES / "report_tables.json").read_text(encoding="utf-8"))
    tables = {section.id: texts(section.parts) for section in page().sections}
    assert {name: rows for name, rows in tables.items() if rows} == expected[page.__name__]


def test_what_stands_beside_the_tables():
    by = {section.id: section.parts for section in page_of_facts().sections}
    assert by["differences"][0] == Points(["so"])
    assert by["care"][0] == Points(["mind the gap"])
    assert "42 facts of 1 relation" in dict(by["asked"][0].rows)["suite"]
    assert not any(isinstance(part, Text) for part in by["numbers"])
    left_out = "Accuracy is over 3 of 9 facts."
    assert Text([left_out]) in report_page([shown(left_out=left_out)]).sections[1].parts
    unchanged = PairView(TASKS["rte"], pl.DataFrame(schema=CHANGED_ANSWERS_SCHEMA))
    run = RunView("run", [{}], FORMS, form_metrics(("accuracy", "all", 0.8)), pairs=unchanged)
    by = {section.id: section.parts for section in report_page([run]).sections}
    assert by["examples"] == by["changes"] == [Text(["run: no label changed."])]


def fields_of(chart):
    """The columns of each layer's channels, and the rows that are drawn."""
    spec = spec_of(chart)
    data = spec.get("data") or spec["layer"][-1]["data"]
    rows = data["values"] if "values" in data else spec["datasets"][data["name"]]
    channels = [
        {name: each["field"] for name, each in layer["encoding"].items() if "field" in each}
        for layer in spec["layer"]
    ]
    return channels, rows


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_text_that_controls_a_terminal_is_drawn_as_what_it_is(suffix, tmp_path):
    """vl-convert ends the whole process at an ESC, so it is drawn in a process of its own."""
    code = """
import sys
from pathlib import Path
import altair
import polars as pl
from consilience.report.figures import save_figure

data = pl.DataFrame({"group": ["a\\x1b[2Jb\\u202ec", "\\x00"], "value": [1, 2]})
save_figure(altair.Chart(data).mark_bar().encode(x="value", y="group"), Path(sys.argv[1]))
"""
    path = tmp_path / f"figure.{suffix}"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert path.stat().st_size > 1000
    if suffix == "svg":
        assert "a\ufffd[2Jb\ufffdc" in path.read_text(encoding="utf-8")


def test_a_page_shows_what_would_control_a_terminal_or_the_direction_of_text():
    hostile = "a\x1b[2Jb\u202ec\udcff"
    shown = pl.DataFrame({"x": [hostile[:-1]]})
    chart = altair.Chart(shown).mark_point().encode(x="x")
    parts = [Text([hostile]), Points([hostile]), Figure("f", hostile, chart, hostile)]
    html = render(Page(hostile, hostile, [Section("s", hostile, hostile, parts)]))
    written, charts = html.split("<main")[1].split("<script", 1)
    chart = charts.split("</script>")[0]
    assert written.count("a\ufffd[2Jb\ufffdc\ufffd") >= 5
    assert not re.search("[\x1b\u202e\udcff]", html[: html.index("<script>")])
    assert r"a\ufffd[2Jb\ufffdc" in chart
    assert not re.search(r"u001b|u202e|udcff", chart)


def test_figures_draw_the_numbers_and_order_of_their_tables():
    metrics = pl.concat(
        pl.DataFrame({"run": [run] * 2, "metric": ["accuracy"] * 2, "group": ["R", "S"],
                      "value": values, "low": [0.0, 0.1], "high": [0.8, 0.9], "n": [4, 5]})
        for run, values in (("one", [0.7, 0.2]), ("two", [0.3, 0.4]))
    )  # fmt: skip
    (rule, point), rows = fields_of(charts.relation_figure(metrics, ["accuracy"]))
    assert (rule["x"], rule["x2"], point["x"], point["y"]) == ("start", "stop", "value", "group")
    assert all((row["start"], row["stop"]) == (row["low"], row["high"]) for row in rows)
    assert [(row["run"], row["group"], row["value"], row["order"]) for row in rows] == [
        ("one", "R", 70.0, 70.0), ("one", "S", 20.0, 20.0),
        ("two", "R", 30.0, 70.0), ("two", "S", 40.0, 20.0),
    ]  # fmt: skip
    spec = charts.relation_figure(metrics, ["accuracy"]).to_dict()
    assert all(each["encoding"]["y"]["sort"]["field"] == "order" for each in spec["layer"])
    edits = shown().facts.edits.with_columns(run=pl.lit("one"))
    (zero, rule, point), rows = fields_of(charts.edit_figure(edits))
    assert (zero["x"], rule["x"], rule["x2"], point["x"]) == ("x", "start", "stop", "difference")
    drawn = [(row["start"], row["difference"], row["stop"]) for row in rows]
    assert drawn == [(-20.0, -11.0, -5.0)]
    without = edits.with_columns(low=pl.lit(math.nan), high=pl.lit(math.nan))
    _, (row,) = fields_of(charts.edit_figure(without))
    assert (row["low"], row["start"], row["stop"]) == (None, -11.0, -11.0), "no interval, no line"


def test_accuracy_goes_to_the_right_and_consistency_up():
    rows = pl.DataFrame({"run": ["one"], "group": ["R"], "accuracy": [0.2], "consistency": [0.7]})
    (marks, names), drawn = fields_of(charts.against_figure(rows))
    assert (marks["x"], marks["y"]) == (names["x"], names["y"]) == ("accuracy", "consistency")
    assert (drawn[0]["accuracy"], drawn[0]["consistency"]) == (20.0, 70.0)


def test_the_least_consistent_relation_is_shown_first():
    """Means of R 0.5, of S 0.2, of T none."""
    pairs = pl.DataFrame(
        {"group": ["R", "S", "S", "T"], "first": [0, 0, 0, 0], "second": [1, 1, 2, 1],
         "agreement": [0.5, 0.1, 0.3, math.nan]}
    )  # fmt: skip
    patterns = pl.concat(
        shown().facts.patterns.with_columns(
            group=pl.lit(each), variant_index=pl.lit(at, dtype=pl.Int64)
        )
        for each in "RST"
        for at in range(3)
    )
    (section,) = fact_sections._patterns([shown(pairs=pairs, patterns=patterns)], None)
    assert section.parts[0].title == "Agreement of patterns: S"


def form_metrics(*numbers):
    """Metric, form and value of each; of two seeds."""
    rows = [
        {"metric": metric, "suite": "calum", "group": "rte", "subset": subset, "value": value,
         "std": 0.07, "low": value - 0.1, "high": value + 0.1, "n": 9, "n_excluded": 0, "seeds": 2,
         "seed_low": 0.1, "seed_high": 0.9}
        for metric, subset, value in numbers
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


@pytest.mark.parametrize(
    ("program", "is_ours"),
    [
        ("/usr/bin/consilience", True), ("/lib/consilience/__main__.py", True),
        ("/home/consilience/mine.py", False), ("/usr/bin/pytest", False), ("", False),
    ],
)  # fmt: skip
def test_the_command_of_a_run_is_kept_where_it_is_ours(program, is_ours, monkeypatch):
    monkeypatch.setattr("sys.argv", [program, "probe", "--out", "a b"])
    assert command_line() == ("consilience probe --out 'a b'" if is_ours else "")


def test_a_command_that_made_several_runs_stands_once():
    one, two = ({"asked": {}, "versions": {}, "command": f"consilience {each}"} for each in "ab")
    parts = again([("s1", one), ("s2", one), ("s3", two), ("s4", one)]).parts
    assert [part.paragraphs for part in parts if isinstance(part, Text)] == [
        ["consilience a"], ["consilience b"], ["consilience a"],
    ]  # fmt: skip
    told = [dict(part.rows) for part in parts if isinstance(part, Facts)]
    assert [each["Run"] for each in told] == ["s1", "s2", "s3", "s4"]
    assert {each["Weights"] for each in told} == {"revision not known"}
    assert "gives the same answers" in again([("s1", one)]).intro
    baseline = {"asked": {"model": {"kind": "baseline"}}, "versions": {}}
    section = again([("s1", baseline), ("answers.csv", {})])
    assert section.intro == ""
    (facts,) = (part for part in section.parts if isinstance(part, Facts))
    assert dict(facts.rows)["Weights"] == "none, a baseline"


# -- the parts ------------------------------------------------------------------------------------


def test_agreement_of_each_item_worked_out_by_hand():
    """Answers a a b: one of three pairs agrees; a a a: all; a missing answer leaves one pair."""
    answers = table([("1", "s", "a", ["a", "a", "b"]), ("2", "t", "a", ["a", "a", "a"]),
                     ("3", "u", "a", ["a", None, "a"]), ("4", "v", "a", ["a", None, None])])  # fmt: skip
    found = item_table(answers, make_suite(), "strict")
    assert found["agreement"].to_list()[:3] == [pytest.approx(1 / 3), 1.0, 1.0]
    assert math.isnan(found["agreement"][3])
    assert found["pairs"].to_list() == [3, 3, 1, 0]
    assert item_table(answers, make_suite(cardinality="N-M"), "strict").is_empty()


def test_items_in_tenths_worked_out_by_hand():
    """0.1 and 0.3 are the left ends of bars, 1 the right end of the last; 0.95 is in that, too."""
    agreement = [0.0, 0.1, 0.1, 0.3, 0.29, 0.95, 1.0, 1.0, math.nan]
    items = pl.DataFrame({"run": ["a"] * 9 + ["b"], "agreement": [*agreement, 0.5]})
    found = {tuple(row[:2]): row[2:] for row in in_tenths(items).iter_rows()}
    assert found == {
        ("a", "0 to 10"): (1, 12.5), ("a", "10 to 20"): (2, 25.0), ("a", "20 to 30"): (1, 12.5),
        ("a", "30 to 40"): (1, 12.5), ("a", "90 to 100"): (3, 37.5), ("b", "50 to 60"): (1, 100.0),
    }  # fmt: skip


def test_a_page_of_every_part():
    table = Table("a & b", [Column("name"), Column("n", "number")], [["x", 1.0], ["y", None]])
    parts = [table, Facts([("a", "<b>")]), Text(["one"]), Text(["cmd <x>"], code=True),
             Points(["p"]), Folded("more", [Text(["inside"])])]  # fmt: skip
    html = Html(render(Page("t", "s", [Section("one", "One", "", parts)], ("end",))))
    assert html.tables == {"a & b": [["name", "n"], ["x", "1.0"], ["y", "-"]]}
    for text in ("<b>", "cmd <x>", "inside", "end"):
        assert text in html.text
    numbers = [each for each in html.all("td") if each.get("class") == "number"]
    assert [each.get("data-by") for each in numbers] == ["1.0", None]
    assert len(html.all("script")) == 1  # without a figure nothing draws one


def test_a_page_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(html_module, "LARGEST", 1000)
    with pytest.raises(ConsilienceError, match="at most 0 MB.*fewer runs"):
        render(Page("t", "s", []))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "pairs"], "without --out"),
        (["one", "--group", "Q"], "has no relation 'Q'"),
        (["nothing"], "nothing: no such file or folder"),
        (["empty", "--out", "p.html"], "not the folder of a run"),
        (["pairs", "one", "--out", "p.html"], "runs of sentence pairs, and others"),
        (["pairs", "--group", "A"], "with runs of sentence pairs"),
        (["one", "--out", "no/such/place.html"], "no/such: no such folder"),
    ],
)
def test_what_cannot_be_reported_is_said(arguments, message, consilience, probed, tmp_path):
    probed("random").rename(tmp_path / "one")
    pair_run(tmp_path / "pairs", {1})
    (tmp_path / "empty").mkdir()
    status, out, err = consilience("report", *arguments)
    assert status == 2
    assert out == ""
    assert message in " ".join(err.split())


def test_without_what_draws_it_says_how_to_get_it(consilience, probed, monkeypatch):
    run = probed("random")
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    status, _, err = consilience("report", run)
    assert status == 2
    assert "pip install 'consilience[figures]'" in err
    assert not (run / "report.html").exists()


# -- in a browser ---------------------------------------------------------------------------------

DRIVER = (CASES / "browser.html").read_text(encoding="utf-8")
"""A script that uses a page and writes what it saw into its body."""


def test_a_browser_draws_the_page_of_one_seed(browse, consilience, tmp_path):
    """Whose deviation over seeds is not known."""
    run = pair_run(tmp_path / "one", {1, 4})
    assert consilience("report", run)[0] == 0
    document, logged = browse(run / "report.html")
    assert logged == []
    assert document.count('data-drawn="yes"') == 1


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_a_browser_opens_sorts_and_switches(width, browse, consilience, probed):
    first, second = probed("random"), probed("majority")
    assert consilience("report", first, second, "--out", "page.html")[0] == 0
    path = Path("page.html").resolve()
    text = path.read_text(encoding="utf-8")
    page, _, _ = text.rpartition("</body>")
    path.write_text(page + DRIVER, encoding="utf-8")
    document, logged = browse(path, f"--window-size={width},1000")
    assert logged == []
    body = Html(document).all("body")[0]
    assert body.keys() == {"data-told"}, body
    told = json.loads(body["data-told"])
    assert told["drawn"] == 5
    assert told["requests"] == []
    assert (told["before"], told["names"], told["sorted"]) == ("ABC", "CBA", "descending")
    assert told["numbers"] == sorted(told["numbers"], reverse=True)
    assert told["marks"] == 6
    assert told["focus-relations"]
    assert told["focus-agreement"]
    assert told["first"] != told["then"]
    assert "Consistency" in told["then"]
    assert len(told["cells"]) == len(told["switched"]) == 6
    assert all("relation: C;" in each for each in told["switched"])
    assert not any("relation: C;" in each for each in told["cells"])
    layout = told["layout"]
    assert layout["tables"] > 8
    assert (layout["clipped"], layout["outside"], layout["menu"]) == ([], 0, False)
    assert layout["hinted"] == layout["wider"], "a table that is wider than the page says so"
    assert (width > 390) or len(layout["wider"]) > 3
    assert not told["wide"]
    assert any(each in told["tip"] for each in PATTERNS)
    assert told["bold"] == 0


def test_in_a_browser_a_page_of_one_run_shows_every_column(browse, consilience, probed):
    """At 1280 pixels no table of one run on mini, whose relations have long names, has to scroll."""
    run = probed("random", "--limit", 4, suite="mini")
    assert consilience("report", run, "--out", "page.html")[0] == 0
    path = Path("page.html").resolve()
    page, _, _ = path.read_text(encoding="utf-8").rpartition("</body>")
    show = "document.querySelectorAll('details').forEach(each => { each.open = true; });"
    tell = "document.body.dataset.told = JSON.stringify(layout());"
    layout = DRIVER[DRIVER.index("const layout") : DRIVER.index("const rows")]
    script = f"{layout}{show}setTimeout(() => {{ {tell} }}, 3000);"
    path.write_text(f"{page}<script>{script}</script></body>", encoding="utf-8")
    document, logged = browse(path, "--window-size=1280,1000")
    assert logged == []
    told = json.loads(Html(document).all("body")[0]["data-told"])
    assert told.pop("tables") > 8
    assert told == {"clipped": [], "outside": 0, "wider": [], "hinted": [], "menu": False}


if __name__ == "__main__":  # writes the tables again, to be checked by hand
    tables = {
        page.__name__: {
            section.id: rows for section in page().sections if (rows := texts(section.parts))
        }
        for page in (page_of_facts, page_of_pairs)
    }
    text = json.dumps(tables, indent=1, ensure_ascii=False)
    text = re.sub(r'",\s+"', '", "', re.sub(r'\[\s+"', '["', re.sub(r'"\s+\]', '"]', text)))
    (CASES / "report_tables.json").write_text(text + "\n", encoding="utf-8")
