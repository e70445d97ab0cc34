"""Models that answer prompts: scores of answers against a plain pass of transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AddedToken

from checks import PromptStub, refused
from conftest import cases
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Prompt, Question, Scores
from consilience.models import prompted
from consilience.models.causal import TrieReader
from consilience.models.loading import load_pretrained
from consilience.models.prompted import PromptModel
from consilience.models.prompts import PromptReader, Writing
from consilience.models.seq2seq import before_targets
from consilience.plans import questions as ask_questions
from consilience.plans.asking import query_table
from consilience.plans.presentation import TEMPLATES, Presentation, PromptBuilder, Template
from consilience.plans.questions import asks_of, choose, prompts_of
from test_models import build_bart


def question(item, gold, *options, texts=("Rome ?",)):
    return Question(item, "capital", {"": texts}, Choice(gold), tuple(map(Choice, options)))


QUESTIONS = tuple(
    question(f"q{at}", gold, *options, texts=(f"Rome and {gold} ?", f"the capital {gold} ?"))
    for at, (gold, options) in enumerate(
        [("Paris", ("Rome", "Paris", "London")), ("Rome", ("Rome", "Italy"))]
    )
)
DESIGN = FactorialDesign.full(
    [Factor("paraphrase", ("1", "2")), Factor("order", ("ABC", "BCA", "CAB"))]
)
SHORT = Template("short", "{question} {options}")
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def prompt_of(base, asked=QUESTIONS[0], design=DESIGN):
    return PromptBuilder(design, {}, base).prompt(asked, 0)


def prompts_in(base):
    return [prompt for _, _, prompt in prompts_of(QUESTIONS, PromptBuilder(DESIGN, {}, base))]


@pytest.fixture
def reader(model_folder):
    """``reader("gpt2")``: a tiny model that answers prompts; ``chat``: with a chat template."""

    def load(family, *, chat=False):
        loaded = load_pretrained(str(model_folder(family)))
        loaded.model.config.max_position_embeddings = 512
        if chat:
            loaded.tokenizer.chat_template = CHAT
        return PromptModel(loaded)

    return load


def test_a_chat_is_read_in_the_models_own_form(reader):
    """System prompt, examples with their answers, question; answers begin without a space."""
    model = reader("llama", chat=True)
    chat = Template("t", "{question}", is_chat=True, system="Rome .")
    base = Presentation(template=chat, labels="none", shots=1)
    prompt_builder = PromptBuilder(DESIGN, {}, base, pool={"capital": QUESTIONS})
    prompt = prompt_builder.prompt(QUESTIONS[0], 0)
    assert model.text(prompt) == (
        "system: Rome .|user: Rome and Rome ?|assistant: Rome|user: Rome and Paris ?|assistant: "
    ).replace("|", model.tokenizer.eos_token)
    ids, targets = model.encode(prompt)
    assert model.tokenizer.decode(ids).endswith("assistant:")
    assert {target[-1] for target in targets} == {model.tokenizer.eos_token_id}
    assert model.tokenizer.decode(targets[1][:-1]).strip() == "Paris"
    # A model that thinks before it answers reads an empty thought, as in its own past turns.
    thought = "{% if m.role == 'assistant' %}Rome {% endif %}{{ m.content }}"
    model.tokenizer.chat_template = CHAT.replace("{{ m.content }}", thought)
    prompt = prompt_of(Presentation(template=TEMPLATES["chat"]))
    assert model.text(prompt).endswith("assistant: Rome ")


def test_what_cannot_be_asked_says_why(reader):
    """A chat without a chat template, a special token in a question, a prompt that is too long."""
    model = reader("llama")
    prompt = prompt_of(Presentation(template=TEMPLATES["chat"]))
    assert model.why_not([prompt]) == ["the model has no chat template"]
    short = Presentation(template=SHORT)
    model.longest = 3
    assert "and the model takes 3" in model.why_not([prompt_of(short)])[0]
    model.longest = 512
    odd = question("q", "a", "a", "b", texts=("<|endoftext|>",))
    assert "special token" in model.why_not([prompt_of(short, odd)])[0]
    model = reader("t5")  # without these letters
    same = question("q", "\u0b95", "\u0b95", "\u0b99")
    prompt = prompt_of(Presentation(labels="none"), same)
    assert model.why_not([prompt]) == ["the option '\u0b95': unknown to the tokenizer"]


def test_a_turn_ends_with_its_own_special_token(reader):
    """Also where only the end of a text is known, as of a server; a name of it is not needed."""
    tokenizer = reader("llama").tokenizer
    tokenizer.add_tokens([AddedToken("<|turn|>", special=True, normalized=False)])
    tokenizer.chat_template = CHAT.replace("{{ eos_token }}", "<|turn|>")
    turn, end = tokenizer.convert_tokens_to_ids("<|turn|>"), tokenizer.eos_token_id
    tokens = PromptReader(tokenizer, [end], "m")
    asked = Prompt((("user", "q"),), ("Rome", "Paris"), (0, 1), are_labels=False, is_chat=True)
    assert [target[-1] for target in tokens.encode(asked)[1]] == [turn] * 2
    assert tokens.special_in(["Rome <|turn|>Paris"]) == "has the special token '<|turn|>' in it"
    for template, ends, last in (
        ("", [end], end),
        ("<|turn|>{{ eos_token }}", [end], end),
        ("<|turn|>{{ eos_token }}", [end, turn], turn),  # the first that ends an answer
    ):
        tokenizer.chat_template, tokens.ends = CHAT.replace("{{ eos_token }}", template), ends
        assert [target[-1] for target in tokens.encode(asked)[1]] == [last] * 2


def test_a_prompt_begins_with_all_that_the_tokenizer_puts_there(reader):
    """As of GLM, whose texts begin with two tokens, none of them its bos."""
    tokenizer = reader("llama").tokenizer
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in ("Rome", "Paris")}
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing("Rome Paris $A", None, [*ids.items()])
    assert PromptReader(tokenizer, [], "m").beginning == [*ids.values()]


def test_the_options_of_a_suite_with_open_questions_are_checked(model_folder):
    """Of a model that only writes they are not, and what it may write takes up positions."""
    loaded = load_pretrained(str(model_folder("t5")))
    same = question("q", "\u0b95", "\u0b95", "\u0b99")
    prompt = prompt_of(Presentation(labels="none"), same)
    assert "unknown to the tokenizer" in PromptModel(loaded, Writing()).why_not([prompt])[0]
    assert PromptModel(loaded, Writing(), chooses=False).why_not([prompt]) == [None]
    loaded = load_pretrained(str(model_folder("gpt2")))
    model, prompt = PromptModel(loaded, Writing(9), chooses=False), prompts_in(Presentation())[0]
    model.longest = len(model.prompt_ids(prompt)) + 8
    assert model.why_not([prompt]) == [
        f"{model.longest + 1} tokens, and the model takes {model.longest}"
    ]


def test_options_of_bart_follow_what_begins_every_text(tmp_path):
    model = PromptModel(load_pretrained(str(build_bart(tmp_path, init_std=0.4))))
    ids, targets = model.encode(prompt_of(Presentation(template=SHORT, labels="none")))
    found, start = next(model.score([prompt_of(Presentation(template=SHORT, labels="none"))])), []
    start = [model.tokenizer.eos_token_id, model.tokenizer.cls_token_id]
    assert before_targets(model.tokenizer, start[0]) == start[1:]
    for target, total in zip(targets, found.totals[0], strict=True):
        decoder = torch.tensor([[*start, *target[:-1]]])
        logits = model.model(torch.tensor([ids]), decoder_input_ids=decoder).logits[0, 1:]
        steps = logits.double().log_softmax(-1)[range(len(target)), target]
        assert total == pytest.approx(float(steps.sum()), abs=1e-4)


class FirstLabel(PromptStub):
    """A model that always prefers the first label, whatever option it is."""

    def score(self, prompts):
        totals = [-np.arange(len(prompt.answers), dtype=float) for prompt in prompts]
        tokens = [np.arange(1, len(prompt.answers) + 1) for prompt in prompts]
        yield Scores.of_rows(np.arange(len(prompts)), totals, tokens)


def test_answers_are_options_in_whatever_order_they_were_shown():
    """Always A: the option that is shown first, which each rotation changes."""
    prompt_builder = PromptBuilder(DESIGN, {}, Presentation())
    table = choose(prompt_builder, asks_of(QUESTIONS[:1], prompt_builder, "own"), FirstLabel())
    assert table["label"].unique().to_list() == ["A"]
    assert table["option"].to_list() == [0, 1, 2, 0, 1, 2]
    assert table["answer"].to_list() == ["Rome", "Paris", "London"] * 2
    assert table["gold_option"].unique().to_list() == [1]
    assert (table["gold_rank"].to_list(), table["margin"].to_list()) == ([2, 1, 3] * 2, [1.0] * 6)
    assert table["order"].to_list() == ["ABC", "BCA", "CAB"] * 2
    assert table["variant"][4] == "paraphrase=2, order=BCA"
    assert table["option_scores"].to_list() == [[0, -1, -2], [-2, 0, -1], [-1, -2, 0]] * 2
    assert table["option_tokens"].to_list() == [[1, 2, 3], [3, 1, 2], [2, 3, 1]] * 2
    assert table["logprob"][0] == pytest.approx(-np.log(1 + np.exp(-1) + np.exp(-2)))


def test_few_prompts_are_asked_at_once_and_the_table_stays_the_same(monkeypatch):
    """Ten questions in six variants, at most 20 prompts at once."""
    questions = [replace(QUESTIONS[0], item=f"q{at}") for at in range(10)]
    prompt_builder, sizes, done = PromptBuilder(DESIGN, {}, Presentation()), [], []
    group = asks_of(questions, prompt_builder, "own")

    class Counting(FirstLabel):
        def score(self, prompts):
            sizes.append(len(prompts))
            return super().score(prompts)

    whole = choose(prompt_builder, group, Counting(), done.append)
    monkeypatch.setattr(ask_questions, "PROMPTS_AT_ONCE", 20)
    parts = choose(prompt_builder, group, Counting(), done.append)
    assert sizes == done == [60, 20, 20, 20]
    assert parts.equals(whole)
    assert choose(prompt_builder, replace(group, asks=()), Counting()).equals(whole.clear())


def test_what_is_asked_is_a_table_with_the_answers_as_they_are_shown():
    """Rows as in the answers table."""
    base = Presentation(template=Template("t", "{question}\n{options}\nAnswer:"), labels="1")
    prompt_builder = PromptBuilder(DESIGN, {}, base)
    group = asks_of(QUESTIONS, prompt_builder, "own")
    sent = query_table(group, lambda prompt: [prompt.text])
    answers = choose(prompt_builder, group, FirstLabel())
    rows = ["item", "variant", "variant_index"]
    assert sent.select(rows).equals(answers.select(rows))
    assert answers["shown"].to_list() == ["ABC", "BCA", "CAB"] * 2 + ["AB", "BA"] * 2
    assert sent.row(1, named=True) == {
        "group": "capital", "item": "q0", "subject": "q0", "variant": "paraphrase=1, order=BCA",
        "variant_index": 1, "paraphrase": "1", "order": "BCA", "gold": "Paris",
        "input": ["Rome and Paris ?\n1. Paris\n2. London\n3. Rome\nAnswer:"],
        "choices": ["1", "2", "3"],
    }  # fmt: skip


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("is_chat", [False, True])
def test_prompt_and_answer_are_the_tokens_of_one_text(reader, family, is_chat):
    """Nothing is tokenised apart: what follows the prompt is what the tokenizer makes of it."""
    model = reader(family, chat=is_chat)
    template = Template("t", "{question}\n{options}\nAnswer:", is_chat=is_chat)
    prompt = prompt_of(Presentation(template=template))
    ids, targets = model.encode(prompt)
    for label, target in zip("ABC", targets, strict=True):
        text = model.text(prompt) + (label if is_chat else f" {label}")
        assert ids + target == model.tokenizer(text, add_special_tokens=not is_chat)["input_ids"]


def test_an_answer_that_begins_another_is_scored_with_its_end(reader):
    """1 would never be less probable than 10; in plain text a line break ends an answer."""
    options = [f"option {letter}" for letter in "abcdefghij"]
    model, decode = reader("llama"), reader("llama").tokenizer.decode
    shown, alone = Presentation(template=SHORT, labels="1"), FactorialDesign.full([])
    for count, has_end in ((9, False), (10, True)):
        prompt = prompt_of(shown, question("q", options[0], *options[:count]), alone)
        ids, targets = model.encode(prompt)
        texts = [f"{prompt.text} {label}" + "\n" * has_end for label in prompt.answers]
        for target, text in zip(targets, texts, strict=True):
            assert decode([*ids, *target]) == decode(model.tokenizer(text)["input_ids"])


@pytest.mark.parametrize(("template", "message"), cases("chat_templates_refused"))
def test_a_chat_without_a_system_role_says_so(reader, template, message):
    model = reader("llama", chat=True)
    model.tokenizer.chat_template = template
    chat = Template("t", "{question}", is_chat=True, system="Rome .")
    refused(message, model.why_not, [prompt_of(Presentation(template=chat))])


@pytest.mark.parametrize(("kind", "template", "system", "opening"), cases("chat_templates"))
def test_chat_templates_as_models_of_the_hub_have_them(reader, kind, template, system, opening):
    model = reader("llama", chat=True)
    model.tokenizer.chat_template = template
    asked = Prompt((("user", "q"),), (), (), are_labels=False, is_chat=True, system=system)
    assert model.around(asked)[0].removesuffix("\n") == opening


def scores_of(model, prompts):
    """The log-probabilities of the answers of each prompt."""
    totals = [None] * len(prompts)
    for scores in model.score(prompts):
        for row, values in zip(scores.rows.tolist(), scores.totals, strict=True):
            totals[row] = values[: len(prompts[row].answers)].tolist()
    return totals


@pytest.mark.parametrize("labels", ["A", "none"])
def test_every_token_that_prompts_and_answers_share_is_read_once(reader, monkeypatch, labels):
    """And in whatever order prompts are given, the scores are the same to the last bit."""
    model = reader("llama")
    prompts = prompts_in(Presentation(template=SHORT, labels=labels))
    texts = [ids + target[:-1] for ids, targets in map(model.encode, prompts) for target in targets]
    tokens = []
    read = TrieReader._pass
    monkeypatch.setattr(
        TrieReader,
        "_pass",
        lambda self, nodes, *args, **more: tokens.extend(nodes) or read(self, nodes, *args, **more),
    )
    monkeypatch.setattr(prompted, "workers_on", lambda device: 1)
    scores = scores_of(model, prompts)
    assert len(tokens) == len({tuple(text[: at + 1]) for text in texts for at in range(len(text))})
    assert len(tokens) < sum(map(len, texts)) / 2
    assert scores_of(model, prompts[::-1])[::-1] == scores
