"""An example of prompts and answers, for the first screen of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from consilience.report.page import Text
from consilience.report.run_view import RunView

PROMPT = 160
"""Characters of a prompt that are quoted."""

CHAT_MARK = re.compile(r"<\|\w+\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]")
"""Where a turn of a chat begins or ends, such as ``<|im_start|>``."""

ROLE = re.compile(r"(?:system|user|assistant|model)\s*(?:\n|$)")
"""The name of who speaks, which begins a turn or is between two marks."""


def opening_example(run: RunView) -> Iterator[Text]:
    """Two prompts of one item with their answers, different ones if there are any."""
    if run.facts is not None:
        examples = [one for of_kind in run.facts.examples.values() for one in of_kind]
        for example in examples[:1]:
            first, *others = example.telling
            second = next((other for other in others if other.answer != first.answer), None)
            second = second or next(iter(others), None)
            if second is not None:
                prompts = [_quoted(run.facts.prompt(example, reply)) for reply in (first, second)]
                yield Text([_answered(run.name, prompts, (first.answer, second.answer))])
    elif run.pairs is not None:
        for row in run.pairs.changed.head(1).to_dicts():
            form = row["perturbation"]
            texts = (row["original_1"], row["original_2"]), (row["text_1"], row["text_2"])
            prompts = [" and ".join(map(_quoted, pair)) for pair in texts]
            prompts[1] += f" (form {form})"
            yield Text([_answered(run.name, prompts, (row["original_answer"], row["answer"]))])


def _answered(name: str, prompts: Sequence[str], answers: Sequence[str]) -> str:
    """What a model answered to two prompts, in a sentence."""
    first, second = map(_quoted, answers)
    if first == second:
        return f"Example: {name} answers {first} to {prompts[0]} and to {prompts[1]}"
    return f"Example: {name} answers {first} to {prompts[0]}, but {second} to {prompts[1]}"


def _quoted(text: str) -> str:
    """A prompt in one line, quoted; of a chat the last turn, of a long text the end."""
    turns = [ROLE.sub("", turn.lstrip(), count=1).strip() for turn in CHAT_MARK.split(text)]
    last = next((turn for turn in reversed(turns) if turn), "") if len(turns) > 1 else text
    line = " / ".join(part for part in map(str.strip, last.splitlines()) if part)
    return f"“{line}”" if len(line) <= PROMPT else f"“... {line[-PROMPT:].partition(' ')[2]}”"
