"""The commands: what each does, where it is, and examples of it. Nothing is imported for a list."""

from __future__ import annotations

from consilience.cli.command import Entry
from consilience.cli.output_options import (
    CompareOutput,
    ImproveOutput,
    JsonOutput,
    ProbeOutput,
    ScoreOutput,
    TableOutput,
)
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
    TaskEffectsOptions,
    VectorOptions,
)
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.reproduce_options import ReproduceOptions
from consilience.workflow.run_options import CompareOptions, ReportOptions, ScoreOptions
from consilience.workflow.suite_options import (
    CheckOptions,
    FetchOptions,
    ScoreSheetsOptions,
    SheetOptions,
    StatsOptions,
    SuiteListOptions,
)
from consilience.workflow.training_options import FinetuneOptions, ImproveOptions

MEASURE, IMPROVE, SUITES, PAPERS = "Measure", "Improve", "Suites", "Papers"

ANALYZE = {
    "patterns": Entry(
        "Compare patterns: how often each two agree, and which agree with no other.",
        "analyze:patterns",
        (PatternsOptions, TableOutput),
        details=(
            "A pattern is an outlier if its highest agreement with another is below the mean "
            'agreement among the others. "points": its accuracy minus that of the base pattern, '
            "on the same facts. --csv gets every pair of patterns: agreement and change of "
            "accuracy, with intervals and tests."
        ),
        examples=(
            "analyze patterns runs/bert",
            "analyze patterns runs/bert --groups P36 --csv pairs.csv",
        ),
    ),
    "edits": Entry(
        "Compare edits: pairs of patterns that differ in one way with the other pairs.",
        "analyze:edits",
        (EditsOptions, TableOutput),
        details=(
            "Edits are those of the suite's edges. With --derive they are those of a dependency "
            "parser, with the paraphrase types of the paper's Appendix B. Means over relations "
            "that have both kinds of pairs, tested over these."
        ),
        examples=("analyze edits runs/bert", "analyze edits runs/bert --derive --csv edits.csv"),
    ),
    "examples": Entry(
        "Show examples: facts with right and wrong answers, with one wrong answer, and so on.",
        "analyze:examples",
        (ExamplesOptions, TableOutput),
        details="--csv gets a row for each reply of each item.",
        examples=(
            "analyze examples runs/bert",
            "analyze examples runs/bert --kind same_wrong --examples 10",
        ),
    ),
    "knowledge": Entry(
        "Correlate accuracy and consistency over relations (ParaRel paper, Section 6.2).",
        "analyze:knowledge",
        (KnowledgeOptions, TableOutput),
        details=(
            "With --sizes also over runs: the effect of more training data (Table 4). --csv gets "
            "the correlations over relations."
        ),
        examples=(
            "analyze knowledge runs/bert runs/roberta",
            "analyze knowledge small=runs/small large=runs/large --sizes 10M,1B",
        ),
    ),
    "syntax": Entry(
        "Compare how patterns differ by a parser with the suite's own edges.",
        "analyze:syntax",
        (SyntaxOptions, TableOutput),
        details=(
            "Directed edges: how many are the same, Cohen's kappa, and what only one of them has; "
            "then how many pairs with the base pattern are of each paraphrase type (Appendix B). "
            "Needs the extra `syntax`."
        ),
        examples=("analyze syntax pararel", "analyze syntax pararel --csv edges.csv"),
    ),
    "tasks": Entry(
        "Compare tasks of sentence pairs: which kinds are more consistent (CALUM paper, 5.1).",
        "analyze:tasks",
        (TaskEffectsOptions, TableOutput),
        details=(
            "Runs of one model on several tasks belong together: roberta=runs/a roberta=runs/b."
        ),
        examples=(
            "analyze tasks roberta=runs/rte roberta=runs/mrpc",
            "analyze tasks runs/rte runs/mrpc runs/qqp --small rte,mrpc --csv tests.csv",
        ),
    ),
    "representations": Entry(
        "Cluster a model's vectors by pattern, subject and object (ParaRel paper, Section 7.2).",
        "analyze:representations",
        (VectorOptions, JsonOutput),
        details=(
            "The run's folder gets the answers, vectors/RELATION.npy with an index, clusters.csv "
            "and the figure. Rerun the same command to resume an interrupted run."
        ),
        examples=(
            "analyze representations --model packaged:smollm2 --groups capital --limit 8",
            "analyze representations --model bert-base-cased --suite pararel --draw P36",
        ),
    ),
}

ANNOTATE = {
    "sheet": Entry(
        "Sample sentence pairs, and write a page and a table with all their forms per annotator.",
        "annotate:sheet",
        (SheetOptions, JsonOutput),
        details=(
            "Give annotators one of the two, never key.json. The page works from disk, without a "
            "network. Put the table that it downloads into the folder, in place of the empty one."
        ),
        examples=(
            "suite annotate sheet --task rte --data rte.tsv --out sheets",
            "suite annotate sheet --task mrpc --data hub:validation --items 50 --out sheets",
        ),
    ),
    "score": Entry(
        "Measure annotators' accuracy, consistency and agreement (CALUM paper, Section 4.4).",
        "annotate:score",
        (ScoreSheetsOptions, TableOutput),
        examples=(
            "suite annotate score sheets",
            "suite annotate score sheets --csv people.csv",
        ),
    ),
}

SUITE = {
    "list": Entry(
        "List the suites that have a name, with their folders.",
        "suites:list_suites",
        (SuiteListOptions, JsonOutput),
        examples=("suite list", "suite list --json"),
    ),
    "fetch": Entry(
        "Download a suite of the papers, and check every file.",
        "suites:fetch_suite",
        (FetchOptions, JsonOutput),
        examples=("suite fetch pararel", "suite fetch pararel --data-dir data"),
    ),
    "check": Entry(
        "Check a suite: list every error in its files by file and line.",
        "suites:check",
        (CheckOptions, JsonOutput),
        details=(
            "Notes name properties that are no errors but decide what the numbers mean: subjects "
            "of an N-1 relation with several objects, duplicate facts, objects that differ only "
            "in case or spaces, relations with one pattern."
        ),
        examples=("suite check mini", "suite check path/to/suite"),
    ),
    "stats": Entry(
        "Count the relations, patterns and facts of a suite (ParaRel paper, Table 1).",
        "suites:stats",
        (StatsOptions, JsonOutput),
        examples=("suite stats mini", "suite stats mini --json"),
    ),
    "annotate": Entry(
        "Make annotation sheets for people, and score their answers.", commands=ANNOTATE
    ),
}

COMMANDS = {
    "probe": Entry(
        "Ask a model every item of a suite in every variant, and measure its answers.",
        "probe:probe",
        (ProbeOptions, ProbeOutput),
        details=(
            "A suite is a set of facts, asked in every pattern (ParaRel), or a task of sentence "
            "pairs, asked in its original form and in perturbed forms (CALUM). The run is kept in "
            "a folder. Rerun the same command to resume an interrupted run."
        ),
        panel=MEASURE,
        examples=(
            "probe --model packaged:smollm2 --suite mini --limit 8",
            "probe -m bert-base-cased -s pararel --groups P36,P19 --out runs/bert",
        ),
    ),
    "score": Entry(
        "Measure answers that were made elsewhere, or those of a run. No model is needed.",
        "probe:score",
        (ScoreOptions, ScoreOutput),
        details=(
            "The columns group, item, subject, variant, gold, answer suffice; docs/suites.md has "
            "an example."
        ),
        panel=MEASURE,
        examples=(
            "score answers.csv --suite mini",
            "score runs/bert --suite pararel --protocol strict --csv metrics.csv",
        ),
    ),
    "compare": Entry(
        "Compare runs on the same questions: differences with intervals and tests.",
        "compare:compare",
        (CompareOptions, CompareOutput),
        details=(
            "Each difference is a later run minus the first: paired, with a 95 % confidence "
            "interval, an exact McNemar or permutation test, and the minimum detectable "
            "difference. With --by, p is also adjusted over relations or forms."
        ),
        panel=MEASURE,
        examples=(
            "compare runs/before runs/after",
            "compare BERT=runs/bert RoBERTa=runs/roberta --csv differences.csv",
        ),
    ),
    "report": Entry(
        "Make one page on a run, or on several side by side: numbers, figures, examples, cautions.",
        "report:report",
        (ReportOptions, JsonOutput),
        details=(
            "It is one file that opens without a network, on a phone and on paper. docs/report.md "
            "explains each of its numbers."
        ),
        panel=MEASURE,
        examples=(
            "report runs/bert",
            "report runs/before runs/after --out both.html --figures figures",
        ),
    ),
    "analyze": Entry(
        "Analyze a finished run: by pattern, edit, example, accuracy or hidden states.",
        panel=MEASURE,
        commands=ANALYZE,
    ),
    "improve": Entry(
        "Train a model to give one answer to all patterns of a fact, and measure the gain.",
        "improve:improve",
        (ImproveOptions, ImproveOutput),
        details=(
            "Trains with each weight of the consistency loss, keeps the checkpoint with the best "
            "consistent accuracy on the validation relations, and compares the model before and "
            "after on the held-out relations. Rerun the same command to resume an interrupted "
            "run."
        ),
        panel=IMPROVE,
        examples=(
            "improve --model packaged:smollm2 --suite mini --train-groups capital "
            "--validation-groups currency --lambda 1 --epochs 1 --train-facts 8 "
            "--validation-facts 8 --limit 2",
            "improve --model bert-base-cased --suite pararel --train-groups P36,P138 "
            "--validation-groups P19 --seeds 42,43 --out runs/better",
        ),
    ),
    "finetune": Entry(
        "Fine-tune a classifier on the original form of sentence pairs (CALUM, Sections 4.3, 6.1).",
        "finetune:finetune",
        (FinetuneOptions, JsonOutput),
        details=(
            "The best checkpoint of each seed is saved as --out/seed-N/TASK. Rerun the same "
            "command to resume an interrupted run."
        ),
        panel=IMPROVE,
        examples=(
            "finetune --model roberta-base --task rte --train hub:train "
            "--validation hub:validation --out models/rte",
            "finetune --model packaged:minilm --task mrpc --train train.tsv "
            "--validation dev.tsv --seeds 0 --limit 64 --out models/mrpc",
        ),
    ),
    "suite": Entry("List, fetch, check, count and annotate suites.", panel=SUITES, commands=SUITE),
    "reproduce": Entry(
        "Reproduce a table or figure of the papers, or put your own model next to its rows.",
        "reproduce:reproduce",
        (ReproduceOptions, JsonOutput),
        details=(
            "Runs the commands that the table needs and reuses existing runs. Rerun the same "
            "command to resume. A row whose model or data is missing is marked `unavailable`."
        ),
        panel=PAPERS,
        examples=(
            "reproduce pararel-table-3 --add mine=path/to/model --dry-run",
            "reproduce pararel-table-3 --add mine=path/to/model --with 'probe=--limit 5'",
        ),
    ),
}
"""All commands, in the order of the help."""
