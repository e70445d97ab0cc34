"""The audit of suites: every check on a suite that is worked out by hand, and what is fixed."""

import json

import numpy as np
import polars as pl
import pytest

from checks import refusal
from conftest import cases
from consilience.authoring import audit as auditing
from consilience.authoring import checks
from consilience.authoring.audit import cautions, run_checks
from consilience.core.errors import ConsilienceError
from consilience.core.factors import Edge
from consilience.core.items import Choice, Question
from consilience.options.suites import AuditOptions
from consilience.suites.layouts import load_folder, places_in
from consilience.suites.questions import Questions
from consilience.types import Suite

CAPITALS = [("France", "Paris"), ("Italy", "Rome")]


def findings(material, name, **missing):
    none = dict.fromkeys(("tenses", "edges", "meaning", "agreement"), "")
    return [one for one in run_checks(material, none | missing).findings if one.check == name]


def of_patterns(*texts, facts=CAPITALS):
    return checks.FactMaterial(Suite.from_patterns({"r": list(texts)}, {"r": list(facts)}))


def of_facts(*facts, **more):
    return checks.FactMaterial(Suite.from_patterns({"r": ["[X] [Y]."]}, {"r": list(facts)}), **more)


def test_an_article_fits_the_sound_of_a_candidate():
    jobs = [("A", "actor"), ("B", "poet"), ("C", "university teacher"), ("D", "honest man")]
    material = of_patterns("[X] is a [Y].", "[X] is an [Y].", "[X] is the [Y].", facts=jobs)
    first, second = findings(material, "article")
    assert "'a' does not fit 2 of 4 candidates, such as 'actor'" in first.evidence
    assert "'an' does not fit 2 of 4 candidates, such as 'poet'" in second.evidence


def test_a_pattern_of_another_relation_is_found_by_its_words_and_by_its_parse():
    texts = {"a": ["[X] is in [Y]."], "b": ["[X] IS in [Y]!", "[Y] holds [X].", "[Y] is in [X]."]}
    suite = Suite.from_patterns(texts, {"a": CAPITALS, "b": CAPITALS})
    (one,) = findings(checks.FactMaterial(suite), "asks_another_relation")
    assert one.evidence == "'[X] IS in [Y]!' asks as a does: '[X] is in [Y].'"
    parsed = {"a": ["same"], "b": ["other", "same", None]}
    both = findings(checks.FactMaterial(suite, signatures=parsed), "asks_another_relation")
    assert len(both) == 2


def test_facts_that_relations_share_in_either_direction_and_aliases():
    facts = ("China", "Beijing"), ("P. R. China", "Peking"), ("Italy", "Rome")
    material = of_facts(*facts, aliases={"r": [("Beijing", "Peking")]})
    (one,) = findings(material, "same_candidates")
    assert one.evidence == "'Beijing' and 'Peking'"
    back, other = [("Paris", "France"), ("Oslo", "Norway")], [("Fiji", "Suva")]
    facts = {"a": CAPITALS, "b": back, "c": other}
    suite = Suite.from_patterns({key: ["[X] [Y]."] for key in "abc"}, facts)
    (one,) = findings(checks.FactMaterial(suite), "shared_facts")
    assert (one.group, one.count) == ("b", 1)
    assert one.evidence == "1 fact also in a, such as 'Paris', 'France'"


def test_tenses_and_edges_are_compared_with_those_of_the_parser(write_suite):
    first, second = "The capital of [X] is [Y].", "[Y] is the capital of [X]."
    edge = {"relation": "capital", "pattern_a": first, "pattern_b": second}
    edge |= {"syntactic": 1, "lexical": 0, "determiner": 0}
    suite = load_folder(write_suite(edges=[edge]))
    edges = {"capital": {(0, 1): Edge(syntactic=False, lexical=False, determiner=False)}}
    tenses = {"capital": ["present", "past", ""]}
    material = checks.FactMaterial(suite, tenses=tenses, edges=edges)
    (tense,) = findings(material, "tense")
    assert tense.evidence == "1 present, 1 past, such as '[Y] is the capital of [X].'"
    (different,) = findings(material, "edges")
    assert different.evidence.endswith(": syntactic yes in the suite")


def test_a_low_value_is_an_outlier_and_the_rate_of_false_alarms_is_as_stated():
    """Deviations by hand: the median is 0.9, the MAD 0.01; the least scale is 0.01."""
    values = np.array([0.90, 0.91, 0.89, 0.90, 0.91, 0.50])
    assert checks.robust_deviations(values)[-1] == pytest.approx(0.4 / (1.4826 * 0.01), rel=0.35)
    few, equal = values[:4], np.full(8, 0.7)
    assert [checks.outliers(each) for each in (values, few, equal)] == [[5], [], []]
    for size in (6, 12):
        drawn = np.random.default_rng(1).normal(size=(4000, size))
        alarms = (checks.robust_deviations(drawn) > checks.limit(size)).any(axis=1).mean()
        assert alarms == pytest.approx(0.05, abs=0.011), "3 standard errors"


def test_patterns_differ_in_meaning_or_answers_are_named():
    texts = [f"[X] {word} [Y]." for word in ("a", "b", "c", "d", "e", "f")]
    matrix = np.full((6, 6), 0.9)
    matrix[5, :] = matrix[:, 5] = 0.2
    for name, field in (("differs_in_meaning", "meaning"), ("differs_in_answers", "agreement")):
        suite = of_patterns(*texts).suite
        (one,) = findings(checks.FactMaterial(suite, **{field: {"r": matrix}}), name)
        assert one.evidence.startswith("'[X] f [Y].': mean")
        assert "0.20, median of the relation 0.76" in one.evidence  # 4 of 0.9 and 1 of 0.2


def question(item, group, texts, gold, *others, context=""):
    right = Choice.parse(gold)
    return Question(item, group, {"": texts}, right, (right, *map(Choice, others)), context)


def of_questions(*items):
    return Questions("s", tuple(question(*item) for item in items))


WRONG = [
    (of, *case)
    for of, name in ((of_patterns, "patterns"), (of_facts, "facts"), (of_questions, "questions"))
    for case in cases(f"audit_{name}")
]


@pytest.mark.parametrize(("of", "name", "parts", "wrong"), WRONG)
def test_what_is_wrong_with_patterns_facts_and_questions(of, name, parts, wrong):
    found = findings(of(*parts), name)
    assert (len(found) if of is of_patterns else sum(one.count for one in found)) == wrong


def test_checks_of_other_suites_and_checks_without_a_parser_say_why_they_were_not_run():
    missing = {"edges": "no spaCy", "tenses": "t", "meaning": "m", "agreement": "no runs"}
    audit = run_checks(of_facts(*CAPITALS), missing)
    assert audit.not_run["edges"] == "no spaCy"
    assert audit.not_run["shared_questions"] == "for suites of questions"
    assert audit.counts.keys() | audit.not_run.keys() == checks.CHECKS.keys()
    assert cautions(Questions("s", ())) == []


def test_rules_of_english_are_not_run_on_patterns_in_other_languages(write_suite, consilience):
    rows = [{"relation": "capital", "pattern": f"{text} [X] è [Y]."}
            for text in ("La capitale di", "Il capoluogo di")]  # fmt: skip
    folder = write_suite(patterns=rows)
    (folder / "suite.json").write_text('{"name": "s", "language": "it"}', encoding="utf-8")
    out = consilience("suite", "audit", folder)[1]
    names = "differs_in_meaning, edges, article, number, tense"
    assert f"not run: {names} (English only; the patterns are in it)" in out


@pytest.fixture
def bare(monkeypatch):
    """Neither a parser nor an encoder."""

    def fail(suite):
        raise ConsilienceError("not installed", todo="Install it.")

    monkeypatch.setattr(auditing, "_parsed", fail)
    monkeypatch.setattr(auditing, "_meaning", fail)


@pytest.mark.parametrize(("arguments", "message"), cases("audit_bad"))
def test_what_cannot_be_audited_or_fixed_is_refused(consilience, bare, arguments, message):
    assert message in refusal(consilience, "suite", "audit", *arguments)


def test_files_with_errors_are_findings_with_their_lines(write_suite, consilience, bare):
    folder = write_suite(patterns=[{"relation": "capital", "pattern": "[X] is."}])
    status, out, _ = consilience("suite", "audit", folder, "--json")
    audit = json.loads(out)
    assert (status, audit["findings"][0]["severity"]) == (2, "error")
    assert audit["findings"][0]["places"][0].endswith("patterns.jsonl:1")
    assert set(audit["not_run"].values()) == {"the files have errors"}
    places = places_in(write_suite())
    assert places.pattern("capital", "[Y] is the capital of [X].") == ("patterns.jsonl:2",)
    of_objects = [places.fact("capital", "Italy", name) for name in ("Rome", "Oslo")]
    assert of_objects == [("facts.jsonl:3",), ()]


def test_questions_are_audited_with_the_places_of_their_rows(consilience, bare, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "A  b?", "answer": "x", "item": "one"}')
    audit = auditing.audit_suite(AuditOptions("q.jsonl")).audit
    (one,) = [finding for finding in audit.findings if finding.check == "question_spaces"]
    assert one.places == ("q.jsonl:1",)
    assert audit.not_run["spaces"] == "for suites of facts"


def test_runs_show_patterns_whose_answers_are_apart(consilience, bare, write_suite, tmp_path):
    """Six patterns; the last one always answers another object."""
    objects = ("Paris", "Berlin", "Rome")
    texts = [f"[X] {word} [Y]." for word in ("a", "b", "c", "d", "e", "f")]
    folder = write_suite(patterns=[{"relation": "capital", "pattern": text} for text in texts])
    rows = [
        {"group": "capital", "item": f"capital-{at + 1}", "subject": subject, "variant": text,
         "answer": objects[(at + (text == texts[-1])) % 3], "gold": objects[at]}
        for at, subject in enumerate(("France", "Germany", "Italy")) for text in texts
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    audit = auditing.audit_suite(AuditOptions(str(folder), runs=("a.jsonl",))).audit
    (one,) = [finding for finding in audit.findings if finding.check == "differs_in_answers"]
    assert one.places == ("patterns.jsonl:6",)


def test_meaning_is_that_of_the_sentences_that_are_asked(monkeypatch):
    """Names are written in the form that each pattern needs."""
    seen = []

    class Judge:
        def __init__(self, name):
            pass

        def similarities(self, pairs):
            seen.extend(first for _, first, _ in pairs)
            return np.ones(len(pairs))

    monkeypatch.setattr("consilience.models.judges.EmbeddingJudge", Judge)
    patterns = [{"pattern": f"{verb} [X] is [Y].", "subject_form": ""} for verb in "abcde"]
    patterns[-1]["subject_form"] = "of"
    rows = pl.DataFrame([*patterns, {"subject": "s", "object": "o"}], infer_schema_length=None)
    names = [{"name": "s", "language": "en", "form": "of", "text": "of s"}]
    named = Suite.from_frame(rows, names=pl.DataFrame(names))
    (matrix,) = auditing._meaning(named).values()
    assert set(seen) == {"a s is o.", "b s is o.", "c s is o.", "d s is o.", "e of s is o."}
    assert (matrix == 1).all()
