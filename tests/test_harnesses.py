"""lm-evaluation-harness, driven as its users do; `make test-harness` installs it."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
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


def lm_eval(folder, model, task, *more):
    """The results of a task, and the file of its samples."""
    run("-m", "lm_eval", "run", "--model", "hf", "--model_args", f"pretrained={model},dtype=float32",
        "--device", "cpu", "--include_path", "tasks", "--tasks", task, "--log_samples",
        "--output_path", "logs", *more, cwd=folder)  # fmt: skip
    results = json.loads(max(folder.glob("logs/*/results_*.json")).read_text())["results"][task]
    return results, max(folder.glob(f"logs/*/samples_{task}_*.jsonl"))


def largest_difference(first, second, names):
    """Between columns of two answers tables of the same items and variants, and equal answers."""
    order = ["group", "item", "variant"]
    first, second = first.sort(order), second.sort(order)
    kept = (*order, "answer", "gold_rank")
    assert first.select(kept).equals(second.select(kept))
    both = (pl.concat([first[name], second[name]]) for name in names)
    columns = [column.explode().to_numpy().reshape(2, -1) for column in both]
    return max(np.abs(one - other).max() for one, other in columns)


def point_estimates(out, over):
    rows = [row for row in json.loads(out)["metrics"] if row["kind"] == "whole"]
    return {row["metric"]: row["value"] for row in rows if row["over"] == over}


@pytest.mark.parametrize("kind", ["facts", "questions"])
def test_lm_eval_has_our_numbers(consilience, write_suite, tiny_model, tmp_path, kind):
    pytest.importorskip("lm_eval")
    suite, more, over = write_suite(), ["--keep-scores"], "mean"
    scores = ["logprob", "gold_logprob", "margin", "text_logprob", "gold_text_logprob"]
    if kind == "questions":
        (suite := tmp_path / "suite.csv").write_text(QUESTIONS, encoding="utf-8")
        more, over = [], "all"
        scores.append("option_scores")
    output(consilience, "suite", "export", suite, "--format", "lm-eval", "-o", "tasks")
    results, log = lm_eval(tmp_path, tiny_model, "consilience_suite")
    assert consilience("probe", "-m", tiny_model, "-s", suite, "-o", "ours", *more)[0] == 0
    out = output(consilience, "score", log, "-s", suite, "-o", "theirs", "--json")
    ours, theirs = read_answers(tmp_path / "ours"), read_answers(tmp_path / "theirs")
    difference = largest_difference(ours, theirs, scores)
    print(f"{kind}: largest difference {difference:.1e} nats")
    assert difference < LARGEST
    estimates = point_estimates(out, over)
    assert results["items,none"] == 3
    for name in ("accuracy", "consistency", "consistent_accuracy"):
        assert results[f"{name},none"] == pytest.approx(estimates[name]), name
        assert results[f"{name}_stderr,none"] == "N/A"


def test_a_limit_within_an_item_leaves_it_out(consilience, write_suite, tiny_model, tmp_path):
    pytest.importorskip("lm_eval")
    consilience("suite", "export", write_suite(), "--format", "lm-eval", "-o", "tasks")
    results, _ = lm_eval(tmp_path, tiny_model, "consilience_suite", "--limit", "8")
    assert results["items,none"] == 2  # of three patterns each, and two of the third
