"""Runs of load, whoever answers it: a server (`bench/`) or a fleet in virtual time (`sim/`).

texts ─► plan_load ─► LoadPlan ─► sessions ─► … ─► records ─► Measured ─► report/
                         └─► SearchRuns: the same at many rates
"""

from .load_plan import LoadPlan
from .load_tally import LoadTally, meets
from .measured import Measured
from .planning import plan_load
from .search_runs import PlannedRun, SearchRuns
from .slo_text import PRESETS, default_slos, slos_of, with_defaults

__all__ = [
    "PRESETS",
    "LoadPlan",
    "LoadTally",
    "Measured",
    "PlannedRun",
    "SearchRuns",
    "default_slos",
    "meets",
    "plan_load",
    "slos_of",
    "with_defaults",
]
