"""Files of questions: each layout is read, each mistake is one message; what decides numbers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import refused
from conftest import cases
from consilience.authoring.checks import sizes_of
from consilience.core.factors import Expectation, Reference
from consilience.core.items import Choice, Question
from consilience.suites import check_suite, load_any
from consilience.suites.question_suites import load_questions, select_questions
from consilience.suites.questions import Questions


def read(folder, name, text, columns=None):
    """The questions of a file."""
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return load_questions(folder / name, columns)


@pytest.mark.parametrize(("about", "name", "text", "columns", "expected"), cases("questions_read"))
def test_options_and_answers_of_a_file(tmp_path, about, name, text, columns, expected):
    items = read(tmp_path, name, text, columns).items
    found = [[[option.text for option in item.options], item.gold.text] for item in items]
    assert found == expected, about
    assert check_suite(tmp_path / name, columns=columns) == []


@pytest.mark.parametrize(
    ("about", "name", "text", "columns", "message"), cases("questions_refused")
)
def test_what_is_wrong_is_one_problem_with_its_place(tmp_path, about, name, text, columns, message):
    shown = refused("", read, tmp_path, name, text, columns).replace(f"{tmp_path}/", "")
    assert shown.startswith(name) or not shown.startswith("a."), about
    assert message in shown, about
    assert len(shown.splitlines()) == 1
    (problem,) = check_suite(tmp_path / name, columns=columns)
    assert str(problem).replace(f"{tmp_path}/", "") == shown


LINE = {
    "question": ["Capital of France?", "France's capital?"], "answer": "Paris",
    "aliases": ["Paname"], "distractors": ["Lyon", "Nice"], "group": "capital", "pin": "last",
    "year": 2024,
}  # fmt: skip
HEADER = "question,question_2,answer,aliases,distractors,group,pin,year\n"
CELLS = "Capital of France?,France's capital?,Paris,Paname,Lyon;Nice,capital,last,2024\n"
ROWS = (
    "item,question,answer,aliases,distractors,group,pin,year\n"
    "4e6c5769f3,Capital of France?,Paris,Paname,Lyon;Nice,capital,last,2024\n"
    "4e6c5769f3,France's capital?,,,,,,\n"
)
PARAPHRASES = {name: value for name, value in LINE.items() if name != "question"}


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", HEADER + CELLS),
    ("a.csv", ROWS),
    ("a.csv", (HEADER + CELLS).replace("Lyon;Nice", '"[""Lyon"", ""Nice""]"')),
    ("a.tsv", (HEADER + CELLS).replace(",", "\t")),
    ("a.jsonl", json.dumps(LINE)),
    ("a.json", json.dumps([LINE])),
    ("a.jsonl", json.dumps(PARAPHRASES | {"question": "Capital of France?", "paraphrases": ["France's capital?"]})),
    ("a.csv", HEADER.replace("question_2", "paraphrases") + CELLS.replace("France's capital?", '"[""France\'s capital?""]"')),
])  # fmt: skip
def test_every_format_holds_the_same_question(tmp_path, name, text):
    """In one row and in two, with phrasings in a list, in a column and in a list in a cell."""
    (question,) = read(tmp_path, name, text).items
    assert question.item == "4e6c5769f3"
    assert question.paraphrases == {"": ("Capital of France?", "France's capital?")}
    assert question.gold == Choice("Paris", ("Paname",))
    # The item decides the order of options that are given as distractors.
    assert [option.text for option in question.options] == ["Paris", "Lyon", "Nice"]
    assert (question.group, question.pin, question.more["year"]) == ("capital", "last", "2024")


def test_a_file_in_another_format_is_refused(tmp_path):
    refused(r"a table in '\.yaml'; expected \.csv, ", read, tmp_path, "a.yaml", "question: x")


def test_all_problems_are_one_error_of_twenty_lines_at_most(tmp_path):
    rows = "".join(f"q{number}?,x,{'x;y' if number else 'x;z'}\n" for number in range(3))
    text = f"question,answer,options\n{rows}" + "".join(f",{n},x;y\n" for n in range(30))
    lines = refused("", read, tmp_path, "a.csv", text).splitlines()
    assert len(lines) == 21 and lines[-1] == "and 10 more problems."
    found = "no 'question'. Fill it in or remove the line."
    assert lines[0] == f"{tmp_path}/a.csv:5, column 'question': {found}"
    assert list(map(str, check_suite(tmp_path / "a.csv"))) == lines


def test_an_open_question_has_the_texts_of_its_answer(tmp_path):
    rows = [
        {"question": "A?", "answer": ["Go", None, "Golang", ""]}, {"question": "B?", "answer": "Go|Golang"},
        {"question": "C?", "answer": 0.5, "aliases": "a half; one half"},
    ]  # fmt: skip
    items = read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows))).items
    golds = [Choice("Go", ("Golang",)), Choice("Go|Golang"), Choice("0.5", ("a half", "one half"))]
    assert [one.gold for one in items] == golds


def test_an_item_is_an_id_that_differs_or_is_made_of_the_texts(tmp_path):
    """In another order of the file it is the same, and so is the order of its options."""
    text = "id,group,question,answer\nx,C/C++,A?,1\ny,,B?,1\n"
    items = read(tmp_path, "a.csv", text).items
    assert [(one.item, one.group) for one in items] == [("x", "C/C++"), ("y", "questions")]
    known = read(tmp_path, "a.csv", text.replace("y,", "x,"))
    assert known.notes == (f"{tmp_path / 'a.csv'}: not used: id",)
    head, *rows = "question,answer,distractors", "A?,1,2;3", "B?,1,2;3", "B?,4,5", "A?,2,4"
    first, second = (
        {one.item: one for one in read(tmp_path, "a.csv", "\n".join([head, *lines])).items}
        for lines in (rows, [*rows[:0:-1], "C?,1,2;3"])
    )
    assert {*first} - {*second} == {next(iter(first))}
    assert all(second[item] == first[item] for item in second if item in first)
    again = read(tmp_path, "a.csv", "\n".join([head, *rows[:1] * 2])).items
    assert [one.item for one in again] == [next(iter(first)), f"{next(iter(first))}-2"]


@pytest.mark.parametrize(("context", "passages"), [
    ("[3, 1, 2]", ["[3, 1, 2]"]), ("[]", ["[]"]), ('["a", "b"]', ["a", "b"]),
    ("one\ntwo\n\nthree", ["one\ntwo", "three"]), ([{"text": "a", "score": 1}, {"text": "b"}], ["a", "b"]),
    ('["a", "b', ['["a", "b']),
])  # fmt: skip
def test_a_context_is_its_passages(tmp_path, context, passages):
    row = {"question": "?", "answer": "x", "context": context}
    (question,) = read(tmp_path, "a.jsonl", json.dumps(row)).items
    assert list(question.passages) == passages


@settings(max_examples=60)
@given(st.data())
def test_one_way_to_write_answers_is_read_back(data):
    """Ten questions or more whose answers are all of one sort; letters of no text of an option."""
    sizes = data.draw(st.lists(st.integers(3, 5), min_size=10, max_size=15))
    golds = [data.draw(st.integers(0, size - 1)) for size in sizes]
    golds[:2] = [0, sizes[1] - 1]  # so that only one way to count fits
    kind = data.draw(st.sampled_from(["text", "label", "index", "number"]))
    rows = []
    for at, (size, gold) in enumerate(zip(sizes, golds, strict=True)):
        options = [f"w{at}-{one}" for one in range(size)]
        answer = {"text": options[gold], "label": "ABCDE"[gold], "index": gold, "number": gold + 1}
        rows.append({"question": f"{at}?", "options": options, "answer": answer[kind]})
    items = Questions.from_frame(rows).items
    assert [one.gold_position for one in items] == golds


def test_spaces_around_languages_and_empty_rows_mean_nothing(tmp_path):
    (tmp_path / "q.csv").write_text("question,language,answer\nA?,en ,x\n,,\nB?,en,x\n , ,\n")
    known = load_questions(tmp_path / "q.csv")
    assert (len(known.items), known.languages) == (2, ("en",))


def test_a_mapped_phrasing_counts_once(tmp_path):
    (tmp_path / "q.csv").write_text("question,question_2,answer\nA?,B?,x\n")
    for columns in ({}, {"question_2": "question_2"}, {"question": "question+question_2"}):
        (one,) = load_questions(tmp_path / "q.csv", columns).items
        assert [*one.paraphrases.values()] == [("A?", "B?")]


def test_a_task_may_speak_of_questions(tmp_path):
    text = '# Two questions?\nname = "dup"\nkind = "STS"\nfirst = "a"\nsecond = "b"\nlabel = "c"\n'
    (tmp_path / "dup.toml").write_text(text + 'indicators = ["A", "B"]\nlabels = ["no", "same"]\n')
    assert check_suite(str(tmp_path / "dup.toml")) == []


def test_a_data_set_of_the_hub_is_read_by_its_split(tmp_path):
    """The layout of MMLU: `answer` is a class label, which is the position of the right choice."""
    datasets = pytest.importorskip("datasets")
    (tmp_path / "mmlu").mkdir()
    text = datasets.Value("string")
    columns = {"question": text, "choices": datasets.Sequence(text)}
    features = datasets.Features(columns | {"answer": datasets.ClassLabel(names=["A", "B"])})
    rows = {"question": ["Is ice cold?", "Is fire cold?"], "choices": [["yes", "no"]] * 2}
    frame = datasets.Dataset.from_dict(rows | {"answer": [0, 1]}, features=features)
    frame.to_parquet(str(tmp_path / "mmlu" / "test.parquet"))
    questions = load_questions(f"hub:{tmp_path}/mmlu:test", {"options": "choices"})
    assert [item.gold.text for item in questions.items] == ["yes", "no"]
    assert (questions.name, list(questions.groups)) == ("mmlu", ["questions"])
    refused("cannot be loaded", load_questions, f"hub:{tmp_path}/mmlu:nosplit")
    refused("without a split", load_questions, f"hub:{tmp_path}")


def test_columns_that_are_not_used_are_named_and_kept(tmp_path):
    """``question2`` is a phrasing; groups have no space around them."""
    file = tmp_path / "questions.csv"
    file.write_text("group,question,question2,answer,score_2\nBill ,?,!,x,1\nbill,.,,x,\n")
    questions = load_questions(tmp_path)
    assert questions.items[0].paraphrases == {"": ("?", "!")}
    assert list(questions.groups) == ["Bill", "bill"]
    assert questions.notes == (f"{file}: not used: score_2",)
    assert [one.more for one in questions.items] == [{"score_2": "1"}, {"score_2": ""}]


@pytest.mark.parametrize(("given", "chosen"), [
    (["x", "y", "z"], ["x, y", "z"]), (["x, y"], ["x, y"]), (["x"], None), (["z", "x", "y"], ["x, y", "z"]),
])  # fmt: skip
def test_a_group_may_have_a_comma(given, chosen):
    """Also in a list that was split at commas."""
    rows = [{"question": f"{name}?", "answer": "a", "group": name} for name in ("x, y", "z")]
    questions = Questions.from_frame(rows)
    if chosen is None:
        refused("no group 'x'", select_questions, questions, given, None, 0)
    else:
        assert list(select_questions(questions, given, None, 0).groups) == chosen


def test_names_of_columns_are_of_questions():
    refused("--columns out", load_any, "mini", columns={"question": "a"})
    (error,) = check_suite("rte", columns={"question": "a"})
    assert "names of columns with 'rte', which has no questions" in str(error)


def question(item, text, gold, *others):
    right = Choice(gold)
    options = (right, *map(Choice, others)) if others else ()
    return Question(item, "g", {"": (text,)}, right, options)


def test_sizes_count_expectations_options_and_the_majority():
    items = (question("1", "A?", "x", "y"), question("2", "B?", "x", "y", "z"))
    same = Expectation("same", (Reference("1"),), Reference("2"))
    sizes = sizes_of(Questions("s", items, expectations=(same,)))
    assert sizes.facts["expectations"] == 1
    (table,) = sizes.shown
    assert table.title.startswith("s: 2 questions, 2 phrasings, 1 expectation;")
    (row,) = sizes.tables["by_group"].to_dicts()
    assert (row["options"], row["majority"]) == ("2 to 3", 1)
