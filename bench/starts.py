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


def seconds(arguments: list[str], cache: Path) -> float:
    """Of a process of its own."""
    start = time.perf_counter()
    environment = os.environ | {"CONSILIENCE_CACHE": str(cache)}
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def measured(repeats: int) -> dict[str, tuple[float, list[float], list[float]]]:
    """Of each model: seconds of the first run, of later ones, and of a bare script.

    The bare script reads the weights of a GGUF file from where the first run expanded them to.
    """
    models = {"causal": ("SmolLM2-135M, a GGUF file", "packaged:smollm2")}
    folder = questions.shared() / "models" / "minilm-mlm"
    if folder.is_dir():
        models["masked"] = ("MiniLM, a masked model", str(folder))
    found = {}
    for kind, (title, model) in models.items():
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            probe = [*PROBE, "--model", model, "--out", str(place / "run")]

            def ask(probe=probe, place=place) -> float:
                shutil.rmtree(place / "run", ignore_errors=True)
                return seconds(probe, place / "cache")

            first = ask()
            plain = next((place / "cache").glob("weights-*/"), Path(model))
            later, bare = [], []
            for _ in range(repeats):
                later.append(ask())
                bare.append(seconds(["-c", BARE, kind, str(plain)], place / "cache"))
            found[title] = first, later, bare
    return found


def table(repeats: int) -> list[str]:
    """The rows of the page."""
    rows = []
    for title, (first, later, bare) in measured(repeats).items():
        middles = [statistics.median(each) for each in (later, bare)]
        rows.append(
            f"| {title} | {first:.1f} | {middles[0]:.1f} ({min(later):.1f}-{max(later):.1f}) | "
            f"{middles[1]:.1f} ({min(bare):.1f}-{max(bare):.1f}) |"
        )
    return rows
