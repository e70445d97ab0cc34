"""Continued training with a consistency loss, on transformers' Trainer (ParaRel, Section 8)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import polars as pl
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

from consilience.choices import Loss
from consilience.errors import ConsilienceError
from consilience.metrics import measure
from consilience.models import LanguageModel
from consilience.models.causal import CausalModel
from consilience.models.fast import speed_up_training
from consilience.models.loading import Kind
from consilience.models.masked import MaskedModel
from consilience.probe import ask
from consilience.suites.selection import sample_facts
from consilience.train.losses import LOSSES, vote_loss
from consilience.train.settings import watch
from consilience.train.steps import Steps, collate
from consilience.types import Protocol, Suite

SEEN = ("accuracy", "consistency", "consistent_accuracy")
"""What validation measures."""

CHOSEN_BY = "consistent_accuracy"
"""What the best checkpoint and the best lambda have the most of, on the validation relations."""


class HeadAt:
    """Has a model compute its output embedding at some positions only, where it is set to.

    ``positions``: rows and columns (position,); None for the whole sequences.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.positions: tuple[torch.Tensor, torch.Tensor] | None = None
        head: Any = model.get_output_embeddings()
        whole = head.forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:
            if self.positions is None:
                return whole(hidden)  # type: ignore[no-any-return]
            return whole(hidden[self.positions])  # type: ignore[no-any-return]

        head.forward = forward

    def logits(
        self,
        model: Any,
        ids: torch.Tensor,
        attention: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (position, entry) of sequences (sequence, token) at some positions.

        ``model`` is the one that it was made for, or something that wraps it.
        """
        self.positions = rows, columns
        try:
            found: torch.Tensor = model(input_ids=ids, attention_mask=attention).logits
        finally:
            self.positions = None
        return found


class ConsistencyTrainer(Trainer):
    """``L = lambda * Lc + Llm`` on ``Steps``; validation is a probe of the validation relations.

    ``vocabulary``: compare distributions over the whole vocabulary instead of the candidates (the
    ablation -typed). The loss ``vote`` takes the model as it is given for the teacher.
    ``products``: what multiplies in the model, for the record; the same multiplies in the teacher.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        arguments: TrainingArguments,
        steps: Steps,
        tokenizer: PreTrainedTokenizerBase,
        validation: Suite,
        *,
        kind: Kind,
        weight: float,
        loss: Loss,
        vocabulary: bool,
        protocol: Protocol,
        products: Mapping[str, Any] | None = None,
    ) -> None:
        pad = tokenizer.pad_token_id or 0
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=steps,
            eval_dataset=steps,  # asked for by Trainer; validation asks the suite
            data_collator=lambda items: collate(items, pad),
            processing_class=tokenizer,
        )
        watch(self)
        self.model_accepts_loss_kwargs = False  # the loss is a mean, whatever the accumulation
        self.products = products or {}
        self.teacher = self._teacher(model) if loss == "vote" else None
        self.head = HeadAt(model)
        self.tokenizer_, self.validation, self.protocol = tokenizer, validation, protocol
        self.kind = kind
        self.weight, self.loss, self.vocabulary = weight, loss, vocabulary
        self.parts: dict[str, list[float]] = {"consistency_loss": [], "lm_loss": []}

    def _teacher(self, model: Any) -> tuple[PreTrainedModel, HeadAt]:
        teacher: Any = plain_copy(model)
        teacher.to(self.args.device)
        teacher.requires_grad_(False)
        if not self.args.bf16:
            speed_up_training(teacher, self.products.get("library"))
        return teacher, HeadAt(teacher)

    def compute_loss(  # noqa: D102
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        facts, patterns = inputs["shape"]
        ids, attention = inputs["input_ids"], inputs["attention_mask"]
        if self.loss == "published":  # the released code attends to padding in the questions
            attention = attention.clone()
            attention[: facts * patterns] = 1
        logits = self.head.logits(model, ids, attention, inputs["rows"], inputs["columns"])
        asked = self._compared(logits, inputs)
        if self.teacher:
            teacher, head = self.teacher
            questions = slice(facts * patterns)
            places = inputs["rows"][questions], inputs["columns"][questions]
            with torch.no_grad():
                told = head.logits(teacher, ids[questions], attention[questions], *places)
            apart = vote_loss(asked, self._compared(told, inputs))
        else:
            apart = LOSSES[self.loss](asked)
        words = torch.zeros((), device=logits.device)
        if len(inputs["labels"]):
            words = torch.nn.functional.cross_entropy(
                logits[facts * patterns :].float(), inputs["labels"]
            )
        total = self.weight * apart + words
        if not torch.isfinite(total):
            raise ConsilienceError(
                f"the loss is {total.item()} at step {self.state.global_step}",
                where=str(self.args.output_dir),
                todo="The checkpoints before it are whole. Lower --learning-rate or --weight.",
            )
        self.parts["consistency_loss"].append(apart.item())
        self.parts["lm_loss"].append(words.item())
        return (total, logits) if return_outputs else total

    def _compared(self, logits: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """Logits (fact, pattern, candidate) of the questions, or of the whole vocabulary."""
        facts, patterns = inputs["shape"]
        asked = logits[: facts * patterns].view(facts, patterns, -1)
        if self.vocabulary:
            return asked
        return asked.gather(-1, inputs["candidates"].expand(facts, -1, -1))

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the two parts of the loss, means since the last time."""
        if "loss" in logs:
            for name, values in self.parts.items():
                logs[name] = math.fsum(values) / max(1, len(values))
                values.clear()
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """What ``validate`` finds, for the Trainer to choose and to log."""
        metrics = {f"eval_{name}": value for name, value in self.validate().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def validate(self, facts: int | None = None) -> dict[str, float]:
        """Accuracy, consistency and consistent-acc of the validation relations, macro means.

        ``facts``: of so many of each relation only.
        """
        asked = sample_facts(self.validation, facts, 0) if facts else self.validation
        return macro_means(self.model, self.tokenizer_, self.kind, asked, self.protocol)


def macro_means(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    kind: Kind,
    suite: Suite,
    protocol: Protocol,
) -> dict[str, float]:
    """Means over relations of a model in training; a copy is asked, the model stays as it is."""
    identity: dict[str, object] = {"model": "in training"}
    asked: LanguageModel
    if kind == "causal":
        asked = CausalModel(plain_copy(model), tokenizer, identity)
    else:
        asked = MaskedModel(plain_copy(model), tokenizer, identity, protocol)
    answers = pl.concat([ask(each, asked, suite.name) for each in suite.relations])
    metrics = measure(answers, suite, protocol)
    chosen = metrics.filter((pl.col("group") == "MACRO") & (pl.col("subset") == "all"))
    values = dict(chosen.select("metric", "value").iter_rows())
    return {name: values[name] for name in SEEN}


def plain_copy(model: Any) -> PreTrainedModel:
    """A copy with the family's own forward methods, adapters merged, in single precision."""
    copied: Any = copy.deepcopy(model)
    for module in copied.modules():
        module.__dict__.pop("forward", None)
    if hasattr(copied, "merge_and_unload"):  # an adapted model
        copied = copied.merge_and_unload()
    plain: PreTrainedModel = copied.float().eval()
    return plain
