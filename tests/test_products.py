"""Which library multiplies: measured, remembered, recorded; and no answer depends on it."""

import json
import time
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from conftest import WORDS
from consilience import load_model
from consilience.models import batches, scoring
from consilience.models.fast import onednn, onednn_training, speed_up, speed_up_training
from consilience.models.fast.libraries import Shape, clearly_faster, measured_products, time_in_turn
from consilience.models.sources import cache_folder, processor
from reference import QUERIES, scores_of, words_of

pytestmark = [
    pytest.mark.usefixtures("two_threads"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN"),
]

LARGE = Shape(1000, 500)
"""A shape whose products are measured: 10^6 operations a token, 512 tokens."""


@pytest.mark.parametrize(
    ("usual", "other", "chosen"),
    [
        ([2.0, 2.2, 2.1], [1.9, 2.1, 2.0], "usual"),  # 5 % exactly in the median: 2.1 / 2.0
        ([2.0, 2.2, 2.1], [1.8, 2.1, 1.9], "other"),  # 2.1 / 1.9, and 2.0 / 1.8
        ([2.0, 9.0, 9.0], [2.0, 3.0, 3.0], "usual"),  # something else ran: the fastest are equal
        ([2.0, 2.0, 2.0], [1.0, 4.0, 4.0], "usual"),  # faster once, slower in the median
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], "usual"),
    ],
)
def test_a_library_replaces_the_usual_one_where_it_is_clearly_faster(usual, other, chosen):
    seconds = {"usual": usual, "other": other}
    assert clearly_faster(seconds, "usual", 1.0500001) == chosen


def test_each_shape_counts_as_often_as_the_model_has_it_and_the_first_round_does_not():
    calls = []

    def sleeping(name, seconds):
        def work():
            calls.append(name)
            time.sleep(seconds)

        return work

    few, many = Shape(1, 1), Shape(2, 2)
    ways = {
        few: {"onednn": sleeping("few onednn", 0.002), "torch": sleeping("few torch", 0.001)},
        many: {"onednn": sleeping("many onednn", 0.001), "torch": sleeping("many torch", 0.002)},
    }
    seconds = time_in_turn(ways, {few: 1, many: 9})
    assert calls[:4] == ["few onednn", "many onednn", "few torch", "many torch"]
    rounds = len(calls) // 4
    assert len(seconds["onednn"]) == len(seconds["torch"]) == rounds - 1 >= 3
    assert all(each >= 0.002 + 9 * 0.001 for each in seconds["onednn"])
    assert all(each >= 0.001 + 9 * 0.002 for each in seconds["torch"])
    assert clearly_faster(seconds, "torch") == "onednn"


class Counted:
    """Work of two libraries that is counted, and of which one is ten times as long."""

    def __init__(self, faster):
        self.faster, self.calls = faster, 0

    def __call__(self, shape, tokens):
        return {name: self.work(0.001 if name == self.faster else 0.01) for name in self.names}

    names = ("onednn", "torch")

    def work(self, seconds):
        def run():
            self.calls += 1
            time.sleep(seconds)

        return run


def test_a_choice_is_remembered_for_the_machine_the_shapes_and_the_purpose():
    shapes = {LARGE: 3}
    ways = Counted("torch")
    first = measured_products(shapes, "inference", ways)
    assert (first.library, first.threads) == ("torch", 2)
    assert set(first.gflops) == {"onednn", "torch"}
    assert first.processor == processor() != ""
    measured, ways.faster = ways.calls, "onednn"
    assert measured >= 4 * 2
    assert measured_products(shapes, "inference", ways) == first
    assert ways.calls == measured, "nothing was measured again"
    assert measured_products({LARGE: 4}, "inference", ways).library == "onednn"
    assert measured_products(shapes, "training", ways).library == "onednn"
    torch.set_num_threads(1)
    assert measured_products(shapes, "inference", ways).threads == 1
    torch.set_num_threads(2)
    files = sorted(cache_folder().glob("products-*.json"))
    for content in ("[]", '{"library": "mkl"}', '{"library": 1', json.dumps({"gflops": None})):
        for file in files:
            file.write_text(content)
        ways.calls = 0
        assert measured_products(shapes, "inference", ways).library == "onednn"
        assert ways.calls >= 4 * 2, "what cannot be read is measured again"


def test_small_products_are_not_measured():
    ways = Counted("torch")
    found = measured_products({Shape(32, 64): 12}, "inference", ways)
    assert (found.library, found.gflops, ways.calls) == ("onednn", {}, 0)


def test_a_real_measurement_is_short_and_leaves_the_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    start = time.process_time()
    shapes = {Shape(384, 384): 4, Shape(384, 1536, "gelu"): 1, Shape(1536, 384): 1}
    for purpose, work in (
        ("inference", onednn._inference_work),
        ("training", onednn_training._training_work),
    ):
        found = measured_products(shapes, purpose, work)
        assert found.library in ("onednn", "torch")
        assert all(speed > 0.1 for speed in found.gflops.values())
    assert time.process_time() - start < 10
    assert torch.equal(torch.rand(2), expected)


FAMILIES = ["bert", "roberta", "gpt2", "llama", "t5"]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_libraries_give_the_same_answers_and_near_ties_to_the_last_bit(
    family, model_folder, monkeypatch
):
    """Near ties are decided with torch's own products, whatever multiplies otherwise."""

    def asked_with(library):
        monkeypatch.setattr(scoring, "speed_up", partial(speed_up, library=library))
        model = load_model(str(model_folder(family)))
        assert model.products.library == library
        return scores_of(model, QUERIES[:8], words_of(*WORDS, "New York", "Parisian"))[0]

    one, other = asked_with("onednn"), asked_with("torch")
    np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(np.nanargmax(one, axis=1), np.nanargmax(other, axis=1))
    monkeypatch.setattr(scoring, "NEAR_TIE", dict.fromkeys(batches.NEAR_TIE, 1e9))
    np.testing.assert_array_equal(asked_with("onednn"), asked_with("torch"))


def model_of(folder, family):
    auto = AutoModelForMaskedLM if family in ("bert", "roberta") else AutoModelForCausalLM
    return auto.from_pretrained(folder).eval()


@pytest.mark.parametrize(
    ("family", "name"), [("bert", "gelu"), ("gpt2", "gelu_tanh"), ("roberta", "gelu")]
)
def test_an_activation_behind_a_linear_layer_is_computed_in_its_product(family, name, model_folder):
    plain, model = (model_of(model_folder(family), family) for _ in range(2))
    _, linears = onednn._look_into(plain)
    assert set(linears.activation.values()) == {name}
    assert len(linears.followers) >= plain.config.num_hidden_layers
    assert speed_up(model, head=False, library="onednn").library == "onednn"
    fused = [each for each in model.modules() if "forward" in vars(each)]
    followers = [each for each in fused if not hasattr(each, "weight")]
    assert len(followers) == len(linears.followers)
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        expected = plain(input_ids=ids).logits
        scale = float(expected.abs().max())
        assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-5 * scale, rtol=0)


def test_a_model_that_was_packed_before_needs_no_pass(model_folder, monkeypatch, tmp_path):
    """The check is remembered for the digest of a model, and a damaged memory is made again."""
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    passes, passed = [], onednn._logits
    monkeypatch.setattr(onednn, "_logits", lambda model: (passes.append(1), passed(model))[1])

    def packed(digest):
        passes.clear()
        model = model_of(model_folder("gpt2"), "gpt2")
        identity = {"digest": digest}
        chosen = speed_up(model, head=True, library="onednn", identity=identity)
        assert chosen.library == "onednn"
        with torch.inference_mode():
            logits = model(input_ids=torch.arange(12).reshape(2, 6)).logits
        names = {name for name, each in model.named_modules() if "forward" in vars(each)}
        return len(passes), names, logits

    (first, names, logits), (again, names_again, logits_again) = packed("one"), packed("one")
    assert (first, again, packed("another")[0]) == (2, 0, 2)
    assert names == names_again
    assert torch.equal(logits, logits_again)
    for file in tmp_path.glob("head-packed-*.json"):
        file.write_text('{"activation": {"lost": "gelu"}, "followers": []}')
    assert packed("one")[:2] == (2, names)


class _AlsoRead(torch.nn.Module):
    """A layer whose output is read by its activation and by something else."""

    def __init__(self, own):
        super().__init__()
        self.dense, self.act = own.dense, own.intermediate_act_fn

    def forward(self, hidden):
        hidden = self.dense(hidden)
        return self.act(hidden) + hidden


def test_an_activation_whose_input_something_else_reads_stays_by_itself(model_folder):
    model = model_of(model_folder("bert"), "bert")
    for layer in model.bert.encoder.layer:
        layer.intermediate = _AlsoRead(layer.intermediate)
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        assert speed_up(model, head=False, library="onednn").library == "onednn"
        found = model(input_ids=ids).logits
    scale = float(expected.abs().max())
    assert torch.allclose(found, expected, atol=1e-5 * scale, rtol=0)
    layer = model.bert.encoder.layer[0].intermediate
    assert "forward" in vars(layer.dense), "the layer is packed"
    assert "forward" not in vars(layer.act), "its activation is not part of it"


def test_training_multiplies_with_what_was_chosen(model_folder):
    model = model_of(model_folder("bert"), "bert")
    assert speed_up_training(model, "torch").library == "torch"
    assert not [each for each in model.modules() if "forward" in vars(each)]
    assert speed_up_training(model, "onednn").library == "onednn"
    assert len([each for each in model.modules() if "forward" in vars(each)]) >= 12


def test_a_run_says_what_multiplied_and_one_resumed_elsewhere_says_that_too(
    consilience, model_folder, tmp_path
):
    run = tmp_path / "run"
    command = ["probe", "--model", str(model_folder("bert")), "--suite", "mini", "--limit", "1"]
    command += ["--groups", "capital", "--protocol", "published", "--out", str(run)]
    assert consilience(*command)[0] == 0
    record = json.loads((run / "run.json").read_text())
    assert record["products"] == {
        "library": "onednn",
        "processor": processor(),
        "threads": record["products"]["threads"],
        "gflops": {},
    }
    assert "products" not in record["settings"], "no answer depends on it"
    record["products"] |= {"library": "torch", "processor": "Intel Xeon"}
    (run / "run.json").write_text(json.dumps(record))
    assert consilience(*command)[0] == 0
    again = json.loads((run / "run.json").read_text())
    assert again["products"] == record["products"], "what the run began with"
    note = f"resumed with products of onednn on {processor()}, not torch on Intel Xeon"
    assert note in again["warnings"]
