"""improve: make a model more consistent, and prove it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from consilience import suites
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    err,
    names_in,
    out,
    quiet_libraries,
    rows_of,
)
from consilience.errors import ConsilienceError
from consilience.report.comparison import comparison_tables
from consilience.report.tables import mean_and_std, new_table
from consilience.types import Protocol

SHOWN = ("accuracy", "consistency", "consistent_accuracy", "corrected_consistency")


class LossName(StrEnum):
    """Which consistency loss."""

    strict = "strict"
    published = "published"


class TextName(StrEnum):
    """What masked-language modelling reads."""

    patterns = "patterns"
    file = "file"
    none = "none"


def improve(
    model: Annotated[str, typer.Option(help="A masked model: Hub id or folder.", metavar="M")],
    suite: Annotated[str, typer.Option(help="A name or a folder.", metavar="S")],
    train_groups: Annotated[str, typer.Option(help="Relations to train on.", metavar="G,G")],
    validation_groups: Annotated[
        str, typer.Option(help="Relations that choose checkpoint and lambda.", metavar="G,G")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Checkpoints, runs, the best model.")],
    weights: Annotated[
        str, typer.Option("--lambda", help="Weights of the consistency loss to try.")
    ] = "0.02,0.1,0.5",
    loss: Annotated[
        LossName, typer.Option(help="strict: the text's; published: the released code's.")
    ] = LossName.strict,
    vocabulary: Annotated[
        bool, typer.Option("--vocabulary", help="Compare whole vocabularies, not candidates.")
    ] = False,
    mlm: Annotated[
        TextName, typer.Option(help="Masked words: in the filled patterns, in --text, or none.")
    ] = TextName.patterns,
    text: Annotated[
        Path | None,
        typer.Option(help="Lines of text, or JSON lines with 'text'; the first 500 are held out."),
    ] = None,
    facts: Annotated[int, typer.Option(help="Facts of each training relation.", min=1)] = 100,
    batch_facts: Annotated[int, typer.Option(help="Facts in a step.", min=1)] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    learning_rate: Annotated[float, typer.Option(min=0)] = 6e-5,
    validation_facts: Annotated[
        int, typer.Option(help="Facts of each validation relation.", min=1)
    ] = 200,
    seed: Annotated[int, typer.Option(help="Of facts, order and masks.")] = 42,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16.")] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = False,
    report_to: Annotated[str, typer.Option(help="none, tensorboard, wandb, trackio.")] = "none",
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    protocol: ProtocolOption = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Continue training so that all wordings of a fact get one answer (paper, Section 8).

    Trains with each lambda, keeps the checkpoint with the best Consistent-Acc on the validation
    relations, and measures before and after on all other N-1 relations, with paired tests. The same
    command goes on with what was stopped.
    """
    from consilience.train.improve import Plan
    from consilience.train.improve import improve as train

    chosen = suites.load_suite(suite, data_dir)
    rules: Protocol = protocol.value if protocol else chosen.protocol
    plan = Plan(
        train=tuple(names_in(train_groups)),
        validation=tuple(names_in(validation_groups)),
        weights=tuple(_weight(each) for each in names_in(weights)),
        loss=loss.value,
        vocabulary=vocabulary,
        text=mlm.value,
        facts=facts,
        batch=batch_facts,
        epochs=epochs,
        learning_rate=learning_rate,
        validation_facts=validation_facts,
        seed=seed,
        bf16=bf16,
        gradient_checkpointing=gradient_checkpointing,
        report_to=report_to,
    )
    with quiet_libraries():
        found = train(
            model,
            chosen,
            plan,
            folder,
            protocol=rules,
            lines=_lines(text) if text else (),
            device=device,
            say=lambda step: err.print(f"{step} ..."),
        )
    if as_json:
        document = {
            "lambda": found.weight,
            "validation": {f"{weight:g}": value for weight, value in found.tried.items()},
            "before": rows_of(found.before),
            "after": rows_of(found.after),
            "differences": rows_of(found.compared),
            "perplexity": dict(found.cost),
            "model": str(folder / f"lambda-{found.weight:g}" / "model"),
        }
        print(json.dumps(document, ensure_ascii=False))
        return
    for table in comparison_tables(found.compared, SHOWN, f"{chosen.name}, protocol {rules}"):
        out.print(table)
    table = new_table(f"Table 7: means over {_relations(found.before)} test relations, in percent")
    for heading in ("model", "accuracy", "consistency", "consistent-acc"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, metrics in (("before", found.before), ("after", found.after)):
        table.add_row(name, *(_mean(metrics, each) for each in SHOWN[:3]))
    out.print(table)
    for weight, value in found.tried.items():
        kept = " (kept)" if weight == found.weight else ""
        out.print(f"lambda {weight:g}: validation Consistent-Acc {value * 100:.1f}{kept}")
    if found.cost:
        out.print(
            f"Perplexity of held-out text: {found.cost['before']:.2f} before, "
            f"{found.cost['after']:.2f} after"
        )
    out.print(f"Model: {folder / f'lambda-{found.weight:g}' / 'model'}", soft_wrap=True)


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConsilienceError(f"no number in '{text}'", expected="such as 0.5") from None


def _lines(path: Path) -> list[str]:
    """Lines of text, or the ``text`` of lines of JSON."""
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        if path.suffix != ".jsonl":
            found.append(line.strip())
            continue
        try:
            found.append(str(json.loads(line)["text"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConsilienceError(
                "no JSON object with 'text'", where=f"{path}:{number}"
            ) from error
    return [text for text in found if text.strip()]


def _macro(metrics: pl.DataFrame, name: str) -> dict[str, float]:
    named = (pl.col("metric") == name) & (pl.col("group") == "MACRO") & (pl.col("subset") == "all")
    return metrics.filter(named).row(0, named=True)


def _mean(metrics: pl.DataFrame, name: str) -> str:
    row = _macro(metrics, name)
    return mean_and_std(row["value"], row["std"])


def _relations(metrics: pl.DataFrame) -> int:
    return int(_macro(metrics, "accuracy")["n"])
