"""Where workers beyond the first ones may run: parts of the cores, and memory for their KV."""

from collections.abc import Sequence
from dataclasses import dataclass

from .config import format_size

Cores = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoPlace:
    """There is none."""

    why: str


class WorkerPlaces:
    """The parts of the cores that no worker has; each takes `each_bytes` once it is ready."""

    def __init__(self, spare: Sequence[Cores], *, each_bytes: int) -> None:
        self._spare = list(spare)
        self._each_bytes = each_bytes

    def take(self, starting: int, available: int) -> Cores | NoPlace:
        """The cores of one more worker, where so many bytes are `available` now, and `starting`
        others have not taken their memory yet.

        Mutates: nobody else gets these cores.
        """
        if not self._spare:
            return NoPlace("all cores are taken (planner.budget, engine.cores)")
        wanted = (starting + 1) * self._each_bytes
        if wanted > available:
            others = f" beside {starting} that start" if starting else ""
            return NoPlace(
                f"kv.memory_bytes = {format_size(self._each_bytes)} is more than is free{others}: "
                f"{available / 2**30:.1f}GiB"
            )
        return self._spare.pop(0)

    def give_back(self, cores: Cores) -> None:
        """A worker's process is gone. Mutates."""
        self._spare.append(cores)
        self._spare.sort()
