"""``--vary`` and ``--design``: which variants of a question are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, permutations
from math import factorial
from string import ascii_uppercase

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.factors import FACTORS, MOST_CELLS, Factor, FactorialDesign
from consilience.presentation import CASES, LABEL_STYLES, permutation
from consilience.suites.questions import Questions

ALL = "all"
"""All levels that the questions have."""

MORE_LEVELS: Mapping[str, str] = {
    "language": "Add phrasings in another language, with a column 'language' in the file",
    "paraphrase": "Add another phrasing, with a column 'question_2' in the file",
}
"""How to get more levels of factors whose levels are in the questions."""

Levels = Callable[[str, Questions], Sequence[str]]
"""The levels of a factor from what was written after ``FACTOR=``."""


def factors_of(
    vary: Sequence[str] | None,
    questions: Questions,
    templates: Sequence[str],
    samples: Sequence[Factor] = (),
) -> list[Factor]:
    """The factors that ``--vary`` names.

    Without it the phrasings and the languages vary, where there are several, and the options are
    rotated. ``templates``: the names of the templates that ``template=`` may name. ``samples``: the
    factor of sampled texts, if they are sampled.
    """
    if vary is None:
        return [*_usual_factors(questions), *samples]
    chosen: dict[str, Factor] = {}
    for text in vary:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if name not in FACTORS:
            raise unknown_name(f"--vary {text}: no factor '{name}'", name, FACTORS)
        if name in chosen:
            raise ConsilienceError(
                f"--vary {name}=... more than once",
                todo="Name all its levels after one --vary.",
            )
        value = value if equals else ALL
        is_all_templates = name == "template" and value == ALL
        levels = tuple(templates if is_all_templates else LEVELS[name](value, questions))
        if name == "template":
            _check_levels(name, levels, templates)
        if not any(levels) or (len(levels) < 2 and value == ALL):
            shown = f": '{levels[0]}'" if any(levels) else ""
            raise ConsilienceError(
                f"--vary {text}: the factor has one level{shown}",
                expected="two levels or more, because only what varies can be compared",
                todo=f"{MORE_LEVELS.get(name, 'Name more levels')}, or leave --vary {name} out.",
            )
        chosen[name] = Factor(name, levels)
    return [*(chosen[name] for name in FACTORS if name in chosen), *samples]


def fixed_note(vary: Sequence[str] | None, questions: Questions) -> list[str]:
    """A note on the factors that vary without ``--vary``, and now do not."""
    if vary is None:
        return []
    chosen = {text.partition("=")[0].strip() for text in vary}
    fixed = [factor for factor in _usual_factors(questions) if factor.name not in chosen]
    if not fixed:
        return []
    names = " and ".join(f"{factor.name} ({len(factor.levels)} levels)" for factor in fixed)
    more = " ".join(
        "--vary order=rotations" if factor.name == "order" else f"--vary {factor.name}"
        for factor in fixed
    )
    return [f"fixed, because --vary does not name it: {names}; to vary it too, add {more}"]


def columns_of(columns: Sequence[str] | None) -> dict[str, str]:
    """``--columns question=stem,options=A+B+C+D`` as a mapping."""
    mapping = {}
    for text in columns or ():
        name, equals, source = text.partition("=")
        if not (name.strip() and equals and source.strip()):
            raise ConsilienceError(
                f"--columns {text}", expected="OURS=YOURS, such as question=stem,answer=label"
            )
        mapping[name.strip()] = source.strip()
    return mapping


def design_of(kind: str, factors: Sequence[Factor], seed: int) -> FactorialDesign:
    """The design that ``--design`` names: full, one-factor, or radial:N."""
    name, _, number = kind.partition(":")
    if name == "radial" and number.isdecimal():
        return FactorialDesign.radial(factors, int(number), seed)
    if kind == "full":
        return FactorialDesign.full(factors)
    if kind == "one-factor":
        return FactorialDesign.one_factor(factors)
    raise ConsilienceError(
        f"--design {kind}",
        expected="full, one-factor, or radial:N with a number of points, such as radial:8",
    )


def _usual_factors(questions: Questions) -> list[Factor]:
    """What varies if nothing is said."""
    languages, phrasings = questions.languages, _phrasings(questions)
    options = _most_options(questions)
    factors = []
    if len(languages) > 1:
        factors.append(Factor("language", languages))
    if phrasings > 1:
        factors.append(Factor("paraphrase", _numbers(phrasings)))
    if options > 1:
        factors.append(Factor("order", tuple(_orders("rotations", questions))))
    return factors


def _phrasings(questions: Questions) -> int:
    return max(question.phrasings for question in questions.items)


def _most_options(questions: Questions) -> int:
    return max(len(question.options) for question in questions.items)


def _numbers(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, size + 1)))


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _check_levels(name: str, levels: Sequence[str], known: Sequence[str]) -> None:
    for level in levels:
        if level not in known:
            raise unknown_name(f"--vary {name}={level}", level, known)


def _counted(value: str, most: int, name: str) -> Sequence[str]:
    """``all``, a number of levels, or their numbers."""
    if value == ALL:
        return _numbers(most)
    numbers = _listed(value)
    if not all(number.isdecimal() and 0 < int(number) <= most for number in numbers) or not numbers:
        raise ConsilienceError(
            f"--vary {name}={value}",
            expected=f"all, a number up to {most}, or numbers such as 1,2",
        )
    return _numbers(int(numbers[0])) if len(numbers) == 1 else numbers


def _paraphrases(value: str, questions: Questions) -> Sequence[str]:
    return _counted(value, _phrasings(questions), "paraphrase")


def _languages(value: str, questions: Questions) -> Sequence[str]:
    levels = questions.languages if value == ALL else _listed(value)
    if not any(questions.languages) and value != ALL:
        raise ConsilienceError(
            f"--vary language={value} of questions that name no language",
            todo=f"{MORE_LEVELS['language']}, or leave --vary language out.",
        )
    _check_levels("language", levels, questions.languages)
    return levels


def _orders(value: str, questions: Questions) -> Sequence[str]:
    """Orders of the options: rotations, reversed, shuffles:K, all, or orders such as BACD."""
    size = _most_options(questions)
    if size < 2:
        raise ConsilienceError(
            "--vary order of open questions", todo="Leave it out, or give the questions options."
        )
    kind, _, number = value.partition(":")
    if kind == "rotations":
        return ["given", *(f"rotation {steps}" for steps in range(1, size))]
    if kind in ("shuffles", "shuffle") and number.isdecimal():
        _refuse_orders(int(number) + 1, value)
        return ["given", *(f"shuffle {at}" for at in range(1, int(number) + 1))]
    if value == ALL:
        _refuse_orders(factorial(size), value)
        return ["given", *map("".join, islice(permutations(ascii_uppercase[:size]), 1, None))]
    levels = _listed(value)
    levels = levels if "given" in levels else ["given", *levels]
    for level in levels:
        if not _is_order(level, size):
            raise ConsilienceError(
                f"--vary order={level}",
                expected="rotations, reversed, shuffles:K, all, or orders of the options such as "
                f"{ascii_uppercase[:size][::-1]}",
            )
    return levels


def _is_order(level: str, size: int) -> bool:
    try:
        return permutation(level, size) is not None
    except ValueError:
        return False


def _refuse_orders(count: int, value: str) -> None:
    if count > MOST_CELLS:
        shown = f"{count:,}" if count < 10**12 else "over a trillion"
        raise ConsilienceError(
            f"--vary order={value}: {shown} orders",
            expected=f"at most {MOST_CELLS:,} variants",
            todo="Draw some of them: --vary order=shuffles:10.",
        )


def _labels(value: str, questions: Questions) -> Sequence[str]:
    levels = list(LABEL_STYLES) if value == ALL else _listed(value)
    _check_levels("labels", levels, list(LABEL_STYLES))
    return levels


def _cases(value: str, questions: Questions) -> Sequence[str]:
    levels = list(CASES) if value == ALL else _listed(value)
    _check_levels("case", levels, CASES)
    return levels


def _separators(value: str, questions: Questions) -> Sequence[str]:
    """Texts between bars, because a comma may be part of one; a backslash and n is a line end."""
    if value == ALL:
        raise ConsilienceError(
            "--vary separator without texts",
            todo="Name them between bars: --vary 'separator=: | - '.",
        )
    return [part.replace("\\n", "\n") for part in value.split("|")]


def _examples(value: str, questions: Questions) -> Sequence[str]:
    if not value.isdecimal() or int(value) < 1:
        raise ConsilienceError(
            f"--vary examples={value}", expected="a number of draws, such as examples=3"
        )
    return _numbers(int(value))


def _templates(value: str, questions: Questions) -> Sequence[str]:
    return _listed(value)


def _samples(value: str, questions: Questions) -> Sequence[str]:
    raise ConsilienceError(
        f"--vary sample={value}", todo="Sample texts with --samples 3 --temperature 0.7."
    )


def _batches(value: str, questions: Questions) -> Sequence[str]:
    """Numbers of questions in a request."""
    levels = _listed(value)
    if not levels or not all(level.isdecimal() and int(level) > 0 for level in levels):
        raise ConsilienceError(
            f"--vary batch={value}",
            expected="numbers of questions in a request, such as batch=1,4",
        )
    return levels


LEVELS: Mapping[str, Levels] = {
    "language": _languages,
    "paraphrase": _paraphrases,
    "order": _orders,
    "labels": _labels,
    "template": _templates,
    "separator": _separators,
    "case": _cases,
    "examples": _examples,
    "sample": _samples,
    "batch": _batches,
}
"""How the levels of each factor are written."""
