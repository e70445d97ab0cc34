"""Optimisations: the same scores in less time. A reader who wants to follow a score may skip them.

Without this package every family would call the transformers model on one sentence after another
and read the logits. A model family uses:

- ``speed_up(model)``: linear layers multiply with the faster of torch's two libraries.
- ``reproducibly()``: inside, products are torch's own and on one thread; near ties are decided so.
- ``tree_scorer``: the log-probabilities of sentences under a causal model; beginnings that
  sentences share are read once.
- ``search``: the best candidate, without finishing candidates that cannot win.
- ``Prompts``: prompts that are read once and continued several times.

Whatever replaces part of a model is checked against the plain model when it is loaded, and left out
where the logits differ (docs/decisions/0008).
"""
