"""Models: what is asked becomes log-probabilities of answers, by one contract for every kind.

A model owns everything between what it is shown and the scores of the answers: tokenisation,
casing, the leading space, masks, batches, lengths, device and dtype. It is *honest*: a candidate
that its tokenizer splits, merges with another or does not know is excluded with a reason, or scored
by the rule of the released code under the ``published`` protocol. It is *steady*: the same query
gets the same answer whatever the other queries are, and in any order.

To follow a score, read a family (``masked.py``, ``causal.py``, ``seq2seq.py``; for sentence pairs
``classifier.py``; for questions and labels in words ``prompted.py`` and ``prompts.py``; of servers
``served.py``), ``tokens.py`` and ``batches.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from typing import Protocol as Interface

from consilience.core.errors import (
    DEFAULT_LOADING,
    CandidateSet,
    Connection,
    ConsilienceError,
    Loading,
    Protocol,
    needs_extra,
)
from consilience.core.items import Ints, NoAnswer, Question
from consilience.core.provenance import plugin
from consilience.models.functions import Baseline, prompt_baseline
from consilience.models.prompts import DEFAULT_WRITING, Writing
from consilience.types import Candidates, Scores


class LanguageModel(Interface):
    """A model of facts, sentence pairs or questions: it is shown queries, forms or prompts.

    A model of facts needs only ``score``. One of questions need not write, and one that only writes
    need not score.
    """

    identity: dict[str, object]  # Which model this is; equal ones give the same scores
    notes: list[str]  # What a reader of the answers should know
    tie: float
    """If the best two scores of a prompt are closer, those that it gets alone decide; 0 of an exact
    model."""

    def why_not(self, shown: Sequence[Any]) -> list[str | None]:
        """Why each prompt or form cannot be asked; None where it can."""

    def text(self, shown: Any) -> str:
        """What the model reads of a prompt or a form; of two texts a line each."""

    def score(
        self, shown: Sequence[Any], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities, in nats, of what each may be answered with.

        Each of what is shown is in exactly one of the values, in any order, and gets the same
        scores whatever is shown beside it. Forms and prompts have their own answers. Of facts,
        which are all of one relation, the answers are ``candidates``; None means the whole
        vocabulary of a masked model: every word that is one token in the object slot, and golds
        that are spelt otherwise there. With ``every`` False only the best candidate and the gold
        are needed, and a model may leave out all that cannot be the best (``Scores.totals``).
        """

    def write(
        self, shown: Sequence[Any], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        """Positions of what is shown, and the texts after it; ``samples``: which sample of each."""


def load_model(
    spec: str,
    *,
    protocol: Protocol = "strict",
    device: str = "auto",
    dtype: str = "float32",
    seed: int = 0,
    candidates: CandidateSet = "objects",
    template: str | None = None,
    trust_remote_code: bool = False,
    adapter: Path | None = None,
    connection: Connection | None = None,
) -> LanguageModel:
    """The model of facts of that name.

    - ``spec``: a Hub id, ``ID@REVISION``, a folder, a GGUF file, ``packaged:smollm2`` (in a PyPI
      package), ``baseline:majority|random|oracle|constant``, ``openai:NAME`` behind a URL, or
      ``PLUGIN:NAME`` of another package.
    - ``protocol``: which token represents a candidate. ``seed``: of ``baseline:random``.
    - ``candidates``: what a masked model chooses among; with ``pieces`` also words of several
      tokens, as all other models do.
    - ``template``: a text with ``{sentence}`` that a sequence-to-sequence model reads; without one
      it fills in a sentinel. ``trust_remote_code``: run the Python code of the model.
    - ``adapter``: the folder of a PEFT adapter that is merged into the weights.
    - ``connection``: how a model behind a URL is reached.
    """
    scheme, _, name = spec.partition(":")
    is_known = scheme in ("baseline", "openai")
    loader: Any = plugin("consilience.models", scheme) if name and not is_known else None
    if is_known or loader is not None:
        kind = "openai:" if scheme == "openai" else scheme
        _refuse(kind, "a sequence-to-sequence model", template=template)
        _refuse(kind, "weights that are here", dtype=dtype, adapter=adapter)
        if loader is not None:
            return cast(LanguageModel, loader(name))
        if scheme == "baseline":
            return Baseline(name, seed, "facts")
        from consilience.models.served import load_served_facts

        return cast(LanguageModel, load_served_facts(spec, connection))
    with needs_extra("models"):
        from consilience.models.causal import CausalModel
        from consilience.models.loading import load_pretrained
        from consilience.models.masked import MaskedModel
        from consilience.models.seq2seq import Seq2SeqModel

    def check(kind: str) -> None:
        if kind != "seq2seq":
            _refuse(kind, "a sequence-to-sequence model", template=template)

    loaded = load_pretrained(spec, Loading(device, dtype, trust_remote_code, adapter), check)
    if loaded.kind == "seq2seq":
        return cast(LanguageModel, Seq2SeqModel(loaded, template))
    if loaded.kind == "causal":
        return cast(LanguageModel, CausalModel(loaded))
    takes_pieces = candidates == "pieces"
    return cast(LanguageModel, MaskedModel(loaded, protocol, takes_pieces=takes_pieces))


def _refuse(kind: str, expected: str, **options: object) -> None:
    """Raise for an option of other models that is not at its default."""
    for name, value in options.items():
        if value != getattr(DEFAULT_LOADING, name, None):
            found = f"--{name} with a {kind} model"
            raise ConsilienceError(found, expected=expected, todo="Leave it out.")


def load_prompt_model(
    spec: str,
    questions: Sequence[Question] = (),
    *,
    loading: Loading = DEFAULT_LOADING,
    seed: int = 0,
    connection: Connection | None = None,
    writing: Writing | None = None,
    chooses: bool = True,
    asks_labels: bool = True,
) -> Any:
    """The model of questions of that name; other options as in ``load_model``.

    ``questions``: those of the suite, which baselines need. ``writing``: of a model that
    writes. ``chooses``: whether it is asked to choose among options by scores, too, and
    ``asks_labels``: whether options may have labels.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "baseline" and questions:
        return prompt_baseline(name, questions, seed)
    if scheme == "openai":
        from consilience.models.served import Writer, load_served, open_server

        how = writing or DEFAULT_WRITING
        if chooses:
            return load_served(spec, connection, how, asks_labels=asks_labels)
        return Writer(open_server(spec, connection), spec, writing=how)
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import PromptModel

    return PromptModel(load_pretrained(spec, loading), writing, chooses=chooses)
