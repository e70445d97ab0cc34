"""Continued training with a consistency loss (ParaRel, Section 8)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl
import torch
from transformers import PreTrainedModel, TrainingArguments

from consilience.ask import ask
from consilience.choices import Protocol
from consilience.metrics.measure import measure
from consilience.models.fast import speed_up_training
from consilience.suites.selection import sample_facts
from consilience.train.batch_trainer import BatchTrainer
from consilience.train.losses import LOSSES, vote_loss
from consilience.train.plan import SAMPLE_SEED, Plan
from consilience.train.steps import Steps, collate
from consilience.types import Suite

VALIDATED = ("accuracy", "consistency", "consistent_accuracy")
"""The metrics of validation."""

BEST_METRIC, TIE_METRIC = "consistent_accuracy", "corrected_consistency"
"""Choose the best checkpoint, lambda and seed, on the validation relations.

The second decides between equal values of the first: a model that gives one answer to everything,
and so is consistent, has none.
"""

Tried = TypeVar("Tried")


def last_best(tried: Sequence[Tried], validation: Callable[[Tried], Mapping[str, float]]) -> Tried:
    """What has the best validation; of equal ones the last."""

    def rank(one: Tried) -> tuple[float, float]:
        metrics = validation(one)
        return metrics[BEST_METRIC], metrics.get(TIE_METRIC, -math.inf)

    return max(reversed(tried), key=rank)


def validations(history: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """The metrics of each validation in the history of a training, by the number of updates."""
    return {
        int(log["step"]): {
            name: float(log[f"eval_{name}"])
            for name in (*VALIDATED, TIE_METRIC)
            if f"eval_{name}" in log
        }
        for log in history
        if f"eval_{BEST_METRIC}" in log
    }


class PositionHead:
    """Makes a model compute its output embedding at some positions only, in ``logits``."""

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

        ``model`` is the one of the constructor, or wraps it. ``rows`` and ``columns`` (position,)
        are the sequence and the token of each position.
        """
        self.positions = rows, columns
        try:
            logits: torch.Tensor = model(input_ids=ids, attention_mask=attention).logits
        finally:
            self.positions = None
        return logits


class ConsistencyTrainer(BatchTrainer):
    """Trains with ``L = lambda * Lc + Llm``; validation probes the validation relations.

    The teacher of the loss ``vote`` is the model as it is given.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        arguments: TrainingArguments,
        steps: Steps,
        plan: Plan,
        weight: float,
        validation: Suite,
        protocol: Protocol,
        products: Mapping[str, Any],
    ) -> None:
        """``weight``: lambda. ``products``: what multiplies in the model, and in the teacher."""
        pad = steps.tokenizer.pad_token_id or 0
        super().__init__(
            model, arguments, steps, lambda item: collate(item, pad), tokenizer=steps.tokenizer
        )
        self.model_accepts_loss_kwargs = False  # the loss is a mean, whatever the accumulation
        self.steps, self.plan, self.weight = steps, plan, weight
        self.validation, self.protocol, self.products = validation, protocol, products
        self.teacher = self._teacher(model) if plan.loss == "vote" else None
        self.head = PositionHead(model)
        self.parts: dict[str, list[float]] = {"consistency_loss": [], "lm_loss": []}

    def _teacher(self, model: Any) -> tuple[PreTrainedModel, PositionHead]:
        teacher: Any = plain_copy(model)
        teacher.to(self.args.device)
        teacher.requires_grad_(False)
        if not self.args.bf16:
            speed_up_training(teacher, self.products.get("library"))
        return teacher, PositionHead(teacher)

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """The loss of a step; the released code attends to padding in the questions."""
        facts, patterns = inputs["shape"]
        ids, attention = inputs["input_ids"], inputs["attention_mask"]
        rows, columns = inputs["rows"], inputs["columns"]
        questions = slice(facts * patterns)
        if self.plan.loss == "released":
            attention = attention.clone()
            attention[questions] = 1
        logits = self.head.logits(model, ids, attention, rows, columns)
        compared = self._compared(logits, inputs)
        if self.teacher:
            teacher, head = self.teacher
            with torch.no_grad():
                votes = head.logits(
                    teacher,
                    ids[questions],
                    attention[questions],
                    rows[questions],
                    columns[questions],
                )
            consistency = vote_loss(compared, self._compared(votes, inputs))
        else:
            consistency = LOSSES[self.plan.loss](compared)
        language = torch.zeros((), device=logits.device)
        if len(inputs["labels"]):
            language = torch.nn.functional.cross_entropy(
                logits[facts * patterns :].float(), inputs["labels"]
            )
        loss = self.weight * consistency + language
        self.check_finite(loss, "the loss", "Lower --learning-rate or --lambda.")
        self.parts["consistency_loss"].append(consistency.item())
        self.parts["lm_loss"].append(language.item())
        return (loss, logits) if return_outputs else loss

    def _compared(self, logits: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """Logits (fact, pattern, candidate) of the questions, or of the whole vocabulary."""
        facts, patterns = inputs["shape"]
        answers = logits[: facts * patterns].view(facts, patterns, -1)
        if self.plan.vocabulary:
            return answers
        return answers.gather(-1, inputs["candidates"].expand(facts, -1, -1))

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Whether the checkpoint is the best so far; the Trainer keeps the first of equal ones."""
        done = validations(self.state.log_history)
        is_best = last_best([*done], done.__getitem__) == self.state.global_step
        if is_best:
            self.state.best_metric = metrics[f"eval_{BEST_METRIC}"]
            self.state.best_global_step = self.state.global_step
        return is_best

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the two parts of the loss, means since the last log."""
        if "loss" in logs:
            for name, values in self.parts.items():
                logs[name] = math.fsum(values) / max(1, len(values))
                values.clear()
        super().log(logs, *args, **kwargs)

    def validate(self, facts: int | None = None) -> dict[str, float]:
        """The macro means of ``VALIDATED``; ``facts``: over at most so many of each relation."""
        suite = sample_facts(self.validation, facts, SAMPLE_SEED) if facts else self.validation
        return self._macro_means(suite)

    def _macro_means(self, suite: Suite) -> dict[str, float]:
        """Means over relations; a copy of the model answers, which leaves the model as it is."""
        plain = plain_copy(self.model)
        model = self.steps.objective.scorer(plain, self.steps.tokenizer, self.protocol)
        answers = pl.concat([ask(relation, model, suite.name) for relation in suite.relations])
        metrics = measure(answers, suite, self.protocol)
        macro = metrics.filter((pl.col("group") == "MACRO") & (pl.col("subset") == "all"))
        values = dict(macro.select("metric", "value").iter_rows())
        tie = {TIE_METRIC: values[TIE_METRIC]} if not math.isnan(values[TIE_METRIC]) else {}
        return {name: values[name] for name in VALIDATED} | tie


def plain_copy(model: Any) -> PreTrainedModel:
    """A copy with the family's own forward methods, adapters merged, in single precision."""
    copied: Any = copy.deepcopy(model)
    for module in copied.modules():
        module.__dict__.pop("forward", None)
    if hasattr(copied, "merge_and_unload"):  # an adapted model
        copied = copied.merge_and_unload()
    plain: PreTrainedModel = copied.float().eval()
    return plain
