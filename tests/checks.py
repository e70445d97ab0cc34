"""What many tests say: this command succeeds, that call is refused with this message."""

import numpy as np
import pytest
from scipy.special import log_softmax

from consilience import Scores
from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints.client import Client


def refused(message, call, *arguments, **options):
    """The call ends with one of our errors whose text has a match of that regular expression.

    An empty one is any: the text, which is returned, is checked by the test.
    """
    __tracebackhide__ = True
    with pytest.raises(ConsilienceError, match=message or None) as caught:
        call(*arguments, **options)
    return str(caught.value)


def output(command, *arguments):
    """Standard output of a command that succeeds; ``command``: the fixture ``consilience``."""
    __tracebackhide__ = True
    status, out, err = command(*arguments)
    assert status == 0, err
    return out


def refusal(command, *arguments):
    """Standard error of a command that is refused."""
    __tracebackhide__ = True
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    return err


class ScoringFunction:
    """A model of facts made of a function from sentences to their log-probabilities in nats."""

    def __init__(self, function):
        self.function, self.notes = function, []
        self.identity = {"model": function.__name__, "kind": "function of log-probabilities"}

    def score(self, queries, candidates, *, every=True):
        words = candidates.words
        sentences = [one.pattern.fill(one.subject, word) for one in queries for word in words]
        totals = np.array(self.function(sentences), dtype=float).reshape(len(queries), len(words))
        logprob = log_softmax(totals, axis=1)
        yield Scores(np.arange(len(queries)), tuple(words), logprob, totals=totals)


def served(url, **connection):
    """A model of facts behind a URL, whose completions have the field ``score``."""
    client = Client(Connection(url, **connection))

    def totals_of(sentences):
        ask = lambda text: client.post("completions", {"prompt": text})  # noqa: E731
        by_row = dict(client.each(ask, sentences))
        return [by_row[at]["score"] for at in range(len(sentences))]

    model = ScoringFunction(totals_of)
    model.client = client
    return model


class PromptStub:
    """A model of prompts that takes any; what it answers is defined where it is used."""

    identity, notes, tie = {}, [], 0.0

    def why_not(self, prompts):
        return [None] * len(prompts)

    def text(self, prompt):
        return prompt.text
