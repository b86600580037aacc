"""What users send, and when: the same for benchmarks and for the simulator."""

from .arrivals import poisson
from .asks import Ask, AskMix, ask
from .traces import TRACE_BLOCK_TOKENS, TraceRow, read_azure, read_mooncake

__all__ = [
    "TRACE_BLOCK_TOKENS",
    "Ask",
    "AskMix",
    "TraceRow",
    "ask",
    "poisson",
    "read_azure",
    "read_mooncake",
]
