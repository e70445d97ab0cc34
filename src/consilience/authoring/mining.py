"""Patterns mined from a corpus: what connects the two names of a fact in its sentences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from consilience import suites
from consilience.analysis.patterns import load_parser
from consilience.authoring.importing import Proposal, write_proposals
from consilience.core.errors import SILENT, Advance, Progress, unknown_name
from consilience.core.text import counted
from consilience.files.read import SUFFIXES, Problems, read_rows, read_text
from consilience.files.rows import Column, as_written, raise_all, read_table
from consilience.files.write import check_no_file
from consilience.report import table as report
from consilience.report.table import Columns, Output, Table, frame_table

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token

Place = tuple[int, int]  # Start and end of a name in a sentence, in characters
Pair = tuple[Place, Place, str, str]  # Of the subject and the object, and both


def read_corpus(path: Path) -> Iterator[str]:
    """The texts of a corpus.

    A table has a row for each, in the column ``text``. Every other file is plain text in UTF-8: a
    text on each line, or between blank lines where it has any.
    """
    if path.suffix in SUFFIXES:
        problems: Problems = []
        columns = [Column("text", as_written, "")]
        rows = [*read_table(read_rows(path, problems), columns, problems, str(path))]
        raise_all(problems)
        yield from (row["text"] for row in rows)
        return
    text = read_text(path).strip()
    for one in re.split(r"\n\s*\n" if re.search(r"\n\s*\n", text) else r"\n", text):
        yield " ".join(one.split())


class FactIndex:
    """The facts of relations (subject, object), for the search in sentences."""

    def __init__(self, facts: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        import spacy
        from spacy.matcher import PhraseMatcher

        rows = [(id_, *fact) for id_, of in facts.items() for fact in dict.fromkeys(of)]
        self.facts = pl.DataFrame(rows, ["relation", "subject", "object"], orient="row")
        self.objects_of: dict[str, set[str]] = defaultdict(set)
        for _, subject, object_ in rows:
            if subject != object_:
                self.objects_of[subject].add(object_)
        self.words = spacy.blank("en")
        self.words.add_pipe("sentencizer")
        self.matcher = PhraseMatcher(self.words.vocab)
        for name in dict.fromkeys(name for _, *pair in rows for name in pair):
            self.matcher.add(name, [self.words.make_doc(name)])

    def search(self, texts: Iterable[str]) -> Iterator[tuple[int, str, list[Pair]]]:
        """The sentences with facts: the number of the text, the sentence, and its pairs.

        The longest names count, and of a name that is there several times the closest one.
        """
        from spacy.util import filter_spans

        for number, text in enumerate(texts):
            for sentence in self.words(text).sents:
                places: dict[str, list[Place]] = defaultdict(list)
                for span in filter_spans(self.matcher(sentence, as_spans=True)):
                    start = span.start_char - sentence.start_char
                    places[span.label_].append((start, start + len(span.text)))
                pairs = []
                for subject, of_subject in places.items():
                    for object_ in sorted(self.objects_of.get(subject, set()) & places.keys()):
                        closest = min(  # with the fewest characters between them
                            product(of_subject, places[object_]),
                            key=lambda pair: max(pair[1][0] - pair[0][1], pair[0][0] - pair[1][1]),
                        )
                        pairs.append((*closest, subject, object_))
                if pairs:
                    yield number, sentence.text, pairs


# Patterns of a parsed sentence.

FUNCTION = {
    "aux", "auxpass", "aux:pass", "det", "neg", "prt", "compound:prt", "case", "mark", "cop",
    "expl", "predet",
}  # fmt: skip
"""Labels of words that belong to their head."""

CORE = {
    "nsubj", "nsubjpass", "nsubj:pass", "csubj", "dobj", "obj", "iobj", "dative", "attr", "acomp",
    "oprd", "xcomp", "ccomp",
}  # fmt: skip
"""Labels of what a verb cannot stand without."""

SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass", "csubj", "expl"}
NAME_PARTS = ("compound", "flat", "flat:name", "nmod", "nummod")
VERBS = ("VERB", "AUX")
LONGEST = 14  # words of a pattern


Slots = dict[int, tuple[str, "Span"]]  # Position of a name's head -> its slot and its words


class NoPatternError(Exception):
    """Why a sentence gives no pattern."""


def path_patterns(doc: Doc, subject: Place, object_: Place) -> list[str]:
    """The patterns of two names in a parsed sentence; may raise ``NoPatternError``.

    They have the words on the dependency path between the names, and what these need: words of
    function, and the subject, the object and the predicate of a verb. Where words are coordinated,
    *the capital and largest city of Ghana*, there is a pattern with either of them.
    """
    slots: Slots = {}
    for slot, place in (("[X]", subject), ("[Y]", object_)):
        tokens = doc.char_span(*place)
        if tokens is None:
            raise NoPatternError("a name is part of a word")
        slots[tokens.root.i] = (slot, tokens)
    path, top = _path(doc, slots)
    if top.i not in slots and (top.pos_ == "ADP" or top.dep_ == "attr"):
        raise NoPatternError("a phrase without its verb connects the names")
    links = [token for token in path if token != top and token.dep_ == "conj"]
    heads = {token.head.i for token in links} - slots.keys()
    inner = {token.i for token in links if token.pos_ == token.head.pos_} - slots.keys()
    texts = []
    for dropped in (heads, inner) if inner else (heads,):
        chosen: set[int] = set()
        for token in path:
            if token.i in slots:  # what stays: ``'s``, a preposition (UD), a common noun's article
                labels = ("case",) if token.pos_ == "PROPN" else ("case", "det")
                chosen |= {token.i, *(one.i for one in token.children if one.dep_ in labels)}
            elif token.i not in dropped:
                _check_word(token)
                chosen |= {token.i} | _needs(token, {*path})
                own = {child.dep_ for child in token.children}
                is_alike = token in links and token.tag_ == token.head.tag_
                shared = token.head.children if is_alike else ()
                chosen |= {
                    one.i for one in shared if one.dep_ in FUNCTION - own and one not in path
                }
        is_verb = top.pos_ in VERBS and top.i not in slots
        if is_verb and not any(doc[at].dep_ in SUBJECTS for at in chosen):
            raise NoPatternError("the subject of the verb is elsewhere")
        texts.append(_text(doc, chosen, slots))
    return list(dict.fromkeys(texts))


def _path(doc: Doc, slots: Slots) -> tuple[list[Token], Token]:
    """The words on the path, the names among them, and the word that governs all."""
    if len(slots) < 2:
        raise NoPatternError("one name is part of the other")
    inside = {token.i for _, tokens in slots.values() for token in tokens}
    for at in slots:
        near = [*doc[at].children, *([doc[at].head] if doc[at].dep_ in NAME_PARTS else [])]
        parts = [one for one in near if one.i not in inside and one.pos_ == "PROPN"]
        if any(one == doc[at].head or one.dep_ in NAME_PARTS for one in parts):
            raise NoPatternError("a name is part of a longer name")
    ways = [[doc[at], *doc[at].ancestors] for at in slots]
    top = next((token for token in ways[0] if token in ways[1]), None)
    if top is None:
        raise NoPatternError("the parser sees two sentences")
    path = [*(token for way in ways for token in way[: way.index(top)]), top]
    if any(token.dep_ == "conj" and {token.i, token.head.i} == {*slots} for token in path):
        raise NoPatternError("the names are only listed together")
    if any(token.dep_ == "advcl" for token in path[:-1]):
        raise NoPatternError("the path leads over several clauses")
    return path, top


def _check_word(token: Token) -> None:
    """Refuse names, numbers and pronouns."""
    is_capital = token.text[:1].isupper() and token.i != token.sent.start
    if token.pos_ == "PROPN" or is_capital:
        raise NoPatternError("the path leads over another name")
    if token.like_num or not (token.is_alpha or token.pos_ == "PART"):
        raise NoPatternError("the path leads over a number")
    is_relative = token.tag_ in ("WDT", "WP", "WP$", "WRB")
    if token.pos_ == "PRON" and not is_relative and token.dep_ != "expl":
        raise NoPatternError("the path leads over a pronoun")


def _needs(token: Token, path: set[Token]) -> set[int]:
    """What a word of the path cannot stand without, below it and off the path."""
    needed: set[int] = set()
    is_definite = any(child.dep_ == "poss" or child.lower_ == "the" for child in token.children)
    for child in token.children:
        is_core = child.dep_ in CORE and (token.pos_ in VERBS or token.dep_ == "relcl")
        # *The largest city* is no *the city*, but *a land border* is *a border*.
        is_superlative = any(word.tag_ in ("JJS", "RBS") for word in child.subtree)
        is_compound = child.dep_ == "compound" and child.pos_ == "NOUN" and is_definite
        if child in path:
            continue
        if child.dep_ in FUNCTION:
            needed.add(child.i)
        elif (child.dep_ == "amod" and is_superlative) or is_compound:
            needed |= {word.i for word in child.subtree}
        elif is_core or child.dep_ == "poss":
            _check_word(child)
            needed |= {child.i} | _needs(child, path)
    return needed


def _text(doc: Doc, chosen: set[int], slots: Slots) -> str:
    """The chosen words in their order, as a sentence; a comma that begins a clause stays."""
    words, end = list[str](), None
    for at in sorted(chosen):
        slot, tokens = slots.get(at, ("", doc[at : at + 1]))
        gap = doc[end : tokens.start] if end is not None else doc[0:0]
        if any(token.text in "()[]" for token in gap):
            raise NoPatternError("a bracket separates the names")
        if len(gap) and words[-1] in ("a", "an"):
            words[-1] = "an" if tokens.text[0] in "aeiou" else "a"
        is_clause = len(gap) == 1 and gap[0].text == ","
        is_joined = end is not None and not len(gap) and not doc[end - 1].whitespace_
        words += ["," * is_clause, " " * (end is not None and not is_joined)]
        is_lower = at == doc[at].sent.start and tokens.text != "I"
        words.append(slot or (tokens.text.lower() if is_lower else tokens.text))
        end = tokens.end
    text = "".join(words)
    lexical = [doc[at] for at in chosen - slots.keys()]
    if not any(word.pos_ not in ("DET", "PUNCT", "PART", "CCONJ") for word in lexical):
        raise NoPatternError("no word but determiners connects the names")
    if re.search(r"\[[XY]\](?: |, )?\[[XY]\]", text) or len(text.split()) > LONGEST:
        raise NoPatternError("the names touch, or are far from each other")
    return text[0].upper() + text[1:] + "."


# Patterns by their facts.

BATCH = 512  # sentences whose parses are in memory together
EVIDENCE = 3  # sentences that are kept for a pattern of a relation
Z = 1.959964  # Of a 95 % interval
FACT = pl.struct("subject", "object")


def mine(
    texts: Iterable[str], index: FactIndex, parser: Language, advance: Advance
) -> pl.DataFrame:
    """The patterns of all facts in texts: a row for each pair of names in a sentence and pattern.

    A pair that has no pattern has one row with null.
    """
    rows, found = list[tuple[int, str, str, str, str | None]](), index.search(texts)
    while batch := [(one[1], one) for one in islice(found, BATCH)]:
        with parser.memory_zone():
            for doc, (number, sentence, pairs) in parser.pipe(batch, as_tuples=True, batch_size=64):
                for *places, subject, object_ in pairs:
                    patterns: list[str | None] = [None]
                    with suppress(NoPatternError):
                        patterns = [*path_patterns(doc, *places)]
                    rows += [(number, sentence, subject, object_, one) for one in patterns]
                advance(1)
    texts_of = dict.fromkeys(("sentence", "subject", "object", "pattern"), pl.String)
    return pl.DataFrame(rows, {"text": pl.Int64, **texts_of}, orient="row")


def ranked(mined: pl.DataFrame, index: FactIndex, relation: str, top: int) -> pl.DataFrame:
    """The patterns of a relation, the most specific first.

    ``facts``: of the relation that a pattern connects. ``other_facts``: those of other relations
    only. ``specificity``: the lower bound of Wilson's 95 % interval of ``facts / (facts +
    other_facts)``. The number of observations is that of facts or of texts, whichever is smaller:
    ten facts that one sentence lists are no ten observations.
    """
    own = index.facts.filter(relation=relation).select("subject", "object", is_own=pl.lit(True))
    rows = mined.filter(pl.col("pattern").is_not_null())
    rows = rows.join(own, on=["subject", "object"], how="left", maintain_order="left")
    is_own = pl.col("is_own").fill_null(False)
    evidence = pl.col("sentence").filter(is_own).str.head(240)
    counts = rows.group_by("pattern", maintain_order=True).agg(
        evidence=evidence.unique(maintain_order=True).head(EVIDENCE),
        facts=FACT.filter(is_own).n_unique(), other_facts=FACT.filter(~is_own).n_unique(),
        texts=pl.col("text").n_unique(),
    )  # fmt: skip
    every = pl.col("facts") + pl.col("other_facts")
    share, extra = pl.col("facts") / every, Z**2 / pl.min_horizontal(every, "texts")
    spread = (share * (1 - share) * extra + extra**2 / 4).sqrt()
    specificity = ((share + extra / 2 - spread) / (1 + extra)).clip(0).round(4)
    order = ("specificity", "facts", "texts", pl.col("pattern").str.len_chars(), "pattern")
    return (
        counts.filter(pl.col("facts") > 0)
        .with_columns(specificity=specificity)
        .sort(order, descending=[True, True, True, False, False])
        .head(top)
    )


COLUMNS: Columns = {
    "pattern": report.Column("pattern"), "specificity": report.Column("specificity", "share"),
    **{name: report.Column(name.replace("_", " "), "count")
       for name in ("facts", "other_facts", "texts")},
}  # fmt: skip
NOTE = "specificity: at least this share, in percent, of the connected facts are this relation's"


def mine_patterns(
    corpus: Path,
    suite: str,
    chosen: Sequence[str] | None = None,
    against: Sequence[str] | None = None,
    top: int = 20,
    out: Path | None = None,
    progress: Progress = SILENT,
) -> Output:
    """Mine the patterns of the facts of a suite, ranked also by those of others."""
    check_no_file(out)
    facts = {group.id: [one.names for one in group.facts] for group in suites.load_facts(suite)}
    groups = list(facts)
    for spec in against or ():  # ids of groups have no line feed, so none is one of the suite
        for group in suites.load_facts(spec):
            facts[f"{spec}\n{group.id}"] = [one.names for one in group.facts]
    for name in chosen or ():
        if name not in groups:
            raise unknown_name(f"'{suite}' has no relation '{name}'", name, groups)
    parser, index = load_parser(), FactIndex(facts)
    with progress.steps("parsing", None, "sentences") as advance:
        mined = mine(read_corpus(corpus), index, parser, advance)
    found = mined.join(index.facts, on=["subject", "object"])
    proposals, shown = list[Proposal](), list[Table | str]()
    for relation in chosen or groups:
        rows = ranked(mined, index, relation, top)
        known = {"accept": "yes", "relation": relation, "pattern": "", "origin": "mined"}
        proposals += [{**known, "source": corpus.name, **row} for row in rows.to_dicts()]
        of_relation = found.filter(relation=relation).unique(["text", "sentence"])
        title = f"{relation}: {counted(of_relation.height, 'sentence')} with facts"
        if rows.is_empty():
            shown.append(f"{title} and no pattern")
        else:
            shown += [frame_table(rows, title, COLUMNS, [NOTE]), ""]
    file = write_proposals(out, proposals)
    shown += [f"Written: {file}"] * (file is not None)
    tables = {"proposals": pl.DataFrame(proposals, infer_schema_length=None)}
    return Output(tables, shown, facts={"sentences": mined.unique(["text", "sentence"]).height})
