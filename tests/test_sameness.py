"""compare --same: what differs between two runs beyond the noise, its verdict, what is refused."""

import json
import math
from shutil import copytree

import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR
from consilience.metrics.uncertainty import Interval
from consilience.results.sameness import beyond_noise, verdict_of
from report_builders import FORMS, LABELS, kept_run


def table_of(folder, name, rows, columns="item,paraphrase,gold,options,answer"):
    path = folder / f"{name}.csv"
    path.write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]))
    return path


def asked(answers, golds="aaaaaaaa", options="a;b"):
    """Answers to questions in two paraphrases each."""
    return [(at // 2, at % 2, golds[at], options, of) for at, of in enumerate(answers)]


def numbers(one, two, within=2.0):
    found = cs.compare(one, two).same(within)
    return found, {row["number"]: row for row in found.tables["same"].to_dicts()}


def test_the_numbers_by_hand(tmp_path):
    """One of 8 answers differs, in one of four items.

    SE = sqrt(4/3 (.75^2 + 3 .25^2)) / 8 = .125; logit(1/8) +- 2.3534 .125 / (1/8 7/8) is 0.96 to
    67.8 %.
    """
    one = table_of(tmp_path, "one", asked("aabababa"))
    two = table_of(tmp_path, "two", asked("abbababa"))
    found, of = numbers(one, two, 70)
    row = of["answers that differ"]
    assert (row["value"], row["n"]) == (1 / 8, 8)
    reach = 2.353363 * 0.125 / (1 / 8 * 7 / 8)
    middle = math.log(1 / 7)
    bounds = [1 / (1 + math.exp(-of)) for of in (middle - reach, middle + reach)]
    assert [row["low"], row["high"]] == pytest.approx(bounds, rel=1e-5)
    beyond = of["beyond the noise"]
    assert [beyond["value"], beyond["low"], beyond["high"]] == pytest.approx([1 / 8, *bounds])
    assert (beyond["verdict"], found.status) == ("same", 0)
    assert of["right to wrong"]["value"] == 1 / 8 and of["wrong to right"]["value"] == 0
    assert of["mean accuracy"]["value"] == -1 / 8
    blank = [table_of(tmp_path, name, asked(of)) for name, of in (("l", ["", "", "", *"aa"]),
                                                                  ("m", ["", "a", "", *"aa"]))]  # fmt: skip
    _, lacking = numbers(*blank)
    row = lacking["answers that differ"]
    assert (row["value"], row["n"]) == (1 / 3, 3), "two missing answers are no pair"
    _, turned = numbers(table_of(tmp_path, "t", asked("aabababa")[::-1]), two, 70)
    assert turned["beyond the noise"] == beyond | {"first": "t"}


def test_equal_answers_show_so_much_as_their_items(tmp_path):
    """0 of 4 items: up to 1 - .05^(1/4) = 52.7 %; 4 52.7 / 2 = 106 items for 2 points."""
    paths = [table_of(tmp_path, name, asked("aabbabab")) for name in "xy"]
    found, of = numbers(*paths)
    beyond = of["beyond the noise"]
    assert [beyond["value"], beyond["low"]] == [0, 0]
    assert beyond["high"] == pytest.approx(1 - 0.05**0.25)
    assert (beyond["verdict"], found.status) == ("not shown", 3)
    assert found.verdict[0] == (
        "y and x: NOT SHOWN within 2 points. 0.0 % of 8 answers differ, +0.0 points (90 % CI +0.0 "
        "to +52.7) beyond the noise of both. About 106 questions like these, with noise floors of "
        "as many times more, would show it."
    )
    why = "its answers were made elsewhere."
    assert found.verdict[1] == f"The noise floor of x was not measured and counts as 0: {why}"


def test_the_noise_of_both_is_expected():
    """The square roots of .03^2 + .03^2 + .03^2 and of .04^2 + .015^2."""
    floors = [Interval(0.04, 0.01, 0.10, 64, 0), Interval(0.0, 0.0, 0.06, 64, 0)]
    found = beyond_noise(Interval(0.10, 0.07, 0.14, 800, 0), floors)
    ends = 0.08 - math.sqrt(0.0027), 0.08 + math.sqrt(0.001825)
    assert [found.value, found.low, found.high] == pytest.approx([0.08, *ends])
    verdicts = [verdict_of(found, -math.inf, most) for most in (0.13, 0.1, 0.02)]
    assert verdicts == ["same", "not shown", "different"]
    assert verdict_of(Interval(0.0, -0.05, 0.01, 8, 0), -0.02, 0.02) == "not shown"


def pairs_of(folder, answers, **model):
    """Sentence pairs in the original form; ``answers``: the position of each label."""
    rows = [
        {"group": "rte", "item": str(at), "subject": f"s{at}", "variant": form, "gold": LABELS[0],
         "answer": LABELS[of], "n_candidates": 2, "input": ["a", form]}
        for at, of in enumerate(answers) for form in ("original", "reverse", "signal")
    ]  # fmt: skip
    return kept_run(folder, FORMS, pl.DataFrame(rows), model=model)


def write_floor(run, value, low, high, n=64):
    row = {"metric": NOISE_FLOOR, "over": "all", "kind": "whole", "value": value, "low": low}
    table = pl.DataFrame([row | {"high": high, "n": n, "n_excluded": 0}], METRICS_SCHEMA)
    table.write_csv(run / "metrics.csv")


def test_two_endpoints_need_their_noise_floors(tmp_path, consilience):
    """10 of 100 pairs differ, in all forms; each server changes 10 % of its answers."""
    runs = [pairs_of(tmp_path / name, [0] * (100 - size) + [1] * size, model=name, server=name)
            for name, size in (("one", 0), ("two", 10))]  # fmt: skip
    command = ("compare", *runs, "--same", "8", "--json")
    status, _, err = consilience(*command)
    assert status == 2 and "no noise floor of one" in err and "--noise-floor 256" in err
    for run in runs:
        write_floor(run, 0.1, 0.08, 0.12)
    document = json.loads(output(consilience, *command))
    of = {row["number"]: row for row in document["same"]}
    assert of["beyond the noise"]["value"] == pytest.approx(0)
    assert of["beyond the noise"]["verdict"] == "same"
    assert of["mean accuracy"]["value"] == pytest.approx(-0.1)
    assert of["mean accuracy"]["verdict"] == "not shown"
    status, out, _ = consilience("compare", *runs, "--same", "1")
    assert status == 3 and "two and one: NOT SHOWN within 1 points" in out
    assert "--same with --by" in consilience("compare", *runs, "--same", "1", "--by", "form")[2]


def test_what_has_no_verdict_is_refused(tmp_path):
    warm = [pairs_of(tmp_path / of, [0, 1], model=of, temperature=0.7) for of in ("a", "b")]
    refused("samples, or a judge, in a. Ask at temperature 0 without", numbers, *warm)
    rows = [(at, sample, "p", "p") for at in range(2) for sample in range(2)]
    twice = [table_of(tmp_path, name, rows, "item,sample,gold,answer") for name in "xy"]
    refused("samples, or a judge, in x", numbers, *twice)


def test_different_models_and_facts(tmp_path):
    """Two baselines on facts of several answers; a model against itself differs nowhere."""
    runs = [
        cs.evaluate("mini", f"baseline:{of}", limit=8, out=tmp_path / of)
        for of in ("random", "majority")
    ]
    found, of = numbers(*runs)
    assert found.verdict[2].endswith("counts as 0: it runs here and does not sample.")
    assert of["beyond the noise"]["verdict"] == "different" and found.status == 3
    flips = cs.compare(*runs).flips().tables["flips"].row(0, named=True)
    assert of["answers that differ"]["value"] == pytest.approx(flips["changed"])
    _, same = numbers(runs[0], copytree(runs[0].folder, tmp_path / "again"))
    assert same["answers that differ"]["value"] == 0
