"""lm-evaluation-harness, driven as its users do; `make test-harness` installs it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from checks import output
from conftest import build_model
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
    output(consilience, "suite", "export", suite, "--format", "lm-eval", "-o", "tasks")
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
