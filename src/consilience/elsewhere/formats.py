"""The formats of answers that were made elsewhere: tables, and logs of four programs.

A reader of a log yields each record with its row (``table.COLUMNS``, ``right``, ``reading``, and
the factors of its format). What cannot be used has a text in ``left_out`` that names it.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import isnan
from pathlib import Path
from struct import Struct
from typing import Any
from zipfile import BadZipFile, ZipFile

import polars as pl

from consilience.core.errors import ConsilienceError, reason_of
from consilience.core.factors import FACTORS
from consilience.core.text import listed, truncated
from consilience.elsewhere.table import (
    COLUMNS,
    FORM,
    LETTERS,
    NAME,
    ROWS,
    TO_CHECK,
    VERDICTS,
    texts_in,
)
from consilience.files.read import POLARS_FAULTS, parse_json, read_document, read_lines, read_rows
from consilience.files.rows import plain_name, text_of
from consilience.runs.run import no_run
from consilience.suites.questions import COLUMN_JOIN

Record = Mapping[str, Any]
Rows = Iterator[tuple[Record, dict[str, Any]]]

OWN = {name: name for name in (*FACTORS, FORM)} | {NAME: "variant"}
"""The factors of tables, and of logs of what was exported: columns of their names."""

TABLE = "a table"
FAULTS = (AttributeError, BadZipFile, LookupError, NotImplementedError, TypeError, ValueError)
PART = 2**24  # Bytes of a file that are parsed at once
FIRST = 1000  # Rows of a file that show which columns it has
LONGEST = 60  # Characters of a text of the file in a name or a note


def frames_in(
    path: Path, columns: Mapping[str, str] | None = None, needed: Sequence[str] = ()
) -> tuple[Iterator[pl.DataFrame], Mapping[str, str]]:
    """The rows of a file or of a folder of logs, and the field of each column and factor.

    ``columns``: the fields that the user names, of ``COLUMNS`` and of factors; that of a factor is
    empty where there is none. ``needed``: what a table must have.
    """
    named = dict(columns or {})
    if {"item", "group"} & {*named}:
        named.setdefault("subject", "")  # which a log makes of its own item and group
    factors = {of: name for of, name in named.items() if of not in COLUMNS}
    form, rows = opened(path)
    known = {of: name for of, name in named.items() if name}
    if form != TABLE:
        with_factors = (
            {NAME: row.pop("variant", None), **row, **dict.fromkeys(named)}
            | {of: dig(record, name) for of, name in known.items()}
            for record, row in rows
        )
        return frames_of(with_factors), {**OWN, **factors}
    cells = (row for row, _ in rows)
    first_rows = [*islice(cells, FIRST)]
    names = [*dict.fromkeys(name for row in first_rows for name in row)]
    plain = {plain_name(name): name for name in reversed(names)}
    own = {of: of for of in COLUMNS} | {of: name for of, name in OWN.items() if of not in factors}
    fields = {
        of: name if name in names else plain.get(plain_name(name), name) for of, name in own.items()
    }
    taken = {name for of, name in known.items() if of in COLUMNS or of in OWN}
    fields = {of: name for of, name in fields.items() if of in COLUMNS or name not in taken} | known

    def is_there(name: str) -> bool:
        parts = [name] if name in names else map(str.strip, name.split(COLUMN_JOIN))
        return not any({part, part.partition(".")[0]}.isdisjoint(names) for part in parts)

    asked = dict.fromkeys([*needed, *(of for of in known if of in COLUMNS)])
    lacking = [of for of in asked if not is_there(fields[of])]
    if "answer" in lacking and not {"scores", "error", "excluded"}.isdisjoint(names):
        lacking.remove("answer")
    if lacking and names:
        raise ConsilienceError(
            f"no column {listed([fields[of] for of in lacking])} among {', '.join(names)}",
            expected=f"{listed(needed)}, in upper or lower case", where=str(path), todo=TO_CHECK,
        )  # fmt: skip
    is_flat = all(one in names or {".", COLUMN_JOIN}.isdisjoint(one) for one in fields.values())
    value_of: Any = dict.get if is_flat else dig
    every = (
        {of: value_of(row, name) for of, name in fields.items()} for row in chain(first_rows, cells)
    )
    if not is_flat or path.suffix != ".jsonl":
        return frames_of(every), fields
    of_file = [pl.col(name).alias(of) for of, name in fields.items()]
    return (part.select(of_file) for part in json_parts(path, fields.values())), fields


def opened(path: Path) -> tuple[str, Rows]:
    """The program that wrote a file of answers or a folder of logs, and each record with its row.

    ``TABLE`` for any other file; its records have no row. A record that is not as its program
    writes it raises.
    """
    form, rows = _opened(path)

    def whole() -> Rows:
        try:
            yield from rows
        except (*FAULTS, *POLARS_FAULTS) as error:
            found = f"cannot be read as a log of {form}: {reason_of(error)}"
            raise ConsilienceError(found, where=str(path)) from error

    return form, rows if form == TABLE else whole()


def _opened(path: Path) -> tuple[str, Rows]:
    if path.is_dir():
        if samples := sorted(path.rglob("samples_*.jsonl")):
            return "lm-evaluation-harness", lm_eval_rows(samples)
        if files := sorted((*path.rglob("*.eval"), *path.rglob("*.json"))):
            return "inspect_ai", inspect_rows(files)
        raise no_run(path, "run.json, and no logs")
    document = read_document(path) if path.suffix == ".json" else None
    names = {*document} if isinstance(document, Mapping) else set[str]()
    if "eval" in names or path.suffix == ".eval":
        return "inspect_ai", inspect_rows([path])
    if "results" in names:
        return "promptfoo", promptfoo_rows(path)
    if path.suffix == ".jsonl":
        first = next((line for _, line in read_lines(path) if line.strip()), "")
        with suppress(ValueError, AttributeError):  # no object: the reader says where
            names = {*parse_json(first).keys()}
    if {"doc_id", "filtered_resps"} <= names:
        return "lm-evaluation-harness", lm_eval_rows([path])
    rows: Rows = ((row, {}) for _, row in read_rows(path))
    is_record = len(names & {"evaluation_id", "evaluation_name", "model_id", "sample_id"}) > 2
    return ("Every Eval Ever", record_rows(rows)) if is_record else (TABLE, rows)


def frames_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[pl.DataFrame]:
    """Rows of a log as frames of texts, in parts; a value that is no text becomes JSON."""
    every = iter(rows)
    while part := list(islice(every, ROWS)):
        names = dict.fromkeys(name for row in part for name in row)
        columns = {name: [row.get(name) for row in part] for name in names}
        texts = {of: [*map(text_of, values)] for of, values in columns.items() if of != "right"}
        kinds = dict.fromkeys(texts, pl.String()) | {"right": pl.Boolean()}
        yield pl.DataFrame({"right": None, **columns, **texts}, kinds)


def dig(record: Any, path: str) -> Any:
    """The value of a field by its name, or by names with dots between, from outside to inside.

    Of names with ``+`` between it is the list of the values that are not empty.
    """
    if isinstance(record, Mapping) and path in record:
        return record[path]
    if COLUMN_JOIN in path:
        values = [dig(record, name.strip()) for name in path.split(COLUMN_JOIN)]
        return [value for value in values if value not in (None, "")]
    for name in path.split("."):
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def json_parts(path: Path, names: Iterable[str]) -> Iterator[pl.DataFrame]:
    """The lines of a JSONL file, with fields as texts; the first that is no object raises."""
    schema = dict.fromkeys(names, pl.String())
    size, start, lines = PART, 0, 0
    with path.open("rb") as file:
        while part := file.read(size) + file.readline():
            try:
                yield pl.read_ndjson(part.removeprefix(b"\xef\xbb\xbf"), schema=schema)
            except POLARS_FAULTS as error:
                if not size:
                    found, where = f"cannot be read: {reason_of(error)}", f"{path}:{lines + 1}"
                    expected = "an object in JSON, with fields of the usual types"
                    raise ConsilienceError(found, expected=expected, where=where) from error
                size = 0  # line by line, to find the one
                file.seek(start)
                continue
            start, lines = file.tell(), lines + part.count(b"\n")


def record_rows(rows: Rows) -> Rows:
    """Instance records of Every Eval Ever (schema 0.3.0); their metadata may have factors."""
    for record, _ in rows:
        given, metadata = record.get("input") or {}, record.get("metadata") or {}
        task, item = record["evaluation_name"], metadata.get("item") or record["sample_id"]
        read = record.get("answer_attribution") or [{}]
        last = next((one for one in reversed(read) if one.get("is_terminal")), read[-1])
        written = [last.get("extracted_value"), *((record.get("output") or {}).get("raw") or ())]
        yield record, {
            "group": task, "item": item, "subject": f"{task}/{item}", "model": record["model_id"],
            "prompt": given.get("raw"), "options": given.get("choices"),
            "gold": given.get("reference"), "error": record.get("error"),
            "answer": next((text for text in written if text is not None), None),
            "right": (record.get("evaluation") or {}).get("is_correct"),
            "reading": record.get("evaluation_result_id"),
            "left_out": "records of several turns" * (record["interaction_type"] != "single_turn"),
            **{of: metadata.get(name) for of, name in OWN.items()},
        }  # fmt: skip


def exported(cells: object) -> dict[str, Any]:
    """What a row of ``suite export`` says, where ``cells`` are one; else nothing."""
    if not isinstance(cells, Mapping) or not {"id", "item", "variant"} <= cells.keys():
        return {}
    return {of: cells[of] for of in (*COLUMNS, "variant", *FACTORS, FORM) if of in cells}


def lm_eval_rows(files: Sequence[Path]) -> Rows:
    """Documents of tasks of lm-evaluation-harness 0.4.13, as ``--log_samples`` writes them.

    The options of a multiple-choice task are its choices; where these are the letters A, B, ... in
    order, they are the texts of ``doc.choices``, if there are as many.
    """
    for file in files:
        named = re.fullmatch(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl", file.name)
        task, date = named.groups() if named else (file.stem, "")
        results = file.with_name(f"results_{date}.json")
        model = read_document(results).get("model_name") if results.is_file() else None
        for _, sample in read_rows(file):
            yield from _of_document(sample, task, model or None)


def _of_document(sample: Record, task: str, model: str | None) -> Rows:
    doc: Any = sample.get("doc")
    number, documents = sample.get("doc_id"), f"documents of {task}"
    asked, replies = sample.get("arguments") or [], sample.get("filtered_resps") or []
    requests = asked.values() if isinstance(asked, Mapping) else asked
    sent = [[*one.values()] if isinstance(one, Mapping) else [*one] for one in requests]
    row = {
        "group": task, "item": text_of(number), "subject": f"{task}/{number}", "model": model,
        "prompt": text_of(sent[0][0]) if sent else None, "reading": sample.get("filter"),
        **(known := exported(doc)),
    }  # fmt: skip
    metric = next((name for name in VERDICTS if name in sample), None)
    row["right"] = bool(sample[metric]) if metric and sample[metric] in (0, 1) else None
    texts, golds = [one[1] for one in sent if len(one) > 1], sample.get("target")
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):  # as Python writes it
        value = ast.literal_eval(str(golds))
        golds = value if isinstance(value, list | int) else golds
    golds = golds if isinstance(golds, list) else [golds]
    if metric and row["right"] is None:
        row["left_out"] = f"{documents}, whose '{metric}' is neither 0 nor 1"
    elif len(texts) > 1 and all(isinstance(text, str) for text in texts):
        row["scores"] = totals = [float(one[0]) for one in replies]
        if known and not known.get("options"):  # a fact
            best = texts_in(doc["candidates"])[totals.index(max(totals))]
            row |= {"scores": None, "answer": best}
        elif not known:
            options = _choices([text.strip() for text in texts], doc)
            named = {at: text for at, text in enumerate(options) if at in golds}
            row |= {"options": options, "gold": [named.get(one, one) for one in golds]}
    elif texts and isinstance(texts[0], Mapping) and replies:
        written = replies[0] if isinstance(replies[0], list) else [replies[0]]
        row = {"gold": [*map(text_of, golds)], **row}
        for at, text in enumerate(written, start=1):
            right = row["right"] if len(written) == 1 else None
            yield sample, {**row, "answer": text, "sample": str(at), "right": right}
        return
    else:
        row["left_out"] = f"{documents}, which have no right answer"
    yield sample, row


def _choices(texts: list[str], doc: Any) -> list[str]:
    """The texts of choices; numbers where they are equal, as the contexts then differ."""
    if len({*texts}) < len(texts):
        return [str(at) for at in range(1, len(texts) + 1)]
    known: Any = doc.get("choices") if isinstance(doc, Mapping) else None
    known = known.get("text") if isinstance(known, Mapping) else known
    is_known = isinstance(known, list) and len(known) == len(texts)
    return [*map(str, known)] if is_known and texts == LETTERS[: len(texts)] else texts


def inspect_rows(files: Sequence[Path]) -> Rows:
    """Samples of inspect_ai 0.3.285, of logs in both formats (.eval and .json).

    Of a sample with choices the answer is what its scorer took from the reply, because the log has
    the choices in the order of the dataset, in which the model may not have seen them.
    """
    for file in files:
        for header, sample in _samples(file):
            task, number = str(header.get("task")), sample.get("id")
            record = {**sample, "eval": header}
            metadata = sample.get("metadata") or {}
            known, target = exported(metadata.get(VARIED, metadata)), sample.get("target")
            row = {
                "group": task, "item": text_of(number), "model": header.get("model"),
                "subject": f"{task}/{known.get('item', number)}",
                "sample": text_of(sample.get("epoch")),
                "gold": target, "prompt": _content(sample, sample.get("input")), **known,
            }  # fmt: skip
            choices, texts = sample.get("choices"), list[str]()
            if choices:
                choices = known.get("options") or choices
                texts = [one[0] if isinstance(one, list) else one for one in choices]
                golds = _chosen(target, texts)
                row |= {"gold": golds[:1], "options": choices}
                if len(golds) > 1:
                    row |= {"gold": [AND.join(sorted(golds))], "options": None}
            if error := sample.get("error"):
                kind = str(error.get("message") or error).partition("(")[0]
                yield record, {"left_out": f"samples with an error: {truncated(kind, LONGEST)}"}
                continue
            row["answer"] = _content(sample, (sample.get("output") or {}).get("completion"))
            limit = (sample.get("limit") or {}).get("type")
            row["error"] = f"stopped by the limit of {limit}" if limit else None
            for name, score in (sample.get("scores") or {"": {}}).items():
                value, answer = score.get("value"), score.get("answer")
                given = {"answer": answer} if answer or (texts and answer is not None) else {}
                if texts and "," in (answer or ""):
                    given = {"answer": AND.join(sorted(_chosen(answer, texts)))}
                values = value if isinstance(value, Mapping) else {"": value}
                for part, one in values.items():
                    reading = f"{name}/{part}".strip("/")
                    right = VALUES.get(one) if isinstance(one, str | int | float) else None
                    no = isinstance(one, float) and isnan(one)
                    why = f"samples that {reading} did not score" if no else None
                    judged = {"reading": reading or None, "right": right, "left_out": why}
                    yield record, {**row, **given, **judged}


VARIED = "consilience"  # The field of metadata that ``consilience.inspect.vary`` writes
AND = "; "  # Between the options of an answer that has several


def places_of(value: object, texts: Sequence[str]) -> list[int]:
    """The positions of the options that a target or an answer names by letters, as in inspect_ai.

    The texts of options, and what is no list of their letters, name none.
    """
    values = [*map(str, value)] if isinstance(value, list) else [str(value)]
    letters = re.sub(r"[\s,]", "", "".join(values)).upper()
    if len(letters) > 1 and {*values} <= {*texts}:
        return []
    places = {LETTERS.index(one) if one in LETTERS else len(texts) for one in letters}
    return sorted(places) if max(places, default=len(texts)) < len(texts) else []


def _chosen(value: object, texts: Sequence[str]) -> list[str]:
    """The texts of these options, or the value."""
    named = [texts[at] for at in places_of(value, texts)]
    return named or [*map(str, value if isinstance(value, list) else [value])]


VALUES: Mapping[Any, bool] = {"C": True, "I": False, "P": False, "N": False, 1: True, 0: False}
"""The values of scores of inspect_ai that say whether an answer is right."""


def _samples(file: Path) -> Iterator[tuple[Record, Record]]:
    """The header and each sample of a log."""
    if file.suffix == ".json":
        log = read_document(file)
        known = isinstance(log, Mapping) and "eval" in log
        yield from ((log["eval"], sample) for sample in (log.get("samples") or () if known else ()))
        return
    with ZipFile(file) as parts:
        names = parts.namelist()
        head = "header.json" if "header.json" in names else "_journal/start.json"
        header = parse_json(_part(parts, head))["eval"]
        for name in names:
            if name.startswith("samples/") and name.endswith(".json"):
                yield header, parse_json(_part(parts, name))


def _part(parts: ZipFile, name: str) -> str:
    """The text of a file in an archive; inspect_ai packs with zstd, which polars unpacks."""
    if (part := parts.getinfo(name)).compress_type != ZSTD:
        return parts.read(name).decode()
    file = parts.fp
    assert file is not None
    file.seek(part.header_offset)
    *_, name_size, extra_size = Struct("<26x2H").unpack(file.read(30))
    file.seek(name_size + extra_size, 1)
    packed = file.read(part.compress_size)
    lines = pl.read_csv(
        packed, has_header=False, separator="\0", quote_char=None, infer_schema=False
    )
    return "\n".join(lines.to_series())


ZSTD = 93  # How ZIP names it; ``zipfile`` reads it from Python 3.14 on


def _content(sample: Record, content: object) -> str | None:
    """The text of a message, of its parts, or of messages; long ones are attachments."""
    if isinstance(content, str):
        name = content.removeprefix("attachment://")
        return str((sample.get("attachments") or {}).get(name, content))
    if not isinstance(content, list):
        return None
    parts = (part.get("text", part.get("content")) for part in content if isinstance(part, Mapping))
    return "\n".join(filter(None, (_content(sample, part) for part in parts))) or None


EXPECTS = re.compile(r"equals|i?contains(?:-any)?")  # Types of assertions whose value is a gold
FILLED = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")  # A variable in Nunjucks, or a field of one


def promptfoo_rows(file: Path) -> Rows:
    """Results of promptfoo (format 3): a test is a question, or names one by ``metadata.item``."""
    results = read_document(file).get("results")
    if (known := results.get("version") if isinstance(results, Mapping) else None) != 3:
        found = f"results of promptfoo in format {known}"
        raise ConsilienceError(found, expected="format 3", where=str(file))
    labels, phrasings, samples = dict[str, str](), dict[str, list[str]](), dict[Any, list[int]]()
    entries = results.get("results") or ()
    for entry in sorted(entries, key=lambda one: (one.get("testIdx", 0), one.get("promptIdx", 0))):
        variables = {k: v for k, v in (entry.get("vars") or {}).items() if not k.startswith("_")}
        test, prompt = entry.get("testCase") or {}, entry.get("prompt") or {}
        metadata, provider = test.get("metadata") or {}, entry.get("provider") or {}
        texts = [*variables.values()]
        is_text = len(texts) == 1 and isinstance(texts[0], str)
        text = texts[0] if is_text else text_of(variables) or ""
        item = str(metadata.get("item") or text)
        of_item = phrasings.setdefault(item, [])
        of_item += [text] * (text not in of_item)
        asked = samples.setdefault((item, text), [])
        at = entry.get("testIdx", 0)
        asked += [at] * (at not in asked)
        label = str(prompt.get("label") or f"prompt {entry.get('promptIdx', 0)}")
        level, key = truncated(" ".join(label.split()), LONGEST), entry.get("promptId") or label
        labels.setdefault(key, level + f" ({len(labels) + 1})" * (level in labels.values()))
        golds, types = _expected(test.get("assert") or (), variables)
        row = {
            "group": metadata.get("group"), "item": item, "gold": golds,
            "prompt": prompt.get("raw"), "template": labels[key],
            "model": provider.get("label") or provider.get("id"),
            "paraphrase": str(of_item.index(text) + 1), "error": entry.get("error"),
            "sample": str(asked.index(at) + 1),
            "answer": (entry.get("response") or {}).get("output"),
        }  # fmt: skip
        if not (row := {**row, **exported(entry.get("vars"))}).get("gold"):
            row["left_out"] = f"tests without an expected text, only {types or 'no assertion'}"
        yield entry, row


def _expected(assertions: Sequence[Any], variables: Record) -> tuple[list[str] | None, str]:
    """The texts that the first assertion of a text expects, and the types of all assertions."""
    types = dict[str, None]()
    for assertion in (one for one in assertions if isinstance(one, Mapping)):
        kind, value = str(assertion.get("type")), assertion.get("value")
        if not EXPECTS.fullmatch(kind) or value is None:
            types[kind] = None
            continue
        values = value if isinstance(value, list) else [value]
        if isinstance(value, str) and kind.endswith("-any"):
            values = next(csv.reader([value], skipinitialspace=True), [])
        texts = [_filled(text_of(one) or "", variables) for one in values]
        if texts and all(texts):
            return [text for text in texts if text], ""
        types[f"{kind} '{truncated(text_of(value) or '', LONGEST)}'"] = None
    return None, listed([*types])


def _filled(text: str, variables: Record) -> str | None:
    """A text with the variables of its test; None with an expression that is not understood."""
    values = {name: text_of(dig(variables, name)) for name in FILLED.findall(text)}
    if None in values.values() or re.search(r"\{[{%#]|^file://", FILLED.sub("", text)):
        return None
    return FILLED.sub(lambda found: values[found[1]] or "", text).strip() or None
