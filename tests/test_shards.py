"""Shards: fixed parts of a run, each asked by a process of its own."""

import json
import random
import subprocess
import sys

import pytest

from checks import output, refused
from conftest import run_command
from consilience.core.errors import Watch
from consilience.kinds.counting import CountedRun
from consilience.kinds.probing import Shard, plan_shard, probe, probe_shard
from consilience.options.probe import ProbeOptions
from consilience.runs.folder import record_of


def parts(sizes, count):
    return [list(Shard(number, count).part(sizes)) for number in range(1, count + 1)]


def test_parts_are_balanced_by_size_contiguous_disjoint_and_whole():
    assert parts([1, 1, 1, 1], 2) == [[0, 1], [2, 3]]
    assert parts([6, 1, 1, 1], 2) == [[0], [1, 2, 3]]  # the middles 3 | 6.5, 7.5 and 8.5 of 9
    assert parts([5, 5, 5], 3) == [[0], [1], [2]]
    assert parts([5, 5], 4) == [[], [0], [], [1]]  # the middles 2.5 and 7.5 of 10
    assert (parts([], 2), parts([0, 0], 2)) == ([[], []], [[0, 1], []])
    generator = random.Random(0)
    for _ in range(200):
        sizes = [generator.randrange(1, 50) for _ in range(generator.randrange(12))]
        for count in range(1, 15):
            of_all = [at for part in parts(sizes, count) for at in part]
            assert of_all == list(range(len(sizes)))


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "-1/2", "1/0", "", "1/2/3"])
def test_a_wrong_shard_is_refused(text):
    refused("--shard .*expected I/N", Shard.parse, text)


def options(folder, **more):
    chosen = {"model": "baseline:random", "groups": ("capital", "sport", "currency"), "limit": 3}
    return ProbeOptions(**chosen | {"out": folder} | more)


def test_the_last_shard_counts_the_run(tmp_path):
    whole = probe(options(tmp_path / "whole"))
    first = probe_shard(options(tmp_path / "run"), Shard(2, 2))
    assert first.left
    assert sorted([*first.groups, *first.left]) == ["capital", "currency", "sport"]
    assert not record_of(tmp_path / "run")["finished"]
    assert first == probe_shard(options(tmp_path / "run"), Shard(2, 2))
    last = probe_shard(options(tmp_path / "run"), Shard(1, 2))
    assert isinstance(last, CountedRun)
    assert last.metrics.equals(whole.metrics)
    record = record_of(tmp_path / "run")
    assert record["finished"]
    assert record["settings"] == record_of(tmp_path / "whole")["settings"]
    assert record["answers"].keys() == record_of(tmp_path / "whole")["answers"].keys()
    again = probe_shard(options(tmp_path / "run"), Shard(2, 2))
    assert again.metrics.equals(whole.metrics)


class Loadings(Watch):
    """The models that were loaded."""

    def __init__(self):
        self.names = []

    def loading(self, model):
        self.names.append(model)
        return super().loading(model)


def test_every_shard_loads_the_model_once(model_folder, tmp_path):
    model = str(model_folder("bert"))
    for number in (1, 2):
        watch = Loadings()
        chosen = options(tmp_path / "run", model=model)
        result = probe_shard(chosen, Shard(number, 2), watch)
        assert watch.names == [model]
    assert isinstance(result, CountedRun)


def test_a_shard_without_groups_asks_nothing(tmp_path):
    report = probe_shard(options(tmp_path / "run"), Shard(1, 9))
    assert (report.groups, report.queries, report.total_groups) == ([], 0, 3)
    assert not (tmp_path / "run").exists()


def test_plans_of_all_shards_are_the_run():
    plans = [plan_shard(options(None), Shard(number, 2)) for number in (1, 2)]
    assert [name for plan in plans for name in plan.groups] == ["capital", "currency", "sport"]
    assert sum(plan.queries for plan in plans) == plans[0].total_queries


def test_a_model_behind_a_url_has_no_shards(tmp_path):
    served = ProbeOptions(model="openai:m", base_url="http://127.0.0.1:9/v1", out=tmp_path)
    refused("a model behind a URL", probe_shard, served, Shard(1, 2))


def test_shards_of_the_command_line_at_once(tmp_path):
    """Two processes: the one that ends last prints the numbers."""
    probe = ["-q", "probe", "--model", "baseline:majority", "--groups", "capital,sport"]
    probe += ["--limit", "2", "--out", str(tmp_path / "run"), "--json", "--shard"]
    command = [sys.executable, "-m", "consilience", *probe, "1/2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        outputs = [output(run_command, *probe, "2/2"), child.communicate(timeout=60)[0]]
    assert child.returncode == 0
    assert any("summary" in json.loads(text) for text in outputs)
    assert record_of(tmp_path / "run")["finished"]
