"""The release's layout, made here in small, and fetching it from a server on this machine."""

import hashlib
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from checks import refused
from consilience import load_suite
from consilience.suites import check_suite
from consilience.suites import facts as module
from consilience.suites.facts import _RELATIONS, SOURCES, fetch, listing

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


def test_a_release_is_read_with_the_papers_filter(release, tmp_path):
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
    (tmp_path / "clone").mkdir()
    release.rename(tmp_path / "clone" / "data")
    assert load_suite(str(tmp_path / "clone")).digest == suite.digest


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


FILES = {"a/one.txt": b"first file\n" * 400, "two.txt": b"second\n"}


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; of an answer only the first ``most`` bytes are sent, if it is set."""

    most = -1

    def copyfile(self, source, outputfile):
        outputfile.write(source.read(Handler.most))

    def log_message(self, *args):
        pass


@pytest.fixture
def served(monkeypatch, tmp_path):
    """The folder that a server on this machine has, as the release."""
    listed = [
        module.ReleasedFile(path, len(of), hashlib.sha256(of).hexdigest())
        for path, of in FILES.items()
    ]
    monkeypatch.setattr(module, "listing", lambda name: listed)
    folder = tmp_path / "served"
    for path, of in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(of)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setitem(SOURCES, "pararel", f"http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()


def content(folder):
    return {path: (folder / path).read_bytes() for path in FILES}


def test_fetched_once_and_kept(served, tmp_path):
    steps = []
    folder, fetched = fetch("pararel", tmp_path, advance=lambda *step: steps.append(step))
    assert folder == tmp_path / "pararel"
    assert (content(folder), fetched, steps) == (FILES, 2, [(0, 2), (1, 2), (1, 2)])
    assert fetch("pararel", tmp_path)[1] == 0
    (folder / "two.txt").write_bytes(b"changed")
    assert fetch("pararel", tmp_path)[1] == 1
    assert content(folder) == FILES


def test_a_file_with_another_digest_is_never_put_in_place(served, tmp_path):
    (served / "two.txt").write_bytes(b"SECOND\n")
    refused(r"not the released file; expected SHA-256", fetch, "pararel", tmp_path)
    assert not (tmp_path / "pararel" / "two.txt").exists()
    assert (tmp_path / "pararel" / "a" / "one.txt").exists(), "what was right is kept"
    (served / "two.txt").write_bytes(FILES["two.txt"])
    assert content(fetch("pararel", tmp_path)[0]) == FILES


def test_what_cannot_be_had_is_named(served, tmp_path, monkeypatch):
    (served / "two.txt").unlink()
    refused(r"two\.txt: cannot be fetched: .*404", fetch, "pararel", tmp_path)
    monkeypatch.setattr(Handler, "most", 1000)
    refused("not the released file", fetch, "pararel", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    monkeypatch.setitem(SOURCES, "pararel", "http://127.0.0.1:9/data")
    refused("cannot be fetched: .*refused.*network", fetch, "pararel", tmp_path / "c")


def test_the_listing_of_the_release_is_pinned_and_whole():
    refused("Did you mean 'pararel'", listing, "paralel")
    files = listing("pararel")
    assert len(files) == 2 * 38
    assert all(len(file.sha256) == 64 and file.size > 0 for file in files)
    assert SOURCES["pararel"].split("/")[-2] == "cb5554678457beb5ac163d888f1ce8cf174b3f0b"
