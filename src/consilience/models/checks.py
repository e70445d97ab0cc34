"""What is checked of every model, by one function each, whichever way the model is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from consilience.core.errors import ConsilienceError

TODAY = """{%- macro strftime_now(format) -%}
{{- "2024-07-26" if "%m" in format else "26 Jul 2024" if "%b" in format else "26 July 2024" -}}
{%- endmacro -%}"""
"""The date of templates that write one (SmolLM3, gpt-oss, Llama 3.2), the same on all days."""

OF_TEMPLATES = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What a chat template raises."""

Turn = dict[str, str]  # The role and the content of a turn of a chat


def check_numbers(values: Any, dtype: object) -> None:
    """Raise if logits or log-probabilities, an array or a tensor, are NaN or infinite."""
    if 0 not in values.shape and not bool(abs(values).max() < math.inf):
        raise ConsilienceError(
            f"the model's logits are not numbers in {dtype}",
            expected="a dtype that holds what the model computes",
            todo="Use --dtype float32.",
        )


def check_ids(model: Any, tokenizer: Any, name: str) -> None:
    """Raise if the tokenizer gives ids that the model has no embedding for.

    Special tokens count if they are around every text, in the chat template, or the mask: several
    families have others that no text has (Gemma 3: images).
    """
    rows = getattr(model.get_input_embeddings(), "num_embeddings", math.inf)
    special, template = special_tokens(tokenizer), str(getattr(tokenizer, "chat_template", ""))
    asked = {*tokenizer("a")["input_ids"], tokenizer.mask_token_id}
    beyond = [
        token
        for token, id_ in tokenizer.get_vocab().items()
        if id_ >= rows and (token not in special or id_ in asked or token in template)
    ]
    if beyond:
        raise ConsilienceError(
            f"the tokenizer of '{name}' has {len(tokenizer)} tokens, the model {rows} embeddings: "
            f"none for '{min(beyond)}'",
            expected="the tokenizer that the model was trained with",
        )


def check_segments(model: Any, tokenizer: Any, name: str) -> None:
    """Raise if the tokenizer numbers the two texts of a pair as the model does not."""
    types = getattr(model.config, "type_vocab_size", None) or math.inf
    if max(tokenizer("a", "a").get("token_type_ids") or [0]) >= types:
        raise ConsilienceError(
            f"the tokenizer of '{name}' numbers the texts of a pair 0 and 1, and the model has "
            f"{types} type of text",
            expected="the tokenizer that the model was trained with",
        )


def special_tokens(tokenizer: Any) -> list[str]:
    """The special tokens, also those that have no name, as those of a turn often have none."""
    added = tokenizer.added_tokens_decoder.values()
    of_turns = (str(token.content) for token in added if token.special)
    return [*dict.fromkeys([*tokenizer.all_special_tokens, *of_turns])]


def before_texts(tokenizer: Any) -> list[int]:
    """The tokens that the tokenizer puts before every text."""
    whole: list[int] = list(tokenizer("a")["input_ids"])
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    sizes = range(len(whole) - len(plain) + 1)
    return next((whole[:size] for size in sizes if whole[size : size + len(plain)] == plain), [])


def begun(ids: Sequence[int], beginning: Sequence[int]) -> list[int]:
    """Token ids with the tokens that begin every text, once: chat templates may write them."""
    is_begun = list(ids[: len(beginning)]) == list(beginning)
    return [*ids] if is_begun else [*beginning, *ids]


def unusable(tokenizer: Any, ids: Sequence[int]) -> str | None:
    """Why these tokens cannot represent a candidate or an option; None if they can."""
    if not ids:
        return "the tokenizer leaves nothing of it"
    if tokenizer.unk_token_id in ids:
        return "unknown to the tokenizer"
    return None


def rendered(tokenizer: Any, turns: Sequence[Turn], name: str, *, is_asked: bool) -> str:
    """A chat in the form of the model's template; ``is_asked``: an answer is to follow.

    A template that leaves out the text of a turn gets lists of parts instead of texts, as templates
    of models for images want them; one that refuses a turn, or leaves it out even so, raises. A
    system prompt that is a switch (``/no_think``) need not be in the chat if the chat differs by
    it, nor the last turn unless it is asked.
    """
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": is_asked}
    texts, problem = [turn["content"] for turn in turns], ""
    for contents in (texts, [[{"type": "text", "text": text}] for text in texts]):
        chat = [{**turn, "content": one} for turn, one in zip(turns, contents, strict=True)]
        try:
            if "strftime_now" in (template := tokenizer.get_chat_template()):
                options["chat_template"] = TODAY + template
            joined = str(tokenizer.apply_chat_template(chat, **options))
            needed = turns if is_asked else turns[-2:-1]
            absent = [turn["role"] for turn in needed if turn["content"].strip() not in joined]
            if absent == ["system"]:
                is_read = joined != tokenizer.apply_chat_template(chat[1:], **options)
                absent = [] if is_read else absent
            if not absent:
                return joined
            problem = problem or f"leaves out the turn of the {absent[0]}"
        except OF_TEMPLATES as error:
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            problem = problem or f"refuses the prompt: {kind}{error}"
    has_system = turns[0]["role"] == "system"
    raise ConsilienceError(
        f"the chat template of '{name}' {problem}",
        todo="Write the system prompt into the template, before {question}." if has_system else "",
    )
