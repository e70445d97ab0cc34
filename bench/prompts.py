"""Questions with four options in eight variants: ours, and the ways that are in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from contenders import in_turn

from consilience import load_suite
from consilience.core.errors import Loading
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Prompt, Question
from consilience.models.batches import CPU_TOKENS
from consilience.models.loading import load_pretrained
from consilience.models.prompted import PromptModel
from consilience.plans.presentation import Presentation, PromptBuilder
from consilience.plans.questions import prompts_of
from consilience.suites.question_suites import mini_questions

MODEL = "packaged:smollm2"
SENTENCES = 40  # Of a context: facts of another group

GROUPS = {"label": "capital", "sum": "composer"}  # By rule; composers have up to four tokens

ORDERS = ("ABCD", "BCDA", "CDAB", "DABC")

Scores = list[Any]  # The log-probabilities of the options of each prompt


@dataclass(frozen=True)
class Case:
    """Prompts and how they are scored."""

    name: str  # In the table
    rule: str  # The scoring rule
    shots: int = 0  # Solved examples before each question
    has_context: bool = False  # Whether the questions have a context of some hundred tokens
    items: int = 6  # Questions


CASES = (
    Case("label, short prompts", "label"),
    Case("label, a context", "label", has_context=True, items=2),
    Case("label, 5 examples", "label", shots=5, items=4),
    Case("text, short prompts", "sum"),
    Case("text, a context", "sum", has_context=True, items=2),
    Case("text, 5 examples", "sum", shots=5, items=4),
)


def questions_of(case: Case) -> list[Question]:
    """Facts of one relation of ``mini`` with four options each."""
    suite = load_suite("mini")
    lines = [
        " ".join(
            group.patterns[0].fill(fact.subject, fact.object)
            for fact in group.facts[at:][:SENTENCES]
        )
        for at, group in zip(range(0, 100, 10), suite.relations[1:], strict=False)
    ]
    group = mini_questions().groups[GROUPS[case.rule]]
    few = []
    for at, question in enumerate(group):
        wrong = [option for option in question.options if option != question.gold]
        options = tuple(option for option in question.options if option != wrong[0])
        context = lines[at % len(lines)] if case.has_context else ""
        few.append(replace(question, options=options, context=context))
    return few


def prompts_of_case(case: Case) -> list[Prompt]:
    """Eight prompts of each question: two phrasings in four orders of the options."""
    design = FactorialDesign.full([Factor("paraphrase", ("1", "2")), Factor("order", ORDERS)])
    pool = questions_of(case)
    base = Presentation(shots=case.shots, rule_name=case.rule)
    prompt_builder = PromptBuilder(design, {}, base, pool={pool[0].group: pool})
    return [prompt for _, _, prompt in prompts_of(pool[: case.items], prompt_builder)]


def ours(model: PromptModel, prompts: Sequence[Prompt]) -> Callable[[], Scores]:
    """Consilience."""

    def ask() -> Scores:
        totals: Scores = [np.empty(0)] * len(prompts)
        for scores in model.score(prompts):
            for row, values in zip(scores.rows, np.asarray(scores.totals), strict=True):
                totals[row] = values[: len(prompts[row].answers)]
        return totals

    return ask


def padded(
    plain: Any, scorer: PromptModel, prompts: Sequence[Prompt], *, single: bool
) -> Callable[[], Scores]:
    """Texts in padded batches, the longest first; the output embedding only where it is needed.

    ``single``: a text for each prompt, which needs options of one token; otherwise one for each
    option.
    """

    @torch.inference_mode()
    def ask() -> Scores:
        encoded = [scorer.encode(prompt) for prompt in prompts]
        texts = [
            (row, column, ids + target[:-1], len(target))
            for row, (ids, targets) in enumerate(encoded)
            for column, target in enumerate(targets)
            if not single or column == 0
        ]
        texts.sort(key=lambda text: -len(text[2]))
        totals = [np.zeros(len(targets)) for _, targets in encoded]
        while texts:
            width = len(texts[0][2])
            size = max(1, CPU_TOKENS // width)  # what fits a core's cache is fastest
            part, texts = texts[:size], texts[size:]
            last = max(text[3] for text in part)
            rows = [[0] * (width - len(text[2])) + text[2] for text in part]
            ids = torch.tensor(rows, device=plain.device)
            lengths = torch.tensor([len(text[2]) for text in part], device=plain.device)
            mask = torch.arange(width, device=plain.device) >= width - lengths[:, None]
            logits = plain(
                input_ids=ids,
                attention_mask=mask.long(),
                position_ids=(mask.long().cumsum(1) - 1).clamp(min=0),
                use_cache=False,
                logits_to_keep=last,
            ).logits
            steps = logits.double().log_softmax(-1).cpu().numpy()
            for of_text, (row, column, _, count) in zip(steps, part, strict=True):
                targets = encoded[row][1]
                if single:
                    totals[row] = of_text[-1, [target[0] for target in targets]]
                else:
                    ends = of_text[len(of_text) - count :]
                    totals[row][column] = ends[np.arange(count), targets[column]].sum()
        return totals

    return ask


def row(case: Case, scorer: PromptModel, plain: Any, rounds: int) -> str:
    """A row of the table, for one case; scores that differ raise."""
    prompts = prompts_of_case(case)
    encoded = [scorer.encode(prompt) for prompt in prompts]
    runs = {"consilience": ours(scorer, prompts)}
    runs["a text for each option"] = padded(plain, scorer, prompts, single=False)
    if all(len(target) == 1 for _, targets in encoded for target in targets):
        runs["a text for each prompt"] = padded(plain, scorer, prompts, single=True)
    first = {name: np.concatenate(run()) for name, run in runs.items()}
    for scores in first.values():
        np.testing.assert_allclose(scores, first["consilience"], rtol=0, atol=1e-3)
    middles = in_turn(runs, rounds, time.process_time)
    base = middles["consilience"]
    parts = [f"{name} {each:.2f} ({each / base:.1f})" for name, each in middles.items()]
    return f"  {case.name}, {len(prompts)} prompts: {'; '.join(parts)}"


def table(rounds: int) -> Iterator[str]:
    """The rows of all cases, each computed on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    real = load_pretrained(MODEL, Loading(device="cpu"))
    plain = load_pretrained(MODEL, Loading(device="cpu")).model.eval()
    scorer = PromptModel(real)
    for case in CASES:
        yield row(case, scorer, plain, rounds)
    torch.set_num_threads(threads)
