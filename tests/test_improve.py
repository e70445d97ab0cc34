"""Whole consistency trainings: every family, seeds, processes, ablations, and what interrupts them."""

import errno
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from checks import output, refusal, refused
from conftest import cases
from consilience import ConsilienceError, load_model
from consilience.core.errors import Loading
from consilience.core.text import duration
from consilience.models.fast.products import speed_up_training
from consilience.options.training import ImproveOptions
from consilience.suites import load_suite
from consilience.train.batch_trainer import TrainingFolder, time_training
from consilience.train.consistency import (
    ConsistencyTrainer,
    _folder_of,
    _train_rows,
    read_lines,
)
from consilience.train.objectives import perplexity_of, text_losses
from consilience.train.plan import Subject
from test_train import PATTERNS, PLAN, SUITE, relation, train, trainer_of

ROW = "seed-42/improved/lambda-1"


def only_train(spec, folder, **change):
    """The same as ``train`` without the measurements before and after: the folder of the model."""
    subject = Subject(str(spec), SUITE, "strict")
    (chosen,) = _train_rows(subject, replace(PLAN, **change), folder, ablations=False)
    return chosen.training.model


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
    assert {path.name for path in out.iterdir()} >= {
        "before", "seed-42", "table-7.csv", "lambdas.csv", "run.json",
    }  # fmt: skip
    assert losses_of(out)[-1] < losses_of(out)[0]
    record = out / ROW / "training.json"
    stamp = record.stat().st_mtime_ns
    again = train(spec, out)
    assert record.stat().st_mtime_ns == stamp
    assert again.best.metrics.equals(result.best.metrics, null_equal=True)
    refused(r"another run: its --train-facts is 8, now asked is 4", train, spec, out, facts=4)
    whole = json.loads(record.read_text())
    damaged = ({"validation": {}}, {"perplexity": "1"}, {"finished": 1})
    for text in ("[]", "{", *(json.dumps(whole | content) for content in damaged)):
        record.write_text(text)
        refused(r"training\.json: not the record of a training", train, spec, out)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("llama", {"text": "none"}),
        ("roberta", {}),
        ("bert", {"bf16": True, "loss": "vote", "epochs": 4}),
        ("gpt2", {"loss": "vote"}),
        ("bert", {"loss": "vote", "lora_rank": 8, "learning_rate": 3e-2}),
        ("gpt2", {"bf16": True, "vocabulary": True, "loss": "pairs"}),
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
    plan = replace(PLAN, **change)
    has_base = plan.lora_rank and plan.loss == "pairs"  # an adapter of the teacher has none to load
    assert saved.with_name("adapter").exists() == bool(has_base)
    return saved


def test_the_teacher_of_a_vote_does_not_move(model_folder, tmp_path):
    """The teacher is the plan without a consistency loss; the student begins where it ended."""
    spec = model_folder("bert")
    only_train(spec, tmp_path / "vote", loss="vote", epochs=1)
    only_train(spec, tmp_path / "words", weights=(0.0,), epochs=1)
    one = weights_of(tmp_path / "vote", "seed-42/teacher/lambda-0")
    other = weights_of(tmp_path / "words", "seed-42/improved/lambda-0")
    assert all(torch.equal(one[name], other[name]) for name in one)
    taught = tmp_path / "vote" / "seed-42" / "teacher" / "lambda-0" / "model"
    trainer = trainer_of(taught, tmp_path / "t", loss="vote", epochs=1)
    trainer.train()
    teacher, student = trainer.teacher.model.state_dict(), trainer.model.state_dict()
    assert all(torch.equal(teacher[name], one[name]) for name in one)
    assert any(not torch.equal(student[name], one[name]) for name in one)


def test_adapters_leave_the_other_weights_alone(model_folder, tmp_path):
    spec, adapted = model_folder("llama"), {"lora_rank": 2, "learning_rate": 3e-2}
    saved = assert_trained(spec, tmp_path, **adapted, epochs=2, gradient_checkpointing=True)
    before, after = (AutoModelForCausalLM.from_pretrained(of).state_dict() for of in (spec, saved))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("weight") and "embeddings" not in name for name in changed)
    name = min(changed)
    assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 2


def test_steps_can_be_gathered_into_fewer_updates(model_folder, tmp_path):
    """8 facts, 2 a step, of two relations: 8 steps an epoch, 2 by 2; 4 updates without that."""
    only_train(model_folder("bert"), tmp_path, batch=2, epochs=1, accumulation=2)
    assert record_of(tmp_path)["history"][-1]["step"] == 2


def test_gradient_checkpointing_changes_nothing_but_the_memory(calm_folder, tmp_path):
    for name, is_on in (("plain", False), ("saved", True)):
        only_train(calm_folder("bert"), tmp_path / name, epochs=1, gradient_checkpointing=is_on)
    assert_same(tmp_path / "plain", tmp_path / "saved", 1e-5)


def test_seeds_and_ablations_make_table_7(model_folder, tmp_path):
    lines = ["Paris is the capital of France."] * 3
    result = train(
        model_folder("bert"), tmp_path / "o", seeds=(1, 2), ablations=True, epochs=1, facts=4,
        weights=(0.5, 2.0), subject={"lines": lines, "test_facts": 6},
    )  # fmt: skip
    names = ["improved", "no-consistency", "no-typing", "no-mlm"]
    rows = {(each.name, each.seed): each for each in result.outcomes}
    assert [*rows] == [(name, seed) for name in names for seed in (1, 2)]
    for seed in (1, 2):
        improved = rows["improved", seed]
        assert improved.training.validation["consistent_accuracy"] == max(
            each.validation["consistent_accuracy"] for each in improved.tried.values()
        )
        assert rows["no-consistency", seed].weight == 0
        for name in ("no-typing", "no-mlm"):
            assert rows[name, seed].weight == improved.weight
    table = result.table
    assert table["name"].unique(maintain_order=True).to_list() == ["before", *names]
    (row,) = table.filter(name="no-mlm", metric="consistency").to_dicts()
    of_all = {"group": "MACRO", "metric": "consistency", "subset": "all"}
    mean = fmean(rows["no-mlm", seed].metrics.filter(**of_all)["value"].item() for seed in (1, 2))
    before = result.before.filter(**of_all)["value"].item()
    assert (row["value"], row["difference"]) == pytest.approx((mean, mean - before))
    assert row["lowest"] <= row["difference"] <= row["highest"]
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["seeds"] == 2
    assert row["perplexity"] > 1
    (kept,) = result.lambdas.filter(pl.col("kept"), name="improved", seed=1).to_dicts()
    saved = str(rows["improved", 1].training.model)
    assert kept["perplexity"] == pytest.approx(
        perplexity_of(text_losses(saved, lines, Loading("cpu")))
    )
    assert pl.read_csv(tmp_path / "o" / "table-7.csv").height == table.height
    assert result.before.filter(group="D", metric="accuracy")["n"].to_list() == [6]


def test_of_equal_checkpoints_and_lambdas_the_last_is_kept(model_folder, tmp_path):
    """With a learning rate of next to nothing all are equal."""
    change = {"weights": (0.5, 1.0), "learning_rate": 1e-30, "epochs": 2}
    result = train(model_folder("bert"), tmp_path, **change)
    checkpoint = {"step": 4, "updates": 4, "equal": 4, "checkpoints": 4}
    assert (result.best.weight, result.best.training.checkpoint) == (1.0, checkpoint)
    assert json.loads((tmp_path / ROW / "training.json").read_text())["checkpoint"]["step"] == 4
    assert result.lambdas.filter(pl.col("kept"))["step"].to_list() == [4]
    (note,) = result.notes
    assert note.startswith("4 of 4 checkpoints and 2 of 2 lambdas have the same consistent")


class KilledError(Exception):
    """Raised instead of a signal."""


def test_a_killed_training_ends_with_the_weights_of_an_unbroken_one(
    model_folder, tmp_path, monkeypatch, measured_next
):
    """It keeps its products, whatever is measured. The last checkpoint is half written."""
    measured_next("onednn", "onednn", "torch")
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
    assert TrainingFolder(place, {}).last_checkpoint() == str(place / "checkpoint-4")
    only_train(spec, tmp_path / "broken", epochs=3)
    assert not list(place.glob("checkpoint-*"))
    assert_same(tmp_path / "whole", tmp_path / "broken")
    assert record_of(tmp_path / "broken")["products"]["library"] == "onednn"


def test_what_stops_a_training_is_one_message(model_folder, tmp_path, monkeypatch):
    spec = model_folder("bert")
    with pytest.raises(ConsilienceError, match="lambda-1: the loss is nan at step 1.*are complete"):
        train(spec, tmp_path / "nan", learning_rate=1e9)

    def full(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ConsistencyTrainer, "_save_checkpoint", full)
    refused("the disk is full. Earlier checkpoints are complete", train, spec, tmp_path / "full")


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
    speed_up_training(model, "onednn")
    assert "forward" in vars(fast)
    model(again).square().sum().backward()
    found = [again.grad, *(each.grad for each in fast.parameters())]
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


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
        "--validation-groups", "C", "--lambda", "0.5,2", "--train-facts", "8", "--loss", "pairs", "--epochs", "1",
        "--learning-rate", "3e-3", "--limit", "9", "--out", tmp_path / "o",
    ]  # fmt: skip


TEXTS = ["Paris is the capital of France.", "", "Rome is large."]


def test_texts_are_read_without_empty_ones(tmp_path):
    lines, rows = tmp_path / "text.txt", tmp_path / "text.jsonl"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    assert read_lines(lines) == read_lines(rows) == [TEXTS[0], TEXTS[2]]


def test_one_command_trains_measures_and_shows_the_cost(consilience, command, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    command = [*command, "--text", tmp_path / "text.txt"]
    status, out, err = consilience(*command)
    assert status == 0, err
    assert "on suite: 1 held-out relation (strict)" in out
    assert "Table 7" not in out
    assert "held out: 9 facts of D" in err
    assert "training improved, seed 42, lambda 0.5" in err
    load, *_ = [line for line in out.splitlines() if line.startswith("  model = ")]
    names = {}
    exec(f"from transformers import pipeline\n{load.strip()}", names)
    assert names["model"]("Rome is [MASK].")[0]["token_str"]
    status, out, err = consilience(*command, "--details")
    assert status == 0, err
    for shown in ("Table 7", "Consistent accuracy", "chosen", "sign flips of subjects", "lambda-"):
        assert shown in out
    assert "held out" not in err, "there is nothing left to do"
    document = json.loads(output(consilience, *command, "--json"))
    (outcome,) = document["outcomes"]
    assert set(outcome["validation"]) == {"0.5", "2"}
    assert min(outcome["perplexity"], document["perplexity"]) > 1
    assert document["model"] == outcome["model"]
    (row,) = [row for row in outcome["after"] if (row["group"], row["metric"]) == ("D", "accuracy")]
    assert row["n"] == 9


def test_a_dry_run_counts_the_work_and_trains_nothing(consilience, command, tmp_path):
    """Of 8 facts in steps of 8 an epoch has one update of two relations; 12 facts, 3 patterns."""
    more = ["--loss", "vote", "--seeds", "1,2", "--ablations", "--dry-run"]
    lines = output(consilience, *command, *more).splitlines()
    assert lines[:5] == [
        "train: 16 facts of A, B",
        "validation: 12 facts of C",
        "held out: 9 facts of D",
        "work: 12 trainings (2 seeds) of 1 update and 1 validation of 36 queries; then 9 runs of "
        "27 queries",
        "trainings: with seed 1, 2: the teacher, without a consistency loss; one for each lambda: "
        "0.5, 2; one for each ablation: no-consistency, no-typing, no-mlm",
    ]
    assert lines[5].startswith("estimated time: ")
    assert lines[6].endswith("without --dry-run to start.")
    assert not (tmp_path / "o").exists()
    cost = json.loads(consilience(*command, *more, "--json")[1])["cost"]
    seconds = {name: cost[f"{name}_seconds"] for name in ("load", "update", "query", "overhead")}
    assert min(seconds["load"], seconds["update"], seconds["query"]) > 0
    validation, run = (seconds["overhead"] + seconds["query"] * count for count in (36, 27))
    expected = 12 * (seconds["load"] + seconds["update"] + validation) + 9 * (seconds["load"] + run)
    assert cost["seconds"] == pytest.approx(expected)


def test_lines_without_a_known_token_are_in_no_perplexity(model_folder):
    """A line of unknown tokens alone, and one of nothing that a tokenizer keeps."""
    spec, loading = str(model_folder("bert")), Loading("cpu")
    known = perplexity_of(text_losses(spec, ["the cat"], loading))
    more = text_losses(spec, ["the cat", "\u2603", "\u200b"], loading)
    assert perplexity_of(more) == pytest.approx(known)
    assert perplexity_of(more[1:]) is None and perplexity_of([]) is None


def test_a_folder_belongs_to_the_weights_and_the_text_of_its_training(model_folder, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(model_folder("bert"), base)
    train(base, tmp_path / "o", epochs=1)
    refused(
        "its text_digest is", train, base, tmp_path / "o", subject={"lines": ("a b",)}, epochs=1
    )
    model = AutoModelForMaskedLM.from_pretrained(base)
    for weight in model.parameters():
        weight.data += 1
    model.save_pretrained(base)
    refused("another run: its weights is", train, base, tmp_path / "o", epochs=1)


@pytest.mark.parametrize("bf16", [False, True])
def test_the_timed_update_has_the_precision_of_the_training(bf16, model_folder, tmp_path):
    trainer, seen = trainer_of(model_folder("bert"), tmp_path / "t", bf16=bf16), []

    def lossy(model, inputs):
        seen.append(torch.is_autocast_enabled("cpu"))
        return sum(weight.sum() for weight in model.parameters())

    trainer.compute_loss = lossy
    time_training(trainer, [trainer.steps[0]], {1: int})
    assert seen == [bf16, bf16]


def test_durations_in_words():
    durations = [duration(seconds) for seconds in (0.2, 89, 90, 5400, 86400 * 3.04)]
    assert durations == ["1 s", "89 s", "1.5 min", "1.5 h", "3 days"]


@pytest.mark.parametrize(("options", "message"), cases("improve_bad"))
def test_what_is_wrong_is_one_message(consilience, command, tmp_path, options, message):
    (tmp_path / "text.jsonl").write_text('{"text": "x"}\n{}\n')
    assert message in " ".join(refusal(consilience, *command, *options).split())


def test_the_suite_is_refused_before_anything_else(consilience):
    message = "no relations for train. Name some: --train-groups."
    assert message in refusal(consilience, "improve", "--model", "nowhere", "--suite", "mini")


@pytest.mark.parametrize("name", ["improve", "finetune"])
def test_without_accelerate_it_says_how_to_get_it(consilience, command, name, monkeypatch):
    for module in [each for each in sys.modules if each.startswith("consilience.train.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate.state", None)
    if name == "finetune":
        command = [name, "--model", "m", "--task", "rte", "--train", "t.tsv", "--validation",
                   "v.tsv", "--out", "o"]  # fmt: skip
    err = refusal(consilience, *command)
    assert "accelerate>=1.1' 'peft>=0.18'`" in " ".join(err.split())


def test_a_training_without_out_has_a_folder_for_its_settings():
    """The folder does not depend on the device, so that a training is resumed elsewhere."""
    suite = load_suite("mini")
    options = ImproveOptions("org/name", "mini", ("capital",), ("currency",))
    folder = _folder_of(options, suite)
    assert folder.parent.name == "runs"
    assert folder.name.startswith("improve-mini-name-")
    assert _folder_of(replace(options, device="cpu", dry_run=True), suite) == folder
    others = [replace(options, seeds=(1,)), replace(options, text=Path("a.txt"))]
    assert len({folder, *(_folder_of(other, suite) for other in others)}) == 3
