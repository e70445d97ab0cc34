"""False alarms and power of the rule for patterns that differ (docs/making-suites.md).

``python bench/outlier_simulations.py`` prints the rows of the table. Answers are drawn item by
item; a pattern gives the common answer of an item with some probability, and one of seven other
answers else.
"""

from __future__ import annotations

import numpy as np

from consilience.authoring.checks import limit, mean_similarity, outliers, robust_deviations

SIZES = (5, 6, 8, 12, 20)
ITEMS, RELATIONS = 200, 2_000


def matrix(generator: np.random.Generator, common: np.ndarray) -> np.ndarray:
    """Agreement (pattern, pattern), of the probability (item, pattern) of the common answer."""
    is_common = generator.random(common.shape) < common
    answers = np.where(is_common, 0, generator.integers(1, 8, common.shape))
    return (answers[:, :, None] == answers[:, None, :]).mean(axis=0)


def row(size: int, generator: np.random.Generator) -> list[float]:
    """False alarms for normal values, equal patterns and varied ones, and the power."""
    normal = generator.normal(0.8, 0.05, (20_000, size))
    alarms = (robust_deviations(normal) > limit(size)).any(axis=1).mean()
    equal = varied = power = 0
    for _ in range(RELATIONS):
        of_item = generator.beta(3, 1.5, (ITEMS, 1)).repeat(size, axis=1)
        equal += bool(outliers(mean_similarity(matrix(generator, of_item))))
        quality = generator.normal(0.8, 0.05, size).clip(0, 1)
        of_pattern = quality[None, :].repeat(ITEMS, axis=0)
        varied += bool(outliers(mean_similarity(matrix(generator, of_pattern))))
        of_pattern[:, 0] = 0.3
        power += 0 in outliers(mean_similarity(matrix(generator, of_pattern)))
    return [alarms, *(count / RELATIONS for count in (equal, varied, power))]


if __name__ == "__main__":
    generator = np.random.default_rng(7)
    for size in SIZES:
        shares = " | ".join(f"{100 * share:.1f} %" for share in row(size, generator))
        print(f"| {size} | {limit(size):.2f} | {shares} |")
