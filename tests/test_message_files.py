"""Message lists in and out: pairs for training for consistency, and rows of TRL."""

import json

import pytest

import consilience as cs
from checks import output, refusal, refused

CLEAN, BIASED = "Which? (A) sun (B) moon", "I think (B). Which? (A) sun (B) moon"


def user(text):
    return [{"role": "user", "content": text}]


def answered(text):
    return [{"role": "assistant", "content": text}]


PAIR = {"unbiased_messages": user(CLEAN), "biased_messages": user(BIASED)}
SYSTEM = [{"role": "system", "content": "Be brief."}]


def read(tmp_path, *rows, **columns):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return cs.load_questions(path, columns or None)


@pytest.mark.parametrize(("row", "phrasings", "gold", "options", "group"), [
    ({**PAIR, "ground_truth": "A", "option_labels": ["A", "B"], "bias_type": "suggested_answer",
      "question": "raw"}, (CLEAN, BIASED), "A", ["A", "B"], "suggested_answer"),
    ({**PAIR, "unbiased_messages": [*user(CLEAN), *answered("A")]}, (CLEAN, BIASED), "A", [],
     "pairs"),
    ({**PAIR, "biased_messages": [*SYSTEM, *user(BIASED)], "answer": "A"},
     (CLEAN, f"Be brief.\n\n{BIASED}"), "A", [], "pairs"),
    ({"prompt": user(CLEAN), "completion": answered("A")}, (CLEAN,), "A", [], "pairs"),
    ({"prompt": "2+2=", "completion": "4"}, ("2+2=",), "4", [], "pairs"),
    ({"question": "Q?", "prompt": "no", "completion": "no", "answer": "A"}, ("Q?",), "A", [],
     "pairs"),
])  # fmt: skip
def test_rows_of_messages_are_questions(row, phrasings, gold, options, group, tmp_path):
    (question,) = read(tmp_path, row).items
    assert question.paraphrases == {"": phrasings}
    assert (question.gold.text, [one.text for one in question.options]) == (gold, options)
    assert question.group == group


def test_columns_are_named_as_in_other_files(tmp_path):
    row = {**PAIR, "ground_truth": "A", "bias_type": "cue", "question_id": "q7"}
    (question,) = read(tmp_path, row, answer="ground_truth", item="question_id").items
    assert (question.item, question.group, question.gold.text) == ("q7", "cue", "A")


def test_refused_rows(tmp_path):
    turns = [*user("a"), *answered("b"), *user("c")]
    refused("pairs.jsonl:1: messages of the roles user, assistant, user; expected a text of the user",
            read, tmp_path, {**PAIR, "biased_messages": turns, "answer": "A"})  # fmt: skip
    refused(
        "messages of the roles user",
        read,
        tmp_path,
        {**PAIR, "biased_messages": user([]), "answer": "A"},
    )
    refused("no column 'answer'", read, tmp_path, PAIR)


def test_pairs_are_asked_as_they_are(consilience, tmp_path):
    """The template of the question alone; the rates of the two messages can then be compared."""
    read(tmp_path, {**PAIR, "ground_truth": "A", "option_labels": ["A", "B"]})
    of = ("--suite", "pairs.jsonl", "--template", "{question}", "--option-score", "sum")
    output(
        consilience,
        "probe",
        "--model",
        "baseline:first",
        *of,
        "--vary",
        "paraphrase",
        "--out",
        "run",
    )
    prompts = cs.open_run(tmp_path / "run").answers["variant"].to_list()
    assert prompts == ["paraphrase=1", "paraphrase=2"]
    exported = output(consilience, "suite", "export", *of[1:4], "--vary", "paraphrase")
    assert [json.loads(line)["prompt"] for line in exported.splitlines()] == [CLEAN, BIASED]


def trl(consilience, form, *arguments):
    text = output(consilience, "suite", "export", "own.csv", "--format", form, *arguments)
    return list(map(json.loads, text.splitlines()))


def test_trl(consilience, tmp_path):
    """A group is the rows of an item; the answer is written as its variant says."""
    (tmp_path / "own.csv").write_text("item,question,answer,options\nq,Who?,Ann,Ann;Bob;Eve\n")
    chat = ("--vary", "order=reversed", "--template", "chat")
    first, second = trl(consilience, "trl", *chat)
    assert [row["completion"] for row in (first, second)] == [answered("A"), answered("C")]
    assert first["prompt"][0]["role"] == "user" and "A. Ann" in first["prompt"][0]["content"]
    assert (first["item"], second["variant"], first["gold"]) == ("q", "order=reversed", "Ann")
    first, second = trl(consilience, "trl-preference", *chat)
    assert [row["chosen"] for row in (first, second)] == [answered("A"), answered("C")]
    (one,), (two,) = first["rejected"], second["rejected"]
    assert {one["content"], two["content"]} in ({"B"}, {"A", "C"}), "the same option in both"
    (row,) = trl(consilience, "trl", "--vary", "labels=none")
    assert row["prompt"].endswith("Answer:") and row["completion"] == " Ann"
    assert "expected questions with options" in refusal(
        consilience, "suite", "export", "mini-open", "--format", "trl-preference", "--limit", 1
    )
    assert "expected a suite of questions" in refusal(
        consilience, "suite", "export", "mini", "--format", "trl", "--limit", 1)  # fmt: skip


def test_trl_rows_are_read_again(consilience, tmp_path):
    (tmp_path / "own.csv").write_text("question,answer\nWho?,Ann\n", encoding="utf-8")
    output(consilience, "suite", "export", "own.csv", "--format", "trl", "--template", "chat",
           "--out", "rows.jsonl")  # fmt: skip
    (question,) = cs.load_questions(tmp_path / "rows.jsonl").items
    assert question.gold.text == "Ann" and question.paraphrases[""][0].startswith("Who?")
