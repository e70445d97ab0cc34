"""``probe --perturbations``: facts in perturbed patterns, a user's functions, columns of the data."""

import hashlib
import json

import polars as pl
import pytest

from checks import output, refusal
from conftest import cases
from consilience.runs.run import read_answers
from pair_builders import changed_in, metrics_of, row_of, stamps, write_pairs

MINE = """
from dataclasses import replace

def polite(form):
    return tuple(replace(part, sentence="Please: " + part.sentence) for part in form)

def asked(text):
    return "Please: " + text
"""


@pytest.fixture
def mine(tmp_path):
    (path := tmp_path / "my_forms.py").write_text(MINE)
    return path


@pytest.fixture
def facts(consilience, write_suite):
    """``facts("lower_case", "--limit", 2)``: probe three facts in three patterns into ``run``."""
    suite = write_suite()

    def run(perturbations, *options, model="baseline:random", out="run"):
        return consilience("probe", "--model", model, "--suite", suite, "--groups", "capital",
                           "--perturbations", perturbations, "--out", out, *options)  # fmt: skip

    return run


@pytest.fixture
def pairs(consilience, classifier, tmp_path):
    """``pairs("signal")``: probe MRPC's eight pairs, which have a column ``other``."""
    data = write_pairs(tmp_path / "pairs.jsonl", other="Oslo is in Europe.")

    def run(perturbations, *options, data=data, out="run"):
        return consilience("probe", "--model", classifier("bert"), "--suite", "mrpc", "--data", data,
                           "--perturbations", perturbations, "--out", out, *options)  # fmt: skip

    return run


def metric_of(folder, metric, subset="all"):
    """The row of a metric of the run's group, not of the means over groups."""
    metrics = metrics_of(folder)
    return row_of(metrics.filter(pl.col("group").is_in(["capital", "mrpc"])), metric, subset)


def settings_of(folder):
    return json.loads((folder / "run.json").read_text())["settings"]


PATTERNS = (
    "The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital, [Y], is large.",
)  # fmt: skip
PERTURBED = {
    "lower_case": ("the capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital, [Y], is large."),
    "upper_case": ("THE CAPITAL OF [X] IS [Y].", "[Y] IS THE CAPITAL OF [X].", "[X]'S CAPITAL, [Y], IS LARGE."),
    "no_period": ("The capital of [X] is [Y]", "[Y] is the capital of [X]", "[X]'s capital, [Y], is large"),
    "typo": ("The cpaital of [X] is [Y].", "[Y] is the cpaital of [X].", "[X]'s cpaital, [Y], is large."),
}  # fmt: skip


def test_facts_in_perturbed_patterns(facts, tmp_path):
    """Each form is counted here again: its answers against those of the same pattern unperturbed."""
    status, out, err = facts("all")
    assert status == 0
    assert settings_of(tmp_path / "run")["perturbations"] == list(PERTURBED)
    assert "lower_case: leaves 2 of 3 patterns as they are, so their consistency is 100 %" in err
    _, out, _ = facts("all", "--by", "form")
    assert all(form in out for form in PERTURBED)
    rows = read_answers(tmp_path / "run").iter_rows(named=True)
    answers = {(row["variant"], row["subject"]): (row["answer"], row["gold"]) for row in rows}
    subjects = ("France", "Germany", "Italy")
    assert len(answers) == 5 * 3 * len(subjects)
    run, agreements = tmp_path / "run", []
    for form, patterns in PERTURBED.items():
        same = [
            answers[f"{form}: {perturbed}", subject] == answers[pattern, subject]
            for pattern, perturbed in zip(PATTERNS, patterns, strict=True)
            for subject in subjects
        ]
        base = [answers[f"{form}: {patterns[0]}", subject] for subject in subjects]
        right = [answer == gold for answer, gold in base]
        assert metric_of(run, "consistency", form)["value"] == pytest.approx(sum(same) / 9)
        assert metric_of(run, "consistency", form)["n"] == 9
        assert metric_of(run, "accuracy", form)["value"] == pytest.approx(sum(right) / 3)
        agreements += same
    consistency = metric_of(run, "consistency")
    assert consistency["value"] == pytest.approx(sum(agreements) / 36)
    assert 0 < consistency["value"] < 1


def test_a_run_of_perturbed_facts_is_resumed_and_shown(facts, consilience, tmp_path):
    assert facts("lower_case,typo")[0] == 0
    before, metrics = stamps(tmp_path / "run"), (tmp_path / "run" / "metrics.csv").read_bytes()
    assert facts("lower_case,typo")[0] == 0
    assert stamps(tmp_path / "run") == before
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics
    assert "another run: its perturbations is" in refusal(facts, "typo")

    suite = tmp_path / "suite"
    assert consilience("score", "run", "--suite", suite, "--csv", "scored.csv")[0] == 0
    assert (tmp_path / "scored.csv").read_bytes() == metrics
    assert facts("lower_case,typo", model="baseline:oracle", out="oracle")[0] == 0
    differences = json.loads(output(consilience, "compare", "run", "oracle", "--json"))
    rows = [row for row in differences["differences"] if row["group"] == "capital"]
    rows = [row for row in rows if row["metric"] == "consistency"]
    assert {row["subset"] for row in rows} == {"all", "lower_case", "typo"}
    for row in rows:
        first = metric_of(tmp_path / "run", "consistency", row["subset"])["value"]
        assert (row["first_value"], row["second_value"]) == (pytest.approx(first), 1)
    assert consilience("report", "run", "--out", "run.html")[0] == 0
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "lower_case" in page and "typo" in page


@pytest.mark.parametrize(("kind", "name"), [("facts", "asked"), ("pairs", "polite")])
def test_a_function_of_a_file_is_asked_and_recorded(kind, name, mine, request, tmp_path):
    """The run keeps the file's name and SHA-256; a changed file is another run."""
    run = request.getfixturevalue(kind)
    spec = f"{mine}:{name}"
    assert run(spec)[0] == 0
    settings = settings_of(tmp_path / "run")
    assert settings["perturbations"] == [name]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert settings["perturbation_sources"] == {name: {"file": "my_forms.py", "sha256": digest}}
    assert metric_of(tmp_path / "run", "consistency", name)["n"] in (8, 9)
    variants = set(read_answers(tmp_path / "run")["variant"])
    if kind == "facts":
        assert variants == {*PATTERNS, *(f"asked: Please: {pattern}" for pattern in PATTERNS)}
    else:
        assert variants == {"original", "polite"}
        texts = {row["text_1"] for row in changed_in(tmp_path / "run")}
        assert texts and all(text.startswith("Sentence1: Please: ") for text in texts)
    before = stamps(tmp_path / "run")
    assert run(spec)[0] == 0
    mine.write_text(MINE.replace("Please", "Kindly"))
    assert "this folder holds another run: its perturbation_sources " in refusal(run, spec)
    assert stamps(tmp_path / "run") == before


def test_a_column_of_the_data_is_asked(pairs, tmp_path):
    """Its answers are those of the same pairs with the column's text as their first sentence."""
    assert pairs("first:other")[0] == 0
    settings = settings_of(tmp_path / "run")
    assert settings["perturbations"] == ["other"]
    assert settings["perturbation_sources"] == {"other": {"column": "other"}}
    replaced = write_pairs(tmp_path / "replaced.jsonl", sentence1="Oslo is in Europe.")
    assert pairs("reverse", data=replaced, out="replaced")[0] == 0
    answers, expected = (
        read_answers(tmp_path / run).filter(pl.col("variant") == form).sort("item")
        for run, form in (("run", "other"), ("replaced", "original"))
    )
    assert answers["answer"].to_list() == expected["answer"].to_list()
    assert answers["logprob"].to_list() == pytest.approx(expected["logprob"].to_list(), abs=1e-5)
    accuracy = metric_of(tmp_path / "run", "accuracy", "other")["value"]
    assert accuracy == metric_of(tmp_path / "replaced", "accuracy")["value"]
    other = write_pairs(tmp_path / "changed.jsonl", other="Rome is in Europe.")
    status, _, err = pairs("first:other", data=other)
    assert (status, "this folder holds another run: its pairs is" in err) == (2, True)


def test_a_missing_column_is_one_message(pairs, tmp_path):
    message = "no column 'paraphrase' among idx, sentence1, sentence2, label, other"
    assert message in refusal(pairs, "first:paraphrase")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("options", "message", "todo"), cases("probe_forms_bad"))
def test_options_of_the_other_kind_of_suite_are_refused(options, message, todo, consilience):
    command = ("probe", "--model", "baseline:majority", "--out", "run", "--suite", *options)
    err = refusal(consilience, *command)
    assert message in " ".join(err.split()) and todo in " ".join(err.split())
    assert err.count("error") == 1
