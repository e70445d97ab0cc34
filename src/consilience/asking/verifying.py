"""Options that are verified: a question with yes or no about each, and the answer that they make.

The score of an option is log P(yes) - log P(no), in nats; the highest is the answer. A model
without probabilities answers with the option that it affirms, if it is the only one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from consilience.core.free_text import Match, Rule, match_verdict
from consilience.core.items import Floats, Ints, NoAnswer, Scores
from consilience.core.presentation import Prompt

UNKNOWN = "the probability of yes or of no is not known"


class Verifier:
    """A model that gets each prompt with ``checks`` as these, and others as they are."""

    def __init__(self, model: Any) -> None:
        self.model, self.identity, self.notes = model, model.identity, model.notes
        self.tie: float = getattr(model, "tie", 0.0)

    def why_not(self, shown: Sequence[Prompt]) -> list[str | None]:
        reasons = iter(self.model.why_not(list(chain(*map(parts_of, shown)))))
        of_each = [[next(reasons) for _ in parts_of(prompt)] for prompt in shown]
        return [next(filter(None, of_prompt), None) for of_prompt in of_each]

    def text(self, shown: Prompt) -> str:
        return "\n\n".join(map(self.model.text, parts_of(shown)))

    def score(self, shown: Sequence[Prompt]) -> Iterator[Scores]:
        """The scores of the answers; of those that are verified as the module says."""
        plain = np.array([row for row, prompt in enumerate(shown) if not prompt.checks], dtype=int)
        for scores in self.model.score([shown[int(row)] for row in plain]) if len(plain) else ():
            yield replace(scores, rows=plain[scores.rows])
        checks = list(chain(*(prompt.checks for prompt in shown)))
        odds, reasons, has_scores = np.full(len(checks), np.nan), [""] * len(checks), True
        for scores in self.model.score(checks) if checks else ():
            assert scores.totals is not None
            has_scores = not scores.answers_only
            with np.errstate(invalid="ignore"):  # neither yes nor no
                odds[scores.rows] = scores.totals[:, 0] - scores.totals[:, 1]
            for at, row in enumerate(scores.rows.tolist()):
                is_bound = scores.totals is not None and np.isnan(scores.totals[at]).any()
                reasons[row] = scores.why_not(at) or UNKNOWN * bool(is_bound)
        rows = [row for row, prompt in enumerate(shown) if prompt.checks]
        ends = np.cumsum([0, *(len(shown[row].checks) for row in rows)]).tolist()
        spans = [slice(*ends[at : at + 2]) for at in range(len(rows))]
        totals = [odds[span] for span in spans]
        affirmed, texts, lengths = [of_row > 0 for of_row in totals], list[str](), None
        if has_scores:
            lengths = [np.ones(len(of_row), np.int64) for of_row in totals]
        else:
            totals = [np.where(yes & (yes.sum() == 1), 0, -np.inf) for yes in affirmed]
            texts = [named(shown[row], yes) for row, yes in zip(rows, affirmed, strict=True)]
        refused = [next(filter(None, reasons[span]), None) for span in spans]
        if rows:
            more: dict[str, Any] = {"texts": texts, "refused": refused, "affirmed": affirmed}
            yield Scores.of_rows(np.array(rows), totals, lengths, **more)

    def score_alone(self, prompt: Prompt) -> Floats:
        totals = [self.model.score_alone(part) for part in parts_of(prompt)]
        return np.array([yes - no for yes, no in totals]) if prompt.checks else np.array(totals[0])

    def write(
        self, shown: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        """The texts; of a prompt with checks those about all options, as a list in JSON."""
        if not any(prompt.checks for prompt in shown):
            yield from self.model.write(shown, samples)
            return
        parts = [(part, at) for at, one in enumerate(shown) for part in parts_of(one)]
        texts: dict[int, str | NoAnswer] = {}
        numbers = [samples[at] for _, at in parts]
        for places, written in self.model.write([part for part, _ in parts], numbers):
            texts |= zip(places.tolist(), written, strict=True)
        in_order = iter([texts[place] for place in range(len(parts))])
        for row, prompt in enumerate(shown):
            of_prompt = list(islice(in_order, len(parts_of(prompt))))
            failed = next((text for text in of_prompt if isinstance(text, NoAnswer)), None)
            if failed is None and prompt.checks:
                of_prompt = [json.dumps(of_prompt, ensure_ascii=False)]
            yield np.array([row]), [failed or of_prompt[0]]


def parts_of(prompt: Prompt) -> tuple[Prompt, ...]:
    """The prompts that a model gets."""
    return prompt.checks or (prompt,)


def named(prompt: Prompt, affirmed: Iterable[bool]) -> str:
    """The affirmed options as a text, which is none of them."""
    texts = [one.text for one, is_yes in zip(prompt.choices, affirmed, strict=True) if is_yes]
    return f"({len(texts)} affirmed{': ' * bool(texts)}{', '.join(texts)})"


def match_checks(texts: str, prompt: Prompt, rule: Rule | None) -> tuple[Match, list[bool]]:
    """The option that written verdicts (JSON) affirm, if one; whether each is, as in the file."""
    replies = zip(json.loads(texts), prompt.checks, strict=True)
    affirmed = [match_verdict(text, check.choices, rule) == 0 for text, check in replies]
    in_file = [affirmed[prompt.options.index(at)] for at in range(len(affirmed))]
    if sum(affirmed) == 1:
        return Match(affirmed.index(True), ""), in_file
    return Match(None, named(prompt, affirmed), f"{sum(affirmed)} options affirmed"), in_file
