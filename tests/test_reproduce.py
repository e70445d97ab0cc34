"""The papers' tables beside ours: exactly where no model is needed, on tiny data where one is."""

import io
import json
import math
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module

import polars as pl
import pytest

from conftest import WORDS, real_data
from consilience import cli
from consilience.errors import ConsilienceError
from consilience.report import papers
from consilience.report.export import as_markdown
from consilience.report.papers import Measured, beside, beside_layout, beside_table, paper_numbers
from consilience.report.terminal import TerminalTable
from consilience.reproduce import RECIPES, Found, Recipe, Work, carry_out, recipe
from consilience.reproduce.pararel import EXAMPLES, IMPROVED, MODELS, TEST, TRAIN, VALIDATION
from consilience.suites.trex import N_TO_1, N_TO_M

recipes = import_module("consilience.reproduce.recipe")

PAPER = """table,section,group,row,column,value,std,unit
small,7,,Ada,Right,50.0,20.0,percent
small,7,,Ada,Pairs,12,,count
small,7,,Ada,p,0.01,,p<
small,7,late,Bob,Right,61.25,,percent
small,7,late,Bob,Pairs,7,,count
other,9,,Eve,Right,1,,percent
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A paper with one small table."""
    (tmp_path / "papers.csv").write_text(PAPER)
    monkeypatch.setattr(papers, "files", lambda package: tmp_path)


@pytest.fixture
def here(monkeypatch):
    """Commands run in this process, which has loaded what they need; a list of them."""
    asked = []

    def call(command):
        *arguments, last = command[3:]
        assert last == "--json"
        asked.append(arguments)
        monkeypatch.setattr(sys, "argv", command[2:])
        out, err, status = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as stop:
                status = stop.code or 0
        return status, out.getvalue(), err.getvalue()

    monkeypatch.setattr(recipes, "_call", call)
    return asked


def cells(numbers):
    """The rows of a comparison by block, row and column."""
    return {
        (each["group"], each["row"], each["column"]): each for each in numbers.iter_rows(named=True)
    }


def verdicts(ours, absent=None):
    return [each["verdict"] for each in beside("small", ours, absent).iter_rows(named=True)]


@pytest.mark.parametrize(
    ("key", "number", "verdict"),
    [
        (("", "Ada", "Right"), Measured(49.0, 19.0, 48.0, 52.0), "within"),
        (("", "Ada", "Right"), Measured(52.0, 19.0, 50.04, 54.0), "within"),
        (("", "Ada", "Right"), Measured(52.0, 19.0, 50.06, 54.0), "outside"),
        (("", "Ada", "Right"), Measured(48.0, 19.0, 44.0, 49.96), "within"),
        (("", "Ada", "Right"), Measured(48.0, 19.0, 44.0, 49.94), "outside"),
        (("", "Ada", "Right"), Measured(50.04), "same"),
        (("", "Ada", "Right"), Measured(50.04, 19.0, 48.0, 52.0), "same"),
        (("", "Ada", "Right"), Measured(50.06), "differs"),
        (("", "Ada", "Right"), Measured(math.nan), "no data"),
        (("", "Ada", "Pairs"), Measured(12), "same"),
        (("", "Ada", "Pairs"), Measured(13), "differs"),
        (("", "Ada", "p"), Measured(0.0099), "same"),
        (("", "Ada", "p"), Measured(0.01), "differs"),
        (("late", "Bob", "Right"), Measured(61.254), "same"),
        (("late", "Bob", "Right"), Measured(61.26), "differs"),
    ],
)
def test_verdicts_are_of_the_digits_that_the_paper_prints(small, key, number, verdict):
    """50.0 stands for what rounds to it: 50.04 does, 50.06 does not."""
    assert cells(beside("small", {key: number}))[key]["verdict"] == verdict


def test_why_there_is_no_number_of_ours(small):
    assert set(verdicts({})) == {"not measured"}
    reasons = {"Ada": "not here: cannot load it", "": "by hand"}
    assert verdicts({}, reasons) == ["not here: cannot load it"] * 3 + ["by hand"] * 2
    found = verdicts({("", "Ada", "Pairs"): Measured(12)}, reasons)
    assert found[:3] == ["not here: cannot load it", "same", "not here: cannot load it"]


def test_ours_that_the_paper_lacks_stand_with_their_row(small):
    ours = {("late", "Cy", "Right"): Measured(1.0), ("", "Ada", "More"): Measured(0.5, unit="p")}
    rows = beside("small", ours)
    assert rows["column"].to_list() == ["Right", "Pairs", "p", "More", "Right", "Pairs", "Right"]
    alone = rows.filter(pl.col("verdict") == "ours alone")
    assert alone["unit"].to_list() == ["p", ""]
    assert alone["paper"].is_nan().all()
    assert set(rows["table"]) == {"small"}
    (none,) = [
        each for each in verdicts({("late", "Cy", "Right"): Measured(math.nan)}) if "data" in each
    ]
    assert none == "no data"


def test_numbers_keep_their_digits_and_their_place():
    rows = paper_numbers("pararel-table-1")
    assert dict(zip(rows["row"], rows["digits"], strict=True))["Avg syntax"] == 2
    assert rows["value"].to_list() == [38, 328, 2, 20, 8.63, 4.74, 6.03]
    assert set(rows["section"]) == {"4"}
    names = {row["table"]: row["section"] for row in pl.read_csv(
        papers.files("consilience.report") / "papers.csv", infer_schema=False
    ).iter_rows(named=True)}  # fmt: skip
    assert all(names.values()), "every number has its section"
    assert names["pararel-table-3"] == "6.2"
    assert names["pararel-mcnemar"] == "8.3"


def test_every_number_of_the_papers_belongs_to_a_recipe_and_stands_once():
    rows = pl.read_csv(papers.files("consilience.report") / "papers.csv", infer_schema=False)
    assert set(rows["table"]) <= {each.table for each in RECIPES.values()}
    keys = rows.select("table", "group", "row", "column")
    assert keys.is_duplicated().sum() == 0


def test_a_table_on_a_screen_and_in_the_papers_layout(small, capsys, monkeypatch):
    from rich.console import Console

    ours = {
        ("", "Ada", "Right"): Measured(49.0, 19.0, 48.0, 52.0),
        ("", "Ada", "p"): Measured(0.0004),
        ("late", "Bob", "Pairs"): Measured(8),
    }
    numbers = beside("small", ours, {"Bob": "not here: cannot load it"})
    Console(width=80, markup=False).print(TerminalTable(beside_table(numbers, "Small")))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[4:11] == [
        "Ada",
        "Right 50.0±20.0 49.0±19.0 48.0 52.0 -1.0 within",
        "Pairs 12 - - not measured",
        "p < 0.01 <.001 same",
        "late:",
        "Bob",
        "Right 61.25 - - not here",
    ]
    assert lines[11] == "Pairs 7 8 1 differs"
    assert as_markdown(beside_layout(numbers, "Small")).splitlines()[2:] == [
        "|  | Right | Pairs | p |",
        "|---|---:|---:|---:|",
        "| Ada (paper) | 50.0 ± 20.0 | 12 | \\< 0.01 |",
        "| Ada (ours) | 49.0 ± 19.0 | - | \\<.001 |",
        "| *late* | | | |",
        "| Bob (paper) | 61.25 | 7 |  |",
        "| Bob (ours) | - | 8 |  |",
    ]


def test_thousands_are_printed_as_such():
    numbers = beside("calum-table-1", {("", "RTE", "Train set size"): Measured(2.49)})
    rte = numbers.filter(pl.col("row") == "RTE")
    lines = as_markdown(beside_layout(rte, "Sizes")).splitlines()
    assert "| RTE (paper) | 2 | 2.5K | 277 | 3K |" in lines
    assert "| RTE (ours) | - | 2.5K | - | - |" in lines


@pytest.fixture
def made(monkeypatch, small):
    """A recipe for the small table; it notes its rows and asks a command for each."""
    seen = []

    def make(work):
        for row in ("Ada", "Bob"):
            if work.wanted(row):
                seen.append(row)
                work.run(row, "data", "list")
        return Found(
            {("", "Ada", "Right"): Measured(50.0), ("late", "Bob", "Pairs"): Measured(7)},
            ["a *note* of the recipe"],
        )

    small = Recipe("small", "small", "Little", "nothing", make, {"Ada": "a/m"}, ("rte:train",))
    monkeypatch.setitem(RECIPES, "small", small)
    return seen


def test_the_command_shows_and_writes_and_says_what_it_ran(consilience, made, here, tmp_path):
    status, out, err = consilience("reproduce", "small", "--out", tmp_path / "r")
    assert status == 0
    assert "small: Little" in out
    assert "* a *note* of the recipe" in out
    assert err.splitlines().count("consilience data list") == 2
    assert {path.name for path in (tmp_path / "r").iterdir()} == {
        "small.csv", "small.md", "small.tex",
    }  # fmt: skip
    written = pl.read_csv(tmp_path / "r" / "small.csv", schema_overrides=papers.BESIDE_SCHEMA)
    assert written.columns == [*papers.BESIDE_SCHEMA, "asked"]
    assert set(written["asked"]) <= {"", None}
    assert written["verdict"].to_list() == [
        "same", "not measured", "not measured", "not measured", "same",
    ]  # fmt: skip
    assert (
        (tmp_path / "r" / "small.md")
        .read_text()
        .endswith("\n\n* a \\*note\\* of the recipe\n* not measured: Ada, Bob\n")
    )
    lines = (tmp_path / "r" / "small.tex").read_text().splitlines()
    assert r"\begin{tabular}{lrrr}" in lines
    assert lines[-2:] == ["% a *note* of the recipe", "% not measured: Ada, Bob"]


def test_json_is_one_document_and_nothing_else(consilience, made, here, tmp_path):
    status, out, _ = consilience("reproduce", "small", "--out", tmp_path / "r", "--json")
    document = json.loads(out)
    assert status == 0
    assert set(document) == {"run", "numbers", "notes", "warnings"}
    assert document["run"]["commands"] == ["consilience data list"] * 2
    assert document["numbers"][0]["ours"] == 50.0
    assert document["numbers"][1]["ours"] is None
    assert document["notes"] == ["a *note* of the recipe"]


def test_only_some_rows_blocks_or_columns(made, here, tmp_path):
    for only, rows, counted in (
        (("Ada",), ["Ada"], {("", "Ada", "Right")}),
        (("late",), ["Bob"], {("late", "Bob", "Pairs")}),
        (("Right",), ["Ada", "Bob"], {("", "Ada", "Right")}),
        (("late", "Right"), ["Bob"], set()),
    ):
        made.clear()
        _, numbers = carry_out(RECIPES["small"], Work(tmp_path, only=only))
        found = {key for key, each in cells(numbers).items() if not math.isnan(each["ours"])}
        assert (made, found) == (rows, counted), only
    verdict = cells(carry_out(RECIPES["small"], Work(tmp_path, only=["Bob"]))[1])
    assert verdict["", "Ada", "Right"]["verdict"] == "not asked"


def test_a_dry_run_says_the_commands_and_runs_nothing(consilience, made, here, tmp_path):
    status, out, _ = consilience("reproduce", "small", "--out", tmp_path / "r", "--dry-run")
    assert (status, out.splitlines()) == (0, ["consilience data list"] * 2)
    assert here == []
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pararel-table-33"], "no recipe 'pararel-table-33'. Did you mean 'pararel-table-3'?"),
        (
            ["small", "--only", "Eve"],
            "small has no row 'Eve'; expected late, Ada, Bob, Right, Pairs, p.",
        ),
        (["small", "--model", "Bob=m"], "small has no model 'Bob'; expected Ada."),
        (["small", "--model", "Ada"], "--model Ada; expected ROW=M, such as"),
        (["small", "--model", "=m"], "--model =m; expected ROW=M"),
        (["small", "--data", "rte"], "--data rte; expected TASK:SPLIT=FILE"),
        (
            ["small", "--data", "rte:bar=hub:x"],
            "small takes no file 'rte:bar'; expected rte:train.",
        ),
        (["pararel-data", "--data", "rte:train=hub:x"], "pararel-data takes no file 'rte:train'"),
        (
            ["small", "--with", "probe=--limit 1"],
            "small has no command 'probe'; expected data list.",
        ),
        (["small", "--with", "data list='"], "--with data list=': No closing quotation"),
        (
            ["small", "--with", "data list=--json"],
            "--with data list: the recipe itself says '--json'",
        ),
        (
            ["pararel-table-7", "--with", "improve=--seeds 1"],
            "--with improve: the recipe itself says '--seeds'",
        ),
        (
            ["small", "--with", "data list=--help"],
            "--with data list: the recipe itself says '--help'",
        ),
        (["small", "--with", "data list=-x", "--with", "data list=-y"], "--with data list twice"),
        (["small", "--device", "nope"], "the device 'nope' is not there"),
        (["small", "--data", "rte:train=f"], "f: no such file."),
        (["small", "--only", ","], "no name in ','"),
        (["small", "--only", "Ada,late"], "small has no number in Ada and late at once; expected"),
    ],
)
def test_what_cannot_be_asked(consilience, made, here, arguments, message):
    status, out, err = consilience("reproduce", *arguments)
    assert (status, out) == (2, "")
    assert f"error: {message}" in err
    assert here == []


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("pararel-mcnemar", "BERT-base"),
        ("calum-table-6", "GPT2-base"),
        ("calum-gain", "GPT2-base"),
    ],
)
def test_a_model_is_a_row_only_where_rows_are_models(name, row, tmp_path):
    """All would be trained, and nothing of it shown."""
    with pytest.raises(ConsilienceError, match=f"{name} has no row '{row}'"):
        carry_out(RECIPES[name], Work(tmp_path, only=[row], dry=True))
    assert "ALBERT-base" in RECIPES["pararel-correlations"].rows


def test_all_recipes_are_listed_with_what_they_need(consilience):
    status, out, _ = consilience("reproduce")
    assert status == 0
    rows = json.loads(consilience("reproduce", "--json")[1])["recipes"]
    assert {row["name"] for row in rows} == set(RECIPES)
    names = [line.split()[0] for line in out.splitlines() if line.startswith((" par", " cal"))]
    assert names == [row["name"] for row in rows] == sorted(names)
    assert all(row["title"] and row["needs"] for row in rows)
    wanted = {f"pararel-table-{n}" for n in range(1, 9)} | {"pararel-figure-3"}
    wanted |= {f"pararel-{name}" for name in (
        "correlations", "determinism", "relations", "representations", "mcnemar", "agreement",
    )}  # fmt: skip
    assert wanted <= {row["name"] for row in rows}


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="two recipes are called 'pararel-table-1'"):
        recipe("pararel-table-1", "", "")(lambda work: Found({}))


def test_what_a_command_says_when_it_cannot(tmp_path):
    """In a process of its own: exit 2 with a reason marks the row, a bug of ours raises."""
    work = Work(tmp_path)
    assert work.ask("Ada", "data", "list")["suites"][0]["suite"] == "mini"
    assert not work.run("Ada", "data", "check", "nowhere")
    assert work.absent["Ada"].startswith("not here: ")
    assert "nowhere" in work.absent["Ada"]
    with pytest.raises(ConsilienceError, match="consilience data lost: No such command 'lost'"):
        work.run("Ada", "data", "lost")


def test_what_commands_note_is_told_once_with_its_rows(tmp_path, monkeypatch):
    said = {"warnings": ["mind the gap", "few"]}
    monkeypatch.setattr(recipes, "_call", lambda command: (0, json.dumps(said), "note: other\n"))
    work = Work(tmp_path)
    for row in ("Ada", "Bob", "Ada"):
        assert work.run(row, "probe", part="late" if row == "Bob" else "")
    said = {"warnings": ["of examples"]}
    assert work.ask("", "analyze", "examples") == said
    assert work.told == [
        "Ada: mind the gap", "Ada: few", "late, Bob: mind the gap", "late, Bob: few", "of examples",
    ]  # fmt: skip
    assert work.run("majority", "probe")
    assert not any("majority" in each for each in work.told)


def test_a_folder_with_another_run_is_no_row_that_is_not_here(here, tmp_path):
    """The numbers of the other run would stand there, or the row would look unavailable."""
    work, place = Work(tmp_path), tmp_path / "Ada"
    asked = ("probe", "--model", "baseline:majority", "--suite", "mini", "--out", place, "--limit")
    assert work.run("Ada", *asked, "2")
    with pytest.raises(ConsilienceError, match="--limit 3: .*another run: its limit is 2, now"):
        work.run("Ada", *asked, "3")
    assert work.absent == {}


def test_more_arguments_have_runs_and_tables_of_their_own(consilience, made, tmp_path, monkeypatch):
    asked = []

    def call(command):
        asked.append(command[3:])
        return 0, '{"warnings": ["mind the gap"]}', ""

    monkeypatch.setattr(recipes, "_call", call)
    arguments = ("reproduce", "small", "--out", tmp_path / "r")
    assert consilience(*arguments)[0] == 0
    kept = (tmp_path / "r" / "small.csv").read_bytes()
    other = (
        "--model",
        "Ada=b/model",
        "--with",
        "data list=--more 1",
        "--data",
        "rte:train=hub:train",
    )
    status, out, _ = consilience(*arguments, *other, "--only", "Ada")
    assert status == 0
    listed = ["data", "list", "--json"]
    assert asked == [listed, listed, ["data", "list", "--more", "1", "--json"]]
    assert "* Ada: mind the gap" in out
    assert (tmp_path / "r" / "small.csv").read_bytes() == kept
    (own,) = (tmp_path / "r").glob("with-*")
    written = pl.read_csv(own / "small.csv", schema_overrides=papers.BESIDE_SCHEMA)
    given = "--model Ada=b/model --data rte:train=hub:train --with 'data list=--more 1' --only Ada"
    assert set(written["asked"]) == {f"'{given}"}  # it begins with a minus sign
    stands = "Ada: b/model stands in its place; the paper's numbers are not of that model"
    for suffix, sign in ((".md", "* "), (".tex", "% ")):
        lines = (own / f"small{suffix}").read_text().splitlines()
        for text in (
            "Ada: mind the gap", stands, "not asked: Bob",
            "data list was run with --more 1 too, which the paper did not",
        ):  # fmt: skip
            assert f"{sign}{text}" in lines
    assert consilience(*arguments, *other, "--only", "Bob")[0] == 0
    assert "stands in its place" not in (own / "small.md").read_text()
    options = ({}, {"a": ["1"]}, {"a": ["2"]})
    assert len({Work(tmp_path, options=each).place("Ada") for each in options}) == 3


def test_arguments_of_the_user_that_are_wrong_are_an_error(tmp_path):
    """A model that is not here marks its row; what was given with --with is the user's mistake."""
    work = Work(tmp_path, options={"probe": ["--groups", "nowhere"]})
    asked = ("probe", "--model", "baseline:majority", "--suite", "mini", "--out", tmp_path / "run")
    with pytest.raises(ConsilienceError, match="--groups nowhere: .*nowhere"):
        work.run("Ada", *asked)
    work = Work(tmp_path, options={"probe": ["--limit", "3"]})
    assert not work.run("Ada", "probe", "--model", "no/model", "--suite", "mini")
    assert "no/model" in work.absent["Ada"]


def test_files_of_an_earlier_call_do_not_stay(consilience, monkeypatch, tmp_path):
    """The recipe has numbers while its model is here, and then has none."""
    found = [Found({("", "Ada", "Right"): Measured(1.0)}), Found({}, ["nothing is here"])]
    bare = Recipe("bare", "no-such-table", "Little", "nothing", lambda work: found.pop(0))
    monkeypatch.setitem(RECIPES, "bare", bare)
    assert consilience("reproduce", "bare", "--out", tmp_path / "r")[0] == 0
    assert {each.suffix for each in (tmp_path / "r").iterdir()} == {".csv", ".md", ".tex"}
    assert consilience("reproduce", "bare", "--out", tmp_path / "r")[0] == 0
    assert {each.name for each in (tmp_path / "r").iterdir()} == {"bare.md"}


def test_a_bug_of_ours_is_no_row_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "_call", lambda command: (1, "", "Traceback: KeyError"))
    work = Work(tmp_path)
    with pytest.raises(RuntimeError, match="consilience data list failed:\nTraceback: KeyError"):
        work.run("Ada", "data", "list")
    assert work.absent == {}


def test_a_terminal_sees_the_bars(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code = "import sys; sys.stderr.write('asking 7/9'); print('{}'); sys.exit(2)"
    assert recipes._call([sys.executable, "-c", code]) == (2, "{}\n", "")
    assert capfd.readouterr().err == "asking 7/9"


def test_a_command_that_was_killed_marks_its_row(tmp_path, monkeypatch):
    code = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    call = recipes._call
    monkeypatch.setattr(recipes, "_call", lambda command: call(code))
    work = Work(tmp_path)
    assert not work.run("Ada", "data", "list")
    assert work.absent["Ada"] == "not here: stopped by signal 9; too little memory?"


@dataclass(slots=True)
class Once(Work):
    """A command that was given before is not given again."""

    given: set[tuple[str, ...]] = field(default_factory=set)

    def run(self, row, *arguments):
        command = tuple(map(str, arguments))
        if command in self.given:
            return True
        self.given.add(command)
        return Work.run(self, row, *arguments)


CAPITALS = ["The capital of [X] is [Y] .", "[Y] is the capital of [X].", "[X]'s capital, [Y]."]


@pytest.fixture
def release(tmp_path):
    """ParaRel's layout in small: nine facts in three patterns in each of its 38 relations."""
    root = tmp_path / "data" / "pararel"
    subjects = {relation: {} for relation in (*N_TO_1, *N_TO_M)}
    texts = {relation: list(CAPITALS) for relation in subjects}
    for relation, subject, *asked in EXAMPLES:
        subjects[relation][subject] = WORDS[0]
        texts[relation] = list(dict.fromkeys([*texts[relation], *(text for text, _ in asked)]))
    for relation, own in subjects.items():
        own |= {f"{relation} {n}": WORDS[n % 3] for n in range(9)}
        if relation == "P36":
            own |= {f"land {n}": WORDS[n % 6] for n in range(12)}
        facts = [
            {"sub_label": subject, "obj_label": object_, "uuid": f"{relation}/{n}"}
            for n, (subject, object_) in enumerate(own.items())
        ]
        patterns = [{"pattern": text, "lemma": "", "tense": ""} for text in texts[relation]]
        for folder, rows in (("pattern_data/graphs_json", patterns), ("trex_lms_vocab", facts)):
            path = root / folder / f"{relation}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root.parent


def test_a_model_that_is_not_here_is_marked_and_another_may_stand_for_it(
    consilience, release, here, tmp_path
):
    """The oracle is right and so consistent: 100, without an interval; the paper's are others."""
    arguments = (
        "reproduce", "pararel-table-3", "--data-dir", release, "--out", tmp_path / "r",
        "--only", "majority,BERT-base,BERT-large", "--json",
    )  # fmt: skip
    other = ("--model", "BERT-base=baseline:oracle", "--model", "BERT-large=no/model")
    status, out, err = consilience(*arguments, *other)
    assert status == 0
    document = json.loads(out)
    rows = {(row["row"], row["column"]): row for row in document["numbers"]}
    oracle = [rows["BERT-base", each] for each in ("Accuracy", "Consistency", "Consistent-Acc")]
    assert [each["ours"] for each in oracle] == [100.0] * 3
    assert [each["paper"] for each in oracle] == [45.8, 58.5, 27.0]
    assert {each["verdict"] for each in oracle} == {"differs"}
    assert all(each["low"] is None for each in oracle), "nothing varies"
    assert rows["majority", "Consistency"]["verdict"] == "same"
    why = rows["BERT-large", "Accuracy"]["verdict"]
    assert why.startswith("not here: ")
    assert "no/model" in why
    assert rows["ALBERT-base", "Accuracy"]["verdict"] == "not asked"
    assert document["warnings"][0].startswith("BERT-base: baseline:oracle stands in its place")
    assert not any("majority" in note for note in document["notes"]), "it is constant, of course"
    assert f"BERT-large: {why}" in document["warnings"]
    assert [shlex.join(["consilience", *each]) for each in here] == document["run"]["commands"]
    assert err.splitlines()[:3] == document["run"]["commands"]


def test_what_is_done_is_not_asked_again(release, here, tmp_path):
    work = Work(tmp_path / "r", {"BERT-base": "baseline:random"}, ["BERT-base"], data_dir=release)
    first = carry_out(RECIPES["pararel-table-3"], work)[1]
    place = work.place("BERT-base")
    asked = {path: path.stat().st_mtime_ns for path in place.glob("answers/*")}
    assert len(asked) == 38
    lost = place / "answers" / "P36.parquet"
    lost.unlink()  # as where it was stopped
    again = carry_out(RECIPES["pararel-table-3"], work)[1]
    assert again.equals(first, null_equal=True)
    found = {path: path.stat().st_mtime_ns for path in place.glob("answers/*")}
    assert {path for path in found if found[path] != asked[path]} == {lost}


def test_another_model_has_a_run_of_its_own(tmp_path):
    places = [
        Work(tmp_path, models).place("BERT-base")
        for models in ({}, {"BERT-base": "a/model"}, {"BERT-base": "b/model"})
    ]
    assert len(set(places)) == 3
    assert places[0] == tmp_path / "pararel" / "BERT-base"
    assert places[1].name.startswith("BERT-base-model-")


def test_single_relations_and_correlations_take_all_models(release, here, tmp_path):
    """The oracle is right everywhere: the most consistent, and of no correlation."""
    specs = dict.fromkeys(MODELS, "baseline:random") | {"BERT-large": "baseline:oracle"}
    work = Once(tmp_path / "r", specs, data_dir=release)
    found = cells(carry_out(RECIPES["pararel-relations"], work)[1])
    lowest, highest = (
        found["original-language", f"{end} model", "Consistency"] for end in ("lowest", "highest")
    )
    assert (lowest["paper"], highest["paper"], highest["ours"]) == (52, 90, 100.0)
    assert lowest["ours"] < 100
    assert found["capital-of", "BERT-large", "Consistency"]["ours"] == 100.0
    found = cells(carry_out(RECIPES["pararel-correlations"], work)[1])
    assert found["", "BERT-large", "Correlation Accuracy/Consistency"]["verdict"] == "no data"
    assert found["", "all models", "p (correlation)"]["verdict"] == "no data"
    own = found["", "RoBERTa-base", "Correlation Accuracy/Consistency"]
    assert own["verdict"] in ("within", "outside")
    knowledge = json.loads(
        recipes._call([sys.executable, "-m", "consilience", *here[-1], "--json"])[1]
    )["correlations"]  # fmt: skip
    (told,) = (
        each["value"] for each in knowledge
        if each["run"] == work.place("RoBERTa-base").name and each["method"] == "pearson"
        and (each["x"], each["y"]) == ("accuracy", "consistency")
    )  # fmt: skip
    assert own["ours"] == pytest.approx(100 * told)
    assert "the same, Spearman's" in {column for _, _, column in found}
    some = {"probe": ["--groups", "P19"]}
    work = Work(tmp_path / "r", specs, ["BERT-large"], data_dir=release, options=some)
    found = cells(carry_out(RECIPES["pararel-relations"], work)[1])
    assert math.isnan(found["capital-of", "BERT-large", "Consistency"]["ours"])
    for name, row in (("relations", "lowest model"), ("correlations", "all models")):
        work = Work(tmp_path / "r", specs, [row, "BERT-large"], data_dir=release)
        numbers = carry_out(RECIPES[f"pararel-{name}"], work)[1]
        (found,) = numbers.filter(pl.col("row") == row).to_dicts()
        assert found["verdict"].startswith("not here: it takes all models, also BERT-base, BERT-")
        assert "BERT-large," not in found["verdict"]


def test_the_papers_examples_and_our_most_telling_ones(release, here, tmp_path):
    work = Work(tmp_path / "r", {"BERT-large": "baseline:majority"}, data_dir=release)
    found, numbers = carry_out(RECIPES["pararel-table-6"], work)
    assert numbers.is_empty()
    assert found.notes[5] == (
        "example 6, Wales (right: Paris): 'The capital of [X] is [Y] .' Cardiff, ours Paris; "
        "'[X]'s capital, [Y].' Cardiff, ours Paris; '[X]'s capital city, [Y].' Cardiff, ours Paris"
    )
    assert any(note.startswith("same_wrong: ") for note in found.notes[6:])
    assert not any(note.startswith("right_and_wrong: ") for note in found.notes[6:])


def test_determinism_is_of_the_seven_relations(release, here, tmp_path):
    work = Work(tmp_path / "r", {"BERT-large": "baseline:oracle"}, ["BERT-large"], data_dir=release)
    found = cells(carry_out(RECIPES["pararel-determinism"], work)[1])
    assert found["", "BERT-large", "Determinism"]["ours"] == 100.0


def test_vectors_of_a_tiny_model(consilience, release, here, model_folder, tmp_path):
    pytest.importorskip("altair")
    common = ("--data-dir", release, "--out", tmp_path / "r", "--device", "cpu", "--json")
    status, out, _ = consilience(
        "reproduce", "pararel-figure-3", "--model", f"BERT-large={model_folder('bert')}", *common
    )
    assert status == 0
    document = json.loads(out)
    drawn, *written = document["run"]["files"]
    assert drawn.endswith("tsne-P36-subject.svg")
    assert "<svg" in (tmp_path / drawn).read_text()
    columns = [row["column"] for row in document["numbers"]]
    assert columns[:3] == ["V-measure by pattern", "AMI by pattern", "V-measure by subject"]
    clusters = pl.read_csv(next((tmp_path / "r").glob("pararel-figure-3/*/clusters.csv")))
    told = clusters.filter(pl.col("property") == "pattern").select("v_measure", "ami").row(0)
    ours = [row["ours"] for row in document["numbers"]][:2]
    assert ours == pytest.approx([100 * each for each in told])
    assert {row["verdict"] for row in document["numbers"]} == {"ours alone"}
    assert len(written) == 3
    status, out, _ = consilience(
        "reproduce", "pararel-representations", "--model",
        f"BERT-large-wwm={model_folder('bert')}", *common,
    )  # fmt: skip
    rows = {row["column"]: row for row in json.loads(out)["numbers"]}
    spearman = rows["Spearman Consistency/V-measure"]
    assert (spearman["paper"], spearman["verdict"] in ("within", "outside")) == (39.5, True)
    assert -100 <= spearman["ours"] <= 100
    assert spearman["ours"] != rows["Spearman, by pattern"]["ours"]
    assert 0 <= rows["V-measure by subject"]["ours"] <= 100


def test_a_training_is_read_and_tested(release, here, model_folder, tmp_path):
    """One training for Table 7 and for the tests, by the same command."""
    pytest.importorskip("accelerate")
    models = {"BERT-base": str(model_folder("bert"))}
    work = Once(tmp_path / "r", models, data_dir=release, device="cpu")
    found = cells(carry_out(RECIPES["pararel-table-7"], work)[1])
    trained = work.place("BERT-base", "pararel-improve")
    table = pl.read_csv(trained / "table-7.csv").filter(pl.col("metric") == "consistency")
    told = dict(table.select("name", "value").iter_rows())
    names = ("before", "improved", "no-consistency", "no-typing", "no-mlm")
    ours = [found["ablation" if row.startswith("-") else "BERT", row, "Consistency"]["ours"]
            for row in IMPROVED]  # fmt: skip
    assert ours == pytest.approx([100 * told[name] for name in names])
    assert found["", "majority", "Consistency"]["ours"] == 100.0
    found = cells(carry_out(RECIPES["pararel-mcnemar"], work)[1])
    row = "BERT-ft vs BERT-base"
    assert found["", row, "Consistency"]["ours"] == pytest.approx(ours[1] - ours[0])
    tested = [
        found["", row, f"p of {column}, exact McNemar"]["ours"]
        for column in ("Accuracy", "Consistent-Acc")
    ]
    assert found["", row, "p (McNemar)"]["ours"] == max(tested)
    assert [command[0] for command in here] == ["probe", "improve"]
    work = Work(tmp_path / "r", {"BERT-base": "no/model"}, data_dir=release)
    numbers = carry_out(RECIPES["pararel-mcnemar"], work)[1]
    assert numbers["verdict"].str.starts_with("not here: ").all()


@pytest.fixture
def told(monkeypatch):
    """Commands that are done already; ``told["knowledge"] = {...}`` is what that one says."""
    said = {}

    def call(command):
        return 0, json.dumps(next((said[name] for name in said if name in command), {})), ""

    monkeypatch.setattr(recipes, "_call", call)
    return said


def test_the_larger_p_of_mcnemars_tests_counts(told, tmp_path):
    """.04 of accuracy and .001 of Consistent-Acc: .04, not below the paper's .01."""
    work = Work(tmp_path)
    rows = [
        {"metric": metric, "subset": subset, "group": group, "difference": 0.058, "low": 0.05,
         "high": 0.07, "test": test, "p": p}
        for metric, test, p in (
            ("accuracy", "exact McNemar", 0.04), ("consistent_accuracy", "exact McNemar", 0.001),
            ("consistency", "paired permutation of subjects", 0.5),
        )
        for group in ("MACRO", "MICRO") for subset in ("no_change", "all")
    ]  # fmt: skip
    place = work.place("BERT-base", "pararel-improve") / "seed-42" / "improved"
    place.mkdir(parents=True)
    table = pl.DataFrame(rows).with_columns(p=pl.when(group="MACRO").then(0.9).otherwise("p"))
    table.write_csv(place / "comparison.csv")
    found = cells(carry_out(RECIPES["pararel-mcnemar"], work)[1])
    row = "BERT-ft vs BERT-base"
    assert found["", row, "p (McNemar)"]["ours"] == 0.04
    assert found["", row, "p (McNemar)"]["verdict"] == "differs"
    assert found["", row, "Consistency"]["ours"] == pytest.approx(5.8)
    assert found["", row, "Consistency"]["verdict"] == "same"
    assert found["", row, "p of Consistency, paired permutation of subjects"]["ours"] == 0.5


def test_the_largest_p_of_pearsons_coefficients_counts(told, tmp_path):
    """Seven models, of which the sixth has p = .02; Spearman's .5 do not count."""
    told["knowledge"] = {
        "correlations": [
            {"run": row, "x": x, "y": "consistency", "method": method, "value": 0.1 * at,
             "low": 0.0, "high": 0.9, "p": p}
            for at, row in enumerate(MODELS)
            for x, method, p in (
                ("accuracy", "pearson", 0.02 if at == 5 else 0.001),
                ("accuracy", "spearman", 0.5), ("successful_objects", "pearson", 0.6),
            )
        ]
    }  # fmt: skip
    found = cells(carry_out(RECIPES["pararel-correlations"], Work(tmp_path))[1])
    assert found["", "all models", "p (correlation)"]["ours"] == 0.02
    assert found["", "all models", "p (correlation)"]["verdict"] == "differs"
    correlation = found["", "RoBERTa-base", "Correlation Accuracy/Consistency"]
    assert (correlation["ours"], correlation["high"]) == (pytest.approx(30), pytest.approx(90))
    assert correlation["verdict"] == "within"


def test_the_relations_of_the_training_are_31():
    assert len(TEST) == 25
    assert {*TEST, *TRAIN, *VALIDATION} == set(N_TO_1)


def test_agreement_is_that_of_the_released_answers(consilience, tmp_path):
    """149/156 = 95.51 and 60/61 = 98.36; Wilson's interval of k of n with z = 1.96.

    Its centre is (k + z²/2) / (n + z²), its half-width z sqrt(k(n-k)/n + z²/4) / (n + z²).
    """
    status, out, _ = consilience("reproduce", "pararel-agreement", "--out", tmp_path, "--json")
    rows = {(row["row"], row["column"]): row for row in json.loads(out)["numbers"]}
    assert status == 0
    assert round(rows["paraphrases", "Agreement"]["ours"], 1) == 95.5
    assert math.floor(rows["controls", "Agreement"]["ours"] * 10) / 10 == 98.3
    assert "cut, not rounded" in json.loads(out)["notes"][1]
    for row, right, pairs in (("paraphrases", 149, 156), ("controls", 60, 61)):
        z = 1.959964
        half = z * math.sqrt(right * (pairs - right) / pairs + z * z / 4)
        ends = [100 * (right + z * z / 2 + side * half) / (pairs + z * z) for side in (-1, 1)]
        share = rows[row, "Agreement"]
        assert [share["low"], share["high"]] == pytest.approx(ends, abs=1e-4)
        assert rows[row, "Pairs"]["verdict"] == "same"


@pytest.fixture(scope="module")
def of_pararel(tmp_path_factory):
    return Once(tmp_path_factory.mktemp("reproduce"), data_dir=real_data("pararel").parent)


@pytest.mark.parametrize("name", ["pararel-table-1", "pararel-data"])
def test_the_resource_is_the_papers(of_pararel, here, name):
    """38 relations, 328 patterns, 2 to 20, 8.63 each; 4.74 and 6.03; 26,813 tuples; 31 and 7."""
    numbers = carry_out(RECIPES[name], of_pararel)[1]
    assert set(numbers["verdict"]) == {"same"}
    assert numbers.height == {"pararel-table-1": 7, "pararel-data": 3}[name]


@pytest.mark.parametrize("table", [2, 3, 4, 5, 7])
def test_the_majority_baseline_has_the_papers_numbers(of_pararel, here, table):
    of_pararel.only = ["majority"]
    numbers = carry_out(RECIPES[f"pararel-table-{table}"], of_pararel)[1]
    rows = numbers.filter(pl.col("row") == "majority")
    assert rows.height == {2: 4, 3: 3, 4: 3, 5: 2, 7: 3}[table]
    for row in rows.iter_rows(named=True):
        assert round(row["ours"], 1) == row["paper"], row["column"]
        assert round(row["std"], 1) == row["paper_std"], row["column"]
    assert set(numbers.filter(pl.col("row") != "majority")["verdict"]) == {"not asked"}


def test_types_of_paraphrases_are_the_papers_by_hand_and_ours_by_rule(of_pararel, here):
    pytest.importorskip("spacy")
    of_pararel.only = ()
    numbers = carry_out(RECIPES["pararel-table-8"], of_pararel)[1]
    counted = numbers.filter(pl.col("column").is_in(["N.", "Pairs"]))
    assert set(counted["verdict"]) == {"by hand"}
    assert counted["paper"].sum() == 130 + 100
    ours = numbers.filter(pl.col("column") == "by rule, % of pairs")
    assert (ours.height, set(ours["verdict"])) == (11, {"ours alone"})
    assert ours["ours"].is_between(0, 100).all()


def test_without_data_a_recipe_says_so(consilience, tmp_path):
    command = [sys.executable, "-m", "consilience", "reproduce", "pararel-table-1"]
    done = subprocess.run(
        [*command, "--data-dir", tmp_path / "none", "--out", tmp_path / "r"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "pararel-table-1: not here: " in done.stderr
    assert "consilience data fetch pararel" in done.stderr
    assert done.stdout.count("not here") == 7
