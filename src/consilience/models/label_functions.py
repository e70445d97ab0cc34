"""Sentence pairs without a tokenizer: a Python function that returns labels, and baselines."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.free_text import matched_word
from consilience.models.functions import chosen_words, identity_of, texts_of, unmatched_note
from consilience.sentence_pairs import Form, TextPair, as_lines
from consilience.types import Scores

TwoTexts = tuple[str, str]
"""The two texts of a form, as a model reads them: ``("Premise: ...", "Hypothesis: ...")``."""


class LabelFunction:
    """A function from a list of two texts to a list of labels, as a model of sentence pairs.

    A text is a label by the rule ``normalized`` (``free_text``). A text that is no label counts as
    a wrong answer. An empty text is no answer.
    """

    longest = sys.maxsize

    def __init__(
        self,
        function: Callable[[list[TwoTexts]], Sequence[str]],
        labels: Sequence[str],
        identity: Mapping[str, object] | None = None,
    ) -> None:
        self.function, self.labels = function, tuple(labels)
        self.identity = dict(identity or identity_of(function, "labels"))
        self.notes: list[str] = []

    def prompt(self, form: Form) -> str:
        """The two texts, a line each."""
        return as_lines(form)

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """The characters of each form."""
        return [{"input_ids": list(map(ord, as_lines(form)))} for form in forms]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """The forms: none is too long."""
        return list(forms)

    def why_not(self, form: Form) -> str | None:
        """None: every form can be asked."""
        return None

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """The label of each form; there are no log-probabilities. Equal forms are asked once."""
        texts = texts_of(self.function, [_texts(form) for form in forms])
        matches = [matched_word(text, self.labels) for text in texts]
        unmatched = [text for text, label in zip(texts, matches, strict=True) if text and not label]
        if unmatched:
            self.notes.append(unmatched_note(unmatched, f"{len(texts)} texts", "label"))
        yield from chosen_words(texts, matches, self.labels)


def _texts(form: Form) -> TwoTexts:
    first, second = form
    return first.text, second.text


def label_baseline(
    name: str, labels: Sequence[str], pairs: Sequence[TextPair], seed: int
) -> LabelFunction:
    """The baseline of that name for sentence pairs; one that does not exist for them raises.

    ``majority`` answers with the most frequent label of ``pairs``, of equally frequent ones the
    first; ``constant`` with the first label; ``random`` with a label drawn for each text.
    """
    majority = Counter(pair.label for pair in pairs).most_common(1)[0][0]

    def draw(texts: TwoTexts) -> str:
        return labels[random.Random(f"{seed}\t{texts[0]}\t{texts[1]}").randrange(len(labels))]

    baselines: dict[str, Callable[[TwoTexts], str]] = {
        "majority": lambda texts: majority,
        "constant": lambda texts: labels[0],
        "random": draw,
    }
    if name not in baselines:
        raise ConsilienceError(
            f"no baseline '{name}' for sentence pairs",
            expected=", ".join(f"baseline:{known}" for known in baselines),
            todo=did_you_mean(name, list(baselines)),
        )
    choose = baselines[name]
    identity: dict[str, Any] = {"model": f"baseline:{name}", "kind": "baseline"}
    identity |= {"seed": seed} if name == "random" else {}
    return LabelFunction(lambda inputs: [choose(texts) for texts in inputs], labels, identity)
