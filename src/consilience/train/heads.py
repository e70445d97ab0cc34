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

from consilience.models.classifier import logits_of
from consilience.models.loading import Kind, load_classifier
from consilience.models.pair_input import Reading

BODY, HEAD = "body.safetensors", "head.safetensors"


class Heads(torch.nn.Module):
    """Models of one family that share all but their heads.

    What lies outside a model's ``base_model`` is its head. ``models``: one a task, complete; each
    reads with the same body.
    """

    def __init__(self, models: Mapping[str, PreTrainedModel], kind: Kind, reading: Reading) -> None:
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
        self.kind, self.reading = kind, reading
        self.tie()

    def tie(self) -> None:
        """Note which weights stand under several names; checkpoints hold them once."""
        first: dict[int, str] = {}
        self.twice = {
            name
            for name, weight in super().state_dict(keep_vars=True).items()
            if first.setdefault(id(weight), name) != name
        }

    def forward(self, task: str, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (form, label) of the task."""
        return logits_of(self.models[task], self.kind, self.reading.pool, inputs)

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Every weight once."""
        found: dict[str, Any] = super().state_dict(*arguments, **options)
        return {name: weight for name, weight in found.items() if name not in self.twice}

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Weights as ``state_dict`` gives them, all of them."""
        known = set(self.state_dict())
        if known != set(state_dict):
            raise RuntimeError(f"weights of another model: {sorted(known ^ set(state_dict))[:3]}")
        found = super().load_state_dict(state_dict, strict=False)
        found.missing_keys.clear()  # they stand under another name too
        return found

    def save(
        self,
        folder: Path,
        tokenizer: PreTrainedTokenizerBase,
        indicators: Mapping[str, tuple[str, str]],
    ) -> None:
        """``folder/TASK`` for each task, as ``from_pretrained`` reads it.

        ``indicators``: those that each task was trained with. The folders hold the body as one and
        the same file, where the disk can link.
        """
        shared: Path | None = None
        for task, model in self.models.items():
            place = folder / task
            place.mkdir(parents=True, exist_ok=True)
            model.config.architectures = [type(model).__name__]
            model.config.save_pretrained(place)
            tokenizer.save_pretrained(place)
            replace(self.reading, indicators=indicators[task]).save(place)
            weights = _once(model)
            body = {name for name in weights if name.startswith(f"{model.base_model_prefix}.")}
            head = {name: weights[name] for name in weights if name not in body}
            save_file(head, place / HEAD, {"format": "pt"})
            if shared is None:
                shared = place / BODY
                save_file({name: weights[name] for name in body}, shared, {"format": "pt"})
            else:
                _same_file(shared, place / BODY)
            files = {name: BODY if name in body else HEAD for name in sorted(weights)}
            size = sum(weight.numel() * weight.itemsize for weight in weights.values())
            index = {"metadata": {"total_size": size}, "weight_map": files}
            (place / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def load_heads(
    spec: str,
    labels: Mapping[str, Sequence[str]],
    reading: Reading | None,
    *,
    trust_remote_code: bool = False,
) -> Any:
    """The model with a new head for each task, its tokenizer, on the processor.

    A tokenizer without padding pads with its end token; the attention tells them apart.
    """
    models: dict[str, PreTrainedModel] = {}
    for task, words in labels.items():
        loaded = load_classifier(
            spec, new_head=words, device="cpu", trust_remote_code=trust_remote_code
        )
        kind, model, tokenizer = loaded.kind, loaded.model, loaded.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        if models:  # the memory of its own body is free again before the next is loaded
            setattr(model, model.base_model_prefix, next(iter(models.values())).base_model)
        models[task] = model
    return Heads(models, kind, reading or Reading.of(kind)), tokenizer


def _once(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights of a model, tied ones under their first name."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        if id(weight) not in seen:
            seen.add(id(weight))
            found[name] = weight.detach().cpu().contiguous()
    return found


def _same_file(source: Path, place: Path) -> None:
    with suppress(FileNotFoundError):
        place.unlink()
    try:
        os.link(source, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, place)
