"""A suite made ready to share: its data card and metadata, and what is still missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from consilience import suites
from consilience.authoring.croissant import croissant, croissant_text
from consilience.authoring.data_card import PatternKey, SharedSuite, card_of, with_card
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.options import Output
from consilience.read import parse_json, read_text
from consilience.report.shown import Shown
from consilience.suites.layouts import layout_of, load_folder
from consilience.suites.places import Places, places_in
from consilience.suites.proposals import provenance_of
from consilience.suites.question_suites import is_questions
from consilience.suites.signoff import is_date, signoffs_of
from consilience.workflow.auditing import writable_folder
from consilience.workflow.suite_options import CardOptions

CARD, METADATA = "README.md", "croissant.json"

ABOUT = {
    "description": "what the suite asks, in a sentence",
    "licence": "an SPDX id such as CC-BY-4.0, LicenseRef-NAME, or the URL of the licence",
    "creator": "the name of a person or an organisation",
    "url": "where the suite is published, such as https://example.org/suite",
    "date": "the day of publication, such as 2026-11-23",
}
"""What ``suite.json`` of a shared suite says besides its name."""


@dataclass(frozen=True, slots=True)
class WrittenCard(Shown):
    """What ``suite card`` wrote."""

    files: tuple[Path, ...]
    """The files."""
    problems: tuple[ConsilienceError, ...]
    """What ``suite check --shared`` still misses."""
    suite: str
    """The suite, as it was named."""

    def printed(self, output: Output) -> Iterator[str]:
        """The files."""
        return map(str, self.files)

    def document(self) -> dict[str, Any]:
        """The files, and what is missing."""
        files = [str(file) for file in self.files]
        return {
            "suite": self.suite,
            "files": files,
            "warnings": [str(problem) for problem in self.problems],
        }

    def remarks(self, output: Output) -> list[str]:
        """What is missing."""
        return [str(problem) for problem in self.problems]


def write_card(options: CardOptions) -> WrittenCard:
    """Write README.md and croissant.json into the folder of a suite.

    Of README.md only the part between its marks is replaced.
    """
    if is_questions(options.suite):
        raise ConsilienceError(
            "a data card of a suite of questions",
            expected="a suite of facts in our layout",
            where=options.suite,
            todo="Write its README.md by hand.",
        )
    folder = writable_folder(options.suite, options.data_dir)
    shared = _shared(folder)
    card, metadata = folder / CARD, folder / METADATA
    readme = read_text(card) if card.is_file() else ""
    write_whole(card, with_card(readme, shared).encode())
    write_whole(metadata, _metadata(folder, shared).encode())
    return WrittenCard((card, metadata), tuple(_problems(folder, shared)), options.suite)


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
    shared = SharedSuite(suite, about, provenance_of(folder), signoffs_of(folder, suite), "")
    digest = hashlib.sha256(_metadata(folder, shared).encode()).hexdigest()
    return replace(shared, files_digest=digest)


def _metadata(folder: Path, shared: SharedSuite) -> str:
    return croissant_text(croissant(folder, shared.about, shared.licence))


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
    """Problems of README.md and croissant.json: missing, or of another state of the suite."""
    card, metadata = folder / CARD, folder / METADATA
    written = card_of(read_text(card)) if card.is_file() else ""
    is_current = (
        (card, shared.files_digest in written),
        (metadata, metadata.is_file() and read_text(metadata) == _metadata(folder, shared)),
    )
    for path, current in is_current:
        if not current:
            yield ConsilienceError(
                "missing, or not of the suite as it is now",
                expected="the data card" if path is card else "the metadata",
                where=str(path),
                todo="Run `consilience suite card`.",
            )
