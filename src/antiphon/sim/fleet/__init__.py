"""Fleets of thousands of devices in virtual time, with step times from `perf/`."""

from .fleet import Fleet, FleetSpec, Pool
from .steering import Steering
from .token_sessions import TokenSession, TokenTurn, token_sessions
from .trace_sessions import TraceLoad, trace_sessions
from .users import UserRules, Users

__all__ = [
    "Fleet",
    "FleetSpec",
    "Pool",
    "Steering",
    "TokenSession",
    "TokenTurn",
    "TraceLoad",
    "UserRules",
    "Users",
    "token_sessions",
    "trace_sessions",
]
