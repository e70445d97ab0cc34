"""Consistency during a training with the Trainer of transformers."""

import random

import numpy as np
import pytest
import torch

import consilience as cs
from checks import refused
from consilience.callbacks import same_random_states

TEXTS = [
    "The capital of France is Paris.", "Rome is the capital of Italy.", "Berlin is in Germany.",
] * 4  # fmt: skip

QUESTIONS = """\
item,question,answer,options
one,Is Paris in France?,Paris,Paris;Rome
two,Is Berlin in Germany?,Berlin,Rome;Berlin
"""


@pytest.fixture
def make_trainer(model_folder, tmp_path):
    """``make_trainer("bert")``: six updates with dropout and a random order, losses every second."""
    import transformers

    def make(family, name="output", **more):
        transformers.set_seed(7)
        folder, is_masked = model_folder(family), family == "bert"
        kind = transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModelForCausalLM
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        data = [dict(tokenizer(text)) for text in TEXTS]
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path / name, max_steps=6, per_device_train_batch_size=2, use_cpu=True,
            logging_steps=2, save_strategy="no", report_to=[], disable_tqdm=True, seed=7, **more,
        )  # fmt: skip
        collate = transformers.DataCollatorForLanguageModeling
        collator = collate(tokenizer, mlm=is_masked, mlm_probability=0.5)
        return transformers.Trainer(
            model=kind.from_pretrained(folder), args=arguments, train_dataset=data,
            eval_dataset=data[:2], processing_class=tokenizer, data_collator=collator,
        )  # fmt: skip

    return make


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_training_is_the_same_with_and_without_the_callback(family, make_trainer, write_suite):
    plain = make_trainer(family)
    plain.train()
    watched = make_trainer(family)
    watched.add_callback(cs.ConsistencyCallback(watched, write_suite(), steps=3))
    watched.train()
    assert watched.model.training == plain.model.training
    assert watched.model.config.architectures == plain.model.config.architectures
    ours, theirs = watched.model.state_dict(), plain.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    logs = (plain.state.log_history, watched.state.log_history)
    losses = [[line["loss"] for line in log if "loss" in line] for log in logs]
    assert losses[0] == losses[1] and len(losses[0]) == 3
    measured = [line for line in watched.state.log_history if "eval_suite/consistency" in line]
    assert [line["step"] for line in measured] == [3, 6]


def test_random_states_are_restored():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    with same_random_states():
        expected = draw()
    assert draw() == expected


def test_numbers_are_those_of_the_saved_model(make_trainer, write_suite, tmp_path):
    """The trained model that is saved and probed has the answers and scores of the last update."""
    trainer = make_trainer("bert", learning_rate=0.01)
    callback = cs.ConsistencyCallback(trainer, write_suite(), steps=6)
    trainer.add_callback(callback)
    before = callback.measure()
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    saved = cs.evaluate(tmp_path / "suite", tmp_path / "saved")
    scores = [one.answers["logprob"].to_list() for one in (before, callback.measure(), saved)]
    assert scores[1] == pytest.approx(scores[2], abs=1e-5)
    assert scores[1] != pytest.approx(scores[0], abs=0.1)
    (line,) = [line for line in trainer.state.log_history if "eval_suite/consistency" in line]
    row = next(row for row in saved.summary.rows if row.metric == "consistency")
    assert line["eval_suite/consistency"] == row.value


def test_questions_are_measured_at_each_evaluation(make_trainer, tmp_path):
    (tmp_path / "towns.csv").write_text(QUESTIONS)
    trainer = make_trainer("gpt2", eval_strategy="steps", eval_steps=3)
    trainer.add_callback(cs.ConsistencyCallback(trainer, tmp_path / "towns.csv"))
    trainer.train()
    measured = [line for line in trainer.state.log_history if "eval_towns/consistency" in line]
    assert [line["step"] for line in measured] == [3, 6]
    assert all(0 <= line["eval_towns/accuracy"] <= 1 for line in measured)


def test_only_the_main_process_measures_and_what_it_cannot_is_refused(make_trainer, write_suite):
    trainer = make_trainer("bert")
    callback = cs.ConsistencyCallback(trainer, write_suite(), steps=1)
    trainer.state.is_world_process_zero, trainer.state.global_step = False, 1
    callback.on_step_end(trainer.args, trainer.state, trainer.control)
    assert trainer.state.log_history == []
    refused("no option 'limt'", cs.ConsistencyCallback, trainer, "mini", limt=3)
    refused("which holds one run", cs.ConsistencyCallback, trainer, "mini", out="curve")
    refused("does not write text", cs.ConsistencyCallback, trainer, "mini-questions")
    refused("1 or more, or None", cs.ConsistencyCallback, trainer, steps=0)
    trainer.processing_class = None
    refused("processing_class=tokenizer", cs.ConsistencyCallback, trainer)


def test_written_answers_are_measured_too(make_trainer):
    trainer = make_trainer("gpt2")
    options = {"groups": "capital", "limit": 1, "max_new_tokens": 1}
    callback = cs.ConsistencyCallback(trainer, "mini-open", **options)
    assert "consistency" in set(callback.measure().metrics["metric"])
