# ruff: noqa: RUF001
"""Suites with patterns in several languages: names, particles, asking, and pairs by language."""

import json

import polars as pl
import pytest

from checks import ScoringFunction, output, refused
from conftest import cases
from consilience import compare, score, suites
from consilience.authoring.checks import audit
from consilience.core.factors import Design
from consilience.core.free_text import RULES, match
from consilience.core.items import Choice, Pattern
from consilience.core.schemas import COMPARISON_SCHEMA
from consilience.core.text import whole_words
from consilience.elsewhere.exports import export_prompts
from consilience.metrics.measure import measure
from consilience.models.functions import Baseline, Function, position
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.facts import ask, ask_suite, group_of
from consilience.plans.presentation import Presentation, present
from consilience.plans.questions import answered
from consilience.report.comparison_tables import comparison_table
from consilience.report.metric_tables import language_table
from consilience.suites.facts import select_languages
from consilience.suites.question_suites import BLANK, WORDS, questions_of_suite, words_in
from consilience.types import Query

CAPITALS = {"France": "Paris", "Switzerland": "Bern", "Italy": "Rome"}
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
         "gold": CAPITALS[subject], "answer": answer}
        for subject, given in by_subject.items() for at, answer in enumerate(given)
    )  # fmt: skip


def write(folder, patterns=PATTERNS, names=NAMES, facts=CAPITALS, about=None):
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
    """But not over the whole vocabulary."""
    oracle = Baseline("oracle", 0, "facts")
    answers = ask_suite(suite, oracle)
    assert (answers["answer"] == answers["gold"]).all()
    refused("--candidates objects", ask_suite, suite, oracle, whole_vocabulary=True)


def test_exported_prompts_and_answers_made_elsewhere(tmp_path):
    folder = write(tmp_path / "capitals")
    rows = [*export_prompts(str(folder))][10:]  # Italy
    prompts = [f"Die Hauptstadt des Landes Italien ist {BLANK}.", f"イタリアの首都は{BLANK}です。"]
    assert [row["prompt"] for row in rows][2:4] == prompts
    assert rows[3]["candidates"] == ["パリ", "ベルン", "ローマ"]
    given = zip(rows, ["Rome", "Rome", "Rom", "ローマ", "Rom"], strict=True)
    result = score([{"id": row["id"], "answer": answer} for row, answer in given], folder)
    assert result.answers["answer"].to_list() == ["Rome", "Rome", "Rome", "Rome", "Rom"]


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
    all_names = [name for pair in CAPITALS.items() for name in pair]
    names = [{"name": name, "language": "it", "text": name} for name in all_names]
    suite = suites.load_suite(write(tmp_path / "italian", patterns, names))
    questions = questions_of_suite(suite, 0)
    assert questions.items[0].paraphrases == {"": ("La capitale di France è ____.",)}
    assert "it are the sentence with its blank" in questions.notes[-1]


def test_pairs_by_language(suite):
    design = suite["capital"].design
    assert design.parts == {
        ("language", "en"): ((0, 1),),
        ("language", "ja"): ((3, 4),),
        ("language", "en/de"): ((0, 2), (1, 2)),
        ("language", "en/ja"): ((0, 3), (0, 4), (1, 3), (1, 4)),
        ("language", "de/ja"): ((2, 3), (2, 4)),
    }
    assert design.languages == {"en": (0, 1), "de": (2,), "ja": (3, 4)}
    only = Design.of_patterns(suite["capital"].patterns[:2], {})
    assert (only.parts, only.languages) == ({}, {})


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
    """As the table ``facts`` of a folder, and as one frame with the patterns."""
    german = {"France": "Frankreich", "Switzerland": "Schweiz", "Italy": "Italien"}
    sheet = [
        {"relation": "capital", "subject": subject, "object": object_, "subject_de": text,
         "object_de": {"Rome": "Rom"}.get(object_, "")}
        for (subject, object_), text in zip(CAPITALS.items(), german.values(), strict=True)
    ]  # fmt: skip
    patterns = PATTERNS[:3]
    folder = write(tmp_path / "suite", patterns, [])
    pl.DataFrame(sheet).write_csv(folder / "facts.csv")
    (folder / "facts.jsonl").unlink()
    frame = [*sheet, *({"relation": "capital", **row} for row in patterns)]
    for suite in (suites.load_suite(folder), suites.Suite.from_frame(frame)):
        relation = suite["capital"]
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


def test_words_of_every_script():
    """Chinese characters and the two kana are one writing; without spaces a part of a word counts."""
    within = {"Rom": "in Rom.", "東京": "東京大学", "서울": "서울은 수도이다", "NHK": "NHK交響楽団"}
    assert all(whole_words(word).search(text) for word, text in within.items())
    assert not whole_words("Rom").search("Roma") and not whole_words("NHK").search("NHKs")


def test_full_width_labels_and_marks_of_letters():
    choices, rule = [Choice("パリ"), Choice("ローマ")], RULES["exact"]
    for text in ("Ｂ", "（B）", "B。", "B）ローマ", "B：ローマ。", "ローマ（B）"):
        assert match(text, choices, rule, ["A", "B"]).position == 1, text
    assert match("（B）パリ", choices, rule, ["A", "B"]).position is None
    words = ["कल", "काल"]  # yesterday and time differ in a mark
    query = Query(Pattern("[X]: [Y]"), "x", "कल")
    assert position("काल।", query, words) == 1
    assert position("कील।", query, words) is None


@pytest.mark.parametrize(("group", "subject", "index", "sentence"), cases("sentences_of_languages"))
def test_sentences_of_mini_languages(group, subject, index, sentence):
    relation = suites.load_suite("mini-languages")[group]
    (fact,) = [fact for fact in relation.facts if fact.subject == subject]
    query = relation.query(relation.patterns[index], fact)
    assert query.pattern.fill(query.subject, query.gold) == sentence


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
    table = language_table(metrics, suite)
    assert [row[0].value for row in table.grid()] == [
        "en", "de", "ja", "en and de", "en and ja", "de and ja",
    ]  # fmt: skip
    alone = select_languages(suite, ["en"])
    english = answers.filter(pl.col("variant").is_in([of["pattern"] for of in PATTERNS[:2]]))
    assert not language_table(measure(english, alone), alone).rows


def test_languages_on_the_command_line(consilience, tmp_path):
    folder, run = write(tmp_path / "capitals"), tmp_path / "run"
    probe = ("probe", "--suite", folder, "--model", "baseline:majority", "--out", run)
    assert "(or factor, pattern, metric, item)" in output(consilience, *probe)
    assert "en and ja" in output(consilience, "score", run, "--by", "factor")
    refused("1 run to compare; expected two runs or more", compare, run)
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


def test_a_comparison_by_language():
    row = dict.fromkeys(COMPARISON_SCHEMA) | {"over": "mean", "group": "", "metric": "consistency"}
    row |= {"first": "a", "second": "b", "first_value": 0.25, "difference": 0.5}
    parts = (("whole", ""), ("language", "de/ja"))
    rows = [row | {"kind": kind, "level": level} for kind, level in parts]
    compared = pl.DataFrame(rows, schema=COMPARISON_SCHEMA)
    table = comparison_table(compared, suites.load_suite("mini-languages"), by="factor")
    assert [cells[0].value for cells in table.grid()] == ["de and ja"]


def test_every_language_has_all_words():
    for language, words in WORDS.items():
        assert words.keys() == WORDS["en"].keys(), language
    assert words_in("pt-BR") == WORDS["en"] and words_in("de-AT") == WORDS["de"]
