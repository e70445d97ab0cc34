"""All answers on one page: what its data hold, hostile texts, its size, and the page in a browser."""

import base64
import gzip
import json
import re
import sys
import webbrowser
from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from conftest import run_command
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.core.schemas import REASONS
from consilience.report.answers_page import answers_page
from consilience.runs.run import Run
from consilience.types import QUESTION_WORDS, Candidates, Relation, Suite
from pair_builders import write_pairs
from report_builders import CASES, HOSTILE, Html, write_hostile_suite

MARKS = ("wrong", "right", "elsewhere", "none")
QUESTIONS = [
    {"question": f"{word}?", "question_2": f"Say: {word}?", "options": "yes;no;maybe", "answer": "yes"}
    for word in ("one", "two", "three")
]  # fmt: skip
OPEN = [{"question": f"{word}?", "answer": "yes"} for word in ("one", "two", "three")]


def data_of(page):
    """The data in a page."""
    text = page.read_text(encoding="utf-8") if hasattr(page, "read_text") else page
    (script,) = re.findall('<script type="application/gzip" id="data">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(script, validate=True)))


def rows_of(data, run=0):
    """Of every answer of a run: item, variant, prompt, gold, mark, answer, and what was written."""
    texts = [*data["texts"], None]  # -1 is none
    for group, item, _, gold, prompts, *replies in data["items"]:
        for name, prompt, reply in zip(
            data["groups"][group][1], prompts, replies[run], strict=True
        ):
            if reply >= 0:
                verdict, answer, said = data["replies"][reply]
                lines = data["prompts"][prompt] if prompt >= 0 else []
                sent = "\n".join(texts[line] for line in lines)
                heads = (texts[item], texts[name], sent, texts[gold])
                yield *heads, MARKS[verdict], texts[answer], texts[said]


def seen_of(answers):
    """What the page should say of the rows of an answers table."""
    for row in answers.iter_rows(named=True):
        mark = "right" if row["answer"] == row["gold"] else "wrong"
        yield row["item"], row["variant"], row["gold"], mark, row["answer"]


@pytest.mark.parametrize(("suite", "options", "prompt"), [
    ("mini", {"groups": "capital", "limit": 3}, "^.*\\[Y\\].*[.]$"),
    ("mrpc", {"perturbations": "reverse"}, "^Sentence[12]: .*\nSentence[12]: "),
    (QUESTIONS, {}, "^Question: (Say: )?(one|two|three)\\?\nA. (yes|no|maybe)\nB. "),
    (OPEN, {"generate": True}, "^Question: (one|two|three)\\?\nAnswer:$"),
])  # fmt: skip
def test_a_page_has_every_answer_with_its_prompt(suite, options, prompt, tmp_path):
    if suite == "mrpc":
        options = {**options, "data": write_pairs(tmp_path / "pairs.jsonl")}
    run = tmp_path / "run"
    cs.evaluate(suite, "baseline:random", out=run, **options)
    page = cs.view_answers(run)
    assert page == run / "answers.html"
    rows = [*rows_of(data_of(page))]
    shown = [(item, name, gold, mark, answer) for item, name, _, gold, mark, answer, _ in rows]
    assert sorted(shown) == sorted(seen_of(Run.open(run).answers))
    assert len({row[:3] for row in rows}) == len(rows)
    assert all(re.match(prompt, row[2]) for row in rows), rows[0]


def test_factors_languages_and_forms_are_filters(tmp_path):
    for suite, options, factors in (
        (QUESTIONS, {}, {"paraphrase": 2, "order": 3}),
        ("mini-languages", {"groups": "capital", "limit": 2}, {"language": 4}),
        ("mini", {"groups": "capital", "limit": 2}, {}),
    ):
        run = tmp_path / str(len([*tmp_path.iterdir()]))
        data = data_of(cs.view_answers(cs.evaluate(suite, "baseline:random", out=run, **options)))
        assert {name: len(levels) for name, levels in data["factors"]} == factors
        for _, variants, levels in data["groups"]:
            assert len(levels) == len(variants) and {*map(len, levels)} == {len(factors)}


@pytest.mark.parametrize("reason", REASONS)
def test_verdicts_and_what_was_written(reason):
    """By hand: right, of another fact of the subject, wrong in other words, and no answer."""
    facts = [("Peru", "Chile"), ("Peru", "Brazil")]
    suite = cs.Suite.from_patterns(["[X] borders [Y].", "[Y] is next to [X]."], facts, name="near")
    items = [fact.item for fact in suite.relations[0].facts]
    names = suite.relations[0].design.variants
    head = {"group": "near", "subject": "Peru"}
    first, second = (
        {**head, "item": item, "gold": gold} for item, (_, gold) in zip(items, facts, strict=True)
    )
    rows = [
        first | {"variant": names[0], "answer": "Chile", "text": "Chile", reason: None},
        first | {"variant": names[1], "answer": "Brazil", "text": None, reason: None},
        second | {"variant": names[0], "answer": "the sea", "text": "The Sea\n!", reason: None},
        second | {"variant": names[1], "answer": None, "text": None, reason: "too long"},
    ]  # fmt: skip
    shown = [
        row[-3:] for row in rows_of(data_of(answers_page({"a": pl.DataFrame(rows)}, suite, None)))
    ]
    assert shown == [
        ("right", "Chile", None), ("elsewhere", "Brazil", None),
        ("wrong", "the sea", "The Sea\n!"), ("none", None, "too long"),
    ]  # fmt: skip


def test_two_runs_are_side_by_side_on_the_items_of_both(tmp_path, consilience):
    """Items that one run lacks are left out with a note."""
    for name, limit in (("a", 3), ("b", 2)):
        cs.evaluate("mini", "baseline:random", groups="capital", limit=limit, out=tmp_path / name)
    cs.evaluate("mini", "baseline:majority", groups="capital", limit=3, out=tmp_path / "c")
    assert output(consilience, "view", "one=a", "two=c") == "a/answers.html\n"
    data = data_of(tmp_path / "a" / "answers.html")
    assert (data["runs"], data["notes"]) == (["one", "two"], [])
    for at, name in enumerate("ac"):
        answers = Run.open(tmp_path / name).answers.sort("item", "variant")["answer"].to_list()
        assert [row[5] for row in sorted(rows_of(data, at))] == answers
    status, _, err = consilience("view", "a", "b", "--out", "few.html")
    assert status == 0 and "that all runs have" in err
    few = data_of(tmp_path / "few.html")
    assert len(few["items"]) == 2 and "that all runs have" in few["notes"][0]
    cs.evaluate(QUESTIONS, "baseline:random", out=tmp_path / "q")
    assert "no query that all runs have" in refusal(consilience, "view", "a", "q")
    assert "a page in '.pdf'" in refusal(consilience, "view", "a", "--out", "page.pdf")


@pytest.mark.parametrize(("is_terminal", "more", "opened"), [
    (True, (), 1), (False, (), 0), (True, ("--json",), 0),
])  # fmt: skip
def test_a_browser_opens_only_from_a_terminal(
    is_terminal, more, opened, tmp_path, consilience, monkeypatch
):
    run, addresses = tmp_path / "run", []
    cs.evaluate("mini", "baseline:random", groups="capital", limit=2, out=run)
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    output(consilience, "view", run, *more)
    assert addresses == [(run / "answers.html").as_uri()] * opened


ODD = [
    "\x00\x1b[2J\x9b",
    "\u202eabc\u2066",
    "\ud800",
    "\u2028",
    "<!--<script>",
    "\u200f\u05e9\u05dc",
]
"""Controls of terminals and of direction, half a character, and what opens a script or a comment."""


def test_texts_of_models_neither_end_the_script_nor_run(tmp_path):
    suite = write_hostile_suite(tmp_path / "suite")
    run = tmp_path / "run"
    status, _, err = run_command("probe", "-m", "baseline:random", "-s", suite, "--out", run)
    assert status == 0, err
    page = cs.view_answers(run).read_text(encoding="utf-8")
    assert len(Html(page).all("script")) == 2 and not Html(page).all("img")
    assert {HOSTILE[0], HOSTILE[2]} <= {*data_of(page)["texts"]}
    design = replace(Design.of_cells(FactorialDesign.full(()), 0), writes_freely=True)
    group = Relation.of_design("g", (), Candidates((), ()), design)
    suite = Suite("<b>", (group,), words=QUESTION_WORDS)
    head = {"group": "g", "variant": design.variants[0], "gold": "x"}
    rows = [
        {**head, "item": str(at), "subject": str(at), "answer": text, "text": f"{text}!"}
        for at, text in enumerate([*HOSTILE, *ODD[:2], *ODD[3:]])
    ]
    prompts = pl.DataFrame([{key: row[key] for key in ("group", "item", "variant")} | {"prompt": row["text"]} for row in rows])  # fmt: skip
    page = answers_page({"</script><b>": pl.DataFrame(rows)}, suite, prompts, [HOSTILE[0], ODD[2]])
    script = page[page.index('id="data"') :]
    assert len(Html(page).all("script")) == 2 and not Html(page).all("b")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", page
    )
    assert "<!--" not in script and script.lower().count("<script") == 1
    texts = data_of(page)["texts"]
    assert "\ufffd\ufffd[2J\ufffd" in texts and ODD[-1] in texts


CELLS = FactorialDesign.full(
    (Factor("paraphrase", ("1", "2")), Factor("order", ("ABCD", "BCDA", "CDAB", "DABC")))
)  # fmt: skip


def made_page(items, runs=("first", "second"), is_written=False):
    """Questions in eight variants: right in all, but every third has one other answer in each run.

    The other answer is in the second order; the runs give another one for every fifth item.
    """
    design = Design.of_cells(CELLS, 4)
    groups = [Relation.of_design(name, (), Candidates((), ()), design) for name in ("even", "odd")]
    suite = Suite("made", tuple(groups), words=QUESTION_WORDS)
    tables, prompts = {name: [] for name in runs}, []
    for at in range(items):
        options = [f"City {at}", f"Town {at}", f"Village {at}", f"Port {at}"]
        for place, name in enumerate(design.variants):
            key = {"group": ("even", "odd")[at % 2], "item": f"q{at}", "variant": name}
            turned = options[place % 4 :] + options[: place % 4]
            lines = [f"{label}. {text}" for label, text in zip("ABCD", turned, strict=True)]
            question = f"Question: Where did the {at}th meeting of the society of all travellers take place?"
            prompts.append({**key, "prompt": "\n".join([question, *lines, "Answer:"])})
            for run, rows in enumerate(tables.values()):
                other = at % 3 == 0 and place % 4 == 1
                chosen = options[1 + run * (at % 5 == 0)] if other else options[0]
                rows.append({**key, "subject": f"q{at}", "gold": options[0], "answer": chosen})
                if is_written:
                    words = (f"{at * place * word % 9973:x}" for word in range(30))
                    rows[-1] |= {"text": " ".join([name, *words])}
    frames = {name: pl.DataFrame(rows) for name, rows in tables.items()}
    return answers_page(frames, suite, pl.DataFrame(prompts))


@pytest.mark.parametrize(("is_written", "most"), [(False, 3e5), (True, 2e6)])
def test_ten_thousand_answers_take_two_megabytes(is_written, most):
    """Also if each answer is a text of 30 words of its own."""
    page = made_page(1250, ["only"], is_written)
    assert len(data_of(page)["items"]) == 1250
    assert len(page.encode()) < most


FRAME = """<body><script>addEventListener("message", event => {{ document.body.dataset.seen = event.data; }});
</script><iframe src="driven.html" style="width: {width}px; height: 900px; border: 0"></iframe></body>"""


def seen_in(browse, page, width, folder):
    """What the driver saw of a page at a width in pixels."""
    driver = (CASES / "answers_browser.html").read_text(encoding="utf-8")
    (folder / "driven.html").write_text(page.rpartition("</body>")[0] + driver, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    document, logged = browse(folder / "frame.html", "--window-size=1400,1000")
    assert logged == []
    return json.loads(Html(document).all("body")[0]["data-seen"])


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_the_rows_of_the_screen_filters_and_moves(width, browse, tmp_path):
    """6,000 questions, 96,000 answers. By hand: 2,000 disagree, and in 400 the runs differ."""
    seen = seen_in(browse, made_page(6000), width, tmp_path)
    assert (seen["blocked"], seen["failed"], seen["requests"]) == ([], [], [])
    assert seen["focused"] and seen["slash"] and seen["back"] and not seen["wide"]
    assert seen["drawn"] < 40
    assert seen["all"] == "6,000 of 6,000 questions"
    assert (
        "Where did the 0th meeting" in seen["row"]
        and "\u2713\u00a0City 0 (right) \u00d76" in seen["row"]
    )
    assert "\u2260\u00a02" in seen["row"] and "A. City 0\nB. Town 0" in seen["item"]
    assert seen["moves"][:5] == [1, 2, 1, 5999, 0] and 2 < seen["moves"][5] < 30
    assert seen["text"].startswith("111 ") or seen["text"].startswith("1,111 ")
    assert seen["nothing"] == "0 of 6,000 questions Nothing passes the filters."
    counts = {name: seen[name].partition(" ")[0] for name in seen if " " in name}
    assert counts == {
        "show disagree": "2,000", "show agree": "4,000", "show wrong": "2,000", "show differ": "400",
        "show all": "6,000", "order 0": "6,000", "order -1": "6,000", "group 1": "3,000",
    }  # fmt: skip
    assert seen["clicked"] >= 0


def test_a_browser_runs_no_text_of_a_model(browse, tmp_path):
    suite = write_hostile_suite(tmp_path / "suite")
    run_command("probe", "-m", "baseline:random", "-s", suite, "--out", tmp_path / "run")
    page = cs.view_answers(tmp_path / "run").read_text(encoding="utf-8")
    driver = "<script>addEventListener('load', () => { document.title = [document.body.dataset.owned, document.querySelectorAll('b b, img').length, document.querySelectorAll('#rows .row').length].join(); });</script></body>"
    (tmp_path / "page.html").write_text(page.rpartition("</body>")[0] + driver, encoding="utf-8")
    document, logged = browse(tmp_path / "page.html")
    assert logged == []
    assert re.search(r"<title>,0,(\d+)</title>", document)
