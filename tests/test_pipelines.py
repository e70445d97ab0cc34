"""init: the files that it writes, and their commands with a server on this machine."""

import io
import json
import shlex
import shutil
import tomllib

import yaml

from checks import output, refusal
from conftest import ROOT
from replay_server import completion, replay

QUESTIONS = "question,question_2,answer,options\n" + "".join(
    f"Is ice {n} cold?,Is it cold: ice {n}?,yes,yes;no\n" for n in range(40)
)
RULES = ["consistency >= 0.5", "consistency no worse than baseline by 10 points"]


def scripts(ci, folder):
    """The lines with a command of consilience in the pipeline, and what else it says."""
    name = {"github": ".github/workflows/consistency.yml", "gitlab": ".gitlab-ci.yml"}[ci]
    text = (folder / name).read_text(encoding="utf-8")
    assert "@" not in text.replace("actions/", "").replace("@v6", "").replace("@v7", "")
    lines = [line.strip().removeprefix("- ").removeprefix("run: ") for line in text.splitlines()]
    called = [line.partition(" >> ")[0] for line in lines if "consilience " in line]
    called = [shlex.split(line)[1:] for line in called if line.startswith("consilience ")]
    return called, yaml.safe_load(text)


def test_a_project_is_gated_against_the_run_of_its_main_branch(consilience, tmp_path, monkeypatch):
    """The main branch is asked and kept, an equal model passes, one that changed is stopped."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.csv").write_text(QUESTIONS)

    def answer(path, body, headers):
        if not path.endswith("/chat/completions"):
            return 404, {}, {}
        asked = body["messages"][-1]["content"]
        text = "no" if server.is_changed and "Is it cold" in asked else "yes"
        return completion(body, choices=[{"message": {"content": text}}])

    with replay(answer) as server:
        server.is_changed = False
        rules = [word for rule in RULES for word in ("--rule", rule)]
        named = ["--suite", "questions.csv", "--model", "small", "--base-url", server.url]
        probes, gates, pipelines = [], [], {}
        for ci in ("github", "gitlab"):
            (tmp_path / "consilience.toml").unlink(missing_ok=True)
            files = json.loads(output(consilience, "init", *named, *rules, "--ci", ci, "--json"))
            assert len(files["files"]) == 2
            (probe, gate, *page), pipelines[ci] = scripts(ci, tmp_path)
            assert page == [["report", "runs/new"]] * (ci == "github")
            probes.append(probe)
            gates.append(gate)
        assert probes == [probe] * 2
        assert consilience(*probe)[0] == 0
        for gate in gates:
            shutil.copytree("runs/new", gate[gate.index("--baseline") + 1])
        shutil.rmtree("runs/new")
        assert consilience(*probe)[0] == 0
        for gate in gates:
            status, out, _ = consilience(*gate)
            assert (status, out.count("undecided")) == (0, 0)
        server.is_changed = True
        shutil.rmtree("runs/new")
        assert consilience(*probe)[0] == 0
        for gate in gates:
            (tmp_path / "gate.xml").unlink()
            assert consilience(*gate)[0] == 3
            assert (tmp_path / "gate.xml").read_text().count("<failure") == 2
        budget = 2 * 160 + 50  # prompts: 2 orders of 2 phrasings of 40 questions
        assert f"max-requests = {budget}" in (tmp_path / "consilience.toml").read_text()
        assert len(server.received) < 3 * budget
    steps, job = pipelines["github"]["jobs"]["gate"]["steps"], pipelines["gitlab"]["consistency"]
    uploaded = [step["with"]["path"] for step in steps if "upload" in step.get("uses", "")]
    artifacts = job["artifacts"]
    kept = [*artifacts["paths"], artifacts["reports"]["junit"]]
    assert kept == ["runs/new", "gate.xml"]
    assert uploaded == ["runs/new", "gate.xml\nruns/new\n"]
    assert "consilience report runs/new" in job["after_script"][0]


def test_the_page_on_gates_shows_what_is_written(consilience, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    called = next(line for line in page.splitlines() if line.startswith("$ consilience init"))
    (tmp_path / "questions.csv").write_text(QUESTIONS)
    printed = output(consilience, *shlex.split(called)[2:])
    assert printed in page
    assert (tmp_path / "consilience.toml").read_text() in page
    workflow = (tmp_path / ".github/workflows/consistency.yml").read_text()
    assert "OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}" in workflow
    assert "gh run list --workflow consistency --branch main --event push " in workflow
    again = refusal(consilience, *shlex.split(called)[2:])
    assert "consilience.toml: a file. Choose another folder, or remove it." in again
    assert "no --suite" in refusal(consilience, "init", "--into", "other")
    absent = ("--suite", "nope.csv", "--model", "m", "--into", "other")
    assert "nope.csv: no such file" in refusal(consilience, "init", *absent)
    wrong = ["--rule", "consistncy >= 1", "--into", "other"]
    wrong = refusal(consilience, "init", "--suite", "questions.csv", "--model", "m", *wrong)
    assert "Did you mean 'consistency'?" in wrong
    assert not (tmp_path / "other").exists()


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self):
        return True


def test_what_no_option_says_is_asked(consilience, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = "mni\nmini\nmy-model\n\nacuracy >= 0.7\naccuracy >= 0.7\n"
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    printed = output(consilience, "init")
    assert "no suite 'mni'" in printed and "Did you mean 'accuracy'?" in printed
    assert "Written: consilience.toml" in printed
    asked, rules = tomllib.loads((tmp_path / "consilience.toml").read_text()).values()
    assert asked == {"suite": "mini", "model": "my-model"}
    assert rules == {"rule": ["accuracy >= 0.7"]}


def test_a_table_with_own_columns_and_too_few_questions(consilience, tmp_path, monkeypatch):
    """Of 13 equal answers the bound is 0.05 ** (1 / 13) = 79.4 %, of 14 it is 80.7 %."""
    monkeypatch.chdir(tmp_path)
    rows = [f"Is ice {n} cold?,yes,no\n" for n in range(13)]
    (tmp_path / "q.csv").write_text("Frage,Richtig,Falsch\n" + "".join(rows))
    columns = "question=Frage,answer=Richtig,options=Richtig+Falsch"
    named = ("--suite", "q.csv", "--model", "baseline:first", "--columns", columns)
    rules = ("--rule", "consistency >= 0.8", "--rule", "accuracy >= 0.7")
    status, _, err = consilience("init", *named, *rules)
    note = "no answers to 13 items can pass 'consistency >= 0.8': it needs 14 or more"
    assert (status, err.count("no answers to"), note in err) == (0, 1, True)
    assert consilience("probe", "--config", "consilience.toml", "--out", "runs/new")[0] == 0
    config = ("gate", "--config", "consilience.toml", "runs/new")
    assert consilience(*config)[0] == 3
    (tmp_path / "q.csv").write_text((tmp_path / "q.csv").read_text() + "Is snow cold?,yes,no\n")
    assert "no answers to" not in consilience("init", *named, *rules, "--into", "other")[2]


def test_a_provider_is_named_in_place_of_its_address(consilience, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = (
        "--suite",
        "mini",
        "--model",
        "m",
        "--base-url",
        "mistral",
        "--rule",
        "accuracy >= 0.7",
    )
    assert "the secret MISTRAL_API_KEY" in output(consilience, "init", *given)
    asked = tomllib.loads((tmp_path / "consilience.toml").read_text())["probe"]
    url = "https://api.mistral.ai/v1"
    assert (asked["base-url"], asked["api-key-env"]) == (url, "MISTRAL_API_KEY")
