"""The noise floor of a server: the same prompts again, and alone."""

import threading
import time
import zlib
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from consilience.asking.noise import Part, sample, sample_size
from consilience.core.errors import Connection, ConsilienceError
from consilience.core.schemas import METRICS_SCHEMA
from consilience.endpoints.client import Client
from consilience.kinds.counting import noise_floor_of
from consilience.kinds.probing import probe
from consilience.models.functions import ScoringFunction
from consilience.options.probe import ProbeOptions
from consilience.report.columns import noise_table
from consilience.report.overview import server_line, servers
from consilience.report.run_view import RunView
from consilience.report.table import text_of
from consilience.results.comparing import noise_notes
from consilience.runs.folder import record_of
from consilience.runs.run import Run
from replay_server import completion, replay


class Wavering:
    """A server whose scores depend on how often it got a prompt: the 2nd time they are larger by
    0.25, the 3rd time they are negated. It counts the requests that it has at once."""

    def __init__(self):
        self.times, self.lock, self.now = Counter(), threading.Lock(), 0
        self.most = Counter()

    def __call__(self, path, body, headers):
        prompt = body["prompt"]
        with self.lock:
            self.times[prompt] += 1
            self.now += 1
            times = self.times[prompt]
            self.most[times] = max(self.most[times], self.now)
        time.sleep(0.0005)
        score = -1.0 - zlib.crc32(prompt.encode()) % 9973 / 1000
        with self.lock:
            self.now -= 1
        shown = {2: score + 0.25, 3: -score}.get(times, score)
        return completion(body, model="replayed", score=shown)


def served(url, **connection):
    """A model of facts behind a URL."""
    client = Client(Connection(url, **connection))

    def totals_of(sentences):
        by_row = dict(client.post_all("completions", ({"prompt": s} for s in sentences)))
        return [by_row[at]["score"] for at in range(len(sentences))]

    model = ScoringFunction(totals_of)
    model.client = client
    return model


def options(folder, **more):
    return ProbeOptions(
        suite="mini", groups=("continent", "animal_class"), limit=2, out=folder,
        model="served", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def wavering(tmp_path_factory):
    """A run on the server, its folder, and the requests of the run and of a second call of it."""
    folder, answer = tmp_path_factory.mktemp("runs") / "run", Wavering()
    with replay(answer) as server:
        counted = probe(options(folder, noise_floor=8), model=served(server.url))
        requests = list(server.bodies())
        probe(options(folder, noise_floor=8), model=served(server.url))
        assert server.bodies() == requests, "a complete run is not asked again"
    return counted, folder, answer, requests


def rows(metrics, metric):
    return metrics.filter(metric=metric).rows_by_key("subset", named=True, unique=True)


def test_what_changes_answers_and_scores_is_named(wavering):
    counted, folder, _, _ = wavering
    flips, changes = (rows(counted.metrics, name) for name in ("flips", "score_change"))
    assert list(flips) == list(changes) == ["repeated", "alone"]
    assert {name: row["value"] for name, row in flips.items()} == {"repeated": 0, "alone": 1}
    assert flips["repeated"]["n"] == 8
    bound = 1.959964**2 / (8 + 1.959964**2)
    assert (flips["repeated"]["low"], flips["repeated"]["high"]) == pytest.approx((0, bound))
    assert changes["repeated"]["value"] == pytest.approx(0.25)
    assert changes["alone"]["value"] > 1
    kept = pl.read_csv(folder / "metrics.csv").filter(pl.col("metric") == "score_change")
    assert kept["value"].to_list() == pytest.approx([row["value"] for row in changes.values()])
    assert counted.metrics.schema == METRICS_SCHEMA


def test_alone_is_one_request_at_once(wavering):
    _, _, answer, requests = wavering
    assert answer.most[2] > answer.most[3] == 1
    sampled = {prompt for prompt, times in answer.times.items() if times == 3}
    assert set(answer.times.values()) == {1, 3}
    order = [body["prompt"] for body in requests if body["prompt"] in sampled]
    assert sorted(order) == sorted([*sampled] * 3)


def test_how_many_prompts_are_sent_again():
    """In all variations together a tenth of the run, at most 64 in each; or as many as wanted."""
    sizes = [sample_size(run, 4, None) for run in (0, 39, 40, 500, 2000, 10**6)]
    assert sizes == [0, 0, 1, 12, 50, 64]
    assert sample_size(39, 2, None) == 1
    assert [sample_size(run, 4, 256) for run in (12, 2000)] == [12, 256]
    assert sample_size(2000, 4, 0) == 0


def test_the_sample_is_of_answered_prompts_of_few_groups():
    """32 prompts are 8 of each of 4 of the 9 groups: 4 items in 2 variants, which have answers."""

    def group(name, answer):
        answers = [{"item": f"{name}{i}", "variant_index": v, "variant": str(v), "answer": answer}
                   for i in range(20) for v in range(5)]  # fmt: skip
        return Part(pl.DataFrame(answers, schema_overrides={"answer": pl.String}), None)

    groups = [group(name, "x") for name in "abcdefghi"]
    parts = sample(groups, 32, seed=1)
    assert [(len(part.items), len(part.variants)) for part in parts] == [(4, 2)] * 4
    assert [part.first.height for part in parts] == [8] * 4
    again = sample(groups, 32, seed=1)
    assert [part.items for part in again] == [part.items for part in parts]
    assert sample([group("a", None)], 32, seed=1) == []
    assert sample([], 0, seed=1) == []
    seventh = pl.col("item").str.ends_with("7")
    small = [Part(one.answers.filter(seventh), None) for one in groups]
    for size in (1, 2, 5, 32, 45, 90, 100):
        sampled = sum(part.first.height for part in sample(small, size, seed=1))
        assert sampled == min(size, 9 * 2 * 5)


def test_a_limit_in_the_noise_floor_keeps_the_run(tmp_path):
    """With --noise-floor it is an error that the same command resumes; without it is a note."""
    chosen = options(tmp_path)
    with replay(Wavering()) as server:
        model = served(server.url, max_requests=300)
        with pytest.raises(ConsilienceError, match="--max-requests 300 is reached"):
            probe(replace(chosen, noise_floor=36), model=model)
        model.client.journal.close()
        counted = probe(chosen, model=served(server.url, max_requests=3))
    assert record_of(tmp_path)["finished"]
    [note] = [note for note in counted.notes if "noise floor" in note]
    assert "not measured: --max-requests 3 is reached" in note
    assert rows(counted.metrics, "flips") == {}


def test_the_noise_floor_is_switched_off_left_out_of_few_prompts_or_always_alone(tmp_path):
    """Where a connection has one request in flight, each is alone."""
    with replay(Wavering()) as server:
        off = probe(options(tmp_path / "off", noise_floor=0), model=served(server.url))
        few = probe(replace(options(tmp_path / "few"), limit=1), model=served(server.url))
        assert set(server.answer.times.values()) <= {1, 2}, "once in each run"
    chosen = replace(options(tmp_path / "one", noise_floor=2), groups=("animal_class",), limit=1)
    with replay(Wavering()) as server:
        one = probe(chosen, model=served(server.url, concurrency=1))
    flips = rows(one.metrics, "flips")
    assert {name: row["value"] for name, row in flips.items()} == {"repeated": 0}
    assert rows(off.metrics, "flips") == rows(few.metrics, "flips") == {}
    assert not [note for note in off.notes if "noise floor" in note]
    assert [note for note in few.notes if "a tenth of 18 prompts is too few" in note]


def test_the_summary_says_below_what_a_difference_means_nothing(wavering):
    counted, folder, _, _ = wavering
    [note] = [note for note in counted.summary.notes if note.startswith("Noise floor")]
    assert note.startswith("Noise floor: 8 of 8 answers (95 % interval 67.6 to 100.0 %)")
    assert note.endswith(" nats; a smaller difference means nothing.")
    table = noise_table(counted.metrics, "served: ")
    assert table.title.startswith("served: Noise floor")
    shown = [*map(text_of, table.cells(0), table.columns)]
    assert shown == ["repeated", "0.0", "0.0 to 32.4", "0.25", "8"]
    assert noise_table(counted.metrics.filter(metric="accuracy")) is None
    assert noise_floor_of(folder).height == 4


def test_comparing_says_which_differences_are_inside_the_noise_floor(tmp_path):
    """3 of 30 answers changed: 10 % is inside, 11 % is not; unknown floors say nothing."""
    row = {"metric": "flips", "group": "MICRO", "subset": "alone", "value": 0.0, "n": 30}
    floor = [row, row | {"subset": "repeated", "value": 0.1}]
    table = pl.DataFrame({
        "metric": ["accuracy", "consistency", "consistent_accuracy", "consistency"],
        "group": [*["MACRO"] * 3, "capital"], "difference": [-0.1, 0.11, 0.0, 0.01],
        "subset": "all", "first": "one", "second": "two",
    })  # fmt: skip
    runs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        runs.append(Run.open(tmp_path / name))
    assert noise_notes(runs, table) == []
    rows = [pl.DataFrame(schema=METRICS_SCHEMA), pl.DataFrame(floor)]
    pl.concat(rows, how="diagonal_relaxed").write_csv(tmp_path / "two" / "metrics.csv")
    assert noise_notes(runs, table) == [
        "two against one: inside the noise floor, so no difference between the models: Accuracy; "
        "10.0% of 30 answers of two changed when nothing was changed in the prompts"
    ]


def test_the_report_says_which_server_answered_and_how_it_scored(wavering):
    counted, _, _, _ = wavering
    record = dict(counted.record)
    assert record["served_as"] == ["replayed"]
    record["settings"] = {"model": {"model": "openai:small", "server": "http://host/v1"}}
    record["scoring"] = {
        "strategy": "top-k", "gives": "the first token", "requests": 9, "repeated": 1e-6,
        "other_route": None, "total_probability": 0.345, "refused": {"echo": "it is ignored"},
    }  # fmt: skip
    note = "the server takes no temperature: its answers are sampled"
    view = RunView("small", [record], counted.suite, counted.metrics, counted.summary, {}, [note])
    [rows] = servers([view])
    assert rows["Name in replies"] == "replayed"
    assert rows["Scoring"] == "top-k (the first token)"
    assert rows["Proof"] == (
        "9 requests on known prompts; equal requests differ by 1.0e-06 nats; the probabilities of "
        "some next tokens have a sum of 0.345"
    )
    assert rows["Other strategies"] == "echo: it is ignored"
    assert rows["Limits and notes"] == note.replace("the server", "The server") + "."
    assert rows["Noise floor"].startswith("8 of 8 answers")
    requests = rows["Requests"].partition(",")[0]
    line = f"Server: openai:small at http://host/v1; scored by top-k (the first token); {requests}."
    assert server_line(view) == [line]
    here = replace(view, records=[{"settings": {"model": {"model": "gpt2"}}}])
    assert ([*servers([here])], server_line(here)) == ([], [])
    assert len([*servers([here, view])]) == 1
