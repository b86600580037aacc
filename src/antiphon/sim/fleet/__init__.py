"""Fleets of thousands of devices in virtual time, with step times from `perf/`."""

from .fleet import Fleet, FleetSpec, Pool
from .scenario import Scenario
from .scenario_fleet import fleet_spec, load_plan, planned_sessions
from .scenario_toml import parse_scenario, read_scenario
from .scheduled_faults import scheduled
from .simulate import Stopped, fleet_text, simulate, store_text
from .simulated_search import keep, simulated_search
from .steering import Steering
from .store_plan import Reach, StorePlan
from .token_sessions import TokenSession, TokenTurn, token_sessions
from .trace_sessions import TraceLoad, trace_sessions
from .users import UserRules, Users

__all__ = [
    "Fleet",
    "FleetSpec",
    "Pool",
    "Reach",
    "Scenario",
    "Steering",
    "Stopped",
    "StorePlan",
    "TokenSession",
    "TokenTurn",
    "TraceLoad",
    "UserRules",
    "Users",
    "fleet_spec",
    "fleet_text",
    "keep",
    "load_plan",
    "parse_scenario",
    "planned_sessions",
    "read_scenario",
    "scheduled",
    "simulate",
    "simulated_search",
    "store_text",
    "token_sessions",
    "trace_sessions",
]
