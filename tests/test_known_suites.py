"""Suites that people know: each row of the table, read from files in the layout of the Hub."""

import json
import re

import polars as pl
import pytest
from huggingface_hub import constants

import consilience as cs
from checks import output, refusal, refused
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
    choices = tuple(map(Choice, options))
    return Question(
        name, group, {"": (text,)}, choices[gold] if options else Choice(gold), choices, context
    )


def labelled(*texts, labels="ABCDE"):
    return {"text": list(texts), "label": list(labels[: len(texts)])}


ICE, FIRE = ["hot", "cold", "dry", "loud"], ["hot", "cold"]
YES_NO = (Choice("yes", ("true",)), Choice("no", ("false",)))

ROWS = [
    ("mmlu",
     [{"question": "Ice is", "subject": "physics", "choices": ICE, "answer": 1},
      {"question": "How big is |x| for\nx = -2?", "subject": "algebra", "choices": ["|x|", "2", "0", "-2"], "answer": 1},
      {"question": "Fire is", "subject": "physics", "choices": ICE, "answer": 0}],
     [item("physics-1", "physics", "Ice is", 1, ICE),
      item("algebra-1", "algebra", "How big is |x| for\nx = -2?", 1, ["|x|", "2", "0", "-2"]),
      item("physics-2", "physics", "Fire is", 0, ICE)]),
    ("arc",
     [{"id": "S_1", "question": "Ice is", "choices": labelled(*ICE), "answerKey": "B"},
      {"id": "S_2", "question": "Wheels of a tricycle?", "choices": labelled("2", "1", "3", labels="123"), "answerKey": "3"}],
     [item("S_1", "arc", "Ice is", 1, ICE),
      item("S_2", "arc", "Wheels of a tricycle?", 2, ["2", "1", "3"])]),
    ("arc-easy",
     [{"id": "S_3", "question": "One more than none?", "choices": labelled("2", "1", labels="12"), "answerKey": "2"}],
     [item("S_3", "arc-easy", "One more than none?", 1, ["2", "1"])]),
    ("boolq",
     [{"question": "is ice cold", "answer": True, "passage": "Ice is cold."},
      {"question": "is fire cold", "answer": False, "passage": "Fire is hot."}],
     [Question("boolq-1", "boolq", {"": ("is ice cold?",)}, YES_NO[0], YES_NO, "Ice is cold."),
      Question("boolq-2", "boolq", {"": ("is fire cold?",)}, YES_NO[1], YES_NO, "Fire is hot.")]),
    ("hellaswag",
     [{"ind": 7, "activity_label": "Making tea", "ctx": "[header] How to make tea [title] Boil water. [step] Then you", "ctx_a": "", "ctx_b": "",
       "endings": ["pour it.", "[substeps] freeze it.", "sing.", "paint."], "label": "0", "split_type": "indomain"},
      {"ind": 8, "activity_label": "Rowing", "ctx": "A man rows. He", "ctx_a": "", "ctx_b": "",
       "endings": ["flies.", "turns.", "melts.", "rings."], "label": "1", "split_type": "zeroshot"}],
     [item("hellaswag-1", "hellaswag", "Which ending fits best? Making tea: How to make tea. Boil water. Then you", 0,
           ["pour it.", " freeze it.", "sing.", "paint."]),
      item("hellaswag-2", "hellaswag", "Which ending fits best? Rowing: A man rows. He", 1,
           ["flies.", "turns.", "melts.", "rings."])]),
    ("truthfulqa",
     [{"question": "What does ice do when heated?", "mc1_targets": {"choices": ["It melts", "It sings", "It grows"], "labels": [1, 0, 0]},
       "mc2_targets": {"choices": ["It melts"], "labels": [1]}},
      {"question": "What does fire do?", "mc1_targets": {"choices": ["It burns", "It rains"], "labels": [1, 0]},
       "mc2_targets": {"choices": ["It burns"], "labels": [1]}}],
     [item("truthfulqa-1", "truthfulqa", "What does ice do when heated?", 1, ["It sings", "It melts", "It grows"]),
      item("truthfulqa-2", "truthfulqa", "What does fire do?", 1, ["It rains", "It burns"])]),
    ("commonsenseqa",
     [{"id": "c1", "question": "Where is ice?", "question_concept": "ice", "choices": labelled("oven", "sun", "freezer", "lamp", "fire"), "answerKey": "C"}],
     [item("c1", "commonsenseqa", "Where is ice?", 2, ["oven", "sun", "freezer", "lamp", "fire"])]),
    ("gsm8k",
     [{"question": "Two boxes of 600 eggs?", "answer": "600 + 600 = <<600+600=1200>>1200\n#### 1,200"}],
     [item("gsm8k-1", "gsm8k", "Two boxes of 600 eggs?", "1,200")]),
]  # fmt: skip


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
