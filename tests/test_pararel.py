"""The release's layout, made here in small."""

import json

import pytest

from checks import refused
from consilience import load_suite
from consilience.suites import check_suite
from consilience.suites.layouts import _RELATIONS

TEXTS = ["[X] is in [Y].", "[Y] holds [X]."]


@pytest.fixture
def release(tmp_path):
    root = tmp_path / "pararel"
    for folder in ("pattern_data/graphs_json", "trex_lms_vocab"):
        (root / folder).mkdir(parents=True)
    for id_, *_ in _RELATIONS:
        patterns = [{"pattern": text, "lemma": "l", "tense": "present"} for text in TEXTS]
        objects = ["jazz", "satire"] if id_ == "P136" else ["Rome", "Oslo", "Rome"]
        both = enumerate(objects)
        facts = [{"sub_label": f"s{n}", "obj_label": of, "uuid": f"{id_}/{n}"} for n, of in both]
        for path, rows in (("pattern_data/graphs_json", patterns), ("trex_lms_vocab", facts)):
            text = "\n".join(map(json.dumps, rows)) + "\n"
            (root / path / f"{id_}.jsonl").write_text(text)
    return root


def test_a_release_is_read_with_the_papers_filter(release):
    suite = load_suite(str(release))
    assert (suite.name, suite.protocol) == ("pararel", "published")
    assert [r.cardinality for r in suite.relations].count("N-1") == 31
    assert [r.cardinality for r in suite.relations].count("N-M") == 7
    music = suite.relation("P136")
    assert ([fact.object for fact in music.facts], music.candidates.words) == (["jazz"], ("jazz",))
    note = "no numbers for kinds of edits of P17, P19, P20, P27, P30, P36 and 32 more"
    assert suite.notes[0].startswith(note)
    assert suite.notes[1:] == ("P136: 1 tuples left out, see note 11 of the ParaRel paper",)
    assert suite.relation("P19").facts[0].item == "P19/0"


def test_a_release_inside_a_clone(release, tmp_path):
    (tmp_path / "clone").mkdir()
    release.rename(tmp_path / "clone" / "data")
    suite = load_suite(str(tmp_path / "clone"))
    assert len(suite.relations) == 38


def test_a_release_that_was_altered_is_told_by_its_digests(release):
    problems = [str(problem) for problem in check_suite(str(release))]
    assert sum("not what was released" in problem for problem in problems) == 20
    assert problems[20] == "and 56 more problems."
    lines = release / "trex_lms_vocab" / "P19.jsonl"
    lines.write_text(lines.read_text() * 2)
    refused(r"P19\.jsonl:4: duplicate item 'P19/0' of 'P19'", load_suite, str(release))
    lines.write_text("")
    (release / "trex_lms_vocab" / "P20.jsonl").unlink()
    refused(r"P19\.jsonl: the relation 'P19' has no fact", load_suite, str(release))
    refused(r"P20\.jsonl: cannot be read: No such file", load_suite, str(release))
