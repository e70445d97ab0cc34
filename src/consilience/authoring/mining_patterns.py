"""Turns the dependency path between a subject and an object of a sentence into cloze patterns.

A pattern has the words of the path, what they cannot stand without (determiners, auxiliaries,
particles, subjects, objects and predicates), and nothing else: adjuncts, years and other names are
dropped. A sentence is refused if what its path needs is a name, a number or a pronoun. The labels
are those of spaCy's English pipelines and of Universal Dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from consilience.authoring.mining_search import Span

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token
    from spacy.tokens import Span as Tokens

FUNCTION = frozenset(
    {
        *("aux", "auxpass", "aux:pass", "det", "neg", "prt", "compound:prt", "case", "mark", "cop"),
        *("expl", "predet", "cc:preconj"),
    }
)
"""Labels of words that belong to their head."""

CORE = frozenset(
    {
        *("nsubj", "nsubjpass", "nsubj:pass", "csubj", "dobj", "obj", "iobj", "dative", "attr"),
        *("acomp", "oprd", "xcomp", "ccomp"),
    }
)
"""Labels of what a verb cannot stand without."""

SUBJECTS = frozenset(["nsubj", "nsubjpass", "nsubj:pass", "csubj", "expl"])

MODIFIERS = frozenset(["amod", "compound", "advmod", "npadvmod", "nmod", "quantmod"])
"""Labels of what a pattern may have or not."""

CLAUSES = frozenset(["relcl", "acl", "acl:relcl", "appos"])
"""Labels of what may follow a comma and describe a noun."""

VERBS = ("VERB", "AUX")
NAME_PARTS = ("compound", "flat", "flat:name", "nmod", "nummod")
LONGEST = 14
"""Words of the longest pattern, slots included."""

MOST_VERBS = 2
"""Verbs of the longest path."""

MODIFIERS_TRIED = 4
"""Modifiers of one path that are tried one by one."""


class NoPatternError(Exception):
    """Why a sentence gives no pattern, in words that follow ``N pairs:``."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A path between the two slots, and what its words need."""

    slots: dict[int, tuple[str, Tokens]]
    """Position of a name's head -> its slot and its tokens."""
    path: tuple[Token, ...]
    """The words of the path, slots included."""
    top: Token
    """The word that governs both slots."""
    dropped: frozenset[int] = frozenset()
    """Positions of words that are left out in favour of another conjunct."""
    chosen: frozenset[int] = field(default=frozenset())
    """Positions of the words and slots of the pattern."""


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
    _check_path(path, slots)
    links = [token for token in path if _is_listed(token, slots) and token != top]
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


def _check_path(path: tuple[Token, ...], slots: dict[int, tuple[str, Tokens]]) -> None:
    """Refuse a path through the inside of a name, or one of too many clauses."""
    inside = {token.i for _, tokens in slots.values() for token in tokens} - slots.keys()
    if any(token.i in inside for token in path):
        raise NoPatternError("a name is part of a longer name")
    verbs = [token for token in path if token.pos_ == "VERB"]
    if len(verbs) > MOST_VERBS or any(token.dep_ == "advcl" for token in path[:-1]):
        raise NoPatternError("the path leads over several clauses")


def _completed(skeleton: Skeleton) -> Skeleton:
    """The skeleton with what the words of its path need."""
    chosen = {token.i for token in skeleton.path if token.i not in skeleton.dropped}
    for token in skeleton.path:
        if token.i in skeleton.slots:
            chosen |= {child.i for child in token.children if _belongs_to_name(token, child)}
            if any(child.i in skeleton.slots for child in token.conjuncts):
                chosen |= {child.i for child in token.children if child.dep_ == "cc"}
        elif token.i in chosen:
            _check_word(token)
            chosen |= _needs(token, skeleton)
    chosen |= _governor(skeleton)
    return replace(skeleton, chosen=frozenset(chosen))


def _belongs_to_name(name: Token, child: Token) -> bool:
    """Whether a word below a name stays: ``'s``, a preposition (UD), a common noun's article."""
    is_article = child.dep_ == "det" and name.pos_ != "PROPN"
    return bool(child.dep_ == "case" or is_article)


def _check_word(token: Token) -> None:
    """Refuse names, numbers and pronouns on the path."""
    if token.pos_ == "PROPN" or _is_name(token):
        raise NoPatternError("the path leads over another name")
    is_word = token.text[:1].isalpha() and not any(letter.isdigit() for letter in token.text)
    if (token.like_num and token.lower_ != "one") or not (is_word or token.pos_ == "PART"):
        raise NoPatternError("the path leads over a number")
    if token.pos_ == "PRON" and not _is_relative(token) and token.dep_ != "expl":
        raise NoPatternError("the path leads over a pronoun")


def _is_name(token: Token) -> bool:
    """Whether a word is written as a name: with a capital that does not begin the sentence."""
    return bool(token.text[:1].isupper() and token.i != token.sent.start)


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
    if token.dep_ == "conj" and token.pos_ == "NOUN" and head.i in skeleton.dropped:
        has_own = any(child.dep_ == "det" for child in token.children)
        needed |= {child.i for child in head.children if child.dep_ == "det" and not has_own}
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
    """The chosen words: without modifiers, with each of them, and with all."""
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
    """The chosen words as a sentence; nothing where it is too long or says nothing."""
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
        words.append(slot or _word(doc[at]))
        previous_end = tokens.end
    text = " ".join("".join(words).split())
    text = with_articles(re.sub(r" ([,;:])", r"\1", COMMA_OF_SUBJECT.sub(r"\1 \2", text)))
    lexical = [doc[at] for at in skeleton.chosen - skeleton.slots.keys()]
    says = any(word.pos_ not in ("DET", "PUNCT", "PART", "CCONJ") for word in lexical)
    is_plain = SLOTS_TOUCH.search(text) is None and not _is_adjunct(skeleton)
    if (says or copula_before) and is_plain and len(text.split()) <= LONGEST:
        yield text[0].upper() + text[1:] + "."


def _is_adjunct(skeleton: Skeleton) -> bool:
    """Whether the words are prepositions' phrases without a verb, such as ``from [X] from [Y]``."""
    words = [skeleton.top.doc[at] for at in sorted(skeleton.chosen)]
    return words[0].pos_ == "ADP" and not any(word.pos_ in VERBS for word in words)


def _word(token: Token) -> str:
    """A word as it is within a sentence."""
    begins = token.i == token.sent.start and token.pos_ != "PROPN" and token.text != "I"
    return str(token.lower_ if begins else token.text)


def _between(doc: Doc, start: int, end: int, skeleton: Skeleton) -> str:
    """What joins two chosen words: a space, nothing, or punctuation that belongs there."""
    if start == end:
        return "" if not doc[start - 1].whitespace_ else " "
    gap = doc[start:end]
    depth = sum((token.text in "([") - (token.text in ")]") for token in gap)
    if depth:
        raise NoPatternError("a bracket separates the names")
    if all(token.is_punct for token in gap):
        text = "".join(token.text_with_ws for token in gap if not token.is_quote)
        return (" " if doc[start - 1].whitespace_ else "") + text
    clauses = [token for token in skeleton.path if token.dep_ in CLAUSES]
    edges = {token.left_edge.i for token in clauses}
    begins = any(at in edges and doc[at - 1].text == "," for at in range(start + 1, end + 1))
    return ", " if begins else " "


COMMA_OF_SUBJECT = re.compile(r"^(\[[XY]\]),? (is|was|are|were|has|had)\b")
"""A subject that ends in the comma of what was dropped after it."""

SLOTS_TOUCH = re.compile(r"\[[XY]\](?: |, )?\[[XY]\]")
"""Two slots without a word between them."""

VOWEL_SOUND = re.compile(
    r"(?!uni|use|usu|euro|one\b|once)(?:[aeiou]|hour|honou?r|heir|honest)", re.I
)


def with_articles(text: str) -> str:
    """The text with ``a`` or ``an`` by the word that follows; before a slot it stays."""

    def fitting(match: re.Match[str]) -> str:
        article = "an" if VOWEL_SOUND.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " " + match[2]

    return re.sub(r"\b([Aa]n?) (?=[^\[\s])(\S+)", fitting, text)


__all__: list[Any] = ["NoPatternError", "check_name", "path_patterns", "with_articles"]
