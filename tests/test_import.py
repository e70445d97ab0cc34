"""suite import: patterns and facts of other layouts become part of a suite folder."""

import json
import re
import zipfile

import pytest

from checks import output, refusal, refused
from conftest import ROOT, cases
from consilience import load_suite
from consilience.authoring.checks import likeness, normal_form
from consilience.authoring.importing import import_patterns
from consilience.files.tables import read_answer_file
from consilience.options.suites import ImportOptions
from consilience.suites import check_suite
from consilience.suites.proposals import Proposal, write_proposals

SHARED = ROOT.parent / "shared" / "data"


def jsonl(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def imported(path, folder, **options):
    return import_patterns(ImportOptions(path, folder, **options))


def pairs(of):
    """The subject and the object of each fact of a relation or of a plan."""
    return [(fact.subject, fact.object) for fact in of.facts]


def texts(folder, relation="capital"):
    return [pattern.text for pattern in load_suite(folder).relation(relation).patterns]


@pytest.mark.parametrize(("a", "b", "how"), cases("likeness"))
def test_likeness_of_two_patterns(a, b, how):
    assert likeness(a, b) == likeness(b, a) == how
    assert likeness(a, a) == "duplicate"
    assert normal_form(normal_form(a)) == normal_form(a)


def test_determiners_are_those_of_english():
    assert likeness("[X] a [Y]", "[X] [Y]") == "determiners"
    assert likeness("[X] a [Y]", "[X] [Y]", in_english=False) is None


def test_files_of_relations_join_a_suite_that_keeps_what_it_has(write_suite, tmp_path):
    """LPAQA's layout: ``template`` and ``weight``, and text files, with their odd rows."""
    folder = write_suite()
    before = {name: (folder / name).read_text() for name in ("patterns.jsonl", "facts.jsonl")}
    source = jsonl(
        tmp_path / "lpaqa" / "capital.jsonl",
        {"template": "the capital of [X] is [Y] .", "weight": 0.5},
        {"template": "[X] 's capital city is [Y] .", "weight": 0.25},
        {"template": "[X] 's capital is [Y] .", "weight": 0.125},
        {"template": "[X] 2008 [Y] .", "weight": 0.1},
        {"template": "[X] and [X] [Y] .", "weight": 0.1},
        {"weight": 0.1},
    )
    plan = imported(source, folder, relation="capital", format="lpaqa", licence="none stated")
    assert texts(folder) == [
        "The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X]'s capital, [Y], is large.",
        "[X] 's capital city is [Y] .", "[X] 's capital is [Y] .",
    ]  # fmt: skip
    assert [(s.proposal.pattern, s.likeness, s.is_kept) for s in plan.similar] == [
        ("the capital of [X] is [Y] .", "duplicate", False),
        ("[X] 's capital is [Y] .", "one token", True),
    ]
    faults = [str(error) for error in plan.refused]
    assert [re.search(r":(\d): .*", text)[1] for text in faults] == ["5", "6", "4"]
    assert "2 [X]" in faults[0] and "no word besides its slots" in faults[2]
    for name, text in before.items():
        assert (folder / name).read_text().startswith(text), "rows that were there stay"
    again = imported(source, folder, relation="capital", format="lpaqa")
    assert not again.patterns, "a second import adds nothing"


def test_near_duplicates_can_be_dropped_and_a_dry_run_writes_nothing(write_suite, tmp_path):
    source = tmp_path / "patterns.txt"
    source.write_text("\ufeff[Y] is a capital of [X]\n\n  [X] has its seat in [Y].  \nnothing\n")
    options = {"near_duplicates": "drop", "dry_run": True, "source": "a friend"}
    plan = imported(source, write_suite(), relation="capital", **options)
    assert [proposal.pattern for proposal in plan.patterns] == ["[X] has its seat in [Y]."]
    assert plan.patterns[0].source == "a friend"
    assert len(texts(plan.folder)) == 3
    table = plan.frame()
    assert table["what"].to_list() == ["added", "near-duplicate", "refused"]
    assert table["where"].to_list()[2] == f"{source}:4"
    new = imported(source, tmp_path / "new", relation="city", dry_run=True)
    assert not (tmp_path / "new").exists()
    assert not new.patterns
    assert "'city' has no fact" in str(new.refused[-1]), "a new relation needs facts"


def test_lama_brings_its_facts(tmp_path):
    root = tmp_path / "lama"
    capital = {"relation": "P36", "template": "The capital of [X] is [Y] .", "label": "capital"}
    jsonl(
        root / "relations.jsonl",
        capital | {"type": "1-1"},
        {"relation": "P47", "template": "[X] borders [Y] .", "label": "neighbour", "type": "N-M"},
        {"relation": "date", "template": "[X] ([Y]).", "label": "a date", "type": "N-1"},
        {"relation": "P19", "label": "place of birth"},
    )
    fact = {"sub_label": "France", "obj_label": "Paris", "uuid": "u1"}
    jsonl(root / "TREx" / "P36.jsonl", fact, fact | {"uuid": "u2"})
    jsonl(root / "TREx" / "P47.jsonl", {"sub_label": "France", "obj_label": "Spain", "uuid": "u3"})
    plan = imported(root, tmp_path / "suite", licence="CC-BY-NC-4.0")
    suite = load_suite(tmp_path / "suite")
    assert plan.format == "suite"
    assert [(r.id, r.label, r.cardinality) for r in suite] == [
        ("P36", "capital", "N-1"), ("P47", "neighbour", "N-M")]  # fmt: skip
    assert [fact.item for fact in suite.relation("P36").facts] == ["u1"]
    assert plan.known_facts == 1, "the same subject and object"
    assert not check_suite(tmp_path / "suite")


def test_a_table_has_patterns_and_facts_in_columns_of_any_name(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text(
        "Property,Text,Country,City,licence\n"
        'capital,"[X]\'s capital, [Y], is large.",France,Paris,CC0-1.0\n'
        "capital,,Italy,Rome,\n"
        "capital,The capital of [X] is [Y].,,,\n"
        "capital,,Spain,,\n"
    )
    columns = ["relation=Property", "pattern=Text", "subject=Country", "object=City"]
    plan = imported(source, tmp_path / "suite", columns=columns, licence="mine")
    (relation,) = load_suite(tmp_path / "suite")
    assert pairs(relation) == [("France", "Paris"), ("Italy", "Rome")]
    (fault,) = plan.refused
    assert "table.csv:5: no field 'object'" in str(fault)


def test_languages_of_mpararel_share_their_facts(tmp_path):
    root = tmp_path / "mpararel"
    lines = [("Germany", "Berlin"), ("France", "Paris"), ("Italy", "Rome")]
    german = [("Deutschland", "Berlin"), None, ("Italien", "Rom")]
    for language, facts in (("en", lines), ("de", german)):
        rows = [
            {"sub_label": fact[0], "obj_label": fact[1], "sub_uri": f"Q{at}", "obj_uri": f"Q{9 + at}", "lineid": at}
            for at, fact in enumerate(facts) if fact
        ]  # fmt: skip
        jsonl(root / "tuples" / language / "P36.jsonl", *rows)
    for language, row in {
        "en": {"pattern": "The capital of [X] is [Y]", "checked-by-human": True},
        "de": {"pattern": "Die Hauptstadt von [X] ist [Y]", "checked-by-human": False},
        "nl": {"pattern": "De hoofdstad van [X] is [Y]"},
    }.items():
        jsonl(root / "patterns" / language / "P36.jsonl", row)
    folder = tmp_path / "both"
    plan = imported(root, folder)
    assert plan.format == "mpararel"
    assert [(p.pattern, p.language, p.scores) for p in plan.patterns] == [
        ("Die Hauptstadt von [X] ist [Y]", "de", {"checked-by-human": 0}),
        ("The capital of [X] is [Y]", "", {"checked-by-human": 1}),
    ]
    assert "no fact of 'P36' in 'nl'" in str(plan.refused[0])
    assert pairs(plan) == [("Germany", "Berlin"), ("Italy", "Rome")]
    assert plan.notes == ("1 fact without a text in every language of the patterns left out",)
    names = [json.loads(line) for line in (folder / "names.jsonl").read_text().splitlines()]
    assert [(row["name"], row["language"], row["text"]) for row in names] == [
        ("Berlin", "de", "Berlin"), ("Germany", "de", "Deutschland"), ("Italy", "de", "Italien"), ("Rome", "de", "Rom")]  # fmt: skip
    assert not check_suite(folder)
    again = imported(root, folder)
    assert not (again.patterns or again.facts or again.names)
    jsonl(tmp_path / "one" / "en" / "P36.jsonl", {"pattern": "The capital of [X] is [Y]."},
          *({"sub_label": one, "obj_label": other} for one, other in lines))  # fmt: skip
    plan = imported(tmp_path / "one", tmp_path / "without-ids")
    assert sorted(pairs(plan)) == sorted(lines), "facts without an id are known by their texts"
    copied = imported(folder, tmp_path / "copy")
    assert copied.format == "suite"
    assert load_suite(tmp_path / "copy").digest == load_suite(folder).digest
    french = {"sub_label": "Allemagne", "obj_label": "Berlin", "lineid": 0}
    jsonl(root / "tuples" / "fr" / "P36.jsonl", french)
    jsonl(root / "patterns" / "fr" / "P36.jsonl", {"pattern": "La capitale de [X] est [Y]"})
    before = sorted((path.name, path.read_text()) for path in folder.iterdir())
    for languages, message in (
        (["en", "fr"], r"P36\.jsonl:1: the suite would have .*error.*Nothing was written"),
        (["de"], "facts in 'de' for a suite in 'en'"),
        (["dee"], "no folder for the language 'dee'. Did you mean 'de'"),
    ):
        refused(message, imported, root, folder, language=languages)
        assert sorted((path.name, path.read_text()) for path in folder.iterdir()) == before
    alone = imported(root, tmp_path / "de", language=["de"])
    assert pairs(alone) == [("Deutschland", "Berlin"), ("Italien", "Rom")]
    assert json.loads((tmp_path / "de" / "suite.json").read_text())["language"] == "de"
    assert not alone.names
    jsonl(root / "tuples" / "de" / "templates.jsonl", {"relation": "P36"})
    (fault,) = imported(root, tmp_path / "again", language=["de"]).refused
    assert "templates.jsonl:1: no field 'template'" in str(fault)


def test_facts_whose_objects_are_one_text_in_a_language_are_left_out_and_listed(tmp_path):
    root, folder = tmp_path / "release", tmp_path / "suite"
    facts = {
        "en": [("Tbilisi", "Georgia"), ("Batumi", "Republic of Georgia"), ("Poti", "Republic of Georgia"),
               ("Oslo", "Norway"), ("Bergen", "Kingdom of Norway")],
        "de": [("Tiflis", "Georgien"), ("Batumi", "Georgien"), ("Poti", "Georgien"), ("Oslo", "Norwegen"),
               ("Bergen", "Königreich Norwegen")],
        "es": [("Tiflis", "Georgia"), ("Batumi", "Rep. de Georgia"), ("Poti", "Rep. de Georgia"),
               ("Oslo", "Noruega"), ("Bergen", "Noruega")],
    }  # fmt: skip
    patterns = {"en": "[X] is in [Y].", "de": "[X] liegt in [Y].", "es": "[X] está en [Y]."}
    for language, of_language in facts.items():
        labels = (dict(zip(("sub_label", "obj_label"), pair, strict=True)) for pair in of_language)
        rows = [row | {"lineid": at} for at, row in enumerate(labels)]
        jsonl(root / "tuples" / language / "P17.jsonl", *rows)
        jsonl(root / "patterns" / language / "P17.jsonl", {"pattern": patterns[language]})
    plan = imported(root, folder)
    assert [fact.subject for fact in plan.facts] == ["Tbilisi", "Oslo"]
    places = [error.where.removeprefix(f"{root}/tuples/") for error in plan.refused]
    assert places == ["de/P17.jsonl:2", "es/P17.jsonl:5"]
    assert "are both 'Georgien' in 'de', so 2 facts of 'Republic" in plan.refused[0].found
    assert not check_suite(folder) and not plan.failed
    later = {"sub_label": "Batum", "obj_label": "Georgien (Staat)", "lineid": 1}
    only = {"sub_label": "Batumi", "obj_label": "Republic of Georgia", "lineid": 1}
    for language, row in (("en", only), ("de", later | {"obj_label": "Georgien"}), ("es", later)):
        jsonl(root / "tuples" / language / "P17.jsonl", row)
    again = imported(root, folder)
    assert not again.facts and "are both 'Georgien'" in again.refused[0].found, "also in the folder"
    for language in ("en", "de"):
        fact = {"sub_label": "Oslo", "obj_label": "Europe", "lineid": 1}
        jsonl(root / "tuples" / language / "P30.jsonl", fact)
        jsonl(root / "patterns" / language / "P30.jsonl", {"pattern": patterns[language]})
    alone = imported(root, tmp_path / "alone", groups=["P30"])
    assert [fact.object for fact in alone.facts] == ["Europe"] and not alone.refused
    assert {pattern.relation for pattern in alone.patterns} == {"P30"}
    message = "--groups P31; expected P17, P30.*Did you mean .P30"
    refused(message, imported, root, tmp_path / "none", groups=["P30", "P31"])


def test_proposals_join_also_tables_with_tabs(write_suite, tmp_path):
    path = tmp_path / "proposals.jsonl"
    found = {"evidence": ("a", "b"), "scores": {"facts": 4}}
    new = Proposal("capital", "[X] is governed from [Y].", "mined", "leads", **found)
    known = Proposal("capital", "The capital of [X] is [Y].", "mined", "leads")
    write_proposals(path, [new, known])
    folder = write_suite()
    (folder / "patterns.jsonl").unlink()
    (folder / "patterns.tsv").write_text(
        "relation\tpattern\nother\t[X] is [Y]\ncapital\tThe capital of [X] is [Y]."
    )
    refused("'other' is not among", imported, path, folder)
    (folder / "patterns.tsv").write_text("relation\tpattern\ncapital\tThe capital of [X] is [Y].")
    plan = imported(path, folder, licence="CC-BY-SA-4.0")
    assert texts(folder) == ["The capital of [X] is [Y].", "[X] is governed from [Y]."]
    assert (len(plan.patterns), len(plan.similar)) == (1, 1)
    other = write_suite(tmp_path / "other")
    refused("without a name in 'de'", imported, path, other, language=["de"])


def test_patterns_in_another_language_need_names_first(write_suite, tmp_path):
    """The message, also of a dry run, names the line of the source and the rows that are missing."""
    folder = write_suite()
    facts = load_suite(folder).relation("capital").facts
    source = tmp_path / "de.csv"
    source.write_text(
        "relation,pattern,language,subject_form\ncapital,Die Hauptstadt [X] ist [Y].,de,genitive\n"
    )
    for dry_run in (True, False):
        message = refused("", imported, source, folder, dry_run=dry_run)
        assert message.startswith(f"{source}:2: the suite would have 2 errors, the first: ")
        assert "without a name in 'de'" in message
        assert f"Correct the source or the tables of {folder}. Add rows such as {{" in message
    rows = [{"name": fact.subject, "language": "de", "form": "genitive", "text": f"von {fact.subject}"} for fact in facts]  # fmt: skip
    rows += [{"name": fact.object, "language": "de", "text": fact.object} for fact in facts]
    jsonl(folder / "names.jsonl", *{row["name"]: row for row in rows}.values())
    assert not check_suite(folder), "names that no pattern needs yet are no error"
    imported(source, folder)
    assert load_suite(folder).relation("capital").patterns[-1].subject_form == "genitive"


def test_a_new_suite_is_in_the_language_that_is_named(tmp_path):
    (tmp_path / "it.csv").write_text(
        "relation,pattern,subject,object\ncapitale,La capitale: [X] - [Y].,Italia,Roma\n"
    )
    imported(tmp_path / "it.csv", tmp_path / "table", language=["it"])
    facts, patterns = tmp_path / "facts.csv", tmp_path / "a.txt"
    facts.write_text("relation,subject,object\ncapitale,Italia,Roma\n")
    patterns.write_text("La capitale: [X] - [Y].\n")
    options = {"relation": "capitale", "facts_from": str(facts)}
    odd = options | {"language": ["italiano"]}
    refused("--language italiano; expected", imported, patterns, tmp_path / "new", **odd)
    imported(patterns, tmp_path / "list", language=["it"], **options)
    for folder in (tmp_path / "table", tmp_path / "list"):
        suite = load_suite(folder)
        assert (suite.language, suite["capitale"].patterns[0].language) == ("it", "it")
    patterns.write_text("[X] ha per capitale [Y].\n")
    imported(patterns, tmp_path / "list", **options)
    assert load_suite(tmp_path / "list")["capitale"].patterns[1].language == "it"


def test_patterns_join_relations_that_have_none(write_suite, tmp_path):
    capital = {"relation": "capital", "label": "capital of", "cardinality": "N-M"}
    folder = write_suite(relations=[capital])
    (folder / "patterns.jsonl").unlink()
    (tmp_path / "a.txt").write_text("[X] has its seat in [Y].\n")
    plan = imported(tmp_path / "a.txt", folder, relation="capital")
    assert (plan.is_new, plan.relations, texts(folder)) == (False, (), ["[X] has its seat in [Y]."])
    relation = load_suite(folder)["capital"]
    assert (relation.label, relation.cardinality, len(relation.facts)) == ("capital of", "N-M", 3)
    with (folder / "relations.jsonl").open("a") as relations:
        relations.write('{"relation": "river"}\n')
    with (folder / "facts.jsonl").open("a") as facts:
        facts.write('{"relation": "river", "subject": "Oslo", "object": "Akerselva"}\n')
    imported(tmp_path / "a.txt", folder, relation="river")
    assert texts(folder, "river") == ["[X] has its seat in [Y]."]


def test_a_table_of_facts_is_no_suite_and_says_how_to_make_one(consilience, tmp_path):
    (tmp_path / "facts.csv").write_text("relation,subject,object\nmoon,Io,Jupiter\n")
    (tmp_path / "a.txt").write_text("[X] orbits [Y].\n")
    err = refusal(consilience, "suite", "check", "facts.csv")
    assert "suite import PATTERNS --into FOLDER --facts-from TABLE" in err
    status, out, _ = consilience("suite", "import", "facts.csv", "--into", "new")
    assert status == 2
    assert "facts.csv:2: the relation 'moon' has no pattern, so 1 fact of it cannot" in out
    arguments = ("--into", "new", "--relation", "moon", "--facts-from", "facts.csv")
    assert consilience("suite", "import", "a.txt", *arguments)[0] == 0
    assert len(load_suite(tmp_path / "new").relation("moon").facts) == 1


def test_an_import_that_refuses_everything_fails(consilience, write_suite, tmp_path):
    folder = write_suite()
    seats = ("[X] has its seat in [Y].", "[X] had its seat in [Y].", "[X] has its seat in [Y]")
    (tmp_path / "a.txt").write_text("\n".join(seats))
    arguments = ("suite", "import", "a.txt", "--into", folder, "--relation")
    status, out, _ = consilience(*arguments, "capitals", "--dry-run")
    assert status == 2
    for shown in (
        "near-duplicates: 0 patterns\n", "'capitals' has no fact, so 3 patterns of it",
        "Did you mean 'capital'?", "because everything was refused",
    ):  # fmt: skip
        assert shown in out
    assert consilience(*arguments, "capital")[0] == 0
    (tmp_path / "a.txt").write_text("[X] has its seat in [Y].\nbroken\n")
    status, out, _ = consilience(*arguments, "capital")
    assert (status, "because nothing is new" in out) == (0, True), "the suite has it already"
    (tmp_path / "a.txt").write_text("broken\n")
    status, out, _ = consilience(*arguments, "capital", "--json")
    assert (status, json.loads(out)["written"]) == (2, False)


@pytest.mark.parametrize(("name", "text", "options", "message"), cases("imports_bad"))
def test_what_cannot_be_imported_has_a_message(name, text, options, message, tmp_path):
    (tmp_path / name).write_text(text)
    refused(message, imported, tmp_path / name, tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_other_columns_of_a_table_are_ignored(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text(
        "Lang,relation,Sprache,language,pattern,checked by,subject,object\n,a,x,en,[X] is in [Y],me,b,c\n"
    )
    assert len(imported(table, tmp_path / "new", columns=["label=Lang"]).patterns) == 1


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "a.txt").write_text("[X] is [Y]")
    for name, folder, message in (
        ("a.txt", tmp_path, "not empty; expected a suite folder"),
        ("b.txt", tmp_path / "new", "no such file or folder"),
    ):
        refused(message, imported, tmp_path / name, folder, relation="r")


def test_the_command_lists_what_it_did(consilience, write_suite, tmp_path):
    (tmp_path / "a.txt").write_text("[X] has its seat in [Y].\n[Y] is a capital of [X].\nbroken\n")
    folder = write_suite()
    suite_import = ("suite", "import", "a.txt", "--relation", "capital", "--into")
    out = output(consilience, *suite_import, folder, "--csv", "l.csv")
    assert "added:           2 patterns" in out
    assert "capital: [Y] is a capital of [X].  (determiners: [Y] is the capital of [X].)" in out
    assert re.search(r"refused: +1\n +a\.txt:3: the pattern 'broken' has 0 \[X\]", out)
    assert "added,capital,[X] has its seat in [Y].,,,a.txt:1" in (tmp_path / "l.csv").read_text()
    out = output(consilience, *suite_import, "mini", "--facts-from", "mini", "--json")
    document = json.loads(out)
    assert [document[key] for key in ("relations", "facts", "written")] == [["capital"], 52, True]
    output(consilience, "suite", "check", "mini/")


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_lpaqa_is_read(tmp_path):
    plan = imported(SHARED / "lpaqa" / "prompt" / "mine" / "P19.jsonl", tmp_path / "new",
                    facts_from="pararel", data_dir=SHARED, dry_run=True)  # fmt: skip
    assert plan.format == "lpaqa"
    assert (len(plan.patterns), plan.relations, len(plan.facts)) == (28, ("P19",), 779)
    assert plan.patterns[0].pattern == "[X] was born in [Y] ."


def workbook(path, rows):
    """A workbook with one sheet; a whole number in a cell ("date", 30000) is a date."""
    cells = []
    for at, row in enumerate(rows, start=1):
        texts = []
        for column, value in zip("ABCDEF", row, strict=False):
            if isinstance(value, tuple):
                texts.append(f'<c r="{column}{at}" s="1"><v>{value[1]}</v></c>')
            elif isinstance(value, str):
                texts.append(f'<c r="{column}{at}" t="inlineStr"><is><t>{value}</t></is></c>')
            elif value is not None:
                texts.append(f'<c r="{column}{at}"><v>{value}</v></c>')
        cells.append(f'<row r="{at}">{"".join(texts)}</row>')
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = 'xmlns="http://schemas.openxmlformats.org/package/2006/'
    parts = {
        "[Content_Types].xml": f'<Types {package}content-types"/>',
        "_rels/.rels": f'<Relationships {package}relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets>'
        '<sheet name="one" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships {package}relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{office}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {main}><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>'
        "</cellXfs></styleSheet>",
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{''.join(cells)}</sheetData>"
        "</worksheet>",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def test_a_workbook_is_imported_with_the_rows_that_a_spreadsheet_shows(tmp_path):
    pytest.importorskip("fastexcel")
    source = workbook(tmp_path / "facts.xlsx", [
        ["relation", "pattern", "subject", "object"],
        [],
        ["born", "[X]は[Y]に生まれました。", "Ada", ("date", 30000)],
        ["born", "[X] was born in", "Bob", 1970],
    ])  # fmt: skip
    plan = imported(source, tmp_path / "suite")
    assert [str(problem) for problem in plan.refused] == [
        f"{source}, row 4: the pattern '[X] was born in' has 0 [Y]; expected exactly one [Y] for "
        "the object. Correct the pattern."
    ]
    assert [fact.object for fact in load_suite(tmp_path / "suite")["born"].facts] == [
        "1982-02-18", "1970",
    ]  # fmt: skip
    answers = workbook(tmp_path / "a.xlsx", [["item", "answer"], [], ["a", 2]])
    assert read_answer_file(answers).rows() == [("a", "2")]


def test_what_an_import_leaves_behind_is_noted(tmp_path):
    mini = ROOT / "src" / "consilience" / "suites" / "mini"
    plan = import_patterns(ImportOptions(mini, tmp_path / "copy"))
    assert "edges and annotations of patterns are not imported" in plan.notes
