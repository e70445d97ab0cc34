"""From scores to rows, and a run's folder: whole, resumed, refused, full."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from checks import refused
from consilience import ask_suite, load_model, load_suite, read_answers
from consilience.asking.facts import ask
from consilience.asking.facts import judge as judge_columns
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.kinds import probing
from consilience.runs import folder as run_folder
from consilience.runs import run as run_module
from consilience.runs.folder import RunFolder
from consilience.suites.facts import sample_facts, select_relations
from consilience.types import Scores


def scored(logprob, words="abc", **more):
    rows = np.arange(len(logprob))
    return Scores(rows, tuple(words), np.array(logprob, dtype=np.float64), **more)


def judge(scores, golds):
    """The columns as lists, None for NaN."""
    columns = {name: values.tolist() for name, values in judge_columns(scores, golds).items()}
    return {
        name: [None if isinstance(v, float) and np.isnan(v) else v for v in values]
        for name, values in columns.items()
    }


def test_the_answer_is_the_best_candidate_of_equal_ones_the_first():
    """Scores -1, -0.5, -3: 'b' by 0.5; gold 'c' is third. Then a tie: the first of the two."""
    found = judge(scored([[-1, -0.5, -3], [-1, -1, -2]]), ["c", "b"])
    assert (found["answer"], found["logprob"]) == (["b", "a"], [-0.5, -1])
    assert (found["gold_logprob"], found["gold_rank"]) == ([-3, -1], [3, 2])
    assert (found["margin"], found["n_candidates"]) == ([0.5, 0], [3, 3])
    assert found["excluded"] == [None, None]


def test_candidates_that_were_not_scored_in_full_are_counted_without_the_excluded():
    """Four words, of which one takes no part; the best total of -2 is that of 'a'."""
    scores = Scores(
        np.arange(1), tuple("abcd"), None, {"c": "split into 2 pieces"},
        totals=np.array([[-2.0, -3.0, np.nan, np.nan]]),
    )  # fmt: skip
    found = judge(scores, ["b"])
    assert (found["answer"], found["n_candidates"]) == (["a"], [3])
    assert (found["text_logprob"], found["gold_text_logprob"]) == ([-2], [-3])


def test_a_gold_that_takes_no_part_excludes_the_query_and_says_why():
    nan = np.nan
    scores = scored([[-1, nan, -2]], reasons={"b": "split into 2 pieces (x y)"})
    found = judge(scores, ["b"])
    assert found["excluded"] == ["the gold is split into 2 pieces (x y)"]
    assert found["answer"] == found["logprob"] == found["gold_rank"] == [None]
    assert judge(scores, ["a"])["n_candidates"] == [2]
    assert judge(scores, ["z"])["excluded"] == ["the gold is not among the candidates"]
    unasked = scored([[nan] * 3], unasked="2 mask tokens in the sentence")
    assert judge(unasked, ["a"])["excluded"] == ["2 mask tokens in the sentence"]
    refused = scored([[nan] * 3] * 2, reasons={"b": "unknown"}, errors=["a refusal"] * 2)
    found = judge(refused, ["a", "b"])
    assert (found["answer"], found["error"]) == ([None, None], ["a refusal", None])
    assert found["excluded"] == [None, "the gold is unknown"], "left out before it was asked"


def test_a_gold_that_another_word_speaks_for_is_answered_with_it():
    """'c' has the token of 'a': where that is best, the answer to gold 'c' is 'c'."""
    same = np.array([0, 1, 0])
    scores = scored([[-0.1, -2, np.nan]] * 2, same=same, tokens=("A", "B", "A"))
    found = judge(scores, ["c", "b"])
    assert (found["answer"], found["gold_rank"]) == (["c", "a"], [1, 2])
    assert found["gold_token"] == ["A", "B"]
    assert judge(scored([[0.0]], words="a"), ["a"])["margin"] == [None], "one candidate"


def mini(*ids, limit=3):
    return sample_facts(select_relations(load_suite("mini"), list(ids)), limit, seed=0)


def test_the_answers_table(model_folder):
    suite = mini("capital")
    relation = suite.relations[0]
    table = ask(relation, load_model("baseline:oracle"), suite.name)
    assert (dict(table.schema), table.height) == (ANSWERS_SCHEMA, 3 * 9)
    assert table["answer"].equals(table["gold"].alias("answer"))
    assert table["variant_index"].to_list() == list(range(9)) * 3
    assert table["variant"][8] == relation.patterns[8].text
    assert table["item"].to_list() == [fact.item for fact in relation.facts for _ in range(9)]
    assert (table["gold_rank"].to_list(), set(table["n_candidates"])) == ([1] * 27, {52})


class Counting:
    def __init__(self, stop_after=99):
        self.model = load_model("baseline:random")
        self.identity, self.notes = self.model.identity, []
        self.stop_after, self.calls = stop_after, 0

    def score(self, queries, candidates, *, every=True):
        self.calls += 1
        if self.calls > self.stop_after:
            raise KeyboardInterrupt
        return self.model.score(queries, candidates, every=every)


ASKED = {"model": "m", "seed": 0}


def test_a_run_that_was_stopped_goes_on_with_the_same_answers(tmp_path):
    suite = mini("capital", "sport", "field")
    whole = ask_suite(suite, Counting(), RunFolder(tmp_path / "whole", ASKED))
    stopped = Counting(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        ask_suite(suite, stopped, RunFolder(tmp_path / "run", ASKED))
    assert len(list((tmp_path / "run" / "answers").iterdir())) == 2
    last = Counting()
    steps = []
    again = ask_suite(suite, last, RunFolder(tmp_path / "run", ASKED), progress=steps.append)
    assert last.calls == 1
    assert sum(steps) == 27 and again.equals(whole), "only what was left is counted"
    assert read_answers(tmp_path / "run").sort(pl.all()).equals(whole.sort(pl.all()))


@pytest.mark.parametrize("damage", ["cut", "rows", "columns", "other", "empty"])
def test_answers_that_are_not_whole_or_not_of_this_run_are_asked_again(damage, tmp_path):
    suite = mini("capital", "sport")
    whole = ask_suite(suite, Counting(), RunFolder(tmp_path, ASKED))
    path = tmp_path / "answers" / "capital.parquet"
    table, mark = pl.read_parquet(path), pl.read_parquet_metadata(path)["consilience"]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "rows":
        table[1:].write_parquet(path, metadata={"consilience": mark})
    elif damage == "columns":
        table.drop("margin").write_parquet(path, metadata={"consilience": mark})
    else:
        table.write_parquet(path, metadata={"consilience": "another run"})
    model = Counting()
    assert ask_suite(suite, model, RunFolder(tmp_path, ASKED)).equals(whole) and model.calls == 1


def test_a_folder_of_another_run_or_of_none_is_refused_and_left_alone(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    ask_suite(mini("capital"), Counting(), RunFolder(run, ASKED))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    message = 'its model is "m", now asked is "n".*another folder'
    refused(message, RunFolder, run, ASKED | {"model": "n"})
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for place in (other, other / "notes.txt"):
        refused("not empty, and not the folder of a run", RunFolder, place, ASKED)
    refused("cannot be written: Not a directory", RunFolder, other / "notes.txt" / "run", ASKED)
    settings = ('{"settings": %s, "started": ""}' % value for value in ("null", '"x"'))  # noqa: UP031
    for text in ("{}", "[]", *settings):
        (other / "run.json").write_text(text)
        refused("not the record of a run", RunFolder, other, ASKED)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    """The file of the second group is begun, and the disk has no room for it."""
    suite = mini("capital", "sport")
    sync = os.fsync

    def full(descriptor):
        if "sport" in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    room = r"sport\.parquet: the disk is full.*make room"
    refused(room, ask_suite, suite, Counting(), RunFolder(tmp_path, ASKED))
    assert [path.name for path in (tmp_path / "answers").iterdir()] == ["capital.parquet"]
    monkeypatch.undo()
    model = Counting()
    ask_suite(suite, model, RunFolder(tmp_path, ASKED))
    assert model.calls == 1


def test_the_record_says_what_was_asked_and_when(tmp_path):
    run = RunFolder(tmp_path, ASKED)
    answers = ask_suite(mini("capital"), Counting(), run)
    run.note(["a note", "a note"])
    run.finish(answers.select("item"))
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["settings"] == {"format": run_folder.FORMAT, **ASKED}
    assert record["started"] <= record["finished"] and record["warnings"] == ["a note"]
    assert {"python", "consilience", "polars"} <= set(record["versions"])
    again = RunFolder(tmp_path, ASKED)
    assert again.record["started"] == record["started"]
    assert again.record["warnings"] == ["a note"], "what was noted stays noted"


def test_answers_that_the_run_did_not_write_are_not_counted(tmp_path):
    for name, asked in (("a", ASKED), ("b", ASKED | {"seed": 1})):
        ask_suite(mini("capital", "sport"), Counting(), RunFolder(tmp_path / name, asked))
    ours, others = (tmp_path / name / "answers" for name in "ab")
    (ours / "field.parquet").write_bytes((ours / "capital.parquet").read_bytes())
    refused(r"field\.parquet: these answers were changed", read_answers, tmp_path / "a")
    (ours / "field.parquet").unlink()
    (ours / "sport.parquet").write_bytes((others / "sport.parquet").read_bytes())
    refused("the answers of different runs", read_answers, tmp_path / "a")


def test_the_protocol_of_a_run(tmp_path):
    assert run_module.Run.open(tmp_path).protocol is None
    RunFolder(tmp_path, ASKED | {"protocol": "published"})
    assert run_module.Run.open(tmp_path).protocol == "published"
    file = tmp_path / "run.json"
    file.write_text(file.read_text().replace('"published"', '"other"'))
    assert run_module.Run.open(tmp_path).protocol is None


def test_tables_that_cannot_be_read(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no")
    (tmp_path / "a.ods").write_bytes(b"no")
    for name, message in (
        ("a.parquet", "cannot be read as a table"),
        ("a.ods", "a table in '.ods'; expected .jsonl, .csv, .csv.gz, .tsv, .parquet or .xlsx"),
        ("none.csv", "no such file"),
        (".", "no answers"),
    ):
        refused(message, read_answers, tmp_path / name)


@pytest.mark.parametrize("group", ["../../victim/pwn", "/tmp/a", "..", "", "a\0b", "x" * 101])
def test_no_answers_are_written_outside_their_folder(group, tmp_path):
    """Whichever suite the id comes from: refused, and nothing is written."""
    (tmp_path / "victim").mkdir()
    run = RunFolder(tmp_path / "run", {"suite": "s"})
    answers = pl.DataFrame(schema=ANSWERS_SCHEMA)
    for use in (lambda: run.answers(group, 0), lambda: run.write_answers(group, answers)):
        refused("can name a file", use)
    assert {path.name for path in tmp_path.rglob("*")} == {"run", "victim", "answers", "run.json"}


def test_changed_answers_are_asked_again_and_are_an_error_for_readers(tmp_path):
    """One cell changed, the mark kept: found by the digest alone."""
    suite = mini("capital", "sport")
    whole = ask_suite(suite, Counting(), RunFolder(tmp_path, ASKED))
    path = tmp_path / "answers" / "capital.parquet"
    table, mark = pl.read_parquet(path), pl.read_parquet_metadata(path)["consilience"]
    changed = table.with_columns(answer=pl.lit("Paris"))
    changed.write_parquet(path, metadata={"consilience": mark})
    refused(r"capital\.parquet: these answers were changed", read_answers, tmp_path)
    model, run = Counting(), RunFolder(tmp_path, ASKED)
    assert ask_suite(suite, model, run).equals(whole) and model.calls == 1
    assert "capital: the answers had been changed" in run.record["warnings"][-1]
    assert read_answers(tmp_path).height == whole.height


def test_two_runs_of_one_folder_keep_the_digests_of_both(tmp_path):
    """Each has opened the folder before the other wrote; one before had failed at its start."""
    (tmp_path / "answers").mkdir()
    (tmp_path / ".run.json.1.part").write_text("")
    first, second = RunFolder(tmp_path, ASKED), RunFolder(tmp_path, ASKED)
    for run, id_ in ((first, "capital"), (second, "sport"), (first, "field")):
        ask_suite(mini(id_), Counting(), run)
    assert read_answers(tmp_path)["group"].unique().len() == 3


KILLED_AT_EVERY_STEP = """
import gc, os, sys
import numpy.ma  # here, like the versions, and not in each process
from pathlib import Path
from consilience import ask_suite, load_model, load_suite
from consilience.core.provenance import versions
from consilience.runs.folder import RunFolder
from consilience.suites.facts import sample_facts, select_relations

def watch(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "os.chmod") and "RUN" in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)

def in_a_process(folder, step):
    global left
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    left = step
    sys.addaudithook(watch)
    run = RunFolder(folder, {"model": "m"})
    answers = ask_suite(suite, load_model("baseline:random"), run)
    run.finish(answers.select("item"))
    os._exit(0)

suite = sample_facts(select_relations(load_suite("mini"), ["capital", "sport"]), 2, seed=0)
versions()
gc.freeze()  # or each process copies what it looks through for garbage
step, status = 0, -9
while status == -9:
    step += 1
    folder = Path(sys.argv[1]) / f"RUN-{step}"
    status = in_a_process(folder, step)
    assert in_a_process(folder, 0) == 0
assert status == 0
"""


def test_a_run_that_is_killed_at_any_step_of_its_writing_is_resumed_whole(tmp_path):
    """Killed before each call that opens, renames or removes a file of the run, then resumed."""
    command = [sys.executable, "-c", KILLED_AT_EVERY_STEP, tmp_path]
    alone = {**os.environ, "PATH": "", "POLARS_MAX_THREADS": "1"}
    subprocess.run(command, env=alone, check=True, timeout=100)
    *killed, whole = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split("-")[1]))
    assert len(killed) > 20
    expected = [(path.name, path.read_bytes()) for path in sorted((whole / "answers").iterdir())]
    assert len(expected) == 2
    for folder in killed:
        found = [
            (path.name, path.read_bytes()) for path in sorted((folder / "answers").glob("[!.]*"))
        ]
        assert found == expected
        assert read_answers(folder).height == 2 * 9 * 2
        names = {path.name for path in folder.iterdir() if not path.name.endswith(".part")}
        assert names == {"answers", "metrics.csv", "run.json"}
        assert json.loads((folder / "run.json").read_text())["warnings"] == []


def test_a_plan_estimates_the_time_from_eight_queries(monkeypatch):
    """After one that is not timed: of 4 groups two each, of 1 s; 40 queries are left."""
    clock, asked = [0.0], []
    monkeypatch.setattr(probing, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def ask(group, items, variants):
        clock[0] += len(items)
        asked.append((group, len(items), variants))
        return pl.DataFrame({"item": [*items]})

    groups = dict.fromkeys("abcd", 10)
    inquiry = SimpleNamespace(model=None, ask=ask, samples=dict.fromkeys(groups, ("x", "y", "z")))
    found = probing.timed_queries(inquiry, {**groups, "done": 0})
    assert found == {"timed": 8, "seconds": 40, "requests": None}
    assert asked == [("a", 1, [0]), *((group, 2, [0]) for group in groups)]
