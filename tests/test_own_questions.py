"""docs/own-questions.md: from the table of the page to a report, with the commands of the page."""

import re
import shlex

from checks import output, refusal
from conftest import ROOT

PAGE = (ROOT / "docs" / "own-questions.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_lead_from_a_table_to_a_report(consilience, tmp_path, monkeypatch):
    """With a baseline in place of the model; what does not depend on the model is as shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (table,) = blocks("csv")
    assert len(table.strip().splitlines()) == 1 + 10
    (tmp_path / "questions.csv").write_text(table, encoding="utf-8")
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    steps = ["suite rewrite", "suite import", "suite check", "probe --suite", "report runs/first"]
    assert [" ".join(command.split()[1:3]) for command in commands[:5]] == steps
    printed = {}
    for command in commands:
        words = shlex.split(command)[1:]
        words += ["--model", "baseline:random"] if words[0] == "probe" else []
        name = words[1] if words[0] == "suite" else words[0]
        printed[name] = output(consilience, *words)
    shown = blocks("text")
    assert printed["rewrite"] + printed["import"] == shown[0]
    assert printed["check"] == shown[1]
    headings = [line.split()[0] for line in shown[3].splitlines()]
    assert [line.split()[0] for line in printed["probe"].splitlines()][1:6] == headings[1:6]
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 10_000


def test_the_error_of_the_page_is_the_one_that_is_printed(consilience, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (table,) = blocks("csv")
    (tmp_path / "bad.csv").write_text(table.replace(",Canberra,Sydney", ",Camberra,Sydney"))
    assert refusal(consilience, "suite", "check", "bad.csv") == blocks("text")[2]
