"""perturb: is a label kept when the order and the format of a sentence pair change?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from consilience.choices import Joined, Long, Pool
from consilience.cli.pairs import (
    IndicatorsOption,
    JoinedOption,
    LongestOption,
    PoolOption,
    TaskOption,
    pairs_of,
    task_of,
)
from consilience.cli.shared import (
    AsJson,
    TrustOption,
    names_in,
    out,
    print_json,
    progress_bar,
    quiet_libraries,
    rows_of,
    warn,
)
from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics.perturbed import (
    form_changes,
    measure_perturbed,
    perturbed_remarks,
)
from consilience.perturb import GENERATED, ask_freely, ask_pairs, inconsistent, write_forms
from consilience.report.metric_tables import change_table, changed_answers_table, form_tables
from consilience.run import PAIRS, RunFolder, seed_folders
from consilience.suites.pairs import Pairs
from consilience.suites.perturbations import (
    PAPERS,
    Perturbation,
    chosen,
    original,
    t5_original,
)
from consilience.types import Form, Task, TextPair
from consilience.workflow.pairs import labels_of, seed_notes

if TYPE_CHECKING:
    from consilience.models.classifier import PairClassifier
    from consilience.models.label_writer import LabelWriter


def perturb(
    model: Annotated[
        str,
        typer.Option(
            help="A trained classifier (Hub id, folder), or what finetune wrote: all its seeds. "
            "With --generate a language model.",
            metavar="M",
        ),
    ],
    task: TaskOption,
    data: Annotated[
        str, typer.Option(help="TSV, CSV, JSON, JSONL, Parquet, or hub:SPLIT.", metavar="F")
    ],
    folder: Annotated[Path, typer.Option("--out", help="The run's folder.")],
    perturbations: Annotated[
        str, typer.Option(help="Their names, or all (docs/tasks.md).", metavar="P,P")
    ] = ",".join(PAPERS),
    generate: Annotated[
        bool,
        typer.Option("--generate", help="The model writes the label's word, and chooses it too."),
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            help="With --generate: a text with {text}, {labels}, {first}, {second}; by itself "
            "T5's form, and a question for causal models.",
            metavar="TEXT",
        ),
    ] = None,
    indicators: IndicatorsOption = None,
    joined: JoinedOption = None,
    pool: PoolOption = None,
    longest: LongestOption = None,
    long: Annotated[
        Long,
        typer.Option(
            help="Items too long for the model: truncate their sentences, or exclude the items."
        ),
    ] = "truncate",
    model_labels: Annotated[
        str | None,
        typer.Option(help="What the model's labels mean, in its order, if it does not say."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many pairs, drawn by --seed.", min=1)
    ] = None,
    half: Annotated[
        int | None, typer.Option(help="Only this half of --data.", min=1, max=2)
    ] = None,
    examples: Annotated[
        int, typer.Option(help="Changed answers to print; all are in the folder.", min=0)
    ] = 3,
    seed: Annotated[int, typer.Option(help="Of --limit and of the intervals.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Of a model on the Hub.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    trust_remote_code: TrustOption = False,
    as_json: AsJson = False,
) -> None:
    """Ask for the labels of sentence pairs in their original form and in others (CALUM).

    C_R and C_S are the consistency of reverse and signal: the share of pairs whose label is that of
    the original form. The same command goes on with what was stopped.
    """
    main = task_of(task, indicators)
    pairs = pairs_of(data, main, half=half, limit=limit, seed=seed)
    formats = chosen(names_in(perturbations))
    models = _models(model, main.name)
    _refuse_others(folder, models)
    asked: dict[str, object] = {
        "kind": PAIRS,
        "suite": "calum",
        "task": asdict(main),
        "pairs": pairs.digest,
        "limit": limit,
        "half": half,
        "perturbations": list(formats),
        "long": long,
        "seed": seed,
    }
    how = _How(
        main,
        indicators is not None,
        template,
        joined,
        pool,
        longest,
        names_in(model_labels) if model_labels else None,
        {
            "revision": revision,
            "device": device,
            "dtype": dtype,
            "trust_remote_code": trust_remote_code,
        },
    )
    load = partial(_load_writer if generate else _load_classifier, how=how)
    if not generate and template:
        raise ConsilienceError("--template without --generate", todo="Add --generate.")
    runs, changed, told = [], [], {"": pairs.notes}
    for name, spec in models.items():
        run, answers, telling = _ask(
            spec, folder / name if name else folder, main, pairs, formats, asked, load, long
        )
        run.describe("data", data)
        runs.append(answers)
        changed.append(telling.with_columns(pl.lit(name).alias("seed")))
        told[name] = run.record["warnings"]
    labels, notes = labels_of(main), seed_notes(told)
    metrics = measure_perturbed(runs, labels, seed)
    changes = form_changes(runs, labels, seed)
    found = pl.concat(changed).sort("margin", descending=True, nulls_last=True)
    write_whole(folder / "metrics.csv", csv_of(metrics))
    write_whole(folder / "changes.csv", csv_of(changes))
    write_whole(folder / "inconsistent.csv", csv_of(found))
    if as_json:
        record = {"asked": asked, "models": models, "path": str(folder)}
        numbers = {"metrics": rows_of(metrics), "changes": rows_of(changes)}
        print_json({"run": record, **numbers, "warnings": notes})
        return
    seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
    for group in metrics["group"].unique(maintain_order=True):
        title = f"{group}, {model}{seeds}, in percent"
        for table in form_tables(metrics.filter(pl.col("group") == group), title):
            out.print(table)
        out.print(change_table(changes.filter(pl.col("group") == group)))
    if examples and found.height:
        out.print(changed_answers_table(found, examples))
    warn(notes)
    out.print(f"Run: {folder}", soft_wrap=True)


def _models(spec: str, task: str) -> dict[str, str]:
    """The model, or those of all seeds that finetune wrote, by the name of their folder."""
    folder = Path(spec)
    seeds = seed_folders(folder)
    if not seeds:
        inside = folder / task
        return {"": str(inside) if (inside / "config.json").is_file() else spec}
    for each in seeds:
        if not (each / task / "config.json").is_file():
            heads = sorted(path.parent.name for path in each.glob("*/config.json"))
            raise ConsilienceError(
                f"no model for the task '{task}'",
                expected=", ".join(heads) or "a training that is done",
                where=str(each),
                todo=f"Ask for one of these: --task {heads[0]}; or in a TOML file, "
                f'name = "{heads[0]}".'
                if heads
                else "Rerun the same `consilience finetune` to finish it.",
            )
    return {each.name: str(each / task) for each in seeds}


def _refuse_others(folder: Path, models: Mapping[str, str]) -> None:
    """Refuse a folder with the run of one model where seeds are asked, or with other seeds."""
    found = "one model" if (folder / "run.json").is_file() and "" not in models else ""
    others = [
        each.name
        for each in seed_folders(folder)
        if (each / "run.json").is_file() and each.name not in models
    ]
    if found or others:
        raise ConsilienceError(
            f"this folder holds another run: of {found or ', '.join(others)}",
            where=str(folder),
            todo=f"{OTHER_OUT}, or remove the folder.",
        )


@dataclass(frozen=True, slots=True)
class _How:
    """How a model is loaded and asked; ``given``: whether the indicators are those of the user."""

    task: Task
    given: bool
    template: str | None
    joined: Joined | None
    pool: Pool | None
    longest: int | None
    model_labels: Sequence[str] | None
    options: Mapping[str, Any]


def _load_classifier(spec: str, how: _How) -> tuple[PairClassifier, Callable[[TextPair], Form]]:
    """A classifier, and the original form as it was trained on it unless indicators are given."""
    from consilience.models.classifier import load_pair_classifier

    model = load_pair_classifier(
        spec,
        how.task.labels,
        joined=how.joined,
        pool=how.pool,
        longest=how.longest,
        model_labels=how.model_labels,
        **how.options,
    )
    trained = None if how.given else model.input.reading.indicators
    return model, partial(original, indicators=trained or how.task.indicators)


def _load_writer(spec: str, how: _How) -> tuple[LabelWriter, Callable[[TextPair], Form]]:
    """A model that writes, and the original form: T5's where there is no template."""
    from consilience.models.label_writer import LabelWriter
    from consilience.models.loading import load_pretrained

    for name in ("joined", "pool", "model_labels"):
        if getattr(how, name) is not None:
            option = "input" if name == "joined" else name.replace("_", "-")
            raise ConsilienceError(f"--{option} with --generate", todo="Leave it out.")
    loaded = load_pretrained(spec, **how.options)
    model = LabelWriter(loaded, how.task, how.template, how.longest or 0)
    if how.given and model.template is None:
        raise ConsilienceError(
            "--indicators with T5's own form, which has its own",
            todo="Give a --template too, or leave it out.",
        )
    form = partial(original, indicators=how.task.indicators)
    return model, partial(t5_original, task=how.task) if model.template is None else form


def _ask(
    spec: str,
    place: Path,
    task: Task,
    pairs: Pairs,
    formats: dict[str, Perturbation],
    asked: dict[str, object],
    load: Callable[[str], Any],
    long: Any,
) -> tuple[RunFolder, pl.DataFrame, pl.DataFrame]:
    """One model's answers, and those that changed; what is there is not asked again."""
    with quiet_libraries(spec):
        model, form = load(spec)
    run = RunFolder(place, {**asked, "model": model.identity})
    run.multiplied_by(model.products.record())
    questions = write_forms(task, pairs.items, form, formats, model, long=long)
    run.note([*pairs.notes, *questions.notes])
    size = len(questions.pairs) * len(questions.names)
    groups = {task.name: partial(ask_pairs, questions, model)}
    if hasattr(model, "write"):
        from consilience.models.label_writer import label_of

        groups[task.name + GENERATED] = partial(ask_freely, questions, model.write, label_of)
    found = {}
    for group, ask in reversed(groups.items()):  # writing also reads what choosing needs
        answers = run.answers(group, size)
        if answers is None:
            with progress_bar(f"asking {place.name}", size, "forms") as advance:
                answers = ask(progress=advance)
            run.write_answers(group, answers)
        found[group] = answers
    tables = [found[group] for group in groups]
    answers = pl.concat(tables)
    metrics = measure_perturbed([answers], labels_of(task), run.asked["seed"])
    run.note(perturbed_remarks(answers, metrics))
    run.finish(metrics)
    return run, answers, pl.concat([inconsistent(questions, each) for each in tables])
