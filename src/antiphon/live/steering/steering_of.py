"""The steering that a configuration asks for."""

from collections.abc import Callable

from antiphon.core.planner import (
    PLANNER,
    PLANNER_METHODS,
    MoveBook,
    Watch,
    planner_of,
    rules_of,
)
from antiphon.core.recorded_run import Times
from antiphon.core.recorder import Entry, recorded
from antiphon.live.admin.operations import Operations
from antiphon.live.gateway.planner_metrics import PlannerCounts
from antiphon.live.supervisor.messages import FromChild
from antiphon.types import Config, ModelInfo, Seconds

from .crew import Crew
from .hand import Hand
from .steering import Steering


def steering_of(
    config: Config,
    model: ModelInfo,
    times: Times,
    operations: Operations,
    *,
    tell: Callable[[FromChild], None],
    clock: Callable[[], Seconds],
    log_decision: Callable[[Entry], None] | None,
) -> Steering | None:
    """The planner of `config`, with a hand if it is to act; None if there is to be none.

    `tell` reaches the supervisor. The status that `operations` gives shows it from now on.
    """
    if config.planner.mode == "off":
        return None
    planner = planner_of(config, times.phases, model.kv_bytes_per_token)
    if log_decision is not None:
        planner = recorded(PLANNER, planner, PLANNER_METHODS, log_decision)
    rules = rules_of(config)
    counts, book = PlannerCounts(rules.budget), MoveBook(rules.budget)
    crew = Crew(operations.members, operations.processes, operations.held, book)
    hand = None
    if config.planner.mode == "act":
        hand = Hand(operations, book, tell, counts, drain_s=config.planner.drain_s)
    steering = Steering(
        planner,
        Watch(rules.roles, at=clock()),
        crew,
        hand,
        counts,
        config=config,
        clock=clock,
    )
    operations.watch_planner(steering.status)
    return steering
