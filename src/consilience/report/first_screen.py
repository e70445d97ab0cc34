"""The first screen of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.analysis.examples import Example, Reply
from consilience.core.factors import BETWEEN, FACTORS, WITHIN, levels_of
from consilience.core.text import counted
from consilience.endpoints.usage import cost_in_words
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report import charts
from consilience.report.analysis_tables import differing_lines, lines_asked, whole_or_end
from consilience.report.columns import noise_sentence
from consilience.report.export import (
    Beside,
    Facts,
    Figure,
    Part,
    Points,
    Section,
    Text,
    Tile,
    Tiles,
)
from consilience.report.overview import by_run
from consilience.report.papers import papers_headlines
from consilience.report.run_view import (
    RunView,
    group_names,
    groups_with_forms,
    relation_values,
)
from consilience.report.summary import FEWEST_FACTS, NO_OPTION, VIOLATIONS, SummaryRow
from consilience.report.table import NAN, Cell, Column, Table, Value

UNIT = "\N{NO-BREAK SPACE}%"  # a line does not break before it

OF_FACTS = {
    "accuracy": "The answer to the base pattern is right for {value} of a relation's "
    "facts, on average.",
    "consistency": "Two patterns of a fact agree {value} of the time{chance}.",
    "determinism": "Two patterns of a fact agree {value} of the time{chance}.",
    VIOLATIONS: "The answers violate {value} of these expectations{chance}.",
    "corrected_consistency": "The agreement covers {value} of the distance from chance to full "
    "agreement.",
    "consistent_accuracy": "The answer is right in every pattern for {value} of a relation's "
    "facts, on average.",
}
OF_QUESTIONS = {
    "accuracy": "The answer in the base variant{base} is right for {value} of the questions.",
    "consistency": "Two variants of a question get the same answer {value} of the time{chance}.",
    "corrected_consistency": OF_FACTS["corrected_consistency"],
    "consistent_accuracy": "The answer is right in every variant for {value} of the questions.",
    NO_OPTION: "{value} of the written answers are none of the options.",
}
ONE_FACTOR = (
    "Two variants that differ only in {factor} get the same answer {value} of the time{chance}."
)
OF_PAIRS = {
    ("accuracy", "all"): "The label of the original form is right for {value} of the pairs.",
    ("consistency", "all"): "Another form gets the label of the original {value} of the "
    "time{chance}.",
    ("consistency", "reverse"): "The label is the same for {value} of the pairs when the two "
    "sentences are swapped{chance}.",
    ("consistency", "signal"): "The label is the same for {value} of the pairs with other words "
    "before the sentences{chance}.",
    ("corrected_consistency", "all"): OF_FACTS["corrected_consistency"],
}
UNDEFINED = "Not defined: all answers are the same, so chance alone gives full agreement."
BELOW_CHANCE = "The answers agree less often than expected by chance."


def sentence_of(run: RunView, row: SummaryRow, chance: float) -> str:
    """A headline number in plain words."""
    if row.metric == "corrected_consistency" and not row.value >= 0:
        return UNDEFINED if math.isnan(row.value) else BELOW_CHANCE
    if math.isnan(row.value):
        return "No data."
    base = ""
    if run.suite.words.is_pooled and row.metric != VIOLATIONS:
        sentence = OF_QUESTIONS[row.metric] if row.subset == "all" else ONE_FACTOR
        first, *others = {group.design.variants[0] for group in run.suite.relations}
        base = f" ({first})" if not others and levels_of(first) else ""
    else:
        sentence = OF_PAIRS[row.metric, row.subset] if run.is_of_pairs else OF_FACTS[row.metric]
        if row.subset in (WITHIN, BETWEEN):
            language = "one language" if row.subset == WITHIN else "two languages"
            sentence = sentence.replace("of a fact", f"of {language}")
        if not run.is_of_pairs and "form" in row.meaning:
            forms = "A pattern and its perturbed forms agree"
            sentence = sentence.replace("Two patterns of a fact agree", forms)
    return sentence.format(
        value=f"{row.value * 100:.1f}{UNIT}",
        chance="" if math.isnan(chance) else f" ({chance * 100:.1f}{UNIT} expected by chance)",
        factor=FACTORS.get(row.subset, row.subset),
        base=base,
    )


def opening_example(run: RunView) -> Iterator[Text]:
    """Two prompts of one item with their answers, different ones if there are any.

    The item is one of the means, if there are examples of these.
    """
    if not run.is_of_pairs:
        examples = [one for of_kind in run.examples.values() for one in of_kind]
        averaged = {group.id for group in run.suite if group.cardinality == "N-1"}
        examples.sort(key=lambda example: example.group not in averaged)
        for example in examples[:1]:
            yield from _of_replies(run, example)
    else:
        for row in run.changed.head(1).to_dicts():
            form = row["perturbation"]
            texts = (row["original_1"], row["original_2"]), (row["text_1"], row["text_2"])
            prompts = [" and ".join(map(_quoted, pair)) for pair in texts]
            prompts[1] += f" (form {form})"
            yield Text([_answered(run.name, prompts, (row["original_answer"], row["answer"]))])


def _of_replies(run: RunView, example: Example) -> Iterator[Text]:
    """Two replies to a fact or a question; nothing of one with a single reply.

    A sentence; of a question then its prompt, and what differs in the other one.
    """
    first = example.telling[0]
    others = [reply for reply in example.replies if reply is not first]
    if not others:
        return
    if not (first.prompt and levels_of(first.variant)):  # a fact, or the prompts were not kept
        others = [reply for reply in example.telling if reply is not first]
        second = next((other for other in others if other.answer != first.answer), others[0])
        prompts = [_quoted(run.prompt(example, reply)) for reply in (first, second)]
        yield Text([_answered(run.name, prompts, (first.answer, second.answer))])
        return
    second = min(
        others, key=lambda reply: (reply.answer == first.answer, len(_changed(first, reply)))
    )
    changed = _changed(first, second)
    verb, only = ("differs", "only ") if len(changed) == 1 else ("differ", "")
    names = " and ".join(FACTORS[factor] for factor in changed)
    levels = ", ".join(f"{factor}={level}" for factor, level in changed.items())
    answer = "the same" if second.answer == first.answer else f"but {_quoted(second.answer)}"
    shown = [lines_asked(first.prompt), [*differing_lines(first.prompt, second.prompt or "")]]
    yield Text(
        [
            f"Example: {run.name} answers {_quoted(first.answer)} to this prompt, {answer} when "
            f"{only}{names} {verb} ({levels}):"
        ]
    )
    yield Text([whole_or_end("\n".join(lines)) for lines in shown if lines], code=True)


def _changed(first: Reply, second: Reply) -> dict[str, str]:
    """The levels of the second variant that the first does not have, by their factors."""
    known = levels_of(first.variant)
    return {
        factor: level
        for factor, level in levels_of(second.variant).items()
        if known.get(factor) != level
    }


def _answered(name: str, prompts: Sequence[str], answers: Sequence[str]) -> str:
    """What a model answered to two prompts, in a sentence."""
    first, second = map(_quoted, answers)
    between = " and" if first == second else f", but {second}"
    return f"Example: {name} answers {first} to {prompts[0]}{between} to {prompts[1]}"


def _quoted(text: str) -> str:
    """A prompt in one line, quoted; of a chat the last turn, of a long text the end."""
    return f"“{whole_or_end(' / '.join(lines_asked(text)))}”"


INTRO = (
    "The model answered behind a URL or in llama.cpp. How its candidates were scored was proved on "
    "a few known prompts before anything of the suite was sent."
)
OF_SERVER = "the server "  # how notes of a run on what its server did begin


def server_sections(runs: Sequence[RunView]) -> list[Section]:
    """The servers of runs; none where all models ran without one."""
    parts: list[Part] = []
    for run in runs:
        if rows := [*_server_rows(run)]:
            name = [("Run", run.name)] if len(runs) > 1 else []
            parts.append(Facts([*name, *rows]))
    return [Section("server", "Server", INTRO, parts)] if parts else []


def server_line(run: RunView) -> list[str]:
    """The server of a run in one line, with how it scored; no line without one."""
    rows = dict(_server_rows(run))
    if not rows:
        return []
    parts = [f"{rows['Model']} at {rows['Address']}" if "Address" in rows else rows["Model"]]
    if "Scoring" in rows:
        parts.append(f"scored by {rows['Scoring']}")
    if "Requests" in rows:
        parts.append(rows["Requests"].partition(",")[0])
    return [f"Server: {'; '.join(parts)}."]


def _server_rows(run: RunView) -> Iterator[tuple[str, str]]:
    """Names and values of what is known of the server of a run."""
    record: Mapping[str, Any] = run.records[0] if run.records else {}
    model = record.get("settings", {}).get("model", {})
    if "server" not in model and not {"cost", "scoring"} & record.keys():
        return
    yield "Model", str(model.get("model", run.name))
    if names := record.get("served_as"):
        yield "Name in replies", ", ".join(names)
    if address := model.get("server"):
        yield "Address", str(address)
    scoring = record.get("scoring", {})
    if scoring:
        yield "Scoring", f"{scoring.get('strategy')} ({scoring.get('gives')})"
        yield "Proof", _proof(scoring)
        if refused := scoring.get("refused"):
            yield "Other strategies", "; ".join(f"{name}: {why}" for name, why in refused.items())
    elif model.get("kind") == "decisions":
        yield "Scoring", "the probability of every option, which the server replies"
    limits = [f"{of[0].upper()}{of[1:]}." for of in run.warnings if of.startswith(OF_SERVER)]
    no_bound = "No bound was used: every score is a value." if scoring else "None known."
    yield "Limits and notes", " ".join(limits) or no_bound
    if cost := record.get("cost"):
        yield "Requests", cost_in_words(cost)
    yield "Noise floor", noise_sentence(run.metrics).partition(": ")[2] or "not measured"


def _proof(scoring: Mapping[str, Any]) -> str:
    """What the proof of a strategy found."""
    checks = [counted(int(scoring.get("requests", 0)), "request") + " on known prompts"]
    for name, text in (
        ("repeated", "equal requests differ by {:.1e} nats"),
        ("other_route", "another route differs by {:.1e} nats"),
        ("total_probability", "the probabilities of some next tokens have a sum of {:.3f}"),
    ):
        value = scoring.get(name)
        if isinstance(value, int | float) and not math.isnan(value):
            checks.append(text.format(value))
    return "; ".join(checks)


LARGEST_MATRIX = 50  # variants of a group whose agreement is legible as a matrix
MOST_PAIRS = 25_000  # of variants on a page, about 2.5 MB; of more, one run or group is shown
DETERMINISM = (
    "For a relation with several right answers this number is its determinism, which is left out "
    "of the mean of consistency."
)


def first_screen(runs: Sequence[RunView], relation: str | None) -> Section:
    """The answer to the question of the page.

    ``relation``: whose patterns are shown first; None for the least consistent.
    """
    notes = {run.name: [*server_line(run), *run.summary.groups_in_words(UNIT)] for run in runs}
    lists = (by_run({run.name: run.summary.notes for run in runs}), by_run(notes))
    figures = [*_relations(runs), *_forms(runs), *_agreement(runs, relation)]
    parts: list[Part] = [
        Tiles(list(_tiles(runs[0]))) if len(runs) == 1 else _headline_table(runs),
        *opening_example(runs[0]),
        *(Points(items) for items in lists if items),
        *_headlines(runs),
        *([Beside(figures)] if len(figures) > 1 else figures),
    ]
    return Section("summary", "Summary", _scope(runs), parts)


def _scope(runs: Sequence[RunView]) -> str:
    """What the headline numbers are means over, and what their intervals say, if any has one."""
    if all(math.isnan(row.low) for run in runs for row in run.summary.rows):
        return ""
    words, seeds = runs[0].suite.words, runs[0].seeds
    interval = "Each number has its 95 % confidence interval (CI), over"
    if not words.pool:
        return f"{interval} {words.clusters}." + f" Means of {seeds} seeds." * (seeds > 1)
    if words.is_pooled:
        return f"All {words.item}s together. {interval} {words.clusters}."
    relations = sum(group.cardinality == "N-1" for group in runs[0].suite.relations)
    if relations < 2:
        return f"{interval} the subjects of the facts."
    return (
        f"Means over {relations} relations, each with its 95 % confidence interval (CI). The "
        "relations count as a sample, so the interval is wide where they are few."
    )


def _tiles(run: RunView) -> Iterator[Tile]:
    """A tile a headline number."""
    for row in run.summary.rows:
        chance = _chance_of(run, row)
        yield Tile(
            label=row.label, value=100 * row.value, low=100 * row.low, high=100 * row.high,
            chance=100 * chance, baseline=100 * row.baseline,
            sentence=sentence_of(run, row, chance),
        )  # fmt: skip


def _chance_of(run: RunView, row: SummaryRow) -> float:
    """The value of a number that is expected by chance; NaN but for consistency, violations."""
    if row.metric != "consistency":
        return row.chance if row.metric == VIOLATIONS else NAN
    if row.subset == "all":
        return row.chance
    rows = run.metrics.filter(metric="chance_consistency", subset=row.subset)
    if pool := run.suite.words.pool:
        rows = rows.filter(group=pool)
    return float(rows["value"][0]) if rows.height else NAN


def _headline_table(runs: Sequence[RunView]) -> Table:
    """A row a run, and the majority baseline where it is the same for all."""
    of_runs = [
        {(row.label, row.metric, row.subset): row for row in run.summary.rows} for run in runs
    ]
    keys = list(dict.fromkeys(key for rows in of_runs for key in rows))
    rows: list[list[Value]] = []
    for run, known in zip(runs, of_runs, strict=True):
        cells = [
            Cell(row.value, row.std, row.low, row.high) if (row := known.get(key)) else Cell()
            for key in keys
        ]
        rows.append([_run_and_task(run, runs), *cells[:2], run.summary.chance, *cells[2:]])
    baselines = {
        tuple(round(row.baseline, 9) for row in known.values() if not math.isnan(row.baseline))
        for known in of_runs
    }
    if len(baselines) == 1:
        shared = of_runs[0]
        cells = [Cell(shared[key].baseline) if key in shared else Cell() for key in keys]
        rows.append(["majority baseline", *cells[:2], None, *cells[2:]])
    labels = [label for label, _, _ in keys]
    labels = [*labels[:2], "Expected by chance", *labels[2:]]
    columns = [Column("model"), *(Column(label, "share") for label in labels)]
    title = "The headline numbers, in percent; below each its 95 % confidence interval"
    return Table(title, columns, rows)


def _run_and_task(run: RunView, runs: Sequence[RunView]) -> str:
    """The name of a run, with its task where tasks differ."""
    tasks = {other.task.name for other in runs if other.task}
    return f"{run.name}, {run.task.name}" if run.task and len(tasks) > 1 else run.name


def _headlines(runs: Sequence[RunView]) -> list[Figure]:
    """The headline numbers of several models and of the papers; none of one model alone."""
    papers = papers_headlines(runs[0].metrics)
    if len(runs) == 1 and not papers:
        return []
    shown = {row.label: (row.metric, row.subset) for run in runs for row in run.summary.rows}
    labels = {key: label for label, key in reversed(shown.items())}
    rows: list[tuple[Any, ...]] = [
        (model, labels[key], cell.number, NAN, NAN, "paper")
        for model, values in papers.items()
        for key, cell in values.items()
        if key in labels
    ]
    for run in runs:
        name = _run_and_task(run, runs)
        for row in run.summary.rows:
            rows.append((name, row.label, row.value, row.low, row.high, charts.MEASURED))
    order = list(shown)
    rows.sort(key=lambda row: order.index(row[1]))
    names = ("model", "number", "value", "low", "high", "source")
    texts = dict.fromkeys(("model", "number", "source"), pl.String)
    columns = {name: texts.get(name, pl.Float64) for name in names}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    title = f"Headline numbers on {runs[0].suite.name}"
    caption = "The headline numbers with their 95 % confidence intervals."
    if papers:
        caption += " Hollow marks are the paper's rows, which have no interval."
    return [Figure("headline", title, charts.headline_figure(frame), caption, is_fluid=False)]


def _relations(runs: Sequence[RunView]) -> Iterator[Figure]:
    """Each relation's number with its interval, chance and the majority baseline."""
    if runs[0].is_of_pairs:
        return
    rows = relation_rows(runs)
    title = f"{rows['metric'][0]} of each relation ({charts.REFERENCES})"
    caption = (
        f"Each relation with its 95 % confidence interval; {charts.REFERENCES}. The menu chooses "
        "the number."
    )
    if any(group.cardinality == "N-M" for group in runs[0].suite.relations):
        caption += f" {DETERMINISM}"
    yield Figure(
        "relations", title, charts.interval_figure(rows, runs[0].suite.words.group), caption
    )


def relation_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """The headline metrics of each relation for ``interval_figure``, consistency first."""
    names = group_names(runs[0].suite)
    shown = sorted(headline_metrics(), key=lambda name: name != "consistency")
    metrics = relation_values(runs, (*shown, "chance_consistency"))
    shown = [name for name in shown if name in set(metrics["metric"])]
    rows = _with_references(runs, metrics.with_columns(subset=pl.lit("all")), shown)
    return rows.with_columns(name=pl.col("group").replace(names))


def _forms(runs: Sequence[RunView]) -> Iterator[Figure]:
    """Consistency of every other form with the original one."""
    rows = form_rows(runs)
    if rows.is_empty():
        return
    title = f"Consistency of each form with the original form ({charts.REFERENCES})"
    caption = (
        "Answers of each form that are the same as in the original form, with 95 % confidence "
        f"intervals; {charts.REFERENCES}. The menu chooses the number. A model that always gives "
        "one answer has no chance-corrected consistency."
    )
    yield Figure("forms", title, charts.interval_figure(rows, "form"), caption)


def form_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """Consistency of each form with the original one for ``interval_figure``."""
    shown = ["consistency", "corrected_consistency"]
    columns = ("metric", "group", "subset", "value", "low", "high", "n")
    parts = [
        run.metrics.filter(
            pl.col("metric").is_in([*shown, "chance_consistency"])
            & (pl.col("subset") != "all")
            & pl.col("group").is_in(groups_with_forms(run))
        ).select(pl.lit(run.name).alias("run"), *columns)
        for run in runs
    ]
    rows = _with_references(runs, pl.concat(parts), shown)
    several = rows["group"].n_unique() > 1
    name = pl.col("group") + ": " + pl.col("subset") if several else pl.col("subset")
    return rows.with_columns(name=name)


def _with_references(
    runs: Sequence[RunView], metrics: pl.DataFrame, shown: Sequence[str]
) -> pl.DataFrame:
    """The rows of some metrics by their labels, with ``chance`` and ``majority``."""
    on = ["run", "group", "subset"]
    is_chance = pl.col("metric") == "chance_consistency"
    chance = metrics.filter(is_chance).select(*on, chance="value", metric=pl.lit("consistency"))
    baselines = pl.DataFrame(
        [
            (run.name, group, subset, "consistency" if name == "determinism" else name, value)
            for run in runs
            for (group, name, subset), value in run.baseline.items()
        ],
        schema=dict.fromkeys((*on, "metric"), pl.String) | {"majority": pl.Float64},
        orient="row",
    ).unique(maintain_order=True)
    rows = metrics.filter(pl.col("metric").is_in(shown))
    for references in (chance, baselines):
        rows = rows.join(references, on=[*on, "metric"], how="left", maintain_order="left")
    order = {name: at for at, name in enumerate(shown)}
    rows = rows.sort(pl.col("metric").replace_strict(order), maintain_order=True)
    return rows.with_columns(
        metric=pl.col("metric").replace_strict({n: label_of(n) for n in shown})
    )


def _agreement(runs: Sequence[RunView], relation: str | None) -> Iterator[Figure]:
    """The agreement of each two patterns or forms of a group; nothing with fewer than two pairs."""
    pairs, patterns = (
        pl.concat(
            [getattr(run, name).with_columns(run=pl.lit(run.name)) for run in runs],
            how="diagonal_relaxed",
        )
        for name in ("pairs", "patterns")
    )
    if pairs.height < 2 * len(runs):
        return
    large = patterns.filter(pl.col("variant_index") >= LARGEST_MATRIX)["group"].unique()
    pairs, patterns = (
        frame.filter(~pl.col("group").is_in(large.implode())) for frame in (pairs, patterns)
    )
    if pairs.is_empty():
        return
    words = runs[0].suite.words
    relation = _least_consistent(pairs) if relation is None or relation in large else relation
    caption = charts.matrix_caption(words)
    if len(runs) > 1 and pairs.height > MOST_PAIRS:
        pairs, patterns = (frame.filter(run=runs[0].name) for frame in (pairs, patterns))
        caption += f" Only {runs[0].name} is shown."
    if pairs.height > MOST_PAIRS:
        pairs, patterns = (frame.filter(group=relation) for frame in (pairs, patterns))
    names = group_names(runs[0].suite)
    first_run = f", {runs[0].name}" if len(runs) > 1 else ""
    yield Figure(
        "agreement",
        f"Agreement of {words.variant}s: {names.get(relation, relation)}{first_run}",
        charts.matrix_figure(pairs, patterns, relation, names, words),
        caption,
        is_fluid=False,
    )


def _least_consistent(pairs: pl.DataFrame) -> str:
    """The group with the lowest agreement, among those with enough facts if there are any."""
    if "n" in pairs.columns and (pairs["n"] >= FEWEST_FACTS).any():
        pairs = pairs.filter(pl.col("n") >= FEWEST_FACTS)
    agreement = pl.col("agreement").fill_nan(None).mean()
    means = pairs.group_by("group", maintain_order=True).agg(agreement)
    return str(means.sort("agreement", nulls_last=True)["group"][0])
