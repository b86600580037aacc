"""The cluster that a drill is put on, as the drill sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from antiphon.live.admin.status import ClusterStatus
from antiphon.types import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a request that had several. Times on the machine's monotonic clock.

    `workers_before`: those of the attempt before it. `computed_tokens`: of the prompt and of what
    was delivered already, those that its worker computed again.
    """

    request: str
    number: int
    workers_before: tuple[str, ...]
    began_at: Seconds
    first_token_at: Seconds | None
    computed_tokens: int = 0


class Target(Protocol):
    """A running cluster on this machine."""

    url: str
    model: str
    supervisor_pid: int
    sockets: Path
    """The folder of the cluster's own sockets."""

    async def status(self) -> ClusterStatus:
        """Gateway and workers, now. Raises `PeerError` if the gateway does not answer."""
        ...

    async def gauges(self) -> Mapping[str, float]:
        """The gauges of /metrics, each by its name and labels as they stand there.

        Raises `PeerError` if the gateway does not give them.
        """
        ...

    async def samples(self) -> Mapping[str, float]:
        """All samples of /metrics, counters too, as `gauges`. Raises `PeerError`."""
        ...

    async def order(self, name: str, deed: str, timeout_s: Seconds, **more: str) -> None:
        """Have something done with a worker or the store, and wait until it is, as an operator
        does. Raises `UsageError` if it can't be as asked, `PeerError` if it failed.
        """
        ...

    def attempts(self) -> Sequence[Attempt] | None:
        """The attempts after the first of all requests so far; None: no record is kept."""
        ...
