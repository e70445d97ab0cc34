"""The report of a study: every run has a row, and p is adjusted over all comparisons."""

import json
import math
import shutil
from dataclasses import replace
from itertools import product

import polars as pl
import pytest

from checks import output, refusal
from consilience.metrics.statistics import holm
from consilience.options.runs import StudyReportOptions
from consilience.probing.probe import probe
from consilience.study.file import read_study
from consilience.study.reporting import adjusted_over_study, report_study
from report_builders import Html

STUDY = """
folder = '{folder}/out'
reference = "random"
options = {{ limit = 2, groups = "capital,sport" }}
models = [
    {{ name = "oracle", model = "baseline:oracle" }},
    {{ name = "random", model = "baseline:random" }},
    {{ name = "trained", model = "models/{{seed}}", seeds = [1, 2] }},
    {{ name = "wrong", model = "models/none" }},
]
suites = [{{ suite = "mini" }}]
factors = {{ protocol = ["strict", "published"] }}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A study whose runs are complete but for those of "wrong" and one seed of "trained"."""
    folder = tmp_path_factory.mktemp("study")
    path = folder / "family.toml"
    path.write_text(STUDY.format(folder=folder), encoding="utf-8")
    seeds, made = {1: "baseline:random", 2: "baseline:majority"}, {}
    for run in read_study(path).runs:
        if run.model == "wrong" or run.name.endswith("published/seed-2"):
            continue
        model = seeds.get(run.seed, run.options.model)
        if (model, run.factors) in made:
            shutil.copytree(made[model, run.factors], run.folder)
        else:
            probe(replace(run.options, model=model))
            made[model, run.factors] = run.folder
        record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        record["options"]["model"] = run.options.model
        (run.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(file):
    """Its report."""
    return report_study(StudyReportOptions(file))


CELLS = [
    f"mini, protocol={protocol}{seed}"
    for protocol in ("strict", "published")
    for seed in ("", ", seed=1", ", seed=2")
]


def test_only_the_seeds_of_the_file_are_counted(tmp_path):
    """Two seeds are right; a third of an earlier version of the file is not."""
    text = (
        f"folder = '{tmp_path}/out'\nsuites = [{{ suite = 'mini', groups = 'capital', limit = 2 }}]\n"
        "models = [{ name = 't', model = 'models/{seed}', seeds = SEEDS }]\n"
    )
    file = tmp_path / "s.toml"
    for seeds in ("[1, 2, 3]", "[1, 2]"):
        file.write_text(text.replace("SEEDS", seeds), encoding="utf-8")
        for run in read_study(file).runs if seeds == "[1, 2, 3]" else ():
            probe(replace(run.options, model=f"baseline:{'random' if run.seed == 3 else 'oracle'}"))
            record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
            record["options"]["model"] = run.options.model
            (run.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    found = report_study(StudyReportOptions(file))
    assert [row.numbers["accuracy"].value for row in found.rows] == [1, 1]
    (mean,) = found.means
    assert (mean.cell, mean.numbers["accuracy"].value) == ("mini, mean of 2 seeds", 1)


def test_every_run_has_a_row_and_missing_ones_say_why(made):
    assert [*dict.fromkeys(row.cell for row in made.rows)] == CELLS
    rows = {(row.cell, row.model): row for row in made.rows}
    assert len(rows) == 10
    missing = {key: row.missing for key, row in rows.items() if row.missing}
    assert missing == {
        ("mini, protocol=published, seed=2", "trained"): "missing: waiting",
        **{(cell, "wrong"): "missing: waiting" for cell in CELLS[::3]},
    }
    oracle = rows["mini, protocol=strict", "oracle"]
    assert oracle.numbers["accuracy"].value == oracle.numbers["consistency"].value == 1.0
    assert oracle.items == 4
    table = made.tables()["study"]
    assert table.title == "family: 7 runs in percent, 3 missing"
    assert any(note.startswith("Missing: wrong on mini, protocol=strict, ") for note in table.notes)
    assert ["wrong", "missing: waiting"] in [row[:2] for row in table.rows]


def test_models_are_compared_with_the_reference_in_each_cell(made):
    table = made.differences
    pairs = table.select("cell", "first", "second").unique(maintain_order=True).rows()
    models = ["oracle", "trained", "trained", "oracle", "trained"]
    assert pairs == [(*pair,) for pair in zip(CELLS[:5], ["random"] * 5, models, strict=True)]
    first = table.filter(pl.col("metric") == "accuracy").row(0, named=True)
    values = [row.numbers["accuracy"].value for row in (made.rows[1], made.rows[0])]
    assert [first["first_value"], first["second_value"]] == values


def test_models_of_several_seeds_have_means(made):
    """The two seeds of one cell, of random and constant answers."""
    (mean,) = made.means
    assert (mean.cell, mean.model) == ("mini, protocol=strict, mean of 2 seeds", "trained")
    of_seeds = [row for row in made.rows if row.model == "trained" and "strict" in row.cell]
    one, two = (row.numbers["consistency"].value for row in of_seeds)
    assert mean.numbers["consistency"].value == pytest.approx((one + two) / 2)
    assert mean.std["consistency"] == pytest.approx(abs(one - two) / 2**0.5)
    table = made.tables()["study"]
    assert any("Mean over seeds: ± is the standard deviation" in note for note in table.notes)
    assert made.document()["means"][0]["numbers"]["consistency"]["std"] == mean.std["consistency"]


def test_p_is_adjusted_over_the_whole_study(made):
    p, adjusted = (made.differences[name].to_list() for name in ("p", "p_holm"))
    tests = sum(not math.isnan(each) for each in p)
    assert tests >= 16
    assert adjusted == pytest.approx(holm(p), nan_ok=True)
    notes = " ".join(made.tables()["comparisons"].notes)
    assert f"all {tests} tests of this table, in 5 combinations" in notes


def test_adjusted_p_by_hand():
    table = adjusted_over_study(pl.DataFrame({"p": [0.01, math.nan, 0.04, 0.03]}))
    assert table["p_holm"].to_list() == pytest.approx([0.03, math.nan, 0.06, 0.06], nan_ok=True)
    assert table["q_value"].to_list() == pytest.approx([0.03, math.nan, 0.04, 0.04], nan_ok=True)


def test_all_pairs_are_compared_where_the_file_says_so(tmp_path):
    models = {"a": "oracle", "b": "random", "c": "random"}.items()
    (tmp_path / "all.toml").write_text(f"""
        pairs = 'all'
        folder = '{tmp_path}/out'
        models = [{", ".join(f"{{ name = '{name}', model = 'baseline:{of}' }}" for name, of in models)}]
        suites = [{{ suite = 'mini', groups = 'sport', limit = 3 }}]
    """)
    for run in read_study(tmp_path / "all.toml").runs:
        probe(run.options)
    made = report_study(StudyReportOptions(tmp_path / "all.toml"))
    pairs = made.differences.select("first", "second").unique(maintain_order=True).rows()
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]
    alike = made.differences.filter(pl.col("first") == "b")
    assert alike["difference"].to_list() == [0.0] * 4


def test_the_page_the_tables_and_the_document(file, made, consilience, tmp_path):
    page = made.study.folder / "report.html"
    assert made.files == [page]
    linked = made.study.folder / "oracle" / "mini" / "protocol=strict" / "report.html"
    linked.write_text("", encoding="utf-8")
    out = output(consilience, "study", "report", file, "--tables", tmp_path / "tables", "--json")
    document = json.loads(out)
    text = page.read_text(encoding="utf-8")
    assert '<a href="oracle/mini/protocol%3Dstrict/report.html">' in text
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert names == set(map(".".join, product(("study", "comparisons"), ("csv", "md", "tex"))))
    assert set(document) == {"run", "runs", "means", "verdict", "differences", "files", "warnings"}
    assert all(sentence in Html(text).text for sentence in document["verdict"])
    assert document["verdict"][-1] == "The numbers of 3 of 10 runs are missing."
    assert document["runs"][2]["missing"] == "missing: waiting"
    assert document["runs"][0]["numbers"]["accuracy"]["value"] == 1.0


def test_a_study_without_a_complete_run_says_what_to_do(consilience, tmp_path):
    text = '[[models]]\nmodel = "baseline:oracle"\n[[suites]]\nsuite = "mini"\n'
    (tmp_path / "new.toml").write_text(text, encoding="utf-8")
    err = refusal(consilience, "study", "report", "new.toml")
    assert "new.toml: no run is complete. Ask the models first: `consilience study run new" in err
