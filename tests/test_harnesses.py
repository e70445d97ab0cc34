"""lm-evaluation-harness and inspect_ai, driven as their users do; `make test-harness` installs them."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

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
    """The standard output of another tool.

    It sees the installed package: inspect_ai names the tasks of installed packages only.
    """
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


def point_estimates(out, group):
    rows = [row for row in json.loads(out)["metrics"] if row["subset"] == "all"]
    return {row["metric"]: row["value"] for row in rows if row["group"] == group}


@pytest.mark.parametrize("kind", ["facts", "questions"])
def test_lm_eval_has_our_numbers(consilience, write_suite, tiny_model, tmp_path, kind):
    pytest.importorskip("lm_eval")
    suite, more, group = write_suite(), ["--keep-scores"], "MACRO"
    scores = ["logprob", "gold_logprob", "margin", "text_logprob", "gold_text_logprob"]
    if kind == "questions":
        (suite := tmp_path / "suite.csv").write_text(QUESTIONS, encoding="utf-8")
        more, group = [], "MICRO"
        scores.append("option_scores")
    output(consilience, "suite", "export", suite, "--format", "lm-eval", "-o", "tasks")
    results, log = lm_eval(tmp_path, tiny_model, "consilience_suite")
    assert consilience("probe", "-m", tiny_model, "-s", suite, "-o", "ours", *more)[0] == 0
    out = output(consilience, "score", log, "-s", suite, "-o", "theirs", "--json")
    ours, theirs = read_answers(tmp_path / "ours"), read_answers(tmp_path / "theirs")
    difference = largest_difference(ours, theirs, scores)
    print(f"{kind}: largest difference {difference:.1e} nats")
    assert difference < LARGEST
    estimates = point_estimates(out, group)
    assert results["items,none"] == 3
    for name in ("accuracy", "consistency", "consistent_accuracy"):
        assert results[f"{name},none"] == pytest.approx(estimates[name]), name
        assert results[f"{name}_stderr,none"] == "N/A"


def test_a_limit_within_an_item_leaves_it_out(consilience, write_suite, tiny_model, tmp_path):
    pytest.importorskip("lm_eval")
    consilience("suite", "export", write_suite(), "--format", "lm-eval", "-o", "tasks")
    results, _ = lm_eval(tmp_path, tiny_model, "consilience_suite", "--limit", "8")
    assert results["items,none"] == 2  # of three patterns each, and two of the third


@pytest.fixture
def server():
    """An OpenAI-compatible server that answers every chat with A."""

    class FirstOption(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": "A"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "first",
                     "choices": [choice], "usage": usage}  # fmt: skip
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), FirstOption)
    Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/v1"
    served.shutdown()


METRICS = ("accuracy", "consistency", "corrected_consistency", "consistent_accuracy")


def inspect(folder, server, *options):
    """The log of the task in inspect_ai, and the numbers that inspect_ai has."""
    run("-m", "inspect_ai", "eval", "consilience/suite", *options, "--model",
        "openai-api/local/first", "--display", "plain", "--log-dir", "logs", cwd=folder,
        LOCAL_API_KEY="none", LOCAL_BASE_URL=server)  # fmt: skip
    from inspect_ai.log import read_eval_log

    path = max((folder / "logs").glob("*.eval"))
    log = read_eval_log(str(path))
    (scores,) = log.results.scores
    return path, log, {name: metric.value for name, metric in scores.metrics.items()}


def assert_scored_alike(consilience, log, suite, numbers, *options):
    """That `score` has the numbers of inspect_ai."""
    out = output(consilience, "score", log, "-s", suite, *options, "--json")
    rows = {
        row["metric"]: row
        for row in json.loads(out)["metrics"]
        if row["subset"] == "all" and row["group"] in ("MICRO", "rte-generated")
    }
    for name in METRICS:
        for column, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            value = rows[name][column]
            expected = np.nan if value is None else value
            assert numbers[name + suffix] == pytest.approx(expected, nan_ok=True), name


def test_inspect_finds_the_task_by_its_name_and_counts_as_score_does(consilience, server, tmp_path):
    pytest.importorskip("inspect_ai")
    (suite := tmp_path / "suite.csv").write_text(QUESTIONS, encoding="utf-8")
    path, log, numbers = inspect(tmp_path, server, "-T", f"suite={suite}", "--epochs", "2")
    assert_scored_alike(consilience, path, suite, numbers, "-o", "run")
    # By hand: two phrasings, three orders and two epochs; the first option is shown A in four of
    # these twelve variants, and so is each other one.
    assert log.eval.dataset.samples == 3 * 6
    assert numbers["consistency"] == pytest.approx(3 * 6 / 66)
    assert numbers["accuracy"] == pytest.approx(1 / 3)
    assert {sample.scores["option"].explanation for sample in log.samples} == {"A"}
    record = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert record["model"]["model"] == "openai-api/local/first"
    assert record["factors"]["sample"] == ["1", "2"]


def test_inspect_asks_facts_and_sentence_pairs(consilience, server, tmp_path):
    pytest.importorskip("inspect_ai")
    path, log, numbers = inspect(tmp_path, server, "-T", "suite=mini", "-T", "groups=capital,sport",
                                 "-T", "limit=1", "-T", "vary=order=given,BACD,paraphrase=1,2")  # fmt: skip
    assert log.eval.dataset.samples == 2 * 2 * 2
    assert {len(sample.metadata["options"]) for sample in log.samples} == {4}
    assert "Fill in the blank: " in log.samples[0].input[-1].text
    assert numbers["consistency"] == pytest.approx(2 / 6)  # A is one of two options
    assert_scored_alike(consilience, path, "mini", numbers)
    (data := tmp_path / "rte.tsv").write_text(
        "index\tsentence1\tsentence2\tlabel\n0\tA man sleeps.\tHe rests.\tentailment\n"
        "1\tIt rains.\tIt is dry.\tnot_entailment\n"
    )
    path, log, numbers = inspect(tmp_path, server, "-T", "suite=rte", "-T", f"data={data}",
                                 "-T", "match=regex:(?P<answer>entailment|A)")  # fmt: skip
    variants = {sample.metadata["variant"] for sample in log.samples}
    assert variants == {"original", "reverse", "signal"}
    assert numbers["accuracy"] == numbers["consistency"] == 0  # A is no label
    assert_scored_alike(consilience, path, "rte", numbers)


@pytest.mark.parametrize(("option", "message"), [
    ("suite=nosuch", "no suite 'nosuch' and no such file or folder"),
    ("limt=3", "no option 'limt'. Did you mean 'limit'?"),
    ("out=prompts.jsonl", "expected no file: inspect_ai writes a log"),
])  # fmt: skip
def test_wrong_options_of_the_task_have_one_message(tmp_path, option, message):
    pytest.importorskip("inspect_ai")
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", "eval", "consilience/suite", "-T", option,
         "--model", "mockllm/model", "--display", "plain"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert message in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout + done.stderr


def test_inspect_with_its_own_mock_model(tmp_path):
    """Answers in words are matched with the options, and no answer is no answer."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def answer(messages, *_):
        known = {"France": "The answer is Paris.", "Italy": "I do not know", "Norway": ""}
        text = next(known[name] for name in known if name in messages[-1].text)
        output = ModelOutput.from_content(model="mockllm", content=text)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    (suite := tmp_path / "suite.csv").write_text(QUESTIONS, encoding="utf-8")
    model = get_model("mockllm/model", custom_outputs=answer)
    options = {"task_args": {"suite": str(suite)}, "display": "none"}
    logs = str(tmp_path / "logs")
    (log,) = inspect_ai.eval("consilience/suite", model=model, log_dir=logs, **options)
    assert log.status == "success"
    numbers = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    assert numbers["accuracy"] == 1 / 2  # of two questions; the third has no answers
    assert numbers["consistency"] == 1 / 2  # what is no option agrees with nothing
