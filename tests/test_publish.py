"""publish: a record of Every Eval Ever, a model card, and what stays private."""

import getpass
import hashlib
import json
import shlex
import shutil
import socket
from pathlib import Path

import polars as pl
import pytest
from huggingface_hub import ModelCard

from checks import refused
from conftest import eee_validator
from consilience.files.read import parquet_metadata
from consilience.options.commands import ProbeOptions, ScoreOptions
from consilience.probing import count_run, probe
from consilience.publish import public_command, public_model, publish, sample_hash
from consilience.results.evaluation import scored
from consilience.runs.folder import QUERIES, digest_of, fingerprint
from consilience.runs.run import Run

ID = "my-org/my-model"

QUESTIONS = """item,group,question,options,answer
q1,sky,Which is a planet?,Mars; Vega,Mars
q2,sky,Which is a star?,Vega; Mars,Vega
q3,sky,Which is a moon?,Io; Rigel,Io
q4,sky,Which is red?,Vega; Mars,Mars
q5,sky,Which is blue?,Rigel; Mars,Rigel
q6,sky,Which is white?,Sirius; Mars,Sirius
q7,sky,Which is yellow?,Io; Mars,Io
q8,sky,Which is near?,Vega; Mars,Mars
"""
"""The first option is right in six of eight."""

SERVER = "http://gpu7.example.internal:8000/v1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of each kind: ``facts``, ``questions`` and ``pairs``."""
    folder = tmp_path_factory.mktemp("published") / "secret-place"
    folder.mkdir()
    (folder / "sky.csv").write_text(QUESTIONS, encoding="utf-8")
    (folder / "pairs.tsv").write_text(
        "sentence1\tsentence2\tlabel\nIt rained.\tRain fell.\tequivalent\n"
        "Birds fly.\tFish swim.\tnot_equivalent\n",
        encoding="utf-8",
    )
    asked = {
        "facts": ("baseline:random", "mini", {"groups": ("capital", "borders"), "limit": 3}),
        "questions": ("baseline:constant", str(folder / "sky.csv"), {"vary": ("order=rotations",)}),
        "pairs": ("baseline:majority", "mrpc", {"data": str(folder / "pairs.tsv")}),
    }
    for name, (model, suite, options) in asked.items():
        probe(ProbeOptions(model=model, suite=suite, out=folder / name, **options))
    return folder


@pytest.fixture
def made(runs, tmp_path):
    """``made(run, format, **options)``: the texts of the files of a publication, by their paths."""

    def make(name, format_, **options):
        chosen = {"model_id": ID, "out": tmp_path / "out", **options}
        publish(runs / name, format_, **chosen)
        files = [path for path in chosen["out"].rglob("*") if path.is_file()]
        return {str(path.relative_to(chosen["out"])): path.read_text() for path in files}

    return make


def text_of(files, ending):
    (text,) = (text for name, text in files.items() if name.endswith(ending))
    return text


def problems(schema, document):
    return [error.message for error in eee_validator(schema).iter_errors(document)]


@pytest.mark.parametrize("name", ["facts", "questions", "pairs"])
def test_records_fit_the_published_schemas_of_every_eval_ever(made, name):
    """The samples of the base variant make the accuracy of their group."""
    files = made(name, "eee", licence="CC-BY-4.0", organization="My-Org")
    record = json.loads(text_of(files, ".json"))
    assert not problems("record", record)
    assert record["source_metadata"]["evaluator_relationship"] == "first_party"
    results = record["evaluation_results"]
    scores = {one["evaluation_result_id"]: one["score_details"]["score"] for one in results}
    assert len(scores) == len(results) > 3
    details, lines = record["detailed_evaluation_results"], text_of(files, ".jsonl")
    assert details["checksum"] == hashlib.sha256(lines.encode()).hexdigest()
    samples = [json.loads(line) for line in lines.splitlines()]
    assert details["total_rows"] == len(samples)
    assert len({sample["sample_id"] for sample in samples}) == len(samples)
    assert not [fault for sample in samples for fault in problems("sample", sample)]
    assert {s["evaluation_id"] for s in samples} == {record["evaluation_id"]}
    assert files[details["file_path"]] == lines
    right = {}
    for sample in samples:
        if "evaluation_result_id" in sample:
            values = right.setdefault(sample["evaluation_result_id"], [])
            values.append(sample["evaluation"]["score"])
    assert right and right.keys() <= scores.keys()
    for result, values in right.items():
        assert sum(values) / len(values) == pytest.approx(scores[result])


def test_the_numbers_of_a_record_are_those_worked_out_by_hand(made):
    """The first option of the file is the gold of most questions: right in 6 of 8, consistent."""
    published = made("questions", "eee", licence="MIT")
    record = json.loads(text_of(published, ".json"))
    results = {result["evaluation_result_id"]: result for result in record["evaluation_results"]}
    accuracy = results["sky/group/sky/accuracy/whole"]
    assert accuracy["score_details"]["score"] == 0.75
    assert accuracy["score_details"]["uncertainty"]["num_samples"] == 8
    interval = accuracy["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < 0.75 < interval["upper"] and interval["confidence_level"] == 0.95
    assert accuracy["metric_config"]["metric_id"] == "accuracy"
    details = results["sky/all/accuracy/whole"]["score_details"]["details"]
    assert details["majority_baseline"] == "0.75"
    assert "majority_baseline" not in accuracy["score_details"]["details"]
    consistency = results["sky/group/sky/consistency/whole"]
    assert consistency["score_details"]["score"] == 1
    assert consistency["metric_config"]["metric_id"] == "consilience.consistency"
    assert consistency["metric_config"]["max_score"] == 1
    samples = [json.loads(line) for line in text_of(published, ".jsonl").splitlines()]
    right = [s["evaluation"]["is_correct"] for s in samples if "evaluation_result_id" in s]
    assert right == [True, True, True, False, True, True, True, False]
    first = samples[0]
    assert "Which is a planet?" in first["input"]["raw"]
    assert first["input"]["reference"] == first["output"]["raw"] == ["Mars"]
    text = json.dumps({"raw": "a", "reference": ["b"]}, sort_keys=True, separators=(",", ":"))
    assert sample_hash("a", ["b"]) == hashlib.sha256(text.encode()).hexdigest()


def test_the_samples_of_sentence_pairs_have_the_text_of_each_form(made):
    """The majority label is the first of two that are equally frequent: right in 1 of 2 pairs."""
    lines = text_of(made("pairs", "eee", licence="MIT"), ".jsonl").splitlines()
    samples = list(map(json.loads, lines))
    assert [sample["input"]["raw"] for sample in samples[:3]] == [
        "Sentence1: It rained.\nSentence2: Rain fell.",
        "Sentence2: Rain fell.\nSentence1: It rained.",
        "[Sentence1] It rained.\n[Sentence2] Rain fell.",
    ]
    assert [one["metadata"]["variant"] for one in samples[:3]] == ["original", "reverse", "signal"]
    assert {sample["output"]["raw"][0] for sample in samples} == {"equivalent"}
    assert [sample["evaluation"]["is_correct"] for sample in samples] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("name", ["facts", "questions", "pairs"])
def test_a_model_card_is_read_by_the_hub_library(made, runs, name):
    card = ModelCard(text_of(made(name, "model-card"), "README.md"))
    has_interval = "low" in card.data.eval_results[0].metric_args
    assert has_interval == (name == "questions"), "none of fewer than five groups or items"
    numbers = {result.metric_type: result for result in card.data.eval_results}
    counted = count_run(Run.open(runs / name))
    (row,) = (r for r in counted.summary.rows if (r.metric, r.kind) == ("accuracy", "whole"))
    assert numbers["accuracy"].metric_value == pytest.approx(row.value, abs=1e-4)
    assert numbers["accuracy"].metric_args["protocol"] == "strict"
    digest = Run.open(runs / name).settings["queries"]
    for text in (digest, "strict", "95 %", "jackknife"):
        assert text in card.text
    assert ("consilience probe" in card.text) == (name != "pairs"), "its --data is a file"


def test_what_is_said_of_a_model():
    def model(identity, id_=ID):
        return public_model(Run(Path("x"), "x", {"settings": {"model": identity}}), id_)

    hub = {"model": "org/name", "architecture": "A", "revision": "r", "digest": None}
    hub["device"] = "cpu"
    known = model(hub, id_=None)
    facts = {"architecture": "A", "revision": "r", "source": "Hub"}
    assert known == ("org/name", facts)
    mine = hub | {"model": "/home/me/a", "digest": "d"}
    assert model(mine) == (ID, facts | {"digest": "d", "source": "local files"})
    assert model({"model": "openai:x", "server": SERVER}) == (ID, {"source": "server"})
    assert model({"model": "baseline:random"}) == (ID, {})
    for private in (mine, {"model": "a/b", "server": SERVER}, {"model": "bert-base-cased"}):
        refused("--model-id ORGANISATION/NAME", model, private, id_=None)


@pytest.fixture
def served(runs, tmp_path):
    """A run whose record names a server."""
    folder = shutil.copytree(runs / "facts", tmp_path / "served")
    record = json.loads((folder / "run.json").read_text())
    record["settings"]["model"] = {"model": "openai:tiny", "kind": "served", "server": SERVER}
    record["options"] |= {"base_url": SERVER, "api_key_env": "MY_KEY", "model": "openai:tiny"}
    record["warnings"] = [f"{folder}: {SERVER} was slow"]
    queries, known = folder / QUERIES, parquet_metadata(folder / QUERIES)
    metadata = {"groups": known["groups"], "consilience": fingerprint(record["settings"])}
    pl.read_parquet(queries).write_parquet(queries, metadata=metadata)
    record["queries"] = digest_of(queries)
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_what_a_server_wrote_of_a_failure_is_not_published(made, tmp_path):
    error = f"the server refused the request (400): /srv/secret-place of gpu7 at {SERVER}"
    rows = [{"item": f"q{at}", "gold": "a", "answer": None, "error": error} for at in range(2)]
    rows += [{"item": "q2", "gold": "a", "answer": "a", "error": None}]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    scored(ScoreOptions(tmp_path / "t.json", out=tmp_path / "mine"))
    text = text_of(made(tmp_path / "mine", "eee", licence="MIT"), ".jsonl")
    assert text.count("the server refused the request (400)") == 2
    assert not [word for word in ("secret-place", "gpu7", "8000") if word in text]


@pytest.mark.parametrize("format_", ["eee", "model-card"])
def test_no_place_of_this_machine_is_published(made, served, runs, format_, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-1234567890ab")
    private = ["sk-1234567890ab", "MY_KEY", "gpu7", ":8000", str(runs), "secret-place"]
    private += [str(Path.home()), str(Path.cwd()), socket.gethostname()]
    private += [getpass.getuser()] * (getpass.getuser() != "root")
    for run in (served, "questions", "pairs"):
        texts = made(run, format_, licence="MIT").values()
        assert not [word for word in private for text in texts if word in text]


def test_the_published_command_has_no_folder():
    options = {
        "model": "/a/b", "suite": "/data/x.csv", "out": "/o", "limit": 3, "base_url": SERVER,
        "generate": True, "vary": ["order=rotations"], "groups": ["a", "b"],
    }  # fmt: skip
    known = f"consilience probe --model {ID} --suite x --groups a,b --limit 3"
    assert public_command(options, ID, "x") == f"{known} --vary order=rotations --generate"
    for public in ("--data hub:validation", "--template plain", r"--match 'regex:(\d+)/\d+'"):
        name, value = shlex.split(public.removeprefix("--"))
        assert public_command(options | {name: value}, ID, "x").startswith(known[:30])
        assert public in public_command(options | {name: value}, ID, "x")
    for private in (
        {"data": "pairs.tsv"}, {"template": "{question}"}, {"vary": ["order", "template=t.toml"]},
        {"vary": ["template=/a/b"]}, {"match": "f.py:g"}, {"columns": ["a=b"]}, {"suite": None},
        {"data": "hub.jsonl"}, {"match": "embedding:/a/model"},
    ):  # fmt: skip
        assert public_command(options | private, ID, "x") == "", private
    assert public_command(None, ID, "x") == ""


def test_without_a_licence_no_text_of_a_suite_is_published(made, consilience, runs):
    for name, words in (("questions", ("Mars", "planet", "q1")), ("pairs", ("rained", "Birds"))):
        (text,) = made(name, "eee", out=runs / f"{name}-out").values()
        assert not [word for word in words if word in text]
    command = ("publish", runs / "pairs", "--format", "eee", "--model-id", ID)
    assert "the texts of mrpc are left out: if you may" in consilience(*command)[2]


def test_wrong_input_is_refused_with_what_to_do(made, runs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("mine")
    unfinished = shutil.copytree(runs / "facts", tmp_path / "unfinished")
    record = json.loads((unfinished / "run.json").read_text())
    (unfinished / "run.json").write_text(json.dumps(record | {"finished": None}))
    for name, format_, options, message in (
        ("facts", "eee", {"model_id": None}, "the model 'baseline:random'; .* --model-id"),
        ("facts", "eee", {"model_id": "a b"}, "expected ORGANISATION/NAME"),
        ("facts", "model-card", {}, "a README.md that consilience did not write"),
        (unfinished, "eee", {}, "the run is not complete"),
        (tmp_path / "none", "eee", {}, "no such file or folder"),
        ("sky.csv", "eee", {}, "no run.json; expected the folder of a run"),
    ):
        refused(message, made, name, format_, **options)
