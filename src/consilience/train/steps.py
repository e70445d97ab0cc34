"""The input of each training step: facts of one relation in all patterns, and text with masks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from consilience.choices import Loss, Protocol
from consilience.cloze import Pattern
from consilience.errors import ConsilienceError
from consilience.models.candidates import candidates_in_slot, slot_anchor
from consilience.models.loading import Pretrained
from consilience.models.masked import positions
from consilience.train.objectives import Words, objective_of
from consilience.train.plan import Plan
from consilience.types import Fact, Relation

LONGEST = 128
"""Tokens of the longest sequence; a longer text is truncated, a longer question left out."""


def longest_of(model: PreTrainedModel) -> int:
    """``LONGEST``, or as many tokens as the model has positions, where these are fewer."""
    return min(LONGEST, positions(model))


@dataclass(frozen=True, slots=True)
class TrainedRelation:
    """A relation to train on, with what is compared in it."""

    relation: Relation
    patterns: tuple[Pattern, ...]
    tokens: torch.Tensor
    """Tokens (pattern, candidate) of the candidates in each pattern; a column is one word.

    For the loss ``released`` a column is a row of the relation's data.
    """


def trained_relation(
    relation: Relation, loaded: Pretrained, protocol: Protocol, loss: Loss
) -> TrainedRelation:
    """Choose the patterns and the candidate tokens that are compared.

    Masked models: the words that are one token in every pattern. Causal models read only what
    precedes the object, so they get the patterns that end in the object; the first token stands
    for a word, and words with the same first token are one candidate.
    """
    if relation.names:
        raise ConsilienceError(
            f"{relation.id} has candidates in several languages or forms",
            expected="one list of candidates, whose probabilities are compared",
            todo="Train on a suite with patterns of one language and form.",
        )
    objective = objective_of(loaded)
    patterns, rules = objective.patterns(relation), objective.candidate_rules(protocol)
    if len(patterns) < 2:
        raise ConsilienceError(
            f"{relation.id} has {'one pattern' if patterns else 'no pattern'}{objective.limits}",
            expected="two patterns that can differ",
            todo="Train on another relation.",
        )
    words = relation.candidates.words
    anchors = [pattern.around_object("x")[0] for pattern in patterns]
    sheets = [
        candidates_in_slot(loaded.tokenizer, words, slot_anchor(anchor, protocol), rules)
        for anchor in anchors
    ]
    columns = [at for at in range(len(words)) if all(sheet.tokens[at] for sheet in sheets)]
    if loss == "released":
        counts = relation.candidates.counts
        columns = [at for at in columns for _ in range(counts[at])]
    else:
        first_of = {int(sheets[0].same[at]): at for at in reversed(columns)}
        columns = sorted(first_of.values())
    if len(set(columns)) < 2:
        raise ConsilienceError(
            f"{relation.id} has {'one candidate' if columns else 'no candidate'} of one token",
            expected="two or more",
            todo="Train on another relation.",
        )
    tokens = torch.tensor([sheet.first_tokens[columns].tolist() for sheet in sheets])
    return TrainedRelation(relation, patterns, tokens)


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training in their order; an item is the same whenever it is read.

    An epoch has every training fact once, in groups of ``plan.batch`` facts of one relation;
    relations take turns. The masks of text depend on the seed and the number of the item.
    """

    def __init__(
        self,
        relations: Sequence[TrainedRelation],
        loaded: Pretrained,
        plan: Plan,
        *,
        longest: int,
        lines: Sequence[str] = (),
    ) -> None:
        """``longest``: tokens of a sequence. ``lines``: text for language modelling."""
        self.relations, self.plan, self.lines, self.longest = relations, plan, lines, longest
        self.tokenizer, self.objective = loaded.tokenizer, objective_of(loaded)
        self.groups: list[tuple[int, tuple[Fact, ...]]] = []
        sampled = [self._sample(trained) for trained in relations]
        for epoch in range(plan.epochs):
            turns = []
            for at, facts in enumerate(sampled):
                order = random.Random(f"{plan.seed} {epoch} {at}").sample(facts, len(facts))
                turns += [
                    (start, at, tuple(order[start : start + plan.batch]))
                    for start in range(0, len(order) - len(order) % plan.batch, plan.batch)
                ]
            self.groups += [(at, facts) for _, at, facts in sorted(turns, key=lambda t: t[:2])]
        if not self.groups:
            raise ConsilienceError(
                f"fewer than {plan.batch} facts in every training relation",
                expected="one batch of facts or more",
                todo="Lower --batch-size or train on relations with more facts.",
            )

    def _sample(self, trained: TrainedRelation) -> list[Fact]:
        """``plan.facts`` facts, without those that have a question longer than ``longest``."""
        facts = trained.relation.facts
        generator = random.Random(f"{self.plan.seed} {trained.relation.id}")
        sample = generator.sample(facts, min(self.plan.facts, len(facts)))
        return [
            fact
            for fact in sample
            if max(map(len, self._questions([fact], trained.patterns)[0])) <= self.longest
        ]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Token ids (sequence, token) of the questions and then of the texts, and what to predict.

        ``rows, columns`` (position,): where the questions are answered, fact by fact and pattern
        by pattern, then where the words of the texts are; ``labels`` (word,): those words.
        """
        at, facts = self.groups[index]
        trained = self.relations[at]
        questions, answered_at = self._questions(facts, trained.patterns)
        words = self._words(facts, trained.relation.patterns, index)
        return {
            "sequences": [*questions, *words.sequences],
            "rows": [*range(len(questions)), *(len(questions) + row for row in words.rows)],
            "columns": [*answered_at, *words.columns],
            "labels": words.labels,
            "shape": (len(facts), len(trained.patterns)),
            "candidates": trained.tokens,
        }

    def _questions(
        self, facts: Sequence[Fact], patterns: Sequence[Pattern]
    ) -> tuple[list[list[int]], list[int]]:
        return self.objective.questions(self.tokenizer, facts, patterns)

    def _words(self, facts: Sequence[Fact], patterns: Sequence[Pattern], index: int) -> Words:
        seed = self.plan.seed
        if self.plan.text == "none":
            return Words([], [], [], [])
        if self.plan.text == "patterns":
            texts = [p.fill(fact.subject, fact.object) for fact in facts for p in patterns]
        else:
            count = len(facts) * len(patterns)
            texts = random.Random(f"{seed} text {index}").choices(self.lines, k=count)
        return self.objective.words(texts, self.tokenizer, self.longest, f"{seed} {index}")


def collate(item: dict[str, Any], pad: int) -> dict[str, Any]:
    """One step's tensors, padded to the longest of its sequences."""
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
        "shape": item["shape"],
        "candidates": item["candidates"],
    }
