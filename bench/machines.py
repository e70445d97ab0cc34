"""How many times faster, on each machine: a file a machine, merged into docs/benchmarks.md.

``python bench`` writes the file of its machine to build/; one that is kept goes to
docs/results/benchmarks/machines. ``python bench/machines.py`` merges them into the page.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "docs" / "results" / "benchmarks" / "machines"
PAGE = ROOT / "docs" / "benchmarks.md"
MARKS = re.compile(r"(?<=<!-- machines -->\n).*?(?=<!-- end -->)", re.DOTALL)

SCHEMA = {
    "machine": pl.String,
    "date": pl.String,
    "task": pl.String,
    "against": pl.String,
    "unit": pl.String,  # Of the value
    "value": pl.Float64,  # Of consilience
    "times": pl.Float64,  # How many times faster consilience is, in the same run
}
"""A row a comparison."""

FOUND: list[dict[str, object]] = []
"""The rows of this process."""


def keep(
    task: str, against: str, ours: Sequence[float], theirs: Sequence[float], unit: str = "s"
) -> float:
    """Keep a comparison of seconds; how many times faster consilience is, of medians.

    ``unit``: of the kept value of consilience: s, or queries/s where seconds are of one query.
    """
    mine = statistics.median(ours)
    times = statistics.median(theirs) / mine
    value = float(f"{mine if unit == 's' else 1 / mine:.3g}")
    row = {"task": task, "against": against, "unit": unit, "value": value}
    FOUND.append(row | {"times": round(times, 2)})
    return times


def write(machine: str, folder: Path) -> Path:
    """The rows of this process as the file of this machine."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    rows = [{"machine": machine, "date": date} | row for row in FOUND]
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', machine.lower()).strip('-')}-{date}.csv"
    folder.mkdir(exist_ok=True, parents=True)
    pl.DataFrame(rows, schema=SCHEMA).write_csv(path)
    return path


def merged(rows: pl.DataFrame) -> str:
    """The table of the page: a row a comparison, a column a machine, and the range over them.

    Of several measurements on a machine its column has the newest, and the range has all.
    """
    machines = rows["machine"].unique(maintain_order=True).to_list()
    lines = [
        "| task | against | " + " | ".join(machines) + " | times faster |",
        "|---|---|" + "---|" * len(machines) + "---|",
    ]
    for (task, against), some in rows.group_by("task", "against", maintain_order=True):
        newest = {row["machine"]: row for row in some.sort("date").to_dicts()}
        cells = [cell(newest[name]) if name in newest else "-" for name in machines]
        least, most = (f"{each:.1f}" for each in (some["times"].min(), some["times"].max()))
        extent = least if least == most else f"{least} to {most}"
        lines.append(f"| {task} | {against} | {' | '.join(cells)} | {extent} |")
    return "\n".join(lines)


def cell(row: dict[str, Any]) -> str:
    """How many times faster, and the value of consilience where it is kept."""
    value = f" ({row['value']:,g} {row['unit']})" if row["unit"] else ""
    return f"{row['times']:.1f}{value}"


def kept() -> pl.DataFrame:
    """The rows of all files of machines."""
    files = sorted(FILES.glob("*.csv"))
    return pl.concat([pl.read_csv(path, schema=SCHEMA) for path in files])


def page(text: str) -> str:
    """The text of docs/benchmarks.md with the table of all machines."""
    table = merged(kept())
    return MARKS.sub(lambda _: f"\n{table}\n\n", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
