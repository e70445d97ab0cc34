"""Templates by name, as a text, and from files."""

import json
import tomllib

import pytest

from checks import refused
from conftest import cases
from consilience.core.items import Choice, Question
from consilience.plans.factors import templates_of
from consilience.plans.presentation import TEMPLATES, Presentation, Template, present

QUESTION = Question("q", "g", {"": ("Why?",)}, Choice("so"), (Choice("so"), Choice("no")))
TOML = """
templates = [
    { name = "exam", text = "{context}\\nQ: {question}\\n{options}\\nA:" },
    { name = "polite", text = "Please: {question}\\n{options}", chat = true, system = "Be brief." },
]
"""


def test_names_are_those_of_built_in_templates():
    """``auto`` is the chat of a model that has one."""
    assert templates_of(["plain", "chat"]) == dict(TEMPLATES)
    assert list(templates_of(["auto"], is_chat=True)) == ["chat"]
    assert list(templates_of(["auto"])) == ["plain"]
    assert list(templates_of(["auto", "chat"], is_chat=True)) == ["chat"]


def test_a_text_is_a_template_of_ones_own():
    own = templates_of([r"Q: {question}\n{options}\nA:", "chat:{question}", "plain"])
    assert list(own) == ["own", "own 2", "plain"]
    assert own["own"] == Template("own", "Q: {question}\n{options}\nA:")
    assert own["own 2"] == Template("own 2", "{question}", is_chat=True)
    assert present(QUESTION, Presentation(template=own["own"])).text == "Q: Why?\nA. so\nB. no\nA:"


def test_a_file_has_names_texts_chats_and_system_prompts(tmp_path):
    path = tmp_path / "own.toml"
    exam, polite = tomllib.loads(TOML)["templates"]
    path.write_text(TOML, encoding="utf-8")
    chat = Template("polite", polite["text"], is_chat=True, system="Be brief.")
    assert templates_of([str(path)]) == {"exam": Template("exam", exam["text"]), "polite": chat}


@pytest.mark.parametrize(("spec", "message"), cases("templates_refused"))
def test_what_is_no_template_says_why(spec, message):
    assert message in refused("", templates_of, [spec])


@pytest.mark.parametrize(("content", "message"), cases("templates_bad"))
def test_a_wrong_file_names_the_template(tmp_path, content, message):
    path = tmp_path / "own.toml"
    path.write_text("templates=" + json.dumps(content, separators=(",", "=")), encoding="utf-8")
    assert message in refused("", templates_of, [str(path)])
