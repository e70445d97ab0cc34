"""publish: the four formats of a run, what stays private, and licences."""

import getpass
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml
from huggingface_hub import DatasetCard, ModelCard, parse_eval_result_entries
from jsonschema import Draft7Validator

from checks import refused
from conftest import cases
from consilience.gating.rules import parse_rules
from consilience.kinds.probing import probe
from consilience.options.probe import ProbeOptions
from consilience.options.runs import PublishOptions
from consilience.publish import formats, publication
from consilience.publish.formats import (
    EEE_AGGREGATE,
    EEE_INSTANCE,
    EEE_SCHEMAS,
    MODEL_FIELDS,
    PublicSuite,
    _metric,
    may_be_shared,
    sample_hash,
)
from consilience.publish.publication import (
    public_command,
    public_model,
    public_run,
    public_suite,
    publish,
)
from consilience.report.export import escape_markdown
from consilience.results.evaluation import evaluate
from consilience.runs.run import Run
from consilience.suites.known import KNOWN
from consilience.suites.question_suites import MINI

ID = "my-org/my-model"

QUESTIONS = """item,group,question,options,answer
q1,sky,Which is a planet?,Mars; Vega,Mars
q2,sky,Which is a star?,Vega; Mars,Vega
q3,sky,Which is a moon?,Io; Rigel,Io
q4,sky,Which is red?,Vega; Mars,Mars
"""
"""The first option is right in three of four."""

VALIDATOR = shutil.which(os.environ.get("EVERY_EVAL_EVER", "every_eval_ever"))
"""`make test-publish` installs it."""

SERVER = "http://gpu7.example.internal:8000/v1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of each kind: ``facts``, ``questions``, ``pairs`` and ``seeds``."""
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
        "questions": ("baseline:majority", str(folder / "sky.csv"), {"vary": ("order=rotations",)}),
        "pairs": ("baseline:majority", "mrpc", {"data": str(folder / "pairs.tsv")}),
    }
    for name, (model, suite, options) in asked.items():
        probe(ProbeOptions(model=model, suite=suite, out=folder / name, **options))
    for seed in (1, 2):
        shutil.copytree(folder / "pairs", folder / "seeds" / f"seed-{seed}")
    return folder


@pytest.fixture(scope="module")
def counted_once():
    """``public_run``, which counts a run once for all formats."""
    known = {}

    def count(run, options):
        record = tuple(part.path.joinpath("run.json").read_text() for part in run.seeds)
        key = record, options.model_id, options.licence
        if key not in known:
            known[key] = public_run(run, options)
        return known[key]

    return count


@pytest.fixture
def made(runs, tmp_path, counted_once, monkeypatch):
    """``made(run, format, **options)``: the publication of a run in a new folder."""
    monkeypatch.setattr(publication, "public_run", counted_once)

    def make(name, format_, **options):
        more = {"benchmark": "my-org/sky"} if format_ == "eval-results" else {}
        chosen = {"model_id": ID, "out": tmp_path / "out", **more, **options}
        return publish(PublishOptions(runs / name, format_, **chosen))

    return make


def text_of(publication, ending):
    (content,) = (publication.files[name] for name in publication.files if name.endswith(ending))
    return content.decode()


def table_of(publication, name):
    return pl.read_parquet(io.BytesIO(publication.files[f"data/{name}.parquet"]))


def texts_in(publication):
    """The text of each file; of a table its texts alone."""
    return [
        pl.read_parquet(io.BytesIO(content)).select(pl.col(pl.String)).write_csv()
        if name.endswith(".parquet")
        else content.decode()
        for name, content in publication.files.items()
    ]


def problems(schema, document):
    known = json.loads(EEE_SCHEMAS.joinpath(schema).read_text())
    return [error.message for error in Draft7Validator(known).iter_errors(document)]


@pytest.mark.parametrize(("metric", "is_lower"), [
    ("consistent_wrong", True), ("violation_rate", True), ("f1", False),
])  # fmt: skip
def test_the_direction_of_a_metric_is_that_of_gates(metric, is_lower):
    (rule,) = parse_rules([f"{metric} no worse than baseline by 3 points"])
    assert rule.threshold.at_least != is_lower
    assert _metric(metric, "strict")["lower_is_better"] == is_lower


@pytest.mark.parametrize("name", ["facts", "questions", "pairs", "seeds"])
def test_records_fit_the_published_schemas_of_every_eval_ever(made, name):
    """The samples of the base variant make the accuracy of their group."""
    published = made(name, "eee", licence="CC-BY-4.0", organization="My-Org")
    record = json.loads(text_of(published, ".json"))
    assert not problems(EEE_AGGREGATE, record)
    assert problems(EEE_AGGREGATE, {**record, "more": 1}), "the schema refuses the unknown"
    assert record["source_metadata"]["evaluator_relationship"] == "first_party"
    results = record["evaluation_results"]
    scores = {one["evaluation_result_id"]: one["score_details"]["score"] for one in results}
    assert len(scores) == len(results) > 3
    details, lines = record["detailed_evaluation_results"], text_of(published, ".jsonl")
    assert details["checksum"] == hashlib.sha256(lines.encode()).hexdigest()
    samples = [json.loads(line) for line in lines.splitlines()]
    assert details["total_rows"] == len(samples)
    assert len({(s["sample_id"], s["metadata"].get("seed")) for s in samples}) == len(samples)
    assert not [fault for sample in samples for fault in problems(EEE_INSTANCE, sample)]
    assert {s["evaluation_id"] for s in samples} == {record["evaluation_id"]}
    assert (published.folder / details["file_path"]).read_text() == lines
    right = {}
    for sample in samples:
        if "evaluation_result_id" in sample:
            values = right.setdefault(sample["evaluation_result_id"], [])
            values.append(sample["evaluation"]["score"])
    assert right and right.keys() <= scores.keys()
    for result, values in right.items():
        assert sum(values) / len(values) == pytest.approx(scores[result])


def test_the_numbers_of_a_record_are_those_worked_out_by_hand(made):
    """The majority answer is the option of most golds, the first: right in 3 of 4, consistent."""
    published = made("questions", "eee", licence="MIT")
    record = json.loads(text_of(published, ".json"))
    results = {result["evaluation_result_id"]: result for result in record["evaluation_results"]}
    accuracy = results["sky/sky/accuracy/all"]
    assert accuracy["score_details"]["score"] == 0.75
    assert accuracy["score_details"]["uncertainty"]["num_samples"] == 4
    interval = accuracy["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < 0.75 < interval["upper"] and interval["confidence_level"] == 0.95
    assert accuracy["metric_config"]["metric_id"] == "accuracy"
    details = results["sky/MICRO/accuracy/all"]["score_details"]["details"]
    assert details["majority_baseline"] == "0.75"
    assert "majority_baseline" not in accuracy["score_details"]["details"]
    consistency = results["sky/sky/consistency/all"]
    assert consistency["score_details"]["score"] == 1
    assert consistency["metric_config"]["metric_id"] == "consilience.consistency"
    assert consistency["metric_config"]["max_score"] == 1
    samples = [json.loads(line) for line in text_of(published, ".jsonl").splitlines()]
    right = [s["evaluation"]["is_correct"] for s in samples if "evaluation_result_id" in s]
    assert right == [True, True, True, False]
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


def test_reasons_of_excluded_answers_name_no_server(made):
    (run,) = made("facts", "dataset").runs
    reason = f"{SERVER} refused; gpu7.example.internal:8000 is busy"
    run = replace(run, answers=run.answers.with_columns(excluded=pl.lit(reason)))
    assert set(run.shared_answers()["excluded"]) == {"URL refused; URL is busy"}


def test_the_same_run_has_the_same_record(made, tmp_path):
    first, second = (made("facts", "eee", out=tmp_path / name) for name in "ab")
    assert list(first.files) == list(second.files)
    assert text_of(first, ".jsonl") == text_of(second, ".jsonl")


@pytest.mark.parametrize("name", ["facts", "questions", "pairs", "seeds"])
def test_a_model_card_is_read_by_the_hub_library(made, name):
    published = made(name, "model-card")
    card = ModelCard(text_of(published, "README.md"))
    numbers = {result.metric_type: result for result in card.data.eval_results}
    (run,) = published.runs
    (row,) = (r for r in run.summary.rows if (r.metric, r.subset) == ("accuracy", "all"))
    assert numbers["accuracy"].metric_value == pytest.approx(row.value, abs=1e-4)
    assert numbers["accuracy"].metric_args["protocol"] == "strict"
    for text in (run.suite.digest, "strict", "95 %", "consilience probe", "bootstrap"):
        assert text in card.text


def test_an_existing_model_card_keeps_what_it_has(made, tmp_path):
    (tmp_path / "out").mkdir()
    card = tmp_path / "out" / "README.md"
    card.write_text("---\nlicense: mit\ntags: [mine]\n---\n\n# Mine\n\nWords.\n")
    made("facts", "model-card")
    once = card.read_text()
    made("facts", "model-card")
    assert card.read_text() == once, "the same run is published once"
    made("questions", "model-card")
    read = ModelCard(card.read_text())
    assert (read.data.license, read.data.tags) == ("mit", ["mine", "consilience"])
    assert {result.dataset_name for result in read.data.eval_results} == {"mini", "sky"}
    assert read.text.count("## Consistency on") == 2
    assert "# Mine\n\nWords." in read.text
    card.write_text("---\na: [\n---\n")
    refused("metadata cannot be read", made, "facts", "model-card")


def test_numbers_of_two_protocols_stay_apart_in_a_card(tmp_path):
    """The Hub's library reads one set of arguments for all results of a dataset."""
    for protocol in ("strict", "published"):
        folder = tmp_path / "both" / protocol
        asked = ProbeOptions(model="baseline:random", suite="mini", limit=2, groups=("capital",))
        probe(replace(asked, protocol=protocol, out=folder))
    for run in ("", "strict", "strict"):
        options = PublishOptions(tmp_path / "both" / run, "model-card", model_id=ID)
        publish(replace(options, out=tmp_path / "out"))
    read = ModelCard.load(tmp_path / "out" / "README.md").data.eval_results
    protocols = [of.metric_args["protocol"] for of in read if of.metric_type == "accuracy"]
    assert sorted(protocols) == ["published", "strict"]


def test_runs_with_equal_settings_and_other_answers_have_records_of_their_own(runs, tmp_path):
    def sampled(prompts):
        return [answer] * len(prompts)

    for answer in ("Mars", "Vega"):
        evaluate(str(runs / "sky.csv"), sampled, out=tmp_path / "twice" / answer)
    published = publish(PublishOptions(tmp_path / "twice", "eee", model_id=ID, out=tmp_path / "o"))
    assert sum(name.endswith(".json") for name in published.files) == 2


def test_results_of_the_hub_are_read_by_its_library(made):
    published = made("questions", "eval-results")
    assert list(published.files) == [".eval_results/consilience-sky-strict.yaml"]
    entries = parse_eval_result_entries(yaml.safe_load(text_of(published, ".yaml")))
    values = {entry.task_id: entry.value for entry in entries}
    assert (values["accuracy"], values["consistency"]) == (75, 100)
    assert {entry.dataset_id for entry in entries} == {"my-org/sky"}
    assert entries[0].notes.startswith("95 % CI ")


def test_a_data_set_has_the_answers_the_numbers_and_the_suite(made, runs):
    published = made("facts", "dataset")
    front = DatasetCard.load(published.folder / "README.md").data.to_dict()
    names = [config["config_name"] for config in front["configs"]]
    assert names == ["answers", "metrics", "facts", "patterns"]
    paths = {config["data_files"][0]["path"] for config in front["configs"]}
    assert paths == published.files.keys() - {"README.md"}
    assert front["license"] == "apache-2.0"
    answers = pl.read_parquet(runs / "facts" / "answers" / "*.parquet")
    of_data, of_run = (
        table.sort("item", "variant_index") for table in (table_of(published, "answers"), answers)
    )
    assert of_data.equals(of_run)
    facts = table_of(published, "facts")
    assert facts.height == answers.unique(["group", "item"]).height
    assert set(table_of(published, "patterns")["group"]) == {"capital", "borders"}
    assert made("facts", "dataset").files == published.files, "written again"
    answers = table_of(made("seeds", "dataset"), "answers")
    assert answers["seed"].unique(maintain_order=True).to_list() == ["seed-1", "seed-2"]


def test_without_a_licence_no_text_of_a_suite_is_published(made, runs, tmp_path):
    for name, words in (("questions", ("Mars", "planet", "q1")), ("pairs", ("rained", "Birds"))):
        for format_ in ("eee", "dataset"):
            published = made(name, format_, out=tmp_path / f"{name}-{format_}")
            assert "left out: no licence is stated" in published.notes[0]
            texts = texts_in(published)
            assert not [word for word in words for text in texts if word in text]
    run = public_run(Run.open(runs / "questions"), PublishOptions(runs, "dataset", model_id=ID))
    notes = ["1 of 4 queries have no answer (sky 1); such as sky q1: |<b>no| a.de:80"]
    assert "(sky 1)\n" in replace(run, notes=notes).as_markdown()
    licensed = replace(run, notes=notes, suite=replace(run.suite, licence="MIT")).as_markdown()
    assert r"such as sky q1: \|\<b\>no\| URL" in licensed
    answers = table_of(made("questions", "dataset"), "answers")
    assert answers["item"].unique().sort().to_list() == [0, 1, 2, 3]
    mixed = replace(run, answers=run.answers.sort("variant_index")).shared_answers()
    assert mixed.sort("item", "variant").equals(answers.sort("item", "variant"))
    assert answers["is_right"].mean() == 0.75 and "subject" not in answers.columns
    assert "prompts" in text_of(made("questions", "dataset", licence="MIT"), "README.md")


OF_ARC = KNOWN["arc"].source


def test_the_licence_is_that_of_the_suite_that_was_named():
    """Not that of a file called like a suite, nor of patterns with the facts of another suite."""
    questions = {"kind": "questions", "suite": "mini-questions", "suite_digest": "d"}
    facts = {"suite": "mini", "suite_digest": "d", "facts": None}
    of_mini = {"folder": str(MINI)}
    for settings, options, source, licence in (
        (questions, {"suite": "mini-questions"}, {}, "Apache-2.0"),
        (questions, {"suite": "my/mini-questions.csv"}, {}, ""),
        (questions, {"suite": None}, {}, ""),
        (questions | {"suite": "mini"}, {"as_questions": 3}, {}, "Apache-2.0"),
        (questions | {"suite": "mini"}, {"suite": "mini.csv"}, {}, ""),
        (facts, {}, of_mini, "Apache-2.0"),
        (facts, {}, {}, ""),
        (facts | {"facts": "pararel"}, {"facts_from": "pararel"}, of_mini, ""),
        (questions, {"suite": "arc"}, OF_ARC, "CC-BY-SA-4.0"),
    ):
        record = {"settings": settings, "options": options, "suite_source": source}
        assert public_suite(Run(Path("x"), "x", record), None, None).licence == licence


def test_where_a_suite_is_published(tmp_path):
    about = {"licence": "CC-BY-4.0", "url": "https://example.org/suite"}
    (tmp_path / "suite.json").write_text(json.dumps(about))
    facts = {"suite": "own", "suite_digest": "d"}
    task = {"name": "mrpc", "hub": ["nyu-mll/glue", "mrpc"]}
    pairs = {"kind": "perturb", "pairs": "d", "task": task}
    questions = {"kind": "questions", "suite": "a/b", "suite_digest": "d"}
    for settings, options, known in (
        (facts, {}, ("https://example.org/suite", "", "", "")),
        (pairs, {"data": "hub:test"}, ("", "nyu-mll/glue", "mrpc", "test")),
        (pairs, {"data": "hub"}, ("", "nyu-mll/glue", "mrpc", "validation")),
        (pairs, {"data": "pairs.tsv"}, ("", "", "", "")),
        (questions, {"suite": "hub:a/b@c:train"}, ("", "a/b", "c", "train")),
        (questions, {"suite": "arc"}, ("", "allenai/ai2_arc", "ARC-Challenge", "test")),
    ):
        source = {"folder": str(tmp_path)} if settings is facts else {}
        source = OF_ARC if options == {"suite": "arc"} else source
        record = {"settings": settings, "options": options, "suite_source": source}
        suite = public_suite(Run(Path("x"), "x", record), None, None)
        assert (suite.url, suite.dataset, suite.config, suite.split) == known


def test_what_is_said_of_a_model():
    def model(*identities, id_=ID):
        parts = tuple(Run(Path("x"), "x", {"settings": {"model": one}}) for one in identities)
        return public_model(Run(Path("x"), "x", parts[0].record, parts), id_)

    hub = {"model": "org/name", "architecture": "A", "revision": "r", "digest": None}
    hub["device"] = "cpu"
    known = model(hub, id_=None)
    facts = {"architecture": "A", "revision": "r", "source": "Hub"}
    assert known == ("org/name", facts)
    seeds = [hub | {"model": f"/home/me/{seed}", "digest": seed} for seed in "ab"]
    assert model(*seeds) == (ID, facts | {"source": "local files"})
    assert model({"model": "openai:x", "server": SERVER}) == (ID, {"source": "server"})
    assert model({"model": "baseline:random"}) == (ID, {})
    for private in (seeds[0], {"model": "a/b", "server": SERVER}, {"model": "bert-base-cased"}):
        refused("--model-id ORGANISATION/NAME", model, private, id_=None)


def test_facts_of_another_suite_are_published_as_they_were_asked(tmp_path, write_suite):
    fact = {"relation": "capital", "subject": "Texas", "object": "Austin"}
    options = {"facts_from": str(write_suite(facts=[fact])), "groups": ("capital",)}
    probe(ProbeOptions(model="baseline:random", out=tmp_path / "run", **options))
    chosen = PublishOptions(tmp_path / "run", "eee", model_id=ID, licence="MIT")
    public = public_run(Run.open(tmp_path / "run"), chosen)
    (subject,) = set(public.answers["subject"])
    assert public.prompts.height == public.answers.height == 9
    assert all(subject in prompt for prompt in public.prompts["prompt"])
    baselines = {row.metric: row.baseline for row in public.summary.rows}
    assert baselines["accuracy"] == 1, "the most frequent object is of these facts"


@pytest.mark.parametrize(("licence", "may"), cases("licences"))
def test_which_licences_let_a_suite_be_shared(licence, may):
    assert may_be_shared(licence) == may


@pytest.fixture
def served(runs, tmp_path):
    """A run whose record names a server, with a question as hostile as can be."""
    folder = shutil.copytree(runs / "facts", tmp_path / "served")
    record = json.loads((folder / "run.json").read_text())
    record["settings"]["model"] = {"model": "openai:tiny", "kind": "served", "server": SERVER}
    record["options"] |= {"base_url": SERVER, "api_key_env": "MY_KEY", "model": "openai:tiny"}
    record["warnings"] = [f"{folder}: {SERVER} was slow"]
    (folder / "run.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("format_", ["eee", "model-card", "eval-results", "dataset"])
def test_no_place_of_this_machine_is_published(made, served, runs, format_, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-1234567890ab")
    private = ["sk-1234567890ab", "MY_KEY", "gpu7", ":8000", str(runs), "secret-place"]
    private += [str(Path.home()), str(Path.cwd()), socket.gethostname()]
    private += [getpass.getuser()] * (getpass.getuser() != "root")
    for run in (served, "questions", "pairs", "seeds"):
        texts = texts_in(made(run, format_, licence="MIT"))
        assert not [word for word in private for text in texts if word in text]


@pytest.mark.parametrize("name", ["a.json", "a.parquet", "a.md"])
def test_a_key_in_a_text_is_found(name, made, monkeypatch):
    """Also in a table, whose bytes are compressed, and where its signs are escaped."""
    monkeypatch.setenv("MY_TOKEN", "capital_of_something")
    said = escape_markdown("capital_of_something") if name == "a.md" else "capital_of_something"
    texts = ["a", *(f"m{at} the {said}" for at in range(200)), "z"]
    table, file = pl.DataFrame({"x": texts}), io.BytesIO()
    table.write_parquet(file) if name == "a.parquet" else file.write("\n".join(texts).encode())
    monkeypatch.setattr(formats, "eee_files", lambda *_: {name: file.getvalue()})
    refused("it would publish the value of MY_TOKEN", made, "facts", "eee")


def test_the_published_command_has_no_folder():
    options = {
        "model": "/a/b", "suite": "/data/x.csv", "out": "/o", "limit": 3, "base_url": SERVER,
        "data": "/home/me/pairs.tsv", "template": "C:\\me\\t.toml", "as_shipped": False,
        "vary": ["order=rotations", "labels=A,1"], "groups": ["a", "b"], "keep_scores": True,
        "system": "Be brief and/or kind.",
    }  # fmt: skip
    assert public_command(options, ID, "x") == (
        f"consilience probe --model {ID} --suite x --limit 3 --template t.toml --groups a,b "
        "--keep-scores --data pairs.tsv --vary order=rotations --vary labels=A,1 "
        "--system 'Be brief and/or kind.'"
    )
    long = "Answer this. " * 30 + "{question}"
    command = public_command({"system": "/no_think", "template": long}, ID, "x")
    assert command.endswith(f"--template '{long}' --system /no_think")
    assert public_command(None, ID, "x") == ""
    options = {"equivalence": "nli:/data/team/nli", "single_token": ["Qwen/Qwen2.5-0.5B", "b"]}
    command = public_command(options, ID, "x")
    assert command.endswith("--single-token Qwen/Qwen2.5-0.5B,b --equivalence nli:nli")


def test_suites_without_latin_letters_have_files_of_their_own():
    names = ("\u9996\u90fd", "\u56fd \u56fd", "My Suite")
    suites = [
        PublicSuite(name, "facts", f"{at}123456789", None, "") for at, name in enumerate(names)
    ]
    assert [suite.slug for suite in suites] == ["suite-01234567", "suite-11234567", "my-suite"]


def test_a_folder_of_runs_has_a_record_for_each(made, runs, tmp_path):
    for name in ("facts", "again"):
        shutil.copytree(runs / "facts", tmp_path / "study" / name)
    record = tmp_path / "study" / "again" / "run.json"
    document = json.loads(record.read_text())
    document["settings"]["seed"] = 7
    record.write_text(json.dumps(document))
    published = made(tmp_path / "study", "eee")
    stems = {re.sub(r"(_samples)?\.jsonl?$", "", name) for name in published.files}
    assert len(stems) == 2
    study = tmp_path / "study"
    refused("2 runs of 1 model; expected one run", made, study, "dataset")
    refused("several runs of mini under strict; expected one", made, study, "model-card")
    refused("--model-id with runs of 2 models.*one of them", made, "", "eee")
    refused("none of 4 runs can be published.*--model-id", made, "", "eee", model_id=None)


def test_wrong_input_is_refused_with_what_to_do(made, runs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("mine")
    (tmp_path / "empty").mkdir()
    unfinished = shutil.copytree(runs / "facts", tmp_path / "unfinished")
    record = json.loads((unfinished / "run.json").read_text())
    (unfinished / "run.json").write_text(json.dumps(record | {"finished": None}))
    for name, format_, options, message in (
        ("facts", "eee", {"model_id": None}, "the model 'baseline:random'; .* --model-id"),
        ("facts", "eee", {"model_id": "a b"}, "expected ORGANISATION/NAME"),
        ("facts", "eval-results", {"benchmark": None}, "no --benchmark"),
        ("facts", "dataset", {"benchmark": "a/b"}, "--benchmark with --format dataset"),
        ("facts", "dataset", {}, "a README.md that consilience did not write"),
        ("facts", "dataset", {"yes": True}, "without --push"),
        ("facts", "model-card", {"public": True, "push": "a/b"}, "--public with --format model"),
        (unfinished, "eee", {}, "the run is not complete"),
        (tmp_path / "empty", "eee", {}, "no run; expected the folder of a run"),
        (tmp_path / "none", "eee", {}, "no such file or folder"),
    ):
        refused(message, made, name, format_, **options)
    assert "server" not in MODEL_FIELDS


@pytest.mark.skipif(VALIDATOR is None, reason="every-eval-ever is not installed")
@pytest.mark.parametrize("name", ["facts", "questions", "pairs", "seeds"])
def test_the_validator_of_every_eval_ever_has_no_warning(made, name):
    published = made(name, "eee", licence="MIT", organization="my-org" if name == "facts" else "")

    def validate():
        words = [Path(VALIDATOR).absolute(), "validate", "--format", "github", *published.files]
        return subprocess.run(
            words, cwd=published.folder, capture_output=True, text=True, check=False
        )

    answer = validate()
    assert answer.returncode == 0, answer.stdout
    assert "::warning" not in answer.stdout
    record = published.paths[0]
    record.write_text(record.read_text().replace('"score": ', '"score": 9', 1))
    assert validate().returncode != 0, "a score beyond its bounds is found"


def test_datasets_loads_every_table_of_two_folders_of_the_same_name(made, tmp_path):
    """``datasets`` caches by the name of the folder and the metadata of its card."""
    load = pytest.importorskip("datasets").load_dataset
    for name in ("pairs", "seeds"):
        folder = tmp_path / name / "dataset"
        published = made(name, "dataset", out=folder, licence="MIT")
        tables = [path for path in published.paths if path.suffix == ".parquet"]
        assert [path.stem for path in tables] == ["answers", "metrics", "prompts"]
        for path in tables:
            table = load(str(folder), path.stem, split="test", cache_dir=str(tmp_path / "cache"))
            assert table.num_rows == pl.read_parquet(path).height
