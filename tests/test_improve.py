"""Consistency training on facts: losses by hand, steps, whole trainings, and what interrupts them."""

import errno
import json
import math
import shutil
import sys
from dataclasses import replace
from threading import Thread

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from checks import output, refusal, refused
from conftest import WORDS, cases
from consilience import Candidates, Fact, Pattern, Relation, Suite, load_model
from consilience.core.errors import Loading
from consilience.files.write import locked
from consilience.models.batches import head_at
from consilience.models.loading import load_pretrained
from consilience.options.commands import ImproveOptions
from consilience.train import improvement
from consilience.train.consistency import (
    ConsistencyTrainer,
    Steps,
    Training,
    fact_items,
    pairs_loss,
    plain_copy,
    rank,
    text_losses,
    vote_loss,
    words_of,
)
from consilience.train.improvement import train_and_measure

TEXTS = ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital is [Y].")
PATTERNS = tuple(map(Pattern, TEXTS))


def relation(id_, subjects="abcdefghijkl"):
    facts = tuple(Fact(s, f"{id_} {s}", WORDS[n % len(WORDS)]) for n, s in enumerate(subjects))
    return Relation(id_, id_, "N-1", PATTERNS, facts, {}, Candidates.of(facts))


SUITE = Suite("hand", tuple(map(relation, ("A", "B", "C", "D"))), "strict")
OPTIONS = ImproveOptions(
    model="model", suite="suite", train_groups=("A", "B"), validation_groups=("C",), loss="pairs", train_facts=8, batch_size=4, epochs=4,
    learning_rate=3e-3,
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


def logits(*shares):
    return torch.tensor(shares).log()


def test_the_loss_by_hand():
    """KL(p || q) + KL(q || p) = sum (p - q) log(p / q); here (.5 - .25) log 2 + (.5 - .75) log 2/3.

    Two facts: their mean. Three patterns: the mean of three pairs.
    """
    expected = 0.25 * math.log(2) - 0.25 * math.log(2 / 3)
    one, same = logits([[0.5, 0.5], [0.25, 0.75]]), logits([[0.5, 0.5], [0.5, 0.5]])
    assert pairs_loss(one).item() == pytest.approx(expected, rel=1e-5)
    assert pairs_loss(one[:, :1]).item() == 0, "one variant"
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


def steps_of(model, suite=SUITE, lines=(), **change):
    change = {"train_groups": ("A",), "epochs": 2, "seed": 1, **change}
    return Steps(training("model", suite, lines, **change), model)


def test_every_fact_is_in_one_step_of_an_epoch_and_relations_take_turns(bert):
    steps = steps_of(bert, train_groups=("A", "B"))
    assert len(steps) == 2 * 2 * 2
    sizes = [len(items) for items in steps_of(bert, batch_size=3).steps]
    assert sizes == [3, 3] * 2, "two facts of 8 are left out"
    read = [[item.texts[0] for item in items] for items in steps.steps]
    names = [{text.split()[3] for text in texts} for texts in read]
    assert names == [{"A"}, {"B"}] * 4
    for at in (0, 1):
        for epoch in (read[:4], read[4:]):
            assert len({text for texts in epoch[at::2] for text in texts}) == 8
    one, again = steps_of(bert), steps_of(bert)
    other = steps_of(bert, seed=2)
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


def test_the_words_of_one_token_are_compared(bert):
    (first, *_) = fact_items(relation("A"), bert, training("model"), 64)
    tokens = [ask.picks[:, 1].tolist() for ask in first.asks]
    assert tokens == [bert.tokenizer.convert_tokens_to_ids(WORDS)] * 3


SAME = (Fact("1", "a", "Paris"), Fact("2", "b", "Paris"))


@pytest.mark.parametrize(("change", "message"), [
    ({"patterns": PATTERNS[:1]}, "A has 1 pattern and 6 candidates"),
    ({"facts": SAME, "candidates": Candidates.of(SAME)}, "A has 3 patterns and 1 candidate of one token; expected two or more of each"),
])  # fmt: skip
def test_relations_that_cannot_disagree_are_refused(bert, change, message):
    changed = replace(relation("A"), **change)
    refused(message, fact_items, changed, bert, training("model"), 64)


def test_facts_with_a_long_sentence_are_left_out_and_long_texts_truncated(bert):
    long = "x " * 70
    facts = (*relation("A").facts, *(Fact(f"long {n}", long + str(n), "Paris") for n in range(4)))
    one = replace(relation("A"), facts=facts, candidates=Candidates.of(facts))
    suite = replace(SUITE, relations=(one, *SUITE.relations[1:]))
    texts = [text for item in steps_of(bert, suite, train_facts=16).items for text in item.texts]
    assert len(texts) == 12 * 3 and max(map(len, texts)) < 99
    assert [len(ids) for ids in words_of(bert, [long], 64, "0").sequences] == [64]


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
    known = lambda of: {k: v for k, v in zip(names, of, strict=True) if v is not None}  # noqa: E731
    ranks = [rank(known(values), "consistent_accuracy") for values in tried]
    assert max(reversed(range(len(tried))), key=ranks.__getitem__) == best


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
        r"^C.* in --validation-groups; expected N-1 relations that are not trained on\. Known: B, D",
        train, "no-such-model", tmp_path / "o", suite, train_groups=("A",), validation_groups=validation,
    )  # fmt: skip


def test_an_update_has_at_most_the_facts_that_there_are(bert):
    steps, fewer = (steps_of(bert, train_facts=3, batch_size=size) for size in (3, 64))
    assert [*map(len, steps.steps)] == [*map(len, fewer.steps)] == [3] * 2
    assert (steps.turns, steps.interval) == (fewer.turns, fewer.interval)


def test_what_only_the_model_can_tell_is_refused(model_folder, tmp_path):
    for family, kind in (("t5", "seq2seq"), ("gpt2", "causal")):
        found = f"is a {kind} model; expected a masked language model"
        refused(found, train, model_folder(family), tmp_path / "o")
    refused("no such kind of model: 'packed:'.*'packaged'", train, "packed:smollm2", tmp_path / "o")
    assert not (tmp_path / "o").exists()


ROW = "seed-42"


def only_train(spec, folder, **change):
    """Without the measurements before and after; the folder of the model."""
    improvement.train(training(spec, **change), folder / ROW)
    return folder / ROW / "model"


def record_of(folder):
    return json.loads((folder / ROW / "training.json").read_text(encoding="utf-8"))


def losses_of(folder):
    history = record_of(folder)["history"]
    return [log["consistency_loss"] for log in history if "consistency_loss" in log]


def weights_of(folder, row=ROW):
    return AutoModelForMaskedLM.from_pretrained(folder / row / "model").state_dict()


def test_a_tiny_model_gets_consistent_and_its_folder_is_reused(model_folder, tmp_path, capsys):
    out, spec = tmp_path / "out", model_folder("bert")
    capsys.readouterr()
    result = train(spec, out)
    (row,) = result.tables["differences"].filter(metric="consistency", group="D").to_dicts()
    assert row["second_value"] > row["first_value"] + 0.2
    assert capsys.readouterr().out == "", "the library prints nothing"
    assert {path.name for path in out.iterdir()} == {"before", "seed-42"}
    assert losses_of(out)[-1] < losses_of(out)[0]
    record = out / ROW / "training.json"
    stamp = record.stat().st_mtime_ns
    again = train(spec, out)
    assert record.stat().st_mtime_ns == stamp
    assert repr(again.facts) == repr(result.facts)
    refused("another run: its train_facts is 8, now asked is 4", train, spec, out, train_facts=4)
    refused("another run: its weight is 1.0, now asked is 2.0", train, spec, out, weight=2.0)
    refused("another run: its weight", train, spec, out, weight=2.0, dry_run=True)
    refused("another run: its weight", train, spec, out, weight=2.0, dry_run=True)
    refused("another run: its limit is", train, spec, out, limit=1)
    assert {path.name for path in out.iterdir()} == {"before", "seed-42"}, "nothing was trained"
    record.write_text("{")
    refused(r"training\.json:1: not JSON", train, spec, out)


@pytest.mark.parametrize(("family", "change"), cases("trainings"))
def test_every_kind_of_training_lowers_the_loss_and_saves_a_plain_model(family, change, model_folder, tmp_path):  # fmt: skip
    """The folder of the model has what it had before."""
    spec = model_folder(family)
    saved = only_train(spec, tmp_path, **{"epochs": 2, **change})
    losses = losses_of(tmp_path)
    assert losses[-1] < losses[0]
    before, after = (load_model(str(path), protocol="strict").identity for path in (spec, saved))
    for name in ("architecture", "parameters"):
        assert before[name] == after[name]
    assert not list(saved.glob("adapter*"))
    assert saved.with_name("adapter").exists() == bool(change.get("lora_rank"))


def test_the_teacher_of_a_vote_does_not_move(model_folder, tmp_path):
    """The teacher is the plan without a consistency loss; the student begins where it ended."""
    spec = model_folder("bert")
    train(spec, tmp_path / "vote", loss="vote", epochs=1)
    only_train(spec, tmp_path / "words", weight=0.0, epochs=1)
    one = weights_of(tmp_path / "vote", "teacher-42")
    other = weights_of(tmp_path / "words")
    assert all(torch.equal(one[name], other[name]) for name in one)
    taught = tmp_path / "vote" / "teacher-42" / "model"
    trainer = trainer_of(taught, tmp_path / "t", loss="vote", epochs=1)
    item = trainer.steps.items[0]
    scores, _ = trainer.read(trainer.model, trainer.steps.tensors([item.asks]))
    assert torch.allclose(item.teacher, scores[0], atol=1e-5)
    trainer.train()
    scores, _ = trainer.read(trainer.model.eval(), trainer.steps.tensors([item.asks]))
    assert not torch.allclose(item.teacher, scores[0], atol=1e-2)


def test_adapters_leave_the_other_weights_alone(model_folder, tmp_path):
    spec, adapted = model_folder("bert"), {"lora_rank": 2, "learning_rate": 1e-2}
    saved = only_train(spec, tmp_path, **adapted, epochs=2)
    before, after = (AutoModelForMaskedLM.from_pretrained(of).state_dict() for of in (spec, saved))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("weight") and "embeddings" not in name for name in changed)
    name = min(changed)
    assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 2


def test_what_stops_a_training_is_one_message(model_folder, tmp_path, monkeypatch):
    spec = model_folder("bert")
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        refused("several processes; expected one. Run the", train, spec, tmp_path / "two")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": False}, raising=False)
        found = "--bf16 on a processor without instructions for it; expected a GPU"
        refused(found, train, spec, tmp_path / "slow", bf16=True, device="cpu")
    nan = "seed-42: the loss is nan at step 1.*are complete"
    refused(nan, train, spec, tmp_path / "nan", learning_rate=1e9, batch_size=2)
    no_room = OSError(errno.ENOSPC, "No space left on device")
    for error in (no_room, RuntimeError("[enforce fail at inline_container.cc:672] . unexpected")):

        def full(self, *args, error=error, **kwargs):
            raise error

        monkeypatch.setattr(ConsistencyTrainer, "_save_checkpoint", full)
        found = "the disk is full. What was written before is whole"
        refused(found, train, spec, tmp_path / "full")


def test_a_second_training_in_a_folder_waits_for_the_first(model_folder, tmp_path):
    (tmp_path / ROW).mkdir()
    waiting = Thread(target=only_train, args=(model_folder("bert"), tmp_path), kwargs={"epochs": 1})
    with locked(tmp_path / ROW):
        waiting.start()
        waiting.join(timeout=0.5)
        assert waiting.is_alive() and not any((tmp_path / ROW).iterdir())
    waiting.join()
    assert record_of(tmp_path)["finished"]


@pytest.fixture
def command(model_folder, tmp_path, write_suite):
    """A command that trains a tiny BERT on four relations."""
    facts = relation("A").facts
    suite = write_suite(
        relations=[{"relation": r, "label": r, "cardinality": "N-1"} for r in "ABCD"],
        patterns=[{"relation": r, "pattern": p.text} for r in "ABCD" for p in PATTERNS],
        facts=[{"relation": r, "subject": f"{r} {at}", "object": fact.object}
               for r in "ABCD" for at, fact in enumerate(facts)],
    )  # fmt: skip
    return [
        "improve", "--model", model_folder("bert"), "--suite", suite, "--train-groups", "A,B",
        "--validation-groups", "C", "--weight", "0.5", "--train-facts", "8", "--loss", "pairs", "--epochs", "1",
        "--learning-rate", "3e-3", "--limit", "9", "--out", tmp_path / "o",
    ]  # fmt: skip


def test_one_command_trains_measures_and_shows_the_cost(consilience, command, tmp_path):
    (tmp_path / "text.txt").write_text("Paris is the capital of France.\n\nRome is large.")
    command = [*command, "--text", tmp_path / "text.txt"]
    status, out, err = consilience(*command)
    assert status == 0, err
    assert "suite: after minus before" in out
    assert "training seed 42, weight 0.5" in err
    load, *_ = [line for line in out.splitlines() if line.startswith("  model = ")]
    names = {}
    exec(f"from transformers import pipeline\n{load.strip()}", names)
    assert names["model"]("Rome is [MASK].")[0]["token_str"]
    document = json.loads(output(consilience, *command, "--json"))
    assert {"accuracy", "consistency", "consistent_accuracy"} <= set(document["validation"])
    (text,) = [row for row in document["harm"] if row["what"].startswith("Perplexity")]
    assert min(text["before"], text["after"]) > 1
    of_d = {row["metric"]: row["n"] for row in document["after"] if row["group"] == "D"}
    assert of_d["accuracy"] == 9


def test_a_folder_belongs_to_the_weights_of_its_training(model_folder, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(model_folder("bert"), base)
    train(base, tmp_path / "o", epochs=1)
    model = AutoModelForMaskedLM.from_pretrained(base)
    for weight in model.parameters():
        weight.data += 1
    model.save_pretrained(base)
    refused("another run", train, base, tmp_path / "o", epochs=1)


@pytest.mark.parametrize(("options", "message"), cases("improve_bad"))
def test_what_is_wrong_is_one_message(consilience, command, options, message):
    assert message in " ".join(refusal(consilience, *command, *options).split())


@pytest.mark.parametrize("name", ["improve", "finetune"])
def test_without_accelerate_it_says_how_to_get_it(consilience, command, name, monkeypatch):
    for module in [each for each in sys.modules if each.startswith("consilience.train")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(consilience, "train", raising=False)
    monkeypatch.delitem(sys.modules, "accelerate.utils.environment", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate.utils.environment", None)
    if name == "finetune":
        command = [name, "--model", "m", "--task", "rte", "--train", "t.tsv", "--validation",
                   "v.tsv", "--out", "o"]  # fmt: skip
    err = refusal(consilience, *command)
    assert "accelerate>=1.1' 'peft>=0.18'`" in " ".join(err.split())


def test_a_training_without_out_has_a_folder_for_its_settings(monkeypatch):
    """The folder does not depend on the device, so that a training is resumed elsewhere."""
    folders = []
    monkeypatch.setattr(improvement, "train_and_measure", lambda *of: folders.append(of[1]))
    groups = {"train_groups": ("capital",), "validation_groups": ("currency",)}
    options = replace(OPTIONS, model="org/name", suite="mini", **groups)
    for change in ({}, {"device": "cpu"}, {"seed": 1}, {"limit": 3}):
        improvement.improve(replace(options, **change))
    assert folders[0].parent.name == "runs"
    assert folders[0].name.startswith("improve-mini-name-")
    assert folders[0] == folders[1] and len({*folders}) == 3
