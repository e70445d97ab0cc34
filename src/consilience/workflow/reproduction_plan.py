"""The plan of a reproduction: whether the data are there, and how many queries are asked."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence

from consilience import suites
from consilience.errors import ConsilienceError
from consilience.reproduce.work import Request
from consilience.suites.selection import select_relations
from consilience.types import Suite

PARAREL = "pararel"
"""The suite that can be counted without a network."""

ESTIMATED = ("probe", "improve", "finetune")
"""Commands whose ``--dry-run`` estimates their time."""

UNCOUNTED = ("--facts-from", "--single-token", "--perturbations", "--as-shipped")
"""Options of ``probe`` that change the number of queries in a way that is not counted here."""


def check_models(request: Request) -> None:
    """Raise for a user's model whose file or folder does not exist; the Hub is not asked."""
    models = [*request.models.values(), *request.added.values()]
    local = [spec for spec in models if not spec.startswith("baseline:")]
    if local:
        from consilience.models.sources import locate

        for spec in local:
            locate(spec)


def plan_lines(commands: Sequence[str], request: Request) -> list[str]:
    """Lines on the data, the number of queries and how to estimate the time."""
    typed = [shlex.split(command) for command in commands]
    lines = list(_on_data(typed, request))
    if names := [name for name in ESTIMATED if any(name == words[1] for words in typed)]:
        lines.append(f"Time: add --dry-run to a command ({', '.join(names)}) to estimate it.")
    return lines


def _on_data(typed: Sequence[Sequence[str]], request: Request) -> Iterator[str]:
    if any("--data" in words or "--train" in words for words in typed):
        yield "Data: not checked; sentence pairs are read from the Hub or from --data."
    if not any(PARAREL in words for words in typed):
        return
    try:
        suite = suites.load_suite(PARAREL, request.data_dir)
    except ConsilienceError as error:
        yield f"Data: missing: {error}"
        return
    yield f"Data: {suites.suite_folder(PARAREL, suites.data_dir(request.data_dir))}"
    probes = [words for words in typed if words[1] == "probe" and PARAREL in words]
    if not probes:
        return
    flags = {word.partition("=")[0] for words in probes for word in words}
    if uncounted := [flag for flag in UNCOUNTED if flag in flags]:
        yield f"Queries: not counted with {', '.join(uncounted)}."
        return
    counts = [_queries(words, suite) for words in probes]
    several = f" in {len(counts)} runs" if len(counts) > 1 else ""
    yield f"Queries: {sum(counts):,}{several}. Answers of existing runs are reused."


def _queries(words: Sequence[str], suite: Suite) -> int:
    """Number of queries of a command ``probe`` with a suite of facts."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--limit", "-n", default="")
    parser.add_argument("--groups", default="")
    options, _ = parser.parse_known_args(words)
    if options.limit and not options.limit.isdigit():
        raise ConsilienceError(f"--limit {options.limit}", expected="a whole number, such as 5")
    names = [name.strip() for name in options.groups.split(",") if name.strip()]
    relations = select_relations(suite, names).relations if names else suite.relations
    return sum(
        min(len(relation.facts), int(options.limit or len(relation.facts))) * len(relation.patterns)
        for relation in relations
    )
