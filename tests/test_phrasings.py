"""Phrasings of one's own questions: proposed by rule or by a model, accepted, added in columns."""

import json
import re
import shlex

import numpy as np
import polars as pl
import pytest

from checks import output, refusal, refused
from conftest import cases
from consilience.authoring import rewriting
from consilience.authoring.rewriting import draft_rewrites, drafts_by_rule
from consilience.options.suites import RewriteOptions
from consilience.suites.question_suites import load_questions, suite_of_phrasings
from consilience.suites.questions import Questions
from replay_server import replay
from test_rewrite import ScriptedWriter, WordJudge

ROWS = [
    {"item": "au", "question": "What is the capital of Australia?", "answer": "Canberra", "options": ["Sydney", "Canberra"]},
    {"item": "legs", "question": "How many legs do 2 spiders have?", "answer": "16", "options": ["8", "16"]},
]  # fmt: skip


def suite_of(*rows):
    return suite_of_phrasings(Questions.from_frame(pl.DataFrame(rows)))


@pytest.mark.parametrize(("question", "forms"), cases("phrasing_rules"))
def test_rules_keep_the_meaning_or_do_not_apply(question, forms):
    suite = suite_of(ROWS[0] | {"question": question})
    drafts = drafts_by_rule(suite)
    assert [f"{draft.edit}: {draft.pattern}" for draft in drafts] == forms
    assert all(draft.source == "rule" and draft.reason for draft in drafts)
    is_open = suite_of({"question": question, "answer": "x"})
    left = [draft.edit for draft in drafts_by_rule(is_open)]
    assert left == [one.split(":")[0] for one in forms if "of these" not in one.split(":")[0]]


def test_what_a_model_writes_is_a_question_with_the_numbers_and_without_the_answer():
    texts = [
        "Canberra.", "Is Canberra the capital of Australia?", "=What is the capital?",
        "Sure!\n1. **Which city is the capital of Australia?**", "WHAT IS THE CAPITAL OF AUSTRALIA?",
        "which city is the capital of Australia ?", "What is not the capital of Australia?", "",
    ]  # fmt: skip
    spiders = ["How many legs do 3 spiders have?"] * 7 + ["What number of legs do 2 spiders have?"]
    writer = ScriptedWriter({"Australia": texts, "spiders": spiders})
    drafts, refusals = draft_rewrites(suite_of(*ROWS), writer, 8)
    assert [draft.pattern for draft in drafts] == [
        "Which city is the capital of Australia?", "What number of legs do 2 spiders have?",
    ]  # fmt: skip
    assert [one.reason for one in refusals if one.relation == "au"] == [
        "no question", "answer", "no question", "same as the first phrasing", "duplicate",
        "numbers or negation", "no plain words",
    ]  # fmt: skip
    assert {one.reason for one in refusals if one.relation == "legs"} == {"numbers or negation"}


@pytest.mark.parametrize(("base", "text", "reasons"), [
    ("How many legs has a spider?", "What number of limbs does one spider own?", []),
    ("Wie viele Beine hat eine Spinne?", "How many legs does a spider have?", ["language"]),
])  # fmt: skip
def test_a_question_that_names_no_language_may_be_english(base, text, reasons):
    suite = suite_of({"question": base, "answer": "8"})
    _, refusals = draft_rewrites(suite, ScriptedWriter({base: [text]}), 1)
    assert [one.reason for one in refusals] == reasons


def rewritten(consilience, table, *more):
    out = output(consilience, "suite", "rewrite", table, "--out", "r.csv", *more)
    return out, pl.read_csv("r.csv", infer_schema=False).rows(named=True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_commands_make_a_suite_of_four_phrasings_and_a_third_adds_nothing(consilience, here):
    table = 'question;question_2;note;answer;options\r\nHow many legs has a spider?;;x;8;"6;8"\r\n'
    table += 'Which café is it?;Name the café.;;A;"A;B"\r\n'
    (here / "q.csv").write_bytes(table.encode("cp1252"))
    _, rows = rewritten(consilience, "q.csv")
    assert len(rows) == 3 + 4 and {row["accept"] for row in rows} == {"yes"}
    assert rows[0] == {
        "accept": "yes", "item": "q-1", "question": "Please tell me: How many legs has a spider?",
        "origin": "rewritten", "source": "rule", "parent": "How many legs has a spider?",
        "edit": "politeness", "reason": "only courtesy is added",
    }  # fmt: skip
    text = (here / "r.csv").read_text(encoding="utf-8-sig").replace("yes,q-2", "no,q-2", 1)
    (here / "r.csv").write_text(text)
    before = load_questions("q.csv")
    first = output(consilience, "suite", "import", "r.csv", "--into", "q.csv")
    assert "added:           6 phrasings" in first
    after = load_questions("q.csv")
    assert [one.phrasings for one in after.items] == [1 + 3, 2 + 3]
    for old, new in zip(before.items, after.items, strict=True):
        assert new.paraphrases[""][: old.phrasings] == old.paraphrases[""]
        assert (new.options, new.gold, new.item) == (old.options, old.gold, old.item)
    header, one, two = (here / "q.csv").read_text(encoding="utf-8-sig").splitlines()
    assert header == "question;question_2;note;answer;options;question_3;question_4;question_5"
    assert one.startswith("How many legs has a spider?;Please tell me:") and one.endswith("?;")
    assert two.startswith('Which café is it?;Name the café.;;A;"A;B";')
    audit = json.loads(output(consilience, "suite", "audit", "q.csv", "--json"))
    assert not audit["counts"]["same_phrasings"], "case alone is a phrasing on purpose"
    saved = (here / "q.csv").read_bytes()
    again = output(consilience, "suite", "import", "r.csv", "--into", "q.csv")
    assert "6 phrasings left out" in again and (here / "q.csv").read_bytes() == saved


def test_the_commands_that_are_printed_name_columns_and_read_what_excel_saves(consilience, here):
    """Spaces around the joined columns, proposals in Windows-1252 with semicolons."""
    rows = ["Frage,Richtig,Falsch", "Which café is old?,Älter,Neu", "Which café is new?,Neu,Alt"]
    (here / "q.csv").write_text("\n".join(rows))
    columns = "question=Frage,answer=Richtig,options=Richtig + Falsch"
    command = ("suite", "rewrite", "q.csv", "--columns", columns, "--out", "r.csv")
    then = output(consilience, *command).partition("Then: consilience ")[2]
    assert "options=Richtig+Falsch" in then
    text = (here / "r.csv").read_text(encoding="utf-8-sig").replace(",", ";")
    (here / "r.csv").write_bytes(text.encode("cp1252"))
    status, out, err = consilience(*shlex.split(then))
    assert status == 0 and "text in Windows-1252" in err
    check = out.partition("Check: consilience ")[2]
    assert "2 questions" in output(consilience, *shlex.split(check))


def test_questions_of_several_rows_keep_the_order_of_their_phrasings(consilience, here):
    (here / "s").mkdir()
    rows = ["item,language,question,answer", "a,en,What is 1 + 1?,2", "a,en,How much is 1 + 1?,2"]
    (here / "s" / "questions.csv").write_text("\n".join([*rows, "a,de,Was ist 1 + 1?,2", ""]))
    proposal = {"item": "a", "question": "=1+1 is what?", "origin": "written", "language": "en"}
    german = proposal | {"question": "Wie viel ist 1 + 1?", "language": "de"}
    (here / "r.jsonl").write_text(f"{json.dumps(proposal)}\n{json.dumps(german)}\n")
    out = output(consilience, "suite", "import", "r.jsonl", "--into", "s")
    assert "added:           2 phrasings\n" in out
    (item,) = load_questions("s").items
    assert item.paraphrases["de"] == ("Was ist 1 + 1?", "Wie viel ist 1 + 1?")
    (here / "r.jsonl").write_text(
        json.dumps(german | {"question": "Et ?", "language": "fr"}) + "\n"
    )
    found = refusal(consilience, "suite", "import", "r.jsonl", "--into", "s")
    assert "a phrasing in 'fr' of 'a'; expected a language that the question is in" in found
    (item,) = load_questions("s").items
    assert item.paraphrases["en"] == ("What is 1 + 1?", "How much is 1 + 1?", "=1+1 is what?")


def test_phrasings_of_a_question_that_moved_are_refused(consilience, here):
    """Questions without an item are numbered, so a new row gives the others new numbers."""
    lines = ["question,answer", "How many legs has a spider?,8", "Who wrote Hamlet?,Shakespeare"]
    (here / "n.csv").write_text("\n".join(lines))
    output(consilience, "suite", "rewrite", "n.csv", "--out", "r.csv")
    (here / "n.csv").write_text("\n".join([lines[0], "Where is Oslo?,Norway", *lines[1:]]))
    status, out, _ = consilience("suite", "import", "r.csv", "--into", "n.csv")
    assert status == 2 and "'How many legs has a spider?' is no phrasing of 'n-1'" in out


def test_proposals_in_csv_keep_texts_that_look_like_formulas(consilience, here):
    (here / "n.csv").write_text("question,answer\n-40 Degrees Celsius is what?,-40\n")
    output(consilience, "suite", "rewrite", "n.csv", "--out", "r.csv")
    output(consilience, "suite", "import", "r.csv", "--into", "n.csv")
    (texts,) = load_questions("n.csv").items[0].paraphrases.values()
    assert "-40 degrees celsius is what?" in texts and not any(text[0] == "'" for text in texts)


def test_phrasings_are_added_in_their_language_whatever_the_case_of_the_header(consilience, here):
    rows = ["Item,Language,Question,Answer", "a,en,What is 1 + 1?,2", "a,en,How much is 1 + 1?,2"]
    (here / "n.csv").write_text("\n".join([*rows, "a ,de,Was ist 1 + 1?,2"]))
    german = {"item": "a", "question": "Wie viel?", "origin": "written", "language": "de"}
    (here / "r.jsonl").write_text(json.dumps(german))
    output(consilience, "suite", "import", "r.jsonl", "--into", "n.csv")
    texts = load_questions("n.csv").items[0].paraphrases
    assert texts["en"] == ("What is 1 + 1?", "How much is 1 + 1?")
    assert texts["de"] == ("Was ist 1 + 1?", "Wie viel?")


@pytest.mark.parametrize(("row", "into", "message"), [
    ({"item": "q-7"}, "q.jsonl", "no question 'q-7'"),
    ({"accept": "maybe"}, "q.jsonl", "the accept 'maybe'; expected yes, no"),
    ({}, "new", "phrasings of questions; expected the file or the folder.*--into questions.csv"),
    ({}, "mini-questions", "--into mini-questions with phrasings of questions"),
    ({}, "q.yaml", "q.yaml: phrasings are added to tables only.*Save the questions as CSV"),
])  # fmt: skip
def test_phrasings_that_cannot_be_added(row, into, message, consilience, here):
    question = {"question": "What is it?", "answer": "x"}
    for name in ("q.jsonl", "q.yaml"):
        text = json.dumps(question if name == "q.jsonl" else [question])
        (here / name).write_text(text + "\n")
    proposal = {"item": "q-1", "question": "Which is it?", "origin": "written"} | row
    (here / "r.jsonl").write_text(json.dumps(proposal) + "\n")
    status, out, err = consilience("suite", "import", "r.jsonl", "--into", into)
    assert status == 2 and re.search(message, out + err)
    assert "question_2" not in (here / "q.jsonl").read_text()


def test_a_model_behind_a_url_and_embeddings_as_the_judge(consilience, here):
    pl.DataFrame(ROWS[:1]).with_columns(pl.col("options").list.join(";")).write_csv("q.csv")
    reply = {
        "choices": [
            {
                "message": {"content": "Which city is the capital of Australia?"},
                "finish_reason": "stop",
            }
        ]
    }
    with replay(lambda path, body, headers: reply) as server:
        options = (
            "--model",
            "tiny",
            "--base-url",
            server.url,
            "--samples",
            "1",
            "--temperature",
            "0",
        )
        out, rows = rewritten(consilience, "q.csv", *options)
    assert "7 proposals for 1 of 1 question\n" in out
    assert rows[-1]["source"] == "openai:tiny" and rows[-1]["reason"] == rewriting.UNREAD

    class Cosine(WordJudge):
        def meaning(self, pairs):
            return np.array([0.25 if "city" in "".join(pair) else 1 for pair in pairs])

    given = RewriteOptions("q.csv", here / "p.jsonl", min_meaning=0.5)
    suite = suite_of_phrasings(load_questions("q.csv"))
    writer = ScriptedWriter({"Australia": ["Which city is the capital of Australia?"] * 8})
    result = rewriting.rewrite_suite(suite, writer, Cosine(), given, measured_on=suite)
    assert result.reasons == {"duplicate": 7, "meaning": 1}
    assert {one.scores["meaning"] for one in result.proposals} == {1}, "rules are not refused"
    message = "--min-meaning without a judge"
    refused(message, rewriting.rewrite_suite, suite, writer, None, given, measured_on=suite)
    for name, found in (
        ("none/p.csv", "none: no such folder"),
        ("p.tsv", "ends in .jsonl or .csv"),
    ):
        assert found in refusal(consilience, "suite", "rewrite", "q.csv", "--out", name)


def test_without_a_model_a_question_in_another_language_has_a_note(consilience, here):
    (here / "q.jsonl").write_text('{"question": "Was ist das?", "answer": "x", "language": "de"}\n')
    status, out, err = consilience("suite", "rewrite", "q.jsonl", "--out", "r.jsonl")
    assert status == 0 and "0 proposals for 0 of 1 question" in out
    assert "nothing new by rule for 1 question, such as q-1: rules are for English questions" in err
    assert "there is a file already" in refusal(
        consilience, "suite", "rewrite", "q.jsonl", "--out", "q.jsonl"
    )
