"""reproduce: every table and figure of both papers, with our numbers next to the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command
from consilience.options import takes
from consilience.options.runs import ReproduceOptions

if TYPE_CHECKING:
    from consilience.report.export import Shown
    from consilience.reproduce import reproduction as work
else:
    work = Lazy("reproduce.reproduction")

# fmt: off


@command(ReproduceOptions, "reproduce", panel="Papers", examples=(
    "reproduce pararel-table-3 --add mine=path/to/model --dry-run",
    "reproduce pararel-table-3 --add mine=path/to/model --with 'probe=--limit 5'"))
def reproduce(options: ReproduceOptions) -> Shown:
    """Reproduce a table or figure of the papers, or put your own model next to its rows.

    Runs the commands that the table needs and reuses existing runs. Rerun the same command to
    resume. A row whose model or data is missing is marked `unavailable`.
    """
    return work.recipes() if options.name is None else work.reproduce(options, options.watch)


@takes(ReproduceOptions)
def reproduce_table(options: ReproduceOptions) -> work.Reproduction:
    """Run the commands that a table of a paper takes, and put our numbers next to the paper's."""
    return work.reproduce(options, options.watch)


def list_tables() -> dict[str, str]:
    """The papers' tables and figures that ``reproduce_table`` makes, and what they show."""
    from consilience.reproduce.reproduction import RECIPES

    return {name: RECIPES[name].title for name in sorted(RECIPES)}
