"""The options of ``probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from consilience.core.errors import (
    CandidateSet,
    Combinations,
    Connection,
    ConsilienceError,
    Loading,
    Protocol,
)
from consilience.options import (
    FACTS,
    PAIRS,
    QUESTIONS,
    Declared,
    Option,
    OptionalPath,
    Options,
    parameters,
    shared,
)

DEFAULT_MODEL = "packaged:smollm2"

SERVER, HERE = "openai", ("baseline", "packaged", "none")  # Schemes of models

OF_SERVERS = ("base_url", "api_key_env", "max_requests", "concurrency", "tokenizer")
"""Options of models behind a URL."""


def is_judge(match: str | None) -> bool:
    """Whether a rule of ``--match`` names a model that judges what means the same."""
    return str(match).startswith("embedding:")


def names_code(value: object) -> bool:
    """Whether one of some names is a function in a Python file, ``FILE.py:FUNCTION``."""
    return ".py:" in str(value)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class AskedOptions(Options):
    """What is asked: by ``probe``, and in what ``suite export`` writes."""

    suite: Annotated[str, Option(
        "What to ask: mini, pararel, rte, mmlu, ..., a file or a folder.", "S", "-s")] = "mini"
    data: Annotated[str | None, Option(
        "The pairs: a file or hub:SPLIT; FILE#1, FILE#2: a half.", "F", kinds=PAIRS)] = None
    columns: shared.ColumnNames = None
    groups: Annotated[shared.Groups, {"kinds": FACTS + QUESTIONS}] = None
    limit: Annotated[int | None, Option(
        "Facts or questions of each group, or pairs, at most.", min=1, short="-n")] = None
    vary: shared.Vary = None
    design: Annotated[Combinations, Option(
        "All combinations of levels, or each alone (one-factor).", "DESIGN", kinds=QUESTIONS,
        is_rare=True)] = "full"
    template: Annotated[str | None, Option(
        "The text around what is asked, with {question}, {options}. Or plain, chat, or a file "
        "(docs/prompts.md).", "TEXT")] = None
    shots: Annotated[int, Option(
        "Solved questions of the group before each question.", min=0, kinds=QUESTIONS,
        is_rare=True)] = 0
    seed: Annotated[int, Option("Seed of --limit, orders, samples.", min=0, is_rare=True)] = 0
    perturbations: Annotated[Sequence[str] | None, Option(
        "Forms, such as reverse, signal (the default), reverse_signal, FILE.py:FUNCTION.", "P,P",
        kinds=PAIRS, is_rare=True, needs_trust=names_code)] = None


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(AskedOptions):
    model: Annotated[str, Option(
        "The model: a Hub id, ID@REVISION, a folder, a GGUF file. Or packaged:smollm2, "
        "baseline:majority|random|oracle|constant|first, with --base-url its name there.", "M",
        "-m")] = DEFAULT_MODEL
    generate: Annotated[bool, Option(
        "Let the model write its answer.", kinds=PAIRS + QUESTIONS)] = False
    match: Annotated[str | None, Option(
        "How an answer is found in a text, such as contains. Or exact, number, last-number, "
        "regex:PATTERN, embedding:MODEL (docs/free-text.md) [default: contains for open "
        "questions, else exact].", "RULE", kinds=QUESTIONS)] = None
    option_score: Annotated[str | None, Option(
        "Score an option by its label, or its text: sum, mean, bytes [default: label, where there "
        "are].", "RULE", kinds=QUESTIONS, is_rare=True)] = None
    temperature: Annotated[float, Option(
        "Sample tokens at this temperature; 0 writes the most probable.", min=0, kinds=QUESTIONS,
        is_rare=True)] = 0.0
    max_new_tokens: Annotated[int, Option(
        "Tokens that the model writes, at most.", min=1, kinds=QUESTIONS, is_rare=True)] = 32
    base_url: shared.BaseUrl = None
    api_key_env: shared.ApiKeyEnv = None
    max_requests: Annotated[int | None, Option(
        "Stop before request N + 1.", min=1, is_rare=True)] = None
    concurrency: Annotated[int | None, Option(
        "Requests in flight [default: 8].", min=1, is_rare=True)] = None
    tokenizer: Annotated[str | None, Option(
        "Score by token ids, with this model's tokenizer: a Hub id or a folder.", "M",
        is_rare=True)] = None
    device: shared.Device = "auto"
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], Option(
        "The numbers of the weights.", is_rare=True)] = "float32"
    trust_remote_code: shared.TrustRemoteCode = False
    adapter: Annotated[OptionalPath, Option(
        "Merge this PEFT adapter into the weights.", "DIR", is_rare=True)] = None
    as_questions: shared.AsQuestions = None
    protocol: Annotated[Protocol | None, Option(
        "Count as the papers' code (published) or text (strict) [default: published for ParaRel].",
        kinds=FACTS, is_rare=True)] = None
    candidates: Annotated[CandidateSet, Option(
        "What a masked model chooses among: words of one token, also of several (pieces), all "
        "words.", kinds=FACTS, is_rare=True)] = "objects"
    keep_scores: Annotated[bool, Option(
        "Save the scores of all candidates.", kinds=FACTS, is_rare=True)] = False
    data_dir: Annotated[
        shared.DataDir, {"kinds": FACTS + QUESTIONS, "is_rare": True}] = None
    noise_floor: Annotated[int | None, Option(
        "Ask N queries again in other batches, and count changes [default: 0; of a server a "
        "twentieth].", "N", min=0, is_rare=True)] = None
    out: shared.Folder = None

    def __post_init__(self) -> None:
        """Check every value, and name a model behind a URL as such: ``openai:NAME``."""
        super().__post_init__()
        scheme = self.model.partition(":")[0]
        if self.base_url and scheme not in (SERVER, *HERE) and not Path(self.model).exists():
            object.__setattr__(self, "model", f"{SERVER}:{self.model}")
            scheme = SERVER
        of_weights = ["adapter"]
        if not is_judge(self.match):  # else the judge is loaded here
            of_weights += ["dtype", "device"] if scheme == SERVER else ["dtype"]
        if scheme in (SERVER, "baseline"):  # a study has one device for baselines, too
            self._refuse(of_weights, "weights that are here")

    def _refuse(self, names: Sequence[str], expected: str) -> None:
        """Raise for options of other models."""
        for name in names:
            parameter = parameters(ProbeOptions)[name]
            if getattr(self, name) != parameter.default:
                raise refusal(parameter, f"--model {self.model}", expected)

    @property
    def loading(self) -> Loading:
        return Loading(self.device, self.dtype, self.trust_remote_code, self.adapter)

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
        if scheme != SERVER:
            self._refuse(OF_SERVERS, "a model behind a URL: openai:NAME")
            return None
        if not name:
            raise ConsilienceError(f"--model {self.model} names no model", expected="openai:NAME")
        if self.base_url is None:
            found = f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1"
            raise ConsilienceError(found)
        return Connection(
            self.base_url, self.api_key_env, self.max_requests, self.concurrency,
            self.tokenizer, self.trust_remote_code,
        )


EXAMPLES = {
    "facts": "a suite of facts, such as mini",
    "pairs": "a task of sentence pairs, such as mrpc",
    "questions": "a file of questions, such as questions.csv",
}
"""A suite of each kind."""


def refuse_options(options: Any, kind: str, suite: str) -> None:
    """Raise for an option that is not at its default and is for other kinds of suites."""
    for name, parameter in parameters(options.__class__).items():
        kinds = parameter.option.kinds or (kind,)
        if kind not in kinds and getattr(options, name) != parameter.default:
            expected = f"--suite {' or '.join(EXAMPLES[other] for other in kinds)}"
            raise refusal(parameter, suite, expected)


def refusal(parameter: Declared, other: str, expected: str) -> ConsilienceError:
    """The error for an option that does not go with something else."""
    todo = f"Leave {parameter.flag} out."
    return ConsilienceError(f"{parameter.flag} with {other}", expected=expected, todo=todo)
