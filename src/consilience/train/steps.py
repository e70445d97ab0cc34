"""What each training step reads: facts of one relation in all patterns, and text with masks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase

from consilience.errors import ConsilienceError
from consilience.models.words import encode, slot_anchor, word_sheet
from consilience.types import Fact, Pattern, Protocol, Relation

Loss = Literal["strict", "published"]
Text = Literal["patterns", "file", "none"]

MASKED = 0.15
"""Share of tokens that masked-language modelling asks for (Devlin et al. 2019, Section 3.1)."""

LONGEST = 128
"""Tokens of a text that is trained on; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The tokens of a relation's candidates, (pattern, candidate), the same word in a column.

    Under ``published`` a column for each row of the relation's data.
    """

    relation: Relation
    tokens: torch.Tensor


def candidate_tokens(
    relation: Relation, tokenizer: PreTrainedTokenizerBase, protocol: Protocol, loss: Loss
) -> Asked:
    """Which tokens are compared: of the words that are one token in every pattern's place."""
    if len(relation.patterns) < 2:
        raise ConsilienceError(
            f"{relation.id} has one pattern",
            expected="two patterns that can differ",
            todo="Train on another relation.",
        )
    words = relation.candidates.words
    sheets = [
        word_sheet(tokenizer, words, slot_anchor(pattern.around_object("x")[0], protocol), protocol)
        for pattern in relation.patterns
    ]
    kept = [at for at in range(len(words)) if all(sheet.ids[at] >= 0 for sheet in sheets)]
    if loss == "published":
        counts = relation.candidates.counts
        kept = [at for at in kept for _ in range(counts[at])]
    else:
        firsts = {int(sheets[0].same[at]): at for at in reversed(kept)}
        kept = sorted(firsts.values())
    if len(set(kept)) < 2:
        raise ConsilienceError(
            f"{relation.id} has {len(set(kept))} candidates of one token",
            expected="two at least",
            todo="Train on another relation.",
        )
    return Asked(relation, torch.tensor([sheet.ids[kept].tolist() for sheet in sheets]))


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training, in their order: item i is the same whenever it is asked for.

    An epoch has every training fact once, in groups of ``batch`` facts of one relation; relations
    take turns. The masks of text are drawn from the seed and the item's number.
    """

    def __init__(
        self,
        asked: Sequence[Asked],
        tokenizer: PreTrainedTokenizerBase,
        *,
        facts: int,
        batch: int,
        epochs: int,
        text: Text,
        lines: Sequence[str],
        seed: int,
    ) -> None:
        self.asked, self.tokenizer, self.text, self.seed = asked, tokenizer, text, seed
        self.lines = lines
        self.batch = batch
        self.groups: list[tuple[int, tuple[Fact, ...]]] = []
        chosen = [
            random.Random(f"{seed} {each.relation.id}").sample(
                each.relation.facts, min(facts, len(each.relation.facts))
            )
            for each in asked
        ]
        for epoch in range(epochs):
            turns = []
            for at, known in enumerate(chosen):
                order = random.Random(f"{seed} {epoch} {at}").sample(known, len(known))
                turns += [
                    (start, at, tuple(order[start : start + batch]))
                    for start in range(0, len(order) - len(order) % batch, batch)
                ]
            self.groups += [(at, group) for _, at, group in sorted(turns, key=lambda t: t[:2])]
        if not self.groups:
            raise ConsilienceError(
                f"fewer than {batch} facts in every training relation",
                expected="one batch of facts at least",
                todo="Lower --batch-facts or train on relations with more facts.",
            )

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Tokens (sequence, token) of the questions, then of the text, and what is asked of them.

        ``rows, columns`` (position,): the masks of the questions, fact by fact and pattern by
        pattern, then those of the text; ``labels`` (masked,): what stood at the latter.
        """
        at, facts = self.groups[index]
        asked = self.asked[at]
        patterns = asked.relation.patterns
        mask = str(self.tokenizer.mask_token)
        questions = encode(
            self.tokenizer,
            [pattern.fill(fact.subject, mask) for fact in facts for pattern in patterns],
            special=True,
        )
        places = [ids.index(self.tokenizer.mask_token_id) for ids in questions]
        texts = self._texts(facts, patterns, index)
        masked, rows, columns, labels = mask_some(texts, self.tokenizer, f"{self.seed} {index}")
        sequences = [*questions, *masked]
        return {
            "sequences": sequences,
            "rows": [*range(len(questions)), *(len(questions) + row for row in rows)],
            "columns": [*places, *columns],
            "labels": labels,
            "shape": (len(facts), len(patterns)),
            "candidates": asked.tokens,
        }

    def _texts(
        self, facts: Sequence[Fact], patterns: Sequence[Pattern], index: int
    ) -> list[list[int]]:
        if self.text == "none":
            return []
        if self.text == "patterns":
            texts = [p.fill(fact.subject, fact.object) for fact in facts for p in patterns]
        else:
            count = len(facts) * len(patterns)
            texts = random.Random(f"{self.seed} text {index}").choices(self.lines, k=count)
        return [ids[:LONGEST] for ids in encode(self.tokenizer, texts, special=True)]


def mask_some(
    texts: Sequence[Sequence[int]], tokenizer: PreTrainedTokenizerBase, seed: str
) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """15 % of the tokens of each text, one at least: 80 % masked, 10 % another, 10 % kept.

    The changed texts, and for each chosen token its text, its place and what it was.
    """
    draw = random.Random(seed)
    special = set(tokenizer.all_special_ids)
    masked, rows, columns, labels = [], [], [], []
    for row, ids in enumerate(texts):
        changed = list(ids)
        places = [at for at, token in enumerate(ids) if token not in special]
        chosen = [at for at in places if draw.random() < MASKED] or draw.sample(places, 1)
        for at in chosen:
            rows.append(row)
            columns.append(at)
            labels.append(ids[at])
            kind = draw.random()
            if kind < 0.8:
                changed[at] = int(tokenizer.mask_token_id or 0)
            elif kind < 0.9:
                changed[at] = draw.randrange(len(tokenizer))
        masked.append(changed)
    return masked, rows, columns, labels


def collate(items: Sequence[dict[str, Any]], pad: int) -> dict[str, Any]:
    """One step's tensors, padded to the longest of its sequences."""
    (item,) = items
    width = max(map(len, item["sequences"]))
    ids = torch.full((len(item["sequences"]), width), pad)
    attention = torch.zeros_like(ids)
    for row, sequence in enumerate(item["sequences"]):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        attention[row, : len(sequence)] = 1
    return {
        "input_ids": ids,
        "attention_mask": attention,
        "rows": torch.tensor(item["rows"]),
        "columns": torch.tensor(item["columns"]),
        "labels": torch.tensor(item["labels"], dtype=torch.long),
        "shape": torch.tensor(item["shape"]),
        "candidates": item["candidates"],
    }
