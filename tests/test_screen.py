"""--fast: answers that are screened in bfloat16 are those of float32."""

import json

import numpy as np
import pytest
import torch

import reference
from conftest import WORDS
from consilience import Candidates, Pattern, Query, load_model
from consilience.ask import judge
from consilience.core.errors import ConsilienceError
from consilience.models import batches, scoring
from consilience.models.fast import (
    Products,
    ScreenedModel,
    check_speedup,
    libraries,
    measured_screen,
    screening,
)
from consilience.models.fast.screening import Screened, _values
from consilience.types import Scores

pytestmark = pytest.mark.usefixtures("two_threads")

PATTERNS = [*reference.PATTERNS[:2], Pattern.parse("[X]'s capital, [Y], is in Europe.")]
CANDIDATES = Candidates((*WORDS, "Parisquo", "New York"), (1,) * 8)
NAMES = ["France", "Germany", "the old Italy", "Europe", "x", "Spain and Portugal", "(", "Oslo"]
QUERIES = [
    Query(pattern, f"{one} {other}", WORDS[n % 6])
    for pattern in PATTERNS
    for n, one in enumerate(NAMES)
    for other in NAMES
]
FAMILIES = ["bert", "roberta", "gpt2", "llama"]


def answers_of(model, candidates=CANDIDATES):
    """Answer, number of candidates and reason of each query."""
    found = [None] * len(QUERIES)
    for scores in model.score(QUERIES, candidates, every=False):
        columns = judge(scores, [QUERIES[row].gold for row in scores.rows])
        for at, row in enumerate(scores.rows):
            assert found[row] is None, "each query comes once"
            found[row] = [columns[name][at] for name in ("answer", "n_candidates", "excluded")]
    return found


@pytest.fixture
def small_samples(monkeypatch):
    """192 queries are enough to calibrate a bound on 16 and to check a third."""
    monkeypatch.setattr(screening, "SAMPLE", 16)
    monkeypatch.setattr(screening, "CHECKED", 1 / 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answers_are_those_of_float32(family, model_folder, small_samples):
    expected = answers_of(load_model(str(model_folder(family))))
    model = ScreenedModel(load_model(str(model_folder(family))))
    assert answers_of(model) == expected
    found = model.screened
    assert found.queries == len(QUERIES) == 192
    assert found.largest_error > 0, "bfloat16 was used"
    assert found.bound >= found.largest_error
    assert found.disagreements == 0
    assert found.compared > 16, "some of the accepted queries were checked"
    if family != "llama":  # whose random weights make scores of hundreds of nats
        assert found.settled + found.compared < 192, "and some were only screened"
    assert answers_of(model) == expected, "nothing is left from the first time"
    assert model.screened == found


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_outside_the_screen_the_model_is_what_it_was(family, model_folder):
    plain, model = (load_model(str(model_folder(family))) for _ in range(2))
    ScreenedModel(model)
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        expected, found = plain.model(input_ids=ids).logits, model.model(input_ids=ids).logits
    assert torch.equal(expected, found)


def test_the_whole_vocabulary_can_be_screened(model_folder, small_samples):
    expected = answers_of(load_model(str(model_folder("bert"))), None)
    model = ScreenedModel(load_model(str(model_folder("bert"))))
    assert answers_of(model, None) == expected
    assert model.screened.settled < 192 - 16


def test_a_bound_that_is_too_small_is_found_out_and_enlarged(
    model_folder, small_samples, monkeypatch
):
    """A tenth of the largest error as the bound: a check exceeds it, and more is settled."""
    expected = answers_of(load_model(str(model_folder("bert"))))
    monkeypatch.setattr(screening, "FACTOR", 0.1)
    model = ScreenedModel(load_model(str(model_folder("bert"))))
    answers_of(model)
    assert model.screened.enlarged
    monkeypatch.setattr(screening, "FACTOR", 2.0)
    assert answers_of(model) == expected


def test_a_bound_grows_with_an_error_that_exceeds_it_or_with_another_answer():
    found = Screened(100)
    found.calibrate(np.array([0.01, 0.03]))
    assert (found.compared, found.largest_error, found.bound) == (2, 0.03, 0.06)
    found.check(np.array([0.05]), 0)
    assert (found.compared, found.largest_error, found.bound) == (3, 0.05, 0.06)
    assert not found.enlarged
    found.check(np.array([0.07]), 0)
    assert (found.largest_error, found.bound, found.enlarged) == (0.07, 0.14, True)
    found.check(np.array([]), 1)
    assert (found.disagreements, found.bound) == (1, 0.28)


def test_the_error_of_a_query_by_hand():
    """From the best: -1, -2 and -1.25, -1.9 nats: 0.25 apart at most."""
    nan = np.nan
    exact, half = np.array([5.0, 4.0, 3.0, nan]), np.array([5.5, 4.25, 3.6, nan])
    assert screening._error(exact, half, 0) == pytest.approx(0.25)
    assert screening._error(exact, np.array([5.5, nan, 3.6, nan]), 0) == pytest.approx(0.1)
    assert screening._error(exact, np.array([nan, 4.25, 3.6, nan]), 0) == screening.NEAR


def test_what_leads_by_less_than_what_was_searched_may_lead_by_no_more():
    """A causal model's search stopped 0.5 nats below the best: the lead is 0.5 at least."""
    totals = np.array([[-1.0, -1.25, np.nan], [-1.0, np.nan, np.nan]])
    found = screening._ScreenedAnswers.of(
        Scores(np.arange(2), ("a", "b", "c"), None, totals=totals), 0.5
    )
    assert found.lead.tolist() == [0.25, 0.5]
    logprob = np.array([[-1.0, -1.25, np.nan], [-9.0, -1.0, np.nan], [np.nan] * 3])
    found = screening._ScreenedAnswers.of(Scores(np.arange(3), ("a", "b", "c"), logprob), 0.5)
    assert found.lead.tolist() == [0.25, 8.0, np.inf]
    assert found.best.tolist()[:2] == [0, 1]
    (left,) = found.without(np.array([True, False, True]))
    assert left.rows.tolist() == [1]
    np.testing.assert_array_equal(left.logprob, [[-np.inf, 0.0, np.nan]])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_near_tie_of_the_screen_is_decided_in_float32(family, model_folder, monkeypatch):
    """With a bound that makes every query a near tie the screen gives float32's scores."""
    monkeypatch.setattr(scoring, "NEAR_TIE", dict.fromkeys(batches.NEAR_TIE, 1e9))
    exact = load_model(str(model_folder(family)))
    model = ScreenedModel(load_model(str(model_folder(family))))
    for here, there in zip(
        exact.score(QUERIES[:4], CANDIDATES, every=False),
        model.in_bfloat16(QUERIES[:4], CANDIDATES),
        strict=True,
    ):
        np.testing.assert_array_equal(here.rows, there.rows)
        np.testing.assert_array_equal(_values(here), _values(there))


def test_few_queries_are_answered_in_float32(model_folder):
    model = ScreenedModel(load_model(str(model_folder("bert"))))
    assert answers_of(model) == answers_of(load_model(str(model_folder("bert"))))
    assert model.screened == Screened(192, settled=192)


@pytest.mark.parametrize(
    ("float32", "bfloat16", "kind", "pays"),
    [
        (334.0, 1850.0, "masked", True),
        (334.0, 1850.0, "causal", True),
        (200.0, 398.0, "masked", False),
        (200.0, 400.0, "masked", True),
        (200.0, 400.0, "causal", False),
    ],
)
def test_it_is_offered_where_the_measurement_says_that_it_pays(float32, bfloat16, kind, pays):
    speeds = {"float32": float32, "bfloat16": bfloat16}
    measured = Products("bfloat16", "Intel Xeon", 2, speeds)
    if pays:
        assert check_speedup(measured, kind) == pytest.approx(bfloat16 / float32)
        return
    with pytest.raises(ConsilienceError) as caught:
        check_speedup(measured, kind)
    assert f"{bfloat16 / float32:.2f} times as fast as float32 on Intel Xeon" in str(caught.value)
    assert f"({bfloat16:.0f} and 200 GFLOP/s)" in str(caught.value)
    assert f"expected {screening.MINIMUM_SPEEDUP[kind]:g} times for a {kind} model" in str(
        caught.value
    )


def test_the_products_of_a_tiny_model_are_too_small_to_be_measured(model_folder):
    model = load_model(str(model_folder("bert"))).model
    with pytest.raises(ConsilienceError, match="too small to be measured"):
        check_speedup(measured_screen(model, head=False), "masked")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_both_precisions_are_measured_at_the_models_shapes(family, model_folder, monkeypatch):
    monkeypatch.setattr(libraries, "LEAST_OPERATIONS", 0)
    model = load_model(str(model_folder(family)))
    found = measured_screen(model.model, head=False)
    assert set(found.gflops) == {"float32", "bfloat16"}
    assert min(found.gflops.values()) > 0
    assert found == measured_screen(model.model, head=False), "remembered"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep-scores"], "--fast with --keep-scores"),
        (["--dtype", "bfloat16"], "--fast with --dtype bfloat16"),
        (["--multi-token", "left-to-right", "--protocol", "strict"], "--fast with --multi-token"),
        ([], "too small to be measured"),
    ],
)
def test_what_cannot_be_screened_is_refused(consilience, model_folder, options, message):
    command = ["probe", "--model", str(model_folder("bert")), "--suite", "mini", "--fast"]
    status, _, error = consilience(*command, *options)
    assert status == 2
    assert message in error


def test_baselines_and_sequence_to_sequence_models_are_not_screened(model_folder):
    for spec in ("baseline:majority", str(model_folder("t5"))):
        with pytest.raises(ConsilienceError, match="--fast with a"):
            load_model(spec, fast=True)


def test_a_run_says_what_was_screened(
    consilience, model_folder, tmp_path, monkeypatch, small_samples
):
    """A real measurement, of products however small, that asks for no gain."""
    monkeypatch.setattr(libraries, "LEAST_OPERATIONS", 0)
    monkeypatch.setitem(screening.MINIMUM_SPEEDUP, "masked", 0)
    command = ["probe", "--model", str(model_folder("bert")), "--suite", "mini"]
    command += ["--groups", "capital", "--protocol", "published", "--json", "--out"]
    status, text, _ = consilience(*command, "exact")
    assert status == 0
    status, fast_text, error = consilience(*command, "fast", "--fast")
    assert status == 0, error
    one, other = json.loads(text), json.loads(fast_text)
    assert one["metrics"] == other["metrics"]
    record = other["run"]
    assert record["settings"]["fast"] is True
    assert "fast" not in one["run"]["settings"]
    screened = record["screened"]["capital"]
    assert screened["queries"] > screened["settled"] + screened["compared"]
    assert any("were screened in bfloat16" in each for each in other["warnings"])
    status, again, _ = consilience(*command, "fast", "--fast")
    assert status == 0
    assert json.loads(again)["run"]["screened"] == record["screened"], "resumed, not screened again"
    assert consilience(*command, "fast")[0] == 2, "a run without --fast is another run"


def test_answers_only_leaves_the_numbers_of_scores_empty(model_folder):
    model = ScreenedModel(load_model(str(model_folder("gpt2"))))
    pattern = Pattern.parse("The capital of [X] is [Y].")
    (scores,) = model.score([Query(pattern, "France", "Paris")], CANDIDATES)
    found = judge(scores, ["Paris"])
    assert found["answer"][0] in CANDIDATES.words
    assert "text_logprob" not in found
    assert "logprob" not in found
    with pytest.raises(ValueError, match="answers only"):
        list(model.score([], CANDIDATES, every=True))
