"""Every family against a plain, slow reference; every rule of honesty on tiny models."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from conftest import MASKED, WORDS
from consilience import Candidates, ConsilienceError, Pattern, Query, load_model
from consilience.models.batches import Budget, equal_length_batches, log_softmax
from consilience.models.candidates import candidates_in_slot, count_pieces
from reference import normalised, reference_causal, reference_masked

CANDIDATES = Candidates(tuple(WORDS), (1,) * len(WORDS))
PATTERNS = [
    Pattern.parse(text)
    for text in ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X] ([Y]) is big.")
]
SUBJECTS = ["France", "Germany", "the old Italy"]
QUERIES = [Query(p, s, "Paris") for p in PATTERNS for s in SUBJECTS]


def scores_of(model, queries, candidates=CANDIDATES):
    """Log-probabilities (query, candidate), and the reasons met."""
    found = np.full((len(queries), len(candidates.words)), 99.0)
    reasons = {}
    for scores in model.score(queries, candidates):
        assert (found[scores.rows] == 99).all(), "a query was answered twice"
        found[scores.rows] = scores.logprob
        reasons |= dict.fromkeys(scores.rows.tolist(), scores.reasons)
    assert not (found == 99).any(), "a query was not answered"
    return found, reasons


@pytest.mark.parametrize("family", MASKED)
def test_masked_families_score_as_the_reference(family, model_folder):
    folder = model_folder(family)
    model = load_model(str(folder), protocol="strict")
    found, _ = scores_of(model, QUERIES)
    asked = 0
    for row, query in enumerate(QUERIES[:: len(SUBJECTS) + 1]):
        expected = np.array([reference_masked(folder, query, word) for word in WORDS])
        known = ~np.isnan(expected)
        at = row * (len(SUBJECTS) + 1)
        assert (np.isnan(found[at]) == ~known).all()
        if known.any():
            np.testing.assert_allclose(
                found[at][known], normalised(expected[known]), atol=2e-5, rtol=0
            )
            asked += known.sum()
    assert asked >= len(WORDS), "the tiny tokenizer must know the words"
    assert model.identity["kind"] == "masked"


@pytest.mark.parametrize("family", ["gpt2", "llama", "mamba"])
def test_causal_families_score_whole_sentences_as_the_reference(family, model_folder):
    folder = model_folder(family)
    model = load_model(str(folder))
    assert (model.tree_scorer is None) is (family == "mamba")
    assert bool(model.notes) is (family == "mamba")
    words = Candidates(("Paris", "Rome", "Parisian", "New York"), (1,) * 4)
    found, reasons = scores_of(model, QUERIES, words)
    assert not any(reasons.values())
    for row, query in enumerate(QUERIES):
        expected = [reference_causal(folder, query, word) for word in words.words]
        np.testing.assert_allclose(found[row], normalised(expected), atol=5e-5, rtol=1e-5)


def test_a_word_in_a_causal_model_does_not_win_as_the_beginning_of_another(model_folder):
    """The closing full stop is part of the score: 'Paris.' against 'Parisian.'"""
    folder = model_folder("gpt2")
    query = QUERIES[0]
    words = Candidates(("Paris", "Parisian"), (1, 1))
    found, _ = scores_of(load_model(str(folder)), [query], words)
    with_stop = normalised([reference_causal(folder, query, word) for word in words.words])
    bare = Query(Pattern.parse("The capital of [X] is [Y]"), query.subject, "Paris")
    without = normalised([reference_causal(folder, bare, word) for word in words.words])
    np.testing.assert_allclose(found[0], with_stop, atol=5e-5)
    assert abs(found[0] - without).max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_the_same_query_gets_the_same_score_in_any_company(family, model_folder):
    model = load_model(str(model_folder(family)))
    together, _ = scores_of(model, QUERIES * 2)
    alone = np.concatenate([scores_of(model, [query])[0] for query in QUERIES])
    np.testing.assert_allclose(together[: len(QUERIES)], alone, atol=2e-5, rtol=1e-5)
    np.testing.assert_array_equal(together[: len(QUERIES)], together[len(QUERIES) :])


def test_a_word_at_the_start_has_the_token_that_it_has_there(model_folder):
    """RoBERTa's tokens carry the blank on their left; strict looks at the place, published not."""
    folder = str(model_folder("roberta"))
    first = [Query(PATTERNS[1], "France", "Paris")]
    tokens = {
        protocol: next(iter(load_model(folder, protocol=protocol).score(first, CANDIDATES))).tokens
        for protocol in ("strict", "published")
    }
    assert tokens["published"] == tuple("Ġ" + word for word in WORDS)
    assert tokens["strict"] == tuple(WORDS)
    bracket = next(iter(load_model(folder).score([Query(PATTERNS[2], "Italy", "x")], CANDIDATES)))
    assert bracket.tokens == tuple(WORDS)


def test_a_word_that_is_cut_takes_no_part_or_its_first_piece_speaks_for_it(model_folder):
    folder = str(model_folder("bert"))
    words = Candidates(("Paris", "Parisal"), (1, 1))
    strict = next(iter(load_model(folder).score(QUERIES[:1], words)))
    assert np.isnan(strict.logprob[0, 1])
    assert strict.logprob[0, 0] == 0, "normalised over those that take part"
    assert strict.reasons["Parisal"].startswith("split into ")
    published = load_model(folder, protocol="published")
    scores = next(iter(published.score(QUERIES[:1], words)))
    assert not scores.reasons
    assert scores.same.tolist() == [0, 0], "'Paris' is the first piece of both"
    assert "1 of 2 candidates" in published.notes[0]


def test_words_that_a_tokenizer_makes_one_are_one_candidate(model_folder):
    folder = str(model_folder("bert-uncased"))
    words = Candidates(("Rome", "rome", "Oslo"), (1, 1, 1))
    strict = next(iter(load_model(folder).score(QUERIES[:1], words)))
    assert strict.reasons == {"rome": "the same token as 'Rome'"}
    assert np.exp(strict.logprob[0, [0, 2]]).sum() == pytest.approx(1)
    published = next(iter(load_model(folder, protocol="published").score(QUERIES[:1], words)))
    assert not published.reasons
    assert published.same.tolist() == [0, 0, 2]


@pytest.mark.parametrize("family", ["bert", "gpt2-uncased"])
def test_an_unknown_word_takes_no_part(family, model_folder):
    words = Candidates(("Paris", "日本"), (1, 1))
    model = load_model(str(model_folder(family)))
    for subject in ("France", "日本"):
        (scores,) = model.score([Query(PATTERNS[0], subject, "Paris")], words)
        assert scores.reasons == {"日本": "unknown to the tokenizer"}
        assert scores.logprob[0, 0] == 0


@pytest.mark.parametrize("family", ["bert", "gpt2-uncased"])
def test_where_no_word_is_known_nothing_is_said(family, model_folder):
    words = Candidates(("日本", "中国"), (1, 1))
    model = load_model(str(model_folder(family)))
    for every in (True, False):
        (scores,) = model.score(QUERIES[:1], words, every=every)
        assert set(scores.reasons) == set(words.words)
        assert np.isnan(scores.totals if scores.logprob is None else scores.logprob).all()


def test_sentences_that_a_causal_tokenizer_makes_one_are_one_candidate(model_folder):
    model = load_model(str(model_folder("gpt2-uncased")))
    assert model.identity["start_token"] == "[CLS]", "what its tokenizer puts there"
    words = Candidates(("Rome", "rome", "Oslo"), (1, 1, 1))
    (scores,) = model.score(QUERIES[:1], words)
    assert scores.reasons == {"rome": "the same tokens as 'Rome'"}
    assert np.exp(scores.logprob[0, [0, 2]]).sum() == pytest.approx(1)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_whole_vocabulary_is_every_word_that_is_one_token_there(family, model_folder):
    model = load_model(str(model_folder(family)))
    for scores in model.score(QUERIES, None):
        known = ~np.isnan(scores.logprob[0])
        words = {word for word, asked in zip(scores.words, known, strict=True) if asked}
        assert set(WORDS) <= words
        assert not {"[MASK]", "<mask>", "[SEP]", "</s>", ""} & words
        assert not any(word.startswith(("##", "Ġ")) for word in words)
        np.testing.assert_allclose(np.exp(scores.logprob[:, known]).sum(axis=1), 1)


def test_in_a_vocabulary_without_capitals_the_gold_is_found(model_folder):
    model = load_model(str(model_folder("bert-uncased")))
    (scores,) = model.score([Query(PATTERNS[0], "France", "Paris")], None)
    own = scores.words.index("Paris")
    assert scores.words[scores.same[own]] == "paris"
    assert "Paris" not in scores.reasons
    (scores,) = model.score([Query(PATTERNS[0], "France", "Parisal")], None)
    assert scores.reasons["Parisal"].startswith("split into")


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_published_answers_are_those_of_the_fill_mask_pipeline_as_released(family, model_folder):
    """Targets spelt as the released code spells them for each family; its first answer is ours."""
    from transformers import pipeline

    folder = str(model_folder(family))
    fill = pipeline("fill-mask", model=folder, top_k=100)
    words = Candidates((*WORDS, "Parisal", "Romero"), (1,) * 8)
    targets = {
        "bert": list(words.words),
        "roberta": [" " + word for word in words.words],
        "albert": [fill.tokenizer.tokenize(word)[0] for word in words.words],
    }[family]
    model = load_model(folder, protocol="published")
    for scores in model.score(QUERIES, words):
        for row, logprob in zip(scores.rows, scores.logprob, strict=True):
            left, right = QUERIES[row].pattern.around_object(QUERIES[row].subject)
            best = fill(left + fill.tokenizer.mask_token + right, targets=targets)[0]
            ours = scores.tokens[np.nanargmax(logprob)]
            assert ours == fill.tokenizer.convert_ids_to_tokens(best["token"])


def test_a_causal_model_is_asked_its_next_word_where_the_object_is_last(model_folder):
    folder = model_folder("gpt2")
    scores = {s.rows[0]: s for s in load_model(str(folder)).score(QUERIES, None)}
    last, first = scores[0], scores[len(SUBJECTS)]
    assert "only where it comes last" in first.unasked
    assert np.isnan(first.logprob).all()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prefix = tokenizer("The capital of France is", add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = model(torch.tensor([[tokenizer.bos_token_id, *prefix]])).logits[0, -1]
    pair = [last.words.index(word) for word in ("Paris", "Rome")]
    ids = tokenizer.convert_tokens_to_ids(["ĠParis", "ĠRome"])
    difference = last.logprob[0, pair[0]] - last.logprob[0, pair[1]]
    assert difference == pytest.approx((logits[ids[0]] - logits[ids[1]]).item(), abs=1e-4)


def test_a_causal_model_is_asked_up_to_its_last_position(model_folder):
    """64 positions take the start token and 63 of a sentence's 64 tokens; the next word 63."""
    model = load_model(str(model_folder("gpt2")))
    words = Candidates(("Oslo",), (1,))
    pattern = Pattern.parse("[X] [Y]")
    tail = len(model.tokenizer(" Oslo", add_special_tokens=False).input_ids)

    def unasked(length):
        subject = "~" * (length - tail)
        ids = model.tokenizer(subject + " Oslo", add_special_tokens=False).input_ids
        assert len(ids) == length
        (scores,) = model.score([Query(pattern, subject, "Oslo")], words)
        return scores.unasked

    assert unasked(64) is None
    assert unasked(65) == "65 tokens, and the model takes 64"


def test_a_query_that_cannot_be_asked_says_why(model_folder):
    model = load_model(str(model_folder("bert")))
    queries = [
        QUERIES[0],
        Query(PATTERNS[0], "[MASK]", "Paris"),
        Query(PATTERNS[0], "a " * 99, "x"),
    ]
    reasons = {int(s.rows[0]): s.unasked for s in model.score(queries, CANDIDATES)}
    assert reasons[0] is None
    assert reasons[1] == "2 mask tokens in the sentence"
    assert "tokens, and the model takes 64" in reasons[2]
    roberta = load_model(str(model_folder("roberta")))
    assert roberta.longest == 64 - 2, "its first positions are for padding"
    causal = load_model(str(model_folder("gpt2")))
    for candidates in (CANDIDATES, None):
        reasons = {int(s.rows[0]): s.unasked for s in causal.score(queries[::2], candidates)}
        assert reasons[0] is None
        assert "tokens, and the model takes 64" in reasons[1]


TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=10)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(TEXT, TEXT, st.lists(TEXT.filter(str.strip), min_size=1, max_size=4, unique=True))
@pytest.mark.parametrize("family", ["roberta", "albert", "gpt2"])
def test_any_text_is_asked_or_said_why_not(family, model_folder, middle, subject, words):
    model = MODELS.setdefault(family, load_model(str(model_folder(family))))
    pattern = Pattern.parse("[X] " + middle.replace("[", "").replace("]", "") + " [Y].")
    candidates = Candidates(tuple(words), (1,) * len(words))
    (scores,) = model.score([Query(pattern, subject, words[0])], candidates)
    if scores.unasked:
        assert np.isnan(scores.logprob).all()
        return
    known = ~np.isnan(scores.logprob[0])
    assert {w for w, asked in zip(words, known, strict=True) if not asked} == set(scores.reasons)
    if known.any():
        assert np.exp(scores.logprob[0, known]).sum() == pytest.approx(1)


MODELS = {}


def test_counting_pieces_is_what_the_vocabulary_filter_needs(model_folder):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("roberta"))
    assert count_pieces(tokenizer, "Paris") == 1
    assert count_pieces(tokenizer, "Parisquo") > 1
    sheet = candidates_in_slot(tokenizer, ("Paris", "Parisquo"), " ", "strict")
    assert sheet.scored.tolist() == [0]


def test_batches_have_one_length_and_hold_everything_once():
    lengths = [3, 5, 3, 9, 5, 3]
    batches = list(equal_length_batches(lengths, Budget(6)))
    assert sorted(n for batch in batches for n in batch) == list(range(6))
    for batch in batches:
        assert len({lengths[n] for n in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= 6
    assert list(equal_length_batches([], Budget(6))) == []


def test_normalising_leaves_nan_alone_and_survives_minus_infinity():
    found = log_softmax(np.array([[0.0, np.log(3), np.nan], [-np.inf, 0, 0], [np.nan] * 3]))
    np.testing.assert_allclose(np.exp(found[0, :2]), [0.25, 0.75])
    np.testing.assert_allclose(np.exp(found[1]), [0, 0.5, 0.5])
    assert np.isnan(found[0, 2])
    assert np.isnan(found[2]).all()


def test_an_encoder_without_a_trained_head_is_refused(model_folder, tmp_path):
    from transformers import BertModel

    source = model_folder("bert")
    BertModel.from_pretrained(source).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)
    with pytest.raises(ConsilienceError, match="lack .* tensors of a masked language model"):
        load_model(str(tmp_path))


def test_a_masked_model_without_a_mask_token_is_refused(model_folder, tmp_path):
    shutil.copytree(model_folder("bert"), tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(model_folder("gpt2"))
    tokenizer.save_pretrained(tmp_path / "m")
    with pytest.raises(ConsilienceError, match=r"has no mask token; expected .*Use a model"):
        load_model(str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("./no/such/folder", "no such folder"),
        ("no-such.gguf", "no such file"),
        (
            "nobody/no-such-model",
            "cannot load 'nobody/no-such-model'.*Check the spelling. HF_HUB_OFFLINE is set",
        ),
        ("packaged:smolm2", "Did you mean 'smollm2'"),
        ("baseline:majorty", "Did you mean 'majority'"),
    ],
)
def test_a_model_that_is_not_there_is_refused(spec, message):
    with pytest.raises(ConsilienceError, match=message):
        load_model(spec)


def test_a_device_or_dtype_that_is_not_there_is_refused(model_folder):
    with pytest.raises(ConsilienceError, match="device 'nowhere' is not there"):
        load_model(str(model_folder("bert")), device="nowhere")
    with pytest.raises(ConsilienceError, match="dtype 'int3'; expected float32"):
        load_model(str(model_folder("bert")), dtype="int3")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_half_precision_comes_near(family, model_folder):
    exact, _ = scores_of(load_model(str(model_folder(family))), QUERIES)
    half, _ = scores_of(load_model(str(model_folder(family)), dtype="bfloat16"), QUERIES)
    known = ~np.isnan(exact)
    assert (np.isnan(half) == ~known).all()
    assert np.corrcoef(exact[known], half[known])[0, 1] > 0.99
    assert (exact != half)[known].any(), "bfloat16 was asked for"


def test_the_identity_tells_two_models_apart(model_folder, tmp_path):
    source = model_folder("bert")
    shutil.copytree(source, tmp_path / "same")
    same = load_model(str(tmp_path / "same")).identity
    assert same["digest"] == load_model(str(source)).identity["digest"]
    shutil.copytree(source, tmp_path / "other")
    model = AutoModelForMaskedLM.from_pretrained(source)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] += 1
    model.save_pretrained(tmp_path / "other")
    assert load_model(str(tmp_path / "other")).identity["digest"] != same["digest"]


def test_baselines(model_folder):
    words = Candidates(("b", "a", "c"), (1, 2, 2))
    queries = [Query(p, s, "c") for p in PATTERNS for s in SUBJECTS]

    def answers(name, seed=0):
        (scores,) = load_model(f"baseline:{name}", seed=seed).score(queries, words)
        np.testing.assert_array_equal(np.exp(scores.logprob).sum(axis=1), 1)
        return [words.words[n] for n in scores.logprob.argmax(axis=1)]

    assert answers("majority") == ["a"] * 9, "of equally common objects the first to appear"
    assert answers("constant") == ["b"] * 9
    assert answers("oracle") == ["c"] * 9
    assert answers("random") == answers("random") != answers("random", seed=1)
    assert set(answers("random")) == set("abc")
    with pytest.raises(ConsilienceError, match="no vocabulary"):
        list(load_model("baseline:majority").score(queries, None))


def test_the_packaged_model_knows_the_capital_of_france():
    model = load_model("packaged:smollm2")
    assert model.tree_scorer
    assert model.identity["start_token"] == "<|endoftext|>"
    found, _ = scores_of(model, [QUERIES[0]])
    assert WORDS[found[0].argmax()] == "Paris"
