"""Inputs that somebody made to hang, fill or fool a reader: each is read right, or is one message."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from datetime import date
from decimal import Decimal
from functools import partial

import polars as pl
import pytest

from campaign_cases.files import write_workbook
from checks import output, refusal, refused
from conftest import ROOT
from consilience.authoring.annotation import score_sheets
from consilience.core import free_text
from consilience.core.text import names_a_file
from consilience.endpoints.usage import Journal
from consilience.files import read
from consilience.files.tables import DOCUMENT, lm_eval_rows, read_answer_file, text_of
from consilience.files.write import locked
from consilience.kinds.probing import probe
from consilience.models.functions import texts_of
from consilience.options.probe import ProbeOptions
from consilience.runs.folder import RunFolder, digest_of
from consilience.runs.run import read_answers
from consilience.study.workers import LocalWorkers, Unit, run_units
from consilience.suites import check_suite
from consilience.suites.question_suites import load_questions
from engine_work import factory
from replay_server import completion, replay

HALF = "x \ud83d"
WHOLE = "x \N{REPLACEMENT CHARACTER}"

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 10)
)


def test_half_an_emoji_is_one_replacement_character_and_a_whole_one_stays(tmp_path):
    for file in (tmp_path / "a.json", tmp_path / "a.yaml"):
        file.write_text(r'{"a\ud83d": ["x \ud83d", "\ud83d\ude00", "\\ud83d"]}')
        document = {"a\N{REPLACEMENT CHARACTER}": [WHOLE, "\N{GRINNING FACE}", r"\ud83d"]}
        assert read.read_document(file) == document
    assert text_of(HALF) == WHOLE
    assert texts_of(lambda inputs: [HALF for _ in inputs], [""]) == [WHOLE]


def test_a_reply_that_ends_in_half_an_emoji_completes_its_run(tmp_path):
    """Also where an earlier version kept it in the journal and could not go on."""
    questions = tmp_path / "q.jsonl"
    row = {"item": "i", "question": "Q?", "question_2": "R?", "answer": "x"}
    questions.write_text(json.dumps(row))
    choice = {"message": {"content": HALF}, "finish_reason": "stop"}
    reply = partial(completion, model="m", choices=[choice])
    with replay(lambda path, body, headers: reply(body)) as server:
        options = ProbeOptions(
            model="openai:m", base_url=server.url, suite=str(questions), generate=True,
            vary=("paraphrase=all",), out=tmp_path / "run",
        )  # fmt: skip
        probe(options)
    assert read_answers(tmp_path / "run")["text"].to_list() == [WHOLE, WHOLE]
    journal = Journal(tmp_path / "replies.sqlite")
    journal.keep("key", {"content": HALF})
    journal.close()
    assert Journal(tmp_path / "replies.sqlite").kept("key") == [{"content": WHOLE}]


def test_a_key_twice_is_a_fault_of_a_file_and_not_of_a_reply():
    text = '{"a": 1, "b": {"a": 2, "a": 3}}'
    with pytest.raises(json.JSONDecodeError, match="a second 'a'"):
        read.parse_json(text)
    assert read.parse_json(text, last_wins=True) == {"a": 1, "b": {"a": 3}}


@pytest.mark.parametrize(("name", "text", "message"), [
    ("a.yaml", ALIASES + "questions: [{question: *a9, answer: x}]", "aliases unfold to more"),
    ("a.yaml", "- &q {question: Q, answer: x, context: *q}", "nested too deeply"),
    ("a.yaml", "- question: Q?\n  answer: x\n  answer: y", "a second 'answer' at line 3"),
    ("a.yaml", "- question: Q?\n  answer: !!set {x, y}", "tag .*set' at line 2"),
    ("a.yaml", "- question: Q?\n  answer: !!binary eA==", "tag .*binary' at line 2"),
    ("a.jsonl", '{"question": "Q?", "answer": "x", "answer": "y"}', "jsonl:1: .*second 'answer'"),
    ("a.jsonl", '{"question": "Q?", "answer": NaN}', "jsonl:1: 'answer' is NaN; expected text"),
    ("a.csv", "question,answer,group\nQ?,x,a:b", "a.csv:2: the group 'a:b'"),
])  # fmt: skip
def test_a_question_file_that_is_refused_in_one_message(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    refused(message, load_questions, tmp_path / name)


def test_a_date_is_a_text_and_other_types_are_refused_with_their_name(tmp_path):
    (tmp_path / "a.yaml").write_text("- {question: When, answer: 2020-01-01, 3: &a b, note: *a}")
    (tmp_path / "a.toml").write_text('[[questions]]\nquestion = "When?"\nanswer = 2020-01-01')
    of_dates = pl.DataFrame({"question": ["When?"], "answer": [date(2020, 1, 1)]})
    of_dates.write_parquet(tmp_path / "a.parquet")
    for name in ("a.yaml", "a.toml", "a.parquet"):
        assert load_questions(tmp_path / name).items[0].gold.text == "2020-01-01", name
    for value in (Decimal("1.5"), b"x"):
        of_dates.with_columns(answer=pl.lit(value)).write_parquet(tmp_path / "b.parquet")
        (problem,) = check_suite(str(tmp_path / "b.parquet"))
        assert type(value).__name__ in problem.found and "question 1" in problem.where


def test_a_time_is_a_text(tmp_path):
    """YAML 1.1 reads it as a number with base 60."""
    times = ["10:30", "1:10:30", "12:30.5", "-1:20", "1_0:30"]
    rows = [f"- {{question: When {time}, answer: {time}, distractors: [7]}}\n" for time in times]
    (tmp_path / "a.yaml").write_text("".join(rows))
    assert [one.gold.text for one in load_questions(tmp_path / "a.yaml").items] == times


def test_plain_scalars_of_yaml_are_texts_as_they_are_written(tmp_path):
    """But true, false and whole numbers; Norway is NO, and 1 is the second option."""
    (tmp_path / "a.yaml").write_text(
        "- {question: Norway, answer: NO, options: [SE, NO, DK], language: no}\n"
        "- {question: Python, answer: 3.10, distractors: [007, 1_000], language: no}\n"
        "- {question: Cold, answer: true, language: no}\n"
        "- {question: Second, answer: 1, options: [yes, no], language: no}\n"
    )
    known = load_questions(tmp_path / "a.yaml").items
    assert [one.gold.text for one in known] == ["NO", "3.10", "yes", "no"]
    assert [[*sorted(choice.text for choice in one.options)] for one in known] == [
        ["DK", "NO", "SE"], ["007", "1_000", "3.10"], ["no", "yes"], ["no", "yes"],
    ]  # fmt: skip
    assert {language for one in known for language in one.paraphrases} == {"no"}


def test_answers_of_other_types_are_texts():
    values = (date(2020, 1, 1), Decimal("1.50"), float("nan"), 2.0, [1, 2])
    assert list(map(text_of, values)) == ["2020-01-01", "1.50", None, "2", "[1, 2]"]


def test_a_parquet_file_of_a_few_bytes_has_no_gigabytes_of_text(tmp_path):
    cells = pl.DataFrame({"a": ["y" * 1000]}).select(pl.col("a").repeat_by(400_000).explode())
    cells.write_parquet(tmp_path / "a.parquet")
    refused("at most 1,000 times the size", read.read_parquet, tmp_path / "a.parquet")


def test_ordinary_files_are_read(tmp_path):
    """A cell may be as long as a text of JSONL, and a workbook is read whole."""
    (tmp_path / "a.csv").write_text(f'question,answer,context\nQ?,x,"{"z" * 200_000}"\n')
    ((_, row),) = read.read_rows(tmp_path / "a.csv")
    assert len(row["context"]) == 200_000
    rows = [{"item": f"i{at}", "answer": "x"} for at in range(9)]
    write_workbook(tmp_path / "a.xlsx", rows)
    read.refuse_large_workbook(tmp_path / "a.xlsx")
    pytest.importorskip("fastexcel")
    assert read_answer_file(tmp_path / "a.xlsx").to_dicts() == rows


HEAD = '<row r="1"><c r="A1"><v>1</v></c></row>'


@pytest.mark.parametrize(("sheet", "texts", "message"), [
    (HEAD + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>', "", "1,048,576 rows and 16,384"),
    (HEAD + '<x:row x=">" r="9999999"><x:c r = \'XFD1\'/></x:row>', "", "9,999,999 rows"),
    ("<row>" + "<c><v>1</v></c>" * 3000 + "</row>" + "<row/>" * 3000, "", "3,000 columns"),
    (HEAD + '<row r="99999999"/>', "", "a cell 99999999"),
    (HEAD + '<row><c t="s"><v>0</v></c></row>' * 3000, "<si>" + "y" * 100_000, "texts of 300,0"),
    ("x" * 300_000_000, "", "that unpack to 300,0"),
])  # fmt: skip
def test_a_workbook_that_would_fill_the_memory_is_not_read(sheet, texts, message, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        book.writestr("xl/worksheets/sheet1.xml", sheet)
        book.writestr("xl/sharedStrings.xml", texts)
    refused(message, read.refuse_large_workbook, tmp_path / "a.xlsx")


def test_a_pattern_has_a_limit_in_time(monkeypatch):
    monkeypatch.setattr(free_text, "SECONDS", 0.05)
    rule = free_text.rule_of("regex:answer is (a|aa)+$")
    assert rule.extract("The answer is aaa").answer == "a"
    slow = "answer is " + "a" * 80 + "!"
    refused("longer than 0.05 s for an answer of 91 characters", rule.extract, slow)


def test_what_is_not_a_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with locked(tmp_path / "pipe"):
        pass
    refused("not the folder of a run", RunFolder, tmp_path / "pipe", {})


def test_a_name_that_is_no_file_on_every_system():
    names = ["CON", "nul.txt", "a:b", "*", "a?", "x.", "x ", ".x", "a/b", "\ud83d", "a\n"]
    assert not [name for name in names if names_a_file(name)]


def test_groups_whose_files_are_one_on_some_systems_are_refused_before_they_are_asked(tmp_path):
    message = "differ in more than case and Unicode form"
    for twins in (["Ab", "aB"], ["\u00e9", "e\u0301"]):
        refused(message, RunFolder, tmp_path / "run", {"groups": twins})
    assert not (tmp_path / "run").exists()


def test_exported_cells_are_no_formulas_and_scores_know_their_items(consilience, tmp_path):
    row = {"item": "=1+1", "question": "@x?", "question_2": "R?", "answer": "x"}
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    consilience("suite", "export", "q.jsonl", "--vary", "paraphrase=all", "--out", "e.csv")
    cells = pl.read_csv(tmp_path / "e.csv")
    assert cells["item"].to_list() == ["'=1+1"] * 2
    cells.with_columns(answer=pl.lit("x")).write_csv(tmp_path / "a.csv")
    output(consilience, "score", "a.csv", "--suite", "q.jsonl", "--json")


def test_a_note_is_not_a_thousand_times_a_name(consilience, tmp_path):
    (tmp_path / "a.csv").write_text(f"question,answer,{'c' * 100_000}\nQ?,x,y\n")
    _, out, _ = consilience("suite", "check", "a.csv")
    assert "not used: ccc" in out and len(out) < 2_000


@pytest.mark.parametrize(("change", "message"), [
    ({"testCase": {"metadata": [1]}}, "not of promptfoo"),
    ({"testCase": {"assert": 7}}, "not of promptfoo"),
    ({"prompt": {}, "promptId": None}, ""),
    ({"vars": {"q": "a\x00\n\x1b[2J"}}, ""),
    ({"response": {"output": HALF}}, ""),
])  # fmt: skip
def test_odd_results_of_promptfoo(change, message, consilience, tmp_path):
    entry = {
        "testIdx": 0, "provider": {"id": "p"}, "prompt": {"label": "l"}, "vars": {"q": "Q?"},
        "testCase": {"assert": [{"type": "equals", "value": "x"}]}, "response": {"output": "x"},
    }  # fmt: skip
    entries = [{**entry, "promptIdx": at, "promptId": str(at)} | change for at in (0, 1)]
    (tmp_path / "p.json").write_text(json.dumps({"results": {"results": entries}}))
    status, _, err = consilience("score", "p.json", "--out", "run")
    assert (status, message in err) == (2 if message else 0, True), err
    if not message:
        items = "".join(read_answers(tmp_path / "run")["item"])
        assert not any(ord(character) < 32 for character in items)


def test_workers_that_are_killed_leave_no_temporary_files(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (outcome,) = run_units([Unit("a", "a", ("leave",))], factory, LocalWorkers(1))
    assert outcome.failure is not None
    assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_is_one_line_and_the_status_of_an_interrupt():
    code = """if True:
        import os, signal, sys, time
        from consilience.app import process
        def work():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(9)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(9)
        process.run_process(work)
    """
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    message = "stopped at once; the same command resumes the work\n"
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, message)


@pytest.fixture
def vouched(consilience, write_suite, tmp_path):
    """The folder of a run, and what changes its answers with the digest that vouches for them."""
    assert consilience("probe", "-m", "baseline:majority", "-s", write_suite(), "-o", "run")[0] == 0
    record = json.loads((tmp_path / "run" / "run.json").read_bytes())
    file = tmp_path / "run" / "answers" / f"{next(iter(record['answers']))}.parquet"

    def change(edit):
        mark = pl.read_parquet_metadata(file)["consilience"]
        edit(pl.read_parquet(file)).write_parquet(file, metadata={"consilience": mark})
        record["answers"][file.stem] = digest_of(file)
        (tmp_path / "run" / "run.json").write_text(json.dumps(record))

    return change


@pytest.mark.parametrize(("edit", "message"), [
    (lambda table: table.with_columns(pl.concat_list("variant")), "'variant' of type List"),
    (lambda table: table.with_columns(margin=pl.lit("x")), "'margin' of type String"),
    (lambda table: table.drop("gold"), "no column 'gold'"),
])  # fmt: skip
def test_a_digest_does_not_vouch_for_the_columns_of_answers(edit, message, vouched, consilience):
    vouched(edit)
    gate = ("gate", "run", "--rule", "accuracy >= 0.1")
    for command in (("score", "run"), gate):
        assert message in refusal(consilience, *command), command


def test_a_damaged_table_of_metrics_is_named(vouched, consilience, tmp_path):
    vouched(lambda table: table)
    whole = (tmp_path / "run" / "metrics.csv").read_text()
    for content in ("a,b\n1,2\n", whole.replace("value", "x", 1)):
        (tmp_path / "run" / "metrics.csv").write_text(content)
        assert "a damaged table of metrics" in refusal(consilience, "score", "run")


@pytest.mark.parametrize(("name", "text", "message"), [
    ("a.jsonl", '{"item": "i", "variant": "paraphrase=1null", "answer": "x"}', "no variant"),
    ("a.toml", "rule = " + "[" * 5000, "not TOML"),
])  # fmt: skip
def test_files_of_a_score_that_are_refused(name, text, message, consilience, tmp_path):
    (tmp_path / name).write_text(text)
    row = '{"item": "i", "question": "Q?", "question_2": "R?", "answer": "x"}'
    (tmp_path / "q.jsonl").write_text(row)
    more = ("--config", name) if name == "a.toml" else ()
    assert message in refusal(consilience, "score", name, "--suite", "q.jsonl", *more)


def test_a_key_of_sheets_and_a_row_of_a_log_that_are_not_whole_are_named(tmp_path):
    shutil.copytree(ROOT / "tests" / "data" / "campaign" / "sheets", tmp_path / "sheets")
    file = tmp_path / "sheets" / "key.json"
    key = json.loads(file.read_bytes())
    texts = next(iter(key["items"].values()))["texts"]
    texts[next(iter(texts))] = [[], "b"]
    file.write_text(json.dumps(key))
    refused("no key of sheets", score_sheets, tmp_path / "sheets")
    row = {"doc_id": 1, "doc": dict.fromkeys(DOCUMENT, 1)}
    refused("a.jsonl:2: filtered_resps without", lambda: list(lm_eval_rows([("a.jsonl:2", row)])))
