"""What every command has: help, examples, short options, completion, defaults from a file."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import click
import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from conftest import ROOT, cases
from consilience.app import console
from consilience.app.process import program
from consilience.options import parameters
from consilience.options.commands import ProbeOptions
from consilience.report.page import _origin
from consilience.suites import facts as fetch_module

HEAVY = (
    "torch", "transformers", "polars", "pydantic", "typer", "numpy", "scipy", "sklearn", "rich",
)  # fmt: skip


def test_help_and_usage_errors_import_no_library():
    """Each in a process of its own would take seconds, so all are in one that has nothing yet."""
    light = [(), ("--help",), ("-h",), ("--version",), ("-V",), ("suite", "--help"), ("prob",)]
    light += [("data", "list"), ("--wrong",), ("probe", "--wrong"), ("analyze", "-h")]
    light += [(*words, "--help") for words in ALL]
    code = f"""if True:
        import contextlib, io, sys
        from consilience.app import process
        for arguments in {light!r}:
            sys.argv = ["consilience", *arguments]
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                with contextlib.suppress(SystemExit):
                    process.run()
            assert text.getvalue(), arguments
        print(*[name for name in {HEAVY!r} if name in sys.modules])
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "\n", "")


@pytest.mark.parametrize("name", ["probe", "compare", "suite"])
def test_help_is_plain_text_that_names_defaults_and_examples(name, consilience):
    out = output(consilience, name, "--help")
    assert out.startswith(f"Usage: consilience {name} ") and not re.search(r"<\w+>|list\[", out)
    assert max(map(len, out.splitlines())) <= 100
    if name == "probe":
        assert "--max-new-tokens" in out and "[questions only]" in out
        assert "[default: packaged:smollm2]" in " ".join(out.split())


def test_the_short_help_of_every_command_fits_on_a_screen(consilience, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = ((), ("suite",), ("suite", "annotate"), ("study",), ("analyze",))
    for words in (*groups, *(words for words, _ in leaves(program()))):
        status, out, err = consilience(*words, "-h")
        lines = out.splitlines()
        assert (status, err, len(lines) <= 24, max(map(len, lines)) <= 80) == (0, "", True, True)
        more = f"Everything: {' '.join(('consilience', *words))} --help"
        assert words in groups or lines[-1] == more
        assert not any(line.endswith("...") for line in lines[1:]), "a sentence is whole"
    assert "  -o, --out " in consilience("probe", "-h")[1]
    assert "--max-new-tokens" not in consilience("probe", "-h")[1]


def leaves(group, words=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(leaves(program()))


def test_every_command_has_an_example_that_can_be_parsed():
    for words, command in ALL.items():
        assert command.examples, words
        for example in command.examples:
            typed = shlex.split(example)
            *start, rest = typed[: len(words)], typed[len(words) :]
            assert start == [list(words)], example
            parent = program().make_context("consilience", ["x"])
            assert command.make_context(" ".join(words), rest, parent=parent).params is not None


def test_examples_run(consilience):
    """Of the help, with a baseline in place of a model that takes long."""
    for example, expected in cases("examples_of_help"):
        assert expected in output(consilience, *example.split()), example


def test_an_option_means_the_same_in_all_commands():
    """One name has one kind of value: a path, a number, a list of groups; and one short name."""
    kinds, long = {}, {}
    for command in ALL.values():
        for param in command.get_params(click.Context(command)):
            if param.param_type_name == "option":
                if len(param.opts) == 2:
                    long.setdefault(min(param.opts, key=len), set()).add(max(param.opts, key=len))
                names, _ = param.get_help_record(click.Context(command))
                kind = names.removesuffix(" ...").split()[-1].split(",")[0]
                kind = "flag" if param.is_flag else kind
                kind = {"FILE": "PATH", "DIR": "PATH", "R": "X"}.get(kind, kind)
                kinds.setdefault(max(param.opts, key=len), set()).add(kind)
    assert {"-m", "-s", "-o", "-n", "-q"} <= set(long)
    assert all(len(names) == 1 for names in long.values()), long
    mixed = {name: values for name, values in kinds.items() if len(values) > 1}
    assert mixed == {
        "--data": {"F", "PATH"},  # a recipe reads several data sets
        "--format": {"[eee|model-card]", "[table|md|latex|csv]"},  # of what is published
        "--by": {"[group|edit|form|factor|metric]",  # of differences
                 "[group|edit|pattern|form|factor|variant|metric|item]"},
    }  # fmt: skip


def test_quiet_leaves_results_and_errors(consilience, tmp_path):
    run = ("probe", "-m", "baseline:random", "--groups", "sport", "-n", "2", "-o", tmp_path / "r")
    loud, quiet = consilience(*run), consilience(*run, "-q")
    assert loud[2].startswith("asking: ")
    assert (quiet[1], quiet[2]) == (loud[1], "")
    assert consilience("probe", "-m", "baseline:lost", "-q")[2].startswith("error: ")
    assert consilience(*run)[2].startswith("asking: ")


def test_a_shell_completes_commands_and_options(consilience, monkeypatch):
    def complete(words):
        monkeypatch.setenv("_CONSILIENCE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return [line.partition(",")[2] for line in consilience()[1].splitlines()]

    assert complete("consilience pro") == ["probe"]
    assert complete("consilience probe --suit") == ["--suite"]
    monkeypatch.delenv("_CONSILIENCE_COMPLETE")
    assert re.fullmatch(r"consilience \d+\.\d+\.\d+\n", output(consilience, "--version"))


def test_a_configuration_file_sets_defaults(consilience, tmp_path, monkeypatch):
    file = tmp_path / "consilience.toml"
    file.write_text('[probe]\nmodel = "baseline:oracle"\nlimit = 2\ngroups = ["sport"]\n[score]\n')
    _, out, err = consilience("probe", "-o", "one", "--json")
    settings = json.loads(out)["run"]["settings"]
    assert (settings["model"]["model"], settings["limit"]) == ("baseline:oracle", 2)
    assert settings["groups"] == ["sport"]
    assert err.startswith("defaults from consilience.toml: groups, limit, model\n")
    out = consilience("probe", "-n", "1", "-o", "two", "--json")[1]
    assert json.loads(out)["run"]["settings"]["limit"] == 1, "the command line decides"
    assert "defaults from" not in consilience("suite", "list")[2], "none of them is used"
    other = tmp_path / "other.toml"
    other.write_text('[probe]\nmodel = "baseline:constant"\ngroups = "sport"\nlimit = 1\n')
    out = consilience("probe", "--config", other, "-o", "three", "--json")[1]
    assert json.loads(out)["run"]["settings"]["model"]["model"] == "baseline:constant"
    dry_run = ("probe", "--dry-run", "-m", "baseline:oracle")
    assert "defaults from" not in consilience(*dry_run, "--config", "")[2]


def test_what_the_command_line_gives_is_not_refused_in_a_file(consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text('[probe]\nbase-url = "http://127.0.0.1:9/a"\n')
    run = ("probe", "-m", "x", "-s", "mini-open", "-n", "1", "-o", "run")
    assert "base-url, which runs code, names" in refusal(consilience, *run)
    assert "127.0.0.1:9/b" in refusal(consilience, *run, "--base-url", "http://127.0.0.1:9/b")


def test_a_recorded_command_has_the_values_of_the_file(consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text(
        '[probe]\nlimit = 1\ngroups = ["sport", "capital"]\ndata-dir = "my data"\nquiet = true\n'
    )
    err = consilience("probe", "-m", "baseline:oracle", "-n", "2", "-o", "run")[2]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert err == "", "quiet"
    command = "consilience probe --groups sport,capital --limit 2 --model baseline:oracle "
    repeated = dict(_origin("run", record))["Command"]
    assert repeated == f"{command}--data-dir 'my data' --out run"
    vary = parameters(ProbeOptions)["vary"]
    assert vary.arguments(("order", "labels")) == ["--vary", "order", "--vary", "labels"]


@pytest.mark.parametrize("words", [
    "probe -h", "--help", "--version", "probe --config consilience.toml -h", "probe -n x --help",
])  # fmt: skip
def test_nothing_that_is_wrong_hides_the_help(words, consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text("quit = true\n")
    assert consilience(*words.split())[0] == 0


@pytest.mark.parametrize(("text", "message"), cases("configuration_bad"))
def test_a_wrong_configuration_is_one_message(text, message, consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text(text)
    assert message in refusal(consilience, "probe", "-m", "baseline:oracle")


def test_a_dry_run_writes_nothing(consilience, tmp_path):
    run = ("probe", "-m", "baseline:majority", "-n", "3", "--groups", "capital,sport", "-o", "run")
    out = output(consilience, *run, "--dry-run")
    assert "Groups    2\nItems     6, each in 9 patterns\nQueries   54, each with" in out
    assert "Folder    run (new)\nTime      at most about 1 s to ask 54 queries" in out
    assert "\nPrompt    The capital of" in out
    assert not list(tmp_path.glob("run*"))
    assert consilience(*run)[0] == 0
    plan = json.loads(consilience(*run, "--dry-run", "--json")[1])["plan"]
    assert (plan["queries"], plan["complete"], plan["is_new"]) == (54, 54, False)
    assert "this folder holds another run" in refusal(consilience, *run, "--dry-run", "--seed", "1")


def test_progress_is_lines_where_no_terminal_is(
    consilience, model_folder, tmp_path, monkeypatch, capsys
):
    """Of a real model: nothing of other libraries is between them."""
    monkeypatch.setattr(console, "INTERVAL", 0)
    run = ("probe", "-m", model_folder("gpt2"), "--groups", "sport", "-n", "3")
    capsys.readouterr()  # what building the model says
    lines = consilience(*run, "-o", tmp_path / "r")[2].splitlines()
    assert (lines[0], lines[1]) == (f"loading {model_folder('gpt2')} ...", "asking: 27 queries")
    *middle, last = [line for line in lines[2:] if line.startswith("asking")]
    shown = r"asking: \d+ of 27 queries(, \d+ s left)?"
    assert all(re.fullmatch(shown, line) for line in middle)
    assert re.fullmatch(r"asking: 27 queries in \d+ s, [\d.,]+/s", last)
    assert all(line.startswith(("loading", "asking", "note: ")) for line in lines)


# The commands as a user gives them: output, JSON, exit status, one clear message.


def test_probe_shows_the_summary_and_where_more_is(consilience, tmp_path):
    status, out, err = consilience("probe", "--model", "baseline:majority", "--limit", 4)
    assert status == 0
    assert len(out.splitlines()) <= 12
    title = "baseline:majority on mini: 13 of 15 relations, 52 facts, 9 patterns each (strict)"
    assert out.startswith(title)
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"Report:  consilience report runs/{folder.name}\n" in out
    assert f"Details: consilience score runs/{folder.name} --by group" in out
    files = {"run.json", "queries.parquet", "answers", "metrics.csv"}
    assert {path.name for path in folder.iterdir()} == files
    assert err.startswith("asking: 540 queries\nasking: 540 queries in ")
    metrics = pl.read_csv(folder / "metrics.csv")
    assert metrics.filter(pl.col("over") == "mean").height >= 9


def test_json_is_one_document_and_nothing_else(consilience, tmp_path):
    arguments = ("probe", "--model", "baseline:random", "--groups", "sport, capital,", "--json")
    out = output(consilience, *arguments, "--out", tmp_path / "r", "--seed", 3)
    document = json.loads(out)
    assert set(document) == {"verdict", "run", "summary", "metrics", "warnings"}
    assert document["summary"]["rows"][1]["label"] == "Consistency"
    assert document["run"]["path"] == str(tmp_path / "r")
    assert document["run"]["settings"]["groups"] == ["capital", "sport"]
    model = {"model": "baseline:random", "kind": "baseline", "seed": 3}
    assert document["run"]["settings"]["model"] == model
    assert document["metrics"][0]["std"] is None, "not a number is null"
    again = json.loads(consilience(*arguments, "--out", tmp_path / "r", "--seed", 3)[1])
    assert again["metrics"] == document["metrics"]


@pytest.mark.parametrize(("family", "kind"), [("bert", "masked"), ("gpt2", "causal")])
def test_probe_with_a_real_model_and_score_agree(family, kind, consilience, model_folder):
    """A run is scored by its own protocol: the token of each word was decided when it was asked.

    Notes stay when a finished run is repeated.
    """
    probe = ("probe", "--model", model_folder(family), "--groups", "author,borders", "--limit", 2)
    command = (*probe, "--out", "r", "--protocol", "published", "--suite", "mini", "--json")
    document = json.loads(output(consilience, *command))
    assert document["run"]["settings"]["model"]["kind"] == kind
    notes = "\n".join(document["warnings"])
    assert ("their first piece represents them" in notes) == (kind == "masked")
    assert json.loads(output(consilience, *command))["warnings"] == document["warnings"]
    score = ("score", "r", "--json")
    for more in ((), ("--protocol", "published")):
        own = json.loads(output(consilience, *score, *more))
        assert own["run"]["settings"]["protocol"] == "published"
        assert own["metrics"] == document["metrics"]
    other = json.loads(output(consilience, *score, "--protocol", "strict"))
    assert "was asked under the protocol published" in other["warnings"][0]
    assert not any("no answers at all" in of for of in other["warnings"]), "13 were not asked"
    said = output(consilience, "score", "r", "--protocol", "strict")
    assert "consilience report r\n" in said, "which has the protocol of the run"
    assert "consilience score r --protocol strict --by" in said


@pytest.mark.parametrize(("family", "options", "expected"), [
    ("t5", (), {"kind": "seq2seq", "template": None}),
    ("t5", ("--template", "In: {sentence}"), {"kind": "seq2seq", "template": "In: {sentence}"}),
    ("roberta", ("--candidates", "pieces"), {"multi_token": "left-to-right"}),
])  # fmt: skip
def test_candidates_of_several_tokens(family, options, expected, consilience, model_folder, tmp_path):  # fmt: skip
    """The tiny tokenizer cuts nearly every object of mini: a masked model needs the option."""
    arguments = ("probe", "--model", model_folder(family), "--groups", "sport", "--limit", 2)
    out = output(consilience, *arguments, *options, "--out", tmp_path / "r", "--json")
    assert json.loads(out)["run"]["settings"]["model"].items() >= expected.items()
    answers = cs.read_answers(tmp_path / "r")
    assert answers["answer"].null_count() == 0 and answers["text_logprob"].max() < 0
    if family == "roberta":
        assert "strict" in refusal(consilience, *arguments, *options, "--protocol", "published")


def test_facts_that_were_not_asked_are_counted(consilience, model_folder, tmp_path):
    """Of nine capitals the tiny tokenizer knows few as one token."""
    arguments = ("--groups", "capital", "--limit", 9, "--out", tmp_path / "r")
    status, _, err = consilience("probe", "--model", model_folder("bert"), *arguments)
    assert status == 0
    answers = cs.read_answers(tmp_path / "r")
    base = answers.filter(variant_index=0)
    asked, several = base["answer"].count(), base["excluded"].str.contains("split into").sum()
    assert (asked + several, asked > 0, several > 0) == (9, True, True)
    (line,) = [line for line in err.splitlines() if "were not asked" in line]
    assert line.startswith(f"note: {answers['excluded'].count()} of 81 queries (")
    document = json.loads(output(consilience, "score", tmp_path / "r", "--json"))
    assert line == f"note: {document['warnings'][0]}"
    only = {"metric": "accuracy", "over": "all", "kind": "whole"}
    metrics = pl.DataFrame(document["metrics"]).filter(**only)
    assert metrics.select("n", "n_excluded").rows() == [(asked, several)]


def test_data_list_check_stats(consilience, tmp_path, write_suite):
    out = output(consilience, "suite", "list")
    assert "mini" in out and f"not in {tmp_path / 'data'}" in out
    out = output(consilience, "suite", "check", "mini")
    assert out.endswith("\nmini: good; 15 relations, 135 patterns, 885 facts\n")
    document = json.loads(consilience("suite", "list", "--json")[1])
    folders = {row["suite"]: row["folder"] for row in document["suites"]}
    assert [*folders][:5] == ["mini", "mini-languages", "mini-questions", "mini-open", "pararel"]
    assert folders["pararel"] is None and "mmlu" in folders
    document = json.loads(consilience("suite", "check", "mini", "--json")[1])
    assert (document["problems"], document["warnings"], document["patterns"]) == ([], [], 135)
    odd = write_suite(tmp_path / "odd", facts=[
        {"relation": "capital", "subject": "Bolivia", "object": name} for name in ("Sucre", "La Paz")
    ])  # fmt: skip
    out = output(consilience, "suite", "check", odd)
    assert out.endswith(f"{odd}: no problems, 2 notes; 1 relation, 3 patterns, 2 facts\n")
    assert "'Bolivia', 'Sucre'; 'Bolivia', 'La Paz'" in " ".join(out.split())
    refusal(consilience, "suite", "check", write_suite(tmp_path / "one", patterns="[X]\n"))
    bad = write_suite(facts='{"relation": "capital", "subject": "", "object": "x"}\nnonsense\n')
    err = refusal(consilience, "suite", "check", bad)
    for said in ("facts.jsonl:1, column 'subject': no 'subject'", "facts.jsonl:2: not JSON"):
        assert f"error: {bad}/{said}" in err
    assert "3 problems in" in consilience("suite", "check", bad, "-q")[2], "errors are not notes"
    assert consilience("suite", "check", "rte")[1].startswith("rte: good; a task of sentence pairs")
    status, out, _ = consilience("suite", "check", bad, "--json")
    assert (status, len(json.loads(out)["problems"])) == (2, 3)


def test_data_fetch(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "listing", lambda name: [])
    fetch = ("suite", "fetch", "pararel", "--data-dir", tmp_path / "d")
    folder = tmp_path / "d" / "pararel"
    assert output(consilience, *fetch) == f"{folder}: complete, 0 files fetched\n"
    assert json.loads(output(consilience, *fetch, "--json"))["fetched"] == 0


@pytest.mark.parametrize(("arguments", "message"), cases("cli_bad"), ids=lambda of: str(of)[:60])
def test_bad_usage_is_one_message_and_status_2(arguments, message, consilience):
    err = refusal(consilience, *arguments)
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_names_with_markup_are_shown(consilience, tmp_path, monkeypatch, write_suite):
    monkeypatch.setenv("COLUMNS", "80")
    name = "a[/b]" + "x" * 50
    row = {"relation": name.replace("/", "")}
    patterns, facts = [row | {"pattern": "[X]: [Y]"}], [row | {"subject": "a", "object": "b"}]
    folder = write_suite(tmp_path / "odd", relations=[row], patterns=patterns, facts=facts)
    (folder / "suite.json").write_text(json.dumps({"name": "my [/suite]"}))
    run = ("--suite", folder, "--out", tmp_path / "o[new]")
    out = output(consilience, "probe", "--model", "baseline:oracle", *run)
    assert "my [/suite]" in out and "o[new]" in out
    assert out.count("100.0") >= 3
    _, out, _ = consilience("score", tmp_path / "o[new]", "--by", "group")
    assert row["relation"] in out, "no name is broken"


def test_a_half_downloaded_model_is_one_message(consilience, model_folder, tmp_path):
    shutil.copytree(model_folder("bert"), tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:999])
    assert "cannot load" in refusal(consilience, "probe", "--model", tmp_path / "m")
    err = refusal(consilience, "probe", "--model", f"{model_folder('bert')}@v9")
    assert "no such folder" in " ".join(err.split())


def test_a_bug_of_ours_is_status_1_with_a_traceback():
    code = "import sys\nfrom consilience.app import process\nfrom consilience.authoring import checks as named_suites\nsys.argv = ['c', 'suite', 'list']\nnamed_suites.suites = None\nprocess.run()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, "Traceback" in run.stderr) == (1, True)


def test_ci_installs_by_hash_the_versions_that_were_tested():
    """Every package of constraints.txt, and setuptools, which builds ours; no address of an index."""
    text = (ROOT / "requirements" / "ci.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"^(\S+==\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    assert "\n".join(name + hashes for name, hashes in blocks) == text.partition("\n\n")[2].rstrip()
    pinned = [name.lower().replace("_", "-") for name, _ in blocks if "setuptools" not in name]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = [line.lower().replace("_", "-") for line in lines if not line.startswith("#")]
    assert sorted(pinned) == sorted(tested)
    assert "://" not in text
