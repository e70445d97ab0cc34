"""Writing files: whole or not at all; a device is never replaced. Reading answers: any format."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from checks import refused
from consilience.core.errors import ConsilienceError
from consilience.files import write
from consilience.files.tables import read_answer_file
from consilience.runs.folder import RunFolder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def nothing_else_in(folder, *names):
    return sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_new_file_obeys_the_umask_and_a_replaced_one_keeps_its_mode(tmp_path):
    path = tmp_path / "table.csv"
    before = os.umask(0o027)
    try:
        write.write_whole(path, b"one")
        assert mode(path) == 0o640
        path.chmod(0o604)
        write.write_whole(path, b"two")
    finally:
        os.umask(before)
    assert (mode(path), path.read_bytes()) == (0o604, b"two")
    assert nothing_else_in(tmp_path, "table.csv")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_somebody_else_stays_theirs(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"one")
    os.chown(path, 12345, 54321)
    write.write_whole(path, b"two")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_is_write_protected_is_not_replaced(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"one")
    path.chmod(0o444)
    refused("cannot be written: Permission denied", write.write_whole, path, b"two")
    assert path.read_bytes() == b"one"


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


def test_what_is_in_the_way_stays_and_links_that_lead_nowhere_are_one_error(tmp_path):
    for name, target in {"a": "b", "b": "a", "c": "no-folder/c"}.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"mine")
    for name, reason in (
        ("a", "a: cannot be written: Too many levels"),
        ("c", "c: cannot be written: No such file"),
        ("folder", "cannot be written: Is a directory"),
        ("file/x", "cannot be written: Not a directory"),
    ):
        refused(reason, write.write_whole, tmp_path / name, b"x")
    assert nothing_else_in(tmp_path, "a", "b", "c", "file", "folder")
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_pipe_is_written_in_place_and_a_reader_that_has_enough_is_no_error(tmp_path):
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    for reading, content in (
        (lambda: read.append(path.read_bytes()), b"x" * 100_000),
        (lambda: path.open("rb").close(), b"x" * 10_000_000),
    ):
        reader = threading.Thread(target=reading)
        reader.start()
        write.write_whole(path, content)
        reader.join()
    assert read == [b"x" * 100_000]
    assert stat.S_ISFIFO(path.stat().st_mode)


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


def test_standard_output_is_written_in_order(tmp_path):
    """A regular file behind /dev/stdout is neither replaced nor written over."""
    code = "print('a'); write_whole(Path('/dev/stdout'), b'b\\n'); print('c')"
    imports = "from pathlib import Path; from consilience.files.write import write_whole; "
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", imports + code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"


def test_the_content_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, Path.replace

    def watched(descriptor):
        calls.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        sync(descriptor)

    def named(part, path):
        calls.append(("name", str(path)))
        return replace(part, path)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(Path, "replace", named)
    write.write_whole(tmp_path / "file", b"x")
    part = f"{tmp_path}/.file.{os.getpid()}.part"
    assert calls == [("sync", part), ("name", f"{tmp_path}/file"), ("sync", str(tmp_path))]


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write.write_whole(path, b"one")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("the disk is full", write.write_whole, path, b"two")
    assert path.read_bytes() == b"one"
    assert nothing_else_in(tmp_path, "file")


@pytest.mark.parametrize(
    "name", ["\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 127, b"n\xff", "file"]
)
def test_names_that_are_long_not_utf_8_or_have_a_planted_link_as_part(name, tmp_path):
    """Where others may write to a folder, the name of the part can be guessed."""
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / f".file.{os.getpid()}.part").symlink_to("victim")
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + os.fsencode(name)))
    write.write_whole(path, b"x")
    assert os.fsencode(name) in [os.fsencode(each.name) for each in tmp_path.iterdir()]
    assert (path.read_bytes(), (tmp_path / "victim").read_bytes()) == (b"x", b"mine")


def test_a_folder_of_a_network_file_system_is_locked_by_a_file(tmp_path, monkeypatch):
    """There an exclusive lock needs a file that is open for writing."""
    of_system, taken = fcntl.flock, []

    def flock(descriptor, operation):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "open for reading")
        taken.append(operation)
        of_system(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with write.locked(tmp_path):
        assert taken == [fcntl.LOCK_EX]
        with (tmp_path / ".lock").open("ab") as other, pytest.raises(BlockingIOError):
            of_system(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / ".lock").open("ab") as other:
        of_system(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_new_run_begins_on_a_network_file_system(tmp_path, monkeypatch):
    """The file of the lock is there before the run is."""
    monkeypatch.setattr(write, "_lock", partial(_on_network, write._lock))
    RunFolder(tmp_path / "run", {"suite": "mini"})
    assert {"run.json", write.LOCK} <= {path.name for path in (tmp_path / "run").iterdir()}


def _on_network(lock, path, flags):
    return lock(path, flags) if flags & os.O_RDWR else None


def test_parts_of_processes_that_are_gone_are_removed_and_no_others(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        kept = [f".run.json.{running.pid}.part", "run.json", ".x.part", f"x.{gone.pid}.part"]
        for name in (*kept, f".run.json.{gone.pid}.part", f".P36.parquet.{10**30}.part"):
            (tmp_path / name).write_bytes(b"x")
        write.remove_stale_parts(tmp_path)
        assert nothing_else_in(tmp_path, *kept)
        running.communicate(b"\n")
    write.remove_stale_parts(tmp_path / "nowhere")


def test_a_part_that_is_taken_away_is_written_again(tmp_path, monkeypatch):
    """As another machine does that shares the folder and does not see this process."""
    replace = Path.replace

    def taken(part, path):
        monkeypatch.undo()
        part.unlink()
        return replace(part, path)

    monkeypatch.setattr(Path, "replace", taken)
    write.write_whole(tmp_path / "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_an_id_becomes_a_path_in_its_folder_or_an_error(tmp_path):
    assert write.path_in(tmp_path, "P36", ".npy") == tmp_path / "P36.npy"
    refused("the group id '../x'", write.path_in, tmp_path, "../x", ".npy")


CELLS = [  # a text, and the cell that it becomes
    ("=cmd|'C calc'!A0", "'=cmd|'C calc'!A0"), ("@SUM(1+1)", "'@SUM(1+1)"), ("+1-2", "'+1-2"),
    ("-x", "'-x"), ("\t=1", "'\t=1"), ("\r=1", "'\r=1"), ("'=1", "''=1"), ("'-5", "''-5"),
    *((text, text) for text in ("-5", "+1.5e-3", "-", "'tis", "1-2=", "", None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cell"), CELLS)
def test_no_cell_is_a_formula_and_every_text_is_read_back(text, cell, tmp_path):
    assert text is None or write.csv_cell(text) == cell
    table = pl.DataFrame({"text": [text], "value": [-1.5]})
    write.write_whole(tmp_path / "table.csv", write.csv_of(table))
    written = pl.read_csv(tmp_path / "table.csv", infer_schema=False)
    assert (written.rows(), write.texts_of(written).rows()) == ([(cell, "-1.5")], [(text, "-1.5")])


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
