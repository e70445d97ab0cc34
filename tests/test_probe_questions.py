"""Runs of questions, from the file to the report: variants, comparisons by option, tables, words."""

import json
import re

import polars as pl
import pytest

from checks import output, refusal
from conftest import cases, run_command

QUIZ = """question,question_2,options,answer,group
Which gas do plants take in?,What do plants absorb?,oxygen;carbon;helium,carbon,nature
Which planet is closest to the sun?,What orbits nearest to the sun?,Mercury;Venus;Mars,Mercury,nature
What do bees make?,What is it that bees make?,milk;silk;honey,honey,nature
Who wrote Hamlet?,By whom was Hamlet written?,Shakespeare;Dickens,Shakespeare,culture
Is Kyoto in Japan?,Is Kyoto a city of Japan?,yes;no,yes,culture
"""


@pytest.fixture
def quiz(tmp_path):
    path = tmp_path / "quiz.csv"
    path.write_text(QUIZ, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """``probed("first", *options)``: the folder of a run of a baseline, which no test changes."""
    folder = tmp_path_factory.mktemp("probed")
    (folder / "quiz.csv").write_text(QUIZ, encoding="utf-8")

    def probe(baseline, *options, name=""):
        out = folder / (name or baseline)
        if not out.exists():
            model = ("--model", f"baseline:{baseline}", "--suite", folder / "quiz.csv")
            output(run_command, "probe", *model, "--out", out, *options)
        return out

    return probe


def metrics_of(run):
    rows = pl.read_csv(run / "metrics.csv", infer_schema=False).iter_rows(named=True)
    return {(row["group"] or row["over"], row["metric"], row["level"] or ""): row for row in rows}


def test_answers_are_compared_by_option_and_not_by_label(probed):
    """The first option shown: another option in each rotation, the same in each phrasing."""
    metrics = metrics_of(probed("first"))
    assert float(metrics["all", "consistency", "order"]["value"]) == 0
    assert float(metrics["all", "consistency", "paraphrase"]["value"]) == 1
    # Two phrasings of three orders: 3 of 15 pairs agree; of two orders 2 of 6.
    assert float(metrics["nature", "consistency", ""]["value"]) == pytest.approx(3 / 15)
    assert float(metrics["culture", "consistency", ""]["value"]) == pytest.approx(2 / 6)
    assert int(metrics["culture", "consistency", ""]["n"]) == 2 * 6
    # The gold is shown first in the base variant of Mercury, Shakespeare and yes.
    assert float(metrics["all", "accuracy", ""]["value"]) == pytest.approx(3 / 5)


@pytest.mark.parametrize("by", ["group", "factor", "variant", "metric"])
def test_every_table_has_the_words_of_questions(consilience, probed, by):
    out = output(consilience, "score", probed("random"), "--by", by, "--format", "csv")
    assert not re.search(r"\b(relation|fact|task)s?\b", out.splitlines()[0])


@pytest.mark.parametrize(("options", "message"), [
    *(((option, "a=b"), f"{option} with a run; expected a file of answers")
      for option in ("--out", "--suite", "--columns", "--model")),
    (("--by", "edit"), "--by edit with the suite 'quiz'; expected --by group, factor, variant, metric or item"),
])  # fmt: skip
def test_options_that_a_run_does_not_have_are_not_ignored(consilience, probed, options, message):
    assert message in refusal(consilience, "score", probed("first"), *options)


@pytest.mark.parametrize(("options", "message"), cases("probe_questions_bad"))
def test_wrong_options_are_refused_before_a_question(consilience, quiz, tmp_path, options, message):
    out = tmp_path / "run"
    arguments = ("--model", "baseline:first", "--suite", quiz, "--out", out)
    assert message in refusal(consilience, "probe", *arguments, *options)
    assert not out.exists()


@pytest.mark.parametrize(("vary", "variants"), cases("variants_of_factors"))
def test_factors_make_variants(consilience, quiz, vary, variants):
    options = [word for factor in vary for word in ("--vary", factor)]
    arguments = ("--model", "baseline:first", "--suite", quiz, "--groups", "nature")
    out = output(consilience, "probe", *arguments, *options, "--dry-run", "--json")
    assert json.loads(out)["plan"]["variants"].startswith(f"{variants} variants (")


def test_cloze_facts_are_asked_as_questions(consilience, tmp_path):
    """Nine patterns of `mini` become phrasings with a blank; four options of the relation."""
    arguments = ("probe", "--suite", "mini", "--groups", "capital", "--limit", "3")
    out = tmp_path / "run"
    model = ("--model", "baseline:oracle", "--out", out)
    as_questions = (*arguments, *model, "--as-questions", "3", "--vary", "paraphrase")
    output(consilience, *as_questions)
    assert "--by pattern with the suite 'mini'" in refusal(
        consilience, "score", out, "--by", "pattern"
    )
    assert "paraphrase=9" in output(consilience, "score", out, "--by", "variant")
    queries = pl.read_parquet(out / "queries.parquet")
    assert (queries.height, queries["choices"].list.len().unique().to_list()) == (3 * 9, [4])
    assert "Question: Fill in the blank: " in queries["input"][0][0]
    assert float(metrics_of(out)["all", "consistent_accuracy", ""]["value"]) == 1
    said = refusal(consilience, "probe", "--suite", "mini-questions", "--as-questions", "3")
    assert "expected a suite of facts, such as mini" in said
