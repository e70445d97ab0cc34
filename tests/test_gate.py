"""gate: rules, verdicts by intervals, common items, repeated runs, and what CI systems read."""

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.special import expit, logit

import consilience as cs
from checks import output, refused
from consilience.gating.gate import GateCheck, as_junit, worst_notes
from consilience.gating.rules import Precise, Threshold, parse_rules
from consilience.metrics.registry import DESCRIPTIONS, label_of
from consilience.metrics.statistics import skewed_reach, skewness
from consilience.suites.layouts import save_suite
from report_builders import pair_run

PATTERNS = ["[X] listens on port [Y].", "The port of [X] is [Y]."]


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """A folder with a suite of 40 facts in two patterns, and a function that writes answers.

    ``write(name, right)``: facts below ``right`` have the right answer in both patterns, the others
    a wrong one in the second pattern only.
    """
    folder = tmp_path_factory.mktemp("ports")
    facts = {f"s{number}": str(number % 4) for number in range(40)}
    suite = cs.Suite.from_patterns(PATTERNS, facts, name="ports")
    save_suite(suite, folder / "ports")
    group = suite.relations[0]

    def write(name, right, facts=range(40)):
        rows = [
            {"group": group.id, "item": fact.item, "subject": fact.subject,
             "variant": str(variant), "gold": fact.object,
             "answer": fact.object if number < right or not variant else "x"}
            for number, fact in enumerate(group.facts) if number in facts for variant in (0, 1)
        ]  # fmt: skip
        pl.DataFrame(rows).write_csv(folder / f"{name}.csv")
        return folder / f"{name}.csv"

    return folder, write


def gate(folder, *runs, **options):
    return cs.gate(list(runs), suite=str(folder / "ports"), **options)


@pytest.fixture
def thirty(ports):
    """``thirty(rule=[...])``: the gate of a run with 30 of 40 consistent facts."""
    folder, write = ports
    return partial(gate, folder, write("thirty", 30))


def test_the_interval_is_the_one_of_score_at_90_percent(ports):
    """30 of 40 facts are consistent: the standard error of the share over n - 1."""
    folder, write = ports
    run = write("thirty", 30)
    (check,) = gate(folder, run, rule=["consistency >= 0.6"]).checks
    assert check.value == 0.75
    half = stats.t.ppf(0.95, 39) * math.sqrt(0.75 * 0.25 / 39) / (0.75 * 0.25)
    assert check.low == pytest.approx(expit(logit(0.75) - half), abs=0.006)
    assert check.high == pytest.approx(expit(logit(0.75) + half), abs=0.006)
    wide = cs.score(run, suite=str(folder / "ports")).metrics
    row = wide.filter(metric="consistency", group="MACRO").row(0, named=True)
    assert row["low"] < check.low < check.high < row["high"]


def test_a_rule_passes_or_fails_only_if_the_whole_interval_is_on_one_side(thirty):
    verdicts = {
        "consistency >= 0.6": "pass",
        "consistency >= 60 %": "pass",
        "consistency <= 0.6": "fail",
        "Consistency >= .7": "undecided",
        "consistency >= 0.9": "fail",
        "consistency in MICRO >= 0.5": "pass",
        "corrected_consistency >= -0.5": "pass",
        "consistency  >=  0.5": "pass",
    }
    checks = thirty(rule=[*verdicts]).checks
    assert [check.verdict for check in checks] == [*verdicts.values()]
    assert checks[-1].rule == "consistency >= 0.5", "single spaces"


def test_a_gate_passes_if_all_rules_do(thirty):
    both = ["consistency >= 0.6", "consistency >= 0.7"]
    for rules, outcome in (
        (both[:1], ("pass", True)),
        (["consistency <= 0.6"], ("fail", False)),
        (both, ("undecided", False)),
        ([*both, "accuracy <= 0.5"], ("fail", False)),
    ):
        checked = thirty(rule=rules)
        assert (checked.verdict, checked.is_open) == outcome


def test_a_mean_that_does_not_vary_allows_for_unequal_subjects(tmp_path):
    """36 subjects with one object and 4 with 9: the largest counts 5 times as much as the mean."""
    facts = {
        group: [(f"{group}{at}", f"o{n}") for at in range(40) for n in range(1 if at < 36 else 9)]
        for group in "AB"
    }
    suite = cs.Suite.from_patterns(dict.fromkeys("AB", PATTERNS), facts)
    assert {group.cardinality for group in suite} == {"N-M"}

    def model(prompts):
        return ["o0"] * len(prompts)

    for name in "ab":
        cs.evaluate(suite, model, out=tmp_path / name)
    rules = ["determinism no worse than baseline by 5 points"]
    (check,) = cs.gate([tmp_path / "b"], baseline=str(tmp_path / "a"), rule=rules).checks
    assert (check.verdict, check.low) == ("undecided", pytest.approx(-(1 - 0.05 ** (1 / 16))))


def test_a_baseline_is_compared_in_pairs(ports, thirty):
    """Two of 40 facts are lost: 5 points, known to be fewer than 20 and not fewer than 8.

    The lower bound is that with one more fact lost.
    """
    folder, write = ports
    rules = [f"consistency no worse than baseline by {margin} points" for margin in (20, 8)]
    checked = thirty(baseline=write("old", 32), rule=rules)
    assert [check.verdict for check in checked.checks] == ["pass", "undecided"]
    assert (checked.checks[0].baseline, checked.checks[0].limit) == (0.8, -0.2)
    share, error = 3 / 41, math.sqrt(3 / 41 * 38 / 41 / 40)  # 2 items and one more of 41
    half = stats.t.ppf(0.95, 40) * error / 2 / ((1 - share) / 2 * (1 + share) / 2)
    low = 2 * expit(logit((1 - share) / 2) - half) - 1
    assert checked.checks[0].low == pytest.approx(low, abs=0.005)
    rule = "consistency no higher than baseline by 3 %"
    reverse = gate(folder, folder / "old.csv", baseline=folder / "thirty.csv", rule=[rule])
    assert [check.verdict for check in reverse.checks] == ["undecided"]


def test_the_same_answers_pass_as_far_as_their_number_goes(ports, thirty):
    """0 of 40 facts differ: at most 7.2 % of facts like these do, with 95 % confidence."""
    _, write = ports
    rules = [f"consistency no worse than baseline by {margin} points" for margin in (8, 7)]
    checks = thirty(baseline=write("same", 30), rule=rules).checks
    assert [check.verdict for check in checks] == ["pass", "undecided"]
    for check in checks:
        assert check.low == pytest.approx(-(1 - 0.05 ** (1 / 40)))
        assert "the same in all subjects" in check.reason


def test_a_mean_that_does_not_vary_says_as_much_as_its_smallest_relation(tmp_path):
    """1 and 99 facts: half of the mean is one fact, so 0 of 2 may be up to .05 ** (1 / 2) of all."""
    facts = {"A": [("s", "x")], "B": [(f"t{at}", "xy"[at % 2]) for at in range(99)]}
    right = dict(fact for of_group in facts.values() for fact in of_group)
    patterns = {name: ["[X] is in [Y].", "[X] is inside [Y]."] for name in "AB"}
    suite = cs.Suite.from_patterns(patterns, facts)

    def answer(prompts):
        return [right[prompt.split()[0]] for prompt in prompts]

    for name in "ab":
        cs.evaluate(suite, answer, out=tmp_path / name)
    rules = ["accuracy no worse than baseline by 5 points", "accuracy >= 0.95"]
    found = cs.gate([tmp_path / "b"], baseline=str(tmp_path / "a"), rule=rules)
    assert [check.verdict for check in found.checks] == ["undecided", "undecided"]
    assert found.checks[1].low == pytest.approx(math.sqrt(0.05))


def test_relations_that_got_one_answer_do_not_pass_on_corrected_consistency(tmp_path):
    """They leave the mean; A and B should have two answers, in C one answer is right."""
    facts = {name: [(f"{name}{at}", "xy"[at % 2]) for at in range(12)] for name in "ABDEFG"}
    facts["C"] = [(f"C{at}", "x") for at in range(12)]
    right = dict(fact for of_group in facts.values() for fact in of_group)
    patterns = {name: ["[X] is in [Y].", "[X] is inside [Y]."] for name in facts}
    suite = cs.Suite.from_patterns(patterns, facts)

    def answer(prompts):
        return [right[prompt.split()[0]] for prompt in prompts]

    def collapsed(prompts):
        return ["x" if prompt[0] in "AB" else right[prompt.split()[0]] for prompt in prompts]

    for model in (answer, collapsed):
        cs.evaluate(suite, model, out=tmp_path / model.__name__)
    rules = ["corrected_consistency no worse than baseline by 20 points"]
    groups = ("", " in MACRO", " in MICRO", " in D")
    rules += [f"corrected_consistency{group} >= 0.5" for group in groups]
    baseline = str(tmp_path / "answer")
    found = cs.gate([tmp_path / "collapsed"], baseline=baseline, rule=rules)
    assert [check.verdict for check in found.checks] == [*["undecided"] * 4, "pass"]
    assert all("without A, B, where all answers" in one.reason for one in found.checks[:4])
    assert cs.gate([baseline], rule=rules[1:]).verdict == "pass"
    answer.__name__ = "collapsed"
    cs.evaluate(suite, answer, out=tmp_path / "whole")
    both = [tmp_path / "whole", tmp_path / "collapsed"]
    averaged = cs.gate(both, baseline=baseline, rule=rules)
    assert [check.verdict for check in averaged.checks] == [*["undecided"] * 4, "pass"]
    assert "without A, B, where all answers" in averaged.checks[1].reason


def test_only_items_that_both_have_are_compared(ports, thirty):
    folder, write = ports
    options = {"baseline": write("part", 30, range(10, 40))}
    options["rule"] = ["consistency no worse than baseline by 30 points"]
    checked = thirty(**options)
    (check,) = checked.checks
    assert (check.value, check.baseline) == (20 / 30, 20 / 30)
    counts = "compared on the 30 facts that all runs have (40 in thirty.csv, 30 in part.csv)"
    assert counts in checked.notes
    nothing = r"no fact that all runs have in the same variants"
    refused(nothing, gate, folder, write("first", 9, range(9)), **options)


@pytest.mark.parametrize("is_difference", [False, True])
def test_unequal_subjects_pass_at_the_limit_as_rarely_as_equal_ones(is_difference):
    """Of 100 subjects one in ten has ten facts; 5 % are wrong, or lost, whole."""
    random, passed, repeats = np.random.default_rng(3), dict.fromkeys((False, True), 0), 400
    bounds = (-1.0, 1.0) if is_difference else (0.0, 1.0)
    for _ in range(repeats):
        sizes = np.where(random.random(100) < 0.1, 10, 1)
        hits = sizes * ((random.random(100) >= 0.05) - float(is_difference))
        value = hits.sum() / sizes.sum()
        error = np.sqrt(((hits - value * sizes) ** 2).sum() / 99 * 100) / sizes.sum()
        number = Precise(value, bounds, 1.0, error, 100, 100, is_difference=is_difference)
        limit = Threshold(bounds[1] - 1.05 if is_difference else 0.95, at_least=True)
        for is_known, largest in ((False, 1.0), (True, sizes.max() / sizes.mean())):
            passed[is_known] += replace(number, largest=largest).verdict(limit) == "pass"
    assert passed[True] <= 0.06 * repeats < 0.1 * repeats < passed[False]


def test_a_mean_over_relations_allows_for_a_few_that_fall_most(tmp_path):
    """One of 13 relations falls by 100 points, the others not: by t the mean falls by at most 21.4.

    The skewness of one 1 among 12 zeros is 11 / sqrt(12). Hall's polynomial of the bound is t.
    """
    run = cs.evaluate("mini", "baseline:oracle", limit=2)
    answers = run.run.answers.drop("scores", strict=False)
    answers.write_csv(tmp_path / "old.csv")
    flipped = (pl.col("group") == "capital") & (pl.col("variant") != pl.col("variant").first())
    wrong = pl.when(flipped).then(pl.concat_str(pl.lit("x"), "variant")).otherwise("answer")
    answers.with_columns(answer=wrong).write_csv(tmp_path / "new.csv")
    rules = [f"consistency no worse than baseline by {points} points" for points in (22, 60)]
    checked = cs.gate(tmp_path / "new.csv", baseline=tmp_path / "old.csv", suite="mini", rule=rules)
    assert [check.verdict for check in checked.checks] == ["undecided", "pass"]
    skew, size, t = -11 / math.sqrt(12), 13, stats.t.ppf(0.95, 12)
    assert skewness([-1, *[0] * 12]) == pytest.approx(skew)
    reach = skewed_reach(size, skew, 0.9) / math.sqrt(size)
    polynomial = reach + skew * reach**2 / 3 + skew**2 * reach**3 / 27 + skew / (6 * size)
    assert polynomial == pytest.approx(t / math.sqrt(size))
    low = -1 / 13 - skewed_reach(size, skew, 0.9) / 13  # the standard error is 1/13
    assert checked.checks[0].low == pytest.approx(low, rel=0.05)
    assert (skewness([]), skewness([0.5, 0.5])) == (0, 0)
    assert skewed_reach(size, 0, 0.9) == pytest.approx(t)
    assert skewed_reach(size, 1e-5, 0.9) == pytest.approx(t, abs=1e-5)


def test_sentence_pairs_are_gated_by_task_and_form(tmp_path):
    """Twelve pairs; the reverse form changes the labels of two in one run and of ten in another."""
    runs = [pair_run(tmp_path / name, range(size)) for name, size in (("two", 2), ("ten", 10))]
    rules = ["consistency of reverse >= 0.5", "consistency no worse than baseline by 3 points"]
    checked = cs.gate(runs[1:], baseline=runs[0], rule=rules)
    (reverse, drop) = checked.checks
    assert (reverse.group, reverse.value, reverse.verdict) == ("rte", 1 / 6, "fail")
    assert (drop.value, drop.baseline, drop.verdict) == (14 / 24, 22 / 24, "undecided")
    assert cs.gate(runs[:1], rule=rules[:1]).verdict == "pass"
    assert drop.unit == "sentence pairs"


def test_questions_are_gated_all_together(tmp_path):
    """20 questions in two groups: the value is that of all."""
    row = {"answer": "a", "options": ["a", "b"]}
    rows = [row | {"question": f"{n}?", "group": "xy"[n % 2]} for n in range(20)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    run = cs.evaluate(tmp_path / "q.jsonl", "baseline:random", vary=["order=reversed"])
    rules = ["consistency >= 0.01", "corrected_consistency >= -0.9"]
    checked = cs.gate(run, rule=rules)
    assert [check.of for check in checked.checks] == ["all questions"] * 2
    whole = run.metrics.filter(metric="consistency", subset="all", group="MICRO")
    assert checked.checks[0].value == whole["value"].item()


def test_a_rule_that_fails_says_where_and_what_to_read(consilience, tmp_path):
    """Always the first option: consistent over phrasings, never where the order is reversed."""
    row = {"answer": "a", "options": ["a", "b"], "question_2": "Which?"}
    rows = [row | {"question": f"{n}?", "group": "xy"[n % 2]} for n in range(40)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    vary = ["order=reversed", "paraphrase=all"]
    path = tmp_path / "run"
    run = cs.evaluate(tmp_path / "q.jsonl", "baseline:first", vary=vary, out=path)
    status, out, err = consilience("gate", path, "--rule", "consistency >= 0.8")
    assert status == 3 and f"Answers: consilience view {path}" in out
    assert "note: worst consistency: of order, 0.0\n" in err, "both groups are alike"
    table = pl.DataFrame({
        "metric": "violation_rate", "group": ["x", "y", "MICRO", "MICRO"],
        "subset": ["all", "all", "all", "same"], "difference": [0.1, 0.2, 0.15, 0.15],
    })  # fmt: skip
    (rule,) = parse_rules(["violation_rate no worse than baseline by 3 points"])
    assert [*worst_notes(rule, table, run.suite)] == ["worst violation_rate: in y, +20.0"]


def test_models_that_read_no_question_are_noted():
    run = cs.evaluate("mini", "baseline:majority", groups=["capital"])
    checked = cs.gate(run, rule=["consistency >= 0.8", "accuracy <= 0.9"])
    assert any("over 90 % of the answers are the same word" in note for note in checked.notes)
    of_group = cs.gate(run, rule=["consistency in capital >= 0.3"]).notes
    assert any("same word" in note for note in of_group)
    assert not any("same word" in note for note in cs.gate(run, rule=["accuracy <= 0.9"]).notes)


def test_missing_answers_have_a_note_and_an_unfinished_run_is_refused(ports, tmp_path):
    folder, write = ports
    table = pl.read_csv(write("thirty", 30), infer_schema=False)
    gone = (pl.col("item") == table["item"][0]) & (pl.col("variant") == "0")
    table = table.with_columns(answer=pl.when(gone).then(None).otherwise("answer"))
    table.write_csv(tmp_path / "gap.csv")
    for pair in ((table, None), (None, table)):
        paths = [tmp_path / "gap.csv" if one is not None else write("thirty", 30) for one in pair]
        noted = gate(folder, *paths, rule=["accuracy >= 0.5"]).notes
        assert any(note.startswith("gap.csv: 1 of 80 queries have no answer") for note in noted), (
            noted
        )
    run = cs.evaluate("mini", "baseline:random", groups=["capital"], limit=3, out=tmp_path / "run")
    record = json.loads((run.folder / "run.json").read_text("utf-8"))
    (run.folder / "run.json").write_text(json.dumps({**record, "finished": None}), "utf-8")
    unfinished = "the run is not finished. Rerun the command"
    refused(unfinished, cs.gate, run.folder, rule=["accuracy >= 0.5"])


@pytest.mark.parametrize(("rule", "message"), [
    ("consistencey >= 0.8", r"no metric 'consistencey'.*Did you mean 'consistency'\?"),
    ("consistency >= 80", r"limit 80; .* such as 0.95 or 95 %"),
    ("consistency >= 100 %", r"a limit above 0 and below 1"),
    *(
        (rule, r"expected 'METRIC >= 0.8', 'METRIC <= 20 %' or 'METRIC no worse than baseline")
        for rule in (
            "consistency > 0.8",
            "accuracy == 0.8",
            "consistency",
            "consistency >= 0,8",
            "",
            "0.8 <= accuracy",
            "accuracy >= 0.8 and consistency >= 0.8",
            "consistency no worse than baseline by 3pp",
            "consistency no lower than 0.8",
        )
    ),
    ("consistency in >= 0.8", r"no metric 'consistency in'.*Did you mean 'consistency'"),
    ("consistency no better than baseline by 3 points", r"expected 'no worse than baseline'"),
    ("accuracy no worse than baseline by 0 points", r"a margin above 0"),
    ("top_answer no worse than baseline by 3 points", r"'no lower than baseline' or 'no hig"),
    ("accuracy no worse than baseline by 3 points", r"without a baseline.*--baseline RUN"),
    ("violation_rate <= 0.1", r"no 'violation_rate', which.*expected accuracy, consistency"),
    ("consistency in port >= 0.5", r"no group 'port' with consistency"),
    ("consistency of reverse >= 0.5", r"no consistency of 'reverse'"),
])  # fmt: skip
def test_a_rule_that_cannot_be_checked_says_what_to_write(thirty, rule, message):
    refused(message, thirty, rule=[rule])


@pytest.mark.parametrize("metric", DESCRIPTIONS)
def test_a_rule_takes_every_number_as_it_is_printed(metric):
    label, limit = label_of(metric), sum(DESCRIPTIONS[metric].bounds) / 2
    for of, subset, group in (("", "all", ""), (" of order in capital", "order", "capital")):
        (rule,) = parse_rules([f"{label}{of} >= {limit}"])
        assert (rule.metric, rule.subset, rule.group) == (metric, subset, group)


def test_the_command_prints_a_table_a_document_and_junit(ports, consilience):
    folder, write = ports
    run, suite = write("thirty", 30), ("--suite", folder / "ports")
    rules = ("--rule", "consistency >= 0.6", "--rule", "consistency >= 0.9")
    status, out, _ = consilience("gate", run, *suite, *rules, "--junit", folder / "gate.xml")
    assert status == 3
    assert "Gate: FAIL (1 fail, 1 pass). thirty.csv on ports" in out
    root = ET.parse(folder / "gate.xml").getroot()
    (tests,) = root
    assert (root.tag, tests.tag) == ("testsuites", "testsuite")
    counts = {"tests": "2", "failures": "1", "errors": "0"}
    assert root.attrib == counts | {"name": "consilience gate"}
    assert tests.attrib == counts | {"name": "thirty.csv on ports", "skipped": "0"}
    assert {name for case in tests for name in case.attrib} == {"classname", "name", "time"}
    assert [case.find("failure") is not None for case in tests] == [False, True]
    document = json.loads(output(consilience, "gate", run, *suite, *rules[:2], "--json"))
    assert (document["verdict"], document["passes"]) == ("pass", True)
    assert document["checks"][0]["baseline"] is None
    status, out, _ = consilience("gate", run, *suite, *rules, "--format", "md")
    assert (status, out.startswith("**Gate: FAIL")) == (3, True)
    assert "| consistency \\>= 0.9 | fail | mean of 1 relation | 75.0 |" in out


def test_rules_may_be_in_the_configuration_file(ports, consilience, tmp_path):
    folder, write = ports
    file = tmp_path / "gate.toml"
    file.write_text('[gate]\nrule = ["consistency >= 0.9"]\n', "utf-8")
    more = ("--suite", folder / "ports", "--config", file)
    status, out, err = consilience("gate", write("thirty", 30), *more)
    assert (status, "consistency >= 0.9" in out) == (3, True)
    assert "rule" in err


def test_junit_holds_any_text_and_says_what_is_undecided():
    hostile = 'a<b>&"\x1b\x00\ufffe\ud800]]>'
    numbers = (0.5, math.nan, 0.4, 0.9, 0.8)
    check = GateCheck(f"{hostile} >= 0.8", "g", hostile, *numbers, "undecided", hostile)
    root = ET.fromstring(as_junit(hostile, [check]))
    case = root.find("testsuite/testcase")
    assert "a<b>&" in case.get("name")
    assert "a<b>&" in case.find("failure").text  # GitLab reads the content, not the attributes
    assert (case.find("failure").get("type"), root.get("failures")) == ("undecided", "1")
