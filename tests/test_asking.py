"""Scores become answer columns: against a plain definition, row by row, of random scores."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.items import Ask, Item, Scores
from consilience.plans.asking import judge

NUMBERS = ("logprob", "gold_logprob", "gold_rank", "margin", "n_candidates")


def plain(options, scores, gold):
    """The columns of one row: scores by option, None for one that takes no part."""
    known = {at: score for at, score in enumerate(scores) if score is not None}
    best = max(known, key=lambda at: (known[at], -at))
    mass = math.log(sum(math.exp(score) for score in known.values()))
    row = {"excluded": None, "answer": options[best], "option": best}
    row |= {"n_candidates": len(known), "text_logprob": known[best]}
    row |= {"gold_text_logprob": known[gold], "gold_logprob": known[gold] - mass}
    row |= {"logprob": known[best] - mass}
    if others := [score for at, score in known.items() if at != best]:
        row["margin"] = known[best] - max(others)
    ahead = [at for at in known if (-known[at], at) < (-known[gold], gold)]
    return row | {"gold_rank": 1 + len(ahead)}


@st.composite
def asked(draw):
    """Options, scores (None for one that is excluded), the gold and the shown order."""
    size = draw(st.integers(2, 6))
    score = st.sampled_from([-0.25, -0.5, -1.0, -1.0, -2.5, -4.0])
    scores = draw(st.lists(st.none() | score, min_size=size, max_size=size))
    order = draw(st.permutations(range(size)))
    gold = draw(st.integers(0, size - 1))
    options = tuple(f"o{at}" for at in range(size))
    return options, scores, gold, tuple(order)


@settings(max_examples=300, deadline=None)
@given(st.lists(asked(), min_size=1, max_size=4))
def test_scores_are_judged_by_the_plain_definition(rows):
    """Rows with different numbers of options, each shown in its own random order."""
    rows = [row for row in rows if row[1][row[2]] is not None]
    orders = enumerate(row[-1] for row in rows)
    asks = [Ask(at, 0, None, tuple("ABCDEF"[: len(order)]), order) for at, order in orders]
    items = [Item(str(at), "", row[0][row[2]], row[0], row[2]) for at, row in enumerate(rows)]

    def shown(values, order):
        return np.array([math.nan if values[at] is None else values[at] for at in order])

    scores = Scores.of_rows(
        np.arange(len(rows)),
        [shown(of, order) for _, of, _, order in rows],
        [np.ones(len(order), dtype=int) for *_, order in rows],
    )
    columns = judge(scores, asks, items) if rows else {}
    for at, (options, of, gold, order) in enumerate(rows):
        expected = plain(options, of, gold)
        found = {name: values[at] for name, values in columns.items()}
        assert found["excluded"] == expected["excluded"]
        for name in {*NUMBERS, "answer", "option", "text_logprob", "gold_text_logprob"}:
            value = expected.get(name)
            if value is None or isinstance(value, str | int):
                is_null = found[name] is None or found[name] != found[name]
                assert is_null if value is None else found[name] == value, name
            else:
                assert found[name] == pytest.approx(value, abs=1e-12), name
        assert found["label"] == "ABCDEF"[order.index(expected["option"])]


def test_words_in_another_language_are_answers_of_the_facts():
    """'Rom' wins and is 'Rome'; a word of the model that is no candidate is itself."""
    items = [Item("0", "Italy", "Rome", ("Rome", "Paris"), 0)] * 2
    asks = [Ask(at, 0, None, ("Rom", "Paris")) for at in range(2)]
    totals = np.array([[-1.0, -2.0, -3.0], [-3.0, -2.0, -1.0]])
    scores = Scores(np.arange(2), ("Rom", "Paris", "Bern"), None, totals=totals)
    assert judge(scores, asks, items)["answer"].tolist() == ["Rome", "Bern"]


def test_what_a_model_wrote_is_an_answer_where_it_is_none_of_the_candidates():
    """The second row is no candidate and wrong, the third is no text and no answer."""
    totals = np.array([[0.0, -math.inf], [-math.inf] * 2, [-math.inf] * 2])
    texts = ["yes", "maybe", ""]
    written = {"totals": totals, "answers_only": True, "texts": texts}
    scores = Scores(np.arange(3), ("yes", "no"), None, **written)
    items = [Item(str(at), "", "no", ("yes", "no"), 1) for at in range(3)]
    columns = judge(scores, [Ask(at, 0, None) for at in range(3)], items)
    assert columns["answer"].tolist() == ["yes", "maybe", None]
    assert columns["error"].tolist() == [None, None, "the model wrote no text"]
    assert columns["n_candidates"][:2].tolist() == [2, 2]
