"""The package as Python sees it: evaluate, its result, functions as models, what import costs."""

import gc
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

import consilience as cs
from checks import refused
from conftest import ROOT
from consilience.app import process
from consilience.testing import Answers, assert_consistent
from pair_builders import write_pairs
from test_functions import PORTS
from test_functions import replies as ports

MAJORITY = "baseline:majority"


@pytest.fixture(scope="module")
def result():
    return cs.evaluate("mini", MAJORITY, limit=4)


def test_the_result_is_the_summary_in_a_terminal_and_in_a_notebook(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = repr(result)
    assert text.startswith("baseline:majority on mini: 13 of 15 relations, 52 facts, 9 patterns")
    assert re.search(r"Accuracy +\d+\.\d", text)
    lines = text.splitlines()
    assert len(lines) < 20 and max(map(len, lines)) <= 80
    shown = result._repr_markdown_()
    assert f"| Accuracy | {result.summary.rows[0].value * 100:.1f} |" in shown
    assert "| metric | % | 95 % CI |" in shown and "<" not in shown
    chart = result.plot()
    assert chart._repr_html_() == chart.svg and "currentColor" in chart.svg
    assert "baseline:majority" in chart.about and chart.svg.endswith("</svg>")


def test_the_numbers_are_a_frame_of_either_library(result):
    frame = result.to_pandas()
    assert isinstance(frame, pd.DataFrame) and result.to_polars() is result.metrics
    assert frame.shape == result.metrics.shape
    value = result.metrics.filter(metric="accuracy", over="mean", kind="whole")["value"].item()
    assert frame.query("metric == 'accuracy' and over == 'mean'")["value"].iloc[0] == value
    assert result.answers.height == 15 * 4 * 9


def test_a_run_without_a_folder_lives_as_long_as_its_result(capsys):
    result = cs.evaluate(PORTS, "baseline:constant")
    folder = result.run.path
    assert capsys.readouterr().out == "", "nothing is printed without `progress`"
    assert result.folder is None
    assert (folder / "run.json").is_file()
    del result
    gc.collect()
    assert not folder.exists()


def test_results_folders_and_runs_are_compared(tmp_path):
    first = cs.evaluate(PORTS, "baseline:constant", out=tmp_path / "a")
    second = cs.evaluate(PORTS, "baseline:oracle")
    compared = cs.compare(first, second)
    difference = compared.table.filter(metric="accuracy", over="mean")["difference"].item()
    assert difference == pytest.approx(2 / 3)
    assert re.search(r"Accuracy +33\.3 +100\.0 +\+66\.7", repr(compared))
    assert "| Accuracy | 33.3 | 100.0 | +66.7 |" in compared._repr_markdown_()
    assert compared.to_pandas().shape == compared.to_polars().shape
    named = cs.compare({"before": str(tmp_path / "a"), "after": second})
    assert [run.label for run in named.runs] == ["before", "after"]
    twice = cs.compare(first, tmp_path / "a", second.run)
    labels = ["baseline:constant", "baseline:constant (2)", "baseline:oracle"]
    assert [run.label for run in twice.runs] == labels


FRAME = pd.DataFrame({"subject": ["Redis", "PostgreSQL", "MySQL"], "object": [6379, 5432, 3306]})


@pytest.mark.parametrize(("call", "message"), [
    (lambda: cs.evaluate("mini", MAJORITY, limt=3), "no option 'limt'. Did you mean 'limit'"),
    (lambda: cs.evaluate("mini", MAJORITY, limit=0), "limit: 0 is not in the range x>=1"),
    (lambda: cs.evaluate("mini", MAJORITY, protocol="lax"), "not one of 'published', 'strict'"),
    (lambda: cs.evaluate("mini", MAJORITY, columns=5), "^columns: a value of type int; expected a"),
    (lambda: cs.gate("run", rule={"accuracy >= 0.5": 1}), "^rule: a value of type dict; expected"),
    (lambda: cs.evaluate("mini", MAJORITY, groups={"capital": 1}), "^groups: a value of type dict"),
    (lambda: cs.evaluate(3, MAJORITY), "a suite of type int; expected the name of a suite, a fold"),
    (lambda: cs.evaluate(ports, "mini"), "a suite of type function; expected the name of a suite"),
    (lambda: cs.evaluate(FRAME, MAJORITY),
     r"^a frame of facts; .* Make a suite of it with cs\.Suite\.from_frame\(frame\)\.$"),
    (lambda: cs.evaluate("mrpc", MAJORITY, data=FRAME),
     "^data: a value of type DataFrame; expected a text.$"),
    (lambda: cs.evaluate(cs.Suite("x", ()), ports), "the suite 'x': no relation in the suite"),
    (lambda: cs.analyze_patterns(FRAME), "^run: a value of type DataFrame; expected a path"),
    (lambda: cs.write_report(FRAME, out="page.html"), "^runs: a value of type DataFrame; expected a text"),
    (lambda: cs.finetune(model="m", qqqq=1), "Known: .*model, task, train, "),
    (lambda: cs.finetune(batch_size="x"), "missing a required argument: 'model'"),
    (lambda: cs.improve("m"), "too many positional arguments; expected improve"),
    (lambda: cs.evaluate("mini", 3),
     "a model of type int with facts; expected a name, a folder, or a"),
    (lambda: cs.evaluate("mrpc", cs.load_model(MAJORITY)), "a model of type Baseline with sent"),
    (lambda: cs.evaluate("mrpc", ports), "--suite mrpc without --data"),
    (lambda: cs.open_run(3), "the run is of type int; expected a path"),
    (lambda: cs.compare(MAJORITY), "no such file or folder"),
    (cs.compare, "0 run to compare"),
    (cs.improve, "missing a required argument: 'model'"),
    (lambda: cs.score(3), "the answers table is of type int; expected a polars or pandas"),
])  # fmt: skip
def test_a_wrong_call_says_what_to_pass(call, message):
    refused(message, call)


FUNCTIONS = json.loads((ROOT / "tests/cases/functions_of_commands.json").read_text())
"""The functions that do what each command does."""


def names(group, before=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from names(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_is_a_function_that_the_guide_names():
    assert {*names(process.program())} == {*FUNCTIONS}
    guide = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in " ".join(FUNCTIONS.values()).split():
        assert callable(getattr(cs, name))
        assert re.search(rf"\b{name}\b", guide), name


def test_values_are_shown_on_one_screen(result, tmp_path, monkeypatch):
    """At most 24 lines of 100 characters, as a terminal breaks them."""
    monkeypatch.setenv("COLUMNS", "99")
    run = cs.evaluate("mini", "baseline:random", limit=2, groups="capital", out=tmp_path / "run")
    data = write_pairs(tmp_path / "pairs.jsonl")
    values = [
        run, run.summary, run.run, run.plot(), run.suite, run.suite["capital"],
        run.suite["capital"].candidates, cs.compare(run, run), cs.suite_stats("mini"),
        cs.analyze_patterns(run.folder), cs.analyze_edits(run.folder),
        cs.analyze_examples(run.folder), cs.analyze_knowledge([run.folder]),
        cs.reproduce_table("pararel-table-1", dry_run=True),
        cs.make_sheets(task="mrpc", data=data, out=tmp_path / "sheets", items=4),
        cs.load_model(MAJORITY), cs.Function(ports), cs.Query(PORTS.relations[0].patterns[0], "a", "b"),
    ]  # fmt: skip
    for value in values:
        lines = [len(line) // 100 + 1 for line in repr(value).splitlines()]
        assert sum(lines) <= 24, repr(value)[:300]


def test_every_function_takes_a_result_as_a_run(tmp_path):
    few = {"groups": ["capital", "painter", "borders"], "limit": 4}
    result, other = (cs.evaluate("mini", each, **few) for each in (MAJORITY, "baseline:random"))
    cs.write_report([result, other], out=tmp_path / "page.html")
    assert "baseline:random" in (tmp_path / "page.html").read_text(encoding="utf-8")
    cs.write_report(result, out=tmp_path / "one.htm")
    assert (tmp_path / "one.htm").is_file()
    named = replace(result, run=replace(result.run, label="lr=1e-5"))
    assert "lr:1e-5" in named.report(tmp_path / "named.html").read_text(encoding="utf-8")
    assert cs.analyze_patterns(result).tables["patterns"].height and cs.analyze_examples(result)
    for again in cs.open_run(result), cs.score(result.run.path):
        assert repr(again) == repr(result) and again.metrics.equals(result.metrics)
    assert cs.analyze_knowledge([result]).tables
    assert cs.suite_stats(PORTS).facts["facts"] == 3
    for make in (result.report, lambda page: cs.write_report(result, out=page)):
        refused(r"a page in '\.pdf'; expected \.html", make, tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


def test_help_shows_the_functions_first():
    text = pydoc.plain(pydoc.render_doc(cs))
    assert text.index("evaluate(suite, model") < 700 and "__eq__" not in text
    assert re.search(r"limit.*=None", pydoc.plain(pydoc.render_doc(cs.evaluate)))
    parameters = inspect.signature(cs.gate).parameters
    assert [*parameters][:3] == ["run", "rule", "baseline"]
    assert parameters["run"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


CALLS = """from consilience.app.commands import improve, write_report; from consilience.results.evaluation import evaluate
improve(model="m", suite="mini", out="runs/x")
improve(model="m", suite="mini", modle="x")
improve(model="m", suite=3)
evaluate("mini", "baseline:majority", limit=4)
evaluate("mini", modle="x")
evaluate("mini", "baseline:majority", ["signal"])
write_report(["a", "b"], out="page.html", figures="figures")
write_report()
write_report("a", "page.html")
"""


def test_a_type_checker_sees_the_options_of_a_function(tmp_path):
    """Of the modules that declare it; all others are left out, because they take a minute."""
    names = (
        "app/commands app/command options/__init__ core/errors options/commands results/evaluation"
    )
    modules = [ROOT / "src" / "consilience" / f"{name}.py" for name in names.split()]
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--follow-imports=skip", "--cache-dir", tmp_path]
    ran = subprocess.run(
        [*command, *modules, tmp_path / "calls.py"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    errors = re.findall(r"calls\.py:(\d+): error: (.*)", ran.stdout)
    lines = list(dict.fromkeys(line for line, _ in errors))
    assert lines == ["3", "4", "6", "7", "9", "10"], ran.stdout
    messages = "\n".join(message for _, message in errors)
    assert 'Unexpected keyword argument "modle" for "improve"' in messages
    assert 'Too many positional arguments for "evaluate"' in messages
    assert 'Missing positional argument "runs" in call to "write_report"' in messages
    assert 'Too many positional arguments for "write_report"' in messages


def test_public_names_are_those_that_type_checkers_see():
    for name in cs._places():
        assert name in dir(cs) and getattr(cs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'evalute'. Did you mean 'evaluate'"):
        cs.evalute  # noqa: B018


@pytest.mark.parametrize(("module", "others"), [
    ("consilience", {"rich", "click", "scipy"}), ("consilience.pytest_plugin", set()),
])  # fmt: skip
def test_import_loads_nothing_until_a_name_is_used(module, others):
    heavy = {"numpy", "polars", "torch"} | others
    code = f"import sys, {module}; print({heavy} & {{name.split('.')[0] for name in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


# Consistency as a pytest test: items that disagree, their messages, cases, and shared runs.

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


def asked(question, paraphrase, *options):
    """An answer and its prompt, as a failure shows them: the first option was chosen."""
    order = "AB" if options[0] == "whale" else "BA"
    shown = [f"{label}. {option}" for label, option in zip("AB", options, strict=True)]
    lines = [f"Question: {question} animal swims?", *shown, "Answer:"]
    return [f"  '{options[0]}' in paraphrase={paraphrase}, order={order}", *(f"    | {of}" for of in lines)]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), [
    ({}, ["first_label: 2 of 2 questions do not get one answer in all variants",
          "sea: 2 of 6 pairs of variants agree; right is 'whale'",
          *asked("Which", 1, "whale", "cat"), *asked("Which", 1, "cat", "whale")]),
    ({"right_in": "3 of 5"}, ["first_label: 2 of 2 questions are right in less than 3 of 5 answers",
                              "sea: right in 2 of 4 answers; right is 'whale'",
                              *asked("Which", 1, "cat", "whale"), *asked("What", 2, "cat", "whale")]),
])  # fmt: skip
def test_a_failure_shows_two_prompts_and_two_answers(file, options, expected):
    with pytest.raises(AssertionError) as failed:
        assert_consistent(first_label, file, examples=1, **options)
    assert str(failed.value).splitlines() == [*expected, "1 more"]


def test_a_share_of_pairs_may_be_enough(file):
    result = assert_consistent(first_label, file, at_least=1 / 3)
    assert assert_consistent(cat, file).answers.height == result.answers.height == 8
    with pytest.raises(AssertionError, match="agree in less than 34 % of their pairs of variants"):
        assert_consistent(first_label, file, at_least=0.34)
    refused("a share from 0 to 1", assert_consistent, cat, file, at_least=80)


def test_each_item_is_right_often_enough_however_the_answers_disagree(file):
    """The first label is right in two of four answers."""
    result = assert_consistent(first_label, file, right_in="1 of 2")
    assert result.answers.height == 8
    refused("the rule 'right in 80 %'", assert_consistent, cat, file, right_in="80 %")


def test_an_item_without_two_answers_fails_with_the_reason(file):
    file.write_text(QUESTIONS.replace("What animal meows?", ""))
    lone = "land has no two answers to compare: it has one variant"
    with pytest.raises(AssertionError, match=lone):
        assert_consistent(cat, file, vary="paraphrase=all")


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
