"""A number of ours, next to a number of a paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

NAN = math.nan


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of ours, in the unit that the paper prints."""

    value: float
    """The number; NaN for no data."""
    std: float = NAN
    low: float = NAN
    """Lower bound of its 95 % interval; NaN for a number that has none, such as a count."""
    high: float = NAN
    """Upper bound of its 95 % interval."""
    unit: str = ""
    """The unit of a number that the paper does not have."""
