"""The release's layout, made here in small, and its pickles, harmless and harmful."""

import json
import pickle
import sys
import types

import pytest

from checks import refused
from consilience import load_suite
from consilience.core.factors import Edge
from consilience.suites import check_suite
from consilience.suites.layouts import _RELATIONS, read_graph


class PatternNode:
    pass


EdgeType, DiGraph = type("EdgeType", (), {}), type("DiGraph", (), {})


@pytest.fixture
def pickle_graph(monkeypatch):
    for class_, module in (
        (PatternNode, "pararel.patterns.graph_types"),
        (EdgeType, "pararel.patterns.graph_types"),
        (DiGraph, "networkx.classes.digraph"),
    ):
        monkeypatch.setattr(class_, "__module__", module)
        stand_in = sys.modules.get(module, types.ModuleType(module))
        setattr(stand_in, class_.__name__, class_)
        monkeypatch.setitem(sys.modules, module, stand_in)
        parent = module.split(".")[0]
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))

    def write(path, texts, flags, one_way=False, extra=None):
        nodes = []
        for text in texts:
            node = PatternNode()
            node.lm_pattern, node.extra = text, extra
            nodes.append(node)
        graph = DiGraph()
        graph._node = {node: {} for node in nodes}
        graph._adj = {node: {} for node in nodes}
        for (a, b), (syntactic, lexical, determiner) in flags.items():
            edge = EdgeType()
            edge.syntactic_change, edge.lexical_change = syntactic, lexical
            edge.determiner_change = determiner
            graph._adj[nodes[a]][nodes[b]] = {"edge_type": edge}
            if not one_way:
                graph._adj[nodes[b]][nodes[a]] = {"edge_type": edge}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(graph, protocol=3))

    return write


TEXTS = ["[X] is in [Y].", "[Y] holds [X]."]


@pytest.fixture
def release(tmp_path, pickle_graph):
    root = tmp_path / "pararel"
    for folder in ("pattern_data/graphs_json", "trex_lms_vocab"):
        (root / folder).mkdir(parents=True)
    for id_, _, _ in _RELATIONS:
        patterns = [{"pattern": text, "lemma": "l", "tense": "present"} for text in TEXTS]
        objects = ["jazz", "satire"] if id_ == "P136" else ["Rome", "Oslo", "Rome"]
        both = enumerate(objects)
        facts = [{"sub_label": f"s{n}", "obj_label": of, "uuid": f"{id_}/{n}"} for n, of in both]
        for path, rows in (("pattern_data/graphs_json", patterns), ("trex_lms_vocab", facts)):
            text = "\n".join(map(json.dumps, rows)) + "\n"
            (root / path / f"{id_}.jsonl").write_text(text)
        graph = root / "pattern_data" / "graphs" / f"{id_}.graph"
        pickle_graph(graph, TEXTS, {(0, 1): (True, False, False)})
    return root


def test_a_release_is_read_with_the_papers_filter(release):
    suite = load_suite(str(release))
    assert (suite.name, suite.protocol) == ("pararel", "published")
    assert [r.cardinality for r in suite.relations].count("N-1") == 31
    assert [r.cardinality for r in suite.relations].count("N-M") == 7
    music = suite.relation("P136")
    assert ([fact.object for fact in music.facts], music.candidates.words) == (["jazz"], ("jazz",))
    assert suite.notes == ("P136: 1 tuples left out, see note 11 of the ParaRel paper",)
    assert suite.relation("P19").edges == {(0, 1): Edge(True, False, False)}
    assert suite.relation("P19").facts[0].item == "P19/0"


def test_a_release_inside_a_clone_or_without_graphs(release, tmp_path):
    (tmp_path / "clone").mkdir()
    release.rename(tmp_path / "clone" / "data")
    suite = load_suite(str(tmp_path / "clone"))
    assert len(suite.relations) == 38
    for path in (tmp_path / "clone/data/pattern_data/graphs").iterdir():
        path.unlink()
    assert "no pattern graphs" in load_suite(str(tmp_path / "clone")).notes[0]


def test_a_release_that_was_altered_is_told_by_its_digests(release):
    problems = [str(problem) for problem in check_suite(str(release))]
    assert sum("not what was released" in problem for problem in problems) == 20
    assert problems[20] == "and 94 more problems."
    lines = release / "trex_lms_vocab" / "P19.jsonl"
    lines.write_text(lines.read_text() * 2)
    refused(r"P19\.jsonl:4: duplicate item 'P19/0' of 'P19'", load_suite, str(release))
    lines.write_text("")
    (release / "trex_lms_vocab" / "P20.jsonl").unlink()
    refused(r"P19\.jsonl: the relation 'P19' has no fact", load_suite, str(release))
    refused(r"P20\.jsonl: cannot be read: No such file", load_suite, str(release))


def test_a_graph_of_other_patterns_is_refused(release, pickle_graph):
    graph = release / "pattern_data" / "graphs" / "P19.graph"
    pickle_graph(graph, TEXTS[::-1], {(0, 1): (True, False, False)})
    refused(r"P19\.graph: its patterns are not those of", load_suite, str(release))


class Harmful:
    def __reduce__(self):
        import os

        return os.system, ("touch harmed",)


class Getter:
    def __reduce__(self):
        return getattr, (dict, "fromkeys")


@pytest.mark.parametrize(("payload", "message"), [
    (Harmful(), "it names '"), (Getter(), "it names '"), (print, "it names '"),
])  # fmt: skip
def test_no_other_pickle_runs(payload, message, tmp_path, monkeypatch, pickle_graph):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "P19.graph"
    path.write_bytes(pickle.dumps(payload))
    refused(f"refused as a pattern graph: {message}", read_graph, path)
    pickle_graph(path, TEXTS, {}, extra=payload)
    refused(f"refused as a pattern graph: {message}", read_graph, path)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("content", [
    b"cos\nsystem\n.", b"cbuiltins\ndict\n)R.", b"(ios\nsystem\n.", b"\x80\x02\x82\x01.", b"Pfile\n.",
], ids=["global", "reduce", "inst", "extension", "persistent"])  # fmt: skip
def test_no_opcode_reaches_a_function(content, tmp_path):
    (tmp_path / "P19.graph").write_bytes(content)
    refused("refused as a pattern graph", read_graph, tmp_path / "P19.graph")


def test_graphs_that_are_not_graphs(tmp_path, pickle_graph):
    path = tmp_path / "P19.graph"
    for content in (b"\x80\x03]q\x00.", b"\x80\x03"):  # an empty list, and nothing
        path.write_bytes(content)
        refused("refused", read_graph, path)
    pickle_graph(path, TEXTS, {(0, 1): ("yes", False, False)})
    refused("not booleans", read_graph, path)
    pickle_graph(path, TEXTS, {(0, 1): (True, {}, False)})
    refused(r"edge flags \[{}, {}\] are not booleans", read_graph, path)
    pickle_graph(path, TEXTS, {(0, 1): (True, False, False)}, one_way=True)
    refused("one direction only", read_graph, path)
    refused("refused as a pattern graph: .*No such file", read_graph, tmp_path / "none.graph")
