"""A data set of a run: its answers, its numbers and its suite as Parquet files, with a data card.

``datasets.load_dataset(FOLDER, TABLE)`` reads it: the card lists the tables as configurations.
The format: https://huggingface.co/docs/hub/datasets-manual-configuration
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

import polars as pl
import yaml

from consilience.publishing.model_card import CARD
from consilience.publishing.public_run import Files, PublicRun

MARK = "<!-- written by `consilience publish` -->"
"""In a data card that may be written again."""

MEANINGS: Mapping[str, str] = {
    "answers": "A row for each item in each variant: the answer, the gold and the scores.",
    "metrics": "A row for each number, with its 95 % interval. Fractions from 0 to 1.",
    "facts": "The facts that were asked: relation, item, subject and object.",
    "patterns": "The cloze patterns of each relation; `variant_index` 0 is the base pattern.",
    "prompts": "What was sent for each item in each variant.",
}
"""The tables of a data set, and what they hold."""

NOT_SHARED = (
    "The texts of the suite are left out, because its licence is unknown or forbids to share them. "
    "In `answers`, `item` and `variant` are positions, and equal numbers in `answer` are equal "
    "answers of a group."
)
"""What a card says of a suite that may not be shared."""


def dataset_files(run: PublicRun) -> Files:
    """The tables and the data card of a run."""
    tables = dict(_tables(run))
    files = {f"data/{name}.parquet": _parquet(table) for name, table in tables.items()}
    return {CARD: _card(run, tables, files).encode(), **files}


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _tables(run: PublicRun) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables by name; those of the suite where its licence allows it."""
    yield "answers", run.shared_answers()
    yield "metrics", run.metrics.with_columns(pl.col(pl.Float64).fill_nan(None))
    if run.prompts is None:
        return
    if run.suite.kind != "facts":
        yield "prompts", run.prompts
        return
    items = run.answers.select("group", "item").unique()
    facts = [
        {"group": group.id, "item": fact.item, "subject": fact.subject, "object": fact.object}
        for group in run.suite.suite
        for fact in group.facts
    ]
    yield "facts", pl.DataFrame(facts).join(items, on=["group", "item"], how="semi")
    patterns = [
        {
            "group": group.id, "label": group.label, "cardinality": group.cardinality,
            "variant_index": at, "pattern": pattern.text, "language": pattern.language,
        }
        for group in run.suite.suite
        for at, pattern in enumerate(group.patterns)
    ]  # fmt: skip
    yield "patterns", pl.DataFrame(patterns)


def _licence(licence: str) -> dict[str, str]:
    """The licence as the Hub has it: one id in small letters, or ``other`` with a name."""
    if re.fullmatch(r"apache-2\.0|mit|cc0-1\.0|cc-by(-nc)?(-sa)?-[234]\.\d", licence.lower()):
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence} if licence else {}


def _card(run: PublicRun, tables: Mapping[str, pl.DataFrame], files: Files) -> str:
    """The data card: metadata of the Hub, the numbers, and what is in the tables.

    ``datasets`` takes what it read before from its cache if name and metadata are the same, so that
    the metadata have to differ where the tables differ: they have the bytes of each file.
    """
    title = f"Answers of {run.model} to {run.suite.name}"
    configs, sizes, listed = [], [], ""
    for name, table in tables.items():
        path, is_default = f"data/{name}.parquet", {"default": True} if name == "answers" else {}
        data_files = [{"split": "test", "path": path}]
        configs.append({"config_name": name, "data_files": data_files, **is_default})
        size = len(files[path])
        splits = [{"name": "test", "num_bytes": size, "num_examples": table.height}]
        of_table = {"config_name": name, "splits": splits}
        sizes.append({**of_table, "download_size": size, "dataset_size": size})
        listed += f"- `{name}` ({table.height:,} rows): {MEANINGS[name]}\n"
    metadata = {
        "pretty_name": title,
        **_licence(run.suite.licence if run.suite.may_be_shared else ""),
        "tags": ["consilience", "consistency", "evaluation"],
        "configs": configs,
        "dataset_info": sizes,
    }
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    left_out = "" if run.suite.may_be_shared else f"\n{NOT_SHARED}\n"
    return (
        f"---\n{front}---\n\n{MARK}\n\n# {title}\n\n{run.as_markdown()}\n## Tables\n\n"
        f"{listed}{left_out}"
    )
