"""Reports and comparisons of runs of questions: what a reader sees first, and in which words.

The model of the tests is ``baseline:first``, which chooses the option that is shown first. Eight
questions have two phrasings and three orders of their three options. The right option is the first
one of the file.
"""

import re

import polars as pl
import pytest

import consilience as cs
from checks import output
from consilience.metrics.counts import Prepared
from consilience.report.analysis_tables import differing_lines, in_one_line
from consilience.report.report_page import report_page
from consilience.results.reporting import view_of
from consilience.runs.run import Run

QUESTIONS = pl.DataFrame([
    {"question": f"{word}?", "question_2": f"Say: {word}?", "options": "yes;no;maybe", "answer": "yes",
     "group": "a" if at < 4 else "b"}
    for at, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight"])
])  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions") / "first"
    questions = cs.Questions.from_frame(QUESTIONS, name="quiz")
    cs.evaluate(questions, "baseline:first", out=folder)
    return folder


@pytest.fixture(scope="module")
def view(path):
    run = Run.open(path)
    return view_of(run, run.suite, Prepared(run.answers, run.suite))


@pytest.fixture(scope="module")
def sections(view):
    return {section.id: section for section in report_page([view]).sections}


def test_the_example_has_the_question_and_what_differs(view, sections):
    example = sections["summary"].parts[1]
    assert example.lead.endswith("answers two prompts of one question. The right answer is “yes”.")
    differs = "Only the order of the options differs (order=BCA)"
    assert example.cards == [
        ("Prompt", "Question: one?\nA. yes\nB. no\nC. maybe\nAnswer:", "yes"),
        (differs, "A. no\nB. maybe\nC. yes", "no"),
    ]


def test_prompts_of_one_question_keep_it_and_those_of_several_lose_what_they_share():
    chat = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWho?\nA. {}<|im_end|>\n"
    lines = in_one_line([chat.format("I"), chat.format("you")], shared=False)
    assert lines == ["Who? / A. I", "Who? / A. you"]
    assert in_one_line(["Solved.\nWho?", "Solved.\nWhere?"]) == ["Who?", "Where?"]
    assert in_one_line([]) == []
    assert list(differing_lines("a\nb\nc", "a\nx\ny\nc")) == ["x", "y"]
    assert list(differing_lines("a\na", "a")) == []


def test_the_table_of_examples_has_the_question(consilience, path):
    """All examples may be of one question, so no line of its prompts is left out."""
    command = ("analyze", "examples", path, "--examples", "1")
    out = output(consilience, *command)
    assert re.findall("Question: one\\? / A. (yes|no|maybe) / B. ", out) == ["yes", "no", "maybe"]


def test_a_comparison_is_in_the_words_of_questions(consilience, path, view, tmp_path):
    cs.evaluate(cs.Questions.from_frame(QUESTIONS[:5], name="quiz"), "baseline:random",
                out=tmp_path / "five")  # fmt: skip
    _, out, err = consilience("compare", path, tmp_path / "five", "--format", "csv")
    summarised = [row.label for row in view.summary.rows]
    labels = [row.strip('"') for row in re.findall(r'^(".*?"|[^,]*)', out, re.MULTILINE)]
    assert labels[1 : 1 + len(summarised)] == summarised
    assert "that all runs have, of 5 questions (48 in baseline:first, 30 in baseline:random)" in err
    _, out, err = consilience("compare", path, tmp_path / "five")
    assert "sign flips of questions" in out
    assert not re.search(r"subject|relation|pattern|\bfacts?\b|strict", out + err)


def test_sections_say_what_a_reader_can_conclude(sections):
    """Four questions in a group: 5 variants against the first. Rotated, no right option is first.

    McNemar of 4 against 0: p = 2 / 2 ** 4 = .125, adjusted by Holm over 5 variants at least that.
    """
    said = {name: str(section.parts[0]) for name, section in sections.items()}
    none = "No variant differs from the first variant of the same group in accuracy"
    assert none in said["patterns"]
    assert "The order of the options (order) changes answers most: " in said["factors"]
    assert "variants that differ in nothing else agree in 0.0 % of pairs." in said["factors"]
    words = said["patterns"].replace("patt", "")
    assert not re.search(r"relation|pattern|\bfacts?\b|strict", words)


def test_details_by_metric_have_the_interval_of_the_summary(consilience, path):
    _, summary, _ = consilience("score", path, "--format", "csv")
    _, details, _ = consilience("score", path, "--format", "csv", "--by", "metric")
    lines = [line for out in (summary, details) for line in out.splitlines()]
    first, second = (line.split(",")[1:4] for line in lines if line.startswith("Accuracy"))
    assert first == second
