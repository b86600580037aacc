"""The keys of `[planner]`: see `types.config`."""

from dataclasses import dataclass
from typing import Annotated

from .config_key import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    """How many workers there are to be as load changes. The targets are the router's."""

    mode: Annotated[
        str,
        Key(
            "off; advise: say how many workers there should be; act: start, end and flip them.",
            choices=("off", "advise", "act"),
        ),
    ] = "off"
    budget: Annotated[
        int | None,
        Key(
            "Most workers of all roles; with act each gets an equal part of the cores. Without it: "
            "as many as there are cores.",
            1,
            256,
        ),
    ] = None
    least: Annotated[int, Key("Workers of each role that stay.", 1, 256)] = 1
    interval_s: Annotated[float, Key("Time between decisions.", 0.05, 3600.0)] = 15.0
    ready_s: Annotated[
        float,
        Key(
            "From asking for a worker until it serves, until that was seen. The forecast looks as "
            "far.",
            0.0,
            86400.0,
        ),
    ] = 60.0
    headroom: Annotated[float, Key("Share planned above the forecast.", 0.0, 10.0)] = 0.05
    dead_band: Annotated[
        float, Key("So much more load must fit before a worker goes.", 0.0, 10.0)
    ] = 0.1
    cool_down_s: Annotated[
        float, Key("Fewer workers must have been enough for so long.", 0.0, 86400.0)
    ] = 30.0
    clear_s: Annotated[
        float, Key("A queue is to be gone so long after help can have come.", 0.05, 86400.0)
    ] = 30.0
    most_busy: Annotated[
        float, Key("Those who stay may compute for at most that share of time.", 0.01, 1.0)
    ] = 0.9
    memory_s: Annotated[
        float, Key("A size that was given up too early is kept for so long.", 0.0, 864000.0)
    ] = 3600.0
    drain_s: Annotated[
        float, Key("A worker that goes has so long to finish; the rest is moved.", 0.0, 86400.0)
    ] = 120.0
