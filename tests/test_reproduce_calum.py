"""CALUM's recipes: what needs no model exactly, the rest on tiny models, and what is not here."""

import json
import math
import random
import shlex
import shutil
from dataclasses import replace

import polars as pl
import pytest

from checks import refused
from conftest import WORDS, cells, real_data
from consilience.report.papers import paper_numbers
from consilience.reproduce.calum import GROUPS, TABLE_6
from consilience.reproduce.recipe import Request, Work
from consilience.reproduce.reproduction import RECIPES, carry_out
from consilience.suites.pairs import TASKS, read_pairs
from test_docs import parse
from test_tasktypes import run_folder


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
    return {
        f"{task}:{split}": write_pairs(tmp_path / f"{task}-{split}.jsonl", count, task, seed)
        for task in ("rte", "mrpc")
        for seed, (split, count) in enumerate((("train", 16), ("validation", 8)))
    }


def make(name, folder, models=None, **request):
    """What a recipe finds, the rows of both numbers, and its work."""
    work = Work(Request(folder, **request))
    recipe = replace(RECIPES[name], models={**RECIPES[name].models, **(models or {})})
    return work, cells(carry_out(recipe, work)), work


@pytest.fixture
def quick(monkeypatch):
    """Trainings have two seeds of one epoch."""
    run = Work.run

    def fast(self, row, name, *arguments, **more):
        few = ("--epochs", "1", "--batch-size", "8", "--learning-rate", "6e-3")
        return run(self, row, name, *arguments, *(few if name == "finetune" else ()), **more)

    monkeypatch.setattr(Work, "run", fast)
    monkeypatch.setattr("consilience.reproduce.calum.SEEDS", (0, 1))


def test_every_table_of_the_paper_has_a_recipe_with_the_papers_rows_and_blocks():
    names = {name for name in RECIPES if name.startswith("calum-")}
    others = {"calum-t-tests", "calum-gain", "calum-human", "calum-claims"}
    assert names == {f"calum-table-{n}" for n in range(1, 10)} | others
    assert all(RECIPES[name].needs and RECIPES[name].title for name in names)
    assert {*paper_numbers("calum-table-6")["row"]} == {*TABLE_6}
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
    _, found, _ = make("calum-t-tests", tmp_path)
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
    assert len(rows) == 6 and not any("our runs" in row for row in rows), "and with people"
    marginal = p_of(found, "SIGNAL", "STS vs NLI")
    assert marginal["paired"] == pytest.approx(0.0770, abs=5e-5), "1.7 points, not below .05"


def test_gains_of_the_papers_own_numbers_and_of_runs(tmp_path):
    """12.9 % for Para, 11.9 % for All, so 12.4 % for both. Ours: .5 to .6 and .8 to .9."""
    for task, before, after in (("rte", 0.5, 0.6), ("mnli", 0.8, 0.9)):
        for folder, value in ((task, before), (f"{task}-Para", after)):
            run_folder(tmp_path / "calum" / "GPT2-base" / folder / "run", task, 0.9, value, 1, 0)
    said, found, _ = make("calum-gain", tmp_path)
    assert "our runs: GPT2-base-Single on MNLI, RTE; GPT2-base-Para on MNLI, RTE" in said.notes
    gains = {row: each["ours"] for (_, row, _), each in found.items()}
    assert {row: round(gain, 1) for row, gain in gains.items()} == {
        "Para and All vs Single": 12.4, "Para vs Single": 12.9, "All vs Single": 11.9,
        "Para vs Single, our runs": 16.2,
    }  # fmt: skip
    assert gains["Para vs Single, our runs"] == pytest.approx(100 * (0.2 + 0.125) / 2)


def test_runs_of_another_file_are_not_taken_for_the_given_ones(tmp_path):
    one, two = (write_pairs(tmp_path / f"{n}.jsonl", 8, "rte", seed=n) for n in (1, 2))
    run = run_folder(tmp_path / "calum" / "GPT2-base" / "rte" / "run", "rte", 0.9, 0.5, 1, 0)
    asked = {"pairs": read_pairs(one, TASKS["rte"]).digest, "limit": None}
    record = {"settings": asked, "data": one, "warnings": ["a constant classifier"]}
    record |= {"started": "2026-01-31T12:00:00+00:00", "versions": {}, "answers": {}, "options": {}}
    (run / "run.json").write_text(json.dumps(record))
    elsewhere = shutil.copy(one, tmp_path / "the-same.jsonl")
    said, *_ = make("calum-gain", tmp_path, data={"rte:validation": str(elsewhere)})
    assert "RTE, GPT2-base-Single: a constant classifier" in said.notes
    assert not any("its pairs are of" in each for each in said.notes)
    other = "another run: its data is .*1.jsonl, this command's is"
    refused(other, make, "calum-gain", tmp_path, data={"rte:validation": two})
    said, *_ = make("calum-gain", tmp_path)
    assert f"RTE, GPT2-base-Single: its pairs are of {one}" in said.notes


def test_a_dry_run_says_what_cannot_be_run(consilience):
    status, out, err = consilience("reproduce", "calum-table-5", "--only", "KoBERT", "--dry-run")
    assert status == 0 and "klue-nli" in out
    assert "no split of its own on the Hub; give kornli:train" in err


def sizes_of(found, row):
    names = ("Train", "Validation", "Test")
    return [found["", row, f"{name} set size"]["verdict"] for name in names]


def test_sizes_of_small_sets(tmp_path):
    """277 labelled pairs are the paper's; 3,049 without any label are 3K; of 519 a half is 260."""
    sets = {
        "rte:train": write_pairs(tmp_path / "train.jsonl", 20, "rte"),
        "rte:validation": write_pairs(tmp_path / "validation.jsonl", 277, "rte"),
        "rte:test": str(tmp_path / "test.jsonl"),
        "klue-nli:validation": write_pairs(tmp_path / "klue-nli.jsonl", 519, "klue-nli"),
        "mrpc:validation": str(tmp_path / "none.tsv"),
    }
    row = json.dumps({"sentence1": "a", "sentence2": "b", "label": -1}) + "\n"
    (tmp_path / "test.jsonl").write_text(row * 3049)
    _, found, _ = make("calum-table-1", tmp_path, data=sets)
    assert sizes_of(found, "RTE") == ["differs", "same", "same"]
    ours = {column: each["ours"] for (_, row, column), each in found.items() if row == "RTE"}
    assert [*ours.values()] == [2, 0.02, 277, 3.049]
    ours = {column: each["ours"] for (_, row, column), each in found.items() if row == "KLUE-NLI"}
    assert [ours[f"{name} set size"] for name in ("Validation", "Test")] == [0.26, 0.259]
    is_class = "# of classes"
    classes = {row: each["ours"] for (_, row, name), each in found.items() if name == is_class}
    threes = {name for name in classes if name.endswith("NLI") and name != "QNLI"}
    assert classes == {name: 3 if name in threes else 2 for name in classes}
    assert f"{tmp_path / 'none.tsv'}: no such file" in sizes_of(found, "MRPC")[1]
    assert "give kornli:train" in sizes_of(found, "KorNLI")[0]
    assert "on the Hub" in sizes_of(found, "QQP")[2]


def test_sizes_of_the_real_sets(tmp_path):
    """KorNLI's released validation set is not the paper's; all others that are here are."""
    glue, klue, kornli = (real_data(name) for name in ("glue", "klue", "kornli"))
    sets = {
        "mnli:validation": glue / "mnli" / "validation_matched.jsonl",
        "qnli:validation": glue / "qnli" / "validation.tsv",
        **{f"rte:{split}": glue / "rte" / f"{split}.tsv" for split in ("train", "validation")},
        **{f"mrpc:{split}": glue / "mrpc" / f"{split}.tsv" for split in ("train", "validation", "test")},
        "klue-nli:validation": klue / "klue-nli-v1.1_dev.json",
        "klue-sts:validation": klue / "klue-sts-v1.1_dev.json",
        "kornli:validation": kornli / "xnli.dev.ko.tsv",
    }  # fmt: skip
    files = {name: str(file) for name, file in sets.items()}
    _, found, _ = make("calum-table-1", tmp_path, data=files)
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


def stamps(folder):
    """When each answer and each weight was written."""
    return {
        path: path.stat().st_mtime_ns
        for suffix in ("parquet", "safetensors")
        for path in folder.rglob(f"*.{suffix}")
    }


def test_a_cell_of_table_2_and_again(data, tiny, here, quick, tmp_path):
    """Trained with two seeds, asked, and beside the paper's; the second time nothing is."""
    only = {name: file for name, file in data.items() if name.startswith("rte")}
    request = {"models": {"RoBERTa-base": tiny}, "only": ("RoBERTa-base",), "data": only}
    request["device"] = "cpu"
    found, table, work = make("calum-table-2", tmp_path / "out", **request)
    place = work.request.folder_of("RoBERTa-base", "calum") / "rte"
    assert [command.split()[1] for command in work.commands] == ["finetune", "probe", "probe"]
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
    others = {one["verdict"] for name, one in table.items() if name[1] != "RoBERTa-base"}
    assert others == {"not selected"}
    notes = json.loads((place / "run" / "seed-0" / "run.json").read_text())["warnings"]
    assert notes, "eight pairs are few, or one label is all that it says"
    for note in notes:
        assert f"RTE, RoBERTa-base: {note}" in found.notes
    before = stamps(place)
    assert len(before) >= 4
    _, second, again = make("calum-table-2", tmp_path / "out", **request)
    assert repr(second) == repr(table)
    assert stamps(place) == before
    assert again.commands == work.commands


def test_dry_runs_nothing(data, tmp_path):
    out = tmp_path / "out"
    request = {"data": data, "dry": True}
    _, table, work = make("calum-table-6", out, only=("GPT2-base-Para",), **request)
    place = out / "calum" / "GPT2-base" / "rte-Para"
    seed = place / "model" / "seed-4" / "rte"
    assert [work.commands[-6], work.commands[-1]] == [
        f"consilience finetune --model openai-community/gpt2 --task rte --train {data['rte:train']} "
        f"--validation {data['rte:validation']} --with-task qqp=hub:train --with-task mrpc={data['mrpc:train']} "
        f"--seeds 0,1,2,3,4 --out {place / 'model'} --device auto",
        f"consilience probe --model {seed} --suite rte --data {data['rte:validation']} "
        f"--out {place / 'run' / 'seed-4'} --device auto",
    ]
    assert table["RTE", "GPT2-base-Para", "C_R"]["verdict"] == "not run"
    added = {"added": {"mine": "my/model"}, "only": ("mine-Single", "mine-Para")}
    *_, work = make("calum-table-6", out, **added, **request)
    models = [command.split()[3] for command in work.commands if "finetune" in command]
    assert set(models) == {"my/model"} and len(models) == 6
    for name in sorted(RECIPES):
        if name.startswith("calum-"):
            *_, work = make(name, out, **request)
            for command in work.commands:  # a wrong option would show only when it is run
                parse(shlex.split(command)[1:])
    assert not out.exists()


def answer(sheets, wrong=()):
    """All five say what is gold, but for these (annotator, item, form)."""
    key = json.loads((sheets / "key.json").read_text(encoding="utf-8"))
    for name, asked in key["sheets"].items():
        said = [key["items"][item]["gold"] for item, _ in asked]
        for at, (item, form) in enumerate(asked):
            if (name, item, form) in wrong:
                said[at] = next(each for each in key["labels"] if each != said[at])
        path = sheets / f"{name}.csv"
        table = pl.read_csv(path, infer_schema=False).with_columns(answer=pl.Series(said))
        table.write_csv(path, line_terminator="\r\n")  # as spreadsheets write it


def test_people(here, tmp_path):
    """Four of five answer RTE. One says another label in REVERSE once of four: (3/4 + 3) / 4."""
    data = {f"{task}:validation": "no.tsv" for task in GROUPS}
    for task, count in (("rte", 4), ("mrpc", 3)):
        data[f"{task}:validation"] = write_pairs(tmp_path / f"{task}.jsonl", count, task)
    out = tmp_path / "out"
    found, table, work = make("calum-human", out, data=data)
    assert "drawn: RTE: 5 sheets of 4 pairs; MRPC: 5 sheets of 3 pairs" in found.notes
    numbers = [each["ours"] for key, each in table.items() if key[0] == ""]
    assert all(map(math.isnan, numbers)), "nobody has answered"
    for text in ("RTE: ", "no sheet with answers", "no.tsv: no such file"):
        assert text in work.absent["Human"]
    assert len(work.commands) == 4, "two tasks have pairs"
    sheets = out / "calum" / "sheets" / "rte"
    before, empty = ((sheets / name).read_bytes() for name in ("key.json", "annotator-5.csv"))
    answer(sheets, wrong={("annotator-1", "2", "reverse")})
    (sheets / "annotator-5.csv").write_bytes(empty)
    found, table, _ = make("calum-human", out, data=data)
    assert (sheets / "key.json").read_bytes() == before
    assert any("no answers; left out" in note for note in found.notes)
    assert table["", "Human", "Annotators per language"]["ours"] == 4
    ours = {column: table["RTE", "Human", column]["ours"] for column in ("Acc_val", "C_R", "C_S")}
    assert ours == pytest.approx({"Acc_val": 100, "C_R": 93.75, "C_S": 100})
    elsewhere = tmp_path / "elsewhere"
    sheets.rename(elsewhere)
    for given in (elsewhere, elsewhere / "key.json"):
        request = {"data": {"rte:answers": str(given)}, "only": ("Human",)}
        cell = make("calum-table-2", out, **request)[1]["RTE", "Human", "C_R"]
        assert (cell["paper"], cell["ours"]) == (94.0, pytest.approx(93.75))
    request = {"data": {"rte:answers": str(tmp_path)}, "only": ("Human",)}
    cell = make("calum-table-2", out, **request)[1]["RTE", "Human", "C_R"]
    assert "people have to answer" in cell["verdict"]
    *_, work = make("calum-human", out, data={**data, "rte:answers": str(tmp_path)})
    assert f"{tmp_path}: no key.json" in work.absent["Human"]
    assert not (tmp_path / "key.json").exists()
