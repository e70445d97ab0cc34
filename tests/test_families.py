"""The table of families: every model x facts, pairs, questions x what it chooses, what it writes.

Expected numbers are those of a plain pass of transformers for one text; what a family does not do
is a row with its message. Below it, models unlike those of the table.
"""

from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers

import consilience as cs
import reference
from checks import refused
from conftest import FAMILIES, MASKED, SEQ2SEQ, _tokenizer
from consilience.core.errors import Loading
from consilience.core.items import Choice, Pattern, Prompt, Question, TextPair
from consilience.models import load_model, load_prompt_model
from consilience.models.batches import text_logprobs
from consilience.models.classifier import PairFormat, load_pair_classifier
from consilience.models.loading import PACKAGED, kind_of_config, load_pretrained
from consilience.models.prompts import LONGEST_LABEL, LabelAsker, Writing
from consilience.plans.presentation import Presentation, Template, present
from consilience.types import Query
from pair_builders import MRPC, SAME, by_row, forms_of
from reference import QUERIES, TEMPLATE, Plain, normalised, plain, scores_of, words_of, written

CANDIDATES = words_of("Paris", "Berlin", "Rome", "Madrid", "Oslo", "Oslo in Paris", "New York")
THREE = QUERIES[::7]  # One of each pattern: the object last, first, in brackets
FORMS = forms_of([TextPair("0", "Paris is the capital", "Rome is in Italy", SAME[0])], ["reverse"])
OPTIONS = tuple(map(Choice, ("Rome", "Paris and Rome", "Oslo")))
PROMPTS = [
    present(Question("q", "g", {"": (text,)}, OPTIONS[0], OPTIONS), Presentation(
        template=Template("t", "{question} {options}"), labels=labels))
    for text in ("Rome and Paris ?", "the capital Paris") for labels in ("A", "none")
]  # fmt: skip
MODELS = [*FAMILIES, *SEQ2SEQ, *(f"packaged:{name}" for name in PACKAGED)]
NO_FACTS = "--generate with a suite of facts"
MUTE, NO_WEIGHTS = "does not write text", "lack 6 tensors of a masked language model"
REFUSED = {
    **{(one, "facts", "write"): NO_FACTS for one in MODELS},
    **{(one, kind, way): MUTE for one in MASKED
       for kind, way in (("pairs", "write"), ("questions", "score"), ("questions", "write"))},
    **{("packaged:minilm", kind, way): NO_WEIGHTS for kind, way in (
        ("facts", "score"), ("pairs", "write"), ("questions", "score"), ("questions", "write"))},
    ("packaged:minilm", "pairs", "score"): "lack 2 tensors of a classifier",
    ("packaged:smollm2", "pairs", "score"): "lack 1 tensors of a classifier",
    ("mamba", "pairs", "score"): "for this kind of AutoModel: AutoModelForSequenceClassification",
}  # fmt: skip
"""What is refused, with its message."""


@pytest.fixture(scope="module")
def loaded(model_folder):
    """``loaded("bert")``: the name for ``--model``, and the plain model of transformers."""

    @cache
    def load(family):
        if family.startswith("packaged:"):
            if not find_spec(PACKAGED[family.removeprefix("packaged:")][0]):
                pytest.skip(f"{family} is not installed")
            one = load_pretrained(family) if (family, "questions", "score") not in REFUSED else None
            return family, one and Plain(one.model.eval(), one.tokenizer)
        kind = "Masked" if family in MASKED else "Seq2Seq" if family in SEQ2SEQ else "Causal"
        one = plain(model_folder(family), getattr(transformers, f"AutoModelFor{kind}LM"))
        return str(model_folder(family)), Plain(*one)

    return load


@pytest.fixture
def pair_model(tmp_path, loaded):
    """``pair_model("bert")``: a classifier with the family's body, and the same of transformers."""

    def build(family):
        name, _ = loaded(family)
        if (family, "pairs", "score") in REFUSED:
            return load_pair_classifier(name, SAME, Loading("cpu")), None
        config = transformers.AutoConfig.from_pretrained(name, id2label=dict(enumerate(SAME)))
        torch.manual_seed(0)
        model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
        model.save_pretrained(tmp_path / "classifier")
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        tokenizer.save_pretrained(tmp_path / "classifier")
        folder = str(tmp_path / "classifier")
        return load_pair_classifier(folder, SAME, Loading("cpu")), Plain(model, tokenizer)

    return build


def some(family, values):
    """The first of the values for models that are not tiny."""
    return values[:1] if family.startswith("packaged:") else values


def facts_score(family, loaded, pair_model):
    name, one = loaded(family)
    queries = some(family, THREE)
    words = CANDIDATES if family in FAMILIES else words_of("Oslo", "a")
    found, _ = scores_of(load_model(name), queries, words)
    way = "masked" if family in MASKED else "seq2seq" if family in SEQ2SEQ else "causal"
    score, plain_one = getattr(reference, way), (one.model, one.tokenizer) if one else None
    expected = np.array([[score(plain_one, of, word) for word in words.words] for of in queries])
    known = ~np.isnan(expected)
    assert (np.isnan(found) == ~known).all() and known[:, :2].any(axis=0).all()
    for row, of_row in zip(expected, known, strict=True):
        if way == "masked" and of_row.any():
            row[of_row] = normalised(row[of_row])
    assert np.ptp(found[known]) > 0.3, "the scores of this model differ"
    return found[known], expected[known]


def facts_write(family, loaded, pair_model):
    cs.evaluate("mini", loaded(family)[0], generate=True)


def pairs_score(family, loaded, pair_model):
    model, one = pair_model(family)
    texts = [[segment.text for segment in form] for form in FORMS]
    texts = texts if model.input.reading.joined == "pair" else [[" ".join(of)] for of in texts]
    inputs = [one.tokenizer(*of, return_tensors="pt") for of in texts]
    with torch.no_grad():
        logits = [one.model(**of).logits[0].double().log_softmax(-1).numpy() for of in inputs]
    return by_row(model.score(FORMS), len(FORMS)), np.array(logits)


def pairs_write(family, loaded, pair_model):
    """The most probable text, and the log-probability of each label with what ends it."""
    name, one = loaded(family)
    read = load_prompt_model(name, loading=Loading("cpu"), writing=Writing(LONGEST_LABEL))
    model, forms = LabelAsker(read, MRPC, "{text}:"), FORMS[:1]
    is_decoder, is_chat = one.is_decoder, model.identity["chat"]
    ends = [one.tokenizer.eos_token_id] * is_chat
    ids = one.tokenizer(model.text(forms[0]), add_special_tokens=is_decoder)["input_ids"]
    ids = ids if is_decoder or is_chat else [*model.model.beginning, *ids]
    texts = SAME if is_decoder or is_chat else [f" {label}" for label in SAME]
    targets = [one.tokenizer(text, add_special_tokens=is_decoder)["input_ids"] for text in texts]
    assert written(model, forms) == [one.text(ids, LONGEST_LABEL)]
    (scores,) = model.score(forms)
    return scores.totals, [[one.total(ids, [*target, *ends]) for target in targets]]


def questions_score(family, loaded, pair_model):
    """Labels, and texts of which one begins another."""
    name, one = loaded(family)
    model, prompts = load_prompt_model(name, []), some(family, PROMPTS)
    found, expected = np.empty((2, len(prompts), 3))
    for scores in model.score(prompts):
        found[scores.rows] = scores.totals
    for row, prompt in enumerate(prompts):
        ids, targets = model.encode(prompt)
        expected[row] = [one.total(ids, target) for target in targets]
    return found, expected


def questions_write(family, loaded, pair_model):
    name, one = loaded(family)
    model = load_prompt_model(name, writing=Writing(5), chooses=False)
    prompts = some(family, PROMPTS)
    assert written(model, prompts) == [one.text(model.prompt_ids(of), 5) for of in prompts]
    return np.zeros(1), np.zeros(1)


@pytest.mark.parametrize("way", ["score", "write"])
@pytest.mark.parametrize("kind", ["facts", "pairs", "questions"])
@pytest.mark.parametrize("family", MODELS)
def test_families(family, kind, way, loaded, pair_model):
    ask = globals()[f"{kind}_{way}"]
    if (message := REFUSED.get((family, kind, way))) is not None:
        refused(message, ask, family, loaded, pair_model)
    else:
        found, expected = ask(family, loaded, pair_model)
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-6)


PATTERN = Pattern("The capital of [X] is [Y].")
LONG = "the big old state that is in the west of Europe and has a lot of people"
WORDS = words_of("Paris", "Rome", "Oslo")


def queries(*subjects):
    return [Query(PATTERN, subject, "Paris") for subject in subjects]


@pytest.fixture
def saved(tmp_path):
    """``saved("Llama", ...)``: the folder of a small random model of transformers."""

    def save(family, *, head="ForCausalLM", tokenizer="causal", **settings):
        tokenizer = _tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        settings = {
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
            "num_attention_heads": 4, "max_position_embeddings": 256, "initializer_range": 0.6,
            "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
        } | settings  # fmt: skip
        if head != "ForConditionalGeneration":
            settings |= {"num_hidden_layers": 2}
        config = getattr(transformers, f"{family}Config")(**settings)
        torch.manual_seed(0)
        model = getattr(transformers, family + head)(config)
        model.save_pretrained(tmp_path / family)
        tokenizer.save_pretrained(tmp_path / family)
        return str(tmp_path / family)

    return save


LONG_ROPE = {
    "rope_type": "longrope", "long_factor": [4.0] * 4, "short_factor": [1.0] * 4,
    "rope_theta": 10_000.0, "original_max_position_embeddings": 32,
}  # fmt: skip


@pytest.mark.parametrize(("family", "settings"), [
    ("Mistral", {"num_key_value_heads": 2, "sliding_window": 16}),  # shorter than a long fact
    ("Phi3", {"rope_scaling": LONG_ROPE, "original_max_position_embeddings": 32}),
])  # fmt: skip
def test_a_short_and_a_long_fact_are_scored_as_alone(family, settings, saved):
    folder = saved(family, **settings)
    model = load_model(folder)
    assert model.scorer.longest == (16 if family == "Mistral" else 32)
    short, both = (scores_of(model, queries("France", *of), WORDS)[0] for of in ([], [LONG]))
    np.testing.assert_allclose(both[0], short[0], atol=1e-5)
    loaded, tokenizer = plain(folder, transformers.AutoModelForCausalLM)
    for word, found in zip(WORDS.words, both[1], strict=True):
        ids = torch.tensor([[model.start, *tokenizer(PATTERN.fill(LONG, word))["input_ids"]]])
        with torch.no_grad():
            steps = loaded(ids).logits[0, :-1].double().log_softmax(-1)
        assert steps.gather(1, ids[0, 1:, None]).sum() - found == pytest.approx(0, abs=1e-3)


def test_a_model_of_texts_and_images_reads_texts(saved):
    text = {
        "vocab_size": len(_tokenizer("causal")), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 64, "sliding_window": 64, "initializer_range": 0.6,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    folder = saved(
        "Gemma3", head="ForConditionalGeneration", text_config=text, vision_config=vision,
        mm_tokens_per_image=4,
    )  # fmt: skip
    model = load_model(folder)
    assert model.scorer.longest == 64
    found, _ = scores_of(model, queries("France"), WORDS)
    encoded = [model.tokenizer(PATTERN.fill("France", word))["input_ids"] for word in WORDS.words]
    texts = [[model.start, *ids] for ids in encoded]
    expected = text_logprobs(model.model, texts, [1] * len(texts), model.budget)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    assert "the model takes 64" in model.why_not([0] * 65)
    load_prompt_model(folder, [])


def test_a_masked_model_that_looks_into_its_weights_keeps_them(saved):
    """MobileBERT's head multiplies its own weights: it is computed at every token."""
    sizes = {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2}
    folder = saved("MobileBert", head="ForMaskedLM", tokenizer="wordpiece", **sizes)
    model = load_model(folder)
    assert "this family computes its head at every token" in model.notes
    (found,), _ = scores_of(model, queries("France"), WORDS)
    expected = [reference.masked(folder, queries("France")[0], word) for word in WORDS.words]
    np.testing.assert_allclose(found, normalised(expected), atol=1e-4)


LOOKS_AHEAD, KEEPS = "is of the family '", "keeps the state of one text in its layers"


@pytest.mark.parametrize(("family", "saved_as", "kind"), [
    *((one, "WithLMHeadModel", "masked") for one in ("XLM", "Flaubert", "Bert")),
    ("Bert", "LMHeadModel", "masked"),  # it was never told to decode
    *((one, "ForCausalLM", "causal") for one in ("GPTNeoX", "GPTNeoXJapanese")),
    ("XLNet", None, LOOKS_AHEAD), ("BertGeneration", None, LOOKS_AHEAD),
    ("RecurrentGemma", "ForCausalLM", KEEPS),
])  # fmt: skip
def test_what_kind_a_family_is(family, saved_as, kind):
    """Whatever its configuration says of decoding, and the name that it was saved with."""
    settings = {"architectures": [family + saved_as]} if saved_as else {}
    config = getattr(transformers, f"{family}Config")(**settings)
    if kind in (LOOKS_AHEAD, KEEPS):
        refused(kind, kind_of_config, config, family)
    else:
        assert kind_of_config(config, family) == kind


def test_a_bart_that_others_trained_reads_two_segments():
    assert PairFormat.of("seq2seq", "bart").joined == "pair"
    assert {PairFormat.of("seq2seq", of).joined for of in ("", "t5")} == {"string"}


def test_positions_that_are_padding_are_not_counted(saved):
    folder = saved("Roberta", is_decoder=True, max_position_embeddings=64, pad_token_id=1)
    model = load_model(folder)
    assert model.why_not([0] * 62) is None
    assert "the model takes 62" in model.why_not([0] * 63)
    model.model(torch.full((1, 62), 5))


BOTH = {f"{side}_{name}" for side in ("encoder", "decoder") for name in ("layers", "ffn_dim")}
HEADS = {f"{side}_attention_heads" for side in ("encoder", "decoder")}


@pytest.mark.parametrize(("family", "settings"), [
    ("FSMT", dict.fromkeys(BOTH, 2) | dict.fromkeys(HEADS, 4) | {"langs": ["en", "de"]}),
    ("ProphetNet", {f"num_{side}_layers": 2 for side in ("encoder", "decoder")}
     | {f"num_{heads}": 4 for heads in HEADS}),
    ("SwitchTransformers", {"num_layers": 2, "num_experts": 2, "num_sparse_decoder_layers": 1,
                            "d_kv": 8, "d_ff": 64, "num_heads": 4}),
])  # fmt: skip
def test_a_decoder_without_a_usual_cache_reads_candidates_alone(family, settings, saved):
    tokenizer = _tokenizer("bpe")
    tokenizer.eos_token = "</s>"
    size = len(tokenizer)
    folder = saved(
        family, head="ForConditionalGeneration", tokenizer=tokenizer, d_model=32, init_std=0.4,
        src_vocab_size=size, tgt_vocab_size=size, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.eos_token_id,
        **settings,
    )  # fmt: skip
    model = load_model(folder, template=TEMPLATE)
    assert "each candidate is scored separately" in model.notes[-1]
    found, _ = scores_of(model, queries("France", "Oslo"), WORDS)
    (ids, *_), targets = model.inputs(queries("France")), model.candidate_tokens(WORDS.words)
    alone = model.scorer.alone(list(ids), targets.sequences)
    np.testing.assert_allclose(found[0], alone, atol=1e-4)


def test_sentinels_that_a_model_never_saw_are_refused(saved):
    tokenizer = transformers.ByT5Tokenizer()
    folder = saved(
        "T5", head="ForConditionalGeneration", tokenizer=tokenizer, d_model=32, d_ff=64, d_kv=8,
        num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    refused("was not trained with a token <extra_id_0>.*--template", load_model, folder)


@pytest.fixture
def pieces():
    """A tokenizer as of Llama 2, which begins a text with a space."""
    marks = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    letters = map(chr, range(33, 127))
    vocabulary = {token: at for at, token in enumerate(dict.fromkeys([*marks, *letters]))}
    return transformers.LlamaTokenizer(vocab=vocabulary, merges=[], legacy=False)


def test_what_ends_an_answer_follows_it_in_running_text(saved, pieces):
    model = load_prompt_model(saved("Llama", tokenizer=pieces), [])
    turns = (("user", "What is it?\nAnswer:"),)
    prompt = Prompt(turns, ("1", "10"), (0, 1), are_labels=False)
    _, targets = model.encode(prompt)
    as_text = [model.tokenizer.convert_ids_to_tokens(target) for target in targets]
    assert as_text == [["\u2581", "1", "<0x0A>"], ["\u2581", "1", "0", "<0x0A>"]]


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head", "q_proj"])
def test_an_adapter_of_tied_embeddings_changes_one_of_them(target, saved, tmp_path):
    folder = saved("Llama", tie_word_embeddings=True)
    torch.manual_seed(1)
    config = LoraConfig(r=2, target_modules=[target], init_lora_weights=False)
    tuned = get_peft_model(load_pretrained(folder).model, config).eval()
    tuned.save_pretrained(tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7, 8]])
    adapted = load_pretrained(folder, Loading(adapter=tmp_path / "adapter")).model.eval()
    with torch.no_grad():
        assert torch.allclose(adapted(ids).logits, tuned(ids).logits, rtol=0, atol=1e-4)


def test_a_tokenizer_of_whole_words_need_not_know_x(saved):
    words = "<s> </s> <unk> The capital of France is . Paris Rome"
    vocabulary = {word: at for at, word in enumerate(words.split())}
    whole = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=whole, **marks)
    model = load_model(saved("Llama", tokenizer=tokenizer))
    found, reasons = scores_of(model, queries("France"), WORDS)
    assert reasons[0] == {"Oslo": "unknown to the tokenizer"}
    assert np.isfinite(found[0][:2]).all()
