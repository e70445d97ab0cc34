"""Instance records of Every Eval Ever become questions with variants and answers."""

import json
import random
from pathlib import Path

import pytest

import consilience as cs
from checks import output, refused
from consilience.core.schemas import REASONS
from consilience.files import tables
from consilience.kinds import records
from consilience.kinds.records import record_answers
from consilience.metrics import registry
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


def drawn(size):
    """Records of questions in 4 orders x 2 labels x 5 templates, and which answers are right."""
    draw, rows, hits = random.Random(0), [], []
    for at in range(size):
        item, variant = divmod(at, 40)
        options = [f"{item}{letter}" for letter in "abcd"]
        shown = options[variant % 4 :] + options[: variant % 4]
        chosen = options[item % 4] if draw.random() < 0.6 else draw.choice(options)
        hits.append(chosen == options[item % 4])
        fields = {"choices_order": str(variant % 4), "enumerator": "A1"[variant // 4 % 2]}
        label = ("ABCD" if fields["enumerator"] == "A" else "1234")[shown.index(chosen)]
        rows.append(record(
            f"q{item}", label, [options[item % 4]], choices=shown, right=hits[-1],
            template=str(variant // 8), topic=str(variant), raw=f"{item} {variant}?", **fields,
        ))  # fmt: skip
    return rows, hits


def test_two_thousand_records_have_the_numbers_of_their_answers(saved, monkeypatch):
    """50 questions; read in parts of some records each.

    An answer is right with a probability of 0.7: two agree with 0.7^2 + 3 * 0.1^2 = 0.52.
    """
    rows, hits = drawn(2000)
    monkeypatch.setattr(records, "PART", 50_000)
    result = cs.score(saved(*rows))
    frame = result.metrics.filter(over="all")
    numbers = {(row["metric"], row["level"]): row["value"] for row in frame.rows(named=True)}
    assert numbers["mean_accuracy", ""] == pytest.approx(sum(hits) / 2000)
    assert numbers["consistency", ""] == pytest.approx(0.52, abs=0.03)
    assert {level for name, level in numbers if name == "consistency"} == {
        "", "template", "order", "labels",
    }  # fmt: skip
    assert result.summary is not None and len(result.answers) == 2000
    counts = result.answers["option"].value_counts()["count"]
    assert counts.min() > 400, "labels are read in the order that was shown"


def test_the_order_of_the_lines_changes_nothing(saved, monkeypatch):
    """Neither numbers nor notes nor digests; with gaps, samples and a field that few records have.

    Nor does it matter how many rows are joined, and how many items are compared, at once.
    Position 1 is everywhere the first option of order 0, which is one of the last lines here.
    """
    rows, _ = drawn(280)
    other = {"output": {"raw": ["?"]}, "answer_attribution": [], "evaluation_id": "f"}
    more = [
        {**row, **other, "evaluation": {"score": 0, "is_correct": False}} for row in rows[40::40]
    ]
    rows = [*rows[1:], *more]  # q0 lacks its first variant, the others have it twice
    rows[100]["metadata"]["few"] = rows[200]["metadata"]["few"] = "1"
    monkeypatch.setattr(records, "PART", 10_000)
    results = []
    for seed in range(3):
        monkeypatch.setattr(tables, "PART", (2**17, 50, 7)[seed])
        monkeypatch.setattr(registry, "ITEMS", (256, 3, 1)[seed])
        result = cs.score(path := saved(*rows))
        _, questions = read(path)
        assert [item.options[0].text for item in questions.items] == [f"{at}a" for at in range(7)]
        found = result.metrics.to_dicts(), result.answers.to_dicts()
        results.append((found, result.notes, questions, questions.digest))
        rows = random.Random(seed).sample(rows[::-1], len(rows))
    assert str(results[0]) == str(results[1]) == str(results[2])


def test_options_have_the_first_order_whatever_the_phrasing(saved):
    rows = [
        record("a", "x", ["x"], choices=shown.split(), order=order, instruction=phrasing)
        for shown, order, phrasing in (("y x", "1", "1"), ("x y", "0", "2"), ("y x", "1", "2"))
    ]
    answers, questions = read(saved(*rows))
    assert [option.text for option in questions.items[0].options] == ["x", "y"]
    assert [row[1] for row in answers] == [
        f"paraphrase={phrasing}, order={order}" for phrasing, order in ((1, 1), (2, 0), (2, 1))
    ]


def test_variants_are_sorted_by_the_values_of_their_levels(saved):
    shots = ("10", "b", "2", "none", "0.5")
    rows = [record("a", "x", ["x"], num_shots=of, instruction="9") for of in shots]
    rows += [record("b", "x", ["x"], num_shots="2", instruction=of) for of in ("10", "9")]
    _, _, table = record_answers(ScoreOptions(saved(*rows)))
    names = table.sort("variant_index")["variant"].unique(maintain_order=True).to_list()
    assert names == [
        *(f"paraphrase=1, examples={of}" for of in ("none", "0.5", "2", "10", "b")),
        "paraphrase=2, examples=2",
    ]


def test_names_of_variants_that_are_no_levels_are_templates(saved):
    rows = [record("a", "x", ["x"], variant=name) for name in ("v10, a=b", "v9", "template=1")]
    answers, _ = read(saved(*rows))
    assert [row[1] for row in answers] == ["template=1", "template=v9", "template=v10 a b"]


def test_an_answer_that_is_called_right_is_right(saved):
    """Another option than the reference, by its label: a note says so, and it is no unknown text."""
    rows = [
        record("tin", answer, ["tin"], right=True, choices=["ice", "tin"], order=str(at))
        for at, answer in enumerate(("A", "tin", "the metal"))
    ]
    answers, questions = read(saved(*rows))
    assert [row[2] for row in answers] == ["tin"] * 3
    (note,) = questions.notes
    assert note.startswith("1 record whose answer is another option than the reference, and")


def test_golds_aliases_and_verdicts(saved):
    """An alias is right if the record says so; what it says is wrong does not become right."""
    rows = [
        record("tea", "Tee", ["tea", "Tee"], seed="1") | {"error": "of another kind"},
        record("tea", "The coffee.", ["tea", "Tee"], seed="2"),
        record("tea", "tea", ["tea", "Tee"], right=False, seed="3"),
        record("tea", None, ["tea", "Tee"], seed="4") | {"error": "timed out"},
        record("tea", "Tee!", ["tea", "Tee"], right=False, seed="5"),
    ]
    answers, questions = read(saved(*rows))
    errors = (
        record_answers(ScoreOptions(saved(*rows)))[2]
        .select("variant", *REASONS)
        .drop_nulls("error")
    )
    assert errors.rows() == [("sample=4", None, "timed out")]
    assert [row[1:3] for row in answers] == [
        ("sample=1", "tea"), ("sample=2", "coffee"), ("sample=3", "tea (wrong by the record)"),
        ("sample=4", None), ("sample=5", "tee (wrong by the record)"),
    ]  # fmt: skip
    assert questions.items[0].gold.texts == ("tea", "Tee")
    assert questions.notes == (
        "2 records whose answer is the reference, and that say it is wrong: counted as wrong",
    )


def test_an_option_that_is_the_reference_and_wrong_by_the_record_is_an_option(saved):
    rows = [
        record(item, "B", ["Rome"], choices=["Oslo", "Rome"], right=item == "a", seed=seed)
        for item in "ab"
        for seed in "12"
    ]
    result = cs.score(saved(*rows))
    accuracy = result.metrics.filter(metric="mean_accuracy", over="all")
    assert accuracy["value"].item() == 0.5
    (note,) = [note for note in result.notes if "record" in note or "option" in note]
    assert note.startswith("2 records whose answer is the reference")


def test_without_fields_repetitions_are_samples_and_prompts_are_refused(saved):
    asked = [("A?", "x"), ("Now A?", "x"), ("A?", "y")]
    rows = [record("a", answer, ["x"], raw=raw, score=answer) for raw, answer in asked]
    answers, questions = read(saved(*rows[::2]))
    assert sorted(variant for _, variant, *_ in answers) == ["sample=1", "sample=2"]
    note = "2 records counted as samples of a variant, such as of 'a'"
    assert questions.notes == (note,)
    refused("several prompts of a question, which no field of metadata names", read, saved(*rows))


def test_equal_records_are_no_silent_samples(saved):
    """Equal ones are refused, those in several results count once, those with a number each."""
    one, other = record("a", "x", ["x"], seed="1"), record("a", "y", ["x"], seed="2")
    refused("2 records that equal each other, such as of 'a'", read, saved(one, other, one))
    for at, row in enumerate(rows := [one, other, dict(one)]):
        row["evaluation_result_id"] = str(at)
    answers, questions = read(saved(*rows))
    assert [row[1] for row in answers] == ["sample=1", "sample=2"]
    assert questions.notes == ("1 record of an answer in a further result not counted",)
    again = [{**row, "evaluation_result_id": "later"} for row in rows[:2]]
    equal = {**one, "metadata": {"seed": "3"}, "evaluation_result_id": "1"}  # the same answer
    answers, questions = read(saved(*rows[:2], equal, *again))
    assert [row[1:3] for row in answers] == [
        ("sample=1", "x"),
        ("sample=2", "y"),
        ("sample=3", "x"),
    ]
    assert questions.notes == ("2 records of an answer in a further result not counted",)
    answers, _ = read(saved(one, other, {**one, "metadata": {"seed": "3"}}))
    assert [row[1] for row in answers] == ["sample=1", "sample=2", "sample=3"]


@pytest.mark.parametrize(("answer", "option"), [
    ("B", 0), ("(b)", 0), ("2", 0), ("one", 0), (" ONE ", None), ("E", None), ("two, I think", None),
])  # fmt: skip
def test_an_answer_is_an_option_by_its_label_or_text(saved, answer, option):
    """The options of the first record are one, two; the second shows them the other way round."""
    first = record("a", "two", ["two"], choices=["one", "two"], order="1")
    second = record("a", answer, ["two"], choices=["two", "one"], order="2")
    answers, _ = read(saved(first, second))
    assert [row[3] for row in answers] == [1, option]


def test_the_same_id_in_two_evaluations_is_two_questions(saved):
    rows = [record("a", "x", ["x"], seed=seed) for seed in "12"]
    rows += [{**row, "evaluation_name": "biology"} for row in rows]
    answers, _ = read(saved(*rows))
    assert [row[0] for row in answers] == ["biology/a"] * 2 + ["physics/a"] * 2


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


@pytest.mark.parametrize("name", [
    "evaluation_id", "model_id", "evaluation_name", "sample_id", "interaction_type",
    "answer_attribution", "input.raw", "input.reference", "evaluation.is_correct",
])  # fmt: skip
def test_missing_fields_are_named(saved, name):
    path = saved(record("a", "x", ["x"], seed="1"), record("a", "y", ["x"], seed="2"))
    rows, (outer, _, inner) = [*map(json.loads, path.open())], name.partition(".")
    for row in rows:
        del (row[outer] if inner else row)[inner or outer]
        row.pop("evaluation_id", None)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for provider in (None, "org/m"):
        found = refused(f"2 records without {name}", cs.score, path, provider=provider)
        assert "2 records without evaluation_id" in str(found)


@pytest.mark.parametrize(("old", "new", "message"), [
    ('"sample_id"', '"sample_id', "a line that is no record; expected a JSON object in UTF-8"),
    ('["x"]', '"x"', "'input' cannot be read; expected an object with raw .a text., reference"),
    ('"is_correct": false', '"is_correct": "no"', "'evaluation' cannot be read; expected an object"),
    ('{"seed": "3"}', '["3"]', "'metadata' cannot be read; expected an object"),
])  # fmt: skip
def test_the_first_line_that_cannot_be_read_is_named(saved, monkeypatch, old, new, message):
    path = saved(*(record("a", "y", ["x"], seed=str(at)) for at in range(6)))
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[5] = lines[3].replace(old, new, 1)
    path.write_text("".join(lines), encoding="utf-8")
    for size in (1, 2**20):
        monkeypatch.setattr(records, "PART", size)
        refused(f"records.jsonl:4: {message}", read, path)


def test_options_that_records_do_not_need_are_refused(saved):
    path = saved(record("a", "x", ["x"], seed="1"), record("a", "y", ["x"], seed="2"))
    refused("--match with instance records", read, path, match="exact")


def test_the_record_of_the_page_is_read(tmp_path):
    """After a byte order mark; with a second one, in which A is the other option."""
    page = (Path(__file__).parents[1] / "docs" / "harnesses.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith('{"evaluation_id"')]
    other = line.replace('["tin", "tea"]', '["tea", "tin"]').replace('"0"', '"1"')
    other = other.replace('"is_correct": true', '"is_correct": false')
    path = tmp_path / "records.jsonl"
    path.write_text(f"{line}\n{other}\n", encoding="utf-8-sig")
    answers, _ = read(path)
    assert answers == [("q1", "order=0", "tin", 0), ("q1", "order=1", "tea", 1)]


def test_published_records_are_read_back(consilience, tmp_path):
    """The answers of a run that was published have its accuracy and consistency."""
    output(consilience, "probe", "--model", "baseline:random", "--suite", "mini-questions", "--limit",
           "3", "--groups", "capital,sport", "--vary", "order=rotations", "--out", "run")  # fmt: skip
    output(
        consilience,
        "publish",
        "run",
        "--format",
        "eee",
        "--out",
        "out",
        "--model-id",
        "o/m",
        "--licence",
        "MIT",
    )
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    output(consilience, "score", path, "--out", "again")
    output(consilience, "report", "again")
    for metric in ("accuracy", "consistency"):
        values = [
            cs.score(tmp_path / name).metrics.filter(metric=metric, over="all", kind="whole")
            for name in ("run", "again")
        ]
        assert values[0]["value"].item() == values[1]["value"].item()


def test_published_seeds_are_samples(consilience, tmp_path):
    """Two seeds of two orders are four variants; the names of variants stay."""
    asked = {"vary": ["order=reversed"], "groups": ["capital"], "limit": 3}
    for seed in (1, 2):
        cs.evaluate("mini-questions", "baseline:random", out=tmp_path / f"r/seed-{seed}", **asked)
    more = ("--model-id", "a/b", "--licence", "MIT", "--out", tmp_path / "out")
    output(consilience, "publish", tmp_path / "r", "--format", "eee", *more)
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    answers, _ = read(path)
    assert {variant for _, variant, *_ in answers} == {
        f"template=order {order}, sample=seed-{at}"
        for order in ("given", "reversed")
        for at in "12"
    }
    assert len(answers) == 3 * 4
