"""The noise floor: a steady model has none, an unsteady one is counted."""

import random

import numpy as np
import pytest

from consilience import Scores, load_model, load_suite
from consilience.asking.noise import fact_samples, noise_floor, question_samples
from consilience.asking.questions import Presenter
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.core.presentation import Presentation
from consilience.core.schemas import METRICS_SCHEMA
from consilience.models.functions import prompt_baseline
from consilience.suites.facts import sample_facts, select_relations

pytestmark = pytest.mark.usefixtures("two_threads")


def suite():
    return sample_facts(select_relations(load_suite("mini"), ["capital", "sport"]), 3, seed=0)


class Wavering:
    """Answers by the call: the second candidate, then the first, and so on."""

    def __init__(self):
        self.identity, self.notes, self.first = {}, [], 0

    def score(self, queries, candidates, *, every=True):
        logprob, self.first = np.full((len(queries), len(candidates.words)), -9.0), 1 - self.first
        logprob[:, self.first] = -0.1
        yield Scores(np.arange(len(queries)), candidates.words, logprob)


def floor(model, queries=256, seed=0, *, whole_vocabulary=False, **options):
    samples = fact_samples(suite(), queries, random.Random(seed), whole_vocabulary=whole_vocabulary)
    return noise_floor(samples, model, "mini", **options)


def test_what_changes_is_counted():
    table = floor(Wavering(), queries=20)
    assert dict(table.schema) == METRICS_SCHEMA
    assert table.select("metric", "subset", "value", "n").rows() == [("flips", "reordered", 1, 20)]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_our_models_do_not_waver(family, model_folder):
    table = floor(load_model(str(model_folder(family))), queries=12)
    assert set(table["value"].drop_nans()) <= {0.0}
    assert (table["n"] + table["n_excluded"] == 12).all()


def test_the_sample_is_drawn_by_the_seed_and_no_larger_than_the_suite():
    first = floor(load_model("baseline:random"), queries=10**6)
    size = sum(len(each.facts) * len(each.patterns) for each in suite().relations)
    assert set(first["n"]) == {size}
    assert floor(Wavering(), seed=1, queries=8).equals(floor(Wavering(), seed=1, queries=8))


def test_a_run_over_the_whole_vocabulary_has_its_own_noise_floor(model_folder):
    """The very questions of the run: the candidates that the model is given are None."""
    given = []

    class Noting(Wavering):
        def score(self, queries, candidates, *, every=True):
            given.append(candidates)
            yield Scores(np.arange(len(queries)), ("a", "b"), np.log([[0.9, 0.1]] * len(queries)))

    floor(Noting(), whole_vocabulary=True, queries=4)
    assert set(given) == {None}
    table = floor(load_model(str(model_folder("bert"))), whole_vocabulary=True, queries=24)
    assert set(table["value"].drop_nans()) <= {0.0}


OPTIONS = tuple(map(Choice, ("Rust", "Go", "C")))
TEXTS = [f"Language {at}?" for at in range(20)]
QUESTIONS = tuple(
    Question(f"q{at}", "g", {"": (of,)}, OPTIONS[at % 3], OPTIONS) for at, of in enumerate(TEXTS)
)
ORDER = Factor("order", ("given", "rotation 1", "rotation 2"))
PRESENTER = Presenter(FactorialDesign.full([ORDER]), {}, Presentation())


def sampled(groups, size):
    return question_samples([(QUESTIONS, PRESENTER)] * groups, size, random.Random(0))


def test_a_sample_has_as_many_prompts_as_were_wanted():
    for groups, size in ((1, 7), (3, 10), (3, 2)):
        assert sum(len(asks) for _, asks in sampled(groups, size)) == size
    assert sum(len(asks) for _, asks in fact_samples(suite(), 7, random.Random(0))) == 7
    ((_, asks),) = sampled(1, len(QUESTIONS))
    assert len({ask.item for ask in asks}) == len(QUESTIONS), "each question once"
    floor = noise_floor(sampled(3, 2), prompt_baseline("random", QUESTIONS, 0), "own")
    assert set(floor["n"]) == {2}


def test_a_steady_model_has_no_flips_and_every_prompt_of_the_sample_counts():
    """30 prompts of 20 x 3: all questions, some in two variants."""
    model = prompt_baseline("random", QUESTIONS, 0)
    floor = noise_floor(sampled(1, 30), model, "own")
    assert floor.select("value", "n").row(0) == (0, 30)
