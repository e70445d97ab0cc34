"""What large runs cost: seconds and memory at four sizes each, and how fast they grow.

``python bench load`` takes a few minutes. With ``CONSILIENCE_LOAD=full`` it measures up to ten
million answers, 5,000 patterns of a relation, 50,000 candidates and prompts of 10,000 tokens.
Answers are made up, group by group (``counting``). Every measurement is a process of its own.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from counting import BEFORE, ROOT, Cost, Shape, commands, cost, write_run, write_suite
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from consilience import load_suite

QUICK = 10
"""The full sizes are divided by this where a few minutes must suffice."""

SHAPES = {
    "answers": [Shape(40, facts, 20, 100) for facts in (1_560, 3_125, 6_250, 12_500)],
    "patterns of a relation": [Shape(1, 20, size, 10) for size in (640, 1_250, 2_500, 5_000)],
    "candidates of a relation": [
        Shape(1, size, 4, size) for size in (6_250, 12_500, 25_000, 50_000)
    ],
}
"""Suites that are made up, by what grows."""


LENGTHS = (1_250, 2_500, 5_000, 10_000)
"""Tokens of a prompt."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one command took at one size."""

    grows: str
    """What grows."""
    size: int
    """How much of it there is."""
    command: str
    """What was run."""
    now: Cost
    """What it took."""
    before: Cost | None = None
    """What it took at the revision ``CONSILIENCE_BEFORE``."""


def smaller(shape: Shape, grows: str) -> Shape:
    """A shape for a few minutes."""
    if grows == "patterns of a relation":
        return Shape(1, shape.facts, shape.patterns // QUICK, shape.objects)
    facts = shape.facts // QUICK
    return Shape(shape.relations, facts, shape.patterns, min(shape.objects, facts))


def size_of(shape: Shape, grows: str) -> int:
    """How much there is of what grows."""
    sizes = {"answers": shape.rows, "patterns of a relation": shape.patterns}
    return sizes.get(grows, shape.objects)


def counted(grows: str, shape: Shape) -> Iterator[Row]:
    """``score``, ``compare`` and ``report`` of runs of a shape; of candidates ``probe`` too."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        suite = folder / "suite"
        write_suite(suite, shape)
        loaded = load_suite(str(suite))
        runs = [folder / f"run{seed}" for seed in range(2)]
        for seed, run in enumerate(runs):
            write_run(run, loaded, seed)
        del loaded
        timed = dict(commands(suite, runs))
        if grows == "candidates of a relation":
            model = ["--model", "baseline:random", "--limit", "200"]
            timed["probe"] = ["probe", *model, "--suite", suite, "--out", folder / "probed"]
        for name, arguments in timed.items():
            before = cost(arguments, Path(BEFORE), folder) if BEFORE else None
            now = cost(arguments, ROOT, folder)
            yield Row(grows, size_of(shape, grows), name, now, before)


def save_reader(folder: Path) -> None:
    """A causal model that reads 16,384 tokens: 4 layers of width 256, random; a word is a token."""
    words = ["<unk>", "</s>", *(f"word{number}" for number in range(1_000)), *"ABCD.:?"]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=1 << 14,
        bos_token_id=None,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def probed(lengths: Sequence[int]) -> Iterator[Row]:
    """``probe`` of two questions with four options in four orders, at each length."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_reader(folder / "model")
        for length in lengths:
            lines = ["item,question,options,answer"]
            for item in range(2):
                text = " ".join(f"word{(at * 7 + item) % 1_000}" for at in range(length - 20))
                lines.append(f"q{item},{text}?,word1;word2;word3;word4,word1")
            suite = folder / f"long{length}.csv"
            suite.write_text("\n".join(lines) + "\n", encoding="utf-8")
            out = ["--out", folder / f"run{length}", "--vary", "order=rotations"]
            now = cost(["probe", "--model", folder / "model", "--suite", suite, *out], ROOT, folder)
            yield Row("tokens of a prompt", length, "probe", now)


def exponents(rows: Sequence[Row]) -> Iterator[tuple[Row, float, float]]:
    """Each row with the growth exponents of seconds and memory since the size before; NaN first.

    The start of Python and its libraries is in all sizes, so exponents of small sizes are low.
    """
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        other = last.get((row.grows, row.command))
        last[row.grows, row.command] = row
        if other is None or other.now.stopped or row.now.stopped:
            yield row, math.nan, math.nan
            continue
        growth = math.log(row.size / other.size)
        seconds, mib = (
            math.log(new / old) / growth
            for new, old in (
                (row.now.seconds, other.now.seconds),
                (row.now.mib, other.now.mib),
            )
        )
        yield row, seconds, mib


def table() -> Iterator[str]:
    """The lines of the table of all sizes."""
    yield "| what grows | size | command | before | now | exponent of seconds | of memory |"
    yield "|---|---|---|---|---|---|---|"
    is_full = os.environ.get("CONSILIENCE_LOAD") == "full"
    for grows, shapes in SHAPES.items():
        chosen = [shape if is_full else smaller(shape, grows) for shape in shapes]
        yield from lines_of([row for shape in chosen for row in counted(grows, shape)])
    yield from lines_of(list(probed(LENGTHS if is_full else [size // QUICK for size in LENGTHS])))


def lines_of(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of the table."""
    for row, seconds, mib in exponents(rows):
        cells = [row.grows, f"{row.size:,}", row.command, _cell(row.before), _cell(row.now)]
        cells += ["-" if math.isnan(value) else f"{value:.2f}" for value in (seconds, mib)]
        yield "| " + " | ".join(cells) + " |"


def _cell(taken: Cost | None) -> str:
    """Seconds and memory, or that a command was stopped."""
    if taken is None:
        return "-"
    return f"{'more than ' * taken.stopped}{taken.seconds:.1f} s, {taken.mib:,.0f} MiB"
