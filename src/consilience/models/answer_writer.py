"""Language models that answer prompts in their own words, greedily or sampled by a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consilience.core.errors import ConsilienceError
from consilience.models.forward import Ints
from consilience.models.loading import Pretrained
from consilience.models.prompt_reader import Manner
from consilience.models.prompted import OptionScorer
from consilience.models.steering import TokenNoise
from consilience.presentation import Prompt

MOST_WRITTEN = 32
"""Tokens that a model may write unless another number is given."""


class AnswerWriter(OptionScorer):
    """A causal or sequence-to-sequence model that writes an answer to each prompt.

    The answer ends at an end token, after ``most_written`` tokens and, where the prompt is no chat,
    at the end of its first line: what a model without turns writes next is another question.
    """

    def __init__(
        self,
        loaded: Pretrained,
        *,
        most_written: int = MOST_WRITTEN,
        longest: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``temperature``: 0 writes the most probable token each time, others sample tokens.

        Tokens are sampled from the whole distribution, its logits divided by the temperature, by
        ``seed``. ``longest``: tokens of a prompt, 0 for as many as the model takes.
        """
        if temperature < 0:
            raise ConsilienceError(
                f"--temperature {temperature:g}", expected="0 (no sampling) or more, such as 0.7"
            )
        super().__init__(loaded, most_written=most_written, longest=longest)
        self.temperature, self.seed = temperature, seed
        self.identity = self.identity | {"max_new_tokens": most_written, "temperature": temperature}
        if temperature:
            self.identity["sampling_seed"] = seed

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids that an answer follows, of any length."""
        if not self.continuation.shares_context:
            return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"])
        return self.tokens.prompt_ids(prompt)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        tokens = len(self.prompt_ids(prompt))
        if tokens > self.longest:
            return f"{tokens} tokens, and the model takes {self.longest}"
        return self.tokens.refused(prompt)

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what the model writes after them.

        ``samples``: the number of the sample of each prompt. A sample depends on the token ids of
        its prompt, its number and the seed, and on no other prompt. At temperature 0 all samples
        are the same.
        """
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        manners = [
            Manner(
                TokenNoise.of(of_prompt, sample, self.seed, self.temperature)
                if self.temperature
                else None,
                is_one_line=not prompt.is_chat,
            )
            for prompt, of_prompt, sample in zip(prompts, ids, samples, strict=True)
        ]
        for rows, replies in self.replies(ids, [[]] * len(ids), manners):
            yield rows, replies.texts
