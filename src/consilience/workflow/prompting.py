"""How the questions of a run are presented and scored: templates, solved examples and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consilience.ask_questions import Presenter
from consilience.errors import ConsilienceError, unknown_name
from consilience.factors import Factor, FactorialDesign
from consilience.presentation import TEMPLATES, Presentation, Template
from consilience.questions import Question
from consilience.scoring_rules import DECISION, RULES
from consilience.template_files import AUTO, templates_of, with_system


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
