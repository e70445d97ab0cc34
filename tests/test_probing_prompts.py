"""The options of ``probe`` that decide prompts: template, examples, scoring rule."""

import json
from dataclasses import replace

import polars as pl
import pytest

from checks import refused
from consilience.core.factors import Factor, FactorialDesign
from consilience.options.probe import ProbeOptions
from consilience.plans.factors import factors_of, presenter_of
from consilience.plans.presentation import TEMPLATES
from consilience.probing.probe import probe
from consilience.results.evaluation import evaluate
from consilience.suites.question_suites import mini_questions

ROWS = """group,question,question_2,answer,options
geo,What is the capital of France?,Which city is France's capital?,Paris,Lyon;Paris;Nice
geo,What is the capital of Italy?,Which city is Italy's capital?,Rome,Rome;Milan;Turin
geo,What is the capital of Spain?,Which city is Spain's capital?,Madrid,Seville;Bilbao;Madrid
"""


@pytest.fixture
def asked(tmp_path):
    """``asked(template="plain")``: the settings, the prompts and the metrics of a run."""
    path = tmp_path / "own.csv"
    path.write_text(ROWS, encoding="utf-8")

    def run(model="baseline:first", **options):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        probe(ProbeOptions(model=model, suite=str(path), out=folder, **options))
        settings = json.loads((folder / "run.json").read_text())["settings"]
        prompts = pl.read_parquet(folder / "queries.parquet")["input"].list.first()
        return settings, prompts.to_list(), pl.read_csv(folder / "metrics.csv")

    return run


def test_a_bias_for_a_position_agrees_in_no_two_orders(asked):
    _, _, metrics = asked()
    consistency = metrics.filter(pl.col("metric") == "consistency")
    values = dict(consistency.select("level", "value").iter_rows())
    assert (values["order"], values["paraphrase"]) == (0, 1)


def test_the_prompts_are_what_the_options_say(asked):
    settings, prompts, _ = asked(
        template="{question}\\n{options}\\nA:", shots=1, option_score="sum"
    )
    assert prompts[0].endswith("What is the capital of France?\nA. Lyon\nB. Paris\nC. Nice\nA:")
    assert prompts[0].count("capital of") == 2
    assert (settings["option_score"], settings["shots"]) == ("sum", 1)
    assert list(settings["templates"]) == ["own"]
    settings, _, _ = asked(template="{question} {options}", vary=["template=all"])
    assert list(settings["templates"]) == ["own", "plain", "chat"]


@pytest.mark.parametrize(("options", "message"), [
    ({"shots": 3}, "2 other questions in the group"),
    ({"template": "plian"}, "Did you mean 'plain'"),
    ({"vary": ["labels=A,none"], "option_score": "label"}, "no labels, and options scored by"),
])  # fmt: skip
def test_what_cannot_be_is_refused(asked, options, message):
    refused(message, asked, **options)


def test_a_python_function_answers_a_file_of_questions(tmp_path):
    """Always A, or the text of the option that is shown first: a pure bias for a position."""
    path = tmp_path / "own.csv"
    path.write_text(ROWS, encoding="utf-8")
    result = evaluate(str(path), lambda prompts: ["A"] * len(prompts))
    assert result.answers["option"].to_list() == [0, 1, 2] * 6


TEXT = "Q: {question}\n{options}\nA:"


def test_the_template_is_that_of_the_model_unless_one_is_named():
    for template, is_chat, name in (
        (None, False, "plain"), (None, True, "chat"), ("plain", True, "plain"),
    ):  # fmt: skip
        prompting = presenter_of(ProbeOptions(template=template), [], (), is_chat=is_chat)
        assert prompting.base.template is TEMPLATES[name]
    assert presenter_of(ProbeOptions(template=TEXT), [], ()).record == {
        "templates": {"own": {"text": TEXT, "chat": False, "system": ""}}, "option_score": "",
        "shots": 0,
    }  # fmt: skip


def test_varied_templates_are_those_that_are_used():
    """A template of one's own and a built-in one; the first level is the base."""
    options = ProbeOptions(template=TEXT, vary=["template"])
    (factor,) = factors_of(options, mini_questions())
    assert factor.levels == ("own", "plain", "chat")
    factor = Factor("template", ("own", "chat"))
    prompting = presenter_of(ProbeOptions(template=TEXT), [factor], ())
    assert list(prompting.templates) == ["own", "chat"]
    own, chat = replace(prompting, design=FactorialDesign.full([factor])).presentations
    assert (own.template.text, chat.template) == (TEXT, TEMPLATES["chat"])


def test_the_rule_is_that_of_each_variant_unless_one_is_named():
    """The label where labels are shown, else the text."""
    labels = Factor("labels", ("A", "none"))
    templates = Factor("template", ("plain", "own"))
    design = FactorialDesign.full([labels, templates])

    def rules(name=None):
        options = ProbeOptions(option_score=name, template="{question}")
        presenter = replace(presenter_of(options, design.factors, ()), design=design)
        return [of.rule.name for of in presenter.presentations]

    assert rules() == ["label", "sum", "sum", "sum"]
    assert rules("mean") == ["mean"] * 4
    refused(
        "no {options} in the template 'own', and options scored by their labels", rules, "label"
    )
