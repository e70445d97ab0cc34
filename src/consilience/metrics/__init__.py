"""Answers become numbers: metrics, intervals, tests, comparisons. Nothing here needs a model."""

from consilience.metrics.agreement import METRICS, metric
from consilience.metrics.measure import measure

__all__ = ["METRICS", "measure", "metric"]
