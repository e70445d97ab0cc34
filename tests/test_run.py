"""A run as a value and a folder: whole, shared by processes, damaged, of written answers."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from checks import output, refused
from conftest import cases, run_command
from consilience import Questions, analyze_factors, evaluate, open_run
from consilience.core.errors import SILENT
from consilience.core.items import Choice, Question
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.probing import ask_in_folder, open_folder, probe
from consilience.runs.folder import QUERIES, RunFolder, content_digest, record_of
from consilience.runs.run import Run, open_runs, read_answers

RECORD = {"started": "2026-01-31T12:00:00+00:00", "versions": {}, "warnings": [], "answers": {}}
OPTIONS = """item,question,options,answer,language
legs,How many legs has an ant?,six; eight,six,en
legs,Wie viele Beine hat eine Ameise?,,,de
ice,What is ice?,steam; water; salt,water,en
ice,Was ist Eis?,,,de
"""
OPEN = "question,answer\nWho wrote Emma?,Austen\nWhat is two and three?,five\n"
PAIRS = "sentence1\tsentence2\tlabel\nIt snows.\tSnow falls.\tentailment\nHe ran.\tHe sat.\t1\n"
EXPECTED = {
    "questions.csv": "item,group,question,options,answer\n"
    "a,one,Is A true?,yes;no,yes\nb,one,Is B false?,yes;no,no\nc,two,Who has C?,Ann;Bob,Ann\n",
    "expectations.csv": "kind,item,other_item,map\ndifferent,a,b,\nimplied,a,c,yes -> Ann\n",
}
SUITES = {
    "facts": {"suite": "suite", "limit": 2},
    "edits": {"suite": "mini", "groups": ["capital", "sport"], "limit": 3, "protocol": "published"},
    "languages": {"suite": "mini-languages", "groups": ["capital"], "limit": 2},
    "pairs": {"suite": "rte", "data": "pairs.tsv", "perturbations": ["reverse", "signal"]},
    "questions": {"suite": "options.csv", "vary": ["language", "order=all", "labels=A,1"]},
    "open": {"suite": "open.csv", "vary": ["sample=2"], "temperature": 1.0},
    "expected": {"suite": "expected", "vary": ["order=rotations"]},
    "both": {"suite": "both.csv", "vary": ["order=rotations"], "design": "one-factor"},
}


def make(folder, **settings):
    folder.mkdir(parents=True)
    record = RECORD | {"settings": {"suite": "mini", **settings}}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def asked(write_suite, tmp_path, monkeypatch):
    """``asked("pairs")``: the options of a run of that suite, in a folder with its files."""
    monkeypatch.chdir(tmp_path)
    write_suite()
    (tmp_path / "expected").mkdir()
    for name, text in EXPECTED.items():
        (tmp_path / "expected" / name).write_text(text)
    (tmp_path / "options.csv").write_text(OPTIONS)
    (tmp_path / "open.csv").write_text(OPEN)
    (tmp_path / "both.csv").write_text(
        "group,question,options,answer\nC/C++,Which is a loop?,for; int,for\n..,Name a type.,,int\n"
    )
    (tmp_path / "pairs.tsv").write_text(PAIRS)

    def options(name, **changes):
        model = {"model": "baseline:random", "out": tmp_path / "run"}
        return ProbeOptions(**model | SUITES[name] | changes)

    return options


@pytest.mark.parametrize(("models", "specs", "labels"), [
    ({"x/run": "", "y/run": "", "z": ""}, ["x/run", "y/run", "large=z"], ["x/run", "y/run", "large"]),
    ({"x/run": "", "y/run": ""}, ["first=x/run", "y/run"], ["first", "run"]),
    ({"a=b": ""}, ["a=b"], ["a=b"]),  # a path that exists is a path
    ({"one": "bert", "two": "bert"}, ["one", "two"], ["bert (one)", "bert (two)"]),
    ({"one": "bert", "two": "bert"}, ["one", "mine=two"], ["bert", "mine"]),
    ({"one": "bert", "other": "gpt2"}, ["one", "other"], ["bert", "gpt2"]),
])  # fmt: skip
def test_a_run_is_called_by_its_label_its_model_or_its_folder(
    models, specs, labels, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, model in models.items():
        make(tmp_path / name, **({"model": {"model": model}} if model else {}))
    assert [run.label for run in open_runs(specs)] == labels


@pytest.mark.parametrize(("specs", "message"), cases("runs_bad"))
def test_runs_that_cannot_be_told_apart_or_found_raise(specs, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        make(tmp_path / name)
    refused(message, open_runs, specs)


@pytest.mark.parametrize(("model", "task", "name"), cases("names_of_runs"))
def test_a_run_is_called_by_its_model(model, task, name, tmp_path):
    make(tmp_path / "run", model={"model": model}, task={"name": task})
    assert [run.label for run in open_runs([str(tmp_path / "run")])] == [name]


@pytest.mark.parametrize("name", SUITES)
def test_a_run_keeps_what_it_asked(name, asked):
    """One row a query, as the answers have them, and as many as the plan says of each group."""
    options = asked(name)
    counted, run, plan = probe(options), Run.open("run"), plan_of(options)
    keys = ["group", "item", "subject", "variant", "variant_index", "gold"]
    assert run.queries.select(keys).equals(run.answers.select(keys))
    counts = run.queries.group_by("group").len().iter_rows()
    assert dict(counts) == dict(plan.sizes) and {*plan.sizes} == {one.id for one in plan.suite}
    assert (run.queries["input"].list.len() > 0).all() and not run.queries["input"].null_count()
    for group, of_plan in zip(run.suite, plan.suite, strict=True):
        assert (group.id, group.design, group.candidates, dict(group.edges)) == (
            of_plan.id, of_plan.design, of_plan.candidates, dict(of_plan.edges)
        )  # fmt: skip
        assert [fact.item for fact in group.facts] == [fact.item for fact in of_plan.facts]
    assert (run.suite.words, run.protocol) == (plan.suite.words, plan.protocol)
    for factor in {*run.queries.columns} & {"language", "paraphrase", "order", "labels"}:
        levels = {*run.queries[factor].drop_nulls()}
        assert levels == {*run.settings["factors"][factor]}, "levels are columns"
    for again in (probe(options), open_run("run"), open_run("run", protocol=run.protocol)):
        assert again.metrics.equals(counted.metrics), "what is complete is counted again"


@pytest.mark.parametrize("name", SUITES)
def test_a_part_of_a_group_has_the_rows_of_the_whole(name, asked):
    """Those of the first item in all variants, and of all items in the last one."""
    options = asked(name)
    plan = plan_of(options)
    queries = plan.queries(plan.load())
    for group in map(queries.group, queries.groups):
        items, last = [item.id for item in group.items], len(group.variants) - 1
        whole = queries.ask(group, lambda done: None)
        for only, variants in ((items[:1], range(last + 1)), (items, [last]), ([], [0])):
            part = queries.ask(group.only(only, variants), lambda done: None)
            of = pl.col("item").is_in(only) & pl.col("variant_index").is_in([*variants])
            assert part.equals(whole.filter(of)), (only, variants)


@pytest.mark.parametrize("name", SUITES)
def test_a_run_is_whole_without_anything_beside_it(name, asked, consilience, tmp_path):
    """Copied alone, its files of the suite deleted: every command gives the same."""
    for model in ("baseline:random", "baseline:majority"):
        probe(asked(name, model=model, out=tmp_path / "runs" / model[9:]))
    commands = [
        *(("score", "random", "--by", by) for by in ("group", "metric")), ("score", "random"),
        ("compare", "random", "majority"), ("compare", "random", "majority", "--flips"),
        ("gate", "random", "--baseline", "majority", "--rule", "accuracy >= 0"),
        ("analyze", "examples", "random"), ("report", "random"),
        *(("publish", "random", "--format", of, "--model-id", "a/b", "--licence", "MIT")
          for of in ("eee", "model-card")),
    ]  # fmt: skip

    def results(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            said = [consilience(*command, "--json")[:2] for command in commands]
        files = {file.relative_to(folder): file.read_text("utf-8") for file in folder.rglob("*.*")
                 if file.suffix in (".html", ".md", ".json", ".jsonl")}  # fmt: skip
        times = r'"\w*timestamp": "[^"]*"|"evaluation_id": "[^"]*"|_\d+\.\d+'
        return said, {name: re.sub(times, "", text) for name, text in files.items()}

    shutil.copytree(tmp_path / "runs", tmp_path / "alone" / "copy")
    before = results(tmp_path / "runs")
    for name in ("suite", "expected", "runs"):
        shutil.rmtree(tmp_path / name)
    for file in tmp_path.glob("*.?sv"):
        file.write_text("question,answer\nAnother?,yes\n")
    assert not [of for of in zip(commands, before[0], strict=True) if of[1][0]]
    assert results(tmp_path / "alone" / "copy") == before


@pytest.mark.parametrize("damage", ["missing", "empty", "row", "cut"])
def test_other_queries_than_those_of_the_run_are_refused(damage, asked, consilience):
    options = asked("facts")
    probe(options)
    file, run = options.out / QUERIES, Run.open("run")
    content, table = file.read_bytes(), pl.read_parquet(file)
    if damage == "missing":
        file.unlink()
    elif damage == "row":
        metadata = pl.read_parquet_metadata(file)
        table[1:].write_parquet(file, metadata={"groups": metadata["groups"]})
    else:
        file.write_bytes(content[:-9] if damage == "cut" else b"")
    message = f"no queries|other queries than those of the run.*{QUERIES}|Restore the file"
    refused(message, lambda: run.queries)
    refused(message, lambda: Run.open("run").suite)
    for command in ("score", "report"):
        status, out, err = consilience(command, "run")
        assert (status, out, QUERIES in err) == (2, "", True)
    probe(options)
    assert Run.open("run").queries.equals(table), "the command of the run writes them again"


NAMES = ("C/C++", "..", "a:b", "", "x" * 300, "Straße\\ß", "CON", "a\u2028b")


def test_groups_of_any_name_are_files_by_number(asked, tmp_path):
    """Of groups called like a path, a device, a folder above, or nothing."""
    right, wrong = Choice("yes"), Choice("no")
    items = [
        Question(f"q{at}", name, {"": (f"Is it {at}?",)}, right, (right, wrong))
        for at, name in enumerate(NAMES)
    ]
    options = ProbeOptions(model="baseline:random", vary=["order=all"], out=tmp_path / "run")
    probe(options, suite=Questions("any", tuple(items)))
    files = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*.*")}
    by_number = {f"answers/{at}.parquet" for at in range(len(NAMES))}
    assert files == {"run.json", "metrics.csv", QUERIES, *by_number}
    run = Run.open("run")
    for at, name in enumerate(NAMES):
        answers = pl.read_parquet(tmp_path / "run" / "answers" / f"{at}.parquet")
        assert set(answers["group"]) == {name} and answers.height == 2
    assert run.answers["group"].unique(maintain_order=True).to_list() == [*NAMES]
    assert [group.id for group in run.suite] == [*NAMES]


@pytest.mark.parametrize(("name", "changes", "message"), cases("other_runs"), ids=str)
def test_a_run_with_one_other_setting_is_refused_by_its_name(name, changes, message, asked):
    options = asked(name)
    probe(options)
    before = {path: path.read_bytes() for path in options.out.rglob("*") if path.is_file()}
    text = refused("this folder holds another run: its", probe, asked(name, **changes))
    assert re.search(message, text), text
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_that_stopped_without_an_answer_gives_way_and_writes_no_more(asked):
    """Not one that is not stopped: another process may be asking."""
    first, other = asked("open"), asked("open", seed=1)
    plans = [plan_of(one) for one in (first, other)]
    queries = [of.queries(of.load()) for of in plans]
    before = open_folder(plans[0], queries[0], first, {})
    refused("another run: its model .seed. is", open_folder, plans[1], queries[1], other, {})
    before.stop()
    after = open_folder(plans[1], queries[1], other, {})
    assert record_of(Path("run"))["settings"] == after.settings != before.settings
    refused("another run", ask_in_folder, plans[0], queries[0], before, SILENT)
    refused("no group is complete", Run.open("run").__getattribute__, "answers")
    assert probe(other).record["settings"] == after.settings


def test_a_run_of_a_suite_that_changed_is_refused(asked, tmp_path):
    """A text, a gold, a question more: the settings are equal, the queries are not."""
    probe(asked("open"))
    texts = ["Who wrote Emma", "Who wrote Persuasion"], [",Austen", ",Jane Austen"], ["\n", "\n\n"]
    for old, new in (*texts[:2], ["Emma?,Austen\n", "Emma?,Austen\nIs it?,no\n"]):
        (tmp_path / "open.csv").write_text(OPEN.replace(old, new))
        refused("its queries are others: the suite, its files", probe, asked("open"))
    (tmp_path / "open.csv").write_text(OPEN.replace(*texts[2]))
    probe(asked("open"))  # an empty line is no question


def test_a_run_keeps_the_expectations_by_which_it_was_counted_last(asked, tmp_path):
    """They decide no answer: with others, or none, the run is resumed."""
    file, rates = tmp_path / "expected" / "expectations.csv", []
    whole = file.read_text()
    for text in (whole, whole.partition("implied")[0], "kind,item,other_item\n"):
        file.write_text(text)
        counted = probe(asked("expected"))
        assert open_run("run").metrics.equals(counted.metrics)
        rates.append(counted.metrics.filter(metric="violation_rate")["level"].n_unique())
    assert rates[0] > rates[1] > rates[2] == 0


def test_the_digest_of_queries_is_of_their_texts(asked):
    """Not of the file: tables with the same texts have it, and any other text another."""
    table = plan_of(asked("both")).queries(None).table()
    digest = content_digest(table)
    assert content_digest(pl.concat([table[:1], table[1:]], rechunk=False)) == digest
    for name, value in table.row(0, named=True).items():
        other = pl.lit(["other"]) if isinstance(value, list) else pl.lit("9", dtype=pl.String)
        other = table[:1].with_columns(other.cast(table.schema[name]).alias(name))
        assert content_digest(pl.concat([other, table[1:]])) != digest, name
    assert content_digest(table[::-1]) != digest


def test_a_folder_of_a_run_that_was_asked_nothing(tmp_path):
    RunFolder(tmp_path, {"kind": "facts", "suite": "none", "groups": [], "protocol": "strict"})
    run = Run.open(tmp_path)
    assert (run.is_finished, run.model_name, run.settings["suite"]) == (False, "", "none")
    refused(f"no {QUERIES}; expected the folder of a run", lambda: run.suite)


@pytest.mark.parametrize("change", [
    lambda settings: settings.pop("kind"), lambda settings: settings.update(kind="facts"),
    lambda settings: settings["groups"].pop(),
])  # fmt: skip
def test_settings_that_were_changed_are_refused(tmp_path, change):
    run = evaluate("mini-questions", "baseline:random", limit=1, out=tmp_path / "run").run
    record = json.loads((run.path / "run.json").read_text())
    change(record["settings"])
    (run.path / "run.json").write_text(json.dumps(record))
    refused("other settings than those of the run", open_run, run.path)


GROUPS = ["a", "b", *(f"there {at}" for at in range(5)), *(f"here {at}" for at in range(5, 999))]
SETTINGS = {"suite": "mini", "model": {"model": "baseline:random"}, "groups": GROUPS}


def no_answers(group):
    return pl.DataFrame({"group": [group]}, schema_overrides=ANSWERS_SCHEMA).select(
        pl.col(name) if name == "group" else pl.lit(None, dtype).alias(name)
        for name, dtype in ANSWERS_SCHEMA.items()
    )


CHILD = """
import sys
from consilience.runs.folder import RunFolder
from test_run import SETTINGS, write
run = RunFolder(sys.argv[1], SETTINGS)
for at in range(5):
    write(run, f"there {at}")
"""


def write(run, name):
    run.note([name])
    run.write_answers(name, no_answers(name))


def test_processes_at_once_lose_nothing(tmp_path):
    """This one writes from the first note of the other to its end."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command, environment = [sys.executable, "-c", CHILD], os.environ | {"PYTHONPATH": path}
    names = [f"there {at}" for at in range(5)]
    with subprocess.Popen([*command, tmp_path], env=environment) as child:
        while not (tmp_path / "run.json").exists() and child.poll() is None:
            time.sleep(0.001)
        run = RunFolder(tmp_path, SETTINGS)
        while child.poll() is None or len(names) < 10:
            names.append(f"here {len(names)}")
            write(run, names[-1])
    record = record_of(tmp_path)
    noted = [note for note in record["warnings"] if "here" in note]
    assert child.returncode == 0
    assert sorted(noted) == sorted(record["answers"]) == sorted(names)
    assert all(run.answers(name, 1) is not None for name in names)


def test_the_options_of_a_run_are_recorded(tmp_path):
    """But those that are values of Python."""
    chosen = {"model": "baseline:majority", "suite": "mini", "groups": ("capital",), "limit": 2}
    for name, value in (("named", {}), ("value", {"model": cs.load_model("baseline:oracle")})):
        record = probe(ProbeOptions(**chosen, out=tmp_path / name), **value).record["options"]
        model = None if value else "baseline:majority"
        known = {"model": model, "groups": ["capital"], "limit": 2, "out": str(tmp_path / name)}
        assert record == known


BROKEN = {
    "list": "[]",
    "nothing": "",
    "truncated": '{"settings": {',
    "deep": "[" * 100_000,
    "number": '{"settings": ' + "9" * 5000 + "}",
    "latin": '{"settings": "é"}'.encode("latin-1"),
    "settings": {"settings": "mini"},
    "warnings": {"warnings": {"a": 1}},
    "versions": {"versions": 3},
    "answers": {"answers": []},
}  # fmt: skip


PROBE = (
    "probe", "--model", "baseline:random", "--suite", "mini", "--limit", 2, "--groups", "capital,sport",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "good"
    assert run_command(*PROBE, "--out", folder)[0] == 0
    return folder


def refusals(consilience, commands):
    """What commands say that end with one message and status 2."""
    for command in commands:
        status, out, err = consilience(*command)
        assert (status, out) == (2, ""), command
        assert err.count("error: ") == 1, command
        yield err


@pytest.mark.parametrize("damage", BROKEN)
def test_commands_that_read_a_run_of_probe(damage, good, consilience, tmp_path):
    shutil.copytree(good, tmp_path / "bad")
    record, text = tmp_path / "bad" / "run.json", BROKEN[damage]
    if isinstance(text, dict):
        text = json.dumps(json.loads(record.read_text()) | text)
    record.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = {path: path.read_bytes() for path in record.parent.rglob("*") if path.is_file()}
    commands = [
        ("score", "bad"), ("compare", "bad", good), ("compare", good, "bad"),
        ("report", "bad"), ("report", good, "bad", "--out", "page.html"),
        *(("analyze", name, "bad") for name in ("patterns", "edits", "examples")),
        ("analyze", "knowledge", good, "bad"), (*PROBE, "--out", "bad"),
    ]  # fmt: skip
    for err in refusals(consilience, commands):
        assert "run.json: not the record of a run: " in err and len(err) < 1500
    assert before == {path: path.read_bytes() for path in before}


def test_a_folder_of_several_runs_says_which_there_are(good, tmp_path):
    for seed in (0, 1):
        shutil.copytree(good, tmp_path / "seeds" / f"seed-{seed}")
    refused("Name one of the runs in it: seed-0, seed-1", read_answers, tmp_path / "seeds")
    (tmp_path / "empty").mkdir()
    refused("no run.json; expected the folder of a", read_answers, tmp_path / "empty")


FILES = ("run.json", "metrics.csv", "queries.parquet", "answers/0.parquet", "answers/1.parquet")


@settings(max_examples=30)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_is_named_or_made_again(good, name, share):
    """Commands that read the run end well or with one message; its own command mends it."""
    damaged = good.with_name("damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(good, damaged)
    content = (damaged / name).read_bytes()
    (damaged / name).write_bytes(content[: int(share * len(content))])
    again = (*PROBE, "--out", damaged)
    for command in (("score", damaged), ("gate", damaged, "--rule", "accuracy >= 1 %"), again):
        status, out, err = run_command(*command)
        assert status in (0, 2, 3), (command, out, err)
        assert "Traceback" not in out + err
        assert status != 2 or err.count("error: ") == 1
    if status == 0:
        for file in ("metrics.csv", "answers/0.parquet", "answers/1.parquet"):
            assert (damaged / file).read_bytes() == (good / file).read_bytes()


OPEN_PHRASED = "question,question_2,answer\nRome and Paris ?,the capital Paris ?,Rome\nthe Italy ?,Italy ?,Italy\n"
CLOSED_PHRASED = (
    "question,answer,options\nRome and Paris ?,Rome,Rome;Paris\nthe Italy ?,Italy,Italy;Rome\n"
)


@pytest.fixture
def written(tmp_path, model_folder):
    """``written(OPEN_PHRASED, generate=True)``: a probe of a file of questions with a tiny model."""

    def build(rows, **more):
        path = tmp_path / "own.csv"
        path.write_text(rows, encoding="utf-8")
        fields = {"model": str(model_folder("llama")), "out": tmp_path / "run", "device": "cpu"}
        return ProbeOptions(suite=str(path), **fields | {"max_new_tokens": 4} | more)

    return build


def test_a_run_of_sampled_texts_keeps_them_and_is_resumed(written, tmp_path):
    """2 questions in 2 phrasings, 3 samples each; the same command asks nothing again."""
    vary = ["paraphrase", "sample=3"]
    asked = written(OPEN_PHRASED, vary=vary, temperature=1.5, match="contains")
    first = probe(asked, SILENT)
    (path,) = (tmp_path / "run" / "answers").glob("*.parquet")
    table = pl.read_parquet(path)
    assert (table["sample"].to_list(), table["text"].null_count()) == (["1", "2", "3"] * 4, 0)
    assert table["text"].n_unique() > 1
    settings = first.record["settings"]
    assert settings["writing"] == {"match": "contains"}
    assert settings["model"]["temperature"] == 1.5
    assert settings["factors"]["sample"] == ["1", "2", "3"]
    assert not any("match no option" in note for note in first.notes), "questions are open"
    assert {"sample", "paraphrase"} <= set(first.metrics["level"])
    before = path.stat().st_mtime_ns
    again = probe(asked, SILENT)
    assert path.stat().st_mtime_ns == before
    assert again.metrics.equals(first.metrics)
    assert again.notes == first.notes


def test_the_share_of_answers_that_are_no_option_is_a_number(tmp_path, consilience):
    """One of four texts, in one of two groups; `score`, that of the run and the report have it."""
    answers, run = tmp_path / "answers.csv", tmp_path / "run"
    texts = ("Yes.", "no", "no idea", "yes")
    table = {"item": range(4), "gold": "yes", "options": '["yes", "no"]', "answer": texts}
    pl.DataFrame({**table, "group": [*"abab"]}).write_csv(answers)
    table = ("score", answers, "--out", run, "--json")
    for command in (table, ("score", run, "--json")):
        out = output(consilience, *command)
        (row,) = (r for r in json.loads(out)["summary"]["rows"] if r["metric"] == "no_option")
        assert row["value"] == 1 / 4
        assert row["low"] is None, "four questions are too few for an interval"
    assert "answers that are no option" in consilience("score", run)[1]
    assert consilience("report", run)[0] == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Answers that are no option." in page


def test_a_baseline_is_read_whatever_the_rule(written):
    for rows in (OPEN_PHRASED, CLOSED_PHRASED):
        asked = written(rows, model="baseline:oracle", match="regex:is (.*)", generate=True)
        counted = probe(replace(asked, out=asked.out / rows[-8:].strip()), SILENT)
        assert counted.metrics.filter(metric="accuracy", over="all")["value"].to_list() == [1.0]


def test_a_run_has_groups_with_options_and_open_ones(written, tmp_path):
    """Written answers have further columns; the run is read as a whole, and counts the same."""
    closed = "closed,Rome and Paris ?,the Paris ?,Rome,Rome;Paris\n"
    rows = f"group,question,question_2,answer,options\n{closed}open,the Italy ?,Italy ?,Italy,\n"
    counted = probe(written(rows), SILENT)
    opened = open_run(tmp_path / "run")
    assert opened.answers["text"].null_count() == 2 * 2
    assert opened.metrics.equals(counted.metrics)
    names = analyze_factors(opened).tables["consistency"]["run"].unique(maintain_order=True)
    assert [name.split(", ")[1] for name in names] == ["closed", "open"]
