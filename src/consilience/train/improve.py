"""One command, one answer: train, select, measure before and after, and say what it cost."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from consilience.errors import ConsilienceError
from consilience.metrics import measure
from consilience.metrics.compare import compare
from consilience.models import load_model
from consilience.models.batches import Budget, equal_length_batches
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.words import encode
from consilience.probe import probe
from consilience.run import RunFolder, write_whole
from consilience.train.steps import LONGEST, Loss, Steps, Text, candidate_tokens, mask_some
from consilience.train.trainer import CHOSEN_BY, ConsistencyTrainer, plain_copy
from consilience.types import Protocol, Relation, Suite

HELD_OUT = 500
"""Lines of text that perplexity is measured on; the first ones, which training never reads."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is trained on what, and how; the defaults are the paper's (Section 8.2), but for lambda.

    ``weights``: the lambdas that are tried; the paper's are 0.1, 0.5, 1, of a loss on another
    scale (docs/training.md). ``facts`` of each training relation, ``batch`` of them
    in a step, of each relation in turn. ``text``: what masked-language modelling reads, the filled
    patterns of the same facts, the lines of a file, or nothing.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    weights: tuple[float, ...] = (0.02, 0.1, 0.5)
    loss: Loss = "strict"
    vocabulary: bool = False
    text: Text = "patterns"
    facts: int = 100
    batch: int = 8
    epochs: int = 3
    learning_rate: float = 6e-5
    validation_facts: int = 200
    seed: int = 42
    bf16: bool = False
    gradient_checkpointing: bool = False
    report_to: str = "none"


@dataclass(frozen=True, slots=True)
class Improved:
    """What came of it: the chosen lambda, both metrics tables, their comparison, and the cost.

    ``tried``: validation of each lambda. ``cost``: perplexity of held-out text before and after,
    where there is text.
    """

    weight: float
    before: pl.DataFrame
    after: pl.DataFrame
    compared: pl.DataFrame
    tried: Mapping[float, float]
    cost: Mapping[str, float]


def improve(
    spec: str,
    suite: Suite,
    plan: Plan,
    folder: Path,
    *,
    protocol: Protocol,
    lines: Sequence[str] = (),
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> Improved:
    """Train a masked model to answer alike, and measure it on the relations that are left.

    ``folder`` gets ``before`` and ``after`` (runs), ``lambda-*`` (checkpoints), ``model`` (the best
    one) and ``comparison.csv``. What is there already is not done again.
    """
    check(plan, suite, lines)
    if device not in ("auto", "cpu"):
        raise ConsilienceError(f"the device '{device}'", expected="auto or cpu")
    _load_masked(spec)
    test = _only(suite, [each.id for each in _test_relations(plan, suite)])
    record = RunFolder(
        folder,
        {
            "suite": suite.name,
            "suite_digest": suite.digest,
            "protocol": protocol,
            "model": spec,
            "plan": json.loads(json.dumps(asdict(plan))),
        },
    )
    say("measuring the model as it is")
    before = _measured(folder / "before", spec, test, protocol, device)
    tried: dict[float, float] = {}
    for weight in plan.weights:
        say(f"training with lambda {weight:g}")
        tried[weight] = _train(spec, suite, plan, weight, folder, protocol, lines, device)
    best = max(tried, key=lambda weight: tried[weight])
    model = folder / f"lambda-{best:g}" / "model"
    say(f"measuring the best, lambda {best:g}")
    after = _measured(folder / "after", str(model), test, protocol, device)
    compared = compare({"before": before[0], "after": after[0]}, test, protocol)
    write_whole(folder / "comparison.csv", compared.write_csv().encode())
    cost: dict[str, float] = {}
    if lines:
        say("measuring what it cost")
        for name, which in (("before", spec), ("after", str(model))):
            cost[name] = perplexity(which, lines[:HELD_OUT], device)
    record.finish(after[1])
    return Improved(best, before[1], after[1], compared, tried, cost)


def check(plan: Plan, suite: Suite, lines: Sequence[str]) -> None:
    """Refuse a plan that cannot be carried out, or whose result would mean nothing."""
    both = set(plan.train) & set(plan.validation)
    if both:
        raise ConsilienceError(
            f"{', '.join(sorted(both))} to train on and to validate on",
            expected="relations for one or the other",
        )
    for name, ids in (("train", plan.train), ("validation", plan.validation)):
        if not ids:
            raise ConsilienceError(f"no relations for {name}", todo=f"Name some: --{name}-groups.")
        for id_ in ids:
            suite.relation(id_)
    for weight in plan.weights:
        if not math.isfinite(weight) or weight < 0:
            raise ConsilienceError(f"a lambda of {weight}", expected="0 or more")
    if not _test_relations(plan, suite):
        raise ConsilienceError("no relation is left to test on", todo="Train on fewer.")
    if plan.text == "file" and len(lines) <= HELD_OUT:
        raise ConsilienceError(
            f"{len(lines)} lines of text",
            expected=f"more than the {HELD_OUT} that are held out",
            todo="Give more text, or use --mlm patterns.",
        )


def _test_relations(plan: Plan, suite: Suite) -> list[Relation]:
    """The N-1 relations that are neither trained nor validated on."""
    used = {*plan.train, *plan.validation}
    return [r for r in suite.relations if r.id not in used and r.cardinality == "N-1"]


def _only(suite: Suite, ids: Sequence[str], facts: int | None = None, seed: int = 0) -> Suite:
    """Some relations of a suite, with at most so many facts each."""
    relations = []
    for each in (suite.relation(id_) for id_ in ids):
        chosen = each.facts
        if facts is not None and len(chosen) > facts:
            chosen = tuple(random.Random(f"{seed} {each.id}").sample(chosen, facts))
        relations.append(replace(each, facts=chosen))
    return Suite(suite.name, tuple(relations), suite.protocol)


def _measured(
    folder: Path,
    spec: str,
    suite: Suite,
    protocol: Protocol,
    device: str,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and metrics of a model on the test relations, in a run of their own."""
    model = load_model(spec, protocol=protocol, device=device)
    asked = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": [each.id for each in suite.relations],
        "protocol": protocol,
        "model": model.identity,
    }
    run = RunFolder(folder, asked)
    answers = probe(suite, model, run)
    metrics = measure(answers, suite, protocol)
    run.finish(metrics)
    return answers, metrics


def _load_masked(spec: str) -> Pretrained:
    loaded = load_pretrained(spec, revision=None, device="cpu", dtype="float32")
    if loaded.kind != "masked":
        raise ConsilienceError(
            f"'{spec}' is a {loaded.kind} model", expected="a masked language model"
        )
    return loaded


def _train(
    spec: str,
    suite: Suite,
    plan: Plan,
    weight: float,
    folder: Path,
    protocol: Protocol,
    lines: Sequence[str],
    device: str,
) -> float:
    """Train with one lambda, or go on with that; the best validation value that was reached."""
    place = folder / f"lambda-{weight:g}"
    done = place / "done.json"
    if done.is_file():
        return float(json.loads(done.read_text(encoding="utf-8"))[CHOSEN_BY])
    loaded = _load_masked(spec)
    tokenizer = loaded.tokenizer
    steps = Steps(
        [
            candidate_tokens(suite.relation(id_), tokenizer, protocol, plan.loss)
            for id_ in plan.train
        ],
        tokenizer,
        facts=plan.facts,
        batch=plan.batch,
        epochs=plan.epochs,
        text=plan.text,
        lines=lines[HELD_OUT:],
        seed=plan.seed,
    )
    updates = math.ceil(len(steps) / len(plan.train))
    every = max(1, updates // (2 * plan.epochs))
    arguments = TrainingArguments(
        output_dir=str(place),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=len(plan.train),
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        learning_rate=plan.learning_rate,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{CHOSEN_BY}",
        greater_is_better=True,
        logging_steps=every,
        report_to=plan.report_to,
        remove_unused_columns=False,
        seed=plan.seed,
        bf16=plan.bf16,
        activation_checkpointing=plan.gradient_checkpointing,
        use_cpu=device == "cpu",
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = ConsistencyTrainer(
        loaded.model,
        arguments,
        steps,
        tokenizer,
        _only(suite, plan.validation, plan.validation_facts, plan.seed),
        weight=weight,
        loss=plan.loss,
        vocabulary=plan.vocabulary,
        protocol=protocol,
    )
    last = get_last_checkpoint(str(place)) if place.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    best = float(trainer.state.best_metric or 0.0)
    model = plain_copy(trainer.model)
    model.save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    history = json.dumps({CHOSEN_BY: best, "history": trainer.state.log_history}, indent=1)
    write_whole(done, history.encode())
    return best


@torch.inference_mode()
def perplexity(spec: str, lines: Sequence[str], device: str, seed: int = 0) -> float:
    """Exponential of the mean loss of masked tokens of text, the same masks for every model."""
    loaded = load_pretrained(spec, revision=None, device=device, dtype="float32")
    model, tokenizer = loaded.model.eval(), loaded.tokenizer
    texts = [ids[:LONGEST] for ids in encode(tokenizer, lines, special=True)]
    masked, rows, columns, labels = mask_some(texts, tokenizer, f"{seed}")
    wanted: dict[int, list[tuple[int, int]]] = {}
    for row, column, label in zip(rows, columns, labels, strict=True):
        wanted.setdefault(row, []).append((column, label))
    total = 0.0
    for batch in equal_length_batches([len(ids) for ids in masked], Budget(2048)):
        ids = torch.tensor([masked[row] for row in batch], device=model.device)
        logits: Any = model(input_ids=ids).logits
        for at, row in enumerate(batch.tolist()):
            places, true = zip(*wanted[row], strict=True)
            total += float(
                torch.nn.functional.cross_entropy(
                    logits[at, list(places)].float(),
                    torch.tensor(true, device=model.device),
                    reduction="sum",
                )
            )
    return math.exp(total / len(labels))
