"""Load on any server with an OpenAI API, and what came of it. Speaks HTTP only."""

from .answer import Answer, Choice, ScoredToken
from .client import Client, wait_until_ready
from .gauges import read_gauges, read_samples
from .goodput_search import find_goodput
from .load import LoadResult, run_load
from .measure import Measure
from .order import Audience, Ending, Order, carry_out
from .probe import Probed, probe
from .sender import Sender, ended
from .server import LoadLimits, Server
from .slo_scale import find_slo_scale

__all__ = [
    "Answer",
    "Audience",
    "Choice",
    "Client",
    "Ending",
    "LoadLimits",
    "LoadResult",
    "Measure",
    "Order",
    "Probed",
    "ScoredToken",
    "Sender",
    "Server",
    "carry_out",
    "ended",
    "find_goodput",
    "find_slo_scale",
    "probe",
    "read_gauges",
    "read_samples",
    "run_load",
    "wait_until_ready",
]
