"""The structure of the package: who imports whom, how large things are, what names are taken."""

import ast
import itertools
import subprocess
import sys
from collections import defaultdict

import pytest

from conftest import ROOT

SOURCE = ROOT / "src" / "consilience"
LAYERS = [
    "early errors choices provenance record watch",
    "text particles read expectations numbers_in_text dates_in_text",
    "cloze questions factors scoring_rules harness_logs",
    "design sentence_pairs answer_files files presentation free_text names",
    "frames",
    "types template_files option_answers",
    "schemas",
    "endpoints",
    "run_folder suites models metrics engine",
    "run ask",
    "ask_pairs ask_questions noise analysis",
    "ask_writing server_noise train report",
    "answer_clusters authoring publishing",
    "reproduce",
    "workflow",
    "integrations",
    "testing trackers",
    "pytest_plugin callbacks",
    "__init__",
    "cli",
    "__main__",
]
"""Top-level modules and packages; each imports from earlier layers only."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
LONGEST_FUNCTION = 60
LONGEST_COMMAND = 40
LONGEST_MODULE = 400
"""Lines; those of functions without their docstring."""

FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path):
    return str(path.relative_to(SOURCE))


def package(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path, *, types=True):
    """Every consilience module that a file imports, in functions too; ``types``: for types too."""
    parsed = tree(path)
    if not types:
        parsed.body = [node for node in parsed.body if not isinstance(node, ast.If)]
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "consilience":
                yield from (f"consilience.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("consilience."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("consilience"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_downwards_only(path):
    """A package may import its own modules; no other one of the same layer."""
    used = {name.split(".")[1] for name in imports(path)} - {package(path)}
    upward = {name for name in used if LEVEL[name] >= LEVEL[package(path)]}
    assert not upward, f"{name_of(path)} imports {sorted(upward)}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        name = ".".join(("consilience", *path.relative_to(SOURCE).with_suffix("").parts))
        graph[name.removesuffix(".__init__")] = set(imports(path))
    graph = {name: {used for used in uses if used in graph} for name, uses in graph.items()}
    while graph:
        leaves = {name for name, used in graph.items() if not used & graph.keys() - {name}}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: used for name, used in graph.items() if name not in leaves}


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=name_of)
def test_the_command_line_parses_calls_and_prints(path):
    """A command imports no other command, and nothing that asks, counts or trains.

    How metrics are shown is in their registry.
    """
    parts = {f"cli.{name}" for name in ("process", "console", "command", "completion")}
    parts |= {"cli.commands", "cli.printing", "cli.configuration", "cli.output_options"}
    used = {name.removeprefix("consilience.") for name in imports(path)}
    if path.stem != "__init__":
        assert {name for name in used if name.startswith("cli")} <= parts
    logic = {"metrics", "models", "train", "ask", "ask_pairs", "noise", "run_folder"}
    run = {name.removeprefix("consilience.") for name in imports(path, types=False)}
    run -= {"metrics.registry"}
    assert not {name for name in run if name.split(".")[0] in logic}


def functions(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(node):
    """Lines of a function without its docstring, and of its body alone."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    docstring = node.body[0].end_lineno - node.body[0].lineno + 1 if body is not node.body else 0
    inner = body[-1].end_lineno - body[0].lineno + 1 if body else 0
    return node.end_lineno - node.lineno + 1 - docstring, inner


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_modules_and_functions_are_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE
    long = {node.name: lines_of(node)[0] for node in functions(path)}
    assert not {name: size for name, size in long.items() if size > LONGEST_FUNCTION}
    if package(path) == "cli":
        bodies = {node.name: lines_of(node)[1] for node in functions(path)}
        assert not {name: size for name, size in bodies.items() if size > LONGEST_COMMAND}


def test_no_two_modules_and_no_two_classes_have_the_same_name():
    modules, classes = defaultdict(list), defaultdict(list)
    for path in FILES:
        if not path.stem.startswith("__"):
            modules[path.stem].append(name_of(path))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name_of(path))
    taken = {name: where for name, where in (modules | classes).items() if len(where) > 1}
    assert not taken


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_field_of_a_value_is_documented(path):
    """A field of a dataclass has a docstring, or an option's help."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.ClassDef) or not is_dataclass(node):
            continue
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                documented = is_docstring(after)
                is_option = node.name.endswith(("Options", "Output"))
                assert documented or is_option, f"{name_of(path)}: {node.name}.{field.target.id}"
        for one, two in itertools.pairwise(node.body):
            assert not (is_docstring(one) and is_docstring(two)), f"{name_of(path)}:{two.lineno}"


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_dataclass(node):
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


WITHOUT_TORCH = (
    "metrics.measure report.report_page report.figures suites cli analysis.representations"
)


def test_what_needs_no_model_starts_without_torch():
    """In one process, which imports one after the other and names the first that brings torch."""
    code = f"""if True:
        import importlib, sys
        for module in {WITHOUT_TORCH.split()}:
            importlib.import_module(f"consilience.{{module}}")
            assert "torch" not in sys.modules, module
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-300:]
