"""Contradictions along chains of expectations, such as a -> b, b -> c and c against a."""

from __future__ import annotations

from collections.abc import Mapping

from consilience.expectations import Expectation, Reference
from consilience.suites.rows import Row


class Chains:
    """Which answer each question must get, given the answer to another one that it is linked to.

    Links are expectations whose permitted answers are one to one (``Expectation.one_to_one``): such
    as ``same``, and all but ``implied`` of two options. This is union-find, where each node keeps
    the answer of its parent for each of its own.
    """

    def __init__(self) -> None:
        self._parents: dict[Reference, tuple[Reference, Mapping[str, str]]] = {}

    def admits(self, row: Row, expectation: Expectation) -> bool:
        """Add the expectation of a row, unless it cannot hold with those before: it is reported."""
        positions = expectation.one_to_one
        if positions is None:
            return True
        premise, conclusion = expectation.references
        required = [conclusion.options[at] for at in positions]
        first, premise_answers = self._root(premise)
        second, conclusion_answers = self._root(conclusion)
        if first != second:
            self._parents[second] = (
                first,
                {
                    conclusion_answers[new]: premise_answers[answer]
                    for answer, new in zip(premise.options, required, strict=True)
                },
            )
            return True
        of_chain = {of_root: text for text, of_root in conclusion_answers.items()}
        for answer, new in zip(premise.options, required, strict=True):
            earlier = of_chain[premise_answers[answer]]
            if earlier != new:
                row.report(
                    f"where '{premise.item}' gets {answer}, this row requires {new} of "
                    f"'{conclusion.item}', and rows before it together require {earlier}",
                    todo="Correct or remove one of the rows that link the two questions.",
                )
                return False
        return True

    def _root(self, reference: Reference) -> tuple[Reference, Mapping[str, str]]:
        """The root of a question, and its answer for each answer to the question."""
        answers = {text: text for text in reference.options}
        while reference in self._parents:
            reference, of_parent = self._parents[reference]
            answers = {text: of_parent[answer] for text, answer in answers.items()}
        return reference, answers
