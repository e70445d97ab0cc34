"""improve and finetune: trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command
from consilience.options.training import FinetuneOptions, ImproveOptions

if TYPE_CHECKING:
    from consilience.train import improvement
else:
    improvement = Lazy("train.improvement")

# fmt: off


@command(ImproveOptions, "improve", panel="Improve", output=("details", "json"), examples=(
    "improve --model packaged:smollm2 --suite mini --train-groups capital --validation-groups "
    "currency --lambda 1 --epochs 1 --train-facts 8 --validation-facts 8 --limit 2",
    "improve --model bert-base-cased --suite pararel --train-groups P36,P138 "
    "--validation-groups P19 --seeds 42,43 --out runs/better"))
def improve(options: ImproveOptions) -> improvement.Improvement | None:
    """Train a model to give one answer to all patterns of a fact, and measure the gain.

    The loss is `vote` by default; that of the ParaRel paper is --loss pairs. Trains with each
    weight of the consistency loss, keeps the checkpoint with the best consistent accuracy on the
    validation relations, and compares the model before and after on the held-out relations. Rerun
    the same command to resume an interrupted run.
    """
    return improvement.improve(options, options.watch)


@command(FinetuneOptions, "finetune", panel="Improve", examples=(
    "finetune --model roberta-base --task rte --train hub:train --validation hub:validation "
    "--out models/rte",
    "finetune --model packaged:minilm --task mrpc --train train.tsv --validation dev.tsv "
    "--seeds 0 --limit 64 --out models/mrpc"))
def finetune(options: FinetuneOptions) -> improvement.Finetuning | None:
    """Fine-tune a classifier on the original form of sentence pairs (CALUM, Sections 4.3, 6.1).

    The best checkpoint of each seed is saved as --out/seed-N/TASK. Rerun the same command to
    resume an interrupted run.
    """
    return improvement.finetune(options, options.watch)
