"""suite: list, make, mine, import, rewrite, fetch, check, export and annotate suites."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from consilience.app.command import Group, program
from consilience.core.errors import SILENT, Progress, SuiteKind
from consilience.options import FilePath, Option, OptionalPath, shared, takes
from consilience.options.others import ExportOptions, RewriteOptions

if TYPE_CHECKING:
    from consilience.report.export import Output

# fmt: off

suite_group = Group("suite", "List, make, check, rewrite, export and annotate suites.", program)


@suite_group.command("list", "suite list")
def suite_list() -> Output:
    """List the suites that have a name, with their folders."""
    from consilience.authoring import checks
    return checks.listed_suites()


@suite_group.command("new", "suite new my-questions")
def suite_new(
    folder: Annotated[FilePath, Option("Write the example to this folder.", "DIR")],
    *,
    kind: Annotated[SuiteKind, Option(
        "Questions, facts in patterns, or pairs of texts for a judge.")] = "questions",
) -> Output:
    """Write an example of a suite into a new folder, to be edited.

    The folder has the data and a README that explains its columns. An existing folder must be
    empty.
    """
    from consilience.authoring import checks
    return checks.made_suite(folder, kind)


@suite_group.command("fetch", "suite fetch pararel")
def suite_fetch(
    name: Annotated[str, Option("The suite to download: pararel.")],
    *,
    data_dir: shared.DataDir = None,
    progress: Progress = SILENT,
) -> Output:
    """Download a suite of the papers, and check every file."""
    from consilience.authoring import checks
    return checks.fetched_suite(name, data_dir, progress)


@suite_group.command("check", "suite check questions.csv")
def suite_check(
    suite: Annotated[str, Option("The suite: a name, a folder, a file, or a task.", "SUITE")],
    *,
    columns: shared.ColumnNames = None,
) -> Output:
    """Check a suite: list every error in its files by file and line.

    A suite without errors is counted: relations, patterns and facts as in Table 1 of the ParaRel
    paper, or questions, phrasings and options. Notes point out what is no error but changes what
    the numbers mean (docs/making-suites.md).
    """
    from consilience.authoring import checks
    return checks.checked_suite(suite, columns)


@suite_group.command("export", "suite export pararel --groups P36 --out prompts.csv")
@takes(ExportOptions)
def suite_export(options: ExportOptions) -> Output | None:
    """Write the prompts of a suite, to send them to a model elsewhere.

    A row is an item in a variant: the prompt, what may be answered and the gold. Add a column
    `answer`, and measure it: consilience score FILE; of facts with --suite S. --format lm-eval
    writes a task of lm-evaluation-harness (docs/elsewhere.md).
    """
    from consilience.authoring import importing
    from consilience.elsewhere import exports
    if options.format == "lm-eval":
        return exports.written_task(options)
    if options.out is not None:
        importing.check_no_file(options.out)
        return exports.written_prompts(options)
    for line in exports.exported_lines(options):
        sys.stdout.write(line)
    return None


@suite_group.command("mine", "suite mine leads.jsonl --suite mini --out proposals.jsonl")
def mine_patterns(
    corpus: Annotated[FilePath, Option(
        "Texts: a table (column text), or lines or paragraphs.", "CORPUS")],
    *,
    suite: Annotated[str, Option(
        "These facts: a suite, or a table (relation, subject, object).", "S", "-s")],
    groups: shared.Groups = None,
    against: Annotated[Sequence[str] | None, Option(
        "Suites whose facts count as those of other relations.", "S,S")] = None,
    top: Annotated[int, Option("Patterns of each relation.", min=1)] = 20,
    out: Annotated[OptionalPath, Option(
        "Write the proposals to this new file (.jsonl or .csv).", "FILE", "-o")] = None,
    progress: Progress = SILENT,
) -> Output:
    """Find patterns in a corpus that connect known facts.

    The patterns of each relation are ranked by specificity: the lower bound of the share of its
    facts among the facts of all relations that a pattern connects. No model under test takes part.
    """
    from consilience.authoring import mining
    return mining.mine_patterns(corpus, suite, groups, against, top, out, progress)


@suite_group.command("import", "suite import patterns.csv --into my-suite --dry-run")
def import_patterns(
    path: Annotated[FilePath, Option("A table, or a file of proposals.", "FILE")],
    *,
    into: Annotated[FilePath, Option("Add to this suite folder, which may be new.", "DIR")],
    groups: shared.Groups = None,
    dry_run: Annotated[bool, Option("Show what would be imported; write nothing.")] = False,
) -> Output:
    """Import patterns and facts into a suite folder.

    The file has proposals of `suite mine` or `suite rewrite`, or is a table with the columns
    relation, pattern, subject and object. Patterns that differ from another one in case, spaces or
    punctuation only are refused.
    """
    from consilience.authoring import importing
    return importing.import_patterns(path, into, groups, dry_run=dry_run)


@suite_group.command("rewrite", "suite rewrite my-suite --model org/writer --out p.jsonl")
@takes(RewriteOptions)
def rewrite_patterns(options: RewriteOptions) -> Output:
    """Propose paraphrases of patterns or of questions.

    A model writes new sentences for the base pattern of each relation, or new questions; rules also
    change English questions. Texts that lack a slot, ask something else or are known are refused.
    Read the file of proposals, and take in what means the same.
    """
    from consilience.authoring import rewriting
    return rewriting.rewrite_patterns(options, options.progress)


annotate_group = Group("annotate", "Make sheets for people, and score their answers.", suite_group)


@annotate_group.command("sheet", "suite annotate sheet --task rte --data rte.tsv --out sheets")
def make_sheets(
    *,
    task: Annotated[str, Option("The task: a name, or a TOML file.", "T")],
    data: Annotated[str, Option("Labelled pairs: a file, or hub:SPLIT.", "F")],
    out: shared.SheetFolder,
    items: Annotated[int, Option("Pairs in a sheet.", min=1)] = 30,
    annotators: Annotated[int, Option("How many sheets.", min=1)] = 5,
    perturbations: Annotated[Sequence[str] | None, Option(
        "Forms: names, or `all` [default: reverse,signal].", "P,P")] = None,
    seed: Annotated[int, Option("Seed of the pairs and of their orders.", min=0)] = 0,
) -> Output:
    """Write a table of sentence pairs for each annotator.

    Give each annotator a table, and never key.json.
    """
    from consilience.authoring import annotation
    return annotation.make_sheets(task, data, out, items, annotators, perturbations, seed)


@annotate_group.command("patterns", "suite annotate patterns mini --out sheets")
def make_pattern_sheets(
    suite: shared.SuiteArgument,
    *,
    out: shared.SheetFolder,
    patterns: Annotated[int, Option("Patterns of each relation, at most.", min=1)] = 5,
    annotators: Annotated[int, Option("How many sheets.", min=1)] = 3,
    groups: shared.Groups = None,
    seed: Annotated[int, Option("Seed of the patterns, facts and orders.", min=0)] = 0,
) -> Output:
    """Ask people whether patterns mean the same (ParaRel, Section 4).

    Each annotator gets a table of pairs of sentences. Keep key.json to yourself.
    """
    from consilience.authoring import annotation
    return annotation.make_pattern_sheets(suite, out, patterns, annotators, groups, seed)


@annotate_group.command("score", "suite annotate score sheets")
def score_sheets(
    folder: Annotated[FilePath, Option("The folder with key.json and the answers.", "SHEETS")],
) -> Output:
    """Measure annotators, and how they agree (CALUM, Section 4.4).

    For sheets on patterns: agreement with the suite, and between annotators (ParaRel paper,
    Section 4).
    """
    from consilience.authoring import annotation
    return annotation.score_sheets(folder)
