"""One command, one answer: train, select, measure before and after, and say what it cost."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
import torch
from accelerate.state import PartialState

from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics import measure
from consilience.metrics.compare import compare
from consilience.models import load_model
from consilience.probe import probe
from consilience.run import RunFolder
from consilience.suites.selection import sample_facts
from consilience.train.perplexity import perplexity
from consilience.train.plan import (
    ABLATIONS,
    HELD_OUT,
    IMPROVED,
    SAMPLE,
    TEACHER,
    Plan,
    ablated,
    check,
    teaching,
    test_suite,
)
from consilience.train.trainer import CHOSEN_BY
from consilience.train.training import Trained, check_report_to, load_trainable, train
from consilience.types import Protocol, Suite

TABLE_7 = ("accuracy", "consistency", "consistent_accuracy", "corrected_consistency")
"""Its columns, and consistency beyond what the same answers would have by chance."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of Table 7 with one seed.

    ``name``: improved, or the ablation. ``tried``: the training of each lambda, of which that with
    the best Consistent-Acc on the validation relations, ``weight``, was asked the test relations:
    ``metrics``, and ``compared`` with the model before.
    """

    name: str
    seed: int
    weight: float
    tried: Mapping[float, Trained]
    metrics: pl.DataFrame
    compared: pl.DataFrame

    @property
    def chosen(self) -> Trained:
        """The training that was kept."""
        return self.tried[self.weight]


@dataclass(frozen=True, slots=True)
class Improved:
    """What came of it: the model before, and every row of Table 7 with every seed.

    ``perplexity``: that of held-out text before, where there is text.
    """

    before: pl.DataFrame
    perplexity: float | None
    outcomes: tuple[Outcome, ...]

    @property
    def best(self) -> Outcome:
        """The improved model whose seed did best on the validation relations."""
        improved = [each for each in self.outcomes if each.name == IMPROVED]
        return max(improved, key=lambda each: each.chosen.validation[CHOSEN_BY])

    @property
    def relations(self) -> int:
        """How many relations were tested on."""
        return int(_macro(self.before, "accuracy")["n"])

    @property
    def table(self) -> pl.DataFrame:
        """Table 7, a row for each name and metric: means over relations, then over seeds.

        ``std`` is over relations; ``difference`` from before, with the lowest and highest of the
        seeds and the largest p.
        """
        rows = []
        for name in dict.fromkeys(each.name for each in self.outcomes):
            own = [each for each in self.outcomes if each.name == name]
            costs = [each.chosen.perplexity for each in own]
            for metric in TABLE_7:
                means = [_macro(each.metrics, metric) for each in own]
                changes = [_macro(each.compared, metric) for each in own]
                differences = [each["difference"] for each in changes]
                rows.append(
                    {
                        "name": name,
                        "metric": metric,
                        "value": fmean(each["value"] for each in means),
                        "std": fmean(each["std"] for each in means),
                        "seeds": len(own),
                        "difference": fmean(differences),
                        "lowest": min(differences),
                        "highest": max(differences),
                        "p": max(each["p"] for each in changes),
                        "perplexity": None if None in costs else fmean(c for c in costs if c),
                    }
                )
        first = [
            {
                "name": "before",
                "metric": metric,
                **{key: _macro(self.before, metric)[key] for key in ("value", "std")},
                "seeds": 1,
                "perplexity": self.perplexity,
            }
            for metric in TABLE_7
        ]
        return pl.from_dicts([*first, *rows], infer_schema_length=None)

    @property
    def lambdas(self) -> pl.DataFrame:
        """Every training's best validation, and which was kept."""
        return pl.from_dicts(
            [
                {
                    "name": each.name,
                    "seed": each.seed,
                    "lambda": weight,
                    "kept": weight == each.weight,
                    **trained.validation,
                    "perplexity": trained.perplexity,
                }
                for each in self.outcomes
                for weight, trained in each.tried.items()
            ],
            infer_schema_length=None,
        )


def improve(
    spec: str,
    suite: Suite,
    plan: Plan,
    folder: Path,
    *,
    protocol: Protocol,
    lines: Sequence[str] = (),
    seeds: Sequence[int] = (),
    ablations: bool = False,
    test_facts: int | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Improved | None:
    """Train a model to answer alike, and measure it on the relations that are left.

    ``seeds``: a training with each in the place of the plan's own; ``ablations``: also those of
    Table 7, with the lambda that was chosen. ``test_facts``: at most so many of each test relation.

    ``folder`` gets ``before`` (a run), ``table-7.csv``, ``lambdas.csv``, and for each seed and row
    a folder with ``lambda-*`` (checkpoints, and the best one as ``model``), ``after`` (a run) and
    ``comparison.csv``. What is there already is not done again. Of several processes
    (``accelerate launch``) all train, the first one measures, and the others return None.
    """
    seeds = tuple(seeds) or (plan.seed,)
    check(plan, suite, lines, seeds)
    if device not in ("auto", "cpu"):
        raise ConsilienceError(f"the device '{device}'", expected="auto or cpu")
    check_report_to(plan.report_to)
    load_trainable(spec, trust_remote_code=trust_remote_code)
    main = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available()).is_main_process
    test = test_suite(plan, suite)
    test = sample_facts(test, test_facts, SAMPLE) if test_facts else test
    tell = say if main else lambda text: None
    if main:
        record = RunFolder(
            folder,
            _asked(spec, suite, plan, seeds, ablations, test_facts, protocol)
            | ({"trust_remote_code": True} if trust_remote_code else {}),
        )
    options: Any = {
        "protocol": protocol,
        "lines": lines,
        "device": device,
        "trust_remote_code": trust_remote_code,
    }
    trained: dict[tuple[str, int], tuple[float, dict[float, Trained]]] = {}
    for seed in seeds:
        seeded, place = replace(plan, seed=seed), folder / f"seed-{seed}"
        rows = _train_rows(spec, suite, seeded, place, ablations, tell, options)
        trained |= {(name, seed): row for name, row in rows.items()}
    if not main:
        return None
    say("measuring the model as it was")
    before = _measured(folder / "before", spec, test, protocol, device, trust_remote_code)
    cost = None
    if lines:
        held_out = lines[:HELD_OUT]
        cost = perplexity(spec, held_out, device, trust_remote_code=trust_remote_code)
    outcomes = []
    for (name, seed), (best, tried) in trained.items():
        say(f"measuring {name}, seed {seed}, lambda {best:g}")
        place = folder / f"seed-{seed}" / name
        after = _measured(
            place / "after", str(tried[best].model), test, protocol, device, trust_remote_code
        )
        compared = compare({"before": before[0], name: after[0]}, test, protocol)
        write_whole(place / "comparison.csv", csv_of(compared))
        outcomes.append(Outcome(name, seed, best, tried, after[1], compared))
    found = Improved(before[1], cost, tuple(outcomes))
    write_whole(folder / "table-7.csv", csv_of(found.table))
    write_whole(folder / "lambdas.csv", csv_of(found.lambdas))
    record.finish(found.best.metrics)
    return found


def _macro(table: pl.DataFrame, metric: str) -> Mapping[str, float]:
    """The row of the means over relations, in a metrics or comparison table; NaN without data."""
    named = (pl.col("metric") == metric) & (pl.col("group") == "MACRO")
    rows = table.filter(named & (pl.col("subset") == "all")).to_dicts()
    return rows[0] if rows else defaultdict(lambda: math.nan)


def _train_rows(
    spec: str,
    suite: Suite,
    plan: Plan,
    place: Path,
    ablations: bool,
    tell: Callable[[str], None],
    options: Any,
) -> dict[str, tuple[float, dict[float, Trained]]]:
    """With one seed: for each row of Table 7 the lambda that was chosen, and every training."""
    weight, start = 0.0, spec
    if plan.loss == "vote":
        tell(f"training the teacher, seed {plan.seed}")
        at = place / TEACHER / "lambda-0"
        start = str(train(spec, suite, teaching(plan), 0.0, at, **options).model)
    trained = {}
    for name in (IMPROVED, *(ABLATIONS if ablations else ())):
        row = plan if name == IMPROVED else ablated(plan, name, weight)
        tried = {}
        for each in row.weights:
            tell(f"training {name}, seed {plan.seed}, lambda {each:g}")
            tried[each] = train(
                start, suite, row, each, place / name / f"lambda-{each:g}", **options
            )
        best = max(tried, key=lambda each: tried[each].validation[CHOSEN_BY])
        weight = best if name == IMPROVED else weight
        trained[name] = best, tried
    return trained


def _asked(
    spec: str,
    suite: Suite,
    plan: Plan,
    seeds: Sequence[int],
    ablations: bool,
    test_facts: int | None,
    protocol: Protocol,
) -> dict[str, object]:
    return {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "protocol": protocol,
        "model": spec,
        "plan": json.loads(json.dumps(asdict(plan))),
        "seeds": list(seeds),
        "ablations": ablations,
        "test_facts": test_facts,
    }


def _measured(
    folder: Path,
    spec: str,
    suite: Suite,
    protocol: Protocol,
    device: str,
    trust_remote_code: bool,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and metrics of a model on the test relations, in a run of their own."""
    model = load_model(spec, protocol=protocol, device=device, trust_remote_code=trust_remote_code)
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
