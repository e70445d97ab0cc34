"""The papers' tables beside ours: exactly where no model is needed, on tiny data where one is."""

import json
import math
import random
import shlex
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import polars as pl
import pytest
from scipy import stats

from checks import output, refusal
from conftest import WORDS, cases, cells, real_data
from consilience.metrics.statistics import holm
from consilience.options.commands import ProbeOptions, ReproduceOptions
from consilience.report.table import as_markdown
from consilience.reproduce import Measured, Recipe, Work, paper_numbers, pararel
from consilience.reproduce.calum import GROUPS, VARIANTS
from consilience.reproduce.reproduction import (
    BESIDE_SCHEMA,
    RECIPES,
    SETS,
    beside,
    beside_table,
    counted,
    make,
)
from consilience.suites.facts import _RELATIONS
from consilience.suites.pairs import TASKS
from test_docs import parse

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
    monkeypatch.setattr("consilience.reproduce.files", lambda package: tmp_path)


class Folder:
    """Tables of one folder; a call that was made before is not made again."""

    def __init__(self, out, **options):
        self.options, self.known = {"out": out, **options}, {}

    def made(self, name, models=None, **options):
        """A table that is made with other models in place of the paper's."""
        recipe = RECIPES[name]
        recipe = replace(recipe, models={**recipe.models, **(models or {})})
        work = Work(ReproduceOptions(name, **{**self.options, **options}))
        work.known = self.known
        table, numbers = make(recipe, work)
        return SimpleNamespace(table=table, numbers=numbers, work=work)

    def cells(self, *arguments, **options):
        """The numbers of a table by block, row and column."""
        return cells(self.made(*arguments, **options).numbers)


@pytest.mark.parametrize(("key", "number", "verdict"), cases("verdicts"))
def test_verdicts_are_of_the_digits_that_the_paper_prints(small, key, number, verdict):
    """50.04 rounds to 50.0 and 50.06 does not."""
    ours = {tuple(key): Measured(*number)}
    assert cells(beside("small", ours))[tuple(key)]["verdict"] == verdict


def test_every_number_of_the_papers_stands_once_with_its_digits_section_and_recipe():
    rows = pl.read_csv(files("consilience.reproduce") / "papers.csv", infer_schema=False)
    assert set(rows["table"]) <= {each.table for each in RECIPES.values()}
    assert not rows.select("table", "group", "row", "column").is_duplicated().any()
    sections = dict(rows.select("table", "section").iter_rows())
    assert all(rows["section"]), "every number has its section"
    assert (sections["pararel-table-3"], sections["pararel-mcnemar"]) == ("6.2", "8.3")
    of_table = paper_numbers("pararel-table-1")
    assert dict(of_table.select("row", "digits").iter_rows())["Avg syntax"] == 2
    assert of_table["value"].to_list() == [38, 328, 2, 20, 8.63, 4.74, 6.03]
    assert set(of_table["section"]) == {"4"}


def test_a_table_in_the_papers_layout(small):
    ours = {
        ("", "Ada", "Right"): Measured(49.0, 19.0, 48.0, 52.0),
        ("", "Ada", "p"): Measured(0.0004),
        ("late", "Bob", "Pairs"): Measured(8),
    }
    more = beside("small", {("", "Ada", "More"): Measured(1.0)})
    assert more["row"].to_list() == ["Ada"] * 4 + ["Bob"] * 2, "a row's numbers are together"
    work = Work(ReproduceOptions("small"))
    for row in ("Ada", "Ada", "Bob"):
        work.note(row, ["few pairs"])
    assert work.notes == ["Ada, Bob: few pairs"]
    numbers = beside("small", ours, {"Bob": "unavailable: cannot load it"})
    assert as_markdown(beside_table(numbers, "Small")).splitlines()[2:] == [
        "|  | Right | Pairs | p |", "|---|---:|---:|---:|",
        "| Ada (paper) | 50.0±20.0 | 12 | \\< 0.01 |",
        "| Ada (ours) | 49.0±19.0 | - | \\<.001 |", "| *late* | | | |",
        "| Bob (paper) | 61.25 | 7 | - |", "| Bob (ours) | - | 8 | - |",
        "", "* A dash means undefined.",
    ]  # fmt: skip


@pytest.fixture
def made(monkeypatch, small):
    """A recipe for the small table; it notes its rows and calls a function for each."""
    rows = []

    def listed(options, progress):
        rows.append(options.model)

    def made(recipe, work):
        for row in ("Ada", "Bob"):
            options = ProbeOptions(model=row)
            work.attempt(row, lambda chosen=options: work.call("probe", listed, chosen))
        numbers = {("", "Ada", "Right"): Measured(50.0), ("late", "Bob", "Pairs"): Measured(7)}
        work.note("", ["a *note* of the recipe"])
        return {} if work.options.dry_run else numbers

    recipe = Recipe("small", "Little", "nothing", made, "small", {"Ada": "a/m"}, [""])
    monkeypatch.setitem(RECIPES, "small", recipe)
    return rows


COMMANDS = ["consilience probe --model Ada", "consilience probe --model Bob"]


def test_the_command_shows_and_writes_and_says_what_it_calls(consilience, made, tmp_path):
    arguments = ("reproduce", "small", "--out", tmp_path / "r")
    status, out, err = consilience(*arguments)
    assert status == 0 and made == ["Ada", "Bob"]
    assert "Little" in out and "a *note* of the recipe" in out
    assert [line.removesuffix(" ...") for line in err.splitlines()[:2]] == COMMANDS
    assert not (tmp_path / "r").exists(), "tables are printed; runs alone are kept"
    printed = output(consilience, *arguments, "--format", "csv").encode()
    written = pl.read_csv(printed, schema_overrides=BESIDE_SCHEMA)
    assert written.columns == [*BESIDE_SCHEMA]
    assert written["verdict"].to_list() == ["same", *["not measured"] * 3, "same"]
    document = json.loads(consilience(*arguments, "--json")[1])
    assert document["run"]["commands"] == COMMANDS
    assert [row["ours"] for row in document["numbers"][:2]] == [50.0, None]
    assert document["notes"] == ["a *note* of the recipe"]


@pytest.mark.parametrize(("arguments", "message"), cases("reproduce_bad"))
def test_what_cannot_be_asked(consilience, made, tmp_path, arguments, message):
    (tmp_path / "a-file").touch()
    err = refusal(consilience, "reproduce", *arguments)
    assert f"error: {message}" in err
    assert made == []


def test_all_tables_are_listed(consilience):
    out = output(consilience, "reproduce")
    document = json.loads(consilience("reproduce", "--json")[1])
    names = [row["name"] for row in document["recipes"]]
    assert {*names} == {*RECIPES} and {*document["sets"]} == {*SETS}
    shown = [line.split()[0] for line in out.splitlines() if line.startswith(("par", "cal"))]
    assert shown == [*SETS, *names] and names == sorted(names)
    tables = {f"pararel-table-{n}" for n in range(1, 9)} | {
        f"calum-table-{n}" for n in range(1, 10)
    }
    assert tables | {"pararel-figure-3"} <= {*names}
    of_6 = RECIPES["calum-table-6"].models
    assert {*paper_numbers("calum-table-6")["row"]} == {f"{m}-{v}" for m in of_6 for v in VARIANTS}
    assert {*paper_numbers("calum-table-2")["row"]} == {*RECIPES["calum-table-2"].models, "Human"}
    for table in ("calum-table-2", "calum-table-5", "calum-table-6"):
        assert {*paper_numbers(table)["group"]} <= {*GROUPS.values()}


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
    subjects = {relation: {} for relation, *_ in _RELATIONS}
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


def test_a_users_model_is_one_more_row_in_each_table(consilience, release, tmp_path):
    """It is asked once for five tables; the paper's rows are shown."""
    command = ["reproduce", "pararel", "--out", tmp_path / "r", "--add", "mine=baseline:oracle"]
    status, out, err = consilience(*command)
    assert status == 0 and err.count("consilience probe") == 1, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "mine (ours) 100.0±0.0 100.0±0.0 100.0±0.0" in lines
    assert "BERT-base (paper) 45.8±25.6 58.5±24.2 27.0±23.8" in lines
    assert "[X] was born in [Y]. Amsterdam Paris" in lines, "of the small release"
    assert "unavailable" not in out + err
    printed = output(consilience, *command, "--format", "csv").encode()
    mine = pl.read_csv(printed, schema_overrides=BESIDE_SCHEMA).filter(row="mine")
    assert {*mine["table"]} == {f"pararel-table-{n}" for n in (2, 3, 4)}
    assert mine.filter(table="pararel-table-3")["ours"].to_list() == [100.0] * 3
    next((tmp_path / "r").glob("pararel/mine-*/run.json")).unlink()
    assert "not the folder of a run" in refusal(consilience, *command)


def test_a_users_run_is_one_more_row(consilience, release, tmp_path):
    """A short run, of two facts of each relation, is read where it is, and nothing is asked."""
    command = ["probe", "--suite", "pararel", "--model", "baseline:oracle", "--out", tmp_path / "o"]
    output(consilience, *command, "--limit", "2")
    command = ["reproduce", "pararel", "--out", tmp_path / "r", "--add", f"mine={tmp_path / 'o'}"]
    status, out, err = consilience(*command)
    assert status == 0 and "consilience probe" not in err
    assert "mine (ours) 100.0±0.0 100.0±0.0 100.0±0.0" in " ".join(out.split())
    assert not (tmp_path / "r").exists()
    output(consilience, "probe", "--model", "baseline:oracle", "--out", tmp_path / "m")
    status, _, err = consilience(*command[:-1], f"mine={tmp_path / 'm'}")
    assert status == 2 and "a run of mini; expected pararel" in err


@pytest.mark.parametrize(("name", "rows"), [
    ("pararel-relations", ["mine"]), ("pararel-correlations", ["mine"]),
    ("pararel-table-7", ["mine", "mine-ft"]), ("calum-table-2", ["mine"]),
    ("calum-table-6", ["mine-Single", "mine-Para", "mine-All"]),
])  # fmt: skip
def test_every_row_of_a_users_model_that_cannot_be_loaded_says_so(release, tmp_path, name, rows):
    folder = Folder(tmp_path, add=["mine=no/model"])
    said = folder.made(name, only=rows).numbers.filter(pl.col("row").is_in(rows))["verdict"]
    assert len(said) and said.str.starts_with("unavailable: ").all()


RANDOM = dict.fromkeys(MODELS, "baseline:random")


@pytest.fixture(scope="module")
def of_few(release, tmp_path_factory):
    """Random models are asked once."""
    return Folder(tmp_path_factory.mktemp("few"))


def test_single_relations_and_correlations_take_all_models(of_few):
    """The oracle is right everywhere: the most consistent, and of no correlation."""
    models = RANDOM | {"BERT-large": "baseline:oracle"}
    found = of_few.cells("pararel-relations", models)
    lowest, highest = (
        found["original-language", f"{end} model", "Consistency"] for end in ("lowest", "highest")
    )
    assert (lowest["paper"], highest["paper"], highest["ours"]) == (52, 90, 100.0)
    assert lowest["ours"] < 100
    assert found["capital-of", "BERT-large", "Consistency"]["ours"] == 100.0
    found = of_few.cells("pararel-correlations", models)
    column = "Correlation Accuracy/Consistency"
    assert found["", "BERT-large", column]["verdict"] == "no data"
    assert found["", "all models", "p (correlation)"]["verdict"] == "no data"
    assert -100 < found["", "RoBERTa-base", column]["ours"] < 100
    assert "the same, Spearman's" in {column for _, _, column in found}
    for name, row in (("relations", "lowest model"), ("correlations", "all models")):
        found = of_few.cells(f"pararel-{name}", models, only=[row, "BERT-large"])
        verdicts = {each["verdict"] for key, each in found.items() if key[1] == row}
        assert verdicts == {"not measured"}, "of all models of the paper or of none"


def test_vectors_of_a_tiny_model(release, model_folder, tmp_path):
    models = {"BERT-large": str(model_folder("bert"))}
    made = Folder(tmp_path / "r", device="cpu").made("pararel-figure-3", models)
    (drawn,) = (tmp_path / "r").rglob("tsne-P36.svg")
    assert "<svg" in drawn.read_text() and f"BERT-large: the figure is {drawn}" in made.work.notes
    columns = ["V-measure by pattern", "AMI by pattern", "V-measure by subject"]
    assert made.numbers["column"].to_list()[:3] == columns
    clusters = pl.read_csv(next((tmp_path / "r").glob("pararel-figure-3/*/clusters.csv")))
    told = clusters.filter(property="pattern").select("v_measure", "ami").row(0)
    assert made.numbers["ours"].to_list()[:2] == pytest.approx([100 * each for each in told])
    assert set(made.numbers["verdict"]) == {"ours only"}


FEW = {
    "improve": {"epochs": 1, "limit": 2},
    "finetune": {"epochs": 1, "batch_size": 8, "learning_rate": 6e-3},
}


@pytest.fixture
def quick(monkeypatch):
    """Trainings are short, and of classifiers there are two; the options of those that were made."""
    call, trained = Work.call, []

    def fast(self, command, function, options):
        options = replace(options, **FEW.get(command, {}))
        trained.extend([options] * (command in FEW))
        return call(self, command, function, options)

    monkeypatch.setattr(Work, "call", fast)
    monkeypatch.setattr("consilience.reproduce.calum.SEEDS", (0, 1))
    return trained


def test_a_training_is_read_and_tested(release, model_folder, quick, tmp_path, monkeypatch):
    """The trainings of Table 7 are those of the tests. Three relations are measured."""
    pytest.importorskip("accelerate")
    test = pararel.TEST
    monkeypatch.setattr(pararel, "TRAIN", (*pararel.TRAIN, *test[5:]))
    monkeypatch.setattr(pararel, "TEST", test[:5])
    folder, models = Folder(tmp_path / "r", device="cpu"), {"BERT-base": str(model_folder("bert"))}
    found = folder.cells("pararel-table-7", models)
    rows = {
        "BERT-base": "before",
        **dict.fromkeys(("BERT-ft", "-consistency", "-typed", "-MLM"), pararel.AFTER),
    }
    weights = [one.weight for one in quick]
    best = weights[4]
    assert weights == [0.1, 0.5, 1.0, 0.0, best, best] and best in weights[:3]
    folders = [quick[weights.index(best)].out] * 2 + [one.out for one in quick[3:]]
    for (row, part), place in zip(rows.items(), folders, strict=True):
        metrics = pl.read_csv(place / part / "metrics.csv")
        told = metrics.filter(metric="consistency", over="mean", kind="whole")["value"][0]
        block = "ablation" if row.startswith("-") else "BERT"
        assert found[block, row, "Consistency"]["ours"] == pytest.approx(100 * told)
    assert found["", "majority", "Consistency"]["ours"] == 100.0
    ours = [found["BERT", row, "Consistency"]["ours"] for row in ("BERT-base", "BERT-ft")]
    tests = folder.cells("pararel-mcnemar", models)
    key = ("", "BERT-ft vs BERT-base")
    assert tests[*key, "Consistency"]["ours"] == pytest.approx(ours[1] - ours[0])
    compared = pl.read_csv((folders[1] / pararel.AFTER).with_name("comparison.csv"))
    pooled = compared.filter(over="all", kind="whole")
    binary = pooled.filter(pl.col("metric").is_in(["accuracy", "consistent_accuracy"]))
    assert set(binary["test"]) == {"exact McNemar"} and binary.height == 2
    assert tests[*key, "p (McNemar)"]["ours"] == binary["p"].max()
    other = Folder(tmp_path / "missing").cells("pararel-mcnemar", {"BERT-base": "no/model"})
    assert all(each["verdict"].startswith("unavailable: ") for each in other.values())


def test_agreement_is_that_of_the_released_answers(consilience, tmp_path):
    """149/156 = 95.51 and 60/61 = 98.36; Wilson's interval of k of n."""
    command = ("reproduce", "pararel-agreement", "--out", tmp_path, "--json")
    document = json.loads(output(consilience, *command))
    rows = {(row["row"], row["column"]): row for row in document["numbers"]}
    assert round(rows["paraphrases", "Agreement"]["ours"], 1) == 95.5
    assert math.floor(rows["controls", "Agreement"]["ours"] * 10) / 10 == 98.3
    assert "truncates it to 98.3" in document["notes"][1]
    for row, right, pairs in (("paraphrases", 149, 156), ("controls", 60, 61)):
        ends = stats.binomtest(right, pairs).proportion_ci(method="wilson")
        share = rows[row, "Agreement"]
        assert [share["low"], share["high"]] == pytest.approx([100 * end for end in ends])
        assert rows[row, "Pairs"]["verdict"] == "same"


@pytest.fixture(scope="module")
def of_pararel(tmp_path_factory):
    return Folder(tmp_path_factory.mktemp("reproduce"))


@pytest.mark.parametrize(("name", "count"), [("pararel-table-1", 7), ("pararel-data", 3)])
def test_the_resource_is_the_papers(of_pararel, name, count):
    """38 relations, 328 patterns, 2 to 20, 8.63 each; 4.74 and 6.03; 26,813 tuples; 31 and 7."""
    found = of_pararel.cells(name)
    assert [row["verdict"] for row in found.values() if row["paper"] > 0] == ["same"] * count


@pytest.mark.parametrize(("table", "count"), [(2, 4), (3, 3), (4, 3), (5, 2), (7, 3)])
def test_the_majority_baseline_has_the_papers_numbers(of_pararel, table, count):
    found = of_pararel.cells(f"pararel-table-{table}", only=["majority"])
    rows = [each for key, each in found.items() if key[1] == "majority"]
    assert len(rows) == count
    for row in rows:
        assert round(row["ours"], 1) == row["paper"], row["column"]
        assert round(row["std"], 1) == row["paper_std"], row["column"]
    others = {each["verdict"] for key, each in found.items() if key[1] != "majority"}
    assert others == {"not measured"}


def test_without_data_a_dry_run_says_how_to_get_it_and_the_papers_rows_are_alone(
    consilience, tmp_path, monkeypatch
):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path / "no"))
    command = ["reproduce", "pararel", "--add", "mine=baseline:oracle"]
    first, second = output(consilience, *command, "--dry-run").splitlines()
    assert "20 minutes" in first and second.startswith("consilience probe --suite pararel")
    status, out, err = consilience(*command)
    assert (status, "suite fetch pararel" in err) == (3, True) and "BERT-base (paper)" in out


def write_pairs(path, count, task, seed=0):
    draw = random.Random(seed)
    labels = TASKS[task].labels
    rows = [
        {
            TASKS[task].first[0]: draw.choice(WORDS[3:]),
            TASKS[task].second[0]: " ".join([WORDS[at % len(labels)]] * draw.randrange(2, 6)),
            TASKS[task].label[0]: labels[at % len(labels)],
        }
        for at in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path):
    """A folder with the sets of two tasks."""
    folder = tmp_path / "data"
    for task in ("rte", "mrpc"):
        (folder / task).mkdir(parents=True)
        for seed, (split, count) in enumerate((("train", 16), ("validation", 8))):
            write_pairs(folder / task / f"{split}.jsonl", count, task, seed)
    return folder


def table_of(name, folder, models=None, **options):
    """A table that is made with other models in place of the paper's, and its numbers."""
    table = Folder(folder).made(name, models, **options)
    return table, cells(table.numbers)


def test_a_dry_run_says_what_cannot_be_run(consilience):
    status, out, err = consilience("reproduce", "calum-table-5", "--only", "KoBERT", "--dry-run")
    assert status == 0 and "klue-nli" in out
    assert "no train split of kornli on the Hub. Give --data DIR with kornli/train" in err


def sizes_of(found, row):
    names = ("Train", "Validation", "Test")
    return [found["", row, f"{name} set size"]["verdict"] for name in names]


def test_sizes_of_small_sets(tmp_path):
    """277 labelled pairs are the paper's; 3,049 without any label are 3K; of 519 a half is 260."""
    data = tmp_path / "data"
    sizes = {"rte/train": 20, "rte/validation": 277, "klue-nli/validation": 519}
    for name, count in sizes.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        write_pairs(data / f"{name}.jsonl", count, name.partition("/")[0])
    (data / "mrpc").mkdir()
    (data / "mrpc" / "validation.tsv").touch()
    row = json.dumps({"sentence1": "a", "sentence2": "b", "label": -1}) + "\n"
    (data / "rte" / "test.jsonl").write_text(row * 3049)
    _, found = table_of("calum-table-1", tmp_path, data=data)
    assert sizes_of(found, "RTE") == ["differs", "same", "same"]
    ours = {column: each["ours"] for (_, row, column), each in found.items() if row == "RTE"}
    assert [*ours.values()] == [2, 0.02, 277, 3.049]
    ours = {column: each["ours"] for (_, row, column), each in found.items() if row == "KLUE-NLI"}
    assert [ours[f"{name} set size"] for name in ("Validation", "Test")] == [0.26, 0.259]
    is_class = "# of classes"
    classes = {row: each["ours"] for (_, row, name), each in found.items() if name == is_class}
    threes = {name for name in classes if name.endswith("NLI") and name != "QNLI"}
    assert classes == {name: 3 if name in threes else 2 for name in classes}
    assert "mrpc/validation.tsv" in sizes_of(found, "MRPC")[1]
    assert "Give --data DIR with kornli/train" in sizes_of(found, "KorNLI")[0]
    assert "on the Hub" in sizes_of(found, "QQP")[2]


@pytest.fixture
def tiny(calm_folder):
    return str(calm_folder("bert"))


def test_a_cell_of_table_2_and_again(data, tiny, quick, tmp_path):
    """Trained with two seeds, asked, and beside the paper's; the second time from the folder."""
    options = {"models": {"RoBERTa-base": tiny}, "only": ("RoBERTa-base",), "device": "cpu"}
    found, table = table_of("calum-table-2", tmp_path / "out", data=data, **options)
    place = tmp_path / "out" / "calum" / "RoBERTa-base" / "rte"
    commands = [command.split()[1] for command in found.work.commands]
    assert commands == ["finetune", "finetune", "probe", "probe"] * 2, "of two tasks"
    folders = [place / "run" / f"seed-{n}" / "answers" for n in (0, 1)]
    asked = [pl.read_parquet(folder / "0.parquet") for folder in folders]
    said = [each["answer"].to_numpy().reshape(8, 3) for each in asked]
    gold = asked[0]["gold"].to_numpy().reshape(8, 3)
    expected = {
        "Acc_val": [(each[:, 0] == gold[:, 0]).mean() for each in said],
        "C_R": [(each[:, 0] == each[:, 1]).mean() for each in said],
        "C_S": [(each[:, 0] == each[:, 2]).mean() for each in said],
    }
    for column, (one, two) in expected.items():
        cell = table["RTE", "RoBERTa-base", column]
        assert cell["ours"] == pytest.approx(100 * (one + two) / 2)
        assert cell["std"] == pytest.approx(100 * abs(one - two) / math.sqrt(2))
        reach = 12.706205 * 100 * abs(one - two) / 2  # t of one degree, of both seeds
        assert cell["high"] - cell["ours"] == pytest.approx(reach)
        assert cell["verdict"] in ("same", "differs")
    assert table["QQP", "RoBERTa-base", "C_R"]["verdict"].startswith("unavailable: ")
    others = {one["verdict"] for name, one in table.items() if name[1] != "RoBERTa-base"}
    assert others == {"not measured"}
    notes = [note for note in found.work.notes if note.startswith("RoBERTa-base on RTE")]
    assert notes, "eight pairs are few, or one label is all that it says"
    files = [path for path in place.rglob("*") if path.suffix in (".parquet", ".safetensors")]
    before = [path.stat().st_mtime_ns for path in files]
    _, second = table_of("calum-table-2", tmp_path / "out", data=data, **options)
    assert repr(second) == repr(table)
    assert before == [path.stat().st_mtime_ns for path in files]
    own = {"add": [f"mine={tiny}"], "device": "cpu", "data": data}
    table_of("calum-table-2", tmp_path / "out", **own)
    shown, _ = table_of("calum-table-3", tmp_path / "out", **own)
    assert [*dict.fromkeys(shown.table.blocks)] == ["mine: RTE, signal", "mine: MRPC, reverse"]
    originals, changed = shown.table.rows[::2], shown.table.rows[1::2]
    for first, second in zip(originals, changed, strict=True):
        assert first[0] == "no answer changed" or first[3] != second[3]


def test_dry_runs_nothing(data, tmp_path):
    out = tmp_path / "out"
    options = {"data": data, "dry_run": True}
    table, numbers = table_of("calum-table-6", out, only=("GPT2-base-Para",), **options)
    place = out / "calum" / "GPT2-base" / "rte-Para"
    seed = place / "model" / "seed-4" / "rte"
    expected = (
        f"consilience finetune --model openai-community/gpt2 --task rte "
        f"--train {data}/rte/train.jsonl --validation {data}/rte/validation.jsonl "
        f"--out {place / 'model'} --with-task qqp=hub:train "
        f"--with-task mrpc={data}/mrpc/train.jsonl",
        f"consilience probe --suite rte --model {seed} --data {data}/rte/validation.jsonl "
        f"--out {place / 'run' / 'seed-4'}",
    )
    for command, words in zip((-10, -1), expected, strict=True):
        assert {*table.work.commands[command].split()} == {*words.split()}
    assert numbers["RTE", "GPT2-base-Para", "C_R"]["verdict"] == "not measured"
    table, _ = table_of("calum-table-6", out, add=["mine=my/model"], **options)
    models = [command.split()[3] for command in table.work.commands if "finetune" in command]
    assert set(models) == {"my/model"} and len(models) == 9 * 5
    for name in RECIPES:
        table, _ = table_of(
            name, out, **(options if name.startswith("calum") else {"dry_run": True})
        )
        for command in table.work.commands:  # a wrong option would show only when it is run
            parse(shlex.split(command)[1:])
    assert not out.exists()


def test_people(tmp_path, consilience, data):
    """Four of five answer RTE. One says another label in REVERSE once of eight: (7/8 + 3) / 4."""
    out = tmp_path / "out"
    sheets = out / "calum" / "sheets" / "rte"
    options = {"only": ("Human",), "data": data}
    cell = table_of("calum-table-2", out, **options)[1]["RTE", "Human", "C_R"]
    assert "people have to answer: consilience suite annotate sheet" in cell["verdict"]
    command = ("suite", "annotate", "sheet", "--task", "rte", "--out", sheets)
    assert consilience(*command, "--data", data / "rte/validation.jsonl")[0] == 0
    key = json.loads((sheets / "key.json").read_text(encoding="utf-8"))
    rows = {str(row["question"]): row for row in key["rows"]}
    for path in sorted(sheets.glob("annotator-*.csv"))[:4]:
        table = pl.read_csv(path, infer_schema=False)
        asked = [rows[question] for question in table["question"]]
        said = [row["gold"] for row in asked]
        for at, row in enumerate(asked):
            if (path.stem, row["item"], row["variant"]) == ("annotator-1", "2", "reverse"):
                said[at] = next(each for each in key["labels"] if each != said[at])
        table.with_columns(answer=pl.Series(said)).write_csv(path, line_terminator="\r\n")
    table, found = table_of("calum-table-2", out, **options)
    assert any("no answers; left out" in note for note in table.work.notes)
    ours = {column: found["RTE", "Human", column]["ours"] for column in ("Acc_val", "C_R", "C_S")}
    assert ours == pytest.approx({"Acc_val": 100, "C_R": 100 * (7 / 8 + 3) / 4, "C_S": 100})
    assert found["RTE", "Human", "C_R"]["paper"] == 94.0


COUNTS = cases("claims")
"""Recipe, section, claim, in how many comparisons it holds of how many, and where it does not.

Counted by hand in Tables 2, 5 and 6 of the CALUM paper and in Tables 2, 3, 5 and 7 of ParaRel's.
"""


@pytest.mark.parametrize("recipe", ["calum-claims", "pararel-claims"])
def test_claims_hold_as_often_as_counted_by_hand(recipe, tmp_path):
    """Every claim of the recipe is counted, and every number is of a claim."""
    named = {(claim["section"], claim["claim"]) for claim in RECIPES[recipe].details["claims"]}
    found = table_of(recipe, tmp_path)[1]
    assert {key[:2] for key in found} == named
    printed = paper_numbers(recipe)
    assert set(printed.select("group", "row").iter_rows()) <= named
    assert (printed["group"] == printed["section"]).all()
    for section, claim, *counts in (row[1:5] for row in COUNTS if row[0] == recipe):
        ours = [found[section, claim, column]["ours"] for column in ("Holds in", "of")]
        assert ours == counts, claim
    assert all(math.isnan(row["paper"]) or row["paper"] <= found[*key[:2], "of"]["ours"]
               for key, row in found.items()), "no claim is about more comparisons than there are"  # fmt: skip
    p, adjusted = (
        [row["ours"] for key, row in found.items() if key[2] == f"p ({of})"] for of in ("t", "Holm")
    )
    assert adjusted == pytest.approx(holm(p)), "over all claims"


def test_a_claim_is_tested_over_its_units_by_hand():
    """Means 3, 5 and 1: mean 3, standard error 2 / sqrt(3), t = 2.598 with two degrees.

    Of t with two degrees, p = 1 - t / sqrt(2 + t**2).
    """

    def values(units):
        return {name: number.value for name, number in counted(units).items()}

    units = {"a": [2.0, 4.0], "b": [5.0], "c": [1.0]}
    found = values(units)
    assert (found["Holds in"], found["of"], found["Units"]) == (4, 4, 3)
    assert found["Difference"] == pytest.approx(3)
    t = 3 / (2 / math.sqrt(3))
    assert found["p (t)"] == pytest.approx(1 - t / math.sqrt(2 + t * t))
    interval = counted(units)["Difference"]
    reach = 4.30265 * 2 / math.sqrt(3)
    assert (interval.low, interval.high) == pytest.approx((3 - reach, 3 + reach), abs=1e-4)
    more = units | {"d": [-1.0, 1.0]}
    several = values(more)
    assert (several["Holds in"], several["Difference"]) == (5, pytest.approx(9 / 4))
    alone = values({"a": [2.0, 4.0]})
    assert math.isnan(alone["p (t)"])
