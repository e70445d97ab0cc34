"""Answers of other programs: one table, four converters, and what suite export wrote."""

import csv
import json
import random
import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import consilience as cs
from checks import output, refusal, refused
from conftest import ROOT, cases, eee_validator
from consilience.elsewhere.exports import query_id
from consilience.inspect import vary
from consilience.runs.run import read_answers

SCHEMA = eee_validator("sample")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def numbers(result, *names):
    """Accuracy, consistency and consistent accuracy over all items, in percent; None for none."""
    rows = result.metrics.filter(over="all", kind="whole")
    values = dict(rows.select("metric", "value").iter_rows())
    names = names or ("accuracy", "consistency", "consistent_accuracy")
    return [None if values[of] != values[of] else round(100 * values[of], 1) for of in names]


def level(result, factor):
    rows = result.metrics.filter(metric="consistency", over="all", kind="factor", level=factor)
    return round(100 * rows["value"].item(), 1)


# The table


def row(item, answer, gold="x", **more):
    return {"item": item, "gold": gold, "answer": answer, **more}


TWO = [row("a", "A", options=["x", "y"], style="1"), row("a", "y", options=["x", "y"], style="2"),
       row("b", "B", "z", options=["w", "z"], style="1"), row("b", "z", "z", options=["w", "z"], style="2")]  # fmt: skip


@pytest.mark.parametrize(("rows", "factors", "expected"), cases("tables_elsewhere"))
def test_a_complete_table_needs_no_suite(tmp_path, rows, factors, expected):
    assert numbers(cs.score(write(tmp_path / "t.jsonl", rows), columns=factors)) == expected


def test_every_form_of_a_table_has_the_same_numbers(tmp_path):
    frame = pl.DataFrame(TWO)
    frame.write_parquet(tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, TWO[0])
        table.writeheader()
        table.writerows(of | {"options": json.dumps(of["options"])} for of in TWO)
    (tmp_path / "t.json").write_text(json.dumps(TWO))
    nested = pl.DataFrame([of | {"doc": {"s": of["style"]}} for of in TWO])
    for answers, field in ((frame, "style"), (frame.to_pandas(), "style"), (TWO, "style"),
                           (tmp_path / "t.parquet", "style"), (tmp_path / "t.json", "style"), (tmp_path / "t.csv", "style"), (nested, "doc.s")):  # fmt: skip
        assert numbers(cs.score(answers, columns={"template": field})) == [100, 50, 50]


@pytest.mark.parametrize(("rows", "factors", "message"), [
    *cases("tables_elsewhere_bad"),
    ([row("a", "x", sample=str(at)) for at in range(201)], {}, "201 variants"),
])  # fmt: skip
def test_what_cannot_be_counted_is_refused(tmp_path, rows, factors, message):
    refused(message, cs.score, write(tmp_path / "t.jsonl", rows), columns=factors)


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path):
    rows = [row("a", "x"), row(None, "x"), {"item": "c", "answer": "x"}]
    rows += [row(of, "x", gold, options=["x", "y"]) for of, gold in (("d", "A"), ("e", "y"))]
    result = cs.score(path := write(tmp_path / "t.jsonl", rows))
    assert result.notes[0] == "left out: 1 rows without 'gold'; 1 rows without 'item'"
    assert "left out: 1 item of which not exactly one option is right" in result.notes
    write(path, [row("a", "x", model="m")])
    refused("no answers of 'n'; expected m", cs.score, path, model="n")
    write(path, [row("a", "x", model=name) for name in ("org/m", "org/n")])
    assert cs.score(path, model="n").answers.height == 1
    write(path, [row("a", "x", model=name) for name in ("org/m", "us/m")])
    refused("the answers of 2 models: org/m, us/m. Name one: ", cs.score, path, model="m")
    (tmp_path / "t.jsonl").write_text('{"item": "a", "gold": "x", "answer": "x"}\n{"item": "a\n')
    refused("t.jsonl:2: not JSON", cs.score, tmp_path / "t.jsonl")


def test_a_verdict_decides_unless_a_rule_is_named(tmp_path):
    """Records say that "tee" is right and that the reference is wrong."""
    rows = [eee("1", "tee", ["tea"], right=True), eee("2", "tea", ["tea"], right=False),
            eee("3", "ink", ["tea"], right=False)]  # fmt: skip
    result = cs.score(write(tmp_path / "t.jsonl", rows))
    assert numbers(result) == [33.3, None, 33.3]
    assert result.answers["answer"].to_list() == ["tea", "tea (wrong by the record)", "ink"]
    assert "1 answer counted as the record says, not as read" in result.notes
    result = cs.score(tmp_path / "t.jsonl", match="exact")
    assert numbers(result) == [33.3, None, 33.3]
    assert result.answers["answer"].to_list() == ["tee", "tea", "ink"]


def test_files_are_compared_and_reported_without_a_run(consilience, tmp_path):
    """The second model has another answer to one of four; its options are in another order."""
    rows = [row(str(at), "B", "y", options=["x", "y"], model="old") for at in range(4)]
    write(tmp_path / "old.jsonl", rows)
    rows = [of | {"options": ["y", "x"], "answer": "A", "model": "new"} for of in rows]
    write(tmp_path / "new.jsonl", [*rows[1:], rows[0] | {"answer": "B"}])
    out = output(consilience, "compare", "old.jsonl", "new.jsonl", "--flips")
    assert "25.0 % of 4 answers changed" in out
    assert "-25.0" in output(consilience, "compare", "old.jsonl", "new.jsonl")
    gate = output(consilience, "gate", "old.jsonl", "--rule", "accuracy >= 90 %")
    assert gate.startswith("Gate: PASS")
    output(consilience, "report", "old.jsonl", "--out", "page.html")
    assert "--out F.html" in refusal(consilience, "report", "old.jsonl")
    output(consilience, "score", "old.jsonl", "--out", "run")
    assert numbers(cs.open_run("run")) == [100, None, 100]
    assert output(consilience, "score", "run", "--match", "exact").startswith("old on old")
    assert output(consilience, "score", "run").startswith("old on old")
    assert "no such file" in refusal(consilience, "score", "nowhere.jsonl")
    assert "old.jsonl: no factor" in refusal(consilience, "analyze", "factors", "old.jsonl")


@pytest.mark.parametrize(("factor", "levels"), [("order", "132"), ("context", ("long", "a text"))])
def test_levels_of_any_name_are_compared(tmp_path, factor, levels):
    """In the second file all answers are right; the first lacks the first level of the first item."""
    rows = [row(item, "x" if level == levels[-1] else "n", **{factor: level})
            for item in "abc" for level in levels]  # fmt: skip
    write(tmp_path / "old.jsonl", rows[1:])
    write(tmp_path / "new.jsonl", [of | {"answer": "x"} for of in rows])
    runs = [str(tmp_path / name) for name in ("old.jsonl", "new.jsonl")]
    compared = cs.compare(*runs)
    found = compared.table.filter(metric="mean_accuracy", over="all")
    assert found["n"].item() == len(rows) - 1
    assert found["second_value"].item() == 1
    parts = compared.flips().tables["flips"].filter(over=factor)
    assert parts["level"].to_list() == sorted(levels)


def test_a_column_that_is_named_is_no_other_factor(tmp_path):
    rows = [row(item, "x", Template=at) for item in "ab" for at in "12"]
    file = write(tmp_path / "t.jsonl", rows)
    result = cs.score(file, columns={"sample": "Template"})
    assert {*result.answers["variant"]} == {"sample=1", "sample=2"}
    refused("a factor called 'right'", cs.check, [str(file)], columns={"right": "Template"})


def test_no_number_is_an_empty_cell():
    rows = [row("a", float("nan"), template="1"), row("a", "x", template=float("nan"))]
    assert numbers(cs.score(rows)) == [100, 0, 0]
    scored = {"options": ["x", "y"], "scores": [float("-inf"), -0.1]}
    assert numbers(cs.score([row("a", None, **scored), row("b", None, "y", **scored)]))[0] == 50
    asked = [{"question": of, "answer": of, "context": "x"} for of in "ab"]
    asked[0]["context"] = float("nan")
    result = cs.evaluate(asked, "baseline:majority")
    found = result.run.queries["input"].to_list()
    assert [text.partition("\n")[0] for (text,) in found] == ["Question: a", "x"]


# Every Eval Ever


def eee(item, answer, golds, *, right=None, choices=None, raw="", model="org/m", **more):
    """An instance record; ``more``: metadata, or fields of the record in upper case."""
    right = answer in golds if right is None else right
    attribution = {"turn_idx": 0, "source": "output.raw", "extracted_value": answer,
                   "extraction_method": "regex", "is_terminal": True}  # fmt: skip
    metadata = {name: value for name, value in more.items() if name.islower()}
    record = {
        "schema_version": "0.3.0", "evaluation_id": "e", "model_id": model, "evaluation_name": "quiz",
        "sample_id": item, "interaction_type": "single_turn",
        "input": {"raw": raw or f"{item}?", "reference": golds} | ({"choices": choices} if choices else {}),
        "output": {"raw": [answer or ""]}, "messages": None,
        "answer_attribution": [attribution] * (answer is not None),
        "evaluation": {"score": float(right), "is_correct": right}, "metadata": metadata or None,
    } | {name.lower(): value for name, value in more.items() if name.isupper()}  # fmt: skip
    SCHEMA.validate(record)
    return record


def metrics_of(record, verdicts):
    return [record | {"evaluation_result_id": name, "evaluation": {"score": 0.5, "is_correct": right}}
            for name, right in verdicts.items()]  # fmt: skip


AGAIN = [eee("a", "oak", ["oak"], sample="1"), eee("a", "elm", ["oak"], sample="2"),
         eee("b", "fir", ["fir"], sample="1"), eee("b", "fir", ["fir"], sample="2")]  # fmt: skip
LATE = [{"turn_idx": 0, "source": "x", "extracted_value": text, "extraction_method": "x", "is_terminal": last}
        for text, last in (("oak", True), ("no", False))]  # fmt: skip


@pytest.mark.parametrize(("records", "expected", "factor", "note"), [
    ([of for one in (eee("a", "oak", ["oak"], sample="1"), eee("a", "elm", ["oak"], sample="2"))
      for of in metrics_of(one, {"run/exact_match": one["evaluation"]["is_correct"], "run/bleu": False})],
     [100, 0, 0], "sample", "left out: 2 rows of other readings of an answer; used: run/exact_match"),
    ([of | {"evaluation_name": "gsm8k/strict-match"} for of in AGAIN], [100, 50, 50], "sample", ""),
    ([eee("a", "B", ["oak"], right=True, choices=["elm", "oak"], order="2"),
      eee("a", "oak", ["oak"], choices=["oak", "elm"], order="1")], [100, 100, 100], "order", ""),
    ([eee("a", "no", ["oak"], right=True, ANSWER_ATTRIBUTION=LATE, choices=["oak", "elm"], template="1"),
      eee("a", "oak", ["oak"], choices=["oak", "elm"], template="2")], [100, 100, 100], "template", ""),
    ([eee("a", "oak", ["oak"], paraphrase="1"), eee("a", None, ["oak"], right=False, ERROR="timed out", paraphrase="2"),
      eee("a", "oak", [], paraphrase="3")], [100, 0, 0], "paraphrase", "left out: 1 rows without 'gold'"),
    ([*AGAIN, eee("a", "oak", ["oak"]) | {"interaction_type": "multi_turn", "output": None,
      "messages": [{"turn_idx": 0, "role": "user"}]}], [100, 50, 50], "sample", "left out: 1 records of several turns"),
])  # fmt: skip
def test_records_of_every_eval_ever(tmp_path, records, expected, factor, note):
    draws = [records, random.Random(0).sample(records, len(records))]
    for rows in draws:
        result = cs.score(write(tmp_path / "r.jsonl", rows))
        assert numbers(result) == expected
        assert level(result, factor) == expected[1]
        assert not note or note in result.notes


def test_records_whose_prompts_nothing_names_are_refused(tmp_path):
    rows = [eee(item, "x", ["x"], raw=f"{item} {at}") for item in "ab" for at in "12"]
    path = write(tmp_path / "r.jsonl", rows)
    refused("4 rows .* such as of 'a'.*consilience check FILE", cs.score, path)
    again = [of | {"evaluation_id": of["input"]["raw"][-1]} for of in rows]
    write(path, again)
    assert numbers(cs.score(path, columns={"sample": "evaluation_id"})) == [100, 100, 100]
    rows = [of | {"metadata": {"mine": of["input"]["raw"][-1]}} for of in rows]
    write(path, rows)
    assert numbers(cs.score(path, columns={"template": "metadata.mine"})) == [100, 100, 100]


def test_published_records_come_back(consilience, tmp_path):
    options = {"vary": ["order=reversed"], "groups": ["capital"], "limit": 3}
    first = cs.evaluate("mini-questions", "baseline:random", out=tmp_path / "r", **options)
    publish = ["--format", "eee", "--model-id", "a/b", "--licence", "MIT"]
    output(consilience, "publish", tmp_path / "r", *publish, "--out", tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    assert numbers(cs.score(path)) == numbers(first)


# lm-evaluation-harness

DATE = "2026-11-23T13-16-29.122945"


def document(number, target, replies, choices=(), doc=None, **more):
    """A line of ``--log_samples`` of version 0.4.13."""
    texts = [f" {choice}" for choice in choices] or [{}]
    contexts = [{"arg_0": "Q", "arg_1": text} for text in texts]
    return {
        "doc_id": number, "doc": doc or {}, "target": str(target), "filter": "none",
        "arguments": {f"gen_args_{at}": one for at, one in enumerate(contexts)},
        "resps": [[one] for one in replies], "filtered_resps": replies, "doc_hash": f"h{number}", **more,
    }  # fmt: skip


def totals(*values):
    return [[str(value), "False"] for value in values]


TREES = {"choices": ["oak", "elm"]}


@pytest.mark.parametrize(("rows", "accuracy", "answers", "note"), [
    ([document(0, 1, totals(-1.0, -2.0), ["A", "B"], TREES, acc=0.0),
      document(1, 0, totals(-1.0, -2.0), ["A", "B"], TREES, acc=1.0)], 50, ["oak", "oak"], ""),
    ([document(0, 0, totals(-1.0, -2.0), ["yes", "no"], acc=1.0, acc_norm=0.0)], 100, ["yes"], ""),
    ([document(0, "no", totals(-3.0, -2.0), ["yes", "no"])], 100, ["no"], ""),
    ([document(0, 1, totals(-3.0, -2.0), ["end", "end"], acc=1.0)], 100, ["2"], ""),
    ([document(0, "#### 18", ["18"], exact_match=1.0), document(1, "7", ["[invalid]"], exact_match=0.0)],
     50, ["#### 18", "invalid"], ""),
    ([document(at, "7", [reply], filter=of, exact_match=float(reply == "7"))
      for at in (0, 1) for of, reply in (("strict-match", "no"), ("flexible-extract", "7"))],
     0, ["no", "no"], "left out: 2 rows of other readings of an answer; used: strict-match"),
    ([document(0, ["Rome", "Roma"], ["Roma"])], 100, ["Rome"], ""),
    ([document(0, "7", ["7"]), document(1, "", ["-3.2"]) | {"arguments": {"gen_args_0": {"arg_0": "word"}}}], 100, ["7"],
     "left out: 1 documents of quiz, which have no right answer"),
    ([document(0, "7", ["7"]), document(1, 0, totals(-3.2, -1.0), "ab", acc=0.4)], 100, ["7"],
     "left out: 1 documents of quiz, whose 'acc' is neither 0 nor 1"),
])  # fmt: skip
def test_logs_of_lm_evaluation_harness(tmp_path, rows, accuracy, answers, note):
    (tmp_path / f"results_{DATE}.json").write_text('{"model_name": "org/small"}')
    path = tmp_path / f"samples_quiz_{DATE}.jsonl"
    for lines in (rows, rows[::-1]):
        result = cs.score(write(path, lines))
        assert numbers(result, "accuracy") == [accuracy]
        assert result.answers["answer"].to_list() == answers
        assert (result.run.label == "small" and not note) or note in result.notes
        assert {*result.answers["group"]} == {"quiz"}


def test_repeats_and_folders_of_lm_evaluation_harness(tmp_path):
    """Two tasks of a model in a folder: documents of several tasks have the same number."""
    write(tmp_path / f"samples_one_{DATE}.jsonl", [document(0, "7", [["7", "8", "7"]])])
    write(tmp_path / f"samples_two_{DATE}.jsonl", [document(0, "5", [["5", "5", "5"]])])
    result = cs.score(tmp_path)
    assert numbers(result) == [100, 66.7, 50]
    assert sorted({*result.answers["subject"]}) == ["one/0", "two/0"]
    (tmp_path / "empty").mkdir()
    refused("no run.json, and no logs", cs.score, tmp_path / "empty")


def test_tasks_about_the_same_questions_are_variants_where_they_are_named(tmp_path):
    for style in ("plain", "polite"):
        docs = [{"id": of, "style": style} for of in "ab"]
        replies = ["7", "8" if style == "polite" else "7"]
        rows = [document(at, "7", [replies[at]], doc=docs[at]) for at in (0, 1)]
        write(tmp_path / f"samples_{style}_{DATE}.jsonl", rows)
    named = {"item": "doc.id", "group": "", "template": "doc.style"}
    assert numbers(cs.score(tmp_path, columns=named)) == [100, 50, 50]


# inspect_ai


def sample(number, target, answer, value, *, scorer="match", epoch=1, choices=None, **more):
    return {
        "id": number, "epoch": epoch, "input": [{"role": "user", "content": "Q"}], "choices": choices,
        "target": target, "output": {"completion": f"I say {answer}"},
        "scores": {scorer: {"value": value, "answer": answer}}, **more,
    }  # fmt: skip


def log(path, samples, **more):
    header = {"eval": {"task": "quiz", "model": "openai/small", **more}, "status": "success"}
    if path.suffix == ".json":
        path.write_text(json.dumps({**header, "samples": samples}))
        return path
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("header.json", json.dumps(header))
        for one in samples:
            parts.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
    return path


@pytest.mark.parametrize(("samples", "expected", "answers", "note"), [
    ([sample(1, "B", "B", "C", scorer="choice", choices=["oak", "elm"]),
      sample(2, "A", "B", "I", scorer="choice", choices=["oak", "elm"])], [50, None], ["elm", "elm"], ""),
    ([sample(1, ["A", "C"], "A, C", "C", scorer="choice", choices=["oak", "elm", "fir"])], [100, None], ["fir; oak"], ""),
    ([sample(1, "ac", "B, C", "I", scorer="choice", choices=["oak", "elm", "fir"])], [0, None], ["elm fir"], ""),
    ([sample(1, "Elm", "Elm", "C", choices=["Oak", "Elm", "Fir", "Pine", "M"])], [100, None], ["Elm"], ""),
    ([sample(1, "B", "", "I", scorer="choice", choices=["oak", "elm"])], [0, None], [None], ""),
    ([sample(1, ["oak", "the oak"], "the oak", 1), sample(2, "fir", "oak", 0.0)], [50, None], ["oak", "oak"], ""),
    ([sample(1, "oak", "oak", 0.7), sample(2, "oak", "elm", "P")], [50, None], ["oak", "elm"], ""),
    ([sample(1, "oak", word, value, epoch=at) for at, (word, value) in enumerate((("oak", "C"), ("elm", "I")), 1)],
     [100, 0], ["oak", "elm"], ""),
    ([sample(1, "oak", "oak", "C"), sample(2, "oak", "", "I", error={"message": "ValueError('x')"})],
     [100, None], ["oak"], "left out: 1 samples with an error: ValueError"),
    ([sample(1, "oak", "oak", "C") | {"scores": {"judge": {"value": "I"}, "match": {"value": "C", "answer": "oak"}}}],
     [100, None], ["oak"], "left out: 1 row of other readings of an answer; used: match"),
    ([sample(1, "oak", "elm", {"style": 1, "match": "I"}, scorer="rubric")], [0, None], ["elm"],
     "left out: 1 row of other readings of an answer; used: rubric/match"),
    ([sample(1, "oak", "oak", "C", scorer="judge"), sample(2, "oak", "elm", float("nan"), scorer="judge")],
     [100, None], ["oak"], "left out: 1 samples that judge did not score"),
    ([sample(1, "oak", None, "I") | {"output": {}, "limit": {"type": "token"}}], [0, None], [None], ""),
    ([sample(1, "oak", None, "C") | {"output": {"completion": "attachment://h"}, "attachments": {"h": "An oak."}}],
     [100, None], ["oak"], ""),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".eval", ".json"])
def test_logs_of_inspect(tmp_path, suffix, samples, expected, answers, note):
    result = cs.score(log(tmp_path / f"log{suffix}", samples))
    assert numbers(result, "accuracy", "consistency") == expected
    assert (result.answers["answer"].to_list(), result.run.label) == (answers, "small")
    assert not note or note in result.notes
    (tmp_path / "bad.eval").write_bytes(b"PK")
    refused("bad.eval: cannot be read as a log of inspect_ai", cs.score, tmp_path / "bad.eval")


def test_folders_of_logs_of_inspect(consilience, tmp_path):
    """The models in one are compared; the same question in two tasks would count twice."""
    for at, style in enumerate("xy"):
        asked = [sample(1, "oak", "elm" if at else "oak", "CI"[at])]
        log(tmp_path / f"{style}.eval", asked, task=style, task_args={"style": style})
    refused("the same question '1', with the same prompt, in 'x', 'y'", cs.score, tmp_path)
    log(tmp_path / "y.eval", [one | {"input": "Which?"} for one in asked], task="y")
    assert numbers(cs.score(tmp_path)) == [50, None, 50]
    log(tmp_path / "y.eval", asked, task="y", task_args={"style": "y"})
    fields = {"group": "", "template": "eval.task_args.style"}
    assert numbers(cs.score(tmp_path, columns=fields)) == [100, 0, 0]
    log(tmp_path / "y.eval", asked, task="x", model="large")
    assert "openai/small against large" in output(consilience, "compare", tmp_path)


def test_a_log_that_inspect_wrote_has_the_factors_of_its_variants():
    """``data/inspect.eval`` (packed with zstd) is of ``vary`` and a model that says the last option.

    Of one question that is always *None of the above*, of the other another one in each order.
    """
    result = cs.score(ROOT / "tests" / "data" / "inspect.eval")
    assert numbers(result) == [0, 50, 0]
    assert level(result, "order") == 50
    answers = result.answers.filter(item="italy").select("order", "answer").rows()
    assert answers == [("ABCD", "Milan"), ("BCDA", "Rome"), ("CDAB", "Turin")]
    assert {*result.answers["subject"]} == {"capitals_in_orders/france", "capitals_in_orders/italy"}


@pytest.mark.parametrize(("name", "content", "message"), [
    ("log.json", {"eval": {}, "samples": [{"id": 1, "scores": {"match": None}}]}, "as a log of inspect_ai"),
    ("log.json", {"results": {"version": 3, "results": [{"provider": "toy"}]}}, "as a log of promptfoo"),
    ("samples_t.jsonl", {"doc_id": 1, "arguments": [["p", "a"], ["p", "b"]], "filtered_resps": ["a", "b"]},
     "as a log of lm-evaluation-harness"),
    ("table.json", {"rows": [row("a", "x")]}, "no list of rows"),
])  # fmt: skip
def test_a_log_of_another_form_is_refused(tmp_path, name, content, message):
    refused(message, cs.score, write(tmp_path / name, [content]))


def test_one_of_several_readings_is_asked_for_by_its_name(tmp_path):
    scores = {"match": {"value": "C", "answer": "oak"}, "judge": {"value": "I", "answer": "an oak"}}
    path = log(tmp_path / "log.eval", [sample(1, "oak", "oak", "C") | {"scores": scores}])
    found = [numbers(cs.score(path, match=of), "accuracy") for of in (None, "match", "judge")]
    assert found == [[100], [100], [0]]
    refused("no rule 'judges'.*Did you mean 'judge'", cs.score, path, match="judges")
    rows = [document(0, "7", [reply], filter=of, exact_match=float(reply == "7"))
            for of, reply in (("strict-match", "no"), ("flexible-extract", "7"))]  # fmt: skip
    path = write(tmp_path / f"samples_quiz_{DATE}.jsonl", rows)
    assert numbers(cs.score(path, match="flexible-extract"), "accuracy") == [100]


def test_without_inspect_its_extension_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    refused("no inspect_ai. Run `pip install inspect-ai`", vary, None)


# promptfoo; ``data/promptfoo.json`` is what version 0.123.1 wrote


def entry(test, prompt, output, assertion=("equals", "yes"), metadata=None, **variables):
    assertions = [{"type": "javascript"}, dict(zip(("type", "value"), assertion, strict=True))]
    return {
        "testIdx": test, "promptIdx": prompt, "promptId": f"p{prompt}",
        "provider": {"id": "model"}, "prompt": {"raw": "", "label": f"P{prompt}"},
        "vars": variables or {"question": f"Q{test}"}, "response": {"output": output},
        "testCase": {"assert": assertions, "metadata": metadata},
    }  # fmt: skip


def results(path, entries, version=3):
    path.write_text(json.dumps({"results": {"version": version, "results": entries}}))
    return path


@pytest.mark.parametrize(("entries", "accuracy", "note"), [
    ([entry(0, 0, "In Köln.", ("contains-any", "Cologne, Köln"))], 100, ""),
    ([entry(0, 0, "a, b", ("icontains-any", '"a, b",c'))], 100, ""),
    ([entry(0, 0, "It is Go.", ("icontains-any", ["Golang", "{{ answer }}"]), answer="Go")], 100, ""),
    ([entry(0, 0, {"lang": "Go"}, ("icontains", "Go"))], 100, ""),
    ([entry(0, 0, "4", ("equals", 4))], 100, ""),
    ([entry(0, 0, "the Main", ("contains", "{{ of.river }}"), of={"river": "Main "})], 100, ""),
    ([entry(0, 0, "yes"), entry(1, 0, "Go", ("icontains", "{{ answer | upper | title }}"), answer="Go")], 100,
     "left out: 1 tests without an expected text, only javascript, icontains '{{ answer | upper | title }}'"),
    ([entry(0, 0, "yes"), entry(1, 0, "Go", ("contains", "{% if x %}Go{% endif %}"))], 100, "left out: 1 tests"),
    ([entry(0, 0, "yes"), entry(1, 0, "nice", ("llm-rubric", "nice"))], 100,
     "left out: 1 tests without an expected text, only javascript, llm-rubric"),
    ([entry(0, 0, "yes"), entry(1, 0, "{}", ("is-json", None))], 100, "left out: 1 tests"),
    ([entry(0, 0, "yes"), entry(1, 0, None) | {"error": "no reply"}], 50, ""),
])  # fmt: skip
def test_results_of_promptfoo(tmp_path, entries, accuracy, note):
    result = cs.score(results(tmp_path / "r.json", entries))
    assert numbers(result, "accuracy") == [accuracy]
    assert not note or any(one.startswith(note) for one in result.notes)


def test_prompts_phrasings_and_repetitions_of_promptfoo(consilience, tmp_path):
    """France: Paris or Lyon by the prompt, 2 * 6 of 28 pairs agree; Italy and 2 + 2: 6 of 6 pairs.

    The test without replies is wrong and agrees with nothing.
    """
    file = ROOT / "tests" / "data" / "promptfoo.json"
    result = cs.score(file, model="toy")
    assert numbers(result) == [75, round(100 * (12 / 28 + 1 + 1 + 0) / 4, 1), 50]
    assert [level(result, of) for of in ("template", "sample", "paraphrase")] == [50, 75, 100]
    assert "--model echo --out RUN." in refusal(consilience, "score", file)
    document = json.loads(file.read_text())
    random.Random(0).shuffle(document["results"]["results"])
    (tmp_path / "r.json").write_text(json.dumps(document))
    again = cs.score(tmp_path / "r.json", model="toy").answers
    assert_frame_equal(again.drop("suite"), result.answers.drop("suite"))
    turns = [[{"input": str(at)}] for at in (0, 1)]
    spoken = [entry(0, at, "yes", question="Q", _conversation=of) for at, of in enumerate(turns)]
    assert numbers(cs.score(results(tmp_path / "r.json", spoken))) == [100, 100, 100]
    refused("format 2; expected format 3", cs.score, results(tmp_path / "r.json", spoken, 2))


# What was exported

QUESTIONS = """group,question,question_2,answer,options
city,Capital of France?,France's capital?,Paris,Lyon;Paris;Nice
city,Capital of Italy?,Italy's capital?,Rome,Rome;Turin;Romeo
open,Language of Docker?,Docker is written in?,Go,
"""
VARY = ("--vary", "order=rotations", "--vary", "paraphrase=all")


@pytest.fixture
def exported(consilience, tmp_path):
    """The rows that ``suite export`` writes, also as CSV; each answered with its first candidate."""
    (tmp_path / "mine.csv").write_text(QUESTIONS, encoding="utf-8")
    for name in ("e.jsonl", "e.csv"):
        out = output(consilience, "suite", "export", "mine.csv", *VARY, "--out", name)
        assert out == f"{name}: 14 prompts\n"
    rows = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    return [of | {"answer": of["candidates"][0] if of["candidates"] else "In Go."} for of in rows]


def test_answers_come_back_complete_or_by_id(consilience, tmp_path, exported):
    """A is another option in each order: no two orders agree, and each two phrasings do."""
    first = exported[0]
    assert len(first["id"]) == 16
    assert first["id"] == query_id("city", first["item"], first["variant"])
    assert {*first} >= {"suite", "subject", "paraphrase", "order", "prompt", "options", "gold"}
    expected = [66.7, round(100 * (0.2 + 0.2 + 1) / 3, 1), 33.3]
    assert numbers(cs.score(write(tmp_path / "a.jsonl", exported[::-1]))) == expected
    few = [{"id": of["id"], "answer": of["answer"]} for of in exported]
    path = write(tmp_path / "b.jsonl", few[::-1])
    assert [numbers(cs.score(path, suite=name)) for name in ("e.jsonl", "e.csv")] == [expected] * 2
    named = [{name: of[name] for name in ("item", "variant", "answer")} for of in exported]
    assert numbers(cs.score(write(tmp_path / "c.jsonl", named), suite="e.jsonl")) == expected
    result = cs.score(write(path, few[1:8]), suite="e.jsonl")
    assert result.answers.filter(pl.col("excluded") == "no row in the table").height == 5
    assert "left out: 1 item without a row" in result.notes
    write(path, [*few, few[0]])
    refused("2 rows of queries that have several", cs.score, path, suite="e.jsonl")
    write(path, [*few, {"id": "0" * 16, "answer": "x"}])
    refused("1 row to no query of the suite, such as id '0000", cs.score, path, suite="e.jsonl")
    write(path, [{"answer": "x"}])
    refused("no column 'id'", cs.score, path, suite="e.jsonl")
    asked = write(tmp_path / "asked.jsonl", [{"id": of["id"]} for of in few])
    refused("no column answer among id", cs.score, asked, suite="e.jsonl")
    refused("expected what `consilience suite export` wrote", cs.score, path, suite="mine.csv")
    refused("expected a suite of facts", cs.score, path, suite="mini-questions")


def test_logs_of_harnesses_answer_what_was_exported(tmp_path, exported):
    expected = numbers(cs.score(write(tmp_path / "a.jsonl", exported)))
    asked = [{k: v for k, v in of.items() if k not in ("answer", "messages")} for of in exported]
    samples = [sample(at, of["gold"], of["answer"], "I", metadata=row) | {"scores": None, "output": {"completion": of["answer"]}}
               for at, (of, row) in enumerate(zip(exported, asked, strict=True))]  # fmt: skip
    assert numbers(cs.score(log(tmp_path / "log.eval", samples))) == expected
    for one in samples:
        one["metadata"] = {name: one["metadata"][name] for name in ("id", "item", "variant")}
    assert numbers(cs.score(log(tmp_path / "log.eval", samples), suite="e.jsonl")) == expected
    text = lambda of: of if isinstance(of, str | None) else json.dumps(of)  # noqa: E731
    entries = [entry(at, 0, of["answer"], ("is-json", None)) | {"vars": {k: text(v) for k, v in row.items()}}
               for at, (of, row) in enumerate(zip(exported, asked, strict=True))]  # fmt: skip
    assert numbers(cs.score(results(tmp_path / "r.json", entries))) == expected


def harness(folder, name):
    """The documents of a task, and its log: of each the choice that is first in the alphabet."""
    (file,) = folder.glob("consilience_*.jsonl")
    docs = [json.loads(line) for line in file.read_text().splitlines()]
    log = []
    for at, doc in enumerate(docs):
        best = min(range(len(doc["choices"])), key=lambda of, doc=doc: doc["choices"][of])
        values = [-1.0 if of == best else -2.0 for of in range(len(doc["choices"]))]
        right = float(best == doc["gold_index"])
        log.append(document(at, doc["gold_index"], totals(*values), doc["choices"], doc, acc=right))
    write(folder / f"samples_{name}_{DATE}.jsonl", log)
    return docs


def test_a_task_of_lm_evaluation_harness_and_its_log(consilience, tmp_path, exported):
    export = ("suite", "export", "mine.csv", *VARY)
    out = output(consilience, *export, "--groups", "city", "--out", "t")
    assert out.splitlines()[0] == "t/consilience_mine.yaml: 12 documents of 2 items"
    docs = harness(Path("t"), "consilience_mine")
    assert docs[0]["choices"] == [" A", " B", " C"] and docs[0]["prompt"].endswith("Answer:")
    result = cs.score("t")
    assert numbers(result) == [50, 20, 0]
    assert result.answers["option_scores"].list.len().to_list() == [3] * 12
    for more in ((), ("--template", "chat", "--groups", "city")):
        said = refusal(consilience, *export, "--out", "u", *more)
        assert "sentence pairs, open questions or a chat in" in said


EXPORT_FACTS = ("suite", "export", "mini", "--groups", "capital", "--limit", "2")


def test_answers_to_facts_are_joined_with_their_suite(consilience, tmp_path):
    """Right in four of nine patterns, where (4 * 3 + 5 * 4) of 72 pairs agree; of one fact 0."""
    assert output(consilience, *EXPORT_FACTS, "--out", "e.jsonl") == "e.jsonl: 18 prompts\n"
    rows = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
    assert rows[0]["prompt"].endswith("____.") and rows[0]["gold"] in rows[0]["candidates"]
    other = next(word for word in rows[0]["candidates"] if word not in {of["gold"] for of in rows})
    for of in rows:
        of["answer"] = of["gold"].upper() if of["variant_index"] < 4 else other
    result = cs.score(write(tmp_path / "a.jsonl", rows), "mini")
    assert numbers(result, "accuracy", "consistency") == [100, round(100 * 32 / 72, 1)]
    assert result.metrics.filter(kind="edit").height > 0, "the edits of the suite"
    by_id = [{"id": of["id"], "answer": of["answer"]} for of in rows]
    path = write(tmp_path / "b.jsonl", by_id)
    assert_frame_equal(cs.score(path, "mini").metrics, result.metrics)
    assert cs.score(path, "mini", protocol="published").suite.protocol == "published"
    result = cs.score(write(path, [of | {"answer": "Atlantis"} for of in by_id]), "mini")
    assert {*result.answers["answer"]} == {"Atlantis"}
    said = "18 of 18 answers are not among the objects of their relation, such as 'Atlantis'"
    assert said in result.notes
    refused("2 rows to no query of the suite, such as id 'x'", cs.score,
            [of | {"id": "x"} for of in by_id[:2]], "mini")  # fmt: skip


def test_logs_of_facts_have_the_most_probable_candidate(consilience, tmp_path):
    out = output(consilience, *EXPORT_FACTS, "--out", "t")
    assert "Score: consilience score t --suite mini" in out
    docs = harness(Path("t"), "consilience_mini")
    assert docs[0]["choices"][0].startswith("The capital of") and docs[0]["prompt"] == ""
    answers = cs.score("t").answers["answer"].to_list()
    best = [min(zip(of["choices"], json.loads(of["candidates"]), strict=True))[1] for of in docs]
    assert answers == best


PAIRS = "sentence1\tsentence2\tlabel\nRome is old.\tRome is.\tentailment\nA dog.\tA cat.\tnot_entailment\n"


def test_sentence_pairs_come_back_with_their_forms(consilience, tmp_path):
    """Labels right in the original form of both pairs, one changed by REVERSE, none by SIGNAL."""
    (tmp_path / "dev.tsv").write_text(PAIRS)
    output(consilience, "suite", "export", "rte", "--data", "dev.tsv", "--out", "p.jsonl")
    rows = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()]
    assert [of["form"] for of in rows[:3]] == ["original", "reverse", "signal"]
    assert rows[1]["prompt"].startswith("Sentence2: Rome is. Sentence1: Rome is old.\n\n")
    assert rows[0]["text_1"] == "Sentence1: Rome is old."
    answers = ["Entailment.", "not entailment", "entailment", *["not_entailment"] * 3]
    rows = [of | {"answer": text} for of, text in zip(rows, answers, strict=True)]
    result = cs.score(write(tmp_path / "a.jsonl", rows[::-1]))
    table = result.metrics.filter(over="group")
    values = {(of["metric"], of["level"]): of["value"] for of in table.iter_rows(named=True)}
    assert values["accuracy", ""] == values["consistency", "signal"] == 1
    assert values["consistency", "reverse"] == 0.5
    assert {*result.answers["subject"]} == {"Rome is old.", "A dog."}
    assert read_answers(result.run.path)["group"].unique().to_list() == ["rte"]


@pytest.mark.parametrize(("columns", "message"), [
    ({"options": "o1+o3"}, "no column o1.o3 among item, style, gold"),
    ({"prompt": "none"}, "no column none among"), ({"aliases": "o1"}, "a factor called 'aliases'"),
])  # fmt: skip
def test_a_column_that_is_named_is_there(columns, message):
    """Options in two columns, a variant by name; the first row has no answer."""
    one, two = {"gold": "1", "o1": "1", "o2": "2"}, {"gold": "3", "o1": "3", "o2": "4"}
    rows = [{"item": "a", "style": "x"} | one, {"item": "a", "style": "y", "answer": "2"} | one]
    rows += [{"item": "b", "style": style, "answer": "3"} | two for style in "xy"]
    result = cs.score(rows, columns={"variant": "style", "options": ["o1", "o2"]})
    assert result.suite.relations[0].design.variants == ("template=x", "template=y")
    assert result.run.answers["option"].to_list() == [None, 1, 0, 0]
    refused(message, cs.score, rows, columns=columns)


@pytest.mark.parametrize(("second", "meaning"), [("ab", "variants agree"), ("a", "variants agree where several")])  # fmt: skip
def test_the_summary_says_where_only_some_items_have_several_variants(tmp_path, second, meaning):
    rows = [row(item, "x", paraphrase="1") for item in "ab"]
    rows += [row(item, "x", paraphrase="2") for item in second]
    summary = cs.score(write(tmp_path / "t.jsonl", rows)).summary
    assert [of.meaning for of in summary.rows if of.metric == "consistency"] == [meaning]
