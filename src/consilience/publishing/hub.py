"""Uploads to the Hugging Face Hub: what would be sent, and sending it. Nothing else uploads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

from consilience.errors import ConsilienceError
from consilience.publishing.public_run import Files
from consilience.read import read_text
from consilience.report.table import Column, Table, Value
from consilience.text import counted

RepositoryType = Literal["model", "dataset"]

LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write to it."


@dataclass(frozen=True, slots=True)
class Push:
    """What would be sent to a repository."""

    repository: str
    """``ORGANISATION/NAME``."""
    type: RepositoryType
    visibility: str
    """Who sees it: ``public``, ``private``, ``new, private`` or ``new, public``."""
    as_pull_request: bool
    """Whether a pull request is opened instead of a commit to ``main``."""
    files: Files
    replaced: frozenset[str]
    """The names of files that are in the repository already."""

    @property
    def is_new(self) -> bool:
        """Whether the repository has to be created."""
        return self.visibility.startswith("new")

    @property
    def url(self) -> str:
        """The address of the repository."""
        prefix = constants.REPO_TYPES_URL_PREFIXES.get(self.type, "")
        return f"{constants.ENDPOINT}/{prefix}{self.repository}"

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.files.values()))

    def table(self) -> Table:
        """A row for each file, and below them where they go."""
        rows: list[list[Value]] = [
            [name, len(content), "replaced" if name in self.replaced else "new"]
            for name, content in self.files.items()
        ]
        way = "as a pull request" if self.as_pull_request else "as a commit to main"
        notes = [f"To: {self.url} ({self.type}, {self.visibility}), {way}"]
        title = f"To be sent: {counted(len(self.files), 'file')}, {self.size:,} bytes"
        columns = [Column("file"), Column("bytes", "count"), Column("in the repository")]
        return Table(title, columns, rows, notes, sortable=False)


def plan_push(
    repository: str,
    type_: RepositoryType,
    files: Files,
    *,
    as_pull_request: bool,
    is_public: bool,
) -> Push:
    """What sending files would do. The repository is only read.

    A data set that does not exist is created by ``send``; a model that does not exist raises.
    """
    if constants.HF_HUB_OFFLINE:
        raise ConsilienceError(
            "HF_HUB_OFFLINE is set, so nothing can be sent",
            todo="The files are written. Unset it, and run it again.",
        )
    if get_token() is None:
        raise ConsilienceError("no token of the Hub", where=constants.ENDPOINT, todo=LOG_IN)
    visibility, names = f"new, {'public' if is_public else 'private'}", list[str]()
    with _errors_of(repository):
        try:
            info = HfApi().repo_info(repository, repo_type=type_)
        except RepositoryNotFoundError as error:
            if type_ == "model" or as_pull_request:
                raise ConsilienceError(
                    f"no {type_} repository '{repository}' that you may read",
                    where=constants.ENDPOINT,
                    todo=f"Check the name; if it is private: {LOG_IN}",
                ) from error
        else:
            visibility = "private" if info.private else "public"
            names = [file.rfilename for file in getattr(info, "siblings", None) or []]
    return Push(
        repository, type_, visibility, as_pull_request, files, frozenset(names) & files.keys()
    )


def existing_text(push: Push, name: str) -> str:
    """The text of a file in a repository; empty where there is none."""
    if name not in push.replaced:
        return ""
    with _errors_of(push.repository):
        return read_text(Path(HfApi().hf_hub_download(push.repository, name, repo_type=push.type)))


def send(push: Push, message: str) -> str:
    """Send the files in one commit; the address of the commit or of the pull request."""
    api = HfApi()
    with _errors_of(push.repository):
        if push.is_new:
            private = push.visibility == "new, private"
            api.create_repo(push.repository, repo_type=push.type, private=private)
        sent = api.create_commit(
            push.repository,
            [CommitOperationAdd(name, content) for name, content in push.files.items()],
            commit_message=message,
            repo_type=push.type,
            create_pr=push.as_pull_request,
        )
    return sent.pr_url or sent.commit_url


@contextmanager
def _errors_of(repository: str) -> Iterator[None]:
    """Turn what the Hub and the network raise into one message."""
    where = f"{constants.ENDPOINT}, {repository}"
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
    except HfHubHTTPError as error:
        raise _refusal(error, where) from error
    except Exception as error:
        is_of_network = type(error).__module__.startswith(("httpx", "hf_xet", "huggingface_hub"))
        if not is_of_network and not isinstance(error, RuntimeError):  # of a large file
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
