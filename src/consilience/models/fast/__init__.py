"""Optimisations: the same scores in less time. A reader who wants to follow a score may skip them.

Without this package every family would call the transformers model on one sentence after another
and read the logits. A model family uses:

- ``speed_up(model)``: the model's linear layers compute their products with the faster of torch's
  two libraries (``libraries.py`` measures, ``onednn.py`` replaces). ``speed_up_training`` does the
  same for products with gradients.
- ``reproducibly()``: inside, products are torch's own and on one thread; near ties are decided so.
- ``AtMask``: the logits of a masked model at the mask, without computing other positions.
- ``tree_scorer``: the log-probabilities of sentences under a causal model; beginnings that
  sentences share are read once.
- ``Decoding``: the same for candidates in the decoder of a sequence-to-sequence model.
- ``search``: the best candidate, without finishing candidates that cannot win.
- ``Prompts``: prompts that are read once and continued several times.
- ``ScreenedModel``: ``--fast``; answers screened in bfloat16 and settled in float32.

Whatever replaces part of a model is checked against the plain model when it is loaded, and left out
where the logits differ (docs/decisions/0008).
"""

from consilience.models.fast.at_mask import AtMask, HeadRows
from consilience.models.fast.bfloat16 import measured_screen
from consilience.models.fast.decoding import Decoding
from consilience.models.fast.libraries import Library, Products
from consilience.models.fast.onednn import reproducibly, speed_up
from consilience.models.fast.onednn_training import speed_up_training
from consilience.models.fast.prompts import Prompts
from consilience.models.fast.screening import ScreenedModel, check_speedup
from consilience.models.fast.search import PartialScores, search
from consilience.models.fast.tree import Tree
from consilience.models.fast.tree_reader import TreeScorer, room_for_tokens, tree_scorer

__all__ = [
    "AtMask",
    "Decoding",
    "HeadRows",
    "Library",
    "PartialScores",
    "Products",
    "Prompts",
    "ScreenedModel",
    "Tree",
    "TreeScorer",
    "check_speedup",
    "measured_screen",
    "reproducibly",
    "room_for_tokens",
    "search",
    "speed_up",
    "speed_up_training",
    "tree_scorer",
]
