"""The structure of the package: who imports whom."""

import ast
import re
import tomllib
from collections import Counter

import click
import pytest

from conftest import ROOT
from consilience.app import process
from consilience.options import OutputOptions, parameters

SOURCE = ROOT / "src" / "consilience"
LAYERS = [
    "core", "files options __init__", "types endpoints", "models metrics suites runs",
    "plans analysis", "report", "authoring probing elsewhere", "results train inspect publish",
    "gating study reproduce callbacks", "testing app", "pytest_plugin __main__",
]  # fmt: skip
"""Packages and modules; each imports from earlier layers only."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}

FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path):
    return str(path.relative_to(SOURCE))


def package(path):
    return room(".".join(path.relative_to(SOURCE).with_suffix("").parts))


def room(name):
    """The entry of LAYERS that a module belongs to: its own, or that of its package."""
    while name not in LEVEL and "." in name:
        name = name.rpartition(".")[0]
    return name


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def imports():
    """Every consilience module that each file imports, in functions and for types too."""
    return {path: {*imported(path)} for path in FILES}


def imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "consilience":
                yield from (f"consilience.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("consilience."):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    is_module = SOURCE.joinpath(*inner.split(".")[1:]).with_suffix(".py").is_file()
                    yield inner if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("consilience"))


def test_imports_run_downwards_only(imports):
    """A package may import its own modules; no other one of the same layer."""
    upward = {}
    for path in FILES:
        used = {room(name.partition(".")[2]) for name in imports[path]} - {package(path)}
        upward[name_of(path)] = [name for name in used if LEVEL[name] >= LEVEL[package(path)]]
    assert not {path: names for path, names in upward.items() if names}


def test_no_modules_import_each_other_in_a_circle(imports):
    graph = {}
    for path in FILES:
        name = ".".join(("consilience", *path.relative_to(SOURCE).with_suffix("").parts))
        graph[name.removesuffix(".__init__")] = imports[path]
    graph = {name: {used for used in uses if used in graph} for name, uses in graph.items()}
    while graph:
        leaves = {name for name, used in graph.items() if not used & graph.keys() - {name}}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: used for name, used in graph.items() if name not in leaves}


def lines(paths):
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def options_of(command):
    """The options of each command below a group, but those that all have."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from options_of(command.get_command(context, name))
    else:
        own = parameters(command.callback).values()
        names = {one.name for one in own if isinstance(one, click.Option)}
        yield names - {*parameters(OutputOptions)}


def test_the_project_keeps_to_its_budget():
    """Every number is at most that of ``size.toml``."""
    budget = tomllib.loads((ROOT / "tests" / "size.toml").read_text(encoding="utf-8"))
    packages = Counter()
    for path in (*FILES, *SOURCE.rglob("*.pyi")):
        parts = path.relative_to(SOURCE).parts
        packages[parts[0] if len(parts) > 1 else "modules"] += lines([path])
    assert set(budget["lines"]) == set(packages), "a package without a budget, or none of that name"
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    commands = [*options_of(process.program())]
    sizes = {
        "source": packages.total(),
        "files": len(FILES),
        "tests": lines((ROOT / "tests").rglob("*.py")),
        "bench": lines((ROOT / "bench").glob("*.py")),
        "words": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
        "commands": len(commands),
        "options": sum(map(len, commands)),
        "options of probe": len(commands[0]),
    }
    assert set(budget["sizes"]) == set(sizes)
    both = {**sizes, **packages}, {**budget["sizes"], **budget["lines"]}
    pairs = ((name, size, both[1][name]) for name, size in both[0].items())
    over = [f"{name}: {size}, of {most}" for name, size, most in pairs if size > most]
    assert not over, "\n".join(["make it smaller; these budgets only fall", *over])


def test_the_map_names_files_and_functions_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    for name in re.findall(r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:py|md|toml))`", text):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name
    for name in re.findall(r"`(?:[\w.]+\.)?(\w+)\(\)`", text):
        assert f"def {name}(" in code, name
