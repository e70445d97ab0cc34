"""The names of suites; a name means that suite also where a folder has it."""

from __future__ import annotations

from pathlib import Path

from consilience.suites.mini_questions import NAMES as QUESTION_SUITES

MINI = Path(__file__).with_name("mini")

BUNDLED = {"mini": MINI, "mini-languages": MINI.with_name("mini_languages")}
"""The suites of facts in the package, and their folders."""

NAMES = {
    "mini": "bundled with consilience: 15 relations, Apache-2.0",
    "mini-languages": "7 relations of mini in English, German, Spanish and Japanese, Apache-2.0",
    **QUESTION_SUITES,
    "pararel": "ParaRel, Elazar et al. 2021; `consilience suite fetch pararel` gets it",
}
"""The suites of facts and of questions, and what they are."""
