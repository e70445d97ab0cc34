"""Models: queries become log-probabilities of candidates, by one contract for every kind.

A model owns everything between a query and the scores of its candidates: tokenisation, casing, the
leading space, masks, batches, lengths, device and dtype. It is *honest*: a candidate that its
tokenizer splits, merges with another or does not know is excluded with a reason, or scored by the
rule of the released code under the ``published`` protocol. It is *steady*: the same query gets the
same answer whatever the other queries are, and in any order.

To follow a score, read a family (``masked.py``, ``causal.py``, ``seq2seq.py``, or
``classifier.py`` and ``writing.py`` for sentence pairs), ``candidates.py``, ``scoring.py`` and
``forward.py``. ``fast/`` only saves time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol as Interface

from consilience.core.errors import (
    SERVED,
    Connection,
    ConsilienceError,
    Loading,
    MultiToken,
    Protocol,
    missing,
)
from consilience.core.provenance import plugin
from consilience.endpoints.decisions import ROUTES
from consilience.models.baselines import load_baseline
from consilience.types import Candidates, Query, Scores


class LanguageModel(Interface):
    """A model that scores candidates."""

    identity: dict[str, object]
    """Which model this is; two models with the same identity give the same scores."""
    notes: list[str]
    """What a reader of the scores should know."""

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the candidates of queries of one relation.

        ``candidates`` None means the whole vocabulary: every word that is one token in the
        object slot, and golds that are spelt otherwise there. With ``every`` False only the best
        candidate and the gold are needed, and a model may leave out all that cannot be the best
        (``Scores.totals``). Each query is in exactly one of the yielded ``Scores``, in any order.
        """
        ...


class ModelLoader(Interface):
    """What another package offers in the group ``consilience.models`` (``core/provenance.py``)."""

    def __call__(self, name: str, /) -> LanguageModel:
        """The model of ``--model PLUGIN:name``; a name that there is not is a ConsilienceError."""
        ...


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
    connection: Connection | None = None,
    scoring: str | None = None,
) -> LanguageModel:
    """Load a model.

    - ``spec``: a Hub id, a local folder, a GGUF file, ``packaged:smollm2`` (in a PyPI package),
      ``baseline:majority|random|oracle|constant``, ``openai:NAME`` behind a URL, or
      ``llamacpp:FILE`` for llama.cpp in this process, or ``PLUGIN:NAME`` of another package.
    - ``protocol``: which token represents a candidate (``models/candidates.py``).
    - ``seed``: of ``baseline:random``.
    - ``multi_token``: what a masked model does with a candidate of several tokens
      (``models/masked.py``); all others always take them.
    - ``template``: a text with ``{sentence}`` that a sequence-to-sequence model reads
      (``models/seq2seq.py``); without one it fills in a sentinel.
    - ``trust_remote_code``: run the Python code that comes with the model.
    - ``connection``: how a model behind a URL is reached. ``scoring``: the strategy of one that a
      server scores (``endpoints/strategies.py``); None for the first that is proved.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        _refuse_template(template, "baseline")
        return load_baseline(name, seed)
    if scheme in ROUTES:
        raise _not_direct(spec)
    if scheme in SERVED:
        _refuse_template(template, f"{scheme}:")
        return _served(spec, connection, scoring)
    loader: ModelLoader | None = plugin("consilience.models", scheme) if name else None
    if loader is not None:
        _refuse_template(template, scheme)
        return loader(name)
    try:
        from consilience.models.causal import CausalModel
        from consilience.models.loading import load_pretrained
        from consilience.models.masked import MaskedModel, PiecewiseModel
        from consilience.models.seq2seq import Seq2SeqModel
    except ImportError as error:
        raise missing(error) from error
    loaded = load_pretrained(spec, Loading(device, dtype, revision, trust_remote_code))
    if loaded.kind == "seq2seq":
        return Seq2SeqModel(loaded, template)
    _refuse_template(template, loaded.kind)
    is_masked = loaded.kind == "masked"
    if multi_token == "left-to-right" and is_masked:
        return PiecewiseModel(loaded, protocol)
    return MaskedModel(loaded, protocol) if is_masked else CausalModel(loaded)


def _served(spec: str, connection: Connection | None, scoring: str | None) -> LanguageModel:
    from consilience.models.served import load_served_facts

    return load_served_facts(spec, connection, scoring)


def _not_direct(spec: str) -> ConsilienceError:
    return ConsilienceError(
        f"facts asked directly of {spec}, a decision model, which chooses among options",
        expected="questions with options",
        todo="Ask the facts as questions: --as-questions 3.",
    )


def _refuse_template(template: str | None, kind: str) -> None:
    if template is not None:
        raise ConsilienceError(
            f"--template with a {kind} model",
            expected="a sequence-to-sequence model",
            todo="Leave it out.",
        )
