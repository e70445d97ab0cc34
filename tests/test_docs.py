"""The commands of the guides run, and do what the guides say."""

import re
import shlex
import subprocess
import sys
import tomllib

import click
import pytest

import consilience as package
from checks import output, refusal
from conftest import ROOT
from consilience.cli import program
from pair_builders import save_classifier

OWN = (ROOT / "docs" / "own-questions.md").read_text(encoding="utf-8")
SUITES = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def blocks(page, language):
    """The code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


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


def test_the_guide_to_own_questions_leads_from_a_table_to_a_report(
    consilience, tmp_path, monkeypatch
):
    """With a baseline in place of the model; what does not depend on the model is as shown."""
    monkeypatch.chdir(tmp_path)
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
    headings = [line.split()[0] for line in shown[3].splitlines()]
    assert [line.split()[0] for line in printed["probe"].splitlines()][1:6] == headings[1:6]
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 10_000


def test_the_error_of_the_guide_to_own_questions_is_the_one_that_is_printed(
    consilience, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (table,) = blocks(OWN, "csv")
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
    for language, block in re.findall(r"```(sh|python|text)\n(.*?)```", page, re.DOTALL):
        if language == "python":
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
