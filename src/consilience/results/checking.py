"""What a file is, which numbers it has, why it has no others, and the commands that give them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from consilience.authoring.checks import checked_suite
from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS
from consilience.core.text import counted, listed, spread, truncated
from consilience.elsewhere import kept, made_of, named_columns
from consilience.elsewhere.formats import FIRST, TABLE, frames_in, opened
from consilience.elsewhere.table import COLUMNS, FORM, KEY, NEEDED, Elsewhere
from consilience.files.rows import names_of
from consilience.metrics.measure import FEWEST, legible, measure
from consilience.metrics.registry import ENOUGH
from consilience.options.commands import ScoreOptions
from consilience.probing import noise_floor_of
from consilience.report.table import Column, Output, Table, frame_table
from consilience.results.comparing import Common, named_alike
from consilience.runs.run import USER, Run

THEIRS = "column "  # Before the name of a column of the file, among ours
INSIDE = ("doc.", "metadata.", "vars.", "eval.task_args.")  # Fields of logs that users name
LONGEST = 40  # Characters of an example
FEW = 3  # Values in common, below which two columns are not shown as alike
RUN, YES = "a run", "yes"
ONE = "one answer to each item; name the column that differs: --columns template=YOURS"
DIFFER = "needs several items, and answers that differ"
MANY = f"needs {ENOUGH[0]} to {ENOUGH[-1]} paraphrases or templates"
ORDERS = "needs options in several orders: --columns order=YOURS"
NUMBERS: Mapping[str, tuple[str, str, str]] = {
    "Accuracy": ("accuracy", "value", "no query was asked"),
    "Consistency": ("consistency determinism", "value", ONE),
    "Chance-corrected consistency": ("corrected_consistency", "value", DIFFER),
    "Intervals over items": ("accuracy", "low", f"needs {FEWEST} items that differ"),
    "Intervals over phrasings": ("mean_accuracy consistency", "low_phrasings", MANY),
    "Label kappa": ("label_kappa", "value", "needs options that differ"),
    "Position preference": ("position_preference", "value", ORDERS),
}
"""Each number: its metrics, the column of their table that has it, and why it is not there."""
ALIKE = "Name the same question alike in both: --columns item=YOURS, for a run in `probe`."
COMMON: Mapping[str, Sequence[str]] = {
    "groups": ["group"], "items": ["item"], "variants": ["variant"], "golds": ["item", "gold"],
    "options": ["choices"], "queries": [*KEY, "subject", "variant", "gold"],
}  # fmt: skip
"""What the answers in two files may have in common."""


@dataclass
class Checked:
    """A table, a log, a run or a suite, before anything is made of it."""

    path: str
    named: Mapping[str, str]  # Our names of columns, and what the file calls them
    form: str = "no file of answers"  # What it is
    fields: Mapping[str, str] = field(default_factory=dict)  # As ``named``, of all that are read
    cells: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Hashes of the cells by our names, and by ``THEIRS`` and the file's; null where empty."""
    examples: Mapping[str, str | None] = field(default_factory=dict)
    models: Sequence[str] = ()  # The first is counted
    made: Elsewhere | None = None  # What can be counted
    suite: str = ""  # What it has as a suite, if it is one
    problem: str = ""  # Why nothing can be counted

    @classmethod
    def of(cls, path: str, named: Mapping[str, str]) -> Checked:
        """What a path is; one that is neither there nor the name of a suite raises."""
        known, file = cls(path, named), Path(path)
        columns = [f"{of}={name}" for of, name in named.items()] or None
        try:
            if (file / "run.json").exists():
                run = Run.open(path)
                made = Elsewhere(run.queries, run.suite, run.answers, "", ())
                return cls(path, {}, RUN, made=made)
            if file.exists():
                known.read(file)
            model = known.models[0] if len(known.models) > 1 else None
            known.made = made_of(ScoreOptions(file, columns=columns, model=model))
        except ConsilienceError as error:
            known.problem = str(error.replaced(todo=""))
            with suppress(ConsilienceError):
                if known.lacking or known.form != TABLE:
                    suite = checked_suite(path, columns)
                    known.suite = str(suite.shown[-1]) if not suite.status else ""
            if not (file.exists() or known.suite):
                raise
            known.problem = "a suite has no answers." if known.suite else known.problem
        return known

    def read(self, file: Path) -> None:
        """Read all columns of a file."""
        form, rows = opened(file)
        names = names_of([("", record) for record, _ in islice(rows, FIRST)])
        names = [of for of in names if not any(one.startswith(f"{of}.") for one in names)]
        more = {THEIRS + of: of for of in names if form == TABLE or of.startswith(INSIDE)}
        frames, fields = frames_in(file, {**self.named, **more})
        parts, models = list[pl.DataFrame](), set[str]()
        for part in frames:
            texts = part.select(pl.all().cast(pl.String))
            examples = texts.select(pl.all().drop_nulls().first()).row(0, named=True)
            self.examples = examples | {of: text for of, text in self.examples.items() if text}
            models.update(texts["model"].drop_nulls() if "model" in texts.columns else ())
            is_filled = pl.all().str.strip_chars() != ""
            parts.append(texts.select(pl.when(is_filled).then(pl.all().hash())))
        self.form, self.fields = form, {of: fields[of] for of in fields.keys() - more.keys()}
        self.cells, self.models = pl.concat(parts or [self.cells], how="diagonal"), sorted(models)

    @property
    def lacking(self) -> list[str]:
        """Columns that answers need and a table does not have."""
        has = {of for of in self.cells.columns if self.cells[of].null_count() < len(self.cells)}
        needed = [*NEEDED, *["answer"] * has.isdisjoint({"scores", "error", "excluded"})]
        return [of for of in needed if of not in has] if self.form == TABLE else []

    def command(self, verb: str = "score", **more: str) -> str:
        """A command with the names of columns that are known, and others."""
        columns = ",".join(f"{of}={name}" for of, name in {**self.named, **more}.items())
        words = ["consilience", *verb.split(), self.path, *["--columns", columns] * bool(columns)]
        is_one = verb != "score" or len(self.models) < 2
        return shlex.join(words if is_one else [*words, "--model", self.models[0]])

    @property
    def by(self) -> list[str]:
        """What tells the rows apart; nothing where the items are not known."""
        asked = {*KEY, "model", "reading", *self.fields.keys() - {*COLUMNS}}
        known = [of for of in self.cells.columns if of in asked]
        return known if "item" in known and "item" not in self.lacking else []

    def table(self) -> pl.DataFrame:
        """A row a column of the file, with how many values an item has at most.

        ``may_be_factor``: it alone tells all rows of an item apart, by values of several items.
        """
        by, rows = self.by, list[tuple[Any, ...]]()
        for of in (one for one in self.cells.columns if one.startswith(THEIRS)):
            name, cells = of.removeprefix(THEIRS), self.cells.select(*by, of)
            ours = [our for our, one in self.fields.items() if name in (one, *one.split("+"))]
            example = truncated(" ".join((self.examples[of] or "").split()), LONGEST)
            of_items = cells.group_by(KEY).agg(pl.col(of).n_unique())[of] if by else None
            of_item, may_be = None if of_items is None else of_items.max(), False
            if self.is_ambiguous and not ours and not cells.is_duplicated().any():
                may_be = cells.group_by(of).agg(pl.col("item").n_unique())["item"].min() != 1
            values = cells[of].drop_nulls().n_unique()
            rows.append((name, ", ".join(ours), values, of_item, example, may_be))
        names = ["column", "read as", "values", "of an item", "example", "may_be_factor"]
        return pl.DataFrame(rows, names, orient="row", infer_schema_length=None)

    @cached_property
    def is_ambiguous(self) -> bool:
        """Whether nothing tells some rows of an item apart."""
        return bool(self.by) and bool(self.cells.select(self.by).is_duplicated().any())

    def values(self) -> dict[str, pl.Series]:
        """Hashes of the different values of each column; of a run and a log of ours, too."""
        own = [of for of in self.cells.columns if of.startswith(THEIRS)]
        own += ["item", "gold"] * (self.form != TABLE and "item" in self.cells.columns)
        texts = {of.removeprefix(THEIRS): self.cells[of] for of in own}
        if self.form == RUN and self.made:
            queries = self.made.queries
            lines = queries["input"].explode().str.strip_prefix(USER).str.split("\n").explode()
            every = {"item": queries["item"], "gold": queries["gold"], "line of a prompt": lines}
            texts = {of: one.drop_nulls().hash() for of, one in every.items()}
        return {of: one.drop_nulls().unique() for of, one in texts.items()}


def levels_of(made: Elsewhere) -> dict[str, list[str]]:
    """The levels of each factor that varies; those of facts are patterns."""
    names = [of for of in (*FACTORS, FORM) if of in made.queries.columns] or ["variant"]
    levels = {of: made.queries[of].unique(maintain_order=True) for of in names}
    return {of: [*map(str, one)] for of, one in levels.items() if len(one) > 1}


def sizes_of(known: Checked) -> str:
    """What a file is, and how many rows, items, groups, answers, options and levels it has."""
    form = f"a suite ({known.suite})" if known.suite else known.form
    parts = [form, *[counted(len(known.cells), "row")] * (len(known.cells) > 0)]
    if len(known.models) > 1:
        parts.append(f"models {listed(known.models)}, of which the first is counted")
    if (made := known.made) is not None:
        words, items = made.suite.words, made.queries.group_by(KEY).len()
        options = made.queries["choices"].list.len().to_list()
        parts += [counted(len(items), words.item), counted(items["group"].n_unique(), words.group)]
        parts.append(f"answers to each: {spread(items['len'].to_list())}")
        parts.append(f"{spread(options)} options" if max(options) else f"no {words.choice}s shown")
        for factor, levels in levels_of(made).items():
            parts.append(f"{factor}: {truncated(listed(levels, 4), 2 * LONGEST)}")
    return f"{known.path}: {'; '.join(parts)}"


def numbers_of(known: Checked, made: Elsewhere) -> pl.DataFrame:
    """Each number, with ``YES`` or the reason why it is not possible."""
    metrics, factors = legible(measure(made.answers, made.suite)), levels_of(made)
    rows = list[tuple[str, str]]()
    for number, (names, column, reason) in NUMBERS.items():
        several = factors if number == "Consistency" and len(factors) > 1 else ()
        for part in ("", *several):
            of_part = metrics.filter(pl.col("metric").is_in(names.split()), level=part)
            why = f"no variants differ in {part} alone" if part else reason
            why = ONE if not factors and number.endswith("consistency") else why
            why = YES if of_part[column].is_not_nan().any() else f"no: {why}"
            rows.append((", ".join(filter(None, (number, part))), why))
    floor = noise_floor_of(Path(known.path)) if known.form == RUN else None
    is_noisy = floor is not None or "sample" in factors
    rows.append(("Noise", YES if is_noisy else "no: needs repeats: --columns sample=YOURS"))
    return pl.DataFrame(rows, ["number", "possible"], orient="row")


def commands_of(known: Checked, columns: pl.DataFrame) -> list[str]:
    """What to do with a file; ``columns``: its table."""
    if known.made is not None:
        is_plain = not known.named and len(known.models) < 2
        run = shlex.quote(known.path) if is_plain else "RUN (of score --out RUN)"
        return [f"Score:   {known.command()}", f"Changes: consilience compare OTHER {run} --flips"]
    suite = ["suite check", "probe --suite"] * bool(known.suite)
    lines = [f"As a suite: {known.command(verb)}" for verb in suite]
    if (yours := dict.fromkeys(known.lacking, "YOURS")) and len(columns):
        lines.append(f"As answers: {known.command('check', **yours)}")
        lines.append(f"As answers to what `suite export` wrote: {known.command()} --suite PROMPTS")
        asked = known.command("suite check", question="YOURS", answer="YOURS")
        lines += [f"As questions: {asked}"] * (not suite)
    may_be = columns.filter("may_be_factor")["column"].to_list() if len(columns) else []
    if known.is_ambiguous and not may_be:
        lines.append("No column alone tells the rows of an item apart: --columns template=YOURS")
    return lines + [
        f"Does '{of}' say how an item was asked? If so: {known.command('check', template=of)}"
        for of in may_be
    ]


def compared(every: Sequence[Checked], folder: Path) -> tuple[pl.DataFrame, str]:
    """What two files have in common, and why they cannot be compared; empty where they can."""
    made = [known.made for known in every if known.made]
    rows, alike = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for (a, ours), (b, theirs) in product(*(known.values().items() for known in every)):
        size = int(ours.is_in(theirs.implode()).sum())
        if size >= FEW and 2 * size >= min(len(ours), len(theirs)):
            alike.append((f"'{a}'", f"'{b}'", len(ours), len(theirs), size))
    names = ["first", "second", "in first", "in second", "in both"]
    if len(made) < 2:
        without = " and ".join(known.path for known in every if not known.made)
        table = pl.DataFrame(alike, names, orient="row")
        return table, f"no answers that can be counted in {without}. {ALIKE}"
    runs = [
        replace(
            kept(of, ScoreOptions(Path(known.path)), folder / str(at)) if known.form != RUN
            else Run.open(known.path), label=known.path)
        for at, (known, of) in enumerate(zip(every, made, strict=True))
    ]  # fmt: skip
    suite = runs[0].suite
    for what, by in COMMON.items():
        queries = (run.queries.select(by).unique() for run in named_alike(runs, suite)[0])
        single = (of.explode(by) if by == ["choices"] else of for of in queries)
        one, other = (of.cast(pl.String).drop_nulls().unique() for of in single)
        rows.append((what, what, len(one), len(other), len(one.join(other, on=by))))
    table = pl.DataFrame([*rows, *alike], names, orient="row")
    try:
        Common.of(runs, suite)
    except ConsilienceError as error:
        apart = [what for what, _, *sizes, both in rows if any(sizes) and not both]
        todo = f"Name or vary alike in both, as in --columns item=YOURS: {listed(apart[:-1])}."
        return table, f"{error.found}. {todo if 'queries' in apart[1:] else error.todo}"
    return table, ""


def shown_table(title: str, frame: pl.DataFrame) -> Table:
    """A table of a frame."""
    columns = {
        of: Column(of, "count" if kind.is_integer() else "text")
        for of, kind in frame.schema.items()
    }
    return frame_table(frame, title, columns)


def check(files: Sequence[str], columns: Sequence[str] | None = None) -> Output:
    """What one file is and has; of two, what they have in common, too.

    The exit status is 3 where nothing can be computed, or compared.
    """
    if len(files) > 2:
        raise ConsilienceError(f"{len(files)} files", expected="one, or two to be compared")
    named = named_columns(columns)
    every, shown = [Checked.of(of, named) for of in files], list[Table | str]()
    tables, problem = dict[str, pl.DataFrame](), every[0].problem
    for at, known in enumerate(every, start=1):
        tables[f"columns {at}"] = table = known.table()
        unread = table if known.made is None else table.filter(pl.col("read as") == "")
        if len(unread) and (len(every) == 1 or known.made is None):
            shown.append(shown_table(f"{known.path}: columns", unread.drop("may_be_factor")))
        if known.made is not None and len(every) == 1:
            tables["numbers"] = numbers_of(known, known.made)
            shown.append(shown_table(f"{known.path}: numbers", tables["numbers"]))
        is_apart = len(every) == 1 or known.made is None or bool(known.named)
        shown += commands_of(known, table) if is_apart else []
    if len(every) == 2:
        with TemporaryDirectory(prefix="consilience-") as folder:
            tables["common"], problem = compared(every, Path(folder))
        shown.append(shown_table("In both files", tables["common"]))
        paths = shlex.join("RUN" if known.named else known.path for known in every)
        shown += [f"Compare: consilience compare {paths}"] * (not problem)
    verdict = [*map(sizes_of, every), *[f"Not possible: {problem}"] * bool(problem)]
    return Output(tables, shown, verdict, status=3 if problem else 0)
