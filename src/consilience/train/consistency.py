"""One consistency training: one plan, one lambda, one seed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from transformers import PreTrainedModel, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from consilience.choices import Loading
from consilience.errors import ConsilienceError, needs_extra
from consilience.models.loading import Pretrained, load_pretrained
from consilience.suites.selection import sample_facts, select_relations
from consilience.train.batch_trainer import set_interval, training_arguments
from consilience.train.consistency_trainer import (
    BEST_METRIC,
    VALIDATED,
    ConsistencyTrainer,
    last_best,
    plain_copy,
    validations,
)
from consilience.train.objectives import objective_of
from consilience.train.perplexity import perplexity
from consilience.train.plan import HELD_OUT, SAMPLE_SEED, Plan, Subject
from consilience.train.resume import TrainingFolder
from consilience.train.steps import Steps, longest_of, trained_relation
from consilience.watch import SILENT, Watch


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished consistency training."""

    model: Path
    """The folder of its best checkpoint, a model like any other."""
    validation: Mapping[str, float]
    """The metrics of that checkpoint on the validation relations."""
    checkpoint: Mapping[str, int]
    """``step``: the updates of that checkpoint, of so many ``updates``; ``equal`` of so many
    ``checkpoints`` have its consistent accuracy, itself included."""
    perplexity: float | None
    """That of held-out text; None without text."""


def train(
    subject: Subject, plan: Plan, weight: float, path: Path, watch: Watch = SILENT
) -> Trained:
    """Train with one lambda, resume that training, or take its result.

    ``path`` gets checkpoints, and at the end the best one as ``model``, and ``training.json`` with
    the history of losses and validation.
    """
    model, tests = path / "model", ("perplexity", "checkpoint")
    settings = {"lambda": weight, "plan": asdict(replace(plan, weights=(weight,)))}
    folder = TrainingFolder(path, settings)
    with PartialState().main_process_first():
        is_finished = folder.is_finished()
    if not is_finished:
        trainer = make_trainer(subject, plan, weight, folder)
        if math.isnan(trainer.validate(facts=1)[BEST_METRIC]):
            raise ConsilienceError(
                f"no answer to any question of {', '.join(plan.validation)}",
                expected="validation relations whose candidates the model's tokenizer knows",
            )
        trainer.train_in(folder, lambda: _save(trainer, subject, model), watch)
    record = folder.result(tests, VALIDATED)
    return Trained(model, record["validation"], record["checkpoint"], record["perplexity"])


def _save(trainer: ConsistencyTrainer, subject: Subject, model: Path) -> dict[str, Any]:
    """Save the best checkpoint as ``model``; what is recorded of it."""
    done = validations(trainer.state.log_history)
    best = last_best([*done], done.__getitem__)
    equal = [step for step in done if done[step][BEST_METRIC] == done[best][BEST_METRIC]]
    plain_copy(trainer.model).save_pretrained(model)
    trainer.steps.tokenizer.save_pretrained(model)
    return {
        "validation": done[best],
        "checkpoint": {
            "step": best,
            "updates": trainer.state.global_step,
            "equal": len(equal),
            "checkpoints": len(done),
        },
        "perplexity": held_out_perplexity(replace(subject, model=str(model))),
        "products": dict(trainer.products),
    }


def held_out_perplexity(subject: Subject) -> float | None:
    """The perplexity of the held-out lines of text; None without text."""
    if not subject.lines:
        return None
    loading = Loading(subject.device, trust_remote_code=subject.trust_remote_code)
    return perplexity(subject.model, subject.lines[:HELD_OUT], loading)


def make_trainer(
    subject: Subject, plan: Plan, weight: float, folder: TrainingFolder
) -> ConsistencyTrainer:
    """The model, its steps and its validation, ready to train."""
    loaded = load_trainable(subject)
    relations = [subject.suite.relation(id_) for id_ in plan.train]
    steps = Steps(
        [trained_relation(relation, loaded, subject.protocol, plan.loss) for relation in relations],
        loaded,
        plan,
        longest=longest_of(loaded.model),
        lines=subject.lines[HELD_OUT:],
    )
    arguments = _arguments(plan, steps, folder.path, subject.device)
    products: dict[str, Any] = {}
    if arguments.device.type == "cpu" and not plan.bf16:
        products = folder.speed_up({"model": loaded.model})["model"]
    validation = select_relations(subject.suite, plan.validation)
    return ConsistencyTrainer(
        _with_adapters(loaded.model, plan.lora_rank) if plan.lora_rank else loaded.model,
        arguments,
        steps,
        plan,
        weight,
        sample_facts(validation, plan.validation_facts, SAMPLE_SEED),
        subject.protocol,
        products,
    )


def _arguments(plan: Plan, steps: Steps, path: Path, device: str) -> TrainingArguments:
    arguments = training_arguments(
        plan,
        path,
        device,
        best_metric=BEST_METRIC,
        weight_decay=0.0,
        report_to=plan.report_to,
        activation_checkpointing=plan.gradient_checkpointing,
    )
    # The steps of an update are divided among the processes.
    accumulated = max(1, len(plan.train) * plan.accumulation // arguments.world_size)
    arguments.gradient_accumulation_steps = accumulated
    updates = math.ceil(len(steps) / (accumulated * arguments.world_size))
    set_interval(arguments, max(1, updates // (2 * plan.epochs)))
    return arguments


def load_trainable(subject: Subject) -> Pretrained:
    """A masked or causal model in single precision."""
    loaded = load_pretrained(
        subject.model, Loading("cpu", trust_remote_code=subject.trust_remote_code)
    )
    objective_of(loaded)
    return loaded


def check_report_to(name: str) -> None:
    """Refuse a service that transformers cannot report to, or that is not installed."""
    if name == "none":
        return
    try:
        for callback in get_reporting_integration_callbacks(name):
            callback()
    except (ImportError, RuntimeError, ValueError) as error:
        raise ConsilienceError(f"--report-to {name}: {str(error).rstrip('.')}") from error


def _with_adapters(model: PreTrainedModel, rank: int) -> Any:
    with needs_extra("train"):
        from peft import LoraConfig, get_peft_model
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    with warnings.catch_warnings():  # on a renamed attribute, and on layers that store W transposed
        warnings.simplefilter("ignore")
        return get_peft_model(model, adapters)
