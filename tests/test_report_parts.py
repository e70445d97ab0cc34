"""Parts of reports by hand: tables, figures, and what a browser and a terminal must not see."""

import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace
from xml.etree import ElementTree

import altair
import polars as pl
import pytest

from checks import refused
from consilience import measure
from consilience.analysis.patterns import form_tables, item_table
from consilience.asking.pairs import CHANGED_ANSWERS_SCHEMA
from consilience.core.factors import BETWEEN
from consilience.core.provenance import command_line
from consilience.report import charts, overview
from consilience.report import export as html_module
from consilience.report.analysis_tables import LONGEST_PROMPT
from consilience.report.charts import (
    COLOURS,
    MEASURED,
    RUN_SHAPES,
    in_tenths,
    matrix_figure,
    outlying,
    percents,
    wrapped,
)
from consilience.report.export import (
    Cards,
    Code,
    Figure,
    Folded,
    Page,
    Section,
    Tiles,
    latex_figures,
    render,
    save_figure,
    spec_of,
)
from consilience.report.overview import again, by_run
from consilience.report.report_page import report_page
from consilience.report.run_view import RunView
from consilience.report.table import CI, Cell, Column, Table, intervals_below, number_text
from consilience.results.reporting import layouts_of
from consilience.suites.pairs import TASKS
from consilience.types import FACT_WORDS, QUESTION_WORDS, Suite
from pair_builders import answers_of, suite_of
from report_builders import (
    CASES,
    FORMS,
    Html,
    form_metrics,
    metrics_rows,
    page_of_facts,
    page_of_pairs,
    shown,
    summary_of,
    texts,
)
from test_metrics import make_suite, table


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
    assert "40 of 42 facts of 1 relation" in parts["setup"][0]["suite"]
    assert not any(isinstance(part, str) for part in parts["numbers"])
    pairs = {"task": TASKS["rte"], "changed": pl.DataFrame(schema=CHANGED_ANSWERS_SCHEMA)}
    summary, metrics = summary_of(("accuracy", 0.8, 0.5)), form_metrics(("accuracy", "all", 0.8))
    run = RunView("run", [{}], FORMS, metrics, summary, **pairs)
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
    violated = replace(run.summary.rows[0], metric="violation_rate", value=0.9)
    sentence = overview.sentence_of(questions, violated, 0.8)
    assert sentence.replace("\xa0", " ") == (
        "The answers violate 90.0 % of these expectations (80.0 % expected by chance)."
    )
    biased = replace(violated, metric="position_bias", meaning="toward the first text; 0 is none")
    assert overview.sentence_of(questions, biased, math.nan) == "Toward the first text; 0 is none."
    (row,) = summary_of(("consistency", 0.5, 1.0)).rows
    between = replace(run, summary=replace(run.summary, rows=[replace(row, subset=BETWEEN)]))
    chance = metrics_rows(chance_consistency=0.2).with_columns(subset=pl.lit(BETWEEN))
    of_group = chance.filter(group="R").with_columns(value=pl.lit(0.1))
    between = replace(between, metrics=pl.concat([of_group, chance.filter(group="MACRO")]))
    (tile,) = overview._tiles(between)
    assert tile["sentence"].startswith("Two patterns of two languages")
    assert tile["sentence"].endswith("(20.0\xa0% expected by chance).")
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


def test_a_note_of_several_runs_is_shown_once():
    notes = {"a": ["x", "y"], "b": ["x"], "c": ["x", "y"]}
    assert (by_run(notes), by_run({"a": ["x", "x"]})) == (["All runs: x", "a, c: y"], ["x"])


def test_labels_of_outlying_relations_overlap_no_other_and_cover_no_mark():
    """Two relations in one place get one label; the mean gets none while others are farther.

    The label of ``a relation`` would reach from 12 to 30, over the mark at 20.
    """
    rows = [("far", 0.0, 0.0), ("near it", 1.0, 1.0), *((f"m{at}", 50.0, 50.0) for at in range(8)),
            ("right", 100.0, 60.0), ("none", math.nan, 1.0)]  # fmt: skip
    labels = [name for _, name in outlying(against(rows).fill_nan(None))]
    assert labels[:2] == ["far", "right"] and not {"near it", "none"} & set(labels)
    rows = [("a relation", 10.0, 50.0), ("b", 20.0, 51.0), ("c", 90.0, 90.0)]
    assert set(outlying(against(rows))) == {("first", "b"), ("first", "c")}
    assert outlying(against(rows), [91.5]) == [("first", "b")], "a line crosses the label of c"
    both = pl.concat([against(rows[1:]), against([("d", 80.0, 90.0)], "second")])
    assert set(outlying(both)) == {("first", "b"), ("first", "c"), ("second", "d")}
    near = pl.concat([against(rows[1:]), against([("d", 87.8, 90.0)], "second")])
    assert ("first", "c") not in outlying(near), "a mark of another run is below its label"


def against(rows, run="first"):
    columns = ["name", "accuracy", "consistency"]
    return pl.DataFrame(rows, columns, orient="row").insert_column(0, pl.lit(run).alias("run"))


def test_figures_round_as_tables_do():
    """Halves go to the even digit: 6.25 to 6.2, and in a matrix 12.5 to 12."""
    values = [0.0625, 0.125, 0.1875]
    rounded = pl.DataFrame({"v": [*values, math.nan]}).select(percents("v"))["v"].to_list()
    assert rounded == [*(float(number_text(value, "share")) for value in values), None]
    assert rounded == [6.2, 12.5, 18.8, None]
    pairs = pl.DataFrame({"run": "a", "group": "g", "first": 0, "second": 1, "agreement": [0.125]})
    indexed = {"variant_index": [0, 1], "variant": ["x", "y"]}
    patterns = pl.DataFrame({"run": "a", "group": "g", **indexed})
    spec = json.dumps(spec_of(matrix_figure(pairs, patterns, "g", {}, FACT_WORDS)))
    assert f'"v": 12.5, "shown": "{number_text(0.125, "share", 0)}"' in spec


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


def layout_metrics(suite, facts, **values):
    """A metrics table of means over relations; ``facts``: how many there are, four excluded."""
    rows = [(name, suite, "MACRO", value, 1) for name, value in values.items()]
    rows += [("accuracy", suite, "P1", 0.5, 1), ("accuracy", suite, "MICRO", 0.5, facts - 4)]
    schema = {"metric": pl.String, "suite": pl.String, "group": pl.String, "value": pl.Float64,
              "n": pl.Int64}  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(subset=pl.lit("all"), std=pl.lit(math.nan), n_excluded=pl.lit(4))


@pytest.mark.parametrize(("suite", "facts", "papers_rows"), [
    ("pararel", 22964, 8), ("pararel", 155, 0), ("mini", 22964, 0),
])  # fmt: skip
def test_the_papers_rows_come_first(suite, facts, papers_rows):
    runs = {
        "constant": layout_metrics(suite, facts, accuracy=0.1, consistency=1.0,
                                   corrected_consistency=math.nan),
        "one": layout_metrics(suite, facts, accuracy=0.4, consistency=0.6,
                              corrected_consistency=0.3),
        "two": layout_metrics(suite, facts, accuracy=0.3, consistency=0.5,
                              corrected_consistency=0.2),
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
    micro = pl.col("group").replace("MACRO", "MICRO")
    metrics = layout_metrics("quiz", 1, **keys).with_columns(micro)
    of_factor = metrics.filter(metric="consistency").with_columns(subset=pl.lit("order"))
    tables = layouts_of(QUESTION_WORDS, {"one": pl.concat([metrics, of_factor])})
    headings = {name: [each.heading for each in table.columns] for name, table in tables.items()}
    columns = {"questions": ["", "Accuracy", "Consistency"], "factors": ["", "order"]}
    assert headings == columns | {"groups": ["group", "Accuracy"]}
    assert rows_of_table(tables["factors"]) == [["one", 0.6]]


HEADLINES = ["model", "number", "value", "low", "high", "source"]


def test_the_axis_of_headline_numbers_begins_at_the_lowest_interval():
    rows = [("m", "Accuracy", 0.5, math.nan, math.nan, MEASURED),
            ("m", "Chance-corrected consistency", -0.01, -0.2, 0.1, MEASURED)]  # fmt: skip
    rows = pl.DataFrame(rows, schema=HEADLINES, orient="row")
    spec = json.dumps(spec_of(charts.headline_figure(rows)))
    scales = re.findall(r'"domain": \[(-?[0-9.]+), 100\]', spec)
    assert set(map(float, scales)) == {-20.0}


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
save_figure(chart.to_dict(), *map(Path, sys.argv[1:]))
"""
    paths = [tmp_path / f"figure.{suffix}" for suffix in ("svg", "png", "pdf")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    assert all(path.stat().st_size > 1000 for path in paths)
    assert "a\ufffd[2Jb\ufffdc" in paths[0].read_text(encoding="utf-8")


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
    paper = ("BERT", "Accuracy", 0.5, None, None, "paper")
    rows = [paper, ("m", "Accuracy", 0.4, 0.3, 0.6, MEASURED)]
    spec = spec_of(charts.headline_figure(pl.DataFrame(rows, schema=HEADLINES, orient="row")))
    drawn = spec["data"]["values"]
    assert [(row["model"], row["start"], row["value"], row["stop"]) for row in drawn] == [
        ("BERT", 50.0, 50.0, 50.0), ("m", 30.0, 40.0, 60.0)
    ]  # fmt: skip
    edits = shown().edits.with_columns(run=pl.lit("one"))
    (zero, rule, point), rows = fields_of(charts.edit_figure(edits))
    assert (zero["x"], rule["x"], rule["x2"], point["x"]) == ("x", "start", "stop", "difference")
    drawn = [(row["start"], row["difference"], row["stop"]) for row in rows]
    assert drawn == [(-20.0, -11.0, -5.0)]
    without = edits.with_columns(low=pl.lit(math.nan), high=pl.lit(math.nan))
    _, (row,) = fields_of(charts.edit_figure(without))
    assert (row["low"], row["start"], row["stop"]) == (None, -11.0, -11.0), "no interval, no line"


def test_accuracy_goes_to_the_right_and_consistency_up():
    rows = pl.DataFrame({"run": ["one"], "name": ["R"], "accuracy": [0.2], "consistency": [0.7],
                         "chance": [0.3]})  # fmt: skip
    chart = charts.against_figure(rows)
    spec = spec_of(chart)
    marks, left, *_ = (layer["encoding"] for layer in spec["layer"])
    for encoding in (marks, left):
        assert (encoding["x"]["field"], encoding["y"]["field"]) == ("accuracy", "consistency")
    (drawn,), (chance,) = spec["data"]["values"], spec["layer"][3]["data"]["values"]
    assert (drawn["accuracy"], drawn["consistency"], drawn["label"]) == (20.0, 70.0, "R")
    assert chance["y"] == 30.0


def test_the_least_consistent_relation_is_shown_first(monkeypatch):
    """Means of R 0.5, of S 0.2, of T none."""
    pairs = pl.DataFrame(
        {"group": ["R", "S", "S", "T"], "first": [0, 0, 0, 0], "second": [1, 1, 2, 1],
         "agreement": [0.5, 0.1, 0.3, math.nan]}
    )  # fmt: skip
    patterns = pl.concat(
        shown().patterns.with_columns(group=pl.lit(each), variant_index=pl.lit(at, dtype=pl.Int64))
        for each in "RST"
        for at in range(3)
    )
    (figure,) = overview._agreement([shown(pairs=pairs, patterns=patterns)], None)
    assert figure.title == "Agreement of patterns: S"
    few = pairs.with_columns(n=pl.Series([3, 2, 2, 3]))
    (figure,) = overview._agreement([shown(pairs=few, patterns=patterns)], None)
    assert figure.title == "Agreement of patterns: R", "S has two facts"
    last = pl.col("variant_index").replace(2, overview.LARGEST_MATRIX)
    is_s = pl.col("group") == "S"
    large = patterns.with_columns(pl.when(is_s).then(last).otherwise("variant_index"))
    (figure,) = overview._agreement([shown(pairs=pairs, patterns=large)], None)
    assert figure.title == "Agreement of patterns: R", "S has too many patterns"
    kept = {"pairs": pairs.filter(group="R"), "patterns": patterns.filter(group="R")}
    runs = [shown(**kept), shown(pairs=pairs, patterns=patterns)]
    runs = [replace(run, name=name) for run, name in zip(runs, "ab", strict=True)]
    (figure,) = overview._agreement(runs, None)
    assert figure.title == "Agreement of patterns: R, a", "the first run has no S"
    known = json.dumps(spec_of(figure.chart))
    assert all(f'"key": "{name} 1"' in known for name in "RST")
    (figure,) = overview._agreement(runs, "S")
    assert figure.title == "Agreement of patterns: R, a", "no matrix of nothing"


def test_intervals_are_over_relations_where_all_have_several_right_answers():
    several = Suite("s", tuple(make_suite(cardinality="N-M", ids=("R", "S"))), "strict")
    assert overview.scope([replace(shown(), suite=several)]).startswith("Means over 2 relations")


def test_the_rows_of_a_paper_stand_beside_runs_of_its_task_alone(tmp_path):
    metrics = form_metrics(("accuracy", "all", 0.8))
    run = RunView(
        "run", [{}], FORMS, metrics, summary_of(("accuracy", 0.8, 0.5)), task=TASKS["rte"]
    )
    (figure,) = overview._headlines([run, replace(run, name="other")])
    assert "paper's rows" in figure.caption
    unknown = replace(run, metrics=metrics.with_columns(group=pl.lit("my-task")))
    for other in (unknown, replace(run, task=TASKS["mrpc"])):
        (figure,) = overview._headlines([run, other])
        assert "paper" not in figure.caption + json.dumps(spec_of(figure.chart))


def test_the_caption_of_a_figure_without_a_title_begins_with_its_words():
    figures = [
        Figure("vectors-0", "", {}, "Hidden states.", True),
        Figure("a", "A", {}, "B.", True),
    ]
    text = latex_figures(figures)
    assert "\\caption{Hidden states.}" in text and "\\caption{A. B.}" in text


def test_the_agreement_of_forms_counts_the_pairs_that_both_forms_answered():
    """Of five pairs reverse keeps four labels, signal five; one answer of signal is removed."""
    answers = answers_of("yynny", "yynnn", "yynyn", "yynnn")
    is_removed = (pl.col("variant") == "signal") & (pl.col("item") == answers["item"][0])
    fewer = answers.with_columns(answer=pl.when(~is_removed).then("answer"))
    suite = suite_of([answers])
    pairs, forms = form_tables([answers], suite)
    assert forms["variant"].to_list() == ["original", "reverse", "signal"]
    assert pairs.rows() == [("t", 0, 1, 0.8), ("t", 0, 2, 1.0), ("t", 1, 2, 0.8)]
    pairs, _ = form_tables([fewer], suite)
    assert pairs.rows() == [("t", 0, 1, 0.8), ("t", 0, 2, 1.0), ("t", 1, 2, 0.75)]
    metrics = measure(answers, suite, "strict").filter(metric="consistency", subset="reverse")
    assert metrics["value"].to_list() == [0.8], "agreement with the original form is consistency"


@pytest.mark.parametrize(("text", "lines"), [
    ("short", ["short"]),
    ("group of animals that an animal belongs to", ["group of animals that", "an animal belongs to"]),
    ("x" * 50, ["x" * 25, "x" * 25]),
])  # fmt: skip
def test_lines_of_a_label_have_similar_lengths(text, lines):
    assert wrapped(text).split("\n") == lines


def test_the_matrix_has_each_pair_in_two_cells_beside_its_patterns(tmp_path):
    """Of patterns 1 to 3: 10 percent of 1 and 2, 20 of 1 and 3, none of 2 and 3; 90 of a relation S."""
    rows = [("R", 0, 1, 0.1), ("R", 0, 2, 0.2), ("R", 1, 2, math.nan), ("S", 0, 1, 0.9)]
    pairs = pl.DataFrame(rows, schema=["group", "first", "second", "agreement"], orient="row")
    words = [("R", 0, "aa"), ("R", 1, "bb"), ("R", 2, "cc"), ("S", 0, "dd"), ("S", 1, "ee")]
    patterns = pl.DataFrame(words, schema=["group", "variant_index", "variant"], orient="row")
    named = [each.with_columns(run=pl.lit("a")) for each in (pairs, patterns)]
    names = {"R": "r", "S": "s"}
    save_figure(matrix_figure(*named, "R", names, FACT_WORDS), tmp_path / "matrix.svg")

    def texts_in(role):
        """What is drawn there, with its place from the left and the top."""
        drawing = ElementTree.parse(tmp_path / "matrix.svg")
        for group in drawing.iter("{http://www.w3.org/2000/svg}g"):
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

    drawn = texts_in("mark-text role-mark")
    cells = {(nearest(lines, y), nearest(columns, x)): text for text, x, y in drawn}
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


def test_agreement_of_each_item_worked_out_by_hand():
    """Answers a a b: one of three pairs agrees; a a a: all; a missing answer leaves one pair."""
    answers = table([("1", "s", "a", ["a", "a", "b"]), ("2", "t", "a", ["a", "a", "a"]),
                     ("3", "u", "a", ["a", None, "a"]), ("4", "v", "a", ["a", None, None])])  # fmt: skip
    found = item_table(answers, make_suite(), "strict")
    assert found["agreement"].to_list()[:3] == [pytest.approx(1 / 3), 1.0, 1.0]
    assert math.isnan(found["agreement"][3]) and found["pairs"].to_list() == [3, 3, 1, 0]
    assert item_table(answers, make_suite(cardinality="N-M"), "strict").is_empty()


def test_items_in_tenths_worked_out_by_hand():
    """0.1 and 0.3 are the left ends of bars, 1 the right end of the last; 0.95 is in that, too."""
    agreement = [0.0, 0.1, 0.1, 0.3, 0.29, 0.95, 1.0, 1.0, math.nan]
    items = pl.DataFrame({"run": ["a"] * 9 + ["b"], "agreement": [*agreement, 0.5]})
    found = {tuple(row[:2]): row[2:] for row in in_tenths(items).iter_rows()}
    assert found == {
        ("a", "0 to 10"): (1, 1 / 8), ("a", "10 to 20"): (2, 2 / 8), ("a", "20 to 30"): (1, 1 / 8),
        ("a", "30 to 40"): (1, 1 / 8), ("a", "90 to 100"): (3, 3 / 8), ("b", "50 to 60"): (1, 1.0),
    }  # fmt: skip


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
