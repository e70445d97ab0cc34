"""Vectors against plain transformers, clusters that are known beforehand, figures that are read."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
import transformers

from checks import output, refused
from conftest import MASKED, WORDS
from consilience import Candidates, Fact, Pattern, Query, Relation, load_model
from consilience.analysis.representations import (
    CLUSTERS_SCHEMA,
    RelationVectors,
    cluster,
    questions,
    read_vectors,
    tsne,
    write_vectors,
)
from consilience.models.batches import Budget, vector_array
from consilience.models.masked import masked_sentences
from consilience.report.charts import tsne_chart
from consilience.results.analyses import correlations_of
from reference import plain

TEXTS = ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X] ([Y]) is big.")
PATTERNS = tuple(map(Pattern, TEXTS))
SUBJECTS = ("France", "Germany", "the old Italy")
RELATION = Relation(
    "capital", "capital", "N-1", PATTERNS,
    tuple(Fact(f"i{n}", subject, WORDS[n % 2]) for n, subject in enumerate(SUBJECTS)), {},
    Candidates(tuple(WORDS), (1,) * len(WORDS)),
)  # fmt: skip
QUERIES, INDEX = questions(RELATION)
LAYERS = [0, 1, 2]
LOADED = {}


def load(family, model_folder):
    return LOADED.setdefault(family, load_model(str(model_folder(family))))


@torch.no_grad()
def states_of(family, folder, query, special):
    """One sentence alone: every layer's state where the object is predicted (layer, width)."""
    head = "MaskedLM" if family in MASKED else "Seq2SeqLM" if family == "mt5" else "CausalLM"
    model, tokenizer = plain(folder, getattr(transformers, f"AutoModelFor{head}"))
    (left, right), at, more = query.pattern.around_object(query.subject), -1, {}
    if family in MASKED:
        (ids,) = masked_sentences(tokenizer, [(left, right)], special=special)
        assert (tokenizer.cls_token_id in ids) is special
        at = ids.index(tokenizer.mask_token_id)
    elif family == "mt5":  # whose sentinels have a space on their left
        ids = tokenizer(f"{left} <extra_id_0>{right}").input_ids
        first = tokenizer.convert_tokens_to_ids("▁<extra_id_0>")
        more = {"decoder_input_ids": torch.tensor([[0, first]])}
    else:
        ids = [tokenizer.bos_token_id, *tokenizer(left.rstrip()).input_ids]
    output = model(torch.tensor([ids]), output_hidden_states=True, **more)
    states = output.decoder_hidden_states if more else output.hidden_states
    return np.stack([states[layer][0, at].numpy() for layer in LAYERS])


@pytest.mark.parametrize("family", [*MASKED, "gpt2", "llama", "mt5"])
def test_vectors_are_those_that_predict_the_object(family, model_folder):
    """At the mask, before the object, or of the decoder."""
    for special in (True, False)[: 1 + (family in MASKED)]:
        found = vector_array(load(family, model_folder), QUERIES, LAYERS, special_tokens=special)
        assert found.dtype == np.float32
        for row in (0, 4, 8):
            expected = states_of(family, model_folder(family), QUERIES[row], special)
            np.testing.assert_allclose(found[row], expected, atol=1e-4, rtol=1e-4)
    first = found[1::3]
    is_causal = family in ("gpt2", "llama")
    assert (first == first[0]).all() == is_causal, "only the start token precedes the object"


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_vectors_do_not_depend_on_order_or_company(family, model_folder):
    model = load(family, model_folder)
    together = vector_array(model, QUERIES, [1, -1])
    backwards = vector_array(model, QUERIES[::-1] * 2, [1, -1])
    alone = np.concatenate([vector_array(model, [query], [1, -1]) for query in QUERIES])
    np.testing.assert_allclose(together, alone, atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(together[::-1], backwards[: len(QUERIES)], atol=2e-5, rtol=1e-5)
    np.testing.assert_array_equal(backwards[: len(QUERIES)], backwards[len(QUERIES) :])
    budget, model.budget = model.budget, Budget(1)
    one_by_one = vector_array(model, QUERIES, [1, -1])
    model.budget = budget
    np.testing.assert_allclose(together, one_by_one, atol=2e-5, rtol=1e-5)


def test_a_layer_that_is_not_there_is_refused_before_anything_is_read(model_folder):
    model = load("bert", model_folder)
    for layer in (3, -4):
        message = rf"no layer {layer}; expected 0 .* to 2, or -1"
        refused(message, vector_array, model, QUERIES, [0, layer])
    refused("no hidden states", vector_array, load_model("baseline:majority"), QUERIES, [0])


@pytest.mark.parametrize("family", ["bert", "gpt2", "mt5"])
def test_what_cannot_be_read_is_nan_and_nothing_else(family, model_folder):
    model = load(family, model_folder)
    if family == "mt5":
        model.longest = 64
    queries = [QUERIES[0], Query(PATTERNS[0], "a " * 99, "x"), QUERIES[3]]
    found = vector_array(model, queries, [0, 1])
    assert np.isnan(found).all(axis=(1, 2)).tolist() == [False, True, False]
    alone = vector_array(model, [QUERIES[0], QUERIES[3]], [0, 1])
    np.testing.assert_allclose(found[[0, 2]], alone, atol=1e-5)


def made(array, patterns, facts, layers=(-1,)):
    """Vectors of ``facts`` facts in ``patterns`` patterns; object n % 3."""
    rows = [
        (f"i{fact}", f"s{fact}", f"o{fact % 3}", f"[X] p{pattern} [Y]", pattern)
        for fact in range(facts)
        for pattern in range(patterns)
    ]
    index = pl.DataFrame(rows, schema=INDEX.schema, orient="row")
    array = np.asarray(array, dtype=np.float32)
    return RelationVectors("R", layers, array.reshape(facts * patterns, len(layers), -1), index)


@pytest.mark.parametrize("what", ["pattern", "subject", "object"])
def test_vectors_that_differ_in_one_property_only_cluster_by_it(what):
    """Corners of a simplex, one a value: k-means finds them, V-measure and AMI are 1."""
    patterns, facts = 4, 12
    rows = [(pattern, fact, fact % 3) for fact in range(facts) for pattern in range(patterns)]
    place = ("pattern", "subject", "object").index(what)
    noise = np.random.default_rng(0).normal(scale=0.01, size=(len(rows), 12))
    array = np.eye(12)[[row[place] for row in rows]] + noise
    table = cluster(made(array, patterns, facts))
    assert dict(table.schema) == CLUSTERS_SCHEMA
    assert table["property"].to_list() == ["pattern", "subject", "object"]
    assert (table["clusters"].to_list(), table["n"].to_list()) == ([4, 12, 3], [48] * 3)
    found = {row["property"]: row for row in table.iter_rows(named=True)}
    assert (found[what]["v_measure"], found[what]["ami"]) == (pytest.approx(1), pytest.approx(1))
    assert found[what]["v_measure_shuffled"] < 0.7
    if what == "pattern":
        assert found["object"]["v_measure"] == pytest.approx(0, abs=0.02)
        assert found["object"]["ami"] == pytest.approx(0, abs=0.05)
    assert table.equals(cluster(made(array, patterns, facts))), "the same seed, the same clusters"


def test_chance_is_what_noise_gets_and_ami_is_0_there():
    """Many subjects with few rows each: the V-measure expected by chance is high."""
    array = np.random.default_rng(1).normal(size=(120, 8))
    rows = {row["property"]: row for row in cluster(made(array, 4, 30)).iter_rows(named=True)}
    found, by_chance = (rows["subject"][name] for name in ("v_measure", "v_measure_shuffled"))
    assert found > 0.5 and found == pytest.approx(by_chance, abs=0.04)
    assert all(abs(row["ami"]) < 0.1 for row in rows.values())


def test_there_is_no_number_where_all_rows_are_alike_or_none_are():
    one_pattern = cluster(made(np.random.default_rng(0).normal(size=(6, 2)), 1, 6))
    rows = {row["property"]: row for row in one_pattern.iter_rows(named=True)}
    assert (rows["pattern"]["clusters"], rows["subject"]["clusters"]) == (1, 6)
    for name in ("pattern", "subject"):
        numbers = [rows[name][each] for each in ("v_measure", "v_measure_shuffled", "ami")]
        assert all(map(math.isnan, numbers))
    assert not math.isnan(rows["object"]["v_measure"])
    nothing = cluster(made(np.full((6, 2), np.nan), 1, 6))
    assert (nothing["n"].to_list(), nothing["n_excluded"].to_list()) == ([0] * 3, [6] * 3)
    assert nothing["v_measure"].is_nan().all()


@pytest.mark.filterwarnings("error")
def test_rows_that_could_not_be_read_are_counted_and_equal_vectors_are_no_warning():
    array = np.zeros((12, 2, 3))
    array[2] = np.nan
    table = cluster(made(array, 3, 4, layers=(0, -1)))
    assert (table["layer"].to_list(), table["n"].to_list()) == ([0] * 3 + [-1] * 3, [11] * 6)
    assert (table["n_excluded"].to_list(), table["v_measure"].to_list()) == ([1] * 6, [0] * 6)


def test_vectors_are_read_as_they_were_written(tmp_path):
    array = np.random.default_rng(0).normal(size=(9, 2, 5)).astype(np.float32)
    array[4] = np.nan
    kept = RelationVectors("capital", (0, -1), array, INDEX)
    write_vectors(tmp_path / "vectors", kept)
    found = read_vectors(tmp_path / "vectors", "capital")
    np.testing.assert_array_equal(found.array, array)
    assert found.index.equals(INDEX) and found.layers == (0, -1)
    assert found.array.dtype == np.float32
    first = found.first(2)
    assert first.index["item"].unique(maintain_order=True).to_list() == ["i0", "i1"]
    np.testing.assert_array_equal(first.array, array[:6])


def test_vectors_that_are_not_there_or_damaged_are_refused(tmp_path):
    kept = RelationVectors("capital", (0,), np.zeros((9, 1, 5), np.float32), INDEX)
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("", write_vectors, tmp_path / "file", kept)
    refused("cannot be read", read_vectors, tmp_path, "capital")
    write_vectors(tmp_path, kept)
    content = (tmp_path / "capital.npz").read_bytes()
    for damaged in (b"", b"no archive", content[:99], content.replace(b"item", b"team")):
        (tmp_path / "capital.npz").write_bytes(damaged)
        refused("capital.npz: cannot be read", read_vectors, tmp_path, "capital")
    refused("no name of a file", write_vectors, tmp_path, replace(kept, relation="../x"))


def test_spearman_is_over_the_relations_that_have_both():
    """Ranks 1 2 3 4 against 1 2 4 3: 1 - 6 * 2 / (4 * 15) = 0.8."""
    metrics = pl.DataFrame({"group": list("abcdef"), "value": [0.1, 0.2, 0.3, 0.9, 0.5, math.nan]})
    metrics = metrics.with_columns(
        metric=pl.lit("consistency"), over=pl.lit("group"), kind=pl.lit("whole")
    )
    scores = [0.3, 0.35, 0.2, 0.1, 0.4, 0.5]
    clusters = pl.DataFrame({"relation": list("dcbafg"), "v_measure": scores})
    same = {"property": pl.lit("pattern"), "v_measure_shuffled": 0.0, "ami": 0.0}
    clusters = clusters.with_columns(layer=0, **same)
    (found,) = correlations_of(metrics, clusters).to_dicts()
    assert (found["value"], found["n"]) == (pytest.approx(0.8), 4)
    assert np.isnan([found["low"], found["high"]]).all(), "four relations do not say how sure"
    assert 0 < found["p"] < 1


def test_tsne_keeps_neighbours_and_is_the_same_again():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 16) * 20, 22, axis=0)
    array = (centres + rng.normal(size=centres.shape)).astype(np.float32)
    places = tsne(array)
    assert places.shape == (66, 2)
    np.testing.assert_array_equal(places, tsne(array))
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    assert (nearest // 22 == np.arange(66) // 22).mean() > 0.8
    refused("20 vectors .* perplexity 20; expected at least 21", tsne, array[:20])


BAD = "</script><script>alert(1)</script>"


def points(subjects=9, patterns=3):
    rng = np.random.default_rng(0)
    rows = [
        {
            "x": rng.normal(), "y": rng.normal(), "subject": f"s{s:02}" if s else BAD,
            "gold": f"o{s % 2}", "variant": f"[X] p{p} [Y]", "variant_index": p,
        }
        for s in range(subjects)
        for p in range(patterns)
    ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.mark.parametrize("subjects", [4, 30])
def test_a_figure_is_written_as_svg_with_its_legend(subjects, tmp_path):
    path = tmp_path / "figure.svg"
    tsne_chart(points(subjects), "A title & <more>").save(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name], "nothing else is left"
    drawn = path.read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "<script" not in drawn and "&lt;script&gt;" in drawn, "a subject stays text"
    assert f"{subjects} subjects, from dark to light" in drawn
    assert ">3  [X] p2 [Y]</text>" in drawn and drawn.count("<title>") == subjects * 3


def test_from_the_command_line(consilience, model_folder, tmp_path):
    folder = tmp_path / "run"
    command = (
        "analyze", "representations", "--model", model_folder("bert"), "--suite", "mini",
        "--groups", "capital,sport,field", "--limit", 4, "--layers", "0,-1", "--out", folder,
    )  # fmt: skip
    assert "Spearman" in output(consilience, *command)
    assert pl.read_csv(folder / "clusters.csv").height == 3 * 2 * 3
    kept = (folder / "vectors" / "sport.npz").stat().st_mtime_ns
    document = json.loads(output(consilience, *command, "--json"))
    assert (document["figure"], len(document["correlations"])) == (None, 2 * 3)
    assert (folder / "vectors" / "sport.npz").stat().st_mtime_ns == kept
    one = (*command[:6], "--groups", "sport", "--limit", 8, "--out", tmp_path / "one")
    output(consilience, *one)
    drawn = tmp_path / "one" / "tsne-sport.svg"
    assert drawn.read_text(encoding="utf-8").startswith("<svg")
