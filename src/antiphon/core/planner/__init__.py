"""The SLA planner: how many workers of each role there should be."""

from .best_forecaster import STANDARD_FORECASTERS, BestForecaster
from .capacity import Capacity, Shape
from .decision import Add, Decision, Flip, Move, Take
from .forecasters import Autoregression, FadingMean, Forecaster, Holt, LastValue, LocalTrend
from .observation import Observation, PoolSeen
from .planner import Planner
from .planner_of import PLANNER, PLANNER_METHODS, planner_of, rules_of
from .rules import PlannerRules
from .seasonal import Seasonal
from .steered_worker import SteeredWorker, to_leave
from .watch import Watch

__all__ = [
    "PLANNER",
    "PLANNER_METHODS",
    "STANDARD_FORECASTERS",
    "Add",
    "Autoregression",
    "BestForecaster",
    "Capacity",
    "Decision",
    "FadingMean",
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
    "Seasonal",
    "Shape",
    "SteeredWorker",
    "Take",
    "Watch",
    "planner_of",
    "rules_of",
    "to_leave",
]
