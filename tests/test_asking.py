"""Scores become answer columns: against a plain definition, row by row, of random scores."""

import math
import threading
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import refused, served
from consilience import Scores
from consilience.core.items import Ask, Item
from consilience.core.schemas import METRICS_SCHEMA
from consilience.options.commands import ProbeOptions
from consilience.plans.asking import answers_of
from consilience.probing import probe, sample, sample_size
from replay_server import completion, replay

NUMBERS = ("logprob", "gold_logprob", "gold_rank", "margin", "n_candidates")


def plain(options, scores, gold):
    """The columns of one row: scores by option, None for one that takes no part."""
    known = {at: score for at, score in enumerate(scores) if score is not None}
    best = max(known, key=lambda at: (known[at], -at))
    mass = math.log(sum(math.exp(score) for score in known.values()))
    row = {"excluded": None, "answer": options[best], "option": best}
    row |= {"n_candidates": len(known), "text_logprob": known[best]}
    row |= {"gold_text_logprob": known[gold], "gold_logprob": known[gold] - mass}
    row |= {"logprob": known[best] - mass}
    if others := [score for at, score in known.items() if at != best]:
        row["margin"] = known[best] - max(others)
    ahead = [at for at in known if (-known[at], at) < (-known[gold], gold)]
    return row | {"gold_rank": 1 + len(ahead)}


@st.composite
def asked(draw):
    """Options, scores (None for one that is excluded), the gold and the shown order."""
    size = draw(st.integers(2, 6))
    score = st.sampled_from([-0.25, -0.5, -1.0, -1.0, -2.5, -4.0])
    scores = draw(st.lists(st.none() | score, min_size=size, max_size=size))
    order = draw(st.permutations(range(size)))
    gold = draw(st.integers(0, size - 1))
    options = tuple(f"o{at}" for at in range(size))
    return options, scores, gold, tuple(order)


@settings(max_examples=300)
@given(st.lists(asked(), min_size=1, max_size=4))
def test_scores_are_judged_by_the_plain_definition(rows):
    """Rows with different numbers of options, each shown in its own random order."""
    rows = [row for row in rows if row[1][row[2]] is not None]
    orders = enumerate(row[-1] for row in rows)
    asks = [Ask(at, 0, None, tuple("ABCDEF"[: len(order)]), order) for at, order in orders]
    items = [Item(str(at), "", row[0][row[2]], row[0], row[2]) for at, row in enumerate(rows)]

    def shown(values, order):
        return np.array([math.nan if values[at] is None else values[at] for at in order])

    scores = Scores.of_rows(
        np.arange(len(rows)),
        [shown(of, order) for _, of, _, order in rows],
        [np.ones(len(order), dtype=int) for *_, order in rows],
    )
    columns = answers_of(scores, asks, items) if rows else {}
    for at, (options, of, gold, order) in enumerate(rows):
        expected = plain(options, of, gold)
        found = {name: values[at] for name, values in columns.items()}
        assert found["excluded"] == expected["excluded"]
        for name in {*NUMBERS, "answer", "option", "text_logprob", "gold_text_logprob"}:
            value = expected.get(name)
            if value is None or isinstance(value, str | int):
                is_null = found[name] is None or found[name] != found[name]
                assert is_null if value is None else found[name] == value, name
            else:
                assert found[name] == pytest.approx(value, abs=1e-12), name
        assert found["label"] == "ABCDEF"[order.index(expected["option"])]


def test_words_in_another_language_are_answers_of_the_facts():
    """'Rom' wins and is 'Rome'; a word of the model that is no candidate is itself."""
    items = [Item("0", "Italy", "Rome", ("Rome", "Paris"), 0)] * 2
    asks = [Ask(at, 0, None, ("Rom", "Paris")) for at in range(2)]
    totals = np.array([[-1.0, -2.0, -3.0], [-3.0, -2.0, -1.0]])
    scores = Scores(np.arange(2), ("Rom", "Paris", "Bern"), None, totals=totals)
    assert answers_of(scores, asks, items)["answer"].tolist() == ["Rome", "Bern"]


def test_what_a_model_wrote_is_an_answer_where_it_is_none_of_the_candidates():
    """The second row is no candidate and wrong, the third is no text and no answer."""
    totals = np.array([[0.0, -math.inf], [-math.inf] * 2, [-math.inf] * 2])
    texts = ["yes", "maybe", ""]
    written = {"totals": totals, "answers_only": True, "texts": texts}
    scores = Scores(np.arange(3), ("yes", "no"), None, **written)
    items = [Item(str(at), "", "no", ("yes", "no"), 1) for at in range(3)]
    columns = answers_of(scores, [Ask(at, 0, None) for at in range(3)], items)
    assert columns["answer"].tolist() == ["yes", "maybe", None]
    assert columns["error"].tolist() == [None, None, "the model wrote no text"]
    assert columns["n_candidates"][:2].tolist() == [2, 2]


# The noise floor: a steady model has none, an unsteady one is counted.

pytestmark = pytest.mark.usefixtures("two_threads")


class Wavering:
    """Answers by the size of a call: of few queries the first candidate, else the second."""

    identity, notes = {"model": "wavering"}, ()

    def score(self, queries, candidates, *, every=True):
        logprob = np.full((len(queries), len(candidates.words)), -9.0)
        logprob[:, 0 if len(queries) < 40 else 1] = -0.1
        yield Scores(np.arange(len(queries)), candidates.words, logprob)


def floor(folder, model="wavering", **options):
    value = {"model": Wavering()} if model == "wavering" else {}
    chosen = ProbeOptions(model=str(model), groups=("capital",), out=folder, **options)
    return probe(chosen, **value).metrics.filter(metric="noise_floor")


def test_what_changes_is_counted(tmp_path):
    table = floor(tmp_path, limit=10, noise_floor=39)
    assert dict(table.schema) == METRICS_SCHEMA
    assert table.select("over", "kind", "value", "n").rows() == [("all", "whole", 1, 39)]
    unseen = 1 - 0.025 ** (1 / 10)  # of ten facts, all of which changed
    assert table.select("low", "high").row(0) == pytest.approx((1 - unseen, 1))


@pytest.mark.parametrize(("family", "more"), [
    ("bert", {}), ("gpt2", {}), ("t5", {}), ("bert", {"candidates": "vocabulary"}),
])  # fmt: skip
def test_our_models_do_not_waver(family, more, model_folder, tmp_path):
    table = floor(tmp_path, model_folder(family), limit=3, noise_floor=12, **more)
    assert set(table["value"].drop_nans()) <= {0.0}
    assert (table["n"] + table["n_excluded"]).to_list() in ([], [12])


def test_the_sample_is_no_larger_than_the_run_and_by_default_there_is_none(tmp_path):
    many = floor(tmp_path / "many", "baseline:random", limit=2, noise_floor=10**6)
    assert many.select("value", "n").rows() == [(0, 18)]
    assert floor(tmp_path / "none", "baseline:random", limit=2).is_empty()


# The noise floor of a server: the same prompts again.


class WaveringServer:
    """A server whose scores are negated where it got a prompt before."""

    def __init__(self):
        self.times, self.lock = Counter(), threading.Lock()

    def __call__(self, path, body, headers):
        prompt = body["prompt"]
        with self.lock:
            self.times[prompt] += 1
            is_first = self.times[prompt] == 1
        score = -1.0 - zlib.crc32(prompt.encode()) % 9973 / 1000
        return completion(body, model="replayed", score=score if is_first else -score)


def options(folder, **more):
    return ProbeOptions(
        suite="mini", groups=("continent", "animal_class"), limit=2, out=folder,
        model="served", **more,
    )  # fmt: skip


def noise(metrics):
    return metrics.filter(metric="noise_floor").select("kind", "value", "n").rows()


def test_the_share_of_changed_answers(tmp_path):
    with replay(WaveringServer()) as server:
        counted = probe(options(tmp_path, noise_floor=8), model=served(server.url))
        requests = list(server.bodies())
        probe(options(tmp_path, noise_floor=8), model=served(server.url))
        assert server.bodies() == requests, "a complete run is not asked again"
    for metrics in counted.metrics, pl.read_csv(tmp_path / "metrics.csv"):
        assert noise(metrics) == [("whole", 1, 8)]
    assert counted.metrics.schema == METRICS_SCHEMA


def test_the_sample_is_of_rows_that_have_answers():
    """A twentieth of the run, at most 64; or as many as wanted."""
    assert [sample_size(run, None) for run in (0, 19, 20, 500, 10**6)] == [0, 0, 1, 25, 64]
    assert [sample_size(run, 256) for run in (12, 2000)] == [12, 256]
    assert sample_size(2000, 0) == 0
    tables = {name: pl.DataFrame({"answer": [None, *"abcd"]}) for name in "xyz"}
    rows = sample(tables, 6, seed=1)
    assert rows == sample(tables, 6, seed=1) != sample(tables, 6, seed=2)
    assert sum(map(len, rows.values())) == 6 and not any(0 in of for of in rows.values())
    assert sample(tables, 10**6, seed=1) == {name: [1, 2, 3, 4] for name in "xyz"}
    assert sample(tables, 0, seed=1) == sample({"x": tables["x"][:1]}, 3, seed=1) == {}


def test_a_limit_in_the_noise_floor_is_an_error_where_it_was_asked_for(tmp_path):
    """Without --noise-floor it is a note: test_endpoint_runs.py."""
    with replay(WaveringServer()) as server:
        model = served(server.url, max_requests=300)
        asked = options(tmp_path, noise_floor=36)
        refused("--max-requests 300 is reached", probe, asked, model=model)


def test_the_noise_floor_is_switched_off_or_left_out_of_few_prompts(tmp_path):
    with replay(WaveringServer()) as server:
        off = probe(options(tmp_path / "off", noise_floor=0), model=served(server.url))
        few = probe(replace(options(tmp_path / "few"), limit=1), model=served(server.url))
        assert set(server.answer.times.values()) <= {1, 2}, "once in each run"
    assert noise(off.metrics) == noise(few.metrics) == []
    assert not [note for note in off.notes if "noise floor" in note]
    assert [note for note in few.notes if "18 prompts: too few" in note]
