"""Task types: the papers' own numbers, hand-worked tests, tables for people, bad input."""

import json
import math
import re
from importlib.resources import files

import polars as pl
import pytest

from checks import output, refused
from conftest import cases
from consilience.analysis import task_types
from consilience.report.layouts import calum_table, effects_tables
from consilience.report.table import fitted_text, text_of

TRIPLE = (
    ("accuracy", "whole", ""), ("consistency", "form", "reverse"), ("consistency", "form", "signal"),
)  # fmt: skip
TESTS = ("Student", "Welch", "paired")
SMALL = "rte, mrpc"


def long(text):
    """A table with a column for each number as one with a row for each; others stay."""
    head, *lines = [line.split(",") for line in (text or "?").splitlines()]
    if head[:2] != ["model", "task"] or "metric" in head or len(head) < 3:
        return text
    names = {"accuracy": "accuracy,whole,"}
    rows = [
        f"{model},{task},{names.get(name, f'consistency,form,{name}')},{value}"
        for model, task, *values in lines
        for name, value in zip(head[2:], values, strict=True)
    ]
    return "\n".join(["model,task,metric,kind,level,value", *rows, ""])


def wide(table):
    """A table of the paper (``papers.csv``, in percent), with a column for each number."""
    papers = files("consilience.reproduce").joinpath("papers.csv").read_bytes()
    numbers = pl.read_csv(papers, infer_schema=False)
    numbers = numbers.filter(pl.col("table") == table).select(
        model=pl.col("row").str.to_lowercase(),
        task=pl.col("group").str.to_lowercase(),
        name=pl.col("column").replace({"Acc_val": "accuracy", "C_R": "reverse", "C_S": "signal"}),
        value=(pl.col("value").cast(pl.Float64) / 100).round(3),
    )
    return numbers.pivot("name", index=["model", "task"]).write_csv()


def read(*paths, names=None):
    names = names or [each.name for each in paths]
    return task_types.read_runs(paths, names)


@pytest.fixture
def typed(tmp_path):
    """``typed(text)``: the numbers of a table that somebody typed."""

    def read_typed(text):
        (tmp_path / "typed.csv").write_text(long(text), encoding="utf-8")
        return read(tmp_path / "typed.csv")

    return read_typed


@pytest.fixture
def table_2(typed):
    return typed(wide("calum-table-2"))


def row_of(effects, level, first, test):
    return effects.filter(level=level, first=first, test=test).row(0, named=True)


def test_task_effects_by_hand(typed):
    """Two models: STS .9 | .8, NLI means .5 and .6; so differences .4 and .2, t = .3 / .1.

    Student: STS .9 .8 (mean .85), NLI .4 .6 .5 .7 (mean .55); squares .005 + .05 = .055 over 4
    degrees; t = .3 / sqrt(.01375 * 3/4). The third model has no STS task: not among the pairs.
    """
    text = "model,task,reverse\na,mnli,.4\na,rte,.6\na,qqp,.9\nb,mnli,.5\nb,rte,.7\nb,qqp,.8\n"
    effects = task_types.task_effects(typed(text))
    assert effects.schema == task_types.EFFECTS_SCHEMA
    student = row_of(effects, "reverse", "STS", "Student")
    assert [student["first_value"], student["second_value"]] == pytest.approx([0.85, 0.55])
    assert [student["first_n"], student["second_n"], student["freedom"]] == [2, 4, 4]
    assert student["t"] == pytest.approx(0.3 / math.sqrt(0.01375 * 0.75))
    paired = row_of(effects, "reverse", "STS", "paired")
    assert [paired["first_n"], paired["second_n"], paired["freedom"]] == [2, 2, 1]
    assert (paired["difference"], paired["t"]) == (pytest.approx(0.3), pytest.approx(3))
    assert paired["p"] == pytest.approx(1 - 2 / math.pi * math.atan(3)), "t(1) is Cauchy's"
    with_third = task_types.task_effects(typed(text + "c,rte,.1\n"))
    assert row_of(with_third, "reverse", "STS", "paired") | {"p_holm": 0} == paired | {"p_holm": 0}
    assert row_of(with_third, "reverse", "STS", "Welch")["second_n"] == 5
    few = row_of(effects, "reverse", "rte", "paired")
    assert few["second"] == "others"
    assert few["difference"] == pytest.approx((0.6 - 0.65 + 0.7 - 0.65) / 2)


T5, HUMAN = ["t5-base", "t5-large"], ["human"]


def test_the_papers_differences(table_2):
    effects = task_types.task_effects(table_2.filter(~pl.col("model").is_in(T5 + HUMAN)))
    assert effects.height == 3 * 2 * 3
    adjusted = [row_of(effects, "signal", SMALL, test)["p_holm"] for test in TESTS]
    assert adjusted == pytest.approx([0.00250, 0.0186, 0.0288], rel=0.01)


def test_gains_by_hand(typed):
    """.5 to .6 and .8 to .9: points 10, relative (.2 + .125) / 2; from 0 there is no relative gain."""
    rows = typed("model,task,accuracy,reverse\na,rte,.5,0\nb,rte,.6,.5\na,qqp,.8,.5\nb,qqp,.9,1\n")
    accuracy, reverse = task_types.gains(rows, ["a"], ["b"]).to_dicts()
    assert [accuracy["difference"], accuracy["relative"]] == pytest.approx([0.1, 0.1625])
    assert reverse["difference"] == 0.5
    assert math.isnan(reverse["relative"])
    assert math.isnan(reverse["p"]), "both rise by as much: nothing varies"


def test_nothing_that_varies_gives_no_test(typed):
    """A constant answer is consistent everywhere: a difference of 0, and no p."""
    lines = [f"{model},{task},1,1" for model in "ab" for task in ("rte", "mnli", "qqp", "mrpc")]
    rows = typed("model,task,accuracy,reverse\n" + "\n".join(lines))
    effects = task_types.task_effects(rows)
    assert set(effects["difference"]) == {0.0}
    assert (effects["p"].is_nan() & effects["p_holm"].is_nan()).all()
    one = task_types.task_effects(typed("model,task,reverse\na,rte,.5\na,qqp,1\n"))
    assert one["p"].is_nan().all(), "one value a side"
    apart = task_types.task_effects(typed("model,task,reverse\na,rte,.5\nb,qqp,1\n"))
    assert row_of(apart, "reverse", "STS", "paired")["first_n"] == 0


METRICS = "metric,over,group,kind,level,value,std,low,high,n,n_excluded\n"


def run_folder(folder, task, *values, std="NaN"):
    """The folder of a run of perturb, as far as it is read here."""
    folder.mkdir(parents=True)
    text = METRICS
    names = (*TRIPLE, ("corrected_consistency", "form", "reverse"))
    for (metric, kind, level), value in zip(names, values, strict=True):
        text += f"{metric},group,{task},{kind},{level},{value},{std},0.1,0.9,100,0\n"
    text += f"consistency,mean,,form,reverse,0.5,{std},0.1,0.9,1,0\n"
    (folder / "metrics.csv").write_text(text)
    return folder


def test_runs_of_one_model_are_averaged(tmp_path):
    """Accuracy .6, .7 and .8 of three seeds: .7 ± .1; one of them has no C_S."""
    seeds = [
        run_folder(tmp_path / f"seed-{at}", "rte", accuracy, 0.5, "NaN" if at else 0.9, 0)
        for at, accuracy in enumerate((0.6, 0.7, 0.8))
    ]
    other = run_folder(tmp_path / "other", "rte", 0.9, 0.9, 0.9, 0)
    rows = read(*seeds, other, names=["bert", "bert", "bert", "gpt2"])
    accuracy, reverse, signal = (rows.filter(model="bert").row(at, named=True) for at in range(3))
    assert (accuracy["value"], accuracy["std"]) == pytest.approx((0.7, 0.1))
    assert (reverse["value"], reverse["std"]) == (0.5, 0)
    assert signal["value"] == 0.9 and math.isnan(signal["std"])
    assert rows.height == 8


def test_runs_are_read_from_their_folders_or_their_metrics(tmp_path):
    first = run_folder(tmp_path / "one", "rte", 0.667, 0.664, 0.922, -0.1, std=0.01)
    second = run_folder(tmp_path / "two", "my-task", 0.9, 0.8, "NaN", 0.7)
    rows = read(first, second / "metrics.csv", names=["roberta", "roberta"])
    assert rows.schema == task_types.RUNS_SCHEMA
    assert rows.height == 8, "rows over tasks are left out"
    assert set(rows["model"]) == {"roberta"}
    row = ("roberta", "rte", "accuracy", "whole", "", 0.667, 0.01)
    assert rows.row(0) == pytest.approx(row, nan_ok=True)
    effects = task_types.task_effects(rows)
    assert set(effects["first"]) == {"rte"}, "a task of no known kind is among the others only"
    assert set(effects["level"]) == {"", "reverse"}, "a number that is missing is not tested"


def test_what_was_written_freely_is_no_other_task():
    numbers = {"rte": 0.9, "rte-generated": 0.1, "qqp": 0.9}
    rows = [
        (model, task, "consistency", "form", "signal", value + more)
        for model, more in (("a", 0), ("b", 0.02))
        for task, value in numbers.items()
    ]
    effects = task_types.task_effects(pl.DataFrame(rows, (*task_types.KEYS, "value"), orient="row"))
    assert effects.filter(first="rte")["difference"].to_list() == pytest.approx([0] * 3)


def test_agreement_of_people_may_be_below_chance(tmp_path):
    """And an annotator is no task."""
    folder = run_folder(tmp_path / "one", "rte", 0.667, 0.664, 0.922, -0.1)
    rest = ",0.1,NaN,NaN,NaN,30,0\n"
    with (folder / "metrics.csv").open("a") as file:
        file.write(f"fleiss_kappa,group,rte,form,reverse,-0.0067{rest[4:]}")
        file.write(f"accuracy,group,annotator-1,whole,{rest}")
    rows = read(folder, names=["people"])
    assert rows.filter(metric="fleiss_kappa")["value"].to_list() == [-0.0067]
    assert set(rows["task"]) == {"rte"}


@pytest.mark.parametrize(("text", "message"), cases("typed_tables_bad"))
def test_bad_tables(text, message, typed):
    refused(re.escape(message), typed, text)


def test_bad_names(table_2, tmp_path):
    for unknown, call, names in (
        ("no task 'rtee'. Did you mean 'rte'", task_types.task_effects, [["rtee"]]),
        ("no model 'gpt3-base'. Did you mean 'gpt2-base'", task_types.gains, [["gpt2-large"], ["gpt3-base"]]),
    ):  # fmt: skip
        refused(unknown, call, table_2, *names)
    (tmp_path / "unfinished").mkdir()
    refused(r"unfinished/metrics\.csv: no such file", read, tmp_path / "unfinished")


def cells(table):
    """Task and model -> the text of each column."""
    rows = table.grid()
    return {
        (block, row[0].value): {
            column.heading: text_of(cell, column)
            for cell, column in zip(row[1:], table.columns[1:], strict=True)
        }
        for block, row in zip(table.blocks, rows, strict=True)
    }


def test_table_2_in_its_shape(table_2):
    tasks = ["mnli", "qnli", "rte", "qqp", "mrpc"]
    table = calum_table(table_2.sort(pl.col("task").cast(pl.Enum(tasks))), "Table 2")
    assert [column.heading for column in table.columns] == ["", "Acc", "C_R", "C_S"]
    assert [*dict.fromkeys(table.blocks)] == tasks, "in the order of the rows"
    assert cells(table)["rte", "roberta-base"]["C_R"] == "66.4"


def printed(*tables):
    return "\n".join(fitted_text(table, 100).plain for table in tables)


def test_tables_fit_100_columns(table_2, tmp_path):
    other = table_2.with_columns(pl.col("level").replace("signal", "reverse_signal"))
    named = "a-model-with-quite-a-long-name"
    folders = [
        run_folder(tmp_path / f"{named}-{task}" / "r", task, 1, 1, 0.5, 0, std=0.123)
        for task in ("klue-nli", "mnli", "my-task", "rte")
    ]
    with_seeds = calum_table(read(*folders, names=[named] * 4), "With seeds")
    assert with_seeds.blocks == ["klue-nli", "mnli", "my-task", "rte"]
    tables = [calum_table(table_2, ""), calum_table(other, ""), with_seeds]
    for rows in (table_2, other):
        tables += effects_tables(task_types.task_effects(rows))
    text = printed(*tables)
    assert "…" not in text and "reverse_signal" in text and "100.0±12.3" in text


def test_a_missing_number_is_a_dash(typed):
    rows = typed("model,task,accuracy,reverse\na,rte,.5,\nb,rte,.6,\nb,qqp,.7,1\n")
    shown = cells(calum_table(rows, ""))
    assert shown["rte", "a"] == {"Acc": "50.0", "C_R": "-"}
    assert shown["qqp", "b"] == {"Acc": "70.0", "C_R": "100.0"}
    assert printed(*effects_tables(task_types.task_effects(rows)))


def test_the_command(consilience, tmp_path):
    path = tmp_path / "typed.csv"
    lines = long(wide("calum-table-2")).splitlines()
    others = [line for line in lines if not re.match("t5-base|t5-large|human", line)]
    path.write_text("\n".join(others), encoding="utf-8")
    command = ("analyze", "tasks", path)
    status, out, err = consilience(*command)
    assert (status, err) == (0, "")
    assert "+35.0" in out
    written = pl.read_csv(output(consilience, *command, "--format", "csv").encode())
    assert [*written.columns] == [*task_types.EFFECTS_SCHEMA]
    document = json.loads(output(consilience, *command, "--json", "--small", "rte"))
    assert (len(document["metrics"]), document["metrics"][0]["std"]) == (105, None)
    assert {row["first"] for row in document["effects"]} == {"STS", "rte"}
    assert document["warnings"] == []


def test_runs_of_one_model_are_named_alike(consilience, tmp_path):
    numbers = {"a/rte": (0.6, 0.5, 0.9), "a/qqp": (0.9, 0.95, 0.99), "b/rte": (0.7, 0.6, 0.91),
               "b/qqp": (0.8, 0.97, 0.98)}  # fmt: skip
    paths = [run_folder(tmp_path / name, name[2:], *of, 0) for name, of in numbers.items()]
    named = [f"{path.parent.name}={path}" for path in paths]
    out = output(consilience, "analyze", "tasks", *named, "--json")
    paired = [row for row in json.loads(out)["effects"] if row["test"] == "paired"]
    assert {row["first_n"] for row in paired} == {2}
    status, out, _ = consilience("analyze", "tasks", paths[0], paths[1], "--json")
    document = json.loads(out)
    assert {row["model"] for row in document["metrics"]} == {"rte", "qqp"}
    out = output(consilience, "analyze", "tasks", f"a={paths[0]}", f"a={paths[1]}")
    assert "Student" not in out, "one model has no test, so no table of them"
    assert "Student" in output(consilience, "analyze", "tasks", *named)
    status, _, err = consilience("analyze", "tasks", paths[0])
    assert (status, err) == (0, "")
    assert consilience("analyze", "tasks", f"x={tmp_path / 'none'}")[0] == 2
