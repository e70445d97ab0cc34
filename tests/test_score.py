"""Answers that were given elsewhere: in which order facts count, and what is said."""

import gzip
from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from checks import refused
from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.files.read import read_rows
from consilience.metrics.counts import prepare, unknown_answers
from consilience.metrics.measure import notes_on
from consilience.suites.question_suites import load_questions

PATTERNS = ("[X] is in [Y].", "[X] belongs to [Y].")
FACTS = [
    ("i1", "Ada", "Paris"),
    ("i2", "Ada", "Rome"),  # the last of Ada's: its gold counts under `published`
    ("i3", "Bob", "Oslo"),
    ("i4", "Cid", "Café"),
]


def make_suite(facts=FACTS, cardinality="N-1"):
    facts = tuple(Fact(*each) for each in facts)
    patterns = tuple(map(Pattern.parse, PATTERNS))
    relation = Relation("R", "R", cardinality, patterns, facts, {}, Candidates.of(facts))
    return Suite("own", (relation,), "published")


def answers_of(facts=FACTS, answer=lambda gold: gold):
    asked = [(*fact, variant) for fact in facts for variant in PATTERNS]
    rows = [("R", item, s, variant, gold, answer(gold)) for item, s, gold, variant in asked]
    schema = ["group", "item", "subject", "variant", "gold", "answer"]
    return pl.DataFrame(rows, schema, orient="row")


def known(table, suite=None):
    metrics = measure(table, suite or make_suite(), "published")
    return metrics.filter(group="R", metric="successful_objects")["value"].item()


def test_the_last_fact_of_a_subject_is_that_of_the_suite_whatever_the_order_of_rows():
    """All answers are Rome: right for Ada's last fact, so 1 of 3 subjects is known.

    Counted by the reversed rows, Ada's first fact would be the last: 0 of 3.
    """
    table = answers_of(answer=lambda gold: "Rome")
    assert known(table) == 1 / 3
    renamed = table.with_columns(item="x" + pl.col("item"))
    assert known(renamed) == known(renamed.reverse()) == 1 / 3, "by subject and gold"
    for changed in (table.reverse(), table.sample(fraction=1, shuffle=True, seed=3)):
        assert known(changed) == 1 / 3
        for protocol in ("published", "strict"):
            expected = measure(table, make_suite(), protocol)
            assert_frame_equal(measure(changed, make_suite(), protocol), expected, rel_tol=0)


def test_of_facts_that_the_suite_lacks_the_order_of_rows_counts():
    suite = make_suite(FACTS[2:])
    table = answers_of(answer=lambda gold: "Rome")
    assert known(table, suite) == 1 / 3
    assert known(table.reverse(), suite) == 0


def test_answers_among_the_objects_or_golds_are_no_note():
    assert unknown_answers(prepare(answers_of(), make_suite()), make_suite()) == []
    foreign = answers_of([("x", "Eva", "Bonn")])
    assert unknown_answers(prepare(foreign, make_suite()), make_suite()) == []


def test_a_variant_is_the_text_of_a_pattern_or_its_position():
    table, places = answers_of(), {text: str(at) for at, text in enumerate(PATTERNS)}
    indexed = table.with_columns(pl.col("variant").replace(places))
    expected = measure(table, make_suite(), "published")
    assert_frame_equal(measure(indexed, make_suite(), "published"), expected)
    named = indexed.rename({"variant": "variant_index"}).cast({"variant_index": pl.Int64})
    assert_frame_equal(measure(named, make_suite(), "published"), expected)
    notes = [notes_on(each, expected, make_suite()) for each in (named, table)]
    assert notes[0] == notes[1]
    third = table.with_columns(variant=pl.lit("2"))
    refused("no variant '2' of R; expected.*from 0 to 1", prepare, third, make_suite())
    twice = pl.concat([table, indexed[:1].with_columns(answer=pl.lit("x"))])
    refused("another row repeats row 1: R", prepare, twice, make_suite())


def test_a_pattern_that_reads_like_a_position_is_the_pattern():
    suite = make_suite()
    relation = suite.relations[0]
    design = replace(relation.design, variants=(*relation.design.variants, "0"))
    relation = replace(relation, given_design=design)
    table = answers_of().with_columns(variant=pl.lit("0")).unique("item", maintain_order=True)
    prepared = prepare(table, Suite("own", (relation,), "strict"))
    assert prepared["variant_index"].unique().to_list() == [2]


def test_score_tells_of_answers_that_are_no_object(consilience, tmp_path):
    path, said = tmp_path / "answers.csv", "1 of 1 answers are not among its objects, such as"
    row = "group,item,variant,answer\ncapital,capital-1,0,Pariss\n"
    path.write_text(row, encoding="utf-8")
    status, _, err = consilience("score", path, "--suite", "mini")
    assert status == 0
    assert f"note: capital: {said} 'Pariss'" in err


def test_answers_of_a_run_are_not_held_against_the_objects(consilience, model_folder, tmp_path):
    """An open vocabulary: most answers are no capitals."""
    common = ("--groups", "capital", "--limit", 4, "--candidates", "vocabulary")
    asked = ("--model", model_folder("bert"), *common, "--out", tmp_path / "r")
    assert consilience("probe", *asked)[0] == 0
    status, _, err = consilience("score", tmp_path / "r")
    assert status == 0
    assert "not among its objects" not in err


FORMS = {  # How spreadsheets save a table: separator, encoding, ending
    "semicolons": (";", "utf-8-sig", ".csv"),
    "tabs": ("\t", "utf-8", ".csv"),
    "latin-1": (",", "latin-1", ".csv"),
    "excel-unicode": ("\t", "utf-16", ".csv"),
    "tsv": ("\t", "latin-1", ".tsv"),
    "gzip": (";", "latin-1", ".csv.gz"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_as_a_spreadsheet_saved_it(form, tmp_path):
    """The same rows as from commas and UTF-8."""
    separator, encoding, ending = FORMS[form]
    rows = [("item", "variant", "question", "choices", "answer")]
    rows += [(f"q{n}", "base", f"Où est {n}, à côté?", "café|thé", "café") for n in range(4)]
    text = "".join(separator.join(f'"{cell}"' for cell in row) + "\n" for row in rows)
    written = text.replace("|", ";").encode(encoding)
    path = tmp_path / f"table{ending}"
    path.write_bytes(gzip.compress(written) if ending.endswith(".gz") else written)
    read = [tuple(cells.values()) for _, cells in read_rows(path)]
    assert read == [tuple(cell.replace("|", ";") for cell in row) for row in rows[1:]]
    if ending != ".csv.gz":
        suite = load_questions(path, {"options": "choices"})
        assert [item.gold.text for item in suite.items] == ["café"] * 4
