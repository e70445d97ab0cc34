"""Results of promptfoo are scored; ``data/promptfoo.json`` is what version 0.123.1 wrote.

Two providers, two prompts, five tests and ``--repeat 2``; two tests have the same metadata.item.
"""

import json

import pytest

import consilience as cs
from checks import output, refusal, refused
from conftest import ROOT
from consilience.core.schemas import REASONS

FILE = ROOT / "tests" / "data" / "promptfoo.json"


def write(path, *entries):
    path.write_text(json.dumps({"results": {"version": 3, "results": entries}}))
    return path


def entry(test, prompt, output, assertion=("equals", "yes"), metadata=None, **variables):
    kind, value = assertion
    return {
        "testIdx": test, "promptIdx": prompt, "promptId": f"p{prompt}",
        "provider": {"id": "model"}, "prompt": {"raw": "", "label": f"P{prompt}"},
        "vars": variables or {"question": f"Q{test}"}, "response": {"output": output},
        "testCase": {"assert": [{"type": "javascript"}, {"type": kind, "value": value}], "metadata": metadata},
    }  # fmt: skip


def value(result, metric, level=""):
    return result.metrics.filter(metric=metric, over="all", level=level)["value"].item()


def test_answers_of_a_provider_are_compared_over_prompts_phrasings_and_repetitions():
    """France: Paris or Lyon by the prompt, 2 * 6 of 28 pairs agree; Italy and 2 + 2: 6 of 6 pairs.

    The test without replies is wrong and agrees with nothing.
    """
    result = cs.score(FILE, provider="toy")
    assert value(result, "consistency") == pytest.approx((12 / 28 + 1 + 1 + 0) / 4)
    assert value(result, "consistency", "template") == (0 + 1 + 1 + 0) / 4
    assert value(result, "consistency", "sample") == 3 / 4
    assert value(result, "consistency", "paraphrase") == 1
    assert value(result, "accuracy") == 3 / 4
    row = result.metrics.filter(metric="accuracy", over="all", kind="whole").row(0, named=True)
    assert (row["n"], row["n_excluded"]) == (4, 0)
    assert (result.label, result.run.settings["model"]["model"]) == ("toy", "toy")
    errors = result.answers.filter(item="Say an error").select(REASONS)
    assert set(errors.rows()) == {(None, "no reply")}
    assert "template 1: Answer with one word. {{question}}" in result.notes


def test_a_provider_must_be_named_where_there_are_several(consilience):
    assert "Name one: --provider echo." in refusal(consilience, "score", FILE)
    assert "Did you mean 'toy'?" in consilience("score", FILE, "--provider", "toi")[2]
    score = ("score", FILE, "--provider", "toy")
    shown = "toy on promptfoo: 2 groups, 4 questions, 4 to 8 of 8 variants asked"
    assert shown in output(consilience, *score, "--out", "run")
    assert f"consilience score {FILE} --provider toy --by group" in output(consilience, *score)


def test_the_right_answer_is_the_text_of_an_assertion(tmp_path):
    file = write(
        tmp_path / "r.json",
        entry(0, 0, "It is Go.", ("icontains-any", ["Golang", "{{ answer }}"]), answer="Go"),
        entry(0, 1, {"lang": "Go"}, ("icontains-any", ["Golang", "{{ answer }}"]), answer="Go"),
        entry(1, 0, "4", ("equals", 4)), entry(1, 1, "no", ("equals", 4)),
    )  # fmt: skip
    result = cs.score(file)
    assert result.answers["gold"].to_list() == ["Golang", "Golang", "4", "4"]
    assert result.answers["answer"].to_list() == ["Golang", "Golang", "4", "no"]
    assert value(result, "accuracy") == 1


@pytest.mark.parametrize(
    "gold", ["{{ answer | lower }}", "{{answers.go}}", "{% if x %}Go{% endif %}"]
)
def test_an_expression_that_is_not_understood_is_no_gold(tmp_path, gold):
    rows = [entry(0, at, "It is Go.", ("icontains", gold), answer="Go") for at in (0, 1)]
    refused(
        "whose value is not known here; expected a text",
        cs.score,
        write(tmp_path / "r.json", *rows),
    )


def test_the_tests_of_an_item_may_expect_other_texts(tmp_path):
    first = entry(0, 0, "Munich", ("icontains", "Munich"), {"item": "m"}, question="Capital?")
    second = entry(1, 0, "München", ("icontains", "München"), {"item": "m"}, question="Stadt?")
    result = cs.score(write(tmp_path / "r.json", first, second))
    assert value(result, "accuracy") == value(result, "consistency") == 1
    second["testCase"]["metadata"]["group"] = "other"
    refused(
        "metadata.group 'other' of 'm'.*as before",
        cs.score,
        write(tmp_path / "r.json", first, second),
    )


def test_tests_that_name_their_item_and_variant_are_answers_to_a_suite(tmp_path):
    suite = tmp_path / "suite.csv"
    suite.write_text("item,question,answer,options\nq,Yes?,yes,yes;no\n")
    variants = [f"order={order}" for order in ("given", "rotation 1")]
    entries = [entry(at, 0, "A", item="q", variant=name) for at, name in enumerate(variants)]
    result = cs.score(write(tmp_path / "r.json", *entries), suite)
    assert (result.answers["answer"].to_list(), value(result, "consistency")) == (["yes", "no"], 0)


@pytest.mark.parametrize("entries, message", [
    ([entry(0, 0, "a", ("llm-rubric", "nice")), entry(0, 1, "a")], "has no expected text, only javascript, llm-rubric; expected an assertion of .* weight: 0"),
    ([entry(0, 0, "yes")], "Give promptfoo several prompts, or --repeat 3"),
    ([], "no results"),
    ([{"output": "yes"}], "not of promptfoo"),
    ([entry(0, 0, "a", metadata={"group": "a/b"}), entry(0, 1, "a")], "metadata.group 'a/b'"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(tmp_path, entries, message):
    refused(message, cs.score, write(tmp_path / "r.json", *entries))


def test_values_that_mean_nothing_are_refused(consilience, tmp_path):
    (tmp_path / "answers.csv").write_text("item,variant,answer\n")
    _, _, err = consilience("score", "answers.csv", "--suite", "mini", "--provider", "toy")
    assert "--provider with answers.csv; expected results of promptfoo" in err
    refused("the name or the file of a suite", cs.score, FILE, cs.load_suite("mini"))
    lacking = "tests with the variables question; expected item and variant"
    refused(lacking, cs.score, FILE, "mini-questions", provider="toy")
