"""Consistency training: losses, settings, what a step reads, the trainer (ParaRel, Section 6).

A fact in its patterns and a question in its phrasings are one kind of item: it is asked in several
variants, and each of its options gets a score in each of them.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl
import torch
from transformers import PreTrainedModel

from consilience import suites
from consilience.core.errors import (
    SILENT,
    ConsilienceError,
    Loading,
    Progress,
    Protocol,
    needs_extra,
)
from consilience.core.factors import linked_questions
from consilience.core.items import Floats
from consilience.core.provenance import versions
from consilience.core.text import counted, listed
from consilience.files.read import read_text
from consilience.metrics.measure import measure
from consilience.models import LanguageModel
from consilience.models.batches import head_at, positions
from consilience.models.causal import CausalModel
from consilience.models.classifier import collate
from consilience.models.loading import Pretrained, load_pretrained, locate
from consilience.models.masked import MaskedModel, masked_sentences
from consilience.models.prompted import PromptModel, end_tokens
from consilience.models.prompts import PromptReader
from consilience.models.tokens import candidates_in_slot, encode, slot_anchor, start_token
from consilience.options.commands import ImproveOptions, ProbeOptions, refuse_options
from consilience.plans import kind_of, plan_of
from consilience.plans.questions import Presented, prompts_of, questions_of
from consilience.suites.question_suites import BLANK
from consilience.suites.questions import Questions
from consilience.train import BatchTrainer, TrainingFolder, trained
from consilience.types import Relation, Suite


def pairs_loss(scores: torch.Tensor, teacher: torch.Tensor | None = None) -> torch.Tensor:
    """Two-sided Kullback-Leibler divergence of all pairs of variants, in nats.

    ``scores`` (item, variant, option). With ``p_n`` the distribution that variant n gives over the
    options, the mean over items and over pairs n < m of ``KL(p_n || p_m) + KL(p_m || p_n)``. The
    paper sums over pairs, so that a relation of 20 patterns counts 32 times one of 4; the mean
    makes lambda mean the same for both. 0 where there is one variant.
    """
    variants = scores.shape[1]
    if variants < 2:
        return scores.sum() * 0
    logprob = scores.float().log_softmax(dim=-1)
    prob = logprob.exp()
    # Summed over ordered pairs: n sum_n p_n log p_n - (sum_n p_n) (sum_m log p_m).
    entropies = variants * (prob * logprob).sum(dim=(1, 2))
    crossed = (prob.sum(dim=1) * logprob.sum(dim=1)).sum(dim=-1)
    return (entropies - crossed).mean() / (variants * (variants - 1) / 2)


def vote_loss(scores: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Divergence of each variant from the vote of a teacher's variants, in nats.

    Both (item, variant, option). The vote is the mean of the teacher's distributions over variants,
    sharpened by a temperature of 0.5. The loss is the mean over items and variants of
    ``KL(vote || p_n)``. A fixed teacher keeps items apart; mutual agreement alone is cheapest if
    all items get one answer.
    """
    votes = teacher.float().log_softmax(dim=-1).logsumexp(dim=1, keepdim=True)
    votes = (votes / 0.5).log_softmax(dim=-1)
    logprob = scores.float().log_softmax(dim=-1)
    return (votes.exp() * (votes - logprob)).sum(dim=-1).mean()


SAMPLE_SEED = 0
"""Samples the facts to validate and to test on: the same ones whatever the seed of the training."""

LORA_RANK, LORA_RATE, QUESTIONS_RATE, FACTS_RATE = 8, 3e-4, 1e-5, 6e-5
"""The rank of adapters, the learning rate with them, and that of all weights."""

PARTS = {"train": 0.6, "validation": 0.8, "test": 1.0}
"""The share of the questions up to the end of each part, where no groups are named."""

SETTINGS = (
    "train_groups", "validation_groups", "vary", "design", "hold_out_factor", "template",
    "option_score", "loss", "weight", "mlm", "train_facts", "batch_size", "epochs", "learning_rate",
    "validation_facts", "lora_rank", "bf16", "trust_remote_code",
)  # fmt: skip
"""The options that decide the weights of a training by their values."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training on a suite of facts or of questions.

    ``options``: without a default that is still open.
    ``lines``: text whose perplexity is measured, and that is never trained on.
    """

    options: ImproveOptions
    suite: Suite | Questions
    lines: Sequence[str] = ()

    @classmethod
    def of(cls, options: ImproveOptions) -> Training:
        """The training that options name, with the defaults of its kind of suite."""
        kind = kind_of(options.suite, options.as_questions)
        refuse_options(options, kind, f"a suite of {kind}")
        lines = read_text(options.text).splitlines() if options.text else []
        texts = [*filter(None, map(str.strip, lines))]
        if kind != "questions":
            return cls(options, suites.load_suite(options.suite), texts).with_defaults()
        suite = questions_of(ProbeOptions(
            model=options.model, suite=options.suite, columns=options.columns,
            as_questions=options.as_questions, seed=SAMPLE_SEED,
        ))  # fmt: skip
        if not (options.train_groups or options.validation_groups):
            suite, groups = split_by_item(suite), [*PARTS]
            options = replace(options, train_groups=groups[:1], validation_groups=groups[1:2])
        return cls(options, suite, texts).with_defaults()

    def with_defaults(self) -> Training:
        """The training with every option set; the defaults of facts and of questions differ."""
        options, is_new = self.options, self.asks_questions
        rank = options.lora_rank if options.lora_rank is not None else LORA_RANK * is_new
        rate = (LORA_RATE if rank else QUESTIONS_RATE) if is_new else FACTS_RATE
        return self.with_options(
            lora_rank=rank, learning_rate=options.learning_rate or rate,
            mlm=options.mlm or ("none" if is_new else "patterns"),
        )  # fmt: skip

    def with_options(self, **change: Any) -> Training:
        return replace(self, options=replace(self.options, **change))

    @property
    def asks_questions(self) -> bool:
        return isinstance(self.suite, Questions)

    @property
    def has_teacher(self) -> bool:
        """Whether another model, which only learns the sentences of facts, is trained first."""
        return self.options.loss == "vote" and self.options.mlm == "patterns"

    @property
    def protocol(self) -> Protocol:
        return "strict" if isinstance(self.suite, Questions) else self.suite.protocol

    @property
    def chosen_by(self) -> str:
        """The metric of validation that chooses the checkpoint and the seed."""
        return "corrected_consistency" if self.asks_questions else "consistent_accuracy"

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the weights."""
        options = self.options
        return {name: getattr(options, name) for name in SETTINGS} | {
            "seed": options.seed,
            "suite": self.suite.digest,
            "weights": locate(options.model).digest or options.model,
        }

    @property
    def loading(self) -> Loading:
        """How the model is loaded to be trained: in single precision."""
        return Loading("cpu", trust_remote_code=self.options.trust_remote_code)

    def load(self) -> Pretrained:
        """The causal model to train on questions, or the masked one to train on facts."""
        loaded = load_pretrained(self.options.model, self.loading)
        kind = "causal" if self.asks_questions else "masked"
        if loaded.kind != kind:
            found = f"'{self.options.model}' is a {loaded.kind} model"
            todo = (
                "Causal models learn facts as questions (--as-questions), masked models from facts."
            )
            raise ConsilienceError(found, expected=f"a {kind} language model", todo=todo)
        return loaded

    def schedule(self, counts: Sequence[int]) -> tuple[int, int, int]:
        """Steps of an update, updates, and updates between two checkpoints.

        ``counts``: of the facts of each training relation, or of all questions; none raise.
        """
        options, batch = self.options, min(self.options.batch_size, max(counts))
        if not batch:
            of = "question with two variants" if self.asks_questions else "fact"
            raise ConsilienceError(f"no {of} to train on", todo="Train on more groups.")
        if self.asks_questions:
            updates = sum(counts) // batch * options.epochs
            return batch, updates, math.ceil(updates / 3)
        steps = sum(max(count // batch, int(count > 0)) for count in counts) * options.epochs
        updates = math.ceil(steps / len(counts))
        return len(counts), updates, max(1, updates // (2 * options.epochs))

    @property
    def untrained(self) -> list[str]:
        """The groups, of facts the N-1 relations, that are not trained on."""
        names = (
            [one.id for one in self.suite.relations if one.cardinality == "N-1"]
            if isinstance(self.suite, Suite)
            else [*self.suite.groups]
        )
        return [name for name in names if name not in self.options.train_groups]

    @property
    def test_groups(self) -> list[str]:
        """Those that are not validated on either."""
        return [name for name in self.untrained if name not in self.options.validation_groups]

    @property
    def factors(self) -> dict[str, str]:
        """What ``--vary`` says of each factor."""
        return {one.partition("=")[0].strip(): one for one in self.options.vary or ()}

    def asked(
        self, groups: Sequence[str], limit: int | None, factors: Sequence[str] = ()
    ) -> ProbeOptions:
        """The options of ``probe`` for groups of the suite, in the variants of the training.

        ``factors``: of ``--vary``, instead of those that are trained on.
        """
        options = self.options
        how: dict[str, Any] = {"protocol": self.protocol}
        if self.asks_questions:
            trained = [of for of in self.factors if of not in options.hold_out_factor]
            same = "template", "option_score", "design"
            how = {name: getattr(options, name) for name in same}
            vary = tuple(self.factors[factor] for factor in factors or trained)
            how["vary"] = vary if options.vary is not None else None
        return ProbeOptions(
            model=options.model, groups=tuple(groups), limit=limit, seed=SAMPLE_SEED,
            device=options.device, trust_remote_code=options.trust_remote_code, **how,
        )  # fmt: skip

    def check(self) -> None:
        """Refuse what cannot be carried out or would mean nothing."""
        options, suite, new = self.options, self.suite, self.asks_questions
        train, validation = options.train_groups, options.validation_groups
        group = "group" if new else "relation"
        locate(options.model)  # an impossible name raises
        if not (train and validation):
            todo = "Name some: --train-groups capital,author --validation-groups currency."
            found = f"no {group}s to {'validate' if train else 'train'} on"
            raise ConsilienceError(found, todo=todo)
        plan_of(self.asked((*train, *validation), None, [*self.factors]), suite)  # unknown names
        wrong = [name for name in validation if name not in self.untrained]
        unvaried = sorted({*options.hold_out_factor} - {*self.factors})
        for is_there, found, expected, todo in (
            (wrong, f"{', '.join(wrong)} in --validation-groups",
             f"{'' if new else 'N-1 '}{group}s that are not trained on",
             f"Known: {listed(self.untrained, 12)}."),
            (unvaried, f"--hold-out-factor {','.join(unvaried)}",
             f"a factor that --vary names: {', '.join(self.factors) or 'none'}", ""),
            (new and options.loss == "pairs-vocabulary",
             f"'{options.loss}' in a training on questions", "one on facts", ""),
            (not self.test_groups, f"no {group} is left to test on", "", "Train on fewer."),
        ):  # fmt: skip
            if is_there:
                raise ConsilienceError(found, expected=expected, todo=todo)


def split_by_item(questions: Questions) -> Questions:
    """The questions in groups named as in ``PARTS``, by the digests of their names.

    Questions that an expectation links, or that are equal, are in one part.
    """
    equal = defaultdict[object, list[str]](list)
    for one in questions.items:
        texts = next(iter(one.paraphrases.values()))
        options = frozenset(one.options) if BLANK not in texts[0] else None  # one fact has several
        equal[one.context, texts[0], options].append(one.item)
    links = linked_questions([*(one.items for one in questions.expectations), *equal.values()])
    ranked = sorted({*links.values()}, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    part = {
        name: next(part for part, end in PARTS.items() if at + 0.5 < end * len(ranked))
        for at, name in enumerate(ranked)
    }
    items = (replace(question, group=part[links[question.item]]) for question in questions.items)
    return replace(questions, items=tuple(items))


LONGEST = 128
"""Tokens of the longest sequence, where a model has as many positions; a longer text is truncated,
a longer sentence of a fact left out."""

LINES = 16
"""Lines of text whose perplexity is measured in a batch."""

VARIANTS = 8
"""At most so many variants of a question are read in a step."""

MASKED = 0.15
"""Share of tokens that masked-language modelling predicts (Devlin et al. 2019, Section 3.1)."""


class Inputs(NamedTuple):
    """An item in one variant: the sequences of tokens that are read, and what scores are made of.

    ``reads``: sequences and positions at which the vocabulary is computed. ``picks`` (pick, 3): a
    read, a token there, and the option that its log-probability is part of. ``scales``: what the
    sum of each option is multiplied with, in the given order of options.
    """

    sequences: list[list[int]]
    reads: list[tuple[int, int]]
    picks: torch.Tensor
    scales: list[float]


@dataclass(slots=True)
class TrainedItem:
    """A fact or a question to train on.

    ``texts``: sentences for language modelling. ``teacher`` (variant, option): the scores that the
    model has before the training.
    """

    asks: list[Inputs]
    texts: list[str] = field(default_factory=list)
    teacher: torch.Tensor | None = None


def fact_items(
    relation: Relation, loaded: Pretrained, training: Training, longest: int
) -> list[TrainedItem]:
    """Facts of a relation; those with a sentence of more than ``longest`` tokens are left out.

    The object is predicted at the mask, among the words that are one token in every pattern.
    """
    tokenizer, patterns, words = loaded.tokenizer, relation.patterns, relation.candidates.words
    rules = training.protocol
    anchors = [slot_anchor(one.around_object("x")[0], rules) for one in patterns]
    sheets = [candidates_in_slot(tokenizer, words, anchor, rules) for anchor in anchors]
    known = [at for at in range(len(words)) if all(tokenized.tokens[at] for tokenized in sheets)]
    options = (
        sorted({int(sheets[0].same[at]): at for at in reversed(known)}.values()) if sheets else []
    )
    if relation.names or min(len(patterns), len(options)) < 2:
        several = counted(len(patterns), "pattern")
        found = f"{relation.id} has {several} and {counted(len(options), 'candidate')} of one token"
        raise ConsilienceError(found, expected="two or more of each, in one language")
    picks = [
        torch.tensor([(0, int(tokenized.first_tokens[at]), n) for n, at in enumerate(options)])
        for tokenized in sheets
    ]
    count = min(training.options.train_facts, len(relation.facts))
    draw, items = random.Random(f"{training.options.seed} {relation.id}"), list[TrainedItem]()
    for fact in draw.sample(relation.facts, count):
        contexts = [pattern.around_object(fact.subject) for pattern in patterns]
        sentences = masked_sentences(tokenizer, contexts)
        places = [ids.index(tokenizer.mask_token_id) for ids in sentences]
        if max(map(len, sentences)) <= longest:
            asks = [
                Inputs([ids], [(0, place)], of_pattern, [1.0] * len(options))
                for ids, place, of_pattern in zip(sentences, places, picks, strict=True)
            ]
            read = relation.patterns if training.options.mlm == "patterns" else ()
            texts = [one.fill(fact.subject, fact.object) for one in read]
            items.append(TrainedItem(asks, texts))
    return items


def question_items(training: Training, loaded: Pretrained) -> list[TrainedItem]:
    """The questions that can differ: in two variants or more that the model can be asked."""
    options = training.options
    asked = training.asked(options.train_groups, options.train_facts)
    presented = Presented.of(asked, training.suite)
    name, longest = str(loaded.identity["model"]), positions(loaded.model)
    reader = PromptReader(loaded.tokenizer, end_tokens(loaded), name, longest)
    items = list[TrainedItem]()
    for group, questions in presented.groups.items():
        prompt_builder = presented.prompt_builder(group, is_chat=reader.takes_chats)
        asks = defaultdict[int, list[Inputs]](list)
        for at, variant, prompt in prompts_of(questions, prompt_builder):
            if not all(prompt.answers) or reader.why_not([prompt])[0]:
                continue
            ids, targets = reader.encode(prompt)
            sizes = np.array([len(target) for target in targets])
            rule = prompt_builder.presentations[variant].rule
            scales = rule.scores(np.ones(len(sizes)), sizes, prompt.answers)
            places = [prompt.options.index(option) for option in range(len(targets))]
            asks[at].append(ask_of(ids, [targets[at] for at in places], scales[places].tolist()))
        items += [TrainedItem(of_item) for of_item in asks.values() if len(of_item) > 1]
    return items


def ask_of(prompt: list[int], targets: Sequence[list[int]], scales: list[float]) -> Inputs:
    """A prompt followed by each option; options of one token are predicted at one position."""
    sequences, reads, picks = list[list[int]](), list[tuple[int, int]](), []
    is_shared = max(map(len, targets)) == 1
    for option, target in enumerate(targets):
        if not (is_shared and option):
            sequences.append([*prompt, *target[:-1]])
            begin = len(prompt) - 1
            reads += [(len(sequences) - 1, begin + at) for at in range(len(target))]
        first = len(reads) - len(target)
        picks += [(first + at, token, option) for at, token in enumerate(target)]
    return Inputs(sequences, reads, torch.tensor(picks), scales)


class Words(NamedTuple):
    """Token ids of texts, with masks, and the words to predict: their places and tokens."""

    sequences: list[list[int]]
    places: list[tuple[int, int]]
    labels: list[int]


NO_WORDS = Words([], [], [])


def words_of(loaded: Pretrained, texts: Sequence[str], longest: int, seed: str) -> Words:
    """What language modelling reads of texts, at most ``longest`` tokens of each.

    Causal models predict every next word. Masked models predict 15 % of the tokens of each text, at
    least one: 80 % are masked, 10 % replaced, 10 % kept.
    """
    tokenizer, words = loaded.tokenizer, Words([], [], [])
    if loaded.kind == "causal":
        for row, ids in enumerate(encode(tokenizer, texts)):
            whole = [start_token(tokenizer), *ids[:longest]]
            words.sequences.append(whole[:-1])
            words.places.extend((row, column) for column in range(len(whole) - 1))
            words.labels.extend(whole[1:])
        return words
    generator, special = random.Random(seed), set(tokenizer.all_special_ids)
    for row, ids in enumerate(encode(tokenizer, texts, special=True)):
        changed = ids[:longest]
        maskable = [at for at, token in enumerate(changed) if token not in special]
        chosen = [at for at in maskable if generator.random() < MASKED]
        for at in chosen or generator.sample(maskable, min(1, len(maskable))):
            words.places.append((row, at))
            words.labels.append(ids[at])
            share = generator.random()
            if share < 0.8:
                changed[at] = int(tokenizer.mask_token_id or 0)
            elif share < 0.9:
                changed[at] = generator.randrange(len(tokenizer))
        words.sequences.append(changed)
    return words


def padded(sequences: Sequence[list[int]], loaded: Pretrained) -> dict[str, torch.Tensor]:
    """``input_ids, attention_mask`` (sequence, token), padded to the longest."""
    pad = int(loaded.tokenizer.pad_token_id or 0)
    return collate([{"input_ids": ids} for ids in sequences], pad)


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """All steps of a training in their order; a step is the same whenever it is read.

    An epoch has every item once, without those of a last update or batch that is not full. Of facts
    a step has ``--batch-size`` facts of a relation, or all that it has, and relations take turns.
    Of questions it has one, so that only its prompts have to fit in memory, in at most ``VARIANTS``
    variants, and ``--batch-size`` steps are an update.
    """

    def __init__(self, training: Training, loaded: Pretrained) -> None:
        self.training, self.loaded, self.options = training, loaded, training.options
        self.longest = min(LONGEST, positions(loaded.model))
        if isinstance(training.suite, Questions):
            groups, size = [question_items(training, loaded)], 1
        else:
            relations = [training.suite.relation(id_) for id_ in self.options.train_groups]
            groups = [fact_items(one, loaded, training, self.longest) for one in relations]
            size = self.options.batch_size
        self.turns, _, self.interval = training.schedule([*map(len, groups)])
        self.items = [item for items in groups for item in items]
        self.steps = [*self._in_order(groups, size)]

    def _in_order(
        self, groups: Sequence[list[TrainedItem]], size: int
    ) -> Iterator[list[TrainedItem]]:
        """The items of each step, at most ``size`` of one group; groups take turns."""
        is_new, batch = self.training.asks_questions, self.options.batch_size
        for epoch in range(self.options.epochs):
            turns = []
            for at, items in enumerate(groups):
                name = f"{self.options.seed} {epoch}" + f" {at}" * (not is_new)
                order = random.Random(name).sample(items, len(items))
                whole = len(order) // batch * batch or len(order)
                starts = range(0, whole, size)
                turns += [(start, at, order[start : start + size]) for start in starts]
            for _, _, items in sorted(turns, key=lambda turn: turn[:2]):
                yield items

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, at: int) -> dict[str, Any]:
        items, seed = self.steps[at], f"{self.options.seed} {at}"
        texts = [text for item in items for text in item.texts]
        asks, draw = [item.asks for item in items], random.Random(seed)
        if self.training.asks_questions:
            asks = [
                [of[n] for n in sorted(draw.sample(range(len(of)), min(VARIANTS, len(of))))]
                for of in asks
            ]
        step = self.tensors(asks, words_of(self.loaded, texts, self.longest, seed))
        taught = [item.teacher for item in items if item.teacher is not None]
        return step | {"teacher": torch.stack(taught) if taught else None}

    def tensors(self, asks: Sequence[Sequence[Inputs]], words: Words = NO_WORDS) -> dict[str, Any]:
        """What a model reads, and what is read of it; ``asks``: of each item.

        The sequences of asks, then the texts (``padded``). ``rows, columns`` (read,): where the
        vocabulary is computed, in the first ``answered`` for the scores, then for the words
        (``labels``). ``picks`` (pick, 3), ``scales`` (score,): as of an ask, over all of them.
        ``shape``: items, variants, options.
        """
        sequences, places, picks, scales = list[list[int]](), list[Any](), [], list[float]()
        for ask in (ask for of_item in asks for ask in of_item):
            picks.append(ask.picks + torch.tensor([len(places), 0, len(scales)]))
            places += [(len(sequences) + row, column) for row, column in ask.reads]
            sequences += ask.sequences
            scales += ask.scales
        answered, texts = len(places), len(sequences)
        places += [(texts + row, column) for row, column in words.places]
        rows, columns = torch.tensor(places).unbind(dim=1)
        return {
            **padded([*sequences, *words.sequences], self.loaded),
            "rows": rows, "columns": columns, "answered": answered, "picks": torch.cat(picks),
            "scales": torch.tensor(scales), "shape": (len(asks), len(asks[0]), -1),
            "labels": torch.tensor(words.labels, dtype=torch.long),
        }  # fmt: skip


VALIDATED = ("accuracy", "consistency", "consistent_accuracy")
"""The metrics of validation."""

TIE_METRIC = "corrected_consistency"
"""Decides between equal values of the metric that chooses: a model that gives one answer to
everything, and so is consistent, has none."""


def rank(validation: Mapping[str, float], by: str) -> list[float]:
    """What orders checkpoints and seeds by a metric of their validation, then by ``TIE_METRIC``."""
    values = (validation.get(name, math.nan) for name in (by, TIE_METRIC))
    return [-math.inf if math.isnan(value) else value for value in values]


class ConsistencyTrainer(BatchTrainer):
    """Trains with ``L = lambda * Lc + Llm``; the teacher of a vote is the model as given."""

    def __init__(self, training: Training, folder: Path) -> None:
        options = training.options
        self.training, self.options, self.loaded = training, options, training.load()
        self.steps = Steps(training, self.loaded)
        model: Any = self.loaded.model
        if options.lora_rank:
            model = with_adapters(model, options.lora_rank, options.seed)
        super().__init__(
            model, self.steps, options, folder, interval=self.steps.interval, weight_decay=0.0,
            tokenizer=self.loaded.tokenizer, gradient_accumulation_steps=self.steps.turns,
            metric_for_best_model=f"eval_{training.chosen_by}",
        )  # fmt: skip
        self.model_accepts_loss_kwargs = False  # the loss is a mean over relations
        self.parts: dict[str, list[float]] = {"consistency_loss": [], "lm_loss": []}
        if options.loss == "vote":
            self.teach()

    @torch.no_grad()
    def teach(self) -> None:
        """Keep the scores that the model gives to each item in all variants."""
        model: Any = self.model
        model.eval()
        for item in self.steps.items:
            starts = range(0, len(item.asks), VARIANTS)
            parts = [self.steps.tensors([item.asks[at : at + VARIANTS]]) for at in starts]
            scores = [self.read(model, self._prepare_inputs(part))[0][0] for part in parts]
            item.teacher = torch.cat(scores).cpu()

    def read(self, model: Any, step: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (item, variant, option), and the logits (word, entry) of the words of texts.

        A score is a log-probability; the vocabulary is computed only where it is read. With the
        loss ``pairs-vocabulary`` its words are the options.
        """
        with head_at(self.loaded.model, step["rows"], step["columns"]):
            logits = model(
                input_ids=step["input_ids"], attention_mask=step["attention_mask"]
            ).logits
        answers, words = logits[: step["answered"]], logits[step["answered"] :]
        if self.options.loss == "pairs-vocabulary":
            return answers.view(step["shape"]), words
        places, tokens, scored = step["picks"].unbind(dim=1)
        logprob = answers.float().log_softmax(dim=-1)[places, tokens]
        sums = torch.zeros_like(step["scales"]).index_add(0, scored, logprob)
        return (sums * step["scales"]).view(step["shape"]), words

    def loss_of(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        scores, words = self.read(model, inputs)
        loss_of = vote_loss if self.options.loss == "vote" else pairs_loss
        consistency = loss_of(scores, inputs["teacher"])
        language = torch.zeros((), device=scores.device)
        if len(inputs["labels"]):
            language = torch.nn.functional.cross_entropy(words.float(), inputs["labels"])
        self.parts["consistency_loss"].append(consistency.item())
        self.parts["lm_loss"].append(language.item())
        return self.options.weight * consistency + language

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the two parts of the loss, means since the last log."""
        if "loss" in logs:
            for name, values in self.parts.items():
                logs[name] = math.fsum(values) / max(1, len(values))
                values.clear()
        super().log(logs, *args, **kwargs)

    def validate(self) -> dict[str, float]:
        """Means over the validation relations or questions; a copy of the model answers."""
        training, options = self.training, self.options
        asked_options = training.asked(options.validation_groups, options.validation_facts)
        plan = plan_of(asked_options, training.suite)
        named: dict[str, object] = {"model": "in training"}
        loaded = replace(self.loaded, model=plain_copy(self.model), identity=named)
        asked = as_probed(loaded, training.protocol, asks_questions=training.asks_questions)
        queries = plan.queries(asked)
        tables = [queries.ask(queries.group(name), lambda done: None) for name in queries.groups]
        answers = pl.concat(tables, how="diagonal")
        metrics = measure(answers, plan.suite, plan.protocol)
        means = metrics.filter(over=plan.suite.words.over, kind="whole")
        known = dict(means.select("metric", "value").iter_rows())
        values = {name: known.get(name, math.nan) for name in (*VALIDATED, TIE_METRIC)}
        return {name: x for name, x in values.items() if name != TIE_METRIC or not math.isnan(x)}

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Whether the checkpoint is the best so far; of equal ones the last."""
        ranks = [rank(one, self.training.chosen_by) for one in self.validations]
        is_best = ranks[-1] == max(ranks)
        if is_best:
            self.state.best_metric = ranks[-1][0]
            self.state.best_global_step = self.state.global_step
        return is_best

    def save(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """``model`` is a model like any other, ``adapter`` beside it what LoRA trained.

        Recorded are its metrics on the validation groups, and after which of how many updates.
        """
        folder = Path(str(self.args.output_dir))
        plain_copy(self.model).save_pretrained(folder / "model")
        self.loaded.tokenizer.save_pretrained(folder / "model")
        if self.options.lora_rank:
            adapted: Any = self.model
            config = adapted.peft_config["default"]
            base = config.base_model_name_or_path = locate(self.options.model).base
            config.target_modules = sorted(config.target_modules)  # a set has another order
            adapted.save_pretrained(folder / "adapter", save_embedding_layers=False)
            self.loaded.tokenizer.save_pretrained(folder / "adapter")
            card = adapter_card(self.training, base)
            (folder / "adapter" / "README.md").write_text(card, encoding="utf-8")
        return {
            "validation": {name: best[name] for name in (*VALIDATED, TIE_METRIC) if name in best},
            "checkpoint": {"step": best["step"], "updates": self.state.global_step},
        }


def with_adapters(model: PreTrainedModel, rank: int, seed: int) -> Any:
    """The model with LoRA on all its linear layers, whose weights alone are trained."""
    with needs_extra("train"):
        from peft import LoraConfig, get_peft_model
    torch.manual_seed(seed)  # of the first weights
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    with warnings.catch_warnings():  # a renamed attribute, layers that store W turned
        warnings.simplefilter("ignore")
        try:
            return get_peft_model(model, adapters)
        except ValueError as error:  # such as Mamba
            raise ConsilienceError(str(error), todo="Use --lora-rank 0.") from error


PIPELINES = {False: "fill-mask", True: "text-generation"}
"""The pipeline of transformers that loads a trained model, by whether questions trained it."""


def adapter_card(training: Training, base: str) -> str:
    """The card of an adapter: its base, how it was trained, and how it is loaded."""
    options, version = training.options, versions()["consilience"]
    task = PIPELINES[training.asks_questions]
    return (
        f"---\nbase_model: {base}\nlibrary_name: peft\npipeline_tag: {task}\n"
        f"tags:\n- consilience\n- lora\n---\n\n# Consistency adapter of {base}\n\n"
        f"LoRA of rank {options.lora_rank}, trained with consilience {version} to give one answer "
        f"however a question is asked: suite {training.suite.name}, loss {options.loss} "
        f"(weight {options.weight:g}), learning rate {options.learning_rate:g}, "
        f"{options.epochs} epochs, seed {options.seed}. It loads on its base where peft is "
        f"installed:\n\n```python\nfrom transformers import pipeline\n\n"
        f'model = pipeline("{task}", model="FOLDER")\n```\n\n'
        "Without a network load the folder `model` beside it.\n"
    )


def plain_copy(model: Any) -> PreTrainedModel:
    """A copy with the family's own forward methods, adapters merged, in single precision."""
    copied: Any = copy.deepcopy(model)
    for module in copied.modules():
        module.__dict__.pop("forward", None)
    if hasattr(copied, "merge_and_unload"):  # an adapted model
        copied = copied.merge_and_unload()
    plain: PreTrainedModel = copied.float().eval()
    return plain


def as_probed(loaded: Pretrained, protocol: Protocol, *, asks_questions: bool) -> LanguageModel:
    """A masked or causal model in memory, as ``probe`` asks it."""
    if asks_questions:
        return cast(LanguageModel, PromptModel(loaded))
    masked = loaded.kind == "masked"
    return cast(LanguageModel, MaskedModel(loaded, protocol) if masked else CausalModel(loaded))


def train(training: Training, path: Path, progress: Progress = SILENT) -> dict[str, Any]:
    """Train, resume that training, or take its result: its record (``ConsistencyTrainer.save``).

    ``path`` gets checkpoints, and at the end the best one as ``model``.
    """
    made = partial(ConsistencyTrainer, training, path)
    return trained(TrainingFolder(path, training.settings), made, progress)


@torch.inference_mode()
def text_losses(spec: str, lines: Sequence[str], loading: Loading) -> tuple[Floats, Floats]:
    """Of each line of text the loss, in nats, summed over the words that are predicted; how many.

    Masked models: 15 % of the tokens, the same ones for every model (the pseudo-perplexity of a
    sample). Causal models: every next token. Models with different tokenizers cannot be compared.
    """
    loaded = load_pretrained(spec, loading)
    model = loaded.model.eval()
    words = words_of(loaded, lines, min(LONGEST, positions(model)), "0")
    rows, columns = torch.tensor(words.places).unbind(dim=1)
    labels, losses = torch.tensor(words.labels), torch.zeros(len(lines), dtype=torch.float64)
    for start in range(0, len(lines), LINES):
        here = (rows >= start) & (rows < start + LINES)
        read = padded(words.sequences[start : start + LINES], loaded)
        with head_at(model, rows[here] - start, columns[here]):
            logits = model(**{name: of.to(model.device) for name, of in read.items()}).logits
        gold = labels[here].to(model.device)
        loss = torch.nn.functional.cross_entropy(logits.float(), gold, reduction="none")
        losses.index_add_(0, rows[here], loss.cpu().double())
    return losses.numpy(), rows.bincount(minlength=len(lines)).double().numpy()
