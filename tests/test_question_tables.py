"""Suites of questions at the command line: list, check, stats, export, and score."""

import json

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.runs.run import Run

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
    return {
        (row["metric"], row["group"] or row["over"], row["level"]): row["value"] for row in rows
    }


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


def test_answers_of_a_run_made_elsewhere_have_its_numbers(consilience, suite, tmp_path):
    """The labels that a baseline chose, as a table of three columns in CSV."""
    run, exported = tmp_path / "run", tmp_path / "exported.jsonl"
    arguments = ("--groups", "city", "--vary", "order=all", "--vary", "paraphrase=all")
    output(consilience, "suite", "export", suite, *arguments, "--out", exported)
    probe = ("probe", "-m", "baseline:random", "-s", suite, "-o", run, *arguments)
    out = output(consilience, *probe, "--json")
    answers = Run.open(run).answers
    table = answers.select("item", "variant", answer="label")
    table.sample(fraction=1, shuffle=True, seed=1).write_csv(tmp_path / "a.csv")
    score = ("score", tmp_path / "a.csv", "-s", exported, "-o", tmp_path / "again")
    scored = output(consilience, *score, "--json")
    expected, found = metrics(out), metrics(scored)
    for metric in ("accuracy", "consistency", "consistent_accuracy"):
        assert found[metric, "city", ""] == pytest.approx(expected[metric, "city", ""])
    assert found["consistency", "city", "order"] == expected["consistency", "city", "order"]
    _, kept, _ = consilience("score", tmp_path / "again", "--json")
    assert metrics(kept)["accuracy", "city", ""] == expected["accuracy", "city", ""]


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


def test_facts_that_are_matched_are_kept_as_a_run(consilience, tmp_path):
    rows = list(cs.export_prompts("mini", groups="capital", limit=2))
    lines = [json.dumps(row | {"answer": f"It is {row['gold']}!"}) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    arguments = ("score", tmp_path / "a.jsonl", "-s", "mini", "--match", "contains")
    out = output(consilience, *arguments, "-o", tmp_path / "run")
    assert f"Report:  consilience report {tmp_path / 'run'}" in out
    _, again, _ = consilience("score", tmp_path / "run", "--json")
    assert metrics(again)["accuracy", "capital", ""] == 1
    assert "Details: add --by group" in consilience(*arguments)[1]
