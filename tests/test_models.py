"""Rules of single families: the token of a word, vocabularies, baselines, refusals."""

import numpy as np
import pytest
import torch
from transformers import (
    AddedToken,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
)

import reference
from checks import refused
from conftest import WORDS, _tokenizer
from consilience import Candidates, Pattern, Query, load_model
from consilience.models import seq2seq
from consilience.models.batches import Budget, reproducibly
from consilience.models.loading import Pretrained
from consilience.models.masked import MaskedModel, masked_sentences
from consilience.models.seq2seq import Seq2SeqModel
from consilience.models.tokens import candidates_in_slot, slot_anchor
from reference import PATTERNS, QUERIES, TEMPLATE, scores_of, words_of

CANDIDATES = words_of(*WORDS)
MIXED = words_of(*WORDS, "Parisal", "Berlin Rome", "Berlin Rome Oslo", "Berlin Oslo", "Romeal")
FIRST = QUERIES[::6]
"""A query of each pattern: the object last, first, and in brackets."""


@pytest.mark.parametrize(("family", "takes_trees"), [("gpt2", True), ("mamba", False)])
def test_a_family_that_cannot_read_trees_says_so(family, takes_trees, model_folder):
    model = load_model(str(model_folder(family)))
    assert bool(model.scorer.longest) is takes_trees
    note = "this family does not take a tree of sentences; each sentence is scored separately"
    assert model.notes == [note] * (not takes_trees)


def test_a_word_at_the_start_has_the_token_that_it_has_there(model_folder):
    """RoBERTa's tokens carry the space on their left; strict looks at the slot, published not."""
    tokens = {}
    for protocol in ("strict", "published"):
        model = load_model(str(model_folder("roberta")), protocol=protocol)
        tokens[protocol] = {int(s.rows[0]): s.tokens for s in model.score(FIRST, CANDIDATES)}
    spaced = tuple("Ġ" + word for word in WORDS)
    assert tokens["published"][0] == spaced
    assert tokens["strict"] == {0: spaced, 1: tuple(WORDS), 2: tuple(WORDS)}


def test_under_published_words_with_one_token_share_its_score(model_folder):
    pieces = "1 of 2 candidates (Parisal) are several tokens; their first piece represents them"
    for family, words, same, notes in (
        ("bert", ("Paris", "Parisal"), [0, 0], [f"{pieces}, as in the released code"]),
        ("bert-uncased", ("Rome", "rome", "Oslo"), [0, 0, 2], []),
    ):
        model = load_model(str(model_folder(family)), protocol="published")
        (scores,) = model.score(QUERIES[:1], words_of(*words))
        assert (scores.reasons, scores.same.tolist(), model.notes) == ({}, same, notes)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_whole_vocabulary_is_every_word_that_is_one_token_there(family, model_folder):
    model = load_model(str(model_folder(family)))
    for scores in model.score(FIRST, None):
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
    words = words_of(*WORDS, "Parisal", "Romero")
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
    scores = {s.rows[0]: s for s in load_model(str(folder)).score(FIRST, None)}
    last, first = scores[0], scores[1]
    assert "only where it comes last" in first.unasked
    assert np.isnan(first.logprob).all()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prefix = tokenizer("The capital of France is", add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = model(torch.tensor([[tokenizer.bos_token_id, *prefix]])).logits[0, -1]
    paris, rome = (last.logprob[0, last.words.index(word)] for word in ("Paris", "Rome"))
    one, other = logits[tokenizer.convert_tokens_to_ids(["ĠParis", "ĠRome"])].tolist()
    assert paris - rome == pytest.approx(one - other, abs=1e-4)


def test_a_causal_model_is_asked_up_to_its_last_position(model_folder):
    """64 positions take the start token and 63 of a sentence's 64 tokens; the next word 63."""
    model = load_model(str(model_folder("gpt2")))
    words = words_of("Oslo")
    pattern = Pattern("[X] [Y]")
    tail = len(model.tokenizer(" Oslo", add_special_tokens=False).input_ids)

    def unasked(length):
        subject = "~" * (length - tail)
        ids = model.tokenizer(subject + " Oslo", add_special_tokens=False).input_ids
        assert len(ids) == length
        (scores,) = model.score([Query(pattern, subject, "Oslo")], words)
        return scores.unasked

    assert unasked(64) is None
    assert unasked(65) == "65 tokens, and the model takes 64"


@pytest.fixture
def pieces_model(model_folder):
    """``pieces_model("bert")``: a tiny model that fills in several tokens."""
    return lambda family: load_model(str(model_folder(family)), multi_token="left-to-right")


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "modernbert"])
def test_candidates_of_one_token_score_as_with_one_mask(family, model_folder, pieces_model):
    model = pieces_model(family)
    expected, _ = scores_of(load_model(str(model_folder(family))), QUERIES, CANDIDATES)
    for words in (CANDIDATES, MIXED):
        found, _ = scores_of(model, QUERIES, words)
        comparable = np.where(np.isnan(expected), np.nan, found[:, : len(WORDS)])
        for row, known in zip(comparable, expected, strict=True):
            some = ~np.isnan(known)
            ours = reference.normalised(row[some]) if some.any() else []
            np.testing.assert_allclose(ours, known[some], atol=1e-5, rtol=0)
    sheet = candidates_in_slot(model.tokenizer, MIXED.words, " ", "strict", several=True)
    assert {1, 2, 3} <= {len(ids) for ids in sheet.tokens}
    (scores,) = model.score(QUERIES[:1], MIXED)
    single = {word for word, entry in zip(MIXED.words, scores.tokens, strict=True) if entry}
    assert single <= set(WORDS)
    assert model.identity["multi_token"] == "left-to-right"
    assert family != "bert" or model.notes[-1] == (
        "5 of 11 candidates (Parisal, Berlin Rome, Berlin Rome Oslo and 2 more) are several "
        "tokens; they are filled in from left to right (PLL-word-l2r)"
    )


@pytest.mark.parametrize(("kind", "published"), [
    ("wordpiece", [True, True, True, True]),
    ("bpe", [True, True, True, True]),  # as RoBERTa's, whose mask takes the space on its left
    ("bpe, and a mask that takes no space", [False, True, True, False]),
    ("unigram", [False, True, False, False]),  # as XLM-R's and ALBERT's: '\u2581' after the mask
])  # fmt: skip
def test_the_tokens_around_a_mask_are_those_of_running_text(kind, published):
    """Under ``strict``. ``published``: whether those around the text of the mask are the same."""
    tokenizer = _tokenizer(kind.partition(",")[0])
    if "," in kind:
        mask = AddedToken("<mask>", lstrip=False, special=True)
        tokenizer.add_special_tokens({"mask_token": mask})
    queries = [*FIRST, Query(Pattern("[X] has [Y] , the city"), "France", "Oslo")]
    contexts = [query.pattern.around_object(query.subject) for query in queries]
    sentences = masked_sentences(tokenizer, contexts)
    released = masked_sentences(tokenizer, contexts, "published")
    assert [ids == other for ids, other in zip(sentences, released, strict=True)] == published
    for (left, right), ids, other in zip(contexts, sentences, released, strict=True):
        assert other == tokenizer(left + tokenizer.mask_token + right).input_ids
        at, words = ids.index(tokenizer.mask_token_id), ("Oslo", "Lisbon", "Parisal", "New York")
        sheet = candidates_in_slot(
            tokenizer, words, slot_anchor(left, "strict"), "strict", several=True
        )
        assert not sheet.reasons
        for word, tokens in zip(words, sheet.tokens, strict=True):
            filled = [*ids[:at], *tokens, *ids[at + 1 :]]
            assert filled == tokenizer(left + word + right).input_ids


def test_parts_of_the_queries_are_as_all_together(pieces_model, model_folder, monkeypatch):
    model = pieces_model("bert")
    whole, _ = scores_of(model, QUERIES[::2], MIXED)
    (every,), (best,) = (
        list(model.score(QUERIES[:6], CANDIDATES, every=every)) for every in (True, False)
    )
    np.testing.assert_array_equal(best.logprob, every.logprob)  # one token each: all are scored
    plain = load_model(str(model_folder("bert"))).score(FIRST, None)
    for one, other in zip(plain, model.score(FIRST, None), strict=True):
        assert one.words == other.words, "the whole vocabulary is asked with one mask"
        np.testing.assert_allclose(one.logprob, other.logprob, atol=1e-5)
    monkeypatch.setattr("consilience.models.masked.MOST_SLOTS", {"cpu": 1})
    parts, _ = scores_of(model, QUERIES[::2], MIXED)
    assert len(list(model.score(QUERIES[::2], MIXED))) == 9
    np.testing.assert_allclose(parts, whole, atol=1e-5, rtol=0)
    message = r"protocol 'published'; expected strict.*strict"
    refused(message, MaskedModel, None, "published", "left-to-right")


def test_several_tokens_have_to_fit_and_may_merge_with_what_precedes(pieces_model):
    """With the masks of the longest candidate the sentence must still fit."""
    model = pieces_model("bert")
    fits = "a " * (64 - len(model.tokenizer("The capital of  is [MASK].").input_ids))
    query = [Query(PATTERNS[0], fits, "Paris")]
    assert scores_of(model, query, CANDIDATES)[1] == {0: {}}
    assert scores_of(model, query, MIXED)[1] == {0: "66 tokens, and the model takes 64"}
    glued = [Query(Pattern("i[Y] [X]"), "France", "n")]
    _, reasons = scores_of(pieces_model("roberta"), glued, words_of("n", "Paris"))
    assert reasons == {0: {"n": "merged with 'i' on its left"}}


def pretrained(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return Pretrained("seq2seq", model, AutoTokenizer.from_pretrained(folder), {"model": "tiny"})


def build_bart(folder, **settings):
    """Save a small random BART; its tokenizer begins every text with a token."""
    tokenizer = _tokenizer("bpe")
    tokenizer.eos_token = "</s>"
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("pad", "eos")}
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=64, bos_token_id=tokenizer.cls_token_id,
        decoder_start_token_id=tokenizer.eos_token_id, **ids, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    BartForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_any_encoder_decoder_with_a_cache_takes_a_template(tmp_path):
    """BART has positions of its own."""
    build_bart(tmp_path, init_std=0.4)
    model = load_model(str(tmp_path), template=TEMPLATE)
    words = words_of("Paris", "Rome", "New", "New York", "Newark", "Parisian", "Oslo in Paris")
    found, _ = scores_of(model, QUERIES[::3], words)
    of = reference.template
    expected = [[of(tmp_path, query, word) for word in words.words] for query in QUERIES[::3]]
    difference = found - np.array(expected)
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=3e-5)
    _, reasons = scores_of(model, QUERIES[:1], words_of("Paris", "Paris " * 70))
    assert "tokens, and the model takes 64" in reasons[0]["Paris " * 70]
    refused(r"was not trained with a token <extra_id_0>.*--template", load_model, str(tmp_path))


def test_what_closes_a_word_counts(model_folder):
    """'New' is less probable than the beginning of 'New York' that is spelt so."""
    model = load_model(str(model_folder("t5")))
    found, _ = scores_of(model, QUERIES[:1], words_of("New", "New York"))
    (ids,) = model.inputs(QUERIES[:1])
    new = list(model.candidate_tokens(("New",)).tokens[0])
    assert model.tokenizer.convert_ids_to_tokens(new) == ["▁New", "<extra_id_1>"]
    plain = pretrained(model_folder("t5")).model
    of = reference.decoder_sum
    beginning, whole = (of(plain, list(ids), model.prefix, part) for part in (new[:1], new))
    assert found[0, 0] == pytest.approx(whole, abs=1e-5)
    assert whole < beginning - 0.01


@pytest.mark.parametrize("family", ["t5", "umt5"])
def test_candidates_with_one_embedding_have_one_score_to_the_last_bit(family, model_folder):
    """In any batch, and whether or not all candidates are scored."""
    loaded = pretrained(model_folder(family))
    plain = loaded.model
    paris, rome = loaded.tokenizer.convert_tokens_to_ids(["▁Paris", "▁Rome"])
    with torch.no_grad():
        for weight in (plain.shared.weight, plain.get_output_embeddings().weight):
            weight[rome] = weight[paris]
    model = Seq2SeqModel(loaded)
    words = words_of("Rome", "Paris", "Parisian")
    found = []
    for budget in (1, 100_000):
        model.budget = Budget(budget)
        found += [scores_of(model, QUERIES, words, every=every)[0] for every in (True, False)]
    best = (np.nanargmax(found[0], axis=1) == 0).nonzero()[0]
    assert best.size, "'Rome' is first among equals somewhere"
    target = list(model.candidate_tokens(words.words).tokens[0])
    inputs = list(model.inputs(QUERIES))
    with reproducibly():
        alone = [float(*model.scorer.alone(list(inputs[row]), [target])) for row in best]
    for scores in found:
        np.testing.assert_array_equal(scores[best, :2], np.stack([alone, alone], axis=1))


def test_a_sequence_to_sequence_model_has_no_vocabulary(model_folder):
    (scores,) = load_model(str(model_folder("t5"))).score(QUERIES, None)
    assert scores.unasked == seq2seq.NOT_THE_VOCABULARY
    assert scores.rows.tolist() == list(range(len(QUERIES)))


def test_a_model_or_a_template_that_lacks_what_it_needs_is_refused(model_folder):
    for template, message in (
        ("Fill in the blank.", r"has 0 \{sentence\}; expected exactly one \{sentence\}"),
        ("{sentence} {sentence}", r"has 2 \{sentence\}; .*Write it so: --template"),
    ):
        refused(message, load_model, str(model_folder("t5")), template=template)
    loaded = pretrained(model_folder("t5"))
    model, good = loaded.model, Seq2SeqModel(loaded)
    loaded.tokenizer.eos_token = None
    refused("no end-of-sequence token", Seq2SeqModel, loaded, TEMPLATE)
    with torch.no_grad():
        model.decoder.final_layer_norm.weight[:] = torch.nan
    refused(r"not numbers in torch.float32; .*--dtype", list, good.score(QUERIES[:1], CANDIDATES))
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    refused("'tiny' has no decoder_start_token_id; expected", Seq2SeqModel, loaded)


def test_baselines():
    words = Candidates(("b", "a", "c"), (1, 2, 2))
    queries = [Query(query.pattern, query.subject, "c") for query in QUERIES[::2]]

    def answers(name, seed=0):
        (scores,) = load_model(f"baseline:{name}", seed=seed).score(queries, words)
        np.testing.assert_array_equal(np.exp(scores.logprob).sum(axis=1), 1)
        return [words.words[n] for n in scores.logprob.argmax(axis=1)]

    assert answers("majority") == ["a"] * 9, "of equally common objects the first to appear"
    assert (answers("constant"), answers("oracle")) == (["b"] * 9, ["c"] * 9)
    assert answers("random") == answers("random") != answers("random", seed=1)
    assert set(answers("random")) == set("abc")
    refused("no vocabulary", lambda: list(load_model("baseline:majority").score(queries, None)))
    refused("--dtype with a baseline model", load_model, "baseline:oracle", dtype="float16")
