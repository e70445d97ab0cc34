"""The notebooks run without a fault, and the numbers in their outputs are not stale."""

import ast
import io
import json
import re
from contextlib import redirect_stdout

import pytest

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def run(source, names):
    """What a cell prints, and the representation of its last expression."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return printed.getvalue() + (repr(value) if value is not None else "")


def committed(cell):
    """The same as the notebook has it; None for a picture."""
    text = ""
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            return None
        text += "".join(output.get("text", data.get("text/plain", [])))
    return text


def numbers(text):
    return re.findall(r"\d+(?:\.\d+)?", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_numbers_are_not_stale(path, monkeypatch):
    """After a change of a number: make notebooks."""
    monkeypatch.setenv("COLUMNS", "80")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            source, expected = "".join(cell["source"]), committed(cell)
            shown = run(source, names)
            assert expected is None or numbers(shown) == numbers(expected), source
