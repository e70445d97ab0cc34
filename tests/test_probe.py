"""From scores to rows, and a run's folder: whole, resumed, refused, full."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from checks import refused
from consilience import load_model, load_suite, probing, read_answers
from consilience.core.items import Ask, Group, Item
from consilience.options.commands import ProbeOptions
from consilience.plans import Queries, asking
from consilience.probing import plan_probe, probe
from consilience.runs.folder import FORMAT, RunFolder, record_of
from consilience.suites.facts import sample_facts, select_relations
from consilience.types import Scores


def scored(logprob, words="abc", **more):
    rows = np.arange(len(logprob))
    return Scores(rows, tuple(words), np.array(logprob, dtype=np.float64), **more)


def judge(scores, golds):
    """The columns of facts with these golds as lists, None for NaN."""
    asks, items = [Ask(at, 0, None) for at in range(len(golds))], [Item("", "", of) for of in golds]
    columns = {of: values.tolist() for of, values in asking.answers_of(scores, asks, items).items()}
    return {
        name: [None if isinstance(v, float) and np.isnan(v) else v for v in values]
        for name, values in columns.items()
    }


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


def probed(folder, suite, model=None):
    """The answers of a run of a suite, which is begun, or resumed, in a folder."""
    return probe(ProbeOptions(out=folder), suite=suite, model=model or Counting()).checked.answers


def test_a_run_that_was_stopped_goes_on_with_the_same_answers(tmp_path):
    suite, run = mini("capital", "sport", "field"), tmp_path / "run"
    whole = probed(tmp_path / "whole", suite)
    with pytest.raises(KeyboardInterrupt):
        probed(run, suite, Counting(stop_after=2))
    assert {path.name for path in (run / "answers").iterdir()} == {"0.parquet", "1.parquet"}
    plan = plan_probe(ProbeOptions(out=run), suite=suite, model=Counting())
    assert (plan.queries - plan.complete, plan.is_new) == (27, False), "only what is left"
    last = Counting()
    assert probed(run, suite, last).equals(whole) and last.calls == 1
    assert read_answers(run).sort(pl.all()).equals(whole.sort(pl.all()))


@pytest.mark.parametrize("damage", ["cut", "rows", "columns", "other", "empty", "changed"])
def test_answers_that_are_not_whole_or_not_of_this_run_are_asked_again(damage, tmp_path):
    suite = mini("capital", "sport")
    whole = probed(tmp_path, suite)
    path = tmp_path / "answers" / "0.parquet"
    table, mark = pl.read_parquet(path), pl.read_parquet_metadata(path)["consilience"]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "rows":
        table[1:].write_parquet(path, metadata={"consilience": mark})
    elif damage == "columns":
        table.drop("margin").write_parquet(path, metadata={"consilience": mark})
    elif damage == "changed":  # found by the digest alone
        changed = table.with_columns(answer=pl.lit("Paris"))
        changed.write_parquet(path, metadata={"consilience": mark})
        refused(r"0\.parquet: these answers were changed", read_answers, tmp_path)
    else:
        table.write_parquet(path, metadata={"consilience": "another run"})
    model = Counting()
    assert probed(tmp_path, suite, model).equals(whole) and model.calls == 1
    warnings = str(record_of(tmp_path)["warnings"])
    assert damage != "changed" or "capital: the answers had been changed" in warnings


def test_a_folder_of_another_run_or_of_none_is_refused_and_left_alone(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    RunFolder(run, ASKED).note(["a note"])
    before = (run / "run.json").read_bytes()
    message = 'its model is "m", now asked is "n".*another folder'
    refused(message, RunFolder, run, ASKED | {"model": "n"})
    assert (run / "run.json").read_bytes() == before
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for place in (other, other / "notes.txt"):
        refused("not empty, and not the folder of a run", RunFolder, place, ASKED)
    refused("cannot be written: Not a directory", RunFolder, other / "notes.txt" / "run", ASKED)
    settings = ('{"settings": %s, "started": ""}' % value for value in ("null", '"x"'))  # noqa: UP031
    for text in ("{}", "[]", *settings):
        (other / "run.json").write_text(text)
        refused("not the record of a run", RunFolder, other, ASKED)


def test_the_record_says_what_was_asked_and_when(tmp_path):
    run = RunFolder(tmp_path, ASKED)
    run.note(["a note", "a note"])
    run.finish(pl.DataFrame({"item": []}))
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["settings"] == {"format": FORMAT, **ASKED}
    assert record["started"] <= record["finished"] and record["warnings"] == ["a note"]
    assert {"python", "consilience", "polars"} <= set(record["versions"])
    again = RunFolder(tmp_path, ASKED)
    assert again.record["started"] == record["started"]
    assert again.record["warnings"] == ["a note"], "what was noted stays noted"


KILLED_AT_EVERY_STEP = """
import gc, os, sys
import numpy.ma  # here, like the versions, and not in each process
from dataclasses import replace
from pathlib import Path
from consilience.core.errors import SILENT
from consilience.core.provenance import versions
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.probing import ask_in_folder, open_folder

def audit(event, arguments):
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
    sys.addaudithook(audit)
    run = open_folder(plan, queries, replace(options, out=folder), {})
    run.finish(ask_in_folder(plan, queries, run, SILENT)["capital"].select("item"))
    os._exit(0)

options = ProbeOptions(model="baseline:random", groups=["capital", "sport"], limit=2)
plan = plan_of(options)
queries = plan.queries(plan.load())
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
        assert names == {"answers", "metrics.csv", "queries.parquet", "run.json"}
        assert json.loads((folder / "run.json").read_text())["warnings"] == []


def test_a_plan_estimates_the_time_from_eight_queries(monkeypatch):
    """After one that is not timed: of 4 groups two each, of 1 s; 40 queries are left."""
    clock, asked = [0.0], []
    monkeypatch.setattr(probing, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def group(name):
        items = [Item(one, one, "") for one in "xyz"]
        asks = [Ask(item, variant, None) for item in range(3) for variant in range(2)]
        return Group("s", name, items, ["one", "two"], asks, {})

    def ask(part, advance):
        clock[0] += len(part.asks)
        asked.append((part.id, [(one.item, one.variant) for one in part.asks]))
        return pl.DataFrame({"item": part.asks})

    queries = Queries(None, "abcd", group, lambda group, shown: [], ask)
    found = probing._timed(queries, dict.fromkeys("abcd", 10), 40)
    assert found == {"timed": 8, "seconds": 40, "requests": None}
    assert asked == [("a", [(0, 0)]), *((name, [(0, 0), (1, 0)]) for name in "abcd")]
