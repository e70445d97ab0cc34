"""Models unlike those of the other tests: each score is that of a plain pass of transformers."""

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers

from checks import refused
from conftest import _tokenizer
from consilience.core.errors import Loading
from consilience.core.items import Prompt
from consilience.core.patterns import Pattern
from consilience.models import load_model, load_prompt_model
from consilience.models.classifier import PairFormat
from consilience.models.loading import kind_of_config, load_pretrained
from consilience.models.sources import locate
from consilience.types import Query
from reference import TEMPLATE, plain, scores_of, words_of

PATTERN = Pattern.parse("The capital of [X] is [Y].")
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
    assert model.tree_scorer is not None
    short, both = (
        scores_of(model, queries(*of), WORDS)[0] for of in (["France"], ["France", LONG])
    )
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
    assert model.tree_scorer is not None
    found, _ = scores_of(model, queries("France"), WORDS)
    encoded = [model.tokenizer(PATTERN.fill("France", word))["input_ids"] for word in WORDS.words]
    np.testing.assert_allclose(found[0], model.one_by_one(encoded), atol=1e-4)
    assert "the model takes 64" in model.why_not(65)
    assert load_prompt_model(folder, []) is not None


@pytest.mark.parametrize(("family", "head"), [
    ("XLM", "WithLMHeadModel"), ("Flaubert", "WithLMHeadModel"), ("Bert", "LMHeadModel"),
])  # fmt: skip
def test_a_masked_model_with_another_name_is_masked(family, head, saved):
    """Its attention has two directions, whatever the name says."""
    folder = saved(
        family, head=head, tokenizer="bpe", emb_dim=32, n_layers=2, n_heads=4,
        n_langs=1, pad_index=1, pad_token_id=1, embed_init_std=0.6,
    )  # fmt: skip
    assert load_model(folder).identity["kind"] == "masked"


@pytest.mark.parametrize("family", ["XLNet", "BertGeneration"])
def test_a_model_that_looks_ahead_is_not_scored_as_if_it_did_not(family):
    config = getattr(transformers, f"{family}Config")()
    refused("is of the family '", kind_of_config, config, family)


@pytest.mark.parametrize("family", ["GPTNeoX", "GPTNeoXJapanese"])
def test_a_family_is_causal_although_its_configuration_does_not_say_so(family):
    config = getattr(transformers, f"{family}Config")(architectures=[f"{family}ForCausalLM"])
    assert kind_of_config(config, family) == "causal"


def test_a_model_that_keeps_a_state_in_its_layers_is_refused():
    config = transformers.RecurrentGemmaConfig(architectures=["RecurrentGemmaForCausalLM"])
    refused("keeps the state of one text in its layers", kind_of_config, config, "g")


def test_a_bart_that_others_trained_reads_two_segments():
    assert PairFormat.of("seq2seq", "bart").joined == "pair"
    assert {PairFormat.of("seq2seq", of).joined for of in ("", "t5")} == {"string"}


def test_positions_that_are_padding_are_not_counted(saved):
    folder = saved("Roberta", is_decoder=True, max_position_embeddings=64, pad_token_id=1)
    model = load_model(folder)
    assert model.why_not(62) is None
    assert "the model takes 62" in model.why_not(63)
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
    alone = [model.alone(list(ids), list(target)) for target in targets.sequences]
    np.testing.assert_allclose(found[0], alone, atol=1e-5)


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
    assert model.tokens.label_targets(["no"], " ") == [
        model.tokenizer.convert_tokens_to_ids(["\u2581", "n", "o"])
    ]


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
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    model = load_model(saved("Llama", tokenizer=tokenizer))
    found, reasons = scores_of(model, queries("France"), WORDS)
    assert reasons[0] == {"Oslo": "unknown to the tokenizer"}
    assert np.isfinite(found[0][:2]).all()


@pytest.mark.parametrize("name", ["source.spm", "bpe.codes", "vocab.bpe"])
def test_a_changed_file_of_a_tokenizer_is_another_model(name, model_folder, tmp_path):
    for file in model_folder("gpt2").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    digests = set()
    for text in "ab":
        (tmp_path / name).write_text(text)
        digests.add(locate(str(tmp_path)).digest)
    assert len(digests) == 2
