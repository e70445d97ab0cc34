"""Answers become numbers: metrics, intervals, tests, comparisons. Nothing here needs a model."""

from consilience.metrics import agreement as agreement  # registers the metrics
from consilience.metrics import distributions as distributions
from consilience.metrics import violations as violations
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS, metric
from consilience.plugins import load_all

__all__ = ["METRICS", "measure", "metric"]

load_all("consilience.metrics")
