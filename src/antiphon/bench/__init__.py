"""Load on any server with an OpenAI API, and what came of it. Speaks HTTP only."""

from .answer import Answer, Choice, ScoredToken
from .client import Client, wait_until_ready
from .gauges import read_gauges
from .load import LoadResult, run_load
from .open_loop import Arrival, run_open_loop
from .probe import Probed, probe
from .server import LoadLimits, Server

__all__ = [
    "Answer",
    "Arrival",
    "Choice",
    "Client",
    "LoadLimits",
    "LoadResult",
    "Probed",
    "ScoredToken",
    "Server",
    "probe",
    "read_gauges",
    "run_load",
    "run_open_loop",
    "wait_until_ready",
]
