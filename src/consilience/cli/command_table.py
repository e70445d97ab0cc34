"""The commands: where each is, its options, and examples. No library is imported for them."""

from __future__ import annotations

from consilience.cli.command import Entry
from consilience.cli.output_options import (
    CompareOutput,
    FactorsOutput,
    GateOutput,
    ImproveOutput,
    JsonOutput,
    ProbeOutput,
    ScoreOutput,
    StudyRunOutput,
    TableOutput,
)
from consilience.workflow import (
    analysis_options,
    audit_options,
    export_options,
    gate_options,
    mining_options,
    probe_options,
    proposal_options,
    publish_options,
    reproduce_options,
    run_options,
    study_options,
    suite_options,
    training_options,
)

MEASURE, IMPROVE, SUITES, PAPERS = "Measure", "Improve", "Suites", "Papers"

ANALYZE = {
    "patterns": Entry(
        source="analyze:patterns",
        options=(analysis_options.PatternsOptions, TableOutput),
        examples=(
            "analyze patterns runs/bert",
            "analyze patterns runs/bert --groups P36 --csv pairs.csv",
        ),
    ),
    "edits": Entry(
        source="analyze:edits",
        options=(analysis_options.EditsOptions, TableOutput),
        examples=("analyze edits runs/bert", "analyze edits runs/bert --derive --csv edits.csv"),
    ),
    "examples": Entry(
        source="analyze:examples",
        options=(analysis_options.ExamplesOptions, TableOutput),
        examples=(
            "analyze examples runs/bert",
            "analyze examples runs/bert --kind same_wrong --examples 10",
        ),
    ),
    "expectations": Entry(
        source="analyze:expectations",
        options=(analysis_options.ExpectationsOptions, TableOutput),
        examples=(
            "analyze expectations runs/negation",
            "analyze expectations runs/negation --examples 10 --csv violations.csv",
        ),
    ),
    "knowledge": Entry(
        source="analyze:knowledge",
        options=(analysis_options.KnowledgeOptions, TableOutput),
        examples=(
            "analyze knowledge runs/bert runs/roberta",
            "analyze knowledge small=runs/small large=runs/large --sizes 10M,1B",
        ),
    ),
    "factors": Entry(
        source="analyze:factors",
        options=(analysis_options.FactorsOptions, FactorsOutput),
        examples=(
            "analyze factors runs/questions",
            "analyze factors small=runs/small large=runs/large --format latex",
        ),
    ),
    "syntax": Entry(
        source="analyze:syntax",
        options=(analysis_options.SyntaxOptions, TableOutput),
        examples=("analyze syntax pararel", "analyze syntax pararel --csv edges.csv"),
    ),
    "tasks": Entry(
        source="analyze:tasks",
        options=(analysis_options.TaskEffectsOptions, TableOutput),
        examples=(
            "analyze tasks roberta=runs/rte roberta=runs/mrpc",
            "analyze tasks runs/rte runs/mrpc runs/qqp --small rte,mrpc --csv tests.csv",
        ),
    ),
    "representations": Entry(
        source="analyze:representations",
        options=(analysis_options.VectorOptions, JsonOutput),
        examples=(
            "analyze representations --model packaged:smollm2 --groups capital --limit 8",
            "analyze representations --model bert-base-cased --suite pararel --draw P36",
        ),
    ),
}

ANNOTATE = {
    "sheet": Entry(
        source="annotate:sheet",
        options=(suite_options.SheetOptions, JsonOutput),
        examples=(
            "suite annotate sheet --task rte --data rte.tsv --out sheets",
            "suite annotate sheet --task mrpc --data hub:validation --items 50 --out sheets",
        ),
    ),
    "patterns": Entry(
        source="annotate:patterns",
        options=(audit_options.PatternSheetOptions, JsonOutput),
        examples=(
            "suite annotate patterns mini --out sheets",
            "suite annotate patterns my-suite --patterns 20 --people Ana,Ben --out sheets",
        ),
    ),
    "score": Entry(
        source="annotate:score",
        options=(suite_options.ScoreSheetsOptions, TableOutput),
        examples=(
            "suite annotate score sheets",
            "suite annotate score sheets --sign my-suite",
        ),
    ),
}

SUITE = {
    "list": Entry(
        source="suites:list_suites",
        options=(suite_options.SuiteListOptions, JsonOutput),
        examples=("suite list", "suite list --json"),
    ),
    "new": Entry(
        source="suites:new",
        options=(suite_options.NewSuiteOptions, JsonOutput),
        examples=("suite new my-questions", "suite new my-facts --facts"),
    ),
    "fetch": Entry(
        source="suites:fetch_suite",
        options=(suite_options.FetchOptions, JsonOutput),
        examples=("suite fetch pararel", "suite fetch pararel --data-dir data"),
    ),
    "check": Entry(
        source="suites:check",
        options=(suite_options.CheckOptions, JsonOutput),
        examples=("suite check mini", "suite check path/to/suite"),
    ),
    "card": Entry(
        source="audits:card",
        options=(audit_options.CardOptions, JsonOutput),
        examples=("suite card my-suite", "suite card my-suite --json"),
    ),
    "audit": Entry(
        source="audits:audit",
        options=(audit_options.AuditOptions, TableOutput),
        examples=(
            "suite audit mini",
            "suite audit my-suite --fix",
        ),
    ),
    "stats": Entry(
        source="suites:stats",
        options=(suite_options.StatsOptions, JsonOutput),
        examples=("suite stats mini", "suite stats mini --json"),
    ),
    "export": Entry(
        source="suites:export",
        options=(export_options.ExportOptions,),
        examples=(
            "suite export pararel --groups P36 --out prompts.csv",
            "suite export mini --limit 8 --format lm-eval --out tasks",
        ),
    ),
    "mine": Entry(
        source="mine:mine",
        options=(mining_options.MineOptions, JsonOutput),
        examples=(
            "suite mine leads.jsonl --suite mini --groups capital --out proposals.jsonl",
            "suite mine leads.jsonl --like '[X], the capital of [Y]'",
        ),
    ),
    "import": Entry(
        source="import_suite:import_suite",
        options=(proposal_options.ImportOptions, TableOutput),
        examples=(
            "suite import lpaqa/prompt/mine --into my-suite --facts-from pararel --dry-run",
            "suite import patterns.csv --into my-suite --columns pattern=Text,relation=Property",
        ),
    ),
    "rewrite": Entry(
        source="rewrite_suite:rewrite",
        options=(proposal_options.RewriteOptions, JsonOutput),
        examples=(
            "suite rewrite mini --model packaged:smollm2 --groups capital --out proposals.jsonl",
            "suite rewrite my-suite --model org/writer --judge org/judge --out proposals.jsonl",
        ),
    ),
    "annotate": Entry(
        about="Make annotation sheets for people, and score their answers.", commands=ANNOTATE
    ),
}

STUDY = {
    "run": Entry(
        source="study:run",
        options=(study_options.StudyRunOptions, StudyRunOutput),
        examples=(
            "study run sizes.toml --dry-run",
            "study run sizes.toml --engine ray --ray-address auto",
        ),
    ),
    "status": Entry(
        source="study:status",
        options=(study_options.StudyStatusOptions, JsonOutput),
        examples=("study status sizes.toml", "study status sizes.toml --json"),
    ),
    "report": Entry(
        source="study:report",
        options=(study_options.StudyReportOptions, JsonOutput),
        examples=("study report sizes.toml", "study report sizes.toml --tables tables"),
    ),
}

COMMANDS = {
    "probe": Entry(
        source="probe:probe",
        options=(probe_options.ProbeOptions, ProbeOutput),
        panel=MEASURE,
        examples=(
            "probe --model packaged:smollm2 --suite mini --limit 8",
            "probe -m bert-base-cased -s pararel --groups P36,P19 --out runs/bert",
        ),
    ),
    "score": Entry(
        source="probe:score",
        options=(run_options.ScoreOptions, ScoreOutput),
        panel=MEASURE,
        examples=(
            "score answers.csv --suite mini",
            "score runs/bert --suite pararel --protocol strict --csv metrics.csv",
        ),
    ),
    "compare": Entry(
        source="compare:compare",
        options=(run_options.CompareOptions, CompareOutput),
        panel=MEASURE,
        examples=(
            "compare runs/before runs/after",
            "compare BERT=runs/bert RoBERTa=runs/roberta --csv differences.csv",
        ),
    ),
    "gate": Entry(
        source="gate:gate",
        options=(gate_options.GateOptions, GateOutput),
        panel=MEASURE,
        examples=(
            'gate runs/new --rule "consistency >= 0.8" --junit gate.xml',
            "gate runs/new --baseline runs/old "
            '--rule "consistency no worse than baseline by 3 points"',
        ),
    ),
    "verify": Entry(
        source="verify:verify",
        options=(run_options.VerifyOptions, JsonOutput),
        panel=MEASURE,
        examples=("verify runs/bert", "verify runs/bert --sample 500 --device cpu"),
    ),
    "report": Entry(
        source="report:report",
        options=(run_options.ReportOptions, JsonOutput),
        panel=MEASURE,
        examples=(
            "report runs/bert",
            "report runs/before runs/after --out both.html --figures figures",
        ),
    ),
    "publish": Entry(
        source="publish:publish",
        options=(publish_options.PublishOptions, JsonOutput),
        panel=MEASURE,
        examples=(
            "publish runs/bert --format eee --model-id google-bert/bert-base-cased",
            "publish runs/bert --format dataset --push my-org/bert-on-mini",
        ),
    ),
    "study": Entry(
        about="Ask many models many suites from one file, and report all runs together.",
        panel=MEASURE,
        commands=STUDY,
    ),
    "analyze": Entry(
        about="Analyze a finished run: by pattern, edit, example, accuracy or hidden states.",
        panel=MEASURE,
        commands=ANALYZE,
    ),
    "improve": Entry(
        source="improve:improve",
        options=(training_options.ImproveOptions, ImproveOutput),
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
        source="finetune:finetune",
        options=(training_options.FinetuneOptions, JsonOutput),
        panel=IMPROVE,
        examples=(
            "finetune --model roberta-base --task rte --train hub:train "
            "--validation hub:validation --out models/rte",
            "finetune --model packaged:minilm --task mrpc --train train.tsv "
            "--validation dev.tsv --seeds 0 --limit 64 --out models/mrpc",
        ),
    ),
    "suite": Entry(
        about="List, make, import, rewrite, fetch, check, count, export and annotate suites.",
        panel=SUITES,
        commands=SUITE,
    ),
    "reproduce": Entry(
        source="reproduce:reproduce",
        options=(reproduce_options.ReproduceOptions, JsonOutput),
        panel=PAPERS,
        examples=(
            "reproduce pararel-table-3 --add mine=path/to/model --dry-run",
            "reproduce pararel-table-3 --add mine=path/to/model --with 'probe=--limit 5'",
        ),
    ),
}
"""All commands, in the order of the help."""
