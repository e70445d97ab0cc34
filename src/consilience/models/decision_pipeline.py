"""Decision models in this process, through the DecisionPipeline of transformers.

A model with a decision head (``XxxForDecision``) scores the options itself. Of any other chat model
the pipeline reads the labels that it gives the options.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from transformers import JevForDecision
from transformers.decision import DecisionConfig
from transformers.decision.modeling_utils import DecisionMixin
from transformers.models.auto.modeling_auto import MODEL_FOR_DECISION_MAPPING_NAMES
from transformers.pipelines.decision import DecisionPipeline

from consilience.core.errors import DEFAULT_LOADING, ConsilienceError, Loading
from consilience.endpoints.client import Refused
from consilience.models.decisions import ROUTES, Body, DecisionModel
from consilience.models.loading import Pretrained, load_pretrained

SYSTEMONE = "systemone"


class _WithHead:
    """Loads a model that was saved with its decision head, and says which weights it lacks."""

    @staticmethod
    def from_pretrained(location: str, **options: Any) -> tuple[Any, Any]:
        load: Any = super(DecisionMixin, JevForDecision).from_pretrained
        model, information = load(location, **options)
        model.decision_config = DecisionConfig.from_pretrained(location)
        return model, information


def load_decision_pipeline(
    spec: str, loading: Loading = DEFAULT_LOADING, longest: int = 0
) -> DecisionModel:
    """A decision model, or a chat model, asked as ``transformers serve`` asks it.

    The probabilities of a chat model are those of the labels (A, B, ...) that the pipeline gives
    the options. ``longest``: tokens of a request, 0 for as many as the model takes.
    """
    loaded = load_pretrained(spec, loading, {"decision": _WithHead})
    _refuse(spec, loaded)
    pipeline: Any = DecisionPipeline(
        model=loaded.model, tokenizer=loaded.tokenizer, device=loaded.model.device
    )
    config: Any = loaded.model.config
    sizes = config.get_text_config() if loaded.kind == "decision" else config
    most = longest or getattr(sizes, "max_position_embeddings", None) or 0
    identity = {**loaded.identity, "model": f"{SYSTEMONE}:{spec}", "asked_by": "DecisionPipeline"}
    labels = pipeline.decision_config.labels.get("choice") or string.ascii_uppercase
    options = len(labels)
    if loaded.kind == "decision":
        options = min(options, config.num_verbalizers - config.offsets["choice"])
    return DecisionModel(
        spec, ROUTES[SYSTEMONE], partial(_send, pipeline, most), identity, most_options=options
    )


def _refuse(spec: str, loaded: Pretrained) -> None:
    model: Any = loaded.model
    is_decision, find = loaded.kind == "decision", cast(Any, JevForDecision.checkpoint_config)
    template = is_decision and model.decision_config.chat_template
    has_family = model.config.model_type in MODEL_FOR_DECISION_MAPPING_NAMES
    problem, todo = "", f"Ask it without systemone: --model {spec}."
    if not is_decision and has_family and find(model.name_or_path)[0] is not None:
        problem = f"'{spec}' has a decision head beside its weights, which is not read here"
        todo = "Load it with JevForDecision.from_pretrained, save_pretrained to a folder, and ask "
        todo += "systemone:FOLDER; or ask `transformers serve`."
    elif not is_decision and loaded.kind != "causal":
        problem = f"'{spec}' is a {loaded.kind} language model"
    elif not (template or getattr(loaded.tokenizer, "chat_template", None)):
        problem = f"'{spec}' has no chat template"
        todo = "Add its decision_template.jinja." if is_decision else todo
    if problem:
        raise ConsilienceError(
            problem,
            expected="a chat model, which the DecisionPipeline of transformers can ask",
            todo=todo,
        )


def _send(pipeline: Any, longest: int, bodies: Sequence[Body]) -> Iterator[tuple[int, Any]]:
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
