"""Check an answers table against its suite, and put its facts into the order of the suite."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean, missing_column
from consilience.metrics.grid import SCORES
from consilience.metrics.option_probabilities import OF_OPTIONS
from consilience.text import fold_case
from consilience.types import Relation, Suite

NEEDED = ("group", "item", "subject", "variant", "gold", "answer")
OPTIONAL = ("gold_token", "n_candidates", "option", "gold_option", "meaning")
TEXT_SCORES = ("text_logprob", "gold_text_logprob")
"""Columns that are kept and that no metric reads."""

FACT = ["group", "item", "subject", "gold"]

NAMED = 3
"""The number of relations that such a note names."""

COMPARED = 10_000
"""The largest number of different answers that are compared with other spellings of objects."""


def prepare(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Check an answers table against its suite, and give each row its ``variant_index``.

    ``variant`` becomes the text of the pattern. Facts of one subject come in the order of the
    suite, because ``published`` counts the last of them.
    """
    table = _typed(_with_variant(answers), suite)
    for name in NEEDED[:-1]:
        if table[name].null_count():
            at = table[name].is_null().arg_max() or 0
            raise ConsilienceError(
                f"no '{name}'", where=f"the answers table, row {at + 1}", todo="Fill it in."
            )
    on = ["group", "variant"]
    table = table.join(_patterns(table, suite), on=on, how="left", maintain_order="left")
    table = table.drop("variant").rename({"text": "variant"})
    facts = table.select(FACT).unique(maintain_order=True)
    differ = facts.select("group", "item").is_duplicated()
    if differ.any():
        row = facts.row(differ.arg_max() or 0, named=True)
        raise ConsilienceError(
            f"the item '{row['item']}' of {row['group']} has several subjects or golds",
            where="the answers table",
            todo="Give each fact an item id of its own.",
        )
    _refuse_repeated(table)
    return _in_order(table, facts, suite)


def _typed(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The columns that are counted, as text and numbers; a blank answer counts as missing.

    A blank text that a model wrote freely is an answer.
    """
    _check_columns(answers)
    optional = [name for name in OPTIONAL if name in answers.columns]
    scores = [name for name in (*SCORES, *TEXT_SCORES) if name in answers.columns]
    is_list = isinstance(answers.schema.get(OF_OPTIONS), pl.List)
    lists = [OF_OPTIONS] if is_list else []
    table = answers.select(
        *(pl.col(name).cast(pl.String) for name in (*NEEDED, *optional)),
        *(pl.col(name).cast(pl.Float64, strict=False) for name in scores),
        *(pl.col(name).cast(pl.List(pl.Float64), strict=False) for name in lists),
    )
    writing = [group.id for group in suite.relations if group.design.writes_freely]
    empty = (pl.col("answer").str.strip_chars() == "") & ~pl.col("group").is_in(writing)
    table = table.with_columns(answer=pl.when(empty).then(None).otherwise("answer"))
    absent = set(OPTIONAL) - set(optional)
    table = table.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)
    return table.with_columns(pl.col("n_candidates").cast(pl.Float64, strict=False))


def _check_columns(answers: pl.DataFrame) -> None:
    """Raise for a missing column, one of another type, and a table without rows."""
    for name in NEEDED:
        if name not in answers.columns:
            raise missing_column(
                name,
                answers.columns,
                expected=", ".join(NEEDED),
                where="the answers table",
                todo="Make a run of it: consilience score FILE --suite S --out RUN",
            )
    if answers.is_empty():
        raise ConsilienceError("no rows", where="the answers table")
    for name in (*NEEDED, *OPTIONAL, *SCORES):
        dtype = answers.schema.get(name, pl.String())
        if _stands_for_text(dtype) or (name not in NEEDED and dtype.is_numeric()):
            continue
        needed = name in NEEDED
        text = "text" if name == "gold_token" else "numbers"
        raise ConsilienceError(
            f"the column '{name}' is of type {dtype}",
            expected="text or whole numbers" if needed else text,
            where="the answers table",
            todo="Save it as text; whole numbers with a gap become fractions in some tools."
            if needed
            else "Correct the column, or leave it out.",
        )


def _stands_for_text(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null))


def _with_variant(answers: pl.DataFrame) -> pl.DataFrame:
    """The table with a column ``variant``; ``variant_index`` is renamed where it is missing."""
    if "variant" in answers.columns or "variant_index" not in answers.columns:
        return answers
    return answers.rename({"variant_index": "variant"})


def _patterns(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The ``text`` and the ``variant_index`` of the pattern of each ``group, variant``.

    A variant is the text of a pattern or its position; 0 is the base pattern.
    """
    pairs = table.select("group", "variant").unique(maintain_order=True)
    rows: list[tuple[str, int]] = []
    known: dict[str, tuple[list[str], dict[str, int]]] = {}
    for group, variant in pairs.iter_rows():
        if group not in known:
            names = list(suite.relation(group).design.variants)
            known[group] = names, {name: at for at, name in reversed(list(enumerate(names)))}
        texts, places = known[group]
        if variant in places:
            rows.append((variant, places[variant]))
        elif variant.isdecimal() and int(variant) < len(texts):
            rows.append((texts[int(variant)], int(variant)))
        else:
            this = (pl.col("group") == group) & (pl.col("variant") == variant)
            raise ConsilienceError(
                f"the suite '{suite.name}' has no variant '{variant}' of {group}",
                expected=f"the text of a {suite.words.variant}, or its position from 0 to "
                f"{len(texts) - 1}",
                where=f"the answers table, row {table.select(this.arg_max()).item() + 1}",
                todo=did_you_mean(variant, texts),
            )
    indexed = pl.DataFrame(rows, {"text": pl.String, "variant_index": pl.Int32}, orient="row")
    return pairs.hstack(indexed)


def in_texts(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """A table that passed ``prepare``, with the texts of its patterns."""
    answers = _with_variant(answers).with_columns(pl.col("group", "variant").cast(pl.String))
    patterns = _patterns(answers, suite)
    if patterns["variant"].equals(patterns["text"]):
        return answers
    named = patterns.select("group", "variant", "text")
    joined = answers.join(named, on=["group", "variant"], how="left", maintain_order="left")
    return joined.with_columns(variant="text").drop("text")


def _refuse_repeated(table: pl.DataFrame) -> None:
    """Raise where two rows answer the same item in the same variant."""
    question = ["group", "item", "variant_index"]
    repeated = table.select(question).is_duplicated()
    if not repeated.any():
        return
    rows = table.with_row_index("row", 1).filter(repeated)
    first = rows.row(0, named=True)
    same = rows.filter(pl.all_horizontal(pl.col(name) == first[name] for name in question))
    second = same.row(1, named=True)
    alike = "the same answer" if first["answer"] == second["answer"] else "another answer"
    raise ConsilienceError(
        f"row {second['row']} repeats row {first['row']}, with {alike}: {first['group']}, item "
        f"'{first['item']}', '{first['variant']}'",
        expected="one row for each item and variant",
        where="the answers table",
        todo="Remove one of the two. If they are different facts, give each an item id of its own.",
    )


def is_blank() -> pl.Expr:
    """Whether a row of an answers table has no answer."""
    return pl.col("answer").cast(pl.String).fill_null("").str.strip_chars() == ""


def by_relation(answers: pl.DataFrame, suite: Suite) -> Iterator[tuple[Relation, pl.DataFrame]]:
    """Each relation that has rows in a prepared answers table, with its rows."""
    groups = answers.partition_by("group", as_dict=True)
    for relation in suite.relations:
        if (relation.id,) in groups:
            yield relation, groups[relation.id,]


def _facts_of(suite: Suite, groups: pl.Series) -> pl.DataFrame:
    """The facts (``FACT``) of the relations in ``groups``, with ``place``, the position in each."""
    known = set(groups.unique())
    rows = [
        (relation.id, fact.item, fact.subject, fact.object, position)
        for relation in suite.relations
        if relation.id in known
        for position, fact in enumerate(relation.facts)
    ]
    schema = {**dict.fromkeys(FACT, pl.String), "place": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")


def suite_positions(facts: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """``facts`` with their ``place`` in the suite, null where it does not have them.

    A fact is found by its item, subject and gold, else by subject and gold.
    """
    known = _facts_of(suite, facts["group"])
    text = ["group", "subject", "gold"]
    by_text = known.group_by(text).agg(pl.col("place").min().alias("other"))
    positions = facts.join(known, on=FACT, how="left", maintain_order="left")
    positions = positions.join(by_text, on=text, how="left", maintain_order="left")
    return positions.with_columns(place=pl.coalesce("place", "other")).drop("other")


def _recurring(facts: pl.DataFrame) -> pl.DataFrame:
    """The facts of groups in which a subject has several facts; only there the order matters."""
    several = facts.select("group", "subject").is_duplicated()
    return facts.filter(pl.col("group").is_in(facts.filter(several)["group"].unique().to_list()))


def _in_order(table: pl.DataFrame, facts: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Rows in the order of the suite, in groups whose facts are all in the suite."""
    recurring = _recurring(facts)
    if recurring.is_empty():
        return table
    placed = suite_positions(recurring, suite).filter(
        pl.col("place").is_not_null().all().over("group")
    )
    placed = placed.select("group", "item", "place")
    joined = table.join(placed, on=["group", "item"], how="left", maintain_order="left")
    positions = joined["place"].fill_null(0)
    if placed.is_empty() or (positions.diff().fill_null(0) >= 0).all():
        return table
    return joined.sort("place", maintain_order=True, nulls_last=True).drop("place")


def order_remark(answers: pl.DataFrame, suite: Suite) -> list[str]:
    """A note if the order of the rows decides which fact of a subject ``published`` counts."""
    facts = answers.select(pl.col(FACT).cast(pl.String)).unique(maintain_order=True)
    placed = suite_positions(_recurring(facts), suite)
    groups = placed.filter(pl.col("place").is_null())["group"].unique(maintain_order=True)
    if groups.is_empty():
        return []
    return [
        f"not all facts of {', '.join(groups)} are the suite's: of several facts of one subject "
        "there, the last in the order of the rows counts"
    ]


def unknown_answers(table: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on relations with answers that are neither objects nor golds.

    Each note has their number, an example, and the probable cause.
    """
    problems = []
    answered = table.drop_nulls("answer")
    total = dict(answered.group_by("group").len().iter_rows())
    counted = answered.group_by("group", "answer", maintain_order=True).len()
    golds = table.select("group", answer="gold").unique()
    counted = counted.join(golds, on=["group", "answer"], how="anti", maintain_order="left")
    for relation in suite.relations:
        if relation.design.unit == "item":
            continue
        words = set(relation.candidates.words)
        rows = counted.filter(pl.col("group") == relation.id)
        rows = rows.filter(~pl.col("answer").is_in(list(words)))
        if rows.is_empty():
            continue
        known = {_plain(word): word for word in reversed(relation.candidates.words)}
        answers = rows["answer"].head(COMPARED).to_list()
        near = next((answer for answer in answers if _plain(answer) in known), None)
        example = f"'{answers[0]}'" if near is None else _likeness(near, known[_plain(near)])
        problems.append(
            f"{relation.id}: {rows['len'].sum():,} of {total[relation.id]:,} answers are not among "
            f"its objects, such as {example}"
        )
    named, more = problems[:NAMED], len(problems) - NAMED
    if more > 0:
        named.append(f"{more} other relations also have answers that are not among their objects")
    return named


def _plain(word: str) -> str:
    """A word in a normal form: without outer spaces, without case, in Unicode form NFC."""
    return fold_case(unicodedata.normalize("NFC", word.strip()))


def _likeness(answer: str, word: str) -> str:
    """How an answer differs from the object that it seems to be."""
    differs = []
    if answer != answer.strip():
        differs.append("spaces around it")
    inner = answer.strip()
    if unicodedata.normalize("NFC", inner) != unicodedata.normalize("NFC", word):
        differs.append("another case")
    if unicodedata.is_normalized("NFC", inner) != unicodedata.is_normalized("NFC", word):
        differs.append("another Unicode form (NFC or NFD)")
    how = f" with {' and '.join(differs)}" if differs else ""
    return f"'{answer}', which is '{word}'{how}. Write answers as the suite spells them"
