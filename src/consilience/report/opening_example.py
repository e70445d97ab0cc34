"""An example of prompts and answers, for the first screen of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consilience.analysis.examples import Example, Reply
from consilience.factors import FACTORS, levels_of
from consilience.report.page import Text
from consilience.report.prompt_lines import differing_lines, lines_asked, whole_or_end
from consilience.report.run_view import FactView, RunView


def opening_example(run: RunView) -> Iterator[Text]:
    """Two prompts of one item with their answers, different ones if there are any.

    The item is one of the means, if there are examples of these.
    """
    if run.facts is not None:
        examples = [one for of_kind in run.facts.examples.values() for one in of_kind]
        averaged = {group.id for group in run.suite if group.cardinality == "N-1"}
        examples.sort(key=lambda example: example.group not in averaged)
        for example in examples[:1]:
            yield from _of_replies(run.name, run.facts, example)
    elif run.pairs is not None:
        for row in run.pairs.changed.head(1).to_dicts():
            form = row["perturbation"]
            texts = (row["original_1"], row["original_2"]), (row["text_1"], row["text_2"])
            prompts = [" and ".join(map(_quoted, pair)) for pair in texts]
            prompts[1] += f" (form {form})"
            yield Text([_answered(run.name, prompts, (row["original_answer"], row["answer"]))])


def _of_replies(name: str, facts: FactView, example: Example) -> Iterator[Text]:
    """Two replies to a fact or a question; nothing of one with a single reply.

    A sentence; of a question then its prompt, and what differs in the other one.
    """
    first = example.telling[0]
    others = [reply for reply in example.replies if reply is not first]
    if not others:
        return
    if not (first.prompt and levels_of(first.variant)):  # a fact, or the prompts were not kept
        others = [reply for reply in example.telling if reply is not first]
        second = next((other for other in others if other.answer != first.answer), others[0])
        prompts = [_quoted(facts.prompt(example, reply)) for reply in (first, second)]
        yield Text([_answered(name, prompts, (first.answer, second.answer))])
        return
    second = min(
        others, key=lambda reply: (reply.answer == first.answer, len(_changed(first, reply)))
    )
    changed = _changed(first, second)
    verb, only = ("differs", "only ") if len(changed) == 1 else ("differ", "")
    names = " and ".join(FACTORS[factor] for factor in changed)
    levels = ", ".join(f"{factor}={level}" for factor, level in changed.items())
    answer = "the same" if second.answer == first.answer else f"but {_quoted(second.answer)}"
    shown = [lines_asked(first.prompt), [*differing_lines(first.prompt, second.prompt or "")]]
    yield Text(
        [
            f"Example: {name} answers {_quoted(first.answer)} to this prompt, {answer} when {only}"
            f"{names} {verb} ({levels}):"
        ]
    )
    yield Text([whole_or_end("\n".join(lines)) for lines in shown if lines], code=True)


def _changed(first: Reply, second: Reply) -> dict[str, str]:
    """The levels of the second variant that the first does not have, by their factors."""
    known = levels_of(first.variant)
    return {
        factor: level
        for factor, level in levels_of(second.variant).items()
        if known.get(factor) != level
    }


def _answered(name: str, prompts: Sequence[str], answers: Sequence[str]) -> str:
    """What a model answered to two prompts, in a sentence."""
    first, second = map(_quoted, answers)
    if first == second:
        return f"Example: {name} answers {first} to {prompts[0]} and to {prompts[1]}"
    return f"Example: {name} answers {first} to {prompts[0]}, but {second} to {prompts[1]}"


def _quoted(text: str) -> str:
    """A prompt in one line, quoted; of a chat the last turn, of a long text the end."""
    return f"“{whole_or_end(' / '.join(lines_asked(text)))}”"
