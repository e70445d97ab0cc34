"""What is kept between runs: whole or not at all, and never needed."""

import json

import numpy as np
import pytest

from consilience import Candidates, Pattern, Query
from consilience.models import sources
from consilience.models.sources import cache_folder, checked, key_of, recall, remember


def test_the_cache_lies_where_it_is_put(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"
    monkeypatch.delenv("CONSILIENCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "consilience" / "models"
    monkeypatch.setenv("CONSILIENCE_CACHE", "off")
    assert cache_folder() is None


def test_a_result_is_kept_until_the_cache_is_off(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "new" / "folder"))
    assert recall("kernel-1") is None
    remember("kernel-1", {"kernel": "onednn", "seconds": [0.5, 0.25]})
    assert recall("kernel-1") == {"kernel": "onednn", "seconds": [0.5, 0.25]}
    assert recall("kernel-2") is None
    assert [each.name for each in (tmp_path / "new" / "folder").iterdir()] == ["kernel-1.json"]
    monkeypatch.setenv("CONSILIENCE_CACHE", "off")
    remember("kernel-1", {})
    assert recall("kernel-1") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_damaged_result_is_no_result(monkeypatch, tmp_path, content):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    (tmp_path / "kernel.json").write_bytes(content)
    assert recall("kernel") is None
    remember("kernel", {"good": True})
    assert recall("kernel") == {"good": True}


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "file"))
    remember("kernel", {"good": True})
    assert recall("kernel") is None
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_key_depends_on_every_part_and_not_on_their_order():
    assert key_of({"a": 1, "b": "x"}) == key_of({"b": "x", "a": 1})
    keys = {key_of(each) for each in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"})}
    assert len(keys) == 4
    assert all(len(each) == 32 and json.loads(f'"{each}"') for each in keys)


def test_a_check_is_made_once_for_a_model_and_its_surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    made = []

    def check(result):
        made.append(result)
        return result

    model = {"model": "a name", "digest": "d", "dtype": "float32", "device": "cpu"}
    assert checked("tree", model, lambda: check(False)) is False
    assert checked("tree", model | {"model": "another name"}, lambda: check(True)) is False
    assert made == [False]
    assert checked("other", model, lambda: check(True)) is True
    assert checked("tree", model | {"dtype": "bfloat16"}, lambda: check(True)) is True
    assert checked("tree", model | {"digest": "e"}, lambda: check(True)) is True
    assert len(made) == 4
    for _ in range(2):
        assert checked("tree", {"dtype": "float32"}, lambda: check(True)) is True
    assert len(made) == 6, "a model that nothing tells from others is checked every time"
    monkeypatch.setattr(sources, "surroundings", lambda: {"torch": "another version"})
    assert checked("tree", model, lambda: check(True)) is True
    assert len(made) == 7


@pytest.mark.parametrize(("family", "fits"), [("gpt2", True), ("mamba", False)])
def test_the_second_start_of_a_causal_model_tries_nothing(
    family, fits, model_folder, monkeypatch, tmp_path
):
    from consilience import load_model
    from consilience.models.fast import tree_reader

    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    first = load_model(str(model_folder(family)))
    assert (first.tree_scorer is not None) is fits
    monkeypatch.delattr(tree_reader, "_scores_are_the_same")
    second = load_model(str(model_folder(family)))
    assert (second.tree_scorer is not None) is fits
    assert second.notes == first.notes
    words = Candidates(("Paris", "Rome"), (1, 1))
    queries = [Query(Pattern.parse("The capital of [X] is [Y]."), "Italy", "Rome")]
    scores = [next(iter(each.score(queries, words))).logprob for each in (first, second)]
    assert np.array_equal(*scores)
