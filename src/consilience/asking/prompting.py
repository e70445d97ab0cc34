"""Prompt templates of a user, and the prompts of questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consilience.ask_questions import Presenter
from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.scoring_rules import DECISION, RULES
from consilience.files.read import read_document
from consilience.presentation import TEMPLATES, Presentation, Template
from consilience.questions import Question

AUTO = "auto"
"""The template ``chat`` for a model with a chat template, and ``plain`` for any other."""

CHAT = "chat:"
"""What a text begins with that is the user's turn of a chat."""

FIELDS = ("name", "text", "chat", "system")
"""What a file has of each template."""

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
        raise ConsilienceError(
            error.found, expected=error.expected, where=where, todo=error.todo
        ) from error


def template_names(spec: str | None) -> list[str]:
    """The names that ``--vary template=`` may have: those of ``--template``, and the built-in."""
    return list(templates_of([*([spec] if spec else []), *TEMPLATES]))


@dataclass(frozen=True, slots=True)
class Prompting:
    """How questions become prompts, and how their options are scored."""

    templates: Mapping[str, Template]
    """The templates that are used, the base template first."""
    rule_name: str = ""
    """A scoring rule; empty for ``label``, or ``sum`` where options have no labels."""
    shots: int = 0
    """How many solved questions precede each question."""
    seed: int = 0
    """Decides shuffled orders and the draws of examples."""
    labels: str = Presentation().labels
    """The style of the labels where it does not vary."""

    @classmethod
    def of(
        cls,
        template: str | None,
        factors: Sequence[Factor],
        *,
        rule_name: str = "",
        shots: int = 0,
        system: str = "",
        seed: int = 0,
        is_chat: bool = False,
    ) -> Prompting:
        """The presentation that options ask for.

        ``template``: a spec of ``template_files.templates_of``, None for ``auto``; of a file with
        several templates the first is the base. ``factors``: those that vary; the levels of
        ``template`` name templates. ``system``: the system prompt. ``is_chat``: whether the model
        has a chat template.
        """
        if rule_name == DECISION.name:
            raise unknown_name(f"no scoring rule '{rule_name}'", rule_name, RULES)
        named = templates_of([template or AUTO], is_chat=is_chat)
        known = {**TEMPLATES, **named}
        varied = {factor.name: factor.levels for factor in factors}.get("template")
        used = {name: known[name] for name in varied or list(named)[:1]}
        if not shots and any(factor.name == "examples" for factor in factors):
            raise ConsilienceError(
                "--vary examples without solved examples", todo="Add --shots 3, or leave it out."
            )
        return cls(with_system(used, system) if system else used, rule_name, shots, seed)

    @property
    def base(self) -> Presentation:
        """The presentation where no factor varies."""
        template = next(iter(self.templates.values()))
        return Presentation(template=template, labels=self.labels)

    def presenter(self, design: FactorialDesign, pool: Sequence[Question]) -> Presenter:
        """The presenter of a group; ``pool``: the questions that examples are drawn from."""
        return Presenter(
            design, self.templates, self.base, self.shots, self.seed, pool, self.rule_name
        )

    def refuse_hidden_options(self) -> None:
        """Raise for a template that does not show the options whose labels are scored."""
        for name, template in self.templates.items():
            if "{options}" not in template.text:
                raise ConsilienceError(
                    f"no {{options}} in the template '{name}'",
                    expected="{question} and {options}, because the model answers with a label",
                    todo="Add {options}, or score the texts of the options: --option-score sum.",
                )

    def record(self, design: FactorialDesign) -> dict[str, object]:
        """What decides the prompts and the scores, for the settings of a run."""
        return {
            "templates": {
                name: {"text": template.text, "chat": template.is_chat, "system": template.system}
                for name, template in self.templates.items()
            },
            "option_score": self.presenter(design, ()).rule.name,
            "shots": self.shots,
        }
