"""Fetching a suite from where its authors keep it: pinned, checked, resumed.

``NAME.sha256`` beside this file lists what belongs to a suite: digest, size and path of each file.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consilience.errors import ConsilienceError, did_you_mean

SOURCES: dict[str, str] = {
    "pararel": "https://raw.githubusercontent.com/yanaiela/pararel/"
    "cb5554678457beb5ac163d888f1ce8cf174b3f0b/data",
}
"""Where the files of each suite lie, at a pinned revision."""

ATTEMPTS = 4
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Listed:
    """A file that belongs to a suite."""

    path: str
    size: int
    sha256: str


def listing(name: str) -> list[Listed]:
    """The files of a suite that can be fetched."""
    if name not in SOURCES:
        raise ConsilienceError(
            f"nothing to fetch for '{name}'", todo=did_you_mean(name, list(SOURCES))
        )
    lines = (Path(__file__).parent / f"{name}.sha256").read_text(encoding="utf-8").splitlines()
    rows = (line.split(maxsplit=2) for line in lines if not line.startswith("#"))
    return [Listed(path, int(size), sha256) for sha256, size, path in rows]


def fetch(
    name: str,
    data: Path,
    *,
    base: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Path, int]:
    """Bring a suite to ``data/name``; the folder, and how many files had to be fetched.

    A file that is there and right is kept, one that is half there is gone on with. A file with
    another digest than the listed one is never put in place.
    """
    folder = data / name
    files = listing(name)
    fetched = 0
    for done, file in enumerate(files):
        progress(done, len(files))
        target = folder / file.path
        if not is_right(target, file):
            _fetch_file(f"{base or SOURCES[name]}/{file.path}", target, file)
            fetched += 1
    progress(len(files), len(files))
    return folder, fetched


def altered(name: str, folder: Path) -> list[str]:
    """The listed files that are missing in ``folder`` or are not what was released."""
    return [file.path for file in listing(name) if not is_right(folder / file.path, file)]


def is_right(path: Path, file: Listed) -> bool:
    """Whether the file is there with the listed size and digest."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256


def _fetch_file(url: str, target: Path, file: Listed) -> None:
    part = target.with_name(target.name + ".part")
    for attempt in range(ATTEMPTS):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _download(url, part, file.size)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise _unreachable(url, f"the server says {error.code} {error.reason}") from error
            reason: Exception = error
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            reason = error
        except ValueError as error:
            raise _unreachable(url, str(error)) from error
        except OSError as error:
            raise ConsilienceError(
                f"cannot be written: {error.strerror}",
                where=str(part),
                todo="Make room or choose another --data-dir; what is there already is kept.",
            ) from error
        else:
            if is_right(part, file):
                part.replace(target)
                return
            if part.stat().st_size >= file.size:
                part.unlink()
                raise ConsilienceError(
                    "not the released file: its digest differs",
                    expected=f"SHA-256 {file.sha256}",
                    where=url,
                    todo="Try again; if it stays so, the source has been changed.",
                )
            reason = ConnectionError("the connection ended early")
        if attempt == ATTEMPTS - 1:
            why = getattr(reason, "reason", None) or reason
            raise _unreachable(url, str(why)) from reason


def _download(url: str, part: Path, size: int) -> None:
    """Append to ``part`` what it lacks."""
    have = part.stat().st_size if part.exists() else 0
    if have >= size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "consilience"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=60) as response:
        mode = "ab" if have and response.status == 206 else "wb"
        with part.open(mode) as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)


def _unreachable(url: str, reason: str) -> ConsilienceError:
    return ConsilienceError(
        f"cannot be fetched: {reason}",
        where=url,
        todo="Check the network and give the command again; what is there already is kept.",
    )
