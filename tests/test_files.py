"""Writing files: whole or not at all; a device is never replaced. Reading answers: any format."""

import errno
import os
import stat
from pathlib import Path

import polars as pl
import pytest

from checks import refused
from consilience.core.errors import ConsilienceError
from consilience.files import write
from consilience.files.tables import read_answer_file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


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


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write.write_whole(path, b"one")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("the disk is full", write.write_whole, path, b"two")
    assert path.read_bytes() == b"one"
    assert nothing_else_in(tmp_path, "file")


def test_an_id_becomes_a_path_in_its_folder_or_an_error(tmp_path):
    assert write.path_in(tmp_path, "P36", ".npy") == tmp_path / "P36.npy"
    refused("the group id '../x'", write.path_in, tmp_path, "../x", ".npy")


def test_every_format_of_a_file_holds_the_same_table(tmp_path):
    """Cells are text: a whole number of JSON without a fraction, a list as JSON."""
    (tmp_path / "a.jsonl").write_text(
        '{"item": "a", "answer": 2, "options": ["x", "y"]}\n{"item": "b"}\n'
    )
    (tmp_path / "a.csv").write_text('item,answer,options\na,2,"[""x"", ""y""]"\nb,,\n')
    (tmp_path / "a.tsv").write_text('item\tanswer\toptions\na\t2\t["x", "y"]\n')
    expected = {"item": "a", "answer": "2", "options": '["x", "y"]'}
    for name in ("a.jsonl", "a.csv", "a.tsv"):
        table = read_answer_file(tmp_path / name)
        assert table.row(0, named=True) == expected, name
        assert set(table.dtypes) == {pl.String}
    assert read_answer_file(tmp_path / "a.jsonl").row(1) == ("b", None, None)


def test_a_workbook_is_read_or_one_message_says_what_to_install(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"no workbook")
    try:
        import fastexcel  # noqa: F401
    except ImportError:
        message = "fastexcel is not installed.*Or save the table as CSV"
    else:
        message = "cannot be read as a workbook"
    refused(message, read_answer_file, tmp_path / "a.xlsx")


def test_parts_are_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "rows.jsonl"
    write.write_whole(file, lambda: (part for part in (b"a\n", b"b\n")))
    assert file.read_bytes() == b"a\nb\n"

    def failing():
        yield b"c\n"
        raise ConsilienceError("no more")

    refused("no more", write.write_whole, file, failing)
    assert file.read_bytes() == b"a\nb\n"
    assert list(tmp_path.iterdir()) == [file]
