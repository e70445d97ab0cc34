"""The options of ``probe`` that decide prompts: template, examples, scoring rule."""

import json
import math
import tomllib

import numpy as np
import polars as pl
import pytest

from checks import PromptStub, refused
from conftest import cases
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question, Scores
from consilience.options.commands import ProbeOptions
from consilience.plans.factors import prompt_builder_of, templates_of
from consilience.plans.presentation import (
    RULES,
    TEMPLATES,
    Presentation,
    PromptBuilder,
    Template,
    present,
    rule_for,
)
from consilience.plans.questions import asks_of, choose
from consilience.probing import probe

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


TEXT = "Q: {question}\n{options}\nA:"


def test_the_template_is_that_of_the_model_unless_one_is_named():
    for template, is_chat, name in (
        (None, False, "plain"), (None, True, "chat"), ("plain", True, "plain"),
    ):  # fmt: skip
        prompting = prompt_builder_of(ProbeOptions(template=template), [], (), is_chat=is_chat)
        assert prompting.base.template is TEMPLATES[name]
    assert prompt_builder_of(ProbeOptions(template=TEXT), [], ()).record == {
        "templates": {"own": {"text": TEXT, "chat": False, "system": ""}}, "option_score": "",
        "shots": 0,
    }  # fmt: skip


# Templates by name, as a text, and from files.

QUESTION = Question("q", "g", {"": ("Why?",)}, Choice("so"), (Choice("so"), Choice("no")))
TOML = """
templates = [
    { name = "exam", text = "{context}\\nQ: {question}\\n{options}\\nA:" },
    { name = "polite", text = "Please: {question}\\n{options}", chat = true, system = "Be brief." },
]
"""


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


# Scoring rules: which number decides between the options, by hand.

PLANET = Question(
    "q1", "g", {"": ("Where is the café?",)}, Choice("in New York"),
    (Choice("in New York"), Choice("à Paris"), Choice("here", ("there",))),
)  # fmt: skip
ORDERS = FactorialDesign.full([Factor("order", ("ABC", "CBA"))])
TOTALS = {"in New York": -6.0, "à Paris": -5.0, "here": -4.0}
TOKENS = {"in New York": 3, "à Paris": 4, "here": 1}


class Written(PromptStub):
    """A model with the log-probabilities above; ``seen`` are the prompts that it scored."""

    def __init__(self):
        self.seen, self.alone = [], 0

    def totals(self, prompt):
        return np.array([TOTALS[answer] for answer in prompt.answers])

    def score(self, prompts):
        self.seen += prompts
        self.alone += len(prompts) == 1
        tokens = [np.array([TOKENS[a] for a in prompt.answers]) for prompt in prompts]
        rows = np.arange(len(prompts))
        yield Scores.of_rows(rows, [self.totals(prompt) for prompt in prompts], tokens)


def written_by(rule, model=None, **base):
    prompt_builder = PromptBuilder(ORDERS, {}, Presentation(**base, rule_name=rule))
    return choose(prompt_builder, asks_of([PLANET], prompt_builder, "own"), model or Written())


@pytest.mark.parametrize(("rule", "scores", "answer"), [
    ("sum", [-6, -5, -4], "here"),
    ("mean", [-2, -1.25, -4], "à Paris"),
    ("bytes", [-6 / 11, -5 / 8, -4 / 4], "in New York"),  # à is two bytes
])  # fmt: skip
def test_each_rule_by_hand(rule, scores, answer):
    """The same scores in both orders of the options; log-probabilities over the options."""
    table = written_by(rule)
    for row in table.iter_rows(named=True):
        assert (row["option_scores"], row["option_tokens"]) == (pytest.approx(scores), [3, 4, 1])
        assert row["answer"] == row["label"] == answer
        best, second = sorted(scores)[::-1][:2]
        assert row["margin"] == pytest.approx(best - second)
        assert row["logprob"] == pytest.approx(best - math.log(sum(map(math.exp, scores))))
        assert row["gold_rank"] == 1 + sum(score > scores[0] for score in scores)


def test_a_text_is_asked_for_whatever_labels_the_options_have():
    """The options are listed with labels, and the instruction is to answer with a text."""
    model = Written()
    written_by("sum", model, labels="A", template=TEMPLATES["chat"])
    (_, text), prompt = model.seen[0].turns[0], model.seen[0]
    options = "Where is the café?\nA. in New York\nB. à Paris\nC. here\n"
    assert text == f"{options}Answer with the text of the right option and nothing else."
    assert prompt.answers == ("in New York", "à Paris", "here")
    assert not prompt.are_labels


def test_near_ties_of_the_rule_are_decided_alone():
    """By the score of the rule: sums of -5 and -4 are 1 nat apart, means -1.25 and -2 less."""
    model = Written()
    model.tie = 0.9
    written_by("sum", model)
    assert not model.alone
    written_by("mean", model)
    assert model.alone == 2
    equal = Written()
    equal.totals = lambda prompt: np.zeros(3)
    found = written_by("sum", equal)["answer"].to_list()
    assert found == ["in New York"] * 2, "by the order of the file, whatever order is shown"


def test_which_rules_go_with_which_variants():
    """Without labels, or without the options in the text, no label could be scored."""
    plain, hidden = TEMPLATES["plain"], Template("own", "{question}")
    assert [rule_for("", labels, plain).name for labels in ("A", "1", "none")] == ["label", "label", "sum"]  # fmt: skip
    assert rule_for("", "A", hidden).name == "sum"
    assert rule_for("mean", "A", plain) is rule_for("mean", "none", hidden) is RULES["mean"]
    refused("no labels, .* or a rule for texts: sum, mean, bytes", rule_for, "label", "none", plain)
    refused("no {options} in the template 'own'", rule_for, "label", "A", hidden)
    refused("Did you mean 'bytes'", rule_for, "byte", "A", plain)


def test_each_variant_has_its_rule():
    """Labels are scored where they are shown; the texts where they are not."""
    design = FactorialDesign.full([Factor("labels", ("A", "none"))])
    prompt_builder = PromptBuilder(design, {}, Presentation())
    TOTALS.update(A=-1.0, B=-2.0, C=-3.0)
    TOKENS.update(A=1, B=1, C=1)
    table = choose(prompt_builder, asks_of([PLANET], prompt_builder, "own"), Written())
    assert table["label"].to_list() == ["A", "here"]
    assert table["option_scores"].to_list() == [[-1, -2, -3], [-6, -5, -4]]


# Solved examples before a question: which are drawn, and what they show.


def question(name, group="g", text="", gold="so", options=("so", "no", "maybe")):
    choices = tuple(map(Choice, options))
    return Question(name, group, {"": (text or f"Why {name}?",)}, Choice(gold), choices)


POOL = [question(f"q{at}") for at in range(8)] + [question("other", "h"), question("more", "h")]


def prompt_builder(levels=("3",), pool=POOL, seed=0, **base):
    groups = {name: [one for one in pool if one.group == name] for name in ("g", "h")}
    design = FactorialDesign.full([Factor("shots", tuple(levels))])
    return PromptBuilder(design, {}, Presentation(**base), seed, groups)


def drawn(question, draw=0, examples=3, **options):
    level = f"{examples} draw {draw + 1}" if draw else f"{examples}"
    made = prompt_builder([level], **options)
    return [example.item for example in made.drawn_examples(question, made.presentations[0])]


def test_questions_of_a_group_have_the_same_examples():
    """But for a question that is one of them: it has the next drawn one in its place."""
    items = drawn(question("new"))
    order = drawn(question("new"), examples=8)
    assert order[:3] == items
    for at in range(8):
        expected = [item for item in order if item != f"q{at}"][:3]
        assert drawn(POOL[at]) == expected
    assert drawn(question("new"), 1) != items
    assert drawn(question("new"), seed=1) != items


def test_examples_have_the_presentation_of_the_question_but_their_own_order():
    """Labels and template are those of the question; only its own options are in another order."""
    pool = [question("q0"), question("q1", gold="maybe")]
    prompt = prompt_builder("1", pool, order=("BCA",), labels="1").prompt(pool[0], 0)
    assert prompt.text == (
        "Question: Why q1?\n1. so\n2. no\n3. maybe\nAnswer: 3\n\n"
        "Question: Why q0?\n1. no\n2. maybe\n3. so\nAnswer:"
    )
    by_text = prompt_builder("1", pool, rule_name="sum").prompt(pool[0], 0)
    assert by_text.text.startswith("Question: Why q1?\nA. so\nB. no\nC. maybe\nAnswer: maybe\n\n")


def test_a_level_has_a_number_of_examples_and_a_draw():
    """More examples begin with the same ones; another draw has others; none is no example."""
    made = prompt_builder(("0", "2", "4", "2 draw 2"))
    none, two, four, other = (
        [one.item for one in made.drawn_examples(POOL[0], of)] for of in made.presentations
    )
    assert (none, len(two), four[:2], len(other)) == ([], 2, two, 2)
    assert other != two
    assert made.prompt(POOL[0], 0).text.startswith("Question: Why q0?")


NAMED = question("named", gold="both A and B", options=("red", "dry", "both A and B"))


@pytest.mark.parametrize("other", [question("twin", text="Why q0?"), NAMED], ids=str)
def test_what_is_no_example(other):
    """Another item with the same text would show its answer; one that names its options by their
    labels would be another text with other labels, or without."""
    for draw in range(3):
        assert other.item not in drawn(POOL[0], draw, pool=[*POOL, other], examples=7)
