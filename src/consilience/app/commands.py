"""The commands: options, help and examples of each, and one call. No library is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from consilience.app.command import Group, program
from consilience.core.errors import (
    SILENT,
    SMALL_TASKS,
    ComparedBy,
    Progress,
    PublishFormat,
    SuiteKind,
)
from consilience.options import FilePath, Option, OptionalPath, Paths, takes
from consilience.options import commands as declared

if TYPE_CHECKING:
    from consilience.gating import Gate
    from consilience.report.table import Displayed, Output

# fmt: off


@dataclass(frozen=True, kw_only=True)
class ProbeCommand(declared.ProbeOptions):
    """The options of ``probe`` that ``evaluate`` does not have."""

    dry_run: Annotated[bool, Option(
        "Print what would be asked, and how long it takes; write nothing.")] = False
    progress: Progress = SILENT


@program.command("probe",
    "probe --model packaged:smollm2 --suite mini --limit 8",
    "probe -m bert-base-cased -s pararel --groups P36,P19 --out runs/bert")
@takes(ProbeCommand)
def probe(options: ProbeCommand) -> Displayed:
    """Ask a model a suite in every variant, and measure its answers.

    A suite is facts, asked in every pattern (ParaRel), sentence pairs, asked in several forms
    (CALUM), or questions, asked in every phrasing and order of options. The run is kept in a
    folder. Rerun the same command to resume an interrupted run.
    """
    from consilience import probing
    from consilience.results import evaluation
    if options.dry_run:
        return probing.plan_probe(options, options.progress)
    return evaluation.output_of(probing.probe(options, options.progress))


@program.command("score",
    "score answers.csv --columns item=Id,template=Style --out runs/mine",
    "score runs/bert --protocol strict --format csv")
@takes(declared.ScoreOptions)
def score(options: declared.ScoreOptions) -> Output:
    """Measure answers of other programs, or of a run again. No model is needed.

    A table has the columns item, gold, answer, perhaps options, and one for each factor: what
    differs between the rows of an item. Answers to what `consilience suite export` wrote need id
    and answer, with --suite. Logs of lm-evaluation-harness, inspect_ai, promptfoo and Every Eval
    Ever need nothing else (docs/elsewhere.md).
    """
    from consilience.results import evaluation
    return evaluation.output_of(evaluation.scored(options), options)


@program.command("check", "check answers.csv", "check runs/bot answers.csv")
def check(
    files: Annotated[Paths, Option("A table, a log, a run or a suite; or two of them.", "FILE")],
    *,
    columns: declared.AnswerColumns = None,
) -> Output:
    """Say which numbers a file can give, and why not others.

    A number that is not possible has a reason; commands to paste give the others. Nothing is
    guessed: a column is what its name says, or what --columns says. Of two files it shows what they
    have in common. The exit status is 3 where nothing can be computed, or compared.
    """
    from consilience.results import checking
    return checking.check(files, columns)


@program.command("compare",
    "compare BERT=runs/bert RoBERTa=runs/roberta --format csv",
    "compare runs/before runs/after --flips",
    "compare runs/bf16 runs/int4 --same 2")
def compare(
    runs: declared.RunSpecs,
    *,
    flips: Annotated[bool, Option(
        "Show which answers changed, right or wrong; of one run only of `probe --then`.")] = False,
    same: Annotated[float | None, Option(
        "Are they the same model? At most so many points of the answers differ beyond the noise; "
        "else the exit status is 3.", "POINTS", min=0, max=100)] = None,
    by: Annotated[ComparedBy | None, Option("Print the differences of each of these.")] = None,
) -> Output:
    """Compare runs on the same questions, with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % interval, an exact McNemar
    or permutation test, and the minimum detectable difference (docs/compare.md). To read a file by
    another rule, give `score FILE --match RULE --out RUN` first.
    """
    from consilience.results import comparing
    return comparing.compare_runs(runs, by, flips=flips, same=same)


@program.command("gate",
    'gate runs/new --rule "consistency >= 0.8" --junit gate.xml',
    'gate runs/new --baseline runs/old --rule "consistency no worse than baseline by 3 points"')
def gate(
    run: declared.RunPath,
    *,
    rule: Annotated[Sequence[str], Option(
        'A rule: "consistency >= 0.8". Or "consistency in capital >= 70 %", "mean_accuracy no '
        'worse than baseline by 3 points", "right in 4 of 5".', "RULE", is_repeated=True)] = (),
    baseline: Annotated[str | None, Option(
        "The run that rules compare with; the run must have all its queries.", "RUN")] = None,
    prove: Annotated[bool, Option(
        "Pass only what is shown: the whole 90 % interval is inside.")] = False,
    junit: Annotated[OptionalPath, Option(
        "Also write the checks to this file, as JUnit XML.", "FILE")] = None,
) -> Gate:
    """Pass or fail a run by rules on its numbers: exit status 0 or 3.

    A limit is compared with the number. A rule against a baseline fails if the number is worse by
    more than the margin and its 90 % interval shows that it is worse. Rules are options, or
    `rule = ["..."]` in the table [gate] of consilience.toml. docs/gate.md has a workflow.
    """
    from consilience import gating
    return gating.gate(run, rule, baseline, prove=prove, junit=junit)


@program.command("plan", "plan runs/pilot --target 3")
def plan_run(
    run: declared.RunPath,
    *,
    target: Annotated[float, Option(
        "Half the width of the 95 % intervals, in points.", min=0.1, max=50)] = 2.0,
) -> Output:
    """Plan a run of questions from a pilot.

    How many questions and phrasings 95 % intervals of mean accuracy and consistency need, and what
    it costs; over phrasings if the pilot has four or more (docs/statistics.md).
    """
    from consilience.results import planning
    return planning.plan_run(run, target)


@program.command("report", "report runs/before runs/after --out both.html")
def write_report(
    runs: declared.RunSpecs,
    *,
    out: Annotated[OptionalPath, Option(
        "Write the page to this file [default: report.html in the folder].", "FILE", "-o")] = None,
    figures: Annotated[OptionalPath, Option(
        "Write the figures to this folder, as SVG.", "DIR")] = None,
    progress: Progress = SILENT,
) -> Output:
    """Make one page on a run, or on several side by side.

    The questions whose answers disagree most come first. It is one file that opens without a
    network (docs/report.md).
    """
    from consilience.results import reporting
    return reporting.report(runs, out, figures, progress=progress)


@program.command("publish", "publish runs/bert --format eee --model-id google-bert/bert")
def publish_run(
    run: Annotated[FilePath, Option("The folder of a run.", "RUN")],
    *,
    format: Annotated[PublishFormat, Option("A record of Every Eval Ever (eee), or a model card.")],
    out: Annotated[OptionalPath, Option(
        "Write to this folder [default: published/FORMAT in the run].", "DIR", "-o")] = None,
    model_id: Annotated[str | None, Option(
        "The id of the model [default: its id on the Hub].", "ORG/NAME")] = None,
    licence: Annotated[str | None, Option(
        "Include the texts of the suite, under this licence.", "SPDX-ID")] = None,
    organization: Annotated[str, Option("Who publishes, for eee.", "NAME")] = "",
    progress: Progress = SILENT,
) -> Output:
    """Write the results of a run in a format that others read.

    Only named fields are written: numbers, versions, the model and the suite. Texts of the suite
    need --licence. Nothing is sent; docs/report.md says how to.
    """
    from consilience.publish import publish as publish_run
    return publish_run(run, format, out, model_id, licence, organization, progress)


study_group = Group("study", "Ask many models many suites, and report all runs together.", program)


@study_group.command("run", "study run sizes.toml --workers 2")
def run_study(
    file: declared.StudyFile,
    *,
    workers: Annotated[int | None, Option(
        "Runs at once [default: 1; on a Ray cluster one for each CPU].", "N", min=1)] = None,
    ray_address: Annotated[str | None, Option(
        "Ask on this Ray cluster: HOST:PORT or auto [default: on this machine].", "A")] = None,
    progress: Progress = SILENT,
) -> Output:
    """Ask every model of a study every suite, in all combinations.

    Each run is a folder, as of `probe`. A run that fails does not stop the others; the exit status
    is then 3. Rerun the same command to ask what is not yet complete.
    """
    from consilience.study import running
    return running.run_study(file, workers, ray_address, progress)


@study_group.command("status", "study status sizes.toml")
def study_state(file: declared.StudyFile) -> Output:
    """Show which runs of a study are complete."""
    from consilience.study import read_study, running
    study = read_study(file)
    return running.study_state(study, running.state_of(study))


@study_group.command("report", "study report sizes.toml --format latex")
def report_study(file: declared.StudyFile, *, progress: Progress = SILENT) -> Output:
    """Show the numbers of all runs, and compare the models.

    Models are compared on each suite with each combination of factors. p is adjusted over all
    comparisons of the study.
    """
    from consilience.study import reporting
    return reporting.report_study(file, progress)


analyze_group = Group("analyze", "Analyze runs: patterns, edits, examples, vectors.", program)


@analyze_group.command("patterns", "analyze patterns runs/bert --groups P36 --format csv")
def analyze_patterns(run: declared.RunPath, *, groups: declared.Groups = None) -> Output:
    """Compare patterns: which agree, which cost consistency.

    "diff." is the accuracy of a pattern minus that of the base pattern, on the same facts. --json
    has a row for each pair of patterns, too: agreement and change of accuracy, with tests.
    """
    from consilience.results import analyses
    return analyses.analyze_patterns(run, groups)


@analyze_group.command("edits", "analyze edits runs/bert --derive --format csv")
def analyze_edits(
    run: declared.RunPath,
    *,
    derive: Annotated[bool, Option("Derive edits with a dependency parser (spaCy).")] = False,
) -> Output:
    """Compare pairs of patterns by how the two differ.

    The edges of the suite name the edit between two patterns; with --derive a parser does. Numbers
    are means over the relations that have both kinds of pairs, and tests are over these.
    """
    from consilience.results import analyses
    return analyses.analyze_edits(run, derive=derive)


@analyze_group.command("examples", "analyze examples runs/bert --examples 10")
def analyze_examples(
    run: declared.RunPath, *, examples: Annotated[int, Option("Examples of each kind.", min=1)] = 5,
) -> Output:
    """Show items with right and wrong answers.

    docs/analyses.md explains the kinds of examples; of sentence pairs the answers that a form
    changed are shown. --format csv has a row for each reply to each item.
    """
    from consilience.results import analyses
    return analyses.analyze_examples(run, examples)


@analyze_group.command("knowledge", "analyze knowledge runs/small runs/large")
def analyze_knowledge(runs: declared.Runs) -> Output:
    """Correlate accuracy with consistency (ParaRel, 6.2).

    --format csv has the correlations over relations.
    """
    from consilience.results import analyses
    return analyses.analyze_knowledge(runs)


@analyze_group.command("factors", "analyze factors runs/questions --format latex")
def analyze_factors(runs: declared.Runs, *, groups: declared.Groups = None) -> Output:
    """Show what each factor of a run of questions changes.

    For each factor: the consistency of the variants that differ in it alone, its main and its total
    effect on the answer and on correctness, and the range of accuracy (docs/factors.md).
    """
    from consilience.results import analyses
    return analyses.analyze_factors(runs, groups)


@analyze_group.command("rules", "analyze rules runs/written --format csv")
def analyze_rules(run: declared.RunPath) -> Output:
    """Read the written replies of a run by other rules.

    Each rule reads the same replies: those of --match, and those of other harnesses. How accuracy
    and consistency change, and whether the rule or the variant changes more (docs/free-text.md).
    """
    from consilience.results import analyses
    return analyses.analyze_rules(run)


@analyze_group.command("judge", "analyze judge runs/judge labels.csv")
def analyze_judge(
    run: declared.RunPath,
    labels: Annotated[OptionalPath, Option(
        "What people say of some items: a table with item and gold.", "LABELS")] = None,
) -> Output:
    """Correct the rates of a judge with labels of people.

    How often it chooses each reply or label, and the option shown first (docs/judges.md).
    """
    from consilience.results import analyses
    return analyses.analyze_judge(run, labels)


@analyze_group.command("syntax", "analyze syntax pararel --format csv")
def analyze_syntax(suite: declared.SuiteArgument) -> Output:
    """Compare a suite's own edges with those of a parser.

    It counts the directed edges that are the same, and shows the others. It needs the extra
    `syntax`.
    """
    from consilience.results import analyses
    return analyses.analyze_syntax(suite)


@analyze_group.command("tasks", "analyze tasks runs/rte runs/mrpc runs/qqp --small rte,mrpc")
def analyze_tasks(
    runs: declared.Runs,
    *,
    small: Annotated[Sequence[str], Option(
        "Tasks with few training examples.", "T,T")] = SMALL_TASKS,
) -> Output:
    """Compare tasks of sentence pairs (CALUM, Section 5.1).

    Name the model if several runs are of one model: roberta=runs/a roberta=runs/b.
    """
    from consilience.results import analyses
    return analyses.analyze_tasks(runs, small)


@analyze_group.command("representations", "analyze representations --groups capital --limit 8")
def analyze_representations(
    *,
    model: Annotated[str, Option("The model, as for `probe`.", "M", "-m")] = declared.DEFAULT_MODEL,
    suite: Annotated[str, Option(
        "A suite of facts: mini, pararel, or a folder.", "S", "-s")] = "mini",
    groups: declared.Groups = None,
    limit: Annotated[int, Option("Facts of each relation, at most.", min=1, short="-n")] = 100,
    layers: Annotated[Sequence[int], Option(
        "Layers: 0 is the embeddings, -1 the last one.", "N,N")] = (-1,),
    out: declared.Folder = None,
    device: declared.Device = "auto",
    progress: Progress = SILENT,
) -> Output:
    """Cluster a model's vectors (ParaRel, Section 7.2).

    The run's folder gets the answers, vectors/RELATION.npz, clusters.csv and the
    figure. Rerun the same command to resume an interrupted run.
    """
    from consilience.results import analyses
    return analyses.analyze_representations(
        declared.ProbeOptions(
            model=model, suite=suite, groups=groups, limit=limit, out=out, device=device),
        layers, progress)


@program.command("improve",
    "improve -m bert-base-cased -s pararel --train-groups P36,P138 --validation-groups P19")
@takes(declared.ImproveOptions)
def improve(options: declared.ImproveOptions) -> Output:
    """Train a model to answer alike however it is asked.

    The loss is `vote` by default; that of the ParaRel paper is --loss pairs. Keeps the best
    checkpoint on the validation groups, and compares the model before and after on the held-out
    groups. Rerun the same command to resume an interrupted run.
    """
    from consilience.train import improvement
    return improvement.improve(options, options.progress)


@program.command("finetune",
    "finetune -m roberta-base --task rte --train hub:train --validation hub:validation -o rte")
@takes(declared.FinetuneOptions)
def finetune(options: declared.FinetuneOptions) -> Output:
    """Fine-tune a classifier of sentence pairs (CALUM, Section 4.3).

    The best checkpoint is saved as --out/seed-N/TASK. Rerun the same command to resume an
    interrupted run.
    """
    from consilience.train import classifiers
    return classifiers.finetune(options, options.progress)


@program.command("reproduce", "reproduce pararel --add mine=path/to/model")
@takes(declared.ReproduceOptions)
def reproduce_table(options: declared.ReproduceOptions) -> Output:
    """Make tables of the papers, with a row for your own model.

    `pararel` and `calum` make several tables from the same runs. Existing runs are reused; rerun
    the same command to resume. A row whose model is missing is marked `unavailable`.
    """
    from consilience.reproduce import reproduction
    if options.name is None:
        return reproduction.recipes()
    return reproduction.reproduce(options, options.progress)


suite_group = Group("suite", "Suites: list, check, rewrite, export them and more.", program)


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
    data_dir: declared.DataDir = None,
    progress: Progress = SILENT,
) -> Output:
    """Download a suite of the papers, and check every file."""
    from consilience.authoring import checks
    return checks.fetched_suite(name, data_dir, progress)


@suite_group.command("check", "suite check questions.csv")
def suite_check(
    suite: Annotated[str, Option("The suite: a name, a folder, a file, or a task.", "SUITE")],
    *,
    columns: declared.ColumnNames = None,
) -> Output:
    """Check a suite: list every error in its files by file and line.

    A suite without errors is counted: relations, patterns and facts as in Table 1 of the ParaRel
    paper, or questions, phrasings and options. Notes point out what is no error but changes what
    the numbers mean (docs/making-suites.md).
    """
    from consilience.authoring import checks
    return checks.checked_suite(suite, columns)


@dataclass(frozen=True, kw_only=True)
class ExportCommand(declared.ExportOptions):
    """The options of ``suite export`` that ``export_prompts`` does not have."""

    out: Annotated[FilePath, Option(
        "Write to this new file (.jsonl or .csv), or a task of lm-evaluation-harness to this "
        "folder.", "FILE", "-o")]


@suite_group.command("export", "suite export pararel --groups P36 --out prompts.csv")
@takes(ExportCommand)
def suite_export(options: ExportCommand) -> Output:
    """Write the prompts of a suite, to send them to a model elsewhere.

    A row is an item in a variant: the prompt, what may be answered and the gold. Add a column
    `answer`, and measure it: consilience score FILE; of facts with --suite S (docs/elsewhere.md).
    """
    from consilience.elsewhere import exports
    return exports.exported(options, options.out)


@suite_group.command("mine", "suite mine leads.jsonl --suite mini --out proposals.jsonl")
def mine_patterns(
    corpus: Annotated[FilePath, Option(
        "Texts: a table (column text), or lines or paragraphs.", "CORPUS")],
    *,
    suite: Annotated[str, Option(
        "These facts: a suite, or a table (relation, subject, object).", "S", "-s")],
    groups: declared.Groups = None,
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


@suite_group.command("import", "suite import patterns.csv --into my-suite")
def import_patterns(
    path: Annotated[FilePath, Option("A table, or a file of proposals.", "FILE")],
    *,
    into: Annotated[FilePath, Option("Add to this suite folder, which may be new.", "DIR")],
) -> Output:
    """Import patterns and facts into a suite folder.

    The file has proposals of `suite mine` or `suite rewrite`, or is a table with the columns
    relation, pattern, subject and object. Patterns that differ from another one in case, spaces or
    punctuation only are refused.
    """
    from consilience.authoring import importing
    return importing.import_patterns(path, into)


@suite_group.command("rewrite", "suite rewrite my-suite --model org/writer --out p.jsonl")
@takes(declared.RewriteOptions)
def rewrite_patterns(options: declared.RewriteOptions) -> Output:
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
    out: declared.SheetFolder,
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
    suite: declared.SuiteArgument,
    *,
    out: declared.SheetFolder,
    patterns: Annotated[int, Option("Patterns of each relation, at most.", min=1)] = 5,
    annotators: Annotated[int, Option("How many sheets.", min=1)] = 3,
    groups: declared.Groups = None,
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
