"""The commands as a user gives them: output, JSON, exit status, one clear message."""

import gzip
import json
import math
import re
import shutil
import subprocess
import sys

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from conftest import ROOT, cases
from consilience.suites import layouts as fetch_module


def test_probe_shows_the_summary_and_where_more_is(consilience, tmp_path):
    status, out, err = consilience("probe", "--model", "baseline:majority", "--limit", 4)
    assert status == 0
    assert len(out.splitlines()) <= 12
    title = "baseline:majority on mini: 13 of 15 relations, 52 facts, 9 patterns each (strict)"
    assert out.startswith(title)
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"Report:  consilience report runs/{folder.name}\n" in out
    assert f"Details: consilience score runs/{folder.name} --by group" in out
    files = {"run.json", "queries.parquet", "answers", "metrics.csv"}
    assert {path.name for path in folder.iterdir()} == files
    assert err.startswith("asking: 540 queries\nasking: 540 queries in ")
    metrics = pl.read_csv(folder / "metrics.csv")
    assert metrics.filter(pl.col("over") == "mean").height >= 9


def test_json_is_one_document_and_nothing_else(consilience, tmp_path):
    arguments = ("probe", "--model", "baseline:random", "--groups", "sport, capital,", "--json")
    out = output(consilience, *arguments, "--out", tmp_path / "r", "--seed", 3)
    document = json.loads(out)
    assert set(document) == {"verdict", "run", "summary", "metrics", "changes", "warnings"}
    assert document["summary"]["rows"][1]["label"] == "Consistency"
    assert document["run"]["path"] == str(tmp_path / "r")
    assert document["run"]["settings"]["groups"] == ["capital", "sport"]
    model = {"model": "baseline:random", "kind": "baseline", "seed": 3}
    assert document["run"]["settings"]["model"] == model
    assert document["metrics"][0]["std"] is None, "not a number is null"
    again = json.loads(consilience(*arguments, "--out", tmp_path / "r", "--seed", 3)[1])
    assert again["metrics"] == document["metrics"]


@pytest.mark.parametrize(("family", "kind"), [("bert", "masked"), ("gpt2", "causal")])
def test_probe_with_a_real_model_and_score_agree(family, kind, consilience, model_folder):
    """A run is scored by its own protocol: the token of each word was decided when it was asked.

    Notes stay when a finished run is repeated.
    """
    probe = ("probe", "--model", model_folder(family), "--groups", "author,borders", "--limit", 2)
    command = (*probe, "--out", "r", "--protocol", "published", "--suite", "mini", "--json")
    document = json.loads(output(consilience, *command))
    assert document["run"]["settings"]["model"]["kind"] == kind
    notes = "\n".join(document["warnings"])
    assert ("their first piece represents them" in notes) == (kind == "masked")
    assert json.loads(output(consilience, *command))["warnings"] == document["warnings"]
    score = ("score", "r", "--json")
    for more in ((), ("--protocol", "published")):
        own = json.loads(output(consilience, *score, *more))
        assert own["run"]["settings"]["protocol"] == "published"
        assert own["metrics"] == document["metrics"]
    other = json.loads(output(consilience, *score, "--protocol", "strict"))
    assert "was asked under the protocol published" in other["warnings"][0]
    assert not any("no answers at all" in of for of in other["warnings"]), "13 were not asked"


def test_every_score_is_kept_when_asked_for(consilience, model_folder, tmp_path):
    """Answers only: no normalised number. With --keep-scores all of them, and the same answers."""
    common = ("probe", "--model", model_folder("gpt2"), "--groups", "sport", "--limit", 2)
    for folder, more in (("few", ()), ("all", ("--keep-scores",))):
        output(consilience, *common, "--out", tmp_path / folder, *more)
    few, every = (cs.read_answers(tmp_path / name) for name in ("few", "all"))
    assert few["answer"].to_list() == every["answer"].to_list()
    for name in ("logprob", "gold_logprob", "gold_rank", "margin"):
        assert (few[name].null_count(), every[name].null_count()) == (few.height, 0)
    for name in ("text_logprob", "gold_text_logprob"):
        assert (few[name] - every[name]).abs().max() < 1e-4
    words = cs.Run.open(tmp_path / "all").suite["sport"].candidates.words
    for row in every.iter_rows(named=True):
        scores = dict(zip(words, row["scores"], strict=True))
        assert scores[row["answer"]] == row["logprob"] == max(scores.values())
        assert scores[row["gold"]] == row["gold_logprob"]
        assert math.fsum(map(math.exp, scores.values())) == pytest.approx(1)


@pytest.mark.parametrize("options", [(), ("--template", "Fill in: {sentence}")])
def test_a_sequence_to_sequence_model(options, consilience, model_folder, tmp_path):
    arguments = ("probe", "--model", model_folder("t5"), "--groups", "sport", "--limit", 2)
    out = output(consilience, *arguments, *options, "--out", tmp_path / "r", "--json")
    model = json.loads(out)["run"]["settings"]["model"]
    assert (model["kind"], model["template"]) == ("seq2seq", options[1] if options else None)
    answers = cs.read_answers(tmp_path / "r")
    assert answers["answer"].null_count() == 0


def test_candidates_of_several_tokens(consilience, model_folder, tmp_path):
    """The tiny tokenizer cuts nearly every object of mini: without the option nobody is asked."""
    arguments = ("probe", "--model", model_folder("roberta"), "--groups", "sport", "--limit", 2)
    rule = ("--candidates", "pieces")
    assert consilience(*arguments, *rule, "--out", tmp_path / "r")[0] == 0
    answers = cs.read_answers(tmp_path / "r")
    assert answers["answer"].null_count() == 0
    assert answers["text_logprob"].max() < 0
    assert "strict" in refusal(consilience, *arguments, *rule, "--protocol", "published")


def test_the_whole_vocabulary(consilience, model_folder):
    asked = ("--groups", "capital", "--limit", 9, "--candidates", "vocabulary", "--json")
    out = output(consilience, "probe", "--model", model_folder("bert"), *asked)
    assert any("the gold is split into" in text for text in json.loads(out)["warnings"])


def test_facts_that_were_not_asked_are_counted(consilience, model_folder, tmp_path):
    """Of nine capitals the tiny tokenizer knows few as one token."""
    arguments = ("--groups", "capital", "--limit", 9, "--out", tmp_path / "r")
    status, _, err = consilience("probe", "--model", model_folder("bert"), *arguments)
    assert status == 0
    answers = cs.read_answers(tmp_path / "r")
    base = answers.filter(variant_index=0)
    asked, several = base["answer"].count(), base["excluded"].str.contains("split into").sum()
    assert (asked + several, asked > 0, several > 0) == (9, True, True)
    (line,) = [line for line in err.splitlines() if "were not asked" in line]
    assert line.startswith(f"note: {answers['excluded'].count()} of 81 queries (")
    document = json.loads(output(consilience, "score", tmp_path / "r", "--json"))
    assert line == f"note: {document['warnings'][0]}"
    only = {"metric": "accuracy", "over": "all", "kind": "whole"}
    metrics = pl.DataFrame(document["metrics"]).filter(**only)
    assert metrics.select("n", "n_excluded").rows() == [(asked, several)]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_score_takes_a_table_of_anybody(ending, consilience, tmp_path):
    """One fact in three patterns, answers Paris, Rome, none: 0 of 1 pairs agree."""
    texts = ["The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital is [Y]."]
    table = pl.DataFrame({
        "note": "NA", "group": "capital", "item": "capital-1", "subject": "France",
        "variant": texts, "gold": "Paris", "answer": ["Paris", "Rome", None],
    })  # fmt: skip
    path = tmp_path / f"answers{ending}"
    if ending == ".parquet":
        table.write_parquet(path)
    else:
        text = table.write_csv().encode()
        path.write_bytes(gzip.compress(text) if ending == ".csv.gz" else text)
    status, out, err = consilience("score", path, "--suite", "mini", "--format", "csv")
    assert status == 0
    assert "note: 1 of 9 queries (1 in capital) have no answer and count as wrong" in err
    found = pl.read_csv(out.encode()).filter(group="capital", kind="whole")
    found = dict(found.select("metric", "value").iter_rows())
    assert (found["accuracy"], found["consistency"]) == (1, 0)


def test_data_list_check_stats(consilience, tmp_path, write_suite):
    out = output(consilience, "suite", "list")
    assert "mini" in out and f"not in {tmp_path / 'data'}" in out
    status, out, _ = consilience("suite", "check", "mini")
    assert status == 0 and out.endswith("\nmini: good; 15 relations, 135 patterns, 885 facts\n")
    assert out.count("\n") > 25
    document = json.loads(consilience("suite", "list", "--json")[1])
    folders = {row["suite"]: row["folder"] for row in document["suites"]}
    assert [*folders][:5] == ["mini", "mini-languages", "mini-questions", "mini-open", "pararel"]
    assert folders["pararel"] is None and "mmlu" in folders
    document = json.loads(consilience("suite", "check", "mini", "--json")[1])
    assert (document["problems"], document["warnings"]) == ([], [])
    odd = write_suite(tmp_path / "odd", facts=[
        {"relation": "capital", "subject": "Bolivia", "object": name} for name in ("Sucre", "La Paz")
    ])  # fmt: skip
    status, out, _ = consilience("suite", "check", odd)
    verdict = out.splitlines()[-1]
    assert (status, verdict) == (0, f"{odd}: no problems, 2 notes; 1 relation, 3 patterns, 2 facts")
    assert "'Bolivia', 'Sucre'; 'Bolivia', 'La Paz'" in " ".join(out.split())
    refusal(consilience, "suite", "check", write_suite(tmp_path / "one", patterns="[X]\n"))
    assert (document["suite"], document["patterns"]) == ("mini", 135)
    bad = write_suite(facts='{"relation": "capital", "subject": "", "object": "x"}\nnonsense\n')
    err = refusal(consilience, "suite", "check", bad)
    assert (
        f"error: {bad}/facts.jsonl:1, column 'subject': no 'subject'" in err
        and f"error: {bad}/facts.jsonl:2: not JSON" in err
    )
    assert "3 problems in" in err
    assert "3 problems in" in consilience("suite", "check", bad, "-q")[2], "errors are not notes"
    task = tmp_path / "task.toml"
    task.write_text('name = "t"\n')
    assert "no column 'kind'" in refusal(consilience, "suite", "check", task)
    assert consilience("suite", "check", "rte")[1].startswith("rte: good; a task of sentence pairs")
    status, out, _ = consilience("suite", "check", bad, "--json")
    assert (status, len(json.loads(out)["problems"])) == (2, 3)


def test_data_fetch(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "listing", lambda name: [])
    fetch = ("suite", "fetch", "pararel", "--data-dir", tmp_path / "d")
    folder = tmp_path / "d" / "pararel"
    assert output(consilience, *fetch) == f"{folder}: complete, 0 files fetched\n"
    assert json.loads(output(consilience, *fetch, "--json"))["fetched"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"), cases("cli_bad"), ids=lambda value: str(value)[:60]
)
def test_bad_usage_is_one_message_and_status_2(arguments, message, consilience):
    err = refusal(consilience, *arguments)
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_names_with_markup_are_shown(consilience, tmp_path, monkeypatch, write_suite):
    monkeypatch.setenv("COLUMNS", "80")
    name = "a[/b]" + "x" * 50
    row = {"relation": name.replace("/", "")}
    patterns, facts = [row | {"pattern": "[X]: [Y]"}], [row | {"subject": "a", "object": "b"}]
    folder = write_suite(tmp_path / "odd", relations=[row], patterns=patterns, facts=facts)
    (folder / "suite.json").write_text(json.dumps({"name": "my [/suite]"}))
    run = ("--suite", folder, "--out", tmp_path / "o[new]")
    out = output(consilience, "probe", "--model", "baseline:oracle", *run)
    assert "my [/suite]" in out and "o[new]" in out
    assert out.count("100.0") >= 3
    _, out, _ = consilience("score", tmp_path / "o[new]", "--by", "group")
    assert row["relation"] in out, "no name is broken"
    monkeypatch.setenv("COLUMNS", "0")  # of some containers
    assert "my [/suite]" in output(consilience, "suite", "check", folder)


def test_a_half_downloaded_model_is_one_message(consilience, model_folder, tmp_path):
    shutil.copytree(model_folder("bert"), tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:999])
    assert "cannot load" in refusal(consilience, "probe", "--model", tmp_path / "m")
    err = refusal(consilience, "probe", "--model", f"{model_folder('bert')}@v9")
    assert "no such folder" in " ".join(err.split())


def test_a_bug_of_ours_is_status_1_with_a_traceback():
    code = "import sys\nfrom consilience import cli\nfrom consilience.authoring import named_suites\nsys.argv = ['c', 'suite', 'list']\nnamed_suites.suites = None\ncli.main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, "Traceback" in run.stderr) == (1, True)


def test_the_command_is_installed_and_stops_cleanly():
    command = [sys.executable, "-m", "consilience", "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(name in run.stdout for name in ("probe", "score", "compare", "analyze", "suite"))


def test_ci_installs_by_hash_the_versions_that_were_tested():
    """Every package of constraints.txt, and setuptools, which builds ours; no address of an index."""
    text = (ROOT / "requirements" / "ci.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"^(\S+==\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    assert "\n".join(name + hashes for name, hashes in blocks) == text.partition("\n\n")[2].rstrip()
    pinned = [name.lower().replace("_", "-") for name, _ in blocks if "setuptools" not in name]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = [line.lower().replace("_", "-") for line in lines if not line.startswith("#")]
    assert sorted(pinned) == sorted(tested)
    assert "://" not in text
