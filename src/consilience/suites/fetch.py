"""Fetches the release of a suite: from a pinned revision, with digests checked, resumable.

``NAME.sha256`` beside this file lists digest, size and path of each file of a release.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consilience.errors import ConsilienceError, did_you_mean

SOURCES: dict[str, str] = {
    "pararel": "https://raw.githubusercontent.com/yanaiela/pararel/"
    "cb5554678457beb5ac163d888f1ce8cf174b3f0b/data",
}
"""The URL of each release, at a pinned revision."""

FAULTS_OF_CONNECTIONS = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
)
"""After these another attempt may succeed."""

ATTEMPTS = 4
CHUNK = 1 << 16

SILENCE = 60.0
"""Seconds without a byte after which an attempt ends."""

SLOWEST = 10_000
"""Bytes a second: a file may take ``SILENCE`` and its size over this, all attempts together."""


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A file of a release."""

    path: str
    """Below the folder of the suite."""
    size: int
    """In bytes."""
    sha256: str
    """Its digest."""


def listing(name: str) -> list[ReleasedFile]:
    """The files of a suite that can be fetched."""
    if name not in SOURCES:
        hint = did_you_mean(name, list(SOURCES))
        raise ConsilienceError(
            f"nothing to fetch for '{name}'",
            expected=f"{', '.join(SOURCES)}; other suites come with consilience",
            todo=hint if hint.startswith("Did") else "`consilience suite list` has all suites.",
        )
    lines = (Path(__file__).parent / f"{name}.sha256").read_text(encoding="utf-8").splitlines()
    rows = (line.split(maxsplit=2) for line in lines if not line.startswith("#"))
    return [ReleasedFile(path, int(size), sha256) for sha256, size, path in rows]


def fetch(
    name: str,
    data: Path,
    *,
    base: str | None = None,
    progress: Callable[[int, int], None] = lambda files, total: None,
) -> tuple[Path, int]:
    """Fetch a release into ``data/name``: the folder, and the number of files that were fetched.

    A complete file is kept, a partial one is completed. No more bytes than listed are read, and a
    file with another digest is never put in place. Each file may take ``SILENCE`` and its size over
    ``SLOWEST`` seconds. ``progress`` is called with the files that are done since, and all files.
    """
    folder = data / name
    files = listing(name)
    _refuse_secrets(base or "")
    fetched = 0
    progress(0, len(files))
    for file in files:
        target = folder / file.path
        if not is_right(target, file):
            _fetch_file(f"{base or SOURCES[name]}/{file.path}", target, file)
            fetched += 1
        progress(1, len(files))
    return folder, fetched


def altered(name: str, folder: Path) -> list[str]:
    """The files of a release that are missing in ``folder`` or differ."""
    return [file.path for file in listing(name) if not is_right(folder / file.path, file)]


def is_right(path: Path, file: ReleasedFile) -> bool:
    """Whether the file is there with the listed size and digest."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256


def _fetch_file(url: str, target: Path, file: ReleasedFile) -> None:
    """Fetch a file in at most ``ATTEMPTS`` attempts, and put it in place when it is right."""
    part = target.with_name(target.name + ".part")
    deadline = time.monotonic() + SILENCE + file.size / SLOWEST
    reason = ""
    for _ in range(ATTEMPTS):
        reason = _attempt(url, part, file.size, deadline)
        if reason:
            continue
        if is_right(part, file):
            part.replace(target)
            return
        size = part.stat().st_size
        if size < file.size:
            reason = "the connection ended early"
            continue
        part.unlink()
        is_longer = size > file.size
        raise ConsilienceError(
            "not the released file: "
            + (f"longer than its {file.size:,} bytes" if is_longer else "its digest differs"),
            expected=f"SHA-256 {file.sha256}",
            where=url,
            todo="Try again; if it stays so, the source has been changed.",
        )
    raise _unreachable(url, reason)


def _attempt(url: str, part: Path, size: int, deadline: float) -> str:
    """Download what ``part`` lacks; why that failed, where another attempt may succeed."""
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if not _within(deadline, lambda over: _download(url, part, size, over)):
            seconds = SILENCE + size / SLOWEST
            raise _unreachable(url, f"no {size:,} bytes in {seconds:.0f} seconds")
    except urllib.error.HTTPError as error:
        if error.code < 500:
            raise _unreachable(url, f"the server says {error.code} {error.reason}") from error
        return str(error.reason) or str(error.code)
    except FAULTS_OF_CONNECTIONS as error:
        return str(getattr(error, "reason", None) or error)
    except ValueError as error:
        raise _unreachable(url, str(error)) from error
    except OSError as error:
        raise ConsilienceError(
            f"cannot be written: {error.strerror}",
            where=str(part),
            todo="Make room or choose another --data-dir; existing files are kept.",
        ) from error
    return ""


def _refuse_secrets(base: str) -> None:
    """Refuse a URL with a user name and password, and one that may hide them; show neither."""
    try:
        parts = urllib.parse.urlsplit(base)
        known = parts.port is None or parts.port >= 0
    except ValueError:
        known = False
    if not known or "@" in parts.netloc:
        raise ConsilienceError(
            "a user name, a password or a port that is no number in the URL of --from",
            expected="https://HOST/PATH",
            todo="Leave the user out. If the source needs one, get the files with another program.",
        )


def _within(deadline: float, work: Callable[[threading.Event], None]) -> bool:
    """Whether ``work`` ends before the deadline, at which the event that it is given is set.

    It runs in a thread: with a server that sends a byte a second a socket never times out, not even
    while it reads headers.
    """
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work(over)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(max(0.0, deadline - time.monotonic()))
    finally:
        over.set()
    if failed:
        raise failed[0]
    return not thread.is_alive()


def _download(url: str, part: Path, size: int, over: threading.Event) -> None:
    """Complete ``part``, and read one byte beyond ``size`` to see that nothing follows."""
    have = part.stat().st_size if part.exists() else 0
    if have >= size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "consilience"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=SILENCE) as response:
        if not have or response.status != 206:
            have = 0
        with part.open("ab" if have else "wb") as file:
            while have <= size and (chunk := response.read1(min(CHUNK, size + 1 - have))):
                if over.is_set():
                    return
                have += file.write(chunk)


def _unreachable(url: str, reason: str) -> ConsilienceError:
    return ConsilienceError(
        f"cannot be fetched: {reason}",
        where=url,
        todo="Check the network and rerun the command, or name a copy of the release: --from URL, "
        "also file:///FOLDER. Existing files are kept.",
    )
