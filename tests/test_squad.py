"""Question answering: scores by hand, spans by a slow reference, training that goes on."""

import json
import shutil
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForMaskedLM, BertForQuestionAnswering, BertTokenizer

from checks import refused
from conftest import ROOT, SENTENCES, WORDS, cases, real_data

sys.path.insert(0, str(ROOT / "examples"))
import squad
from squad import (
    Question,
    answer_tokens,
    best_span,
    check_pairs,
    compare,
    evaluate,
    exact_match,
    f1_score,
    load_model,
    normalize_answer,
    outcomes,
    predict,
    read_squad,
    train_reader,
    windows,
)

CONTEXT = "Berlin is the capital of Germany. Paris is the capital of France. Rome is in Italy."
TAUGHT = [
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Germany?", "Berlin"),
    ("What is in Italy?", "Rome"),
    ("What is Rome in?", "Italy"),
    ("Paris is the capital of what?", "France"),
    ("Berlin is what?", "the capital of Germany"),
]
REWORDED = [
    "France: what is the capital?", "What is Germany's capital?", "Italy: what is in it?",
    "Where is Rome?", "Of what is Paris the capital?", "What is Berlin?",
]  # fmt: skip


def make(rows=TAUGHT, context=CONTEXT, prefix="q"):
    return [
        Question(f"{prefix}{at}", text, context, (truth,), (context.index(truth),), "Cities")
        for at, (text, truth) in enumerate(rows)
    ]


def write(path, questions):
    paragraphs = []
    for each in questions:
        places = zip(each.answers, each.starts, strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in places]
        question = {"id": each.id, "question": each.question, "answers": answers}
        paragraphs.append({"context": each.context, "qas": [question]})
    document = {"version": "1.1", "data": [{"title": "Cities", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def make_files(folder):
    """A training file, questions and their paraphrases."""
    rows = [(text, truth) for text, (_, truth) in zip(REWORDED, TAUGHT, strict=True)]
    questions = {"train": make(), "original": make(), "paraphrased": make(rows, prefix="p")}
    return {name: write(folder / f"{name}.json", each) for name, each in questions.items()}


@pytest.fixture(scope="module")
def tokenizer():
    texts = [*SENTENCES, *WORDS, CONTEXT, *REWORDED, *(text for text, _ in TAUGHT)]
    words = [f for text in texts for f in BertTokenizer().backend_tokenizer.pre_tokenizer.pre_tokenize_str(text.lower())]  # fmt: skip
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = dict.fromkeys([*special, *sorted({word for word, _ in words})])
    return BertTokenizer(vocab={word: at for at, word in enumerate(vocabulary)})


def sized(kind, tokenizer, seed, **options):
    """A small random model with that tokenizer's vocabulary."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return kind(BertConfig(vocab_size=len(tokenizer), num_attention_heads=4, **sizes, **options))


@pytest.fixture(scope="module")
def body(tokenizer, tmp_path_factory):
    """A masked language model, as it comes from pretraining or from more of it."""
    folder = tmp_path_factory.mktemp("body")
    model = sized(BertForMaskedLM, tokenizer, 0, max_position_embeddings=400, initializer_range=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_exact_match_and_f1_worked_out_by_hand():
    """in city of paris / paris france: 1 shared of 4 and 2, F1 = 2 * 1 / (4 + 2)."""
    assert normalize_answer("The  Eiffel-Tower, a\ttower!") == "eiffeltower tower"
    assert normalize_answer("An Anthem") == "anthem"
    assert exact_match("the Paris.", ["Rome", "paris"])
    assert not exact_match("Paris, France", ["Paris"])
    assert f1_score("in the city of Paris", ["Paris, France"]) == pytest.approx(1 / 3)
    assert f1_score("in the city of Paris", ["Rome", "city of Paris"]) == pytest.approx(6 / 7)
    assert f1_score("Paris Paris", ["Paris"]) == pytest.approx(2 / 3), "a word counts once"
    assert f1_score("Rome", ["Paris"]) == f1_score("", ["Paris"]) == f1_score("the", ["a"]) == 0


def test_windows_cover_the_context_and_share_the_stride(tokenizer):
    long = " ".join([CONTEXT] * 4)
    question = Question("q", "What is  the capital?", long, ("Rome",), (long.index("Rome"),))
    cut = list(windows([make()[0], question], tokenizer, length=30, stride=8))
    assert [each.question for each in cut][:3] == [0, 1, 1]
    covered = set()
    parts = [each.offsets[each.offsets[:, 0] >= 0] for each in cut if each.question == 1]
    for left, right in pairwise(parts):
        assert (left[-8:] == right[:8]).all()
    for part in parts:
        covered |= {at for low, high in part for at in range(low, high)}
    assert covered == {at for at, letter in enumerate(long) if letter != " "}
    assert all(len(each.offsets) == len(each.inputs["input_ids"]) <= 30 for each in cut)
    assert (cut[0].inputs["token_type_ids"] == (cut[0].offsets[:, 0] >= 0) + 0)[:-1].all()


def test_answer_tokens_are_the_tokens_of_the_first_answer(tokenizer):
    """[CLS] berlin is what ? [SEP] berlin is the capital of germany ...: tokens 8 to 11."""
    question = make()[5]
    (window,) = windows([question], tokenizer)
    inside = [answer_tokens(each, question) for each in windows([question], tokenizer, 15, 4)]
    assert answer_tokens(window, question) == inside[0] == (8, 11)
    assert set(inside[1:]) == {(0, 0)}, "a window without all of the answer has none"


def test_a_question_that_fills_the_window_is_refused(tokenizer):
    question = Question("long", "what " * 300, CONTEXT, ("Rome",), (CONTEXT.index("Rome"),))
    refused(r"'long' has 300 tokens.*fewer than 253", lambda: list(windows([question], tokenizer)))


def slow_best(start, end, inside, longest):
    best = (-np.inf, 0, 0)
    for i in range(len(start)):
        for j in range(i, len(end)):
            if inside[i] and inside[j] and j - i < longest and start[i] + end[j] > best[0]:
                best = (start[i] + end[j], i, j)
    return best


def test_answers_are_those_of_each_window_read_alone(tokenizer):
    model = sized(BertForQuestionAnswering, tokenizer, 3, initializer_range=0.5).eval()
    long = " ".join([*SENTENCES, CONTEXT] * 2)
    asked = make() + make([(each, "Rome") for each in REWORDED], long, "r")
    expected = []
    for question in asked:
        best = (-np.inf, "")
        for window in windows([question], tokenizer, 32, 8):
            with torch.inference_mode():
                found = model(**{k: torch.tensor(v)[None] for k, v in window.inputs.items()})
            start, end = (each[0].double().numpy() for each in (found[0], found[1]))
            score, i, j = slow_best(start, end, window.offsets[:, 0] >= 0, 5)
            text = question.context[window.offsets[i, 0] : window.offsets[j, 1]]
            best = max(best, (score, text), key=lambda each: each[0])
        expected.append(best[1])
    windowed = {"length": 32, "stride": 8, "longest": 5}
    found = predict(model, tokenizer, asked, **windowed)
    assert found == expected
    assert len(set(found)) > 1
    assert predict(model, tokenizer, asked[::-1], **windowed) == expected[::-1]
    assert best_span(np.ones(9), np.ones(9), np.zeros(9, dtype=bool), 4)[0] == -np.inf


@pytest.fixture
def steps(monkeypatch):
    """The steps of every training, as they are made; a training stops before step ``kill_at``."""

    class Steps(list):
        kill_at = None

    made = Steps()

    class Counted(squad.Trainer):
        def training_step(self, *args, **kwargs):
            if self.state.global_step == made.kill_at:
                raise KeyboardInterrupt
            made.append(self.state.global_step)
            return super().training_step(*args, **kwargs)

    monkeypatch.setattr(squad, "Trainer", Counted)
    return made


def test_training_learns_a_handful_and_leaves_what_is_finished(body, tmp_path, steps):
    questions = make()
    options = {"learning_rate": 3e-3, "batch_size": 6, "max_steps": 120, "device": "cpu"}
    train_reader(str(body), questions, tmp_path / "m", **options)
    model, tokenizer, _ = load_model(str(tmp_path / "m"), trained=True)
    assert predict(model, tokenizer, questions) == [truth for _, truth in TAUGHT]
    assert not list((tmp_path / "m").glob("checkpoint-*"))
    (tmp_path / "m" / "checkpoint-9").mkdir()  # of a process that was killed at its very end
    assert len(steps) == 120
    train_reader(str(body), questions, tmp_path / "m", **options)
    assert len(steps) == 120
    assert not list((tmp_path / "m").glob("checkpoint-*"))
    other_seed = options | {"seed": 1}
    message = "its seed is 0, this command's is 1"
    refused(message, train_reader, str(body), questions, tmp_path / "m", **other_seed)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    refused("not empty", train_reader, str(body), questions, tmp_path / "other")


def test_a_training_that_was_killed_ends_with_the_same_weights(body, tmp_path, steps):
    """Three steps an epoch; resumed inside the second one; equal to one part in a million."""
    options = {"batch_size": 2, "epochs": 4, "save_steps": 4, "learning_rate": 1e-3}
    options["device"] = "cpu"
    train_reader(str(body), make(), tmp_path / "whole", **options)
    steps.kill_at = 6
    with pytest.raises(KeyboardInterrupt):
        train_reader(str(body), make(), tmp_path / "killed", **options)
    (tmp_path / "killed" / "checkpoint-11").mkdir()  # half written
    steps.clear()
    steps.kill_at = None
    train_reader(str(body), make(), tmp_path / "killed", **options)
    assert steps == list(range(4, 12))
    killed = load_file(tmp_path / "killed" / "model.safetensors")
    for name, weight in load_file(tmp_path / "whole" / "model.safetensors").items():
        torch.testing.assert_close(killed[name], weight, rtol=1e-6, atol=1e-6)


def test_a_body_or_a_head_without_weights_is_refused(body, tmp_path):
    refused(r"lack 2 tensors, such as 'qa_outputs.bias'", load_model, str(body), trained=True)
    refused("cannot load", load_model, str(tmp_path / "missing"), trained=True)
    refused("device 'tpu'", load_model, str(body), trained=False, device="tpu")


def hand_made(answers, contexts=(0, 0, 1, 2), title="{}"):
    """Four pairs on three contexts; the truth is always `Paris`."""

    def asked(side):
        for at, context in enumerate(contexts):
            text = f"Paris {context}"
            yield Question(f"{side}{at}", "?", text, ("Paris",), (0,), title.format(at))

    return outcomes(list(asked("o")), list(asked("p")), answers)


def test_the_table_worked_out_by_hand():
    """Originals: right, right, wrong, half (F1 of `Paris now` is 2/3); paraphrases below.

    The same answer in pairs 1, 3 and 4 (`the Paris` is `Paris`): 3/4. F1 of the second pair's
    answers, `Paris` and `Paris now`: 2/3.
    """
    original = ["Paris", "Paris", "Rome", "Paris now"]
    found = hand_made((original, ["the Paris", "Paris now", "rome", "Paris now"]))
    table = evaluate(found)
    values = {(m, s): v for m, s, v in table.select("metric", "of", "value").iter_rows()}
    assert values == {
        ("exact_match", "original"): pytest.approx(2 / 4),
        ("exact_match", "paraphrased"): pytest.approx(1 / 4),
        ("exact_match", "difference"): pytest.approx(-1 / 4),
        ("f1", "original"): pytest.approx((1 + 1 + 0 + 2 / 3) / 4),
        ("f1", "paraphrased"): pytest.approx((1 + 2 / 3 + 0 + 2 / 3) / 4),
        ("f1", "difference"): pytest.approx(-1 / 12),
        ("consistency", "pair"): pytest.approx(3 / 4),
        ("overlap", "pair"): pytest.approx((1 + 2 / 3 + 1 + 1) / 4),
        ("consistent_accuracy", "pair"): pytest.approx(1 / 4),
    }
    assert table["clusters"].unique().to_list() == [3], "titles differ: contexts are the clusters"
    assert table["n"].unique().to_list() == [4]
    assert table["value"].is_between(table["low"], table["high"]).all()
    assert evaluate(found).equals(table)
    empty = evaluate(hand_made(([""] * 4, ["the"] * 4)))
    assert empty["value"].to_list() == [0, 0, 0, 0, 0, 0, 1, 1, 0], "they agree and are wrong"


@pytest.mark.parametrize(("title", "clusters"), [("{}", 3), ("Cities", 1), ("", 3)])
def test_clusters_are_titles_where_all_have_one_and_these_are_fewer(title, clusters):
    found = hand_made((["Paris"] * 4, ["Paris"] * 4), title=title)
    assert evaluate(found)["clusters"][0] == clusters


def test_two_models_worked_out_by_hand():
    """Six pairs on six contexts, all wrong before, all right after.

    McNemar: 2 / 2^6. Permutation of six clusters: 2 of all 2^6 signs. Both agree with themselves.
    """
    contexts = range(6)
    before = hand_made((["Rome"] * 6, ["Rome"] * 6), contexts)
    after = hand_made((["Paris"] * 6, ["Paris"] * 6), contexts)
    table = compare(before, after)
    by = {(row["metric"], row["of"]): row for row in table.iter_rows(named=True)}
    exact = {("exact_match", "paraphrased"): "mcnemar", ("consistent_accuracy", "pair"): "mcnemar"}
    for key, test in (exact | {("f1", "original"): "permutation"}).items():
        row = by[key]
        assert (row["before"], row["after"], row["difference"]) == (0, 1, 1)
        assert (row["p"], row["test"]) == (pytest.approx(2 / 64), test)
    assert (by["consistency", "pair"]["difference"], by["consistency", "pair"]["p"]) == (0, 1)
    back = compare(after, before)
    assert (back["difference"] + table["difference"]).to_list() == [0] * 9
    assert back["p"].equals(table["p"])
    refused("different questions", compare, before, hand_made((["Rome"] * 4, ["Rome"] * 4)))


def test_permuted_are_clusters_and_not_pairs():
    """All six pairs on one context: its sign alone says nothing, so that there is no p."""
    sides = (["Rome"] * 6, ["Rome"] * 6), (["Paris"] * 6, ["Paris"] * 6)
    before, after = (hand_made(each, [0] * 6) for each in sides)
    f1 = compare(before, after).filter(pl.col("metric") == "f1")
    assert (f1["p"].is_nan() & f1["low"].is_nan()).all()


def test_pairs_are_linked_by_order_and_that_is_checked():
    first = make()
    check_pairs(first, make(prefix="p"))
    refused("6 original and 5 paraphrased", check_pairs, first, first[:5])
    refused(r"question 1 \('q0' and 'q5'\) has another context", check_pairs, first, first[::-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [*cases("squad_bad"), ("[" * 100_000, "cannot be read"), ("9" * 5000, "cannot be read")],
)
def test_a_file_that_is_not_squad_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "squad.json"
    if text is not None:
        path.write_text(text)
    refused(message, read_squad, path)


def test_reading_mends_a_start_that_is_off_by_two_and_refuses_other(tmp_path):
    start = CONTEXT.index("Paris")
    right = Question("1", "Which?", CONTEXT, ("Paris",), (start,), "Cities")
    near, far = (replace(right, starts=(start + off,)) for off in (2, 9))
    (found,) = read_squad(write(tmp_path / "near.json", [near]))
    assert (found.starts, found.title, found.id) == ((start,), "Cities", "1")
    refused("'Paris' is not at its answer_start", read_squad, write(tmp_path / "far.json", [far]))
    refused("duplicate id '1'", read_squad, write(tmp_path / "twice.json", [near, near]))


def test_from_files_to_tables(body, tmp_path, capsys):
    files = make_files(tmp_path)
    out = tmp_path / "out"
    options = {"batch_size": 6, "device": "cpu", "learning_rate": 0.003, "max_steps": 60}
    options |= {**files, "out": out}
    other = shutil.copytree(body, tmp_path / "body")
    squad.squad([str(body), str(other)], **options)
    said = capsys.readouterr()
    assert "note: 6 of 6 questions are on contexts of --train" in said.err
    assert "consistent_accuracy" in said.out
    comparison = pl.read_csv(out / "comparison.csv")
    assert comparison["difference"].to_list() == [0] * 9, "the same body, seed and questions"
    metrics = pl.read_csv(out / "metrics.csv")
    assert metrics["n"].to_list() == [6] * 18
    f1 = metrics.filter((pl.col("metric") == "f1") & (pl.col("of") == "original"))
    assert f1["value"].min() > 0.5, "it was trained on these"
    assert pl.read_csv(out / "answers.csv").height == 12
    squad.squad([str(body), str(other)], **options, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["models"] == [str(body), str(other)]
    assert document["warnings"] == ["6 of 6 questions are on contexts of --train"]
    for name, table in (("metrics", metrics), ("comparison", comparison)):
        assert [row["metric"] for row in document[name]] == table["metric"].to_list()
    refused("its epochs is 2", squad.squad, [str(body)], **options, epochs=3)


def test_the_released_paraphrases_are_linked_by_order_and_not_by_id():
    folder = real_data("squad")
    for name, pairs, contexts in (("dev", 1062, 797), ("adv", 56, 44)):
        first, second = (read_squad(folder / f"{name}_{side}.json") for side in ("orig", "para"))
        check_pairs(first, second)
        assert len(first) == pairs
        assert all(int(a.id) == int(b.id) + 1 for a, b in zip(first, second, strict=True))
        perfect = [each.answers[0] for each in first]
        table = evaluate(outcomes(first, second, (perfect, perfect)))
        assert table["value"].to_list() == [1, 1, 0, 1, 1, 0, 1, 1, 1]
        assert table["clusters"][0] == contexts
