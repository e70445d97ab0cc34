"""What others wrote, damaged or made to do harm: one error for each fault."""

import gzip
import json
import tracemalloc

import polars as pl
import pytest

from checks import refused
from consilience import ConsilienceError
from consilience.core.errors import LONGEST
from consilience.files import read
from consilience.files.read import parse_json, read_csv, read_parquet, read_text
from consilience.runs.folder import RunFolder
from consilience.runs.run import read_answers


@pytest.mark.parametrize(("text", "message"), [
    ('{"a": ' + "[" * 100_000, "nested too deeply: line 1 column 7"),
    ('{"a":\n' + '{"a":' * 100_000, "nested too deeply: line 1 column 1 "),
    ('{"a": 1,\n "b": ' + "7" * 5000 + "}", "too long a number: line 2 column 7"),
    (b"[" * 100_000, "nested too deeply: line 1 column 1 "),
    ('["x", ' + "[" * 100 + "]" * 101, "nested too deeply: line 1 column 7"),
    ("{", "Expecting property name"),
])  # fmt: skip
def test_every_fault_of_a_json_document_is_of_one_kind(text, message):
    with pytest.raises(json.JSONDecodeError, match=message):
        parse_json(text)
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert len(parse_json("[" * 99 + '"' + "[" * 500 + '"' + "]" * 99)) == 1, "99 lists and a text"


def test_a_text_is_utf8_and_its_line_ends_stay(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa\r\nb".encode())
    assert read_text(path) == "a\r\nb"
    path.write_bytes(b"ab\xff")
    refused(r"a\.txt: not UTF-8 at byte 2", read_text, path)
    refused("none: cannot be read: No such file", read_text, tmp_path / "none")


def gzipped(path, size):
    """A gzip file of ``size`` zero bytes, about a thousandth of that."""
    with gzip.open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return path


def test_a_small_file_that_unpacks_to_gigabytes_takes_no_memory(tmp_path, monkeypatch):
    """24 MB from 24 kB, where 16 are the limit; by default it is 256."""
    monkeypatch.setattr(read, "UNPACKED", 16 << 20)
    path = gzipped(tmp_path / "a.csv.gz", 24 << 20)
    tracemalloc.start()
    refused(r"bytes that unpack to 17,825,792 or more.*gunzip", read_answers, path)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    path.rename(tmp_path / "a.csv")
    refused(r"a\.csv: .* unpack to 17,825,792 or more", read_answers, tmp_path / "a.csv")


def test_a_table_that_is_compressed_as_tables_are_is_read(tmp_path, monkeypatch):
    """10,000 rows of two numbers: 98 kB, a fifth of it packed."""
    table = pl.DataFrame({"a": range(10_000), "b": range(10_000, 0, -1)})
    content = table.write_csv().encode()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(read, "UNPACKED", len(content) // 2)
    assert read_csv(tmp_path / "a.csv.gz").equals(table)
    monkeypatch.setattr(read, "TIMES", 2)
    refused("at most 2 times the size of the file", read_csv, tmp_path / "a.csv.gz")


GZIPPED = gzip.compress(b"a,b\n1,2\n", mtime=0)


@pytest.mark.parametrize(("content", "message"), [
    (b"\x78\x9cabc", "compressed in another way than gzip"),
    (b"\x28\xb5\x2f\xfdabc", "compressed in another way than gzip"),
    (GZIPPED[:-9], "cannot be read as a table: "),
    (GZIPPED[:-8] + bytes(8), "cannot be read as a table: CRC check"),
    (b"\x1f\x8b\x08\x00garbage", "cannot be read as a table: "),
    (b"", "cannot be read as a table: "),
])  # fmt: skip
def test_a_compressed_table_that_is_damaged(content, message, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    refused(rf"a\.csv: {message}", read_csv, tmp_path / "a.csv")


def test_a_parquet_file_of_more_rows_than_it_has_room_for(tmp_path):
    """Four million nulls take 1 kB; that many rows of answers take megabytes."""
    path = tmp_path / "a.parquet"
    pl.select(a=pl.lit(None, pl.String).repeat_by(1 << 22).explode()).write_parquet(path)
    refused(r"4,194,304 rows in [\d,]+ bytes; expected at most", read_answers, path)


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
    for reader in (read_answers, read_parquet):
        refused("cannot be read as a table: the file is damaged", reader, path)
    run = RunFolder(tmp_path / "run", {"suite": "s"})
    path.rename(tmp_path / "run" / "answers" / "g.parquet")
    assert run.answers("g", 9) is None, "a run asks again what it cannot read"


def test_a_message_shows_the_ends_of_a_long_part_and_says_all_of_a_short_one():
    found = f"the pattern '{'x' * 1_000_000}' has 2 [Y]"
    message = str(ConsilienceError(found, expected="e" * LONGEST, where="f:1", todo="Do."))
    assert len(message) < 2 * LONGEST + 50
    assert message.startswith("f:1: the pattern 'xxx") and "xxx ... xxx" in message
    assert f"xxx' has 2 [Y]; expected {'e' * LONGEST}. Do." in message
