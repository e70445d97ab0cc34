"""Measure how consistently a language model answers the same question asked in different ways.

>>> import consilience as cs
>>> result = cs.evaluate("mini", "baseline:majority", limit=4)
>>> result.metrics.filter(metric="consistency", over="mean", kind="whole")["value"].item()
1.0

Functions:

- ``evaluate(suite, model, **options)``: ask a model a suite; a ``Result``.
- ``open_run(path)``: the ``Result`` of a run that is kept in a folder.
- ``score(answers, suite)``: a ``Result`` of answers that were made elsewhere.
- ``compare(run, run, ...)``: later runs against the first; a ``Comparison``.
- ``write_report(runs, out=FILE)``: one HTML page, with all answers.
- ``load_suite``, ``load_questions``, ``new_suite``, ``list_suites``, ``fetch_suite``,
  ``check_suite``, ``suite_stats``, ``suite_cautions``, ``export_prompts``: suites.
  ``mine_patterns``, ``import_patterns``, ``rewrite_patterns``: patterns.
  ``make_sheets``, ``make_pattern_sheets``, ``score_sheets``: annotators.
- ``load_model``, ``ask_suite``, ``read_answers``, ``measure``: the steps of ``evaluate``, one by
  one. ``mean_over_runs``: means of metrics over runs, such as seeds.
- ``analyze_patterns``, ``analyze_edits``, ``analyze_examples``, ``analyze_factors``,
  ``analyze_rules``, ``analyze_knowledge``, ``analyze_syntax``, ``analyze_tasks``,
  ``analyze_representations``, ``analyze_judge``: why a model is inconsistent.
- ``gate(run, rule=["consistency >= 0.8"])``: whether a run keeps rules on its numbers; a ``Gate``.
- ``publish_run(run, format)``: its results in the formats of others.
- ``run_study(file)``, ``study_state(file)``, ``report_study(file)``: many models on many suites.
- ``ConsistencyCallback``: consistency during a training with the Trainer of transformers.
- ``improve``, ``finetune``: training. ``reproduce_table``: the papers' tables.

Types: ``Result``, ``Comparison``, ``Summary``, ``Run``; ``Suite``, ``Relation``, ``Pattern``,
``Fact``, ``Candidates``; ``Questions``, ``Question``, ``Choice``; ``LanguageModel``,
``Function``, ``Query``, ``Scores``; ``ConsilienceError``, which every wrong input raises.

Names are imported when they are first used, so that ``import consilience`` takes no time.
"""

from functools import cache
from importlib import import_module
from typing import Any

__version__ = "0.4.0"


@cache
def _places() -> dict[str, str]:
    """The module of each public name, from the stub that type checkers read."""
    import re
    from pathlib import Path

    stub = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    named = re.findall(r"^from (\S+) import \w+ as (\w+)$", stub, re.MULTILINE)
    return {name: module for module, name in named}


def __getattr__(name: str) -> Any:
    """A public name, imported at its first use."""
    places = {} if name.startswith("__") else _places()
    if name not in places:
        from consilience.core.errors import did_you_mean

        hint = "" if name.startswith("_") else f". {did_you_mean(name, [*places])}"
        raise AttributeError(f"module 'consilience' has no attribute '{name}'{hint}")
    value = getattr(import_module(places[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([name for name in globals() if name.startswith("__")] + [*_places()])
