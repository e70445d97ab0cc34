"""lm-evaluation-harness and inspect_ai, driven as their users do; `make test-harness` installs them."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import consilience as cs
from checks import output, refused
from conftest import ROOT, build_model
from consilience.inspect import vary
from consilience.runs.run import read_answers

QUESTIONS = """group,question,question_2,answer,options
city,Capital of France?,France's capital?,Paris,Rome;Paris;Oslo
city,Capital of Italy?,Italy's capital?,Rome,Rome;Berlin;Paris
city,Capital of Norway?,Norway's capital?,Oslo,Madrid;Lisbon;Oslo
"""

LARGEST = 1e-4
"""Nats between a log-probability of lm-evaluation-harness and ours, at most."""


def run(*command, cwd, **environment):
    """The standard output of another tool."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd,
        env={**inherited, "HF_HUB_OFFLINE": "1", **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A random causal model that reads prompts of 512 tokens."""
    folder = build_model("llama", tmp_path_factory.mktemp("llama"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    return folder


@pytest.mark.parametrize("kind", ["facts", "questions"])
def test_lm_eval_has_our_numbers(consilience, write_suite, tiny_model, tmp_path, kind):
    """Equal answers; of questions also equal log-probabilities; and the harness counts them so."""
    pytest.importorskip("lm_eval")
    suite, scored = write_suite(), ["score", "tasks", "--out", "theirs"]
    if kind == "questions":
        (suite := tmp_path / "suite.csv").write_text(QUESTIONS, encoding="utf-8")
    else:
        scored += ["--suite", suite]
    output(consilience, "suite", "export", suite, "-o", "tasks")
    task = "consilience_suite"
    run("-m", "lm_eval", "run", "--model", "hf", "--model_args",
        f"pretrained={tiny_model},dtype=float32", "--device", "cpu", "--include_path", ".",
        "--tasks", task, "--log_samples", "--output_path", ".", cwd=tmp_path / "tasks")  # fmt: skip
    output(consilience, "probe", "-m", tiny_model, "-s", suite, "-o", "ours")
    output(consilience, *scored)
    order = ["group", "item", "variant"]
    ours, theirs = (read_answers(tmp_path / name).sort(order) for name in ("ours", "theirs"))
    assert ours.select(*order, "answer").equals(theirs.select(*order, "answer"))
    (results,) = (tmp_path / "tasks").glob("*/results_*.json")
    accuracy = json.loads(results.read_text())["results"][task]["acc,none"]
    assert accuracy == pytest.approx((theirs["answer"] == theirs["gold"]).mean())
    names = ("logprob", "gold_logprob", "margin", "text_logprob", "option_scores")
    for name in names if kind == "questions" else ():
        one, other = (of[name].explode().to_numpy() for of in (ours, theirs))
        assert np.abs(one - other).max() < LARGEST, name


# inspect_ai

COUNTER = """import tiktoken
class Words:
    def encode(self, text, **_):
        return text.split()
tiktoken.get_encoding = lambda name: Words()
"""
"""What counts the tokens of a mock model, in place of a file from the network."""


def test_the_task_of_the_guide_comes_back_as_it_shows(consilience, tmp_path, monkeypatch):
    """Italy: an answer of its own in each of three orders, 3 of 15 pairs agree; France: always D."""
    pytest.importorskip("inspect_ai")
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    section = page.partition("### inspect_ai\n")[2].partition("\n### ")[0]
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL))
    files = {"capitals.py": blocks["python"], "phrasings.csv": blocks["csv"]}
    for name, text in (files | {"sitecustomize.py": COUNTER}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command, score = blocks["sh"].splitlines()
    run(*command.split()[1:], cwd=tmp_path, PYTHONPATH=".")
    assert output(consilience, *shlex.split(score)[1:]) == blocks["text"]


def tasks():
    """Tasks after the examples of inspect's documentation, and on its packaged data."""
    from inspect_ai import Task
    from inspect_ai.dataset import FieldSpec, MemoryDataset, Sample, example_dataset
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser
    from inspect_ai.scorer import choice, includes, match
    from inspect_ai.solver import generate, multiple_choice, system_message

    talk = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Which is a square?")]
    samples = [
        Sample("Which are squares?", ["3", "4", "9", "All of the above"], ["B", "C"], "squares"),
        Sample(talk, ["8", "9", "Both A and B"], "B", 7, {"of": "numbers"}),
        Sample("Which is odd?", ["2", "3"], "B"),
    ]
    data = MemoryDataset(samples)
    data.shuffle_choices(seed=2)
    chooses = [system_message("Hi."), multiple_choice(multiple_correct=True)]

    def packaged(name, target):
        return example_dataset(name, FieldSpec(input="question", target=target))[:4]

    popular = packaged("popularity", "answer_matching_behavior")
    biology = packaged("biology_qa", "answer")
    return {
        "chosen": Task(data, solver=chooses, scorer=choice()),
        "popular": Task(popular, solver=generate(), scorer=match("begin")),
        "biology": Task(biology, scorer=includes(), epochs=2),
    }


@pytest.mark.parametrize("name", ["chosen", "popular", "biology"])
def test_a_task_in_variants_asks_the_same_and_comes_back(tmp_path, name):
    """A model that knows the target of each second variant: the answers are those of the log."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    task = tasks()[name]
    before, samples = [one.model_dump() for one in task.dataset], [*task.dataset]
    items = [str(one.id or at) for at, one in enumerate(samples, start=1)]
    (tmp_path / "p.csv").write_text("item,text\n" + "".join(f"{of},Again: {of}?\n" for of in items))
    varied = vary(task, phrasings=tmp_path / "p.csv")
    assert [one.model_dump() for one in task.dataset] == before
    by_item = dict(zip(items, samples, strict=True))
    for one in varied.dataset:
        said, given = one.metadata["consilience"], by_item[one.metadata["consilience"]["item"]]
        if given.choices and said["item"] != "7":
            right = [{of.choices["ABCD".index(at)] for at in of.target} for of in (given, one)]
            assert right[0] == right[1]
        text = one.input if isinstance(one.input, str) else one.input[-1].text
        assert text.startswith("Again: ") == (said["paraphrase"] == "2")
        assert {**(given.metadata or {}), "consilience": said} == one.metadata
    numbered, asked = [*varied.dataset], []
    shown = [one.choices for one in numbered if "All of the above" in (one.choices or ())]
    assert len({of.index("All of the above") for of in shown}) == (name == "chosen")

    def model(messages, *_):
        asked.append(messages)
        target = numbered[(len(asked) - 1) % len(numbered)].target
        known = ", ".join(target) if isinstance(target, list) else target
        text = ("ANSWER: " if name == "chosen" else "") + known.strip()
        reply = ModelOutput.from_content("m", text).model_dump()
        return ModelOutput(**reply | {"usage": ModelUsage()})

    (log,) = inspect_ai.eval(varied, model=get_model("mockllm/m", custom_outputs=model), display="none",
                             log_dir=str(tmp_path / "logs"), max_samples=1, max_tasks=1)  # fmt: skip
    assert log.status == "success"
    result = cs.score(tmp_path / "logs")
    assert len(result.answers) == len(numbered) * (2 if name == "biology" else 1)
    right = (result.answers["answer"] == result.answers["gold"]).fill_null(value=False)
    assert right.mean() == log.results.scores[0].metrics["accuracy"].value
    factors = {"order", "sample"} & {*result.answers.columns}
    assert factors == {"chosen": {"order"}, "biology": {"sample"}}.get(name, set())


def test_what_cannot_be_varied_is_refused(tmp_path):
    pytest.importorskip("inspect_ai")
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.solver import generate, multiple_choice

    (tmp_path / "p.csv").write_text("item,text\n2,Which?\n")
    sample = Sample("Which is odd?", ["2", "3"], "B")
    shuffles = Task([sample], solver=[generate(), multiple_choice(shuffle=True)])
    for task, factors, message in (
        (shuffles, None, "which shuffles the choices"),
        (Task([sample]), ["labels=1"], "no factor 'labels=1' of a task"),
        (Task([sample, Sample("?", id="1")]), None, "two samples with the id '1'"),
        (Task([sample]), ["order=reversed"], "p.csv:2: no sample '2'"),
    ):
        refused(message, vary, task, factors, phrasings=tmp_path / "p.csv")
