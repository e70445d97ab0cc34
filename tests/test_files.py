"""Writing files: whole or not at all; a device is never replaced. Reading tables: any format."""

import errno
import gzip
import json
import math
import os
import stat
import sys
from datetime import date, datetime
from pathlib import Path

import polars as pl
import pytest
import xlsxwriter

from checks import refused
from consilience.core.errors import LONGEST, ConsilienceError
from consilience.files import write
from consilience.files.read import read_parquet, read_rows, read_text
from consilience.files.rows import line, list_in, text
from consilience.runs.folder import RunFolder


def nothing_else_in(folder, *names):
    return sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_link_is_kept_and_its_target_written(tmp_path):
    """Also over two links, also where the target is missing."""
    (tmp_path / "far").mkdir()
    for name in ("there", "missing"):
        (tmp_path / name).symlink_to(Path("far") / name)
        (tmp_path / f"to-{name}").symlink_to(name)
    (tmp_path / "far" / "there").write_bytes(b"one")
    for name in ("there", "missing"):
        write.write_whole(tmp_path / f"to-{name}", b"two")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / f"to-{name}").is_symlink()
        assert (tmp_path / "far" / name).read_bytes() == b"two"
    assert nothing_else_in(tmp_path / "far", "there", "missing")


@pytest.mark.parametrize("minor", [3, 7], ids=["null", "full"])
def test_a_device_is_written_in_place(minor, tmp_path):
    """Nodes of our own for what /dev/null and /dev/full are; the second has never room."""
    path = tmp_path / "node"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        with path.open("ab"):
            pass
    except PermissionError:
        pytest.skip("device nodes are not permitted here")
    if minor == 3:
        write.write_whole(path, b"x")
    else:
        refused("the disk is full", write.write_whole, path, b"x")
    assert stat.S_ISCHR(path.stat().st_mode)
    assert nothing_else_in(tmp_path, "node")


def test_parts_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A full disk, or a fault in the middle, keeps the old file."""
    path = tmp_path / "file"
    write.write_whole(path, lambda: (part for part in (b"o", b"ne")))

    def failing():
        yield b"c\n"
        raise ConsilienceError("no more")

    refused("no more", write.write_whole, path, failing)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("the disk is full", write.write_whole, path, b"two")
    assert path.read_bytes() == b"one"
    assert nothing_else_in(tmp_path, "file")


def rows_of(path):
    """The rows of a file by their places in it."""
    return {where.removeprefix(str(path)): row for where, row in read_rows(path)}


def test_every_format_of_a_file_holds_the_same_rows(tmp_path):
    """Cells are text but for JSON; the place of a row is its first line."""
    rows = {":2": {"item": "a", "text": "x\ny"}, ":4": {"item": "b", "text": ""}}
    cells = 'a,"x\ny"\nb,\n,\n'
    texts = {
        "a.csv": f"item,text\n{cells}", "b.csv": f"item;text\n{cells.replace(',', ';')}",
        "c.csv": f"item, text\n{cells.replace(',', ', ')}",
    }  # fmt: skip
    for name, content in texts.items():
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
            (tmp_path / name).write_bytes(content.encode(encoding))
            assert rows_of(tmp_path / name) == rows, (name, encoding)
    (tmp_path / "a.tsv").write_text('item\ttext\na\t"x" y\n\t\nb\t\n')
    assert rows_of(tmp_path / "a.tsv") == rows | {":2": {"item": "a", "text": '"x" y'}}
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(texts["a.csv"].encode()))
    assert rows_of(tmp_path / "a.csv.gz") == rows
    values = [{"item": "a", "text": None, "more": [1]}, {"item": "b"}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, values)))
    assert rows_of(tmp_path / "a.jsonl") == dict(zip((":1", ":3"), values, strict=True))
    (tmp_path / "a.json").write_text(json.dumps(values))
    assert rows_of(tmp_path / "a.json") == dict(zip((", row 1", ", row 2"), values, strict=True))
    pl.DataFrame(values).write_parquet(tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet")[", row 1"] == values[0]
    (tmp_path / "long.csv").write_text(f"item\n{'x' * 200_000}\n")
    assert len(rows_of(tmp_path / "long.csv")[":2"]["item"]) == 200_000


def test_a_workbook_has_the_rows_of_its_sheet(tmp_path, monkeypatch):
    """A blank row counts, a date has no time; without the library one message says what to do."""
    workbook = xlsxwriter.Workbook(tmp_path / "a.xlsx")
    sheet = workbook.add_worksheet()
    for at, row in enumerate([["item", "day"], ["a", date(2024, 1, 2)], [], ["b", 7]]):
        for column, value in enumerate(row):
            day = workbook.add_format({"num_format": "yyyy-mm-dd"}) if at == 1 and column else None
            sheet.write(at, column, value, day)
    workbook.close()
    rows = {":2": {"item": "a", "day": "2024-01-02"}, ":4": {"item": "b", "day": "7"}}
    assert rows_of(tmp_path / "a.xlsx") == rows
    (tmp_path / "b.xlsx").write_bytes(b"no workbook")
    refused("cannot be read as a workbook", rows_of, tmp_path / "b.xlsx")
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    refused("fastexcel is not installed.*Or save the table as CSV", rows_of, tmp_path / "a.xlsx")


@pytest.mark.parametrize(("text", "value"), [
    ("['a', \"it's\"]", ["a", "it's"]), ("['a' 'b'\n 'c']", ["a", "b", "c"]), ("[1 2.5]", ["1", "2.5"]),
    ('["a", null]', ["a", None]), ("{'k': array([1, 2], dtype=int64)}", {"k": [1, 2]}),
    ("[0, 1)", None), ("[x]", None), ("[f(1)]", None), ("[__import__('os')]", None), ("[", None),
    ("a [1]", None), ("", None), ("[" * 100_000, None), ("[1, [2]]", [1, [2]]),
])  # fmt: skip
def test_a_list_in_a_cell(text, value):
    assert list_in(text) == value


@pytest.mark.parametrize(("value", "read"), [
    ("a", "a"), (" a\r\nb\u2028c\x00 ", "a\nb\nc"), ("e\u0301", "\u00e9"), (" \t ", None), (None, None),
    (7, "7"), (7.0, "7"), (0.5, "0.5"), (math.nan, None), (True, "true"), (date(2024, 1, 2), "2024-01-02"),
    (datetime(2024, 1, 2), "2024-01-02"), ("\u202ea", "a"), ("\u200fa", "\u200fa"), ("\ud800a", "a"),
])  # fmt: skip
def test_a_text_in_a_cell(value, read):
    assert text(value) == read
    assert line(value) == (read if read is None else " ".join(read.split("\n")))


def test_a_text_is_utf8_and_its_line_ends_stay(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa\r\nb".encode())
    assert read_text(path) == "a\r\nb"
    path.write_bytes(b"ab\xff")
    refused(r"a\.txt: not UTF-8 at byte 2", read_text, path)
    refused("none: cannot be read: No such file", read_text, tmp_path / "none")


def damaged(tmp_path):
    """A Parquet file with a byte of its footer changed, at which polars panics."""
    table = pl.DataFrame({name: ["x"] * 9 for name in "abc"})
    path = tmp_path / "whole.parquet"
    table.write_parquet(path)
    whole = path.read_bytes()
    for at in range(len(whole) - 9, 0, -1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        try:
            pl.read_parquet(path)
        except pl.exceptions.PanicException:
            return path
        except Exception:
            continue
    return pytest.skip("this version of polars does not panic at any of these bytes")


def test_where_polars_panics_the_file_is_damaged(tmp_path):
    path = damaged(tmp_path)
    refused("cannot be read as a table: the file is damaged", read_parquet, path)
    run = RunFolder(tmp_path / "run", {"suite": "s", "groups": ["g"]})
    path.rename(tmp_path / "run" / "answers" / "0.parquet")
    assert run.answers("g", 9) is None, "a run asks again what it cannot read"


def test_a_message_shows_the_ends_of_a_long_part_and_says_all_of_a_short_one():
    found = f"the pattern '{'x' * 1_000_000}' has 2 [Y]"
    message = str(ConsilienceError(found, expected="e" * LONGEST, where="f:1", todo="Do."))
    assert len(message) < 2 * LONGEST + 50
    assert message.startswith("f:1: the pattern 'xxx") and "xxx ... xxx" in message
    assert f"xxx' has 2 [Y]; expected {'e' * LONGEST}. Do." in message
