"""The scoring rule as a factor: other rules, ours and others', read the replies of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache, partial

import numpy as np
import polars as pl

from consilience.analysis.factor_effects import decompose, pooled, share
from consilience.core import free_text
from consilience.core.errors import ConsilienceError
from consilience.core.factors import LETTERS
from consilience.core.free_text import Match
from consilience.core.items import Choice, Floats
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import Clusters, Grid, Tally
from consilience.metrics.uncertainty import intervals
from consilience.runs.run import Run

Choices = Sequence[Choice]
Labels = Sequence[str]


def strict(reply: str, choices: Choices, labels: Labels) -> int | None:
    """The whole reply is a label, or else a text of one choice: ``exact_match`` of HELM."""
    equal = [at for at, one in enumerate(choices) if reply in one.texts]
    equal = [labels.index(reply)] if reply in labels else equal
    return equal[0] if len(equal) == 1 else None


def first_letter(reply: str, choices: Choices, labels: Labels) -> int | None:
    """The first letter or digit of the reply is a label: ``FirstCharacter`` of unitxt."""
    first = re.search(r"\w", reply)
    return labels.index(first[0]) if first and first[0] in labels else None


def answer_line(reply: str, choices: Choices, labels: Labels) -> int | None:
    """A label follows the last ``Answer:``, in any case, as inspect_ai asks for it."""
    known = [label.casefold() for label in labels]
    one_of = "|".join(map(re.escape, known)) or "(?!)"
    found = re.findall(rf"answer\s*:\s*({one_of})(?!\w)", reply.casefold())
    return known.index(found[-1]) if found else None


def closest(reply: str, choices: Choices, labels: Labels) -> int:
    """The option most like the first line, without a threshold: ``MatchClosestOption`` of unitxt.

    An option is ``B. Paris``, as in DOVE, or its text where it was shown without a label.
    """
    texts = [choice.text for choice in choices]
    shown = [*map("{}. {}".format, labels, texts)] or texts
    line = reply.partition("\n")[0].strip()
    return shown.index(get_close_matches(line, shown, n=1, cutoff=0.0)[0])


HARNESSES: Mapping[str, Callable[[str, Choices, Labels], int | None]] = {
    "strict": strict, "first-letter": first_letter, "answer-line": answer_line, "closest": closest,
}  # fmt: skip
"""The rules of harnesses: which choice a reply is, as it was written without outer spaces."""

RECORDED = "recorded"  # In place of a rule, where none gives what was recorded


def read_by(rule: str, reply: str, choices: Choices, labels: Labels) -> Match:
    """What a reply answers by the rule of that name."""
    if rule not in HARNESSES:
        return free_text.match(reply, choices, free_text.rule_of(rule), labels)
    at = HARNESSES[rule](reply.strip(), choices, labels)
    return Match(at, free_text.normalized(reply), free_text.NO_CHOICE * (at is None))


def parsed(known: str) -> tuple[list[Choice], list[str]]:
    """The column ``choices`` of an answer: choices, and their labels if they have any."""
    rows = json.loads(known)
    return [Choice(of[1], tuple(of[2:])) for of in rows], [of[0] for of in rows if of[0]]


def reread(answers: pl.DataFrame, rule: str) -> pl.DataFrame:
    """The answers of a run with what a rule reads in its replies (``questions.answered``)."""

    @cache
    def read(known: str, reply: str) -> tuple[str, int | None, str | None]:
        choices, labels = parsed(known)
        at, answer, reason = read_by(rule, reply, choices, labels)
        is_wrong = len(choices) == 1 and reason == free_text.NO_CHOICE
        answer = answer if at is None else choices[at].text
        return answer, at, free_text.NOT_THE_GOLD if is_wrong else reason or None

    names, rows = ("answer", "option", "unmatched"), list[Sequence[object]]()
    columns = answers.select("choices", "text", "shown", "gold_option", *names)
    for known, reply, shown, gold, *recorded in columns.iter_rows():
        answer, at, reason = read(known, reply) if reply is not None else ("", None, None)
        option = None if at is None or gold is None else LETTERS.index(shown[at])
        rows.append(recorded if reply is None else [answer, option, reason])
    kinds = {name: answers.schema[name] for name in names}
    return answers.with_columns(pl.DataFrame(rows, kinds, orient="row"))


def written_answers(run: Run) -> pl.DataFrame:
    """The answers of a run that keeps its replies; another run raises."""
    answers = run.answers
    has_replies = {"text", "choices"} <= {*answers.columns} and answers["text"].count()
    if not has_replies or answers["text"].count() > answers["choices"].count():
        found, expected = "no written replies", "those of probe --generate, or of a table of texts"
        todo = "Ask again with --generate."
        raise ConsilienceError(found, expected=expected, where=run.where, todo=todo)
    return answers


def by_rule(answers: pl.DataFrame, named: str) -> dict[str, pl.DataFrame]:
    """The answers by each rule that fits, that of the run first, as they were recorded.

    ``named``: the rule in the record of the run. Verdicts of another program, several rules and
    answers that a judge merged are ``RECORDED``.
    """
    choices = [parsed(known)[0] for known in answers["choices"].drop_nulls().unique()]
    texts = {text for of in choices for one in of for text in one.texts}
    are_numbers = all(free_text.RULES["number"].extract(text)[0] for text in texts)
    names = [named] * (named in free_text.RULES or named.startswith(free_text.REGEX))
    names += [free_text.OPEN_RULE] * any(len(of) == 1 for of in choices)
    names += [name for name in free_text.RULES if are_numbers or not name.endswith("number")]
    names += HARNESSES if all(len(of) > 1 for of in choices) else ["strict"]
    tables = {name: reread(answers, name) for name in dict.fromkeys(names)}
    what = pl.coalesce(pl.col("option").cast(pl.String), "answer")
    recorded = answers.select(what)
    equal = (name for name, table in tables.items() if table.select(what).equals(recorded))
    own = next(equal, RECORDED)
    return {own: answers, **{name: table for name, table in tables.items() if name != own}}


READING = pl.coalesce(
    pl.col("option").cast(pl.String), pl.when(pl.col("unmatched").is_null()).then("answer")
)
"""What a reply was read as: its option, label or gold; null where it is none of them."""


def rule_tables(run: Run) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """A row a rule, that of the run first; the parts of the variance of correctness; a sentence."""
    answers = written_answers(run)
    tables = by_rule(answers, run.settings["writing"]["match"])
    every = [CheckedAnswers(table, run.suite) for table in tables.values()]
    grids = [{of.id: one.views(of, "strict")["pairs"] for of in one.relations} for one in every]
    accuracy, consistency = (
        pl.DataFrame([asdict(pooled(of_rule, name)) for of_rule in grids])
        for name in ("mean_accuracy", "consistency")
    )
    replies = [table.drop_nulls("text") for table in tables.values()]
    readings = [of.select(READING).to_series() for of in replies]
    differ = np.stack([of.ne_missing(readings[0]) for of in readings])
    other = np.any([(of != readings[0]).fill_null(value=False) for of in readings], axis=0)
    is_read = pl.col("unmatched").fill_null(free_text.NOT_THE_GOLD) == free_text.NOT_THE_GOLD
    read = np.stack([of.select(is_read).to_series() for of in replies])
    rules = pl.DataFrame({
        "rule": [*tables], **accuracy.to_dict(),
        **consistency.select(pl.all().name.prefix("consistency_")).to_dict(),
        "read": read.mean(axis=1), "differ": differ.sum(axis=1), "share": differ.mean(axis=1),
        "alone": (read & (read.sum(axis=0) == 1)).sum(axis=1),
    })  # fmt: skip
    by_option, asked = pl.col("gold_option").is_not_null(), pl.col("excluded").is_null()
    is_gold = pl.col("answer") == pl.col("gold"), pl.col("option") == pl.col("gold_option")
    right = pl.when(by_option).then(is_gold[1]).otherwise(is_gold[0]).fill_null(value=False)
    of_variants = answers.filter(asked).group_by("variant").agg(accuracy=right.mean())["accuracy"]
    own, *others = (100 * value for value in accuracy["value"])
    moved, by_variant = max(own, *others) - min(own, *others), 100 * np.ptp(of_variants.to_numpy())
    verdict = (
        f"Under another rule accuracy would be {min(others):.1f} to {max(others):.1f} % "
        f"({rules['rule'][0]}: {own:.1f} %); {differ.any(axis=0).sum():,} of "
        f"{differ.shape[1]:,} replies are read otherwise by at least one rule, "
        f"{other.sum():,} as another answer; the rule moves accuracy by {moved:.1f} points, the "
        f"variant by {by_variant:.1f} points."
    )
    return rules, variance_by_rule([[of[group] for of in grids] for group in grids[0]]), verdict


def variance_by_rule(grids: Sequence[Sequence[Grid]]) -> pl.DataFrame:
    """The parts of the variance of correctness; ``grids``: by group, then by rule.

    An item is a full design of the variants that it was asked in and of all rules. The variance is
    that within items and that of the means of items (``exact_parts``).
    """
    rows, subjects = list[Floats](), list[str]()
    for of_group in grids:
        right, first = np.stack([of.right for of in of_group], axis=2), of_group[0]
        sizes = first.asked.sum(axis=1)
        for size in {*sizes.tolist()} - {0}:
            items = np.flatnonzero(sizes == size)
            cells = right[items][first.asked[items]].reshape(len(items), size, len(of_group))
            values = np.stack([cells, ~cells], axis=3).astype(np.float64)
            variation, parts = decompose(values, ("variant", "rule"))
            means = values.mean(axis=(1, 2))
            columns = [*parts.values(), variation, means, (means**2).sum(axis=1), len(items) * [1]]
            rows.append(np.column_stack(columns))
            subjects += first.subjects.names[first.subjects.places[items]].tolist()
    every, clusters, names = np.concatenate(rows), Clusters.of(subjects), [*map(" x ".join, parts)]
    finish = partial(share, has_items=True)
    shares = {
        name: Tally.of_sums(every[:, [at, *range(3, 8)]], finish, clusters, len(every))
        for at, name in enumerate(names)
    }
    return pl.DataFrame([{"part": part, **asdict(of)} for part, of in intervals(shares).items()])
