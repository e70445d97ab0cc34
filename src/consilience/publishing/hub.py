"""Uploads to the Hugging Face Hub: what would be sent, and sending it. Nothing else uploads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from consilience.errors import ConsilienceError
from consilience.publishing.public_run import PublicFile
from consilience.read import read_text
from consilience.report.table import Column, Table, Value
from consilience.text import counted

RepositoryType = Literal["model", "dataset"]

PREFIX = {"model": "", "dataset": "datasets/"}

LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write to it."


@dataclass(frozen=True, slots=True)
class Push:
    """What would be sent to a repository."""

    repository: str
    """``ORGANISATION/NAME``."""
    type: RepositoryType
    """The type of the repository."""
    visibility: str
    """Who sees it: ``public``, ``private``, ``new, private`` or ``new, public``."""
    as_pull_request: bool
    """Whether a pull request is opened instead of a commit to ``main``."""
    files: Sequence[PublicFile]
    """The files."""
    replaced: frozenset[str]
    """The names of files that are in the repository already."""

    @property
    def is_new(self) -> bool:
        """Whether the repository has to be created."""
        return self.visibility.startswith("new")

    @property
    def url(self) -> str:
        """The address of the repository."""
        return f"{endpoint()}/{PREFIX[self.type]}{self.repository}"

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(len(file.content) for file in self.files)

    def table(self) -> Table:
        """A row for each file, and below them where they go."""
        rows: list[list[Value]] = [
            [file.name, len(file.content), "replaced" if file.name in self.replaced else "new"]
            for file in self.files
        ]
        way = "as a pull request" if self.as_pull_request else "as a commit to main"
        notes = [f"To: {self.url} ({self.type}, {self.visibility}), {way}"]
        title = f"To be sent: {counted(len(self.files), 'file')}, {self.size:,} bytes"
        columns = [Column("file"), Column("bytes", "count"), Column("in the repository")]
        return Table(title, columns, rows, notes, sortable=False)


def endpoint() -> str:
    """The address of the Hub: ``HF_ENDPOINT``, else huggingface.co."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def plan_push(
    repository: str,
    type_: RepositoryType,
    files: Sequence[PublicFile],
    *,
    as_pull_request: bool,
    is_public: bool,
) -> Push:
    """What sending files would do. The repository is only read.

    A data set that does not exist is created by ``send``; a model that does not exist raises.
    """
    if get_token() is None:
        raise ConsilienceError("no token of the Hub", where=endpoint(), todo=LOG_IN)
    api = HfApi(endpoint=endpoint())
    with _errors_of(repository):
        try:
            info = api.repo_info(repository, repo_type=type_)
        except RepositoryNotFoundError as error:
            if type_ == "model" or as_pull_request:
                raise ConsilienceError(
                    f"no {type_} repository '{repository}' that you may read",
                    where=endpoint(),
                    todo=f"Check the name; if it is private: {LOG_IN}",
                ) from error
            visibility, names = f"new, {'public' if is_public else 'private'}", []
        else:
            visibility = "private" if info.private else "public"
            names = [sibling.rfilename for sibling in getattr(info, "siblings", None) or []]
    replaced = frozenset(names) & {file.name for file in files}
    return Push(repository, type_, visibility, as_pull_request, files, replaced)


def existing_text(repository: str, type_: RepositoryType, name: str) -> str:
    """The text of a file in a repository; empty where there is none."""
    api = HfApi(endpoint=endpoint())
    with _errors_of(repository):
        try:
            path = api.hf_hub_download(repository, name, repo_type=type_)
        except (EntryNotFoundError, RepositoryNotFoundError):
            return ""
        return read_text(Path(path))


def send(push: Push, message: str) -> str:
    """Send the files in one commit; the address of the commit or of the pull request."""
    api = HfApi(endpoint=endpoint())
    with _errors_of(push.repository):
        if push.is_new:
            private = push.visibility == "new, private"
            api.create_repo(push.repository, repo_type=push.type, private=private)
        sent = api.create_commit(
            push.repository,
            [CommitOperationAdd(file.name, file.content) for file in push.files],
            commit_message=message,
            repo_type=push.type,
            create_pr=push.as_pull_request,
        )
    return sent.pr_url or sent.commit_url


@contextmanager
def _errors_of(repository: str) -> Iterator[None]:
    """Turn what the Hub and the network raise into one message."""
    where = f"{endpoint()}, {repository}"
    try:
        yield
    except ConsilienceError:
        raise
    except HFValidationError as error:
        raise ConsilienceError(
            f"'{repository}' cannot name a repository", expected="ORGANISATION/NAME"
        ) from error
    except ValueError as error:  # the Hub's check of the metadata of a card
        raise ConsilienceError(
            " ".join(str(error).split()).rstrip("."),
            where=where,
            todo="Correct the card that is there, or choose another licence.",
        ) from error
    except OfflineModeIsEnabled as error:
        raise ConsilienceError(
            "HF_HUB_OFFLINE is set, so nothing can be sent", where=where, todo="Unset it."
        ) from error
    except HfHubHTTPError as error:
        raise _refusal(error, where) from error
    except Exception as error:
        if not type(error).__module__.startswith("httpx"):
            raise
        raise ConsilienceError(
            f"the Hub cannot be reached: {str(error).rstrip('.') or type(error).__name__}",
            where=where,
            todo="The files are written. Check the network and HF_ENDPOINT, and run it again.",
        ) from error


def _refusal(error: HfHubHTTPError, where: str) -> ConsilienceError:
    """The message of a status: 401 no token, 403 no right, others as the server says."""
    status = error.response.status_code
    reason = f": {error.server_message}" if error.server_message else ""
    todo = {
        401: LOG_IN,
        403: "Use a token with the right to write to it, or add --create-pr to propose the files.",
        404: f"Check the name; if it is private: {LOG_IN}",
        429: "Wait some minutes and give the command again.",
    }.get(status, "Give the command again later." if status >= 500 else "Correct it and try again.")
    return ConsilienceError(f"the Hub says {status}{reason}", where=where, todo=todo)
