"""The options of ``probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from consilience.core.errors import (
    CandidateSet,
    Connection,
    ConsilienceError,
    Loading,
    MultiToken,
)
from consilience.options import OptionalPath, Options, opt, option_fields, shared

DEFAULT_MODEL = "packaged:smollm2"

HERE = ("baseline", "packaged", "none")


def at_url(model: str, url: str | None) -> str:
    """The model; with a URL ``openai:NAME`` for the name of a model that the server has."""
    is_named = model.partition(":")[0] in ("openai", *HERE)
    return model if url is None or is_named or Path(model).exists() else f"openai:{model}"


# fmt: off
class ProbeOptions(Options):
    _: KW_ONLY
    suite: str = opt(
        "Ask this suite: mini, pararel, a task of sentence pairs, a file or a folder of "
        "questions, or a folder of facts.", default="mini", metavar="S", short="-s",
        panel="Questions")
    model: str = opt(
        "Ask this model: a Hub id, a folder, a GGUF file, packaged:smollm2 or "
        "baseline:majority|random|oracle|constant, of questions also baseline:first. Sentence "
        "pairs need a classifier, such as a folder that `finetune` wrote, or --generate.",
        default=DEFAULT_MODEL, metavar="M", short="-m", panel="Model")
    perturbations: shared.FormNames = None
    limit: shared.Limit = None
    template: str | None = opt(
        "Write the prompt like this: a text with {sentence} for facts (T5 models), with {text} "
        "and {labels} for sentence pairs with --generate; for questions plain, chat, a text with "
        "{question} and {options}, or a file of templates (docs/prompts.md).", default=None,
        metavar="TEXT", panel="Advanced", is_rare=True)
    out: shared.Folder = opt(default=None)
    seed: int = opt(
        "Seed of --limit, of baseline:random and of the intervals.", default=0, min=0,
        panel="Counting")
    revision: shared.Revision = opt(default=None, is_rare=True)
    device: shared.Device = "auto"
    dtype: shared.Dtype = opt(default="float32", is_rare=True)
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
    adapter: OptionalPath = opt(
        "Merge this PEFT adapter, such as one of LoRA, into the weights of --model.", default=None,
        metavar="DIR", panel="Model", is_rare=True)
    base_url: shared.BaseUrl = None
    api_key_env: shared.ApiKeyEnv = opt(default=None, is_rare=True)
    max_requests: shared.MaxRequests = None
    tokenizer: str | None = opt(
        "Use this model's tokenizer: a Hub id or a folder.",
        default=None, metavar="M", panel="Models behind a URL", is_rare=True)
    concurrency: int | None = opt(
        "Keep this many requests in flight [default: 8].", default=None, min=1,
        panel="Models behind a URL", is_rare=True)
    groups: shared.Groups = opt(default=None, panel="Facts and questions only")
    protocol: shared.ProtocolName = opt(default=None, panel="Facts only", is_rare=True)
    candidates: CandidateSet = opt(
        "Choose among the objects of the relation, or among all words of the vocabulary.",
        default="objects", panel="Facts only", is_rare=True)
    single_token: Sequence[str] | None = opt(
        "Keep only facts whose object is one token for all of these models.", default=None,
        metavar="M,M", panel="Facts only", is_rare=True)
    keep_scores: bool = opt(
        "Save the scores of all candidates of every query.", default=False, panel="Facts only",
        is_rare=True)
    multi_token: MultiToken = opt(
        "Masked models: exclude candidates of several tokens, or fill them in from left to right "
        "(strict only).", default="exclude", panel="Facts only", is_rare=True)
    noise_floor: int | None = opt(
        "Ask this many queries again, in other batches, which should change no "
        "answer; 0 for none [default: 0; of a server a twentieth of the queries].", default=None,
        min=0, metavar="N", panel="Counting", is_rare=True)
    as_questions: shared.AsQuestions = None
    data_dir: shared.DataDir = opt(default=None, panel="Facts and questions only", is_rare=True)
    data: shared.PairData = None
    generate: bool = opt(
        "Let a language model write the answer; of sentence pairs it also ranks all labels.",
        default=False, panel="Sentence pairs and questions only")
    half: shared.Half = opt(default=None, is_rare=True)
    vary: shared.Vary = None
    design: shared.DesignName = opt(default="full", is_rare=True)
    columns: shared.ColumnNames = opt(default=None, is_rare=True)
    option_score: str | None = opt(
        "Score an option by its label (label), or by its text: sum, mean or bytes "
        "(docs/prompts.md) [default: label; sum where options have no labels].", default=None,
        metavar="RULE", panel="Questions only", is_rare=True)
    shots: shared.Shots = opt(default=0, is_rare=True)
    match: str | None = opt(
        "With --generate or open questions: find the answer in a text by this rule: exact, "
        "contains, number, last-number or regex:PATTERN (docs/free-text.md) [default: contains for "
        "open questions, else exact].",
        default=None, metavar="RULE",
        panel="Questions only", is_rare=True)
    samples: int = opt(
        "Sample this many texts of each prompt, as levels of the factor sample.", default=1, min=1,
        panel="Questions only", is_rare=True)
    temperature: float = opt(
        "Sample tokens at this temperature; 0 writes the most probable token.", default=0.0, min=0,
        panel="Questions only", is_rare=True)
    max_new_tokens: int = opt(
        "Let the model write at most this many tokens.", default=32, min=1, panel="Questions only",
        is_rare=True)
    equivalence: str | None = opt(
        "Merge written answers that mean the same by this judge: embedding:MODEL[:THRESHOLD], such "
        "as embedding:packaged:minilm.", default=None,
        metavar="JUDGE", panel="Questions only", is_rare=True)

    def __post_init__(self) -> None:
        """Check every value, and name a model behind a URL as such."""
        super().__post_init__()
        object.__setattr__(self, "model", at_url(self.model, self.base_url))
        scheme = self.model.partition(":")[0]
        usual: dict[str, Any] = {"adapter": None, "revision": None}
        if scheme == "openai" and self.equivalence is None:  # its judge is loaded here
            usual |= {"device": "auto", "dtype": "float32"}
        for name, default in usual.items():
            if getattr(self, name) != default and scheme in ("baseline", "openai"):
                found, expected = f"--{name} with --model {self.model}", "weights that are here"
                raise ConsilienceError(found, expected=expected, todo=f"Leave --{name} out.")

    @property
    def loading(self) -> Loading:
        return Loading(
            self.device, self.dtype, self.revision, self.trust_remote_code, self.adapter
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
            self._refuse_connection()
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

    def _refuse_connection(self) -> None:
        """Raise for an option of models behind a URL."""
        for field in option_fields(ProbeOptions):
            is_of_url = field.option.panel == "Models behind a URL"
            if not is_of_url or getattr(self, field.name) == field.default:
                continue
            raise ConsilienceError(
                f"{field.flag} with --model {self.model}",
                expected="a model behind a URL: openai:NAME",
                todo=f"Leave {field.flag} out.",
                option=field.name,
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
                option=field.name,
            )
