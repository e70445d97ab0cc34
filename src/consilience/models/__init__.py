"""Queries become log-probabilities of candidates: every kind of model through one contract.

A model owns everything between a query and its candidates' scores: tokenising, casing, the leading
blank, masks, batches, lengths, device and dtype. It must be *honest*: a candidate that its
tokenizer cuts, merges with another or does not know takes no part and the reason is told, or is
scored by the rule of the released code where the ``published`` protocol asks for that. And it must
be *steady*: the same query gets the same answer whatever is asked with it, and in any order.

This room knows queries and scores, no files of suites and no metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol as Interface

from consilience.errors import ConsilienceError
from consilience.models.baselines import BASELINES, load_baseline
from consilience.types import Candidates, MultiToken, Protocol, Query, Scores


class LanguageModel(Interface):
    """What ``probe`` asks of a model.

    ``identity`` is what a reader needs to know which model this is; two models with the same
    identity give the same scores. ``notes`` are what a reader of the scores should know.
    """

    identity: dict[str, object]
    notes: list[str]

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the candidates of queries of one relation.

        ``candidates`` None asks for the whole vocabulary: every word that is one token where the
        object stands; golds that are spelt otherwise there are among the words too. ``every`` False
        asks for the best candidate and the gold only, and a model may then leave out all that
        cannot be the best (``Scores.totals``). Each query comes in exactly one of the yielded
        ``Scores``, in any order.
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
) -> LanguageModel:
    """The model that ``spec`` names.

    ``spec`` is a Hub id, a local folder, a GGUF file, ``packaged:smollm2`` (carried by a PyPI
    package) or ``baseline:majority|random|oracle|constant``. ``protocol`` decides which token
    stands for a candidate (``models/candidates.py``); ``seed`` is for ``baseline:random``.
    ``multi_token``: what a masked model does with a candidate of several tokens
    (``models/pieces.py``); all others always take them. ``template``: a text with ``{sentence}``
    in which a sequence-to-sequence model reads the sentence (``models/seq2seq.py``); without one
    it fills in a sentinel. ``trust_remote_code``: run the Python code that comes with the model,
    for a source that you trust. ``fast``: answers only, screened in bfloat16 and settled in float32
    (``models/fast.py``); refused where that is measured not to pay.
    """
    kind, _, name = spec.partition(":")
    if kind == "baseline":
        _no_template(template, "baseline")
        if fast:
            raise _not_fast("a baseline")
        return load_baseline(name, seed)
    try:
        from consilience.models.causal import CausalModel
        from consilience.models.fast import ScreenedModel, check_speedup, measured_screen
        from consilience.models.loading import load_pretrained
        from consilience.models.masked import MaskedModel
        from consilience.models.pieces import PiecewiseModel
        from consilience.models.seq2seq import Seq2SeqModel
    except ImportError as error:
        raise ConsilienceError(
            f"'{error.name}' is not installed",
            todo="Install it with `pip install consilience`, or use a baseline: "
            f"{', '.join(f'baseline:{each}' for each in BASELINES)}.",
        ) from error
    if fast and dtype != "float32":
        raise _not_fast(f"--dtype {dtype}")
    loaded = load_pretrained(
        spec,
        revision=revision,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    parts = (loaded.model, loaded.tokenizer, loaded.identity)
    if loaded.kind == "seq2seq":
        if fast:
            raise _not_fast("a sequence-to-sequence model")
        return Seq2SeqModel(*parts, template)
    _no_template(template, loaded.kind)
    is_causal = loaded.kind == "causal"
    if multi_token == "left-to-right" and not is_causal:
        if fast:
            raise _not_fast("--multi-token left-to-right")
        return PiecewiseModel(*parts, protocol)
    model = CausalModel(*parts) if is_causal else MaskedModel(*parts, protocol)
    if not fast:
        return model
    check_speedup(measured_screen(model.model, head=is_causal), loaded.kind)
    return ScreenedModel(model)


def _not_fast(what: str) -> ConsilienceError:
    return ConsilienceError(
        f"--fast with {what}",
        expected="a masked model with candidates of one token, or a causal one, in float32",
        todo="Leave it out.",
    )


def _no_template(template: str | None, kind: str) -> None:
    if template is not None:
        raise ConsilienceError(
            f"--template with a {kind} model",
            expected="a sequence-to-sequence model",
            todo="Leave it out.",
        )
