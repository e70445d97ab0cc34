"""The tables between the stages: answers, metrics, comparisons."""

from __future__ import annotations

import polars as pl

ANSWERS_SCHEMA: dict[str, type[pl.DataType]] = {
    "suite": pl.String,
    "group": pl.String,
    "item": pl.String,
    "subject": pl.String,
    "variant": pl.String,
    "variant_index": pl.Int32,
    "gold": pl.String,
    "gold_token": pl.String,
    "answer": pl.String,
    "logprob": pl.Float64,
    "gold_logprob": pl.Float64,
    "gold_rank": pl.Int32,
    "margin": pl.Float64,
    "text_logprob": pl.Float64,
    "gold_text_logprob": pl.Float64,
    "n_candidates": pl.Int32,
    "excluded": pl.String,
}
"""One row a query, in the order of facts and, within a fact, of patterns.

``logprob`` and ``gold_logprob`` are log-probabilities in nats, normalised over the candidates.
``gold_rank`` 1 is best. ``margin`` is best minus second. They are null where not all candidates
were scored in full. ``text_logprob`` and ``gold_text_logprob`` are log-probabilities in nats of the
text that the answer and the gold make, for models that give one: the whole sentence of a causal
model, the object of a sequence-to-sequence model, and the pseudo-log-likelihood of the object of a
masked model that fills in several tokens. ``variant_index`` 0 is the base variant.
``answer`` is null and ``excluded`` says why where a query could not be asked or answered.
``gold_token`` is the vocabulary entry that stood for the gold, null where none did.

``--keep-scores`` adds a column ``scores`` (candidate,): ``logprob`` of every candidate, in the
order of ``words`` in ``run.json``; null for one that took no part.
"""

SEVERAL_TOKENS = "split into"
"""In ``excluded``: the gold is several tokens of the model."""

FLIPS = "flips"
"""The metric of a noise floor: the share of answers of a sample that changed."""

SCORE_CHANGE = "score_change"
"""The metric of a server's noise floor: the largest change of a score, in nats."""

METRICS_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "suite": pl.String,
    "group": pl.String,
    "subset": pl.String,
    "value": pl.Float64,
    "std": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "n_excluded": pl.Int64,
    "seeds": pl.Int64,
    "seed_low": pl.Float64,
    "seed_high": pl.Float64,
}
"""One row a number: a fraction from 0 to 1, ``score_change`` in nats; NaN where there is no data.

- ``subset``: ``all``, an edit kind, or a form of the items.
- ``std``: sample standard deviation, of ``MACRO`` over the groups, else over the seeds.
- ``low``, ``high``: bounds of the 95 % interval over items, of ``MACRO`` over groups.
- ``n``, ``n_excluded``: how many things were counted, and how many have no answer.
- ``seeds``: how many runs the value is the mean of; ``seed_low`` and ``seed_high`` are the bounds
  of the 95 % interval of that mean over seeds.
"""

COMPARISON_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "suite": pl.String,
    "group": pl.String,
    "subset": pl.String,
    "first": pl.String,
    "second": pl.String,
    "first_value": pl.Float64,
    "second_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "test": pl.String,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "q_value": pl.Float64,
    "detectable": pl.Float64,
    "n": pl.Int64,
    "n_excluded": pl.Int64,
    "seeds": pl.Int64,
    "p_seeds": pl.Float64,
}
"""One row a difference, ``second`` minus ``first``, of means over as many seeds of both.

- ``low``, ``high``: bounds of its 95 % interval.
- ``p``: two-sided p of ``test``.
- ``p_holm``, ``q_value`` (Benjamini-Hochberg): p adjusted over the groups of one metric and subset,
  of sentence pairs over the forms of one metric and group; NaN for what is over all of these.
- ``detectable``: the minimum detectable difference, found with a probability of 80 %.
- ``p_seeds``: p of Welch's t test over seeds; NaN for one seed.
"""

PRECISION_SCHEMA: dict[str, type[pl.DataType]] = {
    "error": pl.Float64,
    "within_error": pl.Float64,
    "skewness": pl.Float64,
    "clusters": pl.Int64,
    "units": pl.Int64,
}
"""Further columns of the metrics and comparison tables: what their intervals are made of.

- ``error``: the standard error; 0 where nothing varies.
- ``within_error``: of a mean over groups, the standard error of the same groups: items alone are
  resampled. NaN elsewhere.
- ``skewness``: of a mean over groups, that of the groups' values; 0 elsewhere.
- ``clusters``: how many subjects, or of a mean over groups how many groups, were resampled.
- ``units``: how many subjects were counted; of a mean over groups those of all groups.
"""
