"""Where work runs: in worker processes on this machine, or on a Ray cluster.

Nothing here knows suites or models. ``run_units`` gives units of work to workers, which an
importable function makes, and yields what becomes of each.
"""

from consilience.engine.backlog import Backlog as Backlog
from consilience.engine.dispatch import run_units as run_units
from consilience.engine.units import Needs as Needs
from consilience.engine.units import Unit as Unit
from consilience.engine.units import UnitFailure as UnitFailure
from consilience.engine.units import UnitOutcome as UnitOutcome
