"""A judge of texts: its suite, its biases by hand and by simulation, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from consilience.core.presentation import Presentation, present
from consilience.metrics.counts import resampled
from consilience.metrics.measure import pooled_row
from consilience.metrics.registry import METRICS, Grid
from consilience.metrics.resampling import Resampling
from scoring_server import VLLM, scoring_server
from test_prompted import CHAT

LONG = "a longer reply"
ROWS = [
    ("one", LONG, "ok", "A"),
    ("two", "ok", LONG, "model_a"),
    ("three", LONG, "ok", "ok"),
    ("four", "ok", LONG, "b"),
    ("five", "x|1; y", "x|2; y", ""),
]
COLUMNS = ("prompt", "answer_a", "answer_b", "human")


@pytest.fixture(scope="module")
def pairs():
    """Five pairs: the longer text is a, b, a, b, none; people prefer a, a, b, b, none."""
    return cs.Questions.from_frame(pl.DataFrame(ROWS, COLUMNS, orient="row"), name="pairs")


def options_in(prompt):
    return re.findall(r"^([AB])\. (.*)$", prompt, re.MULTILINE)


def first(prompts):
    return [options_in(prompt)[0][0] for prompt in prompts]


def label_a(prompts):
    return ["A" for _ in prompts]


def longer(prompts):
    return [max(options_in(prompt), key=lambda one: len(one[1]))[0] for prompt in prompts]


def repeated(prompts):
    twice = [re.search(r"^([AB])\. (.*)\n\2$", prompt, re.MULTILINE) for prompt in prompts]
    return [found[1] if found else "A" for found in twice]


ORDER, LABELS, REPEATED = ["order=rotations", "labels=A,BA", "repeated"]
NONE = {"position_bias": 0, "label_bias": 0, "length_bias": 0, "label_kappa": 0}


@pytest.mark.parametrize(("judge", "vary", "expected"), [
    # Both orders of each pair get the first one: no verdict is a text's.
    (first, [ORDER, LABELS], {
        **NONE, "position_bias": 1, "toward_first": 1, "toward_second": 0, "judge_variance": 1,
        "longer_chosen": 1 / 2, "longer_labelled": 1 / 2, "accuracy": 2 / 4,
    }),
    # Label and place move together until the labels are reversed.
    (label_a, [ORDER], {"position_bias": 1, "judge_variance": 1}),
    (label_a, [ORDER, LABELS], {**NONE, "label_bias": 1, "toward_first": 1 / 2}),
    # Texts of one length get the first place. The labels agree in pairs one and four; right is
    # 1 of 1 where people prefer the longer one, else 0 of 1. W: 1 of 5 pairs; B: the shares of
    # the option a are 1, 0, 1, 0, 1/2, their variance is 1/4; 1/5 / (1/10 + 2/4).
    (longer, [ORDER], {
        "label_kappa": 0, "length_bias": 1, "longer_chosen": 1, "toward_first": 1 / 5,
        "position_bias": 1 / 5, "judge_variance": 1 / 3,
    }),
    (repeated, [REPEATED], {"repetition_bias": 1}),
    ("baseline:oracle", [ORDER], {"label_kappa": 1, "length_bias": 0, "accuracy": 1}),
])  # fmt: skip
def test_biases_by_hand(pairs, judge, vary, expected):
    result = cs.evaluate(pairs, judge, vary=vary)
    rows = result.metrics.filter(group="MICRO", subset="all")
    values = dict(rows.select("metric", "value").iter_rows())
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    labelled = rows.filter(metric="accuracy")["n"].item()
    assert (labelled, len(pairs), "5 questions" in str(result)) == (4, 5, True)
    assert "repetition_bias" not in values or vary == [REPEATED]


def test_kappa_of_unequal_margins_by_hand():
    """Verdicts in one variant: 8 of 10 right; 7 labels are a, verdicts 6 + 1, so p_e = .58.

    Kappa is (.8 - .58) / .42. The first four pairs have the label a as the longer text, 3 of 4
    right; the others 5 of 6.
    """
    golds = np.array([[0]] * 7 + [[1]] * 3)
    answers = golds.copy()
    answers[[0, 9]] = 1 - golds[[0, 9]]
    longest = np.array([0] * 4 + [1] * 3 + [0] * 3)
    subjects = np.array(list("abcdefghij"), dtype=object)
    grid = Grid(answers, golds, None, subjects, np.arange(2), longest=longest)
    tallies = {name: METRICS[name].tally(grid) for name in ("label_kappa", "length_bias")}
    assert tallies["label_kappa"].share().value == pytest.approx(0.22 / 0.42)
    assert tallies["length_bias"].share().value == pytest.approx(3 / 4 - 5 / 6)
    of_random = judged(np.random.default_rng(0))
    names = ("label_kappa", "length_bias", "judge_variance")
    for tally in (METRICS[name].tally(of_random) for name in names):
        share = tally.share()  # Euler: what items contribute sums to hits and total
        assert tally.scores().sum(axis=0) == pytest.approx([share.hits, share.total])
    unlabelled = replace(grid, golds=np.full_like(golds, -1))
    assert np.isnan(METRICS["label_kappa"].tally(unlabelled).share().value)


def judged(random, items=20, margin=0.7, longest=0.65, right=0.8):
    """Verdicts that are right with a probability, whatever the order, the label, the length."""
    golds = (random.random(items) > margin).astype(int)
    longer_ones = np.where(random.random(items) < longest, golds, 1 - golds)
    hits = random.random((items, 4)) < right
    verdicts = np.where(hits, golds[:, None], 1 - golds[:, None])
    favoured = {
        "order": (np.array([(0, 2), (1, 3)]), np.tile([0, 0, 1, 1], (items, 1))),
        "labels": (np.array([(0, 1), (2, 3)]), np.tile([0, 1, 1, 0], (items, 1))),
    }
    subjects = np.arange(items).astype(str).astype(object)
    golds = np.tile(golds[:, None], 4)
    return Grid(
        verdicts, golds, None, subjects, np.arange(2), longest=longer_ones, favoured=favoured
    )


def test_an_unbiased_judge_has_no_bias_and_the_interval_contains_kappa():
    """70 % of the labels are a, 65 % the longer text; three groups of 20 pairs in 4 variants.

    p_o = .8, p_e = .7 (.62) + .3 (.38). Within items two verdicts differ in .32; the mean verdicts
    of items are .8 or .2, twice their variance is 2 (.21) (.36).
    """
    by_chance = 0.7 * 0.62 + 0.3 * 0.38
    truth = {
        "label_kappa": (0.8 - by_chance) / (1 - by_chance),
        "judge_variance": 0.32 / (0.32 + 2 * 0.21 * 0.36),
        **dict.fromkeys(("position_bias", "label_bias", "length_bias"), 0),
    }
    random, groups = np.random.default_rng(3), ("x", "y", "z")
    covered, values, sets = dict.fromkeys(truth, 0), {name: [] for name in truth}, 50
    for _ in range(sets):
        grids = {group: judged(random) for group in groups}
        subjects = {group: grid.subjects.tolist() for group, grid in grids.items()}
        tallies = {
            group: {(name, "all"): METRICS[name].tally(grid) for name in truth}
            for group, grid in grids.items()
        }
        counts = resampled(tallies.__getitem__, Resampling(subjects, 0))
        for name, value in truth.items():
            row = pooled_row([counts], groups, (name, "all"))
            covered[name] += row["low"] <= value <= row["high"]
            values[name].append(row["value"])
    assert min(covered.values()) >= 0.88 * sets, covered
    means = {name: np.mean(of) for name, of in values.items()}
    assert means == pytest.approx(truth, abs=0.04)


def test_published_samples_have_no_pairs_without_a_label(consilience, pairs, tmp_path):
    """The longer text is right in two of four pairs; the fifth has no label and is no reference."""
    cs.evaluate(pairs, longer, vary=[ORDER], out=tmp_path / "run")
    more = ("--model-id", "a/b", "--licence", "MIT", "--out", tmp_path / "eee")
    output(consilience, "publish", tmp_path / "run", "--format", "eee", *more)
    (samples,) = (tmp_path / "eee").rglob("*_samples.jsonl")
    metrics = cs.score(samples).metrics.filter(group="MICRO", metric="accuracy", subset="all")
    assert metrics.select("value", "n").row(0) == (0.5, 4)


def test_factors_divide_the_variance_of_verdicts(pairs, tmp_path):
    """First places are right and wrong by turns: the order makes all, the texts nothing."""
    for judge, order, texts in ((first, 1, 0), ("baseline:constant", np.nan, np.nan)):
        run = tmp_path / str(order)
        cs.evaluate(pairs, judge, vary=[ORDER, LABELS], out=run)
        parts = cs.analyze_factors([run]).tables["components"].filter(outcome="answer")
        shares = {row["effect"] + row["factors"]: row["share"] for row in parts.to_dicts()}
        found = [shares["mainorder"], shares["between questions"]]
        assert found == pytest.approx([order, texts], nan_ok=True)
    graded = cs.analyze_factors([run]).tables["levels"]["n"]
    assert set(graded) == {4}, "the pair without a label is not wrong"


def test_a_new_suite_is_checked_asked_scored_and_reported(consilience, tmp_path):
    folder, run = tmp_path / "mine", tmp_path / "run"
    out = output(consilience, "suite", "new", folder, "--kind", "judge")
    assert "README.md, questions.csv" in out
    assert "12 questions with options, 24 phrasings" in output(
        consilience, "suite", "check", folder
    )
    output(consilience, "probe", "-m", "baseline:first", "-s", folder, "-o", run)
    rule = "position_bias <= 20 %"
    status, out, _ = consilience("gate", run, "--rule", rule)
    assert (status, "fail" in out) == (3, True)
    output(consilience, "report", run)
    assert "Variance of the judge" in (run / "report.html").read_text(encoding="utf-8")
    lines = output(consilience, "suite", "export", folder, "--format", "trl-preference")
    assert len(lines.splitlines()) == 11 * 4, "11 have a label"
    task = output(consilience, "suite", "export", folder, "--format", "lm-eval", "--out", run / "t")
    assert "44 documents of 11 items" in task
    (documents,) = (run / "t").glob("*.jsonl")
    assert '"gold_index": -1' not in documents.read_text(encoding="utf-8")
    table = tmp_path / "verdicts.csv"
    asked = cs.export_prompts(folder)
    rows = [(row["item"], row["variant"], row["candidates"][0]) for row in asked]
    pl.DataFrame(rows, ("item", "variant", "answer"), orient="row").write_csv(table)
    scored = cs.score(table, suite=folder).metrics.filter(metric="toward_first", group="MICRO")
    assert scored["value"].item() == 1
    pl.DataFrame(rows, ("item", "variant", "answer"), orient="row").with_columns(
        answer=pl.lit("C")).write_csv(table)  # fmt: skip
    assert (
        "most often: 'C' (48)" in consilience("score", table, "--suite", folder, "--by", "group")[2]
    )
    refused("the kind 'judges'.* 'judge'", cs.new_suite, tmp_path / "x", kind="judges")


def test_a_judge_behind_a_url_gives_the_verdicts_of_the_same_model_here(model_folder):
    folder, asked = str(model_folder("llama")), {"vary": [ORDER, LABELS], "template": "plain"}
    frame = pl.DataFrame(ROWS, COLUMNS, orient="row").with_columns(question=pl.lit("Which?"))
    short = cs.Questions.from_frame(frame)
    here = cs.evaluate(short, folder, **asked).answers
    with scoring_server(folder, VLLM, chat_template=CHAT, longest=4096) as server:
        named = {"model": "openai:tiny", "base_url": server.url, "tokenizer": folder}
        there = cs.evaluate(short, **asked, **named).answers
    assert there["option"].to_list() == here["option"].to_list()
    assert there["option"].null_count() == 0
    assert there["longest"].unique().sort().to_list() == [-1, 0, 1]


def test_what_is_shown(pairs):
    question, plain = pairs.items[0], Presentation()
    assert present(question, plain).answers == ("A", "B")
    shown = Presentation(labels="BA", order="rotation 1", repeated="A")
    prompt = present(question, shown)
    assert (prompt.answers, prompt.options, prompt.gold) == (("B", "A"), (1, 0), 1)
    assert prompt.text.endswith(f"B. ok\nA. {LONG}\n{LONG}\nAnswer:")
    assert present(question, Presentation(repeated="C")) is None
    assert present(pairs.items[4], Presentation(cue="wrong")) is None, "without a label"
    assert [one.text for one in pairs.items[4].options] == ["x|1; y", "x|2; y"]


@pytest.mark.parametrize(("row", "message"), [
    ({"answer_a": "x", "answer_b": " "}, "row 1: no text in 'answer_b'; expected a text"),
    ({"answer_a": "x", "prompt": "p"}, "no text in 'answer_b'.*--columns answer_b=COLUMN"),
    ({"answer_a": "x", "answer_b": " x "}, "the same text in 'answer_a' and 'answer_b'"),
    ({"answer_a": "x", "answer_b": "y", "human": "tie"},
     "the human label 'tie'; expected a, b, .*empty where people prefer none"),
    ({"answer_a": "x", "answer_b": "y", "human": "C"}, "the human label 'C'; expected a, b,"),
    ({"answer_a": "Same.", "answer_b": "same.", "human": "SAME."},
     "the human label 'SAME.' is several of the texts; expected a, b"),
    ({"answer_a": "B", "answer_b": "A", "human": "A"}, "'A' is several of the texts"),
])  # fmt: skip
def test_refusals(row, message):
    refused(message, cs.Questions.from_frame, pl.DataFrame([row]))


@pytest.mark.parametrize(("human", "gold"), [
    ("same.", 1), ("Same.", 0), (" B", 1), ("model_a", 0), ("other", 2), ("c", 2),
])  # fmt: skip
def test_a_label_is_a_text_as_written_before_it_is_one_without_case(human, gold):
    row = {"answer_a": "Same.", "answer_b": "same.", "answer_c": "Other", "human": human}
    assert cs.Questions.from_frame(pl.DataFrame([row])).items[0].gold_position == gold


def test_other_names_of_columns_and_a_third_text():
    row = {"task": "p", "one": "x", "two": "y", "three": "zz", "best": "zz", "rater": 1}
    names = dict(zip((*COLUMNS[1:3], "answer_c"), ("one", "two", "three"), strict=True))
    names |= {"prompt": "task", "human": "best"}
    questions = cs.Questions.from_frame(pl.DataFrame([row]), columns=names)
    (question,) = questions.items
    assert (question.gold_position, question.longest, question.context) == (2, 2, "p")
    assert (question.phrasings, questions.notes) == (2, ("the frame: not used: rater",))
    own = cs.Questions.from_frame(pl.DataFrame([{**row, "question": "Which?"}]), columns=names)
    assert own.items[0].paraphrases == {"": ("Which?",)}
    quiz = {"question": "?", "answer": "x", "answer_a": "x", "answer_b": "y"}
    refused("'options': 'answer_a.answer_b'", cs.Questions.from_frame, pl.DataFrame([quiz]))
