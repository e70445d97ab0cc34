"""reproduce: every table and figure of both papers, ours beside theirs."""

from __future__ import annotations

from consilience.cli.command import command_of
from consilience.cli.shared import AsJson, Screen, out, print_json, rows_of, warn
from consilience.report.papers import beside_table
from consilience.report.table import Column, Table
from consilience.reproduce import RECIPES
from consilience.workflow.reproduction import ReproduceOptions, Reproduction
from consilience.workflow.reproduction import reproduce as make_again


@command_of(ReproduceOptions)
def reproduce(options: ReproduceOptions, as_json: AsJson = False) -> None:
    """Make a table or figure of the papers again, and compare our numbers with theirs.

    Runs the commands that it takes and reuses existing runs. A row whose model cannot be had here
    is marked. within: the paper's number lies in the 95 % interval of ours.
    """
    if options.name is None:
        _list(as_json)
        return
    reproduction = make_again(options, Screen())
    if as_json:
        print_json(_document(reproduction))
        return
    if options.dry_run:
        for command in reproduction.commands:
            out.print(command, soft_wrap=True, highlight=False)
    else:
        _show(reproduction)
    warn(reproduction.warnings)


def _list(as_json: bool) -> None:
    recipes = [RECIPES[name] for name in sorted(RECIPES)]
    if as_json:
        rows = [
            {
                "name": recipe.name,
                "title": recipe.title,
                "needs": recipe.needs,
                "rows": recipe.rows,
                "models": dict(recipe.models),
                "files": list(recipe.files),
            }
            for recipe in recipes
        ]
        print_json({"recipes": rows})
        return
    lines = [[recipe.name, f"{recipe.title}.\n{recipe.needs}"] for recipe in recipes]
    columns = [Column("name"), Column("what, and what it takes")]
    out.print(Table("consilience reproduce NAME", columns, lines, rules=range(len(lines))))


def _document(reproduction: Reproduction) -> dict[str, object]:
    run = {
        **reproduction.record,
        "commands": list(reproduction.commands),
        "files": [str(file) for file in reproduction.files],
    }
    return {
        "run": run,
        "numbers": rows_of(reproduction.numbers),
        "notes": list(reproduction.notes),
        "warnings": list(reproduction.warnings),
    }


def _show(reproduction: Reproduction) -> None:
    recipe, numbers = reproduction.recipe, reproduction.numbers
    asked = numbers.remove(verdict="not asked")
    if asked.height:
        out.print(beside_table(asked, f"{recipe.name}: {recipe.title}"))
    for note in reproduction.notes:
        out.print(f"* {note}", highlight=False)
    files = ", ".join(map(str, reproduction.files))
    out.print(f"Written: {files}", soft_wrap=True, highlight=False)
