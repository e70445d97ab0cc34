"""One training: one plan, one lambda, one seed; it goes on where it was stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from transformers import PreTrainedModel, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.models.loading import Pretrained, load_pretrained
from consilience.record import NULL, NUMBER, Fields, either, fault, object_of
from consilience.suites.selection import sample_facts, select_relations
from consilience.train.checkpoints import (
    disk_errors,
    last_whole_checkpoint,
    remove_checkpoints,
)
from consilience.train.perplexity import perplexity
from consilience.train.plan import HELD_OUT, SAMPLE, Plan
from consilience.train.products import train_as_begun
from consilience.train.record import read_checked, refuse_fault
from consilience.train.settings import progress_shown, training_arguments
from consilience.train.steps import Steps, candidate_tokens, longest_of
from consilience.train.trainer import CHOSEN_BY, SEEN, ConsistencyTrainer, plain_copy
from consilience.types import Protocol, Suite

DONE: Fields = {"validation": object_of(NUMBER), "perplexity": either(NUMBER, NULL)}
"""What is read of ``done.json``."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training: its best checkpoint's validation, and what it costs in perplexity."""

    model: Path
    validation: Mapping[str, float]
    perplexity: float | None


def train(
    spec: str,
    suite: Suite,
    plan: Plan,
    weight: float,
    place: Path,
    *,
    protocol: Protocol,
    lines: Sequence[str],
    device: str,
    trust_remote_code: bool = False,
) -> Trained:
    """Train with one lambda, or go on with that, or take what is done.

    ``place`` gets checkpoints until it is done, the best one as ``model``, a folder as any other
    model's, and ``done.json`` with the history of losses and validation.
    """
    done, model = place / "done.json", place / "model"
    if done.is_file():
        record = read_checked(done, DONE, list(DONE))
        refuse_fault(done, fault(record["validation"], {}, SEEN, "validation."))
        remove_checkpoints(place)  # of a process that was killed at its very end
        return Trained(model, record["validation"], record["perplexity"])
    trainer = make_trainer(
        spec,
        suite,
        plan,
        weight,
        place,
        protocol=protocol,
        lines=lines,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    if math.isnan(trainer.validate(facts=1)[CHOSEN_BY]):
        raise ConsilienceError(
            f"no answer to any question of {', '.join(plan.validation)}",
            expected="validation relations whose candidates the model's tokenizer knows",
        )
    with disk_errors(place), progress_shown(trainer):
        trainer.train(resume_from_checkpoint=last_whole_checkpoint(place))
        history = trainer.state.log_history
        best = max(
            (each for each in history if f"eval_{CHOSEN_BY}" in each),
            key=lambda each: float(each[f"eval_{CHOSEN_BY}"]),
        )
        validation = {name: float(best[f"eval_{name}"]) for name in SEEN}
        cost = None
        if trainer.is_world_process_zero():
            found = plain_copy(trainer.model)
            found.save_pretrained(model)
            trainer.tokenizer_.save_pretrained(model)
            if lines:
                cost = perplexity(
                    str(model), lines[:HELD_OUT], device, trust_remote_code=trust_remote_code
                )
            record = {"validation": validation, "perplexity": cost, "history": history}
            if trainer.products:
                record["products"] = trainer.products
            write_whole(done, json.dumps(record, indent=1).encode())
            remove_checkpoints(place)
        PartialState().wait_for_everyone()
    return Trained(model, validation, cost)


def make_trainer(
    spec: str,
    suite: Suite,
    plan: Plan,
    weight: float,
    place: Path,
    *,
    protocol: Protocol,
    lines: Sequence[str],
    device: str,
    trust_remote_code: bool = False,
) -> ConsistencyTrainer:
    """The model, its steps and its validation, ready to train."""
    loaded = load_trainable(spec, trust_remote_code=trust_remote_code)
    tokenizer, kind = loaded.tokenizer, loaded.kind
    steps = Steps(
        [
            candidate_tokens(suite.relation(id_), tokenizer, kind, protocol, plan.loss)
            for id_ in plan.train
        ],
        tokenizer,
        kind,
        longest=longest_of(loaded.model),
        facts=plan.facts,
        batch=plan.batch,
        epochs=plan.epochs,
        text=plan.text,
        lines=lines[HELD_OUT:],
        seed=plan.seed,
    )
    arguments = _arguments(plan, steps, place, device)
    products: dict[str, Any] = {}
    if arguments.device.type == "cpu" and not plan.bf16:
        products = train_as_begun({"model": loaded.model}, place)["model"]
    return ConsistencyTrainer(
        _with_adapters(loaded.model, plan.lora_rank) if plan.lora_rank else loaded.model,
        arguments,
        steps,
        tokenizer,
        sample_facts(select_relations(suite, plan.validation), plan.validation_facts, SAMPLE),
        kind=kind,
        weight=weight,
        loss=plan.loss,
        vocabulary=plan.vocabulary,
        protocol=protocol,
        products=products,
    )


def _arguments(plan: Plan, steps: Steps, place: Path, device: str) -> TrainingArguments:
    arguments = training_arguments(
        place,
        device,
        chosen_by=CHOSEN_BY,
        learning_rate=plan.learning_rate,
        weight_decay=0.0,
        report_to=plan.report_to,
        seed=plan.seed,
        bf16=plan.bf16,
        activation_checkpointing=plan.gradient_checkpointing,
    )
    # The steps of an update are shared out over the processes.
    accumulated = max(1, len(plan.train) * plan.accumulation // arguments.world_size)
    arguments.gradient_accumulation_steps = accumulated
    updates = math.ceil(len(steps) / (accumulated * arguments.world_size))
    every = max(1, updates // (2 * plan.epochs))
    arguments.eval_steps = arguments.save_steps = arguments.logging_steps = every
    return arguments


def load_trainable(spec: str, *, trust_remote_code: bool = False) -> Pretrained:
    """A masked or causal model in single precision."""
    loaded = load_pretrained(
        spec,
        revision=None,
        device="cpu",
        dtype="float32",
        trust_remote_code=trust_remote_code,
    )
    if loaded.kind == "seq2seq":
        raise ConsilienceError(
            f"'{spec}' is a sequence-to-sequence model", expected="a masked or causal one"
        )
    return loaded


def check_report_to(name: str) -> None:
    """Refuse what transformers cannot report to, or what is not installed for it."""
    if name == "none":
        return
    try:
        for callback in get_reporting_integration_callbacks(name):
            callback()
    except (ImportError, RuntimeError, ValueError) as error:
        raise ConsilienceError(f"--report-to {name}: {str(error).rstrip('.')}") from error


def _with_adapters(model: PreTrainedModel, rank: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ConsilienceError(
            "peft is not installed", todo="Install it with `pip install 'consilience[train]'`."
        ) from error
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return get_peft_model(model, adapters)
