"""What a prompt asks, in few lines: without what a chat template puts around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

USER = re.compile(
    r"<\|?(?:im_)?start\w*\|?>\s*user\b(?:<\|end_header_id\|>)?|<[|\uff5c]user[|\uff5c]>|\[INST\]",
    re.IGNORECASE,
)
"""How a turn of the user begins."""

SPECIAL_TOKENS = re.compile(
    r"<\|?(?:im_)?start\w*\|?>\w+"  # begins a turn, with its role
    r"|<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|</?s>|<(?:bos|eos|end_of_turn)>|\[/?INST\]"
)
"""What chat templates put around the messages."""

LONGEST_PROMPT = 400
"""Characters of a prompt that an example shows."""


def lines_asked(prompt: str) -> list[str]:
    """The lines of a prompt that are not empty; of a chat from the last turn of the user on."""
    begins = max((match.end() for match in USER.finditer(prompt)), default=0)
    text = SPECIAL_TOKENS.sub("\n", prompt[begins:])
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_one_line(prompts: Sequence[str], *, shared: bool = True) -> list[str]:
    """Each prompt in one line; of a long one the end.

    ``shared``: without the lines that all prompts begin with, such as solved examples. The prompts
    must then be of several questions.
    """
    split = [lines_asked(prompt) for prompt in prompts]
    same = 0
    if shared and split:
        shortest = min(map(len, split))
        while same < shortest and len({lines[same] for lines in split}) == 1:
            same += 1
    return [whole_or_end(" / ".join(lines[same:])) for lines in split]


def whole_or_end(text: str) -> str:
    """A text of at most ``LONGEST_PROMPT`` characters, or the last words of a longer one."""
    if len(text) <= LONGEST_PROMPT:
        return text
    return f"... {text[-LONGEST_PROMPT:].partition(' ')[2]}"


def differing_lines(first: str, second: str) -> Iterator[str]:
    """The lines of the second prompt between those that both begin and end with."""
    one, other = lines_asked(first), lines_asked(second)
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    yield from other[start : len(other) - end]
