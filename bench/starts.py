"""Seconds from the command to the end of a run of a few questions, and those of a bare script."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import questions

BARE = """
import os, sys
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
auto = AutoModelForCausalLM if sys.argv[1] == "causal" else AutoModelForMaskedLM
model = auto.from_pretrained(sys.argv[2]).eval()
with torch.inference_mode():
    model(**tokenizer("The capital of France is Paris.", return_tensors="pt"))
os._exit(0)
"""
"""Imports, loading and one pass, by torch and transformers alone."""

PROBE = ["-m", "consilience", "probe", "--suite", "mini", "--groups", "capital", "--limit", "1"]
"""Nine questions."""


def seconds(arguments: list[str], cache: Path) -> tuple[float, float]:
    """Of a process of its own: on the clock, and of the processor."""
    start, before = time.perf_counter(), os.times()
    environment = os.environ | {"CONSILIENCE_CACHE": str(cache)}
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    end, after = time.perf_counter(), os.times()
    spent = after.children_user + after.children_system
    return end - start, spent - before.children_user - before.children_system


def table(repeats: int) -> list[str]:
    """The rows of the page; later runs and the bare script are run in turn.

    The bare script reads the weights of a GGUF file from where the first run expanded them to.
    """
    models = {"causal": ("SmolLM2-135M, a GGUF file", "packaged:smollm2")}
    folder = questions.shared() / "models" / "minilm-mlm"
    if folder.is_dir():
        models["masked"] = ("MiniLM, a masked model", str(folder))
    rows = []
    for kind, (title, model) in models.items():
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)

            def ask(model=model, place=place) -> tuple[float, float]:
                shutil.rmtree(place / "run", ignore_errors=True)
                arguments = [*PROBE, "--model", model, "--out", str(place / "run")]
                return seconds(arguments, place / "cache")

            first = ask()
            plain = next((place / "cache").glob("weights-*/"), Path(model))
            bare_arguments = ["-c", BARE, kind, str(plain)]
            pairs = [(ask(), seconds(bare_arguments, place / "cache")) for _ in range(repeats)]
        rows.append(f"| {title} | {first[0]:.1f} ({first[1]:.1f}) | {_columns(pairs)} |")
    return rows


def _columns(pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """Medians of the later runs, of the bare script, and of the ratio of each pair."""
    shown = []
    for of in (lambda later, _: later, lambda _, bare: bare):
        clock, spent = (statistics.median(of(*pair)[at] for pair in pairs) for at in (0, 1))
        shown.append(f"{clock:.1f} ({spent:.1f})")
    for at in (0, 1):
        ratios = sorted(later[at] / bare[at] for later, bare in pairs)
        shown.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
    return " | ".join(shown)
