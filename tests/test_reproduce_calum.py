"""CALUM's tables: what needs no model exactly, the rest on tiny models, and what is not here."""

import json
import math
import random
import shlex
from dataclasses import replace

import polars as pl
import pytest

from conftest import WORDS, cells, real_data
from consilience.options.others import ReproduceOptions
from consilience.report.papers import paper_numbers
from consilience.reproduce.calum import BACKBONES, GROUPS, VARIANTS
from consilience.reproduce.recipe import Work
from consilience.reproduce.reproduction import RECIPES, make
from consilience.suites.pairs import TASKS
from test_docs import parse


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


def made(name, folder, models=None, **options):
    """A table that is made with other models in place of the paper's, and its numbers."""
    recipe = replace(RECIPES[name], models={**RECIPES[name].models, **(models or {})})
    table = make(recipe, Work(ReproduceOptions(name, out=folder, **options)))
    return table, cells(table.numbers)


@pytest.fixture
def quick(monkeypatch):
    """Trainings have two seeds of one epoch."""
    call = Work.call

    def fast(self, command, function, options):
        few = {"epochs": 1, "batch_size": 8, "learning_rate": 6e-3}
        return call(
            self, command, function, replace(options, **(few if command == "finetune" else {}))
        )

    monkeypatch.setattr(Work, "call", fast)
    monkeypatch.setattr("consilience.reproduce.calum.SEEDS", (0, 1))


def test_every_table_of_the_paper_has_the_papers_rows_and_blocks():
    names = {name for name in RECIPES if name.startswith("calum-")}
    others = {"calum-t-tests", "calum-gain", "calum-claims"}
    assert names == {f"calum-table-{n}" for n in range(1, 10)} | others
    of_6 = {f"{model}-{variant}" for model in BACKBONES for variant in VARIANTS}
    assert {*paper_numbers("calum-table-6")["row"]} == of_6
    assert {*paper_numbers("calum-table-2")["row"]} == {*RECIPES["calum-table-2"].models, "Human"}
    for table in ("calum-table-2", "calum-table-5", "calum-table-6"):
        assert {*paper_numbers(table)["group"]} <= {*GROUPS.values()}


def p_of(found, group, row):
    """The p values of a row by test; the paired one is compared with the paper's level."""
    return {
        column.removeprefix("p (").removesuffix(")").replace("t-test", "paired"): each["ours"]
        for (block, name, column), each in found.items()
        if (block, name) == (group, row)
    }


def test_t_tests_of_the_papers_own_numbers(tmp_path):
    """The numbers of ``test_tasktypes``: both claims hold by each test without T5, one with it."""
    _, found = made("calum-t-tests", tmp_path)
    expected = {
        ("REVERSE", "STS vs NLI"): (1.07e-12, 1.55e-12, 6.62e-6),
        ("SIGNAL", "RTE and MRPC vs others"): (0.000626, 0.00464, 0.00720),
        ("REVERSE", "STS vs NLI, with T5"): (6.74e-11, 2.94e-11, 3.42e-5),
        ("SIGNAL", "RTE and MRPC vs others, with T5"): (0.175, 0.214, 0.0973),
    }
    for name, p in expected.items():
        tests = dict(zip(("Student", "Welch", "paired"), p, strict=True))
        assert p_of(found, *name) == pytest.approx(tests, rel=0.01)
    same = [name for name, each in found.items() if each["verdict"] == "same"]
    assert same == [(*name, "p (t-test)") for name in list(expected)[:2]]
    rows = {row for _, row, _ in found}
    assert len(rows) == 6, "and with people"
    marginal = p_of(found, "SIGNAL", "STS vs NLI")
    assert marginal["paired"] == pytest.approx(0.0770, abs=5e-5), "1.7 points, not below .05"


def test_gains_of_the_papers_own_numbers(tmp_path):
    """12.9 % for Para, 11.9 % for All, so 12.4 % for both."""
    _, found = made("calum-gain", tmp_path)
    assert {row: round(each["ours"], 1) for (_, row, _), each in found.items()} == {
        "Para and All vs Single": 12.4, "Para vs Single": 12.9, "All vs Single": 11.9,
    }  # fmt: skip


def test_a_dry_run_says_what_cannot_be_run(consilience):
    status, out, err = consilience("reproduce", "calum-table-5", "--only", "KoBERT", "--dry-run")
    assert status == 0 and "klue-nli" in out
    assert "no split of its own on the Hub; give --data DIR with kornli/train" in err


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
    _, found = made("calum-table-1", tmp_path, data=data)
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
    assert "give --data DIR with kornli/train" in sizes_of(found, "KorNLI")[0]
    assert "on the Hub" in sizes_of(found, "QQP")[2]


def test_sizes_of_the_real_sets(tmp_path):
    """KorNLI's released validation set is not the paper's; all others that are here are."""
    glue, klue, kornli = (real_data(name) for name in ("glue", "klue", "kornli"))
    data, sets = tmp_path / "data", {
        "mnli/validation": glue / "mnli" / "validation_matched.jsonl",
        "qnli/validation": glue / "qnli" / "validation.tsv",
        **{f"rte/{split}": glue / "rte" / f"{split}.tsv" for split in ("train", "validation")},
        **{f"mrpc/{split}": glue / "mrpc" / f"{split}.tsv" for split in ("train", "validation", "test")},
        "klue-nli/validation": klue / "klue-nli-v1.1_dev.json",
        "klue-sts/validation": klue / "klue-sts-v1.1_dev.json",
        "kornli/validation": kornli / "xnli.dev.ko.tsv",
    }  # fmt: skip
    for name, file in sets.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).with_suffix(file.suffix).symlink_to(file)
    _, found = made("calum-table-1", tmp_path, data=data)
    known = {key[1:]: each for key, each in found.items() if not math.isnan(each["ours"])}
    measured = {key: each["verdict"] for key, each in known.items()}
    others = {name for name, verdict in measured.items() if verdict != "same"}
    assert others == {("KorNLI", "Validation set size")}
    assert measured.keys() >= {
        ("RTE", "Train set size"), ("MRPC", "Test set size"), ("KLUE-NLI", "Test set size"),
        ("KLUE-STS", "Validation set size"), ("KLUE-STS", "Test set size"),
    }  # fmt: skip


@pytest.fixture
def tiny(calm_folder):
    return str(calm_folder("bert"))


def test_a_cell_of_table_2_and_again(data, tiny, quick, tmp_path):
    """Trained with two seeds, asked, and beside the paper's; the second time from the folder."""
    options = {"models": {"RoBERTa-base": tiny}, "only": ("RoBERTa-base",), "device": "cpu"}
    found, table = made("calum-table-2", tmp_path / "out", data=data, **options)
    place = tmp_path / "out" / "calum" / "RoBERTa-base" / "rte"
    commands = [command.split()[1] for command in found.work.commands]
    assert commands == ["finetune", "probe", "probe"] * 2, "of two tasks"
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
    assert others == {"not selected"}
    notes = [note for note in found.work.notes if note.startswith("RTE, RoBERTa-base: ")]
    assert notes, "eight pairs are few, or one label is all that it says"
    files = [path for path in place.rglob("*") if path.suffix in (".parquet", ".safetensors")]
    before = [path.stat().st_mtime_ns for path in files]
    _, second = made("calum-table-2", tmp_path / "out", data=data, **options)
    assert repr(second) == repr(table)
    assert before == [path.stat().st_mtime_ns for path in files]
    own = {"add": [f"mine={tiny}"], "device": "cpu", "data": data}
    made("calum-table-2", tmp_path / "out", **own)
    shown, _ = made("calum-table-3", tmp_path / "out", **own)
    assert [*dict.fromkeys(shown.table.blocks)] == ["mine: RTE, signal", "mine: MRPC, reverse"]
    originals, changed = shown.table.rows[::2], shown.table.rows[1::2]
    for first, second in zip(originals, changed, strict=True):
        assert first == ["no answer changed", "", "", ""] or first[2] != second[2]


def test_dry_runs_nothing(data, tmp_path):
    out = tmp_path / "out"
    options = {"data": data, "dry_run": True}
    table, numbers = made("calum-table-6", out, only=("GPT2-base-Para",), **options)
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
    for command, words in zip((-6, -1), expected, strict=True):
        assert {*table.work.commands[command].split()} == {*words.split()}
    assert numbers["RTE", "GPT2-base-Para", "C_R"]["verdict"] == "not run"
    table, _ = made("calum-table-6", out, add=["mine=my/model"], **options)
    models = [command.split()[3] for command in table.work.commands if "finetune" in command]
    assert set(models) == {"my/model"} and len(models) == 9
    for name in RECIPES:
        table, _ = made(name, out, **(options if name.startswith("calum") else {"dry_run": True}))
        for command in table.work.commands:  # a wrong option would show only when it is run
            parse(shlex.split(command)[1:])
    assert not out.exists()


def test_people(tmp_path, consilience, data):
    """Four of five answer RTE. One says another label in REVERSE once of eight: (7/8 + 3) / 4."""
    out = tmp_path / "out"
    sheets = out / "calum" / "sheets" / "rte"
    options = {"only": ("Human",), "data": data}
    cell = made("calum-table-2", out, **options)[1]["RTE", "Human", "C_R"]
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
    table, found = made("calum-table-2", out, **options)
    assert any("no answers; left out" in note for note in table.work.notes)
    ours = {column: found["RTE", "Human", column]["ours"] for column in ("Acc_val", "C_R", "C_S")}
    assert ours == pytest.approx({"Acc_val": 100, "C_R": 100 * (7 / 8 + 3) / 4, "C_S": 100})
    assert found["RTE", "Human", "C_R"]["paper"] == 94.0
