"""What users send, and when: the same for benchmarks and for the simulator."""

from .arrivals import poisson
from .asks import Ask, AskMix, ask
from .trace_prompts import TraceAsk, TraceScale, at_rate, at_speed, trace_asks

__all__ = [
    "Ask",
    "AskMix",
    "TraceAsk",
    "TraceScale",
    "ask",
    "at_rate",
    "at_speed",
    "poisson",
    "trace_asks",
]
