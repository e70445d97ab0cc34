"""One table on a screen and in files, character by character; and what its numbers look like."""

import math
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from checks import output
from conftest import ROOT, cases, run_command
from consilience.app.console import Terminal
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics import registry
from consilience.metrics.differences import form_changes
from consilience.report.export import as_csv, as_latex, as_markdown, save_table
from consilience.report.metric_tables import form_table, group_table, item_table, metrics_table
from consilience.report.table import (
    LOW_HIGH,
    Cell,
    Column,
    Table,
    fitted_text,
    frame_table,
    interval_of,
    number_text,
    spread_of,
    text_of,
)
from pages import with_reference
from pair_builders import answers_of, measured, suite_of
from report_builders import CASES
from test_metrics import make_suite

NUMBER = Column("n", "number")
ROWS = [
    ["majority", Cell(0.99, 0.2104), 3],
    ["bert_base", Cell(0.4584, 0.256), 1],
    ["bert~large", Cell(0.4576, 0.0), 2],
    ["small", math.nan, "<none>"],
]
COLUMNS = [Column("model"), Column("Acc", "share"), Column("n*", "count")]
BLOCKS = ["", "A|B", "A|B", "late"]
PAPER = Table("Right & wrong, 50 % of_it", COLUMNS, ROWS, blocks=BLOCKS)


def printed(table, width):
    return fitted_text(table, width).plain.splitlines()


@pytest.mark.parametrize(("value", "kind", "digits", "text"), cases("numbers_shown"))
def test_a_number_is_rounded_once_as_its_kind_is_shown(value, kind, digits, text):
    assert number_text(value, kind, digits) == text


def test_a_cell_has_a_value_or_an_interval_or_no_data():
    share, points = Column("", "share"), Column("", "points")
    cells = [Cell(0.5, 0.04, -0.1, 0.2), Cell(math.nan, 0.1, 0.1), Cell(), Cell("text")]
    assert [text_of(cell, share) for cell in cells] == ["50.0", "-", "-", "text"]
    assert [interval_of(cell, points) for cell in cells] == ["-10.0 to +20.0", "", "", ""]
    assert [spread_of(cell, share) for cell in cells] == ["4.0", "", "", ""]
    assert [cell.number for cell in cells] == [0.5, None, None, None]
    assert text_of(Cell(0.5, mark="*", digits=0), share) == "50*"


def test_a_table_in_files(tmp_path):
    """CSV has every number in full; what would be markup or a command is escaped."""
    written = save_table(PAPER, tmp_path / "new" / "folder", "a.b")
    assert [path.name for path in written] == ["a.b.csv", "a.b.md", "a.b.tex"]
    for path in written:
        expected = (CASES / f"table{path.suffix}").read_text(encoding="utf-8")
        assert path.read_text(encoding="utf-8") == expected


def test_csv_has_the_bounds_of_a_number_behind_it():
    names = [Column("a", "share", bounds=LOW_HIGH), Column("b", "share"), Column("c", "share")]
    interval = Table("", names, [[Cell(0.5), Cell(0.5, low=0.25, high=0.75), 1]])
    assert as_csv(interval) == "a,a low,a high,b,b low,b high,c\n50.0,,,50.0,25.0,75.0,1\n"


def test_a_text_has_the_intervals_of_columns_with_bounds_and_a_file_all(tmp_path):
    cells = [Cell(0.5, low=0.25, high=0.75), Cell(math.nan), Cell("", low=0.1)]
    frame = [{"a": cell, "low": cell.low, "high": None if cell.value == "" else cell.high, "b": 1 - at}
             for at, cell in enumerate(cells)]  # fmt: skip
    frame[0]["b"] = Cell(1, low=0, high=2)
    columns = {"a": Column("a", "share", bounds=LOW_HIGH), "b": Column("b", "count")}
    table = frame_table(frame, "", columns)
    rows = [line.split() for line in printed(table, 80)[1:4]]
    assert rows == [["50.0", "25.0", "to", "75.0", "1"], ["-", "-", "0"], ["-1"]]
    save_table(table, tmp_path, "t")
    assert "| 50.0 | 25.0 to 75.0 | 1 | 0 to 2 |" in (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "& 0 to 2 \\" in (tmp_path / "t.tex").read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "begin", "packages"), [
    (30, "\\begin{table}", "booktabs"),
    (60, "\\begin{table*}", "booktabs"),
    (120, "\\resizebox{\\textwidth}{!}{\\begin{tabular}{l}", "booktabs, graphicx"),
])  # fmt: skip
def test_a_latex_table_is_as_wide_as_it_must_be(width, begin, packages):
    lines = as_latex(Table("t", [Column("x" * width)], [["y"]])).splitlines()
    assert begin in lines and f"\\usepackage{{{packages}}}" in lines[0]
    assert ("\\end{tabular}}" in lines) == (width == 120)


def test_a_table_without_rows_and_one_with_notes_alone():
    empty = Table("t", [Column("c"), NUMBER], [])
    assert (as_csv(empty), as_markdown(empty)) == ("c,n\n", "**t**\n\n| c | n |\n|---|---:|\n")
    assert "\\midrule\n\\bottomrule" in as_latex(empty)
    noted = Table("T", [Column(""), NUMBER], [["x", 1.0]], ["a_b", "two\nlines 5 %"])
    assert as_markdown(noted).endswith("| x | 1.0 |\n\n* a\\_b\n* two lines 5 %\n")
    assert "\\par\\small a\\_b\n\\par\\small two lines 5 \\%\n\\end{table}\n" in as_latex(noted)
    assert as_markdown(Table("T", [Column("")], [], ["n"])) == "**T**\n\n* n\n"


def test_a_screen_has_numbers_at_the_right_and_blocks_with_headings():
    columns = [Column("name"), Column("value", "share", bounds=LOW_HIGH), Column("p", "p")]
    rows = [["one", Cell(0.5, 0.1, 0.1, 0.9), 0.01], ["two", 1.0, 0.5]]
    table = Table("title", columns, rows, ["a note"], ["first", "second"])
    assert printed(table, 80) == [
        "title", "name      value       95 % CI         p",
        "first:", "one   50.0±10.0  10.0 to 90.0  0.010*",
        "second:", "two       100.0             -  0.500", "a note",
        "A dash means no interval: nothing varies, or fewer than 5 counted.",
    ]  # fmt: skip


def test_headings_are_wrapped_at_words_or_shortened_on_a_narrow_screen():
    counts = [Column("Consistency", "share", "Cons"), Column("left out", "count")]
    table = Table("", [Column("relation"), *counts], [["capital", 0.5, 3]])
    assert printed(table, 80)[0] == "relation  Consistency  left out"
    assert printed(table, 27)[:2] == ["                       left", "relation  Consistency   out"]
    assert printed(table, 26)[:2] == ["                left", "relation  Cons   out"]


@pytest.mark.parametrize(("bounds", "left_out"), [(LOW_HIGH, "more"), (("l", "h"), "95 % CI")])
def test_a_narrow_screen_leaves_out_further_intervals_first(bounds, left_out):
    row = {
        "name": "x",
        "n": 0.5,
        **dict.fromkeys(("low", "l"), 0.1),
        **dict.fromkeys(("high", "h"), 0.9),
    }
    columns = {
        "name": Column("name"),
        "n": Column("n", "share", bounds=bounds),
        "more": Column("more"),
    }
    lines = printed(frame_table([row | {"more": "0123456789"}], "", columns), 30)
    assert f"Not shown at this width: {left_out}. A" in " ".join(lines)


@pytest.fixture(scope="module")
def printed_tables(tmp_path_factory):
    """Every table that a few commands print, of facts and of sentence pairs."""
    tables = []
    folder = tmp_path_factory.mktemp("printed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(Terminal, "print", lambda self, *objects, **_: tables.extend(objects))
        probe = ["probe", "--groups", "capital,animal_class,borders", "--limit", "3", "--model"]
        commands = [[*probe, f"baseline:{each}", "--out", each] for each in ("random", "majority")]
        for by in ("group", "edit", "pattern", "metric"):
            commands += [["score", "random", "--by", by]]
            commands += [["compare", "random", "majority", *(["--by", by] * (by != "pattern"))]]
        for command in [*commands, ["suite", "check", "mini"], ["reproduce"]]:
            output(run_command, *command)
    answers = answers_of("yynny", "yynnn", "yynyn", "yynnn")
    metrics, suite = measured(answers), suite_of(answers)
    tables.append(form_table(metrics, "forms", form_changes(answers, suite, "strict")))
    tables.append(metrics_table(metrics, "metrics"))
    tables = [table for table in tables if isinstance(table, Table)]
    assert len(tables) >= 15
    return tables


def words(table, width):
    return [word for line in printed(table, width) for word in line.split()]


def test_no_word_of_a_table_is_split_at_any_width(printed_tables):
    for table in printed_tables:
        whole = Counter([*words(table, 10_000), "undefined."])  # without columns of intervals
        whole.update(word for column in table.columns for word in column.short.split())
        columns = [replace(column, heading="", short="") for column in table.columns]
        body = Counter(words(replace(table, columns=columns, rules=()), 10_000))
        for width in range(40, 201, 20):
            lines = printed(table, width)
            remark = next((at for at, line in enumerate(lines) if "Not shown" in line), len(lines))
            shown = Counter(word for line in lines[:remark] for word in line.split())
            shown = Counter({word: n for word, n in shown.items() if "─" not in word})
            assert not shown - whole, (table.title, width)
            assert not any(line.endswith(" ") for line in lines)
            if width > 40 or table.title != "consilience reproduce NAME":  # has long names
                assert all(len(line) <= width for line in lines), (table.title, width)
            if remark == len(lines):
                assert not body - shown, "nothing is left out"


def test_titles_and_notes_are_as_wide_as_the_screen():
    title = "packaged:minilm: validation accuracy of the best checkpoint, in percent"
    note = "a line below the table that is wider than the table"
    table = Table(title, [Column("seed")], [["0"]], [note])
    lines = printed(table, 100)
    assert (lines[0], lines[-1]) == (title, note)
    assert printed(table, 40)[:2] == [
        "packaged:minilm: validation accuracy of", "the best checkpoint, in percent",
    ]  # fmt: skip


def test_items_are_shown_the_least_consistent_first_then_the_least_right():
    rows = [("a", 0.5, 2), ("b", 1.0, 1), ("c", 0.5, 1)]
    items = pl.DataFrame(rows, ["item", "right", "same"], orient="row").with_columns(pairs=2)
    table = item_table(items, "t")
    assert [row[0] for row in table.rows] == ["c", "b", "a"]


# -- metrics --------------------------------------------------------------------------------------


@pytest.fixture
def new_metric(monkeypatch):
    """A metric that is registered for one test: all answers of a relation, over all answers."""
    for known in (registry.METRICS, registry.DESCRIPTIONS):
        monkeypatch.setitem(known, "answered", None)
        del known["answered"]  # removed again after the test

    @registry.metric("pairs", label="Answered", meaning="answers that are given", level="headline")
    def answered(grid):
        return registry.Tally.of_hits(grid.subjects, grid.asked, grid.asked)


def test_a_new_metric_is_in_tables_report_and_docs(new_metric, consilience, tmp_path):
    run = ["probe", "--model", "baseline:random", "--groups", "capital,sport", "--out", "run"]
    output(consilience, *run)
    for by in ("group", "metric"):
        assert "Answered" in consilience("score", "run", "--by", by)[1]
    assert consilience("report", "run", "--tables", "tables")[0] == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ">Answered<" in page
    assert "Answered" in (tmp_path / "tables" / "relations.csv").read_text(encoding="utf-8")
    assert '"answered"' in output(consilience, "compare", "run", "copy=run", "--json")
    assert "answered" in with_reference((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"))


def test_generated_parts_of_the_docs_are_of_this_version():
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert text == with_reference(text), "run `make docs`"


def test_metrics_of_a_run_on_a_screen():
    """Determinism is in the column of consistency, with a mark; detail in the summary alone."""
    values = {"accuracy": 0.25, "determinism": 0.5, "chance_consistency": 0.75}
    row = {"kind": "whole", "level": "", "std": 0.01, "low": 0.1, "high": 0.2, "n": 3,
           "n_excluded": 1}  # fmt: skip
    rows = [
        row | {"metric": name, "over": over, "group": "R" * (over == "group"), "value": value}
        for name, value in values.items()
        for over in ("group", "mean", "all")
    ]
    metrics = pl.DataFrame(rows, METRICS_SCHEMA)
    lines = printed(group_table(metrics, make_suite(cardinality="N-M")), 80)
    assert lines[1].split() == ["relation", "Accuracy", "Consistency", "measured", "as", "facts"]
    assert lines[2].split() == ["R", "25.0", "50.0*", "determinism", "3", "of", "4"]
    assert lines[-1].startswith("* determinism")
    table = as_csv(group_table(metrics, make_suite(cardinality="N-M")))
    assert table == (
        "relation,Accuracy,Accuracy low,Accuracy high,Consistency,Consistency low,"
        "Consistency high,measured as,facts\nR,25.0,10.0,20.0,50.0,10.0,20.0,determinism,3\n"
    )
    suite = make_suite()
    named = replace(suite, relations=(replace(suite.relations[0], label="name"),))
    assert as_csv(group_table(metrics, named)).startswith("relation,id,Accuracy,")
    means = metrics.filter(pl.col("over") != "group")
    lines = printed(metrics_table(means, "title", notes=["note"]), 80)
    assert [line.split() for line in lines[2:-1]] == [
        ["Accuracy", "25.0±1.0", "10.0", "to", "20.0", "3", "25.0", "3", "1"],
        ["Determinism", "50.0±1.0", "10.0", "to", "20.0", "3", "50.0", "3", "1"],
        ["Expected", "by", "chance", "75.0±1.0", "10.0", "to", "20.0", "3", "75.0", "3", "1"],
    ]
    assert lines[-1] == "note"
