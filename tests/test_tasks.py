"""Tasks of sentence pairs: files, splits, labels, and the forms of a pair."""

import csv
import json
import re
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases, real_data
from consilience.core.factors import ORIGINAL
from consilience.core.items import TextPair
from consilience.suites.pairs import (
    CALUM,
    PAPERS,
    PERTURBATIONS,
    TASKS,
    Pairs,
    chosen,
    forms_of,
    half_of,
    load_task,
    original,
    read_pairs,
    refuse_one_class,
    sample_pairs,
    t5_original,
    task_of_table,
)

SPLITS = ("train", "validation", "test")


def test_the_named_tasks():
    """The guide's test holds the rest of their fields."""
    assert CALUM == ("mnli", "qnli", "rte", "qqp", "mrpc")
    assert list(TASKS) == [task.name for task in TASKS.values()]
    for name, task in TASKS.items():
        fields = json.loads(json.dumps(asdict(task)))
        assert (
            task_of_table({key: of for key, of in fields.items() if of is not None}, name) == task
        )
    refused("no task 'mlni'.*Did you mean 'mnli'", load_task, "mlni")
    klue = dict.fromkeys(("klue-nli", "klue-sts"), (*SPLITS[:2], ""))
    splits = dict.fromkeys(TASKS, SPLITS) | klue
    splits |= {"mnli": ("train", "validation_matched", "test_matched"), "kornli": ("", *SPLITS[1:])}
    assert {name: task.splits for name, task in TASKS.items()} == splits
    assert [task.name for task in TASKS.values() if task.threshold is not None] == ["stsb"]
    assert TASKS["stsb"].threshold == 3.0


def test_a_task_of_other_papers_has_no_text_form_of_t5():
    for name in TASKS.keys() - set(CALUM):
        message = f"the task '{name}' has no text form of T5"
        refused(message, t5_original, TextPair("0", "a", "b", ""), load_task(name))


TOML = {
    "name": "paws-de", "kind": "STS", "first": "satz1", "second": ["satz2", "s2"], "label": "label",
    "indicators": ["Satz1", "Satz2"], "labels": ["anders", "gleich"],
}  # fmt: skip


@pytest.fixture
def write_task(tmp_path):
    """Write a task's TOML file; a field that is None is left out."""

    def write(**changes):
        fields = {name: value for name, value in (TOML | changes).items() if value is not None}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items()]
        (tmp_path / "task.toml").write_text("".join(lines), encoding="utf-8")
        return str(tmp_path / "task.toml")

    return write


@pytest.fixture
def read(tmp_path):
    """``read("rte", "x.tsv", text)``: the pairs of a file with that text."""

    def read(task, name, content):
        path = tmp_path / name
        if not isinstance(content, bytes):
            content = content.encode()
        path.write_bytes(content)
        return read_pairs(str(path), load_task(task) if isinstance(task, str) else task)

    return read


def items(pairs):
    return [(each.item, each.first, each.second, each.label) for each in pairs.items]


def test_a_new_task_is_a_file(write_task, read):
    task = load_task(write_task())
    assert (task.name, task.kind, task.second) == ("paws-de", "STS", ("satz2", "s2"))
    assert task.splits == (*SPLITS[:2], "")
    assert (task.metrics, task.t5_fields, task.hub, task.threshold) == (("accuracy",), (), (), None)
    found = read(task, "a.csv", "s2,satz1,label\nEs regnet.,Regen fällt.,1\nJa.,Nein.,anders\n")
    both = [("0", "Regen fällt.", "Es regnet.", "gleich"), ("1", "Nein.", "Ja.", "anders")]
    assert items(found) == both


def test_a_task_may_be_graded_and_known_to_t5(write_task, read):
    task = load_task(write_task(threshold=0.5, t5_fields=["z", "a"], metrics=["f1"]))
    found = read(task, "a.csv", "satz1,satz2,label\nx,y,0.5\nx,y,0.4999\n")
    assert [each.label for each in found.items] == ["gleich", "anders"]
    form = t5_original(found.items[0], task)
    assert [segment.text for segment in form] == ["a: y", "z: x"]
    words = replace(load_task("rte"), labels=("1", "0"))
    found = read(words, "x.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\na\tb\t0\n")
    assert [each.label for each in found.items] == ["1", "0"], "a word goes before a place"


@pytest.mark.parametrize(("changes", "message"), cases("tasks_bad"))
def test_what_is_wrong_with_a_task_is_said(changes, message, write_task):
    refused(message, load_task, write_task(**changes))


@pytest.mark.parametrize(("content", "message"), [
    (b"name: rte\n", r"bad\.toml: cannot be read: .*line 1"),
    (b"x = " + b"[" * 100_000, r"bad\.toml: cannot be read: "),
    (b"x = " + b"1" * 5000, r"bad\.toml: cannot be read: "),
    (b"name = '\xff'\n", r"bad\.toml: not UTF-8"),
])  # fmt: skip
def test_a_task_file_that_cannot_be_read(content, message, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert len(refused(message, load_task, str(path))) < 300 + len(str(path))


def test_a_task_file_that_is_missing_or_has_a_byte_order_mark(tmp_path, write_task):
    refused(r"none\.toml: cannot be read: No such file", load_task, str(tmp_path / "none.toml"))
    path = tmp_path / "marked.toml"
    path.write_text(Path(write_task()).read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert load_task(str(path)).name == "paws-de"


FIELDS = ("about", "task", "name", "content", "expected", "left_out")


@pytest.mark.parametrize(FIELDS, cases("pair_files"))
def test_pairs_of_a_file(about, task, name, content, expected, left_out, read):
    found = read(task, name, content)
    assert items(found) == [tuple(row) for row in expected], about
    number = len(expected) + left_out
    note = rf".*{re.escape(name)}: {left_out} of {number} pairs have no label and are left out"
    assert len(found.notes) == bool(left_out)
    assert all(re.fullmatch(note, each) for each in found.notes)


@pytest.mark.parametrize(("task", "name", "content", "message"), cases("pair_files_bad"))
def test_what_is_wrong_with_a_file_is_said_with_the_place(task, name, content, message, read):
    refused(message, read, task, name, content)


@pytest.mark.parametrize("labels", [[1, None], [1.0, None], [1.0, float("nan")], ["1", ""]])
def test_parquet(labels, tmp_path):
    path = tmp_path / "x.parquet"
    table = pl.DataFrame({"sentence1": ["a", "c"], "sentence2": ["", "d"], "label": labels})
    table.write_parquet(path)
    found = read_pairs(str(path), load_task("rte"))
    assert items(found) == [("0", "a", "", "not_entailment")]
    assert found.notes == (f"{path}: 1 of 2 pairs have no label and are left out",)
    rows = [{"sentence1": "a", "sentence2": "b", "labels": {"label": 4.9, "binary-label": 1}}]
    pl.DataFrame(rows).write_parquet(path)
    assert items(read_pairs(str(path), load_task("klue-sts"))) == [("0", "a", "b", "equivalent")]


def make(count):
    """Pairs, each with other texts."""
    return Pairs(tuple(TextPair(str(n), f"a{n}", f"b{n}", "xy"[n % 2]) for n in range(count)))


def test_the_digest_sees_every_text_label_and_place():
    pairs = make(3)
    first, *rest = pairs.items
    changed = [replace(first, **{name: "z"}) for name in ("item", "first", "second", "label")]
    changed.append(replace(first, first=first.second, second=first.first))
    others = [(each, *rest) for each in changed] + [pairs.items[::-1], pairs.items[1:]]
    assert len({Pairs(each).digest for each in others} | {pairs.digest}) == 8
    assert Pairs(pairs.items, ("a note",)).digest == make(3).digest
    assert len({sample_pairs(make(99), 9, seed).digest for seed in range(5)}) == 5
    refuse_one_class(make(2), "x.tsv")
    refused(r"x\.tsv: all 1 pairs are 'x'; expected pairs of", refuse_one_class, make(1), "x.tsv")


@given(st.integers(0, 60), st.integers(0, 70), st.integers())
def test_a_sample_keeps_the_order_and_can_be_drawn_again(count, limit, seed):
    pairs = make(count)
    sample = sample_pairs(pairs, limit, seed)
    assert len(sample.items) == min(count, limit)
    assert list(sample.items) == [each for each in pairs.items if each in set(sample.items)]
    assert sample == sample_pairs(pairs, limit, seed)


@given(st.integers(0, 60))
def test_two_halves_are_the_whole(count):
    pairs = make(count)
    first, second = (half_of(pairs, half).items for half in (1, 2))
    assert first == half_of(pairs, 1).items
    assert count < 30 or first != pairs.items[: len(first)], "drawn, not the first ones"
    assert len(first) - len(second) == count % 2
    assert sorted(first + second, key=lambda each: int(each.item)) == list(pairs.items)
    for half in (first, second):
        assert list(half) == [each for each in pairs.items if each in set(half)]


NAMES = ["contradiction", "entailment", "neutral"]
"""MNLI's labels in an order that is not that of the task."""


def named(names):
    """What the datasets library writes into a Parquet file of its own; a column was removed since."""
    of_labels = {"names": names, "_type": "ClassLabel"}
    features = {"premise": {"dtype": "string"}, "genre": of_labels, "label": of_labels}
    return {"huggingface": json.dumps({"info": {"features": features}})}


@pytest.mark.parametrize(("names", "labels"), [
    (NAMES, ["contradiction", "entailment", "neutral"]),
    (["0", "1", "2"], ["entailment", "neutral", "contradiction"]),
    (None, ["entailment", "neutral", "contradiction"]),
])  # fmt: skip
def test_a_parquet_file_that_names_its_labels(names, labels, tmp_path):
    """The places of labels are the file's own where it says so, else those of the task."""
    path = tmp_path / "x.parquet"
    rows = {"premise": list("abc"), "hypothesis": list("abc"), "label": [0, 1, 2]}
    pl.DataFrame(rows).write_parquet(path, metadata=named(names) if names else {"huggingface": "?"})
    assert [each.label for each in read_pairs(str(path), load_task("mnli")).items] == labels
    if names:
        pl.DataFrame(rows).write_parquet(path, metadata=named(["yes", "no", "maybe"]))
        message = r"x\.parquet, row 1, column 'label': the label 'yes'; expected entailment, "
        refused(message, read_pairs, str(path), load_task("mnli"))


def test_the_hub_without_its_library_and_a_file_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    missing = r"'datasets' is not installed. Install the extra consilience\[hub\]: `pip install 'datasets>=4'"
    refused(missing, read_pairs, "hub:validation", load_task("rte"))
    unnamed = replace(load_task("rte"), name="x", hub=())
    refused("the task 'x' names no dataset of the Hub", read_pairs, "hub", unnamed)
    missing = str(tmp_path / "none.tsv")
    refused(r"none\.tsv: no such file.*hub:validation", read_pairs, missing, load_task("rte"))


def test_a_folder_as_the_hub_has_them(write_task, tmp_path, monkeypatch):
    """``hub`` is the task's validation set. ``test_questions`` has columns with names of labels."""
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "folder").mkdir()
    rows = {"idx": [5, 6], "satz1": ["a", "a"], "satz2": ["b", "b"], "label": [0, -1]}
    pl.DataFrame(rows).write_parquet(tmp_path / "folder" / "validation.parquet")
    task = load_task(write_task(hub=[str(tmp_path / "folder")]))
    for source in ("hub:validation", "hub"):
        found = read_pairs(source, task)
        assert items(found) == [("5", "a", "b", "anders")]
        assert found.notes == (f"{source}: 1 of 2 pairs have no label and are left out",)
    refused(r"folder, split 'test': cannot be loaded: .*\]\. C", read_pairs, "hub:test", task)
    for hub in (("nyu-mll/glue", "rte"), (str(tmp_path / "none"),)):
        message = "cannot be loaded: .*Check the network"
        refused(message, read_pairs, "hub", replace(task, hub=hub))


REAL = cases("real_pairs")
"""Task, file, pairs of each label, and the label's column where a line is a pair."""


@pytest.mark.parametrize(("name", "file", "counts", "column"), REAL)
def test_real_data_is_read_whole(name, file, counts, column):
    """As many pairs of each label as were counted; of a table each label and text of its line."""
    folder, _, rest = file.partition("/")
    path = real_data(folder) / rest
    task = load_task(name)
    found = read_pairs(str(path), task)
    counted = Counter(each.label for each in found.items)
    assert [counted[label] for label in task.labels] == counts
    assert found.notes == ()
    assert len({each.item for each in found.items}) == len(found.items)
    assert all(each.first.strip() and each.second.strip() for each in found.items)
    if column and path.suffix == ".tsv":
        lines = path.read_text(encoding="utf-8").split("\n")
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        assert len(rows) == len(found.items)
        for row, pair in zip(rows, found.items, strict=True):
            raw = row[column]
            assert pair.label == (task.labels[int(raw)] if raw.isdecimal() else raw)
            for column_names, text in ((task.first, pair.first), (task.second, pair.second)):
                (cell,) = (row[each] for each in column_names if each in row)
                assert text == cell or f'"{text.replace(chr(34), 2 * chr(34))}"' == cell


def test_the_guide_has_the_tasks_of_the_code():
    """``docs/calum.md``; ``test_docs`` runs its example."""
    guide = (ROOT / "docs" / "calum.md").read_text(encoding="utf-8")
    lines = [line.replace("`", "") for line in guide.split("\n") if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    shown = {row[0]: row[1:] for row in rows if row[0] in TASKS}
    assert list(shown) == list(TASKS)
    for name, cells in shown.items():
        task = TASKS[name]
        columns = ["/".join(each) for each in (task.first, task.second, task.label)]
        indicators = ", ".join(task.indicators)
        assert cells == [", ".join(columns), indicators, " ".join(task.hub)]


PAIR = TextPair("0", "A man sleeps.", "He rests.", "entailment")
WRITTEN = dict(cases("forms_of_a_pair"))


def texts(form):
    return [segment.text for segment in form]


def test_every_form_of_a_pair():
    forms = forms_of(PAIR, original(PAIR, TASKS["mnli"].indicators), PERTURBATIONS)
    assert {name: texts(form) for name, form in forms.items()} == WRITTEN
    assert list(forms)[0] == ORIGINAL
    assert PAPERS == ("reverse", "signal") == tuple(PERTURBATIONS)[:2]


def test_a_sentence_may_have_the_marks_of_forms():
    pair = TextPair("0", " [Premise] a: b\n", "Hypothesis: c", "")
    found = PERTURBATIONS["reverse_signal"].rewrite(original(pair, TASKS["mnli"].indicators))
    assert texts(found) == ["[Hypothesis] Hypothesis: c", "[Premise]  [Premise] a: b\n"]


def test_perturbations_are_chosen_by_name():
    assert list(chosen(["signal", "reverse", "signal"])) == ["signal", "reverse"]
    assert chosen(["all"]) == PERTURBATIONS == chosen(["signal", "all"])
    assert (list(chosen(["signal", "all"]))[0], chosen([])) == ("signal", {})
    refused("no perturbation 'revers'.*Did you mean 'reverse'", chosen, ["signal", "revers"])


def test_the_guide_shows_every_perturbation():
    guide = (ROOT / "docs" / "calum.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| (.*) \|$", guide, re.MULTILINE)
    shown = {name: (text, guarantee) for name, text, guarantee in rows if name in WRITTEN}
    written = {name: " ".join(made).replace("\n", "\\n") for name, made in WRITTEN.items()}
    assert {name: text for name, (text, _) in shown.items()} == written
    assert all(shown[name][1] == each.guarantee for name, each in PERTURBATIONS.items())


MINE = '''
from dataclasses import replace

def paraphrase(form):
    """Says it politely."""
    return tuple(replace(segment, sentence="Please: " + segment.sentence) for segment in form)

def broken(form):
    raise KeyError("a")

def text(form):
    return "text"
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_forms.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(("spec", "message"), cases("perturbation_files_bad"))
def test_a_file_that_makes_no_perturbation_is_one_message(spec, message, mine, monkeypatch):
    monkeypatch.chdir(mine.parent)
    (mine.parent / "syntax.py").write_text("def f(:")
    (mine.parent / "twin.py").write_text("def reverse(form): return form")
    refused(re.escape(message), chosen, spec.split(","))


@pytest.mark.parametrize(("name", "message"), [
    ("broken", "'broken' failed: KeyError: 'a'"), ("text", "'text' made 'text' of item 0"),
])  # fmt: skip
def test_a_function_that_makes_no_form_is_one_message(name, message, mine):
    (made,) = chosen([f"{mine}:{name}"]).values()
    refused(message, made.form_of, PAIR, original(PAIR, ("A", "B")))
