"""``consilience check``: what a file is, which numbers it has, and what it lacks."""

import csv
import json
import shlex
from pathlib import Path

import pytest

import consilience as cs
from checks import output, refused
from conftest import ROOT
from consilience.results.comparing import compare_runs

PROMPTFOO = ROOT / "tests/data/promptfoo.json"


def write(path, header, *rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(), *(row.split() for row in rows)])
    return str(path)


def reasons(*files, **options):
    table = cs.check(files, **options).tables["numbers"]
    return dict(table.iter_rows())


def said(checked):
    """The lines below the tables, and the verdict."""
    return "\n".join([*checked.verdict, *(of for of in checked.shown if isinstance(of, str))])


SIX = [f"{of} {style} x{of} {said}" for of in "abcdef" for style, said in (("s", f"x{of}"), ("t", "no"))]  # fmt: skip


@pytest.fixture
def six(tmp_path, monkeypatch):
    """Six items in two styles, of which one is always right: all numbers but four."""
    monkeypatch.chdir(tmp_path)
    return write(Path("six.csv"), "item template gold answer", *SIX)


def test_numbers_are_possible_or_have_a_reason(six):
    checked = cs.check([six])
    known = "six.csv: a table; 12 rows; 6 questions; 1 group; answers to each: 2; no options shown"
    assert checked.verdict == [f"{known}; template: s, t"]
    found = reasons(six)
    assert [of for of, why in found.items() if why == "yes"] == [
        "Accuracy", "Consistency", "Chance-corrected consistency", "Intervals over items",
    ]  # fmt: skip
    assert "4 to 100 paraphrases" in found["Intervals over phrasings"]
    assert "order=" in found["Position preference"]
    assert found["Noise"] == "no: needs repeats: --columns sample=YOURS" and checked.status == 0
    names = ("column", "read as", "values", "of an item", "example")
    assert checked.tables["columns 1"].select(names).rows() == [
        ("item", "item", 6, 1, "a"), ("template", "template", 2, 2, "s"),
        ("gold", "gold", 6, 1, "xa"), ("answer", "answer", 7, 2, "xa"),
    ]  # fmt: skip
    metrics = cs.score(six).metrics.filter(metric="consistency", over="all", kind="whole")
    assert metrics["value"].item() == 0, "it is possible, and is 0"


def test_one_answer_to_each_item_lacks_a_factor(tmp_path):
    path = write(tmp_path / "a.csv", "item gold answer", "a x x", "b y x")
    found = reasons(path)
    assert found["Accuracy"] == "yes" and "--columns template=YOURS" in found["Consistency"]
    assert found["Consistency"] == found["Chance-corrected consistency"]
    assert found["Intervals over items"].startswith("no: needs 5 items")


def test_options_orders_and_samples_give_their_numbers(tmp_path):
    """Two options in both orders: kappa and preference; the factors apart; repeats are noise."""
    lines = [
        f"{item} {order} {sample} {gold} {gold} {options}"
        for item, gold in (("a", "x"), ("b", "y"), ("c", "x"))
        for order, options in (("AB", "x;y"), ("BA", "y;x")) for sample in "12"
    ]  # fmt: skip
    path = write(tmp_path / "o.csv", "item order sample gold answer options", *lines)
    found = reasons(path)
    numbers = ("Label kappa", "Position preference", "Noise")
    for number in (*numbers, "Consistency, order", "Consistency, sample"):
        assert found[number] == "yes", number
    assert "2 options; order: AB, BA; sample: 1, 2" in cs.check([path]).verdict[0]


@pytest.mark.parametrize(("header", "rows", "columns", "lines"), [
    ("Nr Stil Soll Ist", ["1 s x x", "1 t x y", "2 s z z", "2 t z z"], None,
     ["item=YOURS,gold=YOURS,answer=YOURS", "suite check t.csv --columns question=YOURS,answer=YOURS"]),
    ("Nr Stil Soll Ist", ["1 s x x", "1 t x y", "2 s z z", "2 t z z"], {"item": "Nr", "gold": "Soll", "answer": "Ist"},
     ["Does 'Stil' say how", "--columns item=Nr,gold=Soll,answer=Ist,template=Stil"]),
    ("item style run gold answer", [f"{a} {b} {c} x x" for a in "ij" for b in "st" for c in "12"], None,
     ["No column alone tells"]),
    ("item hash gold answer", ["a 1 x x", "a 2 x y", "b 3 x x", "b 4 x y"], None, ["No column alone tells"]),
    ("item question gold answer style", ["a q x x s", "a q x y t", "b p z z s", "b p z z t"], None, ["Does 'style' say"]),
    ("question answer", ["Who? x", "What? y"], None, ["a suite (t.csv:", "suite check t.csv", "probe --suite t.csv"]),
    ("item gold answer", ["a x x y"], None, ["no file of answers", "t.csv:2: 4 columns; expected 3"]),
    ("item gold answer", [], None, ["no answers"]),
    ("id answer", ["1 x"], None, ["score t.csv --suite PROMPTS"]),
])  # fmt: skip
def test_what_cannot_be_counted_says_why_and_what_to_name(
    header, rows, columns, lines, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    checked = cs.check([write(Path("t.csv"), header, *rows)], columns=columns)
    assert checked.status == 3 and "numbers" not in checked.tables
    for line in lines:
        assert line in said(checked)


def test_a_name_in_upper_case_is_found_and_no_other_one(tmp_path):
    lines = ["a x x s", "a x y t", "b z z s", "b z z t"]
    path = write(tmp_path / "a.csv", "ITEM Gold answer TEMPLATE", *lines)
    assert cs.check([path]).status == 0
    path = write(tmp_path / "b.csv", "item Correct answer template", *lines)
    assert "gold=YOURS" in said(cs.check([path]))


def test_the_command_that_is_shown_works_as_it_is(tmp_path, consilience, monkeypatch):
    """A name with spaces and a column with an apostrophe; a file of two models."""
    monkeypatch.chdir(tmp_path)
    names = ("item", "the user's way", "gold", "answer")
    rows = [dict(zip(names, of.split(), strict=True)) for of in SIX]
    Path("my answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own = ["my answers.jsonl", "--columns", "template=the user's way"]
    for arguments in (own, [str(PROMPTFOO)]):
        text = output(consilience, "check", *arguments)
        (line,) = (of for of in text.splitlines() if of.startswith("Score:"))
        assert "Accuracy" in output(consilience, *shlex.split(line)[2:])
    assert "models echo, toy, of which the first is counted" in text


def test_runs_and_suites_are_known(tmp_path):
    run, of = str(tmp_path / "r"), {"limit": 2, "groups": ["capital"]}
    cs.evaluate("mini", "baseline:majority", out=run, **of)
    checked = cs.check([run])
    assert checked.verdict[0].startswith(f"{run}: a run; 2 facts; 1 relation; answers to each: 9")
    assert reasons(run)["Consistency"] == "yes" and checked.status == 0
    assert "probe --suite mini" in said(cs.check(["mini"]))
    refused("no such file", cs.check, [str(tmp_path / "none.csv")])
    refused("3 files", cs.check, [run] * 3)


def test_two_files_have_something_in_common_or_are_named_otherwise(six, tmp_path):
    """The same six questions under other names: 6 golds and texts in common, and no item."""
    header, other_styles = "item template gold answer", str.maketrans("st", "uv")
    same = write(Path("same.csv"), header, *SIX[:10])
    checked = cs.check([six, same])
    rows = {of[0]: of[2:] for of in checked.tables["common"].rows()}
    assert rows["items"] == (6, 5, 5) and rows["queries"] == (12, 10, 10) and checked.status == 0
    assert "Compare: consilience compare six.csv same.csv" in said(checked)
    other = write(Path("o.csv"), f"{header} name", *(f"q-{of} {of[0]}" for of in SIX))
    checked = cs.check([six, other])
    assert checked.status == 3 and "no item is the same, such as 'a' and 'q-a'" in said(checked)
    assert ("'item'", "'name'", 6, 6, 6) in checked.tables["common"].rows()
    assert "--columns item=YOURS: items, golds." in said(checked)
    styles = [of.translate(other_styles) for of in SIX]
    file = write(Path("s.csv"), header, *styles)
    assert "--columns item=YOURS: variants." in said(cs.check([six, file]))
    options = [f"z {of} q;{of.split()[2]}" for of in styles]
    checked = cs.check([six, write(Path("g.csv"), f"group {header} options", *options)])
    for every in ("no group is", "no variant is", ": groups, variants, options."):
        assert every in said(checked)
    ordered = write(Path("order.csv"), "item order gold answer", *SIX)
    rows = {of[0]: of[2:] for of in cs.check([six, ordered]).tables["common"].rows()}
    assert rows["variants"] == (2, 2, 1) and rows["queries"] == (12, 12, 6), "the base is alike"
    foreign = write(Path("f.csv"), "Nr Soll Ist", *(f"{of[0]} x{of[0]} y" for of in SIX[::2]))
    checked = cs.check([six, foreign])
    assert "no answers that can be counted in f.csv" in said(checked)
    assert ("'gold'", "'Soll'", 6, 6, 6) in checked.tables["common"].rows()


def test_options_in_one_run_only_are_refused(tmp_path, consilience, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("q.csv").write_text("item,question,options,answer\na,A?,x;y,x\nb,B?,x;y,y")
    table = write(Path("a.csv"), "item order answer gold", "a AB x x", "b AB y y")
    output(consilience, "probe", "-s", "q.csv", "-m", "baseline:first", "--out", "r")
    found = "a has no options in questions, .* Add a column"
    refused(found, compare_runs, ["r", table], None, flips=False, same=None)
