"""The SLA planner: how many workers of each role there should be."""

from .capacity import Capacity, Shape
from .forecasters import (
    Autoregression,
    BestForecaster,
    Forecaster,
    Holt,
    LastValue,
    LocalTrend,
)
from .observation import Add, Decision, Flip, Move, Observation, PoolSeen, Take
from .planner import Planner, PlannerRules

__all__ = [
    "Add",
    "Autoregression",
    "BestForecaster",
    "Capacity",
    "Decision",
    "Flip",
    "Forecaster",
    "Holt",
    "LastValue",
    "LocalTrend",
    "Move",
    "Observation",
    "Planner",
    "PlannerRules",
    "PoolSeen",
    "Shape",
    "Take",
]
