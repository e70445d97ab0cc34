"""The noise floor of questions: a steady model has none, and one that looks at batches has."""

import random
from typing import ClassVar

import numpy as np

from consilience.asking.noise import noise_floor, question_samples
from consilience.asking.questions import Presenter
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question, Scores
from consilience.core.presentation import Presentation
from consilience.models.functions import prompt_baseline

OPTIONS = tuple(map(Choice, ("Rust", "Go", "C")))
TEXTS = [f"Language {at}?" for at in range(20)]
QUESTIONS = tuple(
    Question(f"q{at}", "g", {"": (of,)}, OPTIONS[at % 3], OPTIONS) for at, of in enumerate(TEXTS)
)
ORDER = Factor("order", ("given", "rotation 1", "rotation 2"))
PRESENTER = Presenter(FactorialDesign.full([ORDER]), {}, Presentation())


class AloneOrNot:
    """A model that says the first option of a prompt that it is asked alone, else the last."""

    identity: ClassVar = {"model": "alone or not"}
    notes = ()
    tie = 0.0

    def why_not(self, prompts):
        return [None] * len(prompts)

    def score(self, prompts):
        totals = [np.arange(3.0) * (1 if len(prompts) > 1 else -1) for _ in prompts]
        ones = [np.ones(3, dtype=np.int64) for _ in prompts]
        yield Scores.of_rows(np.arange(len(prompts)), totals, ones)


def sampled(groups, size):
    return question_samples([(QUESTIONS, PRESENTER)] * groups, size, random.Random(0))


def test_a_steady_model_has_no_flips_and_every_prompt_of_the_sample_counts():
    """About 30 prompts of 20 x 3: 10 questions in all variants."""
    model = prompt_baseline("random", QUESTIONS, 0)
    floor = noise_floor(sampled(1, 30), model, "own")
    names = "repeated reordered one_by_one large_batches other_threads"
    assert floor["subset"].to_list() == names.split()
    assert (floor["value"].to_list(), floor["n"].to_list()) == ([0] * 5, [30] * 5)
    assert set(floor["metric"]) == {"flips"}


def test_answers_that_depend_on_the_batch_are_counted():
    """Every prompt that is asked alone has another answer; all else is the same."""
    half = AloneOrNot()
    floor = noise_floor(sampled(2, 12), half, "own", in_half_precision=AloneOrNot)
    values = dict(floor.select("subset", "value").iter_rows())
    assert (values.pop("one_by_one"), set(values.values())) == (1, {0}) and "bfloat16" in values
