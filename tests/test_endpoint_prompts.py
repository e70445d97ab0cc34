"""Questions and sentence pairs over HTTP, against the same weights here."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.ask_questions import Presenter, prompts_of
from consilience.choices import Connection
from consilience.models.answer_writer import AnswerWriter
from consilience.models.loading import load_pretrained
from consilience.models.prompted import OptionScorer
from consilience.models.served import open_server
from consilience.models.served_prompts import ServedWriter, load_served_scorer
from consilience.presentation import Presentation, Template
from scoring_server import LLAMA_CPP_PYTHON, VLLM, scoring_server
from test_prompted import CHAT, DESIGN, QUESTIONS

PLAIN = Template("short", "{question} {options}")
SYSTEM = replace(PLAIN, is_chat=True, system="Be calm.")


@pytest.fixture
def loaded(model_folder):
    """A tiny chat model with room for prompts."""
    loaded = load_pretrained(str(model_folder("llama")))
    loaded.model.config.max_position_embeddings = 512
    loaded.tokenizer.chat_template = CHAT
    return loaded


def prompts(template, labels="A"):
    base = Presentation(template=template, labels=labels)
    return [prompt for _, _, prompt in prompts_of(QUESTIONS, Presenter(DESIGN, {}, base))]


@pytest.mark.parametrize("labels", ["A", "none"])
@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_scores_of_options_are_those_of_the_same_weights_here(loaded, template, labels):
    """Labels and texts, with and without a chat template and a system prompt."""
    local = OptionScorer(loaded)
    asked = prompts(template, labels)
    expected = {}
    for scores in local.score(asked):
        for row, totals, sizes in zip(scores.rows, scores.totals, scores.tokens, strict=True):
            expected[int(row)] = totals, sizes
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        model = load_served_scorer("openai:tiny", Connection(server.url), longest=512)
        assert [model.text(prompt) for prompt in asked] == [local.text(prompt) for prompt in asked]
        assert not any(map(model.why_not, asked))
        rows = []
        for scores in model.score(asked):
            for row, totals, sizes in zip(scores.rows, scores.totals, scores.tokens, strict=True):
                np.testing.assert_allclose(totals, expected[int(row)][0], atol=3e-5)
                assert (sizes == expected[int(row)][1]).all()
                rows.append(int(row))
        assert sorted(rows) == list(range(len(asked)))


@pytest.mark.parametrize("ways", [VLLM, LLAMA_CPP_PYTHON])
@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_written_answers_are_those_of_the_same_weights_here(loaded, ways, template):
    """As token ids, as text, and as messages of a chat."""
    asked = prompts(template)
    local = AnswerWriter(loaded, most_written=4)
    expected = {}
    for rows, texts in local.write(asked, [1] * len(asked)):
        expected |= dict(zip(rows.tolist(), texts, strict=True))
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT) as server:
        model = ServedWriter(
            open_server("openai:tiny", Connection(server.url)), "tiny", most_written=4, longest=512
        )
        found = {}
        for rows, texts in model.write(asked, [1] * len(asked)):
            found |= dict(zip(rows.tolist(), texts, strict=True))
    assert found == expected and any(found.values())
