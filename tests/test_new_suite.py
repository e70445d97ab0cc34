"""``suite new``: the example is right, explains itself, and replaces nothing."""

import json
import re

import consilience as cs
from checks import output, refused
from consilience import new_suite
from consilience.suites.questions import KNOWN
from scoring_server import VLLM, scoring_server
from test_prompted import CHAT


def test_the_example_of_questions_has_every_kind_of_question(consilience, tmp_path):
    assert "README.md, questions.csv" in output(consilience, "suite", "new", tmp_path / "mine")
    counts = "3 groups, 6 questions with options, 2 open questions"
    assert counts in output(consilience, "suite", "check", tmp_path / "mine")
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


def test_a_served_model_chooses_options_and_answers_open_questions_in_one_run(
    model_folder, tmp_path
):
    folder, suite = str(model_folder("llama")), new_suite(tmp_path / "mine")[1].parent
    few = {"limit": 1, "groups": "geography,computing", "vary": "paraphrase=2", "max_new_tokens": 2}
    with scoring_server(folder, VLLM, chat_template=CHAT) as server:
        named = {"model": "openai:tiny", "base_url": server.url, "tokenizer": folder}
        answers = cs.evaluate(suite, **named, **few).answers
    assert set(answers["group"]) == {"geography", "computing"}
    assert answers["excluded"].null_count() == answers.height
    is_open = answers["group"] == "computing"
    assert answers.filter(is_open)["text"].null_count() == 0
    assert answers.filter(~is_open)["answer"].null_count() == 0
