"""Answers become numbers: metrics, intervals, tests, comparisons. Nothing here needs a model."""

from consilience.core.provenance import load_all
from consilience.metrics import definitions as definitions  # registers the metrics
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS, metric

__all__ = ["METRICS", "measure", "metric"]

load_all("consilience.metrics")
