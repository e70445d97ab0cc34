"""The other commands as Python functions.

Each takes the options of its command as keywords and returns the value that the command prints.
``watch`` shows progress (``consilience.core.process``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience import suites
from consilience.authoring import (
    audit,
    import_formats,
    pattern_mining,
    pattern_sheets,
    rewriting,
    sharing,
)
from consilience.authoring.audit import cautions
from consilience.gating import gate as gate_plan
from consilience.gating import gate as gating
from consilience.publish import publication
from consilience.reproduce import RECIPES, reproduction
from consilience.results import analyses, verifying
from consilience.results import analyses as factor_analysis
from consilience.results import analyses as task_effects
from consilience.results.analyses import cluster_representations
from consilience.results.reporting import report, save_report
from consilience.study import reporting, running, status
from consilience.suites.facts import SuiteStatistics, suite_statistics
from consilience.suites.layouts import fetch
from consilience.suites.question_suites import (
    SUITE_NAMES,
    QuestionStatistics,
    is_questions,
    load_questions,
    question_statistics,
)
from consilience.suites.questions import Questions
from consilience.train import improvement
from consilience.train import improvement as finetuning
from consilience.types import Suite
from consilience.workflow import exporting
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    ExpectationsOptions,
    FactorsOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
    TaskEffectsOptions,
    VectorOptions,
)
from consilience.workflow.audit_options import AuditOptions, CardOptions, PatternSheetOptions
from consilience.workflow.export_options import ExportOptions
from consilience.workflow.gate_options import GateOptions
from consilience.workflow.keywords import by_keywords, options_of
from consilience.workflow.mining_options import MineOptions
from consilience.workflow.proposal_options import ImportOptions, RewriteOptions
from consilience.workflow.publish_options import PublishOptions
from consilience.workflow.reproduce_options import ReproduceOptions
from consilience.workflow.run_options import ReportOptions, VerifyOptions
from consilience.workflow.study_options import (
    StudyReportOptions,
    StudyRunOptions,
    StudyStatusOptions,
)
from consilience.workflow.suite_options import ScoreSheetsOptions, SheetOptions
from consilience.workflow.training_options import FinetuneOptions, ImproveOptions

improve = by_keywords(improvement.improve, ImproveOptions)
export_prompts = by_keywords(exporting.export_prompts, ExportOptions)
finetune = by_keywords(finetuning.finetune, FinetuneOptions)
reproduce_table = by_keywords(reproduction.reproduce, ReproduceOptions)
import_patterns = by_keywords(import_formats.import_patterns, ImportOptions)
rewrite_patterns = by_keywords(rewriting.rewrite_patterns, RewriteOptions)
audit_suite = by_keywords(audit.audit_suite, AuditOptions)
mine_patterns = by_keywords(pattern_mining.mine_patterns, MineOptions)
write_card = by_keywords(sharing.write_card, CardOptions)
make_pattern_sheets = by_keywords(pattern_sheets.make_pattern_sheets, PatternSheetOptions)
make_sheets = by_keywords(pattern_sheets.make_sheets, SheetOptions)
score_sheets = by_keywords(pattern_sheets.count_sheets, ScoreSheetsOptions)
run_study = by_keywords(running.run_study, StudyRunOptions)
gate = by_keywords(gating.gate, GateOptions)
plan_gate = by_keywords(gate_plan.plan_gate, GateOptions)
verify_run = by_keywords(verifying.verify, VerifyOptions)
publish_run = by_keywords(publication.publish, PublishOptions)
report_study = by_keywords(reporting.report_study, StudyReportOptions)
study_state = by_keywords(status.study_status, StudyStatusOptions)
analyze_patterns = by_keywords(analyses.analyze_patterns, PatternsOptions)
analyze_edits = by_keywords(analyses.analyze_edits, EditsOptions)
analyze_examples = by_keywords(analyses.find_examples, ExamplesOptions)
analyze_expectations = by_keywords(analyses.analyze_expectations, ExpectationsOptions)
analyze_factors = by_keywords(factor_analysis.analyze_factors, FactorsOptions)
analyze_knowledge = by_keywords(analyses.analyze_knowledge, KnowledgeOptions)
analyze_syntax = by_keywords(analyses.analyze_syntax, SyntaxOptions)
analyze_tasks = by_keywords(task_effects.analyze_tasks, TaskEffectsOptions)
analyze_representations = by_keywords(cluster_representations, VectorOptions)


def write_report(runs: Any, page: str | Path, **options: Any) -> Path:
    """Write one run, or several with the first as the reference, as one HTML page; its path.

    A run is a result, a ``Run`` or a folder. ``options`` are those of ``consilience report``.
    """
    keywords = {"runs": runs, "page": page, **options}
    chosen = options_of(ReportOptions, keywords)
    return save_report(report(chosen), chosen)[0]


def list_suites() -> dict[str, str]:
    """The suites that have a name, and what they are."""
    return dict(SUITE_NAMES)


def list_tables() -> dict[str, str]:
    """The papers' tables and figures that ``reproduce_table`` makes, and what they show."""
    return {name: RECIPES[name].title for name in sorted(RECIPES)}


def fetch_suite(
    name: str = "pararel", data: str | Path | None = None, *, source: str | None = None
) -> Path:
    """Fetch a suite from its authors and check every file; the folder of the suite.

    ``source``: another URL with the same files.
    """
    folder, _ = fetch(name, suites.data_dir(None if data is None else Path(data)), base=source)
    return folder


def suite_stats(suite: str | Path | Suite | Questions) -> SuiteStatistics | QuestionStatistics:
    """Count what a suite holds: relations, patterns, facts and candidates; or questions."""
    loaded = _loaded(suite)
    if isinstance(loaded, Questions):
        return question_statistics(loaded)
    return suite_statistics(loaded)


def suite_cautions(suite: str | Path | Suite | Questions) -> list[str]:
    """Properties of a suite that are no errors but decide what its numbers mean."""
    return cautions(_loaded(suite))


def _loaded(suite: str | Path | Suite | Questions) -> Suite | Questions:
    if isinstance(suite, Suite | Questions):
        return suite
    is_of_questions = is_questions(str(suite))
    return load_questions(str(suite)) if is_of_questions else suites.load_suite(suite)
