"""What a shared suite needs: a data card, provenance, licences and sign-offs."""

import json
import re

import pytest

from checks import refusal
from consilience.authoring import sharing
from consilience.authoring.sharing import BEGIN, END
from consilience.core.errors import ConsilienceError
from consilience.suites.layouts import load_folder
from consilience.suites.proposals import SignOff, add_signoffs

ABOUT = {
    "name": "capitals", "description": "Capitals.", "licence": "CC0-1.0", "version": "1.2",
    "creator": "Ana", "url": "https://example.org/capitals", "date": "2026-11-23",
    "citation": "Ana 2026",
}  # fmt: skip


@pytest.fixture
def folder(write_suite, monkeypatch):
    """A suite with a provenance; no parser is loaded."""

    def fail():
        raise ConsilienceError("no parser here")

    monkeypatch.setattr(sharing, "load_parser", fail)
    path = write_suite()
    (path / "suite.json").write_text(json.dumps(ABOUT), encoding="utf-8")
    rows = [
        {"relation": "capital", "pattern": pattern.text, "origin": "written", "source": "us",
         "licence": "CC0-1.0"}
        for pattern in load_folder(path)["capital"].patterns
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, rows))
    (path / "provenance.jsonl").write_text(text, encoding="utf-8")
    return path


def sign(folder, *verdicts, who="Ana"):
    suite = load_folder(folder)
    patterns = suite["capital"].patterns
    both = zip(patterns, verdicts, strict=False)
    rows = [SignOff("capital", of.text, who, "2026-11-23", verdict) for of, verdict in both]
    add_signoffs(folder, suite, rows)


def problems_of(consilience, folder):
    status, out, _ = consilience("suite", "check", folder, "--shared", "--json")
    problems = json.loads(out)["problems"]
    assert status == (2 if problems else 0)
    return problems


def test_a_suite_may_be_shared_when_nothing_is_missing(folder, consilience):
    """Each step removes its problem; a later change asks for a new card."""
    problems = problems_of(consilience, folder)
    assert len(problems) == 2
    assert "3 patterns of 'capital' that nobody accepted" in problems[0]
    assert "patterns.jsonl:1" in problems[0]
    assert "README.md: missing" in problems[1]
    sign(folder, "accept", "accept", "unsure")
    sign(folder, "accept", "reject", "accept", who="Ben")
    status, out, error = consilience("suite", "card", folder)
    assert (status, out.count("\n")) == (0, 1)
    assert "1 pattern of 'capital' with a reject that is not resolved" in error
    (problem,) = problems_of(consilience, folder)
    assert "such as '[Y] is the capital of [X].'" in problem
    sign(folder, "accept", "accept", who="Ben")
    assert len(problems_of(consilience, folder)) == 1, "the card is older"
    assert consilience("suite", "card", folder)[2] == ""
    assert problems_of(consilience, folder) == []
    assert "good" in consilience("suite", "check", folder, "--shared")[1]


def test_what_suite_json_and_the_provenance_lack_is_named(folder, consilience):
    (folder / "suite.json").write_text('{"name": "capitals"}', encoding="utf-8")
    lines = (folder / "provenance.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [lines[0].replace("CC0-1.0", ""), lines[1]]
    (folder / "provenance.jsonl").write_text("\n".join(rows), encoding="utf-8")
    problems = "\n".join(problems_of(consilience, folder))
    for name in ("description", "creator", "url", "date"):
        assert f"suite.json: no '{name}'" in problems
    assert "no 'licence'" not in problems, "the patterns state one"
    assert "1 pattern of 'capital' without a row in the table provenance" in problems
    assert "1 pattern of 'capital' without a licence in the table provenance" in problems


@pytest.mark.parametrize(("name", "values"), [
    ("date", ["2026-13-45", "last Tuesday", "20261123", 2026]),
    ("url", ["nowhere", "ftp://example.org", "https://", "https://a b.org"]),
    ("licence", ["none stated", "NONE", "unknown", "CC BY 4.0"]),
])  # fmt: skip
def test_values_of_suite_json_that_say_nothing_are_named(folder, consilience, name, values):
    for value in values:
        (folder / "suite.json").write_text(json.dumps(ABOUT | {name: value}), encoding="utf-8")
        first, *others = problems_of(consilience, folder)
        assert f"suite.json: '{name}' is {json.dumps(value)}" in first
        assert not any("suite.json" in other for other in others)


def test_licences_of_patterns_are_ids_or_urls(folder, consilience):
    path = folder / "provenance.jsonl"
    rows = path.read_text(encoding="utf-8")
    licences = iter(["none stated", "MIT OR LicenseRef-Mine", "https://example.org/licence"])
    path.write_text(re.sub("CC0-1.0", lambda _: next(licences), rows), encoding="utf-8")
    first = problems_of(consilience, folder)[0]
    assert "1 pattern of 'capital' whose licence in the table provenance is no SPDX id" in first


def test_the_card_keeps_what_the_author_wrote(folder, consilience):
    (folder / "README.md").write_text("# Mine\n\nAbove.\n", encoding="utf-8")
    consilience("suite", "card", folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n\nAbove.\n\n" + BEGIN)
    (folder / "README.md").write_text(text + "\nBelow.\n", encoding="utf-8")
    sign(folder, "accept", "reject", "unsure")
    consilience("suite", "card", folder)
    renewed = (folder / "README.md").read_text(encoding="utf-8")
    assert renewed.endswith(END + "\n\nBelow.\n")
    assert renewed.count(BEGIN) == 1
    for line in (
        "| creator | Ana |", "| date | 2026-11-23 |", "| licence | CC0-1.0 |",
        "| patterns accepted by people | 1 of 3 |", "| facts | 3 |",
        "| written | us | CC0-1.0 | 3 |", "| Ana | 1 | 1 | 1 |", "* Not derived: no parser here.",
    ):  # fmt: skip
        assert line in renewed
    without_end = renewed.replace(END + "\n", "")
    (folder / "README.md").write_text(without_end, encoding="utf-8")
    for _ in range(2):
        consilience("suite", "card", folder)
        assert "\nBelow.\n" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("arguments", "message"), [
    (("card", "mini"), "a bundled or released suite"),
    (("check", "mini-questions", "--shared"), "is a suite of questions"),
    (("card", "none"), "no suite 'none'"),
])  # fmt: skip
def test_what_has_no_card_is_refused(consilience, arguments, message):
    assert message in refusal(consilience, "suite", *arguments)
