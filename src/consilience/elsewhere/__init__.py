"""Answers that other programs made become runs: tables, and logs of four programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.free_text import DEFAULT_RULE, DEFAULT_RULES, RULES, rule_of
from consilience.core.schemas import METRICS_SCHEMA
from consilience.elsewhere.exports import fact_answers, joined
from consilience.elsewhere.formats import frames_in
from consilience.elsewhere.table import (
    ANSWERS,
    COLUMNS,
    NAME,
    NEEDED,
    READ,
    TAKEN,
    Elsewhere,
    Table,
    counted_table,
)
from consilience.options.commands import ScoreOptions
from consilience.plans.presentation import LABEL_STYLES
from consilience.runs import run as runs
from consilience.runs.folder import RunFolder, content_digest, digest_of, fingerprint
from consilience.runs.run import Run
from consilience.types import WORDS


def open_run(path: str | Path, label: str = "", model: str | None = None) -> Run:
    """The run in a folder, or the one that is made of a file of answers or a folder of logs.

    ``model``: of several in a file.
    """
    path = Path(path)
    if (path / "run.json").exists() or not path.exists():
        return Run.open(path, label)
    temporary = TemporaryDirectory(prefix="consilience-")
    options = ScoreOptions(path, model=model)
    run = kept(made_of(options), options, Path(temporary.name, "run"))
    return replace(run, label=label or run.model_name, source=path, keeper=temporary)


def open_runs(specs: Sequence[str]) -> list[Run]:
    """Runs by ``PATH`` or ``LABEL=PATH``; of a single file the answers of each model in it."""
    path = Path(specs[0])
    if len(specs) == 1 and path.exists() and not (path / "run.json").exists():
        parts = (part["model"].drop_nulls() for part in frames_in(path)[0] if "model" in part)
        if len(models := sorted({model for of in parts for model in of})) > 1:
            return [open_run(path, model, model) for model in models]
    return runs.open_runs(specs, open_run)


def made_of(options: ScoreOptions) -> Elsewhere:
    """What a file of answers holds, or a folder of logs."""
    path, suite, match = options.answers, options.suite, options.match
    if not path.exists():
        raise ConsilienceError("no such file or folder", where=str(path), todo="Check the path.")
    named = named_columns(options.columns)
    columns = {NAME if of == "variant" else of: name for of, name in named.items()}
    where = str(path)
    frames, fields = frames_in(path, columns, (*([] if suite else NEEDED), "answer"))
    first = [*islice(frames, 1)]
    for row in (row for part in first for row in part[:1].to_dicts()):
        if suite is None and len(row.get("candidates") or "[]") > 2 and not row.get("options"):
            suite = row["suite"]  # of facts that were exported
            options = replace(options, suite=suite)
    frames = chain(first, frames)
    if suite is not None and not Path(suite).is_file():
        return fact_answers(frames, options, rule_of(match) if match else None, where)
    notes = list[str]()
    if suite is not None:
        parts_of, fields = frames_in(Path(suite))
        asked = pl.concat(parts_of, how="diagonal")
        if asked["id"].null_count():
            expected = "what `consilience suite export` wrote"
            todo = f"Write it: consilience suite export {suite} --out PROMPTS.jsonl."
            raise ConsilienceError("rows without 'id'", expected=expected, where=suite, todo=todo)
        rows, notes = joined(frames, asked, where, options.model)
        frames = iter([rows])
    table = Table.of_parts(frames, where, fields, options.model)
    table.notes += notes
    for factor, field in columns.items():
        if factor == "labels" and field in LABEL_STYLES and factor not in table.rows.columns:
            table.rows = table.rows.with_columns(labels=pl.lit(field, pl.Categorical))
        elif field and factor not in (*COLUMNS, *table.rows.columns):
            found = f"no field '{field}' of the factor '{factor}'"
            raise ConsilienceError(found, expected="one that rows have", where=where)
    rows = table.rows
    readings = {*rows["reading"].drop_nulls()} if "reading" in rows.columns else set[str]()
    if match in readings - {*RULES}:
        return counted_table(table, path.stem, reading=match)
    return counted_table(table, path.stem, rule_of(match, readings) if match else None)


def named_columns(columns: Sequence[str] | None) -> dict[str, str]:
    """Our names of columns, and what a file calls them; a name that no factor has raises."""
    named = dict(of.partition("=")[::2] for of in columns or ())
    if taken := {*named} & TAKEN - {"variant"}:
        found = f"a factor called '{min(taken)}'"
        expected = f"{', '.join(NEEDED)}, options, answer, or a factor of another name"
        raise ConsilienceError(found, expected=expected)
    return named


def kept(made: Elsewhere, options: ScoreOptions, folder: Path) -> Run:
    """A run of what ``made_of`` made, in a folder."""
    path = options.answers
    match = options.match or (DEFAULT_RULE if made.suite.words is WORDS["facts"] else DEFAULT_RULES)
    files = sorted(one for one in path.rglob("*") if one.is_file()) or [path]
    digests = {str(one.relative_to(path)): digest_of(one) for one in files}
    written = RunFolder(folder, {
        "kind": next(kind for kind, words in WORDS.items() if words is made.suite.words),
        **made.settings,
        "suite": made.suite.name,
        "groups": [group.id for group in made.suite],
        "protocol": made.suite.protocol,
        "writing": {"match": match},
        "queries": content_digest(made.queries),
        "model": {"model": made.model or path.stem, "digest": fingerprint(digests)},
    })  # fmt: skip
    written.describe("answers_of", str(path))
    written.write_queries(made.queries, [group.record for group in made.suite])
    written.note(made.notes)
    absent = [pl.lit(None, ANSWERS[of]).alias(of) for of in READ if of not in made.answers.columns]
    for group in made.suite:
        answers = made.answers.filter(pl.col("group") == group.id).with_columns(absent)
        written.write_answers(group.id, answers.cast({pl.Categorical: pl.String}))
    written.finish(pl.DataFrame(schema=METRICS_SCHEMA))
    return Run.open(folder)
