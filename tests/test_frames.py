"""Suites from data frames and lists, and what they look like."""

import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from checks import refused
from conftest import suite_of
from consilience import Pattern, Suite, load_suite, measure, read_answers
from consilience.authoring.importing import import_patterns
from consilience.files.rows import as_pandas, as_polars

PATTERNS = ["[X] listens on port [Y].", "The port of [X] is [Y]."]
FACTS = {"subject": ["Redis", "PostgreSQL"], "object": [6379, 5432]}
LONG = {
    "relation": ["port", "port", "port", "lang"],
    "subject": ["Redis", "Redis", "PostgreSQL", "Rails"],
    "object": ["6379", "6379", "5432", "Ruby"],
    "pattern": [*PATTERNS, None, "[X] is written in [Y]."],
}
PORTS = suite_of(PATTERNS, [("Redis", "6379"), ("PostgreSQL", "5432")])
of_both = pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame], ids=["polars", "pandas"])


@of_both
def test_a_frame_of_facts_becomes_a_suite(make):
    suite = Suite.from_frame(make(FACTS), patterns=PATTERNS, name="ports")
    assert repr(suite) == "Suite('ports': 1 relation, 2 facts, 2 patterns; strict)"
    relation = suite["ports"]
    facts = [("ports-1", "Redis", "6379"), ("ports-2", "PostgreSQL", "5432")]
    assert [(fact.item, fact.subject, fact.object) for fact in relation.facts] == facts
    assert relation.candidates.words == ("6379", "5432")
    rows = [dict(zip(FACTS, of, strict=True)) for of in zip(*FACTS.values(), strict=True)]
    assert Suite.from_frame(rows, patterns=PATTERNS, name="ports").digest == suite.digest


@of_both
def test_rows_with_facts_and_patterns_are_divided_by_relation(make):
    suite = Suite.from_frame(make(LONG))
    assert [group.id for group in suite] == ["port", "lang"]
    assert [len(group.facts) for group in suite] == [2, 1]
    assert [pattern.text for pattern in suite["port"].patterns] == PATTERNS


def test_a_subject_with_several_objects_makes_the_relation_n_to_m():
    suite = suite_of(["[X]: [Y]"], [("SSO", "Team"), ("SSO", "Free"), ("SSO", "Free")])
    assert (suite["questions"].cardinality, len(suite["questions"].facts)) == ("N-M", 2)


FRAME_FAULTS = [
    ({"subject": ["a"]}, ["[X] [Y]"], "no column 'object' among subject; expected subject, object"),
    (FACTS, None, "no column 'pattern' among subject, object"),
    ({"subject": ["a", None], "object": ["b", "c"]}, ["[X] [Y]"],
     "row 2: no 'subject'. Fill it in"),
    ({"subject": ["a"], "object": [["b"]]}, ["[X] [Y]"],
     "row 1, column 'object': \\[\"b\"\\]; expected a text"),
    ({"subject": ["a"], "object": ["b"], "pattern": ["[X] is"]}, None,
     r"row 1: the pattern '\[X\] is' has 0 \[Y\]"),
    ({"item": ["1", "1"], "subject": ["a", "b"], "object": ["c", "c"]}, ["[X] [Y]"],
     "row 2: duplicate item '1' of 'questions'"),
    ({"subject": ["a", None], "object": ["b", None], "pattern": ["[X]: [Y]"] * 2,
      "language": ["en", "de"]}, None, "row 2: duplicate pattern .*the first is the frame, row 1"),
    ({"subject": [], "object": []}, ["[X] [Y]"], "the frame: no rows"),
    (FACTS, {"prot": PATTERNS}, "patterns of the relation 'prot', which has no facts"),
    (FACTS, "[X] [Y]", "patterns of type str; expected a list of texts"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "patterns", "message"), FRAME_FAULTS)
@of_both
def test_a_fault_of_a_frame_names_the_row_and_the_column(make, columns, patterns, message):
    refused(message, Suite.from_frame, make(columns), patterns=patterns)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Suite.from_frame([1]), "the frame is of type list; expected a polars or pandas"),
    (lambda: Suite("own", ["x"]), r"a group of type str.*Suite\.from_frame"),
    (lambda: Pattern(3), "a pattern of type int"),
    (lambda: load_suite("mini")["capitol"], "no relation 'capitol'. Did you mean 'capital'"),
    (lambda: load_suite(7), "a suite of type int; expected the name of a suite or a folder"),
    (lambda: read_answers(7), "the run is of type int; expected a path"),
    (lambda: measure("a.csv", load_suite("mini")), r"of type str.*read_answers\(path\)"),
    (lambda: measure(pl.DataFrame(), "mini"), r"a suite of type str.*load_suite\(name\)"),
])  # fmt: skip
def test_a_value_of_a_wrong_type_is_refused_with_what_to_pass(call, message):
    refused(message, call)


def test_representations_are_short_and_groups_are_found_by_id_and_label():
    mini = load_suite("mini")
    assert (len(mini), len(list(mini))) == (15, 15)
    assert mini["capital"] is mini["capital of a country"] is mini.relation("capital")
    assert "capital" in mini and "capitol" not in mini
    for value in (mini, mini["capital"], mini["capital"].candidates, mini["capital"].patterns[0]):
        assert len(repr(value)) < 100
    assert repr(Pattern("[X] is [Y].")) == "Pattern('[X] is [Y].')"


def test_frames_go_to_pandas_and_back_with_their_gaps():
    frame = pl.DataFrame({"a": [1, None], "b": ["x", None], "c": [0.5, float("nan")]})
    back = as_polars(as_pandas(frame))
    assert_frame_equal(back.select("b"), frame.select("b"))
    assert (back["a"].to_list(), back["c"].to_list()) == ([1.0, None], [0.5, None])


def test_measure_takes_pandas_and_has_the_protocol_of_the_suite():
    rows = [
        {"group": "questions", "item": fact.item, "subject": fact.subject, "variant": variant,
         "gold": fact.object, "answer": "6379"}
        for fact in PORTS["questions"].facts for variant in PORTS["questions"].design.variants
    ]  # fmt: skip
    expected = measure(pl.DataFrame(rows), PORTS, "strict")
    assert_frame_equal(measure(pd.DataFrame(rows), PORTS), expected)


CAPITALS = {
    "subject": ["France", "Italy", None, None],
    "object": ["Paris", "Rome", None, None],
    "pattern": [
        "The capital of [X] is [Y].", "[Y] is the capital of [X].", "Die Hauptstadt von [X] ist [Y].",
        "[X]の首都は[Y]です。",
    ],
    "language": [None, "en", "de", "ja"],
    "subject_de": ["Frankreich", "Italien", None, None],
    "object_de": [None, "Rom", None, None],
    "subject_ja": ["フランス", "イタリア", None, None],
    "object_ja": ["パリ", "ローマ", None, None],
}  # fmt: skip


@of_both
def test_a_frame_with_languages_is_the_suite_of_the_same_files(make, tmp_path):
    suite = Suite.from_frame(make(CAPITALS), name="capital")
    relation = suite["capital"]
    queries = [relation.query(pattern, relation.facts[1]) for pattern in relation.patterns]
    filled = [query.pattern.fill(query.subject, query.gold) for query in queries]
    assert filled[2:] == ["Die Hauptstadt von Italien ist Rom.", "イタリアの首都はローマです。"]
    assert list(relation.design.languages) == ["en", "de", "ja"]
    table = pl.DataFrame(CAPITALS).with_columns(relation=pl.lit("capital"))
    table.write_csv(tmp_path / "capitals.csv")
    import_patterns(tmp_path / "capitals.csv", tmp_path / "capital")
    assert load_suite(tmp_path / "capital").digest == suite.digest


def test_a_frame_in_one_other_language_needs_no_names():
    frame = pl.DataFrame({"subject": ["Italia"], "object": ["Roma"]})
    suite = Suite.from_frame(frame, patterns=["[X]: [Y]"], language="it", name="capitals")
    assert suite["capitals"].patterns[0].language == suite.language == "it"
