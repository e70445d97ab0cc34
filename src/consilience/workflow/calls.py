"""The other commands as Python functions.

Each takes the options of its command as keywords and returns the value that the command prints.
``watch`` shows progress (``consilience.watch``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience import suites
from consilience.suites.fetch import fetch
from consilience.suites.sizes import SuiteStatistics, suite_statistics
from consilience.types import Suite
from consilience.workflow import analyses, finetuning, improvement, reproduction, task_effects
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
    TaskEffectsOptions,
    VectorOptions,
)
from consilience.workflow.keywords import by_keywords, options_of
from consilience.workflow.reporting import report, save_report
from consilience.workflow.reproduce_options import ReproduceOptions
from consilience.workflow.run_options import ReportOptions
from consilience.workflow.training_options import FinetuneOptions, ImproveOptions
from consilience.workflow.vector_clusters import cluster_representations

improve = by_keywords(improvement.improve, ImproveOptions)
finetune = by_keywords(finetuning.finetune, FinetuneOptions)
reproduce_table = by_keywords(reproduction.reproduce, ReproduceOptions)
analyze_patterns = by_keywords(analyses.analyze_patterns, PatternsOptions)
analyze_edits = by_keywords(analyses.analyze_edits, EditsOptions)
analyze_examples = by_keywords(analyses.find_examples, ExamplesOptions)
analyze_knowledge = by_keywords(analyses.analyze_knowledge, KnowledgeOptions)
analyze_syntax = by_keywords(analyses.analyze_syntax, SyntaxOptions)
analyze_tasks = by_keywords(task_effects.analyze_tasks, TaskEffectsOptions)
analyze_representations = by_keywords(cluster_representations, VectorOptions)


def write_report(runs: str | Path | list[str | Path], page: str | Path, **options: Any) -> Path:
    """Write one run, or several with the first as the reference, as one HTML page; its path.

    ``options`` are those of ``consilience report``.
    """
    specs = [runs] if isinstance(runs, str | Path) else runs
    keywords = {"runs": [str(spec) for spec in specs], "page": page, **options}
    chosen = options_of(ReportOptions, keywords)
    return save_report(report(chosen), chosen)[0]


def list_suites() -> dict[str, str]:
    """The suites that have a name, and what they are."""
    return dict(suites.NAMES)


def fetch_suite(name: str = "pararel", data: str | Path | None = None) -> Path:
    """Fetch a suite from its authors and check every file; the folder of the suite."""
    folder, _ = fetch(name, suites.data_dir(None if data is None else Path(data)))
    return folder


def suite_stats(suite: str | Path | Suite) -> SuiteStatistics:
    """Count what a suite holds: relations, patterns, facts and candidates."""
    return suite_statistics(suite if isinstance(suite, Suite) else suites.load_suite(suite))
