"""Files of answers: the same table in every format."""

import polars as pl

from checks import refused
from consilience.core.errors import ConsilienceError
from consilience.files.tables import read_answer_file
from consilience.files.write import write_whole


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
    write_whole(file, lambda: (part for part in (b"a\n", b"b\n")))
    assert file.read_bytes() == b"a\nb\n"

    def failing():
        yield b"c\n"
        raise ConsilienceError("no more")

    refused("no more", write_whole, file, failing)
    assert file.read_bytes() == b"a\nb\n"
    assert list(tmp_path.iterdir()) == [file]
