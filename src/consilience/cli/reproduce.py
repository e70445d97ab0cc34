"""reproduce: every table and figure of both papers, with our numbers next to the paper's."""

from __future__ import annotations

import typer

from consilience.cli.command import command_of
from consilience.cli.console import Screen, out, warn
from consilience.cli.shared import AsJson, print_json, rows_of
from consilience.report.papers import beside_layout, beside_table
from consilience.report.table import Column, Table
from consilience.reproduce import RECIPES, Recipe
from consilience.reproduce.work import NOT_SELECTED
from consilience.workflow.reproduce_options import ReproduceOptions
from consilience.workflow.reproduction import Reproduction
from consilience.workflow.reproduction import reproduce as make_table


@command_of(ReproduceOptions)
def reproduce(options: ReproduceOptions, as_json: AsJson = False) -> None:
    """Reproduce a table or figure of the papers, or put your own model next to its rows.

    Runs the commands that the table needs and reuses existing runs. Rerun the same command to
    resume. A row whose model or data is missing is marked `unavailable`.
    """
    if options.name is None:
        _list(as_json)
        return
    reproduction = make_table(options, Screen())
    if as_json:
        print_json(_document(reproduction))
    elif options.dry_run:
        for command in reproduction.commands:
            out.print(command, soft_wrap=True, highlight=False)
        for line in reproduction.plan:
            out.print(f"# {line}", soft_wrap=True, highlight=False)
    else:
        _show(reproduction)
    if not as_json:
        warn(reproduction.warnings)
    if options.is_strict and not options.dry_run and reproduction.has_failed:
        raise typer.Exit(3)


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
                "can_add": bool(recipe.added_rows),
                "files": list(recipe.files),
            }
            for recipe in recipes
        ]
        print_json({"recipes": rows})
        return
    lines = [[recipe.name, _described(recipe)] for recipe in recipes]
    columns = [Column("name"), Column("content and requirements")]
    out.print(Table("consilience reproduce NAME", columns, lines))


def _described(recipe: Recipe) -> str:
    """The title of a recipe, its requirements, and whether --add works with it."""
    add = "\nTakes your own model: --add NAME=M." if recipe.added_rows else ""
    return f"{recipe.title}.\nNeeds {recipe.needs}.{add}"


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
        **({"plan": list(reproduction.plan)} if reproduction.plan else {}),
    }


def _show(reproduction: Reproduction) -> None:
    recipe, numbers = reproduction.recipe, reproduction.numbers
    title = f"{recipe.name}: {recipe.title}"
    selected = numbers.remove(verdict=NOT_SELECTED)
    if selected.height:
        out.print(beside_table(selected, title))
    if reproduction.record["settings"]["added"]:
        out.print(beside_layout(numbers, "All rows, in the layout of the paper"))
    for note in reproduction.notes:
        out.print(f"* {note}", highlight=False)
    files = ", ".join(map(str, reproduction.files))
    out.print(f"Written: {files}", soft_wrap=True, highlight=False)
