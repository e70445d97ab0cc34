"""Measure how consistently a language model answers the same question asked in different ways.

>>> import consilience as cs
>>> result = cs.evaluate("mini", "baseline:majority", limit=4)
>>> result.metrics.filter(metric="consistency", group="MACRO", subset="all")["value"].item()
1.0

Functions:

- ``evaluate(suite, model, **options)``: ask a model a suite; a ``Result``.
- ``open_run(path)``: the ``Result`` of a run that is kept in a folder.
- ``score(answers, suite)``: a ``Result`` of answers that were made elsewhere.
- ``plan_probe(suite, model)``: how many queries ``evaluate`` would ask, and how long it takes.
- ``compare(run, run, ...)``: later runs against the first; a ``Comparison``.
- ``write_report(runs, page)``: one HTML page.
- ``load_suite``, ``load_questions``, ``save_suite``, ``new_suite``, ``list_suites``,
  ``fetch_suite``, ``check_suite``, ``suite_stats``, ``suite_cautions``, ``export_prompts``: suites.
  ``mine_patterns``, ``import_patterns``, ``rewrite_patterns``: patterns. ``audit_suite``: mistakes.
  ``make_sheets``, ``make_pattern_sheets``, ``score_sheets``: annotators. ``write_card``.
- ``load_model``, ``ask_suite``, ``read_answers``, ``measure``: the steps of ``evaluate``, one by
  one.
- ``analyze_patterns``, ``analyze_edits``, ``analyze_examples``, ``analyze_expectations``,
  ``analyze_factors``, ``analyze_knowledge``, ``analyze_syntax``, ``analyze_tasks``,
  ``analyze_representations``: why a model is inconsistent.
- ``gate(run, rules=["consistency >= 0.8"])``: whether a run keeps rules on its numbers; a ``Gate``.
  ``plan_gate``: how much data they need.
- ``verify_run(run)``: whether this machine gives the answers of a run; a ``Verification``.
- ``publish_run(run, format)``: its results in the formats of others; a ``Publication``.
- ``run_study(file)``, ``study_state(file)``, ``report_study(file)``: many models on many suites.
- ``ConsistencyCallback``: consistency during a training with the Trainer of transformers.
- ``improve``, ``finetune``: training. ``reproduce_table``, ``list_tables``: the papers' tables.

Types: ``Result``, ``Comparison``, ``Summary``, ``Run``; ``Suite``, ``Relation``, ``Pattern``,
``Fact``, ``Candidates``; ``Questions``, ``Question``, ``Choice``; ``LanguageModel``,
``TextFunction``, ``ScoringFunction``, ``LabelFunction``, ``Query``, ``Scores``;
``ConsilienceError``, which every wrong input raises.

Names are imported when they are first used, so that ``import consilience`` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from consilience.core import process  # noqa: F401 - first, for Ctrl-C during all that follows

if TYPE_CHECKING:
    from consilience.ask import ask_suite as ask_suite
    from consilience.authoring.importing import new_suite as new_suite
    from consilience.core.errors import ConsilienceError as ConsilienceError
    from consilience.core.patterns import Pattern as Pattern
    from consilience.integrations.callbacks import ConsistencyCallback as ConsistencyCallback
    from consilience.metrics.measure import measure as measure
    from consilience.models import LanguageModel as LanguageModel
    from consilience.models import load_model as load_model
    from consilience.models.functions import ScoringFunction as ScoringFunction
    from consilience.models.functions import TextFunction as TextFunction
    from consilience.models.label_functions import LabelFunction as LabelFunction
    from consilience.questions import Choice as Choice
    from consilience.questions import Question as Question
    from consilience.report.summary import Summary as Summary
    from consilience.results.comparing import Comparison as Comparison
    from consilience.results.reporting import Result as Result
    from consilience.runs.run import Run as Run
    from consilience.runs.run import read_answers as read_answers
    from consilience.suites import check_suite as check_suite
    from consilience.suites import load_suite as load_suite
    from consilience.suites.layouts import save_suite as save_suite
    from consilience.suites.question_suites import load_questions as load_questions
    from consilience.suites.questions import Questions as Questions
    from consilience.types import Candidates as Candidates
    from consilience.types import Fact as Fact
    from consilience.types import Query as Query
    from consilience.types import Relation as Relation
    from consilience.types import Scores as Scores
    from consilience.types import Suite as Suite
    from consilience.workflow.calls import analyze_edits as analyze_edits
    from consilience.workflow.calls import analyze_examples as analyze_examples
    from consilience.workflow.calls import analyze_expectations as analyze_expectations
    from consilience.workflow.calls import analyze_factors as analyze_factors
    from consilience.workflow.calls import analyze_knowledge as analyze_knowledge
    from consilience.workflow.calls import analyze_patterns as analyze_patterns
    from consilience.workflow.calls import analyze_representations as analyze_representations
    from consilience.workflow.calls import analyze_syntax as analyze_syntax
    from consilience.workflow.calls import analyze_tasks as analyze_tasks
    from consilience.workflow.calls import audit_suite as audit_suite
    from consilience.workflow.calls import export_prompts as export_prompts
    from consilience.workflow.calls import fetch_suite as fetch_suite
    from consilience.workflow.calls import finetune as finetune
    from consilience.workflow.calls import gate as gate
    from consilience.workflow.calls import import_patterns as import_patterns
    from consilience.workflow.calls import improve as improve
    from consilience.workflow.calls import list_suites as list_suites
    from consilience.workflow.calls import list_tables as list_tables
    from consilience.workflow.calls import make_pattern_sheets as make_pattern_sheets
    from consilience.workflow.calls import make_sheets as make_sheets
    from consilience.workflow.calls import mine_patterns as mine_patterns
    from consilience.workflow.calls import plan_gate as plan_gate
    from consilience.workflow.calls import publish_run as publish_run
    from consilience.workflow.calls import report_study as report_study
    from consilience.workflow.calls import reproduce_table as reproduce_table
    from consilience.workflow.calls import rewrite_patterns as rewrite_patterns
    from consilience.workflow.calls import run_study as run_study
    from consilience.workflow.calls import score_sheets as score_sheets
    from consilience.workflow.calls import study_state as study_state
    from consilience.workflow.calls import suite_cautions as suite_cautions
    from consilience.workflow.calls import suite_stats as suite_stats
    from consilience.workflow.calls import verify_run as verify_run
    from consilience.workflow.calls import write_card as write_card
    from consilience.workflow.calls import write_report as write_report
    from consilience.workflow.evaluation import compare as compare
    from consilience.workflow.evaluation import evaluate as evaluate
    from consilience.workflow.evaluation import open_run as open_run
    from consilience.workflow.evaluation import plan_probe as plan_probe
    from consilience.workflow.evaluation import score as score

__version__ = "0.2.0"

_MODULES = {
    "ask": "ask_suite",
    "authoring.importing": "new_suite",
    "core.errors": "ConsilienceError",
    "core.patterns": "Pattern",
    "integrations.callbacks": "ConsistencyCallback",
    "metrics.measure": "measure",
    "models": "LanguageModel load_model",
    "models.functions": "ScoringFunction TextFunction",
    "models.label_functions": "LabelFunction",
    "questions": "Choice Question",
    "report.summary": "Summary",
    "results.comparing": "Comparison",
    "results.reporting": "Result",
    "runs.run": "Run read_answers",
    "suites": "check_suite load_suite",
    "suites.layouts": "save_suite",
    "suites.question_suites": "load_questions",
    "suites.questions": "Questions",
    "types": "Candidates Fact Query Relation Scores Suite",
    "workflow.calls": "analyze_edits analyze_examples analyze_expectations analyze_factors "
    "analyze_knowledge analyze_patterns analyze_representations analyze_syntax analyze_tasks "
    "audit_suite export_prompts fetch_suite finetune gate import_patterns improve list_suites "
    "list_tables make_pattern_sheets make_sheets mine_patterns plan_gate publish_run "
    "report_study reproduce_table rewrite_patterns run_study score_sheets study_state "
    "suite_cautions suite_stats verify_run write_card write_report",
    "workflow.evaluation": "compare evaluate open_run plan_probe score",
}
"""The modules of the public names, which are those of the imports above."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, imported at its first use."""
    if name not in _PLACES:
        from consilience.core.errors import did_you_mean

        hint = "" if name.startswith("_") else f". {did_you_mean(name, [*_PLACES])}"
        raise AttributeError(f"module 'consilience' has no attribute '{name}'{hint}")
    value = getattr(import_module(f"consilience.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
