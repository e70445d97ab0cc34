"""Reading, checking, choosing and counting suites."""

import json
import math
import re
import shutil

import polars as pl
import pytest
from huggingface_hub import constants

import consilience as cs
from checks import ScoringFunction, output, refusal, refused
from conftest import cases, real_data, suite_of
from consilience import load_suite, suites
from consilience.authoring.checks import audit, sizes_of
from consilience.core.factors import Edge
from consilience.core.free_text import RULES, match
from consilience.core.items import Choice, Question
from consilience.metrics.measure import measure
from consilience.models.functions import Baseline, Function
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.facts import ask, ask_suite, group_of
from consilience.plans.presentation import Presentation, present
from consilience.plans.questions import answered
from consilience.report.layouts import language_rows, metrics_table
from consilience.suites import check_suite
from consilience.suites.facts import load_folder, sample_facts, select_languages, select_relations
from consilience.suites.question_suites import (
    BLANK,
    KNOWN,
    MINI,
    SUITE_NAMES,
    WORDS,
    is_questions,
    load_questions,
    questions_of_suite,
    words_in,
)
from consilience.suites.questions import Questions
from consilience.types import Fact
from hub_server import serving


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


def test_tables_of_every_format_hold_the_same_facts(write_suite):
    """Numbers are texts, line ends a space; control characters and outer space are left out.

    A no-break space, directional marks, joiners and letters of any script stay.
    """
    real = "\u200eA\u00a0b\u200f \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f600 \u061c"
    facts = [{"relation": "capital", "subject": f"A\r\nb {real}\u001b ", "object": 7.0, "item": 0}]
    folder = write_suite(facts=facts)
    read = load_folder(folder).relations[0].facts
    assert read == (Fact("0", f"A b {real}", "7"),)
    (folder / "facts.jsonl").unlink()
    for name, text in (
        ("facts.csv", f'object;Subject;relation;item\n7;"A\nb {real} ";capital;0\n'),
        ("facts.tsv", f"relation\tsubject\tobject\titem\r\ncapital\tA b {real}\t7\t0\r\n\r\n"),
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
    (row,) = sizes_of(suite_of(["[X] is [Y]."], facts)).tables["by_group"].to_dicts()
    assert (row["shared_subjects"], row["shared_objects"]) == (1, 1)
    assert (row["subjects"], row["candidates"]) == (3, 3)


def test_the_real_release_is_as_it_was_counted():
    """Edit kinds over all relations, from the release itself; ``test_reproduce`` has Table 1."""
    folder = str(real_data("pararel"))
    suite = load_suite(folder)
    counted = sizes_of(suite)
    assert counted.facts["queries"] == 223_170
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
    return suite_of({"r": list(texts)}, {"r": CAPITALS})


def of_facts(*facts):
    return suite_of({"r": ["[X] [Y]."]}, {"r": list(facts)})


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
    document = json.loads(output(consilience, "suite", "check", folder, "--json"))
    assert (document["patterns"], document["problems"], len(document["notes"])) == (18, [], 12)


# Suites with patterns in several languages: names, particles, asking, and pairs by language.


CAPITAL_CITIES = {"France": "Paris", "Switzerland": "Bern", "Italy": "Rome"}
PATTERNS = [
    {"pattern": "The capital of [X] is [Y]."},
    {"pattern": "[Y] is the capital of [X]."},
    {"pattern": "Die Hauptstadt des Landes [X] ist [Y].", "language": "de"},
    {"pattern": "[X]の首都は[Y]です。", "language": "ja"},
    {"pattern": "[Y]は[X]の首都です。", "language": "ja"},
]
NAMES = [
    *({"name": city, "language": "de", "text": text} for city, text in
      {"Paris": "Paris", "Bern": "Bern", "Rome": "Rom"}.items()),
    *({"name": country, "language": "de", "text": text} for country, text in
      {"France": "Frankreich", "Switzerland": "Schweiz", "Italy": "Italien"}.items()),
    *({"name": name, "language": "ja", "text": text} for name, text in
      {"France": "フランス", "Switzerland": "スイス", "Italy": "イタリア",
       "Paris": "パリ", "Bern": "ベルン", "Rome": "ローマ"}.items()),
]  # fmt: skip


HELD = {
    "France": ["Paris", "Paris", "Paris", "Paris", "Bern"],
    "Switzerland": ["Bern", "Bern", "Bern", "Paris", "Paris"],
    "Italy": ["Bern", "Rome", "Rome", "Rome", "Rome"],
}
"""Answers to five patterns (en, en, de, ja, ja) about three facts."""


def held(by_subject):
    return pl.DataFrame(
        {"group": "capital", "item": subject, "subject": subject, "variant": PATTERNS[at]["pattern"],
         "gold": CAPITAL_CITIES[subject], "answer": answer}
        for subject, given in by_subject.items() for at, answer in enumerate(given)
    )  # fmt: skip


def write(folder, patterns=PATTERNS, names=NAMES, facts=CAPITAL_CITIES, about=None):
    tables = {
        "relations": [{"relation": "capital"}],
        "patterns": [{"relation": "capital", **row} for row in patterns],
        "facts": [{"relation": "capital", "subject": a, "object": b} for a, b in facts.items()],
        "names": names,
    }
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    if about:
        (folder / "suite.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def problems(folder, **tables):
    return [str(problem) for problem in suites.check_suite(write(folder / "suite", **tables))]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return suites.load_suite(write(tmp_path_factory.mktemp("suites") / "capitals"))


def test_names_replace_subjects_objects_and_candidates(suite):
    asked = []

    def score(sentences):
        asked.extend(sentences)
        return [float("Rom" in text or "ローマ" in text) for text in sentences]

    answers = ask(suite, ScoringFunction(score), group_of(suite, "capital"))
    assert "Die Hauptstadt des Landes Schweiz ist Rom." in asked
    assert "ローマはスイスの首都です。" in asked
    assert len(asked) == 3 * 5 * 3
    assert set(answers["answer"]) == {"Rome"}
    assert answers["gold"].to_list()[:5] == ["Paris"] * 5
    assert answers["subject"].to_list()[5:10] == ["Switzerland"] * 5
    right = answers.filter(pl.col("answer") == pl.col("gold"))
    assert right["gold_rank"].to_list() == [1.0] * 5


def test_a_text_in_the_language_of_its_pattern_is_the_object(suite):
    texts = {"イタリア": "ローマ", "Italien": "Rom", "Italy": "Rome", "スイス": "Rom"}

    def write_text(prompts):
        return [next((a for q, a in texts.items() if q in p), "?") for p in prompts]

    table = ask_suite(suite, Function(write_text))
    assert table.filter(subject="Italy")["answer"].to_list() == ["Rome"] * 5
    swiss = table.filter(subject="Switzerland")["answer"].to_list()
    assert swiss == ["?", "?", "?", "Rom", "Rom"]  # no Japanese text


def test_the_oracle_is_right_in_every_language(suite):
    oracle = Baseline("oracle", 0, "facts")
    answers = ask_suite(suite, oracle)
    assert (answers["answer"] == answers["gold"]).all()


def test_questions_in_the_languages_of_the_patterns(suite):
    questions = questions_of_suite(suite, 1)
    italy = questions.items[2]
    assert questions.languages == ("en", "de", "ja")
    assert italy.paraphrases["de"] == (
        f"Fülle die Lücke aus: Die Hauptstadt des Landes Italien ist {BLANK}.",
    )
    assert italy.paraphrases["ja"][1] == f"次の空欄を埋めてください。{BLANK}はイタリアの首都です。"
    german = present(italy, Presentation(language="de", labels="none"))
    english = present(italy, Presentation(language="en", labels="none"))
    texts = {"Rome": "Rom", "Paris": "Paris", "Bern": "Bern"}
    assert german.answers == tuple(texts[text] for text in english.answers)
    assert "Rom\n" in german.text
    assert german.choices[german.gold].texts == ("Rom", "Rome", "ローマ")
    open_ = questions_of_suite(suite, 0).items[2]
    assert open_.gold.texts == ("Rome", "Rom", "ローマ")
    assert present(open_, Presentation(language="ja", paraphrase=1)).answers == ("ローマ",)
    answer = answered("Rom", german, italy)
    assert (answer["answer"], answer["option"]) == ("Rome", italy.gold_position)


def test_questions_in_other_languages_are_the_sentence(tmp_path):
    patterns = [{"pattern": "La capitale di [X] è [Y].", "language": "it"}]
    all_names = [name for pair in CAPITAL_CITIES.items() for name in pair]
    names = [{"name": name, "language": "it", "text": name} for name in all_names]
    suite = suites.load_suite(write(tmp_path / "italian", patterns, names))
    questions = questions_of_suite(suite, 0)
    assert questions.items[0].paraphrases == {"": ("La capitale di France è ____.",)}
    assert "it are the sentence with its blank" in questions.notes[-1]


def test_a_choice_of_languages(suite):
    german = select_languages(suite, ["de"])
    assert [pattern.language for pattern in german["capital"].patterns] == ["de"]
    assert set(german["capital"].names) == {"de"}
    english = select_languages(suite, ["en"])
    plain = suites.Suite(suite.name, (english["capital"],))
    assert english["capital"].names == {}
    assert english.digest == plain.digest != suite.digest
    refused("no pattern in 'jp'. Known: en, de, ja", select_languages, suite, ["jp"])


def test_a_missing_name_is_the_same_name(tmp_path):
    names = [row for row in NAMES if row["text"] not in ("ローマ", "Schweiz")]
    suite = suites.load_suite(write(tmp_path / "suite", names=names))
    (relation,) = suite
    asked = {q.pattern.fill(q.subject, q.gold) for f in relation.facts for p in relation.patterns
             for q in [relation.query(p, f)]}  # fmt: skip
    assert audit(suite).is_empty()
    none = suites.load_suite(write(tmp_path / "none", names=[]))
    assert audit(none).filter(check="same_names")["count"].item() == 3
    assert "イタリアの首都はRomeです。" in asked
    assert "Die Hauptstadt des Landes Switzerland ist Bern." in asked


def test_a_sheet_has_columns_of_a_language(tmp_path):
    german = {"France": "Frankreich", "Switzerland": "Schweiz", "Italy": "Italien"}
    sheet = [
        {"relation": "capital", "subject": subject, "object": object_, "subject_de": text,
         "object_de": {"Rome": "Rom"}.get(object_, "")}
        for (subject, object_), text in zip(CAPITAL_CITIES.items(), german.values(), strict=True)
    ]  # fmt: skip
    patterns = PATTERNS[:3]
    folder = write(tmp_path / "suite", patterns, [])
    pl.DataFrame(sheet).write_csv(folder / "facts.csv")
    (folder / "facts.jsonl").unlink()
    relation = suites.load_suite(folder)["capital"]
    italy = relation.query(relation.patterns[2], relation.facts[2])
    assert (italy.subject, italy.gold) == ("Italien", "Rom")
    france = relation.query(relation.patterns[2], relation.facts[0])
    assert (france.subject, france.gold) == ("Frankreich", "Paris")
    sheet.append(sheet[2] | {"object": "Milan", "object_de": "", "subject_de": "Italiens"})
    pl.DataFrame(sheet).write_csv(folder / "facts.csv")
    (error,) = suites.check_suite(folder)
    assert "'Italy' is 'Italiens' in 'de'; expected 'Italien', as in another row" in str(error)


def test_wrong_rows_of_names(tmp_path):
    for row, message in (
        ({"text": "羅馬"}, "'Rome' is '羅馬' in 'ja'; expected 'ローマ', as in another row"),
        ({"text": "羅馬", "language": "Japanese"}, "the language 'Japanese'"),
        ({"name": "Bern"}, "column 'text': no 'text'"),
        ({"name": "Rom", "text": "x"}, "no subject or object 'Rom'. Did you mean 'Rome'"),
    ):
        names = [*NAMES, {"name": "Rome", "language": "ja", **row}]
        assert message in problems(tmp_path, names=names)[0]
    twins = [row | {"text": row["text"].replace("ローマ", "ベルン")} for row in NAMES]
    assert "'Bern' and 'Rome' of 'capital' are both 'ベルン'" in problems(tmp_path, names=twins)[0]
    about = {"name": "t", "language": "German"}
    (line,) = problems(tmp_path, patterns=PATTERNS[:2], names=[], about=about)
    assert "the language 'German'; expected a BCP 47 tag" in line


def test_unicode_forms_of_one_text_are_the_same_name(tmp_path):
    facts = {"Türkei": "Ankara"}  # composed
    rows = [
        {"name": "Tu\u0308rkei", "language": "en", "text": "Turkey"},
        {"name": "Ankara", "language": "en", "text": "Ankara"},
    ]
    patterns = [{"pattern": "[X]: [Y]"}, {"pattern": "[Y] of [X]", "language": "en"}]
    folder = write(tmp_path / "suite", patterns, rows, facts, {"name": "t", "language": "de"})
    relation = suites.load_suite(folder)["capital"]
    assert [pattern.language for pattern in relation.patterns] == ["de", "en"]
    assert relation.query(relation.patterns[1], relation.facts[0]).subject == "Turkey"
    assert relation.query(relation.patterns[0], relation.facts[0]).subject == "Türkei"
    doubled = [{"pattern": "[X] für [Y]"}, {"pattern": "[X] fu\u0308r [Y]"}]
    assert "duplicate pattern" in problems(tmp_path, patterns=doubled, names=[], facts=facts)[0]


@pytest.mark.parametrize(("rule", "text", "choice", "at", "note"), cases("texts_of_scripts"))
def test_texts_differ_and_words_end_as_in_their_script(rule, text, choice, at, note):
    assert match(text, [Choice(choice)], RULES[rule]).position == at, note


def test_numbers_of_languages(suite):
    """Five patterns (en, en, de, ja, ja) and three facts with hand-made answers."""
    answers = held(HELD)
    metrics = measure(answers, suite)

    def values(metric):
        return dict(metrics.filter(over="all", metric=metric)["level", "value"].iter_rows())

    assert values("consistency") == pytest.approx(
        {"": 16 / 30, "en": 2 / 3, "ja": 2 / 3, "en/de": 5 / 6, "en/ja": 4 / 12, "de/ja": 3 / 6}
    )
    assert values("accuracy") == pytest.approx({"": 2 / 3, "en": 2 / 3, "de": 1, "ja": 2 / 3})
    table = metrics_table(language_rows(metrics), "t")
    assert [row[0].value for row in table.grid() if row[0].value.startswith("Consistency, ")] == [
        f"Consistency, {of}" for of in ("en", "ja", "de and ja", "en and de", "en and ja")
    ]
    alone = select_languages(suite, ["en"])
    english = answers.filter(pl.col("variant").is_in([of["pattern"] for of in PATTERNS[:2]]))
    assert language_rows(measure(english, alone)).is_empty()


def test_languages_on_the_command_line(consilience, tmp_path):
    folder, run = write(tmp_path / "capitals"), tmp_path / "run"
    probe = ("probe", "--suite", folder, "--model", "baseline:majority", "--out", run)
    assert "(or factor, pattern, metric, item)" in output(consilience, *probe)
    assert "en and ja" in output(consilience, "score", run, "--by", "factor")
    chosen = tmp_path / "german"
    out = output(consilience, *probe[:-1], chosen, "--vary", "language=de,en")
    assert "3 patterns each" in out
    assert ",language,en/de," in (chosen / "metrics.csv").read_text()
    assert "ja" not in pl.read_csv(chosen / "metrics.csv")["level"]
    for wrong, message in (
        ("order=2", "--vary order with a suite of facts; expected --vary language=L,L"),
        ("language=fr", "'fr'"),
    ):
        refused(message, plan_of, ProbeOptions(suite=str(folder), vary=[wrong]))
    for vary, known in (("language=de,", ["de"]), ("language", None), ("language=all", None)):
        plan = plan_of(ProbeOptions(suite=str(folder), vary=[vary]))
        assert plan.settings["languages"] == known


def test_every_language_has_all_words():
    for language, words in WORDS.items():
        assert words.keys() == WORDS["en"].keys(), language
    assert words_in("pt-BR") == WORDS["en"] and words_in("de-AT") == WORDS["de"]


# Suites that people know: each row of the table, read from files in the layout of the Hub.


FEATURES = {"answer": {"names": ["A", "B", "C", "D"], "_type": "ClassLabel"}}
LABELS = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
"""What the datasets library writes into files of MMLU: its answers are positions with names."""


def copied(data, name, *rows, file=""):
    """A copy of a data set in ``data`` with these rows in the file of its split."""
    known = KNOWN[name]
    file = file or f"{known.split}-00000-of-00001.parquet"
    path = data / name / (known.config or "data") / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".tsv":
        pl.DataFrame(rows).write_csv(path, separator="\t")
    else:
        pl.DataFrame(rows).write_parquet(path, metadata=LABELS)
    return path


def item(name, group, text, gold, options=(), context=""):
    choices = YES_NO if options == ["yes", "no"] else tuple(map(Choice, options))
    first, *aliases = gold if isinstance(gold, list) else [gold]
    right = choices[gold] if options else Choice(first, tuple(aliases))
    return Question(name, group, {"": (text,)}, right, choices, context)


YES_NO = (Choice("yes", ("true",)), Choice("no", ("false",)))
ROWS = [(name, rows, [item(*one) for one in items]) for name, rows, items in cases("known_suites")]


@pytest.mark.parametrize(("name", "rows", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_each_row_of_the_table_reads_its_layout(tmp_path, name, rows, expected):
    copied(tmp_path, name, *rows, file="test.tsv" * (name == "popqa"))
    questions = load_questions(name, data=tmp_path)
    assert list(questions.items) == expected
    known = KNOWN[name]
    assert questions.notes == (
        f"{known.dataset}, {known.split}: {known.licence}, {known.citation}",
    )
    assert questions.source == {**known.source, "revision": "local files"}


def test_all_rows_are_tested_and_listed(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    assert [*(row[0] for row in ROWS), *EDITS, *HUB_FACTS] == list(KNOWN)
    copied(tmp_path, "arc", *ROWS[1][1])
    listed = output(consilience, "suite", "list")
    cited = "CC-BY-SA-4.0, Clark et al. 2018, arXiv:1803.05457"
    assert re.search(f"{cited}\n +{tmp_path / 'arc'}\n", listed)
    assert re.search("\n +Hub: cais/mmlu@c30699e\n", listed)
    assert cs.list_suites() == SUITE_NAMES


def test_a_run_records_the_data_set(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    copied(tmp_path, "arc", *ROWS[1][1])
    out = tmp_path / "run"
    output(consilience, "probe", "--model", "baseline:majority", "--suite", "arc", "--out", out)
    record = json.loads((out / "run.json").read_text())
    assert record["hub"] == ["allenai/ai2_arc", "ARC-Challenge", "test"]
    assert record["warnings"][0].startswith("allenai/ai2_arc, test: ")


def test_subjects_are_groups_and_another_split_is_another_suite(consilience, tmp_path):
    copied(tmp_path, "mmlu", *ROWS[0][1])
    copied(tmp_path, "mmlu", ROWS[0][1][0], file="dev.jsonl")
    dev = load_questions("mmlu:dev", data=tmp_path)
    assert (dev.name, [one.item for one in dev.items]) == ("mmlu-dev", ["physics-1"])
    run = ["probe", "--model", "baseline:majority", "--suite", "mmlu", "--data-dir", tmp_path]
    run += ["--groups", "physics", "--limit", 1, "--out", tmp_path / "run"]
    shown = output(consilience, *run)
    assert shown.startswith("baseline:majority on mmlu: 1 group, 1 question, ")


def test_questions_that_cannot_be_asked_are_left_out_with_a_note(tmp_path):
    same = {**ROWS[4][1][0], "endings": ["a.", "a.", "b.", "c."]}
    unknown = {**ROWS[4][1][0], "label": ""}
    hidden = {**ROWS[4][1][0], "label": "-1"}
    copied(tmp_path, "hellaswag", same, unknown, hidden, ROWS[4][1][1])
    questions = load_questions("hellaswag", data=tmp_path)
    assert [one.gold.text for one in questions.items] == ["turns."]
    (_, note) = questions.notes
    assert note.startswith("3 of 4 questions are left out, such as hellaswag, row ")
    copied(tmp_path, "hellaswag", unknown)
    refused(
        "hellaswag, row 1: no question with a right answer",
        load_questions,
        "hellaswag",
        data=tmp_path,
    )
    assert len(check_suite("hellaswag", tmp_path)) == 1


def test_a_part_of_a_split_is_refused_and_all_parts_are_read(tmp_path):
    for part in (0, 1):
        copied(tmp_path, "gsm8k", *ROWS[7][1], file=f"test-0000{part}-of-00002.parquet")
        if part == 0:
            message = "1 files; expected main/test.jsonl or .tsv, or all main/test-"
            refused(message, load_questions, "gsm8k", data=tmp_path)
    assert len(load_questions("gsm8k", data=tmp_path)) == 2


def test_another_layout_is_one_message(tmp_path):
    copied(tmp_path, "arc", {"id": "1", "question": "Ice is", "answerKey": "A"})
    message = "arc, row 1: no column 'choices' among id, question, answerKey; expected those of allenai/ai2_arc"
    refused(message, load_questions, "arc", data=tmp_path)
    message = "0 files; expected ARC-Challenge/train.jsonl or .tsv, or all ARC"
    refused(message, load_questions, "arc:train", data=tmp_path)
    message = "names of columns with the suite 'arc'"
    refused(message, load_questions, "arc", {"options": "choices"}, tmp_path)
    refused("'arc' is a suite of questions", cs.load_suite, "arc", tmp_path)


def case(id_, prompt, subject, new, true, paraphrases, neighbours):
    """A row in the layout of CounterFact."""
    rewrite = {
        "prompt": prompt, "relation_id": "P103", "subject": subject,
        "target_new": {"id": "Q1", "str": new}, "target_true": {"id": "Q2", "str": true},
    }  # fmt: skip
    prompts = {"paraphrase_prompts": paraphrases, "neighborhood_prompts": neighbours}
    return {"case_id": id_, "pararel_idx": 0, "requested_rewrite": rewrite, **prompts}


EDITS = ("counterfact", "counterfact-neighbours")
CASES = (
    case(0, "The mother tongue of {} is", "Ada", "English", "French", ["Rain. Ada, a native", "Ada spoke"], ["Bo, a native", "Cy spoke", "Di spoke"]),
    case(7, "The mother tongue of {} is", "Eve", "Thai", "Dutch", ["Eve spoke", "Eve knows"], ["Flo spoke", "Flo spoke", "Gus spoke"]),
    case(8, "{} speaks", "Hal", "Thai", "Thai", ["Hal spoke"], []),
)  # fmt: skip


def test_counterfact_is_the_new_object_against_the_old_one_in_all_prompts(tmp_path):
    asked = {}
    for name in EDITS:
        copied(tmp_path, name, *CASES)
        asked[name] = load_questions(name, data=tmp_path)
        assert asked[name].notes[1].startswith("1 of 3 questions are left out, such as ")
    edits, neighbours = asked.values()
    assert edits.items[0].paraphrases[""] == (
        "The mother tongue of Ada is",
        "Rain. Ada, a native",
        "Ada spoke",
    )
    assert [(one.item, one.gold.text) for one in edits.items] == [("0", "English"), ("7", "Thai")]
    assert neighbours.items[1].paraphrases[""] == ("Flo spoke", "Gus spoke")
    assert [one.gold.text for one in neighbours.items] == ["French", "Dutch"]


HUB_FACTS = ("pararel-patterns", "bear")


def fact_rows(relation, patterns, facts, **columns):
    """Rows in the layout of both data sets of facts: each fact in each pattern."""
    return [
        {"relation": relation, "subject": subject, "template": text, "template_index": at}
        | {"object": object_, **{name: of(object_) for name, of in columns.items()}}
        for subject, object_ in facts
        for at, text in enumerate(patterns)
    ]


def test_facts_of_the_hub_are_facts_and_patterns(tmp_path):
    """Turkey is on two continents, in a relation that still has one object for each subject."""
    facts = [("Oslo", "Europe"), ("Turkey", "Asia"), ("Turkey", "Europe"), ("Bern", "Europe")]
    texts = ["[X] is located in [Y] .", "[X] belongs to [Y] ."]
    listed = {"candidates": lambda _: ["Asia", "Europe"]}
    rows = fact_rows("P30.jsonl", texts, facts, **listed)
    rows += fact_rows("P47.jsonl", texts[:1], facts[:1], **listed)
    copied(tmp_path, "pararel-patterns", *rows)
    suite = load_suite("pararel-patterns", tmp_path)
    continent, border = suite
    assert (continent.id, continent.cardinality, border.cardinality) == ("P30", "N-1", "N-M")
    assert [fact.names for fact in continent.facts] == facts
    assert [one.text for one in continent.patterns] == texts
    assert suite.notes == (
        "coastalcph/pararel_patterns, train: see the card of the data set; tuples of LAMA, CC-BY-NC-4.0, "
        "Elazar et al. 2021, arXiv:2102.01017",
    )

    answers = ["Bern", "Rome", "Oslo"]
    by_position = {"answer_options": lambda _: answers, "correct": answers.index}
    rows = fact_rows("P36", texts, [("Norway", "Oslo"), ("Italy", "Rome")], **by_position)
    path = copied(tmp_path, "bear", *({**row, "object": None} for row in rows))
    (capital,) = load_suite("bear", tmp_path)
    assert [fact.names for fact in capital.facts] == [("Norway", "Oslo"), ("Italy", "Rome")]
    assert capital.candidates.words == ("Oslo", "Rome") and not check_suite("bear", tmp_path)

    path.unlink()
    copied(tmp_path, "bear", {**rows[0], "correct": 3}, file="test.jsonl")
    refused("bear, row 1, column 'object': no 'object'", load_suite, "bear", tmp_path)
    copied(tmp_path, "bear", {"relation": "P36"}, file="test.jsonl")
    refused("bear, row 1: no column 'subject' among relation", load_suite, "bear", tmp_path)
    assert len(check_suite("bear", tmp_path)) == 1


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        files = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server


def test_the_hub_is_asked_once_for_the_files_of_the_split(hub, tmp_path, monkeypatch):
    path = copied(tmp_path / "made", "boolq", *ROWS[3][1])
    hub.repositories["datasets/google/boolq"] = {
        "data/validation-00000-of-00001.parquet": path.read_bytes(), "data/train-00000-of-00001.parquet": b"large",
    }  # fmt: skip
    questions = load_questions("boolq", data=tmp_path)
    assert questions.source == KNOWN["boolq"].source
    assert questions.notes[0].startswith("google/boolq@35b264d, validation: CC-BY-SA-3.0")
    assert list(questions.items) == ROWS[3][2]
    assert not [path for _, path in hub.requests if "train" in path]
    hub.requests.clear()
    assert load_questions("boolq", data=tmp_path).digest == questions.digest and not hub.requests
    message = "'arc' is not in the cache of the Hub and cannot be downloaded"
    refused(message, load_questions, "arc", data=tmp_path)


def test_files_beside_folders_and_facts_come_from_the_hub_too(hub, tmp_path):
    made = copied(tmp_path / "made", "popqa", *ROWS[8][1], file="test.tsv").read_bytes()
    hub.repositories["datasets/akariasai/PopQA"] = {"test.tsv": made, "README.md": b"none"}
    assert list(load_questions("popqa", data=tmp_path).items) == ROWS[8][2]
    rows = fact_rows("P30.jsonl", ["[X] is in [Y]."], [("Oslo", "Europe")])
    made = copied(tmp_path / "made", "pararel-patterns", *rows).read_bytes()
    files = {"data/train-00000-of-00001.parquet": made}
    hub.repositories["datasets/coastalcph/pararel_patterns"] = files
    suite = load_suite("pararel-patterns", tmp_path)
    assert suite.notes[0].startswith("coastalcph/pararel_patterns@aadfae5, train: ")
    assert [path for _, path in hub.requests if "README" in path] == []


def test_without_a_network_the_message_says_what_to_do(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    revision, named = KNOWN["arc"].revision, ("--suite", "arc", "--data-dir", tmp_path)
    error = refusal(consilience, "probe", "--model", "baseline:random", *named)
    assert error.count("\n") == 1
    place = f"allenai/ai2_arc/tree/{revision} to {tmp_path / 'arc'}"
    for found in (
        "HF_HUB_OFFLINE is set; expected the files ARC-Challenge/test* of allenai/ai2_arc",
        f"copy https://huggingface.co/datasets/{place}",
    ):
        assert found in error
    snapshot = tmp_path / "cache" / "datasets--allenai--ai2_arc" / "snapshots" / revision
    made = copied(tmp_path / "made", "arc", *ROWS[1][1])
    (snapshot / "ARC-Challenge").mkdir(parents=True)
    (snapshot / "ARC-Challenge" / made.name).write_bytes(made.read_bytes())
    assert load_questions("arc", data=tmp_path).source["revision"] == revision
