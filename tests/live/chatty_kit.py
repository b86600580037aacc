"""A worker that talks, and a gateway in short that asks again until it has heard everything."""

import asyncio
from collections import defaultdict

from link_kit import PuppetWorker, request, token

from antiphon.errors import PeerError
from antiphon.live.remote_worker import RemoteWorker
from antiphon.types import Admitted, Event, Rejected, Request, RequestId, TokenGenerated, WorkerInfo

REQUESTS = 6
TOKENS = 12


class Chatty(PuppetWorker):
    """Says the tokens of each request one by one, mixed with those of the others."""

    def __init__(self, info: WorkerInfo) -> None:
        super().__init__(info)
        self.talks: set[asyncio.Task[None]] = set()

    async def _take(self, request: Request) -> Admitted | Rejected:
        answer = await super()._take(request)
        if isinstance(answer, Admitted):
            self.talks.add(asyncio.create_task(self._talk(request)))
        return answer

    async def _talk(self, request: Request) -> None:
        for index in range(TOKENS):
            self.say(token(request, index))
            await asyncio.sleep(0)


class Client:
    """A gateway in short: each request again, in a new attempt, until all its tokens are there."""

    def __init__(self) -> None:
        self.got: dict[tuple[RequestId, int], list[int]] = defaultdict(list)
        self.attempts = {f"r{number}": 0 for number in range(REQUESTS)}

    def missing(self) -> list[str]:
        return [
            name
            for name, attempt in self.attempts.items()
            if len(self.got[RequestId(name), attempt]) < TOKENS
        ]

    async def use(self, link: RemoteWorker) -> None:
        """Ask for what is missing and read, until all is there or the link is over."""
        adds = []
        for name in self.missing():
            self.attempts[name] += 1
            adds.append(link.add(request(name, attempt=self.attempts[name])))
        asked = asyncio.gather(*adds, return_exceptions=True)
        try:
            async for batch in link.events():
                self.note(batch)
                if not self.missing():
                    break
        except PeerError:
            pass
        assert all(isinstance(one, Admitted | Rejected | PeerError) for one in await asked)

    def note(self, batch) -> None:
        event: Event
        for event in batch:
            assert isinstance(event, TokenGenerated)
            self.got[event.request, event.attempt].append(event.index)

    def check(self) -> None:
        """Nothing came twice, out of order, or with a gap."""
        for indices in self.got.values():
            assert indices == list(range(len(indices)))
