"""The pytest plugin: the fixture ``consilience``.

It is loaded with every pytest of an environment that has consilience, so it imports nothing until
a test asks for the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from consilience.testing import Answers


@pytest.fixture(scope="session")
def consilience() -> Answers:
    """``assert_consistent(model, suite)``; each model is asked a suite once in a session."""
    from consilience.testing import Answers

    return Answers()
