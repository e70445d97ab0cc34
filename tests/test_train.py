"""The parts of a consistency training: losses by hand, steps that repeat, plans that are refused."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from checks import refused
from conftest import WORDS, cases
from consilience import Candidates, Fact, Pattern, Relation, Suite
from consilience.core.errors import Loading
from consilience.models.batches import head_at
from consilience.models.loading import load_pretrained
from consilience.options.training import ImproveOptions
from consilience.train import consistency
from consilience.train.consistency import (
    HELD_OUT,
    ConsistencyTrainer,
    Steps,
    Training,
    fact_items,
    pairs_loss,
    plain_copy,
    rank,
    text_losses,
    vote_loss,
)
from consilience.train.improvement import train_and_measure

TEXTS = ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital is [Y].")
PATTERNS = tuple(map(Pattern.parse, TEXTS))


def relation(id_, subjects="abcdefghijkl"):
    facts = tuple(Fact(s, f"{id_} {s}", WORDS[n % len(WORDS)]) for n, s in enumerate(subjects))
    return Relation(id_, id_, "N-1", PATTERNS, facts, {}, Candidates.of(facts))


SUITE = Suite("hand", tuple(map(relation, ("A", "B", "C", "D"))), "strict")
OPTIONS = ImproveOptions(
    model="model", suite="suite", train_groups=("A", "B"), validation_groups=("C",), loss="pairs", train_facts=8, batch_size=4, epochs=4,
    learning_rate=3e-3, seeds=(42,),
)  # fmt: skip


def training(spec, suite=SUITE, lines=(), **change):
    """A training by ``OPTIONS`` with some changes."""
    return Training(replace(OPTIONS, model=str(spec), **change), suite, lines).with_defaults()


def train(spec, folder, suite=SUITE, lines=(), **change):
    """Improve a model."""
    asked = training(spec, suite, lines, **change)
    asked.check()
    return train_and_measure(asked, folder)


def trainer_of(spec, folder, suite=SUITE, **change):
    """A trainer before its first step."""
    return ConsistencyTrainer(training(spec, suite, device="cpu", **change), folder)


def loaded(folder):
    return load_pretrained(str(folder), Loading("cpu"))


@pytest.fixture
def bert(model_folder):
    return loaded(model_folder("bert"))


@pytest.fixture
def gpt2(model_folder):
    return loaded(model_folder("gpt2"))


def logits(*shares):
    return torch.tensor(shares).log()


def test_the_loss_by_hand():
    """KL(p || q) + KL(q || p) = sum (p - q) log(p / q); here (.5 - .25) log 2 + (.5 - .75) log 2/3.

    Two facts: their mean. Three patterns: the mean of three pairs.
    """
    expected = 0.25 * math.log(2) - 0.25 * math.log(2 / 3)
    one, same = logits([[0.5, 0.5], [0.25, 0.75]]), logits([[0.5, 0.5], [0.5, 0.5]])
    assert pairs_loss(one).item() == pytest.approx(expected, rel=1e-5)
    assert pairs_loss(torch.cat([one, same])).item() == pytest.approx(expected / 2, rel=1e-5)
    p, q, r = ([0.5, 0.5], [0.25, 0.75], [0.9, 0.1])
    pairs = [pairs_loss(logits([a, b])).item() for a, b in ((p, q), (p, r), (q, r))]
    assert pairs_loss(logits([p, q, r])).item() == pytest.approx(sum(pairs) / 3, rel=1e-5)


def test_the_vote_by_hand():
    """(.8 .2) and (.6 .4) say (.7 .3); sharpened (.49 .09) / .58; then KL from it to each."""
    teacher = logits([[0.8, 0.2], [0.6, 0.4]])
    votes = [0.49 / 0.58, 0.09 / 0.58]
    student = [[0.5, 0.5], [0.9, 0.1]]
    apart = [sum(v * math.log(v / p) for v, p in zip(votes, ps, strict=True)) for ps in student]
    assert vote_loss(logits(student), teacher).item() == pytest.approx(sum(apart) / 2, rel=1e-5)
    assert vote_loss(logits([votes, votes]), teacher).item() == pytest.approx(0, abs=1e-6)
    two = torch.cat([logits(student), logits([votes, votes])])
    assert vote_loss(two, torch.cat([teacher, teacher])).item() == pytest.approx(sum(apart) / 4)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_the_loss_is_not_negative_and_ignores_order_and_constants(facts, patterns, words, seed):
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(facts, patterns, words, generator=generator)
    loss = pairs_loss(found).item()
    assert loss >= -1e-6
    constants = torch.randn(facts, patterns, 1, generator=generator)
    moved = found[torch.randperm(facts, generator=generator)] + constants
    moved = moved[:, torch.randperm(patterns, generator=generator)]
    assert pairs_loss(moved).item() == pytest.approx(loss, rel=1e-4, abs=1e-5)
    same = found[:, :1].expand(-1, patterns, -1)
    assert pairs_loss(same).item() == pytest.approx(0, abs=1e-5)


def steps_of(model, suite=SUITE, lines=(), **change):
    change = {"train_groups": ("A",), "epochs": 2, "seeds": (1,), **change}
    return Steps(training("model", suite, lines, **change), model)


def test_every_fact_is_in_one_step_of_an_epoch_and_relations_take_turns(bert):
    steps = steps_of(bert, train_groups=("A", "B"))
    assert len(steps) == 2 * 2 * 2
    read = [[item.texts[0] for item in items] for items in steps.steps]
    names = [{text.split()[3] for text in texts} for texts in read]
    assert names == [{"A"}, {"B"}] * 4
    for at in (0, 1):
        for epoch in (read[:4], read[4:]):
            assert len({text for texts in epoch[at::2] for text in texts}) == 8
    one, again = steps_of(bert), steps_of(bert)
    other = steps_of(bert, seeds=(2,))
    assert one[3]["input_ids"].equal(again[3]["input_ids"])
    assert not one[3]["input_ids"].equal(other[3]["input_ids"])


def test_the_positions_of_masks_in_questions_and_in_text(bert):
    tokenizer, steps = bert.tokenizer, steps_of(bert)
    step = steps[0]
    at_masks = step["input_ids"][step["rows"], step["columns"]]
    asked = step["shape"][0] * step["shape"][1]
    assert asked == step["answered"] == 12
    assert (at_masks[:asked] == tokenizer.mask_token_id).all()
    assert len(step["labels"]) == len(at_masks) - asked
    text = step["input_ids"].clone()[asked:]
    text[step["rows"][asked:] - asked, step["columns"][asked:]] = step["labels"]
    filled = tokenizer(steps.steps[0][0].texts[0])["input_ids"]
    assert text[0, : len(filled)].tolist() == filled
    assert step["attention_mask"].sum() == (step["input_ids"] != tokenizer.pad_token_id).sum()


def test_a_causal_model_is_read_after_what_precedes_the_object(gpt2):
    """Two of the three patterns end in the object; the answer is read at their last token."""
    tokenizer = gpt2.tokenizer
    steps = steps_of(gpt2, train_facts=2, batch_size=2, epochs=1)
    asks, texts = steps.steps[0][0].asks, steps.steps[0][0].texts
    assert (len(asks), len(texts)) == (2, 3)
    words = [tokenizer.decode([int(token)]) for token in asks[0].picks[:, 1]]
    assert words == [f" {word}" for word in WORDS]
    step = steps[0]
    start = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    question = tokenizer(texts[0].rsplit(" ", 1)[0])["input_ids"]
    assert step["input_ids"][0, : len(question) + 1].tolist() == [start, *question]
    assert step["columns"][0] == len(question)
    # The text: every next word of every pattern of both facts.
    whole = tokenizer(texts[0])["input_ids"]
    assert step["labels"][: len(whole)].tolist() == whole
    assert step["input_ids"][4, : len(whole)].tolist() == [start, *whole[:-1]]
    assert (step["rows"][4 : 4 + len(whole)] == 4).all()
    assert step["columns"][4 : 4 + len(whole)].tolist() == list(range(len(whole)))


def test_which_options_are_compared(bert, gpt2):
    """An option is a word, of a causal model a first token."""

    def tokens(one, model):
        (first, *_) = fact_items(one, model, training("model"), 64)
        return [ask.picks[:, 1].tolist() for ask in first.asks]

    assert tokens(relation("A"), bert) == [bert.tokenizer.convert_tokens_to_ids(WORDS)] * 3
    longer = {"Paris": "Parisian", "Oslo": "Osloan"}
    facts = relation("A").facts
    facts = tuple(replace(fact, object=longer.get(fact.object, fact.object)) for fact in facts)
    facts += (Fact("z", "A z", "Paris"),)
    joined = replace(relation("A"), facts=facts, candidates=Candidates.of(facts))
    assert [len(of) for of in tokens(joined, gpt2)] == [6, 6]


SAME = (Fact("1", "a", "Paris"), Fact("2", "b", "Paris"))


@pytest.mark.parametrize(("kind", "change", "message"), [
    ("bert", {"patterns": PATTERNS[:1]}, "A has 1 pattern; expected"),
    ("gpt2", {"patterns": PATTERNS[:2]}, "A has 1 pattern ending in the object"),
    ("gpt2", {"patterns": PATTERNS[1:2]}, "A has 0 patterns ending in the object"),
    ("bert", {"facts": SAME, "candidates": Candidates.of(SAME)}, "A has 1 candidate of one token"),
])  # fmt: skip
def test_relations_that_cannot_disagree_are_refused(request, kind, change, message):
    model = request.getfixturevalue(kind)
    changed = replace(relation("A"), **change)
    refused(message, fact_items, changed, model, training("model"), 64)


def test_facts_with_a_long_sentence_are_left_out_and_long_texts_truncated(bert):
    long = "x " * 70
    facts = (*relation("A").facts, *(Fact(f"long {n}", long + str(n), "Paris") for n in range(4)))
    one = replace(relation("A"), facts=facts, candidates=Candidates.of(facts))
    suite = replace(SUITE, relations=(one, *SUITE.relations[1:]))
    steps = steps_of(bert, suite, [long] * (HELD_OUT + 1), train_facts=16, epochs=1, mlm="file")
    assert (
        len(steps.items) == 12
        and max(len(text) for item in steps.items for text in item.texts) < 99
    )
    assert steps[0]["input_ids"].shape == (2 * 4 * 3, 64)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "modernbert", "electra"])
def test_the_head_at_some_positions_has_the_logits_and_gradients_of_the_whole(family, model_folder):
    model = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    ids = torch.arange(24).reshape(3, 8) + 5
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 4, 7])
    whole = model(input_ids=ids).logits[rows, columns]
    whole.logsumexp(-1).sum().backward()
    weights = {n: weight for n, weight in model.named_parameters() if weight.grad is not None}
    before = {name: weight.grad.clone() for name, weight in weights.items()}
    model.zero_grad()
    with head_at(model, rows, columns):
        found = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    assert torch.allclose(found, whole, atol=1e-5)
    found.logsumexp(-1).sum().backward()
    for name, gradient in before.items():
        assert torch.allclose(weights[name].grad, gradient, atol=1e-4), name
    assert torch.allclose(plain_copy(model)(input_ids=ids).logits[rows, columns], whole, atol=1e-5)


def test_the_loss_of_a_step_from_its_questions_and_words(model_folder, tmp_path):
    """Each pair of patterns by torch's own divergence."""
    subjects = ["a", "b b b", "c", "d d", "e", "f f f f", "g", "h"]
    suite = replace(SUITE, relations=tuple(relation(each.id, subjects) for each in SUITE.relations))
    trainer = trainer_of(model_folder("bert"), tmp_path, suite, weight=0.5)
    model, step = trainer.model.eval(), trainer.steps[1]
    facts, patterns, _ = step["shape"]
    count = facts * patterns
    assert not step["attention_mask"][:count].all()
    with torch.no_grad():
        found = trainer.compute_loss(model, step)
        logits = model(input_ids=step["input_ids"], attention_mask=step["attention_mask"]).logits
    answers = logits[step["rows"][:count], step["columns"][:count]].view(facts, patterns, -1)
    candidates = step["picks"][:, 1].view(facts, patterns, -1)[0]
    total = 0.0
    for one in range(patterns):
        for other in set(range(patterns)) - {one}:
            both = (answers[:, at, candidates[at]] for at in (one, other))
            first, second = (found_at.log_softmax(-1) for found_at in both)
            total += (second.exp() * (second - first)).sum().item()
    pairs = total / (facts * patterns * (patterns - 1) / 2)
    words = torch.nn.functional.cross_entropy(
        logits[step["rows"][count:], step["columns"][count:]], step["labels"]
    )
    assert found.item() == pytest.approx(0.5 * pairs + words.item(), rel=1e-4)
    assert trainer.parts["consistency_loss"] == [pytest.approx(pairs, rel=1e-4)]


def test_what_changes_the_parts_of_the_loss(model_folder, tmp_path):
    """Without text, and with the whole vocabulary."""
    parts = {}
    for change in ({}, {"mlm": "none"}, {"loss": "pairs-vocabulary"}):
        trainer = trainer_of(model_folder("bert"), tmp_path, **change)
        trainer.compute_loss(trainer.model.eval(), trainer.steps[0])
        parts[next(iter(change), "plain")] = [values[0] for values in trainer.parts.values()]
    assert parts["mlm"][0] == pytest.approx(parts["plain"][0], rel=1e-4)
    assert parts["mlm"][1] == 0 < parts["plain"][1]
    assert parts["loss"][0] != pytest.approx(parts["plain"][0], rel=0.05)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_perplexity_without_a_preference_is_the_vocabulary(family, model_folder, tmp_path):
    auto = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
    model = auto.from_pretrained(model_folder(family))
    for weight in model.parameters():
        weight.data.zero_()
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model_folder(family)).save_pretrained(tmp_path)
    lines = ["The capital of France is Paris.", "Rome."] * 9
    losses, words = text_losses(str(tmp_path), lines, Loading("cpu"))
    assert len(losses) == len(words) == 18 and words.min() > 0
    assert losses == pytest.approx(words * math.log(model.config.vocab_size), rel=1e-4)


@pytest.mark.parametrize(("tried", "best"), [
    ([(0.5, 0.9), (0.6, 0.1), (0.4, 1)], 1),
    ([(0, 0.2), (0, 0.4), (0, 0.1)], 1),
    ([(0, None), (0, -0.1), (0, None)], 1),
    ([(0, 0.2), (0, 0.2), (0, None)], 1),
    ([(0, None), (0, None)], 1),
    ([(float("nan"), 0.1), (float("nan"), 0.9), (float("nan"), 0.2)], 1),
])  # fmt: skip
def test_the_best_validation_of_equal_ones_the_last(tried, best):
    """Consistent accuracy, then chance-corrected consistency, which a constant model lacks."""
    names = ("consistent_accuracy", "corrected_consistency")
    metrics = [
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in tried
    ]
    ranks = [rank(one, "consistent_accuracy") for one in metrics]
    assert max(reversed(range(len(tried))), key=ranks.__getitem__) == best


def test_the_steps_of_an_update_are_a_multiple_of_the_processes(
    model_folder, tmp_path, monkeypatch
):
    """Else an update of several processes is not that of one."""
    monkeypatch.setitem(vars(consistency.PartialState()), "num_processes", 4)
    found = "2 steps an update on 4 processes. Let the training relations"
    refused(found, trainer_of, model_folder("bert"), tmp_path)


@pytest.mark.parametrize(("change", "message"), cases("plans_bad"))
def test_a_plan_that_cannot_be_carried_out(tmp_path, change, message):
    """It is refused before the model is loaded: there is none of this name."""
    refused(message, train, "no-such-model", tmp_path / "o", **change)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("validation", [("C",), ("C", "B")])
def test_validation_relations_with_several_right_answers_are_refused(validation, tmp_path):
    several = replace(SUITE.relations[2], cardinality="N-M")
    suite = replace(SUITE, relations=(*SUITE.relations[:2], several, SUITE.relations[3]))
    refused(
        r"^C in --validation-groups: a subject has several right .*expected N-1 relations\. Known: "
        r"A, B, D\.", train, "no-such-model", tmp_path / "o", suite, train_groups=("A",), validation_groups=validation,
    )  # fmt: skip


def test_what_only_the_model_can_tell_is_refused(model_folder, tmp_path):
    spec = model_folder("bert")
    refused(
        "fewer than 9 facts in every training relation", train, spec, tmp_path / "few", batch_size=9
    )
    known = relation("C")
    facts = tuple(replace(fact, object=fact.object[::-1] * 3) for fact in known.facts)
    unknown = replace(known, facts=facts, candidates=Candidates.of(facts))
    suite = replace(SUITE, relations=(*SUITE.relations[:2], unknown, SUITE.relations[3]))
    refused("no answer to any question of C", train, spec, tmp_path / "unknown", suite)
    mask = "is a sequence-to-sequence model; expected a mask"
    refused(mask, train, model_folder("t5"), tmp_path / "o")
    refused("no such kind of model: 'packed:'.*'packaged'", train, "packed:smollm2", tmp_path / "o")
    assert not (tmp_path / "o").exists()
