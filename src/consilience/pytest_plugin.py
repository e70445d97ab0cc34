"""The pytest plugin: the fixture ``consilience`` and the marker ``slow_model``.

It is loaded with every pytest of an environment that has consilience, so it imports nothing until
a test asks for the fixture.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from consilience.testing import Runs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--consilience-runs``."""
    parser.getgroup("consilience").addoption(
        "--consilience-runs",
        metavar="FOLDER",
        help="Keep the answers of models in this folder, and use those of earlier sessions "
        "[default: a temporary folder]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``slow_model``."""
    config.addinivalue_line(
        "markers", 'slow_model: asks a slow model; leave such tests out with -m "not slow_model"'
    )


@pytest.fixture(scope="session")
def consilience(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of models: ``assert_consistent(model, suite)`` and ``result(model, suite)``.

    Each model is asked a suite once in a session, by one process of pytest-xdist.
    """
    from consilience.testing import Runs

    folder = request.config.getoption("--consilience-runs")
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if folder is None:
        base = tmp_path_factory.getbasetemp()
        folder = (base if session is None else base.parent) / "consilience"
    return Runs(Path(folder), session or uuid.uuid4().hex)
