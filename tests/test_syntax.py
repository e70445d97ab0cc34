"""How patterns differ: the rules on trees written by hand, and with a parser where one is."""

import math

import pytest

from conftest import cases, real_data
from consilience.analysis import syntax
from consilience.analysis.syntax import (
    Parsed,
    Word,
    agreement_with_released,
    derive_edges,
    derived_kinds,
    determiner_change,
    lexical_change,
    load_parser,
    parse_pattern,
    path,
    syntactic_change,
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


def relation(*texts, id_="r", edges=None):
    return Relation(
        id_, id_, "N-1", tuple(map(Pattern.parse, texts)), (Fact(f"{id_}/0", "a", "b"),),
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
    table = agreement_with_released(suite, derived).to_dicts()
    rows = {(row["group"], row["attribute"]): row for row in table}
    assert len(rows) == 4 * 3
    row = rows["", "syntactic"]
    assert (row["n"], row["same"]) == (8, 0.75)
    assert (row["both"], row["only_released"], row["only_derived"]) == (4, 2, 0)
    assert rows["", "lexical"]["same"] == 1 and rows["b", "determiner"]["both"] == 2
    assert math.isnan(rows["c", "lexical"]["same"]) and rows["c", "lexical"]["n"] == 0


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


def test_kinds_are_changes(parser):
    suite = Suite("s", (relation("[X] sings in [Y].", "[X] often sings in the [Y]."),), "strict")
    assert derived_kinds(suite, parser) == {"r": {(0, 1): {"lexis", "determiner"}}}


def overall(suite, parser):
    derived = {each.id: derive_edges(each, parser) for each in suite.relations}
    table = agreement_with_released(suite, derived)
    return {row["attribute"]: row for row in table.iter_rows(named=True) if row["group"] == ""}


def test_the_bundled_suites_edges_are_found_again(parser):
    agreement = overall(load_suite("mini"), parser)
    assert agreement["determiner"]["same"] == 1
    assert agreement["lexical"]["same"] > 0.99 and agreement["syntactic"]["same"] > 0.95


def test_the_released_edges_are_found_again(parser):
    """3,442 directed edges: determiners exactly, lemmas 99.7 %, paths 98.8 %."""
    agreement = overall(load_suite(str(real_data("pararel"))), parser)
    assert {row["n"] for row in agreement.values()} == {3442}
    assert (agreement["determiner"]["same"], agreement["determiner"]["both"]) == (1, 1992)
    assert agreement["lexical"]["same"] > 0.99 and agreement["syntactic"]["same"] > 0.98
