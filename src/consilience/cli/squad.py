"""squad: question answering before and after, on original and paraphrased questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from consilience.analysis.reading import (
    Question,
    check_pairs,
    compare,
    evaluate,
    outcomes,
    read_squad,
)
from consilience.cli.shared import (
    AsJson,
    TrustOption,
    out,
    print_json,
    progress_bar,
    quiet_libraries,
    rows_of,
    warn,
)
from consilience.files import csv_of, write_whole
from consilience.report.analysis import frame_table
from consilience.run import versions

File = Annotated[Path, typer.Option(help="SQuAD v1.1 JSON.")]


def squad(
    model: Annotated[str, typer.Option(help="A Hub id or a folder.", metavar="M")],
    train: File,
    original: File,
    paraphrased: Annotated[
        Path, typer.Option(help="The same questions in other words, in the order of --original.")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Fine-tuned models and tables go here.")],
    before: Annotated[
        str | None, typer.Option(help="What --model was made from.", metavar="M")
    ] = None,
    epochs: Annotated[float, typer.Option(help="Of fine-tuning.", min=0)] = 2,
    lr: Annotated[float, typer.Option(help="The highest learning rate.")] = 3e-5,
    batch: Annotated[int, typer.Option(help="Windows a step.", min=1)] = 16,
    max_steps: Annotated[int, typer.Option(help="Instead of --epochs; -1: none.", min=-1)] = -1,
    limit: Annotated[
        int | None, typer.Option(help="Ask only so many pairs, the first ones.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of fine-tuning and intervals.")] = 0,
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    trust_remote_code: TrustOption = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on SQuAD; are paraphrased questions answered as well, and the same?

    Paper, Section 8.3. Intervals are over articles or contexts. A fine-tuned model that lies in
    --out is used again; one that was stopped goes on.
    """
    from consilience.train.squad import finetune

    taught = read_squad(train)
    pairs = read_squad(original), read_squad(paraphrased)
    check_pairs(*pairs)
    asked = pairs[0][:limit], pairs[1][:limit]
    specs = ({"before": before} if before else {}) | {"model": model}
    found = {}
    with quiet_libraries(", ".join(specs.values())):
        for name, spec in specs.items():
            with progress_bar(f"fine-tuning {name}", None, "steps") as advance:
                finetune(
                    spec,
                    taught,
                    folder / name,
                    epochs=epochs,
                    lr=lr,
                    batch=batch,
                    max_steps=max_steps,
                    seed=seed,
                    device=device,
                    trust_remote_code=trust_remote_code,
                    progress=advance,
                )
            found[name] = _ask(folder / name, name, asked, device, trust_remote_code)
    named = [(pl.lit(name).alias("model"), table) for name, table in found.items()]
    tables = {
        "answers": pl.concat([table.select(name, pl.all()) for name, table in named]),
        "metrics": pl.concat(
            [evaluate(table, seed).select(name, pl.all()) for name, table in named]
        ),
    }
    if before:
        tables["comparison"] = compare(found["before"], found["model"], seed)
    for name, table in tables.items():
        write_whole(folder / f"{original.stem}-{name}.csv", csv_of(table))
    contexts = {each.context for each in taught}
    seen = sum(each.context in contexts for each in asked[0])
    notes = [f"{seen} of {len(asked[0])} questions are on contexts of --train"] if seen else []
    run: dict[str, Any] = {"models": specs, "train": str(train), "original": str(original)}
    run |= {"paraphrased": str(paraphrased), "path": str(folder), "versions": versions()}
    run |= {"epochs": epochs, "lr": lr, "batch": batch, "max_steps": max_steps}
    run |= {"limit": limit, "seed": seed} | (
        {"trust_remote_code": True} if trust_remote_code else {}
    )
    _show(run, tables, notes, as_json)


def _ask(
    folder: Path,
    name: str,
    asked: tuple[list[Question], list[Question]],
    device: str,
    trust_remote_code: bool,
) -> pl.DataFrame:
    from consilience.train.squad import answer, load_reader

    model, tokenizer, _ = load_reader(
        str(folder), trained=True, device=device, trust_remote_code=trust_remote_code
    )
    with progress_bar(f"asking {name}", None, "windows") as advance:
        texts = answer(model, tokenizer, [*asked[0], *asked[1]], progress=advance)
    return outcomes(*asked, (texts[: len(asked[0])], texts[len(asked[0]) :]))


def _show(
    run: dict[str, Any], tables: dict[str, pl.DataFrame], notes: list[str], as_json: bool
) -> None:
    if as_json:
        shown = {name: rows_of(table) for name, table in tables.items() if name != "answers"}
        print_json({"run": run, **shown, "warnings": notes})
        return
    about = {"metric": "metric", "subset": "questions"}
    ends = {"low": "low", "high": "high"}
    headings = {"model": "model", **about, "value": "value", **ends, "n": "pairs"}
    headings |= {"clusters": "clusters"}
    title = "Question answering, in percent (difference: paraphrased minus original)"
    out.print(frame_table(tables["metrics"], title, headings))
    if "comparison" in tables:
        headings = {**about, "before": "before", "after": "after", "difference": "points", **ends}
        headings |= {"p": "p", "test": "test", "smallest": "smallest"}
        out.print(frame_table(tables["comparison"], "After minus before", headings))
    warn(notes)
    out.print(f"Written: {run['path']}", soft_wrap=True)
