"""Candidates of several tokens against one forward pass a token; what is asked, what is not."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, AutoTokenizer

from conftest import WORDS
from consilience import Candidates, ConsilienceError, Pattern, Query, load_model
from consilience.models.batches import log_softmax, one_thread
from consilience.models.candidates import candidates_in_slot
from consilience.models.loading import load_pretrained
from consilience.models.pieces import PiecewiseModel

FAMILIES = ["bert", "roberta", "albert", "modernbert"]
MIXED = (*WORDS, "Parisal", "Berlin Rome", "Berlin Rome Oslo", "Berlin Oslo", "Parisalin", "Romeal")
PATTERNS = [
    Pattern.parse(text)
    for text in ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X] ([Y]) is big.")
]
QUERIES = [
    Query(pattern, subject, "Berlin Rome")
    for pattern in PATTERNS
    for subject in ("France", "Germany", "the old Italy")
]
LOADED = {}


def words_of(*words):
    return Candidates(words, (1,) * len(words))


def piecewise(folder, **options):
    loaded = load_pretrained(
        str(folder), revision=None, device="cpu", **{"dtype": "float32"} | options
    )
    return PiecewiseModel(loaded.model, loaded.tokenizer, loaded.identity, "strict")


@pytest.fixture
def model_of(model_folder):
    """``model_of("bert")``: the tiny model of that family, loaded once."""

    def model(family):
        if family not in LOADED:
            LOADED[family] = piecewise(model_folder(family))
        return LOADED[family]

    return model


def totals_of(model, queries, candidates, **options):
    """Totals (query, candidate), log-probabilities or None, and every ``Scores``."""
    everything = list(model.score(queries, candidates, **options))
    totals = np.full((len(queries), len(candidates.words)), np.nan)
    logprob = np.full(totals.shape, np.nan)
    rows = np.concatenate([scores.rows for scores in everything])
    assert sorted(rows) == list(range(len(queries))), "each query is answered once"
    for scores in everything:
        if scores.totals is not None:
            totals[scores.rows] = scores.totals
        if scores.logprob is not None:
            logprob[scores.rows] = scores.logprob
    return totals, logprob, everything


def reference_pieces(tokenizer, left, word):
    """The tokens of a word behind the character on its left; None where it takes no part."""
    before = left[-1:] if left[-1:].strip() else "x" * bool(left) + left[-1:]
    own = tokenizer(before + word, add_special_tokens=False).input_ids
    head = tokenizer(before.strip(), add_special_tokens=False).input_ids if before else []
    pieces = own[len(head) :]
    melts = own[: len(head)] != head
    return None if melts or not pieces or tokenizer.unk_token_id in pieces else pieces


def reference(folder, query, word):
    """One sentence a token, all positions, all of the vocabulary; the sum in double precision."""
    if folder not in LOADED:
        LOADED[folder] = (
            AutoTokenizer.from_pretrained(folder),
            AutoModelForMaskedLM.from_pretrained(folder).eval(),
        )
    tokenizer, model = LOADED[folder]
    left, right = query.pattern.around_object(query.subject)
    pieces = reference_pieces(tokenizer, left, word)
    if pieces is None:
        return np.nan
    ids = tokenizer(left + tokenizer.mask_token + right).input_ids
    at = ids.index(tokenizer.mask_token_id)
    total = 0.0
    for done, piece in enumerate(pieces):
        masks = [tokenizer.mask_token_id] * (len(pieces) - done)
        sentence = ids[:at] + pieces[:done] + masks + ids[at + 1 :]
        with torch.no_grad(), one_thread():
            logits = model(torch.tensor([sentence])).logits[0, at + done]
        total += logits.double().log_softmax(-1)[piece].item()
    return total


@pytest.mark.parametrize("family", FAMILIES)
def test_totals_are_those_of_one_forward_pass_a_token(family, model_folder, model_of):
    folder, model = model_folder(family), model_of(family)
    totals, logprob, everything = totals_of(model, QUERIES, words_of(*MIXED))
    expected = np.array([[reference(folder, query, word) for word in MIXED] for query in QUERIES])
    np.testing.assert_allclose(totals, expected, atol=2e-5, rtol=0)
    np.testing.assert_allclose(logprob, log_softmax(expected), atol=2e-5, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    counts = {len(reference_pieces(tokenizer, "in ", word) or ()) for word in MIXED}
    assert {1, 2, 3} <= counts, "candidates of one, two and three tokens"
    assert not np.isnan(totals).any(), "the tiny tokenizer must know the words"
    assert model.identity["multi_token"] == "left-to-right"
    for scores in everything:
        single = [word for word, token in zip(MIXED, scores.tokens, strict=True) if token]
        assert set(single) <= set(WORDS)


@pytest.mark.parametrize("family", FAMILIES)
def test_candidates_of_one_token_score_as_with_one_mask(family, model_folder, model_of):
    plain = np.full((len(QUERIES), len(WORDS)), np.nan)
    for scores in load_model(str(model_folder(family))).score(QUERIES, words_of(*WORDS)):
        plain[scores.rows] = scores.logprob
    for words in (WORDS, MIXED):
        totals, _, _ = totals_of(model_of(family), QUERIES, words_of(*words))
        comparable = np.where(np.isnan(plain), np.nan, totals[:, : len(WORDS)])
        np.testing.assert_allclose(log_softmax(comparable), plain, atol=1e-5, rtol=0)
        np.testing.assert_array_equal(comparable.argsort(axis=1), plain.argsort(axis=1))


def test_with_one_token_each_all_are_scored_also_where_only_the_best_is_asked_for(model_of):
    _, logprob, _ = totals_of(model_of("bert"), QUERIES, words_of(*WORDS), every=False)
    _, every, _ = totals_of(model_of("bert"), QUERIES, words_of(*WORDS))
    assert not np.isnan(logprob).any()
    np.testing.assert_array_equal(logprob, every)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_candidate_is_filled_in_as_it_stands_in_running_text(family, model_of):
    """With the leading blank that RoBERTa's mask swallows, and without one at the start."""
    tokenizer = model_of(family).tokenizer
    for query in QUERIES:
        left, right = query.pattern.around_object(query.subject)
        ids = tokenizer(left + tokenizer.mask_token + right).input_ids
        at = ids.index(tokenizer.mask_token_id)
        anchor = " " if left[-1:].isspace() else left[-1:]
        sheet = candidates_in_slot(tokenizer, MIXED, anchor, "strict", several=True)
        assert not sheet.reasons
        for word, pieces in zip(MIXED, sheet.tokens, strict=True):
            filled = ids[:at] + list(pieces) + ids[at + 1 :]
            assert filled == tokenizer(left + word + right).input_ids


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_batches_and_company_change_nothing(family, model_of):
    model = model_of(family)
    before = model.budget.tokens
    found = []
    try:
        for tokens in (1, 4096):
            model.budget.tokens = tokens
            found.append(totals_of(model, QUERIES, words_of(*MIXED))[0])
    finally:
        model.budget.tokens = before
    np.testing.assert_allclose(found[0], found[1], atol=1e-5, rtol=0)
    alone = [totals_of(model, [query], words_of(*MIXED))[0] for query in QUERIES]
    np.testing.assert_allclose(np.concatenate(alone), found[1], atol=1e-5, rtol=0)
    twice, _, everything = totals_of(model, QUERIES + QUERIES[::-1], words_of(*MIXED))
    np.testing.assert_array_equal(twice, np.concatenate([twice[:9], twice[:9][::-1]]))
    assert sum(map(len, (scores.rows for scores in everything))) == 18


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_cannot_win_is_left_out(family, model_of):
    """The best candidate, the gold, and all within a near tie are finished, with the same score."""
    whole, _, _ = totals_of(model_of(family), QUERIES, words_of(*MIXED))
    some, logprob, everything = totals_of(model_of(family), QUERIES, words_of(*MIXED), every=False)
    assert all(scores.logprob is None for scores in everything)
    assert np.isnan(logprob).all()
    finished = ~np.isnan(some)
    assert not finished.all(), "something is left out"
    np.testing.assert_allclose(some[finished], whole[finished], atol=1e-5, rtol=0)
    np.testing.assert_array_equal(np.nanargmax(some, axis=1), whole.argmax(axis=1))
    assert finished[:, MIXED.index("Berlin Rome")].all(), "the gold"
    assert (np.nanmax(some, axis=1, keepdims=True) >= whole - 1e-5).all()


def test_a_near_tie_is_asked_again_sentence_by_sentence(model_of, monkeypatch):
    """With everything a near tie the totals do not depend on the company to the last bit."""
    model = model_of("roberta")
    monkeypatch.setattr(model, "_tie", 1e9)
    together, _, _ = totals_of(model, QUERIES, words_of(*MIXED), every=False)
    alone = [totals_of(model, [query], words_of(*MIXED))[0] for query in QUERIES]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_a_part_of_the_queries_at_a_time_is_as_all_together(model_of, monkeypatch):
    model = model_of("bert")
    whole, _, _ = totals_of(model, QUERIES, words_of(*MIXED))
    monkeypatch.setattr("consilience.models.pieces.MOST_STEPS", 40)
    parts, _, everything = totals_of(model, QUERIES, words_of(*MIXED))
    assert len(everything) == 6
    np.testing.assert_allclose(parts, whole, atol=1e-5, rtol=0)


def test_words_that_cannot_be_asked_say_why(model_of):
    words = words_of("Paris", "日本", "Berlin Rome", "Berlin  Rome", "Paris ", "\x00")
    (scores,) = model_of("bert").score(QUERIES[:1], words)
    assert scores.reasons == {
        "日本": "unknown to the tokenizer",
        "Berlin  Rome": "the same tokens as 'Berlin Rome'",
        "Paris ": "the same token as 'Paris'",
        "\x00": "the tokenizer leaves nothing of it",
    }
    assert scores.same.tolist() == [0, 1, 2, 2, 0, 5]
    assert np.isnan(scores.totals[0]).tolist() == [False, True, False, True, True, True]
    assert np.exp(scores.logprob[0, [0, 2]]).sum() == pytest.approx(1)
    (scores,) = model_of("bert").score(QUERIES[:1], words_of("日本"))
    assert scores.reasons == {"日本": "unknown to the tokenizer"}
    assert np.isnan(scores.logprob).all()
    glued = [Query(Pattern.parse("i[Y] [X]"), "France", "n")]
    (scores,) = model_of("roberta").score(glued, words_of("n", "Paris"))
    assert scores.reasons == {"n": "merges with 'i' on its left"}


def test_a_query_that_cannot_be_asked_says_why(model_of):
    """With the masks of the longest candidate the sentence must still fit."""
    model = model_of("bert")
    fits = "a " * (64 - len(model.tokenizer("The capital of  is [MASK].").input_ids))
    queries = [
        QUERIES[0],
        Query(PATTERNS[0], "[MASK]", "Paris"),
        Query(PATTERNS[0], "a " * 99, "x"),
        Query(PATTERNS[0], fits, "Paris"),
    ]
    for words, longest in ((WORDS, 64), (MIXED, 66)):
        scores_of = model.score(queries, words_of(*words))
        reasons = {int(row): scores.unasked for scores in scores_of for row in scores.rows}
        assert reasons[0] is None
        assert reasons[1] == "2 mask tokens in the sentence"
        assert "tokens, and the model takes 64" in reasons[2]
        expected = None if longest == 64 else f"{longest} tokens, and the model takes 64"
        assert reasons[3] == expected


def test_the_whole_vocabulary_is_asked_with_one_mask(model_folder, model_of):
    plain = list(load_model(str(model_folder("bert"))).score(QUERIES, None))
    same = list(model_of("bert").score(QUERIES, None))
    for one, other in zip(plain, same, strict=True):
        assert one.words == other.words
        np.testing.assert_allclose(one.logprob, other.logprob, atol=1e-5)


def test_half_precision_comes_near(model_folder, model_of):
    exact, _, _ = totals_of(model_of("bert"), QUERIES, words_of(*MIXED))
    half, _, _ = totals_of(
        piecewise(model_folder("bert"), dtype="bfloat16"), QUERIES, words_of(*MIXED)
    )
    assert np.corrcoef(exact.ravel(), half.ravel())[0, 1] > 0.99
    assert (exact != half).any()


def test_the_published_protocol_has_another_rule(model_folder):
    loaded = load_pretrained(
        str(model_folder("bert")), revision=None, device="cpu", dtype="float32"
    )
    with pytest.raises(ConsilienceError, match=r"protocol 'published'; expected strict.*strict"):
        PiecewiseModel(loaded.model, loaded.tokenizer, loaded.identity, "published")


TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=5)
SOME_WORDS = st.lists(
    TEXT.filter(str.strip) | st.sampled_from(MIXED), min_size=1, max_size=4, unique=True
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(TEXT, TEXT, SOME_WORDS)
@pytest.mark.parametrize("family", ["roberta", "albert"])
def test_any_text_scores_as_the_reference_or_says_why_not(
    family, model_folder, model_of, middle, subject, words
):
    pattern = Pattern.parse("[X] " + middle.replace("[", "").replace("]", "") + " [Y].")
    query = Query(pattern, subject, words[0])
    (scores,) = model_of(family).score([query], words_of(*words))
    if scores.unasked:
        assert np.isnan(scores.logprob).all()
        return
    known = ~np.isnan(scores.totals[0])
    assert {w for w, asked in zip(words, known, strict=True) if not asked} == set(scores.reasons)
    if known.any():
        assert np.exp(scores.logprob[0, known]).sum() == pytest.approx(1)
        assert (scores.totals[0, known] <= 1e-6).all()
    for word, total in zip(words, scores.totals[0], strict=True):
        if not np.isnan(total):
            expected = reference(model_folder(family), query, word)
            assert total == pytest.approx(expected, abs=2e-5)
