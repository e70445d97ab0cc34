"""The report of a study: every run has a row, and p is adjusted over all comparisons."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from checks import output, refusal
from consilience.metrics.statistics import holm
from consilience.probing.probe import probe
from consilience.study.file import read_study
from consilience.study.reporting import report_study

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
        if (model, run.cell) in made:
            shutil.copytree(made[model, run.cell], run.folder)
        else:
            probe(replace(run.options, model=model))
            made[model, run.cell] = run.folder
        record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        record["options"]["model"] = run.options.model
        (run.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(file):
    """Its report."""
    return report_study(file)


def test_every_run_has_a_row_and_missing_ones_are_named(made):
    rows = made.tables["numbers"].filter(metric="accuracy")
    cells = ["mini, protocol=strict", "mini, protocol=published"]
    seeds = [[None, None, 1, 2], [None, None, 1]]
    assert rows.select("cell", "seed").rows() == [
        (cell, seed) for cell, of in zip(cells, seeds, strict=True) for seed in of
    ]
    oracle = made.tables["numbers"].filter(run="oracle/mini/protocol=strict").to_dicts()
    assert [(row["metric"], row["value"]) for row in oracle[:2]] == [
        ("accuracy", 1.0), ("consistency", 1.0),
    ]  # fmt: skip
    assert {row["items"] for row in oracle} == {4}
    table = made.shown[0]
    assert (table.title, len(table.rows)) == ("family: 7 runs in percent", 7)
    names = [f"wrong/mini/protocol={protocol}" for protocol in ("strict", "published")]
    names.insert(0, "trained/mini/protocol=published/seed-2")
    assert sorted(table.notes) == sorted(f"{name} is missing: waiting" for name in names)


def test_models_are_compared_with_the_reference_in_each_cell_and_seed(made):
    pairs = ["cell", "seed", "first", "second"]
    of = made.tables["differences"].select(pairs).unique(maintain_order=True).rows()
    strict, published = "mini, protocol=strict", "mini, protocol=published"
    assert of == [
        (strict, None, "random", "oracle"), (strict, 1, "random", "trained"),
        (strict, 2, "random", "trained"), (published, None, "random", "oracle"),
        (published, 1, "random", "trained"),
    ]  # fmt: skip
    first = made.tables["differences"].row(0, named=True)
    accuracy = made.tables["numbers"].filter(metric="accuracy")["value"]
    assert [first["first_value"], first["second_value"]] == [accuracy[1], accuracy[0]]


def test_models_of_several_seeds_have_means(made):
    """The two seeds of one cell, of random and constant answers."""
    mean = made.tables["means"].filter(metric="consistency").to_dicts()
    assert [(row["cell"], row["model"], row["runs"]) for row in mean] == [
        ("mini, protocol=strict, mean of 2 seeds", "trained", 2)
    ]
    trained = made.tables["numbers"].filter(model="trained", metric="consistency")
    one, two = trained.filter(cell="mini, protocol=strict")["value"]
    assert mean[0]["value"] == pytest.approx((one + two) / 2)
    assert mean[0]["std"] == pytest.approx(abs(one - two) / 2**0.5)
    assert made.shown[2].rows[0][:3] == ["trained", *list(
        made.tables["means"].filter(metric="accuracy").select("value", "std").row(0)
    )]  # fmt: skip


def test_p_is_adjusted_over_the_whole_study(made):
    p, adjusted = (made.tables["differences"][name].to_list() for name in ("p", "p_holm"))
    tests = sum(not math.isnan(each) for each in p)
    assert tests >= 16
    assert adjusted == pytest.approx(holm(p), nan_ok=True)
    assert f"over all {tests} tests of this table" in " ".join(made.shown[4].notes)
    assert made.verdict == [
        f"{sum(each < 0.05 for each in adjusted)} of {tests} differences between models are clear "
        "(p (Holm) < 0.05 over the whole study)."
    ]


def test_the_tables_and_the_document(file, consilience, tmp_path):
    out = output(consilience, "study", "report", file, "--tables", tmp_path / "tables", "--json")
    document = json.loads(out)
    names = {path.name for path in (tmp_path / "tables").glob("*.csv")}
    assert names == {"study.csv", "means.csv", "comparisons.csv"}
    assert len(document["runs"]) == 10
    assert document["numbers"][0]["value"] == 1.0
    rows = output(consilience, "study", "report", file, "--format", "csv").splitlines()
    assert len(rows) == 1 + len(document["numbers"])


def test_a_study_without_a_complete_run_says_what_to_do(consilience, tmp_path):
    text = '[[models]]\nmodel = "baseline:oracle"\n[[suites]]\nsuite = "mini"\n'
    (tmp_path / "new.toml").write_text(text, encoding="utf-8")
    err = refusal(consilience, "study", "report", "new.toml")
    assert "new.toml: no run is complete. Ask the models first: `consilience study run new" in err
