"""Consistency as a test: assertions, a suite as test cases, and runs that tests share.

``pytest_plugin`` makes a fixture of ``Runs``. Nothing here imports pytest, except ``cases``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis.examples import item_agreement
from consilience.asking.questions import NO_VARIANT
from consilience.core.errors import ConsilienceError
from consilience.core.text import counted, truncated
from consilience.files.write import locked, write_whole
from consilience.gating.gate import gate
from consilience.kinds import kind_of_run
from consilience.options.runs import GateOptions
from consilience.report.analysis_tables import SPECIAL_TOKENS
from consilience.results.evaluation import evaluate, open_run, suite_to_ask
from consilience.results.reporting import Result
from consilience.runs.folder import OtherRunError
from consilience.runs.run import Run
from consilience.suites.questions import Questions
from consilience.types import Suite, SuiteWords

LONGEST_TEXT, LONGEST_ANSWER = 1_500, 200
"""Characters of a prompt and of an answer that a failure shows."""


@dataclass(frozen=True, slots=True)
class Case:
    """A suite, or a group or an item of it, as the parameter of a test."""

    suite: Any  # The suite, as ``evaluate`` takes it
    options: Mapping[str, Any] = field(hash=False)
    """The options of ``evaluate`` that choose its items and variants."""
    group: str = ""  # The group; empty for the whole suite
    item: str = ""  # The item; empty for all items

    def __str__(self) -> str:
        return self.item or self.group


def cases(suite: Any = "mini", *, by: str = "item", **options: Any) -> list[Any]:
    """A suite as parameters of ``pytest.mark.parametrize``, each with an id.

    - ``suite``, ``options``: as of ``assert_consistent``. No model is loaded.
    - ``by``: ``item`` for a test of each item, or ``group`` for a test of each group. Sentence
      pairs have groups only.
    """
    import pytest

    __tracebackhide__ = True
    suite = _beside_test(suite)
    try:
        whole = suite_to_ask(suite, **options)
    except ConsilienceError as error:
        raise error.with_traceback(None) from None
    if by == "group":
        chosen = [Case(suite, options, group.id) for group in whole]
    elif by == "item":
        chosen = [
            Case(suite, options, group.id, fact.item) for group in whole for fact in group.facts
        ]
    else:
        raise ConsilienceError(f"by={by!r}", expected="'item' or 'group'")
    if not chosen:
        raise ConsilienceError(
            f"a test of each item of {whole.name}",
            expected="a suite of questions or facts",
            todo="Test each group: by='group'.",
        )
    return [pytest.param(case, id=str(case)) for case in chosen]


def assert_consistent(
    model: Any,
    suite: Any,
    *rules: str,
    at_least: float | None = None,
    baseline: str | PathLike[str] | None = None,
    examples: int = 3,
    **options: Any,
) -> Result:
    """Raise ``AssertionError`` unless each item gets the same answer in all its variants.

    With ``rules``, raise unless the numbers of the run keep them, as intervals decide
    (``consilience gate``). The message shows items with two prompts and their different answers.
    Returns the result.

    - ``model``, ``suite``, ``options``: those of ``evaluate``; ``suite`` may be one of ``cases``. A
      file that is not in the working folder is looked for beside the test.
    - ``rules``: such as ``"consistency >= 0.8"``, of a suite or a group.
    - ``at_least``: the share of the pairs of variants of each item that must agree, from 0 to 1
      [default: 1 without rules].
    - ``baseline``: a run or a result, for ``"consistency no worse than baseline by 3 points"``.
    - ``examples``: how many items the message shows.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    return Runs().assert_consistent(
        model, _beside_test(suite), *rules, at_least=at_least, baseline=_beside_test(baseline),
        examples=examples, **options,
    )  # fmt: skip


class Runs:
    """Runs that are asked once, by one process, and shared by all tests of a session.

    ``folder``: where they are kept; without one each is temporary. ``session``: names the session.
    A run of an earlier session is resumed: its model is loaded, and asked nothing if it and the
    suite are as they were.
    """

    def __init__(self, folder: str | Path | None = None, session: str = "") -> None:
        self.folder = None if folder is None else Path(folder).resolve()
        self.session = session
        self._runs: dict[str, Answered | ConsilienceError] = {}
        self._values: list[Any] = []

    def result(self, model: Any, suite: Any, **options: Any) -> Result:
        """The result of ``evaluate(suite, model, **options)``, which is asked at its first use."""
        __tracebackhide__ = True
        return self._ask(model, _case_of(_beside_test(suite), options)).result

    def assert_consistent(
        self,
        model: Any,
        suite: Any,
        *rules: str,
        at_least: float | None = None,
        baseline: str | PathLike[str] | None = None,
        examples: int = 3,
        **options: Any,
    ) -> Result:
        """As the function ``assert_consistent``, of a run that is shared."""
        __tracebackhide__ = True
        case = _case_of(_beside_test(suite), options)
        baseline = _beside_test(baseline)
        answered = self._ask(model, case)
        messages: list[str] = []
        try:
            if rules:
                messages += answered.broken_rules(case, rules, baseline, examples)
            if at_least is not None or not rules:
                share = 1 if at_least is None else at_least
                messages += answered.inconsistent(case, share, examples)
        except ConsilienceError as error:
            raise error.with_traceback(None) from None
        if messages:
            raise AssertionError("\n".join(messages))
        return answered.result

    def _ask(self, model: Any, case: Case) -> Answered:
        """The answers; an error is kept too, so that no other test tries again."""
        __tracebackhide__ = True
        key, is_shared = _key_of(model, case)
        if key not in self._runs:
            self._values += [model, case.suite]  # no other value gets the id of one that is gone
            try:
                self._runs[key] = Answered(self._result(model, case, key if is_shared else ""))
            except ConsilienceError as error:
                self._runs[key] = error
        known = self._runs[key]
        if isinstance(known, ConsilienceError):
            raise known.with_traceback(None) from None
        return known

    def _result(self, model: Any, case: Case, name: str) -> Result:
        """The result of a run in the folder ``name``, which one process of the session asks."""
        if self.folder is None or not name or "out" in case.options:
            return evaluate(case.suite, model, **case.options)
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        run, mark = folder / "run", folder / "session"
        with locked(folder):  # all other processes wait
            if mark.is_file() and mark.read_text(encoding="utf-8") == self.session:
                return open_run(run, seed=case.options.get("seed", 0))
            if not isinstance(model, str | PathLike):  # its code may have changed
                shutil.rmtree(run, ignore_errors=True)
            try:
                result = evaluate(case.suite, model, **case.options, out=run)
            except OtherRunError:  # the model or the suite has changed since an earlier session
                shutil.rmtree(run)
                result = evaluate(case.suite, model, **case.options, out=run)
            write_whole(mark, self.session.encode())
            return result


@dataclass(frozen=True)
class Answered:
    """A result, and how many pairs of variants of each of its items agree."""

    result: Result

    @cached_property
    def agreement(self) -> list[pl.DataFrame]:
        """``AGREEMENT_SCHEMA`` of each seed."""
        suite, protocol = self.result.suite, self.result.protocol
        return [item_agreement(table, suite, protocol) for table in self.result.run.tables]

    def inconsistent(self, case: Case, at_least: float, examples: int) -> Iterator[str]:
        """A message for each seed with items that agree in fewer of their pairs."""
        if not 0 <= at_least <= 1:
            raise ConsilienceError(f"at_least={at_least}", expected="a share from 0 to 1")
        for seed, table in zip(self.result.run.seeds, self.agreement, strict=True):
            chosen = _of_case(table, case)
            lacks = pl.col("answer").is_null() & pl.col("excluded").ne_missing(NO_VARIANT)
            unanswered = seed.answers.filter(lacks).select("group", "item").unique()
            chosen = chosen.join(
                unanswered.with_columns(pl.lit(value=True).alias("lacks")),
                on=["group", "item"], how="left", maintain_order="left",
            )  # fmt: skip
            too_few = pl.col("same") + 1e-6 < at_least * pl.col("pairs")
            is_lacking = pl.col("lacks") & (at_least == 1)
            failed = chosen.filter(too_few | (pl.col("pairs") == 0) | is_lacking)
            if failed.height:
                yield _message(self.result, seed, chosen, failed, at_least, examples)

    def broken_rules(
        self,
        case: Case,
        rules: Sequence[str],
        baseline: str | PathLike[str] | None,
        examples: int,
    ) -> Iterator[str]:
        """The verdicts on rules, with examples; nothing if the gate is open.

        A rule of a case is on the numbers of its group, unless it names one.
        """
        if case.item:
            raise ConsilienceError(
                f"the rule '{rules[0]}' for the item '{case}'",
                expected="a suite or a group, of whose items an interval tells",
                todo="Use at_least=0.8, or cases(suite, by='group').",
            )
        if case.group:
            comparison, in_group = r"\s*(>=|<=|≥|≤|\bno\b)", f" in {case.group} \\1"
            rules = [
                rule if " in " in rule else re.sub(comparison, in_group, rule, count=1)
                for rule in rules
            ]
        checked = gate(
            GateOptions(
                runs=[f"{self.result.label.replace('=', ':')}={self.result.run.path}"],
                rule=rules,
                baseline=None if baseline is None else os.fspath(baseline),
            )
        )
        if not checked.is_open:
            yield from (repr(checked), *checked.notes, *self.inconsistent(case, 1, examples))


def _beside_test(value: Any) -> Any:
    """A relative path as it is beside the file of the caller's caller, if it is only there."""
    if isinstance(value, str | PathLike) and not Path(value).exists():
        path = Path(sys._getframe(2).f_code.co_filename).parent / value
        is_name = not Path(value).suffix and Path(value).name == os.fspath(value)  # such as mini
        return value if is_name or not path.exists() else str(path)
    return value


def _case_of(suite: Any, options: Mapping[str, Any]) -> Case:
    """A case with further options; a whole suite becomes one."""
    case = suite if isinstance(suite, Case) else Case(suite, {})
    return replace(case, options={**case.options, **options})


def _key_of(model: Any, case: Case) -> tuple[str, bool]:
    """The name of a folder for the run of a model, and whether other processes find the same name.

    They do if the model is a name or a function of a module, and the suite a name, a path,
    ``Questions`` or ``Suite``.
    """
    names = [_name_of(model), _name_of(case.suite)]
    known = [
        name if name else f"{type(value).__name__} {id(value)}"
        for name, value in zip(names, (model, case.suite), strict=True)
    ]
    text = json.dumps([*known, dict(case.options)], sort_keys=True, default=repr)
    short = [re.sub(r"[^\w.-]+", "-", Path(name).name)[:40].strip("-.") for name in known]
    return "-".join([*short, hashlib.sha256(text.encode()).hexdigest()[:12]]), all(names)


def _name_of(value: Any) -> str:
    """What a model or a suite is called in every process; empty where it is only in this one."""
    if isinstance(value, str | PathLike):
        path = os.fspath(value)
        return str(Path(path).resolve()) if Path(path).exists() else path
    if isinstance(value, Suite | Questions):
        return f"{value.name} {value.digest}"
    name, found = (
        getattr(value, "__qualname__", ""),
        sys.modules.get(getattr(value, "__module__", "")),
    )
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{value.__module__}.{name}" if found is value else ""


def _of_case(table: pl.DataFrame, case: Case) -> pl.DataFrame:
    """The rows of a case; one that the run did not ask raises."""
    names = {name: getattr(case, name) for name in ("group", "item") if getattr(case, name)}
    chosen = table.filter(**names) if names else table
    if chosen.is_empty():
        raise ConsilienceError(
            f"no answers to '{case}'",
            expected=f"one of the {counted(table.height, 'item')} of the run",
            todo="Give assert_consistent the options of cases, or leave them out.",
        )
    return chosen


def _message(
    result: Result,
    seed: Run,
    chosen: pl.DataFrame,
    failed: pl.DataFrame,
    at_least: float,
    examples: int,
) -> str:
    """Which of the ``chosen`` items ``failed``, and two variants with different answers of some."""
    words = result.suite.words
    share = (pl.col("same") / pl.col("pairs")).fill_nan(-1.0)
    shown = failed.sort(share, maintain_order=True).head(examples)
    items = shown["item"].to_list()
    texts = kind_of_run(seed).shown_texts(
        seed, result.suite, set(shown.select("group", "item").iter_rows())
    )
    rows = {
        (row["group"], row["item"], row["variant"]): row
        for row in seed.answers.filter(pl.col("item").is_in(items)).iter_rows(named=True)
    }
    label = f"{result.label}, {seed.label}" if result.run.parts else result.label
    lines = [
        line for one in shown.iter_rows(named=True) for line in _lines(one, rows, texts, words)
    ]
    if chosen.height == 1 and lines:
        return "\n".join([f"{label}: {lines[0]}", *lines[1:]])
    fault = f"agree in less than {at_least:.0%} of their pairs of {words.variant}s"
    if at_least == 1:
        fault = f"do not get one answer in all {words.variant}s"
    head = f"{label}: {failed.height} of {counted(chosen.height, words.item)} {fault}"
    if failed.height > shown.height:
        lines.append(f"{failed.height - shown.height} more")
    if result.folder is not None:
        lines.append(f"All answers: consilience report {shlex.quote(str(result.folder))}")
    return "\n".join([head, *lines])


def _lines(
    item: Mapping[str, Any],
    rows: Mapping[tuple[str, str, str], Mapping[str, Any]],
    texts: Mapping[tuple[str, str, str], str],
    words: SuiteWords,
) -> Iterator[str]:
    """An item: how many pairs agree, and two variants with their prompts and answers."""
    key = item["group"], item["item"]
    of_item = [row for at, row in rows.items() if at[:2] == key]
    if item["first"] is None:
        reasons = [row["excluded"] or "no answer" for row in of_item if row["answer"] is None]
        reason = "; ".join(sorted({*reasons})) or f"it has one {words.variant}"
        lacks = f"no answer to {len(reasons)} of {len(of_item)} {words.variant}s"
        what = lacks if item["pairs"] else "no two answers to compare"
        yield f"{item['item']} has {what}: {reason}"
        return
    agree = f"{item['same']} of {counted(item['pairs'], 'pair')} of {words.variant}s agree"
    yield f"{item['item']}: {agree}; right is {of_item[0]['gold']!r}"
    for name in (item["first"], item["second"]):
        row = rows[*key, name]
        text = row.get("text")
        written = "" if text in (None, row["answer"]) else f", written as {_short(text)}"
        yield f"  {_short(row['answer'])}{written} in {name}"
        prompt = SPECIAL_TOKENS.sub("", texts.get((*key, name), "")).strip()
        yield from (f"    | {line}" for line in truncated(prompt, LONGEST_TEXT).splitlines())


def _short(text: str) -> str:
    """A text in quotes, without a long end."""
    return repr(truncated(text, LONGEST_ANSWER))
