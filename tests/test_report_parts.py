"""Parts of reports by hand: tables, figures, and what a browser and a terminal must not see."""

import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace

import altair
import polars as pl
import pytest

from checks import refused
from consilience.analysis.examples import CHANGED_ANSWERS_SCHEMA
from consilience.core.provenance import command_line
from consilience.report import charts, overview
from consilience.report import export as html_module
from consilience.report.analysis_tables import LONGEST_PROMPT
from consilience.report.charts import (
    percents,
)
from consilience.report.export import (
    Cards,
    Code,
    Figure,
    Folded,
    Page,
    Section,
    Tiles,
    render,
    spec_of,
)
from consilience.report.overview import again
from consilience.report.report_page import report_page
from consilience.report.run_view import RunView
from consilience.report.table import CI, Cell, Column, Table, intervals_below, number_text
from consilience.results.reporting import layouts_of
from consilience.types import FACT_WORDS, QUESTION_WORDS, Suite
from report_builders import (
    CASES,
    FORMS,
    Html,
    form_metrics,
    page_of_facts,
    page_of_pairs,
    shown,
    summary_of,
    texts,
)
from test_metrics import make_suite


@pytest.mark.parametrize("page", [page_of_facts, page_of_pairs])
def test_every_number_stands_under_its_heading(page):
    """The tables of a page, section by section, are those of a file that was checked by hand."""
    expected = json.loads((CASES / "report_tables.json").read_text(encoding="utf-8"))
    tables = {section.id: texts(section.parts) for section in page().sections}
    assert {name: rows for name, rows in tables.items() if rows} == expected[page.__name__]


def sections_of(page):
    return {section.id: section.parts for section in page.sections}


CARDS = Cards(
    "Example: run answers two prompts of one fact. The right answer is “yes”.",
    [("Prompt", "Ada ___", "yes"), ("Another prompt", "___ Ada", "no")],
)


def test_the_example_is_of_a_group_that_the_means_are_over():
    view = shown()
    (example,) = view.examples["both"]
    suite = Suite("s", (*make_suite(cardinality="N-M", ids=("S",)), *make_suite()), "strict")
    several = replace(example, group="S", replies=example.replies[::-1])
    both = {"both": [several, example]}
    assert [*overview.opening_example(replace(view, suite=suite, examples=both))] == [CARDS]


def test_the_texts_beside_the_tables():
    parts = sections_of(page_of_facts())
    assert parts["summary"][1] == CARDS
    assert [row[1] for row in parts["examples"][0].rows] == ["Ada ___", "___ Ada"]
    assert parts["differences"][0] == ["so"]
    assert parts["caveats"][0] == ["mind the gap"]
    changed = pl.DataFrame(schema=CHANGED_ANSWERS_SCHEMA)
    summary, metrics = summary_of(("accuracy", 0.8, 0.5)), form_metrics(("accuracy", "", 0.8))
    run = RunView("run", {}, FORMS, metrics, summary, changed=changed)
    parts = sections_of(report_page([run]))
    assert parts["changes"] == ["run: no label changed."] and "examples" not in parts


def tiles_of(run):
    parts = sections_of(report_page([run]))["summary"]
    return next(part for part in parts if isinstance(part, Tiles)).tiles


def test_headline_numbers_in_plain_sentences():
    """Of each number its interval, chance, baseline and sentence; a constant model has no kappa."""
    rows = [("accuracy", 0.504, 0.1), ("consistency", 1.0, 1.0),
            ("corrected_consistency", math.nan, math.nan), ("consistent_accuracy", 0.2, 0.1)]  # fmt: skip
    run = replace(shown(), summary=summary_of(*rows, chance=0.25))
    first, second, third, fourth = tiles_of(run)
    assert [round(first[name], 6) for name in ("value", "low", "high", "baseline")] == [
        50.4, 40.4, 60.4, 10.0
    ]  # fmt: skip
    assert (second["chance"], math.isnan(first["chance"])) == (25.0, True)
    assert third["sentence"].startswith("Not defined: all answers are the same")
    unpaired = summary_of(("consistency", math.nan, math.nan), rows[2])
    assert {each["sentence"] for each in tiles_of(replace(run, summary=unpaired))} == {"No data."}
    assert [each["sentence"].replace("\xa0%", " %") for each in (first, second, fourth)] == [
        "The answer to the base pattern is right for 50.4 % of a relation's facts, on average.",
        "Two patterns of a fact agree 100.0 % of the time (25.0 % expected by chance).",
        "The answer is right in every pattern for 20.0 % of a relation's facts, on average.",
    ]
    groups = [replace(group, patterns=()) for group in run.suite.relations]
    questions = replace(run, suite=replace(run.suite, relations=groups, words=QUESTION_WORDS))
    violated = replace(run.summary.rows[0], metric="violation_rate", value=0.9, over="all")
    sentence = overview.sentence_of(questions, violated, 0.8)
    assert sentence.replace("\xa0", " ") == (
        "The answers violate 90.0 % of these expectations (80.0 % expected by chance)."
    )
    biased = replace(violated, metric="position_bias", meaning="toward the first text; 0 is none")
    assert overview.sentence_of(questions, biased, math.nan) == "Toward the first text; 0 is none."
    below = summary_of(("corrected_consistency", -0.1, 0.0))
    (tile,) = tiles_of(replace(shown(), summary=below))
    assert tile["sentence"] == "The answers agree less often than expected by chance."


@pytest.mark.parametrize("chat", [
    f"<|im_start|>system\n{'words ' * 40}<|im_end|>\n<|im_start|>user\nWho?\nA. I<|im_end|>\n"
    "<|im_start|>assistant\n",
    "<|start_header_id|>user<|end_header_id|>\n\nWho?\nA. I<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<start_of_turn>user\nWho?\nA. I<end_of_turn>\n<start_of_turn>model\n",
    "<s>[INST] Who?\nA. I [/INST]",
])  # fmt: skip
def test_the_question_of_a_chat_is_on_its_card(chat):
    assert overview._card("Prompt", chat, "I") == ("Prompt", "Who?\nA. I", "I")


def test_a_long_prompt_is_shown_at_its_end():
    _, prompt, _ = overview._card("", "user\n" + "words " * 80 + "Who?", "")
    assert prompt.startswith("... words") and prompt.endswith(" Who?")
    assert len(prompt) <= LONGEST_PROMPT + 4
    began = time.process_time()
    overview._card("", "x" * 1_000_000, "")  # its time grows with the length, not its square
    assert time.process_time() - began < 5


def test_figures_round_as_tables_do():
    """Halves go to the even digit: 6.25 to 6.2."""
    values = [0.0625, 0.125, 0.1875]
    rounded = pl.DataFrame({"v": [*values, math.nan]}).select(percents("v"))["v"].to_list()
    assert rounded == [*(float(number_text(value, "share")) for value in values), None]
    assert rounded == [6.2, 12.5, 18.8, None]


def test_blocks_of_a_table_have_headings_on_a_page():
    """Rows of several runs are distinguished; a repeated name is read aloud, but not shown again."""
    columns = [Column("factor"), Column("value", "count"), Column(CI, "count")]
    rows = [["order", 1, Cell(low=0, high=2)], ["order", 3, ""], ["order", 4, ""]]
    table = intervals_below(Table("T", columns, rows, blocks=["a", "a", "b"]))
    page = Html(render(Page("t", "s", [Section("x", "X", "", [table])])))
    (body,) = page.tables.values()
    assert body == [
        ["factor", "value"], ["a"], ["order", "10 to 2"], ["order", "3"], ["b"], ["order", "4"]
    ]  # fmt: skip
    classes = [row.get("class") for row in page.all("tr")]
    assert classes == [None, "block", None, "again", "block", None]
    assert not page.all("button"), "rows of blocks are not sorted"


def rows_of_table(table):
    return [[cell.value for cell in table.cells(at)] for at in range(len(table.rows))]


def layout_metrics(facts, **values):
    """A metrics table of means over relations; ``facts``: how many there are, four excluded."""
    rows = [(name, "mean", "", "whole", "", value, 1) for name, value in values.items()]
    rows += [("accuracy", "group", "P1", "whole", "", 0.5, 1)]
    rows += [("accuracy", "all", "", "whole", "", 0.5, facts - 4)]
    columns = ["metric", "over", "group", "kind", "level", "value", "n"]
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    nan = pl.lit(math.nan)
    return frame.with_columns(std=nan, n_excluded=pl.lit(4))


@pytest.mark.parametrize(("facts", "papers_rows"), [(22964, 8), (155, 0)])
def test_the_papers_rows_come_first(facts, papers_rows):
    runs = {
        "constant": layout_metrics(facts, accuracy=0.1, consistency=1.0,
                                   corrected_consistency=math.nan),
        "one": layout_metrics(facts, accuracy=0.4, consistency=0.6, corrected_consistency=0.3),
        "two": layout_metrics(facts, accuracy=0.3, consistency=0.5, corrected_consistency=0.2),
    }  # fmt: skip
    table = layouts_of(FACT_WORDS, runs)["knowledge"]
    assert len(table.rows) == papers_rows + 3
    names = [row[0] for row in rows_of_table(table)]
    assert names[papers_rows:] == ["constant", "one", "two"]
    if papers_rows:
        assert rows_of_table(table)[1][:3] == [
            "BERT-base", pytest.approx(0.458), pytest.approx(0.585),
        ]  # fmt: skip


def test_tables_of_questions_have_their_words_and_no_empty_column_or_table():
    keys = {"accuracy": 0.4, "consistency": 0.6, "determinism": math.nan, "violation_rate": 0.3}
    metrics = layout_metrics(1, **keys).with_columns(pl.col("over").replace("mean", "all"))
    factor = {"kind": pl.lit("factor"), "level": pl.lit("order")}
    of_factor = metrics.filter(metric="consistency").with_columns(**factor)
    tables = layouts_of(QUESTION_WORDS, {"one": pl.concat([metrics, of_factor])})
    headings = {name: [each.heading for each in table.columns] for name, table in tables.items()}
    columns = {"questions": ["", "Accuracy", "Consistency"], "factors": ["", "order"]}
    assert headings == columns | {"groups": ["group", "Accuracy"]}
    assert rows_of_table(tables["factors"]) == [["one", 0.6]]


def fields_of(chart):
    """The columns of each layer's channels, and the rows that are drawn."""
    spec = spec_of(chart)
    data = spec.get("data") or spec["layer"][-1]["data"]
    rows = data["values"]
    channels = [
        {name: each["field"] for name, each in layer["encoding"].items() if "field" in each}
        for layer in spec["layer"]
    ]
    return channels, rows


def test_text_that_controls_a_terminal_is_drawn_as_what_it_is(tmp_path):
    """vl-convert ends the whole process at an ESC, so it is drawn in a process of its own."""
    code = """
import sys
from pathlib import Path
import altair
import polars as pl
from consilience.report.export import save_figure

data = pl.DataFrame({"group": ["a\\x1b[2Jb\\u202ec", "\\x00"], "value": [1, 2]})
chart = altair.Chart(data).mark_bar().encode(x="value", y="group")
save_figure(chart.to_dict(), Path(sys.argv[1]))
"""
    path = tmp_path / "figure.svg"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert "a\ufffd[2Jb\ufffdc" in path.read_text(encoding="utf-8")


def test_a_page_shows_what_would_control_a_terminal_or_the_direction_of_text():
    hostile = "a\x1b[2Jb\u202ec\udcff"
    shown = pl.DataFrame({"x": [hostile[:-1]]})
    chart = altair.Chart(shown).mark_point().encode(x="x")
    parts = [hostile, [hostile], Figure("f", hostile, chart.to_dict(), hostile)]
    html = render(Page(hostile, hostile, [Section("s", hostile, hostile, parts)]))
    written, charts = html.split("<main")[1].split("<script", 1)
    chart = charts.split("</script>")[0]
    assert written.count("a\ufffd[2Jb\ufffdc\ufffd") >= 5
    assert not re.search("[\x1b\u202e\udcff]", html[: html.index("<script>")])
    assert r"a\ufffd[2Jb\ufffdc" in chart and not re.search(r"u001b|u202e|udcff", chart)


def test_figures_draw_the_numbers_and_order_of_their_tables():
    metrics = pl.concat(
        pl.DataFrame({"run": [run] * 2, "metric": ["Accuracy"] * 2, "name": ["R", "S"],
                      "value": values, "low": [0.0, 0.1], "high": [0.8, 0.9], "n": [4, 5],
                      "chance": [0.05, math.nan], "majority": [0.15, 0.25]})
        for run, values in (("one", [0.7, 0.2]), ("two", [0.3, 0.4]))
    )  # fmt: skip
    (rule, tick, diamond, point), rows = fields_of(charts.interval_figure(metrics, "relation"))
    assert (rule["x"], rule["x2"], point["x"], point["y"]) == ("start", "stop", "value", "label")
    assert (tick["x"], diamond["x"]) == ("chance", "majority")
    assert all((row["start"], row["stop"]) == (row["low"], row["high"]) for row in rows)
    fields = ("run", "name", "value", "order", "chance", "majority")
    assert [tuple(row[field] for field in fields) for row in rows] == [
        ("one", "R", 70.0, 0.7, 5.0, 15.0), ("one", "S", 20.0, 0.2, None, 25.0),
        ("two", "R", 30.0, 0.7, 5.0, 15.0), ("two", "S", 40.0, 0.2, None, 25.0),
    ]  # fmt: skip
    spec = charts.interval_figure(metrics, "relation")
    assert all(layer["encoding"]["y"]["sort"]["field"] == "order" for layer in spec["layer"])
    lower = metrics.with_columns(metric=pl.lit("Corrected"), low=pl.lit(-0.5))
    both = pl.concat([metrics, lower])
    starts = [
        charts.interval_figure(rows, "relation")["layer"][0]["encoding"]["x"]["scale"]
        for rows in (metrics, lower, both)
    ]
    assert [scale["domain"][0] for scale in starts] == [
        0.0, -50.0, {"expr": '({"Accuracy": 0.0, "Corrected": -50.0})[metric_metric]'},
    ]  # fmt: skip
    edits = shown().edits.with_columns(run=pl.lit("one"))
    (zero, rule, point), rows = fields_of(charts.edit_figure(edits))
    assert (zero["x"], rule["x"], rule["x2"], point["x"]) == ("x", "start", "stop", "difference")
    drawn = [(row["start"], row["difference"], row["stop"]) for row in rows]
    assert drawn == [(-20.0, -11.0, -5.0)]
    without = edits.with_columns(low=pl.lit(math.nan), high=pl.lit(math.nan))
    _, (row,) = fields_of(charts.edit_figure(without))
    assert (row["low"], row["start"], row["stop"]) == (None, -11.0, -11.0), "no interval, no line"


@pytest.mark.parametrize(("program", "is_ours"), [
    ("/usr/bin/consilience", True), ("/lib/consilience/__main__.py", True),
    ("/home/consilience/mine.py", False), ("/usr/bin/pytest", False), ("", False),
])  # fmt: skip
def test_the_command_of_a_run_is_kept_where_it_is_ours(program, is_ours, monkeypatch):
    monkeypatch.setattr("sys.argv", [program, "probe", "--out", "a b"])
    assert command_line() == ("consilience probe --out 'a b'" if is_ours else "")


def test_a_command_that_made_several_runs_stands_once():
    one, two = ({"settings": {}, "versions": {}, "command": f"consilience {each}"} for each in "ab")
    parts = again([("s1", one), ("s2", one), ("s3", two), ("s4", one)]).parts
    commands = [part for part in parts if isinstance(part, Code)]
    assert commands == ["consilience a", "consilience b", "consilience a"]
    (folded,) = (part for part in parts if isinstance(part, Folded))
    origins = folded.parts
    assert [origin["Run"] for origin in origins] == ["s1", "s2", "s3", "s4"]
    assert {origin["Weights"] for origin in origins} == {"revision not known"}
    assert "gives the same answers" in again([("s1", one)]).intro
    baseline = {"settings": {"model": {"kind": "baseline"}}, "versions": {}}
    section = again([("s1", baseline), ("answers.csv", {})])
    assert section.intro == ""
    (folded,) = (part for part in section.parts if isinstance(part, Folded))
    assert folded.parts[0]["Weights"] == "none, a baseline"


def test_a_page_of_every_part_that_is_not_too_large(monkeypatch):
    table = Table("a & b", [Column("name"), Column("n", "number")], [["x", 1.0], ["y", None]])
    parts = [table, {"a": "<b>"}, "one", Code("cmd <x>"), ["p"], Folded("more", ["inside"])]
    html = Html(render(Page("t", "s", [Section("one", "One", "", parts)])))
    assert html.tables == {"a & b": [["name", "n"], ["x", "1.0"], ["y", "-"]]}
    for text in ("<b>", "cmd <x>", "inside", "Made by consilience."):
        assert text in html.text
    numbers = [each for each in html.all("td") if each.get("class") == "number"]
    assert [each.get("data-by") for each in numbers] == ["1.0", None]
    assert len(html.all("script")) == 1  # without a figure nothing draws one
    monkeypatch.setattr(html_module, "LARGEST", 1000)
    refused("at most 0 MB.*fewer runs", render, Page("t", "s", []))


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


def test_words_of_the_page_leave_names_as_they_are():
    title = "fact-checker-7b: relations of facts in a/fact, each relation"
    page = Page(title, "", [Section("a", title, "", [Figure("f", title, {}, "Facts", True)])])
    (section,) = overview.page_in_words(page, QUESTION_WORDS, []).sections
    heading = "fact-checker-7b: groups of questions in a/fact, each group"
    assert (section.heading, section.parts[0].title) == (heading, heading)
