"""Patterns mined from sentences."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, TypeVar

from consilience.core.errors import Advance
from consilience.core.text import WITHOUT_SPACES, marks, truncated
from consilience.suites.proposals import Proposal

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token
    from spacy.tokens import Span as Tokens


WORD = re.compile(rf"[{WITHOUT_SPACES}]|(?:[^\W{WITHOUT_SPACES}]|[{marks()}])+|[^\w\s]")
"""A character of a script without spaces, a word, or a punctuation mark."""

Span = tuple[int, int]  # Start and end of a name in a sentence, in characters

T = TypeVar("T")

Facts = Mapping[str, Sequence[tuple[str, str]]]  # Relation -> its facts (subject, object)


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A subject and an object in a sentence."""

    subject: Span
    object: Span
    facts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FactSentence:
    """A sentence that holds at least one fact's subject and object."""

    text: int
    sentence: str
    pairs: tuple[NamedPair, ...]


@dataclass(slots=True)
class NameTrie:
    """Names, searched all at once."""

    root: dict[str, Any] = field(default_factory=dict)
    """The next word -> node; the empty word -> the names of these words."""

    @classmethod
    def of(cls, names: Iterable[str]) -> NameTrie:
        trie = cls()
        for name in names:
            node = trie.root
            for word in WORD.findall(name):
                node = node.setdefault(word, {})
            node.setdefault("", []).append(name)
        trie.root.pop("", None)  # a name of spaces
        return trie

    def find(self, text: str) -> Iterator[tuple[str, Span]]:
        """The names in a text from left to right, the longest at each place, none overlapping."""
        words = list(WORD.finditer(text))
        at = 0
        while at < len(words):
            names, after, node = [""], 0, self.root
            for next_ in range(at, len(words)):
                if words[next_][0] not in node:
                    break
                node, end = node[words[next_][0]], words[next_].end()
                # A mark (Unicode's categories M) belongs to the letter before it.
                if "" in node and unicodedata.category(text[end : end + 1] or " ")[0] != "M":
                    names, after = node[""], next_ + 1
            if after:
                span = words[at].start(), words[after - 1].end()
                as_written = text[slice(*span)]
                yield as_written if as_written in names else names[-1], span
            at = after or at + 1


@dataclass(slots=True)
class FactIndex:
    """The facts of relations, for the search in sentences. Duplicate facts count once."""

    relations: tuple[str, ...]
    relation_of: list[int]
    facts_of: Mapping[tuple[str, str], tuple[int, ...]]
    objects_of: Mapping[str, set[str]]  # Subject -> its objects in all relations
    trie: NameTrie

    @classmethod
    def of(cls, facts: Facts) -> FactIndex:
        relation_of: list[int] = []
        facts_of: dict[tuple[str, str], tuple[int, ...]] = {}
        objects_of: dict[str, set[str]] = defaultdict(set)
        for at, pairs in enumerate(facts.values()):
            for pair in dict.fromkeys(pairs):
                if pair[0] == pair[1]:
                    continue
                facts_of[pair] = (*facts_of.get(pair, ()), len(relation_of))
                objects_of[pair[0]].add(pair[1])
                relation_of.append(at)
        trie = NameTrie.of(dict.fromkeys(name for pair in facts_of for name in pair))
        return cls(tuple(facts), relation_of, facts_of, dict(objects_of), trie)

    def pairs_in(self, sentence: str) -> tuple[NamedPair, ...]:
        """The facts in a sentence; of repeated names, the closest subject and object."""
        places: dict[str, list[Span]] = defaultdict(list)
        for name, span in self.trie.find(sentence):
            places[name].append(span)
        pairs = []
        for subject, spans in places.items():
            for object_ in sorted(self.objects_of.get(subject, set()) & places.keys()):
                closest = min(  # with the fewest characters between them, the first of ties
                    product(spans, places[object_]),
                    key=lambda pair: max(pair[1][0] - pair[0][1], pair[0][0] - pair[1][1]),
                )
                pairs.append(NamedPair(*closest, self.facts_of[subject, object_]))
        return tuple(pairs)

    def search(self, texts: Iterable[Iterable[str]]) -> Iterator[FactSentence]:
        """The sentences with facts; ``texts`` are sequences of sentences."""
        for number, of_text in enumerate(texts):
            for sentence in of_text:
                if pairs := self.pairs_in(sentence):
                    yield FactSentence(number, sentence, pairs)


FUNCTION = {
    "aux", "auxpass", "aux:pass", "det", "neg", "prt", "compound:prt", "case", "mark", "cop",
    "expl", "predet", "cc:preconj",
}  # fmt: skip
"""Labels of words that belong to their head."""

VERB_PARTS = {"aux", "auxpass", "aux:pass", "neg"}
"""Those that stand once before several verbs."""

CORE = {
    "nsubj", "nsubjpass", "nsubj:pass", "csubj", "dobj", "obj", "iobj", "dative", "attr", "acomp",
    "oprd", "xcomp", "ccomp",
}  # fmt: skip
"""Labels of what a verb cannot stand without."""

SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass", "csubj", "expl"}

MODIFIERS = {"amod", "compound", "advmod", "npadvmod", "nmod", "quantmod"}  # May be left out

CLAUSES = {"relcl", "acl", "acl:relcl", "appos"}
VERBS = ("VERB", "AUX")
NAME_PARTS = ("compound", "flat", "flat:name", "nmod", "nummod")
LONGEST = 14
MOST_VERBS = 2
MODIFIERS_TRIED = 4


class NoPatternError(Exception):
    """Why a sentence gives no pattern, in words that follow ``N pairs:``."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A path between the two slots, and what its words need."""

    slots: dict[int, tuple[str, Tokens]]
    path: tuple[Token, ...]
    top: Token  # The word that governs both slots
    dropped: frozenset[int] = frozenset()  # Positions of words left out for another conjunct
    chosen: frozenset[int] = frozenset()


def path_patterns(doc: Doc, subject: Span, object_: Span) -> tuple[str, ...]:
    """The patterns of one pair of names in a parsed sentence; may raise ``NoPatternError``.

    ``subject`` and ``object_`` are places in ``doc.text``. Several generalisations count: with and
    without each modifier; where words are coordinated, with either of them; a relative clause or an
    apposition also as a main clause.
    """
    slots = {}
    for slot, span in (("[X]", subject), ("[Y]", object_)):
        tokens = doc.char_span(*span)
        if tokens is None:
            raise NoPatternError("a name is part of a word")
        check_name(tokens)
        slots[tokens.root.i] = (slot, tokens)
    texts: dict[str, None] = {}
    reason = None
    for skeleton in _skeletons(doc, slots):
        try:
            complete = _completed(skeleton)
            for chosen in _with_modifiers(complete):
                texts |= dict.fromkeys(_texts(replace(complete, chosen=chosen)))
        except NoPatternError as refused:
            reason = refused
    if not texts:
        raise reason or NoPatternError("no word but determiners connects the names")
    return tuple(texts)


def check_name(tokens: Tokens) -> None:
    """Raise ``NoPatternError`` for a part of a longer name, such as ``York`` in ``New York``."""
    root = tokens.root
    inside = range(tokens.start, tokens.end)
    parts = [child for child in root.children if child.i not in inside]
    heads = [root.head] if root.dep_ in NAME_PARTS and root.pos_ == "PROPN" else []
    parts = [child for child in parts if child.dep_ in NAME_PARTS] + heads
    if any(part.pos_ == "PROPN" and part.i not in inside for part in parts):
        raise NoPatternError("a name is part of a longer name")


def _skeletons(doc: Doc, slots: dict[int, tuple[str, Tokens]]) -> Iterator[Skeleton]:
    """The path; where it leads from one conjunct to another, with the one and with the other."""
    if len(slots) < 2:
        raise NoPatternError("one name is part of the other")
    ways = [[doc[at], *doc[at].ancestors] for at in slots]
    shared = [token for token in ways[0] if token in ways[1]]
    if not shared:
        raise NoPatternError("the parser sees two sentences")
    top = shared[0]
    path = (*(token for way in ways for token in way[: way.index(top)]), top)
    inside = {token.i for _, tokens in slots.values() for token in tokens} - slots.keys()
    if any(token.i in inside for token in path):
        raise NoPatternError("a name is part of a longer name")
    verbs = sum(token.pos_ == "VERB" for token in path)
    if verbs > MOST_VERBS or any(token.dep_ == "advcl" for token in path[:-1]):
        raise NoPatternError("the path leads over several clauses")
    links = [token for token in path if token != top and _is_listed(token, slots)]
    if any(token.i in slots and token.head.i in slots for token in links):
        if top.dep_ not in SUBJECTS:
            raise NoPatternError("the names are only listed together")
        yield Skeleton(slots, (*path, top.head), top.head)
        return
    heads = frozenset(token.head.i for token in links if token.head.i not in slots)
    yield Skeleton(slots, path, top, heads)
    inner = [token for token in links if token.i not in slots and token.pos_ == token.head.pos_]
    if inner:
        others = {token.head.i for token in links if token not in inner}
        dropped = frozenset(others | {token.i for token in inner}) - slots.keys()
        yield Skeleton(slots, path, top, dropped)


def _is_listed(token: Token, slots: dict[int, tuple[str, Tokens]]) -> bool:
    """Whether a word may take its head's place; of two names also an apposition."""
    names = token.i in slots and token.pos_ == token.head.pos_ == "PROPN"
    return token.dep_ == "conj" or (token.dep_ == "appos" and names)


def _completed(skeleton: Skeleton) -> Skeleton:
    """The skeleton with what the words of its path need."""
    chosen = {token.i for token in skeleton.path if token.i not in skeleton.dropped}
    for token in skeleton.path:
        if token.i in skeleton.slots:
            # What stays below a name: ``'s``, a preposition (UD), a common noun's article.
            labels = ("case",) if token.pos_ == "PROPN" else ("case", "det")
            chosen |= {child.i for child in token.children if child.dep_ in labels}
            if any(child.i in skeleton.slots for child in token.conjuncts):
                chosen |= {child.i for child in token.children if child.dep_ == "cc"}
        elif token.i in chosen:
            _check_word(token)
            chosen |= _needs(token, skeleton)
    chosen |= _governor(skeleton)
    return replace(skeleton, chosen=frozenset(chosen))


def _check_word(token: Token) -> None:
    """Refuse names, numbers and pronouns on the path."""
    is_capital = token.text[:1].isupper() and token.i != token.sent.start
    if token.pos_ == "PROPN" or is_capital:
        raise NoPatternError("the path leads over another name")
    is_word = token.text[:1].isalpha() and not any(letter.isdigit() for letter in token.text)
    if (token.like_num and token.lower_ != "one") or not (is_word or token.pos_ == "PART"):
        raise NoPatternError("the path leads over a number")
    if token.pos_ == "PRON" and not _is_relative(token) and token.dep_ != "expl":
        raise NoPatternError("the path leads over a pronoun")


def _is_relative(token: Token) -> bool:
    return bool(token.tag_ in ("WDT", "WP", "WP$", "WRB") or "Rel" in token.morph.get("PronType"))


def _needs(token: Token, skeleton: Skeleton) -> set[int]:
    """What a word of the path cannot stand without, below it and off the path."""
    needed: set[int] = set()
    on_path = {word.i for word in skeleton.path}
    for child in token.children:
        if child.i in on_path:
            continue
        if child.dep_ in FUNCTION and not (child.dep_ == "mark" and token == skeleton.top):
            needed.add(child.i)
        elif (
            (child.dep_ in CORE and (token.pos_ in VERBS or token.dep_ in CLAUSES))
            or child.dep_ == "poss"
            or (token.pos_ == "ADP" and child.dep_ in ("amod", "advmod"))
        ):
            needed |= _phrase(child)
        elif _belongs_to_noun(child):
            needed |= {word.i for word in child.subtree}
    head = token.head
    if token.dep_ == "conj" and token.tag_ == head.tag_ and head.i in skeleton.dropped:
        shared = VERB_PARTS if token.pos_ in VERBS else {"det"}
        has_own = any(child.dep_ in shared for child in token.children)
        needed |= {child.i for child in head.children if child.dep_ in shared and not has_own}
    return needed


def _belongs_to_noun(child: Token) -> bool:
    """Whether a modifier stays: a superlative or a part of a compound in a definite noun phrase.

    ``The largest city`` is no ``the city``, but ``a land border`` is ``a border``.
    """
    is_plain = all(word.is_alpha and word.is_lower for word in child.subtree)
    noun = child.head
    others = [*noun.children, *(noun.head.children if noun.dep_ == "conj" else ())]
    is_definite = any(other.dep_ == "poss" or other.lower_ == "the" for other in others)
    is_superlative = any(word.tag_ in ("JJS", "RBS") for word in child.subtree)
    is_compound = child.dep_ == "compound" and child.pos_ == "NOUN"
    stays = (child.dep_ in ("amod", "advmod") and is_superlative) or (is_compound and is_definite)
    return bool(is_plain and stays)


def _phrase(token: Token) -> set[int]:
    """A word off the path and what belongs to it; names, numbers and pronouns are refused."""
    is_owner = token.dep_ == "poss" and token.pos_ == "PRON"
    if not is_owner:
        _check_word(token)
    if token.dep_ in ("xcomp", "ccomp", "csubj") and token.pos_ in VERBS:
        raise NoPatternError("the path needs another clause")
    if token.dep_ == "poss" and not is_owner:
        raise NoPatternError("the path leads over another name")
    phrase = {token.i}
    for child in token.children:
        if child.dep_ == "poss":
            phrase |= _phrase(child)
        elif _belongs_to_noun(child):
            phrase |= {word.i for word in child.subtree}
        elif child.dep_ in FUNCTION:
            phrase.add(child.i)
    return phrase


def _governor(skeleton: Skeleton) -> set[int]:
    """The noun that a participle at the top describes; refused where the subject is elsewhere."""
    top = skeleton.top
    if top.i in skeleton.slots or top.pos_ not in VERBS:
        if top.pos_ == "ADP":
            raise NoPatternError("a preposition alone governs the names")
        if top.dep_ == "attr" and top.i not in skeleton.slots:
            raise NoPatternError("the subject of the verb is elsewhere")
        return set()
    if any(child.dep_ in SUBJECTS for child in top.children):
        return set()
    if top.dep_ in ("acl", "relcl"):
        return _phrase(top.head)
    raise NoPatternError("the subject of the verb is elsewhere")


def _with_modifiers(skeleton: Skeleton) -> Iterator[frozenset[int]]:
    phrases = []
    for at in sorted(skeleton.chosen - skeleton.slots.keys()):
        token = skeleton.top.doc[at]
        for child in token.children:
            phrase = frozenset(word.i for word in child.subtree)
            is_plain = all(word.is_alpha and word.is_lower for word in child.subtree)
            if child.dep_ in MODIFIERS and is_plain and not phrase & skeleton.chosen:
                phrases.append(phrase)
    yield skeleton.chosen
    for phrase in phrases[:MODIFIERS_TRIED]:
        yield skeleton.chosen | phrase
    if len(phrases) > 1:
        yield skeleton.chosen.union(*phrases)


def _texts(skeleton: Skeleton) -> Iterator[str]:
    """The pattern; and where a clause describes one of the names, the same as a main clause."""
    yield from _text(skeleton)
    top = skeleton.top
    clause = next((t for t in skeleton.path if t.head == top and t.dep_ in CLAUSES), None)
    if top.i not in skeleton.slots or clause is None:
        return
    if clause.dep_ == "appos":
        yield from _text(skeleton, copula_before=clause)
    relative = {child.i for child in clause.children if child.dep_ in SUBJECTS}
    relative = {at for at in relative if _is_relative(top.doc[at])}
    if relative:
        chosen = skeleton.chosen - relative
        yield from _text(replace(skeleton, chosen=chosen), main_clause=clause)


def _text(
    skeleton: Skeleton, *, copula_before: Token | None = None, main_clause: Token | None = None
) -> Iterator[str]:
    doc, words = skeleton.top.doc, []
    restated = copula_before or main_clause
    previous_end = None
    for at in sorted(skeleton.chosen):
        slot, tokens = skeleton.slots.get(at, ("", doc[at : at + 1]))
        if previous_end is not None:
            first = restated is not None and doc[at] in list(restated.subtree)
            if first:
                words.append(" is " if copula_before else " ")
                restated = None
            else:
                words.append(_between(doc, previous_end, tokens.start, skeleton))
        first_word = at == tokens[0].sent.start and tokens[0].pos_ != "PROPN"
        is_lower = first_word and tokens[0].text != "I"
        words.append(slot or (tokens[0].lower_ if is_lower else tokens[0].text))
        previous_end = tokens.end
    text = " ".join("".join(words).split())
    text = with_articles(re.sub(r" ([,;:])", r"\1", COMMA_OF_SUBJECT.sub(r"\1 \2", text)))
    lexical = [doc[at] for at in skeleton.chosen - skeleton.slots.keys()]
    says = any(word.pos_ not in ("DET", "PUNCT", "PART", "CCONJ") for word in lexical)
    # Phrases of prepositions without a verb, such as ``from [X] from [Y]``, say nothing.
    is_adjunct = doc[min(skeleton.chosen)].pos_ == "ADP" and not any(
        doc[at].pos_ in VERBS for at in skeleton.chosen
    )
    is_plain = SLOTS_TOUCH.search(text) is None and not is_adjunct
    if (says or copula_before) and is_plain and len(text.split()) <= LONGEST:
        yield text[0].upper() + text[1:] + "."


def _between(doc: Doc, start: int, end: int, skeleton: Skeleton) -> str:
    """What joins two chosen words: a space, nothing, or punctuation that belongs there."""
    if start == end:
        return "" if not doc[start - 1].whitespace_ else " "
    gap = doc[start:end]
    depth = sum((token.text in "([") - (token.text in ")]") for token in gap)
    if depth:
        raise NoPatternError("a bracket separates the names")
    if all(token.is_punct for token in gap):
        text = "".join(one.whitespace_ if one.is_quote else one.text_with_ws for one in gap)
        return (" " if doc[start - 1].whitespace_ else "") + text
    clauses = [token for token in skeleton.path if token.dep_ in CLAUSES]
    edges = {token.left_edge.i for token in clauses}
    begins = any(at in edges and doc[at - 1].text == "," for at in range(start + 1, end + 1))
    return ", " if begins else " "


COMMA_OF_SUBJECT = re.compile(r"^(\[[XY]\]),? (is|was|are|were|has|had)\b")
"""A subject that ends in the comma of what was dropped after it."""

SLOTS_TOUCH = re.compile(r"\[[XY]\](?: |, )?\[[XY]\]")
VOWEL_SOUND = re.compile(
    r"(?!uni|use|usu|euro|one\b|once)(?:[aeiou]|hour|honou?r|heir|honest)", re.I
)


def with_articles(text: str) -> str:
    """The text with ``a`` or ``an`` by the word that follows; before a slot it stays."""

    def fitting(match: re.Match[str]) -> str:
        article = "an" if VOWEL_SOUND.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " " + match[2]

    return re.sub(r"\b([Aa]n?) (?=[^\[\s])(\S+)", fitting, text)


BATCH = 512  # sentences whose parses are in memory together
MOST_PATTERNS = 500_000  # in memory
EVIDENCE = 3  # sentences that are kept for a pattern of a relation
LONGEST_EVIDENCE = 240  # characters


@dataclass(slots=True)
class Support:
    """What speaks for a pattern."""

    facts: set[int] = field(default_factory=set)
    texts: int = 0
    last_text: int = -1
    evidence: dict[int, list[str]] = field(default_factory=dict)

    def add(self, facts: Sequence[int], index: FactIndex, sentence: FactSentence) -> None:
        self.facts.update(facts)
        self.texts += sentence.text != self.last_text
        self.last_text = sentence.text
        text = truncated(sentence.sentence, LONGEST_EVIDENCE)
        for fact in facts:
            kept = self.evidence.setdefault(index.relation_of[fact], [])
            if len(kept) < EVIDENCE and text not in kept:
                kept.append(text)


Z = 1.959964  # Of a 95 % interval


@dataclass(slots=True)
class Mined:
    """The patterns of a corpus, and what was searched."""

    index: FactIndex
    supports: dict[str, Support] = field(default_factory=dict)
    sentences: int = 0  # Sentences that hold a fact, all of which were parsed
    pairs: int = 0
    by_relation: Counter[str] = field(default_factory=Counter)

    def ranked(self, relation: str, top: int | None = None, *, source: str = "") -> list[Proposal]:
        """The patterns of a relation as proposals, the most specific first.

        ``other_facts``: distinct facts of all other relations that a pattern connects, but for
        facts of this relation. ``specificity``: the lower bound of Wilson's 95 % interval of
        ``facts / (facts + other_facts)``. The number of observations is that of facts or of texts,
        whichever is smaller: ten facts that one sentence lists are no ten observations.
        """
        at = self.index.relations.index(relation)
        shared: set[int] = set()
        for of_pair in self.index.facts_of.values():
            others = {fact for fact in of_pair if self.index.relation_of[fact] != at}
            if len(others) < len(of_pair):
                shared |= others
        ranked = []
        for text, support in self.supports.items():
            if at in support.evidence:
                facts = sum(self.index.relation_of[fact] == at for fact in support.facts)
                every, texts = len(support.facts - shared), support.texts
                share, extra = facts / every, Z**2 / min(every, texts)
                spread = (share * (1 - share) * extra + extra**2 / 4) ** 0.5
                specificity = max(0.0, (share + extra / 2 - spread) / (1 + extra))
                order = -specificity, -facts, -texts, len(text), text
                scores = {"specificity": round(specificity, 4), "facts": facts}
                scores |= {"other_facts": every - facts, "texts": texts}
                ranked.append((order, text, tuple(support.evidence[at]), scores))
        return [
            Proposal(
                relation, text, "mined", source,
                evidence=evidence, scores={"rank": rank, **scores},
            )
            for rank, (_, text, evidence, scores) in enumerate(sorted(ranked)[:top], start=1)
        ]  # fmt: skip

    def add(self, doc: Doc, sentence: FactSentence) -> None:
        index = self.index
        facts = {fact for pair in sentence.pairs for fact in pair.facts}
        relations = {index.relation_of[fact] for fact in facts}
        self.by_relation.update(index.relations[at] for at in relations)
        self.sentences, self.pairs = self.sentences + 1, self.pairs + len(sentence.pairs)
        for pair in sentence.pairs:
            try:
                patterns = path_patterns(doc, pair.subject, pair.object)
            except NoPatternError:
                continue
            for pattern in patterns:
                self.supports.setdefault(pattern, Support()).add(pair.facts, index, sentence)
        if len(self.supports) > MOST_PATTERNS:
            self.supports = {t: one for t, one in self.supports.items() if len(one.facts) > 1}


def mine(
    texts: Iterable[Iterable[str]], index: FactIndex, parser: Language, advance: Advance
) -> Mined:
    """The patterns of all facts in ``texts``, each a sequence of sentences."""
    mined = Mined(index)
    found = ((sentence.sentence, sentence) for sentence in index.search(texts))
    for doc, sentence in parsed(found, parser):
        mined.add(doc, sentence)
        advance(1)
    return mined


def parsed(items: Iterable[tuple[str, T]], parser: Language) -> Iterator[tuple[Doc, T]]:
    """The parse of each sentence with what comes with it, valid until the next is taken."""
    waiting = iter(items)
    while batch := list(islice(waiting, BATCH)):
        with parser.memory_zone():
            yield from parser.pipe(batch, as_tuples=True, batch_size=64)
