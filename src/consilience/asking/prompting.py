"""Prompt templates of a user, and the prompts of questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.presentation import TEMPLATES, Template
from consilience.files.read import read_document

AUTO = "auto"  # The template ``chat`` for a model with a chat template, and ``plain`` for any other
CHAT = "chat:"  # What a text begins with that is the user's turn of a chat
FIELDS = ("name", "text", "chat", "system")  # What a file has of each template

SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def templates_of(specs: Sequence[str], *, is_chat: bool = False) -> dict[str, Template]:
    r"""Templates by name, in the order of ``specs``.

    A spec is the name of a built-in template (``plain``, ``chat``, ``auto``), a text with
    ``{question}``, or a TOML, YAML or JSON file with a list ``templates`` of name, text, chat and
    system. In a text ``\n`` is a line break; it is a chat if it begins with ``chat:``. Texts are
    named ``own``, ``own 2`` and so on. ``is_chat``: whether the model has a chat template.
    """
    templates: dict[str, Template] = {}
    for spec in specs:
        for template in _templates(spec, len(templates), is_chat=is_chat):
            known = templates.setdefault(template.name, template)
            if known != template:
                raise ConsilienceError(
                    f"two templates with the name '{template.name}'", todo="Rename one of them."
                )
    return templates


def with_system(templates: Mapping[str, Template], system: str) -> dict[str, Template]:
    """Templates whose chats have a system prompt, if they had none; without a chat it raises."""
    if not any(template.is_chat for template in templates.values()):
        raise ConsilienceError(
            "a system prompt without a chat",
            expected="a template that is a chat, and a model with a chat template",
            todo="Write the text into a template: --template 'TEXT\\n{question}\\n{options}'.",
        )
    return {
        name: replace(template, system=template.system or system) if template.is_chat else template
        for name, template in templates.items()
    }


def _templates(spec: str, known: int, *, is_chat: bool) -> Iterator[Template]:
    """The templates of a spec; ``known``: how many there are already."""
    path = Path(spec) if spec.endswith(SUFFIXES) and "{" not in spec else None
    if spec == AUTO:
        yield TEMPLATES["chat" if is_chat else "plain"]
    elif spec in TEMPLATES:
        yield TEMPLATES[spec]
    elif path is not None:
        yield from templates_of_document(read_document(path), str(path))
    elif "{" in spec:
        text = spec.removeprefix(CHAT).replace("\\n", "\n")
        name = f"own {known + 1}" if known else "own"
        yield Template(name, text, is_chat=spec.startswith(CHAT))
    else:
        names = [AUTO, *TEMPLATES]
        raise ConsilienceError(
            f"no template '{spec}'",
            expected=f"{', '.join(names)}, a text with {{question}}, or a file in "
            f"{', '.join(SUFFIXES)}",
            todo=did_you_mean(spec, names),
        )


def templates_of_document(document: Any, where: str) -> Iterator[Template]:
    """The templates of a list of mappings, or of one that is called ``templates``."""
    entries = document.get("templates") if isinstance(document, Mapping) else document
    if not isinstance(entries, list) or not entries:
        raise ConsilienceError(
            "no list of templates",
            expected="[[templates]] with name and text, and chat and system if wanted",
            where=where,
        )
    for number, entry in enumerate(entries, start=1):
        yield _template(entry, f"{where}, template {number}")


def _template(entry: Any, where: str) -> Template:
    """The template of a mapping; any other value, an unknown field or another type raises."""
    fields = entry if isinstance(entry, Mapping) else {}
    for name, kind in (("name", str), ("text", str), ("chat", bool), ("system", str)):
        value = fields.get(name, None if name in ("name", "text") else kind())
        if not isinstance(value, kind) or (name in ("name", "text") and not value):
            raise ConsilienceError(
                f"'{name}' is {value!r}" if name in fields else f"no '{name}'",
                expected="true or false" if kind is bool else f"a text in '{name}'",
                where=where,
            )
    for name in fields:
        if name not in FIELDS:
            raise ConsilienceError(
                f"the field '{name}'",
                expected=", ".join(FIELDS),
                where=where,
                todo=did_you_mean(str(name), list(FIELDS)),
            )
    try:
        return Template(
            fields["name"], fields["text"], fields.get("chat", False), fields.get("system", "")
        )
    except ConsilienceError as error:
        raise error.replaced(where=where) from error
