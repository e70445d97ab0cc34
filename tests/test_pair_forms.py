"""Forms of sentence pairs as a model is asked them: lengths, changed answers."""

from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from consilience.analysis.examples import CHANGED_ANSWERS_SCHEMA, changed_answers
from consilience.core.items import TextPair
from consilience.plans.asking import query_table
from consilience.plans.pairs import present_pairs
from consilience.suites.pairs import chosen, original
from pair_builders import (
    FORMS,
    MRPC,
    PAIRS,
    SAME,
    present,
    shown,
    shuffled,
    suite_of,
    table,
)


def size(model, form):
    """The tokens of a form; T5 writes none of them."""
    if hasattr(model, "input"):
        return len(model.input.encode([form])[0]["input_ids"])
    return len(model.model.prompt_ids(model.prompt(form)))


@pytest.mark.parametrize(("family", "longest"), [("bert", 24), ("llama", 40), ("t5", 40)])
def test_a_pair_of_which_a_form_is_too_long_is_not_asked(family, longest, load, writer):
    """In all forms or in none, so all forms are of the same pairs; the first reason is named."""
    model = writer("t5", longest=longest) if family == "t5" else load(family, longest=longest)
    pairs = [TextPair(str(n), "Rome " * n, "Oslo", SAME[0]) for n in (1, *range(5, 20), 40)]
    group = present(pairs, FORMS[1:], model)
    reasons = [{one.why_not for one in group.asks[at : at + 3]} for at in range(0, 51, 3)]
    assert all(len(of_pair) == 1 for of_pair in reasons)
    sizes = [max(size(model, form) for form in forms) for forms in shown(group)]
    assert 0 < sum(each > longest for each in sizes) < 17
    for (reason,), most in zip(reasons, sizes, strict=True):
        assert (reason is None) == (most <= longest)
        assert reason is None or reason.endswith(f" tokens, and the model takes {longest}")


def changes_of(answers):
    """The changed answers to the first of the pairs."""
    first = partial(original, indicators=MRPC.indicators)
    pairs = PAIRS[: answers["item"].n_unique()]
    group = present_pairs(MRPC, pairs, first, chosen(FORMS[1:]), None)
    queries = query_table(replace(group, id="t"), lambda form: [one.text for one in form])
    return changed_answers(queries, answers, suite_of(answers.drop_nulls("answer"), labels=SAME))


def test_changed_answers_the_surest_first():
    """Item 0 keeps its answer; 1 changes in both forms, 2 in signal; 3 has no answer.

    The margin of a change is the smaller one of both: item 1 min(2, 3) and min(2, .5), item 2 1.
    """
    no, yes = SAME
    said = [(yes, yes, yes), (yes, no, no), (no, no, yes), (None, None, None)]
    margins = [9, 9, 9, 2, 3, 0.5, 1, 7, 4, None, None, None]
    answers = table([(str(at), yes, row) for at, row in enumerate(said)])
    answers = answers.with_columns(margin=pl.Series(margins, dtype=pl.Float64))
    changes = changes_of(shuffled(answers))
    assert dict(changes.schema) == CHANGED_ANSWERS_SCHEMA
    columns = ["item", "perturbation", "original_answer", "answer", "margin"]
    assert changes.select(columns).rows() == [
        ("1", "reverse", yes, no, 2.0), ("2", "signal", no, yes, 1.0), ("1", "signal", yes, no, 0.5),
    ]  # fmt: skip
    assert changes.row(0, named=True) == {
        "group": "t", "perturbation": "reverse", "item": "1", "gold": yes,
        "original_answer": yes, "answer": no, "margin": 2.0,
        "original_1": "Sentence1: Paris is the capital of France.",
        "original_2": "Sentence2: Berlin is the capital of Germany.",
        "text_1": "Sentence2: Berlin is the capital of Germany.",
        "text_2": "Sentence1: Paris is the capital of France.",
    }  # fmt: skip


def test_an_answer_that_is_no_label_is_a_change():
    """The same string twice counts; a label after no label does as well."""
    rows = [("0", SAME[1], ["x", "x", SAME[1]]), ("1", SAME[1], [SAME[1]] * 3)]
    changes = changes_of(table(rows))
    found = changes.select("item", "perturbation", "answer").rows()
    assert found == [("0", "reverse", "x"), ("0", "signal", SAME[1])]
    assert changes["margin"].null_count() == 2
