"""A judge beside people: how often it gives each label, corrected with labels of some items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import ndtri, stdtrit

from consilience.analysis.rules import parsed
from consilience.core.errors import ConsilienceError
from consilience.core.factors import LETTERS
from consilience.core.items import Floats
from consilience.core.schemas import WAS_ASKED
from consilience.files.read import Problems, read_rows
from consilience.files.rows import Column, line, raise_all, read_table
from consilience.metrics.registry import Clusters, Tally
from consilience.metrics.statistics import LEVEL, NAN, TIE
from consilience.metrics.uncertainty import intervals
from consilience.runs.run import Run

Key = tuple[str, str]  # Group and item
Rate = tuple[float, float, float]  # A value, and the bounds of its 95 % interval

LABELS = (
    Column("item", line),
    Column("gold", line, default="", others=("answer", "label", "human")),
    Column("group", line, default="", is_needed=False),
)
"""What people say of an item; a row without a gold says nothing."""

FIRST = "shown first"  # In place of a label: the option that is shown first, whichever it is


@dataclass(frozen=True)
class Verdicts:
    """What a judge said of each item of a run.

    Where all items have the same options, these are the labels. Else the options are replies, and
    a label is a letter: A is the first option of the file.
    """

    labels: Sequence[str]
    names: Mapping[Key, Mapping[str, str]]  # What an option of an item may be called -> its label
    shares: Floats
    """The share of the variants of an item in which the judge gives each label, and in which it
    gives the option shown first (item, label and one more)."""


def verdicts_of(run: Run) -> Verdicts:
    """What the judge said; a run but of questions with options raises.

    An answer that is no option, such as a tie that is none, gives no label.
    """
    rows = run.answers.filter(WAS_ASKED)
    if "gold_option" not in rows.columns or rows["gold_option"].null_count() or not len(rows):
        expected = "a run of questions that all have options: two replies, or labels"
        raise ConsilienceError("no judge", expected=expected, where=run.where)
    if "choices" not in rows.columns:
        rows = rows.with_columns(choices=pl.lit(None, pl.String))
    places, texts = dict[Key, dict[str, int]](), dict[Key, dict[int, str]]()
    columns = ("gold", "gold_option", "answer", "option", "choices", "shown")
    answers = list[tuple[Key, int | None, str]]()
    for group, item, gold, at, answer, option, choices, shown in rows.select(
        "group", "item", *columns
    ).iter_rows():
        known = [(gold, at)] + [(answer, option)] * (option is not None)
        for choice, letter in zip(parsed(choices)[0] if choices else (), shown, strict=False):
            known += [(text, LETTERS.index(letter)) for text in choice.texts]
        for text, place in known:
            places.setdefault((group, item), {})[text] = place
            texts.setdefault((group, item), dict.fromkeys(range(len(shown)), ""))
            texts[group, item][place] = texts[group, item][place] or text
        answers.append(((group, item), option, shown))
    different = dict.fromkeys(text for of in texts.values() for text in of.values() if text)
    if len(different) > min(map(len, texts.values())):  # replies
        texts = {key: {at: LETTERS[at] for at in of} for key, of in texts.items()}
        different = dict.fromkeys(label for of in texts.values() for label in of.values())
    labels, index = [*different], {key: at for at, key in enumerate(texts)}
    shares = np.zeros((len(texts), len(labels) + 1))
    for key, option, shown in answers:
        if option is not None:
            shares[index[key], labels.index(texts[key][option])] += 1
            shares[index[key], -1] += LETTERS.index(shown[0]) == option
    asked = np.bincount([index[key] for key, *_ in answers])
    names = {
        key: {LETTERS[at]: label for at, label in of.items() if label}
        | {text: of[at] for text, at in places[key].items()}
        for key, of in texts.items()
    }
    return Verdicts(labels, names, shares / asked[:, None])


def read_labels(path: Path, verdicts: Verdicts) -> dict[Key, str]:
    """The label that people give some items; rows that do not fit the run are reported.

    A gold is the text of an option, or its letter.
    """
    problems: Problems = []
    items, labels = dict[str, list[Key]](), dict[Key, str]()
    for key in verdicts.names:
        items.setdefault(key[1], []).append(key)
    rows = read_table(read_rows(path, problems), LABELS, problems, str(path))
    for row in (row for row in rows if row["gold"]):
        of_item = [key for key in items.get(row["item"], ()) if row["group"] in ("", key[0])]
        names = verdicts.names[of_item[0]] if len(of_item) == 1 else {}
        label = names.get(row["gold"]) or names.get(row["gold"].upper())
        if not names:
            expected = "an item of the run, and its group where several have it"
            row.report(f"the item '{row['item']}'", "item", expected=expected)
        elif label is None:
            row.report(f"the gold '{row['gold']}'", "gold", expected=", ".join(names))
        elif labels.setdefault(of_item[0], label) != label:
            row.report(f"another label of the item '{row['item']}'", "gold", expected="one")
    raise_all(problems)
    if not labels:
        raise ConsilienceError("no labels", expected="a gold in some rows", where=str(path))
    return labels


def prediction_powered(judged: Floats, of_labelled: Floats, people: Floats) -> Rate:
    """The rate of a label: ``mean(y) + b (mean(f) - mean(f of labelled items))``.

    Prediction-powered inference (Angelopoulos et al., Science 2023), power-tuned (PPI++, arXiv
    2311.01453): with the slope ``b = cov(y, f) / var(f)`` of labelled items it is the regression
    estimator of a double sample. ``judged``: f, the judge's share of each item (item,);
    ``of_labelled``, ``people``: f and y, the label of people, 0 or 1, of labelled items.

    The interval is that of ``least_squares`` with four more labelled items, one of each pair of
    verdict and label: without a judge that of Agresti and Coull (1998). The plain interval of few
    labels is far too short where a label is rare.
    """
    value, _ = least_squares(judged, of_labelled, people)
    middle, error = least_squares(
        np.append(judged, [0, 0, 1, 1]),
        np.append(of_labelled, [0, 0, 1, 1]),
        np.append(people, [0, 1, 0, 1]),
    )
    reach = -stdtrit(len(people) + 3, (1 - LEVEL) / 2) * error
    return within(value, middle - reach, middle + reach)


def least_squares(judged: Floats, of_labelled: Floats, people: Floats) -> tuple[float, float]:
    """The regression estimate, and its standard error.

    Its square is that of the residuals, ``sum(e^2) / (n (n - 2))`` of n labelled items, and of the
    judge's rate, ``b^2 var(f) / N`` of all N items.
    """
    f, y, n = of_labelled - of_labelled.mean(), people - people.mean(), len(people)
    slope = float((f * y).sum() / (f**2).sum()) if (f**2).sum() > TIE else 0.0
    value = people.mean() + slope * (judged.mean() - of_labelled.mean())
    square = ((y - slope * f) ** 2).sum() / (n * max(1, n - 2))
    return float(value), float(np.sqrt(square + slope**2 * judged.var() / len(judged)))


def rogan_gladen(judged: Floats, of_labelled: Floats, people: Floats) -> Rate:
    """The rate of a label: ``(p + specificity - 1) / (sensitivity + specificity - 1)``.

    p is the judge's rate (Rogan and Gladen 1978); sensitivity is its rate where people give the
    label, and specificity 1 minus its rate where they do not. The interval is that of Lang and
    Reiczigel (2014). NaN where the denominator is not above 0, and if people always or never give
    the label.
    """
    yes, no, n, p = people.sum(), (1 - people).sum(), len(judged), judged.mean()
    hits, passes = (people * of_labelled).sum(), ((1 - people) * (1 - of_labelled)).sum()
    if not yes or not no or (youden := hits / yes + passes / no - 1) <= 0:
        return NAN, NAN, NAN
    value, z = (p + passes / no - 1) / youden, -ndtri((1 - LEVEL) / 2)
    p, sensitivity = (n * p + z**2 / 2) / (n + z**2), (hits + 1) / (yes + 2)
    specificity = (passes + 1) / (no + 2)
    if (youden := sensitivity + specificity - 1) <= 0:
        return within(value, 0, 1)
    middle = (p + specificity - 1) / youden
    of_yes = middle * sensitivity * (1 - sensitivity) / (yes + 2)
    of_no = (1 - middle) * specificity * (1 - specificity) / (no + 2)
    square = p * (1 - p) / (n + z**2) + middle * of_yes + (1 - middle) * of_no
    middle, reach = middle + 2 * z**2 * (of_yes - of_no), z * np.sqrt(square) / youden
    return within(value, middle - reach, middle + reach)


def within(value: float, low: float, high: float) -> Rate:
    """The value and the bounds of an interval that has it, between 0 and 1."""
    value, *ends = np.clip([value, min(value, low), max(value, high)], 0, 1).tolist()
    return value, ends[0], ends[1]


def judge_table(run: Run, path: Path | None) -> tuple[pl.DataFrame, int]:
    """A row a label, and how many items have one of people.

    ``value``: the judge's rate. With labels of people, who gave them to the items of a file:
    ``people_value``, their own rate, ``corrected_value`` (``prediction_powered``), ``rg_value``
    (``rogan_gladen``), and the judge's sensitivity and specificity.
    """
    verdicts = verdicts_of(run)
    said = read_labels(path, verdicts) if path else {}
    clusters = Clusters.of(map("/".join, verdicts.names))
    at = [place for place, key in enumerate(verdicts.names) if key in said]
    given = np.array([said[key] for key in verdicts.names if key in said])
    tallies = {
        label: Tally.of_values(clusters, judged)
        for label, judged in zip((*verdicts.labels, FIRST), verdicts.shares.T, strict=True)
    }
    rows = [{"label": label, **asdict(of)} for label, of in intervals(tallies).items()]
    for row, judged in zip(rows[:-1] if said else (), verdicts.shares.T, strict=False):
        people, f = (given == row["label"]).astype(np.float64), judged[at]
        for name, of in (("corrected", prediction_powered), ("rg", rogan_gladen)):
            values = of(judged, f, people)
            row |= dict(zip((f"{name}_value", f"{name}_low", f"{name}_high"), values, strict=True))
        row |= {"people_value": people.mean(), "people_n": len(people)}
        row["sensitivity"] = f[people == 1].mean() if people.any() else NAN
        row["specificity"] = 1 - f[people == 0].mean() if not people.all() else NAN
    return pl.DataFrame(rows, infer_schema_length=None), len(said)
