"""Refuse phrases (language.toml) in the documents that a person reads; part of `make check`.

Prints one line for each match; exit status 1.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = {".md", ".html", ".toml", ".ipynb", ".yml"}


def check(rules: dict) -> Iterator[str]:
    """One line for each match: file, line, the phrase and what to write instead."""
    terms = [
        (
            re.compile(rf"\b(?:{'|'.join(term['not'])})(?!\w)", re.IGNORECASE),
            re.compile("|".join(term.get("allowed", [])) or "(?!)", re.IGNORECASE),
            term["use"],
        )
        for term in rules["term"]
    ]
    for path in documents(set(rules["skip"])):
        text = (ROOT / path).read_text(encoding="utf-8")
        for pattern, allowed, use in terms:
            spans = [match.span() for match in allowed.finditer(text)]
            for match in pattern.finditer(text):
                if any(a <= match.start() and match.end() <= b for a, b in spans):
                    continue
                line = 1 + text.count("\n", 0, match.start())
                yield f"{path}:{line}: '{' '.join(match[0].split())}'; write: {use}"


def documents(skip: set[str]) -> Iterator[Path]:
    """The documents of the project, without the data of its tests."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in map(Path, sorted(set(names.splitlines()) - skip)):
        if path.suffix in DOCUMENTS and path.parts[0] != "tests" and (ROOT / path).exists():
            yield path


def main() -> int:
    """Print every match."""
    rules = tomllib.loads((ROOT / "tests" / "language.toml").read_text(encoding="utf-8"))
    matches = list(check(rules))
    print(*matches, sep="\n")
    if matches:
        print(f"{len(matches)} retired phrases (tests/language.toml)")
    return bool(matches)


if __name__ == "__main__":
    sys.exit(main())
