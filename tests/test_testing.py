"""Consistency as a pytest test: items that disagree, their messages, cases, and shared runs."""

import os
import subprocess
import sys

import pytest

import consilience as cs
from checks import refused
from conftest import ROOT
from consilience.analysis.examples import item_agreement
from consilience.testing import Answers, assert_consistent

QUESTIONS = """\
item,group,question,question_2,answer,options
sea,nature,Which animal swims?,What animal swims?,whale,whale;cat
land,nature,Which animal meows?,What animal meows?,cat,whale;cat
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "questions.csv"
    path.write_text(QUESTIONS)
    return path


def first_label(prompts):
    """Chooses the first option that is shown: another one in each order."""
    return ["A"] * len(prompts)


def cat(prompts):
    return ["cat"] * len(prompts)


def test_pairs_of_an_item_that_agree_are_those_of_the_metric(file):
    """Two phrasings in two orders: of four answers two and two are the same, in 2 of 6 pairs."""
    result = cs.evaluate(file, first_label)
    table = item_agreement(result.answers, result.suite, result.protocol)
    first, second = "paraphrase=1, order=AB", "paraphrase=1, order=BA"
    assert table.rows() == [("nature", of, 2, 6, first, second, 0.5) for of in ("sea", "land")]


def test_sentence_pairs_compare_the_original_with_each_form(tmp_path):
    data = tmp_path / "mrpc.tsv"
    data.write_text("index\tsentence1\tsentence2\tlabel\n0\tA b.\tC d.\t1\n1\tE f.\tG h.\t0\n")

    def longer_first(pairs):
        return ["equivalent" if first < second else "not_equivalent" for first, second in pairs]

    with pytest.raises(AssertionError) as failed:
        assert_consistent(longer_first, "mrpc", data=data, perturbations="reverse")
    message = str(failed.value)
    assert "longer_first: 2 of 2 sentence pairs do not get one answer in all forms" in message
    lines = [
        "0 of 1 pair of forms agree; right is 'equivalent'",
        "  'equivalent' in original", "    | Sentence1: A b.", "    | Sentence2: C d.",
        "  'not_equivalent' in reverse", "    | Sentence2: C d.", "    | Sentence1: A b.",
    ]  # fmt: skip
    assert "\n".join(lines) in message


class Client:
    def __init__(self, reply):
        self.reply = reply

    def ask(self, prompts):
        return [self.reply for _ in prompts]


def test_a_model_is_asked_once_and_methods_of_two_values_are_two_models(file):
    answers, calls = Answers(), []

    def counted(prompts):
        calls.append(len(prompts))
        return cat(prompts)

    first = answers.assert_consistent(counted, file)
    asked = len(calls)
    assert answers.assert_consistent(counted, file, at_least=0.5) is first and len(calls) == asked
    assert answers.assert_consistent(counted, file, limit=1).answers.height == 4
    answers.assert_consistent(Client("cat").ask, file)
    with pytest.raises(AssertionError, match="2 of 2 questions"):
        answers.assert_consistent(Client("A").ask, file)


def test_no_answer_agrees_with_nothing(file):
    def model(prompts):
        return ["" if "What" in prompt else "cat" for prompt in prompts]

    with pytest.raises(AssertionError) as failed:
        assert_consistent(model, file, at_least=0.2)
    assert "sea: 1 of 6 pairs of variants agree; right is 'whale'" in str(failed.value)
    assert "  no answer (the model wrote no text) in paraphrase=2" in str(failed.value)
    assert_consistent(model, file, at_least=1 / 6)


def test_a_failure_shows_two_prompts_and_two_answers(file):
    with pytest.raises(AssertionError) as failed:
        assert_consistent(first_label, file, examples=1)
    assert str(failed.value).splitlines() == [
        "first_label: 2 of 2 questions do not get one answer in all variants",
        "sea: 2 of 6 pairs of variants agree; right is 'whale'",
        "  'whale' in paraphrase=1, order=AB",
        "    | Question: Which animal swims?", "    | A. whale", "    | B. cat", "    | Answer:",
        "  'cat' in paraphrase=1, order=BA",
        "    | Question: Which animal swims?", "    | A. cat", "    | B. whale", "    | Answer:",
        "1 more",
    ]  # fmt: skip


def test_a_share_of_pairs_may_be_enough(file):
    result = assert_consistent(first_label, file, at_least=1 / 3)
    assert assert_consistent(cat, file).answers.height == result.answers.height == 8
    with pytest.raises(AssertionError, match="agree in less than 34 % of their pairs of variants"):
        assert_consistent(first_label, file, at_least=0.34)
    refused("a share from 0 to 1", assert_consistent, cat, file, at_least=80)


def test_an_item_without_two_answers_fails_with_the_reason(file):
    file.write_text(QUESTIONS.replace("What animal meows?", ""))
    lone = "land has no two answers to compare: it has one variant"
    with pytest.raises(AssertionError, match=lone):
        assert_consistent(cat, file, vary="paraphrase=all")


def test_a_model_in_place_of_a_suite_is_refused(file):
    refused("a suite of type function; expected the name of a suite", cs.evaluate, cat, file)


TESTS = """
def first_label(prompts):
    with open("asked", "a") as file:
        file.write("asked\\n")
    return ["A"] * len(prompts)

def test_all(consilience):
    consilience.assert_consistent(first_label, "questions.csv")

def test_share(consilience):
    consilience.assert_consistent(first_label, "questions.csv", at_least=0.3)
"""


def test_the_plugin_asks_once_and_shows_prompts_and_answers(file, tmp_path):
    """Failures show nothing of this library."""
    (tmp_path / "test_model.py").write_text(TESTS)
    plugins = ["-p", "consilience.pytest_plugin", "-p", "no:cacheprovider", "-o", "addopts="]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", *plugins, f"--basetemp={tmp_path / 'temporary'}"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    message = "first_label: 2 of 2 questions do not get one answer in all variants"
    assert f"E       AssertionError: {message}" in done.stdout
    assert "E           | Question: Which animal swims?" in done.stdout
    assert "src/consilience" not in done.stdout
    assert (tmp_path / "asked").read_text().split() == ["asked"] * 2  # one prompt first


def test_the_plugin_imports_nothing_that_takes_time():
    code = "import sys, consilience.pytest_plugin; print({'polars', 'numpy', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
