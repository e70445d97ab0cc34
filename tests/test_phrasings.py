"""Intervals over items and phrasings: what phrasings that were not asked add to the variance."""

import math

import numpy as np
import pytest

import consilience as cs
from checks import refused
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS
from consilience.metrics.uncertainty import Index, Phrasings, of_group, pooled
from grids import drawn_facts, grid_of, places_of

NAMES = ("mean_accuracy", "consistency", "corrected_consistency")
RIGHT = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]
"""Items in four templates; 9 of 16 are right."""


def tally_of(grid, metric="mean_accuracy"):
    """The tally with its recounts, as ``count`` makes it."""
    return METRICS[metric].recounted(METRICS[metric].tally(grid), grid)


def asked_in(answers, names=None, **more):
    """A grid (item, variant) of right answers (0) and others, each variant a template."""
    phrasings = {"template": names or [f"t{at}" for at in range(len(answers[0]))]}
    return grid_of(answers, phrasings=phrasings, **more)


def number_of(*grids, metric="mean_accuracy"):
    """The number of a run, or the difference of two."""
    weights = (-1, 1)[-len(grids) :]
    return of_group(
        [(w, tally_of(grid, metric)) for w, grid in zip(weights, grids, strict=True)], Index()
    )


def drawn(seed, items=30, templates=6, effect=0.0):
    """Answers of three options; a template of a stronger ``effect`` gets fewer right."""
    draw = np.random.default_rng(seed)
    known = draw.normal(0, 1, (items, 1)) + effect * draw.normal(0, 1, templates)
    wrong = draw.integers(1, 3, (items, templates))
    return np.where(known + draw.normal(0, 1, (items, templates)) > 0, 0, wrong)


def write_answers(file, answers, groups="a"):
    """A table of answers (question, template), of which 0 is right; questions take turns in groups."""
    rows = [
        f"{groups[at % len(groups)]},q{at},t{level},0,{answer}"
        for at, of in enumerate(answers)
        for level, answer in enumerate(of)
    ]
    file.write_text("\n".join(["group,item,template,gold,answer", *rows]))
    return file


def test_the_variance_by_hand():
    """Two-way analysis of variance: accuracy 1, .75, .5, 0 of the templates.

    Mean squares: of items .6875 / 3, of templates 2.1875 / 3, of the rest 1.0625 / 9. Over the 16
    answers: (2.1875 / 3 - 1.0625 / 9) / 16 = 11/288 is added to .6875 / 3 / 16 = 11/768.
    """
    number = number_of(asked_in(1 - np.array(RIGHT)))
    templates = 2.1875 / 3 / 16
    assert number.phrasings.variance == pytest.approx(11 / 288)
    assert number.error**2 == pytest.approx(11 / 768)
    variance, freedom = number.phrasings.beside(number.error**2, number.n_clusters)
    spread = (11 / 768) ** 2 / 3 + templates**2 / 3
    assert (variance, freedom) == pytest.approx((11 / 768 + 11 / 288, variance**2 / spread))
    low, high = number.interval_over_phrasings((0, 1))
    assert [low, high] == pytest.approx([0.0800, 0.9501], abs=1e-3)


def test_degrees_of_freedom_are_at_least_the_fewest_of_a_part():
    """Of 24 items in 4 phrasings: 1.1^2 / (1 / 23 + 10^2 / 3) is .04, but 3 are known."""
    small = Phrasings(((10.0, 9.9, 4),))
    assert small.beside(1.0, 24) == (pytest.approx(1.1), 3)
    assert small.beside(1.0, 3) == (pytest.approx(1.1), 2)
    assert Phrasings().beside(1.0, 24) == (1, pytest.approx(23))


@pytest.mark.parametrize("metric", ["mean_accuracy", "consistency"])
@pytest.mark.parametrize("compared", [None, [(0, at) for at in range(1, 12)]])
@pytest.mark.parametrize("by_pair", [False, True])
def test_counts_without_a_phrasing_are_those_of_the_other_variants(metric, compared, by_pair):
    """Also of queries that were not asked, items that lack variants, and answers that are none."""
    levels = {"template": [*"aaabbbcccddd"], "paraphrase": [*"wxyz" * 3]}
    more = {"compared": compared, "by_pair": by_pair, "is_ragged": True, "phrasings": levels}
    grid, count = drawn_facts(1, 300, 12, **more), METRICS[metric].tally
    without = METRICS[metric].recounted(count(grid), grid).leave_one_out
    assert len(without) == 8
    for key, kept in grid.masks.items():
        np.testing.assert_array_equal(without[key].scores, count(grid.only_where(kept)).scores)


@pytest.mark.parametrize("metric", NAMES)
def test_neither_the_order_of_items_nor_of_templates_nor_their_names_matter(metric):
    answers, draw = drawn(1, effect=1.0), np.random.default_rng(2)
    first = number_of(asked_in(answers), metric=metric)
    rows, columns = draw.permutation(30), draw.permutation(6)
    names = [f"s{at}" for at in rows]
    moved = asked_in(answers[rows][:, columns], list("zyxwvu"), subjects=names)
    second = number_of(moved, metric=metric)
    assert second.phrasings.variance == pytest.approx(first.phrasings.variance)
    bounds = METRICS[metric].bounds
    of_first = first.interval_over_phrasings(bounds)
    assert second.interval_over_phrasings(bounds) == pytest.approx(of_first)


def test_a_difference_that_is_the_same_in_each_template_is_as_clear_as_before():
    """The second run answers like the first but to five items: the effect of templates cancels."""
    first = drawn(3, effect=2.0)
    second = first.copy()
    second[:5] = 0
    number = number_of(asked_in(first), asked_in(second))
    alone = number_of(asked_in(second))
    assert number.phrasings.variance < alone.phrasings.variance / 5
    low, high = number.interval_over_phrasings((-1, 1))
    assert low <= number.interval((-1, 1))[0] < number.value < high
    assert 0 < number.p_over_phrasings() < 1


@pytest.mark.parametrize(
    "names", ["aabbcc", "aaabbccdd", "abc", [str(at) for at in range(101)], "aabbccd"]
)
def test_too_few_templates_or_unequal_numbers_of_variants_have_no_interval(names):
    number = number_of(asked_in(drawn(1, templates=len(names)), [*names]))
    assert number.phrasings is None
    assert all(map(math.isnan, number.interval_over_phrasings((0, 1))))


def test_a_template_that_was_not_asked_does_not_count():
    answers, asked = drawn(1, templates=5), np.ones((30, 5), bool)
    asked[:, 4] = False
    some = number_of(asked_in(answers, asked=asked))
    assert some.phrasings == number_of(asked_in(answers[:, :4])).phrasings


def test_pairs_of_orders_stay_those_of_the_same_template():
    orders, answers = ["AB", "BA"] * 4, drawn(1, templates=8) % 2
    pairs = np.arange(8).reshape(4, 2)
    grid = grid_of(
        answers,
        places=places_of([2] * 30, orders),
        orders=pairs,
        phrasings={"template": [*"aabbccdd"]},
    )
    rest = grid.only_where(grid.masks["template", "b"])
    assert rest.orders.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert rest.answers.tolist() == answers[:, [0, 1, 4, 5, 6, 7]].tolist()


def test_groups_together_have_the_variance_of_their_items():
    """Two groups of other items in the same templates are one group of all items."""
    answers = drawn(1, effect=1.0)
    whole = number_of(asked_in(answers)).phrasings
    names = [[f"s{at}" for at in of] for of in (range(12), range(12, 30))]
    parts = answers[:12], answers[12:]
    groups = {
        str(at): tally_of(asked_in(of, subjects=subjects))
        for at, (of, subjects) in enumerate(zip(parts, names, strict=True))
    }
    both = pooled([(1, groups)], Index()).phrasings
    assert both.variance == pytest.approx(whole.variance)
    assert both.beside(0.0, 30) == pytest.approx(whole.beside(0.0, 30))


def test_a_mean_over_relations_has_the_patterns_of_each_in_its_interval():
    suite = cs.load_suite("mini")
    run = cs.evaluate(suite, "baseline:random", limit=8)
    rows = measure(run.answers, suite).filter(kind="whole", metric="consistency").to_dicts()
    ends = {row["over"]: (row["low"], row["high"]) for row in rows}
    others = {row["over"]: (row["low_phrasings"], row["high_phrasings"]) for row in rows}
    assert others["mean"] == ends["mean"]
    assert all(map(math.isnan, others["all"]))
    assert others["group"][0] <= ends["group"][0] < ends["group"][1] <= others["group"][1]


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """``write(name, seed, templates)``: a file of answers to 30 questions."""
    folder = tmp_path_factory.mktemp("templates")

    def written(name, seed, templates, effect=0.0):
        return write_answers(folder / f"{name}.csv", drawn(seed, 30, templates, effect))

    return written


def test_the_sentence_of_score_compare_and_the_page(write, tmp_path):
    first, second = write("first", 1, 5, 1.0), write("second", 2, 5, 1.0)
    row = cs.score(first).metrics.filter(metric="mean_accuracy", over="all").to_dicts()[0]
    ends = "{:.1f} to {:.1f} %".format(*(100 * row[f"{of}_phrasings"] for of in ("low", "high")))
    sentence = f"With other phrasings (95 % CI): mean accuracy {ends}, consistency "
    assert sentence in " ".join(repr(cs.score(first).summary).split())
    cs.write_report([first], out=tmp_path / "page.html")
    assert sentence in (tmp_path / "page.html").read_text()
    shown = " ".join(repr(cs.compare(first, second)).split())
    assert "With other phrasings (95 % CI): difference in mean accuracy -" in shown
    few = cs.score(write("few", 1, 3))
    assert "phrasings" not in repr(few.summary)


def test_a_rule_over_phrasings(write):
    run, baseline = write("now", 4, 6, 1.0), write("before", 5, 6, 1.0)
    rule = "mean_accuracy no worse than baseline by 3 points"
    rules = [rule, f"{rule} over phrasings", "consistency >= 20 % Over  Phrasings"]
    one, other, limit = cs.gate(run, baseline=baseline, rule=rules).checks
    assert (one.value, one.difference, one.limit) == (other.value, other.difference, other.limit)
    assert other.low < one.low < one.high < other.high
    assert limit.rule == "consistency >= 20 % Over Phrasings"
    assert limit.limit == 0.2
    result = cs.score(run)
    row = measure(result.answers, result.suite, level=0.9)
    row = row.filter(metric="consistency", over="all", kind="whole").to_dicts()[0]
    assert [limit.low, limit.high] == pytest.approx([row["low_phrasings"], row["high_phrasings"]])


@pytest.mark.parametrize(
    ("templates", "rule"),
    [(3, "consistency >= 0.2 over phrasings"), (6, "accuracy >= 0.2 over phrasings")],
)
def test_a_rule_over_too_few_phrasings_is_refused(write, templates, rule):
    said = f"no interval for the rule '{rule}'; expected 4 to 100 templates or paraphrases"
    refused(said, cs.gate, write(f"few {templates}", 1, templates), rule=rule)


def test_a_variance_that_is_larger_by_rounding_adds_nothing():
    rounded = Phrasings(((0.1 + 0.2, 0.3, 4),))
    assert rounded.beside(1.0, 9) == Phrasings().beside(1.0, 9) == (1.0, 8.0)
