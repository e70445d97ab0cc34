"""Fine-tuning on sentence pairs: every family, against a plain loop; what goes on, and what is refused."""

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from checks import refusal, refused
from conftest import SENTENCES, WORDS, _tokenizer, cases
from consilience.core.errors import Loading
from consilience.core.items import TextPair
from consilience.models import classifier
from consilience.models.classifier import PairFormat, PairInput, collate, load_pair_classifier
from consilience.options.commands import FinetuneOptions
from consilience.suites.pairs import TASKS, Pairs, original
from consilience.train import TrainingFolder
from consilience.train import classifiers as heads_module
from test_models import build_bart

RTE, MNLI, MRPC = TASKS["rte"], TASKS["mnli"], TASKS["mrpc"]
OPTIONS = FinetuneOptions(
    model="model", task="rte", train="t.csv", validation="v.csv", out=Path("out"), seed=3, learning_rate=6e-3, batch_size=8, epochs=2,
    patience=0, device="cpu",
)  # fmt: skip
WEIGHTS = "model.safetensors"


def make(count, task=RTE, seed=0):
    """Pairs whose last word is their label's: Paris, Berlin, Rome."""
    draw = random.Random(seed)
    labels = [task.labels[at % len(task.labels)] for at in range(count)]
    pairs = []
    for at, label in enumerate(labels):
        first, word = draw.choice(WORDS[3:]), WORDS[task.labels.index(label)]
        pairs.append(TextPair(str(at), first, " ".join([word] * draw.randrange(3, 9)), label))
    return Pairs(tuple(pairs))


def flipped(pairs, task=RTE):
    """The same with every label the next one, so that who learns the others gets worse at these."""
    names = dict(zip(task.labels, task.labels[1:] + task.labels[:1], strict=True))
    return Pairs(tuple(replace(each, label=names[each.label]) for each in pairs.items))


LABELS = {"rte": RTE.labels, "mnli": MNLI.labels}
ONE = (heads_module.TaskPairs(RTE, make(16), make(8, seed=1)),)
TWO = (*ONE, heads_module.TaskPairs(MNLI, make(12, MNLI), make(6, MNLI, seed=1)))


def train(spec, folder, sources=ONE, **change):
    return heads_module.train_classifier(
        replace(OPTIONS, model=str(spec), **change), sources, folder
    )


def heads_of(spec, labels=None):
    """A model with new heads, and its tokenizer."""
    return heads_module.load_heads(replace(OPTIONS, model=str(spec)), labels or {"rte": RTE.labels})


def record_of(folder):
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def measured(folder, name):
    """One number of every epoch."""
    return [each[name] for each in record_of(folder)["history"] if name in each]


def weights_of(folder):
    """All tensors of a saved model."""
    return load_file(folder / WEIGHTS)


def assert_same(one, other, atol=None):
    """The same weights; without ``atol``, up to what rounding does.

    Where a gradient is next to nothing, AdamW makes a step of its rounding; so it always does with
    the biases of keys, which change no attention.
    """
    one, other = weights_of(one), weights_of(other)
    assert one.keys() == other.keys()
    for name, weight in one.items():
        apart = weight - other[name]
        if atol is not None:
            assert apart.abs().max() <= atol, name
        elif not name.endswith("key.bias"):
            assert apart.norm() <= 3e-4 * weight.norm(), name


def judge(folder, source):
    """Accuracy and mean cross-entropy of a saved model on a source's validation pairs."""
    task, pairs = source.task, source.validation.items
    model = load_pair_classifier(str(folder / task.name), task.labels, Loading("cpu"))
    right, loss = 0, 0.0
    for scores in model.score([original(pair, task.indicators) for pair in pairs]):
        for row, known in zip(scores.rows, scores.logprob, strict=True):
            right += task.labels[known.argmax()] == pairs[row].label
            loss -= known[task.labels.index(pairs[row].label)]
    return right / len(pairs), loss / len(pairs)


@pytest.fixture(scope="module")
def folder_of(calm_folder, tmp_path_factory):
    """``folder_of("bert")``: a tiny model with small weights, which learns, without dropout."""
    bart = build_bart(tmp_path_factory.mktemp("bart"), init_std=0.2, dropout=0.0)
    return lambda family: bart if family == "bart" else calm_folder(family)


@pytest.fixture(scope="module")
def plain(calm_folder):
    return calm_folder("bert")


ENCODERS = ["bert", "roberta", "electra", "deberta"]
DECODERS = ["gpt2", "llama"]
OTHERS = ["bart", "t5"]


@pytest.mark.parametrize("family", ENCODERS + DECODERS + OTHERS)
def test_every_family_learns_and_is_saved_as_any_other_model(
    family, folder_of, tmp_path, monkeypatch
):
    trained = []
    save = heads_module.PairTrainer.save
    monkeypatch.setattr(heads_module.PairTrainer, "save", lambda self, best: (trained.append(self), save(self, best))[1])  # fmt: skip
    found = train(folder_of(family), tmp_path / "o", epochs=4, batch_size=4)
    losses = measured(tmp_path / "o", "loss")
    assert losses[-1] < losses[0] / 2
    assert found["epochs"] == len(losses) == 4
    assert found["validation"] == {"rte": 1.0}
    place = tmp_path / "o" / "rte"
    loading = {"output_loading_info": True}
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(place, **loading)
    assert not any(info.values()), info
    assert model.config.id2label == dict(enumerate(RTE.labels))
    assert model.config.label2id == {label: at for at, label in enumerate(RTE.labels)}
    reading = PairFormat.beside(place)
    joined = "pair" if family in ENCODERS else "string"
    assert reading == PairFormat(joined, indicators=RTE.indicators)
    heads = trained[0].heads
    reader = PairInput(model, transformers.AutoTokenizer.from_pretrained(place), reading)
    encoded = reader.encode([original(pair, RTE.indicators) for pair in make(8, seed=1).items])
    logits = torch.cat([classifier.read([each], model) for each in encoded])
    heads.eval()
    with torch.no_grad():
        before = heads("rte", **collate(encoded, reader.tokenizer.pad_token_id or 0))
        plainly = [model(**collate([each], 0)).logits[0] for each in encoded]
    torch.testing.assert_close(before, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(plainly), logits, rtol=1e-4, atol=1e-4)
    assert found["validation"] == {"rte": judge(tmp_path / "o", ONE[0])[0]}


def read(folder):
    """A model with a new head, in double precision, and forms of three lengths."""
    torch.manual_seed(1)
    heads, tokenizer = heads_of(folder)
    reader = PairInput(heads.models["rte"], tokenizer, heads.reading)
    pairs = [("Paris", "Rome"), ("Rome is in Europe.", "Oslo"), (SENTENCES[0], SENTENCES[1])]
    forms = reader.encode([original(TextPair("", *each, ""), ("A", "B")) for each in pairs])
    assert len({len(each["input_ids"]) for each in forms}) == 3
    return heads.double().eval(), forms, tokenizer


@pytest.mark.parametrize("family", ENCODERS + DECODERS + OTHERS)
@torch.no_grad()
def test_padding_changes_no_logits_which_are_those_of_transformers(family, folder_of):
    heads, forms, tokenizer = read(folder_of(family))
    inputs = [collate(some, tokenizer.pad_token_id) for some in (forms, *([one] for one in forms))]
    together, *alone = (heads("rte", **each) for each in inputs)
    assert together.shape == (3, 2)
    assert (together[0] - together[1]).abs().max() > 1e-3
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)
    theirs = [heads.models["rte"](**each).logits for each in inputs]
    torch.testing.assert_close([together, *alone], theirs, rtol=0, atol=1e-9)


def test_weights_with_two_names_are_kept_once_and_stay_one(model_folder, tmp_path):
    """T5's two stacks read with one embedding; the best of two checkpoints is read again."""
    heads, _ = heads_of(model_folder("t5"), LABELS)
    body = heads.body
    assert body.shared.weight is body.encoder.embed_tokens.weight is body.decoder.embed_tokens.weight  # fmt: skip
    train(model_folder("t5"), tmp_path / "o", TWO, epochs=2)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "o" / "mnli")
    shared = model.transformer.shared.weight
    assert shared is model.transformer.decoder.embed_tokens.weight
    assert not shared.equal(body.shared.weight)
    assert shared.equal(load_file(tmp_path / "o" / "rte" / WEIGHTS)["transformer.shared.weight"])


def test_an_epoch_has_every_pair_once_and_keeps_the_short_batch():
    """41 pairs by 4 are 10 batches and one of 1; 9 are 2 and one of 1."""
    draw, counts = random.Random(0), {"a": 41, "b": 9}
    forms = {task: [{"input_ids": [at] + [0] * draw.randrange(30)} for at in range(count)]
             for task, count in counts.items()}  # fmt: skip
    pairs = {
        task: heads_module.EncodedPairs(of, range(0, 2 * len(of), 2)) for task, of in forms.items()
    }
    found = heads_module.PairBatches(pairs, size=4, epochs=3, seed=0)
    assert (found.per_epoch, len(found)) == (14, 42)
    items = [found[at] for at in range(42)]
    for epoch in range(3):
        read = Counter()
        for item in items[14 * epoch : 14 * epoch + 14]:
            rows = item["input_ids"][:, 0].tolist()
            assert item["labels"].tolist() == [2 * row for row in rows]
            read.update((item["task"], row) for row in rows)
        assert read == {(task, row): 1 for task, count in counts.items() for row in range(count)}
    assert Counter(len(item["labels"]) for item in items) == {4: 36, 1: 6}


def test_one_epoch_is_that_of_a_plain_loop(plain, tmp_path, monkeypatch):
    """AdamW (no decay of biases and norms), 5 updates, the rate rises over 2 and falls over 3.

    The rates are 0, 1/2, 1, 2/3, 1/3 of the highest; gradients are clipped at 1.
    """
    monkeypatch.setattr(heads_module, "WARMUP", 0.4)
    monkeypatch.setattr(heads_module, "WEIGHT_DECAY", 0.3)
    trainers = []
    usual = heads_module.PairTrainer.train
    monkeypatch.setattr(heads_module.PairTrainer, "train", lambda self, **k: (trainers.append(self), usual(self, **k)))  # fmt: skip
    train(plain, tmp_path / "o", TWO, epochs=1, batch_size=6)
    transformers.set_seed(3)
    heads, tokenizer = heads_of(plain, LABELS)
    reader = PairInput(heads.models["rte"], tokenizer, heads.reading)
    pairs = {
        one.task.name: heads_module.EncodedPairs.of(one.task, one.train, reader, 512) for one in TWO
    }
    order = heads_module.PairBatches(pairs, size=6, epochs=1, seed=3)
    assert len(order) == 5
    free = [name.endswith("bias") or "LayerNorm" in name for name, _ in heads.named_parameters()]
    groups = [
        {"params": [w for w, off in zip(heads.parameters(), free, strict=True) if off == no],
         "weight_decay": 0.0 if no else 0.3}
        for no in (False, True)
    ]  # fmt: skip
    steps = torch.optim.AdamW(groups)
    heads.train()
    for at, share in enumerate((0, 1 / 2, 1, 2 / 3, 1 / 3)):
        item = order[at]
        logits = heads(**{k: of for k, of in item.items() if k != "labels"})
        steps.zero_grad()
        torch.nn.functional.cross_entropy(logits, item["labels"]).backward()
        torch.nn.utils.clip_grad_norm_(heads.parameters(), 1.0)
        for group in steps.param_groups:
            group["lr"] = share * OPTIONS.learning_rate
        steps.step()
    for task, model in heads.models.items():
        model.save_pretrained(tmp_path / "plain" / task)
        assert_same(tmp_path / "o" / task, tmp_path / "plain" / task)
    assert isinstance(trainers[0].optimizer.optimizer, torch.optim.AdamW)
    assert trainers[0].args.max_grad_norm == 1
    begun = heads_of(plain)[0].body.parameters()
    both = zip(begun, heads.body.parameters(), strict=True)
    moved = [(before - after).abs().max() for before, after in both]
    assert sorted(moved)[len(moved) // 2] > 1e-3, "the loop is no idle one"


def test_the_best_epoch_is_kept_where_later_ones_are_worse(plain, tmp_path, monkeypatch):
    """Validation says the opposite of training; by a lucky head already at first, so by one of four."""
    monkeypatch.setattr(heads_module, "WARMUP", 1.0)
    source = replace(ONE[0], validation=flipped(make(16, seed=1)))
    slow = {"epochs": 5, "learning_rate": 3e-3}
    for seed in range(4):
        place = tmp_path / f"{seed}"
        found = train(plain, place, (source, TWO[1]), **slow, seed=seed)
        accuracies, losses = (measured(place, f"eval_{each}") for each in ("accuracy", "loss"))
        if accuracies[-1] < max(accuracies):
            break
    assert accuracies[-1] < max(accuracies)
    assert losses[-1] > min(losses)
    best = accuracies.index(max(accuracies))
    accuracy, loss = judge(place, source)
    assert accuracy == accuracies[best]
    assert loss == pytest.approx(losses[best], rel=1e-4)
    assert found["validation"] == {"rte": accuracy} == record_of(place)["validation"]


def stop_at(monkeypatch, target, name, count):
    """The ``count``-th call of a method does its work, and then all is over."""
    usual, calls = getattr(target, name), []

    def stopped(self, *args, **kwargs):
        usual(self, *args, **kwargs)
        calls.append(name)
        if len(calls) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(target, name, stopped)
    return lambda: monkeypatch.setattr(target, name, usual)


@pytest.mark.parametrize(("family", "epochs"), [("bert", 3), ("t5", 2)])
def test_a_training_that_was_killed_ends_with_the_weights_of_an_unbroken_one(
    family, epochs, model_folder, tmp_path, monkeypatch
):
    """With dropout, two tasks; killed in the last epoch, of which half a checkpoint is left."""
    spec = model_folder(family)
    whole = train(spec, tmp_path / "whole", TWO, epochs=epochs)
    restore = stop_at(monkeypatch, heads_module.PairTrainer, "_save_checkpoint", epochs - 1)
    with pytest.raises(KeyboardInterrupt):
        train(spec, tmp_path / "killed", TWO, epochs=epochs)
    restore()
    place = tmp_path / "killed"
    assert TrainingFolder(place, {}).last_checkpoint()[0] == 4 * (epochs - 1)
    half = place / f"checkpoint-{4 * epochs}"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (half / "trainer_state.json").write_text('{"global_step')
    found = train(spec, place, TWO, epochs=epochs)
    assert (found["validation"], found["epochs"]) == (whole["validation"], whole["epochs"])
    for task in ("rte", "mnli"):
        assert_same(tmp_path / "whole" / task, place / task, 1e-6)
    losses = measured(place, "eval_loss")
    assert judge(place, TWO[0])[1] in [pytest.approx(loss, rel=1e-4) for loss in losses]
    for name in ("eval_loss", "loss", "learning_rate"):
        assert measured(tmp_path / "whole", name) == pytest.approx(measured(place, name), rel=1e-5)
    assert sorted(each.name for each in place.iterdir()) == ["mnli", "rte", "training.json"]


def test_patience_is_not_forgotten_and_a_folder_may_be_moved(plain, tmp_path, monkeypatch):
    """No answer changes: the first epoch is the best, and two are waited for, killed or not."""
    change = {"epochs": 6, "patience": 2, "learning_rate": 1e-5}
    whole = train(plain, tmp_path / "whole", **change)
    assert whole["epochs"] == 3
    for name, count in (("_save_checkpoint", 2), ("_save_checkpoint", 3), ("save", 1)):
        moved = tmp_path / f"{name}{count}"
        restore = stop_at(monkeypatch, heads_module.PairTrainer, name, count)
        with pytest.raises(KeyboardInterrupt):
            train(plain, tmp_path / "killed", **change)
        restore()
        (tmp_path / "killed").rename(moved)
        found = train(plain, moved, **change)
        assert (found["epochs"], found["validation"]) == (3, whole["validation"])
        assert_same(tmp_path / "whole" / "rte", moved / "rte", 1e-6)


def test_what_is_finished_is_taken_and_another_training_is_refused(plain, tmp_path, monkeypatch):
    place = tmp_path / "o"
    first = train(plain, place, epochs=1)
    written = (place / "rte" / WEIGHTS).stat().st_mtime_ns
    (place / "checkpoint-4").mkdir()  # of a process that was killed when all but this was done
    again = train(plain, place, epochs=1)
    assert again == first
    assert sorted(each.name for each in place.iterdir()) == ["rte", "training.json"]
    assert (place / "rte" / WEIGHTS).stat().st_mtime_ns == written
    refused(r"another run: its epochs is 1, .*Choose another", train, plain, place, epochs=2)
    refused("its tasks is", train, plain, place, (replace(ONE[0], train=make(14)),), epochs=1)
    refused("its max_length is not set", train, plain, place, max_length=9, epochs=1)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("x")
    refused("not empty; expected a new folder, or that of a training", train, plain, other)
    assert [each.name for each in other.iterdir()] == ["chapter.txt"]
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".training.json.7.part").write_text("{")  # killed in the first write
    assert train(plain, tmp_path / "killed", epochs=1)["epochs"] == 1


def test_a_mistake_does_not_take_the_folder(plain, tmp_path):
    """Pairs that are all too long, and a rate that ends in no number."""
    place = tmp_path / "o"
    refused("all 16 pairs of rte have more than 8 tokens", train, plain, place, max_length=8)
    refused(r"the loss is nan at step \d", train, plain, place, learning_rate=1e30, epochs=1)
    assert train(plain, place, epochs=1)["epochs"] == 1


def test_only_a_body_that_is_there_is_trained(plain, tmp_path):
    """More entries than embeddings; a decoder without a head for a token."""
    spec = shutil.copytree(plain, tmp_path / "grown")
    config = json.loads((spec / "config.json").read_text())
    config["vocab_size"] += 8
    (spec / "config.json").write_text(json.dumps(config))
    refused(r"lack 1 tensors .*word_embeddings", train, spec, tmp_path / "o")
    tokenizer = _tokenizer("unigram")
    config = transformers.XLNetConfig(
        vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=16
    )
    transformers.XLNetLMHeadModel(config).save_pretrained(tmp_path / "xlnet")
    tokenizer.save_pretrained(tmp_path / "xlnet")
    message = "XLNetForSequenceClassification does not read one"
    refused(message, train, tmp_path / "xlnet", tmp_path / "o")


@pytest.mark.parametrize("family", ["bert", "roberta", "bart", "llama"])
@pytest.mark.parametrize("task", [RTE, MNLI])
def test_of_a_classifier_only_the_body_is_trained_on(family, task, folder_of, tmp_path):
    """Whether it has as many labels or others; each seed then has a head of its own."""
    labels = dict(enumerate(RTE.labels))
    old = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder_of(family), id2label=labels
    )
    old.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder_of(family)).save_pretrained(tmp_path)
    found = []
    for seed in (0, 1):
        transformers.set_seed(seed)
        heads, _ = heads_of(tmp_path, {"a": task.labels})
        found.append(heads.models["a"])
    old.config.pad_token_id = found[0].config.pad_token_id
    prefix = f"{old.base_model_prefix}."
    before, one, other = (model.state_dict() for model in (old, *found))
    for name, weight in one.items():
        if name.startswith(prefix):
            assert torch.equal(weight, before[name]), name
        elif weight.dim() > 1:
            assert weight.std() > 0
            assert not torch.equal(weight, other[name]), name
            assert weight.shape != before[name].shape or not torch.equal(weight, before[name]), name


def test_what_a_model_was_pretrained_with_stays_in_its_head(model_folder):
    """ModernBERT's head is also that of its language model, all but the last layer."""
    folder = model_folder("modernbert")
    known = transformers.AutoModelForMaskedLM.from_pretrained(folder).state_dict()
    heads, _ = heads_of(folder)
    found = heads.models["rte"].state_dict()
    shared = [name for name in found if name.startswith("head.")]
    assert shared
    assert all(torch.equal(found[name], known[name]) for name in shared)


@pytest.mark.parametrize("name", ["paws.de", "train"])
def test_a_task_may_have_any_name(name, plain, tmp_path):
    found = train(plain, tmp_path / "o", (replace(ONE[0], task=replace(RTE, name=name)),), epochs=1)
    assert list(found["validation"]) == [name]
    assert (tmp_path / "o" / name / WEIGHTS).is_file()


def write_csv(path, pairs, columns=("sentence1", "sentence2", "label")):
    rows = (f'"{each.first}","{each.second}",{each.label}' for each in pairs.items)
    path.write_text("\n".join([",".join(columns), *rows, ""]), encoding="utf-8")
    return path


@pytest.fixture
def asked(plain, tmp_path):
    """A command that trains; later options replace earlier ones."""
    train_file = write_csv(tmp_path / "train.csv", make(16))
    validation = write_csv(tmp_path / "validation.csv", make(8, seed=1))
    write_csv(tmp_path / "mrpc.csv", make(12, MRPC))
    write_csv(tmp_path / "one.csv", Pairs(make(16).items[::2]))
    write_csv(tmp_path / "columns.csv", make(4), ("sentence1", "text", "label"))
    (tmp_path / "unknown.csv").write_text("sentence1,sentence2,label\na,b,maybe\n")
    (tmp_path / "empty").mkdir()
    return [
        "finetune", "--model", plain, "--task", "rte", "--train", train_file,
        "--validation", validation, "--learning-rate", "6e-3", "--batch-size", "8",
        "--epochs", "1", "--device", "cpu", "--out", tmp_path / "o",
    ]  # fmt: skip


def test_one_command_trains_two_tasks_and_says_what_was_cut(consilience, asked, tmp_path):
    """Of 24 tokens at most; 2 of 16 pairs are longer, and 1 of 8 that choose."""
    long = [replace(each, first="Oslo " * 30) for each in make(2).items]
    write_csv(tmp_path / "train.csv", Pairs((*long, *make(16).items[2:])))
    write_csv(tmp_path / "validation.csv", Pairs((long[0], *make(8, seed=1).items[1:])))
    more = ["--with-task", "mrpc=mrpc.csv", "--max-length", "24", "--seed", "1"]
    status, out, err = consilience(*asked, *more, "--json")
    assert status == 0, err
    document = json.loads(out)
    left_out = "pairs of rte were too long and were left out"
    notes = [f"2 of 16 {left_out}", f"1 of 8 {left_out}"]
    assert document["warnings"] == notes
    assert re.search(r"seed-1: update (\d+) of \1: validation accuracy", err)
    (row,), record = document["training"], record_of(tmp_path / "o" / "seed-1")
    assert record["notes"] == notes and record["finished"] is True
    assert record["validation"] == {"rte": row["accuracy"]}
    assert (row["seed"], row["epochs"], record["settings"]["max_length"]) == (1, 1, 24)
    status, out, err = consilience(*asked, *more)
    assert status == 0 and "seed-1: finished already" in err, err
    load, *_ = [line for line in out.splitlines() if line.startswith("  model = ")]
    names = {}
    exec(f"from transformers import pipeline\n{load.strip()}", names)
    assert names["model"]({"text": "Paris", "text_pair": "Rome"})["label"] in RTE.labels
    assert f"{100 * row['accuracy']:.1f} %" in out and "seed-1/rte" in out
    assert all(note in err for note in notes)
    place = tmp_path / "o" / "seed-1" / "rte"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(place)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    encoded = PairInput(model, tokenizer, PairFormat.beside(place))
    forms = [original(each, RTE.indicators) for each in long]
    assert min(len(each["input_ids"]) for each in encoded.encode(forms)) > 24


@pytest.mark.parametrize(("options", "message"), cases("finetune_bad"))
def test_what_is_wrong_is_one_message(consilience, asked, tmp_path, model_folder, options, message):  # fmt: skip
    """And the folder is still free."""
    options = [str(model_folder("mamba")) if word == "{mamba}" else word for word in options]
    said = " ".join(refusal(consilience, *asked, *options).split())
    assert message in said
    assert said.casefold().count("error") == 1 and "Traceback" not in said
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").glob("seed-*/checkpoint*"))
    if "rt" in options:
        out = consilience(*asked, *options, "--json")[1]
        assert json.loads(out)["error"]["found"] == "no task 'rt'"
