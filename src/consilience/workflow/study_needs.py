"""What the workers of a model of a study occupy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.engine import Needs
from consilience.errors import ConsilienceError

NEEDS = ("num_cpus", "num_gpus", "resources")
"""Keys of a model in a study file, by Ray's names."""


def needs_of(table: Mapping[str, Any]) -> tuple[Needs, int]:
    """What each worker of a model occupies, and its threads; 0 where the table does not say.

    A wrong amount raises.
    """
    amounts = {name: table[name] for name in NEEDS[:2] if name in table}
    resources = table.get("resources", {})
    if not isinstance(resources, dict):
        raise ConsilienceError(f"resources: {resources!r}", expected="a table: {name = 1}")
    for name, amount in {**amounts, **resources}.items():
        if type(amount) not in (int, float) or amount < 0:
            raise ConsilienceError(f"{name}: {amount!r}", expected="a number from 0")
    cpus = amounts.get("num_cpus", 1)
    needs = Needs(cpus, amounts.get("num_gpus", 0), tuple(sorted(resources.items())))
    return needs, max(1, int(cpus)) if "num_cpus" in amounts else 0
