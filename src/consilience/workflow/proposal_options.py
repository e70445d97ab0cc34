"""The options of the commands that take patterns into a suite, or propose them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from consilience.core.errors import Connection, ConsilienceError, Loading
from consilience.workflow.options import (
    MODEL,
    OUTPUT,
    QUESTIONS,
    ApiKeyEnv,
    BaseUrl,
    DataDir,
    Device,
    Dtype,
    Groups,
    MaxRequests,
    Option,
    Revision,
    SuiteArgument,
    TrustRemoteCode,
)

ImportFormat = Literal["proposals", "suite", "lama", "mpararel", "lpaqa", "table", "list"]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Import patterns and facts into a suite folder.

    Formats: proposals (of `suite mine` and `suite rewrite`), suite folders, LAMA, LPAQA, mParaRel
    and mLAMA, spreadsheets (CSV, TSV, XLSX, Parquet), and lists with a pattern a line. Duplicates
    are left out: patterns that differ in case, spaces or final punctuation only. Near-duplicates
    are listed: patterns that differ in determiners only, or in one token of three or more. Each
    pattern gets a row in the table `provenance`.
    """

    path: Annotated[Path, Option("Import this file or folder.", metavar="SOURCE", is_argument=True)]
    folder: Annotated[
        Path,
        Option(
            "Add to this suite folder, which may be new.",
            metavar="DIR",
            flag="--into",
            panel=OUTPUT,
        ),
    ]
    format_: Annotated[
        ImportFormat | None,
        Option("Read the source in this format [default: detected].", flag="--format"),
    ] = None
    relation: Annotated[
        str,
        Option("Import the patterns for this relation, where the source names none."),
    ] = ""
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "Read the table's columns under these names, such as pattern=Text,relation=Property.",
            metavar="OURS=YOURS",
        ),
    ] = None
    languages: Annotated[
        Sequence[str],
        Option(
            "Import these languages of mParaRel, such as en,de; or name the language of the "
            "patterns of another source, and of the facts of a new folder [default: all; that of "
            "the suite, or en].",
            metavar="L,L",
            flag="--language",
        ),
    ] = ()
    facts_from: Annotated[
        str | None,
        Option("Take the facts from this suite or table of facts.", metavar="S"),
    ] = None
    near: Annotated[
        Literal["keep", "drop"], Option("Keep or drop near-duplicates.", flag="--near-duplicates")
    ] = "keep"
    source: Annotated[
        str,
        Option(
            "Name this source in the provenance [default: the name of the file].",
            metavar="TEXT",
        ),
    ] = ""
    licence: Annotated[
        str,
        Option("The licence of patterns whose source states none: an SPDX id, or words."),
    ] = ""
    dry_run: Annotated[
        bool, Option("Show what would be imported; write nothing.", panel=OUTPUT)
    ] = False
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Propose paraphrases of base patterns with a language model.

    The model writes new sentences for the base pattern of each relation, with [X] and [Y] in them.
    Texts are refused that lack a slot, equal a pattern of the relation, are too long or too short,
    or are in another language. A judge scores whether each rewrite means the same as its base
    pattern. The score is first measured on the patterns of the suite. Edit the file of proposals,
    then take it in with `suite import`.
    """

    suite: SuiteArgument
    model: Annotated[
        str,
        Option("The model that writes.", metavar="M", short="-m", panel=MODEL),
    ]
    file: Annotated[
        Path,
        Option(
            "Write the proposals to this new file.",
            metavar="FILE",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ]
    judge: Annotated[
        str | None,
        Option(
            "The causal model that compares meanings [default: the model that writes].",
            metavar="M",
            panel=MODEL,
        ),
    ] = None
    groups: Groups = None
    samples: Annotated[
        int, Option("Sample this many texts for each base pattern.", min=1, panel=QUESTIONS)
    ] = 8
    temperature: Annotated[
        float,
        Option(
            "Sample tokens at this temperature; 0 writes the most probable token.",
            min=0,
            panel=QUESTIONS,
        ),
    ] = 0.7
    seed: Annotated[int, Option("Seed of the samples.", min=0, panel=QUESTIONS)] = 0
    fillings: Annotated[
        int, Option("Fill the patterns with this many facts to score them.", min=1, panel=QUESTIONS)
    ] = 3
    min_meaning: Annotated[
        float | None,
        Option(
            "Refuse rewrites with a lower meaning score, in nats [default: as measured on the "
            "suite; none where the measurement shows no separation].",
            panel=QUESTIONS,
        ),
    ] = None
    max_new_tokens: Annotated[
        int, Option("Let the model write at most this many tokens.", min=1, panel=QUESTIONS)
    ] = 48
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    trust_remote_code: TrustRemoteCode = False
    data_dir: DataDir = None
    base_url: BaseUrl = None
    api_key_env: ApiKeyEnv = None
    max_requests: MaxRequests = None

    @property
    def loading(self) -> Loading:
        """How the model that writes is loaded."""
        return Loading(self.device, self.dtype, self.revision, self.trust_remote_code)

    @property
    def connection(self) -> Connection | None:
        """How a model that writes behind a URL is reached; None for a model that runs here."""
        is_behind = self.model.startswith("openai:")
        if is_behind and self.base_url is None:
            raise ConsilienceError(
                f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1"
            )
        if self.base_url is None or not is_behind:
            if self.base_url or self.api_key_env or self.max_requests:
                raise ConsilienceError(
                    f"an option of models behind a URL with --model {self.model}",
                    expected="--model openai:NAME",
                    todo="Leave --base-url, --api-key-env and --max-requests out.",
                )
            return None
        return Connection(self.base_url, self.api_key_env, self.max_requests)
