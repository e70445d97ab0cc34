"""suite import: patterns and facts of a table, and proposals, become part of a suite folder."""

import errno
import json
import os
import tempfile

import pytest

from checks import output, refusal, refused
from conftest import cases
from consilience import load_suite
from consilience.authoring.importing import import_patterns, with_rows, write_proposals
from consilience.suites import check_suite


def imported(path, folder, **options):
    """The output, and what was refused."""
    done = import_patterns(path, folder, **options)
    refused_rows = done.tables["patterns"].filter(what="refused").rows(named=True)
    return done, [f"{row['where']}: {row['reason']}" for row in refused_rows]


def texts(folder, relation="capital"):
    return [pattern.text for pattern in load_suite(folder).relation(relation).patterns]


def table(path, text):
    path.write_text(text)
    return path


TABLE = """relation,label,pattern,subject,object,item
capital,,The capital of [X] is [Y].,France,Paris,c-1
capital,the capital,"[X]'s capital, [Y], is large.",Italy,Rome,c-2
capital,,,Italy,Rome,
capital,,The capital of [X]  is [Y],,,
capital,,,Spain,,
capital,,[X] and [X] [Y],,,
capital,,[X] [Y],,,
borders,,[X] borders [Y].,France,Spain,
borders,,,France,Italy,
river,,[X] flows through [Y].,,,
"""


def test_a_table_makes_a_suite_and_names_what_it_cannot_take(tmp_path):
    source = table(tmp_path / "table.csv", TABLE)
    done, faults = imported(source, tmp_path / "suite")
    capital, borders = load_suite(tmp_path / "suite")
    patterns = ["The capital of [X] is [Y].", "[X]'s capital, [Y], is large."]
    assert [one.text for one in capital.patterns] == patterns
    assert (capital.label, capital.cardinality) == ("the capital", "N-1")
    assert borders.cardinality == "N-M"
    facts = [("c-1", "France", "Paris"), ("c-2", "Italy", "Rome")]
    assert [(one.item, one.subject, one.object) for one in capital.facts] == facts
    faults = [fault.partition("table.csv:")[2] for fault in faults]
    assert [fault.partition(":")[0] for fault in faults] == ["5", "6", "7", "8", "11"]
    messages = (
        "is a duplicate of 'The capital of [X] is [Y].'", "no pattern and no fact", "2 [X]",
        "no word besides its slots", "the relation 'river' has no fact, so 1 pattern of it",
    )  # fmt: skip
    assert all(of in fault for of, fault in zip(messages, faults, strict=True))
    assert done.to_polars()["what"].to_list() == ["added"] * 3 + ["refused"] * 5
    assert not check_suite(tmp_path / "suite")
    assert imported(source, tmp_path / "suite")[0].status == 2


def test_proposals_that_are_accepted_join_also_tables_in_csv(write_suite, tmp_path):
    path = tmp_path / "proposals.csv"
    texts_by = {"yes": "[X] is governed from [Y].", "no": "[X] no [Y].", "perhaps": "[X] may [Y]."}
    known = {"relation": "capital", "origin": "mined", "evidence": ["a", "b"]}
    rows = [{"accept": a, **known, "pattern": text} for a, text in texts_by.items()]
    write_proposals(path, [row | {"subject": "Peru", "object": row["accept"]} for row in rows])
    folder = write_suite()
    (folder / "patterns.jsonl").unlink()
    (folder / "patterns.csv").write_text("relation,pattern\ncapital,The capital of [X] is [Y].")
    done, (fault,) = imported(path, folder)
    assert texts(folder) == ["The capital of [X] is [Y].", "[X] is governed from [Y]."]
    assert [fact.object for fact in load_suite(folder)["capital"].facts][3:] == ["yes"]
    assert "'perhaps'; expected yes, no" in fault
    assert done.cautions == ["not accepted: 1 of 2 rows"]


SHEET = """relation,pattern,language,subject,object,subject_de,object_de
tongue,[X] wrote in [Y].,,Goethe,German,,Deutsch
tongue,The language of [X] was [Y].,,Aristotle,Greek,Aristoteles,Griechisch
tongue,[X] schrieb auf [Y].,de,,,,
"""


def test_one_sheet_has_two_languages(tmp_path):
    """A row of names for each that differs: Goethe is Goethe."""
    folder = tmp_path / "suite"
    imported(table(tmp_path / "sheet.csv", SHEET), folder)
    rows = [json.loads(line) for line in (folder / "names.jsonl").read_text().splitlines()]
    assert rows == [
        {"name": name, "language": "de", "text": text} for name, text in
        (("German", "Deutsch"), ("Aristotle", "Aristoteles"), ("Greek", "Griechisch"))
    ]  # fmt: skip
    (tongue,) = load_suite(folder)
    asked = [tongue.query(tongue.patterns[2], fact) for fact in tongue.facts]
    names = [("Goethe", "Deutsch"), ("Aristoteles", "Griechisch")]
    assert [(one.subject, one.gold) for one in asked] == names
    assert not imported(tmp_path / "sheet.csv", folder)[0].facts["names"]


def test_a_table_gets_rows_and_keeps_its_cells(tmp_path):
    """CSV is written anew, in UTF-8 and with commas; another format is refused."""
    path = tmp_path / "p.csv"
    rows = [{"relation": "capital", "pattern": '[Y], of "[X]"', "item": "a"}]
    path.write_bytes('relation;pattern;note\r\ncapital;"[X], \xe9 [Y].";mine\r\n'.encode("cp1252"))
    lines = ["relation,pattern,note,item", 'capital,"[X], \xe9 [Y].",mine,']
    lines += ['capital,"[Y], of ""[X]""",,a', ""]
    assert with_rows(path, rows) == "\n".join(lines).encode()
    refused("p.tsv: rows to add to another table", with_rows, path.with_suffix(".tsv"), rows)


def test_what_fails_changes_no_file_and_names_the_folder(write_suite, tmp_path, monkeypatch):
    folder = write_suite()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "note").symlink_to("nowhere")
    new = "relation,pattern,subject,object,item\ncapital,[Y] in [X],Peru,Lima,x\n"
    twice = table(tmp_path / "a.csv", new + "capital,,France,Lyon,x\n")
    message = refused("the suite would have an error", imported, twice, folder)
    assert f"{folder}/facts.jsonl" in message
    assert tempfile.gettempdir() not in message.replace(str(folder), "")
    calls, fsync = [], os.fsync

    def full(descriptor):
        calls.append(fsync(descriptor))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("the disk is full", imported, table(tmp_path / "b.csv", new), folder)
    assert before == {one.name: one.read_bytes() for one in folder.iterdir() if one.name != "note"}


def test_patterns_join_relations_that_have_none(write_suite, tmp_path):
    """Facts of a table become a suite with the proposals that were mined for them."""
    folder = write_suite()
    (folder / "patterns.jsonl").unlink()
    write_proposals(tmp_path / "p.jsonl", [{"relation": "capital", "pattern": "[X] seats [Y]."}])
    imported(tmp_path / "p.jsonl", folder)
    assert texts(folder) == ["[X] seats [Y]."]


@pytest.mark.parametrize(("name", "content", "message"), cases("imports_bad"))
def test_what_cannot_be_imported_is_refused(name, content, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    refused(message, imported, path, tmp_path / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("a")
    refused("folder", imported, path, tmp_path / "full")


def test_the_command_says_what_it_did(consilience, tmp_path):
    table(tmp_path / "t.csv", TABLE)
    out = output(consilience, "suite", "import", "t.csv", "--into", "s")
    assert out.startswith("s (new suite)\nadded:   2 relations, 3 patterns, 4 facts\nrefused: 5\n")
    assert "Check: consilience suite check s" in out
    document = json.loads(output(consilience, "suite", "check", "s", "--json"))
    assert document["facts"] == 4
    table(tmp_path / "facts.csv", "relation,subject,object\nmoon,Io,Jupiter\n")
    status, out, _ = consilience("suite", "import", "facts.csv", "--into", "new")
    assert status == 2 and "facts.csv:2: the relation 'moon' has no pattern, so 1 fact" in out
    assert "suite import TABLE --into FOLDER" in refusal(consilience, "suite", "check", "facts.csv")
