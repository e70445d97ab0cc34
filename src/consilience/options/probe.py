"""The options of ``probe``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from consilience.core.errors import (
    CandidateSet,
    Connection,
    ConsilienceError,
    Loading,
)
from consilience.options import OptionalPath, Options, opt, option_fields, shared

DEFAULT_MODEL = "packaged:smollm2"

HERE = ("baseline", "packaged", "none")


def is_judge(match: str | None) -> bool:
    """Whether a rule of ``--match`` names a model that judges what means the same."""
    return str(match).startswith("embedding:")


def at_url(model: str, url: str | None) -> str:
    """The model; with a URL ``openai:NAME`` for the name of a model that the server has."""
    is_named = model.partition(":")[0] in ("openai", *HERE)
    return model if url is None or is_named or Path(model).exists() else f"openai:{model}"


# fmt: off
class ProbeOptions(Options):
    _: KW_ONLY
    suite: str = opt(
        "What to ask: mini, pararel, rte, mmlu, ..., a file or a folder.", default="mini",
        metavar="S", short="-s", panel="Questions")
    model: str = opt(
        "The model: a Hub id, ID@REVISION, a folder, a GGUF file. Or packaged:smollm2, "
        "baseline:majority|random|oracle|constant|first, with --base-url its name on the server; "
        "for sentence pairs a classifier.", default=DEFAULT_MODEL, metavar="M", short="-m",
        panel="Model")
    perturbations: shared.FormNames = opt(default=None, is_rare=True)
    limit: shared.Limit = None
    template: str | None = opt(
        "The text around what is asked, with {question}, {options}. Or plain, chat, or a file of "
        "templates; {sentence} for facts (T5), {text} and {labels} for pairs (docs/prompts.md).",
        default=None, metavar="TEXT", panel="Questions")
    out: shared.Folder = opt(default=None)
    seed: int = opt("Seed of --limit, orders, samples.", default=0, min=0, panel="Questions",
        is_rare=True)
    device: shared.Device = "auto"
    dtype: shared.Dtype = opt(default="float32", is_rare=True)
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
    adapter: OptionalPath = opt(
        "Merge this PEFT adapter into the weights.", default=None, metavar="DIR", panel="Model",
        is_rare=True)
    base_url: shared.BaseUrl = None
    api_key_env: shared.ApiKeyEnv = None
    max_requests: int | None = opt(
        "Stop before request N + 1.", default=None, min=1,
        panel="Models behind a URL", is_rare=True)
    tokenizer: str | None = opt(
        "Score by token ids, with this model's tokenizer: a Hub id or a folder.",
        default=None, metavar="M", panel="Models behind a URL", is_rare=True)
    concurrency: int | None = opt(
        "Requests in flight [default: 8].", default=None, min=1, panel="Models behind a URL",
        is_rare=True)
    groups: shared.Groups = opt(default=None, panel="Facts and questions only")
    protocol: shared.ProtocolName = opt(default=None, panel="Facts only", is_rare=True)
    candidates: CandidateSet = opt(
        "What a masked model chooses among. objects: those of the relation of one token; pieces: "
        "also of several; vocabulary: all words.", default="objects", panel="Facts only",
        is_rare=True)
    keep_scores: bool = opt(
        "Save the scores of all candidates.", default=False, panel="Facts only", is_rare=True)
    noise_floor: int | None = opt(
        "Ask N queries again in other batches; answers that change are noise [default: 0; of a "
        "server a twentieth].", default=None, min=0, metavar="N", panel="Output", is_rare=True)
    as_questions: shared.AsQuestions = opt(default=None, is_rare=True)
    data_dir: shared.DataDir = opt(default=None, panel="Facts and questions only", is_rare=True)
    data: shared.PairData = None
    generate: bool = opt(
        "Let the model write its answer.", default=False,
        panel="Sentence pairs and questions only")
    vary: shared.Vary = None
    design: shared.DesignName = opt(default="full", is_rare=True)
    columns: shared.ColumnNames = None
    option_score: str | None = opt(
        "Score an option by its label, or its text: sum, mean, bytes [default: label; sum where "
        "options have no labels].", default=None, metavar="RULE", panel="Questions only",
        is_rare=True)
    shots: shared.Shots = opt(default=0, is_rare=True)
    match: str | None = opt(
        "How an answer is found in a text, such as contains. Or exact, number, last-number, "
        "regex:PATTERN, and embedding:MODEL, which also merges answers that mean the same "
        "(docs/free-text.md) [default: contains for open questions, else exact].",
        default=None, metavar="RULE", panel="Questions only")
    temperature: float = opt(
        "Sample tokens at this temperature; 0 writes the most probable.", default=0.0, min=0,
        panel="Questions only", is_rare=True)
    max_new_tokens: int = opt(
        "Tokens that the model writes, at most.", default=32, min=1, panel="Questions only",
        is_rare=True)

    def __post_init__(self) -> None:
        """Check every value, and name a model behind a URL as such."""
        super().__post_init__()
        object.__setattr__(self, "model", at_url(self.model, self.base_url))
        scheme, of_weights = self.model.partition(":")[0], {"adapter"}
        if not is_judge(self.match):  # else the judge is loaded here
            of_weights |= {"dtype", "device"} if scheme == "openai" else {"dtype"}
        if scheme in ("baseline", "openai"):  # a study has one device for baselines, too
            self._refuse(of_weights, "weights that are here")

    def _refuse(self, names: Collection[str], expected: str) -> None:
        """Raise for options of other models."""
        for field in option_fields(ProbeOptions):
            if field.name in names and getattr(self, field.name) != field.default:
                raise ConsilienceError(
                    f"{field.flag} with --model {self.model}",
                    expected=expected,
                    todo=f"Leave {field.flag} out.",
                )

    @property
    def loading(self) -> Loading:
        return Loading(
            self.device, self.dtype, self.trust_remote_code, self.adapter
        )

    def check_connection(self) -> None:
        """Raise for options of models behind a URL that do not fit the model."""
        if (connection := self.connection) is not None:
            from consilience.endpoints.client import base_url_of, key_of

            base_url_of(connection)
            key_of(connection)

    @property
    def connection(self) -> Connection | None:
        """How a model behind a URL is reached; None for a model that runs here."""
        scheme, _, name = self.model.partition(":")
        if scheme != "openai":
            fields = option_fields(ProbeOptions)
            names = {one.name for one in fields if one.option.panel == "Models behind a URL"}
            self._refuse(names, "a model behind a URL: openai:NAME")
            return None
        if not name:
            raise ConsilienceError(
                f"--model {self.model} names no model",
                expected="openai:NAME",
                todo="Name a model that the server has.",
            )
        if self.base_url is None:
            raise ConsilienceError(
                f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1 or "
                "https://api.openai.com/v1"
            )
        return Connection(
            self.base_url, self.api_key_env, self.max_requests, self.concurrency,
            self.tokenizer, self.loading.trust_remote_code,
        )


KINDS = {
    "Facts only": ("facts",),
    "Sentence pairs only": ("pairs",),
    "Questions only": ("questions",),
    "Facts and questions only": ("facts", "questions"),
    "Sentence pairs and questions only": ("pairs", "questions"),
}
"""The kinds of suites that have the options of a panel; those of other panels are of all."""

EXAMPLES = {
    "facts": "a suite of facts, such as mini",
    "pairs": "a task of sentence pairs, such as mrpc",
    "questions": "a file of questions, such as questions.csv",
}
"""A suite of each kind."""


def refuse_options(options: Any, kind: str, name: str) -> None:
    """Raise for an option that is not at its default and is for other kinds of suites."""
    for field in option_fields(type(options)):
        kinds = KINDS.get(field.option.panel or "", (kind,))
        if kind not in kinds and getattr(options, field.name) != field.default:
            raise ConsilienceError(
                f"{field.flag} with {name}",
                expected=f"--suite {' or '.join(EXAMPLES[other] for other in kinds)}",
                todo=f"Leave {field.flag} out.",
            )
