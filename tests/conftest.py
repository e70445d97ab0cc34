"""Tiny real models of every family, built here, and suites that are worked out by hand."""

from __future__ import annotations

import gc
import io
import json
import math
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

settings.register_profile("same on every machine", deadline=None, derandomize=True)
settings.load_profile("same on every machine")
os.environ["HF_HUB_OFFLINE"] = "1"
MODULES = tempfile.TemporaryDirectory(prefix="modules-")
os.environ["HF_MODULES_CACHE"] = MODULES.name  # where transformers copies the code of models to
if "PYTEST_XDIST_WORKER" in os.environ:  # workers and what they start share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a waiting thread leaves them its core
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

os.fsync = lambda descriptor: None  # files of tests outlive no power cut, and disks take their time

ROOT = Path(__file__).resolve().parents[1]

SENTENCES = [
    "The capital of France is Paris.",
    "Paris is the capital of France.",
    "Berlin is the capital of Germany.",
    "The capital city of Germany is Berlin.",
    "Rome, the capital of Italy, is in Europe.",
    "Madrid (Spain) and Lisbon (Portugal) are capitals.",
    "Italy's capital is Rome.",
    "[ x ] is born in Oslo - a Oslo-born person.",
]
WORDS = ["Paris", "Berlin", "Rome", "Madrid", "Lisbon", "Oslo"]


def pytest_collection():
    """What the imports of the tests create stays; looking for garbage in it takes 5 seconds."""
    gc.disable()


def pytest_collection_finish():
    """A collection of garbage, which every training does, skips what was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory):
    """What models keep between runs is out of the user's cache; the test processes share it."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    os.environ["CONSILIENCE_CACHE"] = str(cache)


@pytest.fixture
def two_threads():
    """Batches are answered side by side, as where the tests are not."""
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(usual)


CORPUS = SENTENCES * 3 + WORDS * 20 + [f"in {word}" for word in WORDS] * 40


def _known(pattern: str, lowercase: bool = False) -> list[str]:
    """What a tokenizer knows whole. It is not trained: trainers break ties at random."""
    text = " ".join([*SENTENCES, *WORDS])
    return sorted({*re.findall(pattern, text.lower() if lowercase else text)})


def _letters(lowercase: bool) -> list[str]:
    """Every letter, every letter within a word, and two pieces that continue a word."""
    letters = string.ascii_lowercase if lowercase else string.ascii_letters
    return [*letters, *(f"##{each}" for each in (*letters, "al", "in"))]


def _weighed(words: Sequence[str]) -> list[tuple[str, float]]:
    """Pieces of a unigram model with their scores: whole words before letters."""
    whole = [(f"\u2581{word}", -2 - 0.01 * at) for at, word in enumerate(words)]
    return [*whole, ("\u2581", -6.0), *((each, -8.0) for each in string.printable.strip())]


def _tokenizer(kind: str):
    """A tokenizer of that kind that knows ``WORDS`` whole, also after a space."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    if kind in ("wordpiece", "wordpiece-uncased"):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        lowercase = kind.endswith("uncased")
        pieces = [*special, *_known(r"\w+|[^\w\s]", lowercase), *_letters(lowercase)]
        vocabulary = {piece: at for at, piece in enumerate(dict.fromkeys(pieces))}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    elif kind == "unigram":
        special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        pieces = [*((each, 0.0) for each in special), *_weighed(_known(r"\S+", lowercase=True))]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        names = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    else:
        names = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
        if kind == "causal":
            names = {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = BpeTrainer(
            vocab_size=420,
            special_tokens=list(dict.fromkeys(names.values())),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
    if "cls" in names:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{names['cls']} $A {names['sep']}",
            pair=f"{names['cls']} $A {names['sep']} $B:1 {names['sep']}:1",
            special_tokens=[
                (names[each], tokenizer.token_to_id(names[each])) for each in ("cls", "sep")
            ],
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in names.items()}
    )
    if kind == "bpe":  # RoBERTa's mask swallows the blank on its left.
        from transformers import AddedToken

        fast.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True, special=True)})
    return fast


def with_segments(tokenizer):
    """It tells a model which sentence of a pair a token is of, as the released ones of BERT do."""
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    return tokenizer


FAMILIES = {
    "bert": ("BertForMaskedLM", "BertConfig", "wordpiece"),
    "bert-uncased": ("BertForMaskedLM", "BertConfig", "wordpiece-uncased"),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", "bpe"),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", "unigram"),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", "wordpiece-uncased"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", "wordpiece"),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", "bpe"),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", "wordpiece"),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", "wordpiece"),
    "fnet": ("FNetForMaskedLM", "FNetConfig", "wordpiece"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", "causal"),
    "gpt2-uncased": ("GPT2LMHeadModel", "GPT2Config", "wordpiece-uncased"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", "causal"),
    "mamba": ("MambaForCausalLM", "MambaConfig", "causal"),
}
MASKED = [family for family, (name, _, _) in FAMILIES.items() if name.endswith("MaskedLM")]
SIZES = {
    "albert": {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64},
    "electra": {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64},
    "deberta": {"hidden_size": 32, "intermediate_size": 64, "relative_attention": True,
                "pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "type_vocab_size": 0},
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "mamba": {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 2},
}  # fmt: skip


SEQ2SEQ = {
    "t5": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config",
            {"num_decoder_layers": 3, "initializer_factor": 0.8}),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", {}),
}  # fmt: skip


def _t5_tokenizer(family: str):
    """T5's tokenizer; mT5's sentinels are pieces with the blank on their left, not added tokens."""
    from transformers import T5Tokenizer

    pieces = [(each, 0.0) for each in ("<pad>", "</s>", "<unk>")]
    pieces += _weighed([*_known(r"\S+"), "New", "York", "Newark"])
    if family == "mt5":
        pieces += [(f"▁<extra_id_{n}>", 0.0) for n in (2, 1, 0)]
    return T5Tokenizer(vocab=pieces, extra_ids=0 if family == "mt5" else 3)


def build_seq2seq(family: str, folder: Path) -> Path:
    """Save a small random model of the T5 family with its tokenizer."""
    import torch
    import transformers

    model_name, config_name, extra = SEQ2SEQ[family]
    tokenizer = _t5_tokenizer(family)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    sizes |= {"initializer_factor": 1.5} | extra
    config = getattr(transformers, config_name)(vocab_size=len(tokenizer) + 5, **sizes)
    torch.manual_seed(0)
    getattr(transformers, model_name)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_model(family: str, folder: Path) -> Path:
    """Save a small random model of a family with its tokenizer, as from_pretrained wants it."""
    import torch
    import transformers

    if family in SEQ2SEQ:
        return build_seq2seq(family, folder)
    model_name, config_name, kind = FAMILIES[family]
    tokenizer = _tokenizer(kind)
    sizes = SIZES.get(family.removesuffix("-uncased"), {"hidden_size": 32, "intermediate_size": 64})
    if family not in ("distilbert", "gpt2", "gpt2-uncased", "mamba"):
        sizes = sizes | {
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
        }  # fmt: skip
    ids = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id")
        for name in ("pad", "bos", "eos", "cls", "sep")
    }
    config = getattr(transformers, config_name)(
        vocab_size=len(tokenizer), initializer_range=0.6, **sizes, **ids
    )
    torch.manual_seed(0)
    model = getattr(transformers, model_name)(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """``model_folder("bert")``: the folder of a tiny model of that family."""
    built: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in built:
            built[family] = build_model(family, tmp_path_factory.mktemp(family))
        return built[family]

    return folder


@pytest.fixture(scope="session")
def calm_folder(model_folder, tmp_path_factory):
    """``calm_folder("bert")``: the same with small weights, which learns, and without dropout."""
    import transformers

    built: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family in built:
            return built[family]
        name = (FAMILIES | SEQ2SEQ)[family][0]
        model = getattr(transformers, name).from_pretrained(model_folder(family))
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.data *= 0.4
        for option in list(vars(model.config)):
            if option.endswith(("dropout", "dropout_prob", "dropout_rate", "pdrop")):
                setattr(model.config, option, 0.0)
        if hasattr(model.config, "initializer_range"):
            model.config.initializer_range = 0.1
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(family))
        if model.config.model_type in ("bert", "electra"):
            with_segments(tokenizer)
        built[family] = tmp_path_factory.mktemp(family)
        model.save_pretrained(built[family])
        tokenizer.save_pretrained(built[family])
        return built[family]

    return folder


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """``classifier("bert", labels, seed=1)``: the folder of a tiny classifier of sentence pairs."""
    from pair_builders import save_classifier

    built = {}

    def folder(*arguments, **options):
        key = (arguments, tuple(sorted(options.items())))
        if key not in built:
            path = tmp_path_factory.mktemp("classifier")
            built[key] = save_classifier(path, *arguments, **options)
        return built[key]

    return folder


@pytest.fixture
def load(classifier):
    """``load("bert", longest=24)``: a classifier of MRPC's pairs in memory."""
    from consilience.core.errors import Loading
    from consilience.models.classifier import load_pair_classifier
    from pair_builders import SAME

    def load(family, longest=0):
        model = load_pair_classifier(str(classifier(family)), SAME, Loading("cpu"))
        model.input.longest = longest or model.input.longest
        return model

    return load


@pytest.fixture
def writer(model_folder):
    """``writer("t5", MRPC)``: a language model that is asked for labels, in memory."""
    from consilience.core.errors import Loading
    from consilience.models import load_prompt_model
    from consilience.models.prompts import LONGEST_LABEL, LabelAsker, Writing
    from consilience.suites.pairs import TASKS

    def load(family, task=TASKS["mrpc"], template=None, longest=0):
        folder = family if isinstance(family, Path) else model_folder(family)
        how = {"loading": Loading(device="cpu"), "writing": Writing(LONGEST_LABEL)}
        model = LabelAsker(load_prompt_model(str(folder), **how), task, template)
        model.model.longest = longest or model.model.longest
        return model

    return load


@pytest.fixture
def write_suite(tmp_path):
    """Write a suite folder from rows; every table can be replaced."""

    def write(folder: Path | None = None, **tables: list[dict] | str) -> Path:
        folder = folder or tmp_path / "suite"
        folder.mkdir(parents=True, exist_ok=True)
        standard = {
            "relations": [{"relation": "capital", "label": "capital", "cardinality": "N-1"}],
            "patterns": [
                {"relation": "capital", "pattern": "The capital of [X] is [Y]."},
                {"relation": "capital", "pattern": "[Y] is the capital of [X]."},
                {"relation": "capital", "pattern": "[X]'s capital, [Y], is large."},
            ],
            "facts": [
                {"relation": "capital", "subject": "France", "object": "Paris"},
                {"relation": "capital", "subject": "Germany", "object": "Berlin"},
                {"relation": "capital", "subject": "Italy", "object": "Rome"},
            ],
        }
        for name, rows in (standard | tables).items():
            text = rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)) + "\n"
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.fixture
def consilience(monkeypatch, tmp_path):
    """``run_command`` in an empty folder, without data, on a screen of 160 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "160")
    return run_command


def run_command(*arguments):
    """``run_command("probe", ...)``: exit status, standard output, standard error."""
    from consilience.app import process

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    status = 0
    argv = patch.object(sys, "argv", ["consilience", *map(str, arguments)])
    with argv, redirect_stdout(out), redirect_stderr(err):
        try:
            process.run()
        except SystemExit as stop:
            status = stop.code or 0
    return status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


@pytest.fixture
def browse(tmp_path):
    """``browse(page)``: the document as a real browser leaves it, and what it logged."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed, so no page was opened in a browser")

    def open_(path: Path, *more: str) -> tuple[str, list[str]]:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        flags += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=10000", *more]
        command = [browser, *flags, "--enable-logging=stderr", "--dump-dom", path.as_uri()]
        found = subprocess.run(command, capture_output=True, check=True, timeout=60)
        logged = [line for line in found.stderr.decode().splitlines() if ":CONSOLE" in line]
        return found.stdout.decode(), logged

    return open_


def cases(name: str) -> list:
    """The rows of ``tests/cases/NAME.jsonl``: one test case a line."""
    lines = (ROOT / "tests" / "cases" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def number(text: str) -> float:
    """The number that a case has as a fraction, or nan."""
    return math.nan if text == "nan" else float(Fraction(text))


def cells(numbers) -> dict:
    """The rows of both papers' and our numbers by block, row and column."""
    return {(row["group"], row["row"], row["column"]): row for row in numbers.iter_rows(named=True)}


def eee_validator(name: str):
    """What checks a ``record`` or a ``sample`` against the published schema of Every Eval Ever."""
    from jsonschema import Draft7Validator

    file = {"record": "eval", "sample": "instance_level_eval"}[name]
    path = ROOT / "tests" / "every_eval_ever_0_3_0" / f"{file}.schema.json"
    return Draft7Validator(json.loads(path.read_text(encoding="utf-8")))


def real_data(name: str) -> Path:
    """A real data set, if it is in ``shared`` beside the checkout or under ``CONSILIENCE_DATA``."""
    places = [Path(os.environ.get("CONSILIENCE_DATA", "-")), ROOT.parent / "shared" / "data"]
    for place in places:
        if (place / name).is_dir():
            return place / name
    pytest.skip(f"the {name} data is not here; its code is tested on made data too")


def suite_of(patterns, facts, name="questions"):
    """A suite of facts, pairs or subjects with objects; by relations if they are of several."""
    from consilience import Suite

    is_one = not isinstance(facts, dict) or isinstance(next(iter(facts.values())), str | int)
    rows = [
        {"relation": group, "subject": subject, "object": object_}
        for group, of in ({name: facts} if is_one else facts).items()
        for subject, object_ in (of.items() if isinstance(of, dict) else of)
    ]
    return Suite.from_frame(rows, patterns=patterns, name=name)
