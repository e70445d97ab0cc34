"""Runs of questions with expectations: they are kept, counted, compared and shown."""

import math
import re
import runpy
import shutil

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal, refused
from conftest import ROOT
from consilience.models.functions import Function
from consilience.options.probe import ProbeOptions
from consilience.plans.factors import factors_of
from consilience.probing.probe import probe
from consilience.report.analysis_tables import violation_examples
from consilience.report.comparison_tables import comparison_table
from consilience.runs.run import Run
from consilience.suites import check_suite
from consilience.suites.expectations import with_expectations
from consilience.suites.question_suites import load_questions, select_questions
from consilience.suites.questions import Questions

QUESTIONS = """item,group,question,question_2,options,answer
a,one,Is A true?,Does A hold?,yes;no,yes
not-a,one,Is A false?,Does A not hold?,yes;no,no
b,one,Is B true?,Does B hold?,yes;no,yes
not-b,one,Is B false?,Does B not hold?,yes;no,no
c,two,Who has C?,Whose is C?,Ann;Bob;Eve,Ann
d,two,Who has D?,Whose is D?,Ann;Bob;Eve,Ann
"""
EXPECTATIONS = """kind,item,other_item,map
different,a,not-a,
different,b,not-b,
implied,a,c,yes -> Ann
same,c,d,
"""


def answers(**options):
    """A model that answers by the words of the question; ``yes`` elsewhere."""

    def answer(prompts):
        for prompt in prompts:
            question = prompt.partition("Question: ")[2].partition("\n")[0]
            yield options.get(question.translate({ord(" "): "_", ord("?"): ""}), "yes")

    return Function(lambda prompts: list(answer(prompts)))


FIRST = {"Is_A_false": "no", "Is_B_false": "no", "Who_has_C": "Ann", "Whose_is_C": "Bob",
         "Who_has_D": "Bob", "Whose_is_D": "Ann"}  # fmt: skip
"""Phrasing 1 of a and b is answered without contradiction, phrasing 2 with yes and yes."""


def written(folder, questions, expectations):
    """A new folder with these questions and expectations."""
    folder.mkdir()
    (folder / "questions.csv").write_text(questions, encoding="utf-8")
    (folder / "expectations.csv").write_text(expectations, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "facts", QUESTIONS, EXPECTATIONS)


def ask(folder, name, model, **options):
    run = folder.parent / name
    options = {"vary": ["paraphrase", "order=rotations"]} | options
    return run, probe(ProbeOptions(suite=str(folder), out=run, **options), model=model)


def values(metrics, metric):
    rows = metrics.filter(metric=metric).select("over", "group", "level", "value").iter_rows()
    return {(group or over, level): value for over, group, level, value in rows}


def test_a_run_is_counted_by_its_expectations_without_its_suite(folder):
    """By hand, of two orders and two phrasings each; c has three orders, two of them shared with a.

    different: phrasing 2 of both: 1/2. implied: c is Ann in phrasing 1 only: 1/2. same: 1.
    Of 6 questions half have other answers by chance.
    """
    run, counted = ask(folder, "run", answers(**FIRST))
    few = "With 6 questions the chance-corrected consistency often comes out too low; about "
    assert any(note.startswith(few) for note in counted.notes)
    rates = values(counted.metrics, "violation_rate")
    assert (rates["one", "different"], rates["one", "implied"]) == (1 / 2, 1 / 2)
    assert rates["one", ""] == rates["all", "different"] == 1 / 2
    assert rates["two", "same"] == rates["two", ""] == 1
    # The second answers are no in phrasing 1 and yes in phrasing 2, of both expectations.
    assert values(counted.metrics, "chance_violation_rate")["one", "different"] == 1 / 2
    shown = {row.label: row for row in counted.summary.rows}
    assert shown["Violations, different"].value == shown["Violations, different"].chance == 1 / 2
    assert list(shown)[-3:] == [f"Violations, {kind}" for kind in ("same", "different", "implied")]
    shutil.rmtree(folder)
    assert cs.open_run(run).metrics.equals(counted.metrics)
    assert len(Run.open(run).suite.expectations) == 4


def test_a_prompt_of_a_chat_is_shown_without_its_special_tokens():
    """ChatML, Llama 3, Gemma, Mistral and Zephyr; what is no special token stays."""
    about = "Question: Is <b>A</b> not true?\n[1] a|b\nAnswer:"
    chats = [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
        "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
        "<s>[INST] {} [/INST]",
        "<|user|>\n{}</s>\n<|assistant|>\n",
    ]
    for chat in chats:
        prompts = [chat.format(text) for text in ("Question: Is A true?\nAnswer:", about)]
        same = {"group": "g", "kind": "same", "example": 1, "variant": "v", "prompt": prompts}
        rows = pl.DataFrame(
            same | {"item": ["a", "b"], "answer": ["yes", "no"], "permitted": ["", "yes"]}
        )
        (examples,) = violation_examples(rows)
        assert [row[0] for row in examples.rows] == [
            "Question: Is A true? / Answer:", "Question: Is <b>A</b> not true? / [1] a|b / Answer:",
        ]  # fmt: skip


def test_two_runs_are_compared(folder):
    """different: 1/2 and 0. The chance level is compared too."""
    first, _ = ask(folder, "first", answers(**FIRST))
    right = {**FIRST, "Does_A_not_hold": "no", "Does_B_not_hold": "no"}
    second, _ = ask(folder, "second", answers(**right))
    compared = cs.compare(first, second)
    table, suite = compared.table, compared.suite
    rows = table.filter(metric="violation_rate", level="different")
    by_group = dict(rows.select("over", "difference").iter_rows())
    assert by_group == dict.fromkeys(("group", "mean", "all"), -1 / 2)
    shown = {str(row[0]): row[3] for row in comparison_table(table, suite).rows}
    assert shown["Violations, different"] == -1 / 2
    assert {"Violations, implied", "Violations, same"} <= set(shown)


OPEN = """item,question,answer
is,Which city is the capital of Italy?,Rome
is-not,Which city is not the capital of Italy?,Milan
"""


def test_answers_to_open_questions_are_the_same_if_their_normalized_texts_are(tmp_path):
    """Rome and 'rome.' are the same."""
    folder = written(tmp_path / "open", OPEN, "kind,item,other_item\ndifferent,is,is-not\n")
    both = ("Rome", "rome.")
    model = Function(lambda prompts: [both[" not " in one] for one in prompts])
    counted = probe(ProbeOptions(suite=str(folder), out=folder / "run"), model=model)
    assert values(counted.metrics, "violation_rate")["questions", "different"] == 1


def test_expectations_of_questions_that_were_not_asked_are_named(folder):
    _, counted = ask(folder, "run", answers(**FIRST), groups=["two"])
    unchecked = (
        "3 of 4 expectations were not checked: not all of their questions were asked, such as"
    )
    assert any(note.startswith(unchecked) for note in counted.notes)


def test_a_sample_has_questions_with_those_that_are_linked_to_them():
    """Of the 24 mothers and the 24 children as many, and each with the other of its pair."""
    questions = load_questions(str(ROOT / "examples" / "consistency" / "reversal"))
    sampled = select_questions(questions, None, 5, 0)
    numbers = {name: sorted(question.item.partition("-")[2] for question in of)
               for name, of in sampled.groups.items()}  # fmt: skip
    assert (len(numbers["mother"]), numbers["mother"]) == (5, numbers["child"])
    assert len(select_questions(questions, None, None, 0)) == 48
    assert select_questions(questions, None, 5, 1).items != sampled.items


def test_open_questions_with_expectations_need_no_variants(tmp_path):
    """One phrasing, no options: without expectations there would be nothing to compare."""
    questions = "item,question,answer\na,Who has A?,Ann\nb,What has Ann?,A\n"
    expected = "kind,item,other_item,map\nimplied,a,b,Ann -> A\n"
    folder = written(tmp_path / "open", questions, expected)
    assert factors_of(ProbeOptions(), load_questions(str(folder))) == []


ONE = "item,question,options,answer\na,Is A true?,yes;no,yes\n"


@pytest.mark.parametrize(("rows", "vary", "variant"), [
    (ONE, ["order=AB"], "order=AB"),
    (ONE, ["labels=1"], "labels=1"),
    ("item,question,answer\na,Who has A?,Ann\n", None, "base"),
])  # fmt: skip
def test_one_variant_alone_is_asked(tmp_path, rows, vary, variant):
    """What needs two variants has no data."""
    suite = tmp_path / "q.csv"
    suite.write_text(rows, encoding="utf-8")
    named = {"suite": str(suite), "out": tmp_path / "run", "model": "baseline:random"}
    counted = probe(ProbeOptions(**named, vary=vary))
    assert Run.open(tmp_path / "run").answers["variant"].to_list() == [variant]
    numbers = {row.metric: row.value for row in counted.summary.rows}
    assert (numbers["accuracy"] in (0, 1), math.isnan(numbers["consistency"])) == (True, True)


@pytest.mark.parametrize("answer_to_b", ["no", "maybe"])
def test_a_kept_run_keeps_its_expectations(folder, consilience, answer_to_b):
    """Maybe is no option: it violates what is expected of the answer to b."""
    run, counted = ask(folder, "run", answers(**{**FIRST, "Is_B_false": answer_to_b}))
    again = cs.open_run(run)
    for one in (counted, again):
        labels = [row.label for row in one.summary.rows if row.metric == "violation_rate"]
        assert labels == [f"Violations, {kind}" for kind in ("same", "different", "implied")]
    assert again.metrics.equals(counted.metrics)
    assert again.suite.expectations == load_questions(str(folder)).expectations
    output(consilience, "report", run)
    assert "Violated expectations, in percent" in (run / "report.html").read_text(encoding="utf-8")
    status, _, err = consilience("gate", run, "--rule", "violation_rate of different <= 99 %")
    assert status in (0, 3) and err.count("note:") == 1


def test_suite_check_covers_expectations(folder):
    (folder / "expectations.csv").write_text("kind,item,other_item\nsame,a,nota\nsome,a,b\n")
    problems = [str(problem) for problem in check_suite(str(folder))]
    assert len(problems) == 2
    assert "expectations.csv:2: no question 'nota'. Did you mean 'not-a'?" in problems[0]
    assert refused("", load_questions, str(folder)).splitlines() == problems


GUIDE = (ROOT / "docs" / "expectations.md").read_text(encoding="utf-8")


def test_the_rows_of_the_guide_fit_the_examples(tmp_path):
    """All rows of its CSV file are about questions of the examples."""
    suites = sorted((ROOT / "examples" / "consistency").glob("*/questions.csv"))
    items = [item for path in suites for item in load_questions(str(path)).items]
    questions = Questions("all", tuple(items))
    (text,) = re.findall(r"```csv\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "expectations.csv").write_text(text, encoding="utf-8")
    problems = []
    read = with_expectations(questions, tmp_path, problems)
    assert (problems, len(read.expectations)) == ([], 5)


def test_the_example_converts_a_file_of_becel(tmp_path, monkeypatch):
    """Rows in the layout of BECEL's boolq/negational.tsv become questions and expectations."""
    (tmp_path / "negational.tsv").write_text(
        "index\tquestion\tpassage\tlabel\tquestion_neg\tneg_label\ttag\n"
        "0\tis tea hot\tTea is hot.\t1\tis tea cold\t0\tantonym\n"
        '1\tis ice "hot"\t"Ice is ""cold""."\t0\tis ice "cold"\t1\tantonym\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "becel.py"))
    questions = load_questions("boolq-negational")
    golds = {question.item: question.gold.text for question in questions.items}
    assert golds == {"0": "yes", "0-neg": "no", "1": "no", "1-neg": "yes"}
    assert questions.items[2].context == 'Ice is "cold".'
    assert [one.kind for one in questions.expectations] == ["implied", "implied"]


def test_the_commands_read_a_suite_and_its_runs(folder, consilience):
    """suite check, the tables of compare, and the section of a report."""
    counts = "2 groups, 6 questions with options, 12 phrasings, 4 expectations"
    assert output(consilience, "suite", "check", folder).endswith(f"{folder}: good; {counts}\n")
    first, _ = ask(folder, "first", answers(**FIRST))
    second, _ = ask(folder, "second", answers())
    output(consilience, "compare", first, second, "--by", "metric")
    page = folder.parent / "report.html"
    output(consilience, "report", first, second, "--out", page)
    text = page.read_text(encoding="utf-8")
    assert "Violated expectations, in percent" in text
    assert text.count(": examples of violations</p>") >= 2  # one a run
    (folder / "expectations.csv").write_text("kind,item,other_item\nsame,a,a\n")
    assert "'a' is compared with itself" in refusal(consilience, "suite", "check", folder)
