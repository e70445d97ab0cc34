"""Loading models and tokenizers, from GGUF files too."""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
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
    needs_extra,
    reason_of,
)
from consilience.files.read import parse_json
from consilience.models.sources import ModelSource, errors_of, locate

LARGEST = 8 * 2**30  # Bytes of expanded weights in the cache; the least recently used go first
ABANDONED = 24 * 60 * 60  # Seconds after which an unfinished expansion was of a killed process
NAME, WEIGHTS, STAMP = "weights-", "model.safetensors", "consilience.json"

_alone = threading.RLock()
"""transformers changes its own functions while it loads; two threads would leave them changed."""


class Parts(NamedTuple):
    """What transformers loads for a model."""

    config: Any
    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel


@contextmanager
def reading_once() -> Iterator[None]:
    """Inside, transformers parses a GGUF file once, for all calls, and shows no progress bar."""
    try:
        import gguf
        from transformers import modeling_gguf_pytorch_utils
    except ImportError:  # transformers then says what to install
        yield
        return
    reader: Any = gguf
    bars: Any = modeling_gguf_pytorch_utils
    with _alone:

        class Reader(gguf.GGUFReader):
            def __setattr__(self, name: str, value: Any) -> None:  # memory maps are slow to slice
                super().__setattr__(name, np.asarray(value) if name == "data" else value)

        usual = reader.GGUFReader, reader.get_tensor_name_map, bars.tqdm
        reader.GGUFReader, reader.get_tensor_name_map = map(functools.cache, (Reader, usual[1]))
        bars.tqdm = functools.partial(usual[2], disable=True)
        try:
            yield
        finally:
            reader.GGUFReader, reader.get_tensor_name_map, bars.tqdm = usual


def expand(file: Path, folder: Path) -> bool:
    """Expand a GGUF file to its folder in the cache; whether it is there, or by another process.

    It is not if there is no room, or if transformers does not load from the folder what it read
    from the file.
    """
    import gguf

    size = sum(4 * int(tensor.n_elements) for tensor in gguf.GGUFReader(str(file)).tensors)
    refused = folder.with_name(f"{folder.name}.json")
    if size > LARGEST or refused.exists():
        return False
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_room(folder.parent, size)
        if shutil.disk_usage(folder.parent).free < 2 * size:
            return False
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{NAME}") as part:
            new = Path(part, "model")
            if not _save(load_parts(file.parent, {"gguf_file": file.name}), new):
                refused.write_text('{"kept": false}', encoding="utf-8")
                return False
            try:
                new.rename(folder)
            except OSError:  # another process was faster; its folder may be in use
                if not _is_whole(folder):
                    folder.rename(Path(part, "damaged"))
                    new.rename(folder)
    return _is_whole(folder)


def _save(parts: Parts, folder: Path) -> bool:
    """Save a model in single precision; whether it loads again identical to the last bit."""
    folder.mkdir()
    for part in (parts.config, parts.model.generation_config, parts.tokenizer):
        part.save_pretrained(str(folder))
    save_file(untied_weights(parts.model), folder / WEIGHTS, {"format": "pt"})
    (folder / STAMP).write_text(json.dumps(_stamp(folder)), encoding="utf-8")
    described = _described(parts)
    del parts
    try:
        return _described(load_parts(folder, {})) == described
    except Exception:  # transformers raises nearly anything
        return False


def _is_whole(folder: Path) -> bool:
    """Whether a model is complete and its files are unchanged; records that it is used."""
    try:
        whole: bool = _stamp(folder) == json.loads((folder / STAMP).read_bytes())
        os.utime(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return whole


def cache_folder() -> Path | None:
    """``CONSILIENCE_CACHE``, or ``models`` in the cache folder of the user; None if off."""
    if chosen := os.environ.get("CONSILIENCE_CACHE"):
        return None if chosen == "off" else Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # no home
        return None


def _folder(digest: str) -> Path | None:
    if (cache := cache_folder()) is None:
        return None
    names = ("torch", "transformers", "tokenizers", "gguf")
    try:
        versions = {name: metadata.version(name) for name in names}
    except metadata.PackageNotFoundError:
        return None
    parts = json.dumps({"digest": digest, **versions}, sort_keys=True)
    return cache / f"{NAME}{hashlib.sha256(parts.encode()).hexdigest()[:32]}"


def _stamp(folder: Path) -> dict[str, list[int]]:
    files = {path.name: path.stat() for path in folder.iterdir() if path.name != STAMP}
    return {name: [status.st_size, status.st_mtime_ns] for name, status in files.items()}


def _make_room(cache: Path, size: int) -> None:
    """Remove the least recently used models until ``size`` more bytes are within bounds.

    A process that has one of them open can still read it. What a killed process had begun is
    removed after a day.
    """
    for unfinished in cache.glob(f".{NAME}*/"):
        if time.time() - unfinished.stat().st_mtime > ABANDONED:
            shutil.rmtree(unfinished, ignore_errors=True)
    sizes = {
        folder: sum(file.stat().st_size for file in folder.iterdir())
        for folder in cache.glob(f"{NAME}*/")
    }
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if sum(sizes.values()) + size > LARGEST:
            shutil.rmtree(folder, ignore_errors=True)
            del sizes[folder]


def untied_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights by name, on the processor; tied ones under their first name."""
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        first.setdefault(id(weight), (name, weight.detach().cpu().contiguous()))
    return dict(first.values())


def _described(parts: Parts) -> tuple[object, ...]:
    tokenizer: Any = parts.tokenizer
    configs = [dict(one.to_dict()) for one in (parts.config, parts.model.generation_config)]
    for config in configs:  # how it was saved
        for name in ("_name_or_path", "transformers_version", "dtype", "quantization_config"):
            config.pop(name, None)
    rules = (
        tokenizer.special_tokens_map, tokenizer.chat_template, tokenizer.model_max_length,
        tokenizer.padding_side, tokenizer.truncation_side, tokenizer.model_input_names,
    )  # fmt: skip
    weights = {
        name: (f"{weight.dtype}", hashlib.sha256(weight.contiguous().numpy()).digest())
        for name, weight in parts.model.state_dict().items()
    }
    backend = tokenizer.backend_tokenizer.to_str()
    return type(parts.model), configs, type(tokenizer), backend, rules, weights


Kind = Literal["masked", "causal", "seq2seq"]

AUTO_CLASSES: Mapping[Kind, Any] = {
    "masked": AutoModelForMaskedLM, "causal": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}  # fmt: skip

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model that was loaded."""

    kind: Kind  # What kind of language model it is, or was before it became a classifier
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: dict[str, object]  # What distinguishes it from any other model


def load_pretrained(spec: str, loading: Loading = DEFAULT_LOADING) -> Pretrained:
    """Load a language model with its head."""
    loaded, missing, mismatched = _loaded(spec, loading, AUTO_CLASSES)
    _refuse_absent(spec, missing | mismatched, f"{loaded.kind} language model")
    return loaded


def _refuse_absent(spec: str, absent: Collection[str], kind: str, todo: str = "") -> None:
    if absent:
        raise ConsilienceError(
            f"the weights of '{spec}' lack {len(absent)} tensors of a {kind}, such as "
            f"'{min(absent)}'",
            expected="a checkpoint with all its weights",
            todo="Use the checkpoint that it was trained as." + todo,
        )


def load_classifier(
    spec: str, loading: Loading = DEFAULT_LOADING, *, new_head: Sequence[str] | None = None
) -> Pretrained:
    """Load a model with a classification head that was trained.

    ``new_head``: the labels of a new head that is trained now; only the body is loaded.
    """
    options: dict[str, Any] = {}
    if new_head is not None:
        options["id2label"] = dict(enumerate(new_head))
        options["label2id"] = {label: at for at, label in enumerate(new_head)}
        options["ignore_mismatched_sizes"] = True
    classes = dict.fromkeys(AUTO_CLASSES, AutoModelForSequenceClassification)
    loaded, missing, mismatched = _loaded(spec, loading, classes, **options)
    absent = missing | mismatched
    if new_head is not None:
        model, body = loaded.model, f"{loaded.model.base_model_prefix}."
        if all(name.startswith(body) for name in missing):  # the checkpoint is a classifier
            fresh = AutoModelForSequenceClassification.from_config(
                model.config, trust_remote_code=loading.trust_remote_code
            )
            for name, part in fresh.named_children():
                if name != model.base_model_prefix:
                    setattr(model, name, part.to(model.device, model.dtype))
        # poolers are trained with the head
        absent = {name for name in absent if name.startswith(body) and "pooler" not in name}
    _refuse_absent(spec, absent, "classifier", " Or use `consilience finetune`." * (not new_head))
    if loaded.kind == "causal" and not hasattr(loaded.model, "score"):
        raise ConsilienceError(
            f"'{spec}' is a decoder, and {type(loaded.model).__name__} does not read one token",
            expected="an encoder, or a decoder of another family",
        )
    return loaded


def load_encoder(spec: str, loading: Loading = DEFAULT_LOADING) -> Pretrained:
    """Load the body of a model, without a head; a checkpoint that lacks some of it is refused."""
    loaded, missing, mismatched = _load(spec, loading, dict.fromkeys(AUTO_CLASSES, AutoModel))
    absent = {name for name in missing | mismatched if "pooler" not in name}
    _refuse_absent(spec, absent, "sentence encoder")
    return loaded


def keep_weights(loading: Loading) -> None:
    """Have this process read the weights of a model that is asked several suites only once.

    The last model stays in memory. Each load gives a copy of its modules around the same weights.
    """
    _KEPT.clear()
    _KEPT[loading] = None


_KEPT: dict[Loading, tuple[object, tuple[Pretrained, set[str], set[str]]] | None] = {}
"""The one way of loading whose last model is kept; empty where none is."""


def _loaded(
    spec: str, loading: Loading, classes: Mapping[Kind, Any], **more: Any
) -> tuple[Pretrained, set[str], set[str]]:
    if loading not in _KEPT:
        return _load(spec, loading, classes, **more)
    request = (spec, dict(classes), more)
    entry = _KEPT[loading]
    if entry is None or entry[0] != request:
        _KEPT[loading] = entry = None  # frees the memory first
        entry = _KEPT[loading] = (request, _load(spec, loading, classes, **more))
    loaded, missing, mismatched = entry[1]
    shared = {id(weight): weight for weight in loaded.model.parameters()}
    model = copy.deepcopy(loaded.model, shared)
    return replace(loaded, model=model, identity=dict(loaded.identity)), missing, mismatched


def _load(
    spec: str, loading: Loading, classes: Mapping[Kind, Any], **more: Any
) -> tuple[Pretrained, set[str], set[str]]:
    """The model, the weights that its checkpoint lacks, and those of another shape."""
    source = locate(spec, loading)
    device = find_device(loading.device)
    if not gc.isenabled():  # a command collects none among imports
        gc.freeze()
        gc.enable()
    if loading.dtype not in DTYPES:
        raise ConsilienceError(f"dtype '{loading.dtype}'", expected=", ".join(DTYPES))
    with errors_of(source), _opened(source) as opened:
        config = AutoConfig.from_pretrained(opened.location, **opened.options)
        kind = kind_of_config(config, spec)
        tokenizer = AutoTokenizer.from_pretrained(opened.location, **opened.options)
        model, info = classes[kind].from_pretrained(
            opened.location,
            dtype=DTYPES[loading.dtype],
            output_loading_info=True,
            **opened.options,
            **more,
        )
    adapter = {}
    if loading.adapter is not None:
        model, adapter["adapter"] = _adapted(model, spec, loading.adapter)
    identity: dict[str, object] = {
        "model": spec,
        "kind": kind,
        "architecture": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "revision": getattr(config, "_commit_hash", None) or source.options.get("revision"),
        "digest": source.digest,
        **adapter,
        "tokenizer": type(tokenizer).__name__,
        "dtype": loading.dtype,
        "device": device.type,
    }
    if loading.trust_remote_code:
        identity["trust_remote_code"] = True
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    loaded = Pretrained(kind, model.to(device), tokenizer, identity)
    return loaded, set(info["missing_keys"]), mismatched


def _adapted(model: PreTrainedModel, spec: str, folder: Path) -> tuple[PreTrainedModel, str | None]:
    """The model with a PEFT adapter merged into its weights, and the digest of the adapter.

    An adapter that does not fit, of which a weight would stay unused, or which has none of its own
    to merge (prompt tuning), raises.
    """
    with needs_extra("train"):
        from peft import PeftModel, get_peft_model_state_dict
    names = ("adapter_config.json", "adapter_model.safetensors")
    source = ModelSource(str(folder), str(folder), {}, {name: folder / name for name in names})
    for name, file in source.files.items():
        if not file.is_file():
            expected = "the folder of a PEFT adapter"
            raise ModelError(
                f"no {name}", expected=expected, where=str(folder), todo="Check the path."
            )
    base = parse_json((folder / names[0]).read_bytes()).get("base_model_name_or_path")
    try:
        with safe_open(str(folder / names[1]), "pt") as saved:
            weights = set(saved.keys())
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        ends = [name for name, part in model.named_modules() if part in (head, embedding)]
        if head is not None and any(f".{end}." in name for end in ends for name in weights):
            head.weight = torch.nn.Parameter(head.weight.detach().clone())  # if tied: only one
        tuned = PeftModel.from_pretrained(model, str(folder))
        if unused := weights ^ {*get_peft_model_state_dict(tuned)}:
            raise ValueError(f"{len(unused)} weights differ, such as '{min(unused)}'")
        return tuned.merge_and_unload(), source.digest
    except Exception as error:  # peft raises nearly anything
        raise ModelError(
            f"the adapter does not fit '{spec}': {reason_of(error)}",
            expected=f"an adapter that was trained on it; this one is of '{base}'",
            where=str(folder),
        ) from error


@contextmanager
def _opened(source: ModelSource) -> Iterator[ModelSource]:
    """What to load, by one thread at a time and without progress bars; a GGUF file is expanded."""
    with _alone:
        has_bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            if "gguf_file" not in source.options:
                yield source
                return
            (file,) = source.files.values()
            folder = _folder(str(source.digest))
            is_known = folder is not None and _is_whole(folder)
            with nullcontext() if is_known else reading_once():
                if folder is not None and (is_known or expand(file, folder)):
                    options = {"trust_remote_code": False}
                    source = replace(source, location=str(folder), options=options)
                yield source
        finally:
            if has_bars:
                logging.enable_progress_bar()


def load_parts(folder: Path, options: Mapping[str, Any]) -> Parts:
    """Load a language model in single precision on the processor."""
    options = {**options, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    model = AUTO_CLASSES[kind_of_config(config, str(folder))].from_pretrained(
        folder, dtype=torch.float32, **options
    )
    return Parts(config, tokenizer, model)


def kind_of(spec: str, loading: Loading = DEFAULT_LOADING) -> Kind:
    """The kind of a model, without loading its weights."""
    source = locate(spec, loading)
    with errors_of(source), _opened(source) as opened:
        return kind_of_config(AutoConfig.from_pretrained(opened.location, **opened.options), spec)


def load_tokenizer(spec: str, loading: Loading = DEFAULT_LOADING) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, without its weights."""
    source = locate(spec, loading)
    with errors_of(source), _opened(source) as opened:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            opened.location, **opened.options
        )
    return tokenizer


def kind_of_config(config: Any, spec: str) -> Kind:
    """What kind the checkpoint was saved as, else what its family can be."""
    if config.model_type == "recurrent_gemma":
        found = f"'{spec}' keeps the state of one text in its layers"
        raise ConsilienceError(found, expected="a model that does not")
    for architecture in getattr(config, "architectures", None) or []:
        if architecture.endswith("ForMaskedLM"):
            return "masked"
        # A name of before 2020, of all three kinds; and an encoder that was never told to decode.
        if architecture.endswith("WithLMHeadModel") or not getattr(config, "is_decoder", True):
            break
        if architecture.endswith(("ForCausalLM", "LMHeadModel")):
            return "causal"
    if getattr(config, "is_encoder_decoder", False):
        if config.model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
            return "seq2seq"
    else:
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return "masked"
        looks_ahead = config.model_type == "xlnet" or not getattr(config, "is_decoder", True)
        looks_ahead &= not config.model_type.startswith("gpt_neox")  # causal all the same
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not looks_ahead:
            return "causal"
    raise ConsilienceError(
        f"'{spec}' is of the family '{config.model_type}'",
        expected="a masked, causal or sequence-to-sequence language model",
        todo="Use a checkpoint that was saved with its language-model head.",
    )


def find_device(name: str) -> torch.device:
    """The device of that name, such as ``cuda:1``; one that does not exist is an error."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConsilienceError(
            f"no device '{name}'",
            expected="auto, cpu, cuda, cuda:1 or mps, and a torch for that device",
            todo=f"Use --device cpu. ({reason_of(error)})",
        ) from error
    return device
