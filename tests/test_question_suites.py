"""Suites of questions: bundled ones, the new example, facts as questions, tables that are scored."""

import json
import re

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal, refused
from conftest import suite_of
from consilience import load_suite, new_suite
from consilience.runs.run import Run
from consilience.suites.facts import sample_facts
from consilience.suites.question_suites import (
    BUNDLED,
    QUESTION_SUITES,
    mini_questions,
    questions_of_relation,
    questions_of_suite,
)
from consilience.suites.questions import KNOWN


def test_the_example_of_questions_has_every_kind_of_question(consilience, tmp_path):
    assert "README.md, questions.csv" in output(consilience, "suite", "new", tmp_path / "mine")
    counts = "3 groups, 6 questions with options, 2 open questions"
    assert counts in output(consilience, "suite", "check", tmp_path / "mine")
    questions = cs.load_questions(tmp_path / "mine")
    sizes = {group: {len(q.options) for q in items} for group, items in questions.groups.items()}
    assert sizes == {"geography": {4}, "science": {4}, "computing": {0}}
    aliases = {q.gold.text: q.gold.aliases for q in questions.items if q.gold.aliases}
    assert aliases["Go"] == ("Golang",)
    assert {q.phrasings for q in questions.items} == {2, 3}
    assert {q.gold_position for q in questions.items if q.options} == {0, 1, 2, 3}


def test_the_readme_explains_every_column(tmp_path):
    readme, table = new_suite(tmp_path / "mine")
    named = set(re.findall(r"`(\w+)`", readme.read_text(encoding="utf-8")))
    assert set(KNOWN) <= named
    assert set(table.read_text(encoding="utf-8").splitlines()[0].split(",")) <= named


def test_the_example_of_facts_passes_the_check_and_is_asked(consilience, tmp_path):
    folder = tmp_path / "facts"
    out = output(consilience, "suite", "new", folder, "--kind", "facts", "--json")
    assert len(json.loads(out)["files"]) == 4
    status, out, err = consilience("suite", "check", folder)
    assert (status, err) == (0, "")
    assert "good; 2 relations, 6 patterns, 9 facts" in out
    probe = ("probe", "-m", "baseline:majority", "-s", folder, "-o", tmp_path / "run")
    assert "2 relations, 9 facts" in output(consilience, *probe)


def test_a_folder_with_files_is_refused_and_an_empty_one_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    assert new_suite(tmp_path / "empty")
    before = (tmp_path / "empty" / "questions.csv").read_bytes()
    refused("a folder that is not empty", new_suite, tmp_path / "empty", kind="facts")
    assert (tmp_path / "empty" / "questions.csv").read_bytes() == before
    (tmp_path / "file").write_text("x")
    refused("a file; expected a new folder", new_suite, tmp_path / "file")
    refused("", new_suite, tmp_path / "file" / "below")


def test_the_bundled_suites_are_those_that_were_checked():
    """A change of the data needs a new reading (docs/suites.md) and new digests."""
    digests = {name: mini_questions(name).digest[:12] for name in QUESTION_SUITES}
    digests |= {name: load_suite(name).digest[:12] for name in BUNDLED}
    assert digests == {
        "mini-questions": "b75b4aad4774", "mini-open": "961fec077222", "mini": "69197edb84a5",
        "mini-languages": "42f1da49d0c7",
    }  # fmt: skip


PATTERNS = {"capital": ["The capital of [X] is [Y].", "[Y] is the capital of [X]."]}
CAPITALS = {
    "capital": [("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Chile", "Santiago")]
}
LANGUAGES = {"speaks": [
    ("Switzerland", "German"), ("Switzerland", "French"), ("Austria", "German"),
    ("Peru", "Spanish"), ("Wales", "Welsh"),
]}  # fmt: skip


def capital():
    return suite_of(PATTERNS, CAPITALS)["capital"]


def speaks():
    return suite_of({"speaks": ["In [X] people speak [Y]."]}, LANGUAGES)["speaks"]


def test_each_pattern_is_a_phrasing_and_all_candidates_are_options():
    questions = questions_of_relation(capital())
    first = questions.items[0]
    texts = ("The capital of France is ____.", "____ is the capital of France.")
    assert first.paraphrases == {"": tuple(f"Fill in the blank: {text}" for text in texts)}
    assert [option.text for option in first.options] == ["Paris", "Rome", "Madrid", "Santiago"]
    assert [question.gold_position for question in questions.items] == [0, 1, 2, 3]
    assert {question.group for question in questions.items} == {"capital"}


def test_another_right_object_of_the_subject_is_no_option():
    """Switzerland: two questions, each with one right option; German is wrong for Peru only."""
    german, french, austria, peru, _ = questions_of_relation(speaks()).items
    assert [option.text for option in german.options] == ["German", "Spanish", "Welsh"]
    assert [option.text for option in french.options] == ["French", "Spanish", "Welsh"]
    assert [option.text for option in austria.options] == ["German", "French", "Spanish", "Welsh"]
    for seed in range(20):
        drawn = questions_of_relation(speaks(), 2, seed).items
        assert {option.text for option in drawn[0].options} == {"German", "Spanish", "Welsh"}
        assert all(len(set(question.options)) == 3 for question in drawn)
        assert all(question.gold in question.options for question in drawn)
    assert peru.gold.text == "Spanish"


def test_open_questions_are_those_with_one_right_object():
    questions = questions_of_relation(speaks(), 0)
    assert [question.gold.text for question in questions.items] == ["German", "Spanish", "Welsh"]
    assert all(not question.options for question in questions.items)
    several = "speaks: 1 subject with several right objects cannot be an open question with one"
    assert questions.notes == (f"{several} answer and were left out",)


def test_too_many_distractors_and_a_sample_are_refused():
    refused("2 wrong candidates for 'Switzerland'", questions_of_relation, speaks(), 3)
    suite = suite_of({"speaks": ["In [X] people speak [Y]."]}, LANGUAGES)
    refused("2 of 5 facts of the relation 'speaks'", questions_of_suite, sample_facts(suite, 2, 0))


TABLE = """group,question,question_2,answer,aliases,options
city,Capital of France?,France's capital?,Paris,Paname,Lyon;Paris;Nice
city,Capital of Italy?,Italy's capital?,Rome,,Rome;Turin;Milan
open,Language of Docker?,Docker is written in?,Go,Golang,
"""


@pytest.fixture
def suite(tmp_path):
    (path := tmp_path / "mine.csv").write_text(TABLE, encoding="utf-8")
    return path


def metrics(out):
    rows = json.loads(out)["metrics"]
    return {(row["metric"], row["group"], row["level"]): row["value"] for row in rows}


def test_the_suites_made_of_mini_are_listed_checked_and_counted(consilience):
    _, out, _ = consilience("suite", "list", "--json")
    named = {row["suite"]: row["folder"] for row in json.loads(out)["suites"]}
    assert named["mini-questions"] == named["mini-open"] == named["mini"]
    status, out, err = consilience("suite", "check", "mini-questions")
    assert (status, err) == (0, "")
    assert "good; 15 groups, 885 questions with options, 5,310 phrasings" in out
    _, out, _ = consilience("suite", "check", "mini-open", "--json")
    counts = json.loads(out)
    assert (counts["questions"], counts["groups"]) == (758, 13)
    assert counts["by_group"][0]["options"] == "open"
    assert "is a suite of questions" in refusal(consilience, "analyze", "syntax", "mini-questions")


def test_every_error_of_a_file_of_questions_is_named_by_its_line(consilience, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("question,answer,options\nA?,x,y;z\n,y,y;z\nB?,y,y;z\n")
    err = refusal(consilience, "suite", "check", path)
    assert [f"{path}:{line}" in err for line in (2, 3, 4)] == [True, True, False]
    assert "2 problems" in err
    (path := tmp_path / "mixed.csv").write_text("question,answer,options\nA?,y,y;z\nB?,y,\n")
    assert "questions with options and without" in refusal(consilience, "suite", "check", path)
    (path := tmp_path / "named.csv").write_text("ask,answer,options\nA?,y,y;z\n")
    assert consilience("suite", "check", path)[0] == 2
    assert consilience("suite", "check", path, "--columns", "question=ask")[0] == 0


def test_what_is_exported_is_what_probe_sends(consilience, suite, tmp_path):
    arguments = ("--groups", "city", "--vary", "order=all", "--vary", "labels=A,1")
    run = tmp_path / "run"
    assert consilience("probe", "-m", "baseline:random", "-s", suite, "-o", run, *arguments)[0] == 0
    sent = Run.open(run).queries
    rows = list(cs.export_prompts(str(suite), groups="city", vary=["order=all", "labels=A,1"]))
    assert [row["prompt"] for row in rows] == [text for (text,) in sent["input"]]
    assert [row["variant"] for row in rows] == sent["variant"].to_list()
    assert [row["candidates"] for row in rows] == sent["choices"].to_list()
    assert (rows[0]["options"], len(rows)) == (["Lyon", ["Paris", "Paname"], "Nice"], 2 * 6 * 2)


def test_texts_labels_and_positions_in_csv_with_open_questions(consilience, suite, tmp_path):
    """All right but one city in one of six variants: 10 of its 15 pairs agree."""
    prompts = tmp_path / "prompts.csv"
    consilience("suite", "export", suite, "-o", prompts)
    rows = pl.read_csv(prompts, infer_schema=False).to_dicts()
    assert len(rows) == 2 * 6 + 2
    for number, row in enumerate(rows):
        shown, labels = json.loads(row["options"]), json.loads(row["candidates"])
        gold = json.loads(row["gold"]) if row["gold"].startswith("[") else row["gold"]
        text = gold if isinstance(gold, str) else gold[-1]
        label = labels[shown.index(gold)] if shown else "Golang."
        row["answer"] = ["The answer is " + text, label][number % 2]
    rows[0]["answer"] = "Madrid"
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    out = output(consilience, "score", tmp_path / "a.csv", "--json")
    found = metrics(out)
    assert found["accuracy", "city", ""] == 0.5
    assert found["consistency", "city", ""] == pytest.approx((10 / 15 + 1) / 2)
    assert found["accuracy", "open", ""] == found["consistency", "open", ""] == 1
    assert any("written answers" in note for note in json.loads(out)["warnings"])
