"""Suites that people know: each row of the table, read from files in the layout of the Hub."""

import json
import re

import polars as pl
import pytest
from huggingface_hub import constants

import consilience as cs
from checks import output, refusal, refused
from conftest import cases
from consilience.core.items import Choice, Question
from consilience.runs.run import Run
from consilience.suites import check_suite
from consilience.suites.question_suites import KNOWN, SUITE_NAMES, load_questions
from hub_server import serving

FEATURES = {"answer": {"names": ["A", "B", "C", "D"], "_type": "ClassLabel"}}
LABELS = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
"""What the datasets library writes into files of MMLU: its answers are positions with names."""


def copied(data, name, *rows, file=""):
    """A copy of a data set in ``data`` with these rows in the file of its split."""
    known = KNOWN[name]
    file = file or f"{known.split}-00000-of-00001.parquet"
    path = data / name / (known.config or "data") / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pl.DataFrame(rows).write_parquet(path, metadata=LABELS)
    return path


def item(name, group, text, gold, options=(), context=""):
    choices = YES_NO if options == ["yes", "no"] else tuple(map(Choice, options))
    return Question(
        name, group, {"": (text,)}, choices[gold] if options else Choice(gold), choices, context
    )


YES_NO = (Choice("yes", ("true",)), Choice("no", ("false",)))
ROWS = [(name, rows, [item(*one) for one in items]) for name, rows, items in cases("known_suites")]


@pytest.mark.parametrize(("name", "rows", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_each_row_of_the_table_reads_its_layout(tmp_path, name, rows, expected):
    copied(tmp_path, name, *rows)
    questions = load_questions(name, data=tmp_path)
    assert list(questions.items) == expected
    known = KNOWN[name]
    assert questions.notes == (
        f"{known.dataset}, {known.split}: {known.licence}, {known.citation}",
    )
    assert questions.source == {**known.source, "revision": "local files"}


def test_all_rows_are_tested_and_listed(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    assert [row[0] for row in ROWS] == list(KNOWN)
    copied(tmp_path, "arc", *ROWS[1][1])
    listed = output(consilience, "suite", "list")
    cited = "CC-BY-SA-4.0, Clark et al. 2018, arXiv:1803.05457"
    assert f"{cited}\n{'':14} {tmp_path / 'arc'}\n" in listed
    assert f"{'':14} Hub: cais/mmlu@c30699e\n" in listed
    assert cs.list_suites() == SUITE_NAMES


def test_a_run_records_the_data_set_and_rotations_keep_the_gold(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    copied(tmp_path, "arc", *ROWS[1][1])
    out = tmp_path / "run"
    arguments = ["--suite", "arc", "--vary", "order=rotations"]
    output(consilience, "probe", "--model", "baseline:majority", *arguments, "--out", out)
    record = json.loads((out / "run.json").read_text())
    assert record["hub"] == ["allenai/ai2_arc", "ARC-Challenge", "test"]
    assert record["warnings"][0].startswith("allenai/ai2_arc, test: ")
    queries = Run.open(out).queries
    prompts = queries.filter(item="S_2")["input"].list.first()
    shown = ["".join(re.findall("^[A-C]. (.)$", prompt, re.MULTILINE)) for prompt in prompts]
    assert shown == ["213", "132", "321"]
    assert {*queries.select("item", "gold").iter_rows()} == {("S_1", "cold"), ("S_2", "3")}


def test_subjects_are_groups_and_another_split_is_another_suite(consilience, tmp_path):
    copied(tmp_path, "mmlu", *ROWS[0][1])
    copied(tmp_path, "mmlu", ROWS[0][1][0], file="dev.jsonl")
    dev = load_questions("mmlu:dev", data=tmp_path)
    assert (dev.name, [one.item for one in dev.items]) == ("mmlu-dev", ["physics-1"])
    run = ["probe", "--model", "baseline:majority", "--suite", "mmlu", "--data-dir", tmp_path]
    run += ["--groups", "physics", "--limit", 1, "--out", tmp_path / "run"]
    shown = output(consilience, *run)
    assert shown.startswith("baseline:majority on mmlu: 1 group, 1 question, ")


def test_questions_that_cannot_be_asked_are_left_out_with_a_note(tmp_path):
    same = {**ROWS[4][1][0], "endings": ["a.", "a.", "b.", "c."]}
    unknown = {**ROWS[4][1][0], "label": ""}
    copied(tmp_path, "hellaswag", same, unknown, ROWS[4][1][1])
    questions = load_questions("hellaswag", data=tmp_path)
    assert [one.gold.text for one in questions.items] == ["turns."]
    (_, note) = questions.notes
    assert note.startswith("2 of 3 questions are left out, such as hellaswag, row ")
    copied(tmp_path, "hellaswag", unknown)
    refused("hellaswag, row 1: no right answer", load_questions, "hellaswag", data=tmp_path)
    assert len(check_suite("hellaswag", tmp_path)) == 1


def test_a_part_of_a_split_is_refused_and_all_parts_are_read(tmp_path):
    for part in (0, 1):
        copied(tmp_path, "gsm8k", *ROWS[7][1], file=f"test-0000{part}-of-00002.parquet")
        if part == 0:
            message = "1 files; expected main/test.jsonl, or all main/test-"
            refused(message, load_questions, "gsm8k", data=tmp_path)
    assert len(load_questions("gsm8k", data=tmp_path)) == 2


def test_another_layout_is_one_message(tmp_path):
    copied(tmp_path, "arc", {"id": "1", "question": "Ice is", "answerKey": "A"})
    message = "arc, row 1: no column 'choices' among id, question, answerKey; expected those of allenai/ai2_arc"
    refused(message, load_questions, "arc", data=tmp_path)
    message = "0 files; expected ARC-Challenge/train.jsonl, or all ARC"
    refused(message, load_questions, "arc:train", data=tmp_path)
    message = "names of columns with the suite 'arc'"
    refused(message, load_questions, "arc", {"options": "choices"}, tmp_path)
    refused("'arc' is a suite of questions", cs.load_suite, "arc", tmp_path)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        files = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server


def test_the_hub_is_asked_once_for_the_files_of_the_split(hub, tmp_path, monkeypatch):
    path = copied(tmp_path / "made", "boolq", *ROWS[3][1])
    hub.repositories["datasets/google/boolq"] = {
        "data/validation-00000-of-00001.parquet": path.read_bytes(), "data/train-00000-of-00001.parquet": b"large",
    }  # fmt: skip
    questions = load_questions("boolq", data=tmp_path)
    assert questions.source == KNOWN["boolq"].source
    assert questions.notes[0].startswith("google/boolq@35b264d, validation: CC-BY-SA-3.0")
    assert list(questions.items) == ROWS[3][2]
    assert not [path for _, path in hub.requests if "train" in path]
    hub.requests.clear()
    assert load_questions("boolq", data=tmp_path).digest == questions.digest and not hub.requests
    message = "'arc' is not in the cache of the Hub and cannot be downloaded"
    refused(message, load_questions, "arc", data=tmp_path)


def test_without_a_network_the_message_says_what_to_do(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    revision, named = KNOWN["arc"].revision, ("--suite", "arc", "--data-dir", tmp_path)
    error = refusal(consilience, "probe", "--model", "baseline:random", *named)
    assert error.count("\n") == 1
    place = f"allenai/ai2_arc/tree/{revision} to {tmp_path / 'arc'}"
    for found in (
        "HF_HUB_OFFLINE is set; expected ARC-Challenge/test-*.parquet of allenai/ai2_arc",
        f"copy https://huggingface.co/datasets/{place}",
    ):
        assert found in error
    snapshot = tmp_path / "cache" / "datasets--allenai--ai2_arc" / "snapshots" / revision
    made = copied(tmp_path / "made", "arc", *ROWS[1][1])
    (snapshot / "ARC-Challenge").mkdir(parents=True)
    (snapshot / "ARC-Challenge" / made.name).write_bytes(made.read_bytes())
    assert load_questions("arc", data=tmp_path).source["revision"] == revision
