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
from consilience.report.metric_tables import SPECIAL_TOKENS
from consilience.results.evaluation import evaluate
from consilience.results.reporting import Result
from consilience.types import SuiteWords

LONGEST_TEXT, LONGEST_ANSWER = 1_500, 200
"""Characters of a prompt and of an answer that a failure shows."""


def assert_consistent(
    model: Any, suite: Any, *, at_least: float = 1, examples: int = 3, **options: Any
) -> Result:
    """Raise ``AssertionError`` unless each item gets the same answer in all its variants.

    The message shows items with two prompts and their different answers. Returns the result.

    - ``model``, ``suite``, ``options``: those of ``evaluate``.
    - ``at_least``: the share of the pairs of variants of each item that must agree, from 0 to 1.
    - ``examples``: how many items the message shows.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    return Answers().assert_consistent(
        model, suite, at_least=at_least, examples=examples, **options
    )


class Answers:
    """Answers that are asked once, and shared by all tests of a session."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[Any, Any, Result]] = {}  # no other value gets a known id

    def assert_consistent(
        self, model: Any, suite: Any, *, at_least: float = 1, examples: int = 3, **options: Any
    ) -> Result:
        """As the function ``assert_consistent``, of answers that are shared."""
        __tracebackhide__ = True
        if not 0 <= at_least <= 1:
            raise ConsilienceError(f"at_least={at_least}", expected="a share from 0 to 1")
        named = [one if isinstance(one, str | PathLike) else id(one) for one in (model, suite)]
        key = repr((*named, sorted(options.items())))
        if key not in self._results:
            self._results[key] = model, suite, evaluate(suite, model, **options)
        result = self._results[key][-1]
        if messages := [*_inconsistent(result, at_least, examples)]:
            raise AssertionError("\n".join(messages))
        return result


def _inconsistent(result: Result, at_least: float, examples: int) -> Iterator[str]:
    """A message where items agree in fewer of their pairs."""
    table = result.items
    too_few = pl.col("same") + 1e-6 < at_least * pl.col("pairs")
    failed = table.filter(too_few | (pl.col("pairs") == 0))
    if failed.height:
        yield _message(result, table.height, failed, at_least, examples)


def _message(
    result: Result,
    asked: int,
    failed: pl.DataFrame,
    at_least: float,
    examples: int,
) -> str:
    """Which of so many items ``failed``, and two variants with different answers of some."""
    words = result.suite.words
    share = (pl.col("same") / pl.col("pairs")).fill_nan(-1.0)
    shown = failed.sort(share, maintain_order=True).head(examples)
    items = shown["item"].to_list()
    texts = result.run.texts(shown.select("group", "item"))
    rows = {
        (row["group"], row["item"], row["variant"]): row
        for row in result.answers.filter(pl.col("item").is_in(items)).iter_rows(named=True)
    }
    lines = [
        line for one in shown.iter_rows(named=True) for line in _lines(one, rows, texts, words)
    ]
    fault = f"agree in less than {100 * at_least:.0f} % of their pairs of {words.variant}s"
    if at_least == 1:
        fault = f"do not get one answer in all {words.variant}s"
    head = f"{result.label}: {failed.height} of {counted(asked, words.item)} {fault}"
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
        reasons = {row["excluded"] for row in of_item if row["excluded"]}
        reason = "; ".join(sorted(reasons)) or f"it has one {words.variant}"
        yield f"{item['item']} has no two answers to compare: {reason}"
        return
    agree = f"{item['same']} of {counted(item['pairs'], 'pair')} of {words.variant}s agree"
    yield f"{item['item']}: {agree}; right is {of_item[0]['gold']!r}"
    for name in (item["first"], item["second"]):
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
