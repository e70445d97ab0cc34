"""Prompts that a causal model reads once, for all answers that are scored or written after them.

Prompts are read as one tree, so that equal beginnings are read once, and their keys and values are
stored. Then all are continued in parallel, whatever their lengths: by the tokens of an answer, to
score it, or by the model's best token, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.models.batches import Budget, in_parts
from consilience.models.fast.tree import Tree
from consilience.models.fast.tree_attention import KeyValueStore
from consilience.models.fast.tree_reader import HEAD_ROWS, Head
from consilience.models.forward import Floats, Ints
from consilience.models.steering import TokenNoise


class Prompts:
    """Prompts that have been read, and the tokens of the answers that are scored after them."""

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        head: Head,
        prompts: Sequence[Sequence[int]],
        targets: Sequence[Sequence[Sequence[int]]],
        budget: Budget,
        longest: int,
    ) -> None:
        """``targets``: the answers of each prompt; ``longest``: tokens that are written, at most.

        An answer's last token is not read: nothing is asked of it.
        """
        self._head, self._budget = head, budget
        texts = [*prompts]
        self._steps: list[tuple[int, int, int, int]] = []
        """Of each token of the answers: its text, its position there, its answer, and itself."""
        self._sizes = [len(of_prompt) for of_prompt in targets]
        answer = 0
        for row, (prompt, of_prompt) in enumerate(zip(prompts, targets, strict=True)):
            for target in of_prompt:
                text = row if len(target) < 2 else len(texts)
                if len(target) > 1:
                    texts.append([*prompt, *target[:-1]])
                last = len(prompt) - 1
                self._steps += [(text, last + at, answer, id_) for at, id_ in enumerate(target)]
                answer += 1
        # The root is no token: prompts need not begin with the same one.
        tree = Tree.of(-1, texts)
        size = len(tree.ids) - 1
        self._stored = KeyValueStore(model, size + len(prompts) * longest)
        self._nodes = tree.nodes
        ends = tree.nodes[np.arange(len(prompts)), tree.lengths[: len(prompts)] - 1]
        needed = np.zeros(len(tree.ids), dtype=np.bool_)
        needed[ends] = True
        if self._steps:
            rows, columns, _, _ = np.array(self._steps).T
            needed[tree.nodes[rows, columns]] = True
        self._row = np.cumsum(needed) - 1
        """(node,) The row of ``_hidden`` for a node that is needed."""
        hidden = []

        def read(nodes: Ints) -> None:
            slots = tree.paths(nodes)[:, 1:] - 1  # nodes are read in their order
            states = self._stored.read(tree.ids[nodes], tree.depths[nodes] - 1, slots)
            hidden.append(states[torch.from_numpy(needed[nodes]).to(states.device)])

        in_parts(read, np.arange(1, size + 1), 1, budget)
        self._hidden = torch.cat(hidden)
        self._paths = tree.paths(ends)[:, 1:] - 1
        self._paths[self._paths < 0] = -1
        self._ends = self._row[ends]

    @torch.inference_mode()
    def totals(self) -> list[Floats]:
        """For each prompt the log-probability (answer,) of the tokens of its answers, in nats."""
        totals = np.zeros(sum(self._sizes))
        if self._steps:
            texts, columns, answers, ids = np.array(self._steps).T
            rows = self._row[self._nodes[texts, columns]]
            for start in range(0, len(self._hidden), HEAD_ROWS):
                inside = np.flatnonzero((rows >= start) & (rows < start + HEAD_ROWS))
                if len(inside):
                    logits = self._head(self._hidden[start : start + HEAD_ROWS]).double()
                    row, token = rows[inside] - start, ids[inside]
                    steps = logits[row, token] - torch.logsumexp(logits, dim=-1)[row]
                    np.add.at(totals, answers[inside], steps.cpu().numpy())
        return np.split(totals, np.cumsum(self._sizes)[:-1])

    def write(
        self,
        most: int,
        is_complete: Callable[[int, list[int]], bool],
        alone: Callable[[int, list[int]], int],
        near: float,
        noises: Sequence[TokenNoise | None],
    ) -> list[list[int]]:
        """The best token after each prompt, again and again, at most ``most`` tokens.

        The best token has the largest sum of logit and noise (``noises``, for each prompt; None for
        none: the most probable token). ``is_complete(prompt, written)``: whether nothing follows.
        ``alone(prompt, written)``: the best token in a pass of its own, for steps whose best two
        tokens are closer than ``near`` nats.
        """
        written: list[list[int]] = [[] for _ in self._paths]
        rows, paths, hidden = np.arange(len(written)), self._paths, self._hidden[self._ends]
        used = self._stored.used
        for number in range(most):
            tokens, margins = self._best(hidden, [noises[row] for row in rows.tolist()], number)
            for at in np.flatnonzero(margins < near):
                tokens[at] = alone(int(rows[at]), written[rows[at]])
            for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                written[row].append(token)
            continues = np.array([not is_complete(row, written[row]) for row in rows.tolist()])
            if number + 1 == most or not continues.any():
                break
            rows = rows[continues]
            paths, later = self._read(paths[continues], tokens[continues, None])
            hidden = later[:, -1]
        self._stored.used = used
        return written

    @torch.inference_mode()
    def _read(self, paths: Ints, tokens: Ints) -> tuple[Ints, torch.Tensor]:
        """Read ``tokens`` (row, step) after ``paths`` (row, position).

        ``paths``: the slots of what precedes, -1 for none. Returns the longer paths and the hidden
        states (row, step, width).
        """
        count, steps = tokens.shape
        slots = self._stored.used + np.arange(tokens.size).reshape(tokens.shape)
        longer = np.concatenate([paths, slots], axis=1)
        hidden = []

        def read(rows: Ints) -> None:
            slots = self._stored.used + np.arange(len(rows) * steps).reshape(len(rows), steps)
            longer[rows, paths.shape[1] :] = slots
            visible = np.repeat(longer[rows], steps, axis=0)
            later = np.arange(steps) > np.arange(steps)[:, None]  # a token sees preceding ones
            visible[:, paths.shape[1] :][np.tile(later, (len(rows), 1))] = -1
            depths = (paths[rows] >= 0).sum(axis=1)[:, None] + np.arange(steps)
            states = self._stored.read(tokens[rows].ravel(), depths.ravel(), visible, block=steps)
            hidden.append(states.reshape(len(rows), steps, -1))

        in_parts(read, np.arange(count), steps, self._budget)
        return longer, torch.cat(hidden)

    @torch.inference_mode()
    def _best(
        self, hidden: torch.Tensor, noises: Sequence[TokenNoise | None], step: int
    ) -> tuple[Ints, Floats]:
        """The next token and its distance in nats from the second: (row,)."""
        tokens, margins = [], []
        for start, rows in zip(
            range(0, len(hidden), HEAD_ROWS), hidden.split(HEAD_ROWS), strict=True
        ):
            logits = self._head(rows).float()
            for at, noise in enumerate(noises[start : start + HEAD_ROWS]):
                if noise is not None:
                    logits[at] = noise.added_to(logits[at], step)
            best = logits.topk(2, dim=-1)
            tokens.append(best.indices[:, 0].cpu().numpy())
            margins.append((best.values[:, 0] - best.values[:, 1]).double().cpu().numpy())
        return np.concatenate(tokens), np.concatenate(margins)
