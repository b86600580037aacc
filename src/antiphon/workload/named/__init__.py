"""The workloads that can be asked for by name."""

from .agents import Agents
from .completion import Completion
from .jsonl import JsonLines
from .mix import Mix
from .multi_turn import MultiTurn
from .rag import Rag
from .registry import WORKLOADS, WorkloadKind, parse_workload
from .single_calls import SingleCalls
from .trace import Trace

__all__ = [
    "WORKLOADS",
    "Agents",
    "Completion",
    "JsonLines",
    "Mix",
    "MultiTurn",
    "Rag",
    "SingleCalls",
    "Trace",
    "WorkloadKind",
    "parse_workload",
]
