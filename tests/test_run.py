"""A run as a value: opened, called by a label, and whole without anything beside it."""

import json
import re
import shutil

import polars as pl
import pytest

from checks import refused
from conftest import cases
from consilience import Questions, evaluate, open_run
from consilience.core.items import Choice, Question
from consilience.options.probe import ProbeOptions
from consilience.plans import plan_of
from consilience.probing.probe import probe
from consilience.runs.folder import QUERIES, RunFolder, content_digest
from consilience.runs.run import Run, open_runs

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


def test_labels_are_given_or_as_much_of_the_path_as_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x/run", "y/run", "z"):
        make(tmp_path / name)
    specs = ["x/run", "y/run", "large=z"]
    assert [run.label for run in open_runs(specs)] == ["x/run", "y/run", "large"]
    assert [run.label for run in open_runs(["first=x/run", "y/run"])] == ["first", "run"]
    make(tmp_path / "a=b")  # a path that exists is a path
    assert [run.label for run in open_runs(["a=b"])] == ["a=b"]


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


def test_runs_of_one_model_are_called_by_their_folders(tmp_path):
    one, two = (str(make(tmp_path / name, model={"model": "bert"})) for name in ("one", "two"))
    assert [run.label for run in open_runs([one, two])] == ["bert (one)", "bert (two)"]
    assert [run.label for run in open_runs([one, f"mine={two}"])] == ["bert", "mine"]
    other = str(make(tmp_path / "other", model={"model": "gpt2"}))
    assert [run.label for run in open_runs([one, other])] == ["bert", "gpt2"]


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


OTHERWISE = [
    ("facts", {"limit": 3}, "limit is 2, now asked is 3"),
    ("facts", {"limit": None}, "limit is 2, now asked is not set"),
    ("facts", {"seed": 1}, "model|seed"),
    ("facts", {"protocol": "published"}, 'protocol is "strict", now asked is "published"'),
    ("facts", {"candidates": "vocabulary"}, "candidates"),
    ("facts", {"keep_scores": True}, "keep_scores"),
    ("facts", {"suite": "mini", "groups": ["capital"]}, 'suite is "suite", now asked is "mini"'),
    ("languages", {"vary": ["language=en,de"]}, "languages"),
    ("languages", {"groups": ["author"]}, r"groups is \[\"capital\"\], now asked is \[\"author\"\]"),
    ("pairs", {"perturbations": ["reverse"]}, "perturbations"),
    ("questions", {"vary": ["language", "order=all"]}, "factors"),
    ("questions", {"design": "one-factor"}, "design"),
    ("questions", {"shots": 1}, "shots"),
    ("questions", {"option_score": "mean"}, "option_score"),
    ("questions", {"template": "{question}\n{options}\nSay:"}, "factors|queries|template"),
    ("open", {"vary": ["sample=3"]}, "factors"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), OTHERWISE, ids=str)
def test_a_run_with_one_other_setting_is_refused_by_its_name(name, changes, message, asked):
    options = asked(name)
    probe(options)
    before = {path: path.read_bytes() for path in options.out.rglob("*") if path.is_file()}
    text = refused("this folder holds another run: its", probe, asked(name, **changes))
    assert re.search(message, text), text
    assert {path: path.read_bytes() for path in before} == before


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


def test_the_levels_of_a_prompt_are_columns(asked):
    """No two prompts of a question have the same levels, and none has another's text."""
    probe(asked("questions"))
    queries = Run.open("run").queries.filter(item="ice")
    assert queries.height == 2 * 6 * 2
    assert queries.select("language", "order", "labels").is_unique().all()
    assert queries["input"].list.join("").is_unique().all()


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
