"""Every family, adapters, several seeds and processes, ablations, and what breaks on the way."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from consilience import ConsilienceError, Fact, load_model
from consilience.models.fast import speed_up_training
from consilience.train.checkpoints import last_whole_checkpoint
from consilience.train.improve import improve
from consilience.train.perplexity import perplexity
from consilience.train.steps import Steps, candidate_tokens, collate
from consilience.train.trainer import ConsistencyTrainer
from consilience.train.training import make_trainer
from test_train import PATTERNS, PLAN, SUITE, relation


def history_of(folder):
    done = folder / "seed-42" / "improved" / "lambda-1" / "done.json"
    return json.loads(done.read_text(encoding="utf-8"))["history"]


def losses_of(folder):
    return [each["consistency_loss"] for each in history_of(folder) if "consistency_loss" in each]


def weights_of(folder, auto=AutoModelForMaskedLM):
    return auto.from_pretrained(folder / "seed-42" / "improved" / "lambda-1" / "model").state_dict()


def test_a_causal_model_is_asked_behind_what_stands_before_the_object(model_folder):
    """Two of the three patterns end in the object; the answer is read at their last token."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder("gpt2"))
    asked = candidate_tokens(relation("A"), tokenizer, "causal", "strict", "strict")
    assert asked.patterns == (PATTERNS[0], PATTERNS[2])
    words = [tokenizer.decode([int(token)]) for token in asked.tokens[0]]
    assert words == [" Paris", " Berlin", " Rome", " Madrid", " Lisbon", " Oslo"]
    steps = Steps(
        [asked],
        tokenizer,
        "causal",
        longest=64,
        facts=2,
        batch=2,
        epochs=1,
        text="patterns",
        lines=(),
        seed=1,
    )
    step = collate([steps[0]], 0)
    fact = steps.groups[0][1][0]
    start = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    question = tokenizer(f"The capital of {fact.subject} is")["input_ids"]
    assert step["input_ids"][0, : len(question) + 1].tolist() == [start, *question]
    assert step["columns"][0] == len(question)
    # The text: every next word of every pattern of both facts.
    whole = tokenizer(PATTERNS[0].fill(fact.subject, fact.object))["input_ids"]
    assert step["labels"][: len(whole)].tolist() == whole
    assert step["input_ids"][4, : len(whole)].tolist() == [start, *whole[:-1]]
    assert (step["rows"][4 : 4 + len(whole)] == 4).all()
    assert step["columns"][4 : 4 + len(whole)].tolist() == list(range(len(whole)))


def test_of_a_causal_model_words_with_one_first_token_are_one(model_folder):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("gpt2"))
    one = relation("A")
    words = {"Paris": "Parisian", "Oslo": "Osloan"}
    facts = tuple(replace(fact, object=words.get(fact.object, fact.object)) for fact in one.facts)
    facts += (Fact("z", "A z", "Paris"),)
    cut = replace(one, facts=facts, candidates=type(one.candidates).of(facts))
    asked = candidate_tokens(cut, tokenizer, "causal", "strict", "strict")
    assert asked.tokens.shape == (2, 6)


def test_a_causal_model_needs_patterns_that_end_in_the_object(model_folder):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("gpt2"))
    one = replace(relation("A"), patterns=PATTERNS[:2])
    with pytest.raises(ConsilienceError, match="A has one pattern that ends in the object"):
        candidate_tokens(one, tokenizer, "causal", "strict", "strict")
    none = replace(relation("A"), patterns=PATTERNS[1:2])
    with pytest.raises(ConsilienceError, match="A has no pattern that ends in the object"):
        candidate_tokens(none, tokenizer, "causal", "strict", "strict")


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {}),
        ("llama", {"text": "none"}),
        ("roberta", {}),
        ("bert", {"lora_rank": 8, "learning_rate": 3e-2}),
        ("llama", {"lora_rank": 8, "learning_rate": 3e-2, "gradient_checkpointing": True}),
        ("bert", {"bf16": True, "loss": "vote"}),
        ("gpt2", {"loss": "vote"}),
        ("bert", {"loss": "vote", "lora_rank": 8, "learning_rate": 3e-2}),
        ("gpt2", {"bf16": True, "vocabulary": True, "loss": "strict"}),
    ],
)
def test_every_kind_of_model_and_training_lowers_the_loss_and_saves_a_plain_model(
    family, change, model_folder, tmp_path
):
    folder = tmp_path / "out"
    plan = replace(PLAN, epochs=4, **change)
    found = improve(str(model_folder(family)), SUITE, plan, folder, protocol="strict")
    losses = losses_of(folder)
    assert losses[-1] < losses[0]
    saved = found.best.chosen.model
    before, after = (
        load_model(str(path), protocol="strict") for path in (model_folder(family), saved)
    )
    assert before.identity["architecture"] == after.identity["architecture"]
    assert before.identity["parameters"] == after.identity["parameters"]
    assert not list(saved.glob("adapter*"))


def test_a_vote_is_taken_from_a_teacher_that_does_not_move(model_folder, tmp_path):
    """The teacher is the plan without a consistency loss; the student begins where it ended."""
    spec = str(model_folder("bert"))
    improve(spec, SUITE, replace(PLAN, loss="vote"), tmp_path / "vote", protocol="strict")
    plain = replace(PLAN, weights=(0.0,))
    improve(spec, SUITE, plain, tmp_path / "words", protocol="strict")
    ends = [tmp_path / "vote" / "seed-42" / "teacher", tmp_path / "words" / "seed-42" / "improved"]
    one, other = (
        AutoModelForMaskedLM.from_pretrained(each / "lambda-0" / "model").state_dict()
        for each in ends
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    trainer = make_trainer(
        str(ends[0] / "lambda-0" / "model"), SUITE, replace(PLAN, loss="vote"), 1.0, tmp_path / "t",
        protocol="strict", lines=(), device="cpu",
    )  # fmt: skip
    trainer.train()
    teacher, student = trainer.teacher[0].state_dict(), trainer.model.state_dict()
    assert all(torch.equal(teacher[name], one[name]) for name in one)
    assert any(not torch.equal(student[name], one[name]) for name in one)


def test_adapters_leave_the_other_weights_alone(model_folder, tmp_path):
    spec = str(model_folder("bert"))
    plan = replace(PLAN, lora_rank=2, epochs=1)
    improve(spec, SUITE, plan, tmp_path / "out", protocol="strict")
    before, after = (
        AutoModelForMaskedLM.from_pretrained(spec).state_dict(),
        weights_of(tmp_path / "out"),
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("weight") and "embeddings" not in name for name in changed)
    name = sorted(changed)[0]
    assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 2


def without_dropout(model_folder, family, folder):
    model = AutoModelForMaskedLM.from_pretrained(model_folder(family))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(model.config, name, 0.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder(family)).save_pretrained(folder)
    assert AutoConfig.from_pretrained(folder).hidden_dropout_prob == 0.0
    return str(folder)


def test_steps_can_be_gathered_into_fewer_updates(model_folder, tmp_path):
    """8 facts, 2 a step, of two relations: 8 steps an epoch; 4 or 2 updates."""
    for accumulation, updates in ((1, 4), (2, 2)):
        plan = replace(PLAN, batch=2, epochs=1, accumulation=accumulation)
        folder = tmp_path / str(accumulation)
        improve(str(model_folder("bert")), SUITE, plan, folder, protocol="strict")
        assert history_of(folder)[-1]["step"] == updates


def test_gradient_checkpointing_changes_nothing_but_the_memory(model_folder, tmp_path):
    spec = without_dropout(model_folder, "bert", tmp_path / "bert")
    for name, on in (("plain", False), ("saved", True)):
        plan = replace(PLAN, epochs=1, gradient_checkpointing=on)
        improve(spec, SUITE, plan, tmp_path / name, protocol="strict")
    one, other = weights_of(tmp_path / "plain"), weights_of(tmp_path / "saved")
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


LAUNCHED = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_train import PLAN, SUITE
from consilience.train.improve import improve
from dataclasses import replace
from pathlib import Path
found = improve({spec!r}, SUITE, replace(PLAN, epochs=1, loss="vote"), Path({out!r}), protocol="strict", device="cpu")
print("measured" if found else "trained")
"""


def test_two_processes_end_with_the_weights_of_one(model_folder, tmp_path):
    """One relation each, gradients averaged, in both stages of a vote; the first process measures."""
    spec = without_dropout(model_folder, "bert", tmp_path / "bert")
    script = tmp_path / "launched.py"
    here = str(Path(__file__).parent)
    text = LAUNCHED.format(paths=[here], spec=spec, out=str(tmp_path / "two"))
    script.write_text(text, encoding="utf-8")
    # What `accelerate launch` starts for several accelerators of a machine.
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, str(script)], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split()) == ["measured", "trained"]
    plan = replace(PLAN, epochs=1, loss="vote")
    improve(spec, SUITE, plan, tmp_path / "one", protocol="strict")
    one, two = weights_of(tmp_path / "one"), weights_of(tmp_path / "two")
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


def test_seeds_and_ablations_make_table_7(model_folder, tmp_path):
    plan = replace(PLAN, epochs=1, weights=(0.5, 2.0))
    lines = ["Paris is the capital of France."] * 3
    found = improve(
        str(model_folder("bert")), SUITE, plan, tmp_path / "o",
        protocol="strict", lines=lines, seeds=(1, 2), ablations=True, test_facts=6,
    )  # fmt: skip
    names = ["improved", "no-consistency", "no-typing", "no-mlm"]
    assert [(each.name, each.seed) for each in found.outcomes] == [
        (name, seed) for seed in (1, 2) for name in names
    ]
    for seed in (1, 2):
        own = {each.name: each for each in found.outcomes if each.seed == seed}
        chosen = own["improved"].weight
        values = own["improved"].tried
        assert values[chosen].validation["consistent_accuracy"] == max(
            each.validation["consistent_accuracy"] for each in values.values()
        )
        assert own["no-consistency"].weight == 0
        assert own["no-typing"].weight == own["no-mlm"].weight == chosen
    table = found.table
    assert table["name"].unique(maintain_order=True).to_list() == ["before", *names]
    row = table.row(
        by_predicate=(pl.col("name") == "no-mlm") & (pl.col("metric") == "consistency"), named=True
    )
    own = [each for each in found.outcomes if each.name == "no-mlm"]
    means = [
        each.metrics.row(
            by_predicate=(pl.col("group") == "MACRO")
            & (pl.col("metric") == "consistency")
            & (pl.col("subset") == "all"),
            named=True,
        )["value"]
        for each in own
    ]
    assert row["value"] == pytest.approx(sum(means) / 2)
    assert row["lowest"] <= row["difference"] <= row["highest"]
    assert row["seeds"] == 2 and row["perplexity"] > 1
    (kept,) = found.lambdas.filter(
        (pl.col("name") == "improved") & (pl.col("seed") == 1) & pl.col("kept")
    ).to_dicts()
    assert kept["perplexity"] == pytest.approx(
        perplexity(str(own[0].tried and found.outcomes[0].chosen.model), lines, "cpu")
    )
    assert pl.read_csv(tmp_path / "o" / "table-7.csv").height == table.height
    counted = found.before.filter((pl.col("group") == "D") & (pl.col("metric") == "accuracy"))
    assert counted["n"].to_list() == [6]


def test_what_was_broken_off_behind_the_last_checkpoint_is_left_out(
    model_folder, tmp_path, monkeypatch
):
    spec, place = (
        str(model_folder("bert")),
        tmp_path / "broken" / "seed-42" / "improved" / "lambda-1",
    )
    improve(spec, SUITE, PLAN, tmp_path / "whole", protocol="strict")
    saved = ConsistencyTrainer._save_checkpoint

    def full(self, *args, **kwargs):
        if self.state.global_step == 5:
            (place / "checkpoint-5").mkdir()
            (place / "checkpoint-5" / "model.safetensors").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        return saved(self, *args, **kwargs)

    monkeypatch.setattr(ConsistencyTrainer, "_save_checkpoint", full)
    with pytest.raises(
        ConsilienceError, match="the disk is full. The checkpoints before are whole"
    ):
        improve(spec, SUITE, PLAN, tmp_path / "broken", protocol="strict")
    monkeypatch.setattr(ConsistencyTrainer, "_save_checkpoint", saved)
    (place / "checkpoint-5" / "trainer_state.json").write_text('{"global_step', encoding="utf-8")
    assert last_whole_checkpoint(place) == str(place / "checkpoint-4")
    improve(spec, SUITE, PLAN, tmp_path / "broken", protocol="strict")
    assert not list(place.glob("checkpoint-*"))
    one, other = weights_of(tmp_path / "whole"), weights_of(tmp_path / "broken")
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


@pytest.mark.parametrize("bias", [True, False])
def test_the_faster_product_has_torchs_values_and_gradients(bias):
    torch.manual_seed(0)
    plain = torch.nn.Linear(8, 5, bias=bias)
    hidden = torch.randn(3, 7, 8, requires_grad=True)
    plain(hidden).square().sum().backward()
    wanted = [hidden.grad, *(each.grad for each in plain.parameters())]
    again = hidden.detach().clone().requires_grad_()
    fast = torch.nn.Linear(8, 5, bias=bias)
    fast.load_state_dict(plain.state_dict())
    model = torch.nn.Sequential(fast)
    model.device, model.dtype = again.device, again.dtype
    speed_up_training(model)
    assert "forward" in vars(fast)
    model(again).square().sum().backward()
    found = [again.grad, *(each.grad for each in fast.parameters())]
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_sequence_to_sequence_models_are_refused_before_anything_is_written(model_folder, tmp_path):
    with pytest.raises(
        ConsilienceError, match="is a sequence-to-sequence model; expected a masked"
    ):
        improve(str(model_folder("t5")), SUITE, PLAN, tmp_path / "o", protocol="strict")
    assert not (tmp_path / "o").exists()


def test_perplexity_of_an_indifferent_causal_model_is_its_vocabulary(model_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(model_folder("gpt2"))
    for weight in model.parameters():
        weight.data.zero_()
    model.save_pretrained(tmp_path / "even")
    AutoTokenizer.from_pretrained(model_folder("gpt2")).save_pretrained(tmp_path / "even")
    found = perplexity(str(tmp_path / "even"), ["Rome is large."], "cpu")
    assert found == pytest.approx(model.config.vocab_size, rel=1e-4)


def test_one_command_trains_measures_and_shows_what_it_cost(
    consilience, model_folder, tmp_path, write_suite
):
    words = [fact.object for fact in relation("A").facts]
    suite = write_suite(
        relations=[{"relation": r, "label": r, "cardinality": "N-1"} for r in "ABCD"],
        patterns=[
            {"relation": r, "pattern": p.text} for r in "ABCD" for p in PATTERNS
        ],
        facts=[
            {"relation": r, "subject": f"{r} {at}", "object": word}
            for r in "ABCD"
            for at, word in enumerate(words)
        ],
    )  # fmt: skip
    text = tmp_path / "text.txt"
    text.write_text("Paris is the capital of France.\n\nRome is large.\n", encoding="utf-8")
    asked = [
        "improve", "--model", model_folder("bert"), "--suite", suite, "--train-groups", "A,B",
        "--validation-groups", "C", "--lambda", "0.5,2", "--facts", "8", "--epochs", "1",
        "--learning-rate", "3e-3", "--limit", "9", "--text", text, "--out", tmp_path / "o",
    ]  # fmt: skip
    status, out, err = consilience(*asked)
    assert status == 0, err
    for shown in ("Table 7", "Consistent-Acc", "kept", "sign flips of subjects", "lambda-"):
        assert shown in out
    assert "training improved, seed 42, lambda 0.5" in err
    status, out, err = consilience(*asked, "--json")
    assert status == 0, err
    document = json.loads(out)
    (outcome,) = document["outcomes"]
    assert set(outcome["validation"]) == {"0.5", "2"}
    assert outcome["perplexity"] > 1 and document["perplexity"] > 1
    assert document["model"] == outcome["model"]
    (row,) = [
        each for each in outcome["after"] if (each["group"], each["metric"]) == ("D", "accuracy")
    ]
    assert row["n"] == 9
    status, _, err = consilience(*asked, "--lambda", "half")
    assert status == 2
    assert "no number in 'half'; expected such as 0.5" in " ".join(err.split())


def test_without_accelerate_it_says_how_to_get_it(consilience, monkeypatch, tmp_path):
    for name in ("accelerate.state", "consilience.train.improve"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "accelerate.state", None)
    status, _, err = consilience(
        "improve", "--model", "m", "--suite", "mini", "--train-groups", "capital",
        "--validation-groups", "continent", "--out", tmp_path / "o",
    )  # fmt: skip
    assert status == 2
    assert "is not installed. Install it with `pip install 'consilience[train]'`" in " ".join(
        err.split()
    )


def test_what_cannot_be_reported_to_or_validated_on_is_refused(model_folder, tmp_path):
    spec = str(model_folder("bert"))
    with pytest.raises(ConsilienceError, match="--report-to nowhere: nowhere is not supported"):
        improve(spec, SUITE, replace(PLAN, report_to="nowhere"), tmp_path / "o", protocol="strict")
    assert not (tmp_path / "o").exists()
    known = relation("C")
    facts = tuple(replace(fact, object=fact.object[::-1] * 3) for fact in known.facts)
    unknown = replace(known, facts=facts, candidates=type(known.candidates).of(facts))
    suite = replace(SUITE, relations=(*SUITE.relations[:2], unknown, SUITE.relations[3]))
    with pytest.raises(ConsilienceError, match="no answer to any question of C"):
        improve(spec, suite, PLAN, tmp_path / "o", protocol="strict")


@pytest.mark.parametrize("loss", ["strict", "published"])
def test_the_loss_of_a_step_is_that_of_its_questions_and_words_one_by_one(
    loss, model_folder, tmp_path
):
    """Each pair of patterns by torch's own divergence; as released, padding is attended to."""
    subjects = ["a", "b b b", "c", "d d", "e", "f f f f", "g", "h"]
    suite = replace(SUITE, relations=tuple(relation(each.id, subjects) for each in SUITE.relations))
    trainer = make_trainer(
        str(model_folder("bert")), suite, replace(PLAN, loss=loss), 0.5, tmp_path,
        protocol="strict", lines=(), device="cpu",
    )  # fmt: skip
    model = trainer.model.eval()
    step = collate([trainer.train_dataset[1]], trainer.tokenizer_.pad_token_id)
    facts, patterns = step["shape"]
    count = facts * patterns
    ids, mask = step["input_ids"], step["attention_mask"].clone()
    assert not mask[:count].all()
    if loss == "published":
        mask[:count] = 1
    with torch.no_grad():
        found = trainer.compute_loss(model, step)
        logits = model(input_ids=ids, attention_mask=mask).logits
    answers = logits[step["rows"][:count], step["columns"][:count]].view(facts, patterns, -1)
    total = 0.0
    for one in range(patterns):
        for other in range(patterns):
            if one != other:
                first, second = (
                    answers[:, each, step["candidates"][each]].log_softmax(-1)
                    for each in (one, other)
                )
                total += (second.exp() * (second - first)).sum().item()
    columns = step["candidates"].shape[1]
    apart = (
        total / columns if loss == "published" else total / facts / (patterns * (patterns - 1) / 2)
    )
    words = torch.nn.functional.cross_entropy(
        logits[step["rows"][count:], step["columns"][count:]], step["labels"]
    )
    assert found.item() == pytest.approx(0.5 * apart + words.item(), rel=1e-4)
    assert trainer.parts["consistency_loss"] == [pytest.approx(apart, rel=1e-4)]
