"""The example that trains small masked models: its data by hand, a model that loads, resuming."""

import json
import sys

import numpy as np
import pytest
import torch

from checks import refused
from conftest import ROOT, SENTENCES
from consilience.models import load_model
from consilience.suites import load_suite

sys.path.insert(0, str(ROOT / "examples/corpus-size"))
import pretrain
from pretrain import CLS, MASK, SEP, Corpus, Recipe, mask, sentences_of, split_articles, window

ARTICLE = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
SIZES = {"tokens": 64, "layers": 1, "width": 64, "vocabulary": 90}
RECIPE = Recipe(updates=6, **SIZES, peak=1e-3, longest=16, evaluations=3)
SETTINGS = {"share": 1.0, "seed": 1}


def test_windows_hold_whole_sentences_that_end_at_a_full_stop_and_a_capital():
    assert window(ARTICLE, 0, 7) == [CLS, 10, 11, 12, 20, 21, SEP]
    assert window(ARTICLE, 0, 10) == [CLS, 10, 11, 12, 20, 21, SEP]
    assert window(ARTICLE, 1, 64) == [CLS, 20, 21, 30, 31, 32, 33, SEP]
    assert window(ARTICLE, 2, 5) == [CLS, 30, 31, 32, SEP]  # one long sentence is truncated
    text = "J. S. Bach was born c. 1685. He died in 1750! (Some doubt it.)"
    assert sentences_of(text)[-2:] == ["He died in 1750!", "(Some doubt it.)"]
    assert " ".join(sentences_of(text)) == text


def test_smaller_shares_are_part_of_larger_ones():
    small, aside = split_articles(1000, 0.02, 0.01, 1)
    large, also_aside = split_articles(1000, 0.02, 0.1, 1)
    everything, _ = split_articles(1000, 0.02, 1.0, 1)
    assert [len(small), len(large), len(everything), len(aside)] == [10, 98, 980, 20]
    assert small.tolist() == large[:10].tolist()
    assert sorted([*everything, *aside]) == list(range(1000))
    other_seed, aside_of_it = split_articles(1000, 0.02, 0.01, 2)
    assert aside.tolist() == also_aside.tolist() == aside_of_it.tolist()
    assert set(other_seed.tolist()) != set(small.tolist())


def test_masks_hide_the_right_tokens():
    rows = [[CLS, *range(100, 200), SEP], [CLS, *range(200, 300), SEP], [CLS, 5, SEP]]
    ids, chosen, gold = mask(rows, RECIPE, 1000, np.random.default_rng(0))
    whole = torch.tensor([row + [0] * (102 - len(row)) for row in rows])
    assert len(chosen) == 30  # 15 % of 201
    assert whole.flatten()[chosen].tolist() == gold.tolist() and min(gold) > MASK
    hidden = ids.flatten()[chosen]
    assert 18 <= int((hidden == MASK).sum()) <= 29  # 80 %
    changed = (ids != whole).flatten().nonzero().flatten()
    assert set(changed.tolist()) <= set(chosen.tolist())


def test_the_output_bias_starts_at_the_frequencies():
    shares = Corpus([[[5, 6], [5]]]).log_frequencies(7).exp()
    assert shares.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.2])


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Two models of one update each, trained by the command."""
    folder = tmp_path_factory.mktemp("family")
    lines = [json.dumps({"text": f"{one} {two}"}) for one in SENTENCES for two in SENTENCES]
    (folder / "leads.jsonl").write_text("\n".join(lines), encoding="utf-8")
    threads = torch.get_num_threads()
    options = {"shares": "10,100", "seeds": "3", "updates": 2, "rate": 1e-3} | SIZES
    pretrain.main(folder / "leads.jsonl", folder / "models", **options)
    torch.set_num_threads(threads)
    return folder / "models"


def test_a_trained_model_answers(family):
    record = json.loads((family / "share-010/seed-3/training.json").read_text())
    assert record["articles"] == 7  # a tenth of the 64 articles without 2 held out, rounded up
    assert record["final"]["update"] == 2
    assert record["best"]["held_out"] == min(row["held_out"] for row in record["history"])
    assert (record["settings"]["share"], len(record["settings"]["corpus"])) == (0.1, 64)
    other = json.loads((family / "share-100/seed-3/training.json").read_text())
    assert other["tokens"] > record["tokens"]
    model = load_model(str(family / "share-100/seed-3/best"))
    relation = load_suite("mini").relations[0]
    query = relation.query(relation.patterns[0], relation.facts[0])
    assert len(list(model.score([query], relation.candidates))) == 1


def test_an_interrupted_training_ends_the_same(family, tmp_path, monkeypatch):
    tokenizer = pretrain.PreTrainedTokenizerFast.from_pretrained(family / "tokenizer")
    articles = pretrain.encode(tokenizer, [" ".join(SENTENCES)] * 20)

    def training(name, settings=SETTINGS):
        (tmp_path / name).mkdir(exist_ok=True)
        return pretrain.Training(tmp_path / name, RECIPE, settings, tokenizer, articles)

    whole = training("whole")
    whole.run()
    interrupted = training("parts")
    evaluate = interrupted._evaluate
    stops = iter([None, KeyboardInterrupt])
    monkeypatch.setattr(interrupted, "_evaluate", lambda loss: stop(next(stops), evaluate, loss))
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(every=-1)
    resumed = training("parts")
    resumed.run()
    assert resumed.history == whole.history
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
    half = training("parts", SETTINGS | {"share": 0.5})
    refused("its share is 1.0, this command's is 0.5", half.run)


def stop(fault, evaluate, loss):
    if fault:
        raise fault
    evaluate(loss)


@pytest.mark.parametrize(("content", "message"), [
    ('{"text": "a"}\n{"title": "b"}', "leads.jsonl:2"),
    ('{"text": "a"}', "at least 10"),
    ("", "0 articles"),
])  # fmt: skip
def test_wrong_texts_are_named(tmp_path, content, message):
    (tmp_path / "leads.jsonl").write_text(content, encoding="utf-8")
    refused(message, pretrain.read_texts, tmp_path / "leads.jsonl")
    refused("'1,x'", pretrain.numbers, "1,x", float, 100)
