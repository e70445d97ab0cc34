"""Instance records of Every Eval Ever become questions with variants and answers."""

import json
import random

import pytest

import consilience as cs
from checks import output, refused
from consilience.kinds import records
from consilience.kinds.records import record_answers
from consilience.options.runs import ScoreOptions
from consilience.publish.formats import EEE_INSTANCE, _validator


def record(item, answer, golds, *, choices=None, right=None, raw="", model="org/m", **metadata):
    """An instance record; by default the answer is right if it is a gold."""
    right = answer in golds if right is None else right
    attribution = {
        "turn_idx": 0, "source": "output.raw", "extracted_value": answer,
        "extraction_method": "regex", "is_terminal": True,
    }  # fmt: skip
    return {
        "schema_version": "0.3.0", "evaluation_id": "e", "model_id": model,
        "evaluation_name": "physics", "sample_id": item, "interaction_type": "single_turn",
        "input": {"raw": raw or f"{item}?", "reference": golds}
        | ({"choices": choices} if choices else {}),
        "output": {"raw": [answer or ""]}, "messages": None,
        "answer_attribution": [attribution] * (answer is not None),
        "evaluation": {"score": float(right), "is_correct": right}, "metadata": metadata or None,
    }  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    def save(*rows, name="records.jsonl"):
        for row in rows:
            _validator(EEE_INSTANCE).validate(row)
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return save


def read(path, **options):
    """``item, variant, answer, option`` of each record, and the questions."""
    _, questions, table = record_answers(ScoreOptions(path, **options))
    return table.select("item", "variant", "answer", "option").rows(), questions


def test_two_thousand_records_have_the_numbers_of_their_answers(saved, monkeypatch):
    """50 questions in 4 orders x 2 labels x 5 templates; read in parts of some records each.

    An answer is right with a probability of 0.7: two agree with 0.7^2 + 3 * 0.1^2 = 0.52.
    """
    draw, rows, hits = random.Random(0), [], []
    for at in range(2000):
        item, variant = divmod(at, 40)
        options = [f"{item}{letter}" for letter in "abcd"]
        shown = options[variant % 4 :] + options[: variant % 4]
        chosen = options[item % 4] if draw.random() < 0.6 else draw.choice(options)
        hits.append(chosen == options[item % 4])
        fields = {"choices_order": str(variant % 4), "enumerator": "A1"[variant // 4 % 2]}
        label = ("ABCD" if fields["enumerator"] == "A" else "1234")[shown.index(chosen)]
        rows.append(record(
            f"q{item}", label, [options[item % 4]], choices=shown, right=hits[-1],
            format=str(variant // 8), topic="waves", **fields,
        ))  # fmt: skip
    path = saved(*rows)
    monkeypatch.setattr(records, "PART", 50_000)
    result = cs.score(path)
    frame = result.metrics.filter(group="MICRO")
    numbers = {(row["metric"], row["subset"]): row["value"] for row in frame.rows(named=True)}
    assert numbers["mean_accuracy", "all"] == pytest.approx(sum(hits) / 2000)
    assert numbers["consistency", "all"] == pytest.approx(0.52, abs=0.03)
    assert {subset for name, subset in numbers if name == "consistency"} == {
        "all", "template", "order", "labels",
    }  # fmt: skip
    assert result.summary is not None and len(result.answers) == 2000
    counts = result.answers["option"].value_counts()["count"]
    assert counts.min() > 400, "labels are read in the order that was shown"


def test_golds_aliases_and_verdicts(saved):
    """An alias is right if the record says so; what it says is wrong does not become right."""
    rows = [
        record("tea", "Tee", ["tea", "Tee"], seed="1"),
        record("tea", "The coffee.", ["tea", "Tee"], seed="2"),
        record("tea", "tea", ["tea", "Tee"], right=False, seed="3"),
        record("tea", None, ["tea", "Tee"], seed="4"),
    ]
    answers, questions = read(saved(*rows))
    assert [row[1:3] for row in answers] == [
        ("sample=1", "tea"), ("sample=2", "coffee"), ("sample=3", "tea (wrong by the record)"),
        ("sample=4", "(no text)"),
    ]  # fmt: skip
    assert questions.items[0].gold.texts == ("tea", "Tee")


def test_without_fields_the_prompt_or_the_repetition_is_the_variant(saved):
    prompts = [record("a", "x", ["x"], raw=raw) for raw in ("A?", "Now A?", "A?")]
    answers, _ = read(saved(*prompts))
    assert sorted(variant for _, variant, *_ in answers) == [
        "paraphrase=1, sample=1", "paraphrase=1, sample=2", "paraphrase=2, sample=1",
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "option"), [
    ("B", 0), ("(b)", 0), ("2", 0), ("one", 0), (" ONE ", None), ("E", None), ("two, I think", None),
])  # fmt: skip
def test_an_answer_is_an_option_by_its_label_or_text(saved, answer, option):
    """The options of the first record are one, two; the second shows them the other way round."""
    first = record("a", "two", ["two"], choices=["one", "two"], order="1")
    second = record("a", answer, ["two"], choices=["two", "one"], order="2")
    answers, _ = read(saved(first, second))
    assert [row[3] for row in answers] == [1, option]


def test_one_model_of_several_is_chosen(saved):
    rows = [record("a", "x", ["x"], model=f"org/{at % 2}", seed=str(at)) for at in range(4)]
    path = saved(*rows)
    answers, _ = read(path, provider="org/1")
    assert len(answers) == 2
    refused("the answers of 2 models: org/0, org/1", read, path)
    refused("no model 'org/2'", read, path, provider="org/2")


@pytest.mark.parametrize(("rows", "message"), [
    ([record("a", "x", ["x"])], "1 variant of the questions"),
    ([record("a", "x", ["x"], seed=str(at)) for at in range(201)], "201 variants"),
    ([record("a", "x", [], seed="1"), record("a", "x", [], seed="2")], "without input.reference"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(saved, rows, message):
    refused(message, read, saved(*rows))


def test_other_lines_and_options_are_refused(saved, monkeypatch):
    path = saved(record("a", "x", ["x"], seed="1"), record("a", "y", ["x"], seed="2"))
    refused("--match with instance records", read, path, match="exact")
    path.write_text(path.read_text() + '{"model_id": 3, "sample_id"\n', encoding="utf-8")
    refused("a line that is no record", read, path)
    monkeypatch.setattr(records, "HEAD", 2)  # so that only polars reads the third line
    refused("records that cannot be read", read, path)


def test_published_records_are_read_back(consilience, tmp_path):
    """The answers of a run that was published have its accuracy and consistency."""
    output(consilience, "probe", "--model", "baseline:random", "--suite", "mini-questions", "--limit",
           "3", "--groups", "capital,sport", "--vary", "order=rotations", "--out", "run")  # fmt: skip
    output(consilience, "publish", "run", "--format", "eee", "--out", "out", "--model-id", "o/m")
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    output(consilience, "score", path, "--out", "again")
    output(consilience, "report", "again")
    for metric in ("accuracy", "consistency"):
        values = [
            cs.score(tmp_path / name).metrics.filter(metric=metric, group="MICRO", subset="all")
            for name in ("run", "again")
        ]
        assert values[0]["value"].item() == values[1]["value"].item()
