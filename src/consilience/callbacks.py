"""Consistency during a training with the Trainer of transformers, as a curve."""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from consilience.core.errors import ConsilienceError
from consilience.models.loading import Pretrained, kind_of_config
from consilience.results.evaluation import evaluate, suite_to_ask
from consilience.results.reporting import Result
from consilience.suites.questions import Questions
from consilience.train.consistency import as_probed, plain_copy
from consilience.types import Suite


class ConsistencyCallback(TrainerCallback):
    """Measures a model while a ``Trainer`` trains it, and logs the numbers as the Trainer does.

    ``trainer.add_callback(ConsistencyCallback(trainer, "mini", limit=8))``

    The numbers are the headline numbers (fractions): ``eval_mini/consistency``, its bounds
    ``eval_mini/consistency/low`` and ``/high``, and others. Every tracker of ``report_to`` gets
    them, and ``trainer.state.log_history`` has them.

    The training is the same with and without the callback: a copy of the model in float32 is asked,
    with adapters merged, and random states are restored. The copy needs memory of its own. With
    several processes only the main one measures, and the others wait.
    """

    def __init__(
        self,
        trainer: Trainer,
        suite: str | Path | Suite | Questions | Any = "mini",
        *,
        steps: int | None = None,
        **options: Any,
    ) -> None:
        """Check the suite and the options before the training begins.

        - ``trainer``: that of a masked or causal language model.
        - ``suite``, ``options``: those of ``evaluate``, of facts or questions.
        - ``steps``: measure after every so many updates; None for after each evaluation.
        """
        if steps is not None and steps < 1:
            raise ConsilienceError(f"steps={steps}", expected="1 or more, or None")
        if trainer.processing_class is None:
            expected = "Trainer(..., processing_class=tokenizer)"
            raise ConsilienceError("a Trainer without a tokenizer", expected=expected)
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            todo = "Save checkpoints, and measure them with `consilience probe`."
            raise ConsilienceError("a model whose weights are divided over processes", todo=todo)
        if options.get("out") is not None:
            found = f"out={options['out']!r}, which holds one run, and each measurement is one"
            raise ConsilienceError(found, todo="Leave it out.")
        if getattr(trainer.model, "is_quantized", False):
            todo = "Save checkpoints, and measure them with `consilience probe`."
            raise ConsilienceError("quantized weights, of which no copy is made", todo=todo)
        self.trainer, self.source, self.steps, self.options = trainer, suite, steps, options
        self.suite = suite_to_ask(suite, **options)
        if self.suite.words.over == "group":
            raise ConsilienceError(
                f"the sentence pairs of {self.suite.name}", expected="a suite of facts or questions"
            )
        self._model()  # which refuses what it cannot ask

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure after every ``steps`` updates."""
        if self.steps is not None and state.global_step % self.steps == 0:
            self._log(state, control)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure after an evaluation, unless it is every ``steps`` updates."""
        if self.steps is None:
            self._log(state, control)

    def _log(self, state: TrainerState, control: TrainerControl) -> None:
        if not state.is_world_process_zero:
            return
        numbers = headline_metrics(self.measure())
        should_log = control.should_log  # which a log resets, and the training loss would be lost
        self.trainer.log({f"eval_{name}": value for name, value in numbers.items()})
        control.should_log = should_log

    def measure(self) -> Result:
        with same_random_states():
            return evaluate(self.source, self._model(), **self.options)

    def _model(self) -> Any:
        copied = plain_copy(self.trainer.model)
        copied.config.architectures = [type(copied).__name__]
        name = str(self.trainer.args.output_dir)
        tokenizer: Any = copy.deepcopy(self.trainer.processing_class)  # padding is set in it
        kind = kind_of_config(copied.config, name)
        loaded = Pretrained(kind, copied, tokenizer, {"model": name, "kind": kind})
        protocol = self.options.get("protocol") or self.suite.protocol
        return as_probed(loaded, protocol, asks_questions=self.suite.words.is_pooled)


def headline_metrics(result: Result) -> dict[str, float]:
    """The headline numbers of a result with their bounds; those without data are left out."""
    metrics: dict[str, float] = {}
    for row in result.summary.rows:
        parts = [result.suite.name, *row.names]
        name = "/".join(re.sub(r"[^\w .-]+", "-", part) for part in parts)
        values = {name: row.value, f"{name}/low": row.low, f"{name}/high": row.high}
        metrics |= {key: value for key, value in values.items() if not math.isnan(value)}
    return metrics


@contextmanager
def same_random_states() -> Iterator[None]:
    """Restore the random states of Python, numpy and torch, on all devices."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
