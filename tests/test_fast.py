"""Every fast way of scoring against the plain one: same scores, same answers, in any company."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM

from conftest import MASKED, WORDS
from consilience import Candidates, Pattern, Query, load_model
from consilience.models import batches, causal, masked
from consilience.models.batches import Budget, halving, side_by_side
from consilience.models.fast import AtMask, Tree, speed_up
from consilience.models.fast.tree_reader import TreeReader, best_and_gold

pytestmark = pytest.mark.usefixtures("two_threads")

CANDIDATES = Candidates((*WORDS, "New York", "New Oslo", "Parisian"), (1,) * 9)
PATTERNS = [
    Pattern.parse(text)
    for text in (
        "The capital of [X] is [Y].",
        "[Y] is the capital of [X].",
        "[X]'s capital, [Y], is in Europe.",
    )
]
SUBJECTS = ["France", "Germany", "the old Italy", "Europe", "x", "Spain and Portugal"]
QUERIES = [Query(p, s, WORDS[n % 6]) for p in PATTERNS for n, s in enumerate(SUBJECTS)]
CAUSAL = ["gpt2", "llama"]


def scores_of(model, queries=QUERIES, *, every=True):
    """What is known of each candidate (query, candidate); the total where there is one."""
    found = np.full((len(queries), len(CANDIDATES.words)), np.nan)
    for scores in model.score(queries, CANDIDATES, every=every):
        found[scores.rows] = scores.logprob if scores.totals is None else scores.totals
    return found


@pytest.mark.parametrize("family", MASKED)
def test_what_is_computed_at_the_mask_only_is_what_the_whole_model_computes(family, model_folder):
    """Largest difference of a logit of size 10 over all families: 2e-5."""
    plain = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    model = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    speed_up(model, head=False)
    fast = AtMask(model)
    assert fast.saved == ("head" if family == "fnet" else "last layer and head")
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


def test_a_family_that_cannot_be_cut_is_asked_plainly_and_the_run_says_so(model_folder):
    model = load_model(str(model_folder("fnet")))
    assert model.notes == [
        "this family computes its last layer at every token, not at the mask only"
    ]
    assert load_model(str(model_folder("bert"))).notes == []


def test_a_family_that_looks_into_its_weights_keeps_them():
    """MobileBERT's head multiplies its weights by itself: nothing is packed, nothing broken."""
    from transformers import MobileBertConfig, MobileBertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "embedding_size": 16, "intra_bottleneck_size": 16}
    config = MobileBertConfig(
        vocab_size=99, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, **sizes
    )
    model = MobileBertForMaskedLM(config).eval()
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        assert speed_up(model, head=True).library == "torch"
        assert torch.equal(model(input_ids=ids).logits, before)
    assert AtMask(model).saved == "nothing"
    at = torch.tensor([1, 4])
    rows = AtMask(model).head_rows(torch.tensor([5, 8]))
    found = AtMask(model).logits(ids, at, rows)
    assert torch.equal(found, before[torch.arange(2), at][:, [5, 8]])


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_packed_products_are_the_same_products(model_folder):
    for family in ("bert", "gpt2"):
        model = load_model(str(model_folder(family))).model
        weights = [getattr(each, "weight", None) for each in model.modules()]
        packed = [each for each in weights if each is not None and each.is_mkldnn]
        assert len(packed) >= 4 * 2, "the linear layers of both kinds are packed"


@pytest.mark.parametrize("family", ["bert", "roberta", *CAUSAL])
def test_batches_order_threads_and_repeats_change_no_answer(family, model_folder):
    model = load_model(str(model_folder(family)))
    expected = scores_of(model)
    answers = np.nanargmax(expected, axis=1)
    before = model.budget.tokens
    for tokens in (1, 7, 40, 100_000):
        model.budget.tokens = tokens
        for every in (True, False):
            found = scores_of(model, every=every)
            known = ~np.isnan(found)
            np.testing.assert_allclose(found[known], expected[known], atol=1e-4, rtol=1e-5)
            np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers)
    model.budget.tokens = before
    order = np.random.default_rng(0).permutation(len(QUERIES))
    found = scores_of(model, [QUERIES[n] for n in order])
    np.testing.assert_array_equal(np.nanargmax(found, axis=1), answers[order])
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        np.testing.assert_array_equal(np.nanargmax(scores_of(model), axis=1), answers)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("family", ["bert", *CAUSAL])
def test_a_near_tie_is_decided_alone_so_to_the_last_bit_the_same(family, model_folder, monkeypatch):
    """With a bound that makes every query a near tie, no company moves a single bit."""
    everything = dict.fromkeys(batches.NEAR_TIE, 1e9)
    monkeypatch.setattr(masked, "NEAR_TIE", everything)
    monkeypatch.setattr(causal, "NEAR_TIE", everything)
    model = load_model(str(model_folder(family)))
    together = scores_of(model, QUERIES[:8])
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))
    model.budget.tokens = 9
    apart = np.concatenate([scores_of(model, [query]) for query in QUERIES[:8]])
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_when_memory_does_not_suffice_batches_are_halved(family, model_folder, monkeypatch):
    model = load_model(str(model_folder(family)))
    expected = scores_of(model)
    forward, sizes = model.model.base_model.forward, []

    def small_machine(*args, **kwargs):
        ids = args[0] if args else kwargs["input_ids"]
        if ids.numel() > 30:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        sizes.append(ids.numel())
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.model.base_model, "forward", small_machine)
    found = scores_of(model)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)
    assert max(sizes) <= 30
    assert model.budget.tokens <= 30, "later batches are small from the start"


def test_halving_learns_and_gives_up_where_one_is_too_much():
    budget = Budget(1000)

    def work(batch):
        if len(batch) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        return batch.tolist()

    found = halving(work, np.arange(10), 5, budget)
    assert [each for part in found for each in part] == list(range(10))
    assert budget.tokens == 5 * 5 // 2

    def never(batch):
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        halving(never, np.arange(4), 5, budget)

    def other(batch):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        halving(other, np.arange(4), 5, budget)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are Linux's")
def test_a_processor_that_runs_out_of_memory_says_so_in_words_that_are_understood():
    """The real allocator, in a process of little memory."""
    code = """
import resource, torch
from consilience.models.batches import _out_of_memory
resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
try:
    torch.empty(2**34)
except RuntimeError as error:
    raise SystemExit(0 if _out_of_memory(error) else str(error))
raise SystemExit("no error")
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_work_side_by_side_comes_in_order_and_leaves_the_threads_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    cpu = torch.device("cpu")
    found = list(side_by_side(lambda n: (n * n, torch.get_num_threads()), iter(range(9)), cpu))
    assert found == [(n, (n * n, 1)) for n in range(9)]
    assert torch.get_num_threads() == 2

    def fails(n):
        return 1 // (3 - n)

    results = side_by_side(fails, iter(range(9)), cpu)
    with pytest.raises(ZeroDivisionError):
        list(results)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


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
        assert (np.diff(path[path >= 0]) > 0).all(), "parents stand first"
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


@pytest.mark.parametrize("family", CAUSAL)
def test_answers_only_are_those_of_all_scores_and_the_gold_has_its_score(family, model_folder):
    model = load_model(str(model_folder(family)))
    every = scores_of(model)
    few = scores_of(model, every=False)
    finished = ~np.isnan(few)
    assert 0 < finished.sum() < finished.size, "something is left out"
    np.testing.assert_allclose(few[finished], every[finished], atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(np.nanargmax(few, axis=1), every.argmax(axis=1))
    golds = [CANDIDATES.words.index(query.gold) for query in QUERIES]
    assert finished[np.arange(len(QUERIES)), golds].all()
    assert (every[~finished] < np.repeat(every.max(1), (~finished).sum(1))).all()


def test_a_model_that_reads_less_reads_what_it_must(model_folder):
    """Three sentences of two beginnings: 'a b c', 'a b d', 'e f': a, b, e and the start are read."""
    model = load_model(str(model_folder("gpt2")))
    reader = model.tree_scorer.read([[5, 6, 7], [5, 6, 8], [9, 10]])
    reader.read_all()
    assert reader.read_nodes == 4
    np.testing.assert_allclose(
        reader.tree.path_sums(reader.steps),
        model.one_by_one([[5, 6, 7], [5, 6, 8], [9, 10]]),
        atol=1e-4,
    )


def test_patterns_with_few_subjects_are_asked_together():
    """5 patterns of 3, 3, 20, 10 and 9 queries, at most 12 or 100 together."""
    pattern = [Pattern.parse(f"[X] {at} [Y].") for at in range(5)]
    sizes = (3, 3, 20, 10, 9)
    queries = [
        Query(p, f"{n}", "a") for p, size in zip(pattern, sizes, strict=True) for n in range(size)
    ]
    rows = {p: [at for at, each in enumerate(queries) if each.pattern == p] for p in pattern}
    for most, expected in ((12, [6, 12, 8, 10, 9]), (100, [6, 20, 10, 9])):
        found = list(causal._together(queries, rows, most))
        assert [sum(len(own) for _, _, own in each) for each in found] == expected
        assert [row for each in found for _, _, own in each for row in own] == list(range(45))
        for each in found:
            assert all(queries[row].pattern is p and queries[row].subject == subject
                       for p, subject, own in each for row in own)  # fmt: skip


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("family", ["bert", "roberta", *CAUSAL])
def test_an_accelerator_gives_the_same_scores(family, model_folder):
    here = scores_of(load_model(str(model_folder(family)), device="cpu"))
    there = scores_of(load_model(str(model_folder(family)), device="cuda"))
    np.testing.assert_allclose(here, there, atol=1e-3, rtol=1e-4)
