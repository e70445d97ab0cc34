"""The one structural rule: which room may use which, everywhere in a file."""

import ast
import subprocess
import sys

import pytest

from conftest import ROOT

SOURCE = ROOT / "src" / "consilience"
MAY_USE = {
    "early": set(),
    "choices": set(),
    "errors": set(),
    "provenance": set(),
    "types": {"errors"},
    "files": {"errors", "types"},
    "read": {"errors"},
    "suites": {"read", "types", "errors"},
    "models": {"choices", "read", "types", "errors"},
    "metrics": {"types", "errors"},
    "record": set(),
    "run": {"provenance", "read", "record", "types", "errors", "files"},
    "ask": {"models", "run", "types"},
    "ask_pairs": {"ask", "choices", "errors", "suites", "types"},
    "authoring": {"read", "errors", "metrics", "suites", "types", "files"},
    "noise": {"models", "ask", "types"},
    "analysis": {"read", "metrics", "run", "types", "errors", "files"},
    "workflow": {
        "analysis",
        "authoring",
        "choices",
        "errors",
        "models",
        "noise",
        "ask_pairs",
        "provenance",
        "files",
        "metrics",
        "ask",
        "read",
        "report",
        "reproduce",
        "run",
        "suites",
        "train",
        "types",
    },
    "train": {
        "choices",
        "provenance",
        "errors",
        "metrics",
        "models",
        "ask",
        "read",
        "record",
        "run",
        "suites",
        "types",
        "files",
    },
    "report": {"metrics", "suites", "run", "types", "errors", "files"},
    "reproduce": {"analysis", "errors", "metrics", "report", "run", "suites", "types", "files"},
    "cli": {
        "analysis",
        "choices",
        "provenance",
        "workflow",
        "early",
        "errors",
        "metrics",
        "models",
        "noise",
        "ask",
        "ask_pairs",
        "read",
        "report",
        "reproduce",
        "authoring",
        "run",
        "suites",
        "train",
        "types",
        "files",
    },
    "__main__": {"cli"},
    "__init__": {"ask", "early", "errors", "metrics", "models", "run", "suites", "types"},
}


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Every consilience module that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "consilience":
                yield from (f"consilience.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("consilience."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("consilience"))


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_uses_only_the_rooms_that_it_may(path):
    used = {name.split(".")[1] for name in imports(path)}
    assert used - {room(path)} <= MAY_USE[room(path)]


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        name = ".".join(("consilience", *path.relative_to(SOURCE).with_suffix("").parts))
        graph[name.removesuffix(".__init__")] = set(imports(path))
    graph = {name: {each for each in used if each in graph} for name, used in graph.items()}
    while graph:
        leaves = {name for name, used in graph.items() if not used & graph.keys() - {name}}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: used for name, used in graph.items() if name not in leaves}


@pytest.mark.parametrize("module", ["metrics", "report.report_page", "suites", "cli"])
def test_what_needs_no_model_starts_without_torch(module):
    code = f"import sys, consilience.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
