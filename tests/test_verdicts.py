"""The sentences that a result begins with, made from numbers."""

import math

import polars as pl
import pytest

from consilience.analysis.factor_effects import FactorTables
from consilience.core.schemas import METRICS_SCHEMA
from consilience.report.analysis_tables import FactorView, factor_verdict, pattern_verdict
from consilience.types import FACT_WORDS

NONE = pl.DataFrame()


def factors(rows, flips=None):
    columns = ["factor", "value", "low", "high"]
    noise = pl.DataFrame([{"value": flips}] if flips else [], schema=METRICS_SCHEMA)
    table = pl.DataFrame(rows, schema=columns, orient="row")
    return FactorView("run", FactorTables(table, NONE, NONE, NONE, []), noise)


@pytest.mark.parametrize(("rows", "flips", "sentences"), [
    ([("paraphrase", 0.9, 0.8, 0.95), ("order", 0.2, 0.1, 0.3)], 0.05,
     ["The order of the options (order) changes answers most: variants that differ in nothing else "
      "agree in 20.0 % of pairs.", "The agreement is 90.0 % for paraphrase."]),
    ([("paraphrase", 0.9, 0.8, 0.95), ("order", 0.8, 0.7, 0.85)], 0.1,
     ["The factors order and paraphrase change answers about equally: variants that differ in one "
      "alone agree in 80.0 % and 90.0 % of pairs.",
      "The effect of paraphrase is inside the noise floor: 10.0 % of answers change when "
      "nothing in the prompt does."]),
    ([("order", 0.5, 0.4, 0.6), ("labels", 0.5, 0.4, 0.6)], None,
     ["The factors order and labels change answers about equally: variants that differ in one alone "
      "agree in 50.0 % and 50.0 % of pairs."]),
    ([("order", 0.5, 0.4, 0.6), ("labels", math.nan, math.nan, math.nan)], None,
     ["The order of the options (order) changes answers: variants that differ in nothing else "
      "agree in 50.0 % of pairs."]),
    ([("mine", 0.5, 0.4, 0.6)], None,
     ["The factor (mine) changes answers: variants that differ in nothing else agree in 50.0 % of pairs."]),
    ([("order", 1.0, 1.0, 1.0)], None,
     ["No factor changes an answer: variants that differ in one factor always agree."]),
    ([("order", math.nan, 0.0, 1.0)], None, []),
])  # fmt: skip
def test_factors(rows, flips, sentences):
    assert factor_verdict([factors(rows, flips)]) == sentences
    assert len(factor_verdict([factors(rows, flips)] * 2)) == 2 * bool(sentences)


@pytest.mark.parametrize(("gains", "p", "sentences"), [
    ([-0.1, 0.25, 0.05], 0.01,
     ["Consistency gains most without one pattern: R 50.0 to 75.0 % without 'b'; S 40.0 to 45.0 % "
      "without 'c'.",
      "1 of 1 patterns differ from the first pattern of the same relation in accuracy "
      "(p < 0.05, Holm)."]),
    ([0.0, 0.0, math.nan], math.nan, []),
    ([math.nan] * 3, 1.0,
     ["No pattern differs from the first pattern of the same relation in accuracy (1 pattern, smallest "
      "p 1.000, Holm)."]),
])  # fmt: skip
def test_patterns(gains, p, sentences):
    rows = pl.DataFrame({
        "group": ["R", "R", "S"], "variant_index": [0, 1, 0], "variant": ["a", "b", "c"], "gain": gains,
        "without": 0.5, "consistency": [0.5, 0.5, 0.4], "n": 5, "top_answer": 0.9, "p_holm": [math.nan, p, math.nan],
    })  # fmt: skip
    assert pattern_verdict(rows, FACT_WORDS) == sentences
