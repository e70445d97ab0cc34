"""Checkpoints that can be gone on from, whatever stopped the training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.files import is_disk_full
from consilience.read import parse_json

PRODUCTS = "products.json"
"""What a training began to multiply with (``products.py``)."""


def last_whole_checkpoint(place: Path) -> str | None:
    """The last checkpoint that was written to its end; one that was broken off is passed over."""
    whole: dict[int, Path] = {}
    for path in place.glob("checkpoint-*/trainer_state.json"):  # the Trainer writes it last
        with suppress(OSError, ValueError, KeyError, TypeError):
            whole[int(parse_json(path.read_text(encoding="utf-8"))["global_step"])] = path.parent
    return str(whole[max(whole)]) if whole else None


def remove_checkpoints(place: Path) -> None:
    """Of a training that is done; with the optimizer's state each is three times the model.

    And what was kept beside them for a training that resumes.
    """
    for path in place.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    (place / PRODUCTS).unlink(missing_ok=True)


FAULTS_OF_WRITERS = ("Error while serializing", "inline_container", "PytorchStreamWriter")
"""What safetensors and torch say of a write that failed, without an errno."""


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """A write that fails is one message, whichever library was writing."""
    try:
        yield
    except Exception as error:
        if is_disk_full(error) or shutil.disk_usage(place).free < 4096:
            raise ConsilienceError(
                "the disk is full",
                where=str(place),
                todo="The checkpoints before are whole; make room and give the same command again.",
            ) from error
        if any(fault in str(error) for fault in FAULTS_OF_WRITERS):
            raise ConsilienceError(
                f"cannot be written: {str(error).splitlines()[0]}",
                where=str(place),
                todo="The checkpoints before are whole; give the same command again.",
            ) from error
        raise
