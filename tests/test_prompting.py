"""The options of a run that decide its prompts."""

import pytest

from checks import refused
from consilience.core.errors import ConsilienceError
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.presentation import TEMPLATES
from consilience.kinds.variants import Prompting, template_names
from consilience.options.probe import ProbeOptions

ONE = FactorialDesign.full([])
TEXT = "Q: {question}\n{options}\nA:"


def test_the_template_is_that_of_the_model_unless_one_is_named():
    assert Prompting.of(ProbeOptions(), []).base.template is TEMPLATES["plain"]
    assert Prompting.of(ProbeOptions(), [], is_chat=True).base.template is TEMPLATES["chat"]
    named = Prompting.of(ProbeOptions(template="plain"), [], is_chat=True)
    assert named.base.template is TEMPLATES["plain"]
    assert Prompting.of(ProbeOptions(template=TEXT), []).record(ONE) == {
        "templates": {"own": {"text": TEXT, "chat": False, "system": ""}},
        "option_score": "label",
        "shots": 0,
    }


def test_varied_templates_are_those_that_are_used():
    """A template of one's own and a built-in one; the first level is the base."""
    assert template_names(TEXT) == ["own", "plain", "chat"]
    factor = Factor("template", ("own", "chat"))
    prompting = Prompting.of(ProbeOptions(template=TEXT, system="Be brief."), [factor])
    assert list(prompting.templates) == ["own", "chat"]
    assert [template.system for template in prompting.templates.values()] == ["", "Be brief."]
    presenter = prompting.presenter(FactorialDesign.full([factor]), ())
    assert presenter.presentation((1,)).template.system == "Be brief."
    assert presenter.presentation((0,)).template.text == TEXT


def test_a_system_prompt_that_no_template_has_is_refused():
    with pytest.raises(ConsilienceError, match="a system prompt without a chat"):
        Prompting.of(ProbeOptions(template="plain", system="Be brief."), [], is_chat=True)
    refused("a system prompt without a chat", Prompting.of, ProbeOptions(system="Be brief."), [])


def test_the_rule_is_that_of_the_labels_unless_one_is_named():
    unlabelled = FactorialDesign.full([Factor("labels", ("A", "none"))])
    assert Prompting.of(ProbeOptions(), []).record(unlabelled)["option_score"] == "sum"
    assert Prompting.of(ProbeOptions(option_score="pmi"), []).record(ONE)["option_score"] == "pmi"
    with pytest.raises(ConsilienceError, match="scored by their labels"):
        Prompting.of(ProbeOptions(option_score="label"), []).presenter(unlabelled, ())
