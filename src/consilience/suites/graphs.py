"""ParaRel's ``.graph`` files: pickles, read as data.

Each is a pickled ``networkx.DiGraph`` whose nodes are patterns. Reading a pickle the usual way can
run anything. Here every global is looked up in a table of four names and replaced by an inert class
of ours; any other name is refused before it is imported, so nothing of the file is ever executed.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.types import Edge


class _Record:
    """An object of the file: takes whatever attributes the pickle gives it, and does nothing."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Node(_Record):
    """A pattern node, equal and hashed by identity: the file refers to each node by reference."""


_STAND_INS: dict[tuple[str, str], type] = {
    ("networkx.classes.digraph", "DiGraph"): _Record,
    ("builtins", "dict"): dict,
    ("pararel.patterns.graph_types", "PatternNode"): _Node,
    ("pararel.patterns.graph_types", "EdgeType"): _Record,
}


class _GraphUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names '{module}.{name}'") from None

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def read_graph(path: Path) -> tuple[list[str], dict[tuple[int, int], Edge]]:
    """The patterns of a graph in the order of its nodes, and its edges ``(i, j)``, ``i < j``.

    Released graphs are complete and symmetric; one whose two directions differ is refused.
    """
    try:
        graph = _GraphUnpickler(io.BytesIO(path.read_bytes())).load()
        nodes = list(graph._node)
        patterns = [str(node.lm_pattern) for node in nodes]
        directed = {
            (nodes.index(a), nodes.index(b)): _edge(attributes["edge_type"])
            for a, neighbours in graph._adj.items()
            for b, attributes in neighbours.items()
        }
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror}", where=str(path), todo="Check the path."
        ) from error
    except Exception as error:
        raise ConsilienceError(
            f"refused as a pattern graph: {error or type(error).__name__}",
            expected="a pickled graph that holds only patterns and edge types",
            where=str(path),
            todo="Fetch the release again with `consilience data fetch pararel`.",
        ) from error
    for (a, b), edge in directed.items():
        if a == b or directed.get((b, a)) != edge:
            raise ConsilienceError(
                f"the edge between '{patterns[a]}' and '{patterns[b]}' has one direction only",
                expected="a symmetric graph without loops",
                where=str(path),
            )
    return patterns, {pair: edge for pair, edge in directed.items() if pair[0] < pair[1]}


def _edge(attributes: Any) -> Edge:
    flags = [attributes.syntactic_change, attributes.lexical_change, attributes.determiner_change]
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError(f"edge flags {flags} are not booleans")
    return Edge(*flags)
