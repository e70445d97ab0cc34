"""Runs are compared on what both were asked: the same group, item, variant and right answer."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import consilience as cs
from checks import output, refused
from conftest import ROOT, suite_of
from consilience.analysis.factor_effects import factors_of
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, measure
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.pairs import suite_of_task
from consilience.report.layouts import factor_table
from consilience.results.comparing import Common
from consilience.runs.run import Run
from consilience.suites.facts import select_languages
from consilience.suites.pairs import TASKS
from consilience.types import QUESTION_WORDS, Candidates, Relation, Suite
from pair_builders import write_pairs
from report_builders import kept_run, pair_run, write_hostile_suite
from test_page import data_of, rows_of

BASE = ("g q1 a ab", "g q2 b ba", "h q3 a aa")
"""Of each question: group, item, right answer, the answer in each phrasing; `.` was not asked."""


def quiz(folder, label, items, name="quiz", prompt=lambda item, at: f"{item}?"):
    """A run of questions with the options a and b; a fifth word is another order of the options."""
    rows, orders = [], {}
    for group, item, gold, answers, *order in (line.split() for line in items):
        orders = order[0] if order else "ab"
        rows += [
            {"group": group, "item": item, "subject": item, "variant": f"paraphrase={at}",
             "gold": gold, "answer": answer, "option": orders.index(answer),
             "gold_option": orders.index(gold), "input": [prompt(item, at)]}
            for at, answer in enumerate(answers, start=1)
            if answer != "."
        ]  # fmt: skip
    width = max(len(line.split()[3]) for line in items)
    design = Design.of_cells(phrasings(width), 2)
    groups = dict.fromkeys(row["group"] for row in rows)
    known = Candidates((*"01",), (0, 0))
    relations = (Relation.of_design(group, (), known, design) for group in groups)
    suite = Suite(name, tuple(relations), words=QUESTION_WORDS)
    return Run.open(kept_run(folder / label, suite, pl.DataFrame(rows)), label)


def phrasings(count):
    return FactorialDesign.full([Factor("paraphrase", tuple(map(str, range(1, count + 1))))])


def asked_nothing_else(folder, common):
    """Runs with the common queries alone."""
    for label, of in common.answers.items():
        kept_run(folder / label, common.suite, of.answers.with_columns(input=pl.lit(["?"])))
    return [Run.open(folder / label, label) for label in common.answers]


def in_numbers(compared):
    return compared.table.sort("metric", "over", "group", "kind", "level", "second")


def test_a_factor_that_one_run_did_not_vary_is_compared_at_its_base_level(consilience, tmp_path):
    """Also where the other run varied another one, and in either order of the runs."""
    asked = ("--model", "baseline:random", "--suite", "mini-questions", "--limit", "2")
    for name, *vary in (("both", "order=reversed", "paraphrase=1,2"), ("some", "paraphrase=1,2"),
                        ("other", "labels=A,none")):  # fmt: skip
        factors = [word for of in vary for word in ("--vary", of)]
        output(consilience, "probe", *asked, *factors, "--out", tmp_path / name)
    both, some, other = (Run.open(tmp_path / name) for name in ("both", "some", "other"))
    for pair in ((both, some), (some, both)):
        common = Common.of(pair, pair[0].suite)
        assert {*common.shared["variant"]} == {"paraphrase=1", "paraphrase=2"}
        assert common.shared.height == some.answers.height
        (row, *_) = cs.compare(*pair).table.filter(metric="accuracy", over="all").to_dicts()
        assert row["first_value"] == row["second_value"]  # a draw depends on the question alone
    assert {*Common.of([both, other], both.suite).shared["variant"]} == {"base"}


@pytest.mark.parametrize(("items", "more", "queries", "questions", "size"), [
    (BASE, {}, 6, 3, 6),
    (BASE, {"name": "another suite"}, 6, 3, 6),
    (BASE[::-1], {}, 6, 3, 6),  # another order of groups and items
    ([f"{line}a" for line in BASE], {}, 6, 3, 9),  # one variant more
    (BASE[1:], {}, 4, 2, 4),
    (("g q1 a a.", *BASE[1:]), {}, 5, 3, 5),  # ragged
    (("g q1 b ab", *BASE[1:]), {}, 4, 2, 6),  # another gold
    (("g q1 a ab ba", *BASE[1:]), {}, 6, 3, 6),  # its options in another order in the file
    (("h q1 a ab", *BASE[1:]), {}, 4, 2, 6),  # in another group
    ((*BASE, "i q4 a ab"), {}, 6, 3, 8),  # a group that only one has
    (("g q1 a bb", "i q2 b ba", "h q5 a aa"), {}, 2, 1, 6),
])  # fmt: skip
def test_runs_are_compared_on_what_both_have(items, more, queries, questions, size, tmp_path):
    """In either order, with a line on how much that is where it is not all.

    The numbers are those of runs that were asked nothing else.
    """
    one, two = quiz(tmp_path, "one", BASE), quiz(tmp_path, "two", items, **more)
    sizes = {"one": "6 in one", "two": f"{size} in two"}
    for first, second in ((one, two), (two, one)):
        common, compared = Common.of([first, second], first.suite), cs.compare(first, second)
        assert {of.coded.height for of in common.answers.values()} == {queries}
        counts = ", ".join(sizes[run.label] for run in (first, second))
        asked = f"{questions} question{'s' * (questions > 1)}"
        line = f"Compared on the {queries} queries ({asked}) that all runs have, of {counts}."
        found = [note.partition(" (docs")[0] for note in compared.notes if "Compared" in note]
        assert found == [line] * ({queries} != {6, size})
        alone = asked_nothing_else(tmp_path / first.label, common)
        assert_frame_equal(in_numbers(compared), in_numbers(cs.compare(*alone)))


@pytest.mark.parametrize("items", [
    ("g q7 a ab",), ("i q1 a ab", "i q2 b ba"), ("g q1 b ab", "g q2 a ba", "h q3 b aa"),
])  # fmt: skip
def test_runs_with_nothing_in_common_are_refused(items, tmp_path):
    runs = [quiz(tmp_path, "one", BASE), quiz(tmp_path, "two", items)]
    rule = "accuracy no worse than baseline by 3 points"
    for call in (
        lambda: cs.compare(*runs),
        lambda: cs.compare(*runs).flips(),
        lambda: cs.gate(runs[1].path, rule=[rule], baseline=str(runs[0].path)),
        lambda: cs.write_report([run.path for run in runs], out=tmp_path / "page.html"),
    ):
        refused("no query that all runs have: one has 6, two has", call)


def test_items_of_one_name_with_other_subjects_are_not_the_same(tmp_path):
    facts = ({"Redis": "6379", "MySQL": "3306"}, {"KeyDB": "6379", "MySQL": "3306"})
    patterns = ["The port of [X] is [Y].", "[X] listens on port [Y]."]
    suites = [suite_of(patterns, of) for of in facts]
    compared = cs.compare(*(cs.evaluate(suite, "baseline:oracle") for suite in suites))
    assert compared.notes[0].startswith("Compared on the 2 queries (1 fact) that all runs have, ")


def test_several_runs_are_compared_on_what_all_have(tmp_path):
    parts = (BASE, BASE[1:], BASE[:2])
    compared = cs.compare(*(quiz(tmp_path, f"run {at}", of) for at, of in enumerate(parts)))
    counts = "6 in run 0, 4 in run 1, 4 in run 2"
    line = f"Compared on the 2 queries (1 question) that all runs have, of {counts}."
    assert compared.notes[0].startswith(line)
    assert [group.id for group in compared.suite] == ["g"]


@pytest.mark.parametrize(("prompt", "notes"), [
    (lambda item, at: f"{item}?", []),
    (lambda item, at: f"What is {item}?", []),  # another template
    (lambda item, at: f"{item}?" if at == 1 else f"{item}!", ["3 of 6 prompts differ between one and two"]),
    (lambda item, at: f"{item}?".replace("q3", "q4"), ["2 of 6 prompts differ between one and two"]),
])  # fmt: skip
def test_a_line_says_how_many_prompts_differ_unless_all_do(prompt, notes, tmp_path):
    runs = [quiz(tmp_path, "one", BASE), quiz(tmp_path, "two", BASE, prompt=prompt)]
    found = [note for note in cs.compare(*runs).notes if "prompts differ" in note]
    assert [note.partition(". ")[0] for note in found] == notes


def test_orders_of_more_options_are_those_of_fewer_with_their_prompts(tmp_path):
    """Two options, asked alone and beside three: BCA is BA. A group without options has no orders."""
    lines = [*(f"{at} yes yes;no g" for at in range(4)), "o x . open", "z x x;y;z g"]
    names = ("item", "answer", "options", "group")
    rows = [dict(zip(names, of.split(), strict=True)) for of in lines]
    asked = [(f"{of['item']}?", of["options"].strip(".")) for of in rows]
    large = [of | {"question": q, "options": o} for of, (q, o) in zip(rows, asked, strict=True)]
    runs = [
        cs.evaluate(large, "baseline:random", out=tmp_path / "large").run,
        cs.evaluate(large[:-1], "baseline:constant", out=tmp_path / "small").run,
    ]
    for pair in (runs, runs[::-1]):
        common, compared = Common.of(pair, pair[0].suite), cs.compare(*pair)
        assert common.suite.relations[0].design.variants == ("order=AB", "order=BA")
        assert "Compared on the 9 queries (5 questions) that all runs have" in compared.notes[0]
        alone = asked_nothing_else(tmp_path / pair[0].label, common)
        both = (in_numbers(of) for of in (compared, cs.compare(*alone)))
        assert_frame_equal(*(of.drop("first_value", "second_value") for of in both))
        changed = compared.flips().tables["answers"]
        assert changed.height and changed["prompt"].str.contains("^Question: [0-3o][?]").all()
        cs.write_report([run.path for run in pair], out=tmp_path / "page.html")
        rows = rows_of(data_of(tmp_path / "page.html"))
        assert all(prompt.startswith("Question: ") for _, _, prompt, *_ in rows)


GROUPS = ["capital", "continent", "borders", "sport", "language_family"]  # of both cardinalities
ASKED = {
    "facts": ("mini", {"limit": 3, "groups": GROUPS}),
    "edges": ("hostile", {}),
    "languages": ("mini-languages", {"limit": 3}),
    "pairs": ("mrpc", {"data": "pairs.jsonl"}),
    "questions": ("mini-questions", {"limit": 3, "vary": ("order=rotations", "labels=A,1"), "groups": GROUPS}),
    "one factor": ("mini-questions", {"limit": 2, "vary": ("order=rotations", "labels=A,1"), "design": "one-factor", "groups": GROUPS}),
    "open": ("mini-open", {"limit": 3}),
    "written": ("mini-questions", {"limit": 2, "generate": True, "groups": GROUPS}),
    "expectations": (str(ROOT / "examples" / "consistency" / "reversal"), {"limit": 3}),
}  # fmt: skip
"""A suite and options of each kind of suite."""


def probed(folder, name, model="baseline:random"):
    """The plan and the result of a run."""
    suite, options = ASKED[name]
    folder.mkdir(exist_ok=True)
    if suite == "hostile":
        suite = str(write_hostile_suite(folder / "suite"))
    if "data" in options:
        options = {**options, "data": str(write_pairs(folder / "pairs.jsonl"))}
    plan = plan_of(ProbeOptions(suite=suite, model=model, **options))
    return plan, cs.evaluate(suite, model, out=folder / name, **options)


@pytest.mark.parametrize("name", ASKED)
def test_the_suite_of_a_run_is_that_of_its_plan(name, tmp_path):
    """Beside what only asking needs: how names are written, and notes on files."""
    plan, result = probed(tmp_path, name)
    relations = tuple(replace(group, names={}) for group in plan.suite)
    planned = replace(plan.suite, relations=relations, notes=(), language="en")
    opened = cs.open_run(result.folder)
    assert opened.suite == planned
    assert [one.design.record for one in opened.suite] == [one.design.record for one in planned]
    assert opened.metrics.equals(result.metrics)
    again = kept_run(tmp_path / "again", opened.suite, with_input(result.run))
    assert Run.open(again).suite == replace(planned, expectations=())


def with_input(run):
    return run.answers.with_columns(input=run.queries["input"])


def with_gaps(answers, seed):
    """Some have no answer, and some were not asked."""
    draw = pl.Series(np.random.default_rng(seed).random(answers.height))
    said = pl.when(draw > 0.3).then(pl.col("^(answer|option)$"))
    return answers.with_columns(said, excluded=pl.when(draw < 0.15).then(pl.lit("x")))


KEYS = ["metric", "over", "group", "kind", "level"]


def same(one, other, columns=("value", "low", "high", "n", "n_excluded", "std")):
    one, other = (of.sort(KEYS).select(*KEYS, *columns) for of in (one, other))
    assert_frame_equal(one, other, rel_tol=1e-9, abs_tol=1e-11)


@pytest.mark.parametrize(("name", "protocol"), [
    *((name, "strict") for name in ASKED), ("edges", "published"),
])  # fmt: skip
def test_the_order_of_rows_groups_and_runs_and_names_of_items_change_nothing(name, protocol, tmp_path):  # fmt: skip
    (_, result), (_, other) = (
        probed(tmp_path / of, name, f"baseline:{of}") for of in ("random", "majority")
    )
    suite, (first, second) = result.suite, map(with_gaps, (result.answers, other.answers), (0, 1))
    metrics = measure(first, suite, protocol)
    turned = replace(suite, relations=suite.relations[::-1])
    rows = first.with_columns(input=result.run.queries["input"])
    run = Run.open(kept_run(tmp_path / "2", turned, rows.sample(fraction=1, shuffle=True, seed=1)))
    same(measure(run.answers, turned, protocol), metrics)
    if not suite.expectations:  # which are about items by their names
        names = ("x" + pl.col("item", "subject").str.reverse()).name.keep()
        same(measure(first.with_columns(names), suite, protocol), metrics)
    both = ((first, second), (second, first))
    there, back = (compare({"a": one, "b": two}, suite, protocol) for one, two in both)
    mirrored = {"difference": -pl.col("difference"), "low": -pl.col("high"), "high": -pl.col("low")}
    tests = ("p", "p_mid", "p_holm", "q_value", "detectable", "n", "n_excluded")
    same(there, back.with_columns(**mirrored), [*mirrored, *tests])
    bounded = there.filter(pl.col("low").is_not_nan())
    assert bounded["difference"].is_between(bounded["low"], bounded["high"]).all()
    itself = compare({"a": first, "b": first}, suite, protocol)
    itself = itself.filter(pl.col("difference").is_not_nan())
    assert (itself["difference"] == 0).all() and set(itself["p"].drop_nans()) <= {1}
    assert itself["detectable"].is_nan().all()
    assert (itself["low"] + itself["high"]).drop_nans().abs().max() < 1e-12


def numbers_of_variants(answers, suite, chosen):
    """The numbers of some variants of answers that were given in all of them."""
    only = replace(suite, relations=tuple(group.only(chosen) for group in suite))
    return only, measure(answers.filter(pl.col("variant").is_in(chosen)), only, "strict")


def test_facts_in_some_patterns_have_the_numbers_of_a_suite_without_the_others(tmp_path):
    """Kinds of edits between the patterns that are left; languages."""
    _, result = probed(tmp_path, "edges")
    kept = result.suite.relations[0].patterns[1:]
    names = [one.text for one in kept]
    only, found = numbers_of_variants(result.answers, result.suite, names)
    edges = [{(0, 1): group.edges[1, 2]} if group.edges else {} for group in result.suite]
    small = zip(result.suite, edges, strict=True)
    small = tuple(replace(group, patterns=kept, edges=of) for group, of in small)
    assert only == (without := replace(result.suite, relations=small))
    of_kept = result.answers.filter(pl.col("variant").is_in(names))
    assert found.equals(measure(of_kept, without, "strict"))
    assert found.filter(kind="edit").height
    _, result = probed(tmp_path, "languages")
    suite = result.run.suite
    chosen = select_languages(suite, ["de", "ja"])
    names = [pattern.text for group in chosen for pattern in group.patterns]
    only, found = numbers_of_variants(result.answers, suite, names)
    assert only == chosen
    assert {*found.filter(kind="language")["level"]} == {"de", "ja", "de/ja"}


def test_sentence_pairs_in_some_forms_have_the_numbers_of_a_run_without_the_others(tmp_path):
    run = Run.open(pair_run(tmp_path / "run", {1, 4}))
    only, found = numbers_of_variants(run.answers, run.suite, ["original", "signal"])
    without = suite_of_task(TASKS["rte"], ["original", "signal"], with_text=False)
    assert replace(only.relations[0], facts=()) == without.relations[0]
    assert {*found.filter(kind="form")["level"]} == {"signal"}
    whole = measure(run.answers, run.suite, "strict").filter(level="signal")
    assert found.filter(level="signal").equals(whole)


@pytest.mark.parametrize(("left", "factors"), [
    ({"paraphrase": ("1",)}, ["order"]), ({"order": ("BCA", "CAB")}, ["paraphrase", "order"]),
    ({"order": ("CAB",)}, ["paraphrase"]), ({"order": ("CAB",), "paraphrase": ("2",)}, []),
])  # fmt: skip
def test_questions_in_some_variants_have_the_factors_of_a_run_without_the_others(
    left, factors, tmp_path
):
    """Shares of variance, too: the variants that are left are all combinations of their levels."""
    levels = {"paraphrase": ("1", "2"), "order": ("ABC", "BCA", "CAB")}
    rows = [{"question": f"{at}?", "question_2": f"Say {at}.", "options": "x;y;z", "answer": "x"}
            for at in range(6)]  # fmt: skip
    result = cs.evaluate(rows, "baseline:random", out=tmp_path / "run")
    small = FactorialDesign.full([Factor(name, left.get(name, of)) for name, of in levels.items()])
    only, found = numbers_of_variants(result.answers, result.suite, small.names)
    design = Design.of_cells(small, 3)
    assert only.relations[0].design == design
    assert only.relations[0].design.factorial == small
    without = replace(only, relations=(replace(only.relations[0], given_design=design),))
    of_kept = result.answers.filter(pl.col("variant").is_in(small.names))
    assert found.equals(measure(of_kept, without, "strict"))
    views = factors_of("run", only, CheckedAnswers(of_kept, only), None)
    assert [row[0] for row in factor_table(views, "").rows] == factors


def test_the_examples_of_sentence_pairs_are_the_answers_that_a_form_changed(consilience, tmp_path):
    run = pair_run(tmp_path / "run", {1, 4})
    out = output(consilience, "analyze", "examples", run, "--examples", "1")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Answers that changed, the most confident first" in lines[0]
    assert "original Sentence1: <i>a</i> Sentence2: original not_entailment not_entailment" in lines
    assert "reverse Sentence1: <i>a</i> Sentence2: reverse entailment not_entailment" in lines
    none = pair_run(tmp_path / "none", ())
    for folder, items in (run, ["1", "4"]), (none, []):
        assert cs.analyze_examples(folder).tables["changed_answers"]["item"].to_list() == items
