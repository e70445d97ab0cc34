"""Runs, pages and tables that tests of reports share, and a reader of pages."""

import json
import math
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import polars as pl

from conftest import ROOT, run_command
from consilience.analysis.examples import CHANGED_ANSWERS_SCHEMA, Example, Reply
from consilience.core.schemas import ANSWERS_SCHEMA, COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.plans.pairs import suite_of_task
from consilience.report.export import Folded, html_text
from consilience.report.report_page import report_page
from consilience.report.run_view import RunView
from consilience.report.summary import Summary, SummaryRow
from consilience.report.table import Table
from consilience.runs.folder import RunFolder, content_digest
from consilience.suites.pairs import TASKS
from consilience.types import WORDS
from test_metrics import make_suite

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
        elif tag == "small" and "th" in self.open:
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
        """The rows of the one table with this in its caption, by their first cell."""
        (table,) = (rows for title, rows in self.tables.items() if caption in title)
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


def shown_number(value, template="{:.1f}"):
    return "-" if value is None or math.isnan(value) else template.format(100 * value)


def change_record(run, **changes):
    """Change fields of run.json."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | changes))


LABELS = ("entailment", "not_entailment")
FORMS = suite_of_task(TASKS["rte"], ["original", "reverse", "signal"], with_text=False)


def kept_run(folder, suite, answers, **settings):
    """The folder of a finished run of made answers; their column ``input`` is what was asked."""
    kind = next(kind for kind, words in WORDS.items() if words == suite.words)
    queries = answers.select(*("group", "item", "subject", "variant", "gold", "input"))
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
             "dtype": "float32", "device": "cpu", "joined": "pair", "pool": "last",
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


def metrics_rows(**values):
    """Means over relations, and one relation, of some metrics; std, low, high around the value."""
    rows = [
        {"metric": metric, "over": "group" if group else "mean", "group": group, "kind": "whole",
         "level": "", "value": value, "std": 0.01, "low": value - 0.02, "high": value + 0.03,
         "n": n, "n_excluded": 2}
        for metric, value in values.items()
        for group, n in (("", 1), ("R", 40))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def shown(**change):
    """A run of two patterns whose every number is another one; ``change``: fields of its facts."""
    of_sample = {"over": pl.lit("all"), "n": pl.lit(40, pl.Int64)}
    flips = metrics_rows(flips=0.05).filter(over="mean").with_columns(**of_sample)
    replies = (Reply("[X] [Y]", "yes", True, 2.0), Reply("[Y] [X]", "no", False, 1.0))
    example = Example("right_and_wrong", "R", "1", "Ada", "yes", frozenset({"no"}), replies)
    metrics = metrics_rows(accuracy=0.2, consistency=0.5).vstack(flips)
    frames = json.loads((CASES / "report_view.json").read_text(encoding="utf-8"))
    facts = {name: pl.DataFrame(rows) for name, rows in frames.items()}
    facts |= {"protocol": "strict", "examples": {"both": [example]}}
    facts["prompts"] = {("R", "1", "[X] [Y]"): "Ada ___", ("R", "1", "[Y] [X]"): "___ Ada"}
    facts |= change
    summary = summary_of(("accuracy", 0.2, 0.1), ("consistency", 0.5, 1.0))
    return RunView("run", {}, make_suite(), metrics, summary, warnings=["mind the gap"], **facts)


def summary_of(*rows, chance=0.3):
    """A summary of metrics with their values and those of the majority baseline."""
    shown = [
        SummaryRow(metric.capitalize(), metric, "whole", "", value, value - 0.1, value + 0.1,
                   baseline, "", chance if metric == "consistency" else math.nan, "mean")
        for metric, value, baseline in rows
    ]  # fmt: skip
    return Summary("run on s", shown, [("R", 0.1)], [("S", 0.9)], 2, ["so"])


def texts(parts):
    """The headings and rows of every table among the parts of a section, as texts, by caption."""
    found = {}
    for part in parts:
        if isinstance(part, Table):
            rows = [
                [" ".join(filter(None, html_text(*pair))) for pair in row]
                for _, row in part.by_block()
            ]
            found[part.title] = [[column.heading for column in part.columns], *rows]
        elif isinstance(part, Folded):
            found |= texts(part.parts)
    return found


def differences(**rows):
    """Rows of a comparison of the runs a and b; ``rows``: fields by any name."""
    row = {"over": "group", "group": "", "kind": "whole", "level": "", "first": "a", "second": "b",
           "first_value": 0.1, "second_value": 0.25, "difference": 0.15, "low": 0.05, "high": 0.2,
           "test": "t",
           "p": 0.02, "p_holm": 0.04, "q_value": 0.03, "detectable": 0.07, "n": 5, "n_excluded": 0}  # fmt: skip
    return pl.DataFrame([row | fields for fields in rows.values()], schema=COMPARISON_SCHEMA)


def changed_answers(**times):
    """Changed answers of the task rte: so many of each original answer, by form."""
    row = dict.fromkeys(CHANGED_ANSWERS_SCHEMA, "x") | {"group": "rte", "answer": "y", "gold": "y"}
    return [
        row | {"perturbation": "signal" if was == "r" else "reverse", "original_answer": was}
        for was, count in times.items()
        for _ in range(count)
    ]


def page_of_facts():
    rows = {over: {"metric": "accuracy", "over": over, "group": "R" * (over == "group")}
            for over in ("mean", "all", "group")}  # fmt: skip
    return report_page([shown()], differences(**rows), ["so"])


def page_of_pairs():
    """Two runs; of six changed answers the most frequent change is first."""
    metrics = form_metrics(
        ("accuracy", "", 0.8), ("accuracy", "reverse", 0.7), ("consistency", "", 0.65),
        ("consistency", "reverse", 0.6), ("corrected_consistency", "reverse", 0.3),
        ("f1", "", 0.82), ("f1", "reverse", 0.72),
    )  # fmt: skip
    changed = pl.DataFrame(changed_answers(p=1, q=2, r=3))
    summary = summary_of(("accuracy", 0.8, 0.5), ("consistency", 0.6, 1.0))
    runs = [RunView(name, {}, FORMS, metrics, summary, changed=changed) for name in "ab"]
    row = {"metric": "consistency", "group": "rte", "kind": "form", "level": "reverse"}
    return report_page(runs, differences(row=row))


def form_metrics(*numbers):
    """Metric, form and value of each."""
    rows = [
        {"metric": metric, "over": "group", "group": "rte", "kind": "form" if form else "whole",
         "level": form, "value": value, "low": value - 0.1, "high": value + 0.1, "n": 9,
         "n_excluded": 0}
        for metric, form, value in numbers
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)
