"""Questions with four options in eight variants: ours, and the ways that are in use."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import machines
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from consilience import load_suite
from consilience.asking.questions import Presenter, prompts_of
from consilience.core.errors import Loading
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Question
from consilience.core.presentation import Presentation, Prompt
from consilience.models.fast.products import CPU_TOKENS, speed_up
from consilience.models.fast.trees import Tree
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.prompted import OptionScorer
from consilience.suites.question_suites import mini_questions

MODEL = "packaged:smollm2"
OPTIONS = 4
SENTENCES = 40
"""Sentences of a context: facts of another group."""

TOKENS = CPU_TOKENS
"""Tokens in a padded batch, at least one text; what fits the cache of a core is fastest."""

GROUPS = {"label": "capital", "sum": "composer"}
"""The relation for each rule; names of composers have up to four tokens."""

ORDERS = tuple(f"rotation {at}" if at else "given" for at in range(OPTIONS))

Scores = list[np.ndarray]
"""The log-probabilities of the options of each prompt."""


@dataclass(frozen=True)
class Case:
    """Prompts and how they are scored."""

    name: str
    """Names it in the table."""
    rule: str
    """The scoring rule."""
    shots: int = 0
    """Solved examples before each question."""
    has_context: bool = False
    """Whether the questions have a context of some hundred tokens."""
    items: int = 6
    """Questions."""


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
    base = Presentation()
    presenter = Presenter(design, {}, base, case.shots, 0, pool, case.rule)
    return [prompt for _, _, prompt in prompts_of(pool[: case.items], presenter)]


def ours(model: OptionScorer, prompts: Sequence[Prompt]) -> Callable[[], Scores]:
    """Consilience."""

    def ask() -> Scores:
        totals: Scores = [np.empty(0)] * len(prompts)
        for scores in model.score(prompts):
            for row, values in zip(scores.rows, scores.totals, strict=True):
                totals[row] = values[: len(prompts[row].answers)]
        return totals

    return ask


def padded(
    plain, scorer: OptionScorer, prompts: Sequence[Prompt], *, single: bool, tokens: int = TOKENS
) -> Callable[[], Scores]:
    """Texts in padded batches, the longest first; the output embedding only where it is needed.

    ``single``: a text for each prompt, which needs options of one token; otherwise one for each
    option.
    """

    @torch.inference_mode()
    def ask() -> Scores:
        encoded = [scorer.encode(prompt) for prompt in prompts]
        scorer._encoded.clear()
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
            size = max(1, tokens // width)
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


def loaded(*, is_tiny: bool) -> Pretrained:
    """SmolLM2-135M; or a model of 2 layers of width 64 with random weights and its tokenizer."""
    real = load_pretrained(MODEL, Loading(device="cpu"))
    if not is_tiny:
        return real
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(real.tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=2048,
    )
    identity = {"model": "tiny"}
    return Pretrained("causal", LlamaForCausalLM(config).eval(), real.tokenizer, identity)


def seconds_of_work(run: Callable[[], Scores]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def tokens_of(encoded: Sequence[tuple[list[int], list[list[int]]]]) -> tuple[int, int, int]:
    """Tokens that one tree has, a text for each prompt has, and a text for each option has."""
    texts = [ids + target[:-1] for ids, targets in encoded for target in targets]
    single = sum(len(ids) for ids, _ in encoded)
    return len(Tree.of(-1, texts).ids) - 1, single, sum(map(len, texts))


def row(case: Case, scorer: OptionScorer, plain, repeats: int) -> str:
    """A row of the table, for one case; scores that differ raise."""
    prompts = prompts_of_case(case)
    encoded = [scorer.encode(prompt) for prompt in prompts]
    runs = {"ours": ours(scorer, prompts), "paired": padded(plain, scorer, prompts, single=False)}
    if all(len(target) == 1 for _, targets in encoded for target in targets):
        runs["single"] = padded(plain, scorer, prompts, single=True)
    first = {name: np.concatenate(run()) for name, run in runs.items()}
    for scores in first.values():
        np.testing.assert_allclose(scores, first["ours"], rtol=0, atol=1e-3)
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            spent[name].append(seconds_of_work(run))
    middles = {name: statistics.median(times) for name, times in spent.items()}
    for name, title in (("single", "a text for each prompt"), ("paired", "a text for each option")):
        if name in spent:
            machines.keep(f"options, {case.name}", title, spent["ours"], spent[name])
    tree, single, paired = tokens_of(encoded)
    ratios = [
        f"{middles[name]:.2f} ({middles[name] / middles['ours']:.1f}; tokens {size / tree:.1f})"
        if name in middles
        else "-"
        for name, size in (("single", single), ("paired", paired))
    ]
    mine = f"{middles['ours']:.2f} ({min(spent['ours']):.2f}-{max(spent['ours']):.2f})"
    length = single / len(prompts)
    return f"| {case.name} | {len(prompts)} of {length:.0f} | {mine} | {' | '.join(ratios)} |"


def table(repeats: int) -> Iterator[str]:
    """The rows of all cases and both models, each computed on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for is_tiny, title in ((False, "SmolLM2-135M"), (True, "2 layers of width 64")):
        scorer, plain = OptionScorer(loaded(is_tiny=is_tiny)), loaded(is_tiny=is_tiny).model.eval()
        speed_up(plain, head=True)
        for case in CASES:
            yield row(replace(case, name=f"{title}: {case.name}"), scorer, plain, repeats)
    torch.set_num_threads(threads)
