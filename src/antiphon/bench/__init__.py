"""Load on any server with an OpenAI API, and what came of it. Speaks HTTP only."""

from .answer import Answer, Choice, ScoredToken
from .client import Client, wait_until_ready
from .gauges import read_gauges, read_samples
from .open_loop import Arrival, run_open_loop

__all__ = [
    "Answer",
    "Arrival",
    "Choice",
    "Client",
    "ScoredToken",
    "read_gauges",
    "read_samples",
    "run_open_loop",
    "wait_until_ready",
]
