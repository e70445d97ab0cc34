"""Which library multiplies: timed, recorded; and no answer depends on it."""

import json
import time
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, BertForMaskedLM

from conftest import WORDS
from consilience import load_model
from consilience.models import batches
from consilience.models.fast import products
from consilience.models.fast.products import processor, speed_up
from reference import QUERIES, scores_of, words_of

pytestmark = [
    pytest.mark.usefixtures("two_threads"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN"),
]


@pytest.mark.parametrize(("usual", "other", "is_faster"), [
    ([2.0, 2.6, 2.4], [1.9, 2.1, 2.1], False),  # 1.14 in the median
    ([2.4, 2.6, 2.5], [1.9, 2.2, 2.0], True),  # 2.5 / 2.0, and 2.4 / 1.9
    ([2.0, 9.0, 9.0], [2.0, 3.0, 3.0], False),  # something else ran: the fastest are equal
    ([2.0, 2.0, 2.0], [1.0, 4.0, 4.0], False),  # faster once, slower in the median
    ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], False),
])  # fmt: skip
def test_a_library_replaces_the_usual_one_where_it_is_clearly_faster(usual, other, is_faster):
    assert products.is_faster(other, usual) is is_faster


def measured_model():
    """A BERT whose largest product is just large enough to be timed: 256 to 512, one layer."""
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
    return BertForMaskedLM(BertConfig(vocab_size=99, num_hidden_layers=1, **shape)).eval()


@pytest.mark.parametrize(("faster", "chosen"), [
    ("torch", "torch"), ("onednn", "onednn"), ("", "onednn"),
])  # fmt: skip
def test_the_largest_product_decides(faster, chosen, monkeypatch):
    timed = []

    def time_them(tokens, into, out):
        timed.append((tokens, into, out, torch.get_num_threads()))
        return {name: [1.0 + (name != faster)] * 3 if faster else [1.0] * 3 for name in
                ("onednn", "torch")}  # fmt: skip

    monkeypatch.setattr(products, "_time", time_them)
    found = speed_up(measured_model(), head=False)
    assert (found.library, found.processor, found.threads) == (chosen, processor(), 2)
    assert set(found.gflops) == {"onednn", "torch"}
    # The products of 256 to 256 together take longer than those of 256 to 512.
    assert timed == [(512, 256, 256, 1)]
    assert torch.get_num_threads() == 2


def test_small_products_are_not_timed(model_folder, monkeypatch):
    monkeypatch.delattr(products, "_time")
    found = speed_up(model_of(model_folder("gpt2"), "gpt2"), head=True)
    assert (found.library, found.gflops) == ("torch", {})


def test_a_real_timing_is_short_and_leaves_the_random_numbers_alone():
    model = measured_model()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    start = time.process_time()
    found = speed_up(model, head=False)
    assert found.library in ("onednn", "torch")
    assert all(speed > 0.1 for speed in found.gflops.values())
    assert time.process_time() - start < 10
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama", "t5"])
def test_both_libraries_give_the_same_answers(family, model_folder, monkeypatch):
    """Near ties are decided with torch's own products, whatever multiplies otherwise."""

    def asked_with(library):
        monkeypatch.setattr(batches, "speed_up", partial(speed_up, library=library))
        model = load_model(str(model_folder(family)))
        assert model.products.library == library
        return scores_of(model, QUERIES[:8], words_of(*WORDS, "New York", "Parisian"))[0]

    one, other = asked_with("onednn"), asked_with("torch")
    np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(np.nanargmax(one, axis=1), np.nanargmax(other, axis=1))
    monkeypatch.setattr(batches, "NEAR_TIE", dict.fromkeys(batches.NEAR_TIE, 1e9))
    np.testing.assert_array_equal(asked_with("onednn"), asked_with("torch"))


def model_of(folder, family):
    auto = AutoModelForMaskedLM if family in ("bert", "roberta") else AutoModelForCausalLM
    return auto.from_pretrained(folder).eval()


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_packed_products_are_the_same_products(family, model_folder):
    plain, model = (model_of(model_folder(family), family) for _ in range(2))
    assert speed_up(model, head=True, library="onednn").library == "onednn"
    weights = [getattr(each, "weight", None) for each in model.modules()]
    packed = [each for each in weights if each is not None and each.is_mkldnn]
    assert len(packed) >= 4 * 2, "the linear layers of both kinds are packed"
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        expected = plain(input_ids=ids).logits
        scale = float(expected.abs().max())
        assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-5 * scale, rtol=0)


def test_a_run_says_what_multiplied_also_resumed_elsewhere(consilience, model_folder, tmp_path):
    run = tmp_path / "run"
    command = ["probe", "--model", str(model_folder("bert")), "--suite", "mini", "--limit", "1"]
    command += ["--groups", "capital", "--protocol", "published", "--out", str(run)]
    assert consilience(*command)[0] == 0
    record = json.loads((run / "run.json").read_text())
    made = {"library": "torch", "processor": processor(), "gflops": {}}
    assert record["products"] == made | {"threads": record["products"]["threads"]}
    assert "products" not in record["settings"], "no answer depends on it"
    record["products"] |= {"library": "onednn", "processor": "Intel Xeon"}
    (run / "run.json").write_text(json.dumps(record))
    assert consilience(*command)[0] == 0
    again = json.loads((run / "run.json").read_text())
    assert again["products"] == record["products"], "what the run began with"
