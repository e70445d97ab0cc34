"""Every fast way of scoring against the plain one: same scores, same answers, in any company."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, MobileBertConfig, MobileBertForMaskedLM

from conftest import MASKED
from consilience import Pattern, Query, load_model
from consilience.models import causal
from consilience.models.batches import Budget, equal_length_batches, halving, side_by_side
from consilience.models.candidates import log_softmax
from consilience.models.fast.products import speed_up
from consilience.models.fast.trees import Tree, TreeReader, best_and_gold
from consilience.models.masked import AtMask
from reference import budget_of, decoder_sum

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.mark.parametrize("family", MASKED)
def test_what_is_computed_at_the_mask_only_is_what_the_whole_model_computes(family, model_folder):
    """Largest difference of a logit of size 10 over all families: 2e-5."""
    plain = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    model = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    speed_up(model, head=False, library="onednn")
    fast = AtMask(model)
    assert fast.is_reduced
    rng = np.random.default_rng(1)
    for length in (3, 9, 14):
        ids = torch.from_numpy(rng.integers(0, plain.config.vocab_size, (5, length)))
        at = torch.from_numpy(rng.integers(0, length, 5))
        some = torch.tensor([7, 3, 50])
        with torch.inference_mode():
            expected = plain(input_ids=ids).logits[torch.arange(5), at]
        scale = expected.abs().max()
        whole = fast.logits(ids, at, None)
        assert (whole - expected).abs().max() < 1e-5 * scale
        few = fast.logits(ids, at, fast.head_rows(some))
        assert (few - expected[:, some]).abs().max() < 1e-5 * scale


def test_a_family_that_looks_into_its_weights_keeps_them():
    """MobileBERT's head multiplies its own weights: nothing is packed, nothing broken."""
    torch.manual_seed(0)
    config = MobileBertConfig(
        vocab_size=99, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_size=32, embedding_size=16, intra_bottleneck_size=16,
    )  # fmt: skip
    model = MobileBertForMaskedLM(config).eval()
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        assert speed_up(model, head=True, library="onednn").library == "torch"
        assert torch.equal(model(input_ids=ids).logits, before)
    assert not AtMask(model).is_reduced
    at = torch.tensor([1, 4])
    found = AtMask(model).logits(ids, at, AtMask(model).head_rows(torch.tensor([5, 8])))
    assert torch.equal(found, before[torch.arange(2), at][:, [5, 8]])


def test_batches_have_one_length_and_hold_everything_once():
    lengths = [3, 5, 3, 9, 5, 3]
    batches = list(equal_length_batches(lengths, Budget(6)))
    assert sorted(n for batch in batches for n in batch) == list(range(6))
    for batch in batches:
        assert len({lengths[n] for n in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= 6
    assert list(equal_length_batches([], Budget(6))) == []


def test_normalising_leaves_nan_alone_and_survives_minus_infinity():
    found = log_softmax(np.array([[0.0, np.log(3), np.nan], [-np.inf, 0, 0], [np.nan] * 3]))
    np.testing.assert_allclose(np.exp(found[0, :2]), [0.25, 0.75])
    np.testing.assert_allclose(np.exp(found[1]), [0, 0.5, 0.5])
    assert np.isnan([found[0, 2], *found[2]]).all()


def test_halving_learns_and_gives_up_where_one_is_too_much():
    budget = Budget(1000)

    def work(batch):
        if len(batch) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        return batch.tolist()

    found = halving(work, np.arange(10), 5, budget)
    assert [each for part in found for each in part] == list(range(10))
    assert budget.tokens == 5 * 5 // 2

    def fails(batch):
        sizes.append(len(batch))
        raise error

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)  # more bytes than a process can address: the real allocator's message
    halved = [4, 2, 1]
    for error, expected in (
        (torch.OutOfMemoryError("CUDA out of memory."), halved),
        (caught.value, halved),
        (RuntimeError("shapes do not fit"), [4]),
    ):
        sizes = []
        with pytest.raises(type(error), match=re.escape(str(error))):
            halving(fails, np.arange(4), 5, budget)
        assert sizes == expected


def test_work_side_by_side_comes_in_order_and_leaves_the_threads_as_they_were():
    cpu = torch.device("cpu")
    found = list(side_by_side(lambda n: (n * n, torch.get_num_threads()), iter(range(9)), cpu))
    assert found == [(n, (n * n, 1)) for n in range(9)]
    assert torch.get_num_threads() == 2

    def fails(n):
        return 1 // (3 - n)

    with pytest.raises(ZeroDivisionError):
        list(side_by_side(fails, iter(range(9)), cpu))
    assert torch.get_num_threads() == 2


SENTENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SENTENCES)
def test_a_tree_holds_each_beginning_once(sentences):
    tree = Tree.of(9, sentences)
    beginnings = {tuple(each[:n]) for each in sentences for n in range(1, len(each) + 1)}
    assert len(tree.ids) == len(beginnings) + 1
    for row, sentence in enumerate(sentences):
        nodes = tree.nodes[row, : len(sentence)]
        assert tree.ids[nodes].tolist() == sentence
        assert tree.parents[nodes].tolist() == [0, *nodes[:-1]]
        assert tree.depths[nodes].tolist() == list(range(1, len(sentence) + 1))
        (path,) = tree.paths(nodes[-1:])
        assert path[path >= 0].tolist() == [0, *nodes]
        assert (np.diff(path[path >= 0]) > 0).all(), "parents precede their children"
    followed = {each[:-1] for each in beginnings}
    assert len(tree.inner) == len(followed)
    steps = -np.sqrt(np.arange(len(tree.ids)))
    expected = [sum(steps[n] for n in tree.nodes[r, : len(s)]) for r, s in enumerate(sentences)]
    np.testing.assert_allclose(tree.path_sums(steps), expected)


class Revealed(TreeReader):
    """A reader whose steps are drawn beforehand and shown as their parents are read."""

    def __init__(self, tree, seed):
        self.tree = tree
        self.truth = np.log(np.random.default_rng(seed).uniform(0.05, 1, len(tree.ids)))
        self.truth[0] = 0
        self.steps = np.full(len(tree.ids), np.nan)
        self.steps[0] = 0
        self.seen = np.zeros(len(tree.ids), dtype=bool)

    def is_read(self, nodes):
        return self.seen[nodes]

    def read(self, nodes):
        assert not self.seen[nodes].any(), "a node is read once"
        for node in nodes:
            assert node == 0 or self.seen[self.tree.parents[node]], "a parent is read before"
            self.seen[node] = True
            children = self.tree.parents == node
            assert children.any(), "what nothing follows need not be read"
            self.steps[children] = self.truth[children]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([1, 5, 999]))
def test_pruning_finds_what_scoring_everything_finds(queries, width, seed, fill):
    rng = np.random.default_rng(seed)
    sentences = [rng.integers(0, 4, rng.integers(1, 7)).tolist() for _ in range(queries * width)]
    gold = rng.integers(-1, width, queries)
    reading = Revealed(Tree.of(9, sentences), seed)
    found = best_and_gold(reading, gold, 1e-4, fill)
    whole = reading.tree.path_sums(reading.truth).reshape(queries, width)
    finished = ~np.isnan(found)
    np.testing.assert_allclose(found[finished], whole[finished])
    best = whole.max(axis=1)
    np.testing.assert_allclose(np.nanmax(found, axis=1), best)
    assert finished[np.arange(queries), gold][gold >= 0].all()
    assert finished[whole >= best[:, None] - 1e-4].all(), "what ties with the best is finished"


def test_a_model_that_reads_less_reads_what_it_must(model_folder):
    """Three sentences of two beginnings: 'a b c', 'a b d', 'e f': a, b, e and the start are read."""
    model = load_model(str(model_folder("gpt2")))
    reader = model.tree_scorer.read([[5, 6, 7], [5, 6, 8], [9, 10]])
    reader.read_all()
    assert reader.read_nodes == 4
    expected = model.one_by_one([[5, 6, 7], [5, 6, 8], [9, 10]])
    np.testing.assert_allclose(reader.tree.path_sums(reader.steps), expected, atol=1e-4)


def test_targets_of_all_lengths_are_read_side_by_side(model_folder):
    model = load_model(str(model_folder("t5")))
    targets = [[7, 8, 9], [12, 9], [7, 8, 10, 11, 9], [7, 11, 9]]
    inputs = [[4, 5, 1], [6, 5, 1]]
    sums = [decoder_sum(model.model, ids, model.prefix, one) for ids in inputs for one in targets]
    expected = np.reshape(sums, (2, 4))
    for tokens in (1, 1000):
        with budget_of(model, tokens):
            np.testing.assert_allclose(model.totals(inputs, targets), expected, atol=1e-5, rtol=0)


def test_patterns_with_few_subjects_are_asked_together():
    """5 patterns of 3, 3, 20, 10 and 9 queries, at most 12 or 100 together."""
    pattern = [Pattern.parse(f"[X] {at} [Y].") for at in range(5)]
    sizes = (3, 3, 20, 10, 9)
    counted = zip(pattern, sizes, strict=True)
    queries = [Query(one, f"{n}", "a") for one, size in counted for n in range(size)]
    for most, expected in ((12, [6, 12, 8, 10, 9]), (100, [6, 20, 10, 9])):
        found = list(causal._together(queries, most))
        assert [sum(len(own) for _, _, own in each) for each in found] == expected
        assert [row for each in found for _, _, own in each for row in own] == list(range(45))
        for each in found:
            assert all(queries[row].pattern is p and queries[row].subject == subject
                       for p, subject, own in each for row in own)  # fmt: skip
