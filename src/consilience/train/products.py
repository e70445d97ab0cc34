"""What multiplies in a training: chosen when it begins, and kept for when it is resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from accelerate.state import PartialState
from transformers import PreTrainedModel

from consilience.files import write_whole
from consilience.models.fast import Library, speed_up_training
from consilience.read import parse_json
from consilience.train.checkpoints import PRODUCTS, last_whole_checkpoint


def train_as_begun(models: Mapping[str, PreTrainedModel], place: Path) -> dict[str, dict[str, Any]]:
    """Speed up the training of models, and say by which library the products of each are made.

    The libraries round differently, so a training that is resumed takes the one that it began with,
    which ``place`` keeps until ``remove_checkpoints``: a new measurement may choose the other one.
    """
    before = _kept(place / PRODUCTS) if last_whole_checkpoint(place) else {}
    found = {}
    for name, model in models.items():
        known = before.get(name, {})
        products = speed_up_training(model, known.get("library")).record()
        found[name] = known if known.get("library") == products["library"] else products
    if PartialState().is_main_process:
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / PRODUCTS, json.dumps(found, indent=1).encode())
    return found


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """What was chosen before, of the models of which that can be read."""
    try:
        found = parse_json(path.read_bytes())
        named = {name: each for name, each in found.items() if each["library"] in get_args(Library)}
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return {}
    return named
