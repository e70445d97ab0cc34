"""Consistency as a test: an assertion, and answers that tests share.

``pytest_plugin`` makes a fixture of ``Answers``. Nothing here imports pytest.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.text import counted, truncated
from consilience.gating import Rule
from consilience.report.layouts import SPECIAL_TOKENS
from consilience.results.evaluation import evaluate
from consilience.results.reporting import Result
from consilience.types import SuiteWords

LONGEST_TEXT, LONGEST_ANSWER = 1_500, 200
"""Characters of a prompt and of an answer that a failure shows."""


def assert_consistent(
    model: Any, suite: Any, *, at_least: float = 1, right_in: str = "", examples: int = 3,
    **options: Any,
) -> Result:  # fmt: skip
    """Raise ``AssertionError`` unless each item gets the same answer in all its variants.

    The message shows items with two prompts and their answers. Returns the result.

    - ``model``, ``suite``, ``options``: those of ``evaluate``.
    - ``at_least``: the share of the pairs of variants of each item that must agree, from 0 to 1.
    - ``right_in``: such as ``"4 of 5"``; then each item must instead be right in at least this
      share of its answers, as in the rule ``right in 4 of 5`` of ``gate``.
    - ``examples``: how many items the message shows.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    return Answers().assert_consistent(
        model, suite, at_least=at_least, right_in=right_in, examples=examples, **options
    )


class Answers:
    """Answers that are asked once, and shared by all tests of a session."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[Any, Any, Result]] = {}  # no other value gets a known id

    def assert_consistent(
        self, model: Any, suite: Any, *, at_least: float = 1, right_in: str = "",
        examples: int = 3, **options: Any,
    ) -> Result:  # fmt: skip
        """As the function ``assert_consistent``, of answers that are shared."""
        __tracebackhide__ = True
        if not 0 <= at_least <= 1:
            raise ConsilienceError(f"at_least={at_least}", expected="a share from 0 to 1")
        rule = Rule.of(f"right in {right_in}") if right_in else None
        named = [one if isinstance(one, str | PathLike) else id(one) for one in (model, suite)]
        key = repr((*named, sorted(options.items())))
        if key not in self._results:
            self._results[key] = model, suite, evaluate(suite, model, **options)
        result = self._results[key][-1]
        failed, fault = (
            _often_wrong(result, rule) if rule is not None else _inconsistent(result, at_least)
        )
        if failed.height:
            raise AssertionError(_message(result, failed, fault, examples))
        return result


Failed = tuple[pl.DataFrame, str]  # Items, the worst first, and what is wrong with them


def _inconsistent(result: Result, at_least: float) -> Failed:
    """The items that agree in fewer of their pairs."""
    too_few = pl.col("same") + 1e-6 < at_least * pl.col("pairs")
    failed = result.items.filter(too_few | (pl.col("pairs") == 0))
    share = (pl.col("same") / pl.col("pairs")).fill_nan(-1.0)
    variants = f"{result.suite.words.variant}s"
    fault = f"agree in less than {100 * at_least:.0f} % of their pairs of {variants}"
    if at_least == 1:
        fault = f"do not get one answer in all {variants}"
    return failed.sort(share, maintain_order=True), fault


def _often_wrong(result: Result, rule: Rule) -> Failed:
    """The items that are right in fewer of their answers, with two variants that are wrong."""
    failed = rule.items(result.items).filter(verdict="fail")
    is_wrong = pl.col("answer").ne_missing(pl.col("gold")) & pl.col("excluded").is_null()
    variant, wrong = pl.col("variant"), result.answers.filter(is_wrong)
    first = wrong.group_by("group", "item").agg(
        first=variant.first(), second=variant.slice(1).first()
    )
    failed = failed.join(first, on=["group", "item"], how="left", maintain_order="left")
    return failed, f"are right in less than {rule.level} answers"


def _message(result: Result, failed: pl.DataFrame, fault: str, examples: int) -> str:
    """Which items ``failed``, and two variants of some."""
    words, asked = result.suite.words, result.items.height
    shown = failed.head(examples)
    items = shown["item"].to_list()
    texts = result.run.texts(shown.select("group", "item"))
    rows = {
        (row["group"], row["item"], row["variant"]): row
        for row in result.answers.filter(pl.col("item").is_in(items)).iter_rows(named=True)
    }
    lines = [
        line for one in shown.iter_rows(named=True) for line in _lines(one, rows, texts, words)
    ]
    head = f"{result.run.label}: {failed.height} of {counted(asked, words.item)} {fault}"
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
    """An item: how many pairs agree, or answers are right, and two variants with their prompts."""
    key = item["group"], item["item"]
    of_item = [row for at, row in rows.items() if at[:2] == key]
    if item["first"] is None:
        reasons = {row["excluded"] for row in of_item if row["excluded"]}
        reason = "; ".join(sorted(reasons)) or f"it has one {words.variant}"
        yield f"{item['item']} has no two answers to compare: {reason}"
        return
    if "pairs" in item:
        agree = f"{item['same']} of {counted(item['pairs'], 'pair')} of {words.variant}s agree"
    else:
        agree = f"right in {item['right']} of {counted(item['answers'], 'answer')}"
    yield f"{item['item']}: {agree}; right is {of_item[0]['gold']!r}"
    for name in filter(None, (item["first"], item["second"])):
        row = rows[*key, name]
        text, answer = row.get("text"), row["answer"]
        written = "" if text in (None, answer) else f", written as {_short(text)}"
        reason = f" ({row['error']})" * bool(row["error"])
        shown = f"no answer{reason}" if answer is None else _short(answer)
        yield f"  {shown}{written} in {name}"
        prompt = SPECIAL_TOKENS.sub("", texts.get((*key, name), "")).strip()
        yield from (f"    | {line}" for line in truncated(prompt, LONGEST_TEXT).splitlines())


def _short(text: str) -> str:
    """A text in quotes, without a long end."""
    return repr(truncated(text, LONGEST_ANSWER))
