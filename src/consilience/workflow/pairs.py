"""What runs of sentence pairs were asked, and the notes of several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from consilience.metrics.perturbed import Labels
from consilience.perturb import GENERATED
from consilience.run import Run
from consilience.suites.tasks import task_of_table
from consilience.types import Task


def seed_notes(told: Mapping[str, Sequence[str]]) -> list[str]:
    """Each note once; a note on some seeds only names them.

    ``told``: the notes of each seed by its name; those of the name "" are about all of them.
    """
    seeds = [name for name in told if name]
    notes = dict.fromkeys(note for each in told.values() for note in each)
    having = {note: [name for name in seeds if note in told[name]] for note in notes}
    return [
        note
        if note in told.get("", ()) or len(names) == len(seeds)
        else f"{', '.join(names)}: {note}"
        for note, names in having.items()
    ]


def task_asked(run: Run) -> Task:
    """The task that perturb asked."""
    fields = run.settings.get("task", {})
    given = {name: value for name, value in fields.items() if value is not None}
    return task_of_table(given, str(run.seeds[0].path / "run.json"))


def labels_of(task: Task) -> dict[str, Labels]:
    """What may be answered in the groups of a run of this task."""
    labels = Labels(task.labels, "f1" in task.metrics)
    return {task.name: labels, task.name + GENERATED: labels}
