"""Models: queries become log-probabilities of candidates, by one contract for every kind.

A model owns everything between a query and the scores of its candidates: tokenisation, casing, the
leading space, masks, batches, lengths, device and dtype. It is *honest*: a candidate that its
tokenizer splits, merges with another or does not know is excluded with a reason, or scored by the
rule of the released code under the ``published`` protocol. It is *steady*: the same query gets the
same answer whatever the other queries are, and in any order.

To follow a score, read a family (``masked.py``, ``causal.py``, ``seq2seq.py``, ``pieces.py``, or
``classifier.py`` and ``label_writer.py`` for sentence pairs), ``candidates.py``, ``scoring.py`` and
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
)
from consilience.endpoints.decisions import ROUTES
from consilience.models.baselines import BASELINES, load_baseline
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
    fast: bool = False,
    connection: Connection | None = None,
    scoring: str | None = None,
) -> LanguageModel:
    """Load a model.

    - ``spec``: a Hub id, a local folder, a GGUF file, ``packaged:smollm2`` (in a PyPI package),
      ``baseline:majority|random|oracle|constant``, ``openai:NAME`` behind a URL, or
      ``llamacpp:FILE`` for llama.cpp in this process.
    - ``protocol``: which token represents a candidate (``models/candidates.py``).
    - ``seed``: of ``baseline:random``.
    - ``multi_token``: what a masked model does with a candidate of several tokens
      (``models/masked.py``); all others always take them.
    - ``template``: a text with ``{sentence}`` that a sequence-to-sequence model reads
      (``models/seq2seq.py``); without one it fills in a sentinel.
    - ``trust_remote_code``: run the Python code that comes with the model.
    - ``fast``: answers only, screened in bfloat16 and settled in float32
      (``models/fast/screening.py``); refused where a measurement shows no gain.
    - ``connection``: how a model behind a URL is reached. ``scoring``: the strategy of one that a
      server scores (``endpoints/strategies.py``); None for the first that is proved.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        _refuse_template(template, "baseline")
        if fast:
            raise _not_fast("a baseline")
        return load_baseline(name, seed)
    if scheme in ROUTES:
        raise _not_direct(spec)
    if scheme in SERVED and not fast:
        _refuse_template(template, f"{scheme}:")
        return _served(spec, connection, scoring)
    try:
        from consilience.models.causal import CausalModel
        from consilience.models.fast import ScreenedModel, check_speedup, measured_screen
        from consilience.models.loading import load_pretrained
        from consilience.models.masked import MaskedModel, PiecewiseModel
        from consilience.models.seq2seq import Seq2SeqModel
    except ImportError as error:
        raise ConsilienceError(
            f"'{error.name}' is not installed",
            todo="Install consilience with its dependencies again, or use a baseline: "
            f"{', '.join(f'baseline:{known}' for known in BASELINES)}.",
        ) from error
    if fast and (dtype != "float32" or scheme in SERVED):
        raise _not_fast(f"--model {spec}" if scheme in SERVED else f"--dtype {dtype}")
    loaded = load_pretrained(spec, Loading(device, dtype, revision, trust_remote_code))
    if loaded.kind == "seq2seq":
        if fast:
            raise _not_fast("a sequence-to-sequence model")
        return Seq2SeqModel(loaded, template)
    _refuse_template(template, loaded.kind)
    is_masked = loaded.kind == "masked"
    if multi_token == "left-to-right" and is_masked:
        if fast:
            raise _not_fast("--multi-token left-to-right")
        return PiecewiseModel(loaded, protocol)
    model = MaskedModel(loaded, protocol) if is_masked else CausalModel(loaded)
    if not fast:
        return model
    check_speedup(measured_screen(model.model, head=model.head_is_packed), loaded.kind)
    return ScreenedModel(model)


def _served(spec: str, connection: Connection | None, scoring: str | None) -> LanguageModel:
    from consilience.models.served import ServedCausalModel

    return ServedCausalModel.open(spec, connection, scoring)


def _not_direct(spec: str) -> ConsilienceError:
    return ConsilienceError(
        f"facts asked directly of {spec}, a decision model, which chooses among options",
        expected="questions with options",
        todo="Ask the facts as questions: --as-questions 3.",
    )


def _not_fast(reason: str) -> ConsilienceError:
    return ConsilienceError(
        f"--fast with {reason}",
        expected="a masked model with candidates of one token, or a causal one, in float32",
        todo="Leave it out.",
    )


def _refuse_template(template: str | None, kind: str) -> None:
    if template is not None:
        raise ConsilienceError(
            f"--template with a {kind} model",
            expected="a sequence-to-sequence model",
            todo="Leave it out.",
        )
