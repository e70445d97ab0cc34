"""The options of ``publish``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.core.errors import PublishFormat
from consilience.workflow.options import OUTPUT, DataDir, Option


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Write the results of a run in a format in which others read them, and upload them if asked.

    Nothing is sent without --push. No folder, host name or key of this machine is published, and no
    text of a suite without a licence that allows it. docs/publishing.md has examples.
    """

    run: Annotated[
        Path,
        Option(
            "The folder of a run, of several seeds, or of a study.", metavar="RUN", is_argument=True
        ),
    ]
    format_: Annotated[
        PublishFormat,
        Option(
            "Write records of Every Eval Ever (eee), the README.md of a model (model-card), files "
            "of the Hub's leaderboards (eval-results), or a data set of the answers (dataset).",
            flag="--format",
            panel=OUTPUT,
        ),
    ]
    folder: Annotated[
        Path | None,
        Option(
            "Write the files to this folder [default: published/FORMAT in that of the run].",
            metavar="DIR",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    model_id: Annotated[
        str | None,
        Option(
            "Publish the results under this id of the model [default: its id on the Hub].",
            metavar="ORG/NAME",
            panel=OUTPUT,
        ),
    ] = None
    licence: Annotated[
        str | None,
        Option(
            "The licence of the suite, as an SPDX id [default: the one that the suite states].",
            panel=OUTPUT,
        ),
    ] = None
    organization: Annotated[
        str, Option("Who publishes: an organization, for eee.", metavar="NAME", panel=OUTPUT)
    ] = ""
    benchmark: Annotated[
        str | None,
        Option(
            "The data set on the Hub whose leaderboard takes the results, for eval-results.",
            metavar="ORG/NAME",
            panel=OUTPUT,
        ),
    ] = None
    data_dir: DataDir = None
    push: Annotated[
        str | None,
        Option(
            "Upload the files to this repository, after showing them and asking.",
            metavar="ORG/NAME",
            panel=OUTPUT,
        ),
    ] = None
    create_pr: Annotated[
        bool, Option("Propose the files as a pull request instead of a commit.", panel=OUTPUT)
    ] = False
    public: Annotated[
        bool, Option("Make a new repository public [default: private].", panel=OUTPUT)
    ] = False
    yes: Annotated[bool, Option("Upload without asking.", panel=OUTPUT, needs_trust=bool)] = False
