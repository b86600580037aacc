"""The SLA planner: how many workers of each role there should be."""

from .best_forecaster import STANDARD_FORECASTERS, BestForecaster
from .capacity import Capacity, Shape
from .decision import Add, Decision, Flip, Move, Take
from .forecasters import Autoregression, FadingMean, Forecaster, Holt, LastValue, LocalTrend
from .move_book import MoveBook, first_free_name
from .observation import Observation, PoolSeen
from .order import AddOrder, EndOrder, FlipOrder, Order
from .planner import Planner
from .planner_of import PLANNER, PLANNER_METHODS, planner_of, rules_of
from .present_worker import PresentWorker
from .rules import PlannerRules
from .seasonal import Seasonal
from .steered_worker import SteeredWorker, to_leave
from .watch import Watch

__all__ = [
    "PLANNER",
    "PLANNER_METHODS",
    "STANDARD_FORECASTERS",
    "Add",
    "AddOrder",
    "Autoregression",
    "BestForecaster",
    "Capacity",
    "Decision",
    "EndOrder",
    "FadingMean",
    "Flip",
    "FlipOrder",
    "Forecaster",
    "Holt",
    "LastValue",
    "LocalTrend",
    "Move",
    "MoveBook",
    "Observation",
    "Order",
    "Planner",
    "PlannerRules",
    "PoolSeen",
    "PresentWorker",
    "Seasonal",
    "Shape",
    "SteeredWorker",
    "Take",
    "Watch",
    "first_free_name",
    "planner_of",
    "rules_of",
    "to_leave",
]
