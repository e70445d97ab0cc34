"""Sentence pairs: runs of probe, forms as a model is asked them, and their numbers by hand."""

import hashlib
import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

from checks import output, refusal, refused
from conftest import SENTENCES, cases, number
from consilience import measure
from consilience.analysis.examples import CHANGED_ANSWERS_SCHEMA, changed_answers
from consilience.core.items import TextPair
from consilience.core.schemas import ANSWERS_SCHEMA, METRICS_SCHEMA
from consilience.metrics import differences
from consilience.metrics.measure import CheckedAnswers
from consilience.plans.asking import query_table
from consilience.plans.pairs import present_pairs
from consilience.report.cautions import Known, cautions
from consilience.results.reporting import report
from consilience.runs.run import Run, read_answers
from consilience.suites.pairs import TASKS, chosen, original
from pair_builders import (
    FORMS,
    MRPC,
    PAIRS,
    SAME,
    answers_of,
    changed_in,
    comparable,
    compared,
    measured,
    metrics_of,
    numbered,
    present,
    row_of,
    save_classifier,
    shown,
    shuffled,
    stamps,
    suite_of,
    table,
    write_pairs,
)


@pytest.fixture
def perturb(consilience, tmp_path):
    """``perturb(model, "--json")``: the command on MRPC's eight pairs into ``run``.

    Brackets in a name are no pattern of file names.
    """
    data = write_pairs(tmp_path / "pairs[1].jsonl")

    def run(model, *options, task="mrpc", data=data, out="run"):
        return consilience(
            "probe", "--model", model, "--suite", task, "--data", data, "--out", tmp_path / out, *options
        )  # fmt: skip

    return run


def test_a_run(consilience, classifier, perturb, tmp_path):
    model = classifier("llama", SAME)
    status, out, err = perturb(model, out="run[1]")
    assert status == 0
    folder = tmp_path / "run[1]"
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "answers", "queries.parquet", "metrics.csv",
    }  # fmt: skip
    record = json.loads((folder / "run.json").read_text())
    assert (record["settings"]["kind"], record["settings"]["suite"]) == ("pairs", "mrpc")
    assert record["settings"]["perturbations"] == ["reverse", "signal"]
    assert record["settings"]["task"]["indicators"] == ["Sentence1", "Sentence2"]
    assert record["finished"]
    answers = pl.read_parquet(folder / "answers" / "0.parquet", glob=False)
    assert (dict(answers.schema), answers["variant"].to_list()) == (ANSWERS_SCHEMA, list(FORMS) * 8)
    assert answers["item"].to_list() == [str(at) for at in range(8) for _ in FORMS]
    assert answers["gold"].to_list() == [SAME[at % 2] for at in range(8) for _ in FORMS]
    assert set(answers["n_candidates"]) == {2}
    expected = measured(answers, SAME, positive=SAME[-1])
    assert comparable(metrics_of(folder)) == comparable(expected)
    said = answers["answer"].to_numpy().reshape(8, 3)
    kept = said[:, 1:] == said[:, :1]
    for at, form in enumerate(FORMS[1:]):
        assert row_of(metrics_of(folder), "consistency", form)["value"] == kept[:, at].mean()
    rows = changed_in(folder)
    assert len(rows) == (~kept).sum() > 0
    margins = [row["margin"] for row in rows]
    assert margins == sorted(margins, reverse=True)
    assert {(row["item"], row["perturbation"]) for row in rows} == {
        (str(item), FORMS[1 + form]) for item, form in np.argwhere(~kept)
    }
    for text in ("Accuracy", "Consistency C_R", "Consistency C_S", "Report: "):
        assert text in out
    _, out, _ = consilience("score", folder, "--by", "form")
    for text in ("original", "reverse", "signal"):
        assert text in out
    assert "asking: 24 queries in " in err


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A folder as finetune leaves it: seed-N/TASK."""
    folder = tmp_path_factory.mktemp("finetuned")
    for seed in range(2):
        save_classifier(folder / f"seed-{seed}" / "mrpc", seed=2 * seed)
    return folder


def test_a_seed_that_finetune_wrote_is_a_run(finetuned, perturb, consilience, tmp_path):
    """Named by its folder, or by that of its task; another seed in its folder is another run."""
    for part in ("seed-1", "seed-1/mrpc"):
        assert perturb(finetuned / part, out=part.replace("/", "-"))[0] == 0
    one, two = (metrics_of(tmp_path / name) for name in ("seed-1", "seed-1-mrpc"))
    assert comparable(one) == comparable(two)
    status, _, err = perturb(finetuned / "seed-0", out="seed-1")
    assert (status, "another run: its model" in err) == (2, True)
    err = refusal(consilience, "analyze", "patterns", tmp_path / "seed-1")
    assert "a run of sentence pairs; expected a run of facts." in " ".join(err.split())


def test_two_halves_are_all_pairs(perturb, tmp_path):
    halves = []
    for name in ("1", "2"):
        perturb("baseline:random", data=tmp_path / f"pairs[1].jsonl#{name}", out=name)
        halves += read_answers(tmp_path / name)["item"].unique().to_list()
    assert sorted(halves) == [str(at) for at in range(8)]


def test_a_model_is_asked_with_the_indicators_of_its_training(perturb, tmp_path):
    """Those that finetune left beside the model."""
    model = save_classifier(tmp_path / "model", "llama", seed=3)
    beside = {"joined": "string", "indicators": ["Left", "Right"]}
    (model / "consilience.json").write_text(json.dumps(beside))
    assert perturb(model)[0] == 0
    texts = [row["original_1"] for row in changed_in(tmp_path / "run")]
    assert texts and all(text.startswith("Left: ") for text in texts)
    asked = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"]
    assert asked["joined"] == "string"
    (model / "consilience.json").write_text(json.dumps(beside | {"pool": "mean"}))
    assert "not the record of a reading" in perturb(model, out="mean")[2]


@pytest.fixture
def bad(tmp_path, classifier, model_folder, finetuned):
    return {
        "good": classifier("bert", SAME),
        "unnamed": classifier("bert", SAME, named=False),
        "three": classifier("bert", TASKS["mnli"].labels),
        "one more": classifier("bert", (*SAME, "other")),
        "seeds": finetuned,
        "encoder": model_folder("bert"),
        "t5": model_folder("t5"),
        "llama": model_folder("llama"),
        "gpt2": model_folder("gpt2"),
        "packaged": "packaged:smollm2",
        "majority": "baseline:majority",
        "oracle": "baseline:oracle",
        "no column": write_pairs(tmp_path / "column.jsonl", sentence2=None),
        "odd label": write_pairs(tmp_path / "label.jsonl", label="perhaps"),
        "no label": write_pairs(tmp_path / "unlabelled.jsonl", label=-1),
        "none": tmp_path / "none.jsonl",
    }


@pytest.mark.parametrize("case", cases("probe_pairs_bad"), ids=lambda case: case["message"][:70])
def test_bad_input_is_one_message_and_status_2(case, bad, perturb, tmp_path):
    data = {"data": bad[case["data"]]} if "data" in case else {}
    model, task = bad[case.get("model", "good")], case.get("task", "mrpc")
    status, out, err = perturb(model, *case.get("options", ()), task=task, **data)
    message = " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert (status, out) == (2, "")
    assert case["message"] in message and case["todo"] in message
    assert "Traceback" not in err and len(re.findall("error", err, re.IGNORECASE)) == 1
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.parametrize(("family", "options", "kind", "text"), [
    ("llama", ("--template", "{text}:"), "causal", f"Sentence1: {SENTENCES[0]}"),
    ("t5", (), "seq2seq", f"sentence1: {SENTENCES[0]}"),
])  # fmt: skip
def test_a_model_that_writes(family, options, kind, text, model_folder, perturb, tmp_path):
    """Nothing that it writes is a label, so nothing agrees; what it chooses is one of the labels."""
    command = (model_folder(family), "--generate", *options)
    plan = json.loads(perturb(*command, "--json", "--dry-run")[1])["plan"]
    assert (plan["queries"], plan["timed"], plan["requests"]) == (48, 8, None)
    assert "Accuracy (written)" in output(perturb, *command)
    said = metrics_of(tmp_path / "run").filter(pl.col("group") == "mrpc-generated")
    assert (row_of(said, "no_option")["value"], row_of(said, "consistency")["value"]) == (1, 0)
    run, keys = Run.open(tmp_path / "run"), ["group", "item", "variant", "gold"]
    model = run.settings["model"]
    assert (model["template"], model["kind"]) == (options[1] if options else None, kind)
    assert run.queries["input"][0][0] == text
    labelled, written = (run.answers.filter(group=of) for of in ("mrpc", "mrpc-generated"))
    assert {*labelled["answer"].drop_nulls()} <= {*SAME} and labelled["text_logprob"].count()
    assert written["logprob"].null_count() == 24
    assert run.queries.select(keys).equals(run.answers.select(keys))
    before = stamps(tmp_path / "run")
    assert len(before) == 2 and perturb(*command)[0] == 0
    assert stamps(tmp_path / "run") == before
    assert "another run: its model" in refusal(perturb, *command[:2], "--template", "Say {text}")


@pytest.mark.parametrize("options", [[], ["--generate"]], ids=["classifier", "writer"])
def test_the_noise_floor_of_pairs(options, classifier, model_folder, perturb, tmp_path):
    """Of all that was answered in 24 forms, also where a model chooses a label and writes one."""
    model = model_folder("t5") if options else classifier("bert", SAME)
    status, out, err = perturb(model, "--noise-floor", "256", *options)
    assert status == 0, err
    floor = pl.read_csv(tmp_path / "run" / "metrics.csv").filter(pl.col("metric") == "noise_floor")
    answered = read_answers(tmp_path / "run")["answer"].count()
    assert floor.select("kind", "n", "value").rows() == [("whole", answered, 0)]
    assert answered > 24 if options else answered == 24
    assert "Asked the same prompts again" not in out + err  # no caution: nothing changed
    report([str(tmp_path / "run")])  # the noise floor is of no task
    assert "<h2>Cautions</h2>" in (tmp_path / "run" / "report.html").read_text("utf-8")


# ``probe --perturbations``: a user's functions.

MINE = """
from dataclasses import replace

def polite(form):
    return tuple(replace(part, sentence="Please: " + part.sentence) for part in form)
"""


@pytest.fixture
def mine(tmp_path):
    (path := tmp_path / "my_forms.py").write_text(MINE)
    return path


def test_a_function_of_a_file_is_asked_and_recorded(classifier, perturb, mine, tmp_path):
    """The run keeps the file's name and SHA-256; a changed file is another run."""
    command = (classifier("bert"), "--perturbations", f"{mine}:polite")
    output(perturb, *command)
    settings = Run.open(tmp_path / "run").settings
    assert settings["perturbations"] == ["polite"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert settings["perturbation_sources"] == {"polite": {"file": "my_forms.py", "sha256": digest}}
    assert row_of(metrics_of(tmp_path / "run"), "consistency", "polite")["n"] == 8
    assert set(read_answers(tmp_path / "run")["variant"]) == {"original", "polite"}
    texts = {row["text_1"] for row in changed_in(tmp_path / "run")}
    assert texts and all(text.startswith("Sentence1: Please: ") for text in texts)
    before = stamps(tmp_path / "run")
    output(perturb, *command)
    mine.write_text(MINE.replace("Please", "Kindly"))
    assert "this folder holds another run: its perturbation_sources " in refusal(perturb, *command)
    assert stamps(tmp_path / "run") == before


@pytest.mark.parametrize(("options", "message", "todo"), cases("probe_forms_bad"))
def test_options_of_the_other_kind_of_suite_are_refused(options, message, todo, consilience):
    command = ("probe", "--model", "baseline:majority", "--out", "run", "--suite", *options)
    err = refusal(consilience, *command)
    assert message in " ".join(err.split()) and todo in " ".join(err.split())
    assert err.count("error") == 1


# Forms of sentence pairs as a model is asked them: lengths, changed answers.


def size(model, form):
    """The tokens of a form; T5 writes none of them."""
    if hasattr(model, "input"):
        return len(model.input.encode([form])[0]["input_ids"])
    return len(model.model.prompt_ids(model.prompt(form)))


@pytest.mark.parametrize(("family", "longest"), [("bert", 24), ("llama", 40), ("t5", 40)])
def test_a_pair_of_which_a_form_is_too_long_is_not_asked(family, longest, load, writer):
    """In all forms or in none, so all forms are of the same pairs; the first reason is named."""
    model = writer("t5", longest=longest) if family == "t5" else load(family, longest=longest)
    pairs = [TextPair(str(n), "Rome " * n, "Oslo", SAME[0]) for n in (1, *range(5, 20), 40)]
    group = present(pairs, FORMS[1:], model)
    reasons = [{one.why_not for one in group.asks[at : at + 3]} for at in range(0, 51, 3)]
    assert all(len(of_pair) == 1 for of_pair in reasons)
    sizes = [max(size(model, form) for form in forms) for forms in shown(group)]
    assert 0 < sum(each > longest for each in sizes) < 17
    for (reason,), most in zip(reasons, sizes, strict=True):
        assert (reason is None) == (most <= longest)
        assert reason is None or reason.endswith(f" tokens, and the model takes {longest}")


def changes_of(answers):
    """The changed answers to the first of the pairs."""
    first = partial(original, indicators=MRPC.indicators)
    pairs = PAIRS[: answers["item"].n_unique()]
    group = present_pairs(MRPC, pairs, first, chosen(FORMS[1:]), None)
    queries = query_table(replace(group, id="t"), lambda form: [one.text for one in form])
    return changed_answers(queries, answers, suite_of(answers.drop_nulls("answer"), labels=SAME))


def test_changed_answers_the_surest_first():
    """Item 0 keeps its answer; 1 changes in both forms, 2 in signal; 3 has no answer.

    The margin of a change is the smaller one of both: item 1 min(2, 3) and min(2, .5), item 2 1.
    """
    no, yes = SAME
    said = [(yes, yes, yes), (yes, no, no), (no, no, yes), (None, None, None)]
    margins = [9, 9, 9, 2, 3, 0.5, 1, 7, 4, None, None, None]
    answers = table([(str(at), yes, row) for at, row in enumerate(said)])
    answers = answers.with_columns(margin=pl.Series(margins, dtype=pl.Float64))
    changes = changes_of(shuffled(answers))
    assert dict(changes.schema) == CHANGED_ANSWERS_SCHEMA
    columns = ["item", "perturbation", "original_answer", "answer", "margin"]
    assert changes.select(columns).rows() == [
        ("1", "reverse", yes, no, 2.0), ("2", "signal", no, yes, 1.0), ("1", "signal", yes, no, 0.5),
    ]  # fmt: skip
    assert changes.row(0, named=True) == {
        "group": "t", "perturbation": "reverse", "item": "1", "gold": yes,
        "original_answer": yes, "answer": no, "margin": 2.0,
        "original_1": "Sentence1: Paris is the capital of France.",
        "original_2": "Sentence2: Berlin is the capital of Germany.",
        "text_1": "Sentence2: Berlin is the capital of Germany.",
        "text_2": "Sentence1: Paris is the capital of France.",
    }  # fmt: skip


def test_an_answer_that_is_no_label_is_a_change():
    """The same string twice counts; a label after no label does as well."""
    rows = [("0", SAME[1], ["x", "x", SAME[1]]), ("1", SAME[1], [SAME[1]] * 3)]
    changes = changes_of(table(rows))
    found = changes.select("item", "perturbation", "answer").rows()
    assert found == [("0", "reverse", "x"), ("0", "signal", SAME[1])]
    assert changes["margin"].null_count() == 2


# The numbers of sentence pairs, worked out by hand: metrics, comparisons, accuracy by form.


HAND = numbered("yyynnnny", "yynnynny", "ynnnnnyy", "yyynynnn")


def form_changes(run):
    """The change of accuracy between each two forms."""
    checked = CheckedAnswers(run, suite_of(run))
    (relation,) = checked.relations
    forms = relation.design.forms
    firsts = [variants[0] for variants in forms.values()]
    grid = checked.views(relation, "strict")["tuples"].only_variants(firsts)
    first, second = ([list(forms)[at] for at in side] for side in grid.pairs.T)
    changes = differences.accuracy_changes(grid)
    return pl.DataFrame({"first": first, "second": second}).hstack(changes)


@pytest.mark.parametrize("case", cases("pair_numbers"), ids=lambda case: case["case"])
def test_numbers_by_hand(case):
    answers = answers_of(case["golds"], *case["answers"])
    metrics = measured(answers, positive=case.get("positive", ""))
    assert dict(metrics.schema) == METRICS_SCHEMA
    for subset, values in case["expected"].items():
        for name, value in values.items():
            metric, _, column = name.partition(" ")
            measured_value = row_of(metrics, metric, subset)[column or "value"]
            expected = pytest.approx(number(value), rel=1e-12, nan_ok=True)
            assert measured_value == expected, (subset, name)
    if "-" not in "".join(case["answers"]):
        assert set(metrics["n_excluded"]) == {0}
    for row, counts in case.get("counts", {}).items():
        assert [row_of(metrics, *row.split())[name] for name in ("n", "n_excluded")] == counts
    assert not set(case.get("absent", ())) & set(metrics["metric"])
    if "notes" in case:
        suite = suite_of(answers)
        metrics = measure(answers, suite, "strict")
        notes = cautions(
            Known(suite=suite, answers=CheckedAnswers(answers, suite), metrics=metrics)
        )
        notes = [note for note in notes if "comes out too low" not in note]
        assert len(notes) == len(case["notes"]), notes
        assert all(part in note for part, note in zip(case["notes"], notes, strict=True)), notes


def test_a_form_that_one_run_lacks_is_left_out():
    two = table([(item, gold, said[:2]) for item, gold, said in HAND], FORMS[:2])
    row = row_of(compared(table(HAND), two), "consistency", "signal")
    assert (row["n"], row["n_excluded"]) == (0, 8)
    assert math.isnan(row["difference"])


def test_a_form_or_group_that_the_suite_does_not_have_is_refused():
    suite = suite_of(table(HAND))
    for other in (table(HAND, ("original", "reverse", "dash")), table(HAND, group="u")):
        refused("no variant 'dash'|has no .* 'u'", measure, other, suite, "strict")


SAID = "yn" * 15


def test_a_clear_difference():
    """The second keeps all 30 answers, the first none; accuracy on the original is the same."""
    first, second = (answers_of(SAID, SAID, letters) for letters in ("ny" * 15, SAID))
    comparison = compared(first, second)
    row = row_of(comparison, "consistency", "reverse")
    assert (row["first_value"], row["second_value"], row["difference"]) == (0, 1, 1)
    assert row["p"] == 1 / 10_000, "none of 9999 ways to swap items is as far apart"
    assert row["n"] == 30
    kappa = row_of(comparison, "corrected_consistency", "reverse")
    assert kappa["difference"] == pytest.approx(1 + 30 / 28), "of two items 15 * 30 / 30 * 29"
    accuracy = row_of(comparison, "accuracy")
    assert (accuracy["difference"], accuracy["p"]) == (0, 1)
    back = row_of(compared(second, first), "consistency", "reverse")
    assert (back["difference"], back["p"]) == (-1, row["p"])


def test_p_is_adjusted_over_the_forms_of_one_metric():
    """The smaller p of two forms is doubled, the other not below that; the original's is not."""
    said = SAID[:20]
    first = answers_of(said, said, "ny" * 10, "nyny" + said[4:])
    second = answers_of(said, said, said, "nnyn" + said[4:])
    comparison = compared(first, second)
    small, large = (row_of(comparison, "consistency", form) for form in FORMS[1:])
    assert small["p"] < large["p"] < 1
    assert (small["p_holm"], large["p_holm"]) == (2 * small["p"], large["p"])
    assert math.isnan(row_of(comparison, "accuracy")["p_holm"])
    tested = comparison.filter(comparison["p"].is_not_nan())
    assert tested["p_holm"].is_nan().sum() == (tested["kind"] == "whole").sum()


def test_labels_are_told_apart_by_name():
    """Runs that say e and n, and e and c: their p stays when c gets a name that sorts elsewhere."""

    def run(other, keeps):
        pairs = [("e", other) if at % 3 else (other, "e") for at in range(16)]
        both = enumerate(zip(pairs, keeps, strict=True))
        rows = [(str(at), "e", [one, one if same else two]) for at, ((one, two), same) in both]
        return table(rows, FORMS[:2])

    def compare_with(third):
        runs = run("n", [0, 1] * 8), run(third, [1, 1, 0, 1] * 4)
        return comparable(compared(*runs, ("e", "n", third)))

    assert compare_with("c") == compare_with("z")


def test_accuracy_that_a_form_loses_is_found():
    """30 of 40 right answers become wrong in one form, in the other none: 2 * 2**-30 is small."""
    said = "yn" * 20
    rows = form_changes(answers_of(said, said, "ny" * 15 + said[30:], said)).to_dicts()
    assert [row["change"] for row in rows] == [-0.75, 0, 0.75]
    assert (rows[0]["p"], rows[0]["p_holm"]) == (pytest.approx(2 / 2**30), 2 * rows[0]["p"])
    assert (rows[2]["p"], rows[2]["p_holm"]) == (rows[0]["p"], rows[0]["p"]), "the only other pair"
    assert -1 < rows[0]["change_low"] < rows[0]["change_high"] < -0.5 and rows[1]["p"] == 1
    assert rows[1]["change_low"] == pytest.approx(-rows[1]["change_high"])


def test_items_without_an_answer_are_in_no_change_of_accuracy():
    (row,) = form_changes(answers_of("yyy", "yny", "y-n")).to_dicts()
    assert (row["first_accuracy"], row["second_accuracy"], row["n"]) == (1, 1 / 2, 2)
