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

from consilience.publishing.public_run import PublicFile, PublicRun
from consilience.report.export import as_markdown

CARD = "README.md"

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


def dataset_files(run: PublicRun) -> list[PublicFile]:
    """The tables and the data card of a run."""
    tables = dict(_tables(run))
    made = {name: _parquet(table) for name, table in tables.items()}
    sizes = {name: len(content) for name, content in made.items()}
    files = [PublicFile(f"data/{name}.parquet", content) for name, content in made.items()]
    return [PublicFile(CARD, card_of(run, tables, sizes).encode()), *files]


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _tables(run: PublicRun) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables by name; those of the suite where its licence allows it."""
    yield "answers", run.shared_answers()
    yield "metrics", run.metrics.with_columns(pl.col(pl.Float64).fill_nan(None))
    if not run.suite.may_be_shared:
        return
    if run.suite.kind == "facts":
        yield from _fact_tables(run)
    elif run.prompts is not None:
        yield "prompts", run.prompts


def _fact_tables(run: PublicRun) -> Iterator[tuple[str, pl.DataFrame]]:
    """The facts that were asked, and the patterns of their relations."""
    items = run.answers.select("group", "item").unique()
    facts = [
        {"group": group.id, "item": fact.item, "subject": fact.subject, "object": fact.object}
        for group in run.suite.suite
        for fact in group.facts
    ]
    yield "facts", pl.DataFrame(facts).join(items, on=["group", "item"], how="semi")
    yield (
        "patterns",
        pl.DataFrame([
            {
                "group": group.id, "label": group.label, "cardinality": group.cardinality,
                "variant_index": at, "pattern": pattern.text, "language": pattern.language,
            }
            for group in run.suite.suite
            for at, pattern in enumerate(group.patterns)
        ]),
    )  # fmt: skip


def _licence(licence: str) -> dict[str, str]:
    """The licence as the Hub has it: one id in small letters, or ``other`` with a name."""
    if not licence:
        return {}
    if re.fullmatch(r"apache-2\.0|mit|cc0-1\.0|cc-by(-nc)?(-sa)?-[234]\.\d", licence.lower()):
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence}


def card_of(run: PublicRun, tables: Mapping[str, pl.DataFrame], sizes: Mapping[str, int]) -> str:
    """The data card: metadata of the Hub, the numbers, and what is in the tables.

    ``sizes``: the bytes of each file. ``datasets`` takes what it read before from its cache if name
    and metadata are the same, so that the metadata have to differ where the tables differ.
    """
    metadata = {
        "pretty_name": f"Answers of {run.model.id} to {run.suite.name}",
        **_licence(run.suite.licence if run.suite.may_be_shared else ""),
        "tags": ["consilience", "consistency", "evaluation"],
        "configs": [
            {
                "config_name": name,
                "data_files": [{"split": "test", "path": f"data/{name}.parquet"}],
                **({"default": True} if name == "answers" else {}),
            }
            for name in tables
        ],
        "dataset_info": [
            {
                "config_name": name,
                "splits": [
                    {"name": "test", "num_bytes": sizes[name], "num_examples": table.height}
                ],
                "download_size": sizes[name],
                "dataset_size": sizes[name],
            }
            for name, table in tables.items()
        ],
    }
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    listed = "".join(
        f"- `{name}` ({table.height:,} rows): {MEANINGS[name]}\n" for name, table in tables.items()
    )
    details = "".join(f"- {name}: {value}\n" for name, value in run.details())
    notes = "".join(f"- note: {note}\n" for note in run.notes)
    left_out = "" if run.suite.may_be_shared else f"\n{NOT_SHARED}\n"
    return (
        f"---\n{front}---\n\n{MARK}\n\n# {metadata['pretty_name']}\n\n"
        f"{as_markdown(run.summary.table())}\n{details}{notes}\n## Tables\n\n{listed}{left_out}"
    )
