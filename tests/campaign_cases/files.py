"""The files that the campaign damages: bundled ones, runs, and tiny models."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

from campaign_cases.child import command

DATA = Path(__file__).parents[1] / "data" / "campaign"
"""A suite, LAMA's layout, a graph, a task, its pairs, annotated sheets and typed tables."""


def prepare(base: Path) -> str:
    """Write the files that the cases damage."""
    shutil.copytree(DATA, base)
    suite = base / "suite"
    command("probe", "--model", "baseline:majority", "--suite", suite, "--out", base / "run")
    import polars as pl

    from consilience.run import read_answers

    answers = read_answers(base / "run")
    answers.write_parquet(base / "answers.parquet")
    answers.write_csv(base / "answers.csv")
    (base / "answers.csv.gz").write_bytes(gzip.compress((base / "answers.csv").read_bytes()))
    pairs = [json.loads(line) for line in (base / "pairs.jsonl").read_text().splitlines()]
    pl.DataFrame(pairs).write_parquet(base / "pairs.parquet")
    command("probe", "--model", "baseline:random", "--suite", suite, "--out", base / "random")
    _prepare_models(base)
    return "prepared"


def _prepare_models(base: Path) -> None:
    """Tiny models of every kind that is read, runs and records of them."""
    from conftest import build_model
    from pair_builders import save_classifier
    from test_gguf import write_gguf

    os.environ["CONSILIENCE_CACHE"] = str(base / "cache")
    build_model("bert", base / "masked")
    build_model("gpt2", base / "causal")
    for seed in (0, 1):
        save_classifier(base / "seeds" / f"seed-{seed}" / "mrpc", seed=seed)
    shutil.copytree(base / "seeds" / "seed-0" / "mrpc", base / "classifier")
    command("probe", "--model", base / "seeds", "--suite", "mrpc", "--data", base / "pairs.jsonl",
            "--out", base / "perturbed")  # fmt: skip
    write_gguf(base / "tiny.gguf", base / "causal")
    probe_gguf(base, base / "gguf")
    finetune_tiny(base / "trained", base)


def probe_gguf(base: Path, place: Path) -> str:
    return command("probe", "--model", base / "tiny.gguf", "--suite", base / "suite", "--groups",
                   "capital", "--limit", 2, "--out", place)  # fmt: skip


def finetune_tiny(place: Path, base: Path) -> str:
    return command("finetune", "--model", base / "masked", "--task", "mrpc", "--train",
                   base / "train.jsonl", "--validation", base / "train.jsonl", "--epochs", 4,
                   "--batch-size", 4, "--learning-rate", "1e-3", "--seeds", 0,
                   "--out", place)  # fmt: skip
