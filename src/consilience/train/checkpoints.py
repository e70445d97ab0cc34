"""Checkpoints that can be gone on from, whatever stopped the training."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.trainer_utils import get_last_checkpoint

from consilience.errors import ConsilienceError


def last_whole_checkpoint(place: Path) -> str | None:
    """The last checkpoint that was written to its end; what was broken off behind it is removed."""
    while place.is_dir() and (last := get_last_checkpoint(str(place))):
        try:  # the Trainer writes this file last
            json.loads((Path(last) / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(last)
        else:
            return str(last)
    return None


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """A full disk is told as what it is, whichever library was writing."""
    try:
        yield
    except Exception as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or shutil.disk_usage(place).free < 4096
        if not full:
            raise
        raise ConsilienceError(
            "the disk is full",
            where=str(place),
            todo="The checkpoints before are whole; make room and give the same command again.",
        ) from error
