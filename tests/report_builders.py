"""Runs that tests of reports share, and a reader of pages."""

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import polars as pl

from conftest import ROOT, run_command
from consilience.core.schemas import ANSWERS_SCHEMA, METRICS_SCHEMA
from consilience.plans.pairs import suite_of_task
from consilience.runs.folder import RunFolder, content_digest
from consilience.suites.pairs import TASKS
from consilience.types import WORDS

HOSTILE = [
    "<script>document.body.dataset.owned = 'yes'</script>",
    '"><img src=x onerror="document.body.dataset.owned=1">',
    "</script><b>bold</b>",
    "{{ 7 * 7 }} {% raw %}",
    "]]>&amp;<!--",
]
CASES = ROOT / "tests" / "cases"
PATTERNS = ("[X] is <b>[Y]</b>.", "[Y] {{ is }} [X]", "</script>[X], [Y]")


class Html(HTMLParser):
    """Elements with attributes, tables as rows of texts by caption, and all visible text."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.tables, self.text, self.open = [], {}, "", []
        self.caption, self.body = None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.caption, self.body = "", []
        elif tag == "tr":
            self.body.append([])
        elif tag in ("td", "th") and self.body:
            self.body[-1].append("")
        elif tag == "small" and self.body:
            self.body[-1][-1] += "\n"

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside not in ("script", "style"):
            self.text += data
        if inside == "caption":
            self.caption += data
        elif "tr" in self.open and data.strip():
            self.body[-1][-1] += data.strip()

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass
        if tag == "table":
            self.tables[self.caption] = self.body

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def rows(self, caption):
        """The rows of the one table whose caption begins so, by their first cell."""
        (table,) = (rows for title, rows in self.tables.items() if title.startswith(caption))
        return {row[0]: row for row in table[1:]}


def write_hostile_suite(folder):
    """Three relations, one with several right answers, whose words would break a page."""
    relations = [
        {"relation": each, "label": HOSTILE[at], "cardinality": "N-M" if each == "C" else "N-1"}
        for at, each in enumerate("ABC")
    ]
    patterns = [{"relation": each, "pattern": text} for each in "ABC" for text in PATTERNS]
    facts = [
        {"relation": each, "subject": f"{HOSTILE[at % 5]} {at}", "object": HOSTILE[at % 4]}
        for each, places in (("A", range(9)), ("B", range(3, 12)), ("C", range(9)))
        for at in places
    ]
    edges = [
        {"relation": each, "pattern_a": PATTERNS[first], "pattern_b": PATTERNS[second],
         "syntactic": first == 0, "lexical": second == 2, "determiner": False}
        for each in "AB"
        for first, second in ((0, 1), (0, 2), (1, 2))
    ]  # fmt: skip
    tables = {"relations": relations, "patterns": patterns, "facts": facts, "edges": edges}
    folder.mkdir()
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def page_of(*arguments):
    """The page of a report, read."""
    status, out, err = run_command("report", *arguments)
    assert status == 0, err
    return Html(Path(out.splitlines()[0]).read_text(encoding="utf-8"))


def change_record(run, **changes):
    """Change fields of run.json."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | changes))


LABELS = ("entailment", "not_entailment")
FORMS = suite_of_task(TASKS["rte"], ["original", "reverse", "signal"], with_text=False)


def kept_run(folder, suite, answers, **settings):
    """The folder of a finished run of made answers; their column ``input`` is what was asked."""
    kind = next(kind for kind, words in WORDS.items() if words == suite.words)
    no_choices = pl.lit(None, pl.List(pl.String)).alias("choices")
    queries = answers.select("group", "item", "subject", "variant", "gold", "input", no_choices)
    known = {
        "kind": kind, "suite": suite.name, "groups": [group.id for group in suite],
        "protocol": suite.protocol, "queries": content_digest(queries), "model": {},
    }  # fmt: skip
    run = RunFolder(folder, known | settings)
    run.write_queries(queries, [group.record for group in suite])
    empty = pl.DataFrame(schema=ANSWERS_SCHEMA)
    whole = pl.concat([answers.drop("input"), empty], how="diagonal_relaxed")
    for (group,), of_group in whole.group_by("group", maintain_order=True):
        run.write_answers(group, of_group)
    run.finish(pl.DataFrame(schema=METRICS_SCHEMA))
    return folder


def pair_run(folder, flip, items=12):
    """Pairs in three forms; ``flip``: the items whose label the reverse form changes."""
    model = {"model": "<b>model</b>", "kind": "masked", "architecture": "B", "parameters": 7,
             "dtype": "float32", "device": "cpu", "joined": "pair",
             "longest": 64}  # fmt: skip
    rows = [
        {"group": "rte", "item": str(at), "subject": f"s{at}", "variant": form,
         "gold": LABELS[at % 2], "answer": LABELS[(at + (form == "reverse" and at in flip)) % 2],
         "margin": 1.0, "n_candidates": 2, "input": ["Sentence1: <i>a</i>", f"Sentence2: {form}"]}
        for at in range(items)
        for form in ("original", "reverse", "signal")
    ]  # fmt: skip
    kept_run(folder, FORMS, pl.DataFrame(rows), model=model, task=asdict(TASKS["rte"]))
    change_record(folder, warnings=["two items were truncated"])
    return folder
