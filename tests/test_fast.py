"""Every fast way of scoring against the plain one: same scores, same answers, in any company."""

import re
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import WORDS
from consilience import load_model
from consilience.models import batches
from consilience.models.causal import CausalModel, Trie, TrieReader, search
from consilience.models.loading import load_pretrained
from consilience.models.masked import MaskedModel
from consilience.models.seq2seq import Seq2SeqModel
from consilience.models.tokens import log_softmax
from reference import QUERIES, budget_of, decoder_sum, scores_of, words_of

pytestmark = pytest.mark.usefixtures("two_threads")


def test_batches_have_one_length_and_hold_everything_once():
    lengths = [3, 5, 3, 9, 5, 3]
    found = list(batches.equal_length_batches(lengths, batches.Budget(6)))
    assert sorted(n for batch in found for n in batch) == list(range(6))
    for batch in found:
        assert len({lengths[n] for n in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= 6
    assert list(batches.equal_length_batches([], batches.Budget(6))) == []
    sizes = [*map(len, batches.equal_length_batches([1] * 10, batches.Budget(4)))]
    assert sizes == [4, 3, 3], "of one length as equal as they can be"


def test_normalising_leaves_nan_alone_and_survives_minus_infinity():
    found = log_softmax(np.array([[0.0, np.log(3), np.nan], [-np.inf, 0, 0], [np.nan] * 3]))
    np.testing.assert_allclose(np.exp(found[0, :2]), [0.25, 0.75])
    np.testing.assert_allclose(np.exp(found[1]), [0, 0.5, 0.5])
    assert np.isnan([found[0, 2], *found[2]]).all()


def test_halving_learns_and_gives_up_where_one_is_too_much():
    budget = batches.Budget(1000)

    def work(batch):
        if len(batch) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        return batch.tolist()

    found = batches.halving(work, np.arange(10), 5, budget)
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
            batches.halving(fails, np.arange(4), 5, budget)
        assert sizes == expected


def test_work_side_by_side_comes_in_order_and_leaves_the_threads_as_they_were():
    cpu = torch.device("cpu")
    square = lambda n: (n * n, torch.get_num_threads())  # noqa: E731
    found = list(batches.side_by_side(square, iter(range(9)), cpu))
    assert found == [(n, (n * n, 1)) for n in range(9)]
    assert torch.get_num_threads() == 2

    def fails(n):
        return 1 // (3 - n)

    with pytest.raises(ZeroDivisionError):
        list(batches.side_by_side(fails, iter(range(9)), cpu))
    assert torch.get_num_threads() == 2


def test_near_ties_get_the_values_that_they_have_alone():
    values, asked = np.array([[0, -9, np.nan], [-9, 0, -1e-6], [np.nan] * 3]), []

    def alone(row, answers):
        asked.append((row, answers.tolist()))
        return -1.0 * answers

    found = batches.settle(values, 1e-3, alone)
    assert asked == [(1, [1, 2])]
    np.testing.assert_array_equal(found, [[0, -9, np.nan], [-9, -1, -2], [np.nan] * 3])


SENTENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=60)
@given(SENTENCES)
def test_a_trie_holds_each_beginning_once(sentences):
    trie = Trie.of(sentences)
    beginnings = {tuple(each[:n]) for each in sentences for n in range(1, len(each) + 1)}
    assert len(trie.ids) == len(beginnings)
    for row, sentence in enumerate(sentences):
        nodes = trie.nodes[row, : len(sentence)]
        assert trie.ids[nodes].tolist() == sentence
        assert trie.depths[nodes].tolist() == list(range(len(sentence)))
        (path,) = trie.paths(nodes[-1:])
        assert path.tolist() == nodes.tolist()
        assert (np.diff(path) > 0).all(), "parents precede their children"
        for parent, child in pairwise(nodes):
            assert trie.parents[child] == parent
    assert trie.has_children.sum() == len({each[:-1] for each in beginnings} - {()})


@settings(max_examples=80)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([0, 5, 999]))
def test_a_search_finds_what_scoring_everything_finds(queries, width, seed, fill):
    """Of drawn log-probabilities, each shown when its candidate is read on."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, (queries, width))
    truth = np.log(rng.uniform(0.05, 1, (queries, width, 6)))
    truth[np.arange(6) >= lengths[..., None]] = 0
    steps = np.where(np.arange(6) < lengths[..., None], np.nan, 0)
    finish = rng.random((queries, width)) < 0.2

    def read_next(chosen, first, depth):
        at = (*np.nonzero(chosen), first[chosen])
        assert len(at[0])
        assert np.isnan(steps[at]).all(), "a token is read once"
        for *text, token in zip(*at, strict=True):
            steps[*text, token : token + depth] = truth[*text, token : token + depth]

    found = search(lambda: steps, finish, 1e-4, read_next, fill)
    whole, finished = truth.sum(axis=2), ~np.isnan(found)
    np.testing.assert_allclose(found[finished], whole[finished])
    best = whole.max(axis=1)
    np.testing.assert_allclose(np.nanmax(found, axis=1), best)
    assert finished[finish].all()
    assert finished[whole >= best[:, None] - 1e-4].all(), "what ties with the best is finished"


@pytest.mark.parametrize("tokens", [1, 3, 100])
def test_a_model_reads_what_texts_begin_with_once(tokens, model_folder):
    """'a b c', 'a b d', 'a e f': the probabilities after 'a' and after 'a b', in few passes."""
    scorer = load_model(str(model_folder("gpt2"))).scorer
    scorer.budget = batches.Budget(tokens)
    texts, skips = [[5, 6, 7], [5, 6, 8], [5, 9, 10]], [1, 2, 1]
    found = scorer.totals([([5], [[6, 7]]), ([5, 6], [[8]]), ([5], [[9, 10]])])
    expected = batches.text_logprobs(scorer.model, texts, skips, batches.Budget(100))
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-4)
    whole = batches.text_logprobs(scorer.model, texts, [1] * 3, batches.Budget(100))
    reader, left = TrieReader(scorer, Trie.of(texts)), [1]

    def scarce(states):
        if left and len(states) > left.pop():
            raise torch.OutOfMemoryError("out of memory")
        return head(states)

    head, scorer.head = scorer.head, scarce
    reader.read(np.arange(len(reader.trie.ids)))
    assert reader.read_nodes == 3, "a, b and e, also in halves"
    np.testing.assert_allclose(reader.steps[reader.trie.nodes].sum(axis=1), whole, atol=1e-4)


def test_targets_of_all_lengths_are_read_side_by_side(model_folder):
    model = load_model(str(model_folder("t5")))
    targets = [[7, 8, 9], [12, 9], [7, 8, 10, 11, 9], [7, 11, 9]]
    inputs = [[4, 5, 1], [6, 5, 1]]
    sums = [decoder_sum(model.model, ids, model.prefix, one) for ids in inputs for one in targets]
    expected = np.reshape(sums, (2, 4))
    for tokens in (1, 1000):
        with budget_of(model, tokens):
            found = model.scorer.totals([(ids, targets) for ids in inputs])
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_no_score_depends_on_where_weights_begin_in_memory(family, model_folder, monkeypatch):
    """The order of MKL's sums does, so weights that torch did not allocate are copied."""
    monkeypatch.setattr(batches, "NEAR_TIE", {torch.float32: 1e9})
    loaded = load_pretrained(str(model_folder(family)))
    for weight in loaded.model.parameters():
        weight.data = torch.empty(weight.numel() + 1)[1:].view_as(weight).copy_(weight)
    moved = {"causal": CausalModel, "seq2seq": Seq2SeqModel}.get(
        loaded.kind, partial(MaskedModel, protocol="strict")
    )(loaded)
    assert not any(weight.data_ptr() % batches.ALIGNED for weight in moved.model.parameters())
    usual, words = load_model(str(model_folder(family))), words_of(*WORDS, "New York", "Parisian")
    found, expected = (scores_of(one, QUERIES[:8], words)[0] for one in (moved, usual))
    np.testing.assert_array_equal(found, expected)
