"""Consistency training: the trainer, one training, and the command ``improve`` around it."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from accelerate.state import PartialState
from transformers import PreTrainedModel

from consilience import suites
from consilience.core.errors import SILENT, ConsilienceError, Loading, Watch, needs_extra
from consilience.core.text import counted, listed
from consilience.files.read import read_rows, read_text
from consilience.files.write import csv_of, write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.models.batches import head_at, positions
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.prompted import PromptModel
from consilience.models.sources import locate
from consilience.options.probe import ProbeOptions, refuse_options
from consilience.options.training import ImproveOptions
from consilience.plans import plan_of
from consilience.plans.questions import Presented, questions_of
from consilience.probing.counting import CountedRun
from consilience.probing.probe import probe
from consilience.report.export import Output
from consilience.runs.folder import RunFolder, default_folder
from consilience.suites.question_suites import QUESTION_SUITES, is_questions
from consilience.suites.questions import Questions
from consilience.train.batch_trainer import (
    BatchTrainer,
    TrainingFolder,
    check_device,
    quiet_transformers,
    trained,
    training_arguments,
    uses_cpu,
)
from consilience.train.improvement import (
    BEST_METRIC,
    IMPROVED,
    TIE_METRIC,
    VALIDATED,
    Improved,
    Outcome,
    Trained,
    harm_rows,
    headline_of,
    last_best,
    text_row,
)
from consilience.train.objectives import (
    LONGEST,
    QuestionSteps,
    Steps,
    collate,
    consistency_loss,
    objective_of,
    perplexity_of,
    text_losses,
    trained_items,
    trained_relation,
    vote_loss,
)
from consilience.train.plan import (
    HELD_OUT,
    PARTS,
    SAMPLE_SEED,
    Plan,
    Subject,
    check_plan,
    split_by_item,
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
    """Trains with ``L = lambda * Lc + Llm``; a teacher of facts is the model as given."""

    def __init__(self, subject: Subject, plan: Plan, folder: Path) -> None:
        self.subject, self.plan = subject, plan
        self.loaded = loaded = load_trainable(subject)
        self.steps = steps = steps_of(subject, plan, loaded)
        arguments = training_arguments(
            plan, folder, subject.device, best_metric=BEST_METRIC, weight_decay=0.0,
        )  # fmt: skip
        # The steps of an update are divided among the processes.
        turns = plan.batch if subject.asks_questions else len(plan.train)
        accumulated, left = divmod(turns, arguments.world_size)
        if left:
            raise ConsilienceError(
                f"{turns} steps an update on {arguments.world_size} processes",
                todo="Let the training relations, or --batch-size of questions, be a multiple of "
                "the processes.",
            )
        arguments.gradient_accumulation_steps = accumulated
        updates = math.ceil(len(steps) / (accumulated * arguments.world_size))
        interval = math.ceil(updates / 3)
        if not subject.asks_questions:
            interval = max(1, updates // (2 * plan.epochs))
        arguments.eval_steps = arguments.save_steps = arguments.logging_steps = interval
        model: Any = loaded.model
        if plan.lora_rank:
            with needs_extra("train"):
                from peft import LoraConfig, get_peft_model
            rank = plan.lora_rank
            torch.manual_seed(plan.seed)  # of the adapters' first weights
            adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
            with warnings.catch_warnings():  # a renamed attribute, layers that store W turned
                warnings.simplefilter("ignore")
                try:
                    model = get_peft_model(model, adapters)
                except ValueError as error:  # such as Mamba
                    raise ConsilienceError(str(error), todo="Use --lora-rank 0.") from error
        pad = steps.tokenizer.pad_token_id or 0
        step = partial(collate, pad=pad)
        super().__init__(model, arguments, steps, step, tokenizer=steps.tokenizer)
        self.model_accepts_loss_kwargs = False  # the loss is a mean over relations
        self.teacher: Any = None
        if plan.loss == "vote" and not subject.asks_questions:
            self.teacher = plain_copy(model)
            self.teacher.to(self.args.device).requires_grad_(False)
        self.parts: dict[str, list[float]] = {"consistency_loss": [], "lm_loss": []}

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], **_: Any
    ) -> Any:
        answered, rows, columns = (inputs[name] for name in ("answered", "rows", "columns"))
        read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        with head_at(self.loaded.model, rows, columns):
            logits = model(**read).logits
        compared = self._compared(logits[:answered], inputs)
        taught = [inputs["teacher"][None]] if "teacher" in inputs else []
        if self.teacher:
            asked = {name: tensor[:answered] for name, tensor in read.items()}
            with torch.no_grad(), head_at(self.teacher, rows[:answered], columns[:answered]):
                votes = self.teacher(**asked).logits
            taught = self._compared(votes, inputs)
        if self.plan.loss == "pairs":
            losses = list(map(consistency_loss, compared))
        else:
            losses = list(map(vote_loss, compared, taught))
        consistency = torch.stack(losses).mean()
        language = torch.zeros((), device=logits.device)
        if len(inputs["labels"]):
            language = torch.nn.functional.cross_entropy(
                logits[answered:].float(), inputs["labels"]
            )
        loss = self.plan.weight * consistency + language
        self.check_finite(loss, "the loss", "Lower --learning-rate or --weight.")
        self.parts["consistency_loss"].append(consistency.item())
        self.parts["lm_loss"].append(language.item())
        return loss

    def _compared(self, logits: torch.Tensor, inputs: dict[str, Any]) -> list[torch.Tensor]:
        """What is compared: logits (fact, pattern, candidate) of all facts of a step, or of words.

        Of a question log-probabilities (1, variant, option); ``logits`` (position, word) are those
        of the positions at which answers are predicted.
        """
        if "picks" in inputs:
            logits = logits.float().log_softmax(dim=-1)
            positions_, tokens, answers = inputs["picks"].unbind(dim=1)
            scores = torch.zeros_like(inputs["scales"])
            scores = scores.index_add(0, answers, logits[positions_, tokens])
            return [(scores * inputs["scales"]).view(1, *inputs["shape"])]
        facts, patterns = inputs["shape"]
        values = logits.view(facts, patterns, -1)
        if self.plan.vocabulary:
            return [values]
        return [values.gather(-1, inputs["candidates"].expand(facts, -1, -1))]

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Whether the checkpoint is the best so far; the Trainer keeps the first of equal ones."""
        done = validations(self.state.log_history)
        is_best = (
            last_best([*done], done.__getitem__, self.plan.chosen_by) == self.state.global_step
        )
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

    def validate(self, items: int | None = None) -> dict[str, float]:
        """Means over the validation relations or questions; a copy of the model answers.

        ``items``: ask at most so many of each group.
        """
        plan, plain = self.plan, plain_copy(self.model)
        limit = items or plan.validation_facts
        asked = self.subject.asked(plan.validation, limit, plan)
        model: Any
        if self.subject.asks_questions:
            named: dict[str, object] = {"model": "in training"}
            model = PromptModel(replace(self.loaded, model=plain, identity=named))
        else:
            model = self.steps.objective.scorer(plain, self.subject.protocol)
        queries = asked.queries(model)
        tables = [queries.ask(queries.group(name), lambda done: None) for name in queries.groups]
        answers, suite = pl.concat(tables, how="diagonal"), asked.suite
        metrics, over = measure(answers, suite, suite.protocol), suite.words.over
        values = {
            name: headline_of(metrics, name, over)["value"] for name in (*VALIDATED, TIE_METRIC)
        }
        return {name: x for name, x in values.items() if name != TIE_METRIC or not math.isnan(x)}

    def save(self) -> dict[str, Any]:
        done, model = validations(self.state.log_history), Path(str(self.args.output_dir)) / MODEL
        best = last_best([*done], done.__getitem__, self.plan.chosen_by)
        plain_copy(self.model).save_pretrained(model)
        if self.plan.lora_rank and self.teacher is None:  # else it adapts the teacher
            adapted: Any = self.model
            adapted.peft_config["default"].base_model_name_or_path = self.subject.model
            adapted.save_pretrained(model.with_name(ADAPTER), save_embedding_layers=False)
        self.steps.tokenizer.save_pretrained(model)
        return {
            "validation": done[best],
            "checkpoint": {"step": best, "updates": self.state.global_step},
            "perplexity": perplexity_of(held_out_losses(self.subject, model)),
        }


def plain_copy(model: Any) -> PreTrainedModel:
    """A copy with the family's own forward methods, adapters merged, in single precision."""
    copied: Any = copy.deepcopy(model)
    for module in copied.modules():
        module.__dict__.pop("forward", None)
    if hasattr(copied, "merge_and_unload"):  # an adapted model
        copied = copied.merge_and_unload()
    plain: PreTrainedModel = copied.float().eval()
    return plain


def steps_of(subject: Subject, plan: Plan, loaded: Pretrained) -> Steps | QuestionSteps:
    """The steps of a training on facts or on questions."""
    longest, lines = min(LONGEST, positions(loaded.model)), subject.lines[HELD_OUT:]
    if not isinstance(subject.suite, Questions):
        relations = [
            trained_relation(subject.suite.relation(id_), loaded, subject.protocol)
            for id_ in plan.train
        ]
        return Steps(relations, loaded, plan, longest=longest, lines=lines)
    presented = Presented.of(subject.options(plan.train, plan.facts, plan), subject.suite)
    return QuestionSteps(trained_items(presented, subject.taught, loaded), loaded, plan, lines)


MODEL = "model"  # The folder of the best checkpoint of a training, a model like any other
ADAPTER = "adapter"  # The folder of its LoRA adapter, beside it


def train(subject: Subject, plan: Plan, path: Path, watch: Watch = SILENT) -> Trained:
    """Train, resume that training, or take its result.

    ``path`` gets checkpoints, and at the end the best one as ``model``, and ``training.json`` with
    the history of losses and validation.
    """
    folder = TrainingFolder(path, {"plan": asdict(plan)})

    def trainer() -> ConsistencyTrainer:
        made = ConsistencyTrainer(subject, plan, path)
        if all(math.isnan(made.validate(items)["consistency"]) for items in (1, None)):
            raise ConsilienceError(
                f"no answer to any question of {', '.join(plan.validation)}",
                expected="validation relations whose candidates the model's tokenizer knows",
            )
        return made

    record = trained(folder, trainer, ("perplexity", "checkpoint"), VALIDATED, watch)
    return Trained(path / MODEL, record["validation"], record["checkpoint"], record["perplexity"])


def held_out_losses(subject: Subject, model: str | Path) -> Sequence[tuple[float, int]]:
    """The losses of the held-out lines of text (``text_losses``); none without text."""
    if not subject.lines:
        return ()
    loading = Loading(subject.device, trust_remote_code=subject.trust_remote_code)
    return text_losses(str(model), subject.lines[:HELD_OUT], loading)


def load_trainable(subject: Subject) -> Pretrained:
    """A masked or causal model in single precision; another kind raises."""
    loading = Loading("cpu", trust_remote_code=subject.trust_remote_code)
    loaded = load_pretrained(subject.model, loading)
    objective_of(loaded)
    if subject.asks_questions and loaded.kind != "causal":
        raise ConsilienceError(
            f"'{subject.model}' is a {loaded.kind} model",
            expected="a causal language model, which answers questions",
            todo="Train it on a suite of facts, such as mini.",
        )
    return loaded


@quiet_transformers()
def train_and_measure(
    subject: Subject, plan: Plan, folder: Path, *, seeds: Sequence[int] = (), watch: Watch = SILENT
) -> Improved | None:
    """Train with each seed, and measure on the relations that are left.

    ``folder`` gets ``before`` (a run), and for each seed ``improved`` with ``lambda-*`` (of
    ``train``), a run ``after`` and ``comparison.csv``. Existing output is reused. Of several
    processes (``accelerate launch``) all train and the first one measures; the others return None.
    """
    seeds = tuple(seeds) or (plan.seed,)
    check_settings(subject, plan)
    kind = load_trainable(subject).kind
    if not is_first_process(subject):
        for seed in seeds:
            _trained(subject, replace(plan, seed=seed), folder)
        return None
    settings: dict[str, object] = {
        "suite": subject.suite.name, "suite_digest": subject.suite.digest,
        "protocol": subject.protocol, "model": subject.model,
        "plan": json.loads(json.dumps(asdict(plan))), "seeds": list(seeds),
        "test_facts": subject.test_facts,
    } | ({"trust_remote_code": True} if subject.trust_remote_code else {})  # fmt: skip
    settings["weights"] = locate(subject.model).digest
    if subject.lines:
        text = json.dumps(list(subject.lines)).encode()
        settings["text_digest"] = hashlib.sha256(text).hexdigest()
    record = RunFolder(folder, settings)
    trainings = {seed: _trained(subject, replace(plan, seed=seed), folder, watch) for seed in seeds}
    watch.say("measuring the model before")
    measures = measures_of(subject, plan)
    before = _measured(measures, subject.model, folder / "before")
    first, measured = before[""], list[tuple[Outcome, Runs]]()
    for seed, training in trainings.items():
        watch.say(f"measuring seed {seed}")
        path = folder / f"seed-{seed}" / IMPROVED
        runs = _measured(measures, training.model, path / "after")
        tables = {"before": first.answers, IMPROVED: runs[""].answers}
        compared = compare(tables, first.suite, first.protocol)
        write_whole(path / "comparison.csv", csv_of(compared))
        measured.append((Outcome(seed, training, runs[""].metrics, compared), runs))
    outcomes, after = zip(*measured, strict=True)
    texts = held_out_losses(subject, subject.model)
    result = Improved(
        subject, plan, first.suite, folder, kind, first.metrics, perplexity_of(texts), outcomes
    )
    harms = _harms(subject, before, result.best, after[outcomes.index(result.best)], texts)
    result = replace(result, harms=harms)
    write_whole(folder / "harm.csv", csv_of(pl.from_dicts(harms, infer_schema_length=None)))
    record.finish(result.best.metrics)
    return result


Runs = Mapping[str, CountedRun]  # Those of one model, by what is measured
Measure = tuple[ProbeOptions, Suite | Questions]  # What is asked before and after

OTHER = "mini"  # A suite of facts that shows whether training changed answers to anything else
OTHER_FACTS = 20  # Facts of each of its relations


def measures_of(subject: Subject, plan: Plan) -> dict[str, Measure]:
    """What is measured before and after; the first are the held-out groups in trained variants.

    Of questions also these groups in the held-out factors, and facts of ``OTHER`` whose relations
    have no name of a group that was trained. Where questions made of ``OTHER`` were split one by
    one, its facts are left out; so they are beside ParaRel, which has some of its relations under
    other names.
    """
    groups, limit, measures = subject.test_groups(plan), subject.test_facts, dict[str, Measure]()
    measures[""] = subject.options(groups, limit, plan), subject.suite
    if not isinstance(subject.suite, Questions):
        return measures
    for factor, of_factor in plan.of_held_out():
        measures[factor] = subject.options(groups, limit, of_factor), subject.suite
    known, is_split = (OTHER, "mini-languages", *QUESTION_SUITES), {*plan.train} <= {*PARTS}
    if subject.suite.name == "pararel" or (subject.suite.name in known and is_split):
        return measures
    other = replace(subject, suite=suites.load_suite(OTHER))
    asked = other.options(other.test_groups(plan), min(limit or OTHER_FACTS, OTHER_FACTS), plan)
    return {**measures, OTHER: (asked, other.suite)}


def _measured(measures: Mapping[str, Measure], model: str | Path, place: Path) -> Runs:
    runs = {}
    for name, (options, asked) in measures.items():
        out = place.with_name(f"{place.name}-{name}" if name else place.name)
        runs[name] = probe(replace(options, model=str(model), out=out), suite=asked)
    return runs


def _harms(
    subject: Subject, before: Runs, outcome: Outcome, after: Runs,
    texts: Sequence[tuple[float, int]],
) -> tuple[Mapping[str, Any], ...]:  # fmt: skip
    """The rows of ``harm_table`` of a trained model; ``after``: its runs."""
    rows: list[Mapping[str, Any]] = []
    for name, run in before.items():
        place = name or f"held-out {run.suite.words.group}s"
        tables = {"before": run.answers, "after": after[name].answers}
        compared = compare(tables, run.suite, run.protocol) if name else outcome.compared
        rows += harm_rows(place, run, after[name], compared)
    if texts:
        rows.append(text_row(texts, held_out_losses(subject, outcome.training.model)))
    return tuple(rows)


def check_settings(subject: Subject, plan: Plan) -> None:
    """Refuse a plan or a device that cannot be used."""
    check_plan(plan, subject)
    check_device(subject.device)


def is_first_process(subject: Subject) -> bool:
    """Whether this is the first of several processes that train (``accelerate launch``)."""
    return bool(PartialState(cpu=uses_cpu(subject.device)).is_main_process)


def _trained(subject: Subject, plan: Plan, folder: Path, watch: Watch = SILENT) -> Trained:
    path = folder / f"seed-{plan.seed}"
    if subject.asks_questions:
        subject = replace(subject, taught=teacher_answers(subject, plan, folder / "teacher", watch))
    elif plan.loss == "vote":
        watch.say(f"training the teacher, seed {plan.seed}")
        teaching = replace(plan, loss="pairs", weight=0.0)
        teacher = train(subject, teaching, path / "teacher" / "lambda-0", watch)
        subject = replace(subject, model=str(teacher.model))
    watch.say(f"training seed {plan.seed}, lambda {plan.weight:g}")
    return train(subject, plan, path / IMPROVED / f"lambda-{plan.weight:g}", watch)


def teacher_answers(subject: Subject, plan: Plan, folder: Path, watch: Watch) -> pl.DataFrame:
    """The answers of the model as given to the training questions; ``folder`` becomes a run."""
    watch.inform("asking the teacher ...")
    options = replace(subject.options(plan.train, plan.facts, plan), out=folder)
    with PartialState().main_process_first():
        return probe(options, suite=subject.suite).answers.answers


NAMED = {
    "train_groups": "train", "validation_groups": "validation", "whole_vocabulary": "vocabulary",
    "mlm": "text", "text": "text_file", "train_facts": "facts", "batch_size": "batch",
    "hold_out_factor": "hold_out",
}  # fmt: skip
"""Options that the plan of a training calls otherwise."""


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improved | Output | None:
    """Train and measure; None in every process but the first (``accelerate launch``)."""
    named = {NAMED.get(name, name): value for name, value in vars(options).items()}
    suite: Suite | Questions
    has_questions = is_questions(options.suite) or options.as_questions is not None
    kind = "questions" if has_questions else "facts"
    refuse_options(options, kind, f"a suite of {kind}")
    if has_questions:
        of_suite = ("suite", "columns", "as_questions")
        asked = {name: getattr(options, name) for name in of_suite}
        suite = questions_of(ProbeOptions(model=options.model, seed=SAMPLE_SEED, **asked))
        if not (options.train_groups or options.validation_groups):
            suite = split_by_item(suite)
            named["train"], named["validation"], _ = ([part] for part in PARTS)
    else:
        suite = suites.load_suite(options.suite)
    protocol = "strict" if isinstance(suite, Questions) else suite.protocol
    subject = Subject(
        options.model, suite, protocol, read_lines(options.text) if options.text else (),
        options.limit, options.device, options.trust_remote_code,
    )  # fmt: skip
    named |= usual_settings(options, subject)
    for name in ("train", "validation"):
        named[name] = tuple(dict.fromkeys(named[name]))
    named["seed"] = options.seeds[0]
    named["vary"] = options.vary and tuple(options.vary)
    plan = Plan(**{field.name: named[field.name] for field in fields(Plan)})
    check_settings(subject, plan)
    locate(subject.model)  # an impossible name raises
    folder, seeds = options.out or _folder_of(options, suite), tuple(dict.fromkeys(options.seeds))
    if options.dry_run:
        return planned(subject, plan, seeds)
    with watch.loading(options.model):
        shown = watch if is_first_process(subject) else SILENT
        return train_and_measure(subject, plan, folder, seeds=seeds, watch=shown)


LORA_RANK, LORA_RATE, QUESTIONS_RATE, FACTS_RATE = 8, 3e-4, 1e-5, 6e-5
"""The rank of adapters, the learning rate with them, and that of all weights."""


def usual_settings(options: ImproveOptions, subject: Subject) -> dict[str, Any]:
    """The settings whose defaults differ between facts and questions."""
    is_new = subject.asks_questions
    rank = options.lora_rank if options.lora_rank is not None else LORA_RANK * is_new
    rate = (LORA_RATE if rank else QUESTIONS_RATE) if is_new else FACTS_RATE
    return {
        "learning_rate": options.learning_rate or rate, "lora_rank": rank,
        "text": options.mlm or ("none" if is_new else "patterns"),
        "chosen_by": TIE_METRIC if is_new else BEST_METRIC,
    }  # fmt: skip


def planned(subject: Subject, plan: Plan, seeds: Sequence[int]) -> Output:
    """What a training reads, and what is asked before and after it; nothing is loaded."""
    asked = {
        name: plan_of(options, suite)
        for name, (options, suite) in measures_of(subject, plan).items()
    }
    parts = {
        "train": subject.asked(plan.train, plan.facts, plan),
        "validation": subject.asked(plan.validation, plan.validation_facts, plan),
        "held out": asked[""],
    }
    item, lines = asked[""].suite.words.item, []
    for name, part in parts.items():
        count = sum(len(group.facts) for group in part.suite)
        lines.append(f"{name}: {counted(count, item)} of {listed([*part.sizes])}")
    has_teacher = plan.loss == "vote" and not subject.asks_questions
    trainings = counted(len(seeds) * (1 + has_teacher), "training")
    teacher = ", half of them of a teacher" * has_teacher
    lines.append(f"work: {trainings}{teacher}; each reads them {counted(plan.epochs, 'time')}")
    queries = {name or "held out": sum(of.sizes.values()) for name, of in asked.items()}
    each = ", ".join(f"{count:,} {name}" for name, count in queries.items())
    lines.append(f"queries before, and again after each seed: {each}")
    lines.append("Nothing was trained. Rerun without --dry-run to start.")
    facts = {"trainings": len(seeds) * (1 + has_teacher), "queries": queries}
    return Output(shown=lines, facts=facts)


def _folder_of(options: ImproveOptions, suite: Suite | Questions) -> Path:
    """The folder of a training without ``--out``: named by suite, model and all settings."""
    others = ("out", "dry_run", "device", "watch")
    settings = {NAMED.get(k, k): v for k, v in vars(options).items() if k not in others}
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
