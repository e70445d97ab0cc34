"""Consistency training on questions: what a step reads, whole commands, what they cost, bad input."""

import json
import math
import shutil
from collections import defaultdict
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
import torch
from peft import PeftModel
from scipy import stats
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from checks import output, refusal
from conftest import WORDS, cases
from consilience import ConsilienceError
from consilience.core.expectations import Expectation, Reference
from consilience.kinds.probing import probe
from consilience.kinds.questions import questions_of
from consilience.metrics.differences import compare
from consilience.models.fast.trees import trains_on_trees
from consilience.options.probe import ProbeOptions
from consilience.suites.question_suites import load_questions
from consilience.suites.questions import Questions
from consilience.train import consistency
from consilience.train.batch_trainer import TrainingFolder
from consilience.train.consistency import ConsistencyTrainer, _train_rows, teacher_answers
from consilience.train.improvement import (
    NO_TASKS,
    harm_of,
    harm_rows,
    harm_table,
    harm_verdict,
    task_row,
    text_row,
    vote_sentence,
)
from consilience.train.objectives import (
    collate,
    hard_vote_loss,
    has_majority,
    own_answer_loss,
    vote_loss,
)
from consilience.train.plan import PARTS, Plan, Subject, split_by_item
from test_label_writer import CHAT

asked = teacher_answers
VARY = ("paraphrase=all", "order=rotations")
PLAN = Plan(
    train=("A",), validation=("B",), weights=(1.0,), loss="vote", vocabulary=False, text="none",
    facts=4, batch=2, accumulation=1, epochs=2, learning_rate=3e-2, validation_facts=4, seed=1,
    lora_rank=2, bf16=False, gradient_checkpointing=False, report_to="none", vary=VARY,
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


@pytest.fixture
def trainer_of(chat, tmp_path):
    """A trainer before its first step, and the answers of its teacher."""

    def build(suite=None, spec=chat, **change):
        plan, suite = replace(PLAN, **change), suite or Questions.from_frame(questions())
        subject = Subject(str(spec), suite, "strict", device="cpu")
        taught = asked(subject, plan, tmp_path / "teacher", consistency.SILENT)
        subject = replace(subject, taught=taught)
        folder = TrainingFolder(tmp_path / "training", {})
        return ConsistencyTrainer(subject, plan, 1.0, folder), taught

    return build


@pytest.mark.parametrize("change", [
    {}, {"loss": "bct"}, {"loss": "vote-hard", "vary": (VARY[0], "separator=: | - |. ")},
    {"vary": (*VARY, "labels=none,1")}, {"option_score": "mean"},
    {"loss": "bct", "option_score": "bytes", "template": "plain"},
])  # fmt: skip
def test_the_loss_of_a_step_is_that_of_the_scores_of_probe(trainer_of, change):
    """At the first step the model is its own teacher; options are compared, not positions."""
    trainer, taught = trainer_of(variants=99, batch=1, **change)
    loss = trainer.plan.loss
    step = trainer.data_collator([trainer.steps[0]])
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model.eval(), step).item()
    by_item = [
        torch.tensor(rows["option_scores"].to_list())[None]
        for rows in taught.sort("variant_index").partition_by("item", maintain_order=True)
    ]
    known = [one for one in by_item if loss != "vote-hard" or has_majority(one[0])]
    items = [known[at] for at in trainer.steps.groups[0]]
    expected = {"vote": vote_loss, "vote-hard": hard_vote_loss, "bct": own_answer_loss}[loss]
    mean = sum(expected(one, one).item() for one in items) / len(items)
    assert found == pytest.approx(mean, rel=1e-4)


def test_sequences_that_share_beginnings_have_the_gradients_of_each_alone(trainer_of):
    """A step reads each beginning once; loss and gradients are those of padded sequences."""
    trainer, _ = trainer_of(variants=99, lora_rank=0, option_score="sum")
    padded, tree = collate(trainer.steps[0], 0), trainer.data_collator([trainer.steps[0]])
    assert len(tree["tree"].ids) < padded["attention_mask"].sum() / 2
    found = []
    for step in (padded, tree):
        trainer.model.train().zero_grad()
        loss = trainer.compute_loss(trainer.model, step)
        loss.backward()
        gradients = [one.grad.clone() for one in trainer.model.parameters()]
        found.append([loss.detach(), *gradients])
    assert max(gradient.abs().max() for gradient in found[0][1:]) > 0.01
    assert all(torch.allclose(*both, rtol=0, atol=1e-5) for both in zip(*found, strict=True))


@pytest.mark.parametrize(("change", "is_possible"), [
    ({}, True), ({"attention_dropout": 0.5}, False), ({"sliding_window": 127}, False),
    ({"sliding_window": 128}, True),
])  # fmt: skip
def test_what_cannot_share_beginnings_is_padded(chat, change, is_possible):
    config = AutoConfig.from_pretrained(chat)
    for name, value in change.items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_pretrained(chat, config=config)
    attention = model.config._attn_implementation
    assert trains_on_trees(model, 128) == is_possible
    assert (model.config._attn_implementation == attention) != is_possible
    assert not model.training


def test_without_a_chat_template_the_prompt_is_plain(trainer_of, chat, tmp_path):
    shutil.copytree(chat, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    trainer, _ = trainer_of(spec=tmp_path / "plain")
    read = trainer.steps.tokenizer.decode(trainer.steps.items[0].asks[0][0])
    assert read == "Question: What is A0?\nA. Paris\nB. Berlin\nC. Rome\nAnswer:"


def test_the_losses_of_answers_by_hand():
    """Two facts, three patterns: only the first has a majority, its second answer."""
    teacher = torch.tensor([[[0.1, 0.9], [0.2, 0.8], [0.9, 0.1]]]).log()
    undecided = torch.tensor([[[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]]).log()
    student = torch.tensor([[[0.5, 0.5], [0.75, 0.25], [0.9, 0.1]]]).log()
    hard = -(math.log(0.5) + math.log(0.25) + math.log(0.1)) / 3
    assert hard_vote_loss(student, teacher).item() == pytest.approx(hard)
    assert hard_vote_loss(undecided, undecided).item() == 0
    # The teacher's first pattern answers the second, too; the values are not normalised again.
    assert own_answer_loss(student - 1, teacher).item() == pytest.approx(hard + 1)


@pytest.mark.parametrize(("count", "sizes"), [(200, [120, 40, 40]), (20, [12, 4, 4])])
def test_a_suite_of_one_group_is_split_by_item_whatever_its_order(count, sizes):
    suite = Questions.from_frame(questions("A", count))
    parts = split_by_item(suite).groups
    assert [len(parts[name]) for name in PARTS] == sizes
    other = split_by_item(Questions.from_frame(questions("A", count).reverse())).groups
    for name in PARTS:
        assert {one.item for one in parts[name]} == {one.item for one in other[name]}


def test_equal_questions_and_those_that_an_expectation_links_are_in_one_part():
    suite = Questions.from_frame(questions("A", 40))
    asked = [Reference(one.item, ()) for one in suite.items]
    links = tuple(Expectation("same", (asked[at],), asked[at + 1]) for at in range(0, 20, 2))
    suite = replace(
        suite, items=(*suite.items, *(replace(one, item=f"{one.item}b") for one in suite.items))
    )
    groups = {
        one.item: one.group for one in split_by_item(replace(suite, expectations=links)).items
    }
    assert {*groups.values()} == {*PARTS}
    assert all(groups[f"A{at}"] == groups[f"A{at}b"] for at in range(40))
    assert all(groups[f"A{at}"] == groups[f"A{at + 1}"] for at in range(0, 20, 2))


def test_facts_of_one_subject_are_in_one_part():
    """Their questions have one text and other options: *France shares borders with ____*."""
    made = questions_of(ProbeOptions(model="m", suite="mini", as_questions=3))
    parts = defaultdict(set)
    for one in split_by_item(made).items:
        parts[one.paraphrases[""][0]].add(one.group)
    assert len(parts) < len(made.items) and {len(of) for of in parts.values()} == {1}


def test_facts_that_were_trained_are_no_harm():
    for name, is_asked in (("mini-questions", False), ("minimum-wage", True)):
        suite = split_by_item(replace(load_questions("mini-open"), name=name))
        plan = replace(PLAN, train=("train",), validation=("validation",), loss="bct")
        subject = Subject("baseline:majority", suite, "strict", device="cpu")
        assert ("mini" in consistency.measures_of(subject, plan)) == is_asked


def test_without_a_majority_anywhere_there_is_nothing_to_learn(trainer_of, monkeypatch):
    """Two of six variants have each option."""

    def split(subject, plan, *_):
        answers = teacher_answers(subject, plan, *_)
        votes = [
            [float(at % 3 == option) for option in range(3)] for at in answers["variant_index"]
        ]
        return answers.with_columns(option_scores=pl.Series(votes))

    monkeypatch.setitem(globals(), "asked", split)
    with pytest.raises(ConsilienceError, match="0 questions to train on with two .* a majority"):
        trainer_of(loss="vote-hard")


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
        "--text", folder / "text.txt", "--learning-rate", "1e-3,1e-2", "--out", folder / "o",
    ]  # fmt: skip


def assert_votes(consilience, rows, folder):
    """Both models' rows are those of ``analyze vote``; the difference is from the vote before."""
    names = [f"{way}, {when}" for when in ("before", "after") for way in ("single variant", "vote")]
    assert [row["answer"] for row in rows] == names
    runs, found = (folder / "before", folder / "seed-42" / "improved" / "after"), []
    for run in runs:
        votes = json.loads(output(consilience, "analyze", "vote", run, "--json"))["votes"]
        found += [votes[0]["accuracy"], votes[-1]["accuracy"]]
    assert [row["accuracy"] for row in rows] == pytest.approx(found)
    assert [row["difference"] for row in rows] == [
        pytest.approx(found[0] - found[1]), None, *(pytest.approx(of - found[1]) for of in found[2:])
    ]  # fmt: skip


@pytest.mark.parametrize(("difference", "p", "verdict"), [
    (0.03, 0.01, "beats"), (0.03, 0.2, "does not clearly beat"), (-0.03, 0.01, "does not clearly beat"),
])  # fmt: skip
def test_a_training_that_does_not_beat_the_vote_says_so(difference, p, verdict):
    row = {"variants": 8, "accuracy": 0.5, "difference": difference, "difference_low": -0.05,
           "difference_high": 0.06, "p": p}  # fmt: skip
    one = {**row, "accuracy": 0.5 + difference, "variants": 1}
    (sentence,) = vote_sentence(pl.DataFrame([row, row, one, row]))
    assert sentence == (
        f"Training {verdict} the vote at inference: one variant is right in "
        f"{50 + 100 * difference:.1f} % after it, the vote of 8 variants before it in 50.0 % "
        f"({100 * difference:+.1f} points, -5.0 to +6.0), which costs 8 times as much."
    )
    assert vote_sentence(pl.DataFrame()) == []


def test_one_command_trains_adapters_and_shows_the_harm(consilience, command, chat, monkeypatch):
    document, folder = json.loads(output(consilience, *command, "--json")), command[-1]
    rows = {row["what"]: row for row in document["harm"]}
    assert {what.partition(", ")[2] for what in rows} == {
        "held-out groups", "labels", "", "mini", "relative",
    }  # fmt: skip
    assert rows["Wrong hints followed"]["is_cost"]
    before = pl.read_parquet(folder / "before" / "answers" / "C.parquet")
    right = (before["answer"] == before["gold"]).mean()
    assert (before.height, rows["Accuracy, held-out groups"]["before"]) == (6, pytest.approx(right))
    assert_votes(consilience, document["vote"], folder)
    assert {*pl.read_csv(folder / "lambdas.csv")["rate"]} == {1e-3, 1e-2}
    (outcome,) = document["outcomes"]
    assert [*outcome["validation"]] == ["1, 0.001", "1, 0.01"]
    place = Path(outcome["model"]).parent
    record = json.loads((place / "training.json").read_text())
    steps = [log["step"] for log in record["history"] if "eval_accuracy" in log]
    assert steps == [2, 4, 6], "a third, two thirds and the end of 6 updates"
    card = (place / "model" / "README.md").read_text()
    assert "| Chance-corrected consistency, labels |" in card
    assert str(folder) not in card
    assert_same_model(chat, place / "adapter", place / "model")

    def again(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(ConsistencyTrainer, "train_in", again)
    assert "Harm: what the training may have cost" in output(consilience, *command)


def assert_same_model(base, adapter, merged):
    """The adapter on its base computes what the merged model does, and not what the base does."""
    model, ids = AutoModelForCausalLM.from_pretrained(base), torch.arange(12)[None]
    plain = model(ids).logits
    adapted = PeftModel.from_pretrained(model, adapter)(ids).logits
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 8
    assert torch.allclose(
        adapted, AutoModelForCausalLM.from_pretrained(merged)(ids).logits, atol=1e-5
    )
    assert not torch.allclose(adapted, plain, atol=1e-3)


def test_a_killed_training_of_questions_resumes(chat, tmp_path, monkeypatch):
    save, suite = ConsistencyTrainer._save_checkpoint, Questions.from_frame(questions())

    def weights(name):
        subject = Subject(str(chat), suite, "strict", device="cpu")
        (outcome,) = _train_rows(subject, PLAN, tmp_path / name, ablations=False)
        return AutoModelForCausalLM.from_pretrained(outcome.training.model).state_dict()

    def killed(self, *args, **kwargs):
        save(self, *args, **kwargs)
        if self.state.global_step == 2:
            raise KeyboardInterrupt

    whole = weights("whole")
    with monkeypatch.context() as patch:
        patch.setattr(ConsistencyTrainer, "_save_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            weights("killed")
    resumed = weights("killed")
    assert all(torch.allclose(whole[name], resumed[name], atol=1e-6) for name in whole)


def test_an_open_question_learns_what_the_model_writes(trainer_of):
    """The text after the base variant is the reply in every variant, with what ends a turn."""
    suite = Questions.from_frame(questions().drop("options"))
    trainer, taught = trainer_of(suite, loss="bct", vary=("paraphrase=all",), learning_rate=1e-3)
    tokenizer = trainer.steps.tokenizer
    written = [rows["text"][0] for rows in taught.partition_by("item", maintain_order=True)]
    for item, text in zip(trainer.steps.items, written, strict=True):
        for _, ((*target, end),), _ in item.asks:
            assert (tokenizer.decode(target), tokenizer.decode(end)) == (text, "\n")
    step = collate(trainer.steps[0], 0)
    assert trainer.compute_loss(trainer.model, step).item() > 0


@pytest.mark.parametrize(("options", "message"), cases("improve_questions_bad"))
def test_what_is_wrong_with_questions_is_one_message(
    consilience, command, model_folder, tmp_path, options, message
):
    options = [model_folder("bert") if option == "BERT" else option for option in options]
    out = ["--out", tmp_path / "o"]
    assert message in " ".join(refusal(consilience, *command, *out, *options).split())


def test_facts_are_learned_as_questions(consilience, command, tmp_path):
    of = ["--suite", "mini", "--as-questions", "2", "--train-facts", "4", "--epochs", "1"]
    of += ["--train-groups", "capital,sport", "--validation-groups", "currency", "--limit", "1"]
    out = output(consilience, *command, *of, "--dry-run", "--out", tmp_path / "o")
    assert "train: 8 questions of capital, sport\n" in out
    assert "held out: 12 questions of" in out
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
    assert harm_of(row, 2.0) == harm
    (sentence,) = harm_verdict([{**row, "difference": low}], 2.0)
    shown = {"none within 2": "No harm shown within", "not ruled out": "A harm of more than 2"}
    shown["harm"] = "Harm: accuracy"
    assert "nan" not in sentence
    assert sentence.startswith(shown[harm])


TASK = """
task: colours
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


def test_a_task_of_the_harness_is_paired_by_document(consilience, command, chat, tmp_path):
    """The accuracy before is that of lm-eval itself; the interval is over documents."""
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.models.huggingface import HFLM

    rows = [
        {"question": f"What is {at}?", "choices": WORDS[:3], "answer": at % 3} for at in range(9)
    ]
    pl.DataFrame(rows).write_ndjson(tmp_path / "rows.jsonl")
    task, folder = tmp_path / "own.yaml", tmp_path / "o"
    task.write_text(TASK.replace("DATA", str(tmp_path / "rows.jsonl")))
    options = [*command[:-1], folder, "--harm-tasks", task, "--limit", "6"]
    document = json.loads(output(consilience, *options, "--json"))
    assert document["cost"]["split"]["lm-eval"] == f"{task}; not in the estimated time"
    (row,) = [row for row in document["harm"] if row["what"] == "Accuracy, own (lm-eval)"]
    harness = HFLM(pretrained=AutoModelForCausalLM.from_pretrained(chat), tokenizer=str(chat))
    results = lm_eval.simple_evaluate(harness, tasks=[str(task)], limit=6, bootstrap_iters=0)
    assert row["before"] == results["results"]["colours"]["acc,none"]
    kept = [folder / "before-tasks.json", folder / "seed-42" / "improved" / "after-tasks.json"]
    before, after = (json.loads(file.read_text())[str(task)] for file in kept)
    assert [*before] == [f"colours {at}" for at in range(6)] == [*after]
    assert row["difference"] == pytest.approx((sum(after.values()) - sum(before.values())) / 6)
    kept[0].write_text(json.dumps({str(task): dict.fromkeys(before, 1.0)}))
    again = json.loads(output(consilience, *options, "--json"))["harm"]
    assert again[-1]["before"] == 1.0, "what was measured is not measured again"
    message = " ".join(
        refusal(consilience, *command[:-1], tmp_path / "p", "--harm-tasks", "mmul").split()
    )
    assert (
        "--harm-tasks mmul: no such task of lm-eval, and no file. Did you mean 'mmlu'?" in message
    )
    task.write_text(task.read_text().replace("rows.jsonl", "absent.jsonl"))
    message = " ".join(
        refusal(consilience, *command[:-1], tmp_path / "p", "--harm-tasks", task).split()
    )
    assert f"--harm-tasks {task}: cannot be loaded: Unable to find" in message
    task.write_text(TASK.replace("acc,", "f1,").replace("DATA", str(tmp_path / "rows.jsonl")))
    message = " ".join(
        refusal(consilience, *command[:-1], tmp_path / "p", "--harm-tasks", task).split()
    )
    assert "the task 'colours' without acc or exact_match" in message


def test_a_task_by_hand_and_what_is_said_without_one():
    """Of 4 documents 2 are right before; after two seeds 3 and 4: a half-point each is 0.5."""
    before = dict(zip("abcd", (1.0, 0.0, 1.0, 0.0), strict=True))
    after = [{**before, "b": 1.0}, dict.fromkeys("dcba", 1.0)]
    row = task_row("mmlu", before, after)
    assert (row["what"], row["before"], row["after"], row["difference"]) == (
        "Accuracy, mmlu (lm-eval)",
        0.5,
        0.875,
        0.375,
    )
    # The differences 0, 1, 0 and 0.5 have the variance 0.6875 / 3; t with 3 degrees is 3.182446
    assert row["high"] - row["difference"] == pytest.approx(3.182446 * math.sqrt(0.6875 / 3 / 4))
    assert NO_TASKS not in harm_table([row], 2.0, "causal").notes
    assert NO_TASKS in harm_table([{**row, "what": "Accuracy"}], 2.0, "causal").notes
    assert NO_TASKS not in harm_table([{**row, "what": "Accuracy"}], 2.0, "masked").notes


@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="lm-eval is installed")
def test_a_task_without_the_harness_is_refused_before_training(consilience, command, tmp_path):
    message = refusal(consilience, *command[:-1], tmp_path / "o", "--harm-tasks", "mmlu")
    assert "'lm_eval' is not installed" in message
    assert not (tmp_path / "o").exists()


def test_the_harm_to_facts_is_that_of_relations_with_one_right_object(tmp_path):
    """As the mean over relations of ``metrics``; of the others every right object counts there."""
    asked = ProbeOptions(model="", suite="mini", limit=4)
    before, after = (
        probe(replace(asked, model=f"baseline:{name}", out=tmp_path / name))
        for name in ("random", "majority")
    )
    assert {group.cardinality for group in before.suite} == {"N-1", "N-M"}
    compared = compare({"before": before.answers, "after": after.answers}, before.suite, "strict")
    accuracy, *_ = harm_rows("mini", before, [after], compared)
    for side, run in (("before", before), ("after", after)):
        metrics = run.metrics.filter(metric="mean_accuracy", group="MACRO", subset="all")
        assert accuracy[side] == pytest.approx(metrics["value"].item())


def test_the_perplexity_of_text_by_hand():
    """Three lines of 2, 2 and 4 words; each word costs 0.1, 0.1 and 0.2 nats more: 0.15 a word."""
    before = [(2.0, 2), (4.0, 2), (2.0, 4)]
    row = text_row(before, [[(2.2, 2), (4.2, 2), (2.8, 4)]] * 2)
    assert row["before"] == pytest.approx(math.e)
    assert row["difference"] == pytest.approx(math.expm1(0.15))
    error = math.sqrt(3 / 2 * (0.1**2 + 0.1**2 + 0.2**2)) / 8
    far = stats.t.ppf(0.975, 2) * error
    assert row["high"] == pytest.approx(math.expm1(0.15 + far))
    alone = text_row(before[:1], [[(2.2, 2)]])
    assert math.isnan(alone["high"]) and harm_of(alone, 2) == "not ruled out"
