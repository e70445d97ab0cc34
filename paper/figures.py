"""Draw the figures of the paper from the results in the repository: ``python paper/figures.py``."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from consilience.report.charts import save_chart

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
RECIPES = {
    "improved": "loss of ParaRel",
    "no-consistency": "masked words only",
    "vote": "vote",
}
METRICS = {
    "consistency": "consistency",
    "corrected_consistency": "chance-corrected consistency",
    "accuracy": "accuracy",
    "consistent_accuracy": "consistent accuracy",
}
SCORED = {"labels": "scored by label", "texts": "scored by text"}


def factors() -> alt.LayerChart | alt.FacetChart:
    """Consistency of SmolLM2-135M-Instruct by factor, with its interval and its chance level."""
    rows = pl.read_csv(RESULTS / "factors" / "smollm2.csv").drop_nulls("expected by chance")
    low, high = (pl.col("95 % CI").str.split(" to ").list.get(at).cast(float) for at in (0, 1))
    rows = rows.with_columns(pl.col("run").replace(SCORED), low=low, high=high)
    base = alt.Chart(alt.Data(values=rows.rename({"expected by chance": "chance"}).to_dicts()))
    y = alt.Y("row:N", sort=["paraphrase", "order", "labels", "template"], title=None)
    scale = alt.Scale(domain=[0, 100])
    x = alt.X("consistency:Q", title="consistency, percent", scale=scale)
    bounds = base.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = base.mark_point(filled=True, size=50).encode(y=y, x=x)
    ticks = base.mark_tick(color="#777", thickness=2, size=12).encode(y=y, x="chance:Q")
    plane = alt.layer(bounds, ticks, points).properties(width=190, height={"step": 20})
    return plane.facet(column=alt.Column("run:N", title=None))


def training() -> alt.FacetChart:
    """Gains of three recipes on held-out relations: the mean of three seeds, and each seed."""
    rows = pl.read_csv(RESULTS / "improve" / "table-7.csv", null_values=["-"])
    rows = rows.filter(pl.col("metric").is_in([*METRICS]), pl.col("name") != "before")
    name = pl.when(pl.col("loss") == "vote").then(pl.lit("vote")).otherwise(pl.col("name"))
    rows = rows.with_columns(name=name, gain=100 * pl.col("difference"))
    rows = rows.filter(pl.col("name").is_in([*RECIPES])).with_columns(
        pl.col("name").replace(RECIPES), pl.col("metric").replace(METRICS)
    )
    base = alt.Chart(alt.Data(values=rows.select("name", "metric", "seed", "gain").to_dicts()))
    y = alt.Y("name:N", title=None, sort=[*RECIPES.values()])
    bars = base.mark_bar(opacity=0.4, height=12).encode(
        y=y, x=alt.X("mean(gain):Q", title="gain, points")
    )
    seeds = base.mark_point(filled=True, size=30).encode(y=y, x="gain:Q")
    plane = alt.layer(bars, seeds).properties(width=110, height={"step": 22})
    order = alt.Column("metric:N", title=None, sort=[*METRICS.values()])
    return plane.facet(column=order)


if __name__ == "__main__":
    for draw in (factors, training):
        save_chart(draw().to_dict(), HERE / f"{draw.__name__}.svg")
