"""``suite new``: the example is right, explains itself, and replaces nothing."""

import json
import re

import pytest

import consilience as cs
from checks import output, refused
from consilience import new_suite
from consilience.suites.questions import KNOWN
from scoring_server import VLLM, scoring_server
from test_prompted import CHAT


def test_the_example_of_questions_has_every_kind_of_question(consilience, tmp_path):
    assert "README.md, questions.csv" in output(consilience, "suite", "new", tmp_path / "mine")
    questions = cs.load_questions(tmp_path / "mine")
    sizes = {group: {len(q.options) for q in items} for group, items in questions.groups.items()}
    assert sizes == {"geography": {4}, "science": {4}, "computing": {0}}
    aliases = {q.gold.text: q.gold.aliases for q in questions.items if q.gold.aliases}
    assert aliases["Go"] == ("Golang",)
    assert {q.phrasings for q in questions.items} == {2, 3}
    assert {q.gold_position for q in questions.items if q.options} == {0, 1, 2, 3}


def test_the_readme_explains_every_column(tmp_path):
    readme, table = new_suite(tmp_path / "mine")
    named = set(re.findall(r"`(\w+)`", readme.read_text(encoding="utf-8")))
    assert set(KNOWN) <= named
    assert set(table.read_text(encoding="utf-8").splitlines()[0].split(",")) <= named


def test_the_example_of_facts_passes_the_check_and_is_asked(consilience, tmp_path):
    folder = tmp_path / "facts"
    out = output(consilience, "suite", "new", folder, "--kind", "facts", "--json")
    assert len(json.loads(out)["files"]) == 4
    status, out, err = consilience("suite", "check", folder)
    assert (status, err) == (0, "")
    assert "good; 2 relations, 6 patterns, 9 facts" in out
    probe = ("probe", "-m", "baseline:majority", "-s", folder, "-o", tmp_path / "run")
    assert "2 relations, 9 facts" in output(consilience, *probe)


def test_a_folder_with_files_is_refused_and_an_empty_one_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    assert new_suite(tmp_path / "empty")
    before = (tmp_path / "empty" / "questions.csv").read_bytes()
    refused("a folder that is not empty", new_suite, tmp_path / "empty", kind="facts")
    assert (tmp_path / "empty" / "questions.csv").read_bytes() == before
    (tmp_path / "file").write_text("x")
    refused("a file; expected a new folder", new_suite, tmp_path / "file")
    refused("", new_suite, tmp_path / "file" / "below")


WAYS = {
    "tokens": VLLM, "chats": {"no logprobs"}, "dry run": VLLM,
    "evaluate": VLLM,
}  # fmt: skip
FEW = {"limit": 1, "groups": "geography,computing", "vary": "paraphrase=2", "max_new_tokens": 2}


@pytest.mark.parametrize("way", WAYS)
def test_the_example_of_a_served_model(consilience, model_folder, tmp_path, monkeypatch, way):
    """Options are chosen and open questions are answered in one run, by one server."""
    folder, suite = str(model_folder("llama")), new_suite(tmp_path / "mine")[1].parent
    with scoring_server(folder, WAYS[way], chat_template=CHAT) as server:
        named = {"model": "openai:tiny", "base_url": server.url, **FEW}
        if "echo" in WAYS[way]:
            named["tokenizer"] = folder
        if way == "evaluate":
            assert_complete(cs.evaluate(suite, **named))
            return
        options = [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]
        options += ["--dry-run"] * (way == "dry run")
        status, out, err = consilience("probe", "-s", suite, "-o", tmp_path / "run", *options)
    if way == "dry run":
        assert (status, "Requests  " in out, (tmp_path / "run").exists()) == (0, True, False)
    else:
        assert status == 0, err
        assert_complete(cs.open_run(tmp_path / "run"))


def assert_complete(result):
    """Options were chosen by scores or in what is written, and open questions answered."""
    answers = result.answers
    assert set(answers["group"]) == {"geography", "computing"}
    assert answers["excluded"].null_count() == answers.height
    is_open = answers["group"] == "computing"
    assert answers.filter(is_open)["text"].null_count() == 0
    assert answers.filter(~is_open)["answer"].null_count() == 0
