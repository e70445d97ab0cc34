"""Run the notebooks and keep their outputs (`make notebooks`).

Needs the extra ``docs``. Pictures are PNG, so that the outputs are seen without a network.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def make(path: Path) -> None:
    """Run a notebook in its folder and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": HERE}})
    client.execute()
    for at, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{at + 1}"
        cell.metadata.pop("execution", None)  # times differ in every run
        if cell.cell_type == "code":  # warnings of Jupyter, such as that it has no progress bars
            outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            cell.outputs = outputs
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(HERE.glob("*.ipynb")):
        make(Path(name))
