"""One choice, an open question or yes and no for every option: prompts, answers, contradictions."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import consilience as cs
from checks import refusal, refused
from consilience.asking.verifying import Verifier
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.free_text import match_verdict, rule_of
from consilience.core.items import Choice, Question, Scores
from consilience.core.presentation import CHECKS, TEMPLATES, Presentation, present
from consilience.models.functions import PromptFunction
from replay_server import completion, replay
from scoring_server import SGLANG, VLLM, scoring_server

OPTIONS = tuple(map(Choice, ("Nice", "Paris", "Lyon")))
FRANCE = Question("france", "geo", {"": ("Capital of France?",)}, OPTIONS[1], OPTIONS)
VERIFY = Presentation(ask="verify")


def test_contradictions_by_hand():
    """The consistency of two ways to ask, of the same four items; b is no option, - no answer."""
    rows = [
        (f"q{at}", f"ask={way}", told)
        for at, answers in enumerate(
            (("x", "x", "100"), ("x", "y", "001"), ("y", "y", "000"), ("z", "", "001"))
        )
        for way, told in zip(("choice", "open", "verify"), answers, strict=True)
    ]
    rows = [
        (item, f"{way} {at + 1}" if "verify" in way else way, {"1": "Yes", "0": "No"}.get(one, one))
        for item, way, told in rows
        for at, one in enumerate(told or [None])
    ]
    table = pl.DataFrame(rows, ["item", "variant", "answer"], orient="row")
    metrics = cs.score(table, made(4)).metrics.filter(group="MICRO")
    values = {(row["metric"], row["subset"]): row["value"] for row in metrics.to_dicts()}
    # Choice and open: x=x, x/y, y=y. Choice and verified: x=x, x/z, y/none, z=z. Open: x=x, y/z, y/none.
    expected = {
        "choice/open": (2, 3, 1 / 6 + 1 / 6),
        "choice/verify": (2, 4, 1 / 8 + 1 / 8),
        "open/verify": (1, 3, 1 / 12),
    }
    # By the shares of x, y and z: 1/2, 1/4, 1/4 chosen; 1/3, 2/3, 0 open; 1/4, 0, 1/2 verified.
    for ways, (same, pairs, chance) in expected.items():
        assert values["consistency", f"ask={ways}"] == pytest.approx(same / pairs)
        assert values["chance_consistency", f"ask={ways}"] == pytest.approx(chance)
        kappa = (same / pairs - chance) / (1 - chance)
        assert values["corrected_consistency", f"ask={ways}"] == pytest.approx(kappa)


def made(size=30, groups=1):
    rows = [
        (f"q{at}", f"Question {at}?", "x", "x;y;z", f"g{at % groups}")
        for at in range(size * groups)
    ]
    frame = pd.DataFrame(rows, columns=["item", "question", "answer", "options", "group"])
    return cs.Questions.from_frame(frame, name="own")


def test_chance_lies_in_the_intervals():
    """Of 20 groups of 40 questions each, in which nothing but chance makes ways agree."""
    draw, rows, size = np.random.default_rng(1), [], 800
    chosen, opened, told = draw.choice(3, (3, size), p=[0.6, 0.2, 0.2])
    for at in range(size):
        rows += [
            (f"q{at}", "ask=choice", "xyz"[chosen[at]]),
            (f"q{at}", "ask=open", "xyz"[opened[at]]),
        ]
        rows += [
            (f"q{at}", f"ask=verify {one + 1}", "Yes" if told[at] == one else "No")
            for one in range(3)
        ]
    table = pl.DataFrame(rows, ["item", "variant", "answer"], orient="row")
    metrics = cs.score(table, made(40, 20)).metrics.filter(pl.col("group").str.starts_with("g"))
    for subset in ("all", "ask=choice/verify"):
        kappa = metrics.filter(metric="corrected_consistency", subset=subset)
        assert kappa.filter((pl.col("low") <= 0) & (pl.col("high") >= 0)).height >= 18
    whole = dict(metrics.filter(subset="all").group_by("metric").agg(pl.mean("value")).iter_rows())
    assert whole["consistency"] == pytest.approx(whole["chance_consistency"], abs=0.02)


def test_prompts():
    plain = "Question: Capital of France?\n"
    assert present(FRANCE, Presentation(ask="open")).text == plain + "Answer:"
    prompt = present(FRANCE, replace(VERIFY, order="rotation 1"))
    assert [check.text for check in prompt.checks] == [
        f'{plain}Is the answer "{name}"? Yes or No?\nAnswer:' for name in ("Paris", "Lyon", "Nice")
    ]
    assert [check.gold for check in prompt.checks] == [0, 1, 1], "yes to the gold"
    assert {check.answers for check in prompt.checks} == {("Yes", "No")}
    assert prompt.answers == ("Paris", "Lyon", "Nice") and prompt.gold == 0
    chat = replace(
        VERIFY, template=TEMPLATES["chat"], cue="right", cues={"": ("{question} {answer}!",)}
    )
    assert present(FRANCE, chat).checks[0].text == (
        'Capital of France?\nParis!\nIs the answer "Nice"? Yes or No?\n'
        "Answer with Yes or No and nothing else."
    )
    solved = [replace(FRANCE, item=f"q{at}", paraphrases={"": (f"Q{at}?",)}) for at in range(2)]
    shown = present(FRANCE, VERIFY, solved).checks[2].text
    assert re.findall(r'answer "(\w+)"|Answer: (\w+)', shown) == [
        ("Paris", ""), ("", "Yes"), (shown.split('"')[3], ""), ("", "No"), ("Lyon", ""),
    ]  # fmt: skip
    assert shown.split('"')[3] in ("Nice", "Lyon"), "the second example shows a wrong option"


@pytest.mark.parametrize("language", CHECKS)
def test_an_option_is_verified_in_the_language_of_the_question(language):
    sentence, yes, no = CHECKS[language]
    assert sentence.count("{answer}") == 1 and yes != no
    assert all(word in sentence for word in (yes, no))
    asked = Question("a", "geo", {f"{language}-XX": ("?",)}, OPTIONS[1], OPTIONS)
    prompt = present(asked, replace(VERIFY, language=f"{language}-XX"))
    assert prompt.checks[0].answers == (yes, no)
    stop = "。" if language in ("ja", "zh") else ", "
    for at, word in enumerate((yes, no)):
        for text in (f"**{word.upper()}**{stop}Nice{stop}", f"<think>?</think>{word}", word):
            assert match_verdict(text, prompt.checks[0].choices) == at


@pytest.mark.parametrize(("text", "rule", "position"), [
    ("Yes, the answer is No.", None, 0),
    ("I thought of No. The answer is: yes, it is", None, 0),
    ("Yesterday", None, None),
    ("not yes", None, None),
    ("Yes, it is.", "normalized", None),
    ("It is so: yes", "contains", 0),
])  # fmt: skip
def test_a_verdict_is_the_first_word_unless_a_rule_is_named(text, rule, position):
    choices = [Choice("Yes"), Choice("No")]
    assert match_verdict(text, choices, rule and rule_of(rule)) == position
    prompt = present(FRANCE, VERIFY).checks[0]
    assert PromptFunction(list, rule).match(text, prompt, ()) == position


def test_the_chinese_yes_in_a_longer_word():
    chinese = [Choice("是"), Choice("否")]
    assert [match_verdict(text, chinese) for text in ("是的。", "不是。")] == [0, None]


def test_options_that_are_not_shown_have_no_order_and_no_labels():
    factors = [
        Factor("order", ("given", "reversed")),
        Factor("ask", ("choice", "open", "verify")),
        Factor("cue", ("none", "wrong")),
    ]
    names = FactorialDesign.full(factors).visible().names
    assert len(names) == 8 and "order=reversed, ask=choice, cue=wrong" in names
    assert not any("reversed, ask=open" in name for name in names)
    pairs = FactorialDesign.full(factors).visible().contrasts
    assert {ways: len(of) for ways, of in pairs.items()} == dict.fromkeys(
        ("ask=choice/open", "ask=choice/verify", "ask=open/verify"), 2
    ) | {"cue=none/wrong": 4}


def write_questions(path):
    rows = [
        {
            "item": one.item,
            "question": one.paraphrases[""][0],
            "answer": "x",
            "options": list("xyz"),
            "group": "g0",
        }
        for one in made().items
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fickle(prompts):
    """B of a choice; openly the first option; yes to y and z, of every second question to x."""
    replies = []
    for prompt in prompts:
        number = int(re.search(r"Question (\d+)", prompt)[1])
        verified = re.search(r'answer "(\w)"', prompt)
        told = ("x",) if number % 2 else ("y", "z")
        told = "yes." if verified and verified[1] in told else "no."
        replies.append(told if verified else "B" if "A. x" in prompt else "It is x")
    return replies


@pytest.mark.parametrize("generate", [False, True])
def test_a_function_whose_contradictions_are_known(tmp_path, generate):
    """It chooses y, says x openly, and affirms x of odd questions, y and z of even ones."""
    named = {"vary": ["ask", "order=given"], "generate": generate}
    found = cs.evaluate(made(), fickle, out=tmp_path / "run", **named)
    metrics = found.metrics.filter(group="MICRO")
    values = {(row["metric"], row["subset"]): row["value"] for row in metrics.to_dicts()}
    assert values["consistency", "ask=choice/verify"] == 0
    assert values["consistency", "ask=choice/open"] == 0
    assert values["consistency", "ask=open/verify"] == 1 / 2
    rows = found.answers.filter(ask="verify").sort("item")
    assert rows.filter(item="q1")["answer"].item() == "x"
    assert rows.filter(item="q2")["answer"].item() == "(2 affirmed: y, z)"
    assert rows.filter(item="q2")["option"].item() is None
    assert rows["affirmed"].to_list()[:2] == [[False, True, True], [True, False, False]]
    again = cs.open_run(tmp_path / "run").metrics.filter(group="MICRO", metric="consistency")
    assert again["value"].to_list() == metrics.filter(metric="consistency")["value"].to_list()
    suite = write_questions(tmp_path / "own.jsonl")
    exported = list(cs.export_prompts(suite, vary=["ask", "order=given"]))
    assert len(exported) == 30 * 5
    texts = fickle([row["prompt"] for row in exported])
    table = pl.DataFrame(
        [(row["item"], row["variant"], text) for row, text in zip(exported, texts, strict=True)],
        ["item", "variant", "answer"], orient="row",
    )  # fmt: skip
    if generate:
        scored = cs.score(table, made()).metrics.filter(group="MICRO")
        assert scored["value"].equals(metrics["value"])
    lacking = cs.score(table.filter(pl.col("variant") != "order=given, ask=verify 2"), made())
    assert lacking.answers.filter(ask="verify")["excluded"].to_list() == ["no answer"] * 30


def test_a_gate_reads_two_ways(tmp_path, consilience):
    cs.evaluate(made(), fickle, vary="ask", out=tmp_path / "run")
    rules = ["--rule", "consistency of ask=choice/verify >= 50 %"]
    status, out, _ = consilience("gate", tmp_path / "run", *rules)
    assert status == 3 and re.search(r"ask=choice/verify >= 50 % +fail +all questions +0.0", out)
    rules = ["--rule", "consistency of ask=verify/choice >= 50 %"]
    error = refusal(consilience, "gate", tmp_path / "run", *rules)
    assert "did you mean 'ask=choice/verify'?" in error.lower()


@pytest.mark.parametrize(("model", "contradicts", "affirmed"), [
    ("baseline:majority", 0, 1), ("baseline:oracle", 0, 1), ("baseline:random", 2 / 3, 1 / 3),
])  # fmt: skip
@pytest.mark.parametrize("generate", [False, True])
def test_baselines_affirm_what_they_would_choose(model, contradicts, affirmed, generate):
    metrics = cs.evaluate(made(300), model, vary="ask", generate=generate).metrics
    values = dict(metrics.filter(group="MICRO", subset="all").select("metric", "value").iter_rows())
    assert 1 - values["consistency"] == pytest.approx(contradicts, abs=0.06)


class Told:
    """Gives these totals of yes and no, of the checks of one prompt."""

    identity, notes, tie = {}, [], 0.0

    def __init__(self, totals, **more):
        self.totals, self.more = np.array(totals, dtype=float), more

    def score(self, shown):
        for row in reversed(range(len(shown))):
            more = {name: of[row : row + 1] for name, of in self.more.items()}
            sizes = None if "texts" in more else [np.ones(2, dtype=int)]
            yield Scores.of_rows(np.array([row]), [self.totals[row]], sizes, **more)


def test_the_score_of_an_option_is_the_log_odds_of_yes():
    prompt = present(FRANCE, VERIFY)
    (scores,) = Verifier(Told([[-1, -2], [-0.5, -3], [-4, -1]])).score([prompt])
    assert scores.totals.tolist() == [[1, 2.5, -3]]
    assert scores.affirmed.tolist() == [[True, True, False]] and not scores.answers_only
    unknown = [[-1, -2], [-1, np.nan], [-1, -2]]
    (scores,) = Verifier(Told(unknown)).score([prompt])
    assert scores.unasked == ["the probability of yes or of no is not known"]
    refused_ = [None, "too long", None]
    (scores,) = Verifier(Told([[-1, -2]] * 3, refused=refused_)).score([prompt])
    assert scores.unasked == ["too long"]
    yes, no, neither = [0, -np.inf], [-np.inf, 0], [-np.inf, -np.inf]
    for told, totals, text in (
        ([no, yes, neither], [-np.inf, 0, -np.inf], "(1 affirmed: Paris)"),
        ([yes, yes, no], [-np.inf] * 3, "(2 affirmed: Nice, Paris)"),
        ([no, neither, no], [-np.inf] * 3, "(0 affirmed)"),
    ):
        (scores,) = Verifier(Told(told, texts=["?"] * 3)).score([prompt])
        assert (scores.totals.tolist(), scores.texts) == ([totals], [text])
    (scores,) = Verifier(Told([yes, no, no], texts=["Yes", "", "No"])).score([prompt])
    assert scores.unasked == ["the model wrote no text"]


@pytest.mark.parametrize("rule", ["label", "bytes", "pmi"])
@pytest.mark.parametrize("ways", [VLLM, SGLANG])
def test_a_server_gives_the_answers_of_the_same_weights_here(model_folder, rule, ways):
    """The verified score is the log-odds, whatever rule scores the options."""
    folder, named = str(model_folder("llama")), {"vary": "ask", "option_score": rule}
    here = cs.evaluate(made(3), folder, **named).answers
    with scoring_server(folder, ways, longest=4096) as server:
        there = cs.evaluate(made(3), "openai:tiny", base_url=server.url, tokenizer=folder, **named)
    columns = ("answer", "affirmed")
    assert there.answers.select(columns).equals(here.select(columns))
    scores = [np.array(of["option_scores"].to_list()) for of in (here, there.answers)]
    np.testing.assert_allclose(*scores, atol=1e-4)
    verified = here.filter(ask="verify")
    assert verified["affirmed"].to_list() == [
        [one > 0 for one in of] for of in verified["option_scores"]
    ]


def chats(path, body, headers):
    """A server of chats, listing first tokens or enforcing an answer: A, yes to x, else no."""
    if path != "/v1/chat/completions":
        return 404, {}, {}
    text = body["messages"][-1]["content"]
    reply = "A" if "letter" in text else "Yes" if '"x"' in text else "No" if "Yes" in text else "z"
    if "response_format" in body:
        enum = json.loads(json.dumps(body))["response_format"]["json_schema"]["schema"][
            "properties"
        ]["answer"]["enum"]
        reply = reply if reply in enum else enum[0]
        return completion(body, choices=[{"message": {"content": json.dumps({"answer": reply})}}])
    known = {"Yes": "No", "No": "Yes"}.get(reply, "B")
    if "letter" not in text and "Yes" not in text:
        reply, known = "2", "3"
    listed = [(reply, -0.25), (known, -1.7), *((f"x{at}", -9.0) for at in range(18))]
    entries = [{"token": token, "logprob": value} for token, value in listed]
    content = [{**entries[0], "top_logprobs": entries}]
    return completion(
        body, choices=[{"message": {"content": reply}, "logprobs": {"content": content}}]
    )


@pytest.mark.parametrize("scoring", ["chat-top-k", "answers-only"])
def test_servers_of_chats(scoring):
    with replay(chats) as server:
        named = {"base_url": server.url, "scoring": scoring, "template": "chat"}
        found = cs.evaluate(made(2), "openai:m", vary="ask", **named)
    opened = found.answers.filter(ask="open")
    if scoring == "chat-top-k":
        reason = "the server scores labels of options in chats; texts need --scoring answers-only"
        assert opened["excluded"].to_list() == [reason] * 2
    else:
        assert opened["answer"].to_list() == ["z", "z"]
    verified = found.answers.filter(ask="verify")
    assert verified["answer"].to_list() == ["x", "x"]
    assert verified["affirmed"].to_list() == [[True, False, False]] * 2
    if scoring == "chat-top-k":
        np.testing.assert_allclose(verified["option_scores"].to_list(), [[1.45, -1.45, -1.45]] * 2)


def test_refusals(tmp_path, consilience):
    def asked(**named):
        return lambda: cs.evaluate(made(), fickle, **named)

    refused("--vary ask=maybe", asked(vary="ask=maybe"))
    refused("--vary ask of open questions", cs.evaluate, "mini-open", fickle, vary="ask")
    refused(
        "with a decision model", cs.evaluate, made(), "systemone:x", vary="ask", base_url="http://x"
    )
    finnish = Question("a", "geo", {"fi": ("?",)}, OPTIONS[1], OPTIONS)
    message = "no yes and no in the language 'fi'; expected en, de, .*ask=open"
    refused(message, present, finnish, replace(VERIFY, language="fi"))
    export = ["suite", "export", "mini-questions", "--vary", "ask", "--format", "lm-eval"]
    error = refusal(consilience, *export, "--out", tmp_path / "task")
    assert (
        "ask=verify in a task of lm-evaluation-harness; expected one prompt for each variant"
        in error
    )
    table = pl.DataFrame(
        {"item": ["q1"] * 2, "variant": ["ask=choice", "ask=verify"], "answer": ["x", "Yes"]}
    )
    message = "row 2: the variant 'ask=verify' of 'q1'; expected a row for each option"
    refused(message, cs.score, table, made())
    table = table.with_columns(variant=pl.Series(["ask=choice", "ask=verify 4"]))
    refused(
        "the variant 'ask=verify 4' of 'q1'.*ask=verify 1 to ask=verify 3", cs.score, table, made()
    )
    refused(
        "--vary ask in a training",
        cs.improve,
        model="packaged:smollm2",
        suite="mini-questions",
        vary=("ask",),
    )
