"""What each training step reads: facts of one relation in all patterns, and text with masks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.choices import Loss, TrainingText
from consilience.errors import ConsilienceError
from consilience.models.candidates import candidates_in_slot, encode, slot_anchor
from consilience.models.causal import start_token
from consilience.models.loading import Kind
from consilience.models.masked import positions
from consilience.types import Fact, Pattern, Protocol, Relation

MASKED = 0.15
"""Share of tokens that masked-language modelling asks for (Devlin et al. 2019, Section 3.1)."""

LONGEST = 128
"""Tokens of a sequence that is trained on; a longer text is cut, a longer question left out."""


def longest_of(model: PreTrainedModel) -> int:
    """So many, or as many as the model has positions, where these are fewer."""
    return min(LONGEST, positions(model))


@dataclass(frozen=True, slots=True)
class Asked:
    """The patterns of a relation that are compared, and the tokens of its candidates there.

    ``tokens`` (pattern, candidate): the same word in a column. Under ``published`` a column for
    each row of the relation's data.
    """

    relation: Relation
    patterns: tuple[Pattern, ...]
    tokens: torch.Tensor


def candidate_tokens(
    relation: Relation,
    tokenizer: PreTrainedTokenizerBase,
    kind: Kind,
    protocol: Protocol,
    loss: Loss,
) -> Asked:
    """Which tokens are compared.

    Of a masked model those of the words that are one token in every pattern's place. A causal
    model, which reads what stands before the object only, is asked in the patterns that end in
    it; a word's first token stands for it, and words with the same one are one.
    """
    patterns, rules = relation.patterns, protocol
    if kind == "causal":
        patterns, rules = tuple(each for each in patterns if each.object_last), "published"
    if len(patterns) < 2:
        raise ConsilienceError(
            f"{relation.id} has {'one pattern' if patterns else 'no pattern'}"
            + (" that ends in the object" if kind == "causal" else ""),
            expected="two patterns that can differ",
            todo="Train on another relation.",
        )
    words = relation.candidates.words
    anchors = [pattern.around_object("x")[0] for pattern in patterns]
    sheets = [
        candidates_in_slot(tokenizer, words, slot_anchor(anchor, protocol), rules)
        for anchor in anchors
    ]
    kept = [at for at in range(len(words)) if all(sheet.tokens[at] for sheet in sheets)]
    if loss == "published":
        counts = relation.candidates.counts
        kept = [at for at in kept for _ in range(counts[at])]
    else:
        firsts = {int(sheets[0].same[at]): at for at in reversed(kept)}
        kept = sorted(firsts.values())
    if len(set(kept)) < 2:
        raise ConsilienceError(
            f"{relation.id} has {'one candidate' if kept else 'no candidate'} of one token",
            expected="two at least",
            todo="Train on another relation.",
        )
    tokens = torch.tensor([sheet.first_tokens[kept].tolist() for sheet in sheets])
    return Asked(relation, patterns, tokens)


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training, in their order: item i is the same whenever it is asked for.

    An epoch has every training fact once, in groups of ``batch`` facts of one relation; relations
    take turns. The masks of text are drawn from the seed and the item's number.
    """

    def __init__(
        self,
        asked: Sequence[Asked],
        tokenizer: PreTrainedTokenizerBase,
        kind: Kind,
        *,
        longest: int,
        facts: int,
        batch: int,
        epochs: int,
        text: TrainingText,
        lines: Sequence[str],
        seed: int,
    ) -> None:
        self.asked, self.tokenizer, self.kind = asked, tokenizer, kind
        self.text, self.seed = text, seed
        self.lines = lines
        self.batch = batch
        self.longest = longest
        self.groups: list[tuple[int, tuple[Fact, ...]]] = []
        chosen = [self._choose(each, facts) for each in asked]
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

    def _choose(self, asked: Asked, facts: int) -> list[Fact]:
        """So many facts, less those with a question that is too long."""
        known = asked.relation.facts
        order = random.Random(f"{self.seed} {asked.relation.id}")
        drawn = order.sample(known, min(facts, len(known)))
        fits = [
            all(len(ids) <= self.longest for ids in self._questions([fact], asked.patterns)[0])
            for fact in drawn
        ]
        return [fact for fact, kept in zip(drawn, fits, strict=True) if kept]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Tokens (sequence, token) of the questions, then of the text, and what is asked of them.

        ``rows, columns`` (position,): where the questions are answered, fact by fact and pattern
        by pattern, then where words of the text are; ``labels`` (word,): those words.
        """
        at, facts = self.groups[index]
        asked = self.asked[at]
        questions, places = self._questions(facts, asked.patterns)
        texts, rows, columns, labels = self._texts(facts, asked.relation.patterns, index)
        return {
            "sequences": [*questions, *texts],
            "rows": [*range(len(questions)), *(len(questions) + row for row in rows)],
            "columns": [*places, *columns],
            "labels": labels,
            "shape": (len(facts), len(asked.patterns)),
            "candidates": asked.tokens,
        }

    def _questions(
        self, facts: Sequence[Fact], patterns: Sequence[Pattern]
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of each fact in each pattern, and where the answer is read."""
        if self.kind == "causal":
            lefts = [p.around_object(fact.subject)[0].rstrip() for fact in facts for p in patterns]
            start = start_token(self.tokenizer)
            questions = [[start, *ids] for ids in encode(self.tokenizer, lefts)]
            return questions, [len(ids) - 1 for ids in questions]
        mask = str(self.tokenizer.mask_token)
        filled = [pattern.fill(fact.subject, mask) for fact in facts for pattern in patterns]
        questions = encode(self.tokenizer, filled, special=True)
        return questions, [ids.index(self.tokenizer.mask_token_id) for ids in questions]

    def _texts(
        self, facts: Sequence[Fact], patterns: Sequence[Pattern], index: int
    ) -> tuple[list[list[int]], list[int], list[int], list[int]]:
        if self.text == "none":
            return [], [], [], []
        if self.text == "patterns":
            texts = [p.fill(fact.subject, fact.object) for fact in facts for p in patterns]
        else:
            count = len(facts) * len(patterns)
            texts = random.Random(f"{self.seed} text {index}").choices(self.lines, k=count)
        return ask_words(texts, self.tokenizer, self.kind, self.longest, f"{self.seed} {index}")


def ask_words(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    kind: Kind,
    longest: int,
    seed: str,
) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """Language modelling: the ids of texts, and the text, place and answer of each word asked for.

    A masked model is asked for masked words, a causal model for every next one.
    """
    if kind == "masked":
        cut = [ids[:longest] for ids in encode(tokenizer, texts, special=True)]
        return mask_some(cut, tokenizer, seed)
    start = start_token(tokenizer)
    whole = [[start, *ids[:longest]] for ids in encode(tokenizer, texts)]
    rows = [row for row, ids in enumerate(whole) for _ in ids[1:]]
    columns = [column for ids in whole for column in range(len(ids) - 1)]
    return [ids[:-1] for ids in whole], rows, columns, [id_ for ids in whole for id_ in ids[1:]]


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
        "shape": item["shape"],
        "candidates": item["candidates"],
    }
