"""How patterns differ: the rules on trees written by hand, and with a parser where one is."""

import math

import pytest

from conftest import cases, real_data
from consilience.analysis import syntax
from consilience.analysis.syntax import (
    Parsed,
    Word,
    agreement_with_released,
    cohen_kappa,
    derive_edges,
    derived_kinds,
    determiner_change,
    lexical_change,
    load_parser,
    paraphrase_types,
    parse_pattern,
    path,
    syntactic_change,
    types_between,
)
from consilience.core.factors import Edge
from consilience.core.patterns import Pattern
from consilience.suites import load_suite
from consilience.types import Candidates, Fact, Relation, Suite


def read(text, tree, **about):
    """A pattern with its tree: ``word/lemma/pos/tag/label/head`` for every word."""
    words = [entry.split("/") for entry in tree.split()]
    texts = [word[0] for word in words]
    words = tuple(Word(*word[:5], int(word[5])) for word in words)
    return Parsed(Pattern.parse(text, **about), words, texts.index("X"), texts.index("Y"))


TREES = {name: read(text, tree) for name, text, tree in cases("trees")}
NAMES = "OF POSSESSIVE INVERTED WHICH IN AT BE_IN HELPS IS_HELPED TWINS"
OF, POSSESSIVE, INVERTED, WHICH, IN, AT, BE_IN, HELPS, IS_HELPED, TWINS = map(
    TREES.get, NAMES.split()
)


@pytest.mark.parametrize(("tree", "steps", "note"), cases("path_steps"))
def test_the_steps_of_a_path(tree, steps, note):
    assert path(TREES[tree]) == tuple(map(tuple, steps)), note


def test_one_preposition_for_another_is_a_lexical_change_and_one_more_is_not():
    assert syntactic_change(HELPS, IS_HELPED) and not syntactic_change(OF, POSSESSIVE)
    assert lexical_change(IN, AT) and lexical_change(IN, BE_IN)
    assert lexical_change(OF, POSSESSIVE), "'s is a lemma"
    assert not lexical_change(OF, INVERTED)
    assert not lexical_change(WHICH, IN), "determiners do not count"
    bare = Parsed(HELPS.pattern, (*HELPS.words, OF.words[2]), HELPS.subject, HELPS.object)
    assert not lexical_change(HELPS, bare) and not lexical_change(bare, HELPS)
    twice = Parsed(HELPS.pattern, (*HELPS.words, HELPS.words[1]), HELPS.subject, HELPS.object)
    assert lexical_change(HELPS, twice) and lexical_change(twice, HELPS)


@pytest.mark.parametrize(("a", "b", "changed"), cases("determiners"))
def test_determiners_are_counted_as_words(a, b, changed):
    first, second = (Parsed(Pattern.parse(text), (), 0, 0) for text in (a, b))
    assert determiner_change(first, second) is determiner_change(second, first) is changed


def test_kappa_worked_out_by_hand():
    """20 both yes, 5 and 10 apart, 15 both no: p = 35/50, e = (25*30 + 25*20)/50^2 = 1/2."""
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    assert cohen_kappa([(b, a) for a, b in pairs]) == pytest.approx(0.4)
    assert cohen_kappa([("a", "a"), ("b", "b"), ("c", "c")]) == 1
    assert cohen_kappa([("a", "b"), ("b", "a")]) == -1
    assert math.isnan(cohen_kappa([]))
    assert math.isnan(cohen_kappa([("a", "a")] * 3))


def relation(*texts, id_="r", edges=None):
    return Relation(
        id_, id_, "N-1", tuple(map(Pattern.parse, texts)), (Fact(f"{id_}/0", "a", "b"),),
        edges or {}, Candidates(("b",), (1,)),
    )  # fmt: skip


def test_agreement_worked_out_by_hand():
    """Four pairs in two relations; every pair counts in both directions.

    ``syntactic``: released TTFT, derived TFFT: p = 3/4, e = (3*2 + 1*2)/16 = 1/2, kappa 1/2.
    ``kind``: released syntax, syntax, none, determiner; derived syntax, none, none, determiner:
    p = 3/4, e = (2*1 + 1*2 + 1*1)/16 = 5/16, kappa 7/11.
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
    table = agreement_with_released(suite, derived).to_dicts()
    rows = {(row["group"], row["attribute"]): row for row in table}
    assert len(rows) == 4 * 4
    row = rows["MICRO", "syntactic"]
    assert (row["n"], row["same"], row["kappa"]) == (8, 0.75, 0.5)
    assert (row["both"], row["only_released"], row["only_derived"]) == (4, 2, 0)
    assert rows["MICRO", "lexical"]["kappa"] == 1
    row = rows["MICRO", "kind"]
    assert (row["n"], row["same"], row["both"]) == (8, 0.75, None)
    assert row["kappa"] == pytest.approx(7 / 11)
    assert (rows["b", "kind"]["same"], rows["b", "determiner"]["both"]) == (1, 2)
    assert math.isnan(rows["b", "kind"]["kappa"]) and math.isnan(rows["c", "kind"]["same"])
    assert rows["c", "kind"]["n"] == 0


def test_types_of_trees_written_by_hand():
    assert types_between(HELPS, IS_HELPED) == {"converse_substitution", "change_of_slot_order"}
    assert types_between(OF, OF) == types_between(TWINS, TWINS) == frozenset()
    assert types_between(OF, POSSESSIVE) == {"function_word_variation"}
    assert types_between(OF, INVERTED) == {"other_syntactic_movement", "change_of_slot_order"}
    assert types_between(IN, AT) == {"function_word_variation"}
    past = Parsed(Pattern.parse(OF.pattern.text, tense="past"), OF.words, OF.subject, OF.object)
    assert types_between(OF, past) == types_between(past, OF) == {"change_of_tense"}
    unsaid = Parsed(Pattern.parse(OF.pattern.text, tense="?"), OF.words, OF.subject, OF.object)
    assert types_between(OF, unsaid) == frozenset(), "is: present"


def test_nouns_that_are_made_of_a_verb():
    made = "owner own, creator create, product produce, specialization specialize, debut debut"
    for pair in f"{made}, release release".split(", "):
        assert syntax.is_made_of(*pair.split()), pair
    for pair in ("party part", "creature create", "own owner"):
        assert not syntax.is_made_of(*pair.split()), pair


@pytest.fixture(scope="module")
def parser():
    pytest.importorskip("spacy")
    pytest.importorskip(syntax.ENGLISH)
    return load_parser()


@pytest.mark.parametrize("text", [
    "[X] was written by [Y].", "[Y]'s best book,  [X]", "a [Y]-born painter : [X] .",
    "[X]. It is [Y].", "[X] ([Y]).", "[X][Y]",
])  # fmt: skip
def test_the_slots_are_found_again_in_one_tree(text, parser):
    parsed = parse_pattern(Pattern.parse(text), parser)
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
    edges = derive_edges(relation(*texts), parser)
    assert list(edges) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    assert (edges[0, 1], edges[0, 2]) == (Edge(True, False, False), Edge(False, True, True))
    assert (edges[0, 3], edges[0, 4].kind) == (Edge(False, True, False), "no_change")
    assert derive_edges(relation("[X] is [Y]."), parser) == {}


@pytest.mark.parametrize(("a", "b", "types"), cases("paraphrase_types"))
def test_types_are_derived(a, b, types, parser):
    assert paraphrase_types(relation(a, b), parser) == {(0, 1): set(types)}
    assert paraphrase_types(relation(b, a), parser) == {(0, 1): set(types)}


def test_kinds_are_types_and_changes(parser):
    suite = Suite("s", (relation("[X] sings in [Y].", "[X] often sings in the [Y]."),), "strict")
    kinds = {"irrelevant_addition", "lexis", "determiner"}
    assert derived_kinds(suite, parser) == {"r": {(0, 1): kinds}}


def overall(suite, parser):
    derived = {each.id: derive_edges(each, parser) for each in suite.relations}
    table = agreement_with_released(suite, derived)
    return {row["attribute"]: row for row in table.iter_rows(named=True) if row["group"] == "MICRO"}


def test_the_bundled_suites_edges_are_found_again(parser):
    agreement = overall(load_suite("mini"), parser)
    assert agreement["determiner"]["same"] == 1
    assert agreement["lexical"]["same"] > 0.99 and agreement["syntactic"]["same"] > 0.95


def test_the_released_edges_are_found_again(parser):
    """3,442 directed edges: determiners exactly, lemmas 99.7 %, paths 98.8 %, kinds 99.2 %."""
    agreement = overall(load_suite(str(real_data("pararel"))), parser)
    assert {row["n"] for row in agreement.values()} == {3442}
    assert (agreement["determiner"]["same"], agreement["determiner"]["both"]) == (1, 1992)
    assert agreement["lexical"]["kappa"] > 0.96
    assert agreement["syntactic"]["kappa"] > 0.92
    assert agreement["kind"]["kappa"] > 0.97
