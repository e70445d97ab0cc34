"""What is trained: losses, objectives, steps, and the perplexity that guards them."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from transformers import PreTrainedModel

from consilience.core.errors import ConsilienceError, Loading, Protocol
from consilience.core.patterns import Pattern
from consilience.models.batches import Budget, equal_length_batches, positions
from consilience.models.candidates import candidates_in_slot, encode, slot_anchor, start_token
from consilience.models.causal import CausalModel
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.masked import MaskedModel, masked_sentences
from consilience.models.prompt_tokens import PromptTokens
from consilience.models.prompted import end_tokens
from consilience.plans.questions import Presented, prompts_of
from consilience.train.plan import Plan
from consilience.types import Fact, Relation


def consistency_loss(logits: torch.Tensor) -> torch.Tensor:
    """Two-sided Kullback-Leibler divergence of all pairs of patterns, in nats.

    ``logits`` (fact, pattern, candidate). With ``p_n`` the distribution that pattern n gives over
    the candidates, the mean over facts and over pairs n < m of ``KL(p_n || p_m) + KL(p_m || p_n)``.
    The paper sums over pairs, so that a relation of 20 patterns counts 32 times one of 4; the mean
    makes lambda mean the same for both. 0 where there is one pattern.
    """
    patterns = logits.shape[1]
    if patterns < 2:
        return logits.sum() * 0
    logprob = logits.float().log_softmax(dim=-1)
    prob = logprob.exp()
    # Summed over ordered pairs: n sum_n p_n log p_n - (sum_n p_n) (sum_m log p_m).
    entropies = patterns * (prob * logprob).sum(dim=(1, 2))
    crossed = (prob.sum(dim=1) * logprob.sum(dim=1)).sum(dim=-1)
    return (entropies - crossed).mean() / (patterns * (patterns - 1) / 2)


def vote_loss(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Divergence of each pattern from the vote of a teacher's patterns, in nats.

    Both (fact, pattern, candidate). The vote is the mean of the teacher's distributions over
    patterns, sharpened by a temperature of 0.5. The loss is the mean over facts and patterns of
    ``KL(vote || p_n)``. A fixed teacher keeps facts apart; mutual agreement alone is cheapest if
    all facts get one answer.
    """
    votes = teacher.float().log_softmax(dim=-1).logsumexp(dim=1, keepdim=True)
    votes = (votes / 0.5).log_softmax(dim=-1)
    logprob = logits.float().log_softmax(dim=-1)
    return (votes.exp() * (votes - logprob)).sum(dim=-1).mean()


MASKED = 0.15
"""Share of tokens that masked-language modelling predicts (Devlin et al. 2019, Section 3.1)."""


Asked = tuple[list[list[int]], list[int]]  # Token ids, and where each is answered


class Words(NamedTuple):
    """Token ids of texts, with masks, and words to predict: text, position and token of each."""

    sequences: list[list[int]]
    rows: list[int]
    columns: list[int]
    labels: list[int]


class Objective:
    """What a model learns to predict."""

    def __init__(self, loaded: Pretrained) -> None:
        self.loaded, self.tokenizer = loaded, loaded.tokenizer

    def scorer(self, model: PreTrainedModel, protocol: Protocol) -> MaskedModel | CausalModel:
        """The model, or a copy of it, as ``probe`` uses it."""
        loaded = replace(self.loaded, model=model, identity={"model": "in training"})
        return MaskedModel(loaded, protocol) if loaded.kind == "masked" else CausalModel(loaded)


class MaskedObjective(Objective):
    """Predicts the object at the mask, and masked words of text."""

    def questions(self, facts: Sequence[Fact], patterns: Sequence[Pattern]) -> Asked:
        """Token ids of each fact in each pattern, and the position at which it is answered."""
        contexts = [one.around_object(fact.subject) for fact in facts for one in patterns]
        questions = masked_sentences(self.tokenizer, contexts)
        return questions, [ids.index(self.tokenizer.mask_token_id) for ids in questions]

    def words(self, texts: Sequence[str], longest: int, seed: str) -> Words:
        """15 % of the tokens of each text, at least one: 80 % masked, 10 % replaced, 10 % kept."""
        tokenizer, generator = self.tokenizer, random.Random(seed)
        special = set(tokenizer.all_special_ids)
        words = Words([], [], [], [])
        for row, ids in enumerate(encode(tokenizer, texts, special=True)):
            changed = ids[:longest]
            maskable = [at for at, token in enumerate(changed) if token not in special]
            chosen = [at for at in maskable if generator.random() < MASKED]
            for at in chosen or generator.sample(maskable, min(1, len(maskable))):
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


class CausalObjective(Objective):
    """Predicts the object after the text before it, and every next word of text."""

    def questions(self, facts: Sequence[Fact], patterns: Sequence[Pattern]) -> Asked:
        lefts = [p.around_object(fact.subject)[0].rstrip() for fact in facts for p in patterns]
        start = start_token(self.tokenizer)
        questions = [[start, *ids] for ids in encode(self.tokenizer, lefts)]
        return questions, [len(ids) - 1 for ids in questions]

    def words(self, texts: Sequence[str], longest: int, seed: str) -> Words:
        start = start_token(self.tokenizer)
        whole = [[start, *ids[:longest]] for ids in encode(self.tokenizer, texts)]
        return Words(
            [ids[:-1] for ids in whole],
            [row for row, ids in enumerate(whole) for _ in ids[1:]],
            [column for ids in whole for column in range(len(ids) - 1)],
            [id_ for ids in whole for id_ in ids[1:]],
        )


def objective_of(loaded: Pretrained) -> MaskedObjective | CausalObjective:
    """The objective for a model; a sequence-to-sequence model is an error."""
    if loaded.kind == "seq2seq":
        raise ConsilienceError(
            f"'{loaded.identity['model']}' is a sequence-to-sequence model",
            expected="a masked or causal one",
        )
    return MaskedObjective(loaded) if loaded.kind == "masked" else CausalObjective(loaded)


LONGEST = 128
"""Tokens of the longest sequence, where a model has as many positions; a longer text is truncated,
a longer question left out."""


@dataclass(frozen=True, slots=True)
class TrainedRelation:
    """A relation to train on, and the tokens (pattern, candidate) that are compared in it."""

    relation: Relation
    patterns: tuple[Pattern, ...]
    tokens: torch.Tensor


def trained_relation(relation: Relation, loaded: Pretrained, protocol: Protocol) -> TrainedRelation:
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
    is_causal = loaded.kind == "causal"
    patterns = tuple(one for one in relation.patterns if one.object_last or not is_causal)
    rules: Protocol = "published" if is_causal else protocol
    if len(patterns) < 2:
        limits = " that ends in the object" if is_causal else ""
        raise ConsilienceError(
            f"{relation.id} has {'one pattern' if patterns else 'no pattern'}{limits}",
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
    first_of = {int(sheets[0].same[at]): at for at in reversed(columns)}
    columns = sorted(first_of.values())
    if len(columns) < 2:
        raise ConsilienceError(
            f"{relation.id} has {'one candidate' if columns else 'no candidate'} of one token",
            expected="two or more",
            todo="Train on another relation.",
        )
    tokens = torch.tensor([sheet.first_tokens[columns].tolist() for sheet in sheets])
    return TrainedRelation(relation, patterns, tokens)


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training in their order; an item is the same whenever it is read.

    An epoch has ``plan.facts`` facts of each relation once, without those that have a question
    longer than ``longest``, in groups of ``plan.batch`` facts of a relation, or of all that it has;
    a last one that is not full is left out. Relations take turns.
    The masks of text depend on the seed and the number of the item.
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
        sampled = []
        for trained in relations:
            every, patterns = trained.relation.facts, trained.patterns
            generator = random.Random(f"{plan.seed} {trained.relation.id}")
            sample = generator.sample(every, min(plan.facts, len(every)))
            asked = [self.objective.questions([one], patterns)[0] for one in sample]
            fits = [max(map(len, questions)) <= longest for questions in asked]
            sampled.append(list(compress(sample, fits)))
        for epoch in range(plan.epochs):
            turns = []
            for at, facts in enumerate(sampled):
                order = random.Random(f"{plan.seed} {epoch} {at}").sample(facts, len(facts))
                whole = len(order) // plan.batch * plan.batch or len(order)
                turns += [
                    (start, at, tuple(order[start : start + plan.batch]))
                    for start in range(0, whole, plan.batch)
                ]
            self.groups += [(at, facts) for _, at, facts in sorted(turns, key=lambda t: t[:2])]
        if all(len(facts) < plan.batch for facts in sampled):
            raise ConsilienceError(
                f"fewer than {plan.batch} facts in every training relation",
                expected="one batch of facts or more",
                todo="Lower --batch-size or train on relations with more facts.",
            )

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Token ids (sequence, token) of the questions and then of the texts, and what to predict.

        ``rows, columns`` (position,): where the questions are answered, fact by fact and pattern
        by pattern, then where the words of the texts are; ``labels`` (word,): those words.
        """
        at, facts = self.groups[index]
        trained = self.relations[at]
        questions, answered_at = self.objective.questions(facts, trained.patterns)
        seed, patterns = self.plan.seed, trained.relation.patterns
        texts = [one.fill(fact.subject, fact.object) for fact in facts for one in patterns]
        if self.plan.text == "file":
            texts = random.Random(f"{seed} text {index}").choices(self.lines, k=len(texts))
        words = Words([], [], [], [])
        if self.plan.text != "none":
            words = self.objective.words(texts, self.longest, f"{seed} {index}")
        return {
            "sequences": [*questions, *words.sequences],
            "rows": [*range(len(questions)), *(len(questions) + row for row in words.rows)],
            "columns": [*answered_at, *words.columns],
            "labels": words.labels,
            "answered": len(questions),
            "shape": (len(facts), len(trained.patterns)),
            "candidates": trained.tokens,
        }


@dataclass(frozen=True, slots=True)
class TrainedItem:
    """A question to train on.

    ``asks``: for each variant the token ids of the prompt, those of every option, in the given
    order of the options whatever order is shown, and what the scoring rule multiplies the
    log-probability of each with. ``teacher`` (variant, option): the scores that the teacher gives.
    """

    asks: Sequence[tuple[list[int], list[list[int]], list[float]]]
    teacher: torch.Tensor


def trained_items(
    presented: Presented, taught: pl.DataFrame | None, loaded: Pretrained
) -> list[TrainedItem]:
    """The questions that can differ: two variants or more that fit and the teacher answered.

    ``taught``: the answers of the teacher, the table of a run; without it all options are equal.
    """
    rows = () if taught is None else taught.to_dicts()
    known = {(row["group"], row["item"], row["variant_index"]): row for row in rows}
    tokens = PromptTokens(loaded.tokenizer, end_tokens(loaded), str(loaded.identity["model"]))
    asks, scores = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
    for group, questions in presented.questions.groups.items():
        presenter = presented.presenter(group, is_chat=tokens.has_template)
        for at, variant, prompt in prompts_of(questions, presenter):
            question, key = questions[at], (group, questions[at].item)
            row = known.get((*key, variant), {})
            told = row.get("option_scores") if known else [0.0] * len(question.options)
            if told is None or not all(prompt.answers):
                continue
            ids, targets = tokens.encode(prompt)
            sizes = np.array([len(target) for target in targets])
            if len(ids) + sizes.max() - 1 > positions(loaded.model):
                continue
            rule = presenter.presentations[variant].rule
            scales = rule.scores(np.ones(len(sizes)), sizes, prompt.answers)
            places = [prompt.options.index(option) for option in range(len(told))]
            asks[key].append((ids, [targets[at] for at in places], scales[places].tolist()))
            scores[key].append(told)
    items = [TrainedItem(asks[key], torch.tensor(scores[key])) for key in asks]
    return [item for item in items if len(item.asks) > 1]


VARIANTS = 8
"""At most so many variants of a question are read in an update."""


class QuestionSteps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training on questions; an item is the same whenever it is read.

    A step is one question, so that only its prompts have to fit in memory; ``plan.batch`` steps
    are an update. An epoch has every question once, without an update that is not full, each in at
    most ``VARIANTS`` of its variants, which are drawn for each update.
    """

    def __init__(
        self, items: Sequence[TrainedItem], loaded: Pretrained, plan: Plan, lines: Sequence[str]
    ) -> None:
        """``lines``: text for language modelling, one for each question."""
        self.items, self.plan, self.lines = items, plan, lines
        self.tokenizer, self.objective = loaded.tokenizer, objective_of(loaded)
        self.groups: list[list[int]] = []
        for epoch in range(plan.epochs):
            order = random.Random(f"{plan.seed} {epoch}").sample(range(len(items)), len(items))
            starts = range(0, len(order) - len(order) % plan.batch, plan.batch)
            self.groups += [order[start : start + plan.batch] for start in starts]
        if not self.groups:
            raise ConsilienceError(
                f"{len(items)} questions to train on with two variants",
                expected=f"{plan.batch} or more",
                todo="Lower --batch-size or train on more questions.",
            )

    def __len__(self) -> int:
        return len(self.groups) * self.plan.batch

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Token ids (sequence, token) of prompts with their answers, and then of a text.

        ``rows, columns`` (position,): where answers are predicted, then where the words of the
        texts are. ``picks`` (pick, 3): a position, a token that is scored there, and the answer
        whose score it is part of. ``scales`` (answer,): those of the asks. ``shape``: the variants
        and the options.
        """
        update, place = divmod(index, self.plan.batch)
        generator = random.Random(f"{self.plan.seed} {update}")
        for item in (self.items[at] for at in self.groups[update][: place + 1]):
            count = min(VARIANTS, len(item.asks))
            drawn = sorted(generator.sample(range(len(item.asks)), count))
        sequences, rows, columns, picks = list[list[int]](), list[int](), list[int](), []
        scales, answers = list[float](), 0
        for ids, targets, of_ask in map(item.asks.__getitem__, drawn):
            scales += of_ask
            is_shared = max(map(len, targets)) == 1  # all are predicted at one position
            for number, target in enumerate(targets):
                if not (is_shared and number):
                    sequences.append([*ids, *target[:-1]])
                    rows += [len(sequences) - 1] * len(target)
                    columns += range(len(ids) - 1, len(ids) - 1 + len(target))
                begin = len(rows) - len(target)
                picks += [(begin + at, token, answers) for at, token in enumerate(target)]
                answers += 1
        answered, questions, words = len(rows), len(sequences), Words([], [], [], [])
        if self.plan.text == "file":
            seed = f"{self.plan.seed} text {index}"
            words = self.objective.words([random.Random(seed).choice(self.lines)], LONGEST, seed)
        return {
            "sequences": [*sequences, *words.sequences],
            "rows": [*rows, *(questions + row for row in words.rows)],
            "columns": [*columns, *words.columns],
            "labels": words.labels,
            "answered": answered,
            "shape": (count, item.teacher.shape[1]),
            "picks": torch.tensor(picks),
            "scales": torch.tensor(scales),
            "teacher": item.teacher,
        }


def collate(item: dict[str, Any], pad: int) -> dict[str, Any]:
    """One step's tensors: its sequences padded to the longest."""
    sequences = item["sequences"]
    tensors = {name: torch.tensor(item[name]) for name in ("rows", "columns")}
    tensors["labels"] = torch.tensor(item["labels"], dtype=torch.long)
    rest = {name: value for name, value in item.items() if name != "sequences"}
    ids = torch.full((len(sequences), max(map(len, sequences))), pad)
    attention = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        attention[row, : len(sequence)] = 1
    return {**rest, **tensors, "input_ids": ids, "attention_mask": attention}


@torch.inference_mode()
def text_losses(spec: str, lines: Sequence[str], loading: Loading) -> list[tuple[float, int]]:
    """The loss of each line of text, in nats, summed over the words that are predicted; how many.

    Masked models: 15 % of the tokens, the same ones for every model (the pseudo-perplexity of a
    sample). Causal models: every next token. Models with different tokenizers cannot be compared.
    """
    loaded = load_pretrained(spec, loading)
    model = loaded.model.eval()
    longest = min(LONGEST, positions(model))
    words = objective_of(loaded).words(lines, longest, "0")
    predicted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, column, label in zip(words.rows, words.columns, words.labels, strict=True):
        predicted[row].append((column, label))
    losses = [(0.0, 0)] * len(words.sequences)
    for batch in equal_length_batches([len(ids) for ids in words.sequences], Budget(2048)):
        ids = torch.tensor([words.sequences[row] for row in batch], device=model.device)
        logits: Any = model(input_ids=ids).logits
        for at, row in enumerate(batch.tolist()):
            if not predicted[row]:
                continue
            columns, labels = zip(*predicted[row], strict=True)
            loss = torch.nn.functional.cross_entropy(
                logits[at, list(columns)].float(),
                torch.tensor(labels, device=model.device),
                reduction="sum",
            )
            losses[row] = float(loss), len(labels)
    return losses


def perplexity_of(losses: Sequence[tuple[float, int]]) -> float | None:
    """Exponential of the mean loss over words of text, in tokens; None without words."""
    if not (count := sum(words for _, words in losses)):
        return None
    return math.exp(math.fsum(loss for loss, _ in losses) / count)
