"""Instance records of Every Eval Ever as questions: a row an answer, in parts of a large file.

The schema is ``publish/every_eval_ever_0_3_0/instance_level_eval.schema.json``. The answers to one
``sample_id`` (or ``metadata.item``) of an evaluation are its variants. What differs between them is
read from ``metadata``; a record that says nothing is one more sample. The
order of the lines decides nothing: variants, questions and answers are in orders of their own.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.asking.questions import SCHEMA, WRITTEN_COLUMNS
from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS, MOST_CELLS, OF_OPTIONS, levels_of
from consilience.core.free_text import normalized
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.core.text import counted, names_a_file, visible
from consilience.files.read import read_lines
from consilience.files.rows import GROUP_NAME
from consilience.files.tables import different, joined, repeated
from consilience.kinds.answers import (
    JUDGED,
    design_from,
    natural,
    one_of,
    promptfoo_answers,
)
from consilience.options.runs import ScoreOptions
from consilience.suites.questions import Questions

FIELDS: dict[str, str] = {
    name: factor
    for factor, names in {
        "language": "language lang",
        "paraphrase": "paraphrase phrasing instruction instruction_phrasing",
        "order": "order choices_order choice_order option_order",
        "labels": "labels enumerator choices_enumerator choice_enumerator",
        "examples": "examples shots num_shots n_shots demonstrations",
        "template": "template prompt_template",
        "sample": "sample seed repeat trial run",
    }.items()
    for name in names.split()
}
"""The factor of a field of ``metadata``; all other fields are no factors."""

PART = 2**26  # Bytes of a file in memory at once
ROWS = 100_000  # Answers in memory as Python objects at once
TEXT_FIELDS = ("evaluation_id", "model_id", "evaluation_name", "sample_id", "interaction_type")
OBJECTS: Mapping[str, str] = {
    "": "a JSON object in UTF-8",
    "input": "an object with raw (a text), reference and choices (lists of texts)",
    "output": "an object with raw (a list of texts)",
    "answer_attribution": "a list of objects with extracted_value (a text)",
    "evaluation": "an object with is_correct (true or false)",
    "metadata": "an object",
}
"""What a line has, and its fields that are no text."""
NEEDED = (*TEXT_FIELDS, "input", "answer_attribution", "evaluation")
DECODER = json.JSONDecoder()
MARK = "(wrong by the record)"
CALLED_RIGHT = "another option"  # Why an answer that the record calls right is odd
TEXTS, KEY, MORE = pl.List(pl.String), ["group", "item"], "metadata "
KEPT = [name for name in {**SCHEMA, **WRITTEN_COLUMNS} if name != "suite"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def maker_of(
    path: Path,
) -> Callable[[ScoreOptions], tuple[ScoreOptions, Questions | None, pl.DataFrame]] | None:
    """What reads a file that brings its own questions; None of any other."""
    if path.suffix == ".json" and path.is_file():  # only promptfoo writes a JSON document
        return promptfoo_answers
    return record_answers if is_records(path) else None


def is_records(path: Path) -> bool:
    """Whether the first line of a JSONL file has most fields of an instance record."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and 2 * len(record.keys() & {*NEEDED}) >= len(NEEDED)


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
    model, texts, slim, others = _read_parts(options.answers, options.provider, where)
    for group in texts["group"].unique().sort():
        if not names_a_file(group):
            found = f"evaluation_name '{visible(group)}'"
            raise ConsilienceError(found, expected=GROUP_NAME, where=where)
    if texts["item"].is_duplicated().any():  # the same id in several evaluations
        whole = pl.concat_str(pl.col(KEY).cast(pl.String), separator="/").cast(pl.Categorical)
        texts, slim = (of.with_columns(item=whole) for of in (texts, slim))
    table, notes = _with_variants(slim, where)
    items = _firsts(pl.concat(map(_firsts, table.iter_slices(ROWS)))).sort(KEY)
    items = items.join(texts, on=KEY, maintain_order="left").cast(dict.fromkeys(KEY, pl.String))
    questions = tuple(_question(row) for row in items.iter_rows(named=True))
    table = _judged(table, {(one.group, one.item): one for one in questions})
    if wrong := table.filter(pl.col("answer").cast(pl.String).str.ends_with(MARK)).height:
        found = f"{counted(wrong, 'record')} whose answer is the reference"
        notes.append(f"{found}, and that say it is wrong: counted as wrong")
    odd = (pl.col("unmatched").cast(pl.String) == CALLED_RIGHT).fill_null(value=False)
    if right := table.filter(odd).height:
        table = table.with_columns(unmatched=pl.when(~odd).then("unmatched"))
        found = f"{counted(right, 'record')} whose answer is another option than the reference"
        notes.append(f"{found}, and that say it is right: counted as right")
    if others:
        notes.append(f"{counted(others, 'record')} of several turns not counted")
    name = options.answers.stem
    table = table.with_columns(pl.lit(name).alias("suite"), pl.lit(value=True).alias(JUDGED))
    return replace(options, provider=model), Questions(name, questions, tuple(notes)), table


def _read_parts(
    path: Path, chosen: str | None, where: str
) -> tuple[str, pl.DataFrame, pl.DataFrame, int]:
    """The model, its questions with their first prompt in the alphabet, and its records.

    The file is read in parts of ``PART`` bytes; texts that repeat are categories. The number is
    that of further records, of several turns.
    """
    texts, parts, lines, others = list[pl.DataFrame](), list[pl.DataFrame](), 0, 0
    models, lacking, given = set[str](), Counter[str](), pl.col("input").struct
    with path.open("rb") as file:
        while part := file.read(PART) + file.readline():
            records = _parsed(part.removeprefix(b"\xef\xbb\xbf"), where, lines)  # a byte order mark
            lines += part.count(b"\n")
            models.update(records["model_id"].drop_nulls().unique())
            if chosen is not None:
                records = records.filter(pl.col("model_id").fill_null(chosen) == chosen)
            turns = pl.col("interaction_type").fill_null("single_turn") == "single_turn"
            total, records = records.height, records.filter(turns)
            others += total - records.height
            needed = (
                *(*TEXT_FIELDS, "answer_attribution"),
                given.field("raw").alias("input.raw"),
                given.field("reference").list.first().alias("input.reference"),
                pl.col("evaluation").struct.field("is_correct").alias("evaluation.is_correct"),
            )
            lacking.update(records.select(needed).null_count().row(0, named=True))
            records = records.select(_columns(records.schema))
            parts.append(records.drop("raw"))
            texts.append(records.group_by(KEY).agg(pl.col("raw").min()))
    if lacking := +lacking:
        found = [f"{counted(of, 'record')} without {name}" for name, of in lacking.items()]
        expected = f"instance records of Every Eval Ever, with {', '.join(NEEDED)}"
        todo = "Add the fields, or remove the records (an example is in docs/harnesses.md)."
        raise ConsilienceError("; ".join(found), expected=expected, where=where, todo=todo)
    model, slim = one_of(sorted(models), chosen, "model", where), pl.concat(parts, how="diagonal")
    if slim.is_empty():
        raise ConsilienceError("no records of a single turn", where=where)
    return model, pl.concat(texts).group_by(KEY).agg(pl.col("raw").min()), slim, others


def _parsed(part: bytes, where: str, before: int) -> pl.DataFrame:
    """The fields that are read of the records of a part, after ``before`` lines of the file."""
    schema: dict[str, Any] = dict.fromkeys(TEXT_FIELDS, pl.String)
    schema |= {
        "input": pl.Struct({"raw": pl.String, "reference": TEXTS, "choices": TEXTS}),
        "output": pl.Struct({"raw": TEXTS}),
        "answer_attribution": pl.List(pl.Struct({"extracted_value": pl.String})),
        "evaluation": pl.Struct({"is_correct": pl.Boolean}),
        "error": pl.String,
        "evaluation_result_id": pl.String,
    }

    def fails(text: bytes, *names: str) -> bool:
        try:
            pl.read_ndjson(text, schema={name: schema.get(name, pl.String) for name in names})
        except pl.exceptions.PolarsError:
            return True
        return False

    try:
        text, names = part.decode(errors="replace"), {"item", "variant"}
        for found in re.finditer(r'"metadata"\s*:\s*(?={)', text):
            names.update(DECODER.raw_decode(text, found.end())[0])
        schema["metadata"] = pl.Struct(dict.fromkeys(names, pl.String))
        return pl.read_ndjson(part, schema=schema)
    except (pl.exceptions.PolarsError, ValueError, RecursionError) as error:
        lines = part.splitlines(keepends=True)
        schema["metadata"] = pl.Struct({"item": pl.String})
        last = range(1, len(lines))
        at = bisect_left(last, True, key=lambda to: fails(b"".join(lines[:to]), *schema))
        name = next((name for name in ("", *schema) if fails(lines[at], name)), "")
        raise ConsilienceError(
            f"'{name}' cannot be read" if name else "a line that is no record",
            expected=OBJECTS.get(name, "a text"),
            where=f"{where}:{before + at + 1}",
            todo="Correct the line. Records are JSONL, one a line.",
        ) from error


def _columns(schema: pl.Schema) -> list[pl.Expr]:
    """The columns that are kept of each record; texts that repeat are categories."""
    known: Any = schema["metadata"]
    fields = [field.name for field in known.fields if field.name in FIELDS]
    given, metadata = pl.col("input").struct, pl.col("metadata").struct
    answer = pl.coalesce(
        pl.col("answer_attribution").list.last().struct.field("extracted_value"),
        pl.col("output").struct.field("raw").list.first(),
    )
    reference, choices = given.field("reference"), given.field("choices")
    is_chosen = choices.list.contains(reference.list.first()).fill_null(value=False)
    return [
        pl.struct(pl.exclude("metadata", "evaluation_result_id")).hash().alias("record"),
        pl.col("evaluation_name").cast(pl.Categorical).alias("group"),
        pl.coalesce(metadata.field("item"), "sample_id").cast(pl.Categorical).alias("item"),
        metadata.field("variant").cast(pl.Categorical).alias("name"),
        pl.col("evaluation_id", "evaluation_result_id").cast(pl.Categorical),
        given.field("raw").alias("raw"),
        given.field("raw").hash().alias("prompt"),
        reference.list.join("\x1f").cast(pl.Categorical).alias("reference"),
        choices.list.join("\x1f").cast(pl.Categorical).alias("choices"),
        (~is_chosen).alias("is_open"),
        answer.cast(pl.Categorical).alias("answer"),
        pl.col("evaluation").struct.field("is_correct").alias("is_right"),
        pl.col("error").cast(pl.Categorical),
        *(metadata.field(name).cast(pl.Categorical).alias(MORE + name) for name in fields),
    ]


def _with_variants(slim: pl.DataFrame, where: str) -> tuple[pl.DataFrame, list[str]]:
    """The records with the variant and its levels (what differs within an item), and notes.

    The columns of ``slim`` are taken out of it, so that they are not in memory twice.
    ``first`` sorts variants by whose record gives a question its options: its language, then the
    order of the options, so that positions mean the same in all questions. Only if all questions
    have options are there orders and labels of them.
    """
    size, is_open = different(slim, *KEY).height, different(slim, *KEY, "is_open")
    has_options = is_open.filter(~pl.col("is_open")).height == size
    has_names = slim["name"].null_count() < slim.height
    fields = sorted(name for name in slim.columns if name.startswith(MORE))
    parts: dict[str, list[pl.Expr]] = {}
    used = ["name"]
    for name in fields:
        if not _differs(slim, name, size):
            slim.drop_in_place(name)
            continue
        used.append(name)
        factor = FIELDS[name.removeprefix(MORE)]
        factor = "template" if factor in OF_OPTIONS and not has_options else factor
        level = pl.col(name).cast(pl.String).fill_null("none").str.replace_all(r"[,=\n\r]", " ")
        parts.setdefault(factor, []).append(level)
    levels = {factor: pl.concat_str(of, separator=" | ") for factor, of in parts.items()}
    if "paraphrase" in levels:
        texts = different(slim, *used).select(levels["paraphrase"].unique()).to_series().to_list()
        texts.sort(key=lambda text: natural(f"paraphrase={text}"))
        numbers = [str(number) for number in range(1, len(texts) + 1)]
        levels["paraphrase"] = levels["paraphrase"].replace_strict(texts, numbers)
    elif not levels and not has_names and _differs(slim, "prompt", size):
        raise ConsilienceError(
            "several prompts of a question, which no field of metadata names",
            expected=f"one of {', '.join(FIELDS)}", where=where,
            todo="Name the prompts: \"metadata\": {\"paraphrase\": \"1\"}.",
        )  # fmt: skip
    named = [pl.format("{}={}", pl.lit(name), levels[name]) for name in FACTORS if name in levels]
    variant = pl.concat_str(named, separator=", ") if named else pl.lit("base")
    if has_names and not levels.keys() - {"sample"}:
        variant = pl.col("name").cast(pl.String).fill_null("base")
        factors = "|".join(of for of in FACTORS if has_options or of not in OF_OPTIONS)
        is_known = variant.str.contains(rf"^(?:base|(?:(?:^|, )(?:{factors})=[^=]*)+)$")
        level = variant.str.replace_all(r"[,=]", " ").str.replace_all(" +", " ")
        variant = pl.when(is_known).then(variant).otherwise("template=" + level)
        variant = pl.concat_str(variant, *named, separator=", ").str.replace("^base, ", "")
    names = different(slim, *used).with_columns(variant=variant.cast(pl.Categorical))
    of_records = joined(slim.select(used), names, used)["variant"]
    for name in {*used, "prompt"}:
        slim.drop_in_place(name)
    table, notes = _with_samples(slim.insert_column(len(slim.columns), of_records), where)
    known = sorted(table["variant"].unique().cast(pl.String).sort(), key=natural)
    if not 1 < len(known) <= MOST_CELLS:
        raise ConsilienceError(
            f"{counted(len(known), 'variant')} of the questions",
            expected=f"2 to {MOST_CELLS}",
            where=where,
            todo="Keep the records of some of them: filter the file by its metadata."
            if len(known) > 1
            else "Take records of questions that were asked in several ways, or several times.",
        )
    places = [levels_of(name) for name in design_from([*map(levels_of, known)]).names]
    known.sort(key=lambda name: natural(name, "language", "order"))
    rows = [
        {"variant": name, "variant_index": places.index(levels), **levels}
        for name, levels in zip(known, map(levels_of, known), strict=True)
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("variant_index").cast(pl.Int32), pl.exclude("variant_index").cast(pl.Categorical)
    )
    frame = frame.with_row_index("first")
    table = joined(table, frame, ["variant"])
    return _sorted(table), notes


def _differs(table: pl.DataFrame, name: str, size: int) -> bool:
    """Whether a column differs within one of ``size`` questions, as the first part often shows."""
    for part in table.select(*KEY, name).iter_slices(ROWS):
        if part.n_unique() > part.n_unique(KEY):
            return True
    return different(table, *KEY, name).height > size


def _firsts(table: pl.DataFrame) -> pl.DataFrame:
    """The record of each question that gives it its options."""
    columns = table.select(*KEY, "reference", "choices", "is_open", "first")
    return columns.sort("is_open", "first").unique(KEY, keep="first", maintain_order=True)


def _sorted(table: pl.DataFrame) -> pl.DataFrame:
    """The records by question and variant; columns of ``table`` are sorted one after the other."""
    places = different(table, *KEY).sort(KEY).with_row_index("place")
    place = joined(table.select(KEY), places, KEY)["place"].cast(pl.UInt64)
    order = (place * 2**32 + table["variant_index"].cast(pl.UInt64)).arg_sort()
    return pl.DataFrame([table.drop_in_place(name)[order] for name in table.columns])


def _with_samples(table: pl.DataFrame, where: str) -> tuple[pl.DataFrame, list[str]]:
    """The records with the factor ``sample`` where items have a variant several times, and notes.

    A record that is counted in several results is one answer. Of other equal records nothing says
    whether they are copies or samples: they raise.
    """

    def such(records: pl.DataFrame) -> str:
        return f"such as of '{min(records['item'].cast(pl.String))}'"

    again, notes, same = _repeated(table), list[str](), ["item", "variant", "record"]
    copies = again.filter(again.select(*same, "evaluation_result_id").is_duplicated())
    if copies.height:
        raise ConsilienceError(
            f"{copies.height:,} records that equal each other, {such(copies)}",
            expected="records that differ in their prompt, answer, evaluation_id or metadata",
            where=where,
            todo="Remove duplicates; if they are samples, number them in metadata.sample.",
        )
    if more := again.height - again.n_unique(same):
        notes.append(f"{counted(more, 'record')} of an answer in a further result not counted")
        table = table.unique(same)
        again = _repeated(table)
    if again.height:
        notes.append(f"{again.height:,} records counted as samples of a variant, {such(again)}")
        table = table.sort("evaluation_id", "record")
        number = pl.int_range(1, pl.len() + 1).over(*KEY, "variant")
        variant = pl.format("{}, sample={}", pl.col("variant").cast(pl.String), number)
        variant = variant.str.replace("^base, ", "").cast(pl.Categorical)
        table = table.with_columns(variant=variant)
    return table.drop("record", "evaluation_id", "evaluation_result_id"), notes


def _repeated(table: pl.DataFrame) -> pl.DataFrame:
    """The records of questions that have a variant several times; an item is in one group."""
    return table.filter(repeated(table["item"].to_physical(), table["variant"].to_physical()))


def _judged(table: pl.DataFrame, questions: dict[tuple[str, str], Question]) -> pl.DataFrame:
    """The answers table of the records (``SCHEMA``); equal answers to an item are read once."""
    by = [*KEY, "choices", "answer", "is_right"]
    schema = {"option": pl.Int32, "word": pl.Categorical, "unmatched": pl.Categorical}
    parts = [
        part.hstack(
            pl.DataFrame([_read(questions, *row) for row in part.iter_rows()], schema, orient="row")
        )
        for part in different(table, *by).iter_slices(ROWS)
    ]
    golds = [
        (*key, one.gold.text, one.gold_position if one.options else None, len(one.options) or None)
        for key, one in questions.items()
    ]
    columns: dict[Any, type[pl.DataType]] = dict.fromkeys((*KEY, "gold"), pl.Categorical)
    columns |= dict.fromkeys(("gold_option", "n_candidates"), pl.Int32)
    frame = pl.DataFrame(golds, columns, orient="row")
    whole = joined(joined(table, pl.concat(parts), by), frame, KEY)
    has_answer = pl.col("word").is_not_null()
    whole = whole.with_columns(
        text=pl.when(has_answer).then("answer"),
        error=pl.when(~has_answer).then("error"),
        excluded=pl.lit(None, pl.Categorical),
        answer="word",
        subject="item",
    )
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
    answer, options = (text or "").strip(), [option.text for option in one.options]
    shown = choices.split("\x1f") if choices else options
    at = int(answer) - 1 if answer.isdecimal() else LETTERS.find(answer.strip("().").upper())
    if answer not in options and len(answer.strip("().")) == 1 and 0 <= at < len(shown):
        answer = shown[at]
    if is_right:
        is_odd = answer in options and answer != one.gold.text
        return one.gold_position if options else None, one.gold.text, CALLED_RIGHT * is_odd or None
    if not answer:
        return None, None, None
    if answer in options and answer != one.gold.text:
        return options.index(answer), answer, None
    word = normalized(answer)
    if answer in one.gold.texts or word in map(normalized, one.gold.texts):
        return None, f"{word} {MARK}", None
    return None, word, "none of the options" if options else "not the gold"


def _question(row: dict[str, object]) -> Question:
    """A question with the golds and the options of one of its records."""
    golds = [visible(text) for text in str(row["reference"]).split("\x1f")]
    gold = Choice(golds[0], tuple(dict.fromkeys(golds[1:])))
    texts = str(row["choices"]).split("\x1f") if row["choices"] else []
    options = tuple(gold if text == gold.text else Choice(text) for text in map(visible, texts))
    if gold not in options:
        options = ()
    prompts = {DEFAULT_LANGUAGE: (visible(str(row["raw"])),)}
    return Question(str(row["item"]), str(row["group"]), prompts, gold, options)
