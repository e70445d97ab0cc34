"""One encoder, a classification head for each task (MT-DNN: Liu et al. 2019; CALUM, Section 6)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.choices import Loading
from consilience.models.classifier import logits_of
from consilience.models.gguf import untied_weights
from consilience.models.loading import load_classifier
from consilience.models.pair_input import PairFormat

ON_PROCESSOR = Loading("cpu")
BODY, HEAD = "body.safetensors", "head.safetensors"


class Heads(torch.nn.Module):
    """Models of one family that share their body, ``base_model``; the rest of each is its head."""

    def __init__(self, models: Mapping[str, PreTrainedModel], reading: PairFormat) -> None:
        """``models``: a complete model for each task; all get the body of the first."""
        super().__init__()
        first = next(iter(models.values()))
        prefix = first.base_model_prefix
        for model in models.values():
            setattr(model, prefix, first.base_model)
        self.body = first.base_model
        self.heads = torch.nn.ModuleList(  # a task may have a name that a module cannot have
            torch.nn.ModuleDict(
                {name: part for name, part in model.named_children() if name != prefix}
            )
            for model in models.values()
        )
        self.models = dict(models)  # a plain dict: what is in it is registered above
        self.reading = reading
        self.tie()

    def tie(self) -> None:
        """Find the weights that have several names; checkpoints hold them once."""
        first: dict[int, str] = {}
        self.aliases = {
            name
            for name, weight in super().state_dict(keep_vars=True).items()
            if first.setdefault(id(weight), name) != name
        }

    def forward(self, task: str, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (form, label) of the task."""
        return logits_of(self.models[task], self.reading.pool, inputs)

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Every weight once."""
        weights: dict[str, Any] = super().state_dict(*arguments, **options)
        return {name: weight for name, weight in weights.items() if name not in self.aliases}

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Load all weights of ``state_dict``."""
        known = set(self.state_dict())
        if known != set(state_dict):
            raise RuntimeError(f"weights of another model: {sorted(known ^ set(state_dict))[:3]}")
        result = super().load_state_dict(state_dict, strict=False)
        result.missing_keys.clear()  # they are loaded under another name
        return result

    def save(
        self,
        folder: Path,
        tokenizer: PreTrainedTokenizerBase,
        indicators: Mapping[str, tuple[str, str]],
    ) -> None:
        """Save ``folder/TASK`` for each task, as ``from_pretrained`` reads it.

        ``indicators``: those of each task. The folders share one file of the body where the file
        system has links.
        """
        shared: Path | None = None
        for task, model in self.models.items():
            path = folder / task
            path.mkdir(parents=True, exist_ok=True)
            model.config.architectures = [type(model).__name__]
            model.config.save_pretrained(path)
            tokenizer.save_pretrained(path)
            replace(self.reading, indicators=indicators[task]).save(path)
            weights = untied_weights(model)
            body = {name for name in weights if name.startswith(f"{model.base_model_prefix}.")}
            head = {name: weights[name] for name in weights if name not in body}
            save_file(head, path / HEAD, {"format": "pt"})
            if shared is None:
                shared = path / BODY
                save_file({name: weights[name] for name in body}, shared, {"format": "pt"})
            else:
                _link(shared, path / BODY)
            files = {name: BODY if name in body else HEAD for name in sorted(weights)}
            size = sum(weight.numel() * weight.itemsize for weight in weights.values())
            index = {"metadata": {"total_size": size}, "weight_map": files}
            (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def load_heads(
    spec: str,
    labels: Mapping[str, Sequence[str]],
    reading: PairFormat | None,
    loading: Loading = ON_PROCESSOR,
) -> Any:
    """The model with a new head for each task, and its tokenizer.

    ``labels``: those of each task. A tokenizer without padding pads with its end token, which the
    attention mask tells from the text.
    """
    models: dict[str, PreTrainedModel] = {}
    for task, names in labels.items():
        loaded = load_classifier(spec, loading, new_head=names)
        model, tokenizer = loaded.model, loaded.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        if models:  # frees the memory of this body before the next one is loaded
            setattr(model, model.base_model_prefix, next(iter(models.values())).base_model)
        models[task] = model
    return Heads(models, reading or PairFormat.of(loaded.kind)), tokenizer


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it where the file system has no links."""
    with suppress(FileNotFoundError):
        target.unlink()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
