"""The cluster that a drill is put on, as the drill sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.live.admin.status import ClusterStatus
from antiphon.types import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a request that had several. Times on the machine's monotonic clock.

    `workers_before`: those of the attempt before it.
    """

    request: str
    number: int
    workers_before: tuple[str, ...]
    began_at: Seconds
    first_token_at: Seconds | None


class Target(Protocol):
    """A running cluster on this machine."""

    url: str
    model: str
    supervisor_pid: int

    async def status(self) -> ClusterStatus:
        """Gateway and workers, now. Raises `PeerError` if the gateway does not answer."""
        ...

    async def gauges(self) -> Mapping[str, float]:
        """The gauges of /metrics, each by its name and labels as they stand there.

        Raises `PeerError` if the gateway does not give them.
        """
        ...

    def attempts(self) -> Sequence[Attempt] | None:
        """The attempts after the first of all requests so far; None: no record is kept."""
        ...
