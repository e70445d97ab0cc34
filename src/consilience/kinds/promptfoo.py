"""Results of promptfoo (``promptfoo eval --output results.json``, format 3): questions, answers.

A test is an item. Its variants are the prompts (levels of the factor ``template``), the tests with
the same ``metadata.item`` (``paraphrase``), and the repetitions (``sample``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.core.text import names_a_group, truncated, visible
from consilience.files.read import read_document
from consilience.files.rows import GROUP_NAME
from consilience.files.write import texts_of
from consilience.kinds import score_table
from consilience.kinds.counting import CountedRun
from consilience.options.runs import ScoreOptions
from consilience.runs.run import Run, model_name
from consilience.suites.questions import Questions

Entry = Mapping[str, Any]  # A result: one output of one provider for one prompt and test

EXPECTS_TEXT = re.compile(r"i?(?:equals|contains|contains-any)|is")
"""Types of assertions whose value is the right answer, or a list of texts for it."""

SHOWN = 60  # Characters of a prompt that a note shows


def is_promptfoo(path: Path) -> bool:
    """Whether answers are in a JSON document, which only promptfoo writes."""
    return path.suffix == ".json" and path.is_file()


def score_promptfoo(options: ScoreOptions) -> CountedRun:
    """Measure the answers of one provider.

    Without ``--suite`` the tests are the questions. With it, the variables ``item`` and ``variant``
    of each test name its prompt, as ``consilience suite export --format csv`` writes them.
    """
    where = str(options.answers)
    entries = _of_provider(_entries(read_document(options.answers), where), options, where)
    provider = _provider(entries[0])
    options = replace(options, provider=provider)
    with TemporaryDirectory(prefix="consilience-") as folder:
        file = Path(folder, "answers.parquet")
        if options.suite is not None:
            _table_of_suite(entries, where).write_parquet(file)
            return score_table(Run.open(file, model_name(provider)), options)
        questions, table = questions_of(entries, options.answers.stem, where)
        table.write_parquet(file)
        counted = score_table(Run.open(file, model_name(provider)), options, questions)
        return replace(counted, notes=[*counted.notes, *questions.notes])


def _entries(document: Any, where: str) -> list[Entry]:
    """The results, in the order of tests and prompts; another document raises."""
    results = document.get("results") if isinstance(document, dict) else None
    entries = results.get("results") if isinstance(results, dict) else None
    if not isinstance(entries, list) or not all(map(_is_result, entries)):
        raise ConsilienceError(
            "a JSON document that is not of promptfoo",
            expected="the file of `promptfoo eval --output results.json`",
            where=where,
            todo="Save other answers as .jsonl or .csv, one row an answer.",
        )
    if not entries:
        raise ConsilienceError("no results", where=where, todo="Run `promptfoo eval` again.")
    return sorted(entries, key=lambda entry: (entry["testIdx"], entry["promptIdx"]))


def _is_result(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), int) for name in ("testIdx", "promptIdx"))
        and all(
            isinstance(entry.get(name), dict) for name in ("provider", "prompt", "testCase", "vars")
        )
        and isinstance(entry["testCase"].get("metadata") or {}, dict)
        and isinstance(entry["testCase"].get("assert") or [], list)
    )


def _provider(entry: Entry) -> str:
    return str(entry["provider"].get("label") or entry["provider"].get("id"))


def _of_provider(entries: Sequence[Entry], options: ScoreOptions, where: str) -> list[Entry]:
    """The results of the provider that is named, or of the only one."""
    providers = list(dict.fromkeys(map(_provider, entries)))
    chosen = options.provider
    if chosen is None and len(providers) > 1:
        raise ConsilienceError(
            f"the answers of {len(providers)} providers: {', '.join(providers)}",
            expected="those of one model",
            where=where,
            todo=f"Name one: --provider {providers[0]}.",
        )
    if chosen is not None and chosen not in providers:
        todo = did_you_mean(chosen, providers)
        raise ConsilienceError(f"no provider '{chosen}'", where=where, todo=todo)
    return [entry for entry in entries if chosen in (None, _provider(entry))]


def _output(entry: Entry) -> str | None:
    response = entry.get("response")
    return _text(response.get("output") if isinstance(response, dict) else None)


def _table_of_suite(entries: Sequence[Entry], where: str) -> pl.DataFrame:
    """The variables of each test and the answer, as a table of answers to a suite."""
    rows = [{**entry["vars"], "answer": _output(entry)} for entry in entries]
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "prompt"))
    if not {"item", "variant"} <= set(columns):
        raise ConsilienceError(
            f"tests with the variables {', '.join(columns[:-1]) or '(none)'}",
            expected="item and variant",
            where=where,
            todo="Let the tests be the file of `consilience suite export --format csv`, or leave "
            "--suite out: then each test is a question.",
        )
    texts = {name: [_text(row.get(name)) for row in rows] for name in columns}
    return texts_of(pl.DataFrame(texts, schema=dict.fromkeys(columns, pl.String)))


def _text(value: Any) -> str | None:
    is_text = value is None or isinstance(value, str)
    return value if is_text else json.dumps(value, ensure_ascii=False)


def questions_of(entries: Sequence[Entry], name: str, where: str) -> tuple[Questions, pl.DataFrame]:
    """The tests as questions, and the answers: ``item, variant, answer``.

    ``name``: of the suite, and of the group of tests without ``metadata.group``. A variant names
    the levels of the factors that vary.
    """
    prompts: dict[str, int] = {}
    labels: dict[int, str] = {}
    golds: dict[str, tuple[str, Choice]] = {}
    phrasings: dict[str, dict[str, int]] = {}
    counts: dict[tuple[str, int, int], int] = {}
    cells: list[tuple[str, dict[str, int], str | None]] = []
    for entry in entries:
        label = str(entry["prompt"].get("label") or f"prompt {entry['promptIdx']}")
        prompt = prompts.setdefault(str(entry.get("promptId") or label), len(prompts) + 1)
        labels[prompt] = label
        text = visible(_phrasing(entry["vars"]))
        metadata = entry["testCase"].get("metadata") or {}
        item = " ".join(visible(str(metadata.get("item") or text)).split())
        if item not in golds:
            group = str(metadata.get("group") or name)
            if not names_a_group(group):
                raise ConsilienceError(
                    f"metadata.group '{group}'", expected=GROUP_NAME, where=where
                )
            golds[item] = group, _gold(entry, where)
        of_item = phrasings.setdefault(item, {})
        phrasing = of_item.setdefault(text, len(of_item) + 1)
        key = item, phrasing, prompt
        counts[key] = counts.get(key, 0) + 1
        levels = {"paraphrase": phrasing, "template": prompt, "sample": counts[key]}
        cells.append((item, levels, _output(entry)))
    varying = [
        factor for factor in cells[0][1] if max(levels[factor] for _, levels, _ in cells) > 1
    ]
    if not varying:
        raise ConsilienceError(
            "one prompt for each test, which was asked once",
            expected="several variants to compare",
            where=where,
            todo="Give promptfoo several prompts, or --repeat 3, or several tests with the same "
            "metadata.item.",
        )
    rows = [
        (item, ", ".join(f"{factor}={levels[factor]}" for factor in varying), answer)
        for item, levels, answer in cells
    ]
    table = pl.DataFrame(
        rows, dict.fromkeys(("item", "variant", "answer"), pl.String), orient="row"
    )
    notes = [
        f"template {number}: {truncated(' '.join(label.split()), SHOWN)}"
        for number, label in labels.items()
    ]
    questions = tuple(
        Question(item, group, {DEFAULT_LANGUAGE: tuple(phrasings[item])}, gold)
        for item, (group, gold) in golds.items()
    )
    return Questions(name, questions, tuple(notes if len(notes) > 1 else ())), table


def _phrasing(variables: Mapping[str, Any]) -> str:
    """A test as one text: its only variable, or all of them as JSON."""
    values = list(variables.values())
    if len(values) == 1 and isinstance(values[0], str) and values[0].strip():
        return values[0]
    return json.dumps(variables, ensure_ascii=False, sort_keys=True)


def _gold(entry: Entry, where: str) -> Choice:
    """The right answer of a test: the text that its first assertion of a text expects."""
    assertions = entry["testCase"].get("assert") or ()
    for assertion in assertions:
        if not isinstance(assertion, dict) or not EXPECTS_TEXT.fullmatch(
            str(assertion.get("type"))
        ):
            continue
        value = assertion.get("value")
        texts = [
            visible(_filled(str(one), entry["vars"]))
            for one in (value if isinstance(value, list) else [value])
        ]
        if texts := [text for text in texts if text.strip() and text != "None"]:
            return Choice(texts[0], tuple(dict.fromkeys(texts[1:])))
    types = dict.fromkeys(str(one.get("type")) for one in assertions if isinstance(one, dict))
    only = f", only {', '.join(types)}" if types else ""
    raise ConsilienceError(
        f"the test '{truncated(_phrasing(entry['vars']), SHOWN)}' has no expected text{only}",
        expected="an assertion of the type equals, contains, icontains or contains-any",
        where=where,
        todo="Add {type: icontains, value: TEXT, weight: 0}, which changes no result of promptfoo, "
        "and run `promptfoo eval` again; or name the questions with --suite.",
    )


def _filled(text: str, variables: Mapping[str, Any]) -> str:
    """A text with the variables of its test in place of ``{{name}}``."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda of: str(variables.get(of[1], of[0])), text)
