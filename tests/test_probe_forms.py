"""``probe --perturbations``: a user's functions."""

import hashlib
import json

import pytest

from checks import refusal
from conftest import cases
from consilience.runs.run import read_answers
from pair_builders import changed_in, metrics_of, row_of, stamps, write_pairs

MINE = """
from dataclasses import replace

def polite(form):
    return tuple(replace(part, sentence="Please: " + part.sentence) for part in form)
"""


@pytest.fixture
def mine(tmp_path):
    (path := tmp_path / "my_forms.py").write_text(MINE)
    return path


@pytest.fixture
def pairs(consilience, classifier, tmp_path):
    """``pairs("signal")``: probe MRPC's eight pairs."""
    data = write_pairs(tmp_path / "pairs.jsonl")

    def run(perturbations):
        return consilience("probe", "--model", classifier("bert"), "--suite", "mrpc", "--data", data,
                           "--perturbations", perturbations, "--out", "run")  # fmt: skip

    return run


def settings_of(folder):
    return json.loads((folder / "run.json").read_text())["settings"]


def test_a_function_of_a_file_is_asked_and_recorded(pairs, mine, tmp_path):
    """The run keeps the file's name and SHA-256; a changed file is another run."""
    spec = f"{mine}:polite"
    assert pairs(spec)[0] == 0
    settings = settings_of(tmp_path / "run")
    assert settings["perturbations"] == ["polite"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert settings["perturbation_sources"] == {"polite": {"file": "my_forms.py", "sha256": digest}}
    assert row_of(metrics_of(tmp_path / "run"), "consistency", "polite")["n"] == 8
    assert set(read_answers(tmp_path / "run")["variant"]) == {"original", "polite"}
    texts = {row["text_1"] for row in changed_in(tmp_path / "run")}
    assert texts and all(text.startswith("Sentence1: Please: ") for text in texts)
    before = stamps(tmp_path / "run")
    assert pairs(spec)[0] == 0
    mine.write_text(MINE.replace("Please", "Kindly"))
    assert "this folder holds another run: its perturbation_sources " in refusal(pairs, spec)
    assert stamps(tmp_path / "run") == before


@pytest.mark.parametrize(("options", "message", "todo"), cases("probe_forms_bad"))
def test_options_of_the_other_kind_of_suite_are_refused(options, message, todo, consilience):
    command = ("probe", "--model", "baseline:majority", "--out", "run", "--suite", *options)
    err = refusal(consilience, *command)
    assert message in " ".join(err.split()) and todo in " ".join(err.split())
    assert err.count("error") == 1
