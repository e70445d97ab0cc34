"""The folder of one training: what was asked, and whether it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import write_whole
from consilience.provenance import versions
from consilience.read import parse_json
from consilience.record import NUMBER, OBJECT, TRUTH, WHOLE, Fields, fault, object_of

FILE = "finetune.json"

FIELDS: Fields = {
    "asked": OBJECT,
    "finished": TRUTH,
    "validation": object_of(NUMBER),
    "epochs": NUMBER,
    "seconds": NUMBER,
    "cut": object_of(WHOLE),
    "cut_validation": object_of(WHOLE),
}
"""What is read of ``FILE``."""


def is_finished(out: Path, asked: Mapping[str, Any]) -> bool:
    """Whether the model of just this training lies in ``out``; takes a new folder for it.

    A folder that holds another training, or something else, raises. One that was taken for another
    training of which nothing was kept, because it was asked for by mistake, is taken anew.
    """
    record = out / FILE
    if not record.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConsilienceError(
                "not empty, and not the folder of a fine-tuned model",
                where=str(out),
                todo=f"{OTHER_OUT}.",
            )
        out.mkdir(parents=True, exist_ok=True)
        write_record(out, asked, finished=False)
        return False
    found = read_record(out)
    before, finished = found["asked"], found["finished"] is True
    if not finished and not any(out.glob("checkpoint*")):
        write_record(out, asked, finished=False)
        return False
    for name, value in json.loads(json.dumps(asked)).items():
        if before.get(name) != value:
            raise ConsilienceError(
                f"this folder holds another training: its {name} is {before.get(name)}, "
                f"now asked is {value}",
                where=str(out),
                todo=f"{OTHER_OUT}, or remove the folder.",
            )
    return finished


def read_record(out: Path) -> dict[str, Any]:
    """What was written of a training; a damaged record raises."""
    return read_checked(out / FILE, FIELDS, ("asked", "finished"))


def read_checked(path: Path, fields: Fields, needed: Sequence[str]) -> dict[str, Any]:
    """The JSON object of a file that has these fields."""
    try:
        found: dict[str, Any] = parse_json(path.read_bytes())
        problem = fault(found, fields, needed)
    except OSError as error:
        problem = error.strerror or str(error)
    except ValueError as error:
        problem = str(error)
    refuse_fault(path, problem)
    return found


def refuse_fault(path: Path, problem: str) -> None:
    """Raise where something is wrong with the record of a training."""
    if problem:
        raise ConsilienceError(
            f"not the record of a training: {problem}",
            where=str(path),
            todo=f"Restore it. {OTHER_OUT}, or remove the folder, to train again.",
        )


def write_record(out: Path, asked: Mapping[str, Any], *, finished: bool, **more: Any) -> None:
    """Write what was asked, whether it is done, and ``more`` that came of it."""
    record = {"asked": asked, "versions": versions(), "finished": finished, **more}
    write_whole(out / FILE, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
