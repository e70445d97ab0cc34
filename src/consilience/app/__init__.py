"""The command line: what its modules share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable


def collect_garbage() -> None:
    """Collect garbage from now on, but not among what was imported."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def print_errors(lines: Iterable[str]) -> None:
    """Print lines on standard error, with ``--quiet`` too; this needs no library."""
    from consilience.core.text import visible

    if sys.stderr is not None:  # it may be closed
        for line in lines:
            print(visible(line), file=sys.stderr, flush=True)


def json_text(document: object) -> str:
    """A document as JSON on one line; what a terminal or its encoding cannot show is escaped."""
    import json

    from consilience.core.text import CONTROLS

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    is_unicode = encoding.lower().replace("-", "").startswith("utf")
    text = json.dumps(document, ensure_ascii=not is_unicode)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
