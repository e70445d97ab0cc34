"""Draw the pictures of the documentation: ``python docs/pictures.py [RUN]``.

Without RUN the models of README.md alone. RUN is the run of ``consilience probe --model
packaged:smollm2 --suite mini --limit 8``, for docs/numbers.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import altair as alt
import polars as pl
import vl_convert

from consilience import open_run
from consilience.reproduce import paper_numbers

GROUP = "continent"
"""The relation whose answers are drawn."""

PICTURES = Path(__file__).parent / "pictures"
CELL, ROW = 62, 24
"""Width of a cell and height of a row, in pixels."""

LIGHT = ["#fde0a8", "#bfe3d3", "#bcd9ee", "#f0cfe0"]
"""A background for each answer: colour-blind readers tell them apart, and black text is legible."""


def main(folder: str = "") -> None:
    """Write the picture of the models; with the folder of a run also those of its answers."""
    save(model_chart(), "models.svg")
    if not folder:
        return
    run = open_run(folder)
    save(answer_grid(run.answers.filter(pl.col("group") == GROUP)), "answers.svg")
    means = run.metrics.filter(over="mean", kind="whole")
    numbers = dict(means.select("metric", 100 * pl.col("value").round(3)).iter_rows())
    save(chance_scale(numbers["consistency"], numbers["chance_consistency"]), "chance.svg")
    run.plot().save(PICTURES / "relations.svg")


def save(chart: alt.TopLevelMixin, name: str) -> None:
    """Write a chart as SVG."""
    (PICTURES / name).write_text(vl_convert.vegalite_to_svg(chart.to_dict()), encoding="utf-8")


def model_chart() -> alt.Chart:
    """How often models are right once, and always: Table 3 of ParaRel, and models measured here."""
    paper = paper_numbers("pararel-table-3").pivot("column", index="row", values="value")
    here = pl.read_csv(PICTURES.parent / "results" / "models.csv")
    once, always = "right in the base pattern", "right in every pattern"
    rows = pl.concat(
        [
            paper.select(
                pl.format("{} · ParaRel paper", "row").alias("model"),
                pl.col("Accuracy").alias(once),
                pl.col("Consistent-Acc").alias(always),
                where=pl.lit("the ParaRel paper"),
            ),
            here.select(
                pl.format("{} · {}", "model", "suite").alias("model"),
                pl.col("accuracy").alias(once),
                pl.col("consistent_accuracy").alias(always),
                where=pl.lit("measured here"),
            ),
        ]
    ).with_columns(pl.col("model").str.replace("majority", "majority baseline"))
    order = rows.sort("where", once, descending=[True, True])["model"].to_list()
    y = alt.Y("model:N", sort=order, title=None, axis=alt.Axis(labelLimit=320, ticks=False))
    points = rows.unpivot([once, always], index=["model", "where"], variable_name="count")
    x = alt.X("value:Q", scale=alt.Scale(domain=[0, 60]), title="percent of the facts")
    both = alt.Chart(_rows(points)).encode(x=x, y=y)
    legend = alt.Legend(orient="top", title=None, labelLimit=300)
    colours = alt.Scale(domain=[once, always], range=["#0072b2", "#d55e00"])
    shapes = alt.Scale(domain=[once, always], range=["square", "circle"])
    colour = alt.Color("count:N", scale=colours, legend=legend)
    shape = alt.Shape("count:N", scale=shapes, legend=legend)
    lines = alt.Chart(_rows(rows)).mark_rule(color="#999", strokeWidth=2)
    lines = lines.encode(x=alt.X(f"{always}:Q"), x2=alt.X2(f"{once}:Q"), y=y)
    dots = both.mark_point(filled=True, size=90, opacity=1).encode(color=colour, shape=shape)
    return (
        alt.layer(lines, dots)
        .properties(width=430, height=ROW * len(order), background="white")
        .configure_view(stroke=None)
    )


def answer_grid(answers: pl.DataFrame) -> alt.Chart:
    """The answers of a group, a row a fact and a column a pattern, and what each row counts."""
    answers = answers.with_columns(
        fact=pl.concat_str("subject", pl.lit(" is in "), "gold"),
        pattern=pl.col("variant_index") + 1,
        right=pl.col("answer") == pl.col("gold"),
    )
    agreeing = pl.len() * (pl.len() - 1) // 2
    alike = answers.group_by("fact", "answer").agg(pairs=agreeing)
    counts = answers.group_by("fact", maintain_order=True).agg(
        all_right=pl.col("right").all(), of=agreeing
    )
    counts = counts.join(alike.group_by("fact").agg(pl.col("pairs").sum()), on="fact")
    counts = counts.select(
        "fact",
        pl.format("{} of {}", "pairs", "of").alias("pairs that agree"),
        pl.when("all_right").then(pl.lit("yes")).otherwise(pl.lit("no")).alias("all right"),
    ).unpivot(index="fact", variable_name="count", value_name="shown")
    y = alt.Y("fact:N", sort=answers["fact"].unique(maintain_order=True).to_list(), title=None)
    top = alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False, labelLimit=200)
    grid = alt.Chart(_rows(answers.select("fact", "pattern", "answer", "right"))).encode(
        x=alt.X("pattern:O", title="answer in pattern", axis=top),
        y=y.axis(domain=False, ticks=False),
    )
    colour = alt.Color("answer:N", scale=alt.Scale(range=LIGHT), legend=None)
    cells = alt.layer(
        grid.mark_rect(stroke="white", strokeWidth=2).encode(color=colour),
        grid.mark_text(fontSize=10.5, dx=4).encode(text="answer:N"),
        grid.transform_filter(alt.datum.right).mark_text(text="✓", fontSize=10, dx=7 - CELL / 2),
    )
    order = ["pairs that agree", "all right"]
    beside = alt.Chart(_rows(counts)).encode(
        x=alt.X("count:N", title=None, sort=order, axis=top), y=y.axis(None), text="shown:N"
    )
    height = ROW * len(set(answers["fact"]))
    return alt.hconcat(
        cells.properties(width=CELL * answers["pattern"].n_unique(), height=height),
        beside.mark_text(fontSize=10.5).properties(width=170, height=height),
        spacing=4,
    ).configure_view(stroke=None)


def chance_scale(consistency: float, chance: float) -> alt.Chart:
    """From 0 to 100 %: what chance explains, what the model adds, and what is missing."""
    corrected = (consistency - chance) / (100 - chance)
    parts = pl.DataFrame(
        {
            "start": [0.0, chance, consistency],
            "stop": [chance, consistency, 100.0],
            "part": ["chance", f"{corrected:.0%} of the way", "missing"],
            "colour": ["#d9d9d9", "#0072b2", "#f4f4f4"],
            "ink": ["black", "white", "black"],
        }
    ).with_columns(middle=(pl.col("start") + pl.col("stop")) / 2)
    marks = pl.DataFrame(
        {
            "at": [0.0, chance, consistency, 100.0],
            "name": [
                "0",
                f"chance {chance:.1f}",
                f"consistency {consistency:.1f}",
                "full agreement 100",
            ],
        }
    )
    scale = alt.Scale(domain=[0, 100], nice=False)
    bar = alt.Chart(_rows(parts)).encode(x=alt.X("start:Q", scale=scale, axis=None))
    plain = alt.value(15)
    return (
        alt.layer(
            bar.mark_bar(stroke="black", strokeWidth=0.5, height=26).encode(
                x2="stop:Q", color=alt.Color("colour:N", scale=None), y=plain
            ),
            bar.mark_text(fontSize=11).encode(
                x=alt.X("middle:Q", scale=scale),
                text="part:N",
                color=alt.Color("ink:N", scale=None),
                y=plain,
            ),
            alt.Chart(_rows(marks))
            .mark_text(fontSize=11, baseline="top")
            .encode(x=alt.X("at:Q", scale=scale), text="name:N", y=alt.value(33)),
        )
        .properties(width=620, height=46, padding={"left": 60, "right": 60, "top": 5, "bottom": 5})
        .configure_view(stroke=None)
    )


def _rows(table: pl.DataFrame) -> alt.InlineData:
    """The data of a chart."""
    return alt.InlineData(values=table.to_dicts())


main(*sys.argv[1:])
