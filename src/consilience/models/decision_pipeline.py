"""Decision models in this process: any chat model, through the DecisionPipeline of transformers."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from transformers.pipelines.decision import DecisionPipeline

from consilience.choices import DEFAULT_LOADING, Loading
from consilience.endpoints.decisions import ROUTES, Body, DecisionModel
from consilience.endpoints.replies import Refused
from consilience.errors import ConsilienceError
from consilience.models.loading import load_pretrained

SYSTEMONE = "systemone"


def load_decision_pipeline(
    spec: str, loading: Loading = DEFAULT_LOADING, longest: int = 0
) -> DecisionModel:
    """A causal language model with a chat template, asked as ``transformers serve`` asks it.

    Its probabilities are those of the labels (A, B, ...) that the pipeline gives the options.
    ``longest``: tokens of a request, 0 for as many as the model takes.
    """
    loaded = load_pretrained(spec, loading)
    if loaded.kind != "causal" or not getattr(loaded.tokenizer, "chat_template", None):
        raise ConsilienceError(
            f"'{spec}' has no chat template"
            if loaded.kind == "causal"
            else f"'{spec}' is a {loaded.kind} language model",
            expected="a chat model, which the DecisionPipeline of transformers can ask",
            todo=f"Ask it without systemone: --model {spec}.",
        )
    pipeline: Any = DecisionPipeline(
        model=loaded.model, tokenizer=loaded.tokenizer, device=loaded.model.device
    )
    labels = pipeline.decision_config.labels.get("choice") or string.ascii_uppercase
    most = longest or getattr(loaded.model.config, "max_position_embeddings", None) or 0
    identity = {**loaded.identity, "model": f"{SYSTEMONE}:{spec}", "asked_by": "DecisionPipeline"}
    return DecisionModel(
        spec,
        ROUTES[SYSTEMONE],
        partial(_send, pipeline, most),
        identity,
        most_options=len(labels),
    )


def _send(pipeline: Any, longest: int, bodies: Sequence[Body]) -> Iterator[tuple[int, Any]]:
    """The replies of the pipeline, of the shape that ``/v1/systemone`` has."""
    for at, body in enumerate(bodies):
        request = {name: body[name] for name in ("state", "questions")}
        try:
            inputs = pipeline.preprocess(request)
            tokens = max(prompt["input_ids"].shape[-1] for prompt, _ in inputs["prompts"])
            if longest and tokens > longest:
                yield at, Refused(0, f"{tokens} tokens, and the model takes {longest}")
                continue
            yield at, {"answers": pipeline.postprocess(pipeline.forward(inputs))}
        except ValueError as error:
            yield at, Refused(0, str(error))
