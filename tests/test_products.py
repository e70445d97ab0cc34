"""Which library multiplies: timed, recorded; and no answer depends on it."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from conftest import WORDS
from consilience import load_model
from consilience.models import batches
from consilience.models.batches import processor, speed_up
from reference import QUERIES, scores_of, words_of

pytestmark = [
    pytest.mark.usefixtures("two_threads"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN"),
]


@pytest.mark.parametrize(("name", "library"), [
    ("AMD EPYC 9654 96-Core Processor", "onednn"), ("Intel(R) Xeon(R) Processor", "torch"),
])  # fmt: skip
def test_onednn_multiplies_on_processors_of_amd(name, library, model_folder, monkeypatch):
    monkeypatch.setattr(batches, "processor", lambda: name)
    found = speed_up(model_of(model_folder("gpt2"), "gpt2"))
    assert found == {"library": library, "processor": name, "threads": 2}


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama", "t5"])
def test_both_libraries_give_the_same_answers(family, model_folder, monkeypatch):
    """Near ties are decided with torch's own products, whatever multiplies otherwise."""

    def asked_with(library):
        monkeypatch.setattr(batches, "speed_up", partial(speed_up, library=library))
        model = load_model(str(model_folder(family)))
        assert model.products["library"] == library
        weights = [getattr(part, "weight", None) for part in model.model.modules()]
        packed = sum(weight.is_mkldnn for weight in weights if weight is not None)
        assert packed >= 4 * 2 if library == "onednn" else packed == 0
        return scores_of(model, QUERIES[:8], words_of(*WORDS, "New York", "Parisian"))[0]

    one, other = asked_with("onednn"), asked_with("torch")
    np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(np.nanargmax(one, axis=1), np.nanargmax(other, axis=1))
    monkeypatch.setattr(batches, "NEAR_TIE", dict.fromkeys(batches.NEAR_TIE, 1e9))
    np.testing.assert_array_equal(asked_with("onednn"), asked_with("torch"))


def model_of(folder, family):
    auto = AutoModelForMaskedLM if family in ("bert", "roberta") else AutoModelForCausalLM
    return auto.from_pretrained(folder).eval()


def test_a_run_says_what_multiplied_also_resumed_elsewhere(consilience, model_folder, tmp_path):
    run = tmp_path / "run"
    command = ["probe", "--model", str(model_folder("bert")), "--suite", "mini", "--limit", "1"]
    command += ["--groups", "capital", "--protocol", "published", "--out", str(run)]
    assert consilience(*command)[0] == 0
    record = json.loads((run / "run.json").read_text())
    made = {"library": record["products"]["library"], "processor": processor()}
    assert record["products"] == made | {"threads": record["products"]["threads"]}
    assert "products" not in record["settings"], "no answer depends on it"
    record["products"] |= {"library": "other", "processor": "Intel Xeon"}
    (run / "run.json").write_text(json.dumps(record))
    assert consilience(*command)[0] == 0
    again = json.loads((run / "run.json").read_text())
    assert again["products"] == record["products"], "what the run began with"
