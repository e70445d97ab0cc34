"""What others wrote, damaged or made to do harm: one error for each fault."""

import polars as pl
import pytest

from checks import refused
from consilience import ConsilienceError
from consilience.core.errors import LONGEST
from consilience.files.read import read_parquet, read_text
from consilience.runs.folder import RunFolder


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
