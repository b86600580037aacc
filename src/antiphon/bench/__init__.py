"""Load on any server with an OpenAI API, and what came of it. Speaks HTTP only."""

from .answer import Answer, Choice, ScoredToken
from .client import Client, wait_until_ready
from .gauges import read_gauges
from .goodput_search import find_goodput
from .load import LoadResult, run_load
from .measure import Measure
from .open_loop import Arrival, run_open_loop
from .probe import Probed, probe
from .server import LoadLimits, Server
from .slo_scale import find_slo_scale

__all__ = [
    "Answer",
    "Arrival",
    "Choice",
    "Client",
    "LoadLimits",
    "LoadResult",
    "Measure",
    "Probed",
    "ScoredToken",
    "Server",
    "find_goodput",
    "find_slo_scale",
    "probe",
    "read_gauges",
    "run_load",
    "run_open_loop",
    "wait_until_ready",
]
