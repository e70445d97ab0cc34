"""Whether the article of a pattern fits a gold, by the rule of the released evaluation."""

from __future__ import annotations

import polars as pl

from consilience.types import Relation

VOWELS = ("a", "e", "i", "o", "u")


def article_fits(relation: Relation) -> pl.Expr:
    """Whether the word before ``[Y]``, if ``a`` or ``an``, fits the gold.

    The released code looks at the first letter of the gold in its vocabulary form: with
    the leading-space mark that RoBERTa's and ALBERT's tokens begin with, no gold starts with a
    vowel (``docs/footguns.md``). ``gold_token`` holds that form; without it the gold itself counts.
    """
    wrong = {"a": True, "an": False}
    articles = [pattern.article for pattern in relation.patterns]
    form = pl.coalesce("gold_token", "gold").str.to_lowercase()
    vowel = pl.any_horizontal(*(form.str.starts_with(letter) for letter in VOWELS))
    unfit = [
        (pl.col("variant_index") == index) & (vowel == wrong[article])
        for index, article in enumerate(articles)
        if article is not None
    ]
    return ~pl.any_horizontal(*unfit) if unfit else pl.lit(True)
