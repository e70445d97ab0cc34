"""Decision models: requests and replies of both routes, real servers and refusals."""

import json
import shutil
import threading
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from checks import output, refusal, refused
from conftest import _tokenizer, cases
from consilience.asking.facts import judge
from consilience.asking.questions import Presenter, ask_options
from consilience.core.errors import Connection
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question, TextPair
from consilience.core.presentation import Presentation, present
from consilience.endpoints.client import Refused
from consilience.endpoints.usage import Journal
from consilience.models.decisions import (
    ROUTES,
    DecisionModel,
    DecisionPairs,
    connected,
    fault_of,
    log_scores,
)
from consilience.suites.pairs import load_task, original
from pair_builders import SAME, write_pairs
from replay_server import replay

CHAT = (
    "{% for turn in messages %}<{{ turn['role'] }}>{{ turn['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TEXTS = {
    "france": ("The capital of France is", "Paris", "Berlin", "Rome"),
    "germany": ("The capital of Germany is", "Berlin", "Paris", "Rome"),
    "italy": ("The capital of Italy is", "Rome", "Madrid", "Oslo"),
    "spain": ("The capital of Spain is", "Madrid", "Lisbon"),
    "norway": ("Is Oslo in Norway?", "yes", "no"),
}
QUESTIONS = [
    Question(item, "g", {"": (text,)}, Choice(options[0]), tuple(map(Choice, options)))
    for item, (text, *options) in TEXTS.items()
]


def presenter(**levels):
    """Presents questions in these levels of factors; without any, as they are."""
    factors = [Factor(name, tuple(of)) for name, of in levels.items()]
    base = Presentation(labels="none")
    design = FactorialDesign.full(factors)
    return Presenter(design, {}, base, pool=QUESTIONS, rule_name="decision")


def prompts(labels="none", order="given"):
    shown = Presentation(labels=labels, order=order)
    return [present(question, shown) for question in QUESTIONS]


def scores_of(model, asked):
    """The scores of each prompt, in its order."""
    values = [None] * len(asked)
    for scores in model.score(asked):
        for at, row in enumerate(scores.rows):
            values[row] = scores.totals[at]
    return values


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    """A tiny random chat model."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("chat")
    tokenizer = _tokenizer("causal")
    tokenizer.chat_template = CHAT
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=256, initializer_range=0.3,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def local(chat_folder):
    from consilience.models import load_prompt_model

    return load_prompt_model(f"systemone:{chat_folder}", QUESTIONS)


@pytest.fixture(scope="module")
def served(chat_folder):
    """The URL of ``transformers serve``, in a thread of this process."""
    pytest.importorskip("uvicorn", reason="the extra test-server is not installed")
    from transformers.cli.serve import Serve

    server = Serve(
        force_model=str(chat_folder), host="127.0.0.1", port=0, device="cpu", dtype="float32",
        non_blocking=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not server.server.started and time.monotonic() < end:
            time.sleep(0.01)
        port = server.server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill_server()


def assert_same_scores(local, remote):
    """Of the questions as they are, and with labels in the other order."""
    for asked in (prompts(), prompts("A", "reversed")):
        here, there = scores_of(local, asked), scores_of(remote, asked)
        for expected, values in zip(here, there, strict=True):
            assert values == pytest.approx(expected, abs=1e-5)
            assert np.exp(values).sum() == pytest.approx(1)
    remote.client.close()


def test_transformers_serve_gives_the_scores_of_the_pipeline_here(served, local, chat_folder):
    assert_same_scores(local, connected(f"systemone:{chat_folder}", Connection(served)))


ASKED = (
    "{{ state }}{{ instructions }}{% for option in options %}{{ '\\n' }}{{ option.label }}. "
    "{{ option.key }}{% endfor %}{{ '\\n' }}Answer:"
)
"""The template of the decision model of llama.cpp."""


def test_llama_cpp_gives_the_label_scores_of_the_same_weights_here(model_folder, tmp_path):
    """A GGUF file is a decision model by its metadata: here one that reads the labels A, B, C."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the extra test-server is not installed")
    from consilience.models.loading import load_pretrained
    from test_gguf import write_gguf

    metadata = [("llama.decision.type", "nimble"), ("tokenizer.chat_template.systemone", ASKED)]
    file = write_gguf(tmp_path / "tiny.gguf", model_folder("gpt2"), metadata)
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.hostnames, parameters.port = str(file), ["127.0.0.1"], 0
    parameters.cpuparams.n_threads, parameters.n_parallel, parameters.verbosity = 1, 1, -1
    server = xllamacpp.Server(parameters)
    remote = connected("systemone:tiny", Connection(f"{server.listening_address}/v1"))
    loaded, asked = load_pretrained(str(file)), prompts()
    for prompt, values in zip(asked, scores_of(remote, asked), strict=True):
        lines = [f"{label}. {text}" for label, text in zip("ABC", prompt.answers, strict=False)]
        text = "\n".join([prompt.question, *lines, "Answer:"])
        inputs = loaded.tokenizer(text, return_tensors="pt")
        labels = [ids[0] for ids in loaded.tokenizer(list("ABC"[: len(lines)]))["input_ids"]]
        expected = loaded.model(**inputs).logits[0, -1, labels].log_softmax(-1)
        assert values == pytest.approx(expected.tolist(), abs=0.1)  # kernels in eight bits
    assert remote.client.models == {file.name}
    assert remote.notes == []
    remote.client.close()


@pytest.fixture(scope="module")
def head_folder(chat_folder, tmp_path_factory):
    """A tiny random model with a decision head of 24 - 8 = 16 options."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("head")
    body = transformers.LlamaConfig.from_pretrained(chat_folder).to_dict()
    torch.manual_seed(1)
    config = transformers.JevConfig(hidden_size=32, text_config=body, initializer_range=0.5)
    transformers.JevForDecision(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(chat_folder).save_pretrained(folder)
    return folder


def test_a_decision_head_gives_the_probabilities_of_transformers(head_folder, local):
    """Loaded by transformers itself, and not those of the labels."""
    import transformers

    from consilience.models import load_prompt_model

    model = load_prompt_model(f"systemone:{head_folder}", QUESTIONS)
    assert (model.identity["architecture"], model.most_options) == ("JevForDecision", 16)
    pipeline = transformers.pipeline("decision", model=str(head_folder))
    asked = prompts()
    for prompt, scores in zip(asked, scores_of(model, asked), strict=True):
        request = json.loads(model.text(prompt))
        (answer,) = pipeline({name: request[name] for name in ("state", "questions")}).values()
        expected = list(answer["probabilities"].values())
        np.testing.assert_allclose(np.exp(scores), expected, atol=1e-6)
    assert np.abs(scores - scores_of(local, asked)[-1]).max() > 0.01


def test_a_decision_head_that_is_missing_or_elsewhere_is_refused(head_folder, tmp_path):
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    from consilience.models import load_model, load_prompt_model

    refused("is a decision model.*--model systemone:", load_model, str(head_folder))
    folder = tmp_path / "headless"
    shutil.copytree(head_folder, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("proj")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    message = "tensors of a decision model, such as .proj"
    refused(message, load_prompt_model, f"systemone:{folder}", QUESTIONS)
    beside = tmp_path / "beside"
    tokenizer = transformers.AutoTokenizer.from_pretrained(head_folder)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen2ForCausalLM(config).save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    (beside / "decision_config.json").write_text('{"codes": ["A", "B"], "temperature": 1.0}')
    message = "has a decision head beside its weights"
    refused(message, load_prompt_model, f"systemone:{beside}", QUESTIONS)


def decided(local):
    """A server of /v1/decisions: OpenAI's shapes, checked by its package, of a tiny model here."""
    from openai.types import Decision
    from openai.types.decision_create_params import DecisionCreateParams
    from pydantic import TypeAdapter

    params, lock = TypeAdapter(DecisionCreateParams), threading.Lock()

    def answer(path, body, headers):
        params.validate_python(body)
        asked = {
            one["name"]: {
                "type": "choice", "instructions": one["instructions"],
                "criteria": {each["value"]: each.get("description") for each in one["choices"]},
            }
            for one in body["questions"]
        }  # fmt: skip
        with lock:  # a tokenizer is used by one thread at a time
            [(_, reply)] = local._send([{"state": body["input"], "questions": asked}])
        answers = [
            {
                "type": "choice", "name": name, "choice": one["choice"],
                "confidence": one["confidence"],
                "probabilities": [{"value": value, "probability": share}
                                  for value, share in one["probabilities"].items()],
            }
            for name, one in reply["answers"].items()
        ]  # fmt: skip
        none = {"cache_write_tokens": 0, "cached_tokens": 0}
        usage = {
            "input_tokens": 9, "input_tokens_details": none, "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 9,
        }  # fmt: skip
        decision = {"answers": answers, "model": body["model"], "usage": usage}
        return Decision.model_validate(decision).model_dump()

    return answer


def test_decisions_of_a_server_of_openais_shape_equal_those_here(local):
    with replay(decided(local)) as server:
        assert_same_scores(local, connected("decisions:gpt", Connection(server.url)))
        bodies = server.bodies("/v1/decisions")
    first = {
        "type": "choice", "name": "q1", "instructions": "The capital of France is",
        "choices": [{"value": "Paris"}, {"value": "Berlin"}, {"value": "Rome"}],
    }  # fmt: skip
    assert {"model": "gpt", "input": "", "questions": [first]} in bodies


def test_a_request_has_the_context_the_question_and_the_options_as_they_are_shown():
    options = Choice("Ann"), Choice("Bob")
    question = Question("a", "g", {"": ("Who is it?",)}, options[0], options, "Ann spoke.")
    shown = present(question, Presentation(labels="1", order="reversed"))
    body = ROUTES["systemone"].body("m", shown)
    asked = {"type": "choice", "instructions": "Who is it?", "criteria": {"1": "Bob", "2": "Ann"}}
    expected = {"model": "m", "state": "Ann spoke.", "questions": {"q1": asked}}
    assert (body, list(body["questions"]["q1"]["criteria"])) == (expected, ["1", "2"])
    (choice,) = ROUTES["decisions"].body("m", shown)["questions"]
    assert choice["choices"][0] == {"value": "1", "description": "Bob"}


def test_two_orders_of_options_are_two_requests_of_a_journal(tmp_path):
    """Otherwise a resumed run could give the reply to one order to the other."""
    journal = Journal(tmp_path / "replies.sqlite")
    bodies = [ROUTES["systemone"].body("m", prompts(order=of)[0]) for of in ("given", "reversed")]
    first, second = (journal.key("systemone", body) for body in bodies)
    assert first.split(".")[0] != second.split(".")[0]
    journal.close()


@pytest.mark.parametrize(("shares", "fault"), cases("decisions_faults"))
def test_probabilities_that_are_not_those_of_the_options_are_named(shares, fault):
    assert fault_of(shares, ("Paris", "Berlin", "Rome")) == fault


def replying(*replies, route="systemone", **options):
    """A decision model whose server gives these replies to its requests, one after another."""
    model = DecisionModel("m", ROUTES[route], lambda bodies: enumerate(replies), {}, **options)
    model.identity["model"] = "m"
    return model


def choice(shares, name="q1"):
    return {"answers": {name: {"type": "choice", "probabilities": shares}}}


def rows_of(model, questions=QUESTIONS, **levels):
    return ask_options(questions, presenter(**levels), model, "s")


def test_a_probability_of_0_has_no_logarithm():
    """A server that rounds: the order is known, the logarithm of 0 is not."""
    values = log_scores([0.75, 0.0, 0.25])
    assert values == pytest.approx([np.log(0.75), np.nan, np.log(0.25)], nan_ok=True)
    model = replying(choice({"Paris": 0.0, "Berlin": 0.75, "Rome": 0.25}))
    (row,) = rows_of(model, QUESTIONS[:1]).rows(named=True)
    assert row["answer"] == "Berlin"
    assert row["option_scores"] == [None, pytest.approx(np.log(0.75)), pytest.approx(np.log(0.25))]
    assert row["gold_logprob"] is row["gold_rank"] is row["gold_text_logprob"] is None
    assert row["margin"] == pytest.approx(np.log(3))
    rounded = "1 of 3 probabilities of options are 0, as the server rounds them: their logarithms"
    assert model.notes == [f"{rounded} are unknown"]
    sure = replying(choice({"Paris": 1, "Berlin": 0, "Rome": 0}))
    (row,) = rows_of(sure, QUESTIONS[:1]).rows(named=True)
    assert [row["answer"], row["logprob"], row["gold_rank"], row["margin"]] == ["Paris", 0, 1, None]


TWICE = [{"value": "Paris", "probability": 0.5}] * 2


@pytest.mark.parametrize(("route", "reply", "reason"), [
    ("systemone", Refused(422, "few"), "the server refused the request (422): few"),
    ("systemone", {"answers": {"q1": {"type": "refusal"}}}, "the model refused to answer"),
    ("systemone", {"answers": {}}, "the server gave no answer to the question"),
    ("systemone", {"answers": {"q1": {"type": "noul", "noul": 1}}},
     "answered with 'noul' in place of"),
    ("systemone", choice({"Paris": 1.0}), "gave probabilities of ['Paris'], not of"),
    ("decisions", {"answers": [{"type": "choice", "name": None, "probabilities": TWICE}]},
     "the server gave several probabilities of one option"),
])  # fmt: skip
def test_an_answer_that_cannot_be_used_is_excluded_with_its_reason(route, reply, reason):
    whole = choice(dict.fromkeys(("Berlin", "Paris", "Rome"), 1 / 3))
    if route == "decisions":
        shares = [{"value": name, "probability": 1 / 3} for name in ("Berlin", "Paris", "Rome")]
        whole = {"answers": [{"type": "choice", "name": "q1", "probabilities": shares}]}
    table = rows_of(replying(reply, whole, route=route), QUESTIONS[:2])
    assert table["answer"].to_list() == [None, "Berlin"]
    assert reason in table["excluded"][0]
    assert table["excluded"][1] is None


@pytest.mark.parametrize("reply", [{"choices": []}, [], {"answers": {"q1": {"type": "choice"}}}])
def test_a_reply_of_another_api_ends_the_run(reply):
    refused("expected the reply of /v1/systemone", rows_of, replying(reply), QUESTIONS[:1])


def test_questions_that_no_decision_takes_are_not_sent():
    many = tuple(Choice(str(at)) for at in range(256))
    large = Question("many", "g", {"": ("Which?",)}, many[0], many)
    alike = replace(large, options=(Choice("a"), Choice("a"), many[0]))
    alone = replace(large, options=many[:1])
    questions = (large, alike, alone, replace(large, options=many[:255]))
    bare = Presentation(labels="none")
    assert replying().why_not([present(question, bare) for question in questions]) == [
        "256 options, and a decision takes 255", "two options have the same text",
        "1 option, and a decision needs two or more", None,
    ]  # fmt: skip


QUIZ = "question,question_2,options,answer\n" + "".join(
    f"{text},Say: {text},{';'.join(options)},{options[0]}\n" for text, *options in TEXTS.values()
)


@pytest.fixture
def quiz(tmp_path):
    path = tmp_path / "quiz.csv"
    path.write_text(QUIZ, encoding="utf-8")
    return path


def test_a_run_over_http_has_its_requests_and_distances(consilience, local, quiz, tmp_path):
    run = tmp_path / "run"
    with replay(decided(local)) as server:
        arguments = ["--model", "decisions:gpt", "--base-url", server.url, "--suite", quiz]
        vary = ["--vary", "paraphrase", "--vary", "labels=none,A"]
        shown = output(consilience, "probe", *arguments, *vary, "--out", run)
        assert "Consistency, labels" in shown
        asked = {json.dumps(body) for _, body in server.received}
        assert len(asked) == 2 * 2 * 5, "the noise floor sends some of them again"
    prompts = pl.read_parquet(run / "prompts" / "quiz.parquet")
    body = json.loads(prompts["prompt"][0])
    assert [one["value"] for one in body["questions"][0]["choices"]] == ["Paris", "Berlin", "Rome"]
    metrics = pl.read_csv(run / "metrics.csv").filter(group="MICRO")
    of_labels = metrics.filter(metric="total_variation", subset="labels")["value"].item()
    assert 0 < of_labels < 1
    assert not [path for path in run.iterdir() if path.name.startswith("replies")]
    output(consilience, "analyze", "factors", run)


@pytest.mark.parametrize(("options", "message"), cases("decisions_bad"))
def test_what_decision_models_do_not_have_is_refused(consilience, quiz, options, message):
    arguments = ["--model", "systemone:m", "--base-url", "http://127.0.0.1:9/v1", "--suite", quiz]
    if "--model" in options:
        arguments = ["--suite", quiz]
    assert message in " ".join(refusal(consilience, "probe", *arguments, *options).split())


def test_sentence_pairs_have_their_labels_as_options(consilience, local, tmp_path):
    """A pair is the context. The scores are those of the same request as a question."""
    data = write_pairs(tmp_path / "pairs.jsonl")
    arguments = ["--suite", "mrpc", "--data", data, "--out", tmp_path / "run"]
    with replay(decided(local)) as server:
        model = ["--model", "decisions:gpt", "--base-url", server.url]
        output(consilience, "probe", *model, *arguments)
        bodies = server.bodies("/v1/decisions")
        for unused in (["--generate"], ["--tokenizer", "t"]):
            assert "with a decision model" in consilience("probe", *model, *arguments, *unused)[2]
    contexts = [body["input"] for body in bodies]
    text = "Sentence1: The capital of France is Paris.\nSentence2: Paris is the capital of France."
    assert text in contexts
    assert "\n".join(text.split("\n")[::-1]) in contexts  # the form reverse
    (question,) = bodies[0]["questions"]
    assert question["instructions"] == "How do Sentence1 and Sentence2 relate?"
    assert [one["value"] for one in question["choices"]] == list(SAME)
    answers = pl.read_parquet(tmp_path / "run" / "answers" / "mrpc.parquet")
    assert answers["answer"].null_count() == 0
    assert np.exp(answers["logprob"]).min() >= 0.5  # of two labels


def test_a_label_whose_probability_is_rounded_to_0_is_wrong_and_has_no_score():
    shares = {"not_equivalent": 1.0, "equivalent": 0.0}
    pairs = DecisionPairs(replying(choice(shares)), load_task("mrpc"))
    pair = TextPair("1", "It rained.", "Rain fell.", "equivalent")
    (scores,) = pairs.score([original(pair, load_task("mrpc").indicators)])
    columns = judge(scores, ["equivalent"])
    assert columns["answer"].tolist() == ["not_equivalent"]
    assert "gold_logprob" not in columns
