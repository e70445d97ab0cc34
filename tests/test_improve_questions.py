"""Consistency training on questions: what a step reads, whole commands, what they cost, bad input."""

import json
import math
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

from checks import output, refusal
from conftest import WORDS, cases
from consilience.core.factors import Expectation, Reference
from consilience.metrics.differences import compare
from consilience.options.commands import ImproveOptions, ProbeOptions
from consilience.plans.questions import questions_of
from consilience.probing import probe
from consilience.runs.run import read_answers
from consilience.suites.questions import Questions
from consilience.train import consistency, improvement
from test_finetune import stop_at
from test_label_writer import CHAT

VARY = ("paraphrase=all", "order=rotations")
OPTIONS = ImproveOptions(
    model="model", suite="suite", train_groups=("A",), validation_groups=("B",), vary=VARY, train_facts=4, batch_size=2, epochs=2,
    learning_rate=3e-2, validation_facts=4, seed=1, lora_rank=2, device="cpu",
)  # fmt: skip


def questions(groups="ABC", size=4):
    """Questions with three of six options, in two phrasings."""
    rows = [
        {"group": group, "item": f"{group}{at}", "question": f"What is {group}{at}?",
         "question_2": f"Name {at}.", "answer": WORDS[at % 6],
         "options": ";".join(WORDS[(at + shift) % 6] for shift in range(3))}
        for group in groups for at in range(size)
    ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def chat(calm_folder, tmp_path_factory):
    """A tiny Llama with a chat template that takes long prompts."""
    folder = tmp_path_factory.mktemp("chat")
    model = AutoModelForCausalLM.from_pretrained(calm_folder("llama"))
    tokenizer = AutoTokenizer.from_pretrained(calm_folder("llama"))
    model.config.max_position_embeddings, tokenizer.chat_template = 512, CHAT
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def training(spec, **change):
    suite = Questions.from_frame(questions())
    return consistency.Training(replace(OPTIONS, model=str(spec), **change), suite).with_defaults()


def test_other_suites_of_questions_are_scored_as_the_trained_one():
    how = {"option_score": "sum", "template": "plain"}
    measures = improvement.measures_of(training("model", also=("mini-questions", "mini"), **how))
    asked = [(of.option_score, of.template) for of, _ in measures.values()]
    assert asked == [("sum", "plain"), ("sum", "plain"), (None, None)]


@pytest.mark.parametrize("change", [
    {}, {"vary": (*VARY, "labels=none,1")}, {"option_score": "mean"},
])  # fmt: skip
def test_the_loss_of_a_step_is_that_of_the_scores_of_probe(chat, tmp_path, change, monkeypatch):
    """At the first step the model is its own teacher; options are compared, not positions."""
    monkeypatch.setattr(consistency, "VARIANTS", 99)
    asked = training(chat, **change)
    made = consistency.ConsistencyTrainer(asked, tmp_path / "training")
    with torch.no_grad():
        found = made.compute_loss(made.model.eval(), made.steps[0]).item()
    options = replace(asked.asked(("A",), 4), out=tmp_path / "probe")
    answers = probe(options, suite=asked.suite).checked.answers
    by_item = answers.sort("variant_index").partition_by("item", maintain_order=True)
    (item,), items = made.steps.steps[0], made.steps.items
    rows = by_item[[one is item for one in items].index(True)]
    scores = torch.tensor(rows["option_scores"].to_list())
    assert torch.allclose(item.teacher, scores, atol=1e-4)
    expected = consistency.vote_loss(scores[None], scores[None]).item()
    assert found == pytest.approx(expected, rel=1e-4)


def test_without_a_chat_template_the_prompt_is_plain(chat, tmp_path):
    shutil.copytree(chat, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    made = consistency.ConsistencyTrainer(training(tmp_path / "plain"), tmp_path / "training")
    read = made.loaded.tokenizer.decode(made.steps.items[0].asks[0].sequences[0])
    assert read.rstrip() == "Question: What is A0?\nA. Paris\nB. Berlin\nC. Rome\nAnswer:"


@pytest.mark.parametrize(("count", "sizes"), [(200, [120, 40, 40]), (20, [12, 4, 4])])
def test_a_suite_of_one_group_is_split_by_item_whatever_its_order(count, sizes):
    suite = Questions.from_frame(questions("A", count))
    parts = consistency.split_by_item(suite).groups
    assert [len(parts[name]) for name in consistency.PARTS] == sizes
    other = consistency.split_by_item(Questions.from_frame(questions("A", count).reverse())).groups
    for name in consistency.PARTS:
        assert {one.item for one in parts[name]} == {one.item for one in other[name]}


def test_equal_questions_and_those_that_an_expectation_links_are_in_one_part():
    suite = Questions.from_frame(questions("A", 40))
    asked = [Reference(one.item, ()) for one in suite.items]
    links = tuple(Expectation("same", (asked[at],), asked[at + 1]) for at in range(0, 20, 2))
    again = (replace(one, item=f"{one.item}b") for one in suite.items)
    suite = replace(suite, items=(*suite.items, *again), expectations=links)
    groups = {one.item: one.group for one in consistency.split_by_item(suite).items}
    assert {*groups.values()} == {*consistency.PARTS}
    assert all(groups[f"A{at}"] == groups[f"A{at}b"] for at in range(40))
    assert all(groups[f"A{at}"] == groups[f"A{at + 1}"] for at in range(0, 20, 2))


def test_facts_of_one_subject_are_in_one_part():
    """Their questions have one text and other options: *France shares borders with ____*."""
    made = questions_of(ProbeOptions(model="m", suite="mini", as_questions=3))
    parts = defaultdict(set)
    for one in consistency.split_by_item(made).items:
        parts[one.paraphrases[""][0]].add(one.group)
    assert len(parts) < len(made.items) and {len(of) for of in parts.values()} == {1}


@pytest.fixture(scope="module")
def command(chat, tmp_path_factory):
    """A command that trains on one group, and measures another, also in a factor held out."""
    folder = tmp_path_factory.mktemp("command")
    questions().write_csv(folder / "q.csv")
    (folder / "text.txt").write_text("Paris is the capital of France.\nRome is large.\n")
    return [
        "improve", "--model", chat, "--suite", folder / "q.csv", "--train-groups", "A",
        "--validation-groups", "B", "--vary", VARY[0], "--vary", VARY[1], "--vary", "labels=A,1",
        "--hold-out-factor", "labels", "--epochs", "3", "--batch-size", "2", "--limit", "1",
        "--text", folder / "text.txt", "--learning-rate", "1e-2", "--also", "mini", "--out", folder / "o",
    ]  # fmt: skip


def test_one_command_trains_adapters_and_shows_the_harm(consilience, command, chat, monkeypatch):
    document, folder = json.loads(output(consilience, *command, "--json")), command[-1]
    rows = {row["what"]: row for row in document["harm"]}
    parts = {"held-out groups", "labels", "mini", "relative"}
    assert {what.partition(", ")[2] for what in rows} == parts
    before = read_answers(folder / "before").filter(group="C")
    right = (before["answer"] == before["gold"]).mean()
    shown = rows["Mean accuracy, held-out groups"]
    assert (before.height, shown["before"]) == (6, pytest.approx(right))
    assert read_answers(folder / "before-mini").height == 135, "one fact of each group"
    place = Path(document["model"]).parent
    record = json.loads((place / "training.json").read_text())
    steps = [log["step"] for log in record["history"] if "eval_accuracy" in log]
    assert steps == [2, 4, 6], "a third, two thirds and the end of 6 updates"
    assert_same_model(chat, place / "adapter", place / "model")
    assert len([*place.glob("*/*.safetensors")]) == 2
    card = (place / "adapter" / "README.md").read_text()
    assert f"base_model: {chat}" in card and f"Consistency adapter of {chat}" in card
    assert "More Information Needed" not in card
    modes = {path.stat().st_mode & 0o777 for path in place.rglob("*.safetensors")}
    assert modes == {0o644}

    def again(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(consistency.ConsistencyTrainer, "train", again)
    assert "Harm: what the training may have cost" in output(consilience, *command)


def assert_same_model(base, adapter, merged):
    """The adapter on its base computes what the merged model does, and not what the base does."""
    model, ids = AutoModelForCausalLM.from_pretrained(base), torch.arange(12)[None]
    plain = model(ids).logits
    adapted = AutoModelForCausalLM.from_pretrained(adapter)(ids).logits
    assert AutoTokenizer.from_pretrained(adapter).chat_template == CHAT
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["r"] == 8 and config["target_modules"] == sorted(config["target_modules"])
    both = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
    assert torch.allclose(adapted, both, atol=1e-5)
    assert not torch.allclose(adapted, plain, atol=1e-3)


def test_a_killed_training_resumes_from_its_last_whole_checkpoint(chat, tmp_path, monkeypatch):
    """As with classifiers (test_finetune.py), here with adapters."""

    def weights(name):
        consistency.train(training(chat), tmp_path / name)
        return AutoModelForCausalLM.from_pretrained(tmp_path / name / "model").state_dict()

    whole = weights("whole")
    restore = stop_at(monkeypatch, consistency.ConsistencyTrainer, "_save_checkpoint", 2)
    with pytest.raises(KeyboardInterrupt):
        weights("killed")
    restore()
    assert [*(tmp_path / "killed").glob("checkpoint-*")]
    resumed = weights("killed")
    assert all(torch.allclose(whole[name], resumed[name], atol=1e-6) for name in whole)


@pytest.mark.parametrize(("options", "message"), cases("improve_questions_bad"))
def test_what_is_wrong_with_questions_is_one_message(
    consilience, command, model_folder, tmp_path, options, message
):
    options = [model_folder("bert") if option == "BERT" else option for option in options]
    out = ["--out", tmp_path / "o"]
    assert message in " ".join(refusal(consilience, *command, *out, *options).split())


def test_facts_are_learned_as_questions(consilience, command, tmp_path):
    of = ["--suite", "mini", "--as-questions", "2", "--train-facts", "4", "--epochs", "1"]
    of += ["--limit", "1"]
    named = {"A": "capital,sport", "B": "currency"}
    command = [named.get(word, word) for word in command[: command.index("--text")]]
    of += ["--validation-facts", "2"]
    document = json.loads(output(consilience, *command, *of, "--json", "--out", tmp_path / "o"))
    assert document["checkpoint"]["updates"] == 4, "8 questions by 2"
    assert "--as-questions with --suite" in refusal(consilience, *command, "--as-questions", "2")


@pytest.mark.parametrize(("low", "high", "is_cost", "harm"), [
    (-0.019, 0.3, False, "none within 2"),
    (-0.021, 0.3, False, "not ruled out"),
    (-0.3, -0.01, False, "harm"),
    (-0.3, 0.019, True, "none within 2"),
    (0.01, 0.3, True, "harm"),
    (math.nan, math.nan, False, "not ruled out"),
])  # fmt: skip
def test_when_a_difference_is_a_harm(low, high, is_cost, harm):
    row = {"what": "Accuracy", "before": 0.5, "low": low, "high": high, "is_cost": is_cost}
    assert improvement.harm_of(row) == harm
    sentence = improvement.harm_verdict([row])
    shown = {"none within 2": "No harm shown within", "not ruled out": "A harm of more than 2"}
    shown["harm"] = "Harm: Accuracy"
    assert sentence.startswith(shown[harm])


def test_the_harm_to_facts_is_the_change_of_the_mean_over_relations(tmp_path):
    asked = ProbeOptions(model="m", suite="mini", limit=4)
    before, after = (probe(replace(asked, model=f"baseline:{name}", out=tmp_path / name))
                     for name in ("random", "majority"))  # fmt: skip
    compared = compare({"before": before.checked, "after": after.checked}, before.suite, "strict")
    accuracy, _ = improvement.harm_rows(compared, before.suite, "mini")
    for side, run in (("before", before), ("after", after)):
        metrics = run.metrics.filter(metric="mean_accuracy", over="mean", kind="whole")
        assert accuracy[side] == pytest.approx(metrics["value"].item())


def test_the_perplexity_of_text_by_hand():
    """Lines of 2, 2 and 4 words, twice; each word costs 0.1, 0.1 and 0.2 nats more: 0.15 a word."""
    before = np.array([(2.0, 2), (4.0, 2), (2.0, 4)] * 2).T
    row = improvement.text_row(before, np.array([(2.2, 2), (4.2, 2), (2.8, 4)] * 2).T)
    assert row["before"] == pytest.approx(math.e)
    assert row["difference"] == pytest.approx(math.expm1(0.15))
    error = math.sqrt(6 / 5 * 2 * (0.1**2 + 0.1**2 + 0.2**2)) / 16
    far = stats.t.ppf(0.975, 5) * error
    assert row["high"] == pytest.approx(math.expm1(0.15 + far))
    alone = improvement.text_row(before[:, :1], np.array([[2.2], [2]]))
    assert math.isnan(alone["high"]) and improvement.harm_of(alone) == "not ruled out"


@pytest.mark.parametrize("limit", [1, 12])
def test_a_dry_run_counts_what_is_trained_and_asked(limit, consilience, tmp_path, monkeypatch):
    """Questions of each of 13 held-out groups, in two orders; labels are only measured.

    The relations of mini have 135 patterns. An update has the 8 questions; three are checkpoints.
    """
    monkeypatch.chdir(tmp_path)
    out = output(
        consilience, "improve", "--model", "no/model", "--suite", "mini-questions", "--train-groups", "capital",
        "--validation-groups", "continent", "--vary", "order=reversed", "--vary", "labels=A,1",
        "--hold-out-factor", "labels", "--train-facts", "8", "--limit", limit, "--also", "mini",
        "--dry-run",
    )  # fmt: skip
    assert out.startswith("train: 8 questions of capital\n")
    suite = ("--model", "no/model", "--suite", "mini-questions", "--dry-run")
    assert re.match(r"train: \d+ questions of train\n", consilience("improve", *suite)[1])
    assert "work: 3 updates, and 3 checkpoints of 106 validation queries" in out
    asked = 13 * limit * 2
    assert f"{asked} held out, {asked} labels, {135 * limit:,} mini" in out
    assert [*tmp_path.iterdir()] == []
