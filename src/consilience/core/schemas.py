"""The tables between the stages: answers, metrics, comparisons."""

from __future__ import annotations

import polars as pl

Schema = dict[str, type[pl.DataType]]


def _schema(*rows: tuple[type[pl.DataType], str]) -> Schema:
    """Columns in their order: for each row a type and the names of the columns that have it."""
    return {name: type_ for type_, names in rows for name in names.split()}


ANSWERS_SCHEMA: Schema = _schema(
    (pl.String, "suite group item subject variant"),
    (pl.Int32, "variant_index"),
    (pl.String, "gold gold_token answer"),
    (pl.Float64, "logprob gold_logprob"),
    (pl.Int32, "gold_rank"),
    (pl.Float64, "margin text_logprob gold_text_logprob"),
    (pl.Int32, "n_candidates"),
    (pl.String, "excluded error"),
)
"""One row a query, in the order of facts and, within a fact, of patterns.

``logprob`` and ``gold_logprob`` are log-probabilities in nats, normalised over the candidates.
``gold_rank`` 1 is best. ``margin`` is best minus second. They are null where not all candidates
were scored in full. ``text_logprob`` and ``gold_text_logprob`` are those of the text that the
answer and the gold make, not normalised: the whole sentence of a causal model, the object of a
sequence-to-sequence model, the pseudo-log-likelihood of the object of a masked model that fills in
several tokens, an option as ``--option-score`` counts it. ``variant_index`` 0 is the base variant.
``answer`` is null where there is none. Then ``excluded`` says why the query was left out before it
was asked; where that is null, too, it was asked, and ``error`` says why it has no answer, if known.
``gold_token`` is the vocabulary entry that stood for the gold, null where none did.
"""

QUERIES_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("group", "item", "subject", "variant"), pl.String),
    "variant_index": pl.Int32,
    "gold": pl.String,
    "input": pl.List(pl.String),
    "choices": pl.List(pl.String),
}
"""One row a query, in the order of the answers table; before ``gold`` a column for each factor.

``input`` is what is asked: of a fact the sentence with ``[Y]`` for the object, of sentence pairs
the two texts, of a question the prompt as the model reads it, after its chat template. ``choices``
are what may be answered, in the order in which it is shown; empty where that is any text, and where
it is the same for all of a group: of facts and sentence pairs.
"""

REASONS = ("excluded", "error")  # The columns that say why there is no answer

WAS_ASKED = pl.col("answer").is_not_null() | pl.col("excluded").is_null()
"""Whether the query of a row of answers was asked, with or without an answer."""

SEVERAL_TOKENS = "split into"  # In ``excluded``: the gold is several tokens of the model
OVER_PHRASINGS = ("low_phrasings", "high_phrasings")
NOISE_FLOOR = "noise_floor"  # The metric: the share of answers of a sample that changed

METRICS_SCHEMA: Schema = _schema(
    (pl.String, "metric over group kind level"),
    (pl.Float64, "value low high"),
    (pl.Int64, "n n_excluded"),
    (pl.Float64, "std low_phrasings high_phrasings"),
)
"""One row a number: a fraction from 0 to 1; NaN where there is no data.

- ``over``: ``group`` (the number of one group, named in ``group``), ``mean`` (of the groups),
  ``all`` (the items of all groups together).
- ``kind``, ``level``: what part of a group it is about (``core.factors.Part``): ``whole``, or a
  ``form``, ``edit``, ``factor``, ``language``, ``expectation`` or ``count`` with its name.
- ``low``, ``high``: bounds of the 95 % interval over items, of a mean over groups.
- ``n``, ``n_excluded``: how many things were counted, and how many were left out because they were
  not asked; of a mean how many groups.
- ``std``: of a mean, the sample standard deviation over the groups; NaN else.
- ``low_phrasings``, ``high_phrasings``: bounds of the interval over items and phrasings.
"""

COMPARISON_SCHEMA: Schema = _schema(
    (pl.String, "metric over group kind level first second"),
    (pl.Float64, "first_value second_value difference low high"),
    (pl.String, "test"),
    (pl.Float64, "p p_mid p_holm q_value detectable"),
    (pl.Int64, "n n_excluded"),
    (pl.Float64, "low_phrasings high_phrasings p_phrasings"),
)
"""One row a difference, ``second`` minus ``first``.

- ``metric`` to ``level``: as in ``METRICS_SCHEMA``.
- ``low``, ``high``: bounds of its 95 % interval.
- ``p``: two-sided p of ``test``. ``p_mid``: mid-p of McNemar's test; NaN of other tests.
- ``p_holm``, ``q_value`` (Benjamini-Hochberg): p adjusted over the groups of one metric and part,
  of sentence pairs over the forms of one metric and group; NaN for what is over all of these.
- ``detectable``: the minimum detectable difference, found with a probability of 80 %.
- ``low_phrasings``, ``high_phrasings``, ``p_phrasings``: bounds and p over items and phrasings.
"""
