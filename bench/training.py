"""A training step against the released loop's way of doing the same step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import machine
import questions
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    TrainingArguments,
)

from consilience.core.errors import Loading
from consilience.models.fast.products import Library, Products, speed_up_training
from consilience.models.loading import Pretrained, load_pretrained
from consilience.suites.question_suites import load_questions
from consilience.train.batch_trainer import TrainingFolder
from consilience.train.consistency import ConsistencyTrainer
from consilience.train.objectives import Steps, collate, trained_relation
from consilience.train.plan import Plan, Subject

TRAINED = ("P364", "P138", "P449")
STEPS = 6
PLAN = Plan(
    train=TRAINED,
    validation=(),
    weights=(0.1,),
    loss="pairs",
    vocabulary=False,
    text="patterns",
    facts=100,
    batch=8,
    accumulation=1,
    epochs=1,
    learning_rate=6e-5,
    validation_facts=1,
    seed=42,
    lora_rank=0,
    bf16=False,
    gradient_checkpointing=False,
    report_to="none",
)


def model(tokenizer) -> BertForMaskedLM:
    """The shape of MiniLM-L6 with random weights, the same ones each time."""
    torch.manual_seed(0)
    shape = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12}
    return BertForMaskedLM(
        BertConfig(vocab_size=len(tokenizer), num_hidden_layers=6, **shape)
    ).train()


def steps_of(tokenizer) -> Steps:
    """The paper's relations where the real data is, else the first three."""
    suite = questions.suite()
    names = TRAINED if all(r in {x.id for x in suite.relations} for r in TRAINED) else None
    relations = [suite.relation(r) for r in names] if names else suite.relations[:3]
    loaded = Pretrained("masked", None, tokenizer, {})
    trained = [trained_relation(r, loaded, "published", "pairs") for r in relations]
    return Steps(trained, loaded, PLAN, longest=128)


def trainer_of(found: PreTrainedModel, steps: Steps, folder: str) -> ConsistencyTrainer:
    """Ours, without validation and saving."""
    subject = Subject("a model", questions.suite(), "published")
    plan = replace(PLAN, validation=(subject.suite.relations[0].id,))
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=3,
        max_steps=STEPS,
        train_sampling_strategy="sequential",
        optim="adamw_torch_fused",
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    return ConsistencyTrainer(found, arguments, steps, subject, plan, 0.1, {})


def chosen(tokenizer) -> Products:
    """What multiplies here."""
    return speed_up_training(model(tokenizer))


def ours(tokenizer, steps: Steps, folder: str, library: Library) -> Callable[[], object]:
    """One batch of facts of each relation, then an update."""
    found = model(tokenizer)
    speed_up_training(found, library)
    trainer = trainer_of(found, steps, folder)
    optimizer = torch.optim.AdamW(found.parameters(), lr=6e-5, fused=True, weight_decay=0.0)

    def update() -> None:
        for at in range(3):
            step = collate(steps[at], tokenizer.pad_token_id)
            (trainer.compute_loss(found, step) / 3).backward()
        torch.nn.utils.clip_grad_norm_(found.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def released(tokenizer, steps: Steps) -> Callable[[], object]:
    """The same update as the released loop does it.

    Everything padded to the longest of the data set, a pass for the text and one for the questions,
    the whole vocabulary at every token, a divergence for each ordered pair, AdamW a weight at a
    time.
    """
    found = model(tokenizer)
    optimizer = torch.optim.AdamW(found.parameters(), lr=6e-5, foreach=False, weight_decay=0.0)
    longest = max(len(ids) for at in range(len(steps)) for ids in steps[at]["sequences"])
    kl = torch.nn.functional.kl_div

    def update() -> None:
        for at in range(3):
            item = steps[at]
            facts, patterns = item["shape"]
            count = facts * patterns
            ids = torch.full((len(item["sequences"]), longest), tokenizer.pad_token_id)
            for row, sequence in enumerate(item["sequences"]):
                ids[row, : len(sequence)] = torch.tensor(sequence)
            labels = torch.full_like(ids, -100)
            rows, columns = torch.tensor(item["rows"]), torch.tensor(item["columns"])
            labels[rows[count:], columns[count:]] = torch.tensor(item["labels"])
            text = found(
                input_ids=ids[count:],
                attention_mask=(ids[count:] != tokenizer.pad_token_id).long(),
                labels=labels[count:],
            )
            (text.loss / 3).backward()
            logits = found(input_ids=ids[:count]).logits[rows[:count], columns[:count]]
            asked = logits.view(facts, patterns, -1)
            asked = asked.gather(-1, item["candidates"].expand(facts, -1, -1))
            loss = torch.zeros(())
            for one, other in itertools.permutations(range(patterns), 2):
                first, second = asked[:, one].log_softmax(-1), asked[:, other].softmax(-1)
                loss = loss + kl(first, second, reduction="batchmean")
            (0.1 * loss / (patterns * (patterns - 1) / 2) / 3).backward()
        torch.nn.utils.clip_grad_norm_(found.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def outside(found: PreTrainedModel, trainer: ConsistencyTrainer) -> tuple[float, float]:
    """Seconds of a training, and those inside the model and its gradients."""
    inside = 0.0
    forward, backward = type(found).forward, trainer.accelerator.backward

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal inside
            start = time.perf_counter()
            result = function(*arguments, **options)
            inside += time.perf_counter() - start
            return result

        return call

    type(found).forward = timed(forward)
    trainer.accelerator.backward = timed(backward)
    start = time.perf_counter()
    trainer.train()
    type(found).forward = forward
    return time.perf_counter() - start, inside


def of_the_trainer(tokenizer, steps: Steps, folder: str) -> tuple[float, float, float]:
    """Peak memory of a first training in MiB; seconds of a second, all and inside the model."""
    found = model(tokenizer)
    speed_up_training(found)
    first = trainer_of(found, steps, folder)
    mib = machine.peak(first.train)
    return mib, *outside(found, trainer_of(found, steps, folder))


ASKED = replace(
    PLAN, train=("capital", "author"), validation=("sport",), weights=(1.0,), loss="bct",
    text="none", facts=16, learning_rate=3e-4, lora_rank=8,
    vary=("paraphrase=1,2,3,4", "order=reversed"),
)  # fmt: skip
Update = Callable[[], object]
TRL = "TRL SFTTrainer"


def chat_models(folder: Path) -> list[tuple[str, str, int]]:
    """A small Llama with random weights, and SmolLM2, with its tokens; the questions of a step."""
    tokenizer = load_pretrained("packaged:smollm2", Loading("cpu")).tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=4,
    )  # fmt: skip
    small = str(folder / "small")
    tokenizer.save_pretrained(small)
    LlamaForCausalLM(config).save_pretrained(small)
    return [("Llama, 4 layers of 256", small, 8), ("SmolLM2-135M", "packaged:smollm2", 2)]


def question_updates(
    model: str, folder: Path, batch: int, rule: str | None
) -> tuple[dict[str, Update], int]:
    """An update of ``batch`` questions in 8 variants in each way, and its tokens.

    ``rule``: of the scores. Every way learns the same answers (the loss ``bct``) with the same
    adapters and optimizer.
    """
    subject = Subject(model, load_questions("mini-questions", {}), "strict", device="cpu")
    plan = replace(ASKED, batch=batch, option_score=rule)
    trainer = ConsistencyTrainer(subject, plan, 1.0, TrainingFolder(folder, {}))
    steps, pad = trainer.steps, trainer.steps.tokenizer.pad_token_id
    asks = [ask for at in steps.groups[0] for ask in steps.items[at].asks]
    rows = [([*ids, *target], len(target)) for ids, (target,), _ in asks]
    ways = {
        "consilience": lambda: trainer.data_collator([steps[0]]),
        "consilience, padded": lambda: collate(steps[0], pad),
    }
    updates = {name: update_of(trainer, step) for name, step in ways.items()}
    try:
        from trl import SFTConfig, SFTTrainer
    except ImportError:
        return updates, sum(len(ids) for ids, _ in rows)
    from datasets import Dataset
    from peft import LoraConfig

    texts = [
        {"input_ids": ids, "labels": [-100] * (len(ids) - size) + ids[-size:]} for ids, size in rows
    ]
    settings = SFTConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to="none",
        gradient_checkpointing=False, dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    loaded = load_pretrained(model, Loading("cpu"))
    other = SFTTrainer(
        loaded.model, settings, train_dataset=Dataset.from_list(texts),
        processing_class=loaded.tokenizer,
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"),
    )  # fmt: skip
    updates[TRL] = update_of(other, lambda: other.data_collator(texts))
    return updates, sum(len(ids) for ids, _ in rows)


def update_of(trainer, step: Callable[[], dict]) -> Update:
    """An update with AdamW and clipped gradients; ``step`` makes the batch."""
    found = trainer.model.train()
    weights = [each for each in found.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=3e-4, fused=True, weight_decay=0.0)

    def update() -> None:
        trainer.compute_loss(found, trainer._prepare_inputs(step())).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update
