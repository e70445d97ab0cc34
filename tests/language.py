"""Refuse retired terms (language.toml) in everything that a person reads; part of `make check`.

Documents, pages and data tables are read whole. Of Python files the docstrings, comments and other
texts are read, and in the package the names of values and functions. Prints one line for each match; exit status 1.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = {".md", ".html", ".toml", ".ipynb", ".yml"}
"""Files that are read whole."""

F_STRING = {getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_END")}
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
"""Kinds of tokens; Python 3.12 takes f-strings apart."""


def check(rules: dict) -> Iterator[str]:
    """One line for each retired term: file, line, the term and what to write instead."""
    terms = [
        (
            re.compile(rf"\b(?:{'|'.join(term['not'])})(?!\w)", re.IGNORECASE),
            re.compile("|".join(term.get("allowed", [])) or "(?!)", re.IGNORECASE),
            term["use"],
        )
        for term in rules["term"]
    ]
    for path in files(set(rules["skip"])):
        text = (ROOT / path).read_text(encoding="utf-8")
        parts = [(1, text)] if path.suffix in DOCUMENTS else list(texts(text))
        for start, part in parts:
            for pattern, allowed, use in terms:
                spans = [match.span() for match in allowed.finditer(part)]
                for match in pattern.finditer(part):
                    if any(a <= match.start() and match.end() <= b for a, b in spans):
                        continue
                    line = start + part.count("\n", 0, match.start())
                    term = " ".join(match[0].split())
                    yield f"{path}:{line}: '{term}'; write: {use}"
        if path.suffix == ".py" and path.parts[0] in {"src", "examples"}:
            for line, name in bad_names(text, set(rules["names"])):
                if f"{path}:{name}" not in rules["allowed_names"]:
                    yield f"{path}:{line}: the name '{name}'; write: a noun that says what it holds"


def files(skip: set[str]) -> Iterator[Path]:
    """The documents and Python files of the project."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(names.splitlines()) - skip):
        path = Path(name)
        is_data = path.parts[0] == "tests" and path.suffix != ".py"
        if path.suffix in {*DOCUMENTS, ".py"} and not is_data and (ROOT / path).exists():
            yield path


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of every string and comment; adjacent strings are one text."""
    part, start = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXTS:
            if not part:
                start = token.start[0]
            # A sentence may go over several lines, so that the quotes between them are left out.
            part += re.sub(r'^[rbfuRBFU]*["\']+|["\']+$', "", token.string) + "\n"
        elif token.type not in {tokenize.NL, *F_STRING} and part:
            yield start, part
            part = ""
    if part:
        yield start, part


def bad_names(source: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the name of every value or function with one of these names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in names:
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            yield node.lineno, node.name


def main() -> int:
    """Print every match."""
    rules = tomllib.loads((ROOT / "tests" / "language.toml").read_text(encoding="utf-8"))
    matches = list(check(rules))
    print(*matches, sep="\n")
    if matches:
        print(f"{len(matches)} retired terms (tests/language.toml)")
    return bool(matches)


if __name__ == "__main__":
    sys.exit(main())
