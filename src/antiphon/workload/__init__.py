"""What users send, and when: the same for benchmarks and for the simulator."""

from .arrivals import poisson
from .asks import Api, Ask, AskMix, ask
from .sessions import AnswerOf, Message, Part, Session, TimedSession, Turn, Workload
from .trace_prompts import TraceAsk, TraceScale, at_rate, at_speed, thinned, trace_asks
from .traces import TRACE_BLOCK_TOKENS, TraceRow, read_azure, read_mooncake

__all__ = [
    "TRACE_BLOCK_TOKENS",
    "AnswerOf",
    "Api",
    "Ask",
    "AskMix",
    "Message",
    "Part",
    "Session",
    "TimedSession",
    "TraceAsk",
    "TraceRow",
    "TraceScale",
    "Turn",
    "Workload",
    "ask",
    "at_rate",
    "at_speed",
    "poisson",
    "read_azure",
    "read_mooncake",
    "thinned",
    "trace_asks",
]
