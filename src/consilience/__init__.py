"""Consilience: does a language model answer the same however it is asked?

>>> from consilience import ask, load_model, load_suite, measure
>>> suite = load_suite("mini")
>>> relation = suite.relation("capital")
>>> answers = ask(relation, load_model("baseline:majority"), suite.name)
>>> metrics = measure(answers, suite, "strict")
"""

from consilience import early  # noqa: F401 - first, for Ctrl-C during all that follows
from consilience.ask import ask, ask_suite
from consilience.cloze import Pattern
from consilience.errors import ConsilienceError
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.models import LanguageModel, load_model
from consilience.run import read_answers
from consilience.run_folder import RunFolder
from consilience.suites import load_suite
from consilience.types import Candidates, Fact, Query, Relation, Scores, Suite

__version__ = "0.1.0"

__all__ = [
    "Candidates",
    "ConsilienceError",
    "Fact",
    "LanguageModel",
    "Pattern",
    "Query",
    "Relation",
    "RunFolder",
    "Scores",
    "Suite",
    "ask",
    "ask_suite",
    "compare",
    "load_model",
    "load_suite",
    "measure",
    "read_answers",
]
