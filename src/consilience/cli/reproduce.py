"""reproduce: every table and figure of both papers, with our numbers next to the paper's."""

from __future__ import annotations

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json, print_lines, rows_of
from consilience.report.papers import beside_layout, beside_table
from consilience.report.table import Column, Table
from consilience.reproduce import RECIPES, Recipe
from consilience.reproduce.recipe import NOT_SELECTED
from consilience.reproduce.reproduction import Reproduction
from consilience.reproduce.reproduction import reproduce as make_table
from consilience.workflow.reproduce_options import ReproduceOptions


def reproduce(options: ReproduceOptions, output: JsonOutput) -> int:
    """Print our numbers next to those of a paper; status 3 with --strict if some differ."""
    if options.name is None:
        _list(output.as_json)
        return 0
    reproduction = make_table(options, Screen())
    if output.as_json:
        print_json(_document(reproduction))
    elif options.dry_run:
        print_lines([*reproduction.commands, *(f"# {line}" for line in reproduction.plan)])
    else:
        _show(reproduction)
    if not output.as_json:
        warn(reproduction.warnings)
    if options.is_strict and not options.dry_run and reproduction.has_failed:
        return 3
    return 0


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
    if recipe.is_wide:
        out.print(beside_layout(selected, title))
    elif selected.height:
        out.print(beside_table(selected, title))
    if reproduction.record["settings"]["added"]:
        out.print(beside_layout(numbers, "All rows, in the layout of the paper"))
    for note in reproduction.notes:
        out.print(f"* {note}")
    files = ", ".join(map(str, reproduction.files))
    out.print(f"Written: {files}")
