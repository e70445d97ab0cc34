"""The checks of a gate as JUnit XML, which GitLab, Jenkins and GitHub actions show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from consilience.report.gate_tables import GateCheck
from consilience.text import visible


def as_junit(suite: str, checks: Sequence[GateCheck], *, undecided_fails: bool) -> bytes:
    """A ``testsuite`` with a ``testcase`` for each check; ``suite`` names the runs.

    A check that fails has a ``failure``. One that is undecided has a ``failure`` of the type
    ``undecided``, or is ``skipped`` where it does not fail the gate. Control characters, which XML
    cannot hold, become U+FFFD.
    """
    failures = [
        check
        for check in checks
        if check.verdict == "fail" or (undecided_fails and check.verdict == "undecided")
    ]
    skipped = sum(check.verdict == "undecided" for check in checks) * (not undecided_fails)
    counts = {"tests": len(checks), "failures": len(failures), "errors": 0}
    attributes = {name: str(count) for name, count in counts.items()}
    root = ET.Element("testsuites", {"name": "consilience gate", **attributes})
    attributes |= {"name": _text(suite), "skipped": str(skipped)}
    test_suite = ET.SubElement(root, "testsuite", attributes)
    for check in checks:
        case = ET.SubElement(
            test_suite, "testcase",
            {"classname": _text(suite), "name": _text(check.name), "time": "0"},
        )  # fmt: skip
        message = _text(check.reason)
        if check in failures:
            failure = ET.SubElement(case, "failure", {"type": check.verdict, "message": message})
            failure.text = f"{_text(check.rule)}: {check.verdict}. {message}."
        elif check.verdict == "undecided":
            ET.SubElement(case, "skipped").text = f"undecided: {message}"
        else:
            ET.SubElement(case, "system-out").text = message
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _text(text: str) -> str:
    """A text of XML, with U+FFFD for each character that XML cannot hold."""
    return re.sub("[\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", visible(text))
