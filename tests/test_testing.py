"""Consistency as a pytest test: items that disagree, their messages, cases, and shared runs."""

import os
import subprocess
import sys
from collections import Counter

import polars as pl
import pytest

import consilience as cs
from checks import refused
from conftest import ROOT
from consilience import testing
from consilience.analysis.examples import item_agreement
from consilience.testing import Runs, assert_consistent, cases

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
    first, second = "paraphrase=1, order=given", "paraphrase=1, order=rotation 1"
    assert table.rows() == [("nature", of, 2, 6, first, second) for of in ("sea", "land")]


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_numbers_of_facts_add_up_to_consistency(protocol):
    def guess(prompts):
        return ["Paris" if len(prompt) % 3 else "London" for prompt in prompts]

    result = cs.evaluate("mini", guess, groups="capital,currency", limit=6, protocol=protocol)
    table = item_agreement(result.answers, result.suite, protocol)
    for group, of_group in table.group_by("group"):
        found = result.metrics.filter(metric="consistency", group=group[0], subset="all")
        share = of_group["same"].sum() / of_group["pairs"].sum()
        assert found["value"].item() == pytest.approx(share)
    answers = {(row["item"], row["variant"]): row["answer"] for row in result.answers.to_dicts()}
    for row in table.filter(pl.col("first").is_not_null()).iter_rows(named=True):
        assert answers[row["item"], row["first"]] != answers[row["item"], row["second"]]
    agreeing = table.filter(pl.col("first").is_null())
    assert agreeing["same"].to_list() == agreeing["pairs"].to_list()


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
    refused("by='group'", cases, "mrpc", data=data)
    assert [case.id for case in cases("mrpc", data=data, by="group")] == ["mrpc"]


class Client:
    def __init__(self, reply):
        self.reply = reply

    def ask(self, prompts):
        return [self.reply for _ in prompts]


def test_methods_of_two_values_are_two_models(file):
    runs = Runs()
    runs.assert_consistent(Client("cat").ask, file)
    with pytest.raises(AssertionError, match="2 of 2 questions"):
        runs.assert_consistent(Client("A").ask, file)


def test_an_item_without_an_answer_to_a_variant_fails(file):
    def model(prompts):
        return ["" if "What" in prompt else "cat" for prompt in prompts]

    with pytest.raises(AssertionError, match="sea has no answer to 2 of 4 variants: the model"):
        assert_consistent(model, file)
    assert_consistent(model, file, at_least=0.99)  # of the pairs that there are


def test_a_failure_shows_two_prompts_and_two_answers(file):
    with pytest.raises(AssertionError) as failed:
        assert_consistent(first_label, file, examples=1)
    assert str(failed.value).splitlines() == [
        "first_label: 2 of 2 questions do not get one answer in all variants",
        "sea: 2 of 6 pairs of variants agree; right is 'whale'",
        "  'whale' in paraphrase=1, order=given",
        "    | Question: Which animal swims?", "    | A. whale", "    | B. cat", "    | Answer:",
        "  'cat' in paraphrase=1, order=rotation 1",
        "    | Question: Which animal swims?", "    | A. cat", "    | B. whale", "    | Answer:",
        "1 more",
    ]  # fmt: skip


def test_a_share_of_pairs_may_be_enough(file):
    result = assert_consistent(first_label, file, at_least=1 / 3)
    assert assert_consistent(cat, file).answers.height == result.answers.height == 8
    with pytest.raises(AssertionError, match="agree in less than 34% of their pairs of variants"):
        assert_consistent(first_label, file, at_least=0.34)
    refused("a share from 0 to 1", assert_consistent, cat, file, at_least=80)


def test_an_item_without_two_answers_fails_with_the_reason(file):
    file.write_text(QUESTIONS.replace("What animal meows?", ""))
    lone = "land has no two answers to compare: it has one variant"
    with pytest.raises(AssertionError, match=lone):
        assert_consistent(cat, cases(file)[1].values[0], vary="paraphrase=all")


def test_cases_are_the_items_or_groups_that_are_asked(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert [case.id for case in cases("questions.csv")] == ["sea", "land"]
    assert Runs().result(cat, "questions.csv").suite.name == "questions"
    assert [case.id for case in cases(file)] == ["sea", "land"]
    assert [case.id for case in cases(file, by="group")] == ["nature"]
    (one,) = cases("mini", limit=1, groups=["capital"])
    assert str(one.values[0]) == "capital-17"
    refused("'item' or 'group'", cases, file, by="topic")
    refused("no option 'limt'. Did you mean 'limit'", cases, file, limt=2)
    case, message = (
        cases("mini", limit=1)[0].values[0],
        "Give assert_consistent the options of cases",
    )
    refused(message, assert_consistent, cat, case, groups="currency", limit=3)


def test_rules_are_decided_by_the_gate(file, tmp_path):
    """2 of 6 pairs agree; two questions are too few to show that this is above 20 %."""
    before = assert_consistent(cat, file, out=tmp_path / "lr=0.1")
    same = "consistency no worse than baseline by 3 points"
    undecided = "UNDECIDED (.|\n)*sea: 2 of 6 pairs of variants agree"
    with pytest.raises(AssertionError, match=undecided):
        assert_consistent(first_label, file, "consistency >= 0.2")
    with pytest.raises(AssertionError, match=same.replace(" no", " in nature no")):
        group = cases(file, by="group")[0].values[0]
        assert_consistent(first_label, group, same, baseline=before)
    with pytest.raises(AssertionError, match="2 of 2 questions agree in less than 50%"):
        assert_consistent(first_label, file, "accuracy <= 0.9", at_least=0.5)
    case = cases(file)[0].values[0]
    refused("Use at_least=0.8, or cases", assert_consistent, cat, case, "consistency >= 0.2")
    refused("no metric 'consistncy'", assert_consistent, cat, file, "consistncy >= 0.2")


def test_runs_are_asked_once_and_asked_again_when_the_suite_has_changed(
    file, tmp_path, monkeypatch
):
    folder, calls = tmp_path / "runs", Counter()

    def counted(prompts):
        calls["asked"] += 1
        return cat(prompts)

    counted.__qualname__ = "counted"
    monkeypatch.setattr(sys.modules[__name__], "counted", counted, raising=False)
    first = Runs(folder, "one")
    first.assert_consistent(counted, file)
    asked = calls["asked"]
    assert first.result(counted, file).folder == Runs(folder, "one").result(counted, file).folder
    assert calls["asked"] == asked > 0
    Runs(folder, "two").assert_consistent(counted, cases(file)[0].values[0])
    assert calls["asked"] == 2 * asked, "what a function calls may have changed"
    written = []
    for name, verb in (("one", "swims"), ("two", "swims"), ("three", "dives")):
        file.write_text(QUESTIONS.replace("swims", verb))
        run = Runs(folder, name).result("baseline:majority", file).folder
        written.append(min(of.stat().st_mtime_ns for of in (run / "answers").iterdir()))
    assert written[0] == written[1] < written[2]
    assert len([*folder.iterdir()]) == 2
    unnamed = Runs(tmp_path / "unnamed", "one")
    unnamed.assert_consistent(lambda prompts: ["cat"] * len(prompts), file)
    with pytest.raises(AssertionError):
        unnamed.assert_consistent(lambda prompts: ["A"] * len(prompts), file)
    assert not (tmp_path / "unnamed").exists(), "functions without a name are asked in this process"


def test_a_model_in_place_of_a_suite_is_refused(file):
    refused("a suite of type function; expected the name of a suite", cs.evaluate, cat, file)


def test_a_model_that_cannot_be_asked_is_tried_once(file, monkeypatch):
    calls = []

    def evaluate(*values, **options):
        calls.append(values)
        return cs.evaluate("none.csv")

    monkeypatch.setattr(testing, "evaluate", evaluate)
    runs = Runs()
    for _ in range(2):
        refused("no such file", runs.result, "model", file)
    assert len(calls) == 1


TESTS = """
import os
import pytest
from consilience.testing import cases

def first_label(prompts):
    with open("asked", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return ["A"] * len(prompts)

@pytest.mark.slow_model
@pytest.mark.parametrize("case", cases("questions.csv"))
def test_item(consilience, case):
    consilience.assert_consistent(first_label, case)

@pytest.mark.parametrize("n", range(4))
def test_share(consilience, n):
    consilience.assert_consistent(first_label, "questions.csv", at_least=0.3)
"""


def test_the_plugin_with_several_processes(file, tmp_path):
    """One process asks; the failures show prompts and answers, and nothing of this library.

    The questions are beside the test, and pytest runs in the folder above.
    """
    (tmp_path / "tests").mkdir()
    file.rename(tmp_path / "tests" / file.name)
    (tmp_path / "tests" / "test_model.py").write_text(TESTS)
    plugins = ["-p", "xdist", "-p", "consilience.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "--strict-markers", "-n", "2"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    environment = {name: text for name, text in environment.items() if "PYTEST_XDIST" not in name}
    options = [f"--basetemp={tmp_path / 'temporary'}", "-o", "addopts="]
    done = subprocess.run(
        [*command, *options], check=False, cwd=tmp_path, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    message = "first_label: sea: 2 of 6 pairs of variants agree; right is 'whale'"
    assert f"E       AssertionError: {message}" in done.stdout
    assert "E           | Question: Which animal swims?" in done.stdout
    assert "src/consilience" not in done.stdout
    assert len({*(tmp_path / "asked").read_text().split()}) == 1


def test_the_plugin_imports_nothing_that_takes_time():
    code = "import sys, consilience.pytest_plugin; print({'polars', 'numpy', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
