"""Analyses of answers that the tests write down: patterns, edits, examples, knowledge."""

import json
import math
import re
from pathlib import Path
from shutil import copytree

import numpy as np
import polars as pl
import pytest

from checks import output, refusal
from conftest import cases, real_data, run_command
from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.analysis import patterns as syntax
from consilience.analysis.examples import KINDS, REPLY_SCHEMA, examples, item_agreement
from consilience.core.factors import Edge
from consilience.report.layouts import pattern_verdict
from consilience.suites import load_suite
from consilience.types import FACT_WORDS
from test_metrics import EDGES, HAND, PATTERNS, make_suite, table


def test_pairs_of_patterns_by_hand():
    """Patterns 1 and 2 agree in tuples 1 and 3, 1 and 3 in 1 and 3, 2 and 3 in 1, 2 and 3.

    The first pattern is right in tuples 1 and 2 of 4, the others in 1: one lost, none gained. It
    agrees with either by 2/4; the other two with each other by 3/4. Of 2 of 4 subjects without one
    1/3 or 2/3 is left: the error is sqrt(3/4 * 4 * (1/6)^2), t is 3.182 and the logit's slope 4.
    """
    pairs = syntax.pair_table(table(HAND), make_suite(), "strict")
    columns = ("edit", "agreement", "first_accuracy", "second_accuracy", "change", "p", "n")
    assert pairs.select(columns).rows() == [
        ("diff_lexical", 2 / 4, 2 / 4, 1 / 4, -1 / 4, 1, 4),
        ("diff_syntax", 2 / 4, 2 / 4, 1 / 4, -1 / 4, 1, 4),
        ("no_change", 3 / 4, 1 / 4, 1 / 4, 0, 1, 4),
    ]
    reach = 3.182446 * math.sqrt(3) / 6 * 4
    assert pairs["low"][0] == pytest.approx(1 / (1 + math.exp(reach)))
    # No change in 4 subjects, and one more in each direction: Fisher's z, t of 5 degrees.
    assert pairs["change_high"][2] == pytest.approx(math.tanh(2.570582 * math.sqrt(2 / 30)))
    patterns = syntax.with_changes(syntax.pattern_table(table(HAND), make_suite(), "strict"), pairs)
    assert patterns["gain"].to_list() == pytest.approx([3 / 4 - 7 / 12, -1 / 12, -1 / 12])
    columns = ("agreement", "accuracy", "top_answer", "change", "p_holm")
    first, *others = patterns.select(columns).rows()
    assert first[:3] == (2 / 4, 2 / 4, 3 / 4) and math.isnan(first[3])
    assert others == [(2.5 / 4, 1 / 4, 2 / 4, -1 / 4, 1)] * 2


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_items_agree_in_so_many_pairs(protocol):
    found = item_agreement(table(HAND), make_suite(), protocol).sort("item")
    assert found.select("same", "pairs").rows() == [(3, 3), (1, 3), (3, 3), (0, 3)]


BROKEN = ("[X] 1 [Y]", "[X] 2 [Y]", "[X] 3 [Y]", "[X] 4 [Y]")


def test_a_broken_pattern_costs_consistency():
    """Two give four golds, two the same wrong word but once: pairs 1 and 3/4 of six agree.

    Without a broken one 1 of 3 pairs agrees, without a good one 3/4 of 3.
    """
    rows = [(str(at), f"s{at}", gold, [gold, gold, "z", "z"]) for at, gold in enumerate("abcd")]
    rows[0][-1][3] = "y"
    answers, suite = table(rows, patterns=BROKEN), make_suite(BROKEN, edges={})
    good, bad = (7 / 24, 1 / 4, -1 / 24), (7 / 24, 1 / 3, 1 / 24)
    for protocol in ("strict", "published"):
        found = syntax.pattern_table(answers, suite, protocol)
        rows = found.select("consistency", "without", "gain").to_numpy()
        assert rows == pytest.approx(np.array([good, good, bad, bad]))
        assert found["top_answer"].to_list() == [1 / 4, 1 / 4, 1, 3 / 4]
    found = found.with_columns(p_holm=pl.lit(math.nan))
    (sentence,) = pattern_verdict(found, FACT_WORDS)
    assert sentence.endswith("without one pattern: R 29.2 to 33.3 % without '[X] 3 [Y]'.")


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_consistency_without_patterns_is_that_of_the_others(protocol):
    """Random answers of which some are missing and some were not asked."""
    texts, generator = tuple(f"[X] {at} [Y]" for at in range(5)), np.random.default_rng(1)
    draws = generator.random((9, 5))
    rows = [(str(at), f"s{at}", "o", [str(x) for x in of]) for at, of in enumerate(draws * 3 // 1)]
    answers = table(rows, patterns=texts).with_columns(
        answer=pl.when(pl.Series(generator.random(45)) < 0.8).then("answer"),
        excluded=pl.when(pl.Series(generator.random(45)) < 0.2).then(pl.lit("why")),
    ).with_columns(answer=pl.when(pl.col("excluded").is_null()).then("answer"))  # fmt: skip

    def consistency(left_out):
        others = answers.filter(pl.col("variant") != left_out)
        rows = measure(others, make_suite(texts, edges={}), protocol)
        return rows.filter(metric="consistency", over="group")["value"][0]

    found = syntax.pattern_table(answers, make_suite(texts, edges={}), protocol)
    assert found["without"].to_list() == pytest.approx([consistency(text) for text in texts])


def test_a_pattern_that_was_not_asked_has_no_agreement():
    """What was asked without an answer agrees with nothing."""
    rows = table([("1", "Ada", "a", ["a", "a", None])])
    asked = syntax.pattern_table(rows, make_suite(), "strict")
    assert asked.select("agreement", "top_answer", "n").rows()[2] == (0, 0, 1)
    assert asked["gain"].to_list() == pytest.approx([-1 / 3, -1 / 3, 2 / 3])
    why = pl.when(pl.col("answer").is_null()).then(pl.lit("why"))
    found = syntax.pattern_table(rows.with_columns(excluded=why), make_suite(), "strict")
    last = found.row(-1, named=True)
    assert math.isnan(last["agreement"]) and last["gain"] == 0
    answers = table([("1", "Ada", "a", ["a"])], patterns=PATTERNS[:1])
    one = syntax.pattern_table(answers, make_suite(PATTERNS[:1], edges={}), "strict")
    assert one["gain"].is_nan().all()


def test_edits_by_hand():
    """Of the pairs (lexical, syntactic, none) .5, .5 and .75 agree; others: .625, .625, .5."""
    suite = make_suite()
    kinds = syntax.annotated_kinds(suite)
    assert kinds["R"] == {(0, 1): {"lexis"}, (0, 2): {"syntax", "order"}, (1, 2): {"order"}}
    edits = syntax.edit_table(table(HAND), suite, "strict", kinds)
    rows = {row["kind"]: row for row in edits.iter_rows(named=True)}
    assert (rows["lexis"]["with_it"], rows["lexis"]["without_it"]) == (2 / 4, 5 / 8)
    assert rows["order"]["difference"] == pytest.approx(5 / 8 - 2 / 4)
    assert (rows["order"]["pairs"], rows["order"]["relations"]) == (2, 1)
    assert math.isnan(rows["order"]["low"])  # one relation has no interval


def test_tenses_differ_only_where_both_are_known():
    tenses = {"[X] is in [Y].": "present", "[X] was in [Y].": "past", "[X], [Y]": "?"}
    patterns = tuple(Pattern(text, tense=tense) for text, tense in tenses.items())
    relation = Relation("R", "R", "N-1", patterns, (), EDGES, Candidates((), ()))
    kinds = syntax.annotated_kinds(Suite("s", (relation,), "strict"))["R"]
    assert ["tense" in kinds[pair] for pair in EDGES] == [True, False, False]


def test_edits_are_tested_over_relations():
    """The same difference in six relations: 2 of 64 signs are as far out; three kinds: times 3.

    In a seventh all pairs agree: the differences -1/8 and 0 have an error of sd / sqrt(7).
    """
    suite = make_suite(ids=tuple("ABCDEF"))
    answers = pl.concat([table(HAND, group=each) for each in "ABCDEF"])
    edits = syntax.edit_table(answers, suite, "strict", syntax.annotated_kinds(suite))
    assert (set(edits["p"]), set(edits["p_holm"])) == ({2 / 64}, {3 * 2 / 64})
    assert (edits["low"].is_nan() & edits["high"].is_nan()).all(), "the relations do not vary"
    suite = make_suite(ids=tuple("ABCDEFG"))
    answers = pl.concat([answers, table([("1", "Ada", "a", ["a"] * 3)], group="G")])
    edits = syntax.edit_table(answers, suite, "strict", syntax.annotated_kinds(suite))
    row = edits.filter(kind="lexis").row(0, named=True)
    differences = [-1 / 8] * 6 + [0]
    mean, error = np.mean(differences), np.std(differences, ddof=1) / math.sqrt(7)
    assert (row["difference"], row["p"]) == (pytest.approx(mean), 2 / 64)
    # On Fisher's scale, with t of 6 degrees of freedom.
    reach = 2.446912 * error / (1 - mean**2)
    assert row["low"] == pytest.approx(math.tanh(math.atanh(mean) - reach), rel=1e-5)


FACTS = (Fact("1", "Ada", "a"), Fact("2", "Ada", "b"))


def suite_of_facts():
    (relation,) = make_suite().relations
    relation = Relation("R", "R", "N-M", relation.patterns, FACTS, EDGES, Candidates.of(FACTS))
    return Suite("s", (relation,), "strict")


@pytest.mark.parametrize(("answers", "subject", "kinds"), cases("examples_of_kinds"))
def test_an_item_is_an_example_of_its_kinds(answers, subject, kinds):
    answers = table([("1", subject, "a", answers)]).with_columns(margin=pl.lit(1.0))
    found = examples(answers, suite_of_facts(), list(KINDS), 5)
    assert {kind for kind, every in found.items() if every} == set(kinds)
    assert all(each.kind == kind for kind, every in found.items() for each in every)


def test_the_most_telling_come_first_and_every_relation_has_its_turn():
    """Sure of the right and of the wrong answer: the less sure of the two decides."""
    suite = make_suite(ids=("R", "S"))
    margins = {"1": (3.0, 2.0, 0.0), "2": (9.0, 1.0, 1.0), "3": (4.0, 4.0, 4.0)}
    parts = []
    for item, margin in margins.items():
        rows = table([(item, f"s{item}", "a", ["a", "b", "b"])], group="S" if item == "2" else "R")
        parts.append(rows.with_columns(margin=pl.Series(margin)))
    found = examples(pl.concat(parts), suite, ["right_and_wrong"], 5)["right_and_wrong"]
    assert [each.item for each in found] == ["3", "2", "1"]
    assert [reply.answer for reply in found[0].telling] == ["a", "b", "b"]
    verdicts = [found[0].verdict(reply) for reply in found[0].telling]
    assert verdicts == ["right", "wrong", "wrong"]


def test_an_answer_that_is_right_of_the_subject_elsewhere_is_shown_as_such():
    """b is another right answer, and the least confident; c, d and e precede it."""
    patterns = ("[X] 1 [Y]", "[X] 2 [Y]", "[X] 3 [Y]", "[X] 4 [Y]")
    said = [("1", "Ada", "a", ["c", "d", "e", "b"]), ("2", "Ada", "b", ["x"] * 4)]
    rows = table(said, "R", patterns).with_columns(margin=pl.Series([4.0, 3.0, 2.0, 1.0] * 2))
    found = examples(rows, make_suite(patterns, edges={}), ["other_gold"], 1)["other_gold"]
    shown = [(reply.answer, found[0].verdict(reply)) for reply in found[0].telling]
    assert shown == [("b", "right for another fact"), ("c", "wrong"), ("d", "wrong")]


def test_margins_may_be_missing_and_are_numbers_in_a_csv_file():
    """10 is more than 9, and what is no number is not known."""
    (found,) = examples(table(HAND), make_suite(), ["scattered"], 1)["scattered"]
    assert (found.item, len(found.telling), found.replies[0].margin) == ("4", 3, None)
    rows = table([("1", "s", "a", ["a", "b", "b"]), ("2", "t", "a", ["a", "b", "b"])])
    rows = rows.with_columns(margin=pl.Series(["9", "9", "1", "10", "10", "?"]))
    (first, second) = examples(rows, make_suite(), ["right_and_wrong"], 2)["right_and_wrong"]
    assert (first.item, second.item) == ("2", "1")
    assert [each.margin for each in first.replies] == [10.0, 10.0, None]


def metrics_of(*relations):
    """Metrics of relations with so many of three tuples right everywhere, the others scattered."""
    ids = tuple("ABCD"[: len(relations)])
    parts = []
    for each, right in zip(ids, relations, strict=True):
        answers = [["a"] * 3 if n < right else ["b", "c", "d"] for n in range(3)]
        rows = [(str(n), f"s{n}", "a", of) for n, of in enumerate(answers)]
        parts.append(table(rows, group=each))
    return measure(pl.concat(parts), make_suite(ids=ids), "strict")


def test_accuracy_goes_with_consistency_where_only_known_facts_agree():
    found = syntax.correlation_table({"run": metrics_of(0, 1, 2, 3)})
    row = found.filter((pl.col("x") == "accuracy") & (pl.col("y") == "consistency"))
    numbers = row.select("value", "p", "n").to_numpy()
    assert numbers == pytest.approx(np.array([(1, 2 / 24, 4)] * 2))  # the same order and back


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of runs, which tests only read."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("majority", "random", "oracle"):
        command = ("probe", "--model", f"baseline:{name}", "--groups", "sport,capital")
        assert run_command(*command, "--out", folder / name)[0] == 0
    return folder


@pytest.mark.parametrize(("more", "relations"), [((), 2), (("--groups", "capital"), 1)])
def test_patterns_begin_with_their_result(more, relations, consilience, runs):
    command = ("analyze", "patterns", runs / "random", *more)
    text = output(consilience, *command)
    shown = " ".join(text.split())
    sentences = json.loads(output(consilience, *command, "--json"))["verdict"]
    assert shown.startswith(" ".join(sentences)) and len(sentences) == 1
    blocks = [line for line in text.splitlines() if line in ("sport:", "capital:")]
    assert len(blocks) == (relations if relations > 1 else 0), "one block a relation"
    assert "'s capital is [Y]. " in shown


def test_the_variants_of_facts_are_patterns(consilience, runs):
    by = [
        output(consilience, "score", runs / "random", "--by", of) for of in ("variant", "pattern")
    ]
    assert by[0] == by[1]


def test_analyses_are_written(consilience, runs, tmp_path):
    def analyzed(name, *more):
        """The keys of the JSON; there is text, too, and CSV."""
        command = ("analyze", name, runs / "random", *more)
        assert output(consilience, *command).strip()
        file.write_text(output(consilience, *command, "--format", "csv"), encoding="utf-8")
        return set(json.loads(output(consilience, *command, "--json")))

    file = tmp_path / "written.csv"
    assert analyzed("patterns") == {"verdict", "patterns", "pairs", "warnings"}
    assert pl.read_csv(file).height == 2 * 9
    assert analyzed("edits") == {"verdict", "edits", "warnings"}
    record = copytree(runs / "random", part := tmp_path / "part") / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"finished": None}))
    assert "Not finished" in output(consilience, "analyze", "edits", part, "--json")
    more = (runs / "majority", runs / "oracle")
    assert analyzed("knowledge", *more) == {"verdict", "correlations", "warnings"}
    assert pl.read_csv(file)["method"].to_list() == ["pearson", "spearman"] * 9
    assert analyzed("examples", "--examples", 2) == {"verdict", "examples", "warnings"}
    found = pl.read_csv(file, schema=REPLY_SCHEMA).filter(kind="right_and_wrong")
    assert found.select("group", "item").n_unique() == 2
    assert found.height == 2 * 9, "a row for each of nine patterns"
    assert set(found["right"]) == {True, False}
    assert (found["right"] == (found["answer"] == found["gold"])).all()


def test_relations_with_several_right_answers_are_compared_by_determinism(consilience):
    for model in ("random", "majority"):
        asked = ("--model", f"baseline:{model}", "--groups", "borders", "--limit", 9)
        assert consilience("probe", *asked, "--out", model)[0] == 0
    out = output(consilience, "compare", "random", "majority")
    assert "Determinism" in out and "Consistency " not in out
    assert consilience("report", "random", "majority", "--out", "both.html")[0] == 0
    page = Path("both.html").read_text(encoding="utf-8")
    title = "<caption[^>]*>mini: baseline:majority minus baseline:random"
    tables = re.findall(rf"<table[^>]*>\s*{title}.*?</table>", page, re.S)
    assert tables and all("Determinism" in table for table in tables)


def test_comparing_from_the_command_line(consilience, runs, tmp_path):
    both = (runs / "random", runs / "oracle")
    out = output(consilience, "compare", *both)
    assert "baseline:oracle minus baseline:random, in percent and points" in out
    assert len(out.splitlines()) <= 14
    assert "p (Holm)" in output(consilience, "compare", *both, "--by", "group")
    assert "Diff-Lexical" in output(consilience, "compare", *both, "--by", "edit")
    _, out, err = consilience("compare", *both, "--by", "metric")
    assert out.count("Known consistency") == 1
    assert "means over 2 relations, p is at least 0.5" in err
    document = json.loads(output(consilience, "compare", *both, "--json"))
    csv = output(consilience, "compare", *both, "--format", "csv")
    assert len(document["differences"]) == pl.read_csv(csv.encode()).height
    rows = pl.DataFrame(document["differences"], infer_schema_length=None)
    (row,) = rows.filter(metric="consistent_accuracy", group="sport").to_dicts()
    assert (row["second_value"], row["test"], row["p_holm"] < 0.001) == (1, "exact McNemar", True)


@pytest.mark.parametrize(("command", "message"), cases("analysis_bad"))
def test_bad_requests_are_refused(consilience, runs, command, message):
    names = ("random", "oracle", "nowhere")
    err = refusal(consilience, *(runs / each if each in names else each for each in command))
    assert re.search(message, " ".join(err.split()))


def test_runs_under_other_rules_are_noted(consilience, runs, tmp_path):
    other = tmp_path / "published"
    run = ("--groups", "sport,capital", "--protocol", "published", "--out", other)
    assert consilience("probe", "--model", "baseline:random", *run)[0] == 0
    _, _, err = consilience("compare", runs / "random", other)
    assert "(published) was asked under the protocol published" in err


def read(text, tree, **about):
    """A pattern with its tree: ``word/lemma/pos/tag/label/head`` for every word."""
    words = [entry.split("/") for entry in tree.split()]
    texts = [word[0] for word in words]
    words = tuple(syntax.Word(*word[:3], word[4], int(word[5])) for word in words)
    return syntax.Parsed(Pattern(text, **about), words, texts.index("X"), texts.index("Y"))


TREES = {name: read(text, tree) for name, text, tree in cases("trees")}


@pytest.mark.parametrize(("tree", "steps", "note"), cases("path_steps"))
def test_the_steps_of_a_path(tree, steps, note):
    assert syntax.path(TREES[tree]) == tuple(map(tuple, steps)), note


def test_one_preposition_for_another_is_a_lexical_change_and_one_more_is_not():
    """And 's is a lemma, determiners do not count; of a verb twice and of one preposition more."""
    assert syntax.syntactic_change(TREES["HELPS"], TREES["IS_HELPED"])
    assert not syntax.syntactic_change(TREES["OF"], TREES["POSSESSIVE"])
    for first, second, is_change in (
        ("IN", "AT", True), ("IN", "BE_IN", True), ("OF", "POSSESSIVE", True),
        ("OF", "INVERTED", False), ("WHICH", "IN", False),
    ):  # fmt: skip
        assert syntax.lexical_change(TREES[first], TREES[second]) is is_change, (first, second)
    helps = TREES["HELPS"]
    for more, is_change in ((TREES["OF"].words[2], False), (helps.words[1], True)):
        longer = syntax.Parsed(helps.pattern, (*helps.words, more), helps.subject, helps.object)
        for one, two in (helps, longer), (longer, helps):
            assert syntax.lexical_change(one, two) is is_change


@pytest.mark.parametrize(("a", "b", "changed"), cases("determiners"))
def test_determiners_are_counted_as_words(a, b, changed):
    first, second = (syntax.Parsed(Pattern(text), (), 0, 0) for text in (a, b))
    for one, two in (first, second), (second, first):
        assert syntax.determiner_change(one, two) is changed


def relation(*texts, id_="r", edges=None):
    return Relation(
        id_, id_, "N-1", tuple(map(Pattern, texts)), (Fact(f"{id_}/0", "a", "b"),),
        edges or {}, Candidates(("b",), (1,)),
    )  # fmt: skip


def test_agreement_worked_out_by_hand():
    """Four pairs in two relations; every pair counts in both directions.

    ``syntactic``: released TTFT, derived TFFT: 3/4.
    """
    syntactic, nothing = Edge(True, False, False), Edge(False, False, False)
    determiner = Edge(True, True, True)
    texts = ["[X] is [Y].", "[Y] is [X].", "[X] was [Y]."]
    edges = {(0, 1): syntactic, (0, 2): syntactic, (1, 2): nothing}
    suite = Suite("s", (
        relation(*texts, id_="a", edges=edges),
        relation(*texts[:2], id_="b", edges={(0, 1): determiner}),
        relation(*texts, id_="c"),
    ), "strict")  # fmt: skip
    derived = {"a": edges | {(0, 2): nothing}, "b": {(0, 1): determiner}}
    table = syntax.agreement_with_released(suite, derived).to_dicts()
    rows = {(row["group"], row["attribute"]): row for row in table}
    assert len(rows) == 4 * 3
    numbers = {"n": 8, "same": 0.75, "both": 4, "only_released": 2, "only_derived": 0}
    assert numbers.items() <= rows["", "syntactic"].items()
    assert rows["", "lexical"]["same"] == 1 and rows["b", "determiner"]["both"] == 2
    assert math.isnan(rows["c", "lexical"]["same"]) and rows["c", "lexical"]["n"] == 0


@pytest.fixture(scope="module")
def parser():
    pytest.importorskip("spacy")
    pytest.importorskip(syntax.PARSER)
    return syntax.load_parser()


@pytest.mark.parametrize("text", [
    "[X] was written by [Y].", "[Y]'s best book,  [X]", "a [Y]-born painter : [X] .",
    "[X]. It is [Y].", "[X] ([Y]).", "[X][Y]",
])  # fmt: skip
def test_the_slots_are_found_again_in_one_tree(text, parser):
    parsed = syntax.parse_pattern(Pattern(text), parser)
    subject, object_ = (parsed.words[at].text for at in (parsed.subject, parsed.object))
    assert (subject, object_) == syntax.FILLERS or text == "[X][Y]"
    roots = [at for at, word in enumerate(parsed.words) if word.head == at]
    assert len(roots) == 1
    assert not {word.text for word in parsed.pattern_words} & set(syntax.FILLERS)


def test_edges_are_derived(parser):
    texts = (
        "The river of [X] is [Y].", "[Y] is the river of [X].", "[X]'s river is [Y].",
        "The great river of [X] is [Y].", "The river of [X] was [Y].",
    )  # fmt: skip
    edges = syntax.derive_edges(relation(*texts), parser)
    assert list(edges) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    assert (edges[0, 1], edges[0, 2]) == (Edge(True, False, False), Edge(False, True, True))
    assert (edges[0, 3], edges[0, 4].kind) == (Edge(False, True, False), "no_change")
    assert syntax.derive_edges(relation("[X] is [Y]."), parser) == {}


def test_kinds_are_changes(parser):
    suite = Suite("s", (relation("[X] sings in [Y].", "[X] often sings in the [Y]."),), "strict")
    assert syntax.derived_kinds(suite, parser) == {"r": {(0, 1): {"lexis", "determiner"}}}


def test_the_released_edges_are_found_again(parser):
    """3,442 directed edges: determiners exactly, lemmas 99.7 %, paths 98.8 %."""
    suite = load_suite(str(real_data("pararel")))
    derived = {each.id: syntax.derive_edges(each, parser) for each in suite.relations}
    overall = syntax.agreement_with_released(suite, derived).filter(group="")
    agreement = {row["attribute"]: row for row in overall.to_dicts()}
    assert {row["n"] for row in agreement.values()} == {3442}
    assert (agreement["determiner"]["same"], agreement["determiner"]["both"]) == (1, 1992)
    assert agreement["lexical"]["same"] > 0.99 and agreement["syntactic"]["same"] > 0.98
