"""A suite made ready to share: its data card, and what is still missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from consilience import suites
from consilience.authoring.data_card import PatternKey, SharedSuite, card_of, with_card
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.read import parse_json, read_text
from consilience.suites.layouts import layout_of, load_folder
from consilience.suites.places import Places, places_in
from consilience.suites.proposals import provenance_of
from consilience.suites.question_suites import is_questions
from consilience.suites.signoff import is_date, signoffs_of
from consilience.workflow.audit_options import CardOptions
from consilience.workflow.auditing import writable_folder

CARD = "README.md"

ABOUT = {
    "description": "what the suite asks, in a sentence",
    "licence": "an SPDX id such as CC-BY-4.0, LicenseRef-NAME, or the URL of the licence",
    "creator": "the name of a person or an organisation",
    "url": "where the suite is published, such as https://example.org/suite",
    "date": "the day of publication, such as 2026-11-23",
}
"""What ``suite.json`` of a shared suite says besides its name."""


@dataclass(frozen=True, slots=True)
class WrittenCard:
    """What ``suite card`` wrote."""

    files: tuple[Path, ...]
    problems: tuple[ConsilienceError, ...]
    """What ``suite check --shared`` still misses."""


def write_card(options: CardOptions) -> WrittenCard:
    """Write README.md into the folder of a suite; only the part between its marks is replaced."""
    if is_questions(options.suite):
        raise ConsilienceError(
            "a data card of a suite of questions",
            expected="a suite of facts in our layout",
            where=options.suite,
            todo="Write its README.md by hand.",
        )
    folder = writable_folder(options.suite, options.data_dir)
    shared = _shared(folder)
    card = folder / CARD
    readme = read_text(card) if card.is_file() else ""
    write_whole(card, with_card(readme, shared).encode())
    return WrittenCard((card,), tuple(_problems(folder, shared)))


def sharing_problems(spec: str, data_dir: Path | None) -> list[ConsilienceError]:
    """What a suite folder lacks to be shared: provenance, licences, sign-offs and a data card."""
    if is_questions(spec):
        raise ConsilienceError(
            "--shared with a suite of questions",
            expected="a suite of facts",
            where=spec,
            todo="Leave it out.",
        )
    layout, root = layout_of(suites.suite_folder(spec, suites.data_dir(data_dir)))
    if layout.name != "ours":
        raise ConsilienceError(
            f"--shared with {layout.name}", expected="a suite folder in our layout", where=spec
        )
    return list(_problems(root, _shared(root)))


def _shared(folder: Path) -> SharedSuite:
    suite = load_folder(folder)
    path = folder / "suite.json"
    about: dict[str, Any] = parse_json(read_text(path)) if path.is_file() else {}
    about = {"name": suite.name} | about
    return SharedSuite(
        suite, about, provenance_of(folder), signoffs_of(folder, suite), _files_digest(folder)
    )


def _files_digest(folder: Path) -> str:
    """SHA-256 of the digests of ``suite.json`` and of every table, in the order of their names."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (".json", ".jsonl", ".tsv"))
    digests = (f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and "." in parts.netloc and " " not in text


def _is_licence(text: str) -> bool:
    """Whether a text is an SPDX expression, whose ids are of SPDX's list, or a URL."""
    try:
        return _is_url(text) or bool(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return False


IS_VALID: Mapping[str, Callable[[str], bool]] = {
    "licence": _is_licence,
    "url": _is_url,
    "date": is_date,
}
"""What the values in ``suite.json`` of a shared suite must be; any text will do for the others."""


def _about_problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    """Problems of ``suite.json``; a licence may be that of the patterns."""
    where = str(folder / "suite.json")
    stated = shared.about.get("licence") or shared.about.get("license")
    for name, meaning in ABOUT.items():
        value = stated if name == "licence" else shared.about.get(name)
        if not value and not (name == "licence" and shared.licence):
            yield ConsilienceError(f"no '{name}'", expected=meaning, where=where, todo="Add it.")
        elif value and not (isinstance(value, str) and IS_VALID.get(name, bool)(value)):
            yield ConsilienceError(
                f"'{name}' is {json.dumps(value, ensure_ascii=False)}",
                expected=meaning,
                where=where,
                todo="Correct it.",
            )


def _problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    yield from _about_problems(folder, shared)
    places = places_in(folder)
    known = {(row.relation, row.pattern): row.licence for row in shared.provenance}
    lacking = {
        "without a row in the table provenance": [
            key for key in shared.patterns if key not in known
        ],
        "without a licence in the table provenance": [
            key for key in shared.patterns if known.get(key) == ""
        ],
        "whose licence in the table provenance is no SPDX id or URL": [
            key for key in shared.patterns if known.get(key) and not _is_licence(known[key])
        ],
        "with a reject that is not resolved": [
            key for key in shared.patterns if key in shared.rejected
        ],
        "that nobody accepted": [
            key for key in shared.patterns if key not in shared.accepted | shared.rejected
        ],
    }
    todo = {
        "whose licence in the table provenance is no SPDX id or URL": f"Write {ABOUT['licence']}.",
        "with a reject that is not resolved": "Correct or remove the pattern, or let the person "
        "judge it again.",
        "that nobody accepted": "`consilience suite annotate patterns`, then `score --sign`.",
    }
    for problem, keys in lacking.items():
        yield from _of_patterns(folder, places, problem, keys, todo.get(problem, "Add it."))
    yield from _card_problems(folder, shared)


def _of_patterns(
    folder: Path, places: Places, problem: str, keys: Sequence[PatternKey], todo: str
) -> Iterator[ConsilienceError]:
    """A problem for each relation with such patterns, at the first one."""
    by_relation: dict[str, list[str]] = {}
    for relation, text in keys:
        by_relation.setdefault(relation, []).append(text)
    for relation, texts in by_relation.items():
        where = next(iter(places.pattern(relation, texts[0])), "patterns")
        size = f"{len(texts)} pattern{'' if len(texts) == 1 else 's'}"
        yield ConsilienceError(
            f"{size} of '{relation}' {problem}, such as '{texts[0]}'",
            where=f"{folder}/{where}",
            todo=todo,
        )


def _card_problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    """The problem of a README.md that has no data card, or that of another state of the suite."""
    card = folder / CARD
    if not card.is_file() or shared.files_digest not in card_of(read_text(card)):
        yield ConsilienceError(
            "missing, or not of the suite as it is now",
            expected="the data card",
            where=str(card),
            todo="Run `consilience suite card`.",
        )
