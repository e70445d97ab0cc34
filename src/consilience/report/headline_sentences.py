"""Headline numbers in plain sentences."""

from __future__ import annotations

import math

from consilience.design import BETWEEN, WITHIN
from consilience.factors import FACTORS, levels_of
from consilience.report.run_view import RunView
from consilience.report.summary import NO_OPTION, VIOLATIONS, SummaryRow

UNIT = "\N{NO-BREAK SPACE}%"
"""What follows a number in a sentence; a line does not break before it."""

OF_FACTS = {
    "accuracy": "The answer to the base pattern is right for {value} of a relation's "
    "facts, on average.",
    "consistency": "Two patterns of a fact agree {value} of the time{chance}.",
    "determinism": "Two patterns of a fact agree {value} of the time{chance}.",
    VIOLATIONS: "The answers violate {value} of these expectations{chance}.",
    "corrected_consistency": "The agreement covers {value} of the distance from chance to full "
    "agreement.",
    "consistent_accuracy": "The answer is right in every pattern for {value} of a relation's "
    "facts, on average.",
}
"""Sentences of facts by metric."""

OF_QUESTIONS = {
    "accuracy": "The answer in the base variant{base} is right for {value} of the questions.",
    "consistency": "Two variants of a question get the same answer {value} of the time{chance}.",
    "corrected_consistency": OF_FACTS["corrected_consistency"],
    "consistent_accuracy": "The answer is right in every variant for {value} of the questions.",
    NO_OPTION: "{value} of the written answers are none of the options.",
}
"""Sentences of questions by metric."""

ONE_FACTOR = (
    "Two variants that differ only in {factor} get the same answer {value} of the time{chance}."
)
"""The sentence of the consistency of a factor."""

OF_PAIRS = {
    ("accuracy", "all"): "The label of the original form is right for {value} of the pairs.",
    (
        "consistency",
        "all",
    ): "Another form gets the label of the original {value} of the time{chance}.",
    ("consistency", "reverse"): "The label is the same for {value} of the pairs when the two "
    "sentences are swapped{chance}.",
    ("consistency", "signal"): "The label is the same for {value} of the pairs with other words "
    "before the sentences{chance}.",
    ("corrected_consistency", "all"): OF_FACTS["corrected_consistency"],
}
"""Sentences of sentence pairs by metric and form."""

UNDEFINED = "Not defined: all answers are the same, so chance alone gives full agreement."
"""The sentence of a chance-corrected consistency without a value."""

BELOW_CHANCE = "The answers agree less often than expected by chance."
"""The sentence of a negative chance-corrected consistency."""


def sentence_of(run: RunView, row: SummaryRow, chance: float) -> str:
    """A headline number in plain words."""
    if row.metric == "corrected_consistency" and not row.value >= 0:
        return UNDEFINED if math.isnan(row.value) else BELOW_CHANCE
    if math.isnan(row.value):
        return "No data."
    expected = "" if math.isnan(chance) else f" ({_percent(chance)} expected by chance)"
    if run.suite.words.is_pooled and row.metric != VIOLATIONS:
        sentence = OF_QUESTIONS[row.metric] if row.subset == "all" else ONE_FACTOR
        return sentence.format(
            value=_percent(row.value),
            chance=expected,
            factor=FACTORS.get(row.subset, row.subset),
            base=_base_in_words(run),
        )
    sentence = OF_FACTS[row.metric] if run.facts else OF_PAIRS[row.metric, row.subset]
    if row.subset in (WITHIN, BETWEEN):
        language = "one language" if row.subset == WITHIN else "two languages"
        sentence = sentence.replace("of a fact", f"of {language}")
    has_forms = run.facts and "form" in row.meaning
    sentence = sentence.replace("Two patterns of a fact agree", "A pattern and its perturbed forms "
                                "agree") if has_forms else sentence  # fmt: skip
    return sentence.format(value=_percent(row.value), chance=expected)


def _base_in_words(run: RunView) -> str:
    """The levels of the base variant in parentheses, where all groups have the same."""
    bases = {group.design.variants[0] for group in run.suite.relations}
    return f" ({bases.pop()})" if len(bases) == 1 and levels_of(min(bases)) else ""


def _percent(value: float) -> str:
    return f"{value * 100:.1f}{UNIT}"
