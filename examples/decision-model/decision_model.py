"""A decision model as a plug-in: a server that gives the probability of every option.

After ``pip install ./examples/decision-model`` its name is known, by the entry point in
``pyproject.toml``, and what follows the name is the URL of a server with ``/v1/systemone``:

    consilience probe --model decision:http://127.0.0.1:8086/v1 --suite mini --limit 4

A fact is a question with a blank, and its candidates are the options.
"""

import json
from urllib.request import Request, urlopen

import numpy as np

from consilience.types import Scores


class DecisionModel:
    """The score of a candidate is the logarithm of its probability, in nats."""

    def __init__(self, url):
        self.url, self.notes = url, []
        self.identity = {"model": f"decision:{url}"}

    def score(self, queries, candidates, *, every=True):
        for row, query in enumerate(queries):
            sentence = query.pattern.fill(query.subject, "____")
            question = {"type": "choice", "instructions": f"Fill in the blank: {sentence}",
                        "criteria": dict.fromkeys(candidates.words)}  # fmt: skip
            reply = self.post({"model": "", "state": "", "questions": {"q": question}})
            of_words = reply["answers"]["q"]["probabilities"]
            values = np.log(np.maximum([of_words[word] for word in candidates.words], 1e-9))
            yield Scores(np.array([row]), candidates.words, values[None])

    def post(self, body):
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.url}/systemone", json.dumps(body).encode(), headers)) as reply:
            return json.load(reply)
