"""A second turn: what a model answers after ``--then``, and how many answers change by it."""

import json
from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal, refused
from consilience.core.errors import Loading
from consilience.models.loading import load_pretrained
from consilience.models.prompted import PromptModel
from consilience.models.prompts import Writing
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.presentation import FIRST_REPLY
from consilience.probing import plan_probe, probe
from consilience.runs.run import Run
from replay_server import replay, written

SURE, AGAIN = "Are you sure? Please answer again.", "Please answer again."
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Poland": "Warsaw"}
KNOWN = {f"{country}?": city for country, city in CAPITALS.items() if country != "Poland"}
QUESTIONS = "".join(f"{of},{of}?,{city}\n" for of, city in CAPITALS.items())
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }} | {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def first_reply(messages):
    """Right, but for Poland."""
    return KNOWN.get(messages[0]["content"].split("\n")[0], "Oslo")


def gives_in(messages):
    """Doubted, it says Warsaw instead of Oslo, and Oslo instead of all else."""
    before = messages[-2]["content"]
    return before if messages[-1]["content"] != SURE else "Warsaw" if before == "Oslo" else "Oslo"


def insists(messages):
    return messages[-2]["content"]


def wavers(messages):
    """It says another city whatever it is asked."""
    return "Bern"


@pytest.fixture
def asked(tmp_path):
    """``asked(server, then=[...])``: the options of a run of the four questions."""
    file = tmp_path / "capitals.csv"
    file.write_text(f"item,question,answer\n{QUESTIONS}", encoding="utf-8")

    def options(server=None, **more):
        given = {"suite": str(file), "model": "m", "out": tmp_path / "run", "then": [SURE, AGAIN]}
        return ProbeOptions(**given | ({"base_url": server.url} if server else {}) | more)

    return options


def serving(second, first=first_reply):
    """A server whose second replies are those of a function of the messages."""

    def answer(path, body, headers):
        users = [one for one in body["messages"] if one["role"] == "user"]
        return written(body, (first if len(users) == 1 else second)(body["messages"]))

    return replay(answer)


def chats(server):
    """The chats that a server was sent about the questions, as texts."""
    bodies = [body["messages"] for body in server.bodies("/v1/chat/completions")]
    return [[one["content"] for one in of] for of in bodies if "?" in of[0]["content"]]


def changes(consilience, run):
    """What changes after each turn: in all, right to wrong, wrong to right, wrong to wrong."""
    document = json.loads(output(consilience, "compare", run, "--flips", "--json"))
    rows = [row for row in document["flips"] if row["over"] == "all"]
    assert {row["first"] for row in rows} == {"first"}
    names = ("changed", "right to wrong", "wrong to right", "wrong to wrong")
    return {row["second"]: (row["n"], *(row[name] for name in names)) for row in rows}


@pytest.mark.parametrize(
    ("second", "doubted", "neutral"),
    [
        (gives_in, (4, 1, 0.75, 0.25, 0), (4, 0, 0, 0, 0)),
        (insists, (4, 0, 0, 0, 0), (4, 0, 0, 0, 0)),
        (wavers, (4, 1, 0.75, 0, 0.25), (4, 1, 0.75, 0, 0.25)),
    ],
)
def test_right_and_wrong_answers_change_after_a_second_turn(
    asked, consilience, second, doubted, neutral
):
    """Three of four answers are right at first. Each turn follows the first reply alone."""
    with serving(second) as server:
        probe(asked(server))
        sent = chats(server)
    assert len(sent) == 12
    replies = {of: KNOWN.get(of, "Oslo") for of in (f"{country}?" for country in CAPITALS)}
    assert sorted(of for of in sent if len(of) > 1) == sorted(
        [next(of[0] for of in sent if of[0].startswith(country)), reply, turn]
        for country, reply in replies.items()
        for turn in (SURE, AGAIN)
    )
    assert changes(consilience, "run") == {SURE: doubted, AGAIN: neutral}
    assert "that all runs have" not in consilience("compare", "run", "--flips")[2]


def test_a_run_has_what_was_asked_and_the_first_turn_is_the_base(asked, consilience):
    with serving(gives_in) as server:
        made = probe(asked(server))
    queries = Run.open("run").queries
    assert queries["turn"].to_list() == ["first", SURE, AGAIN] * 4
    assert FIRST_REPLY not in queries["input"][0][0]
    assert queries["input"][1][0].endswith(f"assistant: {FIRST_REPLY}\nuser: {SURE}\n")
    answers = Run.open("run").answers
    assert answers["text"].to_list()[:3] == ["Paris", "Oslo", "Paris"]
    accuracy = made.metrics.filter(metric="accuracy", over="all", kind="whole")
    assert accuracy["value"].to_list() == [0.75]
    assert made.record["options"]["then"] == [SURE, AGAIN]
    for command in (
        ("analyze", "factors", "run"), ("score", "run", "--by", "variant"), ("report", "run"),
        ("gate", "run", "--rule", "accuracy >= 0.5"), ("check", "run"),
        ("publish", "run", "--format", "eee", "--model-id", "a/b"), ("analyze", "examples", "run"),
    ):  # fmt: skip
        output(consilience, *command)
    assert SURE in output(consilience, "score", "run", "--by", "variant")


def test_a_run_with_second_turns_is_compared_with_one_without(asked, consilience):
    """At the first turn; two runs that have them turn by turn."""
    for name, then in (("run", [SURE]), ("plain", None), ("other", [SURE])):
        with serving(insists if name == "other" else gives_in) as server:
            probe(asked(server, then=then, out=name))
    rows = json.loads(output(consilience, "compare", "run", "plain", "--flips", "--json"))["flips"]
    assert [(row["n"], row["changed"]) for row in rows if row["over"] == "all"] == [(4, 0)]
    rows = json.loads(output(consilience, "compare", "run", "other", "--flips", "--json"))["flips"]
    assert {row["level"]: row["changed"] for row in rows if row["over"] == "turn"} == {
        "first": 0, SURE: 1,
    }  # fmt: skip
    assert "or one of `probe --then`" in refusal(consilience, "compare", "plain", "--flips")


def test_thoughts_are_no_part_of_a_turn_and_without_a_reply_there_is_none(asked):
    def first(messages):
        return (
            "" if "Spain" in messages[0]["content"] else f"<think>?</think>{first_reply(messages)}"
        )

    with serving(insists, first) as server:
        probe(asked(server, then=[SURE]))
        replies = {of[0].split("?")[0]: of[1] for of in chats(server) if len(of) > 1}
    assert replies == {"France": "Paris", "Italy": "Rome", "Poland": "Oslo"}
    lacking = Run.open(asked().out).answers.filter(pl.col("answer").is_null())
    assert lacking.select("item", "turn", "error", "excluded").rows() == [
        ("Spain", "first", "the model wrote no text", None),
        ("Spain", SURE, None, "no reply to the first turn: the model wrote no text"),
    ]
    with serving(insists, lambda messages: "") as server:
        why = r"8 times: no reply to the first turn: the model wrote no text"
        refused(why, probe, asked(server, out=asked().out.with_name("empty")))


def test_a_second_turn_follows_the_reply_of_its_sample_and_order(tmp_path):
    """In every variant: two orders, two samples and an example before the question."""
    rows = "item,question,answer,A,B\n" + "".join(f"q{at},Q{at}?,x,x,y\n" for at in range(3))
    (tmp_path / "own.csv").write_text(rows, encoding="utf-8")
    seen = []

    def answer(path, body, headers):
        messages = body["messages"]
        if len(messages) > 1:  # an example, and the question
            seen.append((messages, f"{messages[2]['content'][:2]} {body['seed']}"))
            return written(body, seen[-1][1])
        return written(body)

    with replay(answer) as server:
        options = ProbeOptions(
            suite=str(tmp_path / "own.csv"), columns=["options=A+B"], model="m", shots=1,
            base_url=server.url, generate=True, vary=["order=rotations", "sample=2"],
            then=[SURE], temperature=0.5, out=tmp_path / "run",
        )  # fmt: skip
        probe(options)
    firsts = {reply for of, reply in seen if len(of) == 3}
    later = [of for of, _ in seen if len(of) == 5]
    assert len(firsts) == len(later) == len({of[3]["content"] for of in later}) == 12
    assert {of[3]["content"] for of in later} == firsts
    assert all(of[2]["content"][:2] in of[3]["content"] for of in later)
    table = Run.open(tmp_path / "run").answers
    both = table.filter(turn="first").join(
        table.filter(turn=SURE), on=["item", "order", "sample"], suffix="_then"
    )
    assert both.height == 12


def test_a_run_is_resumed_wherever_it_was_stopped(asked):
    """What was asked before is not asked again, and the answers are the same."""
    with serving(gives_in) as server:
        whole = probe(asked(server, out=asked().out.with_name("whole"))).checked.answers
    for limit in (2, 6, 11):
        with serving(gives_in) as server:
            options = asked(server, out=asked().out.with_name(f"run-{limit}"), max_requests=limit)
            refused("--max-requests", probe, options)
            resumed = probe(replace(options, max_requests=None)).checked.answers
            assert len(chats(server)) == 12
        assert resumed.equals(whole)


def test_a_second_turn_is_asked_again_with_its_first(asked):
    """As for the noise floor, and for the time that a dry run shows."""
    with serving(gives_in) as server:
        options = asked(server, noise_floor=12)
        floor = probe(options).metrics.filter(metric="noise_floor")
        assert floor.select("value", "n").row(0) == (0, 12)
        plan = plan_of(options)
        queries = plan.queries(plan.load())
        (name,) = queries.groups
        group = queries.group(name)
        asks = [group.asks[at] for at in (10, 1)]  # of Poland and of France
        table = queries.ask(replace(group, asks=asks), lambda done: None)
        assert table.select("item", "turn", "answer").rows() == [
            ("Poland", SURE, "Warsaw"), ("France", SURE, "oslo"),
        ]  # fmt: skip
        planned = plan_probe(replace(options, out=options.out.with_name("new")))
        assert (planned.queries, planned.requests) == (12, 12)


def test_one_factor_at_a_time_has_second_turns_in_the_base_variant(asked):
    rows = "".join(f"{of}?,{of} now?,{city}\n" for of, city in CAPITALS.items())
    asked().out.with_name("capitals.csv").write_text(f"question,question_2,answer\n{rows}")
    with serving(gives_in) as server:
        probe(asked(server, then=[SURE], design="one-factor"))
    variants = Run.open(asked().out).answers["variant"].unique(maintain_order=True).to_list()
    assert variants == [
        "paraphrase=1, turn=first", "paraphrase=2, turn=first", f"paraphrase=1, turn={SURE}",
    ]  # fmt: skip


def test_a_model_here_reads_its_own_reply_in_its_own_chat(asked, model_folder):
    loaded = load_pretrained(str(model_folder("llama")), Loading(device="cpu"))
    loaded.tokenizer.chat_template = CHAT
    model = PromptModel(loaded, Writing(4), chooses=False)
    probe(asked(model="tiny"), model=model)
    table = Run.open(asked().out).answers
    ids = []
    model.prompt_ids = lambda prompt: (
        ids.append(prompt.turns) or PromptModel.prompt_ids(model, prompt)
    )
    again = plan_of(asked(model="tiny")).queries(model)
    group = again.group(again.groups[0])
    assert again.ask(group, lambda done: None)["text"].equals(table["text"])
    of_second = [turns for turns in ids if len(turns) == 3]
    replies = {turns[0][1].split("?")[0]: turns[1] for turns in of_second}
    firsts = dict(table.filter(turn="first").select("item", "text").iter_rows())
    assert replies == {item: ("assistant", text) for item, text in firsts.items() if text}
    text = model.text(group.asks[1].shown)
    assert text.endswith(f" | assistant: {FIRST_REPLY} | user: {SURE} | assistant: ")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"then": [SURE, SURE]}, "two turns 'Are you sure"),
        ({"then": ["first"]}, "two turns 'first'"),
        ({"vary": ["sample=2", "template=plain,chat"], "temperature": 1.0, "design": "random:2"},
         "--then with --design random:2"),
        ({"template": "plain"}, "--then with 'openai:m' and the templates plain; expected chats"),
        ({"suite": "mini-questions"}, "written answers with questions that have options"),
        ({"suite": "mini"}, "--then with a suite of facts"),
        ({"suite": "rte"}, "--then with a task of sentence pairs"),
        ({"model": "baseline:oracle"}, "--then with 'baseline:oracle' and the templates plain"),
    ],
)  # fmt: skip
def test_what_has_no_second_turn_is_refused(asked, more, message):
    with serving(insists) as server:
        here = str(more.get("model", "")).startswith("baseline")
        refused(message, lambda: probe(asked(None if here else server, **more)))
        assert not chats(server)


def test_texts_of_second_turns_are_one_line():
    for text in ("", " ", "two\nlines", " padded"):
        refused("then: ", ProbeOptions, then=[text])
    assert ProbeOptions(then=["No, {wrong}; I think, B"]).then == ("No, {wrong}; I think, B",)


def test_a_function_has_no_turns(asked):
    message = "'<lambda>' and the templates plain"
    refused(message, cs.evaluate, asked().suite, lambda text: "A", then=[SURE])


def test_logs_of_others_have_turns(tmp_path, consilience):
    """A column of a table; the first turn is the base, whatever the order of the rows."""
    rows = [
        {"item": of, "gold": city, "answer": "Oslo" if turn == "doubt" else city, "phase": turn}
        for of, city in KNOWN.items()
        for turn in ("doubt", "first", "again")
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    output(consilience, "score", "log.csv", "--columns", "turn=phase", "--out", "log")
    assert changes(consilience, "log") == {"again": (3, 0, 0, 0, 0), "doubt": (3, 1, 1, 0, 0)}
