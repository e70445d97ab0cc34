"""What every family of models promises: the reference's scores, in any company, or a reason."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import reference
from conftest import WORDS, cases
from consilience import Pattern, Query, load_model
from consilience.models import batches
from reference import PATTERNS, QUERIES, TEMPLATE, budget_of, normalised, scores_of, words_of

pytestmark = pytest.mark.usefixtures("two_threads")

CANDIDATES = words_of(
    *WORDS, "Berlin Rome", "Berlin Rome Oslo", "Parisal", "Romeal", "New York", "New Delhi",
    "Newark", "Oslo in Paris",
)  # fmt: skip
OPTIONS = {
    "masked": {},
    "pieces": {"multi_token": "left-to-right"},
    "causal": {},
    "seq2seq": {},
    "template": {"template": TEMPLATE},
}
"""How ``load_model`` makes each way of scoring; ``reference`` has a function of the same name."""

SOME = [
    ("bert", "masked"), ("roberta", "masked"), ("bert", "pieces"), ("roberta", "pieces"),
    ("gpt2", "causal"), ("llama", "causal"), ("t5", "seq2seq"), ("mt5", "template"),
]  # fmt: skip
PARTIAL = [each for each in SOME if each[1] not in ("masked", "pieces")]
"""Those that leave out candidates if only the best is wanted."""

FEW = QUERIES[::3]
THREE = QUERIES[::7]
"""One of each pattern."""


@pytest.fixture(scope="module")
def load(model_folder):
    """``load("bert", "pieces")``: the tiny model, loaded once."""
    return cache(lambda family, way: load_model(str(model_folder(family)), **OPTIONS[way]))


@pytest.fixture(scope="module")
def whole(load):
    """``whole("bert", "pieces")``: the scores of all queries, in one batch."""
    return cache(lambda family, way: scores_of(load(family, way), QUERIES, CANDIDATES)[0])


@pytest.mark.parametrize(("family", "way"), SOME)
def test_batches_order_threads_and_repeats_change_no_answer(family, way, load, whole):
    model, expected = load(family, way), whole(family, way)
    answers = np.nanargmax(expected, axis=1)
    for tokens, every in ((1, True), (9, True), (9, False)):
        with budget_of(model, tokens):
            found, _ = scores_of(model, THREE, CANDIDATES, every=every)
        known = ~np.isnan(found)
        np.testing.assert_allclose(found[known], expected[::7][known], atol=1e-4, rtol=1e-5)
        np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers[::7])
    twice, _ = scores_of(model, FEW + FEW[::-1], CANDIDATES)
    np.testing.assert_array_equal(twice, np.concatenate([twice[:6], twice[:6][::-1]]))
    torch.set_num_threads(1)
    order = np.random.default_rng(0).permutation(len(QUERIES))
    found, _ = scores_of(model, [QUERIES[n] for n in order], CANDIDATES)
    np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers[order])


@pytest.mark.parametrize(("family", "way", "is_open"), [
    *((*one, False) for one in SOME),
    ("bert", "masked", True), ("gpt2", "causal", True), ("llama", "causal", True),
])  # fmt: skip
def test_a_near_tie_is_decided_alone_so_to_the_last_bit_the_same(
    family, way, is_open, load, monkeypatch
):
    """With a bound that makes every query a near tie, no company changes a single bit."""
    model, queries = load(family, way), FEW[:4]  # two of a length, which share a batch
    words = words_of("Paris", "Oslo", "Berlin Rome", "Berlin Rome Oslo", "New York", "Parisal")
    words = None if is_open else words
    monkeypatch.setattr(model, "tie", 1e9)
    together = [scores_of(model, queries, words, every=every)[0] for every in (True, False)]
    torch.set_num_threads(1)
    with budget_of(model, 9):
        apart = np.concatenate([scores_of(model, [query], words)[0] for query in queries])
    for found in together:
        np.testing.assert_array_equal(found, apart)


@pytest.mark.parametrize(("family", "way"), PARTIAL)
def test_only_what_cannot_win_is_left_out(family, way, load, whole):
    """The best candidate and every gold are finished, also where one sentence has two golds."""
    model, expected = load(family, way), np.tile(whole(family, way)[::3], (2, 1))
    queries = FEW + [Query(q.pattern, q.subject, "Oslo in Paris") for q in FEW]
    golds = [CANDIDATES.words.index(query.gold) for query in queries]
    assert all(s.logprob is None for s in model.score(queries, CANDIDATES, every=False))
    for tokens in (60, 100_000):
        with budget_of(model, tokens):
            found, _ = scores_of(model, queries, CANDIDATES, every=False)
        finished = ~np.isnan(found)
        if family not in ("t5", "mt5"):  # which reads every candidate
            assert not finished.all(), "something is left out"
        np.testing.assert_allclose(found[finished], expected[finished], atol=1e-4, rtol=1e-5)
        np.testing.assert_array_equal(np.nanargmax(found, axis=1), expected.argmax(axis=1))
        if way != "causal":  # which finishes a gold of several only if they are the same
            assert finished[np.arange(len(queries)), golds].all()
        best = np.where(finished, -np.inf, expected).max(axis=1)
        assert (best < expected.max(axis=1) - 1e-5).all(), "what is left out is worse"
    few, _ = scores_of(model, FEW, CANDIDATES, every=False)
    assert not np.isnan(few[np.arange(len(FEW)), golds[: len(FEW)]]).any()


@pytest.mark.parametrize(("family", "way"), [("bert", "masked"), ("bert", "pieces"),
                                             ("gpt2", "causal"), ("t5", "seq2seq")])  # fmt: skip
def test_half_precision_comes_near(family, way, whole, model_folder):
    exact = whole(family, way)[::3]
    model = load_model(str(model_folder(family)), dtype="bfloat16", **OPTIONS[way])
    half, _ = scores_of(model, FEW, CANDIDATES)
    known = ~np.isnan(exact)
    assert (np.isnan(half) == ~known).all()
    assert np.corrcoef(exact[known], half[known])[0, 1] > 0.99
    assert (exact != half)[known].any(), "bfloat16 was used"


@pytest.mark.parametrize(("family", "way"), [("bert", "masked"), ("llama", "causal"),
                                             ("bert", "pieces"), ("t5", "seq2seq")])  # fmt: skip
def test_without_enough_memory_batches_are_halved(family, way, model_folder, whole, monkeypatch):
    model = load_model(str(model_folder(family)), **OPTIONS[way])
    module = model.model if way == "seq2seq" else model.model.base_model
    forward, sizes = module.forward, []

    def small_machine(*args, **kwargs):
        ids = args[0] if args else kwargs.get("input_ids", kwargs.get("decoder_input_ids"))
        if ids.numel() > 40:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        sizes.append(ids.numel())
        return forward(*args, **kwargs)

    monkeypatch.setattr(module, "forward", small_machine)
    step = 1 if way == "masked" else 3  # few queries with many candidates are many tokens
    found, _ = scores_of(model, QUERIES[::step], CANDIDATES)
    np.testing.assert_allclose(found, whole(family, way)[::step], atol=1e-4, rtol=1e-5)
    assert max(sizes) <= 40
    assert way == "seq2seq" or model.budget.tokens <= 40, "later batches are small from the start"


@pytest.mark.parametrize(("family", "way", "words", "reasons"), cases("candidates_refused"))
def test_a_candidate_that_cannot_be_scored_has_a_reason(family, way, words, reasons, load):
    model = load(family, way)
    for every in (True, False):
        found, by_row = scores_of(model, QUERIES[:1], words_of(*words), every=every)
        assert by_row == {0: reasons}
        assert [bool(np.isnan(each)) for each in found[0]] == [word in reasons for word in words]
    (scores,) = model.score(QUERIES[:1], words_of(*words))
    same = [reason.partition(" as ")[2].strip("'") for reason in map(reasons.get, words, words)]
    expected = [words.index(other) if other else at for at, other in enumerate(same)]
    assert scores.same.tolist() == expected
    found, by_row = scores_of(model, QUERIES[:1], words_of("日本"), every=False)
    assert (np.isnan(found).all(), by_row) == (True, {0: {"日本": "unknown to the tokenizer"}}), (
        "no candidate is known"
    )
    assert list(model.score([], words_of(*words))) == []


@pytest.mark.parametrize(("family", "way", "subject", "reason"), cases("queries_refused"))
def test_a_query_that_cannot_be_asked_says_why(family, way, subject, reason, load, monkeypatch):
    model = load(family, way)
    if family == "t5":
        monkeypatch.setattr(model, "longest", 60)
    queries = [QUERIES[0], Query(PATTERNS[0], subject.replace("LONG", "a " * 99), "Paris")]
    kinds = [words_of(*WORDS), None] if way in ("masked", "causal") else [words_of(*WORDS)]
    for candidates in kinds:
        unasked = {int(r): s.unasked for s in model.score(queries, candidates) for r in s.rows}
        assert unasked[0] is None
        assert reason in unasked[1]


TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=8)
WORD = st.one_of(
    TEXT.filter(str.strip),
    st.lists(st.sampled_from([*WORDS, "is", "e", "s"]), min_size=1, max_size=3).map(" ".join),
)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(TEXT, TEXT, TEXT, st.lists(WORD, min_size=1, max_size=4, unique=True), st.booleans())
@pytest.mark.parametrize(("family", "way"), [
    ("roberta", "masked"), ("albert", "masked"), ("roberta", "pieces"), ("albert", "pieces"),
    ("gpt2", "causal"), ("t5", "template"), ("mt5", "seq2seq"),
])  # fmt: skip
def test_any_text_is_scored_as_the_reference_or_said_why_not(
    family, way, load, model_folder, left, middle, subject, words, object_first
):
    assume(not set("[]") & set(left + middle))
    slots = ("[Y]", "[X]") if object_first else ("[X]", "[Y]")
    query = Query(Pattern(f"{left}{slots[0]} {middle} {slots[1]}."), subject, words[0])
    found, reasons = scores_of(load(family, way), [query], words_of(*words))
    if isinstance(reasons[0], str):
        assert np.isnan(found).all()
        return
    known = ~np.isnan(found[0])
    assert {w for w, scored in zip(words, known, strict=True) if not scored} == set(reasons[0])
    score = getattr(reference, way)
    expected = np.array([score(model_folder(family), query, word) for word in words])
    if way == "masked" and known.any():
        expected[known] = normalised(expected[known])
    np.testing.assert_allclose(found[0][known], expected[known], atol=5e-5, rtol=1e-6)


def test_near_ties_are_settled_in_passes_of_one_shape(model_folder, monkeypatch):
    """On a GPU several together, filled up with copies: each is in a pass of 4."""
    model = load_model(str(model_folder("bert")))
    one_by_one, _ = scores_of(model, FEW, CANDIDATES)
    monkeypatch.setattr(batches, "NEAR_TIES", {"cpu": 4})
    model.tie, passes, at_mask = np.inf, [], model.at_mask

    def watched(entries):
        logits_of = at_mask(entries)
        return lambda sentences: passes.append(sentences) or logits_of(sentences)

    monkeypatch.setattr(model, "at_mask", watched)
    together, _ = scores_of(model, FEW, CANDIDATES)
    np.testing.assert_allclose(together, one_by_one, atol=1e-5, rtol=0)
    lengths = {tuple(ids) for of_pass in passes for ids in of_pass}
    settled = [of_pass for of_pass in passes if len(of_pass) == 4]
    assert {tuple(ids) for of_pass in settled for ids in of_pass} == lengths


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("family", "way"), SOME)
def test_an_accelerator_gives_the_same_scores(family, way, whole, model_folder):
    model = load_model(str(model_folder(family)), device="cuda", **OPTIONS[way])
    there, _ = scores_of(model, FEW, CANDIDATES)
    np.testing.assert_allclose(whole(family, way)[::3], there, atol=1e-3, rtol=1e-4)
