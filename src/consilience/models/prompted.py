"""Language models that score what prompts may be answered with: labels or texts of options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from consilience.core.items import Scores
from consilience.core.presentation import Prompt
from consilience.models.fast import reproducibly
from consilience.models.forward import Floats
from consilience.models.loading import Pretrained
from consilience.models.prompt_reader import PromptReader
from consilience.models.prompt_tokens import PromptTokens, begins_another


class OptionScorer(PromptReader):
    """A model that scores what a prompt may be answered with (``asking/questions.py``)."""

    def __init__(self, loaded: Pretrained, *, most_written: int = 0, longest: int = 0) -> None:
        """``longest``: tokens of a prompt with its answer, 0 for as many as the model takes."""
        super().__init__(loaded, most_written=most_written, longest=longest)
        self.tokens = PromptTokens(self.tokenizer, self.ends, str(self.identity["model"]))
        self._encoded: dict[Prompt, tuple[list[int], list[list[int]]]] = {}

    def text(self, prompt: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.tokens.around(prompt)[0]

    def encode(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """The token ids of a prompt, of any length, and those of each of its answers.

        The ids of an answer are those that follow the prompt's where both are tokenised as one
        text, so ``Answer:`` is followed by `` A`` (``PromptTokens.encode``). A text is complete
        with the token that ends a turn or, of a sequence-to-sequence model, the sequence.
        """
        if prompt not in self._encoded:
            is_causal = self.continuation.shares_context
            self._encoded[prompt] = (self.tokens.encode if is_causal else self._encode_pair)(prompt)
        return self._encoded[prompt]

    def _encode_pair(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """Of a sequence-to-sequence model: the ids of its encoder and of its decoder."""
        targets = self.tokens.ids(list(prompt.answers))
        if not prompt.are_labels or begins_another(targets):
            targets = [[*ids, *self.ends[:1]] for ids in targets]
        return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"]), targets

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        if reason := self.tokens.refused(prompt, prompt.answers):
            return reason
        ids, targets = self.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        tokens = len(ids)
        if self.continuation.shares_context:
            tokens += max(map(len, targets), default=1) - 1
        if tokens > self.longest:
            return f"{tokens} tokens, and the model takes {self.longest}"
        return None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The log-probabilities of the answers of prompts, and the numbers of their tokens."""
        encoded = [self.encode(prompt) for prompt in prompts]
        self._encoded.clear()
        targets = [of_prompt for _, of_prompt in encoded]
        for rows, replies in self.replies([ids for ids, _ in encoded], targets):
            sizes = [np.array([len(target) for target in targets[row]]) for row in rows]
            yield Scores.of_rows(rows, replies.totals, sizes)

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, of a prompt in passes of its own."""
        ids, targets = self.encode(prompt)
        with reproducibly():
            return self._alone(ids, targets)
