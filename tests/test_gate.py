"""gate: rules, their two outcomes, what is refused, and what CI systems read.

A row of cases/gate_rules.jsonl: facts (of 40) that get one answer, those of the baseline, the rule, what comes out (``pass``,
``fail``, or ``refused``), what comes out with ``--prove``, and what is said of it. With 30 of 40 the
standard error of the share is sqrt(.75 .25 / 39) = 6.9 points: logit(.75) +- 1.685 6.9 / .75 / .25
is 61.7 to 84.8. If 2 of 40 fall, it is sqrt((.05 - .05^2) / 39) = 3.5, and the detectable difference
(1.685 + 0.851) 3.5 = 8.8 points; the interval is that of 3 of 42 which fall and one which rises.
"""

import json
import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from conftest import cases, suite_of
from consilience.gating import Rule, as_junit
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.metrics.registry import DESCRIPTIONS, label_of
from report_builders import pair_run

PATTERNS = ["[X] listens on port [Y].", "The port of [X] is [Y]."]
WORSE = "consistency no worse than baseline by {} points"


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """``write(right)``: a run of 40 facts in two patterns, on the suite ``ports``.

    The second answer is wrong but to the first ``right`` facts; two numbers: only the facts from
    one to the other, 30 right.
    """
    folder = tmp_path_factory.mktemp("ports")

    def written(right, *, silent=""):
        asked, right = (range(*right), 30) if isinstance(right, list) else (range(40), right)
        run = folder / f"{right} of {len(asked)}{silent}"
        names = {"item": [f"i{at}" for at in asked], "subject": [f"s{at}" for at in asked]}
        facts = pl.DataFrame({**names, "object": [str(at % 4) for at in asked]})
        facts = facts.with_columns(relation=pl.lit("ports_table"))

        def model(prompts):
            numbers = [int(re.search(r"s(\d+)", prompt)[1]) for prompt in prompts]
            texts = [
                "none" if at >= right and "port of" in prompt else str(at % 4)
                for at, prompt in zip(numbers, prompts, strict=True)
            ]
            return [None if silent and silent in prompt else text
                    for text, prompt in zip(texts, prompts, strict=True)]  # fmt: skip

        if not run.exists():
            suite = cs.Suite.from_frame(facts, patterns=PATTERNS, name="ports")
            cs.evaluate(suite, model, out=run)
        return run

    return written


def checked(write, right, baseline, rule, **options):
    """The gate of the answers with ``right`` facts; ``baseline``: those of the baseline."""
    if baseline is not None:
        options["baseline"] = f"old={write(baseline)}"
    return cs.gate(write(right), rule=rule, **options)


def test_a_run_without_a_variant_of_its_baseline_fails(tmp_path):
    rows = [f"{item},{paraphrase},1,1" for item in range(4) for paraphrase in range(3)]
    for name, count in (("old", 12), ("same", 12), ("new", 11)):
        lines = ["item,paraphrase,gold,answer", *rows[:count]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    old, same, new = (tmp_path / f"{name}.csv" for name in ("old", "same", "new"))
    rule = "consistency no worse than baseline by 3 points"
    assert cs.gate(same, baseline=old, rule=rule).verdict == "pass"
    (check,) = cs.gate(new, baseline=old, rule=rule).failed
    assert "1 of 12 queries of the baseline were not asked" in check.reason


@pytest.mark.parametrize(
    ("right", "baseline", "rule", "expected", "proved", "said"), cases("gate_rules")
)
def test_a_rule_passes_or_fails(write, right, baseline, rule, expected, proved, said):
    if expected == "refused":
        refused(said, checked, write, right, baseline, rule)
        return
    gates = [checked(write, right, baseline, rule, prove=prove) for prove in (False, True)]
    assert [gate.verdict for gate in gates] == [expected, proved]
    texts = [gate.checks[0].reason for gate in gates] + list(gates[0].notes)
    assert re.search(said, "\n".join(texts))


def test_the_interval_is_that_of_score_and_compare_at_90_percent(write):
    rules = ["consistency >= 0.6", "consistency in ports_table >= 0.6", WORSE.format(3)]
    checks = checked(write, 30, 32, rules).checks
    runs = {name: cs.open_run(write(name)) for name in (32, 30)}
    suite, tables = runs[30].suite, {name: run.answers for name, run in runs.items()}
    metrics = measure(tables[30], suite, level=0.9).filter(metric="consistency", kind="whole")
    compared = compare(tables, suite, "strict", 0.9).filter(metric="consistency", kind="whole")
    tables = metrics.filter(over="mean"), metrics.filter(over="group"), compared.filter(over="mean")
    for check, table in zip(checks, tables, strict=True):
        assert (check.low, check.high) == pytest.approx(table.select("low", "high").row(0))
    assert (checks[2].value, checks[2].baseline, checks[2].limit) == (0.75, 0.8, -0.03)


def test_a_mean_over_few_relations_and_what_is_undefined(tmp_path):
    """Three relations of four facts; C has one answer in each run, and no corrected consistency."""
    facts = {name: [(f"{name}{at}", "xy"[at % 2]) for at in range(4)] for name in "AB"}
    facts["C"] = [(f"C{at}", "x") for at in range(4)]
    suite = suite_of(dict.fromkeys("ABC", PATTERNS), facts)
    right = dict(fact for of_group in facts.values() for fact in of_group)

    def model(prompts):
        return [next(of for one, of in right.items() if one in prompt) for prompt in prompts]

    def later(prompts):
        lost = [prompt[0] == "A" for prompt in prompts]  # the first pattern of A, and its two x
        return ["y" if is_lost else of for is_lost, of in zip(lost, model(prompts), strict=True)]

    for one in (model, later):
        cs.evaluate(suite, one, out=tmp_path / one.__name__)
    rules = [WORSE.format(3), "corrected_consistency in C >= 0.5", "accuracy in all >= 0.8"]
    found = cs.gate(tmp_path / "later", baseline=str(tmp_path / "model"), rule=rules)
    drop, undefined, whole = found.checks
    assert drop.difference == pytest.approx(-1 / 6) and drop.verdict == "pass"
    assert "3 relations cannot show a fall under" in drop.reason
    assert (undefined.verdict, whole.verdict) == ("fail", "pass")
    assert "is undefined in the run" in undefined.reason
    assert drop.is_beyond and "1 beyond the margin, but not shown" in str(found)
    file = tmp_path / "gate.xml"
    cs.gate(tmp_path / "later", baseline=str(tmp_path / "model"), rule=rules, junit=file)
    (skipped,) = ET.parse(file).getroot().iter("skipped")
    assert skipped.get("message").startswith("not shown: Consistency -16.7 points")
    both = "corrected_consistency{} no worse than baseline by 3 points"
    same = suite_of({"C": PATTERNS}, {"C": facts["C"]})
    for out in ("one", "two"):
        cs.evaluate(same, model, out=tmp_path / out)
    for where, verdict in ((" in C", "pass"), ("", "fail")):
        found = cs.gate(tmp_path / "two", baseline=str(tmp_path / "one"), rule=[both.format(where)])
        assert found.verdict == verdict and "undefined in the baseline and the run" in " ".join(
            str(found).split()
        )


def test_sentence_pairs_are_gated_by_task_and_form(tmp_path):
    """Twelve pairs; the reverse form changes the labels of two in one run and of ten in another."""
    two, ten = (pair_run(tmp_path / of, range(size)) for of, size in (("two", 2), ("ten", 10)))
    rules = ["consistency of Reverse >= 0.5", WORSE.format(3)]
    reverse, drop = cs.gate(ten, baseline=two, rule=rules).checks
    assert (reverse.group, reverse.level, reverse.value) == ("rte", "reverse", 1 / 6)
    assert (drop.value, drop.baseline, drop.verdict) == (14 / 24, 22 / 24, "fail")
    assert cs.gate(two, rule=rules[:1]).verdict == "pass"


def test_questions_are_gated_together_and_by_factor(tmp_path):
    """20 questions in two groups: the value is that of all."""
    row = {"answer": "a", "options": ["a", "b"]}
    rows = [row | {"question": f"{n}?", "group": "xy"[n % 2]} for n in range(20)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    asked = {"suite": tmp_path / "q.jsonl", "model": "baseline:random", "vary": ["order=reversed"]}
    run, other = (cs.evaluate(**asked, seed=seed) for seed in range(2))
    whole = {"metric": "consistency", "over": "all", "kind": "whole"}
    one, two = (of.metrics.filter(**whole)["value"].item() for of in (run, other))
    rules = ["consistency >= 1 %", WORSE.format(60), "consistency of order >= 1 %"]
    found = cs.gate(run, rule=rules, baseline=str(other.run.path))
    assert "A dash means" not in str(found), "a limit has no baseline"
    limit, drop, factor = found.checks
    known = limit.over, limit.of, limit.verdict, limit.value
    assert known == ("all", "all questions", "pass", one)
    assert drop.difference == pytest.approx(one - two)
    assert (factor.kind, factor.level, factor.value) == ("factor", "order", one)


def test_what_cannot_be_checked_is_an_error_in_the_junit_file_too(tmp_path, consilience):
    """An unfinished run, and one that is not there; a file of another kind is not replaced."""
    run = cs.evaluate("mini", "baseline:random", groups=["capital"], limit=3, out=tmp_path / "run")
    record = json.loads((run.folder / "run.json").read_text("utf-8"))
    (run.folder / "run.json").write_text(json.dumps({**record, "finished": None}), "utf-8")
    assert consilience("score", run.folder)[0] == 3
    options, file = {"rule": ["accuracy >= 0.5"]}, tmp_path / "gate.xml"
    for folder, message in (run.folder, "is not finished. Rerun the"), (tmp_path / "no", "no such"):
        refused(message, cs.gate, folder, **options, junit=file)
        root = ET.parse(file).getroot()
        assert (root.get("tests"), root.get("errors")) == ("1", "1")
        assert message in root.find("testsuite/testcase/error").text
    refused("checks in '.json'; expected .xml", cs.gate, run, **options, junit=tmp_path / "a.json")


@pytest.mark.parametrize("metric", DESCRIPTIONS)
def test_a_rule_takes_every_number_as_it_is_printed(metric):
    label, limit = label_of(metric), sum(DESCRIPTIONS[metric].bounds) / 2
    for of, level, group in (("", "", ""), (" of order in capital", "order", "capital")):
        rule = Rule.of(f"{label}{of} >= {limit}")
        assert (rule.metric, rule.level, rule.group, rule.limit) == (metric, level, group, limit)


def test_the_command_prints_a_table_a_document_and_junit(write, consilience, tmp_path, monkeypatch):
    """One of 80 queries has no answer, which is wrong: 29 of 40 facts get one right answer."""
    folder = write(30, silent="s0 listens")
    run = ("gate", f"gap={folder}")
    (tmp_path / "gate.toml").write_text('[gate]\nrule = ["consistency >= 0.9"]\n', "utf-8")
    status, out, err = consilience(*run, "--config", tmp_path / "gate.toml")
    assert (status, "consistency >= 0.9  fail" in out, "rule" in err) == (3, True, True)
    assert "1 of 80 queries (1 in ports_table) have no answer" in err
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = consilience(*run, "--baseline", write(32), "--rule", WORSE.format(3))
    assert {*out.splitlines()[2].split()} >= {"value", "baseline", "diff.", "limit"}
    rules = ("--rule", "consistency >= 0.6", "--rule", "consistency >= 0.9")
    status, out, _ = consilience(*run, *rules, "--junit", tmp_path / "gate.xml")
    assert status == 3
    assert "Gate: FAIL (1 of 2 checks failed). gap on ports" in out
    assert f"Answers: consilience report '{folder}'" in out
    root = ET.parse(tmp_path / "gate.xml").getroot()
    (tests,) = root
    *cases, _ = tests
    counts = {"tests": "2", "failures": "1", "errors": "0", "skipped": "0"}
    assert (root.tag, root.attrib) == ("testsuites", counts | {"name": "consilience gate"})
    assert tests.attrib == counts | {"name": "gap on ports"}
    assert [[part.tag for part in case] for case in cases] == [["system-out"], ["failure"]]
    for case, text in zip(cases, ("Consistency 72.5 %", "fail: Consistency 72.5 %"), strict=True):
        assert {*case.attrib} == {"classname", "name", "time"}
        assert (case[0].get("message") or case[0].text).startswith(text)
    assert tests.find("system-out").text.startswith("1 of 80 queries (1 in ports_table) have no")
    document = json.loads(output(consilience, *run, *rules[:2], "--json"))
    (check,) = document["checks"]
    known = {name: check[name] for name in ("metric", "over", "kind", "value", "limit", "verdict")}
    assert known == {"metric": "consistency", "over": "mean", "kind": "whole", "value": 29 / 40,
                     "limit": 0.6, "verdict": "pass"}  # fmt: skip
    assert (document["verdict"], check["baseline"]) == ("pass", None)
    status, out, _ = consilience(*run, *rules, "--format", "md")
    assert (status, out.startswith("**Gate: FAIL")) == (3, True)
    assert "| consistency \\>= 0.9 | fail | all facts | 72.5 |" in out


def test_each_question_is_right_in_a_share_of_its_answers(tmp_path, consilience):
    """4 of 5 is 8 of 10 and 2 of 2. Exact bounds at 90 %: of 20 of 20 .05^(1/20) = .861; of 2 of 10
    the p with P(X <= 2) = .05, .507; of 2 of 2 .05^(1/2) = .224; of 0 of 1 1 - .05 = .95."""
    sizes = {"a": (20, 20), "b": (2, 10), "c": (2, 2), "d": (0, 1), "e": (8, 10)}
    rows = [f"{name},{at},x,{'x' if at < right else 'y'}"
            for name, (right, size) in sizes.items() for at in range(size)]  # fmt: skip
    for name, lines in (("log", rows), ("turned", rows[::-1]), ("two", rows[20:32])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["item,sample,gold,answer", *lines]))
    found = cs.gate(tmp_path / "log.csv", rule=["right in 4 of 5", "right in 1 of 50"])
    check, low = found.checks
    assert (check.value, check.verdict, check.over, check.level) == (0.6, "fail", "all", "4 of 5")
    assert check.note == "3 of 5 questions; 1 clearly below, 3 neither (too few answers)"
    assert low.note == "4 of 5 questions; 0 clearly below, 1 neither (too few answers)"
    items = found.items.filter(rule="right in 4 of 5")
    columns = ("item", "right", "answers", "verdict", "shown")
    assert items.select(columns).rows() == [
        ("b", 2, 10, "fail", "below"), ("d", 0, 1, "fail", "neither"),
        ("e", 8, 10, "pass", "neither"), ("c", 2, 2, "pass", "neither"),
    ]  # fmt: skip
    bounds = dict(zip(items["item"], items.select("low", "high").rows(), strict=True))
    assert bounds["b"][1] == pytest.approx(0.5069, abs=1e-4)
    assert bounds["c"] == pytest.approx((0.05**0.5, 1))
    assert bounds["d"] == pytest.approx((0, 0.95))
    two = cs.gate(tmp_path / "two.csv", rule="right in 4 of 5", prove=True)
    assert two.verdict == "fail" and "1 clearly below, 1 neither" in two.checks[0].note
    turned = cs.gate(tmp_path / "turned.csv", rule="right in 4 of 5").items
    assert turned.sort("item").equals(items.sort("item"))
    rules = ("--rule", "right in 4 of 5", "--junit", tmp_path / "gate.xml")
    status, out, _ = consilience("gate", tmp_path / "log.csv", *rules)
    assert status == 3
    said = "b (questions): right in 2 of 10, 90 % CI 3.7 to 50.7: fail, below."
    assert said in out and said in ET.parse(tmp_path / "gate.xml").find("*/system-out").text


def test_junit_holds_any_text():
    hostile = 'a<b>&"\x1b\x00\ufffe\ud800]]>'
    root = ET.fromstring(as_junit(hostile, [(hostile, "fail", hostile)], [hostile]))
    case = root.find("testsuite/testcase")
    assert "a<b>&" in case.get("name")
    assert "a<b>&" in case.find("failure").text
    assert (case.find("failure").get("type"), root.get("failures")) == ("fail", "1")
