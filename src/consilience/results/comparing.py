"""Comparing runs: the items they have in common, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import polars as pl

from consilience.analysis.flips import FLIP_SCHEMA, NOISE, SAME_MODEL, flip_rows
from consilience.core.errors import By, ConsilienceError, Protocol
from consilience.core.text import counted, listed
from consilience.kinds import kind_of_run, suite_notes, suite_of
from consilience.kinds.counting import NOT_FINISHED, noise_floor_of, record_notes
from consilience.metrics.counts import Prepared
from consilience.metrics.differences import compare
from consilience.metrics.measure import few_relations, other_candidates
from consilience.metrics.registry import label_of
from consilience.options import Output
from consilience.options.runs import CompareOptions
from consilience.report.columns import noise_row
from consilience.report.comparison_tables import (
    comparison_table,
    flip_table,
    flip_verdict,
    flipped_table,
    verdict,
)
from consilience.report.export import Shown, in_sentences, record_of
from consilience.report.table import Table
from consilience.runs.run import Run, open_runs
from consilience.types import Suite

SHOWN = 5  # questions that a note names
SHOWN_FLIPS = 10  # changed answers that a terminal shows
PARTS = "in text, options or gold answer between"  # what changed, before the two runs
ITEM = ["group", "item"]
QUERY = [*ITEM, "variant", "subject", "gold"]  # what identifies a query in an answers table
TEXTS = ("subject", "gold")  # of an item of sentence pairs: the first sentence and the label

DIGITS = 8  # digits of a SHA-256 in a note
SHARES_OF_ANSWERS = ("accuracy", "consistency", "consistent_accuracy")
"""Headline numbers that answers which flip change by about their share."""


def comparable(runs: Sequence[Run], suite: Suite) -> tuple[dict[str, list[Prepared]], list[str]]:
    """The answers to what all runs were asked in the same variants, by run and seed, and notes.

    Nothing in common raises.
    """
    refuse_other_variants(runs)
    is_of_pairs = suite.words.over == "group"
    if is_of_pairs and not all(run.record for run in runs):
        found = "a table of answers to sentence pairs"
        raise ConsilienceError(found, expected="runs, which hold what was asked")
    tables, notes = paired_by_text(runs)
    if is_of_pairs:
        groups = [
            {group for seed in seeds for group in seed["group"].unique()}
            for seeds in tables.values()
        ]
        shared_groups = set.intersection(*groups)
        left_out = sorted(set.union(*groups) - shared_groups)
        if not shared_groups:
            found = f"nothing that all runs were asked: {', '.join(left_out)}"
            raise ConsilienceError(found, expected="runs of the same task")
        is_shared = pl.col("group").is_in(shared_groups)
        tables = {name: [seed.filter(is_shared) for seed in of] for name, of in tables.items()}
        check_texts(runs, tables)
        notes += [f"{group}: not in all runs, so in no difference" for group in left_out]
    answers = _prepared(tables, suite)
    first, *others = [one.table.select(QUERY) for seeds in answers.values() for one in seeds]
    shared = first.select(ITEM).unique(maintain_order=True)
    for other in others:
        shared = shared.join(other, on=ITEM, how="semi")
        for left, right in ((first, other), (other, first)):
            shared = shared.join(left.join(right, on=QUERY, how="anti"), on=ITEM, how="anti")
    sizes = {
        label: max(one.table.select(ITEM).n_unique() for one in seeds)
        for label, seeds in answers.items()
    }
    if all(size == shared.height for size in sizes.values()):
        return answers, notes
    counts = ", ".join(f"{size} in {label}" for label, size in sizes.items())
    if shared.is_empty():
        raise ConsilienceError(
            f"no {suite.words.item} that all runs have in the same variants: {counts}",
            expected="runs of the same items in the same variants",
            todo="Probe both with the same --suite, --data, --groups, --limit and --seed.",
        )
    of_all = f"{counted(shared.height, suite.words.item)} that all runs have ({counts})"
    notes.append(f"compared on the {of_all}")
    keys = shared.select(pl.struct(ITEM)).to_series().implode()
    is_shared = pl.struct(pl.col(ITEM).cast(pl.String)).is_in(keys)
    in_all = {name: [seed.filter(is_shared) for seed in of] for name, of in tables.items()}
    return _prepared(in_all, suite), notes


def asked_of_all(answers: Mapping[str, Sequence[Prepared]]) -> dict[str, list[Prepared]]:
    """The answers without those to queries that any run left out before asking; none raises."""
    on = ["group", "item", "variant"]
    tables = [of.table for seeds in answers.values() for of in seeds]
    reason = [table.drop_nulls("excluded").select(*on, reason="excluded") for table in tables]
    left_out = pl.concat(reason).unique(on, keep="first", maintain_order=True)
    if left_out.height == tables[0].height:
        raise ConsilienceError("no query that all runs were asked", todo="See 'excluded' in each.")
    if all(of.height == left_out.height for of in reason):
        return {label: [*seeds] for label, seeds in answers.items()}

    def without(one: Prepared) -> Prepared:
        joined = one.table.join(left_out, on=on, how="left", maintain_order="left")
        answer = pl.when(pl.col("reason").is_null()).then("answer")
        return Prepared(joined.with_columns(answer, excluded="reason").drop("reason"), one.suite)

    return {label: [*map(without, seeds)] for label, seeds in answers.items()}


def _prepared(
    tables: Mapping[str, Sequence[pl.DataFrame]], suite: Suite
) -> dict[str, list[Prepared]]:
    return {label: [Prepared(table, suite) for table in of] for label, of in tables.items()}


def check_texts(runs: Sequence[Run], answers: Mapping[str, Sequence[pl.DataFrame]]) -> None:
    """Raise where a later run was asked about other pairs than the first.

    The digest of a run's pairs is of both sentences and of the order of the items.
    """
    one, *others = runs
    first, pairs = one.label, _pairs_in(answers[one.label][0])
    digests = {str(seed.settings.get("pairs")) for seed in one.seeds}
    for other in others:
        other_pairs = _pairs_in(answers[other.label][0])
        both = pairs.join(other_pairs, on=ITEM, maintain_order="left")
        same = pl.all_horizontal(pl.col(name) == pl.col(f"{name}_right") for name in TEXTS)
        items = both.filter(~same)["item"].to_list()
        has_digests = digests == {str(seed.settings.get("pairs")) for seed in other.seeds}
        if items or (not has_digests and pairs.equals(other_pairs)):
            which = f"first sentences or golds: {listed(items, 3)}" if items else "second sentences"
            found = f"runs over different texts: {other.label} has other {which}"
            expected = f"the pairs of {first}, whose SHA-256 is 'pairs' in run.json"
            todo = "Ask both models of the same --data."
            raise ConsilienceError(found, expected=expected, where=str(other.path), todo=todo)


def _pairs_in(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("variant_index") == 0).select("group", "item", *TEXTS)


def paired_by_text(runs: Sequence[Run]) -> tuple[dict[str, list[pl.DataFrame]], list[str]]:
    """The answers of each run by its label, in which equal items have equal texts, and notes.

    Questions are named as in the first run; those with another text are left out of all runs.
    """
    first, notes = runs[0].seeds[0].texts, []
    left_out: list[str] = []
    tables: dict[str, list[pl.DataFrame]] = {}
    for run in runs:
        tables[run.label], changed = [], []
        for part in run.seeds:
            names, others = _names(first, part.texts)
            renamed = pl.col("item", "subject").replace(names)
            tables[run.label].append(part.answers.with_columns(renamed) if names else part.answers)
            changed += [item for item in others if item not in changed]
        if changed and not {*first.values()} & {*run.seeds[0].texts.values()}:
            found = f"all questions differ {PARTS} {runs[0].label} and {run.label}"
            expected = "runs with questions in common"
            todo = "Probe both with the same --suite."
            raise ConsilienceError(found, expected=expected, where=str(run.path), todo=todo)
        if changed:
            notes.append(
                f"{counted(len(changed), 'question')} changed {PARTS} {runs[0].label} and "
                f"{run.label}, so not compared: {listed(changed, SHOWN)}"
            )
        left_out += changed
    if left_out:
        tables = {
            label: [table.filter(~pl.col("item").is_in(left_out)) for table in seeds]
            for label, seeds in tables.items()
        }
    return tables, notes


def _names(first: Mapping[str, str], texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What items of a run are called in the first run, and those with another text.

    An item is renamed if both texts are in only one of the runs under that name.
    """
    if not first or not texts:
        return {}, []
    names: dict[str, str] = {}
    changed = []
    same = {item for item, digest in texts.items() if first.get(item) == digest}
    known = {digest: item for item, digest in first.items() if item not in same}
    present = {*texts.values()}
    for item, digest in texts.items():
        if item in same:
            continue
        if digest in known:
            names[item] = known.pop(digest)
        elif item in first and first[item] in present:
            names[item] = f"{item} (other text)"
        elif item in first:
            changed.append(item)
    return names, changed


def absent_tables(suite: Suite) -> set[str]:
    """The tables of ``--by`` that a suite cannot have."""
    has_forms = any(len(group.design.forms) > 1 for group in suite)
    is_known = {
        "edit": any(group.edges for group in suite),
        "form": has_forms,
        "factor": suite.words.is_pooled or any(group.design.languages for group in suite),
    }
    return {name for name, known in is_known.items() if not known}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """Later runs against the first."""

    runs: Sequence[Run]
    suite: Suite
    protocol: Protocol
    table: pl.DataFrame  # One row a difference (``COMPARISON_SCHEMA``)
    notes: Sequence[str]

    def shown(self, by: By | None = None) -> Table:
        """The differences as ``--by`` chooses them."""
        return comparison_table(self.table, self.suite, by)

    @property
    def verdict(self) -> list[str]:
        """Whether later runs differ from the first, in sentences."""
        return verdict(self.table, self.suite)

    def flips(self) -> Flips:
        """Which answers of later runs differ from those of the first."""
        return flips_of(self.runs, self.suite, self.protocol)

    def warnings(self) -> list[str]:
        """The notes, and those on means over few relations, which tables show below their rows."""
        return [*self.notes, *few_relations(self.table, self.suite)]

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The differences, and which tables have details."""
        shown = self.shown(output.by)
        if output.by is None:
            yield from in_sentences(self.verdict, output)
        yield shown
        if output.by is None and output.format == "table" and len(self.runs) > 1:
            absent = absent_tables(self.suite)
            names = [by for by in ("group", "edit", "form", "factor") if by not in absent]
            yield f"Details: --by {', '.join(names)} or metric"

    def document(self) -> dict[str, Any]:
        runs = [str(run.path) for run in self.runs]
        record = record_of(runs=runs, suite=self.suite.name, protocol=self.protocol)
        return {
            "run": record,
            "verdict": self.verdict,
            "differences": self.table.to_dicts(),
            "warnings": self.warnings(),
        }

    def frame(self) -> pl.DataFrame:
        return self.table


def compare_runs(options: CompareOptions) -> Comparison | Flips:
    """Later runs against the first, by the suite and the protocol of the first unless given.

    Seeds of a run are averaged. With ``flips``: which answers changed.
    """
    runs = open_runs(options.runs)
    suite, protocol = suite_of(runs[0], options.suite, options.protocol)
    return (flips_of if options.flips else compare_opened)(runs, suite, protocol)


@dataclass(frozen=True, slots=True, repr=False)
class Flips(Shown):
    """The answers of later runs that differ from those of the first."""

    runs: Sequence[Run]
    suite: Suite
    protocol: Protocol
    numbers: pl.DataFrame  # One row a part of the answers (``FLIP_SCHEMA``)
    answers: pl.DataFrame  # One row an answer that changed
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> list[str]:
        """How many answers changed, in which direction, and whether that is noise."""
        return flip_verdict(self.numbers, self.suite)

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The numbers and the first changed answers; as CSV all changed answers."""
        if output.by:
            found = "--flips with --by"
            raise ConsilienceError(found, todo="Leave them out: the table has every level.")
        changed = flipped_table(self.answers)
        if output.format != "csv":
            yield from in_sentences(self.verdict, output)
            yield flip_table(self.numbers, self.suite)
            changed = flipped_table(self.answers, SHOWN_FLIPS)
        yield changed

    def document(self) -> dict[str, Any]:
        runs = [str(run.path) for run in self.runs]
        return {
            "run": record_of(runs=runs, suite=self.suite.name, protocol=self.protocol),
            "verdict": self.verdict,
            "flips": self.numbers.to_dicts(),
            "answers": self.answers.to_dicts(),
            "warnings": self.notes,
        }

    def frame(self) -> pl.DataFrame:
        return self.answers


def flips_of(
    runs: Sequence[Run],
    suite: Suite,
    protocol: Protocol,
    known: Mapping[str, Sequence[Prepared]] | None = None,
) -> Flips:
    """The answers of later runs that differ from those of the first, to what all were asked.

    Each seed of one run is paired with each of the other. Beside them: the seeds of a run with one
    another, and the noise floors. ``known``: the answers to what all were asked, by run.
    """
    if len(runs) < 2:
        found = f"{len(runs)} run to find changed answers in"
        todo = "Name the run of the new version, too."
        raise ConsilienceError(found, expected="two runs or more", todo=todo)
    refuse_mixed(runs)
    known, notes = (known, []) if known else comparable(runs, suite)
    first, *others = (run.label for run in runs)
    parts = [flip_rows([*product(known[first], known[one])], first, one, "") for one in others]
    same = [
        flip_rows([*combinations(known[run.label], 2)], run.label, run.label, SAME_MODEL)[0]
        for run in runs
        if len(run.parts) > 1
    ]
    floors = [
        {"first": name, "second": name, "over": NOISE, "level": "repeated",
         "changed": row["value"], "low": row["low"], "high": row["high"], "n": row["n"]}
        for name, row in _noise_floors(runs).items()
    ]  # fmt: skip
    model = runs[0].settings.get("model")
    again = [run.label for run in runs[1:] if model and run.settings.get("model") == model]
    numbers = pl.concat([of for of, _ in parts] + same + [pl.DataFrame(floors, FLIP_SCHEMA)])
    is_again = pl.col("second").is_in(again) & (pl.col("over") == "all")
    level = pl.when(is_again).then(pl.lit(SAME_MODEL)).otherwise("level")
    numbers = numbers.with_columns(level=level)
    changed = pl.concat(of for _, of in parts)
    if (prompts := runs[0].prompts).height:
        changed = changed.join(prompts, on=[*QUERY[:3]], how="left", maintain_order="left")
    return Flips(runs, suite, protocol, numbers, changed, settings_notes(runs) + notes)


def compare_opened(runs: Sequence[Run], suite: Suite, protocol: Protocol) -> Comparison:
    """Later runs against the first."""
    refuse_mixed(runs)
    answers, notes = comparable(runs, suite)
    table = compare(asked_of_all(answers), suite, protocol)
    changed = [note for run in runs for note in suite_notes(run, suite)]
    begun = [run.label for run in runs if NOT_FINISHED in " ".join(record_notes(run))]
    changed += [f"{label}: {NOT_FINISHED}" for label in begun]
    notes = changed + settings_notes(runs) + notes + noise_notes(runs, table, suite)
    return Comparison(runs, suite, protocol, table, notes)


def refuse_mixed(runs: Sequence[Run]) -> None:
    """Raise for runs of sentence pairs together with others, and for runs of other suites."""
    if len({kind_of_run(run).words.over == "group" for run in runs}) > 1:
        expected = "runs of one suite, or of the same task and data"
        raise ConsilienceError("runs of sentence pairs, and others", expected=expected)
    suites = {run.label: run.settings["suite"] for run in runs if "suite" in run.settings}
    if len(set(suites.values())) > 1:
        names = ", ".join(f"{label} of {suite}" for label, suite in suites.items())
        todo = "Probe both models with the same --suite."
        raise ConsilienceError(f"runs of different suites: {names}", todo=todo)


def refuse_other_variants(runs: Sequence[Run]) -> None:
    """Raise for runs of questions that were asked in other variants than the first."""
    of_questions = [run for run in runs if "cells" in run.settings]
    designs = [(run.settings["factors"], run.settings["cells"]) for run in of_questions]
    if all(design == designs[0] for design in designs):
        return
    levels = "; ".join(
        f"{run.path}: {len(cells)} variants of "
        + (" x ".join(f"{name} {len(levels)}" for name, levels in factors.items()) or "no factor")
        for run, (factors, cells) in zip(of_questions, designs, strict=True)
    )
    expected = "runs with the same levels of the same factors"
    todo = "Probe both with the same --suite, --vary and --design."
    raise ConsilienceError(f"runs in different variants: {levels}", expected=expected, todo=todo)


def settings_notes(runs: Sequence[Run]) -> list[str]:
    """Settings in which later runs differ from the first, if both are known."""
    first, *others = runs
    notes = []
    for run in others:
        for name in ("suite_digest", "protocol", "candidates", "vocabulary"):
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if not (first.settings and run.settings) or ours == theirs:
                continue
            if name != "suite_digest" or not (first.texts and run.texts):  # which are compared
                if name == "suite_digest":
                    ours, theirs = (str(digest)[:DIGITS] for digest in (ours, theirs))
                what = name.removesuffix("_digest")
                notes.append(
                    f"{run.label} was asked with the {what} {theirs}, {first.label} with {ours}"
                )
        if not {"task", "cells"} & first.settings.keys():
            answers = {one.label: one.seeds[0].answers for one in (first, run)}
            notes += other_candidates(answers)
    return notes


def _noise_floors(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """The row of the noise floor of each run that measured one."""
    known = [(run.label, noise_floor_of(run.path)) for run in runs]
    rows = [(name, noise_row(floor)) for name, floor in known if floor is not None]
    return {name: row for name, row in rows if row is not None}


def noise_notes(runs: Sequence[Run], table: pl.DataFrame, suite: Suite) -> list[str]:
    """Which headline differences are no larger than the noise floor of one of the two runs."""
    floors = _noise_floors(runs)
    headlines = table.filter(
        pl.col("metric").is_in(SHARES_OF_ANSWERS), pl.col("difference").abs() > 0,
        over=suite.words.over, kind="whole",
    )  # fmt: skip
    notes = []
    for (first, second), rows in headlines.group_by("first", "second", maintain_order=True):
        known = [name for name in (str(first), str(second)) if name in floors]
        if not known:
            continue
        name = max(known, key=lambda name: float(floors[name]["value"]))
        floor = floors[name]
        inside = rows.filter(pl.col("difference").abs() <= floor["value"])["metric"]
        if len(inside):
            named = ", ".join(dict.fromkeys(map(label_of, inside)))
            notes.append(
                f"{second} against {first}: no larger than the noise floor: {named}; "
                f"{100 * floor['value']:.1f} % of {floor['n']} answers of {name} changed when "
                "nothing was changed in the prompts"
            )
    return notes
