"""Files of questions: each layout is read, each mistake is one message; what decides numbers."""

import json
from dataclasses import replace

import pytest

from checks import refused
from conftest import cases
from consilience import load_suite
from consilience.authoring.checks import cautions
from consilience.core.expectations import Expectation, Reference
from consilience.core.items import Choice, Question
from consilience.report.metric_tables import question_table
from consilience.suites import check_suite
from consilience.suites.question_suites import load_questions, question_statistics
from consilience.suites.questions import Questions, read_question_file


def read(folder, name, text, columns=None):
    """The questions of a file and the messages of its problems."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    problems = []
    questions = read_question_file(path, columns or {}, problems)
    return questions, [str(problem).replace(str(path), name) for problem in problems]


CSV = (
    "question,question_2,answer,distractors,group\n"
    "Capital of France?,France's capital?,Paris|Paname,Lyon;Nice,capital\n"
)
LINE = {
    "question": ["Capital of France?", "France's capital?"], "answer": "Paris|Paname",
    "distractors": ["Lyon", "Nice"], "group": "capital",
}  # fmt: skip
ROWS = (
    "item,question,answer,distractors,group\n"
    "capital-1,Capital of France?,Paris|Paname,Lyon;Nice,capital\n"
    "capital-1,France's capital?,,,\n"
)


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", CSV),
    ("a.csv", ROWS),
    ("a.jsonl", json.dumps(LINE)),
    ("a.json", json.dumps([LINE])),
])  # fmt: skip
def test_every_format_holds_the_same_question(tmp_path, name, text):
    """CSV in one row and in two, JSON Lines, and a list in JSON."""
    questions, problems = read(tmp_path, name, text)
    assert problems == [] == check_suite(tmp_path / name)
    (question,) = questions.items
    assert question.item == "capital-1"
    assert question.paraphrases == {"": ("Capital of France?", "France's capital?")}
    assert question.gold == Choice("Paris", ("Paname",))
    # The id decides the order of options that are given as distractors.
    assert [option.text for option in question.options] == ["Nice", "Paris", "Lyon"]
    assert question.gold_position == 1


@pytest.mark.parametrize(
    ("row", "columns", "options", "gold"),
    cases("question_layouts"),
    ids=["mmlu", "arc", "boolq", "columns", "alias", "one cell"],
)
def test_layouts_of_known_data_sets(tmp_path, row, columns, options, gold):
    """A position from 0, a label, true and false, a column an option, an alias."""
    questions, problems = read(tmp_path, "a.jsonl", json.dumps(row), columns)
    assert problems == []
    assert [option.text for option in questions.items[0].options] == options
    assert questions.items[0].gold.text == gold


def test_an_empty_cell_is_no_option_and_no_alias(tmp_path):
    """D is Oslo; without the third cell it would be the next one."""
    row = {
        "question": "?",
        "A": "Rome",
        "B": "Paris",
        "C": "",
        "D": "Oslo",
        "E": "Bern",
        "answer": "D",
    }
    _, problems = read(tmp_path, "a.jsonl", json.dumps(row), {"options": "A+B+C+D+E"})
    assert "a.jsonl:1: an empty option in 'options'" in problems[0]
    questions, problems = read(
        tmp_path, "a.jsonl", json.dumps(row | {"C": "Bonn", "E": ""}), {"options": "A+B+C+D+E"}
    )
    assert (problems, questions.items[0].gold.text) == ([], "Oslo")
    rows = [{"question": "?", "answer": ["Oslo", None, ""]}, {"question": "!", "answer": "|Oslo"}]
    questions, _ = read(tmp_path, "b.jsonl", "\n".join(map(json.dumps, rows)), {})
    assert [one.gold for one in questions.items] == [Choice("Oslo")] * 2, "no empty aliases"


@pytest.mark.parametrize("option", ["|x|", "a || b", "P(A|B)", "[0, 1)", "[1, 2]"])
def test_a_formula_is_no_list_of_aliases(tmp_path, option):
    row = {"question": "?", "options": [option, "other"], "answer": option}
    (question,) = read(tmp_path, "a.jsonl", json.dumps(row), {})[0].items
    assert question.gold == Choice(option)
    text = f"question,options,answer\n?,{option.replace(', ', ' ')};other,other\n"
    (question,) = read(tmp_path, "a.csv", text, {})[0].items
    assert question.options[0].text == option.replace(", ", " ")


@pytest.mark.parametrize("answer", ["  ", ["  "], [None, ""]])
def test_a_blank_answer_is_none(tmp_path, answer):
    _, problems = read(tmp_path, "a.jsonl", json.dumps({"question": "?", "answer": answer}), {})
    assert "no answer" in problems[0]


@pytest.mark.parametrize(("context", "passages"), [
    ("[3, 1, 2]", ["[3, 1, 2]"]), ("[]", ["[]"]), ('["a", "b"]', ["a", "b"]),
    ("one\ntwo\n\nthree", ["one\ntwo", "three"]),
])  # fmt: skip
def test_a_context_is_its_passages(tmp_path, context, passages):
    row = {"question": "?", "answer": "x", "context": context}
    (question,) = read(tmp_path, "a.jsonl", json.dumps(row), {})[0].items
    assert list(question.passages) == passages


@pytest.mark.parametrize(("rows", "message"), cases("questions_bad"))
def test_every_mistake_is_one_message_with_its_line(tmp_path, rows, message):
    _, problems = read(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (problem,) = problems
    assert message in problem and problem.startswith(f"a.jsonl:{len(rows)}: ")


@pytest.mark.parametrize(("name", "text", "columns", "message"), cases("question_files_bad"))
def test_a_file_that_holds_no_questions_raises(tmp_path, name, text, columns, message):
    """A missing column, an unknown name of ours, a file of another kind."""
    assert message in refused("", read, tmp_path, name, text, columns)


@pytest.mark.parametrize("text", ["", "question,answer\n"])
def test_an_empty_file_is_named_by_its_path(tmp_path, text):
    _, problems = read(tmp_path, "a.csv", text)
    assert [problem.partition(";")[0] for problem in problems] == ["a.csv: no questions"]


def test_a_name_beside_a_folder_with_two_files_of_questions_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "two").mkdir()
    for name in ("questions.csv", "questions.jsonl"):
        (tmp_path / "two" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    refused("no suite 'nosuch'", load_suite, "nosuch")


def test_an_empty_column_of_distractors_does_not_shuffle_the_options(tmp_path):
    rows = [f"Question {number}?,b,a;b;c;d;e,{' ' * number}\n" for number in range(3)]
    text = "".join(["question,answer,options,distractors\n", *rows])
    questions, problems = read(tmp_path, "a.csv", text)
    assert problems == []
    assert {item.gold_position for item in questions.items} == {1}


@pytest.mark.parametrize("rows", ["q-1,A?\n,B?", ",B?\nq-1,A?"])
def test_the_number_of_a_row_is_no_item_of_another(tmp_path, rows):
    lines = "\n".join(f"{row},yes,yes;no" for row in rows.splitlines())
    (tmp_path / "q.csv").write_text(f"item,question,answer,options\n{lines}\n")
    refused("duplicate item 'q-1', the number of a row", load_questions, tmp_path / "q.csv")


def test_spaces_around_languages_and_empty_rows_mean_nothing(tmp_path):
    (tmp_path / "q.csv").write_text("question,language,answer\nA?,en ,x\n,,\nB?,en,x\n , ,\n")
    known = load_questions(tmp_path / "q.csv")
    assert (len(known.items), known.languages) == (2, ("en",))


def test_a_mapped_phrasing_counts_once(tmp_path):
    (tmp_path / "q.csv").write_text("question,question_2,answer\nA?,B?,x\n")
    for columns in ({"question_2": "question_2"}, {"question": "question+question_2"}):
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
    assert (questions.name, list(questions.groups)) == ("mmlu", ["mmlu"])
    refused("cannot be loaded", load_questions, f"hub:{tmp_path}/mmlu:nosplit")
    refused("without a split", load_questions, f"hub:{tmp_path}")


@pytest.mark.parametrize(("header", "mapping"), cases("option_columns"))
def test_options_that_are_called_otherwise_are_no_open_questions(tmp_path, header, mapping):
    row = ",".join("x" for _ in header.split(","))
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n")
    assert refused("", load_questions, path).endswith(f"--columns {mapping}.")


def test_columns_that_are_not_used_are_named(tmp_path):
    """``question2`` is a phrasing; ``id`` is nothing."""
    (tmp_path / "questions.csv").write_text("id,question,question2,answer\n1,?,!,x\n")
    questions = load_questions(tmp_path)
    assert questions.items[0].paraphrases == {"": ("?", "!")}
    assert [note.replace(str(tmp_path), "DIR") for note in questions.notes] == [
        "DIR/questions.csv: not used: id",
    ]


def test_other_columns_are_named_and_groups_have_no_space_around_them(tmp_path):
    file = tmp_path / "b.csv"
    file.write_text("group,question,answer,score_2\nBill ,?,x,1\nBill,!,x,1\nbill,.,x,1\n")
    questions = load_questions(file)
    assert list(questions.groups) == ["Bill", "bill"]
    assert questions.notes == (f"{file}: not used: score_2",)
    for row, message in (('"b,c,d",b', "Separate options by ';'."),
                         ("three;four,1", "a text, a letter or, in JSON, a position from 0")):  # fmt: skip
        _, (problem,) = read(tmp_path, "c.csv", f"question,options,answer\n?,{row}\n")
        assert message in problem


def question(item, text, gold, *others):
    right = Choice(gold)
    options = (right, *map(Choice, others)) if others else ()
    return Question(item, "g", {"": (text,)}, right, options)


def test_cautions_name_what_decides_the_numbers():
    """One phrasing each; three and two options; the gold is first of five; two ask the same."""
    items = (
        question("1", "A?", "x", "y"), question("2", "B?", "x", "y", "z"),
        question("3", "a?", "y", "x"), question("4", "C?", "x", "y"), question("5", "D?", "x", "y"),
    )  # fmt: skip
    notes = cautions(Questions("s", items))
    assert notes == [
        "the right answer is option 1 of every question; a model that always chooses it is right",
        "g: 5 questions have one phrasing, such as 1",
        "g: questions have 2 to 3 options, which are chosen at other rates",
        "g: 1 duplicate question, such as 'A?' (items 1, 3)",
    ]
    in_groups = [replace(one, group=one.item) for one in items]
    assert cautions(Questions("s", tuple(in_groups)))[0] == notes[0], "one note of all groups"
    same = Expectation("same", (Reference("1"),), Reference("3"))
    counts = question_statistics(Questions("s", items, expectations=(same,)))
    assert counts.expectations == 1
    title = question_table(counts, "s").title
    assert title.startswith("s: 5 questions, 5 phrasings, 1 expectation;")
    assert (counts.by_group[0].min_options, counts.by_group[0].max_options) == (2, 3)
    assert counts.by_group[0].majority == 1
    other_gold = question("6", "A?", "z", "y")  # x is no option, so only one answer is right
    assert cautions(Questions("s", (items[0], other_gold)))[1:] == []
