"""Prompts that a causal model reads once, for all answers that are scored or written behind them.

Prompts are read as one tree (``tree.py``), so that equal beginnings are read once, and their keys
and values are kept. Then they are continued side by side, however long each is: by the tokens of an
answer, to score it, or by the model's own likeliest token, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from consilience.models.batches import Budget, halving
from consilience.models.planted import Head
from consilience.models.tree import HEAD_ROWS, Ints, Kept, Tree

Floats = npt.NDArray[np.float64]


class Prompts:
    """Prompts that have been read, the last token of each included.

    ``longest``: tokens that a prompt is continued by, at most.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        head: Head,
        prompts: Sequence[Sequence[int]],
        budget: Budget,
        longest: int,
    ) -> None:
        self._head, self._budget = head, budget
        # The root is no token: prompts need not begin with the same one.
        tree = Tree.of(-1, [prompt[:-1] for prompt in prompts])
        size = len(tree.ids) - 1
        self._kept = Kept(model, size + len(prompts) * (1 + longest))

        def read(nodes: Ints) -> None:
            places = tree.paths(nodes)[:, 1:] - 1  # a node is read in its turn
            self._kept.read(tree.ids[nodes], tree.depths[nodes] - 1, places)

        start = 1
        while start <= size:
            part = np.arange(start, min(start + budget.tokens, size + 1))
            halving(read, part, 1, budget)
            start += len(part)
        inside = np.arange(tree.nodes.shape[1]) < tree.lengths[:, None]
        self._beginnings = np.where(inside, tree.nodes - 1, -1)
        self._last = np.array([prompt[-1] for prompt in prompts])
        self._paths, self._hidden = self._read(self._beginnings, self._last[:, None])

    def score(self, targets: Sequence[Sequence[int]]) -> Floats:
        """Log-probability (prompt, target) of the tokens of each target behind each prompt."""
        totals = np.zeros((len(self._paths), len(targets)))
        first = np.array([target[0] for target in targets])
        totals += self._log_probabilities(self._hidden[:, -1], first)
        for at, target in enumerate(targets):
            if len(target) < 2:
                continue
            used = self._kept.used
            tokens = np.tile(np.array(target[:-1]), (len(self._paths), 1))
            _, hidden = self._read(self._paths, tokens)
            for step, token in enumerate(target[1:]):
                totals[:, at] += self._log_probabilities(hidden[:, step], np.array([token]))[:, 0]
            self._kept.used = used
        return totals

    def write(
        self, most: int, ends: Collection[int], alone: Callable[[int, list[int]], int], near: float
    ) -> list[list[int]]:
        """The likeliest token behind each prompt, again and again: up to an end or ``most`` tokens.

        ``alone``: the likeliest one behind a prompt (its number) and what is written there, for
        where the best two are closer than ``near`` nats.
        """
        written: list[list[int]] = [[] for _ in self._paths]
        rows, paths, hidden = np.arange(len(written)), self._paths, self._hidden[:, -1]
        used = self._kept.used
        for number in range(most):
            tokens, margins = self._likeliest(hidden)
            for at in np.flatnonzero(margins < near):
                tokens[at] = alone(int(rows[at]), written[rows[at]])
            for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                written[row].append(token)
            goes_on = ~np.isin(tokens, list(ends))
            if number + 1 == most or not goes_on.any():
                break
            rows = rows[goes_on]
            paths, later = self._read(paths[goes_on], tokens[goes_on, None])
            hidden = later[:, -1]
        self._kept.used = used
        return written

    @torch.inference_mode()
    def _read(self, paths: Ints, tokens: Ints) -> tuple[Ints, torch.Tensor]:
        """Read tokens (row, step) behind ``paths`` (row, position): their paths, and hidden states.

        ``paths``: the places of what was read of each row, -1 for none. Hidden states: (row, step,
        width).
        """
        count, steps = tokens.shape
        at = self._kept.used + np.arange(tokens.size).reshape(tokens.shape)
        longer = np.concatenate([paths, at], axis=1)
        hidden = []

        def read(rows: Ints) -> None:
            at = self._kept.used + np.arange(len(rows) * steps).reshape(len(rows), steps)
            longer[rows, paths.shape[1] :] = at
            places = np.repeat(longer[rows], steps, axis=0)
            later = np.arange(steps) > np.arange(steps)[:, None]  # a token sees those before it
            places[:, paths.shape[1] :][np.tile(later, (len(rows), 1))] = -1
            depths = (paths[rows] >= 0).sum(axis=1)[:, None] + np.arange(steps)
            found = self._kept.read(tokens[rows].ravel(), depths.ravel(), places, together=steps)
            hidden.append(found.reshape(len(rows), steps, -1))

        rows_at_once = max(1, self._budget.tokens // steps)
        for start in range(0, count, rows_at_once):
            rows = np.arange(start, min(start + rows_at_once, count))
            halving(read, rows, steps, self._budget)
        return longer, torch.cat(hidden)

    @torch.inference_mode()
    def _log_probabilities(self, hidden: torch.Tensor, tokens: Ints) -> Floats:
        """Log-probability (row, token) of some tokens, each behind ``hidden`` (row, width)."""
        found = []
        columns = torch.from_numpy(tokens).to(hidden.device)
        for part in hidden.split(HEAD_ROWS):
            logits = self._head(part)
            whole = torch.logsumexp(logits.double(), dim=-1, keepdim=True)
            found.append((logits[:, columns].double() - whole).cpu().numpy())
        return np.concatenate(found)

    @torch.inference_mode()
    def _likeliest(self, hidden: torch.Tensor) -> tuple[Ints, Floats]:
        """The likeliest token next, and its distance in nats from the second: (row,)."""
        tokens, margins = [], []
        for part in hidden.split(HEAD_ROWS):
            best = self._head(part).float().topk(2, dim=-1)
            tokens.append(best.indices[:, 0].cpu().numpy())
            margins.append((best.values[:, 0] - best.values[:, 1]).double().cpu().numpy())
        return np.concatenate(tokens), np.concatenate(margins)
