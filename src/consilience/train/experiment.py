"""Consistency training as an experiment: train, choose, measure before and after, and the cost."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
from accelerate.state import PartialState

from consilience.ask import ask_suite
from consilience.files import csv_of, write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.metrics.registry import headline_metrics
from consilience.models import load_model
from consilience.models.loading import Kind
from consilience.run_folder import RunFolder
from consilience.train.batch_trainer import check_device, uses_cpu
from consilience.train.consistency import (
    Trained,
    check_report_to,
    held_out_perplexity,
    load_trainable,
    train,
)
from consilience.train.consistency_trainer import BEST_METRIC, last_best
from consilience.train.plan import (
    ABLATIONS,
    IMPROVED,
    TEACHER,
    Plan,
    Subject,
    ablated,
    check_plan,
)
from consilience.train.progress import quiet_transformers
from consilience.watch import SILENT, Watch

TABLE = "table-7.csv"
"""The file of the finished table."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The trainings of one row of Table 7 with one seed, one for each lambda."""

    name: str
    """``improved``, or the ablation."""
    seed: int
    weight: float
    """The lambda with the best validation (``last_best``)."""
    tried: Mapping[float, Trained]

    @property
    def best(self) -> Trained:
        """The training with the chosen lambda."""
        return self.tried[self.weight]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of Table 7 with one seed: its trainings, and the chosen model on the test relations."""

    chosen: Chosen
    """The trainings, and which of them was chosen."""
    metrics: pl.DataFrame
    """Its metrics on the test relations."""
    compared: pl.DataFrame
    """Its comparison with the model before."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of Table 7: the outcomes of its seeds, and their means."""

    name: str
    """``improved``, or the ablation."""
    outcomes: tuple[Outcome, ...]
    metrics: pl.DataFrame
    """Metrics on the test relations, means over seeds."""
    compared: pl.DataFrame
    """The comparison of these means with the model before."""

    @property
    def perplexity(self) -> float | None:
        """The mean perplexity of held-out text; None without text."""
        costs = [outcome.chosen.best.perplexity for outcome in self.outcomes]
        known = [cost for cost in costs if cost is not None]
        return fmean(known) if known else None


@dataclass(frozen=True, slots=True)
class Improved:
    """The result of ``improve``."""

    kind: Kind
    before: pl.DataFrame
    """Metrics of the model before, on the test relations."""
    perplexity: float | None
    """The perplexity of the model before, of held-out text; None without text."""
    rows: tuple[TableRow, ...]
    """Every row of Table 7 but that of the model before."""

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all rows and seeds."""
        return [outcome for row in self.rows for outcome in row.outcomes]

    @property
    def best(self) -> Outcome:
        """The improved model of the seed with the best validation."""
        improved = [outcome for outcome in self.outcomes if outcome.chosen.name == IMPROVED]
        return last_best(improved, lambda outcome: outcome.chosen.best.validation)

    @property
    def notes(self) -> list[str]:
        """What to know of the choice: checkpoints and lambdas with equal validation."""
        chosen = self.best.chosen
        best, checkpoint = chosen.best.validation[BEST_METRIC], chosen.best.checkpoint
        lambdas = sum(one.validation[BEST_METRIC] == best for one in chosen.tried.values())
        ties = [
            f"{equal} of {count} {name}"
            for equal, count, name in (
                (checkpoint["equal"], checkpoint["checkpoints"], "checkpoints"),
                (lambdas, len(chosen.tried), "lambdas"),
            )
            if equal > 1
        ]
        return [
            f"{' and '.join(ties)} have the same consistent accuracy on the validation relations, "
            f"{best:.1%}: chance-corrected consistency chose between them, and of equal ones the "
            "last was kept; validate on more relations or facts"
        ] * bool(ties)

    @property
    def relations(self) -> int:
        """The number of test relations."""
        return int(_macro(self.before, "accuracy")["n"])

    @property
    def table(self) -> pl.DataFrame:
        """Table 7, a row for each name and metric: means over relations and seeds.

        ``std`` is over relations. ``difference`` is from the model before, with its interval and
        ``p``; ``lowest``, ``highest`` and ``largest_p`` are those of single seeds.
        """
        rows: list[dict[str, object]] = [
            {
                "name": "before",
                "metric": metric,
                **{key: _macro(self.before, metric)[key] for key in ("value", "std")},
                "seeds": 1,
                "perplexity": self.perplexity,
            }
            for metric in headline_metrics()
        ]
        rows += [_cells(row, metric) for row in self.rows for metric in headline_metrics()]
        return pl.from_dicts(rows, infer_schema_length=None)

    @property
    def lambdas(self) -> pl.DataFrame:
        """The best validation of every training, and whether its lambda was chosen."""
        rows = [
            {
                "name": outcome.chosen.name,
                "seed": outcome.chosen.seed,
                "lambda": weight,
                "kept": weight == outcome.chosen.weight,
                "step": trained.checkpoint["step"],
                **trained.validation,
                "perplexity": trained.perplexity,
            }
            for outcome in self.outcomes
            for weight, trained in outcome.chosen.tried.items()
        ]
        return pl.from_dicts(rows, infer_schema_length=None)


def _cells(row: TableRow, metric: str) -> dict[str, object]:
    """A metric of a row of Table 7."""
    mean, change = _macro(row.metrics, metric), _macro(row.compared, metric)
    changes = [_macro(outcome.compared, metric) for outcome in row.outcomes]
    differences = [of_seed["difference"] for of_seed in changes]
    return {
        "name": row.name,
        "metric": metric,
        "value": mean["value"],
        "std": mean["std"],
        "seeds": len(row.outcomes),
        **{name: change[name] for name in ("difference", "low", "high")},
        "p": change["p"],
        "lowest": min(differences),
        "highest": max(differences),
        "largest_p": max(of_seed["p"] for of_seed in changes),
        "perplexity": row.perplexity,
    }


def _macro(table: pl.DataFrame, metric: str) -> Mapping[str, float]:
    """The row of the means over relations, in a metrics or comparison table; NaN without data."""
    of_metric = (pl.col("metric") == metric) & (pl.col("group") == "MACRO")
    rows = table.filter(of_metric & (pl.col("subset") == "all")).to_dicts()
    return rows[0] if rows else defaultdict(lambda: math.nan)


@quiet_transformers()
def improve(
    subject: Subject,
    plan: Plan,
    folder: Path,
    *,
    seeds: Sequence[int] = (),
    ablations: bool = False,
    watch: Watch = SILENT,
) -> Improved | None:
    """Train a model to answer consistently, and measure it on the relations that are left.

    ``seeds``: each replaces that of the plan in a training of its own. ``ablations``: also train
    those of Table 7, with the chosen lambda.

    ``folder`` gets ``before`` (a run), ``table-7.csv``, ``lambdas.csv``, and for each seed and row
    a folder with ``lambda-*`` (``train``), ``after`` (a run) and ``comparison.csv``. Existing
    output is reused. Of several processes (``accelerate launch``) all train and the first one
    measures; the others return None.
    """
    seeds = tuple(seeds) or (plan.seed,)
    check_settings(subject, plan, seeds)
    kind = load_trainable(subject).kind
    if not is_first_process(subject):
        for seed in seeds:
            list(_train_rows(subject, replace(plan, seed=seed), folder, ablations))
        return None
    record = RunFolder(folder, _settings(subject, plan, seeds, ablations))
    rows = [
        chosen
        for seed in seeds
        for chosen in _train_rows(subject, replace(plan, seed=seed), folder, ablations, watch)
    ]
    watch.say("measuring the model before")
    answers, metrics = _measure(subject, plan, folder / "before")
    cost = held_out_perplexity(subject)
    by_name: dict[str, list[tuple[Outcome, pl.DataFrame]]] = {}
    for chosen in rows:
        watch.say(f"measuring {chosen.name}, seed {chosen.seed}, lambda {chosen.weight:g}")
        path = folder / f"seed-{chosen.seed}" / chosen.name
        improved = replace(subject, model=str(chosen.best.model))
        answers_after, metrics_after = _measure(improved, plan, path / "after")
        answered = {"before": answers, chosen.name: answers_after}
        compared = compare(answered, subject.test_suite(plan), subject.protocol)
        write_whole(path / "comparison.csv", csv_of(compared))
        outcome = Outcome(chosen, metrics_after, compared)
        by_name.setdefault(chosen.name, []).append((outcome, answers_after))
    table_rows = [
        _averaged(subject, plan, name, answers, seeds_of_row)
        for name, seeds_of_row in by_name.items()
    ]
    result = Improved(kind, metrics, cost, tuple(table_rows))
    write_whole(folder / TABLE, csv_of(result.table))
    write_whole(folder / "lambdas.csv", csv_of(result.lambdas))
    record.finish(result.best.metrics)
    return result


def _averaged(
    subject: Subject,
    plan: Plan,
    name: str,
    before: pl.DataFrame,
    seeds: Sequence[tuple[Outcome, pl.DataFrame]],
) -> TableRow:
    """A row of Table 7 from the outcome and the answers of each seed."""
    outcomes = tuple(outcome for outcome, _ in seeds)
    if len(seeds) == 1:
        return TableRow(name, outcomes, outcomes[0].metrics, outcomes[0].compared)
    suite, answers = subject.test_suite(plan), [table for _, table in seeds]
    models = {"before": [before] * len(seeds), name: answers}
    metrics = measure(answers, suite, subject.protocol)
    return TableRow(name, outcomes, metrics, compare(models, suite, subject.protocol))


def check_settings(subject: Subject, plan: Plan, seeds: Sequence[int]) -> None:
    """Refuse a plan, a device or a service for reports that cannot be used."""
    check_plan(plan, subject, seeds)
    check_device(subject.device)
    check_report_to(plan.report_to)


def is_first_process(subject: Subject) -> bool:
    """Whether this is the first of several processes that train (``accelerate launch``)."""
    return bool(PartialState(cpu=uses_cpu(subject.device)).is_main_process)


def _train_rows(
    subject: Subject, plan: Plan, folder: Path, ablations: bool, watch: Watch = SILENT
) -> Iterator[Chosen]:
    """Train the rows of Table 7 with the seed of the plan."""
    weight, path = 0.0, folder / f"seed-{plan.seed}"
    if plan.loss == "vote":
        watch.say(f"training the teacher, seed {plan.seed}")
        teaching = replace(plan, loss="pairs")
        teacher = train(subject, teaching, 0.0, path / TEACHER / "lambda-0", watch)
        subject = replace(subject, model=str(teacher.model))
    for name in (IMPROVED, *(ABLATIONS if ablations else ())):
        row = plan if name == IMPROVED else ablated(plan, name, weight)
        tried: dict[float, Trained] = {}
        for tried_weight in row.weights:
            watch.say(f"training {name}, seed {plan.seed}, lambda {tried_weight:g}")
            folder_of_weight = path / name / f"lambda-{tried_weight:g}"
            tried[tried_weight] = train(subject, row, tried_weight, folder_of_weight, watch)
        best, _ = last_best([*tried.items()], lambda one: one[1].validation)
        weight = best if name == IMPROVED else weight
        yield Chosen(name, plan.seed, best, tried)


def _settings(
    subject: Subject, plan: Plan, seeds: Sequence[int], ablations: bool
) -> dict[str, object]:
    """Everything that decides the result."""
    settings = {
        "suite": subject.suite.name,
        "suite_digest": subject.suite.digest,
        "protocol": subject.protocol,
        "model": subject.model,
        "plan": json.loads(json.dumps(asdict(plan))),
        "seeds": list(seeds),
        "ablations": ablations,
        "test_facts": subject.test_facts,
    }
    return settings | ({"trust_remote_code": True} if subject.trust_remote_code else {})


def _measure(subject: Subject, plan: Plan, folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and metrics of a model on the test relations; ``folder`` becomes a run."""
    suite = subject.test_suite(plan)
    model = load_model(
        subject.model,
        protocol=subject.protocol,
        device=subject.device,
        trust_remote_code=subject.trust_remote_code,
    )
    settings: dict[str, Any] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": [relation.id for relation in suite.relations],
        "protocol": subject.protocol,
        "model": model.identity,
    }
    run = RunFolder(folder, settings)
    answers = ask_suite(suite, model, run)
    metrics = measure(answers, suite, subject.protocol)
    run.finish(metrics)
    return answers, metrics
