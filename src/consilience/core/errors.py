"""Errors of wrong input, the choices that options have, and what a caller sees of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

LONGEST = 1_000
"""Characters of each part of a message; what quotes more input is shortened in its middle."""

Kind = Literal["", "usage", "occupied", "model"]
"""What code asks for: a wrong command line, a folder of something else, a model that fails."""

OTHER_OUT = "Choose another folder"


class ConsilienceError(Exception):
    """Bad input or usage: what was found, what was expected, where, and what to do next."""

    status = 2  # The exit status of a command that it ends
    kind: Kind = ""

    def __init__(
        self,
        found: str,
        *,
        expected: str = "",
        where: str = "",
        todo: str = "",
        kind: Kind = "",
    ) -> None:
        self.kind = kind or self.kind
        self.found = shortened(found)
        self.expected = shortened(expected)
        self.where = shortened(where)
        self.todo = shortened(todo)
        message = f"{self.where}: {self.found}" if where else self.found
        if expected:
            message += f"; expected {self.expected}"
        message += "" if message.endswith("?") else "."
        if todo:
            message += f" {self.todo}"
        super().__init__(message)

    def to_dict(self) -> dict[str, str]:
        """The message and its parts, for JSON; a part that was not given is empty."""
        return {"message": str(self), **self.parts}

    @property
    def parts(self) -> dict[str, Any]:
        names = ("found", "expected", "where", "todo", "kind")
        return {name: getattr(self, name) for name in names}

    def replaced(self, **parts: Any) -> ConsilienceError:
        return ConsilienceError(**self.parts | parts)

    def __reduce__(self) -> tuple[object, ...]:
        """As an error comes from another process: from its parts, not from its message."""
        return partial(ConsilienceError, **self.parts), ()


class ModelError(ConsilienceError):
    """A model that cannot be found or loaded."""

    kind = "model"


class UnansweredError(ConsilienceError):
    """A run in which no query has an answer."""

    status = 3


OF_MODELS = ("torch", "transformers", "tokenizers", "safetensors", "sentencepiece", "sklearn")
EXTRAS = dict.fromkeys(OF_MODELS, "models") | dict.fromkeys(("accelerate", "peft"), "train")
EXTRAS["huggingface_hub"] = "hub"  # The extras that bring modules, by the names of the modules


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a failed import into an error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise missing(error, extra) from error


def missing(error: ImportError, extra: str = "") -> ConsilienceError:
    """The error for a failed import of what an extra brings; else ``error`` is raised again."""
    name = (error.name or "").partition(".")[0]
    extra = extra or EXTRAS.get(name, "")
    if not extra:
        raise error
    return ConsilienceError(f"'{name}' is not installed", todo=how_to_install(extra))


def how_to_install(extra: str) -> str:
    """How to install the packages of an extra, with the versions in the metadata."""
    import re
    import shlex
    from importlib import metadata

    try:
        requirements = metadata.requires("consilience") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        requirements = []

    def packages(of: str) -> Iterator[str]:
        for line in requirements:
            if re.search(f"extra == ['\"]{of}['\"]", line):
                package = line.partition(";")[0].strip()
                inner = re.fullmatch(r"consilience\[(.+)\]", package)
                yield from packages(inner[1]) if inner else [package]

    wanted = " ".join(map(shlex.quote, packages(extra))) or f"'.[{extra}]'"
    return f"Install the extra consilience[{extra}]: `pip install {wanted}`."


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text; one of more than ``longest`` characters without its middle."""
    if len(text) <= longest:
        return text
    half = (longest - 20) // 2
    return f"{text[:half]} ... {text[-half:]}"


def reason_of(error: BaseException) -> str:
    """The first line of what another library says, without its full stop; its type if nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def did_you_mean(word: str, known: list[str], otherwise: str | None = None) -> str:
    """A hint for an unknown name: the closest known one, or all of them where they are few.

    ``otherwise``: what to say where no name is similar. The dashes of options count for nothing:
    they would make any two short options similar.
    """
    from difflib import get_close_matches

    plain = {name.lstrip("-"): name for name in known}
    close = get_close_matches(shortened(word.lstrip("-"), 200), plain, n=1)
    if close:
        return f"Did you mean '{plain[close[0]]}'?"
    if otherwise is not None:
        return otherwise
    most = 12 if len(known) > 15 else 15  # "and 1 more" would be longer than the name
    shown = ", ".join(known[:most]) + (f" and {len(known) - 12} more" if len(known) > most else "")
    return f"Known: {shown.removesuffix('.')}."


def unknown_name(found: str, name: str, known: Iterable[str], where: str = "") -> ConsilienceError:
    """The error for an unknown name: the closest known one, or all where none is similar."""
    names = list(known)
    todo = did_you_mean(name, names, "")
    expected = "" if todo else ", ".join(names)
    return ConsilienceError(found, expected=expected, where=where, todo=todo)


def missing_column(
    name: str, columns: list[str], *, expected: str, where: str, todo: str = ""
) -> ConsilienceError:
    """The error for a table without a column; ``todo``: what to do where no name is similar."""
    found = f"no column '{name}' among {', '.join(columns) or 'none'}"
    return ConsilienceError(
        found, expected=expected, where=where, todo=did_you_mean(name, columns, todo)
    )


By = Literal["group", "edit", "pattern", "form", "factor", "variant", "metric", "item"]
ComparedBy = Literal["group", "edit", "form", "factor", "metric"]
"""What a table of numbers has a row for. A group is a relation, a task or a group of questions."""

Protocol = Literal["published", "strict"]
"""How answers are counted: by the papers' released code, or by the definitions in their text."""

# Choices of options, whose help says what they mean.
TableFormat = Literal["table", "md", "latex", "csv"]
PublishFormat = Literal["eee", "model-card"]
CandidateSet = Literal["objects", "pieces", "vocabulary"]
Joined = Literal["pair", "string"]
SuiteKind = Literal["questions", "facts", "judge"]
Loss = Literal["vote", "pairs", "pairs-vocabulary"]
TrainingText = Literal["patterns", "none"]
SMALL_TASKS = ("rte", "mrpc")
"""The CALUM paper's tasks with few training examples: 2.5K and 3.7K; others have over 105K."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded: the options of ``probe`` with these names."""

    device: str = "auto"
    dtype: str = "float32"
    trust_remote_code: bool = False
    """Whether the Python code that comes with it is run; without, a model that needs it raises."""
    adapter: Path | None = None  # The folder of a PEFT adapter that is merged into the weights


DEFAULT_LOADING = Loading()


@dataclass(frozen=True, slots=True)
class Connection:
    """How a model behind a URL is reached. It names the variable of the key, and has no key."""

    base_url: str  # The address of the API, such as ``http://127.0.0.1:8000/v1``
    key_variable: str | None = None
    """The environment variable of the key; None for ``OPENAI_API_KEY``, where the key is safe."""
    max_requests: int | None = None
    concurrency: int | None = None  # Requests in flight; None for 8
    tokenizer: str | None = None
    trust_remote_code: bool = False  # Whether the code that comes with this tokenizer may run


Advance = Callable[[int], None]  # Called with the number of steps that are done


class Progress:
    """Shows what a command does; this one shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """While a model is loaded and used."""
        return nullcontext()

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """While so many steps are made; ``total`` is None where it is not known."""
        return nullcontext(lambda *steps: None)

    def say(self, step: str) -> None:
        """At the start of a step, in words."""

    def inform(self, line: str) -> None:
        """A line about the work, such as its cost or a command that is run."""


SILENT = Progress()
