"""The papers' tables beside ours: exactly where no model is needed, on tiny data where one is."""

import functools
import json
import math
import sys
from dataclasses import replace

import polars as pl
import pytest

from checks import output, refusal
from conftest import WORDS, cases, cells, real_data
from consilience.core.errors import ConsilienceError
from consilience.report import papers
from consilience.report.export import as_markdown
from consilience.report.papers import Measured, beside, beside_layout, beside_table, paper_numbers
from consilience.report.table import fitted_text
from consilience.reproduce import pararel
from consilience.reproduce import recipe as work_module
from consilience.reproduce.pararel import TEST, TRAIN
from consilience.reproduce.recipe import MissingError, Recipe, Request, Work
from consilience.reproduce.reproduction import RECIPES, carry_out
from consilience.suites.layouts import _RELATIONS

MODELS = RECIPES["pararel-correlations"].models

PAPER = """table,section,group,row,column,value,std,unit
small,7,,Ada,Right,50.0,20.0,percent
small,7,,Ada,Pairs,12,,count
small,7,,Ada,p,0.01,,p<
small,7,late,Bob,Right,61.25,,percent
small,7,late,Bob,Pairs,7,,count
other,9,,Eve,Right,1,,percent
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    (tmp_path / "papers.csv").write_text(PAPER)
    monkeypatch.setattr(papers, "files", lambda package: tmp_path)


def recipe_of(name, models=None):
    """A recipe with other models in place of the paper's."""
    recipe = RECIPES[name]
    return replace(recipe, models={**recipe.models, **(models or {})})


def make(name, folder, models=None, **request):
    """What a recipe finds, and both numbers."""
    work = Work(Request(folder, **request))
    return work, carry_out(recipe_of(name, models), work)


def make_cells(name, folder, **request):
    return cells(make(name, folder, **request)[1])


@pytest.fixture
def answered(monkeypatch):
    """``answered(0, {...})``: commands end so, and print that document; a list of commands."""

    def answer(status, document="", stderr=""):
        called = []

        def call(command):
            called.append(command[3:])
            given = document(command) if callable(document) else document
            return status, given if isinstance(given, str) else json.dumps(given), stderr

        monkeypatch.setattr(work_module, "_call", call)
        return called

    return answer


@pytest.mark.parametrize(("key", "number", "tolerance", "verdict"), cases("verdicts"))
def test_verdicts_are_of_the_digits_that_the_paper_prints(small, key, number, tolerance, verdict):
    """50.04 rounds to 50.0 and 50.06 does not. A tolerance is in points, whatever the interval."""
    ours = {tuple(key): Measured(*number)}
    assert cells(beside("small", ours, tolerance=tolerance))[tuple(key)]["verdict"] == verdict


def test_every_number_of_the_papers_stands_once_with_its_digits_section_and_recipe():
    rows = pl.read_csv(papers.files("consilience.report") / "papers.csv", infer_schema=False)
    assert set(rows["table"]) <= {each.table for each in RECIPES.values()}
    assert not rows.select("table", "group", "row", "column").is_duplicated().any()
    sections = dict(rows.select("table", "section").iter_rows())
    assert all(rows["section"]), "every number has its section"
    assert (sections["pararel-table-3"], sections["pararel-mcnemar"]) == ("6.2", "8.3")
    of_table = paper_numbers("pararel-table-1")
    assert dict(of_table.select("row", "digits").iter_rows())["Avg syntax"] == 2
    assert of_table["value"].to_list() == [38, 328, 2, 20, 8.63, 4.74, 6.03]
    assert set(of_table["section"]) == {"4"}


def test_a_table_on_a_screen_and_in_the_papers_layout(small, capsys, monkeypatch):
    ours = {
        ("", "Ada", "Right"): Measured(49.0, 19.0, 48.0, 52.0),
        ("", "Ada", "p"): Measured(0.0004),
        ("late", "Bob", "Pairs"): Measured(8),
    }
    numbers = beside("small", ours, {"Bob": "unavailable: cannot load it"})
    shown = fitted_text(beside_table(numbers, "Small"), 80).plain
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[2:9] == [
        "Ada",
        "Right 50.0±20.0 49.0±19.0 48.0 to 52.0 -1.0 differs",
        "Pairs 12 - - - not measured",
        "p < 0.01 <.001 - - same",
        "late:",
        "Bob",
        "Right 61.25 - - - unavailable",
    ]
    assert lines[9] == "Pairs 7 8 - 1 differs"
    assert as_markdown(beside_layout(numbers, "Small")).splitlines()[2:] == [
        "|  | Right | Pairs | p |", "|---|---:|---:|---:|",
        "| Ada (paper) | 50.0 ± 20.0 | 12 | \\< 0.01 |",
        "| Ada (ours) | 49.0 ± 19.0 | - | \\<.001 |", "| *late* | | | |",
        "| Bob (paper) | 61.25 | 7 | - |", "| Bob (ours) | - | 8 | - |",
    ]  # fmt: skip


@pytest.fixture
def made(monkeypatch, small):
    """A recipe for the small table; it notes its rows and runs a command for each."""
    rows = []

    def make(recipe, work):
        for row in ("Ada", "Bob"):

            def listed(row=row):
                rows.extend([row] * (not work.request.dry))
                return work.run(row, "suite", "list")

            work.attempt(row, listed)
        numbers = {("", "Ada", "Right"): Measured(50.0), ("late", "Bob", "Pairs"): Measured(7)}
        work.told.append("a *note* of the recipe")
        return numbers

    recipe = Recipe(
        "small", "Little", "nothing", make, "small", {"Ada": "a/m"}, [""], files=["rte:train"]
    )
    monkeypatch.setitem(RECIPES, "small", recipe)
    return rows


def test_the_command_shows_and_writes_and_says_what_it_ran(consilience, made, here, tmp_path):
    arguments = ("reproduce", "small", "--out", tmp_path / "r")
    status, out, err = consilience(*arguments)
    assert status == 0
    assert "small: Little" in out and "* a *note* of the recipe" in out
    first, second = (line.partition(": ") for line in err.splitlines()[:2])
    assert (first[0], second[0][:6]) == ("1 of 2", "2 of 2")
    assert {first[2], second[2]} == {"consilience suite list"}
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {"small.csv", "small.md", "small.tex"}
    written = pl.read_csv(tmp_path / "r" / "small.csv", schema_overrides=papers.BESIDE_SCHEMA)
    assert written.columns == [*papers.BESIDE_SCHEMA]
    assert written["verdict"].to_list() == ["same", *["not measured"] * 3, "same"]
    markdown = (tmp_path / "r" / "small.md").read_text()
    assert markdown.endswith("\n\n* a \\*note\\* of the recipe\n* not measured: Ada, Bob\n")
    lines = (tmp_path / "r" / "small.tex").read_text().splitlines()
    assert r"\begin{tabular}{lrrr}" in lines
    assert lines[-2:] == ["% a *note* of the recipe", "% not measured: Ada, Bob"]
    document = json.loads(consilience(*arguments, "--json")[1])
    assert set(document) == {"run", "numbers", "notes", "warnings"}
    assert document["run"]["commands"] == ["consilience suite list"] * 2
    assert [row["ours"] for row in document["numbers"][:2]] == [50.0, None]
    assert document["notes"] == ["a *note* of the recipe"]


def test_a_dry_run_says_the_commands_and_runs_nothing(consilience, made, here, tmp_path):
    command = ("reproduce", "small", "--out", tmp_path / "r", "--dry-run")
    assert output(consilience, *command).splitlines() == ["consilience suite list"] * 2
    assert here == []
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("arguments", "message"), cases("reproduce_bad"))
def test_what_cannot_be_asked(consilience, made, here, arguments, message):
    err = refusal(consilience, "reproduce", *arguments)
    assert f"error: {message}" in err
    assert here == []


def test_all_recipes_are_listed_with_what_they_need(consilience):
    out = output(consilience, "reproduce")
    rows = json.loads(consilience("reproduce", "--json")[1])["recipes"]
    assert {row["name"] for row in rows} == set(RECIPES)
    names = [line.split()[0] for line in out.splitlines() if line.startswith(("par", "cal"))]
    assert names == [row["name"] for row in rows] == sorted(names)
    assert all(row["title"] and row["needs"] for row in rows)
    named = ("correlations", "determinism", "relations", "representations", "mcnemar", "agreement")
    wanted = {f"pararel-table-{n}" for n in range(1, 9)} | {f"pararel-{name}" for name in named}
    assert wanted | {"pararel-figure-3"} <= {row["name"] for row in rows}


def test_what_commands_note_is_kept_once_with_its_rows(tmp_path, answered):
    answered(0, {"warnings": ["mind the gap", "few"]}, "note: other\n")
    work = Work(Request(tmp_path))
    for row in ("Ada", "Bob", "Ada"):
        work.run(row, "probe", part="late" if row == "Bob" else "")
    answered(0, {"warnings": ["of examples"]})
    assert work.run("", "analyze", "examples") == {"warnings": ["of examples"]}
    notes = ["Ada: mind the gap", "Ada: few", "late, Bob: mind the gap", "late, Bob: few"]
    assert work.notes == [*notes, "of examples"]
    work.run("majority", "probe")
    assert len(work.notes) == 5


PROBE = ("probe", "--model", "baseline:majority", "--suite", "mini", "--out", "run")


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (("suite", "check", "nowhere"), MissingError, "^unavailable: .*nowhere"),
    (("suite", "lost"), ConsilienceError, "suite lost: consilience suite: no such command 'lost'"),
    ((*PROBE[:2], "no/model", *PROBE[3:]), MissingError, "no/model"),
])  # fmt: skip
def test_a_model_or_suite_that_is_not_here_marks_its_row_and_a_wrong_argument_raises(
    arguments, error, message, here, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        Work(Request(tmp_path)).run("Ada", *arguments)


def test_a_command_that_was_killed_marks_its_row(tmp_path, monkeypatch):
    code = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    call = work_module._call
    monkeypatch.setattr(work_module, "_call", lambda command: call(code))
    with pytest.raises(MissingError, match="^unavailable: stopped by signal 9; too little memory"):
        Work(Request(tmp_path)).run("Ada", "suite", "list")


class Once(Work):
    """A command that was run before is not run again, for one request after the other."""

    def __init__(self, request):
        super().__init__(request)
        self.documents = {}

    def run(self, row, *arguments, **more):
        command = tuple(map(str, arguments))
        if command not in self.documents:
            self.documents[command] = Work.run(self, row, *arguments, **more)
        return self.documents[command]

    def make(self, name, only=(), models=None, **change):
        """The numbers of a recipe by block, row and column."""
        self.request, self.reasons = replace(self.request, only=only, **change), {}
        return cells(carry_out(recipe_of(name, models), self))


CAPITALS = ["The capital of [X] is [Y] .", "[Y] is the capital of [X].", "[X]'s capital, [Y]."]


@pytest.fixture(autouse=True)
def fetched(request, monkeypatch):
    """Recipes read the real ParaRel, or its layout in small, where a test has one."""
    names = request.fixturenames
    if "consilience" in names:
        request.getfixturevalue("consilience")  # which names an empty folder
    if "of_pararel" in names:
        monkeypatch.setenv("CONSILIENCE_DATA", str(real_data("pararel").parent))
    elif "release" in names:
        monkeypatch.setenv("CONSILIENCE_DATA", str(request.getfixturevalue("release")))


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """ParaRel's layout in small: nine facts in three patterns in each of its 38 relations."""
    root = tmp_path_factory.mktemp("data") / "pararel"
    subjects = {relation: {} for relation, _, _ in _RELATIONS}
    texts = {relation: list(CAPITALS) for relation in subjects}
    for example in RECIPES["pararel-table-6"].details["examples"]:
        relation, answers = example["relation"], example["answers"]
        subjects[relation][example["subject"]] = WORDS[0]
        texts[relation] = list(dict.fromkeys([*texts[relation], *(text for text, _ in answers)]))
    for relation, objects in subjects.items():
        objects |= {f"{relation} {n}": WORDS[n % 3] for n in range(9)}
        if relation == "P36":
            objects |= {f"land {n}": WORDS[n % 6] for n in range(12)}
        facts = [
            {"sub_label": subject, "obj_label": object_, "uuid": f"{relation}/{n}"}
            for n, (subject, object_) in enumerate(objects.items())
        ]
        patterns = [{"pattern": text, "lemma": "", "tense": ""} for text in texts[relation]]
        for folder, rows in (("pattern_data/graphs_json", patterns), ("trex_lms_vocab", facts)):
            path = root / folder / f"{relation}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root.parent


def test_a_users_model_is_one_more_row(consilience, release, here, tmp_path, monkeypatch):
    """Only that model is run; the paper's rows are shown. 100 differs from 45.8 by 54.2 points."""
    once = functools.cache(lambda *command, call=work_module._call: call(command))
    monkeypatch.setattr(work_module, "_call", lambda command: once(*command))
    command = [
        "reproduce", "pararel-table-3", "--out", tmp_path / "r",
        "--add", "mine=baseline:oracle",
    ]  # fmt: skip
    status, out, err = consilience(*command)
    assert status == 0, err
    assert len(here) == 1
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "mine (ours) 100.0±0.0 100.0±0.0 100.0±0.0" in lines
    assert "BERT-base (paper) 45.8±25.6 58.5±24.2 27.0±23.8" in lines
    assert "unavailable" not in out + err
    models = {"BERT-base": "baseline:oracle"}
    for tolerance, expected in ((54.2, "within"), (54.1, "outside"), (None, "differs")):
        request = {"only": ["BERT-base"], "tolerance": tolerance}
        rows = make_cells("pararel-table-3", tmp_path / "r", models=models, **request)
        assert rows["BERT", "BERT-base", "Accuracy"]["verdict"] == expected


@pytest.mark.parametrize(("name", "rows"), [
    ("pararel-relations", ["mine"]), ("pararel-correlations", ["mine"]),
    ("pararel-table-7", ["mine", "mine-ft"]), ("calum-table-2", ["mine"]),
    ("calum-table-6", ["mine-Single", "mine-Para", "mine-All"]),
])  # fmt: skip
def test_every_row_of_a_users_model_that_cannot_be_loaded_says_so(answered, tmp_path, name, rows):
    answered(2, {"error": {"message": "cannot load 'no/model'", "kind": "model"}})
    numbers = make(name, tmp_path, added={"mine": "no/model"}, only=rows)[1]
    mine = numbers.filter(pl.col("row").is_in(rows))
    assert set(mine["row"]) == set(rows) and mine["verdict"].str.starts_with("unavailable: ").all()


RANDOM = dict.fromkeys(MODELS, "baseline:random")


@pytest.fixture(scope="module")
def of_few(release, tmp_path_factory):
    """Random models are asked once."""
    return Once(Request(tmp_path_factory.mktemp("few")))


def test_single_relations_and_correlations_take_all_models(of_few, here, tmp_path):
    """The oracle is right everywhere: the most consistent, and of no correlation."""
    work, models = of_few, RANDOM | {"BERT-large": "baseline:oracle"}
    found = work.make("pararel-relations", models=models, added={})
    lowest, highest = (
        found["original-language", f"{end} model", "Consistency"] for end in ("lowest", "highest")
    )
    assert (lowest["paper"], highest["paper"], highest["ours"]) == (52, 90, 100.0)
    assert lowest["ours"] < 100
    assert found["capital-of", "BERT-large", "Consistency"]["ours"] == 100.0
    found = work.make("pararel-correlations", models=models)
    column = "Correlation Accuracy/Consistency"
    assert found["", "BERT-large", column]["verdict"] == "no data"
    assert found["", "all models", "p (correlation)"]["verdict"] == "no data"
    (document,) = [each for command, each in work.documents.items()
                   if "knowledge" in command and "/mine" not in " ".join(command)]  # fmt: skip
    (told,) = (
        each["value"] for each in document["correlations"]
        if each["run"] == "RoBERTa-base" and each["method"] == "pearson"
        and (each["x"], each["y"]) == ("accuracy", "consistency")
    )  # fmt: skip
    assert found["", "RoBERTa-base", column]["ours"] == pytest.approx(100 * told)
    assert "the same, Spearman's" in {column for _, _, column in found}
    for name, row in (("relations", "lowest model"), ("correlations", "all models")):
        found = work.make(f"pararel-{name}", [row, "BERT-large"], models=models)
        (verdict,) = {each["verdict"] for key, each in found.items() if key[1] == row}
        needs = "unavailable: needs all models of the paper; missing: BERT-base, BERT-"
        assert verdict.startswith(needs)
        assert "BERT-large," not in verdict


def test_vectors_of_a_tiny_model(release, here, model_folder, tmp_path):
    request = {"device": "cpu"}
    models = {"BERT-large": str(model_folder("bert"))}
    work, numbers = make("pararel-figure-3", tmp_path / "r", models=models, **request)
    (drawn,) = work.files
    assert drawn.name == "tsne-P36.svg" and "<svg" in drawn.read_text()
    columns = ["V-measure by pattern", "AMI by pattern", "V-measure by subject"]
    assert numbers["column"].to_list()[:3] == columns
    clusters = pl.read_csv(next((tmp_path / "r").glob("pararel-figure-3/*/clusters.csv")))
    told = clusters.filter(property="pattern").select("v_measure", "ami").row(0)
    assert numbers["ours"].to_list()[:2] == pytest.approx([100 * each for each in told])
    assert set(numbers["verdict"]) == {"ours only"}


def test_a_training_is_read_and_tested(release, here, model_folder, tmp_path, monkeypatch):
    """One training for Table 7 and for the tests, by the same command.

    Five of the test relations are measured; the others are trained on.
    """
    pytest.importorskip("accelerate")
    monkeypatch.setattr(pararel, "TRAIN", (*TRAIN, *TEST[5:]))
    monkeypatch.setattr(pararel, "TEST", TEST[:5])
    request = Request(tmp_path / "r", device="cpu")
    models, run = {"BERT-base": str(model_folder("bert"))}, Work.run

    def quick(self, row, name, *arguments, **more):
        few = ("--epochs", "1", "--limit", "2") if name == "improve" else ()
        return run(self, row, name, *arguments, *few, **more)

    monkeypatch.setattr(Work, "run", quick)
    work = Once(request)
    found = work.make("pararel-table-7", models=models)
    trained = [each for command, each in work.documents.items() if "improve" in command]
    assert len(trained) == 6
    validated = [
        (each["outcomes"][0]["validation"]["consistent_accuracy"],
         each["outcomes"][0]["validation"].get("corrected_consistency", -math.inf), at)
        for at, each in enumerate(trained[:3])
    ]  # fmt: skip
    best = trained[max(validated)[-1]]
    weights = [each["outcomes"][0]["weight"] for each in trained]
    assert weights == [0.1, 0.5, 1.0, 0.0, *[best["outcomes"][0]["weight"]] * 2]

    def consistency(rows):
        (row,) = [row for row in rows if row["metric"] == "consistency" and row["over"] == "mean"
                  and row["kind"] == "whole"]  # fmt: skip
        return 100 * row["value"]

    told = [consistency(best["before"])]
    told += [consistency(each["outcomes"][0]["after"]) for each in (best, *trained[3:])]
    rows = ("BERT-base", "BERT-ft", "-consistency", "-typed", "-MLM")
    ours = [
        found["ablation" if row.startswith("-") else "BERT", row, "Consistency"]["ours"]
        for row in rows
    ]
    assert ours == pytest.approx(told)
    assert found["", "majority", "Consistency"]["ours"] == 100.0
    found = {
        column: each["ours"]
        for (_, _, column), each in work.make("pararel-mcnemar", models=models).items()
    }
    assert found["Consistency"] == pytest.approx(ours[1] - ours[0])
    tested = [found[f"p of {name}, exact McNemar"] for name in ("Accuracy", "Consistent-Acc")]
    assert found["p (McNemar)"] == max(tested)
    assert [command[0] for command in here] == ["probe", *["improve"] * 6]
    work = Once(Request(tmp_path / "missing"))
    found = work.make("pararel-mcnemar", models={"BERT-base": "no/model"})
    assert all(each["verdict"].startswith("unavailable: ") for each in found.values())


def test_the_larger_p_of_mcnemars_tests_counts(answered, tmp_path):
    """.04 of accuracy and .001 of Consistent-Acc: .04, not below the paper's .01."""
    answered(0, {})
    tests = (
        ("accuracy", "exact McNemar", 0.04), ("consistent_accuracy", "exact McNemar", 0.001),
        ("consistency", "paired permutation of subjects", 0.5),
    )  # fmt: skip
    rows = [
        {"metric": metric, "over": over, "kind": kind, "difference": 0.058, "low": 0.05,
         "high": 0.07, "test": test, "p": 0.9 if over == "mean" else p}
        for metric, test, p in tests
        for over in ("mean", "all") for kind in ("edit", "whole")
    ]  # fmt: skip
    place = Request(tmp_path).folder_of("BERT-base", "pararel-improve") / "lambda-1"
    place = place / "seed-42" / "improved"
    place.mkdir(parents=True)
    pl.DataFrame(rows).write_csv(place / "comparison.csv")
    found = make_cells("pararel-mcnemar", tmp_path)
    row = "BERT-ft vs BERT-base"
    assert found["", row, "p (McNemar)"]["ours"] == 0.04
    assert found["", row, "p (McNemar)"]["verdict"] == "differs"
    assert found["", row, "Consistency"]["ours"] == pytest.approx(5.8)
    assert found["", row, "Consistency"]["verdict"] == "same"
    assert found["", row, "p of Consistency, paired permutation of subjects"]["ours"] == 0.5


def test_the_largest_p_of_pearsons_coefficients_counts(answered, tmp_path):
    """Seven models, of which the sixth has p = .02; Spearman's .5 do not count."""
    document = {
        "correlations": [
            {"run": row, "x": x, "y": "consistency", "method": method, "value": 0.1 * at,
             "low": 0.0, "high": 0.9, "p": p}
            for at, row in enumerate(MODELS)
            for x, method, p in (
                ("accuracy", "pearson", 0.02 if at == 5 else 0.001),
                ("accuracy", "spearman", 0.5), ("successful_objects", "pearson", 0.6),
            )
        ]
    }  # fmt: skip
    answered(0, lambda command: document if "knowledge" in command else {})
    found = make_cells("pararel-correlations", tmp_path)
    assert found["", "all models", "p (correlation)"]["ours"] == 0.02
    assert found["", "all models", "p (correlation)"]["verdict"] == "differs"
    correlation = found["", "RoBERTa-base", "Correlation Accuracy/Consistency"]
    assert (correlation["ours"], correlation["high"]) == (pytest.approx(30), pytest.approx(90))
    assert correlation["verdict"] == "differs"


def test_agreement_is_that_of_the_released_answers(consilience, tmp_path):
    """149/156 = 95.51 and 60/61 = 98.36; Wilson's interval of k of n with z = 1.96.

    Its centre is (k + z²/2) / (n + z²), its half-width z sqrt(k(n-k)/n + z²/4) / (n + z²).
    """
    command = ("reproduce", "pararel-agreement", "--out", tmp_path, "--json")
    document = json.loads(output(consilience, *command))
    rows = {(row["row"], row["column"]): row for row in document["numbers"]}
    assert round(rows["paraphrases", "Agreement"]["ours"], 1) == 95.5
    assert math.floor(rows["controls", "Agreement"]["ours"] * 10) / 10 == 98.3
    assert "truncates it to 98.3" in document["notes"][1]
    for row, right, pairs in (("paraphrases", 149, 156), ("controls", 60, 61)):
        z = 1.959964
        half = z * math.sqrt(right * (pairs - right) / pairs + z * z / 4)
        ends = [100 * (right + z * z / 2 + side * half) / (pairs + z * z) for side in (-1, 1)]
        share = rows[row, "Agreement"]
        assert [share["low"], share["high"]] == pytest.approx(ends, abs=1e-4)
        assert rows[row, "Pairs"]["verdict"] == "same"


@pytest.fixture(scope="module")
def of_pararel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    return Once(Request(folder))


@pytest.mark.parametrize(("name", "count"), [("pararel-table-1", 7), ("pararel-data", 3)])
def test_the_resource_is_the_papers(of_pararel, here, name, count):
    """38 relations, 328 patterns, 2 to 20, 8.63 each; 4.74 and 6.03; 26,813 tuples; 31 and 7."""
    found = of_pararel.make(name)
    assert [row["verdict"] for row in found.values() if row["paper"] > 0] == ["same"] * count
    others = {key[1:]: row["ours"] for key, row in found.items() if not row["paper"] > 0}
    if name == "pararel-data":
        several = ("subjects with several objects", "objects with several subjects")
        shares = [others[kind, column] for kind in ("N-M", "N-1") for column in several]
        counts = [394 / 2413, 384 / 572, 274 / 22604, 1808 / 3636]
        assert shares == pytest.approx([100 * share for share in counts])


@pytest.mark.parametrize(("table", "count"), [(2, 4), (3, 3), (4, 3), (5, 2), (7, 3)])
def test_the_majority_baseline_has_the_papers_numbers(of_pararel, here, table, count):
    found = of_pararel.make(f"pararel-table-{table}", ["majority"])
    rows = [each for key, each in found.items() if key[1] == "majority"]
    assert len(rows) == count
    for row in rows:
        assert round(row["ours"], 1) == row["paper"], row["column"]
        assert round(row["std"], 1) == row["paper_std"], row["column"]
    others = {each["verdict"] for key, each in found.items() if key[1] != "majority"}
    assert others == {"not selected"}


def test_the_majority_baseline_answers_what_the_release_tests(of_pararel, here):
    """The released code makes 1,854,672 directed tests over the N-1 relations, after the articles.

    Half of it undirected. Tables 2, 3 and 5 have the numbers.
    """
    of_pararel.make("pararel-table-2", ["majority"])
    metrics = pl.read_csv(of_pararel.request.folder_of("majority") / "metrics.csv")
    rows = metrics.filter(over="mean").select("metric", "level", "n").iter_rows()
    counts = {(metric, level or ""): n for metric, level, n in rows}
    parts = ("accuracy", "consistent_accuracy", "successful_patterns", "successful_objects")
    agreements = ("consistency", "unknown_consistency", "known_consistency")
    assert {counts[name, ""] for name in (*parts, *agreements)} == {31}
    assert [counts["consistency", each] for each in ("diff_syntax", "no_change")] == [8, 6]
    assert counts["determinism", ""] == 7
    tests = metrics.filter(metric="consistency", over="all", kind="whole")
    assert tests["n"].to_list() == [1_854_672 // 2]


def test_types_of_paraphrases_are_the_papers_by_hand(of_pararel, here):
    found = of_pararel.make("pararel-table-8").values()
    counted = [each for each in found if each["column"] in ("N.", "Pairs")]
    assert {each["verdict"] for each in counted} == {"counted by hand"}
    assert sum(each["paper"] for each in counted) == 130 + 100


def test_without_data_a_recipe_says_so(consilience, here, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path / "no"))
    command = ["reproduce", "pararel-table-1", "--out", tmp_path / "r"]
    status, out, err = consilience(*command)
    assert status == 0
    assert "pararel-table-1: unavailable: " in err and "is not in " in err
    assert "fetch pararel" in err
    assert out.count("unavailable") == 7
