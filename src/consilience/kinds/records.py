"""Instance records of Every Eval Ever as questions: a row an answer, in parts of a large file.

The schema is ``publish/every_eval_ever_0_3_0/instance_level_eval.schema.json``. The answers to one
``sample_id`` (or ``metadata.item``) of an evaluation are its variants. What differs between them is
read from ``metadata``; a record that says nothing differs by its prompt, or is one more sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from consilience.asking.questions import EMPTY, SCHEMA, WRITTEN_COLUMNS
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import FACTORS, MOST_CELLS, OF_OPTIONS, levels_of
from consilience.core.free_text import normalized
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.core.text import counted, names_a_group, visible
from consilience.files.read import read_lines
from consilience.files.rows import GROUP_NAME
from consilience.kinds.answers import JUDGED, design_of, is_promptfoo, promptfoo_answers
from consilience.options.runs import ScoreOptions
from consilience.suites.questions import Questions

FIELDS: dict[str, str] = {
    name: factor
    for factor, names in {
        "language": "language lang",
        "paraphrase": "paraphrase phrasing wording instruction instruction_phrasing",
        "order": "order choices_order choice_order option_order",
        "labels": "labels enumerator choices_enumerator choice_enumerator",
        "separator": "separator choices_separator choice_separator",
        "case": "case",
        "examples": "examples shots num_shots n_shots demonstrations",
        "sample": "sample seed repeat trial run",
    }.items()
    for name in names.split()
}
"""The factor of a field of ``metadata``; all other fields together are the ``template``."""

NO_FIELDS = {"item", "variant", "variant_index", "margin"}  # Fields of ``publish``: not factors
PART = 2**26  # Bytes of a file in memory at once
ROWS = 100_000  # Answers in memory as Python objects at once
HEAD = 1000  # Records from which the fields of ``metadata`` are known
KEYS = {"evaluation_id", "sample_id", "input", "answer_attribution"}
TEXTS, KEY = pl.List(pl.String), ["group", "item"]
KEPT = [name for name in {**SCHEMA, **WRITTEN_COLUMNS} if name != "suite"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def maker_of(
    path: Path,
) -> Callable[[ScoreOptions], tuple[ScoreOptions, Questions | None, pl.DataFrame]] | None:
    """What reads a file that brings its own questions; None of any other."""
    if is_promptfoo(path):
        return promptfoo_answers
    return record_answers if is_records(path) else None


def is_records(path: Path) -> bool:
    """Whether the first line of a JSONL file is an instance record."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except json.JSONDecodeError:
        return False
    return isinstance(record, dict) and record.keys() >= KEYS


def record_answers(options: ScoreOptions) -> tuple[ScoreOptions, Questions, pl.DataFrame]:
    """The answers of one model, whom the options then name, and their questions.

    The first text of ``input.reference`` is the gold, the others are its aliases. Whether an answer
    is right is what the record says (``evaluation.is_correct``). With ``input.choices`` it is also
    one of the options, by its text or its label.
    """
    where = str(options.answers)
    for name in ("suite", "match"):
        if getattr(options, name) is not None:
            raise ConsilienceError(
                f"--{name} with instance records",
                expected="none: records have their questions, and say which answers are right",
                where=where,
                todo=f"Leave --{name} out.",
            )
    model, items, slim = _read_parts(options.answers, options.provider, where)
    others = slim.filter(pl.col("interaction_type") != "single_turn").height
    slim = slim.filter(interaction_type="single_turn").drop("interaction_type")
    _refuse_lacking(items, slim, where)
    if items["item"].is_duplicated().any():  # the same id in several evaluations
        whole = pl.concat_str(pl.col(KEY).cast(pl.String), separator="/")
        items, slim = (of.with_columns(item=whole) for of in (items, slim))
        slim = slim.with_columns(pl.col("item").cast(pl.Categorical))
    notes = [f"{counted(others, 'record')} of several turns not counted"] * (others > 0)
    questions = tuple(_question(row) for row in items.iter_rows(named=True))
    table = _with_variants(slim, where, has_options=all(one.options for one in questions))
    table = _judged(table, {(one.group, one.item): one for one in questions})
    name = options.answers.stem
    table = table.with_columns(pl.lit(name).alias("suite"), pl.lit(value=True).alias(JUDGED))
    return replace(options, provider=model), Questions(name, questions, tuple(notes)), table


def _read_parts(
    path: Path, chosen: str | None, where: str
) -> tuple[str, pl.DataFrame, pl.DataFrame]:
    """The model, its questions with what their first records have, and its records, without texts.

    The file is read in parts of ``PART`` bytes; texts that repeat are categories.
    """
    schema, firsts, parts = _schema(path, where), list[pl.DataFrame](), list[pl.DataFrame]()
    models: set[str] = set()
    with path.open("rb") as file:
        while part := file.read(PART) + file.readline():
            try:
                records = pl.read_ndjson(part, schema=schema)
            except pl.exceptions.PolarsError as error:
                raise ConsilienceError(
                    f"records that cannot be read: {str(error).splitlines()[0]}",
                    expected="instance records of Every Eval Ever, a JSON object a line",
                    where=where,
                ) from error
            models.update(records["model_id"].drop_nulls().unique())
            records = records.filter(pl.col("model_id") == chosen) if chosen else records
            records = records.select(_columns(records.schema))
            parts.append(records.drop("raw", "reference"))
            of_items = records.select(*KEY, "raw", "reference", "choices")
            firsts.append(of_items.unique(KEY, keep="first", maintain_order=True))
    model = _model(sorted(models), chosen, where)
    items = pl.concat(firsts).unique(KEY, keep="first", maintain_order=True)
    items = items.with_columns(pl.col(*KEY, "choices").cast(pl.String))
    return model, items, pl.concat(parts)


def _schema(path: Path, where: str) -> pl.Schema:
    """The fields that are read; those of ``metadata`` are the ones of the first records."""
    names: dict[str, None] = {}
    for _, line in islice(read_lines(path), HEAD):
        try:
            names |= dict.fromkeys(json.loads(line).get("metadata") or {})
        except (AttributeError, ValueError) as error:
            todo = "Save it as JSONL, one record a line."
            raise ConsilienceError("a line that is no record", where=where, todo=todo) from error
    texts: dict[str, Any] = dict.fromkeys(
        ("model_id", "evaluation_name", "sample_id", "interaction_type"), pl.String
    )
    attribution = pl.Struct({"extracted_value": pl.String})
    return pl.Schema({
        **texts,
        "input": pl.Struct({"raw": pl.String, "reference": TEXTS, "choices": TEXTS}),
        "output": pl.Struct({"raw": TEXTS}),
        "answer_attribution": pl.List(attribution),
        "evaluation": pl.Struct({"is_correct": pl.Boolean}),
        "error": pl.String,
        "metadata": pl.Struct(dict.fromkeys(names or {"item": None}, pl.String)),
    })  # fmt: skip


def _columns(schema: pl.Schema) -> list[pl.Expr]:
    """The columns that are kept of each record; texts that repeat are categories."""
    fields = [one.name for one in schema["metadata"].fields]  # type: ignore[attr-defined]
    given, metadata, attributed = (
        pl.col("input").struct,
        pl.col("metadata").struct,
        pl.col("answer_attribution"),
    )
    item = pl.col("sample_id")
    if "item" in fields:
        item = pl.coalesce(metadata.field("item"), item)
    answer = pl.coalesce(
        attributed.list.last().struct.field("extracted_value"),
        pl.col("output").struct.field("raw").list.first(),
    )
    return [
        pl.col("evaluation_name").cast(pl.Categorical).alias("group"),
        item.cast(pl.Categorical).alias("item"),
        pl.col("interaction_type").cast(pl.Categorical),
        given.field("raw").alias("raw"),
        given.field("raw").hash().alias("prompt"),
        given.field("reference").alias("reference"),
        given.field("choices").list.join("\x1f").cast(pl.Categorical).alias("choices"),
        answer.cast(pl.Categorical).alias("answer"),
        pl.col("evaluation").struct.field("is_correct").alias("is_right"),
        pl.col("error").cast(pl.Categorical).alias("excluded"),
        *(metadata.field(name).cast(pl.Categorical).alias(f"metadata {name}") for name in fields),
    ]


def _model(models: Sequence[str], chosen: str | None, where: str) -> str:
    """The model whose answers count: the only one, or the chosen one."""
    if chosen is not None and chosen not in models:
        todo = did_you_mean(chosen, list(models))
        raise ConsilienceError(f"no model '{chosen}'", where=where, todo=todo)
    if chosen is None and len(models) != 1:
        raise ConsilienceError(
            f"the answers of {counted(len(models), 'model')}: {', '.join(models[:5])}",
            expected="those of one model",
            where=where,
            todo=f"Name one: --provider {models[0]}." if models else "Check the records.",
        )
    return chosen or models[0]


def _refuse_lacking(items: pl.DataFrame, slim: pl.DataFrame, where: str) -> None:
    """Raise for records without what a question needs."""
    if slim.is_empty():
        raise ConsilienceError("no records of a single turn", where=where)
    lacking = {
        "evaluation_name": items["group"].null_count(),
        "sample_id": items["item"].null_count(),
        "input.raw": items["raw"].null_count(),
        "input.reference": (items["reference"].list.len().fill_null(0) == 0).sum(),
        "evaluation.is_correct": slim["is_right"].null_count(),
    }
    for name, count in lacking.items():
        if count:
            found = f"{counted(int(count), 'record')} without {name}"
            raise ConsilienceError(found, where=where, todo="Correct or remove them.")
    for group in items["group"].unique(maintain_order=True):
        if not names_a_group(group):
            found = f"evaluation_name '{visible(group)}'"
            raise ConsilienceError(found, expected=GROUP_NAME, where=where)


def _with_variants(slim: pl.DataFrame, where: str, *, has_options: bool) -> pl.DataFrame:
    """The records with the variant and its levels: what differs within an item.

    ``has_options``: whether all questions have options; only these have orders and labels of them.
    """
    names = [name for name in slim.columns if name.startswith("metadata ")]
    varying = [
        name
        for name in names
        if name.removeprefix("metadata ") not in NO_FIELDS
        and (slim.group_by(KEY).agg(pl.col(name).n_unique() > 1)[name]).any()
    ]
    parts: dict[str, list[pl.Expr]] = {}
    for name in varying:
        factor = FIELDS.get(name.removeprefix("metadata "), "template")
        factor = "template" if factor in OF_OPTIONS and not has_options else factor
        level = pl.col(name).cast(pl.String).fill_null("none").str.replace_all(r"[,=\n\r]", " ")
        parts.setdefault(factor, []).append(level)
    levels = {factor: pl.concat_str(of, separator=" | ") for factor, of in parts.items()}
    if "paraphrase" in levels:
        levels["paraphrase"] = levels["paraphrase"].rank("dense").cast(pl.String)
    elif not levels and "metadata variant" not in names:
        levels["paraphrase"] = pl.col("prompt").rank("dense").over(KEY).cast(pl.String)
    named = [pl.format("{}={}", pl.lit(name), levels[name]) for name in FACTORS if name in levels]
    variant = pl.concat_str(named, separator=", ") if named else pl.lit("base")
    if "metadata variant" in names and not named:
        variant = pl.col("metadata variant").cast(pl.String).fill_null("base")
        if not has_options:  # so none has an order of options
            level = variant.str.replace_all(r"[,=]", " ").str.replace_all(" +", " ")
            is_of_options = variant.str.contains(rf"(?:^|, )(?:{'|'.join(OF_OPTIONS)})=")
            variant = pl.when(is_of_options).then("template=" + level).otherwise(variant)
    table = slim.with_columns(variant=variant.cast(pl.Categorical)).drop(names, "prompt")
    again = table.select(pl.int_range(1, pl.len() + 1).over(*KEY, "variant")).to_series()
    if again.max() != 1:
        variant = pl.format("{}, sample={}", pl.col("variant").cast(pl.String), again)
        variant = variant.str.replace("^base, ", "").cast(pl.Categorical)
        table = table.with_columns(variant=variant)
    known = table["variant"].unique(maintain_order=True).cast(pl.String).to_list()
    if not 1 < len(known) <= MOST_CELLS:
        raise ConsilienceError(
            f"{counted(len(known), 'variant')} of the questions",
            expected=f"2 to {MOST_CELLS}",
            where=where,
            todo="Keep the records of some of them: filter the file by its metadata."
            if len(known) > 1
            else "Take records of questions that were asked in several ways, or several times.",
        )
    design = design_of([levels_of(name) for name in known])
    places = {name: at for at, name in enumerate(design.names)}
    rows = [
        {"variant": name, "variant_index": places[_name(name)], **levels_of(name)} for name in known
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("variant_index").cast(pl.Int32), pl.exclude("variant_index").cast(pl.Categorical)
    )
    return table.join(frame, on="variant", how="left", maintain_order="left")


def _name(variant: str) -> str:
    """The name of a variant with its factors in their order."""
    levels = levels_of(variant)
    return ", ".join(f"{name}={levels[name]}" for name in FACTORS if name in levels) or "base"


def _judged(table: pl.DataFrame, questions: dict[tuple[str, str], Question]) -> pl.DataFrame:
    """The answers table of the records (``SCHEMA``); equal answers to an item are read once."""
    by = [*KEY, "choices", "answer", "is_right"]
    schema = {"option": pl.Int32, "word": pl.Categorical, "unmatched": pl.Categorical}
    parts = [
        part.hstack(
            pl.DataFrame([_read(questions, *row) for row in part.iter_rows()], schema, orient="row")
        )
        for part in table.select(by).unique().iter_slices(ROWS)
    ]
    distinct = pl.concat(parts)
    golds = [
        (
            group,
            item,
            one.gold.text,
            one.gold_position if one.options else None,
            len(one.options) or None,
        )
        for (group, item), one in questions.items()
    ]
    columns: dict[Any, type[pl.DataType]] = {
        **dict.fromkeys((*KEY, "gold"), pl.Categorical),
        "gold_option": pl.Int32,
        "n_candidates": pl.Int32,
    }
    frame = pl.DataFrame(golds, [*columns], orient="row").cast(columns)
    whole = table.join(distinct, on=by, how="left", nulls_equal=True, maintain_order="left")
    whole = whole.join(frame, on=KEY, how="left", maintain_order="left")
    whole = whole.with_columns(text="answer", answer="word", subject="item")
    return whole.select(name for name in KEPT if name in whole.columns)


def _read(
    questions: dict[tuple[str, str], Question],
    group: str,
    item: str,
    choices: str | None,
    text: str | None,
    is_right: bool,
) -> tuple[int | None, str | None, str | None]:
    """The option of an answer, its text as it is compared, and why it is no option or the gold."""
    one = questions[group, item]
    if is_right:
        return (one.gold_position if one.options else None), one.gold.text, None
    if text is None or not text.strip():
        return None, None if text is None else EMPTY, None if text is None else "no text"
    answer, options = text.strip(), [option.text for option in one.options]
    shown = choices.split("\x1f") if choices else options
    at = int(answer) - 1 if answer.isdecimal() else LETTERS.find(answer.strip("().").upper())
    if answer not in options and len(answer.strip("().")) == 1 and 0 <= at < len(shown):
        answer = shown[at]
    if answer in options and answer != one.gold.text:
        return options.index(answer), answer, None
    word = normalized(answer) or EMPTY
    word = f"{word} (wrong by the record)" if word == one.gold.text else word
    return None, word, "none of the options" if options else "not the gold"


def _question(row: dict[str, object]) -> Question:
    """A question with the prompt, the golds and the options of its first record."""
    golds = [visible(text) for text in row["reference"]]  # type: ignore[attr-defined]
    gold = Choice(golds[0], tuple(dict.fromkeys(golds[1:])))
    texts = str(row["choices"]).split("\x1f") if row["choices"] else []
    options = tuple(gold if text == gold.text else Choice(text) for text in map(visible, texts))
    if gold not in options:
        options = ()
    prompts = {DEFAULT_LANGUAGE: (visible(str(row["raw"])),)}
    return Question(str(row["item"]), str(row["group"]), prompts, gold, options)
