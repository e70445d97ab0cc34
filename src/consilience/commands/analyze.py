"""analyze: what the consistency of a finished run depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command, group
from consilience.options import runs

if TYPE_CHECKING:
    from consilience.results import analyses
else:
    analyses = Lazy("results.analyses")

# fmt: off
group(
    "analyze", "Analyze a finished run: by pattern, edit, example, accuracy or hidden states.",
    "Measure")

TABLE = ("csv", "json")


@command(runs.PatternsOptions, "analyze patterns", output=TABLE, examples=(
    "analyze patterns runs/bert",
    "analyze patterns runs/bert --groups P36 --csv pairs.csv"))
def analyze_patterns(options: runs.PatternsOptions) -> analyses.Analysis:
    """Compare patterns: how often each two agree, and which agree with no other.

    A pattern is an outlier if its highest agreement with another is below the mean agreement
    among the others. The column "points" is the accuracy of a pattern minus that of the base
    pattern, on the same facts. The file of --csv has a row for each pair of patterns: its
    agreement and its change of accuracy, with intervals and tests.
    """
    return analyses.analyze_patterns(options)


@command(runs.EditsOptions, "analyze edits", output=TABLE, examples=(
    "analyze edits runs/bert",
    "analyze edits runs/bert --derive --csv edits.csv"))
def analyze_edits(options: runs.EditsOptions) -> analyses.Analysis:
    """Compare edits: pairs of patterns that differ in one way with the other pairs.

    An edit is a way in which two patterns differ. The edges of the suite name it; with --derive
    a dependency parser does, which also finds the paraphrase types of the paper's Appendix B.
    Numbers are means over the relations that have both kinds of pairs, and tests are over these
    relations.
    """
    return analyses.analyze_edits(options)


@command(runs.ExamplesOptions, "analyze examples", output=TABLE, examples=(
    "analyze examples runs/bert",
    "analyze examples runs/bert --kind same_wrong --examples 10"))
def analyze_examples(options: runs.ExamplesOptions) -> analyses.Analysis:
    """Show examples: items with right and wrong answers, with one wrong answer, and so on.

    An item is a fact or a question; of written answers the text is shown, and how it was matched.
    docs/analyses.md explains the kinds of examples. The file of --csv has a row for each reply
    to each item.
    """
    return analyses.analyze_examples(options)


@command(runs.ExpectationsOptions, "analyze expectations", output=TABLE, examples=(
    "analyze expectations runs/negation",
    "analyze expectations runs/negation --examples 10 --csv violations.csv"))
def analyze_expectations(options: runs.ExpectationsOptions) -> analyses.Analysis:
    """Show which expectations the answers violate: how many of each kind, and examples.

    A suite of questions says what should hold between the answers to several of its questions
    (docs/expectations.md). The file of --csv has a row for each kind of expectations of a group.
    """
    return analyses.analyze_expectations(options)


@command(runs.KnowledgeOptions, "analyze knowledge", output=TABLE, examples=(
    "analyze knowledge runs/bert runs/roberta",
    "analyze knowledge small=runs/small large=runs/large --sizes 10M,1B"))
def analyze_knowledge(options: runs.KnowledgeOptions) -> analyses.Analysis:
    """Correlate accuracy and consistency over relations (ParaRel paper, Section 6.2).

    With --sizes the effect of more training data is measured over the runs, too (Table 4), and with
    --abstain-below what remains if the model answers only when it is confident (Section 9). The
    file of --csv has the correlations over relations.
    """
    return analyses.analyze_knowledge(options)


@command(runs.FactorsOptions, "analyze factors", output=("csv", "format", "json"), examples=(
    "analyze factors runs/questions",
    "analyze factors small=runs/small large=runs/large --format latex"))
def analyze_factors(options: runs.FactorsOptions) -> analyses.FactorAnalysis:
    """Show where inconsistency comes from: what each factor of a run of questions changes.

    For each factor: the consistency of the variants that differ in it alone, its main effect and
    its total effect on the answer and on correctness. Then POSIX, PromptSensiScore and the range
    of accuracy. The file of --csv has a row for each number. See docs/factors.md.
    """
    return analyses.analyze_factors(options)


@command(runs.SyntaxOptions, "analyze syntax", output=TABLE, examples=(
    "analyze syntax pararel",
    "analyze syntax pararel --csv edges.csv"))
def analyze_syntax(options: runs.SyntaxOptions) -> analyses.Analysis:
    """Compare how patterns differ by a parser with the suite's own edges.

    It prints how many directed edges are the same, Cohen's kappa, the edges that only one of
    them has, and how many pairs with the base pattern are of each paraphrase type (Appendix B).
    It needs the extra `syntax`.
    """
    return analyses.analyze_syntax(options)


@command(runs.TaskEffectsOptions, "analyze tasks", output=TABLE, examples=(
    "analyze tasks roberta=runs/rte roberta=runs/mrpc",
    "analyze tasks runs/rte runs/mrpc runs/qqp --small rte,mrpc --csv tests.csv"))
def analyze_tasks(options: runs.TaskEffectsOptions) -> analyses.Analysis:
    """Compare tasks of sentence pairs: which kinds are more consistent (CALUM paper, 5.1).

    Name the model if several runs are of one model: roberta=runs/a roberta=runs/b.
    """
    return analyses.analyze_tasks(options)


@command(runs.VectorOptions, "analyze representations", examples=(
    "analyze representations --model packaged:smollm2 --groups capital --limit 8",
    "analyze representations --model bert-base-cased --suite pararel --draw P36"))
def analyze_representations(options: runs.VectorOptions) -> analyses.Analysis:
    """Cluster a model's vectors by pattern, subject and object (ParaRel paper, Section 7.2).

    The run's folder gets the answers, vectors/RELATION.npy with an index, clusters.csv and the
    figure. Rerun the same command to resume an interrupted run.
    """
    return analyses.analyze_representations(options, options.watch)
