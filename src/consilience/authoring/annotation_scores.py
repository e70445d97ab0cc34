"""What annotators answered: accuracy, consistency and agreement.

CALUM, Section 4.4, for sentence pairs; ParaRel, Section 4, for patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.authoring.annotation import LabelIndices, SheetKey, read_key, read_sheet
from consilience.design import ORIGINAL
from consilience.errors import ConsilienceError
from consilience.metrics.bootstrap import REPLICATES, resamples
from consilience.metrics.intervals import NAN, Floats, bootstrap_interval
from consilience.metrics.tally import quotient
from consilience.schemas import METRICS_SCHEMA


@dataclass(frozen=True, slots=True)
class ScoredSheets:
    """The answers of annotators, counted."""

    key: SheetKey
    """What they were asked."""
    annotators: tuple[str, ...]
    metrics: pl.DataFrame
    """The metrics table (``METRICS_SCHEMA``)."""
    warnings: tuple[str, ...]
    """What a reader should know."""
    answers: LabelIndices
    """Positions among the labels (variant, item, annotator); -1 for none."""


def score_sheets(folder: Path, seed: int = 0) -> ScoredSheets:
    """Count the answers in a folder of sheets; ``seed`` is that of the bootstrap.

    Missing and empty sheets are left out with a warning; if none is left it raises.
    """
    key = read_key(folder / "key.json")
    _check_names(folder, key)
    answers: dict[str, LabelIndices] = {}
    warnings = []
    for name, questions in key.sheets.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            warnings.append(f"{path.name} is not there; left out")
            continue
        sheet = read_sheet(path, key, name)
        unanswered = int((sheet < 0).sum())
        if unanswered == len(questions):
            warnings.append(f"{path.name} has no answers; left out")
            continue
        if unanswered:
            warnings.append(f"{path.name}: {unanswered} of {len(questions)} without an answer")
        answers[name] = sheet
    if not answers:
        raise ConsilienceError(
            "no sheet with answers", expected="annotator-1.csv and others", where=str(folder)
        )
    stacked = np.stack(list(answers.values()), axis=-1)
    metrics = pl.DataFrame(list(_rows(key, stacked, list(answers), seed)), schema=METRICS_SCHEMA)
    return ScoredSheets(key, tuple(answers), metrics, tuple(warnings), stacked)


def _check_names(folder: Path, key: SheetKey) -> None:
    """Raise for a sheet of no annotator of the key."""
    for path in sorted(folder.glob("annotator*.csv")):
        if path.stem not in key.sheets:
            raise ConsilienceError(
                "no such annotator in key.json",
                expected=", ".join(f"{name}.csv" for name in key.sheets),
                where=str(path),
                todo="Rename the sheet to its annotator, or remove it.",
            )


def _rows(
    key: SheetKey, answers: LabelIndices, annotators: Sequence[str], seed: int
) -> Iterator[dict[str, object]]:
    """The metrics of ``answers`` (variant, item, annotator), over annotators and of each.

    The subset ``all`` is the original form. Consistency compares a perturbed form with the same
    annotator's answer to the original. Intervals are about other items and the same annotators.
    """
    gold = np.array([[key.labels.index(item.gold)] for item in key.items.values()])
    if key.patterns:
        yield from _pattern_rows(key, answers[0], gold, annotators, seed)
        return
    weights = resamples(len(gold), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
    for variant, form_answers in zip(key.variants, answers, strict=True):
        subset = "all" if variant == ORIGINAL else variant
        compared = {"accuracy": gold}
        if variant != ORIGINAL:
            compared["consistency"] = answers[0]
        for metric, other in compared.items():
            counted = (form_answers >= 0) & (other >= 0)
            same = (form_answers == other) & counted
            values = quotient(same.sum(axis=0), counted.sum(axis=0))
            replicates = quotient(weights @ same, weights @ counted)
            yield _row(metric, key.task, subset, values, replicates, counted)
            for index, name in enumerate(annotators):
                one = (values[[index]], replicates[:, [index]], counted[:, [index]])
                yield _row(metric, name, subset, *one)
        yield from _agreement_rows(key, subset, form_answers, weights)


PATTERN_SUBSETS = ("paraphrases", "controls")
"""The parts of a sheet on patterns: pairs whose gold is the first label, and the other ones."""


def _pattern_rows(
    key: SheetKey,
    answers: LabelIndices,
    gold: LabelIndices,
    annotators: Sequence[str],
    seed: int,
) -> Iterator[dict[str, object]]:
    """Agreement of ``answers`` (item, annotator) with the suite, and between annotators.

    Agreement with the suite is the share of answers *same* to paraphrases, and of *different* to
    controls (ParaRel, Section 4). Intervals are about other patterns and the same annotators.
    """
    for label, subset in enumerate(PATTERN_SUBSETS):
        part = answers[gold[:, 0] == label]
        if not len(part):
            continue
        weights = resamples(len(part), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
        counted, same = part >= 0, part == label
        values = quotient(same.sum(axis=0), counted.sum(axis=0))
        replicates = quotient(weights @ same, weights @ counted)
        yield _row("agreement", key.task, subset, values, replicates, counted)
        for index, name in enumerate(annotators):
            one = (values[[index]], replicates[:, [index]], counted[:, [index]])
            yield _row("agreement", name, subset, *one)
    weights = resamples(len(gold), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
    yield from _agreement_rows(key, "all", answers, weights)


def _agreement_rows(
    key: SheetKey, subset: str, answers: LabelIndices, weights: Floats
) -> Iterator[dict[str, object]]:
    """Agreement between annotators in ``answers`` (item, annotator)."""
    counts = (answers[:, :, None] == np.arange(len(key.labels))).sum(axis=1)
    counted = counts.sum(axis=1, keepdims=True) >= 2
    for measure in (fleiss, krippendorff):
        resampled = measure(counts, weights)
        for metric, value in measure(counts, np.ones((1, len(counts)))).items():
            yield _row(metric, key.task, subset, value, resampled[metric][:, None], counted)


def _row(
    metric: str,
    group: str,
    subset: str,
    values: Floats,
    replicates: Floats,
    counted: npt.NDArray[np.bool_],
) -> dict[str, object]:
    """The mean of ``values`` (annotator,), and its interval from ``replicates``.

    ``replicates``: (replicate, annotator). ``counted`` (item, annotator): the answers that count.
    For agreement all annotators are one. No data is NaN, and no part of a mean.
    """
    mean, means = (
        quotient(np.nansum(table, axis=-1), (~np.isnan(table)).sum(axis=-1))
        for table in (values, replicates)
    )
    known, clusters, n = values[~np.isnan(values)], counted.any(axis=1).sum(), int(counted.sum())
    least = -1.0 if metric in ("fleiss_kappa", "krippendorff_alpha") else 0.0
    low, high = bootstrap_interval(
        float(mean), means, int(clusters), (least, 1.0), proportion=least == 0
    )
    std = float(known.std(ddof=1)) if len(known) > 1 else NAN
    cells = ("human", group, subset, float(mean), std, low, high, n, counted.size - n, 1, NAN, NAN)
    return dict(zip(METRICS_SCHEMA, (metric, *cells), strict=True))


def fleiss(counts: LabelIndices, weights: Floats) -> dict[str, Floats]:
    """Agreement between annotators: ``pairwise_agreement`` and ``fleiss_kappa``, (replicate,) each.

    ``counts`` (item, label): n_ij annotators gave item i the label j, n_i any. ``weights``
    (replicate, item): how often an item counts. Items with fewer than two answers are left out.

    ``P_i = sum_j n_ij (n_ij - 1) / (n_i (n_i - 1))``, the share of pairs of annotators that agree
    on item i; the mean over items ``P`` is the pairwise agreement, from 0 to 1.
    ``p_j = sum_i n_ij / sum_i n_i``; ``P_e = sum_j p_j ** 2`` is the agreement by chance.
    ``kappa = (P - P_e) / (1 - P_e)``, at most 1, 0 for chance; NaN where all answers are the same
    (``P_e`` is 1). Fleiss 1971, Psychological Bulletin 76, where every n_i is the same; with
    missing answers they differ.
    """
    rated = counts.sum(axis=1) >= 2
    counts, weights = counts[rated], weights[:, rated]
    answers = counts.sum(axis=1)
    agreement = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    observed = quotient(weights @ agreement, weights.sum(axis=1))
    shares = quotient(weights @ counts, (weights @ answers)[:, None])
    chance = (shares**2).sum(axis=1)
    kappa = quotient(observed - chance, 1 - chance)
    return {"pairwise_agreement": observed, "fleiss_kappa": kappa}


def krippendorff(counts: LabelIndices, weights: Floats) -> dict[str, Floats]:
    """Krippendorff's alpha for nominal answers: ``krippendorff_alpha``, (replicate,).

    ``counts`` and ``weights`` as for ``fleiss``; items with fewer than two answers are left out.
    With ``n = sum_i n_i`` and ``n_c = sum_i n_ic``:
    ``alpha = 1 - D_o / D_e``, the observed disagreement
    ``D_o = sum_i sum_c n_ic (n_i - n_ic) / (n_i - 1) / n`` and the disagreement by chance
    ``D_e = sum_c n_c (n - n_c) / (n (n - 1))``. At most 1, 0 for chance; NaN where all answers are
    the same. Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
    """
    rated = counts.sum(axis=1) >= 2
    counts, weights = counts[rated], weights[:, rated]
    answers = counts.sum(axis=1)
    disagreement = (counts * (answers[:, None] - counts)).sum(axis=1) / (answers - 1)
    total = weights @ answers
    by_label = weights @ counts
    observed = quotient(weights @ disagreement, total)
    chance = (by_label * (total[:, None] - by_label)).sum(axis=1)
    return {"krippendorff_alpha": 1 - quotient(observed, quotient(chance, total * (total - 1)))}
