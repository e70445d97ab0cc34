"""What masked and causal models are trained to predict, and how they are scored afterwards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.choices import Protocol
from consilience.cloze import Pattern
from consilience.errors import ConsilienceError
from consilience.models import LanguageModel
from consilience.models.candidates import encode, start_token
from consilience.models.causal import CausalModel
from consilience.models.loading import Kind, Pretrained
from consilience.models.masked import MaskedModel
from consilience.types import Fact, Relation

MASKED = 0.15
"""Share of tokens that masked-language modelling predicts (Devlin et al. 2019, Section 3.1)."""


class Words(NamedTuple):
    """Texts as token ids, and the words in them that language modelling predicts."""

    sequences: list[list[int]]
    """Token ids of each text, with masks."""
    rows: list[int]
    """The text of each word."""
    columns: list[int]
    """The position in that text at which the word is predicted."""
    labels: list[int]
    """The token of each word."""


class MaskedObjective:
    """Predicts the object at the mask, and masked words of text."""

    limits = ""

    def patterns(self, relation: Relation) -> tuple[Pattern, ...]:
        """The patterns that can be compared: all."""
        return relation.patterns

    def candidate_rules(self, protocol: Protocol) -> Protocol:
        """Which rule chooses the token of a candidate: that of the protocol."""
        return protocol

    def questions(
        self, tokenizer: PreTrainedTokenizerBase, facts: Sequence[Fact], patterns: Sequence[Pattern]
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of each fact in each pattern, and the position at which it is answered."""
        mask = str(tokenizer.mask_token)
        filled = [pattern.fill_blank(fact.subject, mask) for fact in facts for pattern in patterns]
        questions = encode(tokenizer, filled, special=True)
        return questions, [ids.index(tokenizer.mask_token_id) for ids in questions]

    def words(
        self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int, seed: str
    ) -> Words:
        """Masked words to predict."""
        encoded = [ids[:longest] for ids in encode(tokenizer, texts, special=True)]
        return mask_some(encoded, tokenizer, seed)

    def scorer(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, protocol: Protocol
    ) -> LanguageModel:
        """The model as ``probe`` uses it."""
        loaded = Pretrained("masked", model, tokenizer, {"model": "in training"})
        return MaskedModel(loaded, protocol)


class CausalObjective:
    """Predicts the object after the text before it, and every next word of text."""

    limits = " that ends in the object"

    def patterns(self, relation: Relation) -> tuple[Pattern, ...]:
        """The patterns that can be compared: a causal model reads only what precedes the object."""
        return tuple(pattern for pattern in relation.patterns if pattern.object_last)

    def candidate_rules(self, protocol: Protocol) -> Protocol:
        """Which rule chooses the token of a candidate: its first token represents it."""
        return "published"

    def questions(
        self, tokenizer: PreTrainedTokenizerBase, facts: Sequence[Fact], patterns: Sequence[Pattern]
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of each fact in each pattern, and the position at which it is answered."""
        lefts = [p.around_object(fact.subject)[0].rstrip() for fact in facts for p in patterns]
        start = start_token(tokenizer)
        questions = [[start, *ids] for ids in encode(tokenizer, lefts)]
        return questions, [len(ids) - 1 for ids in questions]

    def words(
        self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int, seed: str
    ) -> Words:
        """Every next word to predict."""
        start = start_token(tokenizer)
        whole = [[start, *ids[:longest]] for ids in encode(tokenizer, texts)]
        return Words(
            [ids[:-1] for ids in whole],
            [row for row, ids in enumerate(whole) for _ in ids[1:]],
            [column for ids in whole for column in range(len(ids) - 1)],
            [id_ for ids in whole for id_ in ids[1:]],
        )

    def scorer(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, protocol: Protocol
    ) -> LanguageModel:
        """The model as ``probe`` uses it."""
        return CausalModel(Pretrained("causal", model, tokenizer, {"model": "in training"}))


Objective = MaskedObjective | CausalObjective

OBJECTIVES: Mapping[Kind, Objective] = {"masked": MaskedObjective(), "causal": CausalObjective()}
"""The kinds of models that can be trained."""


def objective_of(loaded: Pretrained) -> Objective:
    """The objective for a model; a sequence-to-sequence model is an error."""
    if loaded.kind not in OBJECTIVES:
        raise ConsilienceError(
            f"'{loaded.identity['model']}' is a sequence-to-sequence model",
            expected="a masked or causal one",
        )
    return OBJECTIVES[loaded.kind]


def mask_some(
    texts: Sequence[Sequence[int]], tokenizer: PreTrainedTokenizerBase, seed: str
) -> Words:
    """15 % of the tokens of each text, at least one: 80 % masked, 10 % replaced, 10 % unchanged."""
    generator = random.Random(seed)
    special = set(tokenizer.all_special_ids)
    words = Words([], [], [], [])
    for row, ids in enumerate(texts):
        changed = list(ids)
        maskable = [at for at, token in enumerate(ids) if token not in special]
        chosen = [at for at in maskable if generator.random() < MASKED]
        for at in chosen or generator.sample(maskable, 1):
            words.rows.append(row)
            words.columns.append(at)
            words.labels.append(ids[at])
            share = generator.random()
            if share < 0.8:
                changed[at] = int(tokenizer.mask_token_id or 0)
            elif share < 0.9:
                changed[at] = generator.randrange(len(tokenizer))
        words.sequences.append(changed)
    return words
