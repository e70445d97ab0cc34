"""Models: what is asked becomes log-probabilities of answers, by one contract for every kind.

A model owns everything between what it is shown and the scores of the answers: tokenisation,
casing, the leading space, masks, batches, lengths, device and dtype. It is *honest*: a candidate
that its tokenizer splits, merges with another or does not know is excluded with a reason, or scored
by the rule of the released code under the ``published`` protocol. It is *steady*: the same query
gets the same answer whatever the other queries are, and in any order.

To follow a score, read a family (``masked.py``, ``causal.py``, ``seq2seq.py``; for sentence pairs
``classifier.py``; for questions and labels in words ``prompted.py``), ``candidates.py``
and ``batches.py``. ``fast/`` only saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from consilience.core.errors import (
    DEFAULT_LOADING,
    Connection,
    ConsilienceError,
    Loading,
    MultiToken,
    Protocol,
    missing,
)
from consilience.core.items import Form, Ints, NoAnswer, Question
from consilience.core.provenance import plugin
from consilience.models.functions import PromptBaseline, load_baseline, prompt_baseline
from consilience.types import Candidates, Query, Scores

if TYPE_CHECKING:
    from consilience.models.prompted import OptionScorer
    from consilience.models.served import ServedModel


class LanguageModel(Interface):
    """A model that scores candidates."""

    identity: dict[str, object]  # Which model this is; equal ones give the same scores
    notes: list[str]  # What a reader of the scores should know

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the candidates of queries of one relation.

        ``candidates`` None means the whole vocabulary: every word that is one token in the
        object slot, and golds that are spelt otherwise there. With ``every`` False only the best
        candidate and the gold are needed, and a model may leave out all that cannot be the best
        (``Scores.totals``). Each query is in exactly one of the yielded ``Scores``, in any order.
        """


class Reader(Interface):
    """A model of sentence pairs or questions: what it is shown is a ``Form`` or a ``Prompt``."""

    identity: dict[str, object]  # Which model this is
    notes: list[str]  # What a reader of the answers should know

    def why_not(self, shown: Sequence[Any]) -> list[str | None]:
        """Why each of what is shown cannot be asked; None where it can."""

    def text(self, shown: Any) -> str:
        """What the model reads; of two texts a line each."""


class Model(Reader, Interface):
    """A reader that scores answers: labels of a task, labels or texts of options."""

    tie: float
    """If the best two scores of a prompt are closer, its method ``score_alone`` decides; 0 of an
    exact model, which needs no such method."""

    def score(self, shown: Sequence[Any]) -> Iterator[Scores]:
        """The scores of the answers, each of what is shown in exactly one of the values."""


class WritingModel(Reader, Interface):
    """A reader that answers in its own words."""

    def write(
        self, shown: Sequence[Any], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        """Positions of what is shown, and the texts after it; ``samples``: which sample of each."""


class PairModel(Model, Interface):
    """A model of sentence pairs: a classifier, a language model, a function or a baseline."""

    @property
    def longest(self) -> int:
        """The longest input, in tokens."""

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """What the tokenizer makes of each form."""

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits.

        A sentence that several variants share ends at the same place in all of them.
        """


def load_model(
    spec: str,
    *,
    protocol: Protocol = "strict",
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    seed: int = 0,
    multi_token: MultiToken = "exclude",
    template: str | None = None,
    trust_remote_code: bool = False,
    adapter: Path | None = None,
    connection: Connection | None = None,
) -> LanguageModel:
    """Load a model.

    - ``spec``: a Hub id, a folder, a GGUF file, ``packaged:smollm2`` (in a PyPI package),
      ``baseline:majority|random|oracle|constant``, ``openai:NAME`` behind a URL,
      or ``PLUGIN:NAME`` of another package.
    - ``protocol``: which token represents a candidate. ``seed``: of ``baseline:random``.
    - ``multi_token``: what a masked model does with a candidate of several tokens.
    - ``template``: a text with ``{sentence}`` that a sequence-to-sequence model reads; without one
      it fills in a sentinel. ``trust_remote_code``: run the Python code of the model.
    - ``adapter``: the folder of a PEFT adapter that is merged into the weights.
    - ``connection``: how a model behind a URL is reached.
    """
    scheme, _, name = spec.partition(":")
    loader: Callable[[str], LanguageModel] | None = None
    if scheme not in ("baseline", "openai") and name:
        loader = plugin("consilience.models", scheme)  # of a name that there is not it raises
    if scheme in ("baseline", "openai") or loader is not None:
        _refuse_template(template, "openai:" if scheme == "openai" else scheme)
        if loader is not None:
            return loader(name)
        if scheme == "baseline":
            return load_baseline(name, seed)
        from consilience.models.served import ServedFacts, TokenScorer, load_served

        model = load_served(spec, connection, in_chats=())
        assert isinstance(model, TokenScorer)  # in chats no facts are asked
        return ServedFacts(model)
    try:
        from consilience.models.causal import CausalModel
        from consilience.models.loading import load_pretrained
        from consilience.models.masked import MaskedModel, PiecewiseModel
        from consilience.models.seq2seq import Seq2SeqModel
    except ImportError as error:
        raise missing(error) from error
    loaded = load_pretrained(spec, Loading(device, dtype, revision, trust_remote_code, adapter))
    if loaded.kind == "seq2seq":
        return Seq2SeqModel(loaded, template)
    _refuse_template(template, loaded.kind)
    if loaded.kind != "masked":
        return CausalModel(loaded)
    return (PiecewiseModel if multi_token == "left-to-right" else MaskedModel)(loaded, protocol)


def _refuse_template(template: str | None, kind: str) -> None:
    if template is not None:
        raise ConsilienceError(
            f"--template with a {kind} model",
            expected="a sequence-to-sequence model",
            todo="Leave it out.",
        )


def load_prompt_model(
    spec: str,
    questions: Sequence[Question],
    *,
    loading: Loading = DEFAULT_LOADING,
    seed: int = 0,
    connection: Connection | None = None,
) -> OptionScorer | PromptBaseline | ServedModel:
    """The model of questions of that name; options as in ``load_model``.

    ``questions``: those of the suite, for ``baseline:majority``.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        return prompt_baseline(name, questions, seed)
    if scheme == "openai":
        from consilience.models.served import load_served

        return load_served(spec, connection)
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import OptionScorer

    return OptionScorer(load_pretrained(spec, loading))


def is_chat_model(model: object) -> bool:
    """Whether a model has a chat template, or a server that has one for it."""
    tokenizer = getattr(model, "tokenizer", None)
    return bool(getattr(tokenizer, "chat_template", None) or getattr(model, "takes_chats", False))


def load_writer(
    spec: str,
    loading: Loading = DEFAULT_LOADING,
    *,
    connection: Connection | None = None,
    chooser: Any = None,
    **how: Any,
) -> Any:
    """The language model of that name, which writes; other options as in ``load_prompt_model``.

    ``chooser``: the same served model as one that chooses among options. ``how``: ``most_written``
    tokens, ``temperature`` and ``seed``.
    """
    if spec.partition(":")[0] == "openai":
        from consilience.models.served import Writer, open_server

        server = chooser.server if chooser else open_server(spec, connection)
        return Writer(server, spec, chooser=chooser, **how)
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import AnswerWriter

    return AnswerWriter(load_pretrained(spec, loading), **how)
