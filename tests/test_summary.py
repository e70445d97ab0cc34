"""What is said and shown of a run: its summary, verdicts, cautions, tables in text and in files."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import polars as pl
import pytest

from checks import output
from conftest import ROOT, cases, run_command
from consilience import ask_suite, load_model, load_suite, measure
from consilience.analysis.factor_effects import FactorTables
from consilience.app.console import Terminal
from consilience.core.schemas import METRICS_SCHEMA, OVER_PHRASINGS
from consilience.metrics import registry
from consilience.metrics.measure import CheckedAnswers
from consilience.probing import count_answers, majority_baseline
from consilience.report.cautions import CAUTIONS, Known, by_run, cautions
from consilience.report.layouts import (
    factor_verdict,
    group_table,
    item_table,
    metrics_table,
    pattern_verdict,
)
from consilience.report.summary import Summary, SummaryRow, summarize
from consilience.report.table import (
    LOW_HIGH,
    Cell,
    Column,
    Table,
    all_notes,
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    fitted_text,
    frame_table,
    interval_of,
    number_text,
    text_of,
)
from consilience.suites.facts import sample_facts, select_relations
from consilience.types import FACT_WORDS, Candidates, Fact
from pages import with_reference
from pair_builders import answers_of, measured, suite_of
from report_builders import CASES
from test_metrics import PATTERNS, make_suite
from test_metrics import table as answers_table

# -- summary --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mini():
    """Eight relations, two of them with several right answers."""
    suite = load_suite("mini")
    several = [relation.id for relation in suite if relation.cardinality == "N-M"]
    others = ["capital", "currency", "sport", "continent", "animal_class", "painter"]
    return sample_facts(select_relations(suite, [*others, *several]), 6, 0)


def answers_to(suite, model, seed=0):
    return ask_suite(suite, load_model(model, seed=seed))


@pytest.fixture(scope="module")
def at_random(mini):
    """Answers of the random model, their metrics, and the summary of these."""
    answers = answers_to(mini, "baseline:random")
    metrics = measure(answers, mini, "strict")
    baseline = majority_baseline(answers, mini, "strict")
    return answers, metrics, summarize(metrics, mini, "strict", "toy", baseline)


def summary_of(answers, suite):
    baseline = majority_baseline(answers, suite, "strict")
    return summarize(measure(answers, suite, "strict"), suite, "strict", "toy", baseline)


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_the_majority_baseline_is_that_of_the_model_with_its_name(protocol, mini):
    """Counted from another model's answers; where those lack some, both are without them."""
    lacking = pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise("answer")
    models = ("baseline:random", "baseline:majority")
    left_out = {"answer": lacking, "excluded": pl.lit("split into 2")}
    gaps, constant = (answers_to(mini, name).with_columns(**left_out) for name in models)
    counted = majority_baseline(gaps, mini, protocol)
    expected = measure(constant, mini, protocol)
    assert expected.height > 100
    on = ["metric", "over", "group", "kind", "level"]
    both = expected.filter(pl.col("over") != "all").join(counted, on=on, how="left")
    assert both["value_right"].to_list() == pytest.approx(both["value"].to_list(), nan_ok=True)


def test_the_majority_baseline_is_counted_on_the_facts_that_the_model_answered():
    """Of four facts, three with the gold a, the model answered two: one has the gold a.

    On a third fact it has no answer in the base pattern, so consistency counts its other patterns.
    """
    facts = [Fact(str(n), s, o) for n, (s, o) in enumerate(zip("stuv", "abaa", strict=True))]
    (relation,) = make_suite().relations
    relation = replace(relation, facts=tuple(facts), candidates=Candidates.of(facts))
    suite = replace(make_suite(), relations=(relation,))
    rows = [
        ("1", "Ada", "a", ["a", "a", "b"]), ("2", "Bob", "b", ["b", "a", "b"]),
        ("3", "Cid", "a", [" ", "a", "a"]), ("4", "Dan", "a", [None, None, None]),
    ]  # fmt: skip
    left_out = pl.when(pl.col("answer").is_null()).then(pl.lit("split into 2"))
    answers = answers_table(rows).with_columns(excluded=left_out)
    values = majority_baseline(answers, suite, "strict")
    means = dict(values.filter(over="mean", kind="whole")["metric", "value"].iter_rows())
    names = ("accuracy", "consistency", "consistent_accuracy")
    assert [means[name] for name in names] == [2 / 3, 1, 2 / 3]


@pytest.mark.parametrize(("value", "low", "baseline", "note"), [
    (0.4, 0.1, 0.5, None),
    (math.nan, math.nan, 0.5, "A dash means undefined."),
    (0.4, math.nan, 0.5, "A dash means undefined, or no interval: nothing varies, or fewer than 5 facts."),
    (0.4, 0.1, math.nan, "A dash means undefined."),
])  # fmt: skip
def test_the_last_note_explains_intervals_and_empty_cells(value, low, baseline, note):
    row = SummaryRow("A", "accuracy", "whole", "", value, low, 0.8, baseline, "right")
    table = as_text(Summary("t", [row], "facts").table())
    assert all_notes(table) == ([note] if note else [])
    assert table.title == "t; 95 % CI over facts"


def test_the_rows_of_facts_are_the_means_of_the_metrics_table(at_random):
    _, metrics, summary = at_random
    means = metrics.filter(over="mean", kind="whole")
    by_name = {row["metric"]: row for row in means.iter_rows(named=True)}
    assert [row.label for row in summary.rows] == [
        "Accuracy", "Consistency", "Chance-corrected consistency", "Consistent accuracy",
    ]  # fmt: skip
    for row in summary.rows:
        found = by_name[row.metric]
        for name in ("value", "low", "high"):
            assert getattr(row, name) == pytest.approx(found[name], nan_ok=True, abs=0)
    assert summary.title == "toy on mini: 6 of 8 relations, 36 facts, 9 patterns each (strict)"
    assert summary.chance == by_name["chance_consistency"]["value"]
    assert summary.rows[1].baseline == 1 and math.isnan(summary.rows[2].baseline)
    shown = summary.table()
    assert [len(row) for row in shown.rows] == [len(shown.columns)] * 4
    assert (summary.over, shown.notes) == ("relations", [])


def test_the_title_counts_the_facts_and_the_patterns_that_were_asked():
    """Two relations of three facts; one fact of S was left out, and one pattern of all."""
    relations, tables = [], []
    for name, answers in (("R", ["aab", "aaa", "bbb"]), ("S", ["abc", "aaa", [None] * 3])):
        suite = make_suite()
        facts = [Fact(str(at), f"{name}{at}", "a") for at in range(3)]
        (relation,) = suite.relations
        about = {"id": name, "label": name, "facts": tuple(facts)}
        relations.append(replace(relation, **about, candidates=Candidates.of(facts)))
        rows = [(str(at), f"{name}{at}", "a", list(row)) for at, row in enumerate(answers)]
        tables.append(answers_table(rows).with_columns(group=pl.lit(name)))
    suite = replace(suite, relations=tuple(relations))
    reason = pl.when(pl.col("answer").is_null()).then(pl.lit("split into 2"))
    answers = pl.concat(tables).with_columns(excluded=reason)
    summary = count_answers(answers, suite, "toy").summary
    assert "2 relations, 5 of 6 facts, 3 patterns each" in summary.title
    answers = answers.filter(pl.col("variant") != PATTERNS[2])
    summary = count_answers(answers, suite, "toy").summary
    assert "2 relations, 5 of 6 facts, 2 patterns each" in summary.title


@pytest.mark.parametrize(("cardinality", "labels"), [
    ("N-1", ["Accuracy", "Consistency", "Chance-corrected consistency", "Consistent accuracy"]),
    ("N-M", ["Determinism"]),
])  # fmt: skip
def test_one_relation(cardinality, labels):
    suite = make_suite(cardinality=cardinality)
    rows = [("1", "Ada", "a", ["a", "a", "a"]), ("2", "Bob", "b", ["b", "c", "c"])]
    summary = summary_of(answers_table(rows), suite)
    assert [row.label for row in summary.rows] == labels
    assert summary.title == "toy on hand: 1 relation, 2 facts, 3 patterns each (strict)"
    one = make_suite(PATTERNS[:1], cardinality, edges={})
    rows = [(*row, of[:1]) for *row, of in rows]
    title = summary_of(answers_table(rows, patterns=PATTERNS[:1]), one).title
    assert title == "toy on hand: 1 relation, 2 facts, 1 pattern each (strict)"


def test_sentence_pairs_have_the_rows_of_the_calum_paper():
    """Of five pairs four are answered right; reverse keeps four labels, signal five."""
    answers = answers_of("yynny", "yynnn", "yynyn", "yynnn")
    suite = suite_of(answers)
    summary = summary_of(answers, suite)
    values = {row.label: (row.value, row.baseline) for row in summary.rows}
    corrected, baseline = values.pop("Chance-corrected consistency")
    assert corrected == pytest.approx(0.8, abs=0.05) and math.isnan(baseline)
    assert values == {
        "Accuracy": (0.8, 0.6), "Consistency": (0.9, 1.0), "Consistent accuracy": (0.6, 0.6),
        "Consistency C_R": (0.8, 1.0), "Consistency C_S": (1.0, 1.0),
    }  # fmt: skip
    assert summary.title == "toy on t: 5 sentence pairs, 3 forms"


def test_numbers_of_written_answers_have_names_of_their_own():
    cells = product(("Accuracy", "Accuracy (written)"), ("", "reverse"))
    rows = [SummaryRow(label, "accuracy", "form", of, 0, 0, 0, 0, "") for label, of in cells]
    names = ["accuracy", "accuracy/reverse", "accuracy/written", "accuracy/written/reverse"]
    assert ["/".join(row.names) for row in rows] == names


# -- verdicts -------------------------------------------------------------------------------------


NONE = pl.DataFrame()


def factors(rows):
    table = pl.DataFrame(rows, schema=["factor", "value", "low", "high"], orient="row")
    return FactorTables(table, NONE, NONE, NONE, [], "run")


@pytest.mark.parametrize(("rows", "sentences"), [
    ([("paraphrase", 0.9, 0.8, 0.95), ("order", 0.2, 0.1, 0.3)],
     ["The order of the options (order) changes answers most: variants that differ in nothing else "
      "agree in 20.0 % of pairs."]),
    ([("paraphrase", 0.9, 0.8, 0.95), ("order", 0.8, 0.7, 0.85)], []),
    ([("order", 0.5, 0.4, 0.6), ("labels", 0.5, 0.4, 0.6)], []),
    ([("order", 0.9, 0.85, 1.0), ("mine", 0.5, 0.4, 0.6)],
     ["The factor (mine) changes answers most: variants that differ in nothing else agree in 50.0 % of pairs."]),
    ([("order", 0.5, 0.4, 0.6), ("labels", math.nan, math.nan, math.nan)], []),
    ([("mine", 0.5, 0.4, 0.6)], []),
])  # fmt: skip
def test_factors(rows, sentences):
    assert factor_verdict([factors(rows)]) == sentences
    assert len(factor_verdict([factors(rows)] * 2)) == 2 * bool(sentences)


@pytest.mark.parametrize(("gains", "p", "sentences"), [
    ([-0.1, 0.25, 0.05], 0.01,
     ["Consistency gains most without one pattern: R 50.0 to 75.0 % without 'b'; S 40.0 to 45.0 % "
      "without 'c'."]),
    ([0.0, 0.0, math.nan], math.nan, []),
    ([math.nan] * 3, 1.0, []),
])  # fmt: skip
def test_patterns(gains, p, sentences):
    rows = pl.DataFrame({
        "group": ["R", "R", "S"], "variant_index": [0, 1, 0], "variant": ["a", "b", "c"], "gain": gains,
        "without": 0.5, "consistency": [0.5, 0.5, 0.4], "n": 5, "top_answer": 0.9, "p_holm": [math.nan, p, math.nan],
    })  # fmt: skip
    assert pattern_verdict(rows, FACT_WORDS) == sentences


# -- cautions -------------------------------------------------------------------------------------


MADE = make_suite()
NUMBERS = {
    **dict.fromkeys(METRICS_SCHEMA, ""),
    **dict.fromkeys(("value", "low", "high", "std", *OVER_PHRASINGS), 0.0),
    "over": "group", "group": "R", "kind": "whole", "n": 4, "n_excluded": 0,
}  # fmt: skip


def metrics(**values):
    """A metrics table of one relation of four facts."""
    rows = [{**NUMBERS, "metric": name, "value": value} for name, value in values.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def run(label, painter, composer, protocol="strict"):
    """A run with its numbers of candidates; of the third relation it has no answer."""
    sizes = {"painter": painter, "composer": composer, "capital": 52}
    rows = [(group, "x", size) for group, size in sizes.items()] + [("maker", None, 3)]
    answers = pl.DataFrame(rows, ["group", "answer", "n_candidates"], orient="row")
    return SimpleNamespace(label=label, settings={}, answers=answers, protocol=protocol)


def answered(*texts, **more):
    """One fact in three patterns that were answered so; ``.``: left out; ``more``: columns."""
    rows = answers_table([("1", "Ada", "a", list(texts))])
    is_left_out = pl.col("answer") == "."
    excluded = pl.when(is_left_out).then(pl.lit("too long"))
    rows = rows.with_columns(excluded=excluded, answer=pl.when(~is_left_out).then("answer"))
    rows = rows.with_columns(**{name: pl.Series(of) for name, of in more.items()})
    return CheckedAnswers(rows, MADE)


CHANGED = pl.DataFrame({
    "metric": ["accuracy", "consistency", "consistent_accuracy", "consistency"], "n": 9,
    "over": [*["mean"] * 3, "group"], "difference": [-0.1, 0.11, 0.0, 0.01], "kind": "whole",
    "first": "one", "second": "two",
})  # fmt: skip
COMMON = pl.DataFrame({"group": "R", "item": ["1", "2"], "variant": "a"})
FLOOR = {"value": 0.1, "low": 0.05, "high": 0.2, "n": 30}

WRITTEN = {"text": ["a", "C.", "C."], "unmatched": [None, *["not the gold"] * 2]}
ROWS = [
    ("unfinished", {"is_finished": False}, "Not finished: the numbers cover the answers so far."),
    ("unanswered", {"answers": answered("a", ".", "."), "suite": make_suite(ids=("R", "S"))},
     "1 of 2 relations (S) have no answers at all."),
    ("constant", {"metrics": metrics(accuracy=0.5, top_answer=0.95, chance_consistency=0.9)},
     "In 1 of 1 relation over 90 % of the answers are the same word. Consistency says little"),
    ("unlike", {"asked_by": "published"}, "The run was asked under the protocol published"),
    ("unlike", {"runs": [run("one", 12, 30), run("two", 12, 30, "published")]},
     "two was asked under the protocol published and is counted by strict."),
    ("unlike", {"runs": [run("one", 39, 36), run("two", 12, 30)]},
     "two and one chose from different numbers of answers in 2 of 3 relations (for example painter: 12 and 39;"),
    ("part", {"common": COMMON, "queries": {"one": 2, "two": 5}},
     "Compared on the 2 queries (2 facts) that all runs have, of 2 in one, 5 in two."),
    ("unmatched", {"answers": answered("a", "c.", "c.", **WRITTEN)},
     "2 of 3 written answers (66.7 %) match no option and count as wrong; most often 'C.' (2)."),
    ("unmatched", {"answers": answered("a", "I see.", "b", option=[0, None, 1], option_scores=[None] * 3)},
     "1 of 3 written answers (33.3 %) match no option and count as wrong; most often 'I see.' (1)."),
    # Chance makes 4 * (1 - 0.5) = 2 of 4 facts disagree: 20 need 40 facts.
    ("few items", {"metrics": metrics(accuracy=0.5, top_answer=0.5, chance_consistency=0.5)},
     "With 4 facts the chance-corrected consistency often comes out too low; about 40 like"),
    ("noise", {"metrics": metrics(noise_floor=0.25)},
     "Asked the same prompts again, the model changed 1 of 4 answers (25.0 %): d"),
    ("noise", {"floors": {"two": FLOOR}}, "Asked the same prompts again, two changed 3 of 30 answers (10.0 %"),
    ("noise", {"compared": CHANGED, "floors": {"one": FLOOR | {"value": 0.0}, "two": FLOOR}},
     "Asked the same prompts again, two changed 3 of 30 answers (10.0 %): differences between runs"),
]  # fmt: skip
"""A caution, what it is read from, and how it begins; what is not known raises none."""


@pytest.mark.parametrize(("name", "known", "text"), ROWS)
def test_a_caution_says_what_holds_and_where_more_is_read(name, known, text):
    found = cautions(Known(**{"suite": MADE} | known))
    assert found[0].startswith(text)
    pages = {row.__name__: page for row, page in CAUTIONS.items()}
    assert found[0].endswith(f"(docs/{pages['_' + name.replace(' ', '_')]})")
    assert len(found) == 1 or name == "unanswered"


def test_without_a_reason_there_is_no_caution():
    runs = [run("one", 12, 30), run("two", 12, 30)]
    known = Known(
        suite=MADE, answers=answered("a", "a", "b"), asked_by="strict", runs=runs,
        compared=CHANGED, queries={"one": 2, "two": 2}, common=COMMON, metrics=metrics(accuracy=1),
    )  # fmt: skip
    assert cautions(known) == []


def test_there_are_at_most_ten_each_with_a_page_of_the_documentation():
    assert len(CAUTIONS) <= 10
    assert all((ROOT / "docs" / page).is_file() for page in CAUTIONS.values())


def test_notes_of_several_runs_are_given_once():
    notes = by_run({"one": ["note", "first", "first"], "two": ["note", "second"]})
    assert notes == ["All runs: note", "one: first", "two: second"]
    assert by_run({"one": ["note", "first"]}) == ["note", "first"]


# One table on a screen and in files, character by character; and what its numbers look like.


NUMBER = Column("n", "number")
PAPER_ROWS = [
    ["majority", Cell(0.99, 0.2104), 3],
    ["bert_base", Cell(0.4584, 0.256), 1],
    ["bert~large", Cell(0.4576, 0.0), 2],
    ["small", math.nan, "<none>"],
]
COLUMNS = [Column("model"), Column("Acc", "share"), Column("n*", "count")]
BLOCKS = ["", "A|B", "A|B", "late"]
PAPER = Table("Right & wrong, 50 % of_it", COLUMNS, PAPER_ROWS, blocks=BLOCKS)


def printed(table, width):
    return fitted_text(table, width).plain.splitlines()


@pytest.mark.parametrize(("value", "kind", "digits", "text"), cases("numbers_shown"))
def test_a_number_is_rounded_once_as_its_kind_is_shown(value, kind, digits, text):
    assert number_text(value, kind, digits) == text


def test_a_cell_has_a_value_or_an_interval_or_no_data():
    share, points = Column("", "share"), Column("", "points")
    cells = [Cell(0.5, 0.04, -0.1, 0.2), Cell(math.nan, 0.1, 0.1), Cell(), Cell("text")]
    assert [text_of(cell, share) for cell in cells] == ["50.0±4.0", "-", "-", "text"]
    assert [interval_of(cell, points) for cell in cells] == ["-10.0 to +20.0", "", "", ""]
    assert [cell.number for cell in cells] == [0.5, None, None, None]
    assert text_of(Cell(0.5, digits=0), share) == "50"


@pytest.mark.parametrize(
    ("write", "suffix"), [(as_csv, "csv"), (as_markdown, "md"), (as_latex, "tex")]
)
def test_a_table_in_every_format(write, suffix):
    """CSV has every number in full; what would be markup or a command is escaped."""
    assert write(PAPER) == (CASES / f"table.{suffix}").read_text(encoding="utf-8")


def test_csv_has_the_bounds_of_a_number_behind_it():
    names = [Column("a", "share", bounds=LOW_HIGH), Column("b", "share"), Column("c", "share")]
    interval = Table("", names, [[Cell(0.5), Cell(0.5, low=0.25, high=0.75), 1]])
    assert as_csv(interval) == "a,a low,a high,b,b low,b high,c\n50.0,,,50.0,25.0,75.0,1\n"


def test_a_text_has_all_intervals_in_columns_of_their_own():
    cells = [Cell(0.5, low=0.25, high=0.75), Cell(math.nan), Cell("", low=0.1)]
    frame = [{"a": cell, "low": cell.low, "high": None if cell.value == "" else cell.high, "b": 1 - at}
             for at, cell in enumerate(cells)]  # fmt: skip
    frame[0]["b"] = Cell(1, low=0, high=2)
    columns = {"a": Column("a", "share", bounds=LOW_HIGH), "b": Column("b", "count")}
    table = frame_table(frame, "", columns)
    rows = [line.split() for line in printed(table, 80)[1:4]]
    assert rows == [
        ["50.0", "25.0", "to", "75.0", "1", "0", "to", "2"],
        ["-", "0", "-"],
        ["-1", "-"],
    ]
    assert "| 50.0 | 25.0 to 75.0 | 1 | 0 to 2 |" in as_markdown(table)
    assert "& 0 to 2 \\" in as_latex(table)


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
        "title", "name      value       95 % CI  p",
        "first:", "one   50.0±10.0  10.0 to 90.0  0.010*",
        "second:", "two       100.0             -  0.500", "a note",
        "A dash means undefined, or no interval: nothing varies, or fewer than 5 items.",
    ]  # fmt: skip


def test_headings_are_wrapped_at_words_or_shortened_on_a_narrow_screen():
    counts = [Column("Consistency", "share", "Cons"), Column("left out", "count")]
    table = Table("", [Column("relation"), *counts], [["capital", 0.5, 3]])
    assert printed(table, 80)[0] == "relation  Consistency  left out"
    assert printed(table, 27)[0] == "relation  Cons  left out"
    assert printed(table, 23)[:2] == ["                   left", "relation  Cons      out"]


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
    tables.append(metrics_table(metrics, "metrics", suite.words.clusters))
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
        body = Counter(words(replace(table, columns=columns), 10_000))
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
    assert consilience("report", "run")[0] == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ">Answered<" in page
    assert '"answered"' in output(consilience, "compare", "run", "copy=run", "--json")
    assert "answered" in with_reference((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"))


def test_generated_parts_of_the_docs_are_of_this_version():
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert text == with_reference(text), "run `make docs`"


def test_metrics_of_a_run_on_a_screen():
    """Determinism is in the column of consistency; detail in the summary alone."""
    values = {"accuracy": 0.25, "determinism": 0.5, "chance_consistency": 0.75}
    row = {"kind": "whole", "level": "", "std": 0.01, "low": 0.1, "high": 0.2, "n": 3,
           "n_excluded": 1}  # fmt: skip
    rows = [
        row | {"metric": name, "over": over, "group": "R" * (over == "group"), "value": value}
        for name, value in values.items()
        for over in ("group", "mean", "all")
    ]
    metrics = pl.DataFrame(rows, METRICS_SCHEMA)
    lines = printed(group_table(metrics, make_suite(cardinality="N-M")), 200)
    assert lines[0] == "hand: each relation, in percent; 95 % CI over subjects"
    headings = ["relation", "Accuracy", "95 % CI", "Consistency", "95 % CI", "facts", "left out"]
    assert lines[1].split() == " ".join(headings).split()
    assert lines[2].split()[:3] == ["R", "(determinism)", "25.0"]
    assert lines[2].split()[-6:] == ["50.0", "10.0", "to", "20.0", "3", "1"]
    table = as_csv(group_table(metrics, make_suite(cardinality="N-M")))
    assert table == (
        "relation,Accuracy,Accuracy low,Accuracy high,Consistency,Consistency low,"
        "Consistency high,facts,left out\nR (determinism),25.0,10.0,20.0,50.0,10.0,20.0,3,1\n"
    )
    suite = make_suite()
    named = replace(suite, relations=(replace(suite.relations[0], label="name"),))
    assert as_csv(group_table(metrics, named)).startswith("relation,id,Accuracy,")
    means = metrics.filter(pl.col("over") != "group")
    lines = printed(metrics_table(means, "title", "relations"), 80)
    assert lines[0] == "title; 95 % CI over relations"
    assert [line.split() for line in lines[2:]] == [
        ["Accuracy", "25.0±1.0", "10.0", "to", "20.0", "3", "1"],
        ["Determinism", "50.0±1.0", "10.0", "to", "20.0", "3", "1"],
        ["Expected", "by", "chance", "75.0±1.0", "10.0", "to", "20.0", "3", "1"],
    ]
