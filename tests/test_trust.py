"""What a run or a configuration file of somebody else cannot do, and what every reader notices."""

import json
import shutil
import tomllib

import pytest

from checks import output, refusal, refused
from conftest import run_command
from consilience.runs.folder import record_of
from replay_server import replay

RUN = ("probe", "--model", "baseline:majority", "--suite", "mini", "--limit", "2")

PAIRS = "sentence1\tsentence2\tlabel\nA b.\tC d.\tentailment\nE f.\tG h.\tnot_entailment\n"

CODE = """
from pathlib import Path
Path({marker!r}).write_text("this code was run")
def polite(text, *more):
    return text
"""

READERS = [
    ("score", "{run}"),
    ("gate", "{run}", "--rule", "accuracy >= 0.0001"),
    ("compare", "{run}", "other"),
    ("compare", "other", "{run}"),
    ("report", "{run}"),
    ("publish", "{run}", "--format", "eee", "--model-id", "a/b"),
]
"""Commands that read runs of every kind; ``other`` is a second run of the same suite."""

READERS_OF_FACTS = [("analyze", name, "{run}") for name in ("patterns", "edits", "examples")]


def of_run(command, run):
    return [part.format(run=run) for part in command]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two relations."""
    folder = tmp_path_factory.mktemp("finished")
    output(run_command, *RUN, "--groups", "capital,sport", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path):
    for name in ("run", "other"):
        shutil.copytree(finished, tmp_path / name)
    return tmp_path / "run"


@pytest.mark.parametrize("command", READERS + READERS_OF_FACTS, ids=" ".join)
def test_a_finished_run_without_an_answers_file_is_not_counted(command, run, consilience):
    (run / "answers" / "1.parquet").unlink()
    err = refusal(consilience, *of_run(command, "run"))
    assert "1 answers file of a finished run missing: sport; expected the 2 that are in" in err
    assert err.count("error: ") == 1


def test_the_command_of_a_run_makes_its_missing_answers_again(run, consilience):
    whole = (run / "answers" / "1.parquet").read_bytes()
    (run / "answers" / "1.parquet").unlink()
    assert consilience(*RUN, "--groups", "capital,sport", "--out", "run")[0] == 0
    assert (run / "answers" / "1.parquet").read_bytes() == whole
    assert consilience("score", "run")[0] == 0


def test_a_run_that_was_interrupted_is_counted_with_a_note(run, consilience):
    (run / "answers" / "1.parquet").unlink()
    change(run, lambda record: record.update(finished=None))
    status, _, err = consilience("score", "run")
    assert (status, "1 of 2 relations (sport) have no answers at all" in err) == (0, True)


def test_a_run_in_an_unknown_format_is_refused_by_all(run, consilience):
    for version in (1, 2, 3, "4", None):
        change(run, lambda record: record["settings"].update(format=version))  # noqa: B023
        refused(f"a run in format {json.dumps(version)}; expected", record_of, run)
    change(run, lambda record: record["settings"].update(format=5))
    before = (run / "run.json").read_bytes()
    again = (*RUN, "--groups", "capital,sport", "--out", "{run}")
    for command in (*READERS, *READERS_OF_FACTS, again):
        err = refusal(consilience, *of_run(command, "run"))
        message = "run.json: a run in format 5; expected format 4, which this version of"
        assert message in err, command
    assert (run / "run.json").read_bytes() == before


def change(run, how):
    record = json.loads((run / "run.json").read_text())
    how(record)
    (run / "run.json").write_text(json.dumps(record))


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A model and a file whose code leaves a marker; keys are in the environment."""
    monkeypatch.setenv("MY_SECRET", "topsecretvalue")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mysecretkey")
    marker, model = tmp_path / "marker", tmp_path / "model"
    model.mkdir()
    for folder in (tmp_path, model):
        (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    settings = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (model / "config.json").write_text(json.dumps(settings))
    return marker


ATTACKS = {
    "--trust-remote-code": {"model": "model", "trust_remote_code": True},
    "--perturbations own.py:polite": {
        "suite": "rte", "data": "pairs.tsv", "perturbations": ["own.py:polite"],
    },
    "--base-url {url} --api-key-env MY_SECRET": {
        "model": "openai:x", "suite": "mini-questions", "base_url": "{url}", "api_key_env": "MY_SECRET",
    },
    "--base-url {url}": {"model": "openai:x", "suite": "mini-questions", "base_url": "{url}"},
}  # fmt: skip
"""Options of a record or a configuration file, and what has to be repeated to obey them."""


@pytest.mark.parametrize("asked", ATTACKS)
def test_a_record_runs_no_code_and_sends_no_key(asked, run, hostile, consilience):
    with replay(lambda *request: (404, {}, {})) as server:
        options = json.loads(json.dumps(ATTACKS[asked]).replace("{url}", server.url))
        change(run, lambda record: record["options"].update(options))
        assert consilience(*of_run(READERS[0], "run"))[0] == 0
        assert (hostile.exists(), server.headers) == (False, [])


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_found_file_has_no_power(attack, hostile, consilience, tmp_path):
    table, file = "[probe]", "consilience.toml"
    with replay(lambda *request: (404, {}, {})) as server:
        options = {"model": "baseline:majority", "suite": "mini", "limit": 1}
        options |= ATTACKS[attack]
        (tmp_path / "pairs.tsv").write_text(PAIRS)
        lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in options.items()]
        text = "\n".join([table, *lines]).replace("{url}", server.url)
        assert tomllib.loads(text)
        (tmp_path / file).write_text(text)
        status, out, err = consilience("probe", "--out", "new")
        assert (status, out, hostile.exists(), server.headers) == (2, "", False, [])
        key = attack.split()[0][2:]
        assert f"{key}, which runs code" in err
        assert f"If you trust the file, name it: --config {file}." in err
        consilience("probe", "--out", "new", "--config", tmp_path / file)
        assert hostile.exists() or server.headers
        harmless = f'{table}\ntrust-remote-code = false\nlimit = 1\ngroups = "sport"\n'
        (tmp_path / file).write_text(harmless)
        assert consilience("probe", "-m", "baseline:first", "-s", "mini-questions")[0] == 0
