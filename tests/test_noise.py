"""The noise floor: a steady model has none, an unsteady one is counted."""

import numpy as np
import pytest

from consilience import Scores
from consilience.core.schemas import METRICS_SCHEMA
from consilience.options.probe import ProbeOptions
from consilience.probing.probe import probe

pytestmark = pytest.mark.usefixtures("two_threads")


class Wavering:
    """Answers by the size of a call: of few queries the first candidate, else the second."""

    identity, notes = {"model": "wavering"}, ()

    def score(self, queries, candidates, *, every=True):
        logprob = np.full((len(queries), len(candidates.words)), -9.0)
        logprob[:, 0 if len(queries) < 40 else 1] = -0.1
        yield Scores(np.arange(len(queries)), candidates.words, logprob)


def floor(folder, model="wavering", **options):
    value = {"model": Wavering()} if model == "wavering" else {}
    chosen = ProbeOptions(model=str(model), groups=("capital",), out=folder, **options)
    return probe(chosen, **value).metrics.filter(metric="noise_floor")


def test_what_changes_is_counted(tmp_path):
    table = floor(tmp_path, limit=10, noise_floor=20)
    assert dict(table.schema) == METRICS_SCHEMA
    assert table.select("over", "kind", "value", "n").rows() == [("all", "whole", 1, 20)]
    unseen = 1 - 0.025 ** (1 / 10)  # of ten facts, all of which changed in both variants
    assert table.select("low", "high").row(0) == pytest.approx((1 - unseen, 1))


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_our_models_do_not_waver(family, model_folder, tmp_path):
    table = floor(tmp_path, model_folder(family), limit=3, noise_floor=12)
    assert set(table["value"].drop_nans()) <= {0.0}
    assert (table["n"] + table["n_excluded"]).to_list() in ([], [12])


def test_the_sample_is_no_larger_than_the_run_and_by_default_there_is_none(tmp_path):
    many = floor(tmp_path / "many", "baseline:random", limit=2, noise_floor=10**6)
    assert many.select("value", "n").rows() == [(0, 18)]
    assert floor(tmp_path / "none", "baseline:random", limit=2).is_empty()


def test_a_run_over_the_whole_vocabulary_has_its_own_noise_floor(model_folder, tmp_path):
    options = {"limit": 2, "candidates": "vocabulary", "noise_floor": 12}
    assert set(floor(tmp_path, model_folder("bert"), **options)["value"].drop_nans()) <= {0.0}
