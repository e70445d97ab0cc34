"""What is kept between runs: whole or not at all, and never needed."""

import json

import pytest

from consilience.models.cache import cache_folder, key_of, recall, remember


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
