"""What users send, and when: the same for benchmarks and for the simulator."""

from antiphon.core.number_text import plural

from .arrivals import Arrivals, Constant, GammaBursts, OnOff, OwnTimes, Poisson, Sine, poisson
from .arrivals_text import ARRIVALS, AnyArrivals, ArrivalKind, parse_arrivals
from .asks import Api, Ask, AskMix, ask
from .lengths import (
    Lengths,
    ListedLength,
    LognormalLength,
    NormalLength,
    UniformLength,
    fixed_length,
    lognormal_by_p99,
    parse_lengths,
)
from .named import (
    WORKLOADS,
    Agents,
    Completion,
    JsonLines,
    Mix,
    MultiTurn,
    Rag,
    SingleCalls,
    Trace,
    WorkloadKind,
    parse_workload,
)
from .number_text import duration_text, number_text, parse_duration, time_of
from .options import OptionLine
from .sessions import AnswerOf, Message, Part, Session, TimedSession, Turn, Workload
from .timed import TimedWorkload, calls_per_session, has_own_times, timed
from .trace_prompts import TraceAsk, TraceScale, at_rate, thinned, trace_asks
from .traces import TRACE_BLOCK_TOKENS, TraceRow, read_azure, read_mooncake, read_trace

__all__ = [
    "ARRIVALS",
    "TRACE_BLOCK_TOKENS",
    "WORKLOADS",
    "Agents",
    "AnswerOf",
    "AnyArrivals",
    "Api",
    "ArrivalKind",
    "Arrivals",
    "Ask",
    "AskMix",
    "Completion",
    "Constant",
    "GammaBursts",
    "JsonLines",
    "Lengths",
    "ListedLength",
    "LognormalLength",
    "Message",
    "Mix",
    "MultiTurn",
    "NormalLength",
    "OnOff",
    "OptionLine",
    "OwnTimes",
    "Part",
    "Poisson",
    "Rag",
    "Session",
    "Sine",
    "SingleCalls",
    "TimedSession",
    "TimedWorkload",
    "Trace",
    "TraceAsk",
    "TraceRow",
    "TraceScale",
    "Turn",
    "UniformLength",
    "Workload",
    "WorkloadKind",
    "ask",
    "at_rate",
    "calls_per_session",
    "duration_text",
    "fixed_length",
    "has_own_times",
    "lognormal_by_p99",
    "number_text",
    "parse_arrivals",
    "parse_duration",
    "parse_lengths",
    "parse_workload",
    "plural",
    "poisson",
    "read_azure",
    "read_mooncake",
    "read_trace",
    "thinned",
    "time_of",
    "timed",
    "trace_asks",
]
