"""What an operator may do with a gateway's workers while it serves."""

from collections.abc import Sequence

from antiphon.errors import PeerError
from antiphon.types import Incarnation, Member, Role, Seconds, WorkerId

from .gateway import Gateway


class FleetControl:
    """Draining and flipping workers: implements `live.admin.operations.Fleet`."""

    def __init__(self, gateway: Gateway, served_name: str) -> None:
        self._gateway = gateway
        self._fleet = gateway.fleet
        self._served_name = served_name

    @property
    def served_name(self) -> str:
        """The model's name in the API."""
        return self._served_name

    @property
    def state(self) -> str:
        """Whether the gateway takes requests, and somebody serves them."""
        return self._gateway.state.value

    @property
    def open_requests(self) -> int:
        """Requests that are not settled."""
        return self._gateway.open_requests

    @property
    def held(self) -> tuple[int, int]:
        """Requests that wait for a worker, and those with an offer for one that decodes."""
        return self._gateway.held

    def members(self) -> Sequence[Member]:
        """The workers that have joined."""
        return self._fleet.members()

    async def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        """Give it nothing new, and return when it has nothing left of this gateway's.

        What has not ended after `timeout_s` goes on elsewhere. Raises `PeerError` if the worker is
        not there, or is lost meanwhile.
        """
        link = self._fleet.link(worker)
        if link is None:
            raise PeerError(f"worker {worker} is not there")
        await self._gateway.empty(worker, timeout_s)
        if self._fleet.link(worker) is not link:
            raise PeerError(f"worker {worker} was lost")

    def resume(self, worker: WorkerId) -> None:
        """Give requests to a drained worker again."""
        self._fleet.drain(worker, False)

    def leaves(self, worker: WorkerId) -> None:
        """A drained worker is about to end, which is no loss."""
        self._fleet.leaves(worker)

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        """Give a drained worker another role. Raises `PeerError` if it is lost meanwhile."""
        await self._fleet.set_role(worker, role)

    async def joined(self, worker: WorkerId, former: Incarnation | None) -> None:
        """Wait for the worker, in a life other than `former`."""
        while (link := self._fleet.link(worker)) is None or link.info.incarnation == former:
            await self._fleet.changed()
