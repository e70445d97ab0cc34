"""Examples of inconsistent answers, violated expectations, and flips between two runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from consilience.core.errors import Protocol
from consilience.core.factors import ORIGINAL, Instance
from consilience.core.items import Ints
from consilience.core.schemas import WAS_ASKED, Schema
from consilience.core.text import fold_case, whole_words
from consilience.metrics.differences import MCNEMAR, SUBJECTS, adjusted
from consilience.metrics.measure import Answers, CheckedAnswers, checked_answers
from consilience.metrics.registry import Clusters, Grid, Tally, as_labels
from consilience.metrics.statistics import holm, mcnemar, paired_permutation
from consilience.metrics.uncertainty import intervals
from consilience.types import Relation, Suite

Prompts = Mapping[tuple[str, str, str], str]
"""(group, item, variant) -> what was sent."""

AGREEMENT_SCHEMA: Schema = {
    **dict.fromkeys(("group", "item"), pl.String),
    **dict.fromkeys(("same", "pairs"), pl.Int64),
    **dict.fromkeys(("first", "second"), pl.String),
    "right": pl.Float64,
    "answers": pl.Int64,
}
"""One row an item.

- ``same``: pairs of variants that get the same answer, as the metric ``consistency`` counts them.
- ``pairs``: pairs of variants that are compared and were asked in both.
- ``first``, ``second``: the first two variants without the same answer; null where all agree.
- ``right``: the share of the ``answers`` that are right: of the variants that were asked, with or
  without an answer. Null of none.
"""


def item_agreement(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """How many pairs of variants of each item agree (``AGREEMENT_SCHEMA``).

    Items that count once, such as a fact in two rows, share their numbers.
    """
    ready = checked_answers(answers, suite)
    tables = [pl.DataFrame(schema=AGREEMENT_SCHEMA)]
    for relation in ready.relations:
        rows = ready.rows(relation.id)
        grid = ready.views(relation, protocol)["pairs"]
        of_row = rows.select("item", key=_key(relation, protocol)).unique(maintain_order=True)
        names = pl.Series([*relation.design.variants, None], dtype=pl.String)
        first, second = (names.gather(at % len(names)) for at in _first_difference(grid))
        columns = {"same": grid.n_same, "pairs": grid.n_both, "first": first, "second": second}
        counted = pl.DataFrame({"key": of_row["key"].unique().sort(), **columns})
        table = of_row.join(counted, on="key", how="left", maintain_order="left")
        is_right = (pl.col("answer") == pl.col("gold")).fill_null(value=False)
        asked = as_labels(rows.filter(WAS_ASKED), relation.design).group_by("item")
        counts = asked.agg(right=is_right.mean(), answers=pl.len())
        table = table.join(counts, on="item", how="left", maintain_order="left")
        table = table.with_columns(pl.col("answers").fill_null(0), group=pl.lit(relation.id))
        tables.append(table.select(*AGREEMENT_SCHEMA).cast(pl.Schema(AGREEMENT_SCHEMA)))
    return pl.concat(tables)


def _key(relation: Relation, protocol: Protocol) -> pl.Expr:
    """What identifies a row of the grid of pairs (``metrics.registry.grids``)."""
    if relation.design.unit == "item":
        return pl.col("item")
    if protocol == "strict":
        return pl.concat_str("subject", "gold", separator="\t")
    return pl.col("subject")


def _first_difference(grid: Grid) -> tuple[Ints, Ints]:
    """The first two compared variants without the same answer (item,) each; -1 for none."""
    items = np.arange(len(grid.answers))
    if grid.compared is None:
        first = grid.asked.argmax(axis=1)
        answer = grid.answers[items, first][:, None]
        differs = grid.asked & ((grid.answers != answer) | (answer < 0))
        differs[items, first] = False
        second = differs.argmax(axis=1)
    else:
        differs = grid.both & ~grid.same
        first, second = grid.pairs[differs.argmax(axis=1)].T if len(grid.pairs) else (items, items)
    is_different = differs.any(axis=1)
    return np.where(is_different, first, -1), np.where(is_different, second, -1)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer in one variant."""

    variant: str
    answer: str
    right: bool
    margin: float | None
    """Log-probability of the best candidate minus that of the second, in nats; None if unknown."""
    prompt: str | None = None
    """What the model was sent; empty where it is not kept."""
    text: str | None = None  # What the model wrote, of a written answer
    unmatched: str | None = None  # Why the text is no choice; None where it is one


OF_ANOTHER = "right for another fact"


@dataclass(frozen=True, slots=True)
class Example:
    """One item with all its replies."""

    kind: str
    group: str
    item: str
    subject: str
    gold: str
    other_golds: frozenset[str]  # The golds of other facts of the subject
    replies: tuple[Reply, ...] = field(repr=False)  # In the order of variants

    @property
    def telling(self) -> tuple[Reply, ...]:
        """At most three replies: the most confident one of each answer, then any."""
        by_margin = sorted(self.replies, key=lambda reply: -(reply.margin or 0.0))
        firsts = list({reply.answer: reply for reply in reversed(by_margin)}.values())[::-1]
        order = ("right", OF_ANOTHER, "wrong")
        chosen = sorted(
            firsts, key=lambda reply: (order.index(self.verdict(reply)), -(reply.margin or 0.0))
        )[:3]
        chosen += [reply for reply in by_margin if reply not in chosen][: 3 - len(chosen)]
        return tuple(chosen)

    def verdict(self, reply: Reply) -> str:
        """``right``, ``wrong``, or that the answer is right in another fact of the subject."""
        if reply.right:
            return "right"
        return OF_ANOTHER if reply.answer in self.other_golds else "wrong"


OF_EXAMPLE = ("kind", "group", "item", "subject", "gold")

REPLY_SCHEMA: Schema = {
    **dict.fromkeys((*OF_EXAMPLE, "variant", "answer"), pl.String),
    "right": pl.Boolean,
    "margin": pl.Float64,
    **dict.fromkeys(("prompt", "text", "unmatched"), pl.String),
}
"""One row a reply of an example (``Reply``, ``Example``)."""


def reply_table(examples: Mapping[str, Sequence[Example]]) -> pl.DataFrame:
    """Every reply of every example (``REPLY_SCHEMA``), in the order of kinds and variants."""
    rows = [
        {name: getattr(example, name) for name in OF_EXAMPLE} | asdict(reply)
        for of_kind in examples.values()
        for example in of_kind
        for reply in example.replies
    ]
    return pl.DataFrame(rows, schema=REPLY_SCHEMA)


NOTHING = "(no answer)"  # What a query that was asked without an answer shows

RIGHT, ELSEWHERE = pl.col("right"), pl.col("elsewhere")
"""Whether a reply is the gold; whether it is the gold of another fact of the same subject."""

MARGIN, ANSWERS = pl.col("margin").fill_null(0.0), pl.col("answer").n_unique()

KINDS: dict[str, tuple[str, pl.Expr]] = {
    "right_and_wrong": (
        "Right in one variant and wrong in another",  # examples 1 and 2; most confident first
        pl.when(RIGHT.any() & ~RIGHT.all()).then(
            pl.min_horizontal(MARGIN.filter(RIGHT).max(), MARGIN.filter(~RIGHT).max())
        ),
    ),
    "same_wrong": (
        "Wrong in all variants, and the same way",  # example 5; the least confident decides
        pl.when(
            (ANSWERS == 1) & ~RIGHT.any() & ~ELSEWHERE.any() & (pl.col("answer") != NOTHING).all()
        ).then(MARGIN.min()),
    ),
    "scattered": (
        "Wrong in all variants, with the most different answers",  # example 4
        pl.when((ANSWERS > 1) & ~RIGHT.any()).then(ANSWERS),
    ),
    "other_gold": (
        "Another right object of the subject, not the gold",  # example 3; most replies first
        pl.when(ELSEWHERE.any()).then(ELSEWHERE.sum()),
    ),
    "gold_in_subject": (
        "Wrong although the subject names the gold",  # example 5: Yahoo in Yahoo! Messenger
        pl.when(~RIGHT.all() & pl.col("named").first()).then(
            (~RIGHT).sum() + MARGIN.filter(~RIGHT).max() / 1e3
        ),
    ),
    "always_right": (
        "Right in all variants",  # example 6; the least confident decides
        pl.when(RIGHT.all()).then(MARGIN.min()),
    ),
}
"""What a kind of examples is, and how telling an item is of it; null where it is not of it.

The numbers are those of the ParaRel paper's Table 6.
"""


OF_FACTS = ("other_gold", "gold_in_subject")
"""The kinds that need a subject, which questions do not have."""


def examples(
    answers: pl.DataFrame | CheckedAnswers,
    suite: Suite,
    kinds: Sequence[str],
    limit: int,
    prompts: Prompts | None = None,
) -> dict[str, list[Example]]:
    """The ``limit`` most informative items of each kind; each relation has one before any has two.

    Items that were asked in fewer than two variants are left out. Equally informative items keep
    the order of the table. ``prompts``: what was sent, of questions; then replies have it, and what
    the model wrote (``text``, ``unmatched`` of the answers table).
    """
    ready = checked_answers(answers, suite)
    replies = _replies(ready)
    scores = [KINDS[kind][1].cast(pl.Float64).alias(kind) for kind in kinds]
    items = replies.group_by("group", "item", maintain_order=True).agg(pl.len(), *scores)
    items = items.filter(pl.col("len") > 1)
    best = {kind: _best(items.select("group", "item", score=kind), limit) for kind in kinds}
    rows = pl.concat([*best.values()]).unique() if best else items.head(0)
    chosen = _examples(ready, replies, rows, prompts)
    return {
        kind: [replace(chosen[row], kind=kind) for row in rows.iter_rows()]
        for kind, rows in best.items()
    }


def _best(items: pl.DataFrame, limit: int) -> pl.DataFrame:
    """``group, item`` of the ``limit`` highest scores; each group has one before any has two."""
    known = items.drop_nulls("score").with_row_index("position")
    known = known.with_columns(first=pl.col("position").min().over("group"))
    by_score = known.sort("first", -pl.col("score"), maintain_order=True)
    ranked = by_score.with_columns(rank=pl.int_range(pl.len()).over("group"))
    ranked = ranked.sort("rank", -pl.col("score"), "first", maintain_order=True)
    return ranked.head(limit).select("group", "item")


def _replies(answers: CheckedAnswers) -> pl.DataFrame:
    """Every reply: items in the order of the table, replies in the order of variants.

    ``right``: the gold. ``elsewhere``: the gold of another fact of the subject. ``named``: the
    subject names the gold.
    """
    table = answers.table
    known, more = answers.answers, {"margin": pl.Float64, "text": pl.String, "unmatched": pl.String}
    columns = [
        known[name].cast(kind, strict=False)  # text in a CSV file
        if name in known.columns
        else pl.lit(None, dtype=kind).alias(name)
        for name, kind in more.items()
    ]
    table = table.with_columns(columns).filter(WAS_ASKED)
    table = table.with_columns(pl.col("answer").fill_null(NOTHING))
    key = ["group", "item"]
    facts = table.select(*key, "subject", "gold").unique(maintain_order=True)
    named = [_names_gold(*row) for row in facts.select("subject", "gold").iter_rows()]
    facts = facts.select(*key, named=pl.Series(named, dtype=pl.Boolean))
    numbered = table.with_row_index("position").with_columns(pl.col("position").min().over(key))
    replies = numbered.sort("position", "variant_index", maintain_order=True)
    replies = replies.join(facts, on=key, how="left", maintain_order="left")
    golds = golds_of(answers).select("group", "subject", answer="gold", other=pl.lit(True))
    on = ["group", "subject", "answer"]
    replies = replies.join(golds, on=on, how="left", maintain_order="left")
    right = pl.col("answer") == pl.col("gold")
    return replies.with_columns(right=right, elsewhere=pl.col("other").fill_null(False) & ~right)


def golds_of(answers: CheckedAnswers) -> pl.DataFrame:
    """``group, subject, gold``: the golds of each subject, in the suite and in the table."""
    known = [(of.id, fact.subject, fact.object) for of in answers.suite for fact in of.facts]
    schema = dict.fromkeys(("group", "subject", "gold"), pl.String)
    table = answers.table.drop_nulls("answer").select(*schema)
    return pl.concat([pl.DataFrame(known, schema, orient="row"), table]).unique()


def _examples(
    answers: CheckedAnswers, replies: pl.DataFrame, chosen: pl.DataFrame, prompts: Prompts | None
) -> dict[tuple[str, str], Example]:
    """The items in ``chosen`` (``group, item``) with their replies, by group and item."""
    golds: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    rows = replies.join(chosen, on=["group", "item"], how="semi", maintain_order="left")
    known = golds_of(answers).join(rows, on=["group", "subject"], how="semi")
    for group, subject, gold in known.iter_rows():
        golds[group, subject].add(gold)
    examples: dict[Any, Example] = {}
    for key, of_item in rows.group_by("group", "item", maintain_order=True):
        columns = of_item.select("variant", "answer", "right", "margin", "text", "unmatched")
        group, subject, gold = of_item.select("group", "subject", "gold").row(0)
        others = frozenset(golds[group, subject] - {gold})
        item, item_replies = str(key[1]), list[Reply]()
        for *reply, text, unmatched in columns.iter_rows():
            if prompts is not None:
                reply += [prompts.get((group, item, reply[0]), ""), text, unmatched]
            item_replies.append(Reply(*reply))
        examples[key] = Example("", group, item, subject, gold, others, tuple(item_replies))
    return examples


@lru_cache(maxsize=2**18)
def _names_gold(subject: str, gold: str) -> bool:
    """Whether the gold is a word or several words of the subject, in any case."""
    if subject.isascii() and gold.isascii() and gold.lower() not in subject.lower():
        return False
    return whole_words(fold_case(gold)).search(fold_case(subject)) is not None


EXAMPLES: Schema = {
    **dict.fromkeys(("group", "kind"), pl.String),
    "example": pl.Int64,
    **dict.fromkeys(("item", "variant", "prompt", "answer", "permitted"), pl.String),
}
"""One row a question of a violated expectation, the conclusion last.

``permitted``: the answers that the conclusion might have got, empty for a premise.
"""

NO_ANSWER = "none of the options"

ByGroup = Mapping[str, Sequence[tuple[Instance, ...]]]
"""The instances of each expectation, by group."""


def violated_examples(
    by_group: ByGroup, prompts: Mapping[tuple[str, str], str], most: int
) -> pl.DataFrame:
    """Violated expectations (``EXAMPLES``), at most ``most`` of each kind and group.

    Of each expectation the first violated instance. ``prompts``: (item, variant) -> what was sent.
    """
    rows: list[tuple[object, ...]] = []
    for group, counted in by_group.items():
        for kind in dict.fromkeys(of[0].expectation.kind for of in counted):
            units = [of for of in counted if of[0].expectation.kind == kind]
            answered = ([one for one in of if one.is_asked] for of in units)
            violated = ([one for one in of if one.is_permitted is False] for of in answered)
            firsts = [of[0] for of in violated if of]
            for number, one in enumerate(firsts[:most], start=1):
                queries = [(item, one.variant) for item in one.expectation.items]
                permitted = ["" for _ in one.expectation.premises] + [_permitted(one)]
                for query, answer, texts in zip(queries, one.answers, permitted, strict=True):
                    shown = prompts.get(query, ""), answer or NO_ANSWER, texts
                    rows.append((group, kind, number, *query, *shown))
    return pl.DataFrame(rows, schema=EXAMPLES, orient="row")


def _permitted(instance: Instance) -> str:
    expectation, premises = instance.expectation, instance.answers[:-1]
    options = expectation.conclusion.options
    if options:
        permitted = [option for option in options if instance.permits(option)]
        return " or ".join(permitted) or "none: the answers before exclude each other"
    if expectation.kind in ("same", "different"):
        return f"{'' if expectation.kind == 'same' else 'not '}{premises[0]}"
    return " or ".join(expectation.rules[tuple(map(str, premises))])


CHANGED_ANSWERS_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("group", "perturbation", "item", "gold", "original_answer"), pl.String),
    **dict.fromkeys(("answer", "original_1", "original_2", "text_1", "text_2"), pl.String),
    "margin": pl.Float64,
}
"""One row an answer that a perturbation changed; ``margin`` is the smaller one of the two."""


def changed_answers(queries: pl.DataFrame, answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Every answer that a perturbation changed, the most confident first (Tables 3, 4, 7 to 9).

    ``queries``: what was asked. ``text_1, text_2``: the perturbed form; ``original_1,
    original_2``: the original one. An answer that is no label is one that changed, even where the
    original's was the same.
    """
    on = ["group", "item"]
    texts = {f"text_{at}": pl.col("input").list.get(at - 1) for at in (1, 2)}
    asked = answers.join(
        queries.select(*on, "variant", **texts), on=[*on, "variant"], maintain_order="left"
    )
    first = asked.filter(variant=ORIGINAL).select(
        *on, original_answer="answer", original_margin="margin",
        original_1="text_1", original_2="text_2",
    )  # fmt: skip
    others = asked.filter(pl.col("variant") != ORIGINAL)
    both = others.join(first, on=on, how="left", maintain_order="left")
    no_label = ~pl.col("answer").is_in(list(suite.relations[0].design.labels))
    changed = both.filter(
        pl.col("answer").is_not_null() & pl.col("original_answer").is_not_null(),
        (pl.col("answer") != pl.col("original_answer")) | no_label,
    ).with_columns(perturbation="variant", margin=pl.min_horizontal("margin", "original_margin"))
    table = changed.sort("margin", descending=True, nulls_last=True)
    return table.select(*CHANGED_ANSWERS_SCHEMA)


QUERY = ("group", "item", "variant")
LOST, WON, MOVED = KINDS_OF_FLIPS = ("right to wrong", "wrong to right", "wrong to wrong")
SAME = "same"

FLIP_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("first", "second", "over", "level"), pl.String),
    **dict.fromkeys(("changed", "low", "high", *KINDS_OF_FLIPS), pl.Float64),
    "test": pl.String,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    **dict.fromkeys(("n", "items", "items_changed"), pl.Int64),
}
"""One row a part of the answers that two runs share.

- ``over``, ``level``: ``all``; a ``group``; a level of a factor; a ``form`` of sentence pairs.
- ``changed``: share of the ``n`` answers that differ, with the bounds of its 95 % interval over
  subjects; then the share of each kind of flip, which a change between two right answers is
  not. What is no option, or no answer, is wrong, and the same in both runs.
- ``p``: two-sided, of ``test``: are ``right to wrong`` and ``wrong to right`` equally frequent?
  Answers to one subject are not independent, so each subject counts once: the signs of the
  subjects' differences are flipped, all of them where there are few. With one answer a subject
  that is the exact test of McNemar (1947). ``p_holm``: adjusted over the levels of one ``over``.
- ``items``, ``items_changed``: how many, and how many differ in a variant.
"""


def paired_answers(first: CheckedAnswers, second: CheckedAnswers) -> pl.DataFrame:
    """A row for each query that both were asked: ``QUERY, subject, gold, first, second, flip``."""
    one, two = (_outcomes(run) for run in (first, second))
    both = one.join(two.select(*QUERY, "answer", "code", "right"), on=QUERY, maintain_order="left")
    flip = (
        pl.when(pl.col("code").eq_missing(pl.col("code_right"))).then(pl.lit(SAME))
        .when(pl.col("right") & pl.col("right_right")).then(pl.lit("right to right"))
        .when("right").then(pl.lit(LOST))
        .when("right_right").then(pl.lit(WON))
        .otherwise(pl.lit(MOVED))
    )  # fmt: skip
    named = (pl.col("answer").alias("first"), pl.col("answer_right").alias("second"))
    return both.select(*QUERY, "subject", "gold", *named, flip.alias("flip"))


def _outcomes(run: CheckedAnswers) -> pl.DataFrame:
    """The answers of a run, their ``code`` to compare, and if ``right``; in N-M one a subject.

    The code is the text of an option or a label, in whatever order a run has them, or of an open
    answer. It is null of an answer that is none of the options or labels, and without an answer.
    """
    tables, golds = [], golds_of(run)
    for group in run.relations:
        rows = run.rows(group.id).filter(WAS_ASKED)
        coded = as_labels(rows, group.design)
        right = (coded["answer"] == coded["gold"]).fill_null(value=False)
        code = pl.when(coded["answer"].is_not_null()).then("answer")
        kept = rows.select(*QUERY, "subject", "gold", "answer", code=code, right=right)
        if group.cardinality == "N-M":
            own = golds.filter(group=group.id).group_by("subject").agg(all=pl.col("gold").sort())
            first = pl.col("answer", "code").drop_nulls().first().over("subject", "variant")
            kept = kept.with_columns(pl.col("item").first().over("subject"), first)
            kept = kept.unique(("subject", "variant"), keep="first", maintain_order=True)
            kept = kept.join(own, on="subject", maintain_order="left").with_columns(
                gold=pl.col("all").list.join("|"),
                right=pl.col("answer").is_in("all").fill_null(value=False),
            ).drop("all")  # fmt: skip
        tables.append(kept)
    return pl.concat(tables)


def flip_rows(
    pair: tuple[CheckedAnswers, CheckedAnswers], first: str, second: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The numbers of two runs (``FLIP_SCHEMA``) on all answers and each part, and the flips."""
    table = paired_answers(*pair)
    rows = [
        {"first": first, "second": second, "over": over, "level": level, **_numbers(part)}
        for over, level, part in _parts(table, pair[0])
    ]
    numbers = pl.DataFrame(rows, FLIP_SCHEMA).with_columns(p_holm=adjusted(holm).over("over"))
    names = pl.lit(first).alias("first run"), pl.lit(second).alias("second run")
    return numbers, table.filter(pl.col("flip") != SAME).select(*names, pl.all())


def _parts(table: pl.DataFrame, run: CheckedAnswers) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """All answers, each group, and each level of what differs between variants."""
    yield "all", "", table
    names: dict[tuple[str, str], dict[str, str]] = {}
    groups = [relation.id for relation in run.relations]
    for relation in run.relations:
        design = relation.design
        for at, variant in enumerate(design.variants):
            names[relation.id, variant] = {name: of[at] for name, of in design.levels.items()}
    for group in groups if len(groups) > 1 else []:
        if (rows := table.filter(group=group)).height:
            yield "group", group, rows
    keys = table.select("group", "variant").rows()
    for factor in dict.fromkeys(name for levels in names.values() for name in levels):
        levels = pl.Series([names[key].get(factor) for key in keys], dtype=pl.String)
        every = dict.fromkeys(of[factor] for of in names.values() if factor in of)
        parts = [(level, table.filter(levels == level)) for level in every]
        known = [(factor, level, part) for level, part in parts if part.height]
        yield from known if len(known) > 1 else []


def _numbers(table: pl.DataFrame) -> dict[str, object]:
    """The numbers of one row of paired answers."""
    flips, clusters = table["flip"], Clusters.of(table["subject"])
    hits = {"changed": flips != SAME} | {kind: flips == kind for kind in KINDS_OF_FLIPS}
    tallies = {
        kind: Tally.of_values(clusters, of.cast(pl.Float64).to_numpy()) for kind, of in hits.items()
    }
    of = intervals(tallies)
    net = pl.Series(tallies[WON].scores[:, 0] - tallies[LOST].scores[:, 0])
    by_subject = table.select("subject", net=net).group_by("subject").agg(pl.col("net").sum())
    net = by_subject.sort("subject")["net"]
    test, p = SUBJECTS, paired_permutation(net.to_list())
    if len(net) == table.height > 0:
        test, p = MCNEMAR, float(mcnemar(int((net < 0).sum()), int((net > 0).sum())))
    items = table.group_by("group", "item").agg(moved=(pl.col("flip") != SAME).any())
    return {
        "changed": of["changed"].value, "low": of["changed"].low, "high": of["changed"].high,
        **{kind: of[kind].value for kind in KINDS_OF_FLIPS},
        "test": test, "p": p, "n": of["changed"].n, "items": items.height,
        "items_changed": int(items["moved"].sum()),
    }  # fmt: skip
