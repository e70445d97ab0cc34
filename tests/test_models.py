"""Rules of single families; and what every family promises: the reference's scores, or a reason."""

from functools import cache

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import reference
from checks import refused
from conftest import WORDS, _tokenizer, cases
from consilience import Candidates, Pattern, Query, load_model
from consilience.models import batches
from consilience.models.batches import Budget, one_thread
from consilience.models.loading import Pretrained
from consilience.models.masked import MaskedModel, masked_sentences
from consilience.models.seq2seq import Seq2SeqModel
from consilience.models.tokens import candidates_in_slot, slot_anchor
from reference import PATTERNS, QUERIES, TEMPLATE, budget_of, normalised, scores_of, words_of

pytestmark = pytest.mark.usefixtures("two_threads")

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
    first = lambda word: fill.tokenizer.tokenize(word)[0]  # noqa: E731
    spelt = {"bert": str, "roberta": " {}".format, "albert": first}
    targets = [*map(spelt[family], words.words)]
    model = load_model(folder, protocol="published")
    for scores in model.score(QUERIES, words):
        for row, logprob in zip(scores.rows, scores.logprob, strict=True):
            left, right = QUERIES[row].pattern.around_object(QUERIES[row].subject)
            best = fill(left + fill.tokenizer.mask_token + right, targets=targets)[0]
            ours = scores.tokens[np.nanargmax(logprob)]
            assert ours == fill.tokenizer.convert_ids_to_tokens(best["token"])


def test_a_causal_model_is_asked_up_to_its_last_position(model_folder):
    """64 positions take the start token and 63 of a sentence's 64 tokens."""
    model = load_model(str(model_folder("gpt2")))
    size = lambda text: len(model.tokenizer(text, add_special_tokens=False).input_ids)  # noqa: E731
    for length, unasked in (64, None), (65, "65 tokens, and the model takes 64"):
        subject = "~" * (length - size(" Oslo"))
        assert size(subject + " Oslo") == length
        (scores,) = model.score([Query(Pattern("[X] [Y]"), subject, "Oslo")], words_of("Oslo"))
        assert scores.unasked == unasked


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "modernbert"])
def test_candidates_of_one_token_score_as_with_one_mask(family, model_folder):
    model = load_model(str(model_folder(family)), candidates="pieces")
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
        mask = transformers.AddedToken("<mask>", lstrip=False, special=True)
        tokenizer.add_special_tokens({"mask_token": mask})
    queries = [*FIRST, Query(Pattern("[X] has [Y] , the city"), "France", "Oslo")]
    contexts = [query.pattern.around_object(query.subject) for query in queries]
    sentences = masked_sentences(tokenizer, contexts)
    released = masked_sentences(tokenizer, contexts, "published")
    assert [ids == other for ids, other in zip(sentences, released, strict=True)] == published
    for (left, right), ids, other in zip(contexts, sentences, released, strict=True):
        assert other == tokenizer(left + tokenizer.mask_token + right).input_ids
        at, words = ids.index(tokenizer.mask_token_id), ("Oslo", "Lisbon", "Parisal", "New York")
        anchor = slot_anchor(left, "strict")
        sheet = candidates_in_slot(tokenizer, words, anchor, "strict", several=True)
        assert not sheet.reasons
        for word, tokens in zip(words, sheet.tokens, strict=True):
            filled = [*ids[:at], *tokens, *ids[at + 1 :]]
            assert filled == tokenizer(left + word + right).input_ids


def test_parts_of_the_queries_are_as_all_together(load, model_folder, monkeypatch):
    model = load("bert", "pieces")
    whole, _ = scores_of(model, QUERIES[::2], MIXED)
    (every,) = model.score(QUERIES[:6], CANDIDATES)
    (best,) = model.score(QUERIES[:6], CANDIDATES, every=False)
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
    refused(message, MaskedModel, None, "published", takes_pieces=True)


def test_several_tokens_have_to_fit_and_may_merge_with_what_precedes(load):
    """With the masks of the longest candidate the sentence must still fit."""
    model = load("bert", "pieces")
    fits = "a " * (64 - len(model.tokenizer("The capital of  is [MASK].").input_ids))
    query = [Query(PATTERNS[0], fits, "Paris")]
    assert scores_of(model, query, CANDIDATES)[1] == {0: {}}
    assert scores_of(model, query, MIXED)[1] == {0: "66 tokens, and the model takes 64"}
    glued = [Query(Pattern("i[Y] [X]"), "France", "n")]
    _, reasons = scores_of(load("roberta", "pieces"), glued, words_of("n", "Paris"))
    assert reasons == {0: {"n": "merged with 'i' on its left"}}


def pretrained(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return Pretrained(
        "seq2seq", model, transformers.AutoTokenizer.from_pretrained(folder), {"model": "tiny"}
    )


def build_bart(folder, **settings):
    """Save a small random BART; its tokenizer begins every text with a token."""
    tokenizer = _tokenizer("bpe")
    tokenizer.eos_token = "</s>"
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("pad", "eos")}
    config = transformers.BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=64, bos_token_id=tokenizer.cls_token_id,
        decoder_start_token_id=tokenizer.eos_token_id, **ids, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)
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
    with one_thread():
        alone = [float(*model.scorer.alone(list(inputs[row]), [target])) for row in best]
    for scores in found:
        np.testing.assert_array_equal(scores[best, :2], np.stack([alone, alone], axis=1))


def test_a_model_or_a_template_that_lacks_what_it_needs_is_refused(model_folder):
    for template, found in ("Fill in.", 0), ("{sentence} {sentence}", 2):
        message = rf"has {found} \{{sentence\}}; expected exactly one .*Write it so: --template"
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


def test_baselines(model_folder):
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
    refused("--dtype with a baseline model", load_model, "baseline:oracle", dtype="float16")


MANY = words_of(
    *WORDS, "Berlin Rome", "Berlin Rome Oslo", "Parisal", "Romeal", "New York", "New Delhi",
    "Newark", "Oslo in Paris",
)  # fmt: skip
OPTIONS = {way: {} for way in ("masked", "causal", "seq2seq")}
OPTIONS |= {"pieces": {"candidates": "pieces"}, "template": {"template": TEMPLATE}}
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
    return cache(lambda family, way: scores_of(load(family, way), QUERIES, MANY)[0])


@pytest.mark.parametrize(("family", "way"), SOME)
def test_batches_order_threads_and_repeats_change_no_answer(family, way, load, whole):
    model, expected = load(family, way), whole(family, way)
    answers = np.nanargmax(expected, axis=1)
    for tokens, every in ((1, True), (9, True), (9, False)):
        with budget_of(model, tokens):
            found, _ = scores_of(model, THREE, MANY, every=every)
        known = ~np.isnan(found)
        np.testing.assert_allclose(found[known], expected[::7][known], atol=1e-4, rtol=1e-5)
        np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers[::7])
    twice, _ = scores_of(model, FEW + FEW[::-1], MANY)
    np.testing.assert_array_equal(twice, np.concatenate([twice[:6], twice[:6][::-1]]))
    torch.set_num_threads(1)
    order = np.random.default_rng(0).permutation(len(QUERIES))
    found, _ = scores_of(model, [QUERIES[n] for n in order], MANY)
    np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers[order])


@pytest.mark.parametrize(("family", "way", "is_open"), [
    *((*one, False) for one in SOME),
    ("bert", "masked", True),
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
    golds = [MANY.words.index(query.gold) for query in queries]
    assert all(s.logprob is None for s in model.score(queries, MANY, every=False))
    for tokens in (60, 100_000):
        with budget_of(model, tokens):
            found, _ = scores_of(model, queries, MANY, every=False)
        finished = ~np.isnan(found)
        if family not in ("t5", "mt5"):  # which reads every candidate
            assert not finished.all(), "something is left out"
        np.testing.assert_allclose(found[finished], expected[finished], atol=1e-4, rtol=1e-5)
        np.testing.assert_array_equal(np.nanargmax(found, axis=1), expected.argmax(axis=1))
        assert finished[np.arange(len(queries)), golds].all()
        best = np.where(finished, -np.inf, expected).max(axis=1)
        assert (best < expected.max(axis=1) - 1e-5).all(), "what is left out is worse"


@pytest.mark.parametrize(("family", "way"), [("bert", "masked"), ("bert", "pieces"),
                                             ("gpt2", "causal"), ("t5", "seq2seq")])  # fmt: skip
def test_half_precision_comes_near(family, way, whole, model_folder):
    exact = whole(family, way)[::3]
    model = load_model(str(model_folder(family)), dtype="bfloat16", **OPTIONS[way])
    half, _ = scores_of(model, FEW, MANY)
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
    found, _ = scores_of(model, QUERIES[::step], MANY)
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
    assert np.isnan(found).all() and by_row == {0: {"日本": "unknown to the tokenizer"}}
    assert list(model.score([], words_of(*words))) == []


@pytest.mark.parametrize(("family", "way", "subject", "reason"), cases("queries_refused"))
def test_a_query_that_cannot_be_asked_says_why(family, way, subject, reason, load, monkeypatch):
    model = load(family, way)
    if family == "t5":
        monkeypatch.setattr(model, "longest", 60)
    queries = [QUERIES[0], Query(PATTERNS[0], subject.replace("LONG", "a " * 99), "Paris")]
    kinds = [words_of(*WORDS), None] if way == "masked" else [words_of(*WORDS)]
    for candidates in kinds:
        unasked = {int(r): s.unasked for s in model.score(queries, candidates) for r in s.rows}
        assert unasked[0] is None
        assert reason in unasked[1]


TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=8)
WORD = st.one_of(
    TEXT.filter(str.strip),
    st.lists(st.sampled_from([*WORDS, "is", "e", "s"]), min_size=1, max_size=3).map(" ".join),
)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
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
    one_by_one, _ = scores_of(model, FEW, MANY)
    monkeypatch.setattr(batches, "NEAR_TIES", {"cpu": 4})
    model.tie, passes, at_mask = np.inf, [], model.at_mask

    def watched(entries):
        logits_of = at_mask(entries)
        return lambda sentences: passes.append(sentences) or logits_of(sentences)

    monkeypatch.setattr(model, "at_mask", watched)
    together, _ = scores_of(model, FEW, MANY)
    np.testing.assert_allclose(together, one_by_one, atol=1e-5, rtol=0)
    lengths = {tuple(ids) for of_pass in passes for ids in of_pass}
    settled = [of_pass for of_pass in passes if len(of_pass) == 4]
    assert {tuple(ids) for of_pass in settled for ids in of_pass} == lengths


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("family", "way"), SOME)
def test_an_accelerator_gives_the_same_scores(family, way, whole, model_folder):
    model = load_model(str(model_folder(family)), device="cuda", **OPTIONS[way])
    there, _ = scores_of(model, FEW, MANY)
    np.testing.assert_allclose(whole(family, way)[::3], there, atol=1e-3, rtol=1e-4)
