"""The consistency loss by hand, steps that repeat, and a tiny model that really gets consistent."""

import json
import math
import re
from dataclasses import replace

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, AutoTokenizer

from conftest import WORDS
from consilience import Candidates, ConsilienceError, Fact, Pattern, Relation, Suite
from consilience.train.improve import improve
from consilience.train.losses import consistency_loss, cosine_loss, published_loss, vote_loss
from consilience.train.perplexity import perplexity
from consilience.train.plan import Plan
from consilience.train.steps import Steps, candidate_tokens, collate
from consilience.train.trainer import ConsistencyTrainer, HeadAt, plain_copy
from consilience.train.training import make_trainer, train

PATTERNS = tuple(
    Pattern.parse(text)
    for text in (
        "The capital of [X] is [Y].",
        "[Y] is the capital of [X].",
        "[X]'s capital is [Y].",
    )
)


def relation(id_, subjects="abcdefghijkl"):
    facts = tuple(Fact(s, f"{id_} {s}", WORDS[n % len(WORDS)]) for n, s in enumerate(subjects))
    return Relation(id_, id_, "N-1", PATTERNS, facts, {}, Candidates.of(facts))


SUITE = Suite("hand", tuple(map(relation, ("A", "B", "C", "D"))), "strict")


def logits(*shares):
    return torch.tensor(shares).log()


def test_the_loss_of_two_patterns_by_hand():
    """KL(p || q) + KL(q || p) = sum (p - q) log(p / q); here (.5 - .25) log 2 + (.5 - .75) log 2/3."""
    expected = 0.25 * math.log(2) - 0.25 * math.log(2 / 3)
    one = logits([[0.5, 0.5], [0.25, 0.75]])
    assert consistency_loss(one).item() == pytest.approx(expected, rel=1e-5)
    same = logits([[0.5, 0.5], [0.5, 0.5]])
    assert consistency_loss(torch.cat([one, same])).item() == pytest.approx(expected / 2, rel=1e-5)


def test_three_patterns_are_three_pairs():
    p, q, r = ([0.5, 0.5], [0.25, 0.75], [0.9, 0.1])
    pairs = [consistency_loss(logits([a, b])).item() for a, b in ((p, q), (p, r), (q, r))]
    assert consistency_loss(logits([p, q, r])).item() == pytest.approx(sum(pairs) / 3, rel=1e-5)


def test_the_released_loss_sums_and_divides_by_the_columns():
    """Two facts, three pairs, five columns: 2 * 3 / 5 of the mean."""
    torch.manual_seed(0)
    found = torch.randn(2, 3, 5)
    expected = 0.0
    logprob = found.log_softmax(-1)
    for a in range(3):
        for b in range(3):
            if a != b:
                expected += torch.nn.functional.kl_div(
                    logprob[:, a].T, logprob[:, b].exp().T, reduction="batchmean"
                ).item()
    assert published_loss(found).item() == pytest.approx(expected, rel=1e-5)
    assert consistency_loss(found).item() == pytest.approx(expected * 5 / 6, rel=1e-5)


def test_the_cosine_of_pairs_by_hand():
    """(.6 .4) and (.8 .2): .56 / sqrt(.52 * .68); (1 0) and (0 1): 0; the same: 1."""
    one = logits([[0.6, 0.4], [0.8, 0.2]])
    assert cosine_loss(one).item() == pytest.approx(1 - 0.56 / math.sqrt(0.52 * 0.68), rel=1e-5)
    apart, same = torch.tensor([[[99.0, 0], [0, 99]]]), logits([[0.5, 0.5], [0.5, 0.5]])
    assert cosine_loss(apart).item() == pytest.approx(1)
    assert cosine_loss(torch.cat([apart, same])).item() == pytest.approx(0.5)
    p, q, r = ([0.5, 0.5], [0.25, 0.75], [0.9, 0.1])
    pairs = [cosine_loss(logits([a, b])).item() for a, b in ((p, q), (p, r), (q, r))]
    assert cosine_loss(logits([p, q, r])).item() == pytest.approx(sum(pairs) / 3, rel=1e-4)
    assert cosine_loss(logits([p])).item() == 0


def test_the_vote_by_hand():
    """(.8 .2) and (.6 .4) say (.7 .3); sharpened (.49 .09) / .58; then KL from it to each."""
    teacher = logits([[0.8, 0.2], [0.6, 0.4]])
    votes = [0.49 / 0.58, 0.09 / 0.58]
    student = [[0.5, 0.5], [0.9, 0.1]]
    apart = [sum(v * math.log(v / p) for v, p in zip(votes, each, strict=True)) for each in student]
    assert vote_loss(logits(student), teacher).item() == pytest.approx(sum(apart) / 2, rel=1e-5)
    assert vote_loss(logits([votes, votes]), teacher).item() == pytest.approx(0, abs=1e-6)
    two = torch.cat([logits(student), logits([votes, votes])])
    assert vote_loss(two, torch.cat([teacher, teacher])).item() == pytest.approx(sum(apart) / 4)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_the_loss_is_no_less_than_0_and_does_not_mind_order_or_constants(
    facts, patterns, words, seed
):
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(facts, patterns, words, generator=generator)
    loss = consistency_loss(found).item()
    assert loss >= -1e-6
    moved = found[torch.randperm(facts, generator=generator)] + torch.randn(
        facts, patterns, 1, generator=generator
    )
    moved = moved[:, torch.randperm(patterns, generator=generator)]
    assert consistency_loss(moved).item() == pytest.approx(loss, rel=1e-4, abs=1e-5)
    assert consistency_loss(found[:, :1].expand(-1, patterns, -1)).item() == pytest.approx(
        0, abs=1e-5
    )


@pytest.fixture
def bert(model_folder):
    folder = model_folder("bert")
    return AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def steps_of(tokenizer, *, loss="strict", **options):
    asked = [
        candidate_tokens(each, tokenizer, "masked", "strict", loss) for each in SUITE.relations[:2]
    ]
    given_ = {
        "longest": 64,
        "facts": 8,
        "batch": 4,
        "epochs": 2,
        "text": "patterns",
        "lines": (),
        "seed": 1,
    }
    return Steps(asked, tokenizer, "masked", **{**given_, **options})


def test_every_fact_is_in_a_step_once_an_epoch_and_relations_take_turns(bert):
    steps = steps_of(bert[1])
    assert len(steps) == 2 * 2 * 2
    assert [at for at, _ in steps.groups] == [0, 1, 0, 1, 0, 1, 0, 1]
    for at in (0, 1):
        for epoch in (steps.groups[:4], steps.groups[4:]):
            facts = [fact for of, group in epoch for fact in group if of == at]
            assert len(facts) == len(set(facts)) == 8


def test_a_step_is_the_same_whenever_it_is_asked_for(bert):
    one, again, other = steps_of(bert[1]), steps_of(bert[1]), steps_of(bert[1], seed=2)
    assert one[3]["sequences"] == again[3]["sequences"] == one[3]["sequences"]
    assert one[3]["sequences"] != other[3]["sequences"]


def test_masks_of_questions_and_of_text_stand_where_they_are_said_to(bert):
    _, tokenizer = bert
    item = steps_of(tokenizer)[0]
    step = collate([item], tokenizer.pad_token_id)
    at_masks = step["input_ids"][step["rows"], step["columns"]]
    questions = item["shape"][0] * item["shape"][1]
    assert (at_masks[:questions] == tokenizer.mask_token_id).all()
    assert len(step["labels"]) == len(at_masks) - questions
    text = step["input_ids"].clone()[questions:]
    text[step["rows"][questions:] - questions, step["columns"][questions:]] = step["labels"]
    fact = steps_of(tokenizer).groups[0][1][0]
    filled = tokenizer(PATTERNS[0].fill(fact.subject, fact.object))["input_ids"]
    assert text[0, : len(filled)].tolist() == filled
    assert step["attention_mask"].sum() == sum(map(len, item["sequences"]))


def test_published_has_a_column_for_each_row_of_the_data(bert):
    one = candidate_tokens(relation("A"), bert[1], "masked", "strict", "strict")
    all_ = candidate_tokens(relation("A"), bert[1], "masked", "strict", "published")
    assert one.tokens.shape == (3, 6)
    assert all_.tokens.shape == (3, 12)
    assert one.tokens.tolist() == [bert[1].convert_tokens_to_ids(WORDS)] * 3


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "modernbert", "electra"])
def test_the_head_at_some_positions_gives_the_logits_and_gradients_of_the_whole(
    family, model_folder
):
    model = AutoModelForMaskedLM.from_pretrained(model_folder(family)).eval()
    ids = torch.arange(24).reshape(3, 8) + 5
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 4, 7])
    whole = model(input_ids=ids).logits[rows, columns]
    whole.logsumexp(-1).sum().backward()
    before = {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }
    model.zero_grad()
    head = HeadAt(model)
    head.positions = rows, columns
    found = model(input_ids=ids).logits
    assert torch.allclose(found, whole, atol=1e-5)
    found.logsumexp(-1).sum().backward()
    for name, gradient in before.items():
        assert torch.allclose(dict(model.named_parameters())[name].grad, gradient, atol=1e-4), name
    head.positions = None
    assert torch.allclose(plain_copy(model)(input_ids=ids).logits[rows, columns], whole, atol=1e-5)


PLAN = Plan(
    train=("A", "B"),
    validation=("C",),
    weights=(1.0,),
    facts=8,
    batch=4,
    epochs=4,
    learning_rate=3e-3,
)


def test_a_tiny_model_gets_consistent_and_the_folder_holds_it_all(model_folder, tmp_path, capsys):
    found = improve(str(model_folder("bert")), SUITE, PLAN, tmp_path / "out", protocol="strict")
    (row,) = found.best.compared.filter(
        (pl.col("metric") == "consistency") & (pl.col("group") == "D")
    ).to_dicts()
    assert row["second_value"] > row["first_value"] + 0.2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "lm_loss" in captured.err
    assert {each.name for each in (tmp_path / "out").iterdir()} >= {
        "before", "seed-42", "table-7.csv", "lambdas.csv", "run.json",
    }  # fmt: skip
    done = tmp_path / "out" / "seed-42" / "improved" / "lambda-1" / "done.json"
    history = json.loads(done.read_text(encoding="utf-8"))["history"]
    losses = [each["consistency_loss"] for each in history if "consistency_loss" in each]
    assert losses[-1] < losses[0]
    stamp = done.stat().st_mtime_ns
    again = improve(str(model_folder("bert")), SUITE, PLAN, tmp_path / "out", protocol="strict")
    assert done.stat().st_mtime_ns == stamp
    assert again.best.metrics.equals(found.best.metrics, null_equal=True)


@pytest.mark.parametrize("content", [
    "[]", "{", '{"validation": {}, "perplexity": null}', '{"validation": {}, "perplexity": "1"}',
])  # fmt: skip
def test_a_damaged_record_of_a_training_is_one_message(content, tmp_path):
    (tmp_path / "done.json").write_text(content)
    with pytest.raises(ConsilienceError, match=r"done\.json: not the record of a training: "):
        train("none", SUITE, PLAN, 1.0, tmp_path, protocol="strict", lines=(), device="cpu")


class KilledError(Exception):
    pass


def test_a_training_that_was_killed_ends_with_the_weights_of_an_unbroken_one(
    model_folder, tmp_path, monkeypatch, measured_next
):
    """A resumed training keeps its products, whatever is measured."""
    measured_next("onednn", "onednn", "torch")
    spec, end = str(model_folder("bert")), "seed-42/improved/lambda-1/model"
    improve(spec, SUITE, PLAN, tmp_path / "whole", protocol="strict")
    computed = ConsistencyTrainer.compute_loss

    def compute_loss(self, *args, **kwargs):
        if self.state.global_step == 5:
            raise KilledError
        return computed(self, *args, **kwargs)

    monkeypatch.setattr(ConsistencyTrainer, "compute_loss", compute_loss)
    with pytest.raises(KilledError):
        improve(spec, SUITE, PLAN, tmp_path / "broken", protocol="strict")
    monkeypatch.setattr(ConsistencyTrainer, "compute_loss", computed)
    improve(spec, SUITE, PLAN, tmp_path / "broken", protocol="strict")
    one, other = (
        AutoModelForMaskedLM.from_pretrained(tmp_path / name / end).state_dict()
        for name in ("whole", "broken")
    )
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    done = tmp_path / "broken" / "seed-42" / "improved" / "lambda-1" / "done.json"
    assert json.loads(done.read_text())["products"]["library"] == "onednn"


def test_a_loss_that_is_not_a_number_stops_the_training(model_folder, tmp_path):
    plan = Plan(**{**{f: getattr(PLAN, f) for f in PLAN.__slots__}, "learning_rate": 1e9})
    with pytest.raises(ConsilienceError, match="lambda-1: the loss is nan at step 1.*are whole"):
        improve(str(model_folder("bert")), SUITE, plan, tmp_path / "out", protocol="strict")


def test_without_text_or_with_the_whole_vocabulary_it_trains_on_something_else(
    model_folder, tmp_path
):
    losses = {}
    for change in ({}, {"text": "none"}, {"vocabulary": True}, {"loss": "cosine"}):
        trainer = make_trainer(
            str(model_folder("bert")), SUITE, replace(PLAN, **change), 1.0, tmp_path,
            protocol="strict", lines=(), device="cpu",
        )  # fmt: skip
        trainer.model.eval()
        step = collate([trainer.train_dataset[0]], trainer.tokenizer_.pad_token_id)
        trainer.compute_loss(trainer.model, step)
        name = next(iter(change), "plain")
        losses[name] = [values[0] for values in trainer.parts.values()]
    assert losses["text"][0] == pytest.approx(losses["plain"][0], rel=1e-4)
    assert losses["text"][1] == 0 < losses["plain"][1]
    assert losses["vocabulary"][0] != pytest.approx(losses["plain"][0], rel=0.05)
    assert 0 < losses["loss"][0] < 1


def test_another_plan_for_the_same_folder_is_refused(model_folder, tmp_path):
    options = {f: getattr(PLAN, f) for f in PLAN.__slots__} | {"epochs": 1}
    spec = str(model_folder("bert"))
    improve(spec, SUITE, Plan(**options), tmp_path / "o", protocol="strict")
    with pytest.raises(ConsilienceError, match="this folder holds another run: its plan is"):
        improve(spec, SUITE, Plan(**options | {"facts": 4}), tmp_path / "o", protocol="strict")
    with pytest.raises(ConsilienceError, match="the device 'cuda:1'; expected auto or cpu"):
        improve(spec, SUITE, PLAN, tmp_path / "p", protocol="strict", device="cuda:1")


def test_perplexity_of_a_model_without_a_preference_is_its_vocabulary(model_folder, tmp_path):
    folder = model_folder("bert")
    model = AutoModelForMaskedLM.from_pretrained(folder)
    for weight in model.parameters():
        weight.data.zero_()
    model.save_pretrained(tmp_path / "even")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "even")
    found = perplexity(str(tmp_path / "even"), ["The capital of France is Paris."] * 3, "cpu")
    assert found == pytest.approx(model.config.vocab_size, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation": ("A",)}, "A to train on and to validate on"),
        ({"train": ("Z",)}, "no relation 'Z'"),
        ({"train": ()}, "no relations for train"),
        ({"weights": (-1.0,)}, "a lambda of -1.0; expected 0 or more"),
        ({"weights": (math.nan,)}, "a lambda of nan"),
        ({"train": ("A", "B", "D")}, "no relation is left to test on"),
        ({"text": "file"}, "0 lines of text"),
        ({"loss": "vote", "text": "none"}, "--loss vote with --mlm none; expected words that"),
        (
            {"train": ("A", "A")},
            "duplicate relation in --train-groups: A; expected each of them once",
        ),
        ({"weights": (0.5, 1.0, 0.5000000001)}, r"duplicate lambda: 0\.5;"),
        ({"learning_rate": math.nan}, "a learning rate of nan; expected above 0"),
        ({"seed": -1}, "a seed of -1; expected from 0 to 4294967295"),
        ({"batch": 9}, "fewer than 9 facts in every training relation"),
    ],
)
def test_plans_that_cannot_be_carried_out_are_refused(model_folder, tmp_path, change, message):
    options = {f: getattr(PLAN, f) for f in PLAN.__slots__} | change
    with pytest.raises(ConsilienceError, match=message):
        improve(
            str(model_folder("bert")), SUITE, Plan(**options), tmp_path / "o", protocol="strict"
        )


@pytest.mark.parametrize("validation", [("C",), ("C", "B")])
def test_validation_relations_with_several_right_answers_are_refused(validation, tmp_path):
    """Before the model is loaded: there is none of this name."""
    several = replace(SUITE.relations[2], cardinality="N-M")
    suite = replace(SUITE, relations=(*SUITE.relations[:2], several, SUITE.relations[3]))
    plan = replace(PLAN, train=("A",), validation=validation)
    with pytest.raises(ConsilienceError) as error:
        improve("no-such-model", suite, plan, tmp_path / "o", protocol="strict")
    assert str(error.value).startswith("C in --validation-groups: a subject has several right ")
    assert "expected N-1 relations. Known: A, B, D." in str(error.value)
    assert not (tmp_path / "o").exists()


def test_a_seed_that_is_given_twice_is_refused(tmp_path):
    with pytest.raises(ConsilienceError, match="duplicate seed: 1; expected each of them once"):
        improve("no-such-model", SUITE, PLAN, tmp_path / "o", protocol="strict", seeds=(1, 2, 1))


def test_relations_that_cannot_disagree_are_refused(bert):
    one = relation("A")
    single = Relation("A", "A", "N-1", PATTERNS[:1], one.facts, {}, one.candidates)
    with pytest.raises(ConsilienceError, match="A has one pattern"):
        candidate_tokens(single, bert[1], "masked", "strict", "strict")
    facts = (Fact("1", "a", "Paris"), Fact("2", "b", "Paris"))
    same = Relation("A", "A", "N-1", PATTERNS, facts, {}, Candidates.of(facts))
    with pytest.raises(ConsilienceError, match="A has one candidate of one token"):
        candidate_tokens(same, bert[1], "masked", "strict", "strict")


def test_from_the_command_line(consilience, model_folder, tmp_path, write_suite):
    status, _, err = consilience(
        "improve", "--model", model_folder("bert"), "--suite", "mini",
        "--train-groups", "capital", "--validation-groups", "capital", "--out", tmp_path / "o",
    )  # fmt: skip
    assert status == 2
    assert re.search("capital to train on and to validate on", " ".join(err.split()))


def test_facts_whose_question_is_too_long_are_left_out_and_texts_cut(bert):
    long = "x " * 70
    facts = (*relation("A").facts, *(Fact(f"long {n}", long + str(n), "Paris") for n in range(4)))
    one = Relation("A", "A", "N-1", PATTERNS, facts, {}, Candidates.of(facts))
    asked = [candidate_tokens(one, bert[1], "masked", "strict", "strict")]
    lines = [long]
    steps = Steps(
        asked, bert[1], "masked",
        longest=64, facts=16, batch=4, epochs=1, text="file", lines=lines, seed=0,
    )  # fmt: skip
    assert {fact for _, group in steps.groups for fact in group} == set(relation("A").facts)
    item = steps[0]
    assert max(map(len, item["sequences"])) == 64
    assert len(item["sequences"]) == 2 * 4 * 3
