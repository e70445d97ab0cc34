"""What a suite asks, for other programs to answer; their answers are joined with it again."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, missing_column
from consilience.core.factors import FACTORS
from consilience.core.free_text import DEFAULT_RULE, RULES, Rule, match
from consilience.core.items import Ask, Choice, Question, as_string
from consilience.core.schemas import ANSWERS_SCHEMA, QUERIES_SCHEMA
from consilience.core.text import counted
from consilience.elsewhere.table import FORM, KEY, NAME, Elsewhere, refuse_several
from consilience.files.rows import text_of
from consilience.files.write import check_no_file, make_folder, write_whole
from consilience.options import parameters, takes
from consilience.options.commands import AskedOptions, ExportOptions, ProbeOptions, ScoreOptions
from consilience.plans import Kind, kind_of, plan_of, refuse_other_options
from consilience.plans.questions import Presented
from consilience.report.table import Output
from consilience.suites.pairs import load_task
from consilience.suites.questions import Questions

Row = dict[str, Any]

BLANK = "____"  # In place of the object of a fact
ANSWERED = ("answer", "scores", "right", "reading", "error", "excluded", "model", "sample")
"""What an answer adds to its query."""
TASK = """\
# Written by `consilience suite export`. A document is an item in a variant.
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: prompt
doc_to_choice: choices
doc_to_target: gold_index
target_delimiter: ""
metric_list: [{{metric: acc}}]
metadata: {{version: 1.0}}
"""


def query_id(group: str, item: str, variant: str) -> str:
    """The first 16 hexadecimal digits of SHA-256 of group, item and variant, with tabs between."""
    return hashlib.sha256(f"{group}\t{item}\t{variant}".encode()).hexdigest()[:16]


@takes(ExportOptions)
def export_prompts(options: ExportOptions) -> Iterator[Row]:
    """A row for each query, with all that scoring its answer needs; a wrong option raises at once.

    A gold or an option that may be written in several ways is a list, which begins as in the suite.
    """
    return (row for row, *_ in asked_rows(options)[1])


def asked_rows(
    options: AskedOptions, suite: Questions | None = None
) -> tuple[Kind, Iterator[tuple[Row, Ask, Question | None]]]:
    """The kind of a suite, and its rows with what they ask; ``suite``: in place of the named."""
    chosen = ProbeOptions(**{name: getattr(options, name) for name in parameters(AskedOptions)})
    kind, (before, after) = refuse_other_options(chosen, suite), ("", "")
    if kind == "pairs":
        from consilience.models.prompts import REPLY, TEMPLATES, filled

        task = load_task(chosen.suite)
        text = filled(chosen.template or TEMPLATES[task.kind], task).replace(REPLY, "")
        before, after = text.split("{text}")
        chosen = replace(chosen, generate=True, model="baseline:majority")
    plan = plan_of(chosen, suite)
    queries = plan.queries(None)
    questions = Presented.of(chosen, suite).questions.groups if kind == "questions" else {}
    factors: Any = plan.settings.get("factors") or ()
    design = plan.suite.relations[0].design.record
    drawn = {"drawn": design["drawn"]} if "drawn" in design else {}

    def rows() -> Iterator[tuple[Row, Ask, Question | None]]:
        for name in queries.groups[-1:] if kind == "pairs" else queries.groups:
            group = queries.group(name)
            for ask in group.asks:
                item, variant, question = group.items[ask.item], group.variants[ask.variant], None
                levels = {of: known[ask.variant] for of, known in group.levels.items()}
                row: Row = {
                    "id": query_id(name, item.id, variant), "suite": plan.suite.name,
                    "group": name, "item": item.id, "subject": item.subject,
                    "variant": variant, "variant_index": ask.variant,
                    **dict.fromkeys(factors), **levels, **drawn,
                    "candidates": [*ask.answers], "gold": item.gold,
                }  # fmt: skip
                if kind == "questions":
                    question, prompt = questions[name][ask.item], ask.shown
                    turns = [*[("system", prompt.system)] * bool(prompt.system), *prompt.turns]
                    messages = [{"role": role, "content": text} for role, text in turns]
                    names = [question.options[at].text for at in prompt.options]
                    row |= {
                        "prompt": "\n\n".join(filter(None, (prompt.system, prompt.text))),
                        "messages": messages if prompt.is_chat else None,
                        "candidates": row["candidates"] if question.options else [],
                        "options": [*map(_every_text, names, prompt.choices)],
                        "gold": _every_text(question.gold.text, question.gold),
                    }
                elif kind == "facts":
                    row["prompt"] = ask.shown.pattern.fill(ask.shown.subject, BLANK)
                else:
                    row |= {f"text_{at}": one.text for at, one in enumerate(ask.shown, start=1)}
                    row |= {FORM: variant, "options": row["candidates"], "labels": "none"}
                    row["prompt"] = before + as_string(ask.shown) + after
                yield row, ask, question

    return kind, rows()


def _every_text(name: str, choice: Choice) -> str | list[str]:
    every = [*dict.fromkeys([name, *choice.texts])]
    return every if len(every) > 1 else name


def exported(options: ExportOptions, out: Path) -> Output:
    """Write the rows to a new file; a name without an ending is the folder of a task."""
    if out.is_dir() or not out.suffix:
        return exported_task(options, out)
    check_no_file(out)
    size, rows = [0], asked_rows(options)[1]

    def lines() -> Iterator[bytes]:
        for size[0], (row, *_) in enumerate(rows, start=1):
            if out.suffix == ".csv":  # a list is JSON in a cell
                buffer = io.StringIO(newline="")
                writer = csv.writer(buffer, lineterminator="\n")
                writer.writerows([row] * (size[0] == 1))
                writer.writerow(
                    [text_of(of) if isinstance(of, list) else of for of in row.values()]
                )
                yield buffer.getvalue().encode()
            else:
                yield json.dumps(row, ensure_ascii=False).encode() + b"\n"

    write_whole(out, lines)
    return Output(shown=[f"{out}: {counted(size[0], 'prompt')}"])


def exported_task(options: ExportOptions, folder: Path) -> Output:
    """Write a task of lm-evaluation-harness into a folder; how it is run and scored.

    Sentence pairs, open questions and chats raise: the harness cannot score them as ``probe`` does.
    """
    kind, asked = asked_rows(options)
    lines, items = list[str](), set[tuple[str, str]]()
    for row, ask, question in asked:
        if kind == "pairs" or (question and (not question.options or ask.shown.is_chat)):
            found = f"sentence pairs, open questions or a chat in '{row['group']}'"
            expected = "facts, or questions with options in a text, such as --template plain"
            raise ConsilienceError(found, expected=expected, todo="Use --out PROMPTS.jsonl.")
        items.add((row["group"], row["item"]))
        document: Row = {of: text_of(value) or "" for of, value in row.items()}  # of one type
        if question is None:
            choices = [ask.shown.pattern.fill(ask.shown.subject, word) for word in ask.answers]
            gold, prompt = ask.answers.index(ask.shown.gold), ""
        else:
            gold, prompt = ask.shown.gold, ask.shown.text
            texts = sorted(ask.answers)  # "1" begins "10"
            end = "\n" * any(other.startswith(one) for one, other in pairwise(texts))
            gap = "" if prompt.endswith("\n") else " "
            choices = [gap + answer + end for answer in ask.answers]
        document |= {"prompt": prompt, "choices": choices, "gold_index": gold}
        lines.append(json.dumps(document, ensure_ascii=False) + "\n")
    name = "consilience_" + re.sub(r"\W+", "_", row["suite"])
    make_folder(folder)
    write_whole(folder / f"{name}.jsonl", lambda: (line.encode() for line in lines))
    write_whole(folder / f"{name}.yaml", TASK.format(name=name).encode())
    suite = f" --suite {shlex.quote(options.suite)}" * (kind == "facts")
    place = shlex.quote(str(folder))
    lines = [
        f"{folder / name}.yaml: {counted(len(lines), 'document')} of {counted(len(items), 'item')}",
        f"Run:   cd {place}; lm_eval run --model hf --model_args pretrained=MODEL,dtype=float32 "
        f"--include_path . --tasks {name} --log_samples --output_path .",
        f"Score: consilience score {place}{suite}",
    ]
    return Output(shown=lines)


def joined(
    parts: Iterable[pl.DataFrame], asked: pl.DataFrame, where: str, model: str | None
) -> tuple[pl.DataFrame, list[str]]:
    """The queries that were exported, with their answers, and notes.

    Answers are found by ``id``, or by item (and group) and the variant or the factors that vary.
    One to no query raises. Items without an answer are left out; other queries without one are
    ``excluded``.
    """
    given = pl.concat(parts, how="diagonal")
    if model and "model" in given.columns:
        given = given.filter(pl.col("model").fill_null(model) == model)
    elif "model" in given.columns:
        refuse_several(given["model"].drop_nulls().unique(), where)
    given = given.select(of for of in given.columns if given[of].null_count() < len(given))
    by = [name for name in (*KEY, NAME) if name in given.columns]
    varied = [of for of in FACTORS if of in asked.columns and asked[of].n_unique() > 1]
    if "id" in given.columns and "id" in asked.columns:
        by = ["id"]
    elif NAME not in by and varied and {"item", *varied} <= {*given.columns}:
        by += varied
    elif not {"item", NAME} <= {*by}:
        expected = f"id, or item and {' and '.join(varied) or 'variant'}"
        raise missing_column("id", given.columns, expected=expected, where=where)
    if asked.select(by).is_duplicated().any():
        raise missing_column("group", given.columns, expected="the group of each item", where=where)
    foreign = given.join(asked, on=by, how="anti")
    if not foreign.is_empty():
        example = ", ".join(f"{name} '{foreign[name][0]}'" for name in by)
        found = f"{counted(len(foreign), 'row')} to no query of the suite, such as {example}"
        raise ConsilienceError(found, expected="what was exported", where=where)
    if "excluded" not in given.columns:
        given = given.with_columns(excluded=pl.lit(None, pl.String))
    own = [name for name in ANSWERED if name in given.columns]
    rest, known = asked.drop(own, strict=False), given.select(*by, *own, known=pl.lit(value=True))
    both = rest.join(known, on=by, how="left", maintain_order="left")
    has_row = pl.col("known").fill_null(value=False)
    both = both.filter(has_row if "sample" in own else has_row.any().over(KEY))
    left = rest.select(KEY).n_unique() - both.select(KEY).n_unique()
    notes = [f"left out: {counted(left, 'item')} without a row"] * (left > 0)
    excluded = pl.when(has_row).then("excluded").otherwise(pl.lit("no row in the table"))
    return both.with_columns(excluded), notes


def fact_answers(
    parts: Iterable[pl.DataFrame], options: ScoreOptions, rule: Rule | None, where: str
) -> Elsewhere:
    """Answers to a suite of facts, by the plan of that suite.

    ``rule``: how the object is found in an answer; None for ``exact``. An answer that is no object
    stays as it is.
    """
    if kind_of(options.suite or "") != "facts":
        todo = "Write its queries: consilience suite export SUITE --out FILE, and name the FILE."
        expected = "a suite of facts, or a file that `consilience suite export` wrote"
        raise ConsilienceError(f"--suite {options.suite}", expected=expected, todo=todo)
    model, suite = "baseline:majority", options.suite or ""
    plan = plan_of(ProbeOptions(model=model, suite=suite, protocol=options.protocol))
    asked = plan.queries(None).table().rename({"variant": NAME})
    ids = [query_id(*names) for names in asked.select(*KEY, NAME).iter_rows()]
    rows, notes = joined(parts, asked.with_columns(id=pl.Series(ids)), where, options.model)

    @cache
    def written(group: str, variant: str) -> list[Choice]:
        relation = plan.suite.relation(group)
        (language,) = (one.language for one in relation.patterns if one.text == variant)
        return [Choice(of, (relation.written(of, language),)) for of in relation.candidates.words]

    @cache
    def object_in(group: str, variant: str, text: str) -> str:
        choices = written(group, variant)
        known = text if text in [choice.text for choice in choices] else None
        at = None if known else match(text, choices, rule or RULES[DEFAULT_RULE]).position
        return text if at is None else choices[at].text

    absent = {"answer", "error", "model"} - {*rows.columns}
    rows = rows.with_columns(pl.lit(None, pl.String).alias(name) for name in absent)
    is_asked, answer = pl.col("excluded").is_null(), pl.col("answer").str.strip_chars()
    texts = rows.select("group", NAME, pl.when(is_asked).then(answer)).iter_rows()
    answers = [object_in(*names, text) if text else None for *names, text in texts]
    objects = {one.id: {None, *one.candidates.words} for one in plan.suite}
    both = zip(rows["group"], answers, strict=True)
    if others := [answer for group, answer in both if answer not in objects[group]]:
        found = f"{len(others):,} of {len(answers):,} answers are not among the objects"
        notes.append(f"{found} of their relation, such as '{others[0]}'")
    error = pl.when(is_asked & pl.col("answer").is_null()).then("error")
    rows = rows.with_columns(pl.Series("answer", answers, pl.String), error=error)
    items = {*rows.select(KEY).iter_rows()}
    relations = [
        replace(one, facts=tuple(fact for fact in one.facts if (one.id, fact.item) in items))
        for one in plan.suite
    ]
    counted_suite = replace(plan.suite, relations=tuple(one for one in relations if one.facts))
    given = rows.with_columns(suite=pl.lit(plan.suite.name)).rename({NAME: "variant"})
    answers_of = given.select(
        pl.col(name).cast(kind) if name in given.columns else pl.lit(None, kind).alias(name)
        for name, kind in ANSWERS_SCHEMA.items()
    )
    queries, model = given.select([*QUERIES_SCHEMA]), min(rows["model"].drop_nulls(), default="")
    return Elsewhere(queries, counted_suite, answers_of, model, notes, plan.settings)
