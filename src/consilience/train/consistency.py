"""Consistency training: the trainer, one training, and the command ``improve`` around it."""

from __future__ import annotations

import copy
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import torch
from accelerate.state import PartialState
from transformers import PreTrainedModel
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from consilience import suites
from consilience.asking.facts import ask, ask_suite
from consilience.core.errors import SILENT, ConsilienceError, Loading, Watch, needs_extra
from consilience.core.text import counted
from consilience.files.read import read_rows, read_text
from consilience.files.write import csv_of, write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.models import load_model
from consilience.models.fast.products import speed_up_training
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.masked import PositionHead, positions
from consilience.models.sources import locate
from consilience.options.training import ImproveOptions
from consilience.report.export import Lines
from consilience.runs.folder import RunFolder, default_folder
from consilience.suites.facts import sample_facts, select_relations
from consilience.train.batch_trainer import (
    BatchTrainer,
    TrainingFolder,
    check_device,
    quiet_transformers,
    time_training,
    trained,
    training_arguments,
    uses_cpu,
)
from consilience.train.improvement import (
    BEST_METRIC,
    TIE_METRIC,
    VALIDATED,
    Improved,
    Outcome,
    TableRow,
    Trained,
    TrainingCost,
    dry_run,
    last_best,
    macro,
)
from consilience.train.objectives import (
    LONGEST,
    LOSSES,
    Steps,
    collate,
    objective_of,
    perplexity,
    trained_relation,
    vote_loss,
)
from consilience.train.plan import (
    ABLATIONS,
    DEFAULT_WEIGHTS,
    HELD_OUT,
    IMPROVED,
    SAMPLE_SEED,
    Plan,
    Subject,
    check_plan,
)
from consilience.types import Suite


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


class ConsistencyTrainer(BatchTrainer):
    """Trains with ``L = lambda * Lc + Llm``; the teacher of ``vote`` is the model as given."""

    def __init__(self, subject: Subject, plan: Plan, weight: float, folder: TrainingFolder) -> None:
        """``weight``: lambda."""
        self.subject, self.plan, self.weight = subject, plan, weight
        loaded = load_trainable(subject)
        relations = [
            trained_relation(subject.suite.relation(id_), loaded, subject.protocol, plan.loss)
            for id_ in plan.train
        ]
        longest, lines = min(LONGEST, positions(loaded.model)), subject.lines[HELD_OUT:]
        self.steps = steps = Steps(relations, loaded, plan, longest=longest, lines=lines)
        arguments = training_arguments(
            plan, folder.path, subject.device, best_metric=BEST_METRIC, weight_decay=0.0,
            report_to=plan.report_to, activation_checkpointing=plan.gradient_checkpointing,
        )  # fmt: skip
        # The steps of an update are divided among the processes.
        accumulated = max(1, len(plan.train) * plan.accumulation // arguments.world_size)
        arguments.gradient_accumulation_steps = accumulated
        updates = math.ceil(len(steps) / (accumulated * arguments.world_size))
        interval = max(1, updates // (2 * plan.epochs))
        arguments.eval_steps = arguments.save_steps = arguments.logging_steps = interval
        self.products: dict[str, Any] = {}  # What multiplies in the model, and in the teacher
        if arguments.device.type == "cpu" and not plan.bf16:
            self.products = folder.speed_up({"model": loaded.model})["model"]
        model: Any = loaded.model
        if plan.lora_rank:
            with needs_extra("train"):
                from peft import LoraConfig, get_peft_model
            rank = plan.lora_rank
            adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
            with warnings.catch_warnings():  # a renamed attribute, layers that store W turned
                warnings.simplefilter("ignore")
                model = get_peft_model(model, adapters)
        pad = steps.tokenizer.pad_token_id or 0
        super().__init__(
            model, arguments, steps, lambda item: collate(item, pad), tokenizer=steps.tokenizer
        )
        self.model_accepts_loss_kwargs = False  # the loss is a mean, whatever the accumulation
        validation = select_relations(subject.suite, plan.validation)
        self.validation = sample_facts(validation, plan.validation_facts, SAMPLE_SEED)
        self.teacher: PositionHead | None = None
        if plan.loss == "vote":
            teacher: Any = plain_copy(model)
            teacher.to(self.args.device)
            teacher.requires_grad_(False)
            if not self.args.bf16:
                speed_up_training(teacher, self.products.get("library"))
            self.teacher = PositionHead(teacher)
        self.head = PositionHead(model)
        self.parts: dict[str, list[float]] = {"consistency_loss": [], "lm_loss": []}

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
        logits = self.head.logits_at(
            rows, columns, model=model, input_ids=ids, attention_mask=attention
        )
        compared = self._compared(logits, inputs)
        if self.teacher:
            with torch.no_grad():
                votes = self.teacher.logits_at(
                    rows[questions], columns[questions], input_ids=ids[questions],
                    attention_mask=attention[questions],
                )  # fmt: skip
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
        """Means over the validation relations, of at most so many facts each; a copy answers."""
        suite, protocol = self.validation, self.subject.protocol
        suite = sample_facts(suite, facts, SAMPLE_SEED) if facts else suite
        plain = plain_copy(self.model)
        model = self.steps.objective.scorer(plain, protocol)
        answers = pl.concat([ask(relation, model, suite.name) for relation in suite.relations])
        metrics = measure(answers, suite, protocol)
        values = {name: macro(metrics, name)["value"] for name in (*VALIDATED, TIE_METRIC)}
        return {name: x for name, x in values.items() if name != TIE_METRIC or not math.isnan(x)}

    def save(self) -> dict[str, Any]:
        done, model = validations(self.state.log_history), Path(str(self.args.output_dir)) / MODEL
        best = last_best([*done], done.__getitem__)
        equal = [step for step in done if done[step][BEST_METRIC] == done[best][BEST_METRIC]]
        plain_copy(self.model).save_pretrained(model)
        self.steps.tokenizer.save_pretrained(model)
        return {
            "validation": done[best],
            "checkpoint": {
                "step": best, "updates": self.state.global_step, "equal": len(equal),
                "checkpoints": len(done),
            },
            "perplexity": held_out_perplexity(replace(self.subject, model=str(model))),
            "products": dict(self.products),
        }  # fmt: skip


def plain_copy(model: Any) -> PreTrainedModel:
    """A copy with the family's own forward methods, adapters merged, in single precision."""
    copied: Any = copy.deepcopy(model)
    for module in copied.modules():
        module.__dict__.pop("forward", None)
    if hasattr(copied, "merge_and_unload"):  # an adapted model
        copied = copied.merge_and_unload()
    plain: PreTrainedModel = copied.float().eval()
    return plain


MODEL = "model"  # The folder of the best checkpoint of a training, a model like any other


def train(
    subject: Subject, plan: Plan, weight: float, path: Path, watch: Watch = SILENT
) -> Trained:
    """Train with one lambda, resume that training, or take its result.

    ``path`` gets checkpoints, and at the end the best one as ``model``, and ``training.json`` with
    the history of losses and validation.
    """
    settings = {"lambda": weight, "plan": asdict(replace(plan, weights=(weight,)))}
    folder = TrainingFolder(path, settings)

    def trainer() -> ConsistencyTrainer:
        made = ConsistencyTrainer(subject, plan, weight, folder)
        if all(math.isnan(made.validate(facts)[BEST_METRIC]) for facts in (1, None)):
            raise ConsilienceError(
                f"no answer to any question of {', '.join(plan.validation)}",
                expected="validation relations whose candidates the model's tokenizer knows",
            )
        return made

    record = trained(folder, trainer, ("perplexity", "checkpoint"), VALIDATED, watch)
    return Trained(path / MODEL, record["validation"], record["checkpoint"], record["perplexity"])


def held_out_perplexity(subject: Subject) -> float | None:
    """The perplexity of the held-out lines of text; None without text."""
    if not subject.lines:
        return None
    loading = Loading(subject.device, trust_remote_code=subject.trust_remote_code)
    return perplexity(subject.model, subject.lines[:HELD_OUT], loading)


def load_trainable(subject: Subject) -> Pretrained:
    """A masked or causal model in single precision; another kind raises."""
    loading = Loading("cpu", trust_remote_code=subject.trust_remote_code)
    loaded = load_pretrained(subject.model, loading)
    objective_of(loaded)
    return loaded


TABLE = "table-7.csv"  # The file of the finished table


@quiet_transformers()
def train_and_measure(
    subject: Subject,
    plan: Plan,
    folder: Path,
    *,
    seeds: Sequence[int] = (),
    ablations: bool = False,
    watch: Watch = SILENT,
) -> Improved | None:
    """Train with each seed, choose, and measure on the relations that are left.

    ``ablations``: also train those of Table 7, with the chosen lambda.

    ``folder`` gets ``before`` (a run), ``table-7.csv``, ``lambdas.csv``, and for each seed and row
    a folder with ``lambda-*`` (``train``), ``after`` (a run) and ``comparison.csv``. Existing
    output is reused. Of several processes (``accelerate launch``) all train and the first one
    measures; the others return None.
    """
    seeds = tuple(seeds) or (plan.seed,)
    check_settings(subject, plan)
    kind = load_trainable(subject).kind
    if not is_first_process(subject):
        for seed in seeds:
            list(_train_rows(subject, replace(plan, seed=seed), folder, ablations))
        return None
    settings: dict[str, object] = {
        "suite": subject.suite.name, "suite_digest": subject.suite.digest,
        "protocol": subject.protocol, "model": subject.model,
        "plan": json.loads(json.dumps(asdict(plan))), "seeds": list(seeds),
        "ablations": ablations, "test_facts": subject.test_facts,
    } | ({"trust_remote_code": True} if subject.trust_remote_code else {})  # fmt: skip
    record = RunFolder(folder, settings)
    chosen = [
        outcome
        for seed in seeds
        for outcome in _train_rows(subject, replace(plan, seed=seed), folder, ablations, watch)
    ]
    watch.say("measuring the model before")
    suite, protocol = subject.test_suite(plan), subject.protocol
    answers, metrics = _measure(subject, suite, folder / "before")
    cost = held_out_perplexity(subject)
    by_name: dict[str, tuple[list[Outcome], list[pl.DataFrame]]] = {}
    for one in chosen:
        watch.say(f"measuring {one.name}, seed {one.seed}, lambda {one.weight:g}")
        path = folder / f"seed-{one.seed}" / one.name
        better = replace(subject, model=str(one.training.model))
        answers_after, metrics_after = _measure(better, suite, path / "after")
        compared = compare({"before": answers, one.name: answers_after}, suite, protocol)
        write_whole(path / "comparison.csv", csv_of(compared))
        outcomes, after = by_name.setdefault(one.name, ([], []))
        outcomes.append(replace(one, metrics=metrics_after, compared=compared))
        after.append(answers_after)
    rows = []
    for name, (outcomes, after) in by_name.items():
        mean, difference = outcomes[0].metrics, outcomes[0].compared
        if len(after) > 1:
            mean = measure(after, suite, protocol)
            before = [answers] * len(after)
            difference = compare({"before": before, name: after}, suite, protocol)
        rows.append(TableRow(name, tuple(outcomes), mean, difference))
    result = Improved(subject, folder, kind, metrics, cost, tuple(rows))
    write_whole(folder / TABLE, csv_of(result.table))
    write_whole(folder / "lambdas.csv", csv_of(result.lambdas))
    record.finish(result.best.metrics)
    return result


def check_settings(subject: Subject, plan: Plan) -> None:
    """Refuse a plan, a device or a service for reports that cannot be used."""
    check_plan(plan, subject)
    check_device(subject.device)
    try:
        for callback in get_reporting_integration_callbacks(plan.report_to):
            callback()
    except (ImportError, RuntimeError, ValueError) as error:
        found = f"--report-to {plan.report_to}: {str(error).rstrip('.')}"
        raise ConsilienceError(found) from error


def is_first_process(subject: Subject) -> bool:
    """Whether this is the first of several processes that train (``accelerate launch``)."""
    return bool(PartialState(cpu=uses_cpu(subject.device)).is_main_process)


def _train_rows(
    subject: Subject, plan: Plan, folder: Path, ablations: bool, watch: Watch = SILENT
) -> Iterator[Outcome]:
    weight, path = 0.0, folder / f"seed-{plan.seed}"
    if plan.loss == "vote":
        watch.say(f"training the teacher, seed {plan.seed}")
        teaching = replace(plan, loss="pairs")
        teacher = train(subject, teaching, 0.0, path / "teacher" / "lambda-0", watch)
        subject = replace(subject, model=str(teacher.model))
    for name in (IMPROVED, *(ABLATIONS if ablations else ())):
        row = plan
        if name != IMPROVED:
            row = replace(plan, **{"weights": (weight,), **ABLATIONS[name]})
        tried: dict[float, Trained] = {}
        for one in row.weights:
            watch.say(f"training {name}, seed {plan.seed}, lambda {one:g}")
            tried[one] = train(subject, row, one, path / name / f"lambda-{one:g}", watch)
        best, _ = last_best([*tried.items()], lambda item: item[1].validation)
        weight = best if name == IMPROVED else weight
        yield Outcome(name, plan.seed, best, tried)


def _measure(subject: Subject, suite: Suite, folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and metrics of a model on the test relations; ``folder`` becomes a run."""
    model = load_model(
        subject.model, protocol=subject.protocol, device=subject.device,
        trust_remote_code=subject.trust_remote_code,
    )  # fmt: skip
    settings: dict[str, Any] = {
        "suite": suite.name, "suite_digest": suite.digest,
        "groups": [relation.id for relation in suite.relations],
        "protocol": subject.protocol, "model": model.identity,
    }  # fmt: skip
    run = RunFolder(folder, settings)
    answers = ask_suite(suite, model, run)
    metrics = measure(answers, suite, subject.protocol)
    run.finish(metrics)
    return answers, metrics


TIMED_FACTS = 8  # Facts of each validation relation whose queries are timed


@quiet_transformers()
def consistency_cost(
    subject: Subject, plan: Plan, seeds: Sequence[int], *, ablations: bool
) -> TrainingCost:
    """Count the work of ``improve``, and time an update and a few queries of the first seed."""
    test = subject.test_suite(plan)
    rows = 1 + len(ABLATIONS) * ablations
    per_seed = len(plan.weights) + (rows - 1) + (plan.loss == "vote")
    facts = sum(len(relation.facts) for relation in test.relations)
    lambdas = ", ".join(f"{weight:g}" for weight in plan.weights)
    breakdown = ["the teacher, without a consistency loss"] if plan.loss == "vote" else []
    breakdown += [f"one for each lambda: {lambdas}"]
    breakdown += [f"one for each ablation: {', '.join(ABLATIONS)}"] if ablations else []
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        untimed = replace(plan, report_to="none")
        trainer = ConsistencyTrainer(
            subject, untimed, plan.weights[0], TrainingFolder(Path(folder), {})
        )
        load = time.perf_counter() - start
        per_update, interval = trainer.args.gradient_accumulation_steps, trainer.args.eval_steps
        updates = math.ceil(len(trainer.steps) / (per_update * trainer.args.world_size))
        batches = [trainer.steps[at] for at in range(min(per_update, len(trainer.steps)))]
        samples = {
            queries_of(trainer.validation, facts): partial(trainer.validate, facts)
            for facts in (1, TIMED_FACTS)
        }
        seconds = time_training(trainer, batches, samples)
    return TrainingCost(
        held_out=f"{counted(len(test.relations), 'relation')}, {counted(facts, 'fact')}",
        seeds=len(seeds), trainings=len(seeds) * per_seed,
        breakdown=f"with seed {', '.join(map(str, seeds))}: {'; '.join(breakdown)}",
        updates=updates, validations=updates // int(interval or 1),
        validation_queries=queries_of(trainer.validation), runs=1 + len(seeds) * rows,
        run_queries=queries_of(test), load_seconds=load, **seconds,
    )  # fmt: skip


def queries_of(suite: Suite, facts: int | None = None) -> int:
    """The queries of a suite, with at most ``facts`` facts of each relation."""
    return sum(len(relation.facts[:facts]) * len(relation.patterns) for relation in suite.relations)


IN_PLAN = {
    "train_groups": "train", "validation_groups": "validation", "whole_vocabulary": "vocabulary",
    "mlm": "text", "text": "text_file", "train_facts": "facts", "batch_size": "batch",
}  # fmt: skip
"""Options that the settings of a training call otherwise."""


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improved | Lines | None:
    """Train, choose and measure; None in every process but the first (``accelerate launch``)."""
    suite = suites.load_suite(options.suite, options.data_dir)
    subject = Subject(
        options.model, suite, options.protocol or suite.protocol,
        read_lines(options.text) if options.text else (), options.limit, options.device,
        options.trust_remote_code,
    )  # fmt: skip
    named = {IN_PLAN.get(name, name): value for name, value in vars(options).items()}
    named["weights"] = tuple(options.weights or DEFAULT_WEIGHTS[options.loss])
    named["seed"] = options.seeds[0]
    for name in ("train", "validation", "weights"):
        named[name] = tuple(dict.fromkeys(named[name]))
    plan = Plan(**{field.name: named[field.name] for field in fields(Plan)})
    check_settings(subject, plan)
    locate(subject.model)  # an impossible name raises
    folder = options.out or _folder_of(options, suite)
    seeds, ablations, cost = tuple(dict.fromkeys(options.seeds)), options.ablations, None
    with watch.loading(options.model):
        is_first = is_first_process(subject)
        if is_first and (options.dry_run or not (folder / TABLE).exists()):
            watch.say("timing one update and a few queries")
            cost = consistency_cost(subject, plan, seeds, ablations=ablations)
        if options.dry_run:
            return dry_run(cost) if cost else None
        for line in cost.lines if cost else ():
            watch.inform(line)
        result = train_and_measure(
            subject, plan, folder, seeds=seeds, ablations=ablations,
            watch=watch if is_first else SILENT,
        )  # fmt: skip
    return result and replace(result, cost=cost)


def _folder_of(options: ImproveOptions, suite: Suite) -> Path:
    """The folder of a training without ``--out``: named by suite, model and all settings."""
    others = ("out", "dry_run", "device", "report_to", "data_dir", "watch")
    settings = {IN_PLAN.get(k, k): v for k, v in vars(options).items() if k not in others}
    text = options.text and str(options.text)
    return default_folder(
        options.model, {**settings, "text_file": text, "suite": f"improve-{suite.name}"}
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a text, or the ``text`` of JSON lines, without empty ones."""
    if path.suffix != ".jsonl":
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]
    lines = []
    for where, row in read_rows(path):
        if "text" not in row:
            raise ConsilienceError("no 'text'", expected="a text in 'text'", where=where)
        lines += [str(row["text"])] * bool(str(row["text"]).strip())
    return lines
