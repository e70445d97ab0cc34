"""What publish writes, read by the tools that it is for; `make test-publish` installs the first."""

import os
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.probing import probe
from consilience.workflow.publication import publish
from consilience.workflow.publish_options import PublishOptions

VALIDATOR = os.environ.get("EVERY_EVAL_EVER", "every_eval_ever")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools") / "run"
    options = {"groups": ("capital", "borders"), "limit": 2, "folder": folder}
    probe(ProbeOptions(model="baseline:random", suite="mini", **options))
    return folder


@pytest.mark.skipif(shutil.which(VALIDATOR) is None, reason="every-eval-ever is not installed")
@pytest.mark.parametrize("organization", ["", "my-org"])
def test_the_validator_of_every_eval_ever_has_no_warning(run, tmp_path, organization):
    chosen = PublishOptions(run, "eee", tmp_path, "my-org/model", organization=organization)
    published = publish(chosen)
    files = [file.name for file in published.files]
    words = [
        str(Path(shutil.which(VALIDATOR)).absolute()),
        "validate",
        "--format",
        "github",
        *files,
    ]
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert "::warning" not in answer.stdout
    record = tmp_path / files[0]
    text = record.read_text().replace('"score": ', '"score": 9', 1)
    record.write_text(text)
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode != 0, "a score beyond its bounds is found"


def test_datasets_loads_every_table_of_two_folders_of_the_same_name(run, tmp_path):
    """``datasets`` caches by the name of the folder and the metadata of its card."""
    load = pytest.importorskip("datasets").load_dataset
    smaller = tmp_path / "smaller"
    probe(ProbeOptions(model="baseline:random", groups=("capital",), limit=1, folder=smaller))
    for source in (run, smaller):
        folder = tmp_path / source.name / "dataset"
        made = publish(PublishOptions(source, "dataset", folder, "my-org/model"))
        names = [Path(file.name).stem for file in made.files if file.name.endswith(".parquet")]
        for name in names:
            table = load(str(folder), name, split="test", cache_dir=str(tmp_path / "cache"))
            assert table.num_rows == pl.read_parquet(folder / "data" / f"{name}.parquet").height
