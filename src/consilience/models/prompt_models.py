"""Models of questions with options, by their name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consilience.core.errors import DEFAULT_LOADING, SERVED, Connection, Loading
from consilience.core.items import Question
from consilience.endpoints.decisions import ROUTES, DecisionModel, connected
from consilience.models.baselines import PromptBaseline, prompt_baseline

if TYPE_CHECKING:
    from consilience.models.prompted import OptionScorer
    from consilience.models.served import ServedModel


def load_prompt_model(
    spec: str,
    questions: Sequence[Question],
    *,
    loading: Loading = DEFAULT_LOADING,
    seed: int = 0,
    longest: int = 0,
    connection: Connection | None = None,
    scoring: str | None = None,
) -> OptionScorer | PromptBaseline | DecisionModel | ServedModel:
    """The model of that name: a causal or sequence-to-sequence model, a decision model, a baseline.

    ``questions``: those of the suite, for ``baseline:majority``. ``seed``: of ``baseline:random``.
    ``longest``: tokens of a prompt with its answer, 0 for as many as the model takes.
    ``connection``: how a model behind a URL is reached. ``scoring``: the strategy of one that a
    server scores.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        return prompt_baseline(name, questions, seed)
    if scheme in ROUTES and connection is not None:
        return connected(spec, connection)
    if scheme in ROUTES:
        from consilience.models.decision_pipeline import load_decision_pipeline

        return load_decision_pipeline(name, loading, longest)
    if scheme in SERVED:
        from consilience.models.served import load_served

        return load_served(spec, connection, scoring, longest=longest)
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import OptionScorer

    return OptionScorer(load_pretrained(spec, loading), longest=longest)


def is_chat_model(model: object) -> bool:
    """Whether a model has a chat template, or a server that has one for it."""
    tokenizer = getattr(model, "tokenizer", None)
    return bool(getattr(tokenizer, "chat_template", None) or getattr(model, "takes_chats", False))


def load_writer(
    spec: str,
    loading: Loading = DEFAULT_LOADING,
    *,
    longest: int = 0,
    connection: Connection | None = None,
    chooser: Any = None,
    **how: Any,
) -> Any:
    """The language model of that name; ``longest``: tokens of a prompt, 0 for its limit.

    ``connection``: how a model behind a URL is reached. ``chooser``: the same served model as one
    that chooses among options. ``how``: ``most_written`` tokens, ``temperature`` and ``seed``.
    """
    if spec.partition(":")[0] in SERVED:
        from consilience.models.served import Writer, open_server

        server = chooser.server if chooser else open_server(spec, connection)
        return Writer(server, spec, longest=longest, chooser=chooser, **how)
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import AnswerWriter

    return AnswerWriter(load_pretrained(spec, loading), longest=longest, **how)
