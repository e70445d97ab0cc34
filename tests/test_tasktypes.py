"""Task types: the papers' own numbers, hand-worked tests, tables for people, bad input."""

import json
import math

import polars as pl
import pytest
from rich.console import Console

from consilience import ConsilienceError
from consilience.analysis.task_types import (
    EFFECTS_SCHEMA,
    RUNS_SCHEMA,
    gains,
    read_runs,
    student_t,
    task_effects,
    without_models,
)
from consilience.metrics.statistics import paired_t, welch_t
from consilience.report.perturbed import calum_tables, effects_tables
from consilience.suites.perturbations import PERTURBATIONS
from consilience.suites.tasks import TASKS

KINDS = {name: task.kind for name, task in TASKS.items()}

TABLE_2 = """
              mnli            qnli            rte             qqp             mrpc
roberta-base  87.2 60.3 98.6  92.4 75.5 98.5  66.7 66.4 92.2  90.8 97.3 99.1  87.0 94.9 97.7
roberta-large 90.0 64.3 98.9  94.1 81.8 99.0  74.7 59.6 90.0  91.2 96.7 99.3  84.4 93.9 96.4
electra-small 81.3 52.9 94.5  87.2 64.6 94.8  55.4 86.6 92.0  88.5 97.1 97.5  68.4 100.0 100.0
electra-large 90.7 63.3 98.6  94.7 55.4 99.0  82.2 59.2 94.8  91.4 97.1 99.1  87.7 92.6 96.4
gpt2-base     80.4 44.0 92.2  87.4 49.0 94.1  61.0 62.5 83.4  87.9 93.1 95.7  70.1 92.2 86.8
gpt2-large    85.9 56.8 96.9  91.4 52.7 97.6  70.4 40.1 93.7  90.3 94.1 98.8  80.9 89.7 90.0
bart-base     85.5 54.2 98.5  91.4 50.2 98.5  58.1 68.7 91.5  89.9 96.8 98.9  70.8 99.8 99.2
t5-base       85.9 60.3 6.4   93.2 87.4 0.1   66.4 82.1 0.0   90.6 97.4 63.6  85.8 96.4 0.0
t5-large      89.8 85.7 83.2  93.9 94.5 53.7  79.4 87.1 0.0   91.3 97.7 70.5  87.7 97.5 0.0
human         77.3 96.0 96.0  85.5 98.3 98.3  79.3 94.0 96.0  80.5 98.3 98.3  59.3 91.9 100.0
"""
"""CALUM, Table 2: accuracy, C_R and C_S of each task, in percent."""

TABLE_5 = """
              kornli          klue-nli        klue-sts
kobert        85.6 55.2 96.4  75.7 50.1 94.4  79.2 92.3 94.2
koelectra     86.3 53.5 98.0  78.6 56.3 96.3  72.8 93.5 97.0
kogpt2        84.0 49.1 89.1  64.5 50.9 88.1  77.3 84.9 79.1
kobart        85.2 54.6 97.4  71.5 53.9 93.1  76.9 86.1 97.3
human         87.3 94.0 96.0  86.0 98.0 98.0  88.0 100.0 100.0
"""

TABLE_6 = """
                      mnli            qnli            rte
roberta-base-single   87.2 60.3 98.6  92.4 75.5 98.5  66.7 66.4 92.2
roberta-base-para     85.7 65.4 98.0  90.1 76.1 97.9  67.9 86.5 96.1
roberta-base-all      85.6 66.7 97.9  90.4 72.9 98.2  72.9 89.0 96.9
electra-large-single  90.7 63.3 98.6  94.7 55.4 99.0  82.2 59.2 94.8
electra-large-para    90.6 65.2 98.1  94.3 58.7 98.6  81.6 71.0 93.1
electra-large-all     90.6 66.0 98.1  94.6 55.8 98.5  86.3 77.8 97.7
gpt2-base-single      80.4 44.0 92.2  87.4 48.9 94.1  61.0 62.5 83.4
gpt2-base-para        77.3 54.1 92.8  85.6 58.4 93.6  63.5 65.9 90.1
gpt2-base-all         77.6 49.5 92.0  86.3 51.3 95.9  60.2 70.3 88.1
"""

TRIPLE = (("accuracy", "all"), ("consistency", "reverse"), ("consistency", "signal"))


def wide(table):
    """A table of the paper as the CSV that a person would type, in fractions."""
    heading, *lines = table.strip("\n").splitlines()
    text = "model,task,accuracy,reverse,signal\n"
    for line in lines:
        model, *numbers = line.split()
        values = [f"{float(number) / 100:.3f}" for number in numbers]
        for at, task in enumerate(heading.split()):
            text += ",".join([model, task, *values[3 * at : 3 * at + 3]]) + "\n"
    return text


def read(path, *more, names=None):
    paths = [path, *more]
    names = names or [each.name for each in paths]
    return read_runs(paths, names, tasks=TASKS, perturbations=PERTURBATIONS)


def typed(tmp_path, text, name="typed.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


@pytest.fixture
def table_2(tmp_path):
    return read(typed(tmp_path, wide(TABLE_2)))


def row_of(effects, subset, first, test):
    (row,) = effects.filter(
        (pl.col("subset") == subset) & (pl.col("first") == first) & (pl.col("test") == test)
    ).to_dicts()
    return row


def p_of(effects, subset, first):
    return {
        test: row_of(effects, subset, first, test)["p"] for test in ("Student", "Welch", "paired")
    }


SMALL = "rte, mrpc"


def test_student_by_hand():
    """Means 2 and 4, sums of squares 2 and 8: pooled variance 10/4, t = -2 / sqrt(2.5 * 2/3)."""
    found = student_t([1, 2, 3], [2, 4, 6])
    assert found.difference == -2
    assert found.freedom == 4
    assert found.t == pytest.approx(-2 / math.sqrt(5 / 3))
    # t(4) has the distribution function 1/2 + 3/8 u (1 - u**2 / 12), u = t / sqrt(1 + t**2 / 4).
    u = found.t / math.sqrt(1 + found.t**2 / 4)
    assert found.p == pytest.approx(2 * (1 / 2 + 3 / 8 * u * (1 - u**2 / 12)))
    assert [found.low, found.high] == pytest.approx(
        [-2 - 2.776445 * math.sqrt(5 / 3), -2 + 2.776445 * math.sqrt(5 / 3)]
    )


def test_welch_by_hand():
    """The same groups: variances 1 and 4, error sqrt(5/3), df (5/3)^2 / ((1/9 + 16/9) / 2)."""
    found = welch_t([1, 2, 3], [2, 4, 6])
    assert found.t == pytest.approx(-2 / math.sqrt(5 / 3))
    assert found.freedom == pytest.approx(50 / 17)


def test_paired_by_hand():
    """Differences -1, -2, -3: mean -2, deviation 1, t = -2 sqrt(3); t(2): p = 1 - t/sqrt(t^2+2)."""
    found = paired_t([1, 2, 3], [2, 4, 6])
    assert (found.difference, found.freedom) == (-2, 2)
    assert found.t == pytest.approx(-2 * math.sqrt(3))
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_task_effects_by_hand(tmp_path):
    """Two models: STS .9 | .8, NLI means .5 and .6; so differences .4 and .2, t = .3 / .1.

    Student: STS .9 .8 (mean .85), NLI .4 .6 .5 .7 (mean .55); squares .005 + .05 = .055 over 4
    degrees; t = .3 / sqrt(.01375 * 3/4). The third model has no STS task: not among the pairs.
    """
    rows = read(
        typed(
            tmp_path,
            "model,task,reverse\na,mnli,.4\na,rte,.6\na,qqp,.9\nb,mnli,.5\nb,rte,.7\nb,qqp,.8\n",
        )
    )
    effects = task_effects(rows, KINDS)
    assert effects.schema == EFFECTS_SCHEMA
    student = row_of(effects, "reverse", "STS", "Student")
    assert [student["first_value"], student["second_value"]] == pytest.approx([0.85, 0.55])
    assert [student["first_n"], student["second_n"], student["freedom"]] == [2, 4, 4]
    assert student["t"] == pytest.approx(0.3 / math.sqrt(0.01375 * 0.75))
    paired = row_of(effects, "reverse", "STS", "paired")
    assert [paired["first_n"], paired["second_n"], paired["freedom"]] == [2, 2, 1]
    assert paired["difference"] == pytest.approx(0.3)
    assert paired["t"] == pytest.approx(3)
    assert paired["p"] == pytest.approx(1 - 2 / math.pi * math.atan(3)), "t(1) is Cauchy's"
    more = read(typed(tmp_path, "model,task,reverse\nc,rte,.1\n", "more.csv"))
    with_third = task_effects(pl.concat([rows, more]), KINDS)
    assert row_of(with_third, "reverse", "STS", "paired") | {"p_holm": 0} == paired | {"p_holm": 0}
    assert row_of(with_third, "reverse", "STS", "Welch")["second_n"] == 5
    few = row_of(effects, "reverse", "rte", "paired")
    assert few["second"] == "others"
    assert few["difference"] == pytest.approx((0.6 - 0.65 + 0.7 - 0.65) / 2)


def test_holm_is_over_the_rows_of_one_test(table_2):
    effects = task_effects(without_models(table_2, ["t5-base", "t5-large", "human"]), KINDS)
    assert effects.height == 3 * 2 * 3
    for _, rows in effects.group_by("test"):
        smallest, *_, largest = rows.sort("p").to_dicts()
        assert smallest["p_holm"] == pytest.approx(6 * smallest["p"])
        assert largest["p_holm"] >= largest["p"]


def test_the_papers_claims_come_out_of_its_table_2(table_2):
    """Section 5.1.1, without T5 and humans: all three tests agree with it at a level of .01."""
    effects = task_effects(without_models(table_2, ["t5-base", "t5-large", "human"]), KINDS)
    reverse = row_of(effects, "reverse", "STS", "paired")
    assert [reverse["first_value"], reverse["second_value"]] == pytest.approx(
        [0.9538, 0.6039], abs=1e-4
    )
    assert [reverse["low"], reverse["high"]] == pytest.approx([0.2911, 0.4088], abs=1e-4)
    assert p_of(effects, "reverse", "STS") == pytest.approx(
        {"Student": 1.07e-12, "Welch": 1.55e-12, "paired": 6.62e-6}, rel=0.01
    )
    signal = row_of(effects, "signal", SMALL, "paired")
    assert signal["difference"] == pytest.approx(-0.0438, abs=1e-4)
    assert p_of(effects, "signal", SMALL) == pytest.approx(
        {"Student": 0.000626, "Welch": 0.00464, "paired": 0.00720}, rel=0.01
    )
    assert p_of(effects, "signal", "STS") == pytest.approx(
        {"Student": 0.227, "Welch": 0.224, "paired": 0.0770}, rel=0.01
    ), "'marginal'"
    assert p_of(effects, "reverse", SMALL) == pytest.approx(
        {"Student": 0.259, "Welch": 0.257, "paired": 0.0948}, rel=0.01
    )
    adjusted = {
        test: row_of(effects, "signal", SMALL, test)["p_holm"]
        for test in ("Student", "Welch", "paired")
    }
    assert adjusted == pytest.approx(
        {"Student": 0.00250, "Welch": 0.0186, "paired": 0.0288}, rel=0.01
    )


def test_with_t5_only_the_first_claim_stands(table_2):
    effects = task_effects(without_models(table_2, ["human"]), KINDS)
    assert p_of(effects, "reverse", "STS") == pytest.approx(
        {"Student": 6.74e-11, "Welch": 2.94e-11, "paired": 3.42e-5}, rel=0.01
    )
    assert p_of(effects, "signal", SMALL) == pytest.approx(
        {"Student": 0.175, "Welch": 0.214, "paired": 0.0973}, rel=0.01
    )


def test_without_the_constant_classifier_both_stand(table_2):
    """Electra-small says 'equivalent' of every pair of MRPC, so it is 100 % consistent there."""
    rows = without_models(table_2, ["t5-base", "t5-large", "human"])
    constant = (pl.col("model") == "electra-small") & (pl.col("task") == "mrpc")
    effects = task_effects(rows.filter(~constant), KINDS)
    assert p_of(effects, "reverse", "STS") == pytest.approx(
        {"Student": 4.86e-12, "Welch": 2.14e-12, "paired": 8.15e-6}, rel=0.01
    )
    assert p_of(effects, "signal", SMALL) == pytest.approx(
        {"Student": 1.17e-4, "Welch": 1.95e-3, "paired": 7.56e-4}, rel=0.01
    )


def test_other_readings_of_the_papers_test(table_2):
    """Over tasks, the means of all models are two against three: only C_R stands.

    Within a model, as "for each model" may mean, its five means are too few for most.
    """
    rows = without_models(table_2, ["t5-base", "t5-large", "human"])
    means = rows.group_by("task", "metric", "subset", maintain_order=True).agg(
        pl.mean("value"), model=pl.lit("mean")
    )
    effects = task_effects(means, KINDS)
    assert p_of(effects, "reverse", "STS") == pytest.approx(
        {"Student": 0.000921, "Welch": 0.00159, "paired": math.nan}, rel=0.01, nan_ok=True
    )
    assert p_of(effects, "signal", SMALL) == pytest.approx(
        {"Student": 0.0752, "Welch": 0.270, "paired": math.nan}, rel=0.01, nan_ok=True
    )
    each = [task_effects(own, KINDS) for _, own in rows.group_by("model")]
    found = [p_of(effects, "reverse", "STS")["Student"] < 0.01 for effects in each]
    assert sum(found) == 2
    assert not any(p_of(effects, "signal", SMALL)["Student"] < 0.01 for effects in each)


def test_korean_tasks_show_the_same(tmp_path):
    rows = without_models(read(typed(tmp_path, wide(TABLE_5))), ["human"])
    effects = task_effects(rows, KINDS)
    assert set(effects["first"]) == {"STS"}, "none of them is small unless asked"
    assert p_of(effects, "reverse", "STS") == pytest.approx(
        {"Student": 4.85e-9, "Welch": 8.42e-5, "paired": 2.61e-4}, rel=0.01
    )
    assert p_of(effects, "signal", "STS")["paired"] == pytest.approx(0.448, rel=0.01)
    asked = task_effects(rows, KINDS, ["klue-sts"])
    assert set(asked["first"]) == {"STS", "klue-sts"}


@pytest.mark.parametrize(
    ("after", "points", "relative", "p"),
    [("para", 7.3, 12.9, 0.0076), ("all", 7.1, 11.9, 0.0342)],
)
def test_the_papers_13_percent_are_the_relative_gain_of_table_6(
    tmp_path, after, points, relative, p
):
    rows = read(typed(tmp_path, wide(TABLE_6)))
    backbones = ("roberta-base", "electra-large", "gpt2-base")
    found = gains(
        rows, [f"{each}-single" for each in backbones], [f"{each}-{after}" for each in backbones]
    )
    assert found.select("metric", "subset").rows() == list(TRIPLE)
    row = found.filter(pl.col("subset") == "reverse").to_dicts()[0]
    assert row["difference"] * 100 == pytest.approx(points, abs=0.05)
    assert row["relative"] * 100 == pytest.approx(relative, abs=0.05)
    assert row["p"] == pytest.approx(p, abs=5e-5)
    assert row["n"] == 9
    signal = found.filter(pl.col("subset") == "signal")["difference"][0]
    assert signal * 100 == pytest.approx({"para": 0.8, "all": 1.3}[after], abs=0.05)


def test_gains_by_hand(tmp_path):
    """.5 to .6 and .8 to .9: points 10, relative (.2 + .125) / 2; from 0 there is no relative gain."""
    rows = read(
        typed(
            tmp_path,
            "model,task,accuracy,reverse\na,rte,.5,0\nb,rte,.6,.5\na,qqp,.8,.5\nb,qqp,.9,1\n",
        )
    )
    accuracy, reverse = gains(rows, ["a"], ["b"]).to_dicts()
    assert accuracy["difference"] == pytest.approx(0.1)
    assert accuracy["relative"] == pytest.approx(0.1625)
    assert reverse["difference"] == 0.5
    assert math.isnan(reverse["relative"])
    assert math.isnan(reverse["p"]), "both rise by as much: nothing varies"


def test_nothing_that_varies_gives_no_test(tmp_path):
    """A constant answer is consistent everywhere: a difference of 0, and no p."""
    lines = [f"{model},{task},1,1" for model in "ab" for task in ("rte", "mnli", "qqp", "mrpc")]
    effects = task_effects(
        read(typed(tmp_path, "model,task,accuracy,reverse\n" + "\n".join(lines))), KINDS
    )
    assert set(effects["difference"]) == {0.0}
    assert effects["p"].is_nan().all()
    assert effects["p_holm"].is_nan().all()
    one = task_effects(read(typed(tmp_path, "model,task,reverse\na,rte,.5\na,qqp,1\n")), KINDS)
    assert one["p"].is_nan().all(), "one value a side"
    apart = task_effects(read(typed(tmp_path, "model,task,reverse\na,rte,.5\nb,qqp,1\n")), KINDS)
    assert row_of(apart, "reverse", "STS", "paired")["first_n"] == 0


METRICS = "metric,suite,group,subset,value,std,low,high,n,n_excluded,seeds,seed_low,seed_high\n"


def run_folder(folder, task, *values, std="NaN", seeds=1):
    """The folder of a run of perturb, as far as it is read here."""
    folder.mkdir(parents=True)
    text = METRICS
    for (metric, subset), value in zip(
        (*TRIPLE, ("corrected_consistency", "reverse")), values, strict=True
    ):
        text += f"{metric},pairs,{task},{subset},{value},{std},0.1,0.9,100,0,{seeds},NaN,NaN\n"
    text += f"consistency,pairs,MACRO,reverse,0.5,{std},0.1,0.9,1,0,{seeds},NaN,NaN\n"
    (folder / "metrics.csv").write_text(text)
    return folder


def test_runs_are_read_from_their_folders_or_their_metrics(tmp_path):
    first = run_folder(tmp_path / "one", "rte", 0.667, 0.664, 0.922, -0.1, std=0.01, seeds=5)
    second = run_folder(tmp_path / "two", "my-task", 0.9, 0.8, "NaN", 0.7)
    rows = read(first, second / "metrics.csv", names=["roberta", "roberta"])
    assert rows.schema == RUNS_SCHEMA
    assert rows.height == 8, "rows over tasks are left out"
    assert set(rows["model"]) == {"roberta"}
    assert rows.row(0) == pytest.approx(
        ("roberta", "rte", "accuracy", "all", 0.667, 0.01, 0.1, 0.9, 5, math.nan, math.nan),
        nan_ok=True,
    )
    effects = task_effects(rows, KINDS)
    assert set(effects["first"]) == {"rte"}, "a task of no known kind is among the others only"
    assert set(effects["subset"]) == {"all", "reverse"}, "a number that is missing is not tested"


def test_long_and_wide_tables_are_the_same(tmp_path):
    text = wide(TABLE_5)
    long = "model,task,metric,subset,value,seeds\n"
    for line in text.splitlines()[1:]:
        model, task, *values = line.split(",")
        for (metric, subset), value in zip(TRIPLE, values, strict=True):
            long += f"{model}, {task},{metric},{subset},{value},5\n"
    left, right = read(typed(tmp_path, text)), read(typed(tmp_path, long, "long.csv"))
    assert left.drop("seeds").equals(right.drop("seeds"), null_equal=True)
    assert set(right["seeds"]) == {5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,task,accuracy,reverse\na,rte,66.7,0.6\n", "typed.csv:2: a value above 1: 66.7; expected a fraction from 0 to 1. Give fractions"),
        ("model,task,accuracy\na,rte,-0.1\n", "typed.csv:2: a value below 0: -0.1"),
        ("model,task,accuracy\na,rte,0.5\nb,rte,high\n", "typed.csv:3: 'high'; expected a number"),
        ("model,task,accuracy\na,RTE,0.5\n", "typed.csv:2: no task 'RTE'. Did you mean 'rte'?"),
        ("model,task,accuracy\n,rte,0.5\n", "typed.csv:2: no model; expected a name"),
        ("model,accuracy\na,0.5\n", "typed.csv: no column 'task'"),
        ("model,task\na,rte\n", "typed.csv: no column of numbers"),
        ("model,task,revers\na,rte,0.5\n", "typed.csv: a column 'revers'; expected accuracy or a perturbation. Did you mean 'reverse'?"),
        ("model,task,metric,value\na,rte,accuracy,0.5\n", "typed.csv: no column 'subset'; expected the columns model, task, metric, subset, value"),
        ("model,task,metric,subset,value\na,rte,consistency,Signal,0.5\n", "typed.csv:2: no subset 'Signal'. Did you mean 'signal'?"),
        ("model,task,accuracy\na,rte,0.5\na,rte,0.6\n", "typed.csv: duplicate accuracy (all) of a on rte; expected each number once"),
        ("model,task,accuracy\n", "typed.csv: no rows"),
        ("", "typed.csv: cannot be read as a table"),
        (METRICS + "consistency,pararel,P19,diff_syntax,0.5,NaN,0,1,9,0,1,NaN,NaN\n", "typed.csv: no number of perturbed pairs"),
        ("metric,group,value\nconsistency,rte,0.5\n", "typed.csv: no column 'subset'"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path, text, message):
    with pytest.raises(ConsilienceError) as error:
        read(typed(tmp_path, text))
    assert message in str(error.value)


def test_bad_names(table_2, tmp_path):
    with pytest.raises(ConsilienceError, match=r"no task 'rtee'\. Did you mean 'rte'\?"):
        task_effects(table_2, KINDS, ["rtee"])
    with pytest.raises(ConsilienceError, match=r"no model 'Human'\. Did you mean 'human'\?"):
        without_models(table_2, ["Human"])
    with pytest.raises(
        ConsilienceError, match=r"no model 'gpt3-base'\. Did you mean 'gpt2-base'\?"
    ):
        gains(table_2, ["gpt2-large"], ["gpt3-base"])
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(ConsilienceError, match=r"unfinished/metrics\.csv: no such file"):
        read(tmp_path / "unfinished")


def cells(table):
    """Heading -> (text, bold) of each row."""
    return {
        column.header.replace("\n", " "): [
            (str(cell), getattr(cell, "style", "") == "bold") for cell in column.cells
        ]
        for column in table.columns
    }


def test_table_2_in_its_shape(table_2):
    """The best values in bold are those of the paper, ties too."""
    mixed = table_2.sort("task")
    first, second = calum_tables(mixed, "Table 2")
    assert [*cells(first)] == [
        "model",
        *(f"{task} {each}" for task in ("mnli", "qnli", "rte") for each in ("Acc", "C_R", "C_S")),
    ]
    assert [*cells(second)][1::3] == ["qqp Acc", "mrpc Acc"]
    shown = cells(first) | cells(second)
    models = [name for name, _ in shown.pop("model")]
    bold = {
        column: {model for model, (_, best) in zip(models, values, strict=True) if best}
        for column, values in shown.items()
    }
    assert bold == {
        "mnli Acc": {"electra-large"}, "mnli C_R": {"human"}, "mnli C_S": {"roberta-large"},
        "qnli Acc": {"electra-large"}, "qnli C_R": {"human"},
        "qnli C_S": {"roberta-large", "electra-large"},
        "rte Acc": {"electra-large"}, "rte C_R": {"human"}, "rte C_S": {"human"},
        "qqp Acc": {"electra-large"}, "qqp C_R": {"human"}, "qqp C_S": {"roberta-large"},
        "mrpc Acc": {"electra-large", "t5-large"}, "mrpc C_R": {"electra-small"},
        "mrpc C_S": {"electra-small", "human"},
    }  # fmt: skip
    assert dict(zip(models, shown["rte C_R"], strict=True))["roberta-base"] == ("66.4", False)


def printed(*tables):
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    return capture.get()


def test_tables_fit_100_columns(table_2, tmp_path):
    text = printed(*calum_tables(table_2, "Table 2"), *effects_tables(task_effects(table_2, KINDS)))
    assert "…" not in text
    other = table_2.with_columns(pl.col("subset").replace("signal", "reverse_signal"))
    metrics = {("consistency", each): each for each in ("reverse", "reverse_signal")}
    text = printed(
        *calum_tables(other, "Other perturbations", metrics),
        *effects_tables(task_effects(other, KINDS)),
    )
    assert "…" not in text
    assert "reverse_signal" in text
    wide_rows = pl.concat(
        read(
            run_folder(
                tmp_path / f"a-model-with-quite-a-long-name-{at}" / "r",
                task,
                1,
                1,
                0.5,
                0,
                std=0.123,
                seeds=5,
            ),
            names=["a-model-with-quite-a-long-name"],
        )
        for at, task in enumerate(("klue-nli", "mnli", "my-task", "rte"))
    )
    tables = list(calum_tables(wide_rows, "With seeds"))
    headings = [heading for table in tables for heading in [*cells(table)][1:]]
    assert headings[::3] == ["mnli Acc", "rte Acc", "klue-nli Acc", "my-task Acc"]
    text = printed(*tables)
    assert "100.0±12.3" in text
    assert "…" not in text


def test_a_missing_number_is_a_dash(tmp_path):
    rows = read(typed(tmp_path, "model,task,accuracy,reverse\na,rte,.5,\nb,rte,.6,\nb,qqp,.7,1\n"))
    (table,) = calum_tables(rows, "")
    assert cells(table)["rte C_R"] == [("-", False), ("-", False)]
    assert cells(table)["qqp Acc"] == [("-", False), ("70.0", True)]
    arrow = {("consistency", "arrow"): "arrow"}
    (other,) = calum_tables(rows, "", arrow)
    assert [*cells(other)] == ["model", "rte arrow", "qqp arrow"]
    assert printed(*effects_tables(task_effects(rows, KINDS)))


@pytest.fixture
def tasks_command(consilience):
    return lambda *arguments: consilience("analyze", "tasks", *arguments)


def test_the_command(tasks_command, tmp_path):
    path = typed(tmp_path, wide(TABLE_2))
    left = ("--leave-out", "t5-base,t5-large,human")
    status, out, err = tasks_command(path, *left, "--out", tmp_path / "tests.csv")
    assert (status, err) == (0, "")
    assert "human" in out, "left out of the tests only"
    assert "+35.0" in out
    written = pl.read_csv(tmp_path / "tests.csv")
    assert [*written.columns] == [*EFFECTS_SCHEMA]
    status, out, _ = tasks_command(path, *left, "--json", "--small", "rte")
    document = json.loads(out)
    assert len(document["metrics"]) == 150
    assert document["metrics"][0]["std"] is None
    assert {row["first"] for row in document["effects"]} == {"STS", "rte"}
    assert document["warnings"] == []


def test_runs_of_one_model_are_named_alike(tasks_command, tmp_path):
    paths = [
        run_folder(tmp_path / model / task, task, *values, 0)
        for model, task, values in (
            ("a", "rte", (0.6, 0.5, 0.9)), ("a", "qqp", (0.9, 0.95, 0.99)),
            ("b", "rte", (0.7, 0.6, 0.91)), ("b", "qqp", (0.8, 0.97, 0.98)),
        )
    ]  # fmt: skip
    named = [f"{path.parent.name}={path}" for path in paths]
    status, out, err = tasks_command(*named, "--json")
    assert status == 0, err
    paired = [row for row in json.loads(out)["effects"] if row["test"] == "paired"]
    assert {row["first_n"] for row in paired} == {2}
    status, out, _ = tasks_command(paths[0], paths[1] / "metrics.csv", "--json")
    document = json.loads(out)
    assert {row["model"] for row in document["metrics"]} == {"rte", "qqp"}
    assert document["warnings"] == ["no paired test: it needs two models with tasks of both sides"]
    status, out, err = tasks_command(f"a={paths[0]}", f"a={paths[1]}")
    assert (status, err) == (0, f"note: {document['warnings'][0]}\n")
    assert "Student" not in out, "one model has no test, so no table of them"
    status, out, _ = tasks_command(*named)
    assert "Student" in out
    status, _, err = tasks_command(paths[0])
    assert status == 0
    assert "note: no test of STS against NLI: the tasks are rte" in err
    assert "note: no test of small training sets: the tasks are rte" in err
    assert tasks_command(f"x={tmp_path / 'none'}")[0] == 2
    assert tasks_command(paths[0], "--leave-out", "nobody")[0] == 2
    assert tasks_command(paths[0], "--leave-out", "rte")[0] == 0, "no model is left to test"
