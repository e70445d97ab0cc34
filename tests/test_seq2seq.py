"""Sequence-to-sequence models against a plain, slow reference, and their rules of honesty."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartConfig

from conftest import SEQ2SEQ, _tokenizer
from consilience import Candidates, ConsilienceError, Pattern, Query
from consilience.ask import judge
from consilience.models.batches import Budget, one_thread
from consilience.models.fast import Decoding, Tree, reproducibly
from consilience.models.seq2seq import Seq2SeqModel

WORDS = ("Paris", "Rome", "New", "New York", "New Delhi", "Newark", "Parisian", "Oslo in Paris")
CANDIDATES = Candidates(WORDS, (1,) * len(WORDS))
PATTERNS = [
    Pattern.parse(text)
    for text in ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X] ([Y]) is big.")
]
SUBJECTS = ["France", "Germany", "the old Italy"]
QUERIES = [Query(p, s, "New York") for p in PATTERNS for s in SUBJECTS]
TEMPLATES = [None, "Fill in the blank: {sentence}\nAnswer: {"]
PAIRS = list(zip(SEQ2SEQ, [None, TEMPLATES[1], None], strict=True))
LOADED = {}


def load(folder, template=None, budget=None):
    """The model of a folder, loaded once for each template."""
    if (folder, template) not in LOADED:
        LOADED[folder, template] = Seq2SeqModel(*pretrained(folder), {"model": "tiny"}, template)
    model = LOADED[folder, template]
    model.budget = Budget(budget) if budget else Budget.of(model.model)
    return model


def pretrained(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def totals_of(model, queries, candidates=CANDIDATES, every=True):
    """Log-probabilities (query, candidate) of the objects, and the reasons of each query."""
    found = np.full((len(queries), len(candidates.words)), 99.0)
    reasons = {}
    for scores in model.score(queries, candidates, every=every):
        assert (found[scores.rows] == 99).all(), "a query was answered twice"
        found[scores.rows] = np.nan if scores.unasked else scores.totals
        if every and not scores.unasked:
            known = ~np.isnan(scores.totals)
            assert (np.isnan(scores.logprob) == ~known).all()
            for own, row, asked in zip(scores.logprob, scores.totals, known, strict=True):
                if asked.any():
                    assert np.exp(own[asked]).sum() == pytest.approx(1)
                    np.testing.assert_allclose(np.ptp((own - row)[asked]), 0, atol=1e-9)
        reasons |= dict.fromkeys(scores.rows.tolist(), scores.unasked or scores.reasons)
    assert not (found == 99).any(), "a query was not answered"
    return found, reasons


def reference(folder, query, word, template=None):
    """One pass of the whole model for one candidate: the sum of its tokens' log-probabilities."""
    if folder not in LOADED:
        LOADED[folder] = pretrained(folder)
    model, tokenizer = LOADED[folder]
    if template is None:
        blank = " " * ("<extra_id_0>" not in tokenizer.get_vocab())
        text = query.pattern.fill(query.subject, blank + "<extra_id_0>")
        target = f"<extra_id_0> {word} <extra_id_1>"
        labels = tokenizer(target, add_special_tokens=False).input_ids
        given_ = 1
    else:
        text = template.replace("{sentence}", query.pattern.fill(query.subject, "_"))
        labels = tokenizer(word).input_ids
        given_ = 0
    start = model.config.decoder_start_token_id
    with torch.no_grad(), one_thread():
        logits = model(
            input_ids=tokenizer(text, return_tensors="pt").input_ids,
            decoder_input_ids=torch.tensor([[start, *labels[:-1]]]),
        ).logits[0]
    steps = logits.double().log_softmax(-1)
    return sum(steps[n, labels[n]].item() for n in range(given_, len(labels)))


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("family", SEQ2SEQ)
def test_t5_families_score_as_the_reference(family, template, model_folder):
    folder = model_folder(family)
    model = load(folder, template)
    with one_thread():  # as the reference: the order of additions decides the last bits
        found, reasons = totals_of(model, QUERIES)
    assert not any(reasons.values())
    expected = [[reference(folder, query, word, template) for word in WORDS] for query in QUERIES]
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=0)
    assert np.ptp(found, axis=1).min() > 1, "the scores of this tiny model differ"
    assert np.ptp(found, axis=0).max() > 0.3, "and the encoder has a say in them"
    assert model.identity["template"] == template


def test_any_encoder_decoder_with_a_cache_takes_a_template(tmp_path):
    """BART has positions of its own, and its tokenizer begins every text with a token."""
    tokenizer = _tokenizer("bpe")
    tokenizer.eos_token = "</s>"
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("pad", "eos")}
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=64, init_std=0.4,
        decoder_start_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.cls_token_id, **ids,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found, _ = totals_of(load(tmp_path, "Fill: {sentence}"), QUERIES)
    expected = [
        [reference(tmp_path, q, word, "Fill: {sentence}") for word in WORDS] for q in QUERIES
    ]
    difference = found - np.array(expected)
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=3e-5)
    long = Candidates(("Paris", "Paris " * 70), (1, 1))
    _, reasons = totals_of(load(tmp_path, "Fill: {sentence}"), QUERIES[:1], long)
    assert "tokens, and the model takes 64" in reasons[0]["Paris " * 70]
    with pytest.raises(ConsilienceError, match=r"'tiny' has no token <extra_id_0>.*--template"):
        load(tmp_path)


@pytest.mark.parametrize(("family", "template"), PAIRS)
def test_scores_do_not_depend_on_the_batch(family, template, model_folder):
    model = load(model_folder(family), template, budget=100_000)
    queries = QUERIES[::2]
    together, _ = totals_of(model, queries * 2)
    np.testing.assert_array_equal(together[: len(queries)], together[len(queries) :])
    alone = np.concatenate([totals_of(model, [query])[0] for query in queries])
    np.testing.assert_allclose(alone, together[: len(queries)], atol=1e-5, rtol=0)
    for budget in (1, 100):
        model.budget = Budget(budget)
        found, _ = totals_of(model, queries)
        np.testing.assert_allclose(found, together[: len(queries)], atol=1e-5, rtol=0)


@pytest.mark.parametrize("budget", [60, 100_000])
@pytest.mark.parametrize(("family", "template"), PAIRS)
def test_the_best_and_the_gold_are_those_of_all(family, template, budget, model_folder):
    """Where the same sentence is asked with two golds, both are finished."""
    asked = QUERIES[::2]
    queries = asked + [Query(q.pattern, q.subject, "Oslo in Paris") for q in asked]
    model = load(model_folder(family), template, budget)
    every, _ = totals_of(model, queries)
    found, _ = totals_of(model, queries, every=False)
    finished = ~np.isnan(found)
    np.testing.assert_allclose(found[finished], every[finished], atol=1e-5, rtol=0)
    np.testing.assert_array_equal(np.nanargmax(found, axis=1), every.argmax(axis=1))
    golds = [WORDS.index(query.gold) for query in queries]
    assert finished[np.arange(len(queries)), golds].all()
    best = np.where(finished, -np.inf, every).max(axis=1)
    assert (best < every.max(axis=1) - 1e-5).all(), "what is left out is worse"
    assert not finished.all(), "something is left out"
    (scores,) = model.score(queries[:1], CANDIDATES, every=False)
    assert scores.logprob is None
    columns = judge(scores, [queries[0].gold])
    assert columns["answer"][0] == WORDS[every[0].argmax()]
    assert columns["gold_text_logprob"][0] == pytest.approx(every[0, golds[0]], abs=1e-5)


def test_each_beginning_is_read_once_a_sentence_and_a_last_token_never(model_folder):
    """The prefix, a, a b and a c are read for each of two sentences; what they end in is not."""
    model = load(model_folder("t5"))
    tree = Tree.of(0, [[7, 8, 9], [7, 8, 10], [7, 11, 9], [12]])
    for budget in (1, 1000):
        decoding = Decoding(model.model, tree, Budget(budget), [[4, 5, 1], [6, 5, 1]], [0, 3])
        decoding.read_all()
        assert decoding.read_nodes == 2 * 4
        expected = [[model_sum(model.model, ids, [0, 3], target) for target in
                     ([7, 8, 9], [7, 8, 10], [7, 11, 9], [12])] for ids in ([4, 5, 1], [6, 5, 1])]  # fmt: skip
        np.testing.assert_allclose(decoding.totals(), expected, atol=1e-5, rtol=0)


def model_sum(model, ids, prefix, target):
    with torch.no_grad(), one_thread():
        logits = model(
            input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([prefix + target[:-1]])
        ).logits[0, len(prefix) - 1 :]
    steps = logits.double().log_softmax(-1)
    return sum(steps[n, id_].item() for n, id_ in enumerate(target))


def test_what_closes_a_word_counts(model_folder):
    """'New' is less probable than the beginning of 'New York' that is spelt so."""
    model = load(model_folder("t5"))
    found, _ = totals_of(model, QUERIES[:1])
    ids = model.tokenizer("The capital of France is <extra_id_0>.").input_ids
    new = list(model.candidate_tokens(("New",)).tokens[0])
    assert model.tokenizer.convert_ids_to_tokens(new) == ["▁New", "<extra_id_1>"]
    beginning = model_sum(model.model, ids, model.prefix, new[:1])
    whole = model_sum(model.model, ids, model.prefix, new)
    assert found[0, WORDS.index("New")] == pytest.approx(whole, abs=1e-5)
    assert whole < beginning - 0.01


@pytest.mark.parametrize("family", ["t5", "umt5"])
def test_candidates_that_come_very_near_each_other_are_scored_by_themselves(family, model_folder):
    """Two words of one embedding have the same score to the last bit, in any company."""
    plain, tokenizer = pretrained(model_folder(family))
    paris, rome = tokenizer.convert_tokens_to_ids(["▁Paris", "▁Rome"])
    with torch.no_grad():
        for weight in (plain.shared.weight, plain.get_output_embeddings().weight):
            weight[rome] = weight[paris]
    model = Seq2SeqModel(plain, tokenizer, {"model": "tied"})
    words = Candidates(("Rome", "Paris", "Parisian"), (1,) * 3)
    found = []
    for budget in (1, 100_000):
        model.budget = Budget(budget)
        found += [totals_of(model, QUERIES, words, every=every)[0] for every in (True, False)]
    best = (np.nanargmax(found[0], axis=1) == 0).nonzero()[0]
    assert best.size, "'Rome' is first among equals somewhere"
    target = list(model.candidate_tokens(words.words).tokens[0])
    inputs = list(model.inputs(QUERIES))
    with reproducibly():
        alone = [model.alone(list(inputs[row]), target) for row in best]
    for each in found:
        np.testing.assert_array_equal(each[best, 0], alone)
        np.testing.assert_array_equal(each[best, 1], alone)


def test_candidates_that_cannot_be_told_take_no_part(model_folder):
    words = Candidates(("Paris", "日本", " Paris", "<extra_id_1>", "a </s>", " "), (1,) * 6)
    reasons = {
        "日本": "unknown to the tokenizer",
        " Paris": "the same tokens as 'Paris'",
        "<extra_id_1>": "has the special token '<extra_id_1>' in it",
        "a </s>": "has the special token '</s>' in it",
        " ": "the tokenizer leaves nothing of it",
    }
    for template in TEMPLATES:
        model = load(model_folder("t5"), template)
        (scores,) = model.score(QUERIES[:1], words)
        assert scores.reasons == reasons
        assert scores.same.tolist() == [0, 1, 0, 3, 4, 5]
        assert scores.logprob[0, 0] == 0, "normalised over those that take part"
        assert np.isnan(scores.totals[0, 1:]).all()
        (scores,) = model.score(QUERIES[:1], Candidates(("日本",), (1,)), every=False)
        assert np.isnan(scores.totals).all()
        assert list(model.score([], words)) == []


def test_a_sentence_that_cannot_be_asked_says_why(model_folder):
    for family in ("t5", "mt5"):
        model = Seq2SeqModel(*pretrained(model_folder(family)), {"model": "tiny"})
        model.longest = 60
        queries = [
            QUERIES[0],
            Query(PATTERNS[0], "<extra_id_1>", "Paris"),
            Query(PATTERNS[0], "a " * 99, "x"),
        ]
        _, reasons = totals_of(model, queries)
        assert reasons[0] == {}
        assert reasons[1] == "sentinel tokens in the sentence: 2, not 1"
        assert "tokens, and the model takes 60" in reasons[2]
        _, reasons = totals_of(load(model_folder(family), TEMPLATES[1]), queries[:2])
        assert reasons[1] == "sentinel tokens in the sentence: 1, not 0"


def test_the_whole_vocabulary_is_not_asked(model_folder):
    (scores,) = load(model_folder("t5")).score(QUERIES, None)
    assert scores.unasked == (
        "a sequence-to-sequence model is asked for the relation's objects only"
    )
    assert scores.rows.tolist() == list(range(len(QUERIES)))
    assert judge(scores, ["New York"] * len(QUERIES))["excluded"][0] == scores.unasked


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Fill in the blank.", r"has 0 \{sentence\}; expected exactly one \{sentence\}"),
        ("{sentence} {sentence}", r"has 2 \{sentence\}; .*Write it so: --template"),
    ],
)
def test_a_template_has_one_sentence(template, message, model_folder):
    with pytest.raises(ConsilienceError, match=message):
        load(model_folder("t5"), template)


def test_a_model_that_lacks_what_it_needs_is_refused(model_folder):
    model, tokenizer = pretrained(model_folder("t5"))
    good = Seq2SeqModel(model, tokenizer, {"model": "tiny"})
    tokenizer.eos_token = None
    with pytest.raises(ConsilienceError, match="no end-of-sequence token"):
        Seq2SeqModel(model, tokenizer, {"model": "tiny"}, TEMPLATES[1])
    with torch.no_grad():
        model.decoder.final_layer_norm.weight[:] = torch.nan
    with pytest.raises(ConsilienceError, match=r"not numbers in torch.float32; .*--dtype"):
        list(good.score(QUERIES[:1], CANDIDATES))
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(ConsilienceError, match="'tiny' has no decoder_start_token_id; expected"):
        Seq2SeqModel(model, tokenizer, {"model": "tiny"})


TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=8)
WORD = st.one_of(
    TEXT.filter(str.strip),
    st.lists(st.sampled_from([*WORDS, "is", "e", "s"]), min_size=1, max_size=3).map(" ".join),
)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(TEXT, TEXT, TEXT, st.lists(WORD, min_size=1, max_size=5, unique=True), st.booleans())
@pytest.mark.parametrize(("family", "template"), [("t5", TEMPLATES[1]), ("mt5", None)])
def test_any_text_is_scored_as_the_reference_or_said_why_not(
    family, template, model_folder, left, middle, subject, words, object_first
):
    assume(not set("[]") & set(left + middle))
    folder = model_folder(family)
    slots = ("[Y]", "[X]") if object_first else ("[X]", "[Y]")
    query = Query(Pattern.parse(f"{left}{slots[0]} {middle} {slots[1]}."), subject, words[0])
    found, reasons = totals_of(
        load(folder, template), [query], Candidates(tuple(words), (1,) * len(words))
    )
    if isinstance(reasons[0], str):
        assert np.isnan(found).all()
        return
    for word, total in zip(words, found[0], strict=True):
        assert np.isnan(total) == (word in reasons[0])
        if word not in reasons[0]:
            assert total == pytest.approx(reference(folder, query, word, template), abs=3e-5)
