"""improve: make a model more consistent, and prove it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience import suites
from consilience.choices import Loss, TrainingText
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    TrustOption,
    err,
    names_in,
    numbers_in,
    out,
    print_json,
    quiet_libraries,
    rows_of,
)
from consilience.errors import ConsilienceError
from consilience.read import parse_json, read_text
from consilience.report.comparison_tables import comparison_tables
from consilience.report.training import lambda_table, table_7
from consilience.types import Protocol

if TYPE_CHECKING:
    from consilience.train.improve import Improved

SHOWN = ("accuracy", "consistency", "consistent_accuracy", "corrected_consistency")


def improve(
    model: Annotated[
        str, typer.Option(help="A masked or causal model: Hub id or folder.", metavar="M")
    ],
    suite: Annotated[str, typer.Option(help="A name or a folder.", metavar="S")],
    train_groups: Annotated[str, typer.Option(help="Relations to train on.", metavar="G,G")],
    validation_groups: Annotated[
        str, typer.Option(help="Relations that choose checkpoint and lambda.", metavar="G,G")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Checkpoints, runs, the best model.")],
    weights: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            help="Weights of the consistency loss to try; by itself 0.1,0.5,1, of vote 1,3,10.",
            metavar="W,W",
        ),
    ] = None,
    loss: Annotated[
        Loss,
        typer.Option(
            help="strict: the paper's; cosine; published: as released; vote: two stages, "
            "words first, then what all wordings say together."
        ),
    ] = "strict",
    vocabulary: Annotated[
        bool, typer.Option("--vocabulary", help="Compare whole vocabularies, not candidates.")
    ] = False,
    mlm: Annotated[
        TrainingText, typer.Option(help="Masked words: in the filled patterns, in --text, or none.")
    ] = "patterns",
    text: Annotated[
        Path | None,
        typer.Option(help="Lines of text, or JSON lines with 'text'; the first 500 are held out."),
    ] = None,
    facts: Annotated[int, typer.Option(help="Facts of each training relation.", min=1)] = 100,
    batch_facts: Annotated[int, typer.Option(help="Facts in a step.", min=1)] = 8,
    accumulation: Annotated[
        int, typer.Option(help="Steps of each relation in an update.", min=1)
    ] = 1,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    learning_rate: Annotated[float, typer.Option(min=0)] = 6e-5,
    validation_facts: Annotated[
        int, typer.Option(help="Facts of each validation relation.", min=1)
    ] = 200,
    seeds: Annotated[
        str, typer.Option(help="Of facts, order and masks; a training with each.", metavar="N,N")
    ] = "42",
    ablations: Annotated[
        bool,
        typer.Option("--ablations", help="Also without consistency loss, candidates and MLM."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="At most so many facts of each test relation.", min=1)
    ] = None,
    lora_rank: Annotated[
        int, typer.Option(help="Train adapters of this rank; 0: all weights.", min=0)
    ] = 0,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16.")] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = False,
    report_to: Annotated[str, typer.Option(help="none, tensorboard, wandb, trackio.")] = "none",
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    trust_remote_code: TrustOption = False,
    protocol: ProtocolOption = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Continue training so that all wordings of a fact get one answer (paper, Section 8).

    Trains with each lambda, keeps the checkpoint with the best Consistent-Acc on the validation
    relations, and measures before and after on all other N-1 relations, with paired tests. The same
    command goes on with what was stopped.
    """
    try:
        from consilience.train.improve import improve as train
        from consilience.train.plan import Plan
    except ImportError as error:
        raise ConsilienceError(
            f"'{error.name}' is not installed",
            todo="Install it with `pip install 'consilience[train]'`.",
        ) from error

    chosen = suites.load_suite(suite, data_dir)
    rules: Protocol = protocol or chosen.protocol
    chosen_seeds = numbers_in(seeds, int, "a whole number, such as 42")
    plan = Plan(
        train=tuple(names_in(train_groups)),
        validation=tuple(names_in(validation_groups)),
        weights=_weights(weights, loss),
        loss=loss,
        vocabulary=vocabulary,
        text=mlm,
        facts=facts,
        batch=batch_facts,
        accumulation=accumulation,
        epochs=epochs,
        learning_rate=learning_rate,
        validation_facts=validation_facts,
        seed=chosen_seeds[0],
        lora_rank=lora_rank,
        bf16=bf16,
        gradient_checkpointing=gradient_checkpointing,
        report_to=report_to,
    )
    with quiet_libraries(model):
        found = train(
            model,
            chosen,
            plan,
            folder,
            protocol=rules,
            lines=_lines(text) if text else (),
            seeds=chosen_seeds,
            ablations=ablations,
            test_facts=limit,
            device=device,
            trust_remote_code=trust_remote_code,
            say=lambda step: err.print(f"{step} ..."),
        )
    if found is None:  # one of several processes, not the first
        return
    if as_json:
        print_json(_document(found))
        return
    title = f"{chosen.name}, protocol {rules}, seed {found.best.seed}"
    for table in comparison_tables(found.best.compared, SHOWN, title):
        out.print(table)
    for table in table_7(found.table, found.relations):
        out.print(table)
    out.print(lambda_table(found.lambdas))
    if found.perplexity is None:
        out.print("What it cost in perplexity was not measured: no --text.")
    out.print(f"Model: {found.best.chosen.model}", soft_wrap=True)


def _document(found: Improved) -> dict[str, Any]:
    return {
        "before": rows_of(found.before),
        "perplexity": found.perplexity,
        "outcomes": [
            {
                "name": each.name,
                "seed": each.seed,
                "lambda": each.weight,
                "validation": {f"{at:g}": dict(t.validation) for at, t in each.tried.items()},
                "perplexity": each.chosen.perplexity,
                "after": rows_of(each.metrics),
                "differences": rows_of(each.compared),
                "model": str(each.chosen.model),
            }
            for each in found.outcomes
        ],
        "model": str(found.best.chosen.model),
    }


def _weights(listed: str | None, loss: Loss) -> tuple[float, ...]:
    from consilience.train.plan import PAPERS, VOTES

    if listed is None:
        return VOTES if loss == "vote" else PAPERS
    return tuple(numbers_in(listed, float, "such as 0.5"))


def _lines(path: Path) -> list[str]:
    """Lines of text, or the ``text`` of lines of JSON."""
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        if path.suffix != ".jsonl":
            found.append(line.strip())
            continue
        try:
            found.append(str(parse_json(line)["text"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConsilienceError(
                "no JSON object with 'text'", where=f"{path}:{number}"
            ) from error
    return [text for text in found if text.strip()]
