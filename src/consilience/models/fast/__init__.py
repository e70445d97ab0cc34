"""Optimisations: the same scores in less time. A reader who wants to follow a score may skip them.

Without this package every family would call the transformers model on one sentence after another
and read the logits. A model family uses:

- ``speed_up(model)``: linear layers multiply with the faster of torch's two libraries;
  ``speed_up_training``: the same for products with gradients.
- ``reproducibly()``: inside, products are torch's own and on one thread; near ties are decided so.
- ``AtMask``: the head of a masked model at the mask only.
- ``tree_scorer``: the log-probabilities of sentences under a causal model; beginnings that
  sentences share are read once.
- ``search``: the best candidate, without finishing candidates that cannot win.
- ``Prompts``: prompts that are read once and continued several times.

Whatever replaces part of a model is checked against the plain model when it is loaded, and left out
where the logits differ (docs/decisions/0008).
"""

from consilience.models.fast.at_mask import AtMask, HeadRows
from consilience.models.fast.products import (
    Library,
    Products,
    processor,
    reproducibly,
    speed_up,
    speed_up_training,
)
from consilience.models.fast.tree import PartialScores, Tree, search
from consilience.models.fast.tree_reader import Prompts, TreeScorer, room_for_tokens, tree_scorer

__all__ = [
    "AtMask",
    "HeadRows",
    "Library",
    "PartialScores",
    "Products",
    "Prompts",
    "Tree",
    "TreeScorer",
    "processor",
    "reproducibly",
    "room_for_tokens",
    "search",
    "speed_up",
    "speed_up_training",
    "tree_scorer",
]
