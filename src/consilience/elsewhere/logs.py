"""Logs of lm-evaluation-harness, inspect_ai and promptfoo as rows of the table of answers.

A reader yields each record of a file with its row (``table.COLUMNS``, ``right``, ``reading``, and
the factors of its format). What cannot be used has a text in ``left_out`` that names it.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from consilience.core.errors import ConsilienceError, reason_of
from consilience.core.factors import FACTORS
from consilience.core.text import listed, truncated
from consilience.elsewhere.table import COLUMNS, LETTERS, VERDICTS, texts_in
from consilience.files.read import parse_json, read_document, read_rows
from consilience.files.tables import text_of

Record = Mapping[str, Any]
Rows = Iterator[tuple[Record, dict[str, Any]]]

LONGEST = 60  # Characters of a text of the file in a name or a note


def exported(cells: object) -> dict[str, Any]:
    """What a row of ``suite export`` says, where ``cells`` are one; else nothing."""
    if not isinstance(cells, Mapping) or not {"id", "item", "variant"} <= cells.keys():
        return {}
    return {name: cells[name] for name in (*COLUMNS, "variant", *FACTORS) if name in cells}


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
    row["right"] = {0: False, 1: True}.get(sample[metric]) if metric else None
    golds, texts = _targets(sample.get("target")), [one[1] for one in sent if len(one) > 1]
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
        row["left_out"] = f"{documents}, which score one text"
    yield sample, row


def _targets(target: object) -> list[Any]:
    """The golds in ``target``, which the harness writes as a text, of lists as Python does."""
    try:
        value = ast.literal_eval(str(target))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [target]
    return value if isinstance(value, list) else [value if isinstance(value, int) else target]


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
            texts = sample.get("choices") or None
            target = sample.get("target")
            golds = target if isinstance(target, list) else [target]
            if texts:
                at = [LETTERS.index(one) for one in golds if one in LETTERS[: len(texts)]]
                golds = [texts[at[0]]] if len(at) == len(golds) == 1 else golds
                texts = texts if len(golds) == 1 else None
                golds = golds if len(golds) == 1 else [", ".join(map(str, golds))]
            row = {
                "group": task, "item": text_of(number), "subject": f"{task}/{number}",
                "model": header.get("model"), "sample": text_of(sample.get("epoch")),
                "gold": golds, "options": texts, "prompt": _content(sample, sample.get("input")),
                **exported(sample.get("metadata")),
            }  # fmt: skip
            if error := sample.get("error"):
                kind = str(error.get("message") or error).partition("(")[0]
                yield sample, {"left_out": f"samples with an error: {truncated(kind, LONGEST)}"}
                continue
            output = sample.get("output") or {}
            reply = output.get("completion")
            if reply is None and output.get("choices"):
                reply = output["choices"][0].get("message", {}).get("content")
            row["answer"] = _content(sample, reply)
            limit = (sample.get("limit") or {}).get("type")
            row["error"] = f"stopped by the limit of {limit}" if limit else None
            for name, score in (sample.get("scores") or {"": {}}).items():
                value, answer = score.get("value"), score.get("answer")
                right = {"C": True, "I": False, "P": False, "N": False, 1: True, 0: False}
                is_plain = isinstance(value, str | int | float)
                more = {"reading": name or None, "right": right.get(value) if is_plain else None}
                if answer is not None and (answer or texts):
                    more["answer"] = answer
                yield sample, {**row, **more}


def _samples(file: Path) -> Iterator[tuple[Record, Record]]:
    """The header and each sample of a log; one that cannot be read raises."""
    if file.suffix == ".json":
        log = read_document(file)
        known = isinstance(log, Mapping) and "eval" in log
        yield from ((log["eval"], sample) for sample in (log.get("samples") or () if known else ()))
        return
    try:
        with ZipFile(file) as parts:
            names = parts.namelist()
            head = "header.json" if "header.json" in names else "_journal/start.json"
            header = parse_json(parts.read(head).decode())["eval"]
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield header, parse_json(parts.read(name).decode())
    except (BadZipFile, KeyError, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise ConsilienceError(
            f"cannot be read as a log of inspect_ai: {reason_of(error)}",
            where=str(file),
            todo="Convert it: inspect log convert --to json.",
        ) from error


def _content(sample: Record, content: object) -> str | None:
    """The text of a message, of its parts, or of messages; long ones are attachments."""
    if isinstance(content, str):
        name = content.removeprefix("attachment://")
        return str((sample.get("attachments") or {}).get(name, content))
    if not isinstance(content, list):
        return None
    parts = (part.get("text", part.get("content")) for part in content if isinstance(part, Mapping))
    return "\n".join(filter(None, (_content(sample, part) for part in parts))) or None


EXPECTS = re.compile(r"equals|i?contains(?:-any)?")
"""Assertions whose value is the right answer, or a list of texts for it."""

FILLED = re.compile(r"\{\{\s*([\w.]+)\s*((?:\|\s*(?:lower|upper|trim)\s*)*)\}\}")
"""The expressions of Nunjucks that are understood: a variable, or a field of one."""

FILTERS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower, "upper": str.upper, "trim": str.strip,
}  # fmt: skip


def promptfoo_rows(file: Path) -> Rows:
    """Results of promptfoo (format 3): a test is a question, or names one by ``metadata.item``."""
    where, results = str(file), read_document(file).get("results")
    entries = results.get("results") if isinstance(results, Mapping) else None
    if (known := results.get("version") if isinstance(results, Mapping) else None) != 3:
        raise ConsilienceError(
            f"results of promptfoo in format {known}", expected="format 3", where=where
        )
    labels, phrasings, samples = dict[str, str](), dict[str, list[str]](), dict[Any, list[int]]()
    order = sorted(entries or (), key=lambda entry: (entry["testIdx"], entry["promptIdx"]))
    for entry in order:
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
        asked += [entry["testIdx"]] * (entry["testIdx"] not in asked)
        label = str(prompt.get("label") or f"prompt {entry['promptIdx']}")
        level = truncated(" ".join(label.split()), LONGEST)
        key = str(entry.get("promptId") or label)
        level += f" ({len(labels) + 1})" * (level in labels.values())
        labels.setdefault(key, level)
        response = entry.get("response")
        golds, types = _expected(test.get("assert") or (), variables)
        row = {
            "group": metadata.get("group"), "item": item, "gold": golds,
            "prompt": prompt.get("raw"), "template": labels[key],
            "model": provider.get("label") or provider.get("id"),
            "paraphrase": str(of_item.index(text) + 1), "error": entry.get("error"),
            "sample": str(asked.index(entry["testIdx"]) + 1),
            "answer": response.get("output") if isinstance(response, Mapping) else None,
        }  # fmt: skip
        if not (row := {**row, **exported(entry.get("vars"))}).get("gold"):
            row["left_out"] = f"tests without an expected text, only {types or 'no assertion'}"
        yield entry, row


def _expected(assertions: Sequence[Any], variables: Record) -> tuple[list[str] | None, str]:
    """The texts that the first assertion of a text expects, and the types of all assertions."""
    types = dict[str, None]()
    for assertion in assertions:
        if not isinstance(assertion, Mapping):
            continue
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

    def fill(found: re.Match[str]) -> str:
        value: Any = variables
        for name in found[1].split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            known.append(False)
        written = text_of(value) or ""
        for name in re.findall(r"\w+", found[2]):
            written = FILTERS[name](written)
        return written

    known = [not re.search(r"\{[{%#]", FILLED.sub("", text)) and not text.startswith("file://")]
    filled = FILLED.sub(fill, text)
    return filled if all(known) and filled.strip() else None
