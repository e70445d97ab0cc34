"""The guides, README.md, the notebooks and the benchmarks run, and do what they say."""

import ast
import doctest
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import click
import polars as pl
import pytest

import consilience as package
from checks import output, refusal
from conftest import ROOT, real_data
from consilience import load_suite
from consilience.app.process import program
from consilience.metrics import statistics
from consilience.results import evaluation
from pair_builders import save_classifier

OWN = (ROOT / "docs" / "own-questions.md").read_text(encoding="utf-8")
SUITES = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def blocks(page, language):
    """The code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.mark.parametrize("module", [evaluation, statistics], ids=lambda of: of.__name__)
def test_the_examples_of_docstrings(module):
    failed, tried = doctest.testmod(module)
    assert not failed and tried


def test_the_commands_of_the_guide_to_suites_run(consilience, tmp_path):
    """Files are made by a shell; ``consilience`` runs in this process, with a baseline as model."""
    commands = 0
    for block in blocks(SUITES, "sh"):
        lines = block.splitlines(keepends=True)
        shell = "".join(line for line in lines if not line.startswith("consilience "))
        subprocess.run(["bash", "-e", "-c", shell], cwd=tmp_path, check=True)
        for line in lines:
            if line.startswith("consilience ") and "pararel" not in line:
                command = line.replace("packaged:smollm2", "baseline:majority")
                assert consilience(*shlex.split(command)[1:])[0] == 0, line
                commands += 1
    assert commands == 2


def test_the_files_of_the_guide_to_sentence_pairs_belong_together(consilience, tmp_path):
    """A classifier is asked the guide's pairs by the guide's command."""
    page = ROOT / "docs" / "calum.md"
    for language, name in (("tsv", "faq.tsv"), ("toml", "faq.toml")):
        (text,) = blocks(page.read_text(encoding="utf-8"), language)
        (tmp_path / name).write_text(text, encoding="utf-8")
    save_classifier(tmp_path / "my-classifier", labels=("no", "yes"))
    lines = [line for line in commands(page) if "faq.toml" in line]
    assert len(lines) == 2
    for line in lines:
        out = output(consilience, *line)
        assert "faq" in out
    assert "12 sentence pairs, 3 forms" in out


def test_the_guide_to_own_questions_leads_from_a_table_to_a_report(consilience, tmp_path, monkeypatch):  # fmt: skip
    """With a baseline in place of the model; what does not depend on the model is as shown."""
    monkeypatch.setenv("COLUMNS", "100")
    (table,) = blocks(OWN, "csv")
    assert len(table.strip().splitlines()) == 1 + 10
    (tmp_path / "questions.csv").write_text(table, encoding="utf-8")
    commands = [line for block in blocks(OWN, "sh") for line in block.splitlines()]
    steps = ["suite rewrite", "suite check", "probe --suite", "report runs/first"]
    assert [" ".join(command.split()[1:3]) for command in commands[:4]] == steps
    printed = {}
    for command in commands:
        words = shlex.split(command)[1:]
        words += ["--model", "baseline:random"] if words[0] == "probe" else []
        name = words[1] if words[0] == "suite" else words[0]
        printed[name] = output(consilience, *words)
    shown = blocks(OWN, "text")
    assert printed["rewrite"] == shown[0]
    assert printed["check"] == shown[1]
    probed, headings = ([line.split()[0] for line in of.splitlines()][1:6] for of in (printed["probe"], shown[3]))  # fmt: skip
    assert probed == headings
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 10_000
    (tmp_path / "bad.csv").write_text(table.replace(",Canberra,Sydney", ",Camberra,Sydney"))
    assert refusal(consilience, "suite", "check", "bad.csv") == blocks(OWN, "text")[2]


def test_the_script_of_the_guide_to_exports_makes_answers_that_score_as_it_shows(
    consilience, tmp_path, monkeypatch
):
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    page = page.partition("## What `suite export` writes")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    printed, shown = [], []
    for language, block in re.findall(r"```(csv|sh|python|text)\n(.*?)```", page, re.DOTALL):
        if language == "csv":
            (tmp_path / "bot.csv").write_text(block, encoding="utf-8")
        elif language == "python":
            (tmp_path / "api.py").write_text(block, encoding="utf-8")
            assert len(block.strip().splitlines()) <= 20
        elif language == "text":
            shown.append(block)
        elif block.startswith("python "):
            subprocess.run([sys.executable, *block.split()[1:]], cwd=tmp_path, check=True)
        else:
            printed.append(output(consilience, *shlex.split(block)[1:]))
    assert printed == shown


def commands(page):
    """The lines of a page's code blocks that call the program, without comments and redirections."""
    fence, lines = None, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence in ("", "sh"):
            lines.append(line)
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.startswith("consilience ") and "..." not in line:
            yield [word for word in shlex.split(line, comments=True)[1:] if word[0] not in "[>|"]


def parse(arguments):
    """Read the arguments as the program does, and call nothing."""
    name, command, context = "consilience", program(), None
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "list_commands"):
            return
        rest = [*context._protected_args, *context.args]
        name, command, arguments = command.resolve_command(context, rest)


def test_commands_of_all_guides_have_known_names_and_options():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    lines = [(page.name, line) for page in pages for line in commands(page)]
    assert len(lines) > 50
    for page, line in lines:
        try:
            parse(line)
        except click.exceptions.Exit as left:  # --version and --help
            assert left.exit_code == 0
        except Exception as error:
            pytest.fail(f"{page}: consilience {shlex.join(line)}: {error}")


def anchor(heading):
    """The fragment of a heading: lower case, words joined by hyphens, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_links_of_the_docs_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name, fragment in LINK.findall(text):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        if fragment:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in map(anchor, headings), f"{name}#{fragment}"


def test_the_workflow_to_copy_has_the_actions_of_our_own():
    own = [path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")]
    used = re.findall("uses: (.*)", (ROOT / "docs/gate.md").read_text(encoding="utf-8"))
    assert used and all(any(f"uses: {one}\n" in text for text in own) for one in used)


def test_the_page_on_installing_names_all_extras_and_the_version():
    """Extras for users, and the wheel of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    own = {"dev", "docs", "bench", "test-server"}  # for those who change the package
    named = set(re.findall(r"'\.\[([\w-]+)\]'", page))
    assert named == set(project["optional-dependencies"]) - own
    assert f"consilience-{project['version']}-py3" in page
    assert project["version"] == package.__version__
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in cited
    bibtex = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    assert f"version = {{{project['version']}}}" in bibtex


# README.md: a reader can run every command of it, and gets the output that it shows.


README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    command.strip()
    for command in re.findall(r"(?m)(?:^|`)(consilience [a-z][^`#\n]*)", README)
    if not command.startswith("consilience suite fetch")  # a server of test_pararel.py is asked
]
PROBE, *OTHERS = COMMANDS
OUTPUT = re.search(r"(?s)```\n(packaged:smollm2 on mini.*?)```", README)[1]
PYTHON = re.search(r"(?s)```python\n(.*?)```", README)[1]

OWN_SUITE = {
    "relations.tsv": "relation\tlabel\tcardinality\nlang\tlanguage\tN-1\n",
    "patterns.tsv": "relation\tpattern\nlang\t[X] is written in [Y].\nlang\t[X] uses [Y].\n",
    "facts.tsv": "relation\tsubject\tobject\nlang\tItaly\tRome\nlang\tFrance\tParis\n",
}
"""A suite of a reader, with words that the tiny model knows."""


@pytest.fixture
def reader(consilience, monkeypatch, tmp_path, model_folder, classifier):
    """``reader(command)``: what a command prints, where a reader has what the README names.

    Tiny models stand in for the packaged one and for those of the Hub.
    """
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-suite").mkdir()
    for name, text in OWN_SUITE.items():
        (tmp_path / "my-suite" / name).write_text(text)
    rows = ["sentence1\tsentence2\tlabel", "Rome is old.\tRome is a town.\tentailment"]
    (tmp_path / "dev.tsv").write_text("\n".join([*rows, "A dog.\tA cat.\tnot_entailment\n"]))
    write_answers(tmp_path / "answers.csv")
    arc = tmp_path / "data" / "arc" / "ARC-Challenge"
    arc.mkdir(parents=True)
    (arc / "test.jsonl").write_text(json.dumps(
        {"id": "a", "question": "Where is Rome?", "answerKey": "B",
         "choices": {"text": ["France", "Italy"], "label": ["A", "B"]}}))  # fmt: skip
    models = {
        "packaged:smollm2": model_folder("gpt2"),  # the notebooks ask the packaged one
        "--suite arc --vary order=rotations --model org/name": f"--suite arc --vary order=rotations --model {model_folder('gpt2')}",
        "org/name": model_folder("bert"),
        "org/classifier": classifier("bert", ("entailment", "not_entailment")),
    }

    def run(command):
        for name, model in models.items():
            command = command.replace(name, str(model))
        status, printed, messages = consilience(*shlex.split(command)[1:])
        assert status == 0, f"{command}\n{messages}"
        assert printed, command
        return printed

    return run


def test_every_command_runs_and_prints_what_is_shown(reader, model_folder):
    """In the order of the page; of the suite a part, for which the same words are printed."""
    number = re.compile(r"-?\d+(\.\d)?")
    probe = PROBE.replace("--limit 8", "--limit 2 --groups capital,painter,borders")
    printed = (reader(probe), OUTPUT.replace("packaged:smollm2", model_folder("gpt2").name))
    plain = lambda line: " ".join(line.split()).replace("# to #", "-")  # noqa: E731
    words, expected = ([*map(plain, number.sub("#", text).splitlines())] for text in printed)
    assert words[: len(expected)] == expected
    reader(probe.replace("packaged:smollm2", "baseline:majority").replace("smollm2", "other"))
    for command in OTHERS:
        if "pararel" not in command:
            few = command.replace("mini --model", "mini -n 2 --groups borders --model")
            reader(few.replace("my-questions --vary", "my-questions --model baseline:first --vary"))


@pytest.mark.parametrize("command", [command for command in OTHERS if "pararel" in command])
def test_every_command_of_pararel_runs(reader, command, monkeypatch):
    """With two facts of a relation, or dry, and a baseline instead of the reader's model."""
    command = command.replace("org/name", "baseline:random")
    monkeypatch.setenv("CONSILIENCE_DATA", str(real_data("pararel").parent))
    reader(f"{command} {'--limit 2 --groups P36' if ' probe ' in command else '--dry-run'}")


def test_the_python_runs(reader, tmp_path, capsys):
    exec(PYTHON.replace("packaged:smollm2", "baseline:majority").replace("limit=8", "limit=1"), {})
    assert "Consistency" in capsys.readouterr().out
    assert (tmp_path / "page.html").stat().st_size > 10_000


def write_answers(path):
    relation = load_suite("mini")["capital"]
    rows = [
        ("capital", fact.item, fact.subject, pattern.text, fact.object, fact.object)
        for fact in relation.facts for pattern in relation.patterns
    ]  # fmt: skip
    names = ["group", "item", "subject", "variant", "gold", "answer"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)


# The notebooks run without a fault, and the numbers in their outputs are not stale.


NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def run(source, names):
    """What a cell prints, and the representation of its last expression."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return printed.getvalue() + (repr(value) if value is not None else "")


def committed(cell):
    """The same as the notebook has it; None for a picture."""
    text = ""
    for part in cell["outputs"]:
        data = part.get("data", {})
        if "image/png" in data:
            return None
        text += "".join(part.get("text", data.get("text/plain", [])))
    return text


def numbers(text):
    return re.findall(r"\d+(?:\.\d+)?", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_numbers_are_not_stale(path, monkeypatch):
    """After a change of a number: make notebooks."""
    monkeypatch.setenv("COLUMNS", "80")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            source, expected = "".join(cell["source"]), committed(cell)
            shown = run(source, names)
            assert expected is None or numbers(shown) == numbers(expected), source


BENCH = Path(__file__).parents[1] / "bench"  # The tools beside the package run, too


def said(*arguments, status=0):
    call = [sys.executable, str(BENCH / arguments[0]), *map(str, arguments[1:])]
    found = subprocess.run(call, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stderr
    return found.stdout


def test_a_table_keeps_the_columns_that_were_recorded(tmp_path):
    (tmp_path / "statistics").mkdir()
    table = tmp_path / "statistics" / "detectable.csv"
    table.write_text("case,bootstrap,closed form\nmean over 6 relations,58,1\n")
    said("simulations.py", "detectable", "1", tmp_path)
    first, second, *others = table.read_text().splitlines()
    assert first == "case,known error,closed form,simulations,bootstrap"
    assert second.startswith("mean over 6 relations,") and second.endswith(",1,58")
    assert len(others) == 4


@pytest.mark.parametrize(("kind", "command"), [("facts", "compare"), ("questions", "score")])
def test_counting_says_seconds_and_memory(kind, command):
    assert said("counting.py", kind, command, "0.001").startswith(f"{command} ")
