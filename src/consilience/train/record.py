"""The folder of one training: what was asked, and whether it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import write_whole
from consilience.read import parse_json
from consilience.run import versions

FILE = "finetune.json"


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
    before, finished = dict(found["asked"]), bool(found["finished"])
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
    """What was written of a training."""
    path = out / FILE
    try:
        found: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        dict(found["asked"])
        bool(found["finished"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConsilienceError("not the record of a training", where=str(path)) from error
    return found


def write_record(out: Path, asked: Mapping[str, Any], *, finished: bool, **more: Any) -> None:
    """Write what was asked, whether it is done, and ``more`` that came of it."""
    record = {"asked": asked, "versions": versions(), "finished": finished, **more}
    write_whole(out / FILE, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
