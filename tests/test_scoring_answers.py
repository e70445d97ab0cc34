"""Answers made elsewhere: prompts are exported, answered, and measured as they are."""

import csv
import json
import math
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal, refused
from conftest import cases
from consilience import load_suite
from consilience.core.free_text import rule_of
from consilience.core.schemas import REASONS
from consilience.kinds import exported_lines
from consilience.kinds.answers import answers_to_facts, answers_to_pairs
from consilience.options.suites import ExportOptions
from consilience.suites.pairs import load_task
from consilience.types import QUESTION_WORDS

EXACT = rule_of("exact")


def test_facts_need_an_item_a_variant_and_an_answer():
    mini = load_suite("mini")
    rows = {"item": ["capital-1"] * 2, "variant": ["0", "1"], "answer": ["paris", "Rome, I think"]}
    plain = answers_to_facts(pl.DataFrame(rows), mini, None)
    assert plain.select("group", "subject", "gold").row(0) == ("capital", "France", "Paris")
    assert plain["answer"].to_list() == rows["answer"]
    found = answers_to_facts(pl.DataFrame(rows), mini, rule_of("contains"))
    assert found["answer"].to_list() == ["Paris", "Rome"]
    lacking = pl.DataFrame(rows | {"answer": ["Rome", " "], "error": ["odd", "timed out"]})
    assert answers_to_facts(lacking, mini, None)["error"].to_list() == [None, "timed out"]
    by_index = pl.DataFrame(rows).drop("answer").with_columns(answer_index=pl.Series([0, 1]))
    assert answers_to_facts(by_index, mini, None)["answer"].to_list() == ["Paris", "Berlin"]


def test_pairs_keep_what_is_no_label():
    task = load_task("rte")
    table = pl.DataFrame(
        {"item": ["1"] * 2, "variant": ["reverse", "original"], "gold": ["entailment"] * 2,
         "answer": ["Entailment.", "I do not know"]}
    )  # fmt: skip
    forms, answers = answers_to_pairs(table, task, EXACT, ["reverse"])
    assert forms == ["original", "reverse"]
    assert answers["answer"].to_list() == ["entailment", "I do not know"]
    assert set(answers["group"]) == {"rte-generated"}
    lacking = table.with_columns(answer=pl.Series(["", None]), error=pl.lit("timed out"))
    _, answers = answers_to_pairs(lacking, task, EXACT, ["reverse"])
    assert answers.select("answer", *REASONS).rows() == [(None, None, "timed out")] * 2
    unlike = table.with_columns(gold=pl.lit("maybe"))
    for bad, message in ((table.head(1), "no answers to the form 'original'"),
                         (unlike, "no label 'maybe'")):  # fmt: skip
        refused(message, answers_to_pairs, bad, task, EXACT, ["reverse"])


FACT = {"group": "capital", "item": "capital-1", "subject": "France", "variant": "0",
        "gold": "Paris", "answer": "Rome"}  # fmt: skip
PAIR = {"item": "0", "subject": "Rome is old.", "variant": "original", "gold": "entailment",
        "answer": "entailment"}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("gold_rank", math.inf), ("variant", ["0", "1"])])
def test_a_value_of_another_type_is_refused(consilience, tmp_path, name, value):
    path = tmp_path / "a.parquet"
    rows = pl.DataFrame([FACT, FACT | {"variant": "1"}])
    rows.with_columns(pl.Series(name, [value, value])).write_parquet(path)
    assert name in refusal(consilience, "score", path, "--suite", "mini", "--out", tmp_path / "run")


@pytest.mark.parametrize(("suite", "change", "message"), cases("score_rows_bad"))
def test_a_row_that_is_not_of_the_suite_is_refused(consilience, tmp_path, suite, change, message):
    """Row 2, after a row that is; the message names the file."""
    path, data = tmp_path / "a.jsonl", tmp_path / "dev.tsv"
    data.write_text(PAIRS)
    row, other = (FACT, "1") if suite == "mini" else (PAIR, "reverse")
    rows = row | {"variant": other}, row | change
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    more = ["--data", data] if suite == "rte" and "form" not in message else []
    status, _, err = consilience("score", path, "--suite", suite, *more)
    assert (status, message in err) == (2, True), err
    assert f"{path}, row 2: " in err
    if suite == "mini":
        page = tmp_path / "page.html"
        status, _, err = consilience("report", path, "--suite", suite, "--out", page)
        assert (status, "row 2: " in err, message in err) == (2, True, True), err


def test_what_a_table_lacks_is_said_with_its_name(consilience, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("Question,Answer\na,b\n")
    for suite in ("mini", "rte", "mini-questions"):
        err = refusal(consilience, "score", path, "--suite", suite)
        assert f"{path}: no column 'item' among Question, Answer; expected item, variant, " in err
        assert "`consilience suite export`" in err and "score FILE" not in err
    for command in (("score", path, "--suite", "mini"), ("suite", "export", "mini")):
        message = "--data with a suite of facts"
        assert message in refusal(consilience, *command, "--data", "dev.tsv")


PAIRS = "sentence1\tsentence2\tlabel\nRome is old.\tRome is.\tentailment\nA dog.\tA cat.\tnot_entailment\n"


def test_own_forms_of_pairs_are_named(consilience, tmp_path):
    """Exported with a function of a file; the same option lets their answers be read."""
    (tmp_path / "dev.tsv").write_text(PAIRS)
    (tmp_path / "own.py").write_text("def doubled(form):\n    return form\n")
    own = ("--perturbations", f"{tmp_path}/own.py:doubled")
    rows = exported(consilience, "rte", *own, "--data", tmp_path / "dev.tsv")
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row | {"answer": row["gold"]}) + "\n" for row in rows))
    assert "'doubled" in refusal(consilience, "score", path, "--suite", "rte")
    out = output(consilience, "score", path, "--suite", "rte", *own, "--json")
    assert value(out, "accuracy", "rte-generated") == 1


def test_a_table_in_several_languages_is_scored_into_a_run_first(consilience, tmp_path):
    """The objects are written in the language of the pattern."""
    rows = exported(consilience, "mini-languages", "--groups", "capital", "--limit", "3")
    words = load_suite("mini-languages")["capital"].candidates.words
    answers = [row | {"answer": row["candidates"][words.index(row["gold"])]} for row in rows]
    path = tmp_path / "my answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in answers))
    table, suite = (path, "--suite"), "mini-languages"
    assert "\nReport:  add --out RUN" in output(consilience, "score", *table, suite)
    assert f"score '{path}' --suite {suite} --out RUN`" in refusal(
        consilience, "report", *table, suite, "--out", tmp_path / "page.html"
    )
    score = cs.score(pl.DataFrame(answers), suite)
    rows = score.compare(score.run).table.filter(metric="consistency", group="capital")
    assert set(rows["second_value"]) == {1}


def test_log_probabilities_of_labels_are_answers(consilience, tmp_path):
    row = {"item": "0", "gold": "entailment", "log_probabilities": [-0.1, -2.3]}
    lines = [json.dumps(row | {"variant": name}) for name in ("original", "reverse")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    out = output(consilience, "score", tmp_path / "a.jsonl", "--suite", "rte", "--json")
    assert value(out, "accuracy", "rte-generated") == 1


@pytest.mark.parametrize("suite", ["mini", "own.csv"])
def test_a_copy_without_its_record_is_a_table(consilience, tmp_path, monkeypatch, suite):
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("question,answer,options\nQ?,x,x;y\n")
    output(consilience, "probe", "-s", suite, "-m", "baseline:random", "--limit", 1, "--out", "run")
    Path("run/run.json").rename("record.json")
    out = output(consilience, "score", "run", "--suite", suite)
    assert "Report:  add --out RUN" in out and "Accuracy" in out


def test_every_printed_command_runs_as_it_is_printed(consilience, plain_charts):
    run = ("--limit", 1, "--groups", "capital", "--out", "a run")
    output(consilience, "probe", "--model", "baseline:random", *run)
    out = output(consilience, "score", "a run", "--suite", "mini", "--protocol", "strict")
    commands = re.findall(r"consilience (.*?)(?:  \(or (.*)\))?$", out, re.M)
    assert [words.split()[0] for words, _ in commands] == ["report", "view", "score"]
    assert "--protocol strict" in commands[0][0] and "--protocol strict" in commands[2][0]
    for words, tables in commands:
        command = shlex.split(words)
        for table in ("", *filter(None, tables.split(", "))):
            output(consilience, *command[: -1 if table else None], *[table] * bool(table))


def test_answers_to_pairs_are_not_compared_without_their_sentences():
    score = cs.score(pl.DataFrame([PAIR, PAIR | {"variant": "reverse"}]), "rte")
    refused("a table of answers to sentence pairs", score.compare, score)


def test_questions_that_are_called_like_a_task_are_questions(tmp_path):
    (tmp_path / "rte.csv").write_text("item,question,answer,options\na,Q?,x,x;y\n")
    row = {"item": "a", "variant": "base", "answer": "x"}
    score = cs.score(pl.DataFrame([row]), tmp_path / "rte.csv")
    assert score.compare(score.run).suite.words is QUESTION_WORDS


def exported(consilience, *arguments):
    """The rows that ``suite export`` prints."""
    status, out, err = consilience("suite", "export", *arguments)
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_facts_are_exported_with_a_blank_and_scored_as_they_are(consilience, tmp_path):
    """Right in 2 of 3 patterns: 1 of 3 pairs agree."""
    rows = exported(consilience, "mini", "--groups", "capital", "--limit", "1")
    (fact,) = {(row["item"], row["subject"], row["gold"]) for row in rows}
    assert (len(rows), rows[0]["prompt"]) == (9, f"The capital of {fact[1]} is ____.")
    assert rows[0]["candidates"].count(fact[2]) == 1
    chosen = [row | {"answer": row["gold"]} for row in rows[:3]]
    chosen[1]["answer"] = next(word for word in rows[0]["candidates"] if word != fact[2])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    out = output(consilience, "score", tmp_path / "a.jsonl", "--suite", "mini", "--json")
    assert value(out, "consistency", "capital") == pytest.approx(1 / 3)
    assert value(out, "accuracy", "capital") == 1


def value(out, metric, group, level=""):
    rows = json.loads(out)["metrics"]
    values = {(row["metric"], row["group"], row["level"]): row["value"] for row in rows}
    return values[metric, group, level]


def test_sentence_pairs_are_exported_and_written_labels_scored(consilience, tmp_path):
    """Labels right in the original form of both pairs, one changed by REVERSE, none by SIGNAL."""
    (tmp_path / "dev.tsv").write_text(PAIRS)
    prompts = tmp_path / "prompts.csv"
    command = ("suite", "export", "rte", "--data", tmp_path / "dev.tsv", "-o", prompts)
    assert output(consilience, *command) == f"{prompts}: 6 prompts\n"
    with prompts.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows[:3]] == ["original", "reverse", "signal"]
    first = [row["text_1"] for row in rows[:2]]
    assert first == ["Sentence1: Rome is old.", "Sentence2: Rome is."]
    assert json.loads(rows[0]["candidates"]) == ["entailment", "not_entailment"]
    assert rows[1]["prompt"].startswith("Sentence2: Rome is. Sentence1: Rome is old.\n\n")
    ending = "labels and nothing else: entailment, not_entailment.\nLabel:"
    assert rows[1]["prompt"].endswith(ending)
    answers = ["Entailment.", "not entailment", "entailment", *["not_entailment"] * 3]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["item", "variant", "gold", "answer"], extrasaction="ignore")
        table.writeheader()
        table.writerows(row | {"answer": text} for row, text in zip(rows, answers, strict=True))
    out = output(consilience, "score", tmp_path / "a.csv", "--suite", "rte", "--json")
    assert value(out, "accuracy", "rte-generated") == 1
    found = [value(out, "consistency", "rte-generated", form) for form in ("reverse", "signal")]
    assert found == [0.5, 1]
    notes = json.loads(out)["warnings"]
    assert not any("no answers for" in note for note in notes)
    assert [note for note in notes if note.startswith("no column 'subject'")]
    minimal = pl.read_csv(tmp_path / "a.csv").drop("gold")
    minimal.write_csv(tmp_path / "b.csv")
    command = ("score", tmp_path / "b.csv", "--suite", "rte", "--data", tmp_path / "dev.tsv")
    again = output(consilience, *command, "--json")
    assert value(again, "accuracy", "rte-generated") == 1
    assert not any("'subject'" in note for note in json.loads(again)["warnings"])


def test_exports_are_the_same_every_time_and_options_of_other_suites_are_refused(consilience):
    first = exported(consilience, "mini", "--limit", "2")
    assert first == exported(consilience, "mini", "--limit", "2")
    assert len(first) == 15 * 2 * 9
    assert len({(row["group"], row["item"], row["variant"]) for row in first}) == len(first)
    assert "--suite rte without --data" in refusal(consilience, "suite", "export", "rte")
    for file in ("a.csv", "a.jsonl"):  # before a file is written
        message = "--suite rte without --data"
        refused(message, exported_lines, ExportOptions(suite="rte", out=Path(file)))


def test_blank_lines_of_a_table_are_no_rows(consilience, tmp_path):
    """An empty line in the middle, and one of separators as spreadsheets write them."""
    path = tmp_path / "a.csv"
    path.write_text("item,variant,answer\ncapital-1,0,Paris\n\ncapital-1,1,Rome\n,,\n")
    out = output(consilience, "score", path, "--suite", "mini", "--json")
    assert value(out, "mean_accuracy", "capital") == 0.5
