"""Suites as tasks of lm-evaluation-harness, and logs of harnesses, without these packages.

`tests/test_harnesses.py` drives the packages themselves. Here the documented part of
lm-evaluation-harness is played: a document is scored choice by choice, `process_results` gets pairs,
aggregations get the rows of all documents.
"""

import importlib.util
import json
import math
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks import output, refusal, refused
from consilience.files import tables
from consilience.integrations import lm_eval_task as task
from consilience.runs.run import read_answers

QUESTIONS = """group,question,question_2,answer,options
city,Capital of France?,France's capital?,Paris,Lyon;Paris;Nice
city,Capital of Italy?,Italy's capital?,Rome,Rome;Turin;Romeo
open,Language of Docker?,Docker is written in?,Go,
"""


def row(item, variant, answer, right, *, group="", size=2):
    return (group, item, variant, size, list(range(variant)), answer, right)


def test_numbers_of_documents_by_hand():
    rows = [
        row("a", 0, 1, True, size=3), row("a", 1, 1, True, size=3), row("a", 2, 0, False, size=3),
        row("b", 0, 2, False), row("b", 1, 2, False),
        row("c", 0, 0, True, size=3), row("c", 1, 0, True, size=3),  # --limit cut its third variant
        row("b", 1, 0, True),  # a repeated fact counts once
    ]  # fmt: skip
    assert (task.items(rows), task.accuracy(rows)) == (2, 1 / 2)
    unanswered = [
        *rows[:3],
        row("b", 0, task.NAN, False),
        row("b", 1, task.NAN, False),
    ]  # a wrong item
    assert (task.items(unanswered), task.accuracy(unanswered)) == (2, 1 / 2)
    assert task.consistency(unanswered) == 1 / 6  # of a 1 of 3 pairs; no answer agrees with none
    assert task.consistency(rows) == 2 / 3  # of a 1 of 3 pairs agree, of b 1 of 1
    assert task.consistent_accuracy(rows) == 0
    averaged = [row(r[1], *r[2:3], *r[5:], group=r[1], size=r[3]) for r in rows]
    assert task.consistency(averaged) == pytest.approx((1 / 3 + 1) / 2)
    assert task.consistency(reversed(rows[:5])) == 2 / 3  # in any order, as several processes give
    assert math.isnan(task.accuracy([])) and task.items([]) == 0
    assert math.isnan(task.consistency([row("a", 0, 1, True, size=1)]))


def test_the_answer_is_the_most_probable_choice_of_equal_ones_the_first_of_the_file():
    doc = {
        "averaged_group": "", "unit": "a", "variant_index": 1, "n_variants": 2, "compared_with": [0],
        "choices": [" A", " B", " C"], "positions": [2, 0, 1], "gold_index": 0,
    }  # fmt: skip

    def answer(*totals):
        rows = task.process_results(doc, [(total, False) for total in totals])
        assert set(rows) == {"accuracy", "consistency", "consistent_accuracy", "items"}
        return rows["items"][-2:]

    assert answer(-1.0, -2.0, -3.0) == (2, True)
    assert answer(-2.0, -1.0, -1.0) == (0, False)
    found, is_right = answer(-1.0, math.nan, -2.0)
    assert (math.isnan(found), is_right) == (True, False)
    doc["choices"] = ["Rom.", "Paris.", "Rom."]  # candidates that are written alike
    assert answer(-2.0, -3.0, -1.0) == (2, True)


def exported(consilience, suite, *options):
    """The documents of the task that a suite is exported as, in the folder ``tasks``."""
    command = ("suite", "export", suite, *options, "--format", "lm-eval", "-o", "tasks")
    out = output(consilience, *command)
    (file,) = Path("tasks").glob("consilience_*.jsonl")
    docs = list(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    assert (
        f"{len(docs)} documents of {len({(doc['group'], doc['item']) for doc in docs})} it" in out
    )
    return docs


def made_up(text):
    """A log-probability that depends on the whole text."""
    return -1.0 - (sum(at * byte for at, byte in enumerate(text.encode(), 1)) % 101) / 7


def totals_of(doc):
    return [made_up(doc["context"] + choice) for choice in doc["choices"]]


def log_of(docs, path):
    """What `--log_samples` writes of documents whose choices have made-up log-probabilities."""
    lines = []
    for at, doc in enumerate(docs):
        replies = [[str(total), "False"] for total in totals_of(doc)]
        lines.append(json.dumps({"doc_id": at, "doc": doc, "filtered_resps": replies}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def scored(consilience, docs, suite):
    """The numbers of a log of these documents by metric and group, and the rows of the task."""
    log_of(docs, Path("log.jsonl"))
    shown = metrics(output(consilience, "score", "log.jsonl", "-s", suite, "--json", "-o", "run"))
    results = (
        task.process_results(doc, [(total, False) for total in totals_of(doc)]) for doc in docs
    )
    return shown, [result["items"] for result in results]


def metrics(out):
    shown = json.loads(out)["metrics"]
    return {(each["metric"], each["over"]): each for each in shown if each["kind"] == "whole"}


def assert_same_numbers(numbers, rows, over):
    for name in ("accuracy", "consistency", "consistent_accuracy"):
        assert getattr(task, name)(rows) == pytest.approx(numbers[name, over]["value"]), name
        assert numbers[name, over]["n"] > 0


def test_facts_as_a_task_and_back(consilience, write_suite):
    pairs = [("France", "Paris"), ("Germany", "Berlin"), ("Italy", "Rome")]
    facts = [{"relation": "capital", "subject": one, "object": other} for one, other in pairs]
    suite = write_suite(facts=[*facts, facts[-1]])
    docs = exported(consilience, suite)
    assert len(docs) == 4 * 3, "the fact that is there twice, too"
    choices = [f"{city} is the capital of France." for city in ("Paris", "Berlin", "Rome")]
    assert (docs[1]["context"], docs[1]["choices"]) == ("", choices)
    assert_same_numbers(*scored(consilience, docs, suite), "mean")
    paris = read_answers("run").row(0, named=True)
    totals = totals_of(docs[0])
    assert paris["text_logprob"] == pytest.approx(max(totals))
    normal = math.log(sum(map(math.exp, totals)))
    assert paris["gold_logprob"] == pytest.approx(totals[0] - normal)


def test_relations_with_several_right_answers_are_in_no_mean(consilience):
    docs = exported(consilience, "mini", "--groups", "capital,borders", "--limit", "2")
    of_groups = {doc["group"]: doc["averaged_group"] for doc in docs}
    assert of_groups == {"capital": "capital", "borders": None}
    assert_same_numbers(*scored(consilience, docs, "mini"), "mean")


@pytest.fixture
def questions(tmp_path):
    (path := tmp_path / "mine.csv").write_text(QUESTIONS, encoding="utf-8")
    return path


@pytest.mark.parametrize("labels", ["A,1", "A,none"])
def test_questions_as_a_task_and_back(consilience, questions, labels):
    arguments = ("--groups", "city", "--vary", "order=all", "--vary", f"labels={labels}",
                 "--vary", "paraphrase=all")  # fmt: skip
    docs = exported(consilience, questions, *arguments)
    assert len(docs) == 2 * 2 * 6 * 2
    first, last = docs[0], docs[-1]
    assert (first["choices"], last["choices"]) == (
        ([" A", " B", " C"], [" 1", " 2", " 3"]) if labels == "A,1" else
        ([" Lyon", " Paris", " Nice"], [" Romeo\n", " Turin\n", " Rome\n"])  # Rome begins Romeo
    )  # fmt: skip
    assert first["context"].endswith("Answer:") and last["options"] == ["Romeo", "Turin", "Rome"]
    assert_same_numbers(*scored(consilience, docs, questions), "all")
    answers = read_answers("run")
    assert answers["option_scores"].list.len().to_list() == [3] * 48
    chosen = {(item, variant): option for item, variant, option
              in answers.select("item", "variant", "option").iter_rows()}  # fmt: skip
    for doc in docs:
        by_hand = max(zip(totals_of(doc), (-at for at in doc["positions"]), strict=True))
        assert chosen[doc["item"], doc["variant"]] == -by_hand[1]


def test_questions_that_lack_variants_count_by_those_that_they_have(consilience, tmp_path):
    """The second question has one phrasing and two orders, the first two and three."""
    (path := tmp_path / "mine.csv").write_text(
        "question,question_2,answer,options\nCapital of Italy?,Italy's capital?,Rome,Rome;Turin;Bari\n"
        "Capital of Spain?,,Madrid,Vigo;Madrid\n", encoding="utf-8",
    )  # fmt: skip
    docs = exported(consilience, path, "--vary", "paraphrase=all", "--vary", "order=rotations")
    assert [doc["n_variants"] for doc in docs] == [6] * 6 + [2] * 2
    numbers, rows = scored(consilience, docs, path)
    assert task.items(rows) == 2
    assert_same_numbers(numbers, rows, "all")


@pytest.mark.parametrize(("arguments", "message"), [
    (("rte", "-o", "tasks"), "the sentence pairs of rte"),
    (("mine.csv", "-o", "tasks"), "open questions, or a chat, in the group 'open'"),
    (("mine.csv", "--groups", "city", "--template", "chat", "-o", "tasks"),
     "open questions, or a chat, in the group"),
    (("mini",), "without a folder. Add --out DIR"),
    (("mini", "-o", "mine.csv"), "mine.csv: "),
])  # fmt: skip
def test_what_is_no_task_is_refused(arguments, message, consilience, questions, tmp_path):
    assert message in refusal(consilience, "suite", "export", *arguments, "--format", "lm-eval")
    assert not (tmp_path / "tasks").exists()


def test_logs_of_other_tasks_and_other_suites_are_refused(consilience, tmp_path):
    reply = [["-1.0", "False"], ["-2.0", "False"]]
    log = tmp_path / "log.jsonl"

    doc = {"group": "capital", "item": "capital-1", "subject": "France", "gold": "Paris",
           "variant": "The capital of [X] is [Y].", "variant_index": 0}  # fmt: skip
    for about, replies, message in (
        ({"question": "?"}, reply, "without group, item"),
        (doc, reply, "row 1"),
        (doc, reply, "2 log-probabilities; expected"),
        (doc, ["written text"], "without the log-probability of each choice"),
        (doc | {"group": "capitol"}, reply, "no group 'capitol'"),
    ):
        line = {"doc_id": 0, "doc": about, "filtered_resps": replies}
        log.write_text(json.dumps(line) + "\n", encoding="utf-8")
        assert message in refusal(consilience, "score", log, "--suite", "mini")


def test_the_model_of_a_log_is_that_of_the_results_beside_it(consilience, tmp_path):
    docs = exported(consilience, "mini", "--groups", "capital", "--limit", "2")
    date = "2026-11-23T13-16-29.122945"
    log_of(docs, log := tmp_path / f"samples_consilience_mini_{date}.jsonl")
    (tmp_path / f"results_{date}.json").write_text('{"model_name": "org/small"}')
    out = output(consilience, "score", log, "--suite", "mini", "-o", "run")
    assert out.startswith("small on mini: 1 relation, 2 facts")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["model"]["model"] == "org/small"


def test_the_functions_of_a_task_need_nothing_of_ours(consilience, tmp_path):
    exported(consilience, "mini", "--limit", "1")
    path = tmp_path / "tasks" / "consilience_task.py"
    assert not any(f"{word} consilience" in path.read_text() for word in ("import", "from"))
    spec = importlib.util.spec_from_file_location("consilience_task", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.items([row("a", 0, 1, True, size=1)]) == 1


def sample(item, variant, options, text, epoch=1, variant_index=0):
    about = {"group": "city", "item": item, "variant": variant, "options": options}
    about["variant_index"] = variant_index
    output = SimpleNamespace(completion=text)
    return SimpleNamespace(id=item, epoch=epoch, metadata=about, output=output)


@pytest.fixture
def log(monkeypatch, tmp_path):
    """The path of a log of inspect_ai, and what its reader gives."""
    log = SimpleNamespace(samples=[], eval=SimpleNamespace(model="openai/small"))
    monkeypatch.setattr(tables, "_read_inspect", lambda path, **_: log)
    (path := tmp_path / "log.eval").write_bytes(b"")
    return path, log


def test_logs_of_inspect_become_rows_of_answers(log):
    path, log = log
    log.samples = [sample("a", "order=given", ["x", "y"], "A")]
    assert read_answers(path).to_dicts() == [
        {"group": "city", "item": "a", "variant": "order=given", "variant_index": "0",
         "options": '["x", "y"]', "answer": "A"}
    ]  # fmt: skip
    assert tables.model_of_log(path) == "openai/small"
    log.samples[0].metadata = {"item": "a", "variant_index": 0}
    refused("without variant in its metadata; expected the columns of", read_answers, path)
    log.samples = None  # a log of an evaluation that failed
    assert read_answers(path).is_empty()


def test_epochs_of_questions_are_levels_of_the_factor_sample(consilience, questions, log):
    """By hand: the pairs of six answers that agree, and those that differ in the epoch alone."""
    path, log = log
    shown = {"given": ["Lyon", "Paris", "Nice"], "rotation 1": ["Paris", "Nice", "Lyon"]}
    written = {"given": ["A", "B", "B"], "rotation 1": ["A", "A", "C"]}
    log.samples = [
        sample("city-1", f"order={order}", shown[order], written[order][epoch], epoch + 1, at)
        for epoch in (2, 0, 1)
        for at, order in enumerate(shown)
    ]
    out = output(consilience, "score", path, "-s", questions, "--json", "-o", "run")
    rows = [row for row in json.loads(out)["metrics"] if row["over"] == "all"]
    values = {(row["metric"], row["level"]): row["value"] for row in rows}
    # Lyon, Paris, Paris in the given order; Paris, Paris, Lyon in the other one
    assert values["accuracy", ""] == 0
    by_factor = [values["consistency", factor] for factor in ("", "sample", "order")]
    assert by_factor == pytest.approx([7 / 15, 2 / 6, 1 / 3])
    assert set(read_answers("run")["sample"]) == {"1", "2", "3"}
    log.samples = [sample("city-1", "base", shown["given"], "B", epoch) for epoch in (1, 2)]
    assert read_answers(path)["variant"].to_list() == ["sample=1", "sample=2"]
    for one in log.samples:
        del one.metadata["options"]  # a form of a sentence pair
    assert read_answers(path)["variant"].to_list() == ["base"]


def test_a_log_of_inspect_needs_inspect(consilience, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    (tmp_path / "log.eval").write_bytes(b"PK")
    err = refusal(consilience, "score", "log.eval", "--suite", "mini-questions")
    assert "inspect_ai is not installed, which reads its logs" in err
    assert "Install the extra consilience[inspect]: `pip install" in err


def test_log_probabilities_of_any_origin_are_scored(consilience, questions, tmp_path):
    """A column of a table; what is no list of numbers is refused, NaN is no answer."""

    def scored(first):
        row = {"item": "city-1", "variant": "order=given", "log_probabilities": first}
        rows = [row, row | {"variant": "order=reversed", "log_probabilities": [-3, -1, -2]}]
        (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return consilience("score", "mine.jsonl", "-s", questions, "-o", "run", "--json")

    status, _, err = scored("high")
    message = "row 1: 'log_probabilities' is 'high'; expected a list of numbers"
    assert (status, message in err) == (2, True)
    assert scored([-1, -3, -2])[0] == 0
    shown = read_answers("run").select("option", "gold_option", "margin", "excluded")
    assert shown.rows() == [(0, 1, 1.0, None), (1, 1, 1.0, None)]
    shutil.rmtree("run")
    assert scored([-1, float("nan"), -2])[0] == 0
    assert read_answers("run")["answer"].is_null().to_list() == [True, False]
