"""A run that breaks a law, made as small as it can be and still break the same law.

chances ─► faults ─ddmin─► calls ─ddmin─► workers ─ddmin─► simpler values
              └───────────────── until nothing changes ◄───────────────────┘
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from antiphon.errors import BugError

from ..cluster_setup import ClusterSetup, WorkerSpec
from ..network import Hostility
from .cluster_run import STANDARD, Broken, Parts, broken_by, misfortunes_of
from .ddmin import minimal
from .drawn_cluster import Family
from .simplify import simpler

MOST_RUNS = 1000
"""Enough for a few seconds; what is left then is small already."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left, and the law that it breaks. `is_minimal` False: the runs were used up first."""

    family: Family
    setup: ClusterSetup
    broken: Broken
    runs: int
    is_minimal: bool

    @property
    def size(self) -> str:
        """For people."""
        parts = (
            (len(self.setup.faults.faults), "fault"),
            (len(self.setup.stimuli), "stimulus" if len(self.setup.stimuli) == 1 else "stimuli"),
            (len(self.setup.workers), "worker"),
        )
        return ", ".join(
            f"{count} {name}{'' if count == 1 or name == 'stimuli' else 's'}"
            for count, name in parts
        )


def shrink(
    setup: ClusterSetup,
    family: Family,
    parts: Parts = STANDARD,
    *,
    most_runs: int = MOST_RUNS,
    told: Callable[[str], None] = lambda _: None,
) -> Shrunk:
    """The smallest set-up that could be found within so many runs. Deterministic.

    `told` hears how far it is. Raises `BugError` if the set-up breaks no law.
    """
    broken = broken_by(setup, family, parts)
    if broken is None:
        raise BugError("a run that breaks no law is not to be shrunk")
    return _Shrinking(setup, family, parts, broken, most_runs, told).shrunk()


class _Shrinking:
    def __init__(
        self,
        setup: ClusterSetup,
        family: Family,
        parts: Parts,
        broken: Broken,
        most_runs: int,
        told: Callable[[str], None],
    ) -> None:
        self._setup, self._family, self._parts = setup, family, parts
        self._broken, self._most_runs, self._told = broken, most_runs, told
        self._runs = 1

    def shrunk(self) -> Shrunk:
        self._plan_misfortunes()
        before = None
        while before != self._setup:
            before = self._setup
            self._with_less()
            self._take_simpler()
        return Shrunk(
            self._family, self._setup, self._broken, self._runs, self._runs < self._most_runs
        )

    def _plan_misfortunes(self) -> None:
        """What happened by chance becomes faults, of which most can be left out."""
        setup = self._setup
        if setup.hostility != Hostility():
            faults = (*setup.faults.faults, *misfortunes_of(setup, self._parts))
            planned = replace(setup.faults, faults=faults)
            self._fails(replace(setup, hostility=Hostility(), faults=planned))

    def _with_less(self) -> None:
        """Each `minimal` ends with the smallest of what was tried, which `_fails` keeps."""
        faults = self._setup.faults
        minimal(
            faults.faults,
            lambda fewer: self._fails(replace(self._setup, faults=replace(faults, faults=fewer))),
        )
        minimal(self._setup.stimuli, lambda fewer: self._fails(replace(self._setup, stimuli=fewer)))
        minimal(self._setup.workers, self._fails_with)

    def _fails_with(self, workers: tuple[WorkerSpec, ...]) -> bool:
        """A cluster that lacks a role can't serve, and says nothing of one that has it."""
        roles = {worker.role for worker in self._setup.workers}
        if {worker.role for worker in workers} != roles:
            return False
        return self._fails(replace(self._setup, workers=workers))

    def _take_simpler(self) -> None:
        while any(map(self._fails, simpler(self._setup))):
            pass

    def _fails(self, setup: ClusterSetup) -> bool:
        """Does it break the same law? Mutates: then it is what is shrunk from now on."""
        if self._runs >= self._most_runs:
            return False
        self._runs += 1
        broken = broken_by(setup, self._family, self._parts)
        if broken is None or broken.law != self._broken.law:
            return False
        self._setup, self._broken = setup, broken
        self._told(
            f"{broken.law}: {len(setup.faults.faults)} faults, {len(setup.stimuli)} stimuli, "
            f"{len(setup.workers)} workers after {self._runs} runs"
        )
        return True
