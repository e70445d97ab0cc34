"""The folder of one training, which resumes it: settings, checkpoints and result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from accelerate.state import PartialState
from transformers import PreTrainedModel

from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import is_disk_full, write_whole
from consilience.models.fast import Library, speed_up_training
from consilience.provenance import versions
from consilience.read import parse_json
from consilience.record import Fields, fault

FILE = "training.json"
"""The record of a training: settings, versions, whether it is finished, history, result."""

PRODUCTS = "products.json"
"""The library that multiplies in an unfinished training (``speed_up``)."""

FIELDS: Fields = {
    "an object": ("settings",),
    "true or false": ("finished",),
    "a number": ("epochs", "seconds"),
    "a number or null": ("perplexity",),
    "an object of numbers": ("validation",),
    "an object of whole numbers": ("checkpoint", "truncated", "truncated_validation"),
}
"""The fields of ``FILE`` that are read."""

WRITE_FAULTS = ("Error while serializing", "inline_container", "PytorchStreamWriter")
"""In the message of a failed write of safetensors or torch, which has no errno."""


@dataclass(frozen=True, slots=True)
class TrainingFolder:
    """A folder that holds one training, whole or to be resumed."""

    path: Path
    """The folder, which the first call of ``is_finished`` creates."""
    settings: Mapping[str, Any]
    """Everything that decides the training. A folder with other settings is refused."""

    def is_finished(self) -> bool:
        """Whether the result is here. Takes a new folder; a folder with other content raises.

        A folder with other settings but without a checkpoint was taken by mistake, and is reused.
        """
        if not (self.path / FILE).exists():
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise ConsilienceError(
                    "not empty, and not the folder of a training",
                    where=str(self.path),
                    todo=f"{OTHER_OUT}.",
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(finished=False)
            return False
        record = self._read()
        if not record["finished"] and not any(self.path.glob("checkpoint*")):
            self._write(finished=False)
            return False
        for name, value in json.loads(json.dumps(self.settings)).items():
            if record["settings"].get(name) != value:
                raise ConsilienceError(
                    f"this folder holds another training: its {name} is "
                    f"{record['settings'].get(name)}, this command's is {value}",
                    where=str(self.path),
                    todo=f"{OTHER_OUT}, or remove the folder.",
                )
        if record["finished"]:
            self._remove_checkpoints()  # of a process that was killed at its very end
        return bool(record["finished"])

    @property
    def has_result(self) -> bool:
        """Whether a finished training is here, whatever its settings."""
        try:
            return bool(self._read()["finished"])
        except ConsilienceError:
            return False

    def result(self, needed: Sequence[str], validation: Sequence[str]) -> dict[str, Any]:
        """The record of a finished training; raises without a ``needed`` field.

        ``validation``: names of the validation results that are needed too.
        """
        record = self._read()
        problem = fault(record, {}, ("validation", *needed))
        self._refuse(problem or fault(record["validation"], {}, validation, "validation."))
        return record

    def finish(self, **result: Any) -> None:
        """Record the result of the training, and remove what only a resumed training needs."""
        self._write(finished=True, **result)
        self._remove_checkpoints()

    def last_checkpoint(self) -> str | None:
        """The last complete checkpoint; one whose writing was interrupted does not count."""
        complete: dict[int, Path] = {}
        for path in self.path.glob("checkpoint-*/trainer_state.json"):  # written last
            with suppress(OSError, ValueError, KeyError, TypeError):
                step = int(parse_json(path.read_text(encoding="utf-8"))["global_step"])
                complete[step] = path.parent
        return str(complete[max(complete)]) if complete else None

    def speed_up(self, models: Mapping[str, PreTrainedModel]) -> dict[str, dict[str, Any]]:
        """Let linear layers multiply with the faster library; the choice for each model.

        The libraries round differently, so a resumed training keeps the choice that it began with,
        whatever a new measurement says.
        """
        before = self._products() if self.last_checkpoint() else {}
        products = {}
        for name, model in models.items():
            known = before.get(name, {})
            measured = speed_up_training(model, known.get("library")).record()
            products[name] = known if known.get("library") == measured["library"] else measured
        if PartialState().is_main_process:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / PRODUCTS, json.dumps(products, indent=1).encode())
        return products

    def _products(self) -> dict[str, dict[str, Any]]:
        """The choices that the training began with; empty where they cannot be read."""
        try:
            record = parse_json((self.path / PRODUCTS).read_bytes())
            return {
                name: choice
                for name, choice in record.items()
                if choice["library"] in get_args(Library)
            }
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return {}

    def _remove_checkpoints(self) -> None:
        """Each has the optimizer's state, and so three times the size of the model."""
        for path in self.path.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
        (self.path / PRODUCTS).unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = parse_json((self.path / FILE).read_bytes())
            problem = fault(record, FIELDS, ("settings", "finished"))
        except OSError as error:
            problem = error.strerror or str(error)
        except ValueError as error:
            problem = str(error)
        self._refuse(problem)
        return record

    def _refuse(self, problem: str) -> None:
        """Raise where the record has a problem."""
        if problem:
            raise ConsilienceError(
                f"not the record of a training: {problem}",
                where=str(self.path / FILE),
                todo=f"Restore it. {OTHER_OUT}, or remove the folder, to train again.",
            )

    def _write(self, *, finished: bool, **result: Any) -> None:
        record = {"settings": self.settings, "versions": versions(), "finished": finished, **result}
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        write_whole(self.path / FILE, text.encode())


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write in ``folder`` into one message, whichever library was writing."""
    try:
        yield
    except Exception as error:
        if is_disk_full(error) or shutil.disk_usage(folder).free < 4096:
            raise ConsilienceError(
                "the disk is full",
                where=str(folder),
                todo="Earlier checkpoints are complete. Free some space and rerun the command.",
            ) from error
        if any(text in str(error) for text in WRITE_FAULTS):
            raise ConsilienceError(
                f"cannot be written: {str(error).splitlines()[0]}",
                where=str(folder),
                todo="Earlier checkpoints are complete. Rerun the command to resume.",
            ) from error
        raise
