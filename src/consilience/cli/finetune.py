"""finetune: a classifier of sentence pairs, of one task or of several at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.choices import Sampling, StopOn
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
    err,
    numbers_in,
    out,
    print_json,
    quiet_libraries,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.report.table import Cell, Column, Table, Value
from consilience.suites.tasks import load_task

if TYPE_CHECKING:
    from consilience.train.finetune import Finetuned, Recipe, Source


def finetune(
    model: Annotated[
        str,
        typer.Option(
            help="An encoder, decoder or sequence-to-sequence model: Hub id, folder, GGUF file, "
            "packaged:minilm, packaged:smollm2.",
            metavar="M",
        ),
    ],
    task: TaskOption,
    train: Annotated[
        str, typer.Option(help="TSV, CSV, JSON, JSONL, Parquet, or hub:SPLIT.", metavar="F")
    ],
    validation: Annotated[
        str, typer.Option(help="Pairs that choose the best checkpoint.", metavar="F")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Gets seed-N/TASK, the models.")],
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Another task beside it, with a head of its own: mrpc=TRAIN or "
            "mrpc=TRAIN,VALIDATION. Repeat for more.",
            metavar="T=F",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Of head, order and dropout; a training with each.", metavar="N,N")
    ] = "0,1,2,3,4",
    jobs: Annotated[int, typer.Option(help="Seeds that are trained side by side.", min=1)] = 1,
    lr: Annotated[
        str,
        typer.Option(help="Highest learning rate; several are tried with the first seed."),
    ] = "1e-5",
    batch: Annotated[
        str, typer.Option(help="Pairs in a batch; several are tried with the first seed.")
    ] = "64",
    grid: Annotated[
        bool, typer.Option("--grid", help="The paper's: batch 32,64,128 and lr 5e-4,1e-5,5e-6.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    weight_decay: Annotated[float, typer.Option(min=0)] = 1e-3,
    warmup: Annotated[
        float, typer.Option(help="Share of the updates in which the rate rises.", min=0, max=1)
    ] = 0.1,
    patience: Annotated[
        int,
        typer.Option(help="Epochs without a better validation before it stops; 0: none.", min=0),
    ] = 3,
    stop_on: Annotated[StopOn, typer.Option(help="What chooses the best checkpoint.")] = "accuracy",
    sampling: Annotated[
        Sampling, typer.Option(help="Batches of each task in an epoch (docs/calum.md).")
    ] = "proportional",
    joined: JoinedOption = None,
    pool: PoolOption = None,
    longest: LongestOption = None,
    indicators: IndicatorsOption = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many training pairs of a task.", min=1)
    ] = None,
    half: Annotated[
        int | None,
        typer.Option(help="Only this half of --validation; the other is for a test.", min=1, max=2),
    ] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16.")] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    trust_remote_code: TrustOption = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on the original form of sentence pairs (CALUM, Sections 4.3 and 6.1).

    Each seed's best checkpoint goes to --out/seed-N/TASK, as any other model's; `consilience
    perturb` asks them all. The same command goes on with what was stopped.
    """
    try:
        from consilience.train.finetune import Recipe, Source, check
        from consilience.train.seeds import GRID_BATCHES, GRID_RATES, train_seeds
        from consilience.train.seeds import grid as grid_of
    except ImportError as error:
        raise ConsilienceError(
            f"'{error.name}' is not installed",
            todo="Install it with `pip install 'consilience[train]'`.",
        ) from error
    main = task_of(task, indicators)
    sources = [
        Source(main, pairs_of(train, main, limit=limit), pairs_of(validation, main, half=half)),
        *(_other(each, limit) for each in others or ()),
    ]
    sizes = GRID_BATCHES if grid else numbers_in(batch, int, "a whole number, such as 64")
    rates = GRID_RATES if grid else numbers_in(lr, float, "such as 1e-5")
    chosen_seeds = numbers_in(seeds, int, "a whole number, such as 0")
    recipe = Recipe(
        epochs=epochs,
        weight_decay=weight_decay,
        warmup=warmup,
        patience=patience,
        stop_on=stop_on,
        sampling=sampling,
        seed=chosen_seeds[0],
        bf16=bf16,
        gradient_checkpointing=gradient_checkpointing,
    )
    recipes = grid_of(recipe, sizes, rates)
    for each in recipes:
        check(sources, each)
    first = not int(os.environ.get("RANK", "0"))  # of the processes that train together
    with quiet_libraries(model):
        best, tried, found = train_seeds(
            model,
            sources,
            recipes,
            folder,
            chosen_seeds,
            jobs=jobs,
            joined=joined,
            pool=pool,
            longest=longest or 0,
            device=device,
            trust_remote_code=trust_remote_code,
            say=lambda step: err.print(f"{step} ...", highlight=False) if first else None,
        )
    if not first:
        return
    notes = [
        note for each in sources for pairs in (each.train, each.validation) if pairs
        for note in pairs.notes
    ]  # fmt: skip
    notes += _notes(found, sources)
    if as_json:
        document = {
            "model": model,
            "task": main.name,
            "best": {"batch": best.batch, "lr": best.learning_rate},
            "grid": [
                {"batch": each.batch, "lr": each.learning_rate, "validation": dict(one.validation)}
                for each, one in tried
            ],
            "seeds": [_row(seed, each) for seed, each in found.items()],
            "warnings": notes,
        }
        print_json(document)
        return
    _show(model, best, tried, found)
    warn(notes)
    out.print(f"Models: {folder}/seed-*/{main.name}", soft_wrap=True)


def _other(spec: str, limit: int | None) -> Source:
    from consilience.train.finetune import Source

    name, equals, files = spec.partition("=")
    train, comma, validation = files.partition(",")
    if not equals or not train or (comma and not validation):
        raise ConsilienceError(
            f"--with {spec}",
            expected="mrpc=TRAIN or mrpc=TRAIN,VALIDATION",
        )
    task = load_task(name)
    held = pairs_of(validation, task) if validation else None
    return Source(task, pairs_of(train, task, limit=limit), held)


def _notes(found: dict[int, Finetuned], sources: Sequence[Source]) -> list[str]:
    first = next(iter(found.values()))
    given = {each.task.name: each for each in sources}
    counted = [
        *((task, "training", given[task].train, cut) for task, cut in first.cut.items()),
        *(
            (task, "validation", given[task].validation, n)
            for task, n in first.cut_validation.items()
        ),
    ]
    return [
        f"{cut} of {len(pairs.items)} {which} pairs of {task} were too long and were truncated"
        for task, which, pairs, cut in counted
        if cut and pairs
    ]


def _row(seed: int, found: Finetuned) -> dict[str, Any]:
    return {
        "seed": seed,
        "validation": dict(found.validation),
        "epochs": found.epochs,
        "seconds": found.seconds,
        "folder": str(found.folder),
    }


def _show(
    model: str,
    best: Recipe,
    tried: Sequence[tuple[Recipe, Finetuned]],
    found: dict[int, Finetuned],
) -> None:
    tasks = list(next(iter(found.values())).validation)
    if len(tried) > 1:
        columns = [Column("batch", "count"), Column("lr", "number"), Column(tasks[0], "share")]
        rows: list[list[Value]] = [
            [recipe.batch, f"{recipe.learning_rate:g}", trained.validation[tasks[0]],
             "kept" if recipe == best else ""]
            for recipe, trained in tried
        ]  # fmt: skip
        title = "Tried with the first seed: validation accuracy, in percent"
        out.print(Table(title, [*columns, Column("")], rows))
    columns = [Column("seed", "number"), *(Column(task, "share") for task in tasks)]
    columns += [Column("epochs", "number"), Column("minutes", "number")]
    rows = [
        [f"{seed}", *(trained.validation[task] for task in tasks), f"{trained.epochs:g}",
         trained.seconds / 60]
        for seed, trained in found.items()
    ]  # fmt: skip
    if len(found) > 1:
        values = [[trained.validation[task] for trained in found.values()] for task in tasks]
        means = [Cell(fmean(reached), stdev(reached)) for reached in values]
        rows.append(["mean", *means, "", ""])
    title = f"{model}: validation accuracy of the best checkpoint, in percent"
    out.print(Table(title, columns, rows))
