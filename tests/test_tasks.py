"""Sentence-pair tasks, the files that they are read from, and what is left out."""

import csv
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, real_data
from consilience import ConsilienceError
from consilience.suites.pairs import Pairs, half_of, read_pairs, refuse_one_class, sample_pairs
from consilience.suites.perturbations import signal, t5_original
from consilience.suites.tasks import CALUM, TASKS, load_task
from consilience.types import TextPair

THREE = ("entailment", "neutral", "contradiction")
TWO = ("entailment", "not_entailment")
SAME = ("not_equivalent", "equivalent")
SPLITS = ("train", "validation", "test")


@pytest.mark.parametrize(
    ("name", "kind", "indicators", "labels", "hub", "splits", "metrics"),
    [
        ("mnli", "NLI", ("Premise", "Hypothesis"), THREE, "nyu-mll/glue mnli", ("train", "validation_matched", "test_matched"), "accuracy"),
        ("snli", "NLI", ("Premise", "Hypothesis"), THREE, "stanfordnlp/snli", SPLITS, "accuracy"),
        ("qnli", "NLI", ("Question", "Sentence"), TWO, "nyu-mll/glue qnli", SPLITS, "accuracy"),
        ("rte", "NLI", ("Sentence1", "Sentence2"), TWO, "nyu-mll/glue rte", SPLITS, "accuracy"),
        ("qqp", "STS", ("Question1", "Question2"), ("not_duplicate", "duplicate"), "nyu-mll/glue qqp", SPLITS, "accuracy f1"),
        ("mrpc", "STS", ("Sentence1", "Sentence2"), SAME, "nyu-mll/glue mrpc", SPLITS, "accuracy f1"),
        ("stsb", "STS", ("Sentence1", "Sentence2"), SAME, "nyu-mll/glue stsb", SPLITS, "accuracy f1"),
        ("kornli", "NLI", ("전제", "가설"), THREE, "kakaobrain/kor_nli xnli", ("", "validation", "test"), "accuracy"),
        ("klue-nli", "NLI", ("전제", "가설"), THREE, "klue/klue nli", ("train", "validation", ""), "accuracy"),
        ("klue-sts", "STS", ("문장1", "문장2"), SAME, "klue/klue sts", ("train", "validation", ""), "accuracy f1"),
    ],
)  # fmt: skip
def test_what_a_task_says_of_itself(name, kind, indicators, labels, hub, splits, metrics):
    task = load_task(name)
    assert task.kind == kind
    assert task.indicators == indicators
    assert task.labels == labels
    assert " ".join(task.hub) == hub
    assert task.splits == splits
    assert " ".join(task.metrics) == metrics
    assert task.threshold == (3.0 if name == "stsb" else None)


def test_the_tasks_of_the_paper():
    assert CALUM == ("mnli", "qnli", "rte", "qqp", "mrpc")
    assert list(TASKS) == [task.name for task in TASKS.values()]
    with pytest.raises(ConsilienceError, match="no task 'mlni'.*Did you mean 'mnli'"):
        load_task("mlni")


@pytest.mark.parametrize(
    ("name", "text", "bracketed"),
    [
        ("mnli", "mnli hypothesis: b premise: a", "mnli [hypothesis] b [premise] a"),
        ("qnli", "qnli question: a sentence: b", "qnli [question] a [sentence] b"),
        ("rte", "rte sentence1: a sentence2: b", "rte [sentence1] a [sentence2] b"),
        ("qqp", "qqp question1: a question2: b", "qqp [question1] a [question2] b"),
        ("mrpc", "mrpc sentence1: a sentence2: b", "mrpc [sentence1] a [sentence2] b"),
    ],
)
def test_the_text_that_t5_was_trained_on(name, text, bracketed):
    """Fields in alphabetical order behind the task's name, so MNLI's hypothesis comes first."""
    form = t5_original(TextPair("0", "a", "b", ""), load_task(name))
    assert " ".join([name, *(segment.text for segment in form)]) == text
    assert " ".join([name, *(segment.text for segment in signal(form))]) == bracketed


@pytest.mark.parametrize("name", sorted(TASKS.keys() - set(CALUM)))
def test_a_task_that_t5_was_not_trained_on(name):
    with pytest.raises(ConsilienceError, match=f"the task '{name}' has no text form of T5"):
        t5_original(TextPair("0", "a", "b", ""), load_task(name))


TOML = {
    "name": "paws-de",
    "kind": "STS",
    "first": "satz1",
    "second": ["satz2", "s2"],
    "label": "label",
    "indicators": ["Satz1", "Satz2"],
    "labels": ["anders", "gleich"],
}


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


def test_a_sentence_may_hold_what_corpora_hold(read):
    """A tab, a line break, a bidirectional embedding (Quora has it) and C1 controls (RTE has them)."""
    text = "a\tb\nc \u202ad\u202c \u0099\x1b"
    row = {"sentence1": text, "sentence2": "\u200e", "label": 0}
    assert items(read("rte", "a.jsonl", json.dumps(row))) == [("0", text, "\u200e", "entailment")]


def test_a_new_task_is_a_file(write_task, read):
    task = load_task(write_task())
    assert (task.name, task.kind, task.second) == ("paws-de", "STS", ("satz2", "s2"))
    assert task.splits == (*SPLITS[:2], "")
    assert (task.metrics, task.t5_fields, task.hub, task.threshold) == (("accuracy",), (), (), None)
    found = read(task, "a.csv", "s2,satz1,label\nEs regnet.,Regen fällt.,1\nJa.,Nein.,anders\n")
    assert items(found) == [
        ("0", "Regen fällt.", "Es regnet.", "gleich"),
        ("1", "Nein.", "Ja.", "anders"),
    ]


def test_a_task_may_be_graded_and_known_to_t5(write_task, read):
    task = load_task(write_task(threshold=0.5, t5_fields=["z", "a"], metrics=["f1"]))
    found = read(task, "a.csv", "satz1,satz2,label\nx,y,0.5\nx,y,0.4999\n")
    assert [each.label for each in found.items] == ["gleich", "anders"]
    form = t5_original(found.items[0], task)
    assert [segment.text for segment in form] == ["a: y", "z: x"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lables": ["a", "b"]}, "task.toml: a field 'lables'.*Did you mean 'labels'"),
        ({"labels": None}, "task.toml: no 'labels'. See docs/tasks.md"),
        ({"labels": []}, "no 'labels'"),
        ({"name": ""}, "no 'name'"),
        ({"kind": None}, "no 'kind'"),
        ({"name": 7}, "'name' is 7; expected text"),
        ({"labels": "anders, gleich"}, "'labels' is 'anders, gleich'; expected a list of texts"),
        ({"labels": [0, 1]}, r"'labels' is \[0, 1\]; expected a list of texts"),
        ({"first": 1}, "'first' is 1; expected a list of texts"),
        ({"threshold": "3"}, "'threshold' is '3'; expected a number"),
        ({"threshold": True}, "'threshold' is True; expected a number"),
        ({"kind": "nli"}, "the kind 'nli'; expected NLI or STS"),
        ({"labels": ["gleich"]}, "the labels gleich; expected two or more, all different"),
        ({"labels": ["a", "b", "a"]}, "the labels a, b, a; expected two or more, all different"),
        ({"labels": ["-", "gleich"]}, "the label '-'; expected a word"),
        ({"labels": ["", "gleich"]}, "the label ''; expected a word"),
        ({"labels": [" anders", "gleich"]}, "the label ' anders'; expected a word without blanks"),
        ({"indicators": ["Satz"]}, "1 entries in 'indicators'; expected 2"),
        ({"indicators": ["Satz", "Satz"]}, "the indicators Satz, Satz; expected two that differ"),
        ({"indicators": ["Satz", " "]}, "the indicators Satz, ; expected two that differ"),
        ({"indicators": ["satz", "Satz"]}, "satz, Satz; expected two that differ, not in case"),
        ({"indicators": ["Straße", "STRASSE"]}, "expected two that differ, not in case"),
        ({"indicators": ["\u0131", "i"]}, "expected two that differ, not in case"),
        ({"indicators": ["\u0130", "i\u0307"]}, "expected two that differ, not in case"),
        ({"t5_fields": ["a", "a"]}, "the t5_fields a, a; expected two that differ"),
        ({"t5_fields": ["a"]}, "1 entries in 't5_fields'; expected 0 or 2"),
        ({"splits": ["train"]}, "1 entries in 'splits'; expected 3"),
        ({"hub": ["a", "b", "c"]}, "3 entries in 'hub'; expected 0 or 1 or 2"),
        ({"threshold": 3, "labels": ["a", "b", "c"]}, "a threshold and 3 labels; expected 2"),
        ({"metrics": ["f2"]}, "the metric 'f2'; expected accuracy or f1"),
        ({"name": "a/b"}, "the name 'a/b'; expected letters"),
        ({"name": ".."}, r"the name '\.\.'; expected letters"),
        ({"labels": ["a\u0007", "b"]}, r"a control character, U\+0007, in 'labels'"),
        ({"indicators": ["\u202eSatz", "b"]}, r"a control character, U\+202E, in 'indicators'"),
        ({"first": "satz\n1"}, r"a control character, U\+000A, in 'first'"),
        ({"name": "x" * 101}, "the name 'xxx"),
        ({"name": "MACRO"}, "the name 'MACRO'; expected letters"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_task_is_said(changes, message, write_task):
    with pytest.raises(ConsilienceError, match=message):
        load_task(write_task(**changes))


def test_a_task_file_that_cannot_be_read(tmp_path, write_task):
    with pytest.raises(ConsilienceError, match=r"none\.toml: cannot be read: No such file"):
        load_task(str(tmp_path / "none.toml"))
    path = tmp_path / "bad.toml"
    path.write_text("name: rte\n")
    with pytest.raises(ConsilienceError, match=r"bad\.toml: not TOML: .*line 1"):
        load_task(str(path))
    for text in ("x = " + "[" * 100_000, "x = " + "1" * 5000):
        path.write_text(text)
        with pytest.raises(ConsilienceError, match=r"bad\.toml: not TOML: ") as caught:
            load_task(str(path))
        assert len(str(caught.value)) < 300 + len(str(path))
    path.write_bytes(b"name = '\xff'\n")
    with pytest.raises(ConsilienceError, match=r"bad\.toml: not TOML: "):
        load_task(str(path))
    path.write_text("threshold = nan\n")
    with pytest.raises(ConsilienceError, match="'threshold' is nan; expected a number"):
        load_task(str(path))
    path.write_text(Path(write_task()).read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert load_task(str(path)).name == "paws-de"


HEAD = "sentence1\tsentence2\tlabel\n"


def test_tabs_without_quoting_keep_every_quotation_mark(read):
    """GLUE's own files: a mark at the start of a cell that no other closes is only text."""
    text = HEAD + '"Yes", he said.\tHe said "yes.\t0\n" All this\t5" wide\t1\n"No."\t""\t1\n'
    assert items(read("rte", "x.tsv", text)) == [
        ("0", '"Yes", he said.', 'He said "yes.', "entailment"),
        ("1", '" All this', '5" wide', "not_entailment"),
        ("2", '"No."', '""', "not_entailment"),
    ]


def test_tabs_with_quoting_as_csv_writes_it(read):
    text = HEAD + '"He said ""yes""."\t5" wide\t0\n""" Well "\tplain\t1\n'
    assert items(read("rte", "x.tsv", text)) == [
        ("0", 'He said "yes".', '5" wide', "entailment"),
        ("1", '" Well ', "plain", "not_entailment"),
    ]


def test_commas_with_line_breaks_in_quotes(read):
    text = 'sentence1,sentence2,label\n"a,\r\nb\n","c ""d""",1\n\ne,f,0\n'
    assert items(read("rte", "x.csv", text)) == [
        ("0", "a,\r\nb\n", 'c "d"', "not_entailment"),
        ("1", "e", "f", "entailment"),
    ]


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
def test_a_mark_of_the_byte_order_and_carriage_returns(name, read):
    text = HEAD + "a\tb\t0\n\n"
    text = text.replace("\n", "\r\n").replace("\t", "\t" if name == "x.tsv" else ",")
    expected = [("0", "a", "b", "entailment")]
    assert items(read("rte", name, text.encode("utf-8-sig"))) == expected


def test_only_the_ends_of_lines_end_a_line(read):
    """Some libraries also break lines at U+0085 and U+2028."""
    text = HEAD + "a\x85b\tc\u2028d\t0\n"
    assert items(read("rte", "x.tsv", text)) == [("0", "a\x85b", "c\u2028d", "entailment")]
    row = {"sentence1": "a\u2028b", "sentence2": "c\x85", "label": 0}
    found = read("rte", "x.jsonl", json.dumps(row, ensure_ascii=False) + "\n")
    assert items(found) == [("0", "a\u2028b", "c\x85", "entailment")]


ROW = {"sentence1": "a", "sentence2": "b"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", json.dumps([ROW | {"label": "entailment"}])),
        ("x.json", json.dumps({"version": 1, "data": [ROW | {"label": 0}]})),
        ("x.jsonl", "\ufeff" + json.dumps(ROW | {"label": "0"}) + "\r\n\n"),
    ],
)
def test_json(name, content, read):
    assert items(read("rte", name, content)) == [("0", "a", "b", "entailment")]


def test_a_label_inside_another_object(read, tmp_path):
    """KLUE-STS: ``labels`` holds three labels; the binary one is meant."""
    rows = [
        ROW | {"guid": f"g{binary}", "labels": {"label": 4.9, "binary-label": binary}}
        for binary in (1, 0)
    ]
    expected = [("g1", "a", "b", "equivalent"), ("g0", "a", "b", "not_equivalent")]
    assert items(read("klue-sts", "x.json", json.dumps(rows))) == expected
    pl.DataFrame(rows).write_parquet(tmp_path / "x.parquet")
    assert items(read_pairs(str(tmp_path / "x.parquet"), load_task("klue-sts"))) == expected
    with pytest.raises(ConsilienceError, match="no column 'labels.binary-label' among sentence1"):
        read("klue-sts", "x.json", json.dumps([ROW]))
    rows.append(ROW | {"guid": "g2", "labels": None})
    (note,) = read("klue-sts", "x.json", json.dumps(rows)).notes
    assert "1 of 3 pairs have no label" in note


@pytest.mark.parametrize("labels", [[1, None], [1.0, None], [1.0, float("nan")], ["1", ""]])
def test_parquet(labels, tmp_path):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"sentence1": ["a", "c"], "sentence2": ["", "d"], "label": labels}).write_parquet(
        path
    )
    found = read_pairs(str(path), load_task("rte"))
    assert items(found) == [("0", "a", "", "not_entailment")]
    assert found.notes == (f"{path}: 1 of 2 pairs have no label and are left out",)


@pytest.mark.parametrize(
    ("label", "word"),
    [
        ("neutral", "neutral"), ("1", "neutral"), ("1.0", "neutral"), (" neutral ", "neutral"),
        ("2", "contradiction"), ("0", "entailment"), ("0.0", "entailment"),
    ],
)  # fmt: skip
def test_labels_are_words_or_places(label, word, read):
    found = read("mnli", "x.tsv", f"premise\thypothesis\tlabel\na\tb\t{label}\n")
    assert found.items[0].label == word


@pytest.mark.parametrize("label", [1, 1.0, "1", "neutral"])
def test_labels_in_json_are_numbers_too(label, read):
    row = {"premise": "a", "hypothesis": "b", "label": label}
    assert read("mnli", "x.jsonl", json.dumps(row)).items[0].label == "neutral"


def test_a_label_word_goes_before_a_place(read):
    task = replace(load_task("rte"), labels=("1", "0"))
    found = read(task, "x.tsv", HEAD + "a\tb\t1\na\tb\t0\n")
    assert [each.label for each in found.items] == ["1", "0"]


@pytest.mark.parametrize(
    ("grade", "word"), [("3", "equivalent"), ("5.0", "equivalent"), ("2.999", "not_equivalent"), ("0", "not_equivalent")]
)  # fmt: skip
def test_a_grade_from_the_threshold_on_is_the_last_label(grade, word, read):
    text = f"sentence1\tsentence2\tscore\na\tb\t{grade}\n"
    assert read("stsb", "x.tsv", text).items[0].label == word


@pytest.mark.parametrize("grade", ["good", "nan!", "inf", "NaN"])
def test_a_grade_that_is_no_number(grade, read):
    with pytest.raises(ConsilienceError, match=f"row 1: the grade '{grade}'; expected a number"):
        read("stsb", "x.tsv", f"sentence1\tsentence2\tscore\na\tb\t{grade}\n")


@pytest.mark.parametrize("none", ["-1", "-", "", " ", "-1.0"])
@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_pairs_without_a_label_are_left_out_and_counted(none, task, read):
    """GLUE's test sets have -1, those of STS-B -1.0; SNLI has - where annotators disagree."""
    text = HEAD + f"a\tb\t1\nc\td\t{none}\ne\tf\t{none}\n"
    found = read(task, "x.tsv", text)
    assert [each.first for each in found.items] == ["a"]
    assert re.fullmatch(r".*x\.tsv: 2 of 3 pairs have no label and are left out", found.notes[0])
    with pytest.raises(ConsilienceError, match="none of 1 rows has a label.*unlabelled"):
        read(task, "x.tsv", HEAD + f"a\tb\t{none}\n")


@pytest.mark.parametrize("none", [None, -1, -1.0, "-", float("nan")])
def test_no_label_in_json(none, read):
    rows = [ROW | {"label": 1}, ROW | {"label": none}, ROW]
    found = read("rte", "x.json", json.dumps(rows))
    assert len(found.items) == 1
    assert "2 of 3 pairs" in found.notes[0]


def test_nothing_is_said_where_nothing_is_left_out(read):
    assert read("rte", "x.tsv", HEAD + "a\tb\t1\n").notes == ()


def test_empty_sentences_are_kept(read):
    found = read("rte", "x.tsv", HEAD + "\t \t1\n")
    assert items(found) == [("0", "", " ", "not_entailment")]


GOOD = HEAD + "a\tb\t0\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", GOOD + "a\tb\tmaybe\n", r"x\.tsv, row 2: the label 'maybe'; expected entailment, not_entailment, or 0 to 1 in this order.*TOML"),
        ("x.tsv", GOOD + "a\tb\t2\n", "row 2: the label '2'"),
        ("x.tsv", GOOD + "a\tb\t0.5\n", r"row 2: the label '0\.5'"),
        ("x.tsv", GOOD + "a\tb\t-2\n", "row 2: the label '-2'"),
        ("x.json", json.dumps([ROW | {"label": True}]), "row 1: the label True"),
        ("x.json", json.dumps([ROW | {"label": [0]}]), r"row 1: the label \[0\]"),
        ("x.tsv", GOOD.replace("label", "labels"), r"x\.tsv: no column 'label' among sentence1, sentence2, labels.*mean 'labels'"),
        ("x.tsv", GOOD.replace("sentence2", "text"), "no column 'sentence2' among sentence1, text"),
        ("x.tsv", GOOD + "\na\tb\n", r"x\.tsv:4: 2 columns; expected 3, as in the header"),
        ("x.tsv", HEAD + '"a\nb"\tc\t0\n', r"x\.tsv:2: 1 columns; expected 3.*line breaks"),
        ("x.tsv", GOOD + "a\rb\tc\t0\n", r"x\.tsv:3: 1 columns"),
        ("x.csv", 'sentence1,sentence2,label\na,b,0\n"c"d,e,1\n', r"x\.csv:3: cannot be read as a table"),
        ("x.csv", 'sentence1,sentence2,label\n"a,b,0\n', r"x\.csv:2: cannot be read as a table"),
        ("x.tsv", GOOD.encode() + b"\xff\tb\t0\n", rf"x\.tsv: not UTF-8 at byte {len(GOOD)}\. Save"),
        ("x.tsv", "", "no rows"),
        ("x.tsv", HEAD, "no rows"),
        ("x.csv", "\n\n", "no rows"),
        ("x.json", "[]", "no rows"),
        ("x.jsonl", "", "no rows"),
        ("x.json", "", r"x\.json:1: not JSON"),
        ("x.json", '[\n{"sentence1": }\n]', r"x\.json:2: not JSON: .* at column 15"),
        ("x.json", json.dumps(ROW | {"label": 0}), r"x\.json: no list of objects"),
        ("x.json", json.dumps({"train": [], "test": []}), "no list of objects"),
        ("x.json", "[1]", "no list of objects; expected one object a pair"),
        ("x.json", "[" * 100_000, r"x\.json:1: not JSON: nested too deeply"),
        ("x.jsonl", '{"sentence1": ' + "1" * 5000 + "}", r"x\.jsonl:1: not JSON: too long a number"),
        ("x.tsv", f"sentence1\tsentence2\tlabel\na\tb\t{'1' * 5000}\n", "row 1: the label '111"),
        ("x.jsonl", json.dumps(ROW | {"label": 0, "id": "a\x1b[2J"}), r"row 1: a control character, U\+001B, in the id"),
        ("x.jsonl", json.dumps(ROW | {"label": 0}) + '\n\n{"sentence1": }\n', r"x\.jsonl:3: not JSON: .* at column 15"),
        ("x.jsonl", json.dumps(ROW | {"label": 0}) + "\n[1]\n", r"x\.jsonl:2: a JSON list; expected one object a line"),
        ("x.jsonl", json.dumps(ROW | {"sentence2": None, "label": 0}), "row 1: 'sentence2' is None; expected a text"),
        ("x.jsonl", json.dumps({"sentence1": 7, "sentence2": "b", "label": 0}), "row 1: 'sentence1' is 7"),
        ("x.jsonl", json.dumps({"sentence1": "\ud800", "sentence2": "b", "label": 0}), "row 1: 'sentence1' is '.ud800'; expected a text of whole characters"),
        ("x.parquet", "PAR", r"x\.parquet: cannot be read as a table"),
        ("x.txt", GOOD, r"x\.txt: a file in '\.txt'; expected \.tsv, \.csv, \.json, \.jsonl, \.parquet"),
        ("x", GOOD, "a file in ''; expected"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_the_place(name, content, message, read):
    with pytest.raises(ConsilienceError, match=message):
        read("rte", name, content)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConsilienceError, match=r"none\.tsv: no such file.*hub:validation"):
        read_pairs(str(tmp_path / "none.tsv"), load_task("rte"))


@pytest.mark.parametrize(
    ("header", "cells", "ids"),
    [
        ("guid\tidx", ["g\t5", "h\t6"], ["g", "h"]),
        ("idx", ["5", "6"], ["5", "6"]),
        ("index", ["7", "3"], ["7", "3"]),
        ("pairID", ["1a", "1b"], ["1a", "1b"]),
        ("id\tindex", ["1\t9", "2\t9"], ["1", "2"]),
        ("id", ["1", "1"], ["0", "1"]),
        ("qid", ["1", "2"], ["0", "1"]),
    ],
)
def test_items_have_the_names_of_the_file_where_each_has_another(header, cells, ids, read):
    text = f"{header}\t{HEAD}" + "".join(f"{cell}\ta\tb\t0\n" for cell in cells)
    assert [each.item for each in read("rte", "x.tsv", text).items] == ids


def test_numbers_of_rows_count_those_that_are_left_out(read):
    text = HEAD + "a\tb\t0\nc\td\t-1\ne\tf\t1\n"
    assert [each.item for each in read("rte", "x.tsv", text).items] == ["0", "2"]


def test_a_row_without_an_id_gives_all_their_numbers(read):
    rows = [ROW | {"label": 0, "idx": 7}, ROW | {"label": 0, "idx": None}]
    assert [each.item for each in read("rte", "x.json", json.dumps(rows)).items] == ["0", "1"]


def test_the_first_name_of_a_column_that_is_there_counts(read):
    """MNLI's own files have a ``label1`` to ``label5``, and ``gold_label`` last."""
    text = "pairID\tsentence1\tsentence2\tlabel1\tgold_label\n9n\ta\tb\tneutral\tentailment\n"
    assert items(read("mnli", "x.tsv", text)) == [("9n", "a", "b", "entailment")]
    text = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t702876\t702977\ta\tb\n"
    assert items(read("mrpc", "x.tsv", text)) == [("0", "a", "b", "equivalent")]


def make(count):
    """Pairs that can be told apart."""
    return Pairs(tuple(TextPair(str(n), f"a{n}", f"b{n}", "xy"[n % 2]) for n in range(count)))


def test_the_digest_sees_every_text_label_and_place():
    pairs = make(3)
    first, *rest = pairs.items
    changed = [replace(first, **{name: "z"}) for name in ("item", "first", "second", "label")]
    changed.append(replace(first, first=first.second, second=first.first))
    others = [(each, *rest) for each in changed] + [pairs.items[::-1], pairs.items[1:]]
    digests = {Pairs(each).digest for each in others} | {pairs.digest}
    assert len(digests) == 8
    assert Pairs(pairs.items, ("a note",)).digest == make(3).digest


@given(st.integers(0, 60), st.integers(0, 70), st.integers())
def test_a_sample_keeps_the_order_and_can_be_drawn_again(count, limit, seed):
    pairs = make(count)
    sample = sample_pairs(pairs, limit, seed)
    assert len(sample.items) == min(count, limit)
    assert list(sample.items) == [each for each in pairs.items if each in set(sample.items)]
    assert sample == sample_pairs(pairs, limit, seed)


def test_another_seed_draws_another_sample():
    assert len({sample_pairs(make(99), 9, seed).digest for seed in range(5)}) == 5


@given(st.integers(0, 60), st.integers())
def test_two_halves_are_the_whole(count, seed):
    pairs = make(count)
    first, second = (half_of(pairs, half, seed).items for half in (1, 2))
    assert len(first) - len(second) == count % 2
    assert sorted(first + second, key=lambda each: int(each.item)) == list(pairs.items)
    for half in (first, second):
        assert list(half) == [each for each in pairs.items if each in set(half)]


def test_klue_sts_is_halved_as_in_the_paper():
    """519 are 260 and 259, drawn: not the first 260."""
    pairs = make(519)
    first = half_of(pairs, 1, 0)
    assert (len(first.items), len(half_of(pairs, 2, 0).items)) == (260, 259)
    assert first == half_of(pairs, 1, 0) != half_of(pairs, 1, 1)
    assert first.items != pairs.items[:260]


def test_one_label_alone_teaches_nothing():
    refuse_one_class(make(2), "x.tsv")
    with pytest.raises(ConsilienceError, match=r"x\.tsv: all 1 pairs are 'x'; expected pairs of"):
        refuse_one_class(make(1), "x.tsv")


NAMES = ["contradiction", "entailment", "neutral"]
"""MNLI's labels in an order that is not that of the task."""


def named(names):
    """What the datasets library writes into a Parquet file of its own."""
    features = {"premise": {"dtype": "string"}, "label": {"names": names, "_type": "ClassLabel"}}
    return {"huggingface": json.dumps({"info": {"features": features}})}


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (NAMES, ["contradiction", "entailment", "neutral"]),
        (["0", "1", "2"], ["entailment", "neutral", "contradiction"]),
        (None, ["entailment", "neutral", "contradiction"]),
    ],
)
def test_a_parquet_file_that_names_its_labels(names, labels, tmp_path):
    """The places of labels are the file's own where it says so, else those of the task."""
    path = tmp_path / "x.parquet"
    rows = {"premise": list("abc"), "hypothesis": list("abc"), "label": [0, 1, 2]}
    pl.DataFrame(rows).write_parquet(path, metadata=named(names) if names else {"huggingface": "?"})
    found = read_pairs(str(path), load_task("mnli"))
    assert [each.label for each in found.items] == labels
    if names:
        pl.DataFrame(rows).write_parquet(path, metadata=named(["yes", "no", "maybe"]))
        with pytest.raises(ConsilienceError, match=r"x\.parquet: the labels yes, no, maybe; exp"):
            read_pairs(str(path), load_task("mnli"))


def test_the_hub_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConsilienceError, match=r"datasets is not installed.*consilience\[hub\]"):
        read_pairs("hub:validation", load_task("rte"))
    with pytest.raises(ConsilienceError, match="the task 'x' names no dataset of the Hub"):
        read_pairs("hub", replace(load_task("rte"), name="x", hub=()))


@pytest.fixture
def write_dataset(tmp_path, monkeypatch, write_task):
    """Write a folder as the datasets library does, and the task that reads it."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def write(label, labels, split="validation"):
        columns = {"idx": "int32", "satz1": "string", "satz2": "string"}
        features = {name: datasets.Value(kind) for name, kind in columns.items()}
        rows = [{"idx": 5 + n, "satz1": "a", "satz2": "b", "label": each} for n, each in enumerate(labels)]  # fmt: skip
        found = datasets.Dataset.from_list(rows, datasets.Features(features | {"label": label}))
        found.to_parquet(tmp_path / "folder" / f"{split}.parquet")
        return load_task(write_task(labels=list(THREE), hub=[str(tmp_path / "folder")]))

    return write


def test_a_folder_as_the_hub_has_them(write_dataset, tmp_path):
    """The dataset's own order of labels counts; -1 is no label."""
    datasets = pytest.importorskip("datasets")
    task = write_dataset(datasets.ClassLabel(names=NAMES), [0, 1, 2, -1])
    found = read_pairs("hub:validation", task)
    words = ["contradiction", "entailment", "neutral"]
    assert items(found) == [(str(5 + n), "a", "b", word) for n, word in enumerate(words)]
    assert found.notes == ("hub:validation: 1 of 4 pairs have no label and are left out",)
    assert read_pairs("hub", task).items == found.items, "the task's validation set"
    file = read_pairs(str(tmp_path / "folder" / "validation.parquet"), task)
    assert file.items == found.items, "the file alone says the same"
    with pytest.raises(ConsilienceError, match=r"folder, split 'test': cannot be loaded: .*\]\. C"):
        read_pairs("hub:test", task)


def test_labels_of_the_hub_without_names_or_with_others(write_dataset):
    datasets = pytest.importorskip("datasets")
    task = write_dataset(datasets.Value("int64"), [2, 0])
    assert [each.label for each in read_pairs("hub", task).items] == ["contradiction", "entailment"]
    task = write_dataset(datasets.ClassLabel(names=["yes", "no", "maybe"]), [2, 0])
    with pytest.raises(ConsilienceError, match="the labels yes, no, maybe; expected entailment, "):
        read_pairs("hub", task)


def test_the_hub_out_of_reach(write_dataset, tmp_path):
    datasets = pytest.importorskip("datasets")
    task = write_dataset(datasets.Value("int64"), [2, 0])
    for hub in (("nyu-mll/glue", "rte"), (str(tmp_path / "none"),)):
        with pytest.raises(ConsilienceError, match="cannot be loaded: .*Check the network and"):
            read_pairs("hub", replace(task, hub=hub))


REAL = [
    ("rte", "glue/rte/train.tsv", [1249, 1241], "label"),
    ("rte", "glue/rte/validation.tsv", [146, 131], "label"),
    ("mrpc", "glue/mrpc/train.tsv", [1194, 2474], "label"),
    ("mrpc", "glue/mrpc/validation.tsv", [129, 279], "label"),
    ("mrpc", "glue/mrpc/test.tsv", [578, 1147], "label"),
    ("mnli", "glue/mnli/validation_matched.jsonl", [3479, 3123, 3213], ""),
    ("qnli", "glue/qnli/validation.tsv", [2702, 2761], "label"),
    ("qqp", "glue/qqp/positives.csv", [0, 14_926], "is_duplicate"),
    ("qqp", "glue/qqp/kshot/dev-13.tsv", [16, 16], "is_duplicate"),
    ("qqp", "glue/qqp/kshot/dev-21.tsv", [16, 16], "is_duplicate"),
    ("qqp", "glue/qqp/kshot/train-13.tsv", [16, 16], "is_duplicate"),
    ("qqp", "glue/qqp/kshot/train-21.tsv", [16, 16], "is_duplicate"),
    ("klue-nli", "klue/klue-nli-v1.1_dev.json", [1000, 1000, 1000], ""),
    ("klue-sts", "klue/klue-sts-v1.1_dev.json", [299, 220], ""),
    ("kornli", "kornli/xnli.dev.ko.tsv", [830, 830, 830], "gold_label"),
]
"""Task, file, pairs of each label, and the label's column where a line is a pair."""


@pytest.mark.parametrize(("name", "file", "counts", "column"), REAL)
def test_real_data_is_read_whole(name, file, counts, column):
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


@pytest.mark.parametrize(
    ("name", "file"), [row[:2] for row in REAL if 0 not in row[2] and row[0] != "klue-sts"]
)
def test_labels_of_real_data_fit_the_sentences(name, file):
    """The second sentence has more words of the first where they say the same: no label is swapped.

    Contradictions of the NLI sets share more words than neutral pairs do, so these are not compared.
    """
    folder, _, rest = file.partition("/")
    found = read_pairs(str(real_data(folder) / rest), load_task(name))

    def shared(pair):
        first, second = (
            set(re.findall(r"\w+", each.lower())) for each in (pair.first, pair.second)
        )
        return len(first & second) / max(len(second), 1)

    same = ("entailment", "equivalent", "duplicate")
    close, apart = (
        fmean(shared(each) for each in found.items if (each.label in same) is expected)
        for expected in (True, False)
    )
    assert close > apart


def test_labels_of_klue_sts_are_its_grades_from_three_on():
    """Round-trip translations share few words, so the grades of seven people are asked instead."""
    path = str(real_data("klue") / "klue-sts-v1.1_dev.json")
    task = load_task("klue-sts")
    graded = replace(task, label=("labels.real-label",), threshold=3.0)
    assert read_pairs(path, graded) == read_pairs(path, task)


def test_the_guide_says_what_the_code_does(tmp_path, read):
    """``docs/tasks.md``: its table of tasks is that of the code, and its example works."""
    guide = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in guide.split("\n")
        if line.startswith("| `")
    ]
    shown = {row[0]: row[1:] for row in rows if row[0] in TASKS}
    assert list(shown) == list(TASKS)
    for name, cells in shown.items():
        task = TASKS[name]
        columns = ["/".join(each) for each in (task.first, task.second, task.label)]
        pair = TextPair("", "…", "…", "")
        t5 = ""
        if task.t5_fields:
            t5 = " ".join([name, *(segment.text for segment in t5_original(pair, task))])
        assert cells == [
            task.kind, ", ".join(columns), ", ".join(task.indicators), ", ".join(task.labels),
            t5, ", ".join(task.metrics), " ".join(task.hub),
        ]  # fmt: skip
    (example,) = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "example.toml").write_text(example, encoding="utf-8")
    task = load_task(str(tmp_path / "example.toml"))
    (table,) = re.findall(r"```csv\n(.*?)```", guide, re.DOTALL)
    assert [each.label for each in read(task, "x.csv", table).items] == list(task.labels[::-1])
