"""Tables for papers, character by character."""

import math

import pytest

from consilience.report.sheets import (
    Number,
    Sheet,
    as_csv,
    as_latex,
    as_markdown,
    save_sheet,
)

SHEET = Sheet(
    "Right & wrong, 50 % of_it",
    "model",
    ("Acc", "n*"),
    (
        ("", "majority", (Number(99.0, 21.04), Number(3, digits=0))),
        ("A|B", "bert_base", (Number(45.84, 25.6), Number(1, digits=0))),
        ("A|B", "bert~large", (Number(45.76, 0.0), Number(2, digits=0))),
        ("late", "small", (Number(math.nan), "<none>")),
    ),
    best=("Acc",),
    apart=("majority",),
)
"""45.84 and 45.76 are both printed as 45.8, so both are best; the majority is apart."""


def test_csv_has_every_number_in_full_and_its_std_behind_it():
    assert as_csv(SHEET) == (
        "group,model,Acc,Acc std,n*\n"
        ",majority,99.0,21.04,3\n"
        "A|B,bert_base,45.84,25.6,1\n"
        "A|B,bert~large,45.76,0.0,2\n"
        "late,small,,,<none>\n"
    )


def test_csv_has_no_formula_and_its_numbers_stay_numbers():
    rows = (("=A1", "@run", (Number(-1.5), "-2+3")), ("", "-3", (Number(2.0), "-")))
    assert as_csv(Sheet("title", "+name", ("=Acc", "n"), rows)) == (
        "group,'+name,'=Acc,n\n'=A1,'@run,-1.5,'-2+3\n,-3,2.0,-\n"
    )


def test_markdown_escapes_what_would_be_markup_and_has_the_best_in_bold():
    assert as_markdown(SHEET) == (
        "**Right & wrong, 50 % of\\_it**\n"
        "\n"
        "| model | Acc | n\\* |\n"
        "|---|---:|---:|\n"
        "| majority | 99.0 ± 21.0 | 3 |\n"
        "| *A\\|B* | | |\n"
        "| bert\\_base | **45.8** ± 25.6 | 1 |\n"
        "| bert~large | **45.8** ± 0.0 | 2 |\n"
        "| *late* | | |\n"
        "| small | - | \\<none\\> |\n"
    )


def test_latex_escapes_what_would_be_commands():
    assert as_latex(SHEET) == (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{table}\n"
        "\\centering\n"
        "\\caption{Right \\& wrong, 50 \\% of\\_it}\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "model & Acc & n* \\\\\n"
        "\\midrule\n"
        "majority & 99.0 $\\pm$ 21.0 & 3 \\\\\n"
        "\\midrule\n"
        "\\multicolumn{3}{l}{\\emph{A\\textbar{}B}} \\\\\n"
        "bert\\_base & \\textbf{45.8} $\\pm$ 25.6 & 1 \\\\\n"
        "bert\\textasciitilde{}large & \\textbf{45.8} $\\pm$ 0.0 & 2 \\\\\n"
        "\\midrule\n"
        "\\multicolumn{3}{l}{\\emph{late}} \\\\\n"
        "small & -- & \\textless{}none\\textgreater{} \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\\b", r"a\textbackslash{}b"),
        ("5 % & $1 #2 _3", r"5 \% \& \$1 \#2 \_3"),
        ("{x}~y^z", r"\{x\}\textasciitilde{}y\textasciicircum{}z"),
        ("1±2 \N{MINUS SIGN}3 < 4 > …", r"1$\pm$2 $-$3 \textless{} 4 \textgreater{} \ldots{}"),
        ("two\nlines", "two lines"),
    ],
)
def test_signs_of_latex(text, escaped):
    sheet = Sheet("", text, (), ())
    assert f"\n{escaped} \\\\\n" in as_latex(sheet)


def test_numbers_are_rounded_once_and_nothing_is_minus_nothing():
    assert Number(-0.04).plain == "0.0"
    assert Number(-1.26).plain == "-1.3"
    assert Number(8.634, digits=2).plain == "8.63"
    assert Number(7, digits=0).plain == "7"
    assert (Number(math.nan).plain, Number(1.0).spread, Number(1.0, 0.04).spread) == (
        "-",
        "",
        "0.0",
    )
    below = Sheet("", "", ("d",), (("", "a", (Number(-1.26),)), ("", "b", (Number(-2.0),))), ("d",))
    assert "a & \\textbf{$-$1.3}" in as_latex(below), "the largest, also below zero"
    assert "| **-1.3** |" in as_markdown(below)


def test_one_number_alone_is_not_the_best():
    rows = (("", "a", (Number(5.0),)), ("", "b", (Number(math.nan),)), ("", "c", ("none",)))
    sheet = Sheet("", "", ("x",), rows, best=("x",))
    assert not any(sheet.is_best(row, 0) for row in range(3))
    assert "**5.0**" not in as_markdown(sheet)
    apart = Sheet("", "", ("x",), (*rows, ("", "d", (Number(4.0),))), best=("x",), apart=("d",))
    assert not any(apart.is_best(row, 0) for row in range(4))


def test_all_three_files_are_written(tmp_path):
    written = save_sheet(SHEET, tmp_path / "new" / "folder", "a.b")
    assert [path.name for path in written] == ["a.b.csv", "a.b.md", "a.b.tex"]
    assert [path.read_text(encoding="utf-8") for path in written] == [
        as_csv(SHEET), as_markdown(SHEET), as_latex(SHEET),
    ]  # fmt: skip


def test_a_table_without_rows():
    empty = Sheet("t", "c", ("x",), ())
    assert as_csv(empty) == "group,c,x\n"
    assert as_markdown(empty) == "**t**\n\n| c | x |\n|---|---:|\n"
    assert "\\midrule\n\\bottomrule" in as_latex(empty)


def test_best_in_its_block():
    """50 is the best of its block, though 60 is of another; a row alone in its block is not."""
    rows = (("a", "x", (Number(40.0),)), ("a", "y", (Number(50.0),)), ("b", "x", (Number(60.0),)))
    sheet = Sheet("", "", ("C",), rows, ("C",), by_block=True)
    assert [sheet.is_best(at, 0) for at in range(3)] == [False, True, False]
    whole = Sheet("", "", ("C",), rows, ("C",))
    assert [whole.is_best(at, 0) for at in range(3)] == [False, False, True]


def test_a_row_is_no_argument_of_the_line_break_before_it():
    """TeX reads [ and * behind a line break, and [ behind a rule."""
    rows = (("", "[X] is [Y]", ("",)), ("", "*", ("",)), ("", "plain", ("",)))
    lines = as_latex(Sheet("", "[c]", ("C",), rows)).splitlines()
    assert lines[6:12] == [
        r"{}[c] & C \\", r"\midrule", r"{}[X] is [Y] &  \\", r"{}* &  \\", r"plain &  \\",
        r"\bottomrule",
    ]  # fmt: skip


def test_notes_stand_below_in_each_format():
    sheet = Sheet("T", "", ("C",), (("", "x", (Number(1.0),)),), notes=["a_b", "two\nlines 5 %"])
    assert as_markdown(sheet).endswith("| x | 1.0 |\n\n* a\\_b\n* two lines 5 %\n")
    assert as_latex(sheet).endswith("\\end{table}\n% a_b\n% two lines 5 %\n")
    assert as_markdown(Sheet("T", "", (), (), notes=["n"])) == "**T**\n\n* n\n"
