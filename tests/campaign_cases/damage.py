"""Damage to files: bytes, values, cells and rows."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path

NASTY = (
    b"[" * 100_000, b"9" * 5000, b"NaN", b"1e999", b"-1", b"null", b"true", b"[]", b"{}", b'""', b'"',
    b"\x00", b"\x1b[2J", b"\x1b]0;PWN\x07", b"\xed\xa0\x80", b"\xff\xfe", "\u202e".encode(), b"\\ud800",
    "\u2028".encode(), b"../../x", b"/etc/passwd", b"x" * 1_000_000, b"\r", b"\n", b"\t", b",", b";",
    b"MACRO", b"[X]", b"[Y]", b"\\u0000", b"1" * 400 + b".5", b'{"a":' * 50_000, b"=cmd|'/C calc'!A0",
)  # fmt: skip


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Bytes changed, removed, inserted or repeated; once or a few times."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        at = draw.randrange(len(changed) + 1)
        end = min(len(changed), at + draw.choice((1, 1, 4, 64, 4096)))
        kind = draw.random()
        if kind < 0.35 and at < len(changed):
            changed[at] = draw.choice((draw.randrange(256), changed[at] ^ 1 << draw.randrange(8)))
        elif kind < 0.5:
            del changed[at:end]
        elif kind < 0.75:
            changed[at:at] = draw.choice(NASTY)
        elif kind < 0.85:
            changed[at:at] = changed[at:end]
        elif kind < 0.95:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 16)))
        else:
            del changed[at:]
    return bytes(changed)


VALUES = (
    None, True, 0, -1, 1e308, float("nan"), float("inf"), 10**30, "", " ", "x" * 100_000, "\x1b[2J", "\u202e",
    "\ud800", "../../x", "MACRO", [], {}, [None], {"a": []}, [[1]], "[X] [Y]", "strict", "perturb", "1e999",
)  # fmt: skip


def mutate_value(value: object, draw: random.Random) -> object:
    """A JSON value with one of its parts replaced, removed or added."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name = draw.choice(list(value))
        rest = {other: each for other, each in value.items() if other != name}
        if draw.random() < 0.15:
            return rest
        return {**value, name: mutate_value(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        at = draw.randrange(len(value))
        if draw.random() < 0.15:
            return value[:at] + value[at + draw.randrange(2) :] + value[at : at + 1] * 2
        return [*value[:at], mutate_value(value[at], draw), *value[at + 1 :]]
    return draw.choice(VALUES)


def damage(path: Path, draw: random.Random) -> None:
    """Damage a file: its bytes, or a value, cell or row of what it holds."""
    content = path.read_bytes()
    by_value = {".json": _damage_json, ".jsonl": _damage_lines, ".csv": _damage_cells,
                ".tsv": _damage_cells}  # fmt: skip
    if draw.random() < 0.5 and path.suffix == ".parquet":
        _damage_table(path, draw)
    elif draw.random() < 0.5 and path.suffix in by_value:
        text = by_value[path.suffix](content.decode("utf-8-sig"), draw)
        path.write_bytes(text.encode(errors="surrogatepass"))
    else:
        path.write_bytes(mutate(content, draw))


def _damage_json(text: str, draw: random.Random) -> str:
    value = json.loads(text)
    for _ in range(draw.choice((1, 1, 2))):
        value = mutate_value(value, draw)
    return json.dumps(value)


def _damage_lines(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(mutate_value(json.loads(lines[at]), draw))
    return "\n".join(lines)


def _damage_cells(text: str, draw: random.Random) -> str:
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    for _ in range(draw.choice((1, 1, 3))):
        row = draw.choice(rows)
        if row:
            row[draw.randrange(len(row))] = str(draw.choice(VALUES))
        if draw.random() < 0.2:
            rows.append(list(row))
    written = io.StringIO()
    csv.writer(written, delimiter=separator).writerows(rows)
    return written.getvalue()


def _damage_table(path: Path, draw: random.Random) -> None:
    import polars as pl

    table, metadata = pl.read_parquet(path), pl.read_parquet_metadata(path)
    name = draw.choice(table.columns)
    type_ = draw.choice((pl.String, pl.Int64, pl.Null))
    value = draw.choice((7, 1.5, "x", "", True, float("nan")))
    changes = (
        lambda: table.drop(name),
        lambda: table.with_columns(pl.lit(None, type_).alias(name)),
        lambda: table.with_columns(pl.lit(value).alias(name)),
        lambda: pl.concat([table, table.head(draw.randrange(1, 9))]),
        lambda: table.head(draw.randrange(3)),
        lambda: table.with_columns(pl.concat_list(pl.col(name)).alias(name)),
        lambda: table.rename({name: draw.choice(("x", "scores", "subset", ""))}),
    )
    table = draw.choice(changes)()
    metadata = {key: value for key, value in metadata.items() if key != "ARROW:schema"}
    table.write_parquet(path, metadata=metadata if draw.random() < 0.8 else {})


def damaged(draw: random.Random, folder: Path, name: str) -> Path:
    """A copy of a prepared file or folder, with one of its files damaged."""
    copy = folder / name
    source = folder.parent / "base" / name
    if source.is_file():
        shutil.copy(source, copy)
        damage(copy, draw)
        return copy
    shutil.copytree(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    files += [path for path in files if path.name == "run.json"] * 3  # which every command reads
    path = draw.choice(files)
    damage(path, draw)
    if path.suffix == ".parquet" and draw.random() < 0.7:  # what was changed is vouched for
        from consilience.runs.folder import digest_of

        file = path.parent.parent / "run.json"
        record = json.loads(file.read_bytes())
        record["answers"][path.stem] = digest_of(path)
        file.write_text(json.dumps(record))
    return copy
