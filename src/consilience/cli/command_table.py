"""The commands: what each does, where it is, and examples of it. Nothing is imported for a list."""

from __future__ import annotations

from consilience.cli.commands import Entry

MEASURE, IMPROVE, SUITES, PAPERS = "Measure", "Improve", "Suites", "Papers"

ANALYZE = {
    "patterns": Entry(
        "Compare patterns: how often each two agree, and which agree with no other.",
        "analyze:patterns",
        examples=(
            "analyze patterns runs/bert",
            "analyze patterns runs/bert --groups P36 --csv pairs.csv",
        ),
    ),
    "edits": Entry(
        "Compare edits: pairs of patterns that differ in one way with the other pairs.",
        "analyze:edits",
        examples=("analyze edits runs/bert", "analyze edits runs/bert --derive --csv edits.csv"),
    ),
    "examples": Entry(
        "Show examples: facts with right and wrong answers, with one wrong answer, and so on.",
        "analyze:examples",
        examples=(
            "analyze examples runs/bert",
            "analyze examples runs/bert --kind same_wrong --examples 10",
        ),
    ),
    "knowledge": Entry(
        "Correlate accuracy and consistency over relations (ParaRel paper, Section 6.2).",
        "analyze:knowledge",
        examples=(
            "analyze knowledge runs/bert runs/roberta",
            "analyze knowledge small=runs/small large=runs/large --sizes 10M,1B",
        ),
    ),
    "syntax": Entry(
        "Compare how patterns differ by a parser with the suite's own edges.",
        "analyze:syntax",
        examples=("analyze syntax pararel", "analyze syntax pararel --csv edges.csv"),
    ),
    "tasks": Entry(
        "Compare tasks of sentence pairs: which kinds are more consistent (CALUM paper, 5.1).",
        "analyze:tasks",
        examples=(
            "analyze tasks roberta=runs/rte roberta=runs/mrpc",
            "analyze tasks runs/rte runs/mrpc runs/qqp --small rte,mrpc --csv tests.csv",
        ),
    ),
    "representations": Entry(
        "Cluster a model's vectors by pattern, subject and object (ParaRel paper, Section 7.2).",
        "analyze:representations",
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
        examples=(
            "suite annotate sheet --task rte --data rte.tsv --out sheets",
            "suite annotate sheet --task mrpc --data hub:validation --items 50 --out sheets",
        ),
    ),
    "score": Entry(
        "Measure annotators' accuracy, consistency and agreement (CALUM paper, Section 4.4).",
        "annotate:score",
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
        examples=("suite list", "suite list --json"),
    ),
    "fetch": Entry(
        "Download a suite of the papers, and check every file.",
        "suites:fetch_suite",
        examples=("suite fetch pararel", "suite fetch pararel --data-dir data"),
    ),
    "check": Entry(
        "Check a suite: list every error in its files by file and line.",
        "suites:check",
        examples=("suite check mini", "suite check path/to/suite"),
    ),
    "stats": Entry(
        "Count the relations, patterns and facts of a suite (ParaRel paper, Table 1).",
        "suites:stats",
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
        MEASURE,
        (
            "probe --model packaged:smollm2 --suite mini --limit 8",
            "probe -m bert-base-cased -s pararel --groups P36,P19 --out runs/bert",
        ),
    ),
    "score": Entry(
        "Measure answers that were made elsewhere, or those of a run. No model is needed.",
        "probe:score",
        MEASURE,
        (
            "score answers.csv --suite mini",
            "score runs/bert --suite pararel --protocol strict --csv metrics.csv",
        ),
    ),
    "compare": Entry(
        "Compare runs on the same questions: differences with intervals and tests.",
        "compare:compare",
        MEASURE,
        (
            "compare runs/before runs/after",
            "compare BERT=runs/bert RoBERTa=runs/roberta --csv differences.csv",
        ),
    ),
    "report": Entry(
        "Make one page on a run, or on several side by side: numbers, figures, examples, cautions.",
        "report:report",
        MEASURE,
        ("report runs/bert", "report runs/before runs/after --out both.html --figures figures"),
    ),
    "analyze": Entry(
        "Analyze a finished run: by pattern, edit, example, accuracy or hidden states.",
        panel=MEASURE,
        commands=ANALYZE,
    ),
    "improve": Entry(
        "Train a model to give one answer to all patterns of a fact, and measure the gain.",
        "improve:improve",
        IMPROVE,
        (
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
        IMPROVE,
        (
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
        PAPERS,
        (
            "reproduce pararel-table-3 --add mine=path/to/model --dry-run",
            "reproduce pararel-table-3 --add mine=path/to/model --with 'probe=--limit 5'",
        ),
    ),
}
"""All commands, in the order of the help."""
