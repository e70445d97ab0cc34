"""Reading, checking, choosing and counting suites."""

import json
import math
import re
import shutil

import polars as pl
import pytest

from checks import output, refused
from conftest import cases, real_data
from consilience import Suite, load_suite
from consilience.authoring.checks import audit, sizes_of
from consilience.core.factors import Edge
from consilience.core.items import Choice, Question
from consilience.suites import check_suite
from consilience.suites.facts import load_folder, sample_facts, select_relations
from consilience.suites.question_suites import MINI, is_questions, load_questions
from consilience.suites.questions import Questions
from consilience.types import Fact


def test_a_folder_is_read_as_it_stands(write_suite):
    edge = {"relation": "capital", "pattern_a": "[Y] is the capital of [X].",
            "pattern_b": "The capital of [X] is [Y].",
            "syntactic": 1, "lexical": 0, "determiner": "false"}  # fmt: skip
    suite = load_folder(write_suite(edges=[edge]))
    (relation,) = suite.relations
    assert (suite.name, suite.protocol) == ("suite", "strict")
    assert relation.patterns[0].text == "The capital of [X] is [Y]."
    assert [fact.item for fact in relation.facts] == ["capital-1", "capital-2", "capital-3"]
    assert relation.candidates.words == ("Paris", "Berlin", "Rome")
    assert relation.edges == {(0, 1): Edge(True, False, False)}


FACT = '{"relation": "capital", "subject": "France", "object": "Paris"}\n'


def broken(write_suite, file, content):
    """A suite of which one file is replaced."""
    folder = write_suite()
    (folder / file).with_suffix(".jsonl").unlink(missing_ok=True)
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize(("file", "content", "message"), [
    *cases("suites_bad"),
    ("suite.json", "[" * 100_000, r"suite\.json:1: not JSON"),
    ("suite.json", "\ud800".encode("utf-8", "surrogatepass"), r"suite\.json: not UTF-8 at byte 0"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_file_and_line(file, content, message, write_suite):
    folder = broken(write_suite, file, content)
    refused(message, load_folder, folder)
    assert any(re.search(message, str(problem)) for problem in check_suite(str(folder)))


def test_check_and_loading_say_the_same(write_suite):
    pattern = '{"relation": "capital", "pattern": "[X] has [Y]."}\n'
    folder = write_suite(facts=FACT + 'nonsense\n{}\n{"relation": 1}\n', patterns=pattern + "[X]\n")
    problems = list(map(str, check_suite(str(folder))))
    assert [problem.partition(f"{folder}/")[2].partition(". ")[0] for problem in problems] == [
        "patterns.jsonl:2: not JSON: Expecting value at column 2.",
        "facts.jsonl:2: not JSON: Expecting value at column 1.",
        "facts.jsonl:4, column 'subject': no 'subject'", "facts.jsonl:4, column 'object': no 'object'",
    ]  # fmt: skip
    assert refused("", load_folder, folder).splitlines() == problems


def test_tables_of_every_format_hold_the_same_facts(write_suite):
    """Numbers are texts, line ends a space; control characters and outer space are left out."""
    facts = [{"relation": "capital", "subject": "A\r\nb \u001b", "object": 7.0, "item": 0}]
    folder = write_suite(facts=facts)
    read = load_folder(folder).relations[0].facts
    assert read == (Fact("0", "A b", "7"),)
    (folder / "facts.jsonl").unlink()
    for name, text in (
        ("facts.csv", 'object;Subject;relation;item\n7;"A\nb ";capital;0\n'),
        ("facts.tsv", "relation\tsubject\tobject\titem\r\ncapital\tA b\t7\t0\r\n\r\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8-sig", newline="")
        assert load_folder(folder).relations[0].facts == read, name
        (folder / name).unlink()


def test_check_names_what_decides_the_meaning_of_numbers(write_suite):
    """SSO has two objects, in an N-1 relation and in an N-M one; Free is there three times."""
    relations = [{"relation": "plan"}, {"relation": "tier", "cardinality": "N-M"}]
    patterns = [{"relation": "plan", "pattern": "[X]: [Y]"}]
    patterns += [{"relation": "tier", "pattern": text} for text in ("[X] [Y]", "[Y] [X]")]
    pairs = [("SSO", "Enterprise"), ("SSO", "Free"), *[("Mail", "Free")] * 3]
    ids = ("plan", "tier")
    facts = [{"relation": id_, "subject": s, "object": o} for id_ in ids for s, o in pairs]
    folder = write_suite(relations=relations, patterns=patterns, facts=facts)
    assert check_suite(str(folder)) == []
    assert audit(load_folder(folder)).drop("todo").rows() == [
        ("several_golds", "plan", "'SSO', 'Enterprise'; 'SSO', 'Free'", 2),
        ("duplicate_items", "plan", "'Mail', 'Free'", 3),
        ("duplicate_items", "tier", "'Mail', 'Free'", 3),
        ("single_variant", "plan", "'[X]: [Y]'", 1),
        ("few_for_causal_models", "tier", "'[Y] [X]'", 1),
    ]


def test_a_file_folder_or_table_that_is_missing(tmp_path, write_suite, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "food").mkdir()
    (tmp_path / "own.csv").write_text("question,answer\n?,x\n")
    for spec, message in (
        ("./nowhere", r"no suite '\./nowhere' and no such file or folder"),
        (tmp_path / "fod", "no such file or folder.*Did you mean 'food'"),
        ("fod", "no suite 'fod' and no such file or folder.*mean 'food'"),
        ("own.cvs", "no such file or folder.*mean 'own.csv'"),
        ("own", "no such file or folder.*mean 'own.csv'"),
        ("paralel", "Did you mean 'pararel'"),
        (str(tmp_path), "no suite in this folder.*docs/suites.md"),
    ):
        refused(message, load_suite, spec)
    refused("not in .*`consilience suite fetch pararel`", load_suite, "pararel", tmp_path)
    refused(r"onw\.csv: no such file\. Did you mean 'own\.csv'", load_questions, "onw.csv")
    refused("food: no questions; expected a file questions.csv", load_questions, "food")
    folder = write_suite()
    (folder / "facts.tsv").write_text("relation\tsubject\tobject\n")
    refused("both facts.tsv and facts.jsonl", load_suite, str(folder))
    (folder / "facts.tsv").unlink()
    (folder / "facts.jsonl").unlink()
    refused("no facts.jsonl or facts.tsv", load_suite, str(folder))


def test_what_real_texts_hold_is_no_control_character(write_suite):
    """A no-break space, directional marks, joiners and letters of any script."""
    subject = "\u200eA\u00a0b\u200f \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f600 \u061c"
    facts = [{"relation": "capital", "subject": subject, "object": "\u6771\u4eac", "item": 0}]
    (fact,) = load_folder(write_suite(facts=facts)).relations[0].facts
    assert (fact.item, fact.subject, fact.object) == ("0", subject, "\u6771\u4eac")


def test_the_folder_of_a_suite_is_its_name(write_suite, tmp_path):
    assert load_folder(write_suite(tmp_path / "a\x1b[2J")).name == "a[2J"


def test_relations_are_selected_and_facts_sampled_without_easing_the_question(write_suite):
    suite = load_suite("mini")
    two = select_relations(suite, ["sport", "capital"])
    assert [relation.id for relation in two.relations] == ["capital", "sport"]
    refused(r"no relation 'captial'. Did you mean 'capital'", select_relations, suite, ["captial"])
    few = sample_facts(two, 5, seed=1)
    for all_of_it, part in zip(two.relations, few.relations, strict=True):
        assert len(part.facts) == 5
        order = [all_of_it.facts.index(fact) for fact in part.facts]
        assert order == sorted(order)
        assert part.candidates == all_of_it.candidates
    assert sample_facts(two, 5, seed=1) == few != sample_facts(two, 5, seed=2)
    assert sample_facts(two, 999, seed=1) == two
    assert few.digest != two.digest == select_relations(suite, ["capital", "sport"]).digest


def test_each_relation_has_a_sample_of_its_own(write_suite):
    """Positions drawn by Random("5 A") and Random("5 B"); they are part of what a run is."""
    names = [{"relation": id_} for id_ in "AB"]
    patterns = [each | {"pattern": "[X] [Y]"} for each in names]
    facts = [each | {"subject": f"s{n}", "object": "o"} for each in names for n in range(10)]
    suite = load_folder(write_suite(relations=names, patterns=patterns, facts=facts))
    drawn = [[fact.subject for fact in each.facts] for each in sample_facts(suite, 3, 5).relations]
    assert drawn == [["s3", "s7", "s9"], ["s1", "s3", "s4"]]


def test_variants_are_counted_as_connected_patterns(write_suite, tmp_path):
    """Of A, B, C only A-B keeps its syntax: syntax {A, B}, {C}; lexis never changes: {A, B, C}."""
    texts = [pattern.text for pattern in load_folder(write_suite()).relations[0].patterns]
    edges = [
        {"relation": "capital", "pattern_a": texts[a], "pattern_b": texts[b],
         "syntactic": int((a, b) != (0, 1)), "lexical": 0, "determiner": 0}
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]  # fmt: skip
    counted = sizes_of(load_folder(write_suite(edges=edges)))
    (row,), of_all = counted.tables["by_group"].to_dicts(), counted.facts
    assert [of_all[f"mean_{name}_variants"] for name in ("syntactic", "lexical")] == [2, 1]
    assert (row["no_change"], row["diff_syntax"]) == (1, 2)
    assert (row["majority"], of_all["facts"], of_all["queries"]) == (1 / 3, 3, 9)
    bare = sizes_of(load_folder(write_suite(tmp_path / "bare")))
    assert math.isnan(bare.facts["mean_syntactic_variants"]), "nothing is known without edges"


def test_subjects_and_objects_of_several_facts_are_counted():
    """Ada has a and b; a has Ada and Bob. The same fact in two rows counts once."""
    facts = [("Ada", "a"), ("Ada", "b"), ("Bob", "a"), ("Cid", "c"), ("Cid", "c")]
    (row,) = sizes_of(Suite.from_patterns(["[X] is [Y]."], facts)).tables["by_group"].to_dicts()
    assert (row["shared_subjects"], row["shared_objects"]) == (1, 1)
    assert (row["subjects"], row["candidates"]) == (3, 3)


def test_the_real_release_is_as_it_was_counted():
    """Table 1 to the digit, sizes and edit kinds over all relations, from the release itself."""
    folder = str(real_data("pararel"))
    suite = load_suite(folder)
    counted = sizes_of(suite)
    assert counted.facts == {
        "relations": 38, "patterns": 328, "fewest_patterns": 2, "most_patterns": 20,
        "mean_patterns": 328 / 38, "mean_syntactic_variants": 180 / 38,
        "mean_lexical_variants": 229 / 38, "facts": 26_813, "queries": 223_170,
    }, "8.63, 4.74 and 6.03"  # fmt: skip
    kinds = {"diff_syntax": 58, "diff_lexical": 344, "diff_both": 994, "no_change": 54,
             "diff_determiner": 1992}  # fmt: skip
    assert {kind: 2 * counted.tables["by_group"][kind].sum() for kind in kinds} == kinds
    assert sum(pattern.object_last for each in suite for pattern in each.patterns) == 213
    assert not check_suite(folder)
    found = audit(suite).group_by("check").agg(groups=pl.len(), rows=pl.col("count").sum())
    assert dict(found["check", "groups"].iter_rows()) == {
        "several_golds": 22, "duplicate_items": 9, "object_in_subject": 30, "spaces": 15,
        "few_for_causal_models": 3,
    }  # fmt: skip
    assert found.filter(check="spaces")["rows"].item() == 34


def test_the_name_of_a_suite_or_task_is_never_that_of_a_folder(tmp_path, monkeypatch):
    for name in ("mini", "pararel", "mrpc", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "questions.csv").write_text("question,answer\nHow?,So\n")
    copy = shutil.copytree(MINI, tmp_path / "copy")  # its folder also has a table of questions
    assert (check_suite(copy), load_suite(copy).digest) == ([], load_suite("mini").digest)
    monkeypatch.chdir(tmp_path)
    assert [is_questions(each) for each in ("mini", "pararel", "mrpc", "own")] == [0, 0, 0, 1]
    assert is_questions("./mini")
    assert load_suite("mini").name == "mini"


CAPITALS = [("France", "Paris"), ("Italy", "Rome")]


def of_patterns(*texts):
    return Suite.from_patterns({"r": list(texts)}, {"r": CAPITALS})


def of_facts(*facts):
    return Suite.from_patterns({"r": ["[X] [Y]."]}, {"r": list(facts)})


def question(item, group, texts, gold, *others, context=""):
    right = Choice(gold)
    return Question(item, group, {"": texts}, right, (right, *map(Choice, others)), context)


def of_questions(*items):
    return Questions("s", tuple(question(*item) for item in items))


WRONG = [
    (of, *case)
    for of, name in ((of_patterns, "patterns"), (of_facts, "facts"), (of_questions, "questions"))
    for case in cases(f"audit_{name}")
]


@pytest.mark.parametrize(("of", "name", "parts", "wrong"), WRONG)
def test_what_is_wrong_with_patterns_facts_and_questions(of, name, parts, wrong):
    assert audit(of(*parts)).filter(check=name)["count"].sum() == wrong


def test_check_shows_an_example_of_each_group_and_counts_the_suite(write_suite, consilience):
    ids = "abcdef"
    tables = {
        "relations": [{"relation": id_} for id_ in ids],
        "patterns": [{"relation": id_, "pattern": text} for id_ in ids
                     for text in ("[X]  is [Y].", "[X] is  [Y]", "[X] has [Y]")],
        "facts": [{"relation": id_, "subject": "A", "object": "B"} for id_ in ids],
    }  # fmt: skip
    folder = write_suite(**tables)
    out = output(consilience, "suite", "check", folder)
    assert out.count("'[X]  is [Y].'") == 10 and "2 more: --format csv" in out
    assert "Write single spaces." in " ".join(out.split())
    assert "no problems, 12 notes; 6 relations, 18 patterns, 6 facts" in out
    csv = output(consilience, "suite", "check", folder, "--format", "csv")
    rows = pl.read_csv(csv.encode()).filter(check="duplicate_variants")
    assert rows["example"][0] == "'[X]  is [Y].'; '[X] is  [Y]'" and rows["count"][0] == 2
    document = json.loads(output(consilience, "suite", "check", folder, "--json"))
    assert (document["patterns"], document["problems"], len(document["notes"])) == (18, [], 12)
