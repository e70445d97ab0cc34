"""verify: the same answers, changed files, another suite, and runs that cannot be repeated."""

import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl

from checks import refused
from consilience.core.errors import Watch
from consilience.kinds.probing import probe
from consilience.options.probe import ProbeOptions
from consilience.options.runs import VerifyOptions
from consilience.results.verifying import SCORED, _score_differences, verify
from replay_server import replay

QUESTIONS = {"question": "2 + 2?", "answer": "4", "options": ["3", "4"], "item": "a"}


def probed(folder, model="baseline:random", suite="mini", **options):
    probe(ProbeOptions(model=model, suite=suite, out=folder, **options))
    return folder


def test_the_same_machine_gives_the_same_answers_of_whole_items_of_each_group(tmp_path):
    run = probed(tmp_path / "run", groups=("capital", "painter"), limit=3)
    verified = verify(VerifyOptions(run, sample=20))
    assert verified.is_same and verified.is_exact
    answers = pl.read_parquet(run / "answers" / "*.parquet")
    asked = verified.rows.group_by("group", "item").len()
    sizes = answers.group_by("group", "item").len()
    assert set(asked["group"]) == {"capital", "painter"}
    assert asked.join(sizes, on=["group", "item", "len"], how="anti").is_empty()
    assert "to the last bit" in verified.verdict[0]
    for rows in (
        verified.rows.drop([f"{name}_now" for name in SCORED], strict=False),
        verified.rows.with_columns(pl.lit(None, pl.Float64).alias(name) for name in SCORED),
    ):
        largest, is_exact = _score_differences(rows)
        verdict = replace(verified, largest=largest, is_exact=is_exact).verdict[0]
        assert (math.isnan(largest), is_exact, "no scores were compared" in verdict) == (
            True,
            False,
            True,
        )


def test_another_model_gives_other_answers(tmp_path):
    run = probed(tmp_path / "run", groups=("capital",), limit=5)
    verified = verify(VerifyOptions(run, model="baseline:majority"))
    assert not verified.is_same
    assert 0 < verified.differing.height <= verified.rows.height
    assert verified.settings["model: model"] == ("baseline:random", "baseline:majority")
    assert "answers differ" in verified.verdict[0]


def test_changed_missing_and_unknown_files_are_named(tmp_path):
    run = probed(tmp_path / "run", groups=("capital", "painter", "author"), limit=2)
    folder = run / "answers"
    table = pl.read_parquet(folder / "capital.parquet")
    table.with_columns(answer=pl.lit("x")).write_parquet(folder / "capital.parquet")
    (folder / "painter.parquet").rename(folder / "new.parquet")
    verified = verify(VerifyOptions(run))
    assert verified.files == {"capital": "changed", "painter": "missing", "new": "unknown"}
    assert not verified.is_same
    assert set(verified.differing["group"]) == {"capital"}


def test_a_run_of_questions_and_one_without_options_which_cannot_be_repeated(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(QUESTIONS) + "\n")
    run = probed(tmp_path / "run", suite=str(file))
    assert verify(VerifyOptions(run)).is_same
    file.write_text(json.dumps(QUESTIONS | {"question": "3 + 1?"}) + "\n")
    refused("another run", verify, VerifyOptions(run))
    record = json.loads(Path(run, "run.json").read_text())
    del record["options"]
    Path(run, "run.json").write_text(json.dumps(record))
    refused("does not have the options", verify, VerifyOptions(run))


class Told(Watch):
    """Keeps the lines on the work."""

    def __init__(self):
        self.lines = []

    def inform(self, line):
        self.lines.append(line)


def test_a_server_is_sent_as_many_requests_as_announced_and_sampled_answers_may_differ(tmp_path):
    letter = "A"

    def answer(path, body, headers):
        if path != "/v1/chat/completions":
            return 404, {}, {}
        choice = {"message": {"content": letter}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}

    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(QUESTIONS) + "\n")
    with replay(answer) as server:
        run = probed(
            tmp_path / "run", "openai:m", str(file), base_url=server.url, generate=True,
            temperature=0.8, max_requests=40, noise_floor=2,
        )  # fmt: skip
        letter, watch = "B", Told()
        before = len(server.bodies("/v1/chat/completions"))
        verified = verify(VerifyOptions(run, base_url=server.url), watch)
        sent = len(server.bodies("/v1/chat/completions")) - before
        announced = f"sending about 2 requests to {server.url}, after {sent - 2} that test what"
        assert watch.lines == [f"{announced} the server can do"]
        assert (verified.rows.height, verified.cost["requests"]) == (2, sent)
        assert verified.verdict == [
            "2 of 2 answers differ (100.0 %): more than the noise floor of the run (0.0 %).",
            "The server sampled at temperature 0.8, so answers need not be equal.",
        ]
        few = VerifyOptions(run, base_url=server.url, max_requests=1)
        refused("--max-requests 1 is reached", verify, few)
        few = VerifyOptions(run, base_url=server.url, max_tokens=1)
        refused("--max-tokens 1 is reached", verify, few)
