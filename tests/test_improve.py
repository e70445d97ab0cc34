"""Whole consistency trainings: every family, adapters, and what interrupts them."""

import errno
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from checks import output, refusal, refused
from conftest import cases
from consilience import ConsilienceError, load_model
from consilience import train as train_package
from consilience.options.training import ImproveOptions
from consilience.probing.counting import CountedRun
from consilience.train import improvement
from consilience.train.consistency import ConsistencyTrainer
from consilience.train.improvement import Improved, Outcome
from consilience.train.trainer import TrainingFolder
from test_train import PATTERNS, SUITE, relation, train, trainer_of, training

ROW = "seed-42"


def only_train(spec, folder, row=ROW, **change):
    """Without the measurements before and after; the folder of the model."""
    improvement.train(training(spec, **change), folder / row)
    return folder / row / "model"


def record_of(folder):
    return json.loads((folder / ROW / "training.json").read_text(encoding="utf-8"))


def losses_of(folder):
    history = record_of(folder)["history"]
    return [log["consistency_loss"] for log in history if "consistency_loss" in log]


def weights_of(folder, row=ROW):
    return AutoModelForMaskedLM.from_pretrained(folder / row / "model").state_dict()


def assert_same(one, other, atol=1e-6):
    """Two trainings ended with the same weights."""
    one, other = weights_of(one), weights_of(other)
    assert all(torch.allclose(one[name], other[name], atol=atol) for name in one)


def test_a_tiny_model_gets_consistent_and_its_folder_is_reused(model_folder, tmp_path, capsys):
    out, spec = tmp_path / "out", model_folder("bert")
    capsys.readouterr()
    result = train(spec, out)
    (row,) = result.best.compared.filter(metric="consistency", group="D").to_dicts()
    assert row["second_value"] > row["first_value"] + 0.2
    captured = capsys.readouterr()
    assert captured.out + captured.err == "", "the library prints nothing"
    assert {path.name for path in out.iterdir()} == {"before", "seed-42"}
    assert losses_of(out)[-1] < losses_of(out)[0]
    record = out / ROW / "training.json"
    stamp = record.stat().st_mtime_ns
    again = train(spec, out)
    assert record.stat().st_mtime_ns == stamp
    assert again.best.metrics.equals(result.best.metrics, null_equal=True)
    refused("another run: its train_facts is 8, now asked is 4", train, spec, out, train_facts=4)
    refused("another run: its weight is 1.0, now asked is 2.0", train, spec, out, weight=2.0)
    refused("another run: its limit is", train, spec, out, limit=1, seeds=(42, 43))
    assert {path.name for path in out.iterdir()} == {"before", "seed-42"}, "nothing was trained"
    for text in ("[]", "{", "7", json.dumps({"settings": {}})):
        record.write_text(text)
        refused(r"training\.json: not the record of a training", train, spec, out)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("llama", {"mlm": "none"}),
        ("roberta", {}),
        ("bert", {"bf16": True, "loss": "vote", "epochs": 4}),
        ("gpt2", {"loss": "vote"}),
        ("bert", {"loss": "vote", "lora_rank": 8, "learning_rate": 3e-2}),
        ("gpt2", {"bf16": True, "loss": "pairs-vocabulary"}),
    ],
)
def test_every_kind_of_training_lowers_the_loss_and_saves_a_plain_model(
    family, change, model_folder, tmp_path
):
    assert_trained(model_folder(family), tmp_path, **{"epochs": 2, **change})


def assert_trained(spec, folder, **change):
    """The loss fell, and the folder of the model has what it had before: returned."""
    saved = only_train(spec, folder, **change)
    losses = losses_of(folder)
    assert losses[-1] < losses[0]
    before, after = (load_model(str(path), protocol="strict").identity for path in (spec, saved))
    for name in ("architecture", "parameters"):
        assert before[name] == after[name]
    assert not list(saved.glob("adapter*"))
    assert saved.with_name("adapter").exists() == bool(change.get("lora_rank"))
    return saved


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
    spec, adapted = model_folder("llama"), {"lora_rank": 2, "learning_rate": 3e-2}
    saved = assert_trained(spec, tmp_path, **adapted, epochs=2)
    before, after = (AutoModelForCausalLM.from_pretrained(of).state_dict() for of in (spec, saved))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("weight") and "embeddings" not in name for name in changed)
    name = min(changed)
    assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 2


class KilledError(Exception):
    """Raised instead of a signal."""


def test_a_killed_training_ends_with_the_weights_of_an_unbroken_one(
    model_folder, tmp_path, monkeypatch
):
    """The last checkpoint is half written."""
    spec, place = model_folder("bert"), tmp_path / "broken" / ROW
    only_train(spec, tmp_path / "whole", epochs=3)
    save = ConsistencyTrainer._save_checkpoint

    def killed(self, *args, **kwargs):
        if self.state.global_step == 5:
            (place / "checkpoint-5").mkdir()
            (place / "checkpoint-5" / "model.safetensors").write_bytes(b"half")
            raise KilledError
        return save(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(ConsistencyTrainer, "_save_checkpoint", killed)
        with pytest.raises(KilledError):
            only_train(spec, tmp_path / "broken", epochs=3)
    (place / "checkpoint-5" / "trainer_state.json").write_text('{"global_step', encoding="utf-8")
    assert TrainingFolder(place, {}).last_checkpoint() == (4, place / "checkpoint-4")
    only_train(spec, tmp_path / "broken", epochs=3)
    assert not list(place.glob("checkpoint-*"))
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_what_stops_a_training_is_one_message(model_folder, tmp_path, monkeypatch):
    spec = model_folder("bert")
    with pytest.raises(ConsilienceError, match="seed-42: the loss is nan at step 1.*are complete"):
        train(spec, tmp_path / "nan", learning_rate=1e9, batch_size=2)

    def full(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ConsistencyTrainer, "_save_checkpoint", full)
    refused("the disk is full. Earlier checkpoints are complete", train, spec, tmp_path / "full")


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


TEXTS = ["Paris is the capital of France.", "", "Rome is large."]


def test_one_command_trains_measures_and_shows_the_cost(consilience, command, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    command = [*command, "--text", tmp_path / "text.txt"]
    status, out, err = consilience(*command)
    assert status == 0, err
    assert "suite: after minus before" in out
    assert "training seed 42, lambda 0.5" in err
    load, *_ = [line for line in out.splitlines() if line.startswith("  model = ")]
    names = {}
    exec(f"from transformers import pipeline\n{load.strip()}", names)
    assert names["model"]("Rome is [MASK].")[0]["token_str"]
    document = json.loads(output(consilience, *command, "--json"))
    (outcome,) = document["outcomes"]
    assert {"accuracy", "consistency", "consistent_accuracy"} <= set(outcome["validation"])
    (text,) = [row for row in document["harm"] if row["what"].startswith("Perplexity")]
    assert min(text["before"], text["after"]) > 1
    assert document["model"] == outcome["model"]
    (row,) = [row for row in outcome["after"] if (row["group"], row["metric"]) == ("D", "accuracy")]
    assert row["n"] == 9


def test_differences_of_several_seeds_have_means():
    """Accuracy rises by 10, 20 and 60 points: by 30, with s = sqrt(.07), and t of 2 degrees 4.30."""

    def outcome(seed, rise):
        row = {"metric": "accuracy", "over": "mean", "group": "", "kind": "whole", "level": ""}
        compared = pl.DataFrame(
            [row | {"difference": rise}, row | {"metric": "f1", "difference": 1.0}]
        )
        record = {"validation": {"consistent_accuracy": 1 - rise}}
        return Outcome(seed, Path("m"), record, compared, compared)

    outcomes = [outcome(seed, rise) for seed, rise in ((1, 0.1), (2, 0.2), (3, 0.6))]
    before = CountedRun.__new__(CountedRun)
    object.__setattr__(before, "suite", SUITE)
    result = Improved(training("m"), Path("out"), "masked", before, outcomes)
    assert result.best.seed == 1
    (row,) = result.over_seeds().to_dicts()
    assert (row["value"], row["std"], row["runs"]) == pytest.approx((0.3, 0.07**0.5, 3))
    assert row["high"] == pytest.approx(0.3 + 4.302653 * (0.07 / 3) ** 0.5)
    (cells,) = result.seed_table().rows
    assert cells[:2] == ["Accuracy", pytest.approx(0.3)]


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
    for module in [each for each in sys.modules if each.startswith("consilience.train.")]:
        monkeypatch.delitem(sys.modules, module)
        monkeypatch.delattr(train_package, module.rpartition(".")[2], raising=False)
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate.state", None)
    if name == "finetune":
        command = [name, "--model", "m", "--task", "rte", "--train", "t.tsv", "--validation",
                   "v.tsv", "--out", "o"]  # fmt: skip
    err = refusal(consilience, *command)
    assert "accelerate>=1.1' 'peft>=0.18'`" in " ".join(err.split())


def test_a_training_without_out_has_a_folder_for_its_settings(monkeypatch):
    """The folder does not depend on the device, so that a training is resumed elsewhere."""
    folders = []
    monkeypatch.setattr(improvement, "train_and_measure", lambda *of: folders.append(of[1]))
    options = ImproveOptions(
        model="org/name", suite="mini", train_groups=("capital",), validation_groups=("currency",)
    )
    changes = ({}, {"device": "cpu"}, {"seeds": (1,)}, {"limit": 3})
    for change in changes:
        improvement.improve(replace(options, **change))
    assert folders[0].parent.name == "runs"
    assert folders[0].name.startswith("improve-mini-name-")
    assert folders[0] == folders[1] and len({*folders}) == 3
