"""The options of ``probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from consilience.choices import CandidateSet, Connection, Loading, Long, MultiToken
from consilience.endpoints.address import base_url_of, key_of
from consilience.errors import ConsilienceError
from consilience.free_text import DEFAULT_RULES, RULES
from consilience.workflow.option_fields import option_fields
from consilience.workflow.options import (
    ADVANCED,
    COUNTING,
    ENDPOINTS,
    FACTS,
    FACTS_AND_OWN,
    FACTS_AND_PAIRS,
    MODEL,
    OWN,
    PAIRS,
    PAIRS_AND_OWN,
    ApiKeyEnv,
    AsShipped,
    BaseUrl,
    ColumnNames,
    Concurrency,
    DataDir,
    DesignName,
    Device,
    Dtype,
    FactsFrom,
    Folder,
    FormNames,
    Groups,
    Half,
    Indicators,
    InputFormat,
    Limit,
    LocalTokenizer,
    MaxLength,
    MaxRequests,
    MaxTokens,
    Option,
    PairData,
    Price,
    ProtocolName,
    ReadAt,
    RequestTimeout,
    Revision,
    Scoring,
    Shots,
    SuiteName,
    SystemPrompt,
    TrustRemoteCode,
    Vary,
)

DEFAULT_MODEL = "packaged:smollm2"
"""The model that is asked if none is named."""

BEHIND_A_URL = ("openai", "decisions", "systemone")
"""Prefixes of models that a server has."""

MAYBE_HERE = ("systemone",)
"""Prefixes of models that run here if no URL is given."""

SERVED = (*BEHIND_A_URL, "llamacpp")
"""Prefixes of models that answer requests, there or in this process."""

OF_LLAMACPP = ("scoring",)
"""Options of models behind a URL that a model of llama.cpp in this process has, too."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Ask a model every item of a suite in every variant, and measure its answers.

    A suite is a set of facts, asked in every pattern (ParaRel), a task of sentence pairs, asked
    in its original form and in perturbed forms (CALUM), or a file of questions, asked in every
    phrasing and order of options. The run is kept in a folder. Rerun the same command to resume
    an interrupted run.
    """

    model: Annotated[
        str,
        Option(
            "Ask this model: a Hub id, a folder, a GGUF file, packaged:smollm2 or "
            "baseline:majority|random|oracle|constant, of questions also baseline:first. Sentence "
            "pairs need a classifier, such as a folder that `finetune` wrote, or --generate.",
            metavar="M",
            short="-m",
            panel=MODEL,
        ),
    ] = DEFAULT_MODEL
    suite: SuiteName = "mini"
    perturbations: Annotated[FormNames, FACTS_AND_PAIRS] = None
    limit: Limit = None
    template: Annotated[
        str | None,
        Option(
            "Write the prompt like this: a text with {sentence} for facts (T5 models), with "
            "{text} and {labels} for sentence pairs with --generate; for questions plain, chat, "
            "a text with {question} and {options}, or a file of templates (docs/prompts.md).",
            metavar="TEXT",
            panel=ADVANCED,
        ),
    ] = None
    out: Folder = None
    seed: Annotated[
        int,
        Option("Seed of --limit, of baseline:random and of the intervals.", min=0, panel=COUNTING),
    ] = 0
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    trust_remote_code: TrustRemoteCode = False
    base_url: BaseUrl = None
    api_key_env: ApiKeyEnv = None
    max_requests: MaxRequests = None
    max_tokens: MaxTokens = None
    price: Price = None
    scoring: Scoring = None
    tokenizer: LocalTokenizer = None
    concurrency: Concurrency = None
    timeout: RequestTimeout = 120.0
    groups: Annotated[Groups, FACTS_AND_OWN] = None
    protocol: Annotated[ProtocolName, FACTS] = None
    candidates: Annotated[
        CandidateSet,
        Option(
            "Choose among the objects of the relation, or among all words of the vocabulary.",
            panel=FACTS,
        ),
    ] = "objects"
    facts_from: FactsFrom = None
    single_token: Annotated[
        Sequence[str] | None,
        Option(
            "Keep only facts whose object is one token for all of these models.",
            metavar="M,M",
            panel=FACTS,
        ),
    ] = None
    keep_scores: Annotated[
        bool, Option("Save the scores of all candidates of every query.", panel=FACTS)
    ] = False
    multi_token: Annotated[
        MultiToken,
        Option(
            "Masked models: exclude candidates of several tokens, or fill them in from left to "
            "right (strict only).",
            panel=FACTS,
        ),
    ] = "exclude"
    noise_floor: Annotated[
        int | None,
        Option(
            "Ask this many queries again in each of some ways that should change no answer, such "
            "as another order; 0 for none [default: 0; of a server a tenth of the queries in all "
            "ways together].",
            min=0,
            metavar="N",
            panel=COUNTING,
        ),
    ] = None
    fast: Annotated[
        bool,
        Option(
            "Screen candidates in bfloat16 and decide in float32; only answers are saved.",
            panel=FACTS,
        ),
    ] = False
    as_questions: Annotated[
        int | None,
        Option(
            "Ask facts as questions with a blank: with this many wrong options, drawn by --seed "
            "from the objects of the relation; 0 for no options.",
            min=0,
            metavar="K",
            panel=FACTS_AND_OWN,
        ),
    ] = None
    data_dir: Annotated[DataDir, FACTS_AND_OWN] = None
    as_shipped: Annotated[AsShipped, FACTS] = False
    data: PairData = None
    generate: Annotated[
        bool,
        Option(
            "Let a language model write the answer; of sentence pairs it also ranks all labels.",
            panel=PAIRS_AND_OWN,
        ),
    ] = False
    indicators: Indicators = None
    input: InputFormat = None
    pool: ReadAt = None
    max_length: MaxLength = None
    long: Annotated[
        Long,
        Option(
            "Truncate the sentences of items that are too long, or exclude these items.",
            panel=PAIRS,
        ),
    ] = "truncate"
    model_labels: Annotated[
        Sequence[str] | None,
        Option(
            "Labels in the order of the model's outputs, if the model has no names for them.",
            metavar="L,L",
            panel=PAIRS,
        ),
    ] = None
    half: Half = None

    vary: Vary = None
    design: DesignName = "full"
    columns: ColumnNames = None
    option_score: Annotated[
        str | None,
        Option(
            "Score an option by its label (label), or by its text: sum, mean, bytes or pmi "
            "(docs/prompts.md) [default: label; sum where options have no labels].",
            metavar="RULE",
            panel=OWN,
        ),
    ] = None
    system: SystemPrompt = None
    shots: Shots = 0

    match: Annotated[
        str | None,
        Option(
            "With --generate or open questions: find the answer in a text by this rule: "
            f"{', '.join(RULES)} or regex:PATTERN (docs/free-text.md) [default: {DEFAULT_RULES}].",
            metavar="RULE",
            panel=OWN,
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Sample this many texts of each prompt, as levels of the factor sample.",
            min=1,
            panel=OWN,
        ),
    ] = 1
    temperature: Annotated[
        float,
        Option(
            "Sample tokens at this temperature; 0 writes the most probable token.",
            min=0,
            panel=OWN,
        ),
    ] = 0.0
    max_new_tokens: Annotated[
        int, Option("Let the model write at most this many tokens.", min=1, panel=OWN)
    ] = 32
    equivalence: Annotated[
        str | None,
        Option(
            "Merge written answers that mean the same by this judge: nli:MODEL, or "
            "embedding:MODEL[:THRESHOLD] such as embedding:packaged:minilm.",
            metavar="JUDGE",
            panel=OWN,
        ),
    ] = None

    @property
    def loading(self) -> Loading:
        """How the model is loaded."""
        return Loading(self.device, self.dtype, self.revision, self.trust_remote_code)

    def check_connection(self) -> None:
        """Raise for options of models behind a URL that do not fit the model."""
        if (connection := self.connection) is not None:
            base_url_of(connection)
            key_of(connection)

    @property
    def connection(self) -> Connection | None:
        """How a model behind a URL is reached; None for a model that runs here.

        A model behind a URL without a URL raises, and so do options of one for another model.
        """
        scheme, _, name = self.model.partition(":")
        if scheme not in BEHIND_A_URL or (scheme in MAYBE_HERE and self.base_url is None):
            self._refuse_connection()
            return None
        if not name:
            raise ConsilienceError(
                f"--model {self.model} names no model",
                expected=f"{scheme}:NAME",
                todo="Name a model that the server has.",
            )
        if self.base_url is None:
            raise ConsilienceError(
                f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1 or "
                "https://api.openai.com/v1"
            )
        if self.price is not None and len(self.price) != 2:
            raise ConsilienceError(
                f"--price with {len(self.price)} numbers",
                expected="the prices of a million tokens read and of a million written, as in "
                "--price 0.15,0.60",
            )
        return Connection(
            self.base_url,
            self.api_key_env,
            self.max_requests,
            self.max_tokens,
            (self.price[0], self.price[1]) if self.price is not None else None,
            self.concurrency,
            self.timeout,
            self.scoring,
            self.tokenizer,
        )

    def _refuse_connection(self) -> None:
        """Raise for an option of models behind a URL."""
        for field in option_fields(ProbeOptions):
            is_set = getattr(self, field.name) != field.default
            scheme, _, name = self.model.partition(":")
            if field.option.panel != ENDPOINTS or not is_set:
                continue
            if scheme == "llamacpp" and field.name in OF_LLAMACPP:
                continue
            todo = f"Leave {field.flag} out."
            if field.name == "base_url" and not name:
                todo = f"Write --model openai:{self.model}."
            elif field.name == "base_url" and scheme not in ("baseline", "llamacpp", "packaged"):
                todo = "Write --model openai:NAME, with the name that the server gives the model."
            raise ConsilienceError(
                f"{field.flag} with --model {self.model}",
                expected="a model behind a URL: openai:NAME, decisions:NAME or systemone:NAME",
                todo=todo,
            )


KINDS = {
    FACTS: ("facts",),
    PAIRS: ("pairs",),
    OWN: ("questions",),
    FACTS_AND_OWN: ("facts", "questions"),
    FACTS_AND_PAIRS: ("facts", "pairs"),
    PAIRS_AND_OWN: ("pairs", "questions"),
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
