"""A cluster of this user on this machine: one that runs already, or one started for the drill."""

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from antiphon.bench import read_gauges, read_samples, wait_until_ready
from antiphon.errors import PeerError, UsageError
from antiphon.live.admin.client import AdminClient, find_server, same_place
from antiphon.live.admin.status import ClusterStatus
from antiphon.live.local_servers import LocalServer, running_servers
from antiphon.live.supervisor.with_parent import tied_to_caller
from antiphon.types import AttemptRecord, Seconds

from .own_folder import own_folder
from .target import Attempt

_POLL_S = 0.05
_STOP_S = 30.0
_RECORDS = "requests.jsonl"
_LOG = "server.log"
_LOG_TAIL_CHARS = 2000
_USAGE = 2
_STORE_OPTION = re.compile(r" \(--store[^)]*\)")
"""Options of `antiphon serve` that a drill does not have: its settings come by --config."""


class LocalTarget:
    """Implements `Target` through the admin socket. `records`: the server's request records."""

    def __init__(
        self,
        place: LocalServer,
        client: AdminClient,
        *,
        records: Path | None = None,
        api_key: str | None = None,
    ) -> None:
        self.url = place.url
        self.model = ""
        self.supervisor_pid = place.pid
        self.sockets = Path(place.sockets)
        self._client = client
        self._turn = threading.Lock()
        self._records = records
        self._api_key = api_key

    async def ready(self, timeout_s: Seconds) -> None:
        """Wait until all workers have joined. Raises `PeerError` if that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await wait_until_ready(self.url, timeout_s=timeout_s)
                while True:
                    status = await self.status()
                    if all(worker.health == "joined" for worker in status.workers):
                        break
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise PeerError(f"the cluster is not ready after {timeout_s:g} s") from None
        self.model = status.model

    async def status(self) -> ClusterStatus:
        """See `Target`."""
        return msgspec.convert(await asyncio.to_thread(self._status), ClusterStatus)

    def _status(self) -> object:
        """The client has one connection. A thread ends its call though who waits was cancelled."""
        with self._turn:
            return self._client.get("/admin/status")

    async def gauges(self) -> Mapping[str, float]:
        """See `Target`."""
        return await read_gauges(self.url, self._api_key)

    async def samples(self) -> Mapping[str, float]:
        """See `Target`."""
        return await read_samples(self.url, self._api_key)

    async def order(self, name: str, deed: str, timeout_s: Seconds, **more: str) -> None:
        """See `Target`. On a connection of its own: orders take long."""
        client = find_server(self.url, None)
        await asyncio.to_thread(client.order, name, deed, timeout_s, **more)

    def attempts(self) -> Sequence[Attempt] | None:
        """See `Target`."""
        if self._records is None:
            return None
        if not self._records.exists():
            return ()
        lines = self._records.read_bytes().splitlines()
        return [attempt for line in lines for attempt in _later_attempts(line)]


class _Record(msgspec.Struct):
    """What is read of a request's record."""

    request: str
    trail: tuple[AttemptRecord, ...] = ()


def _later_attempts(line: bytes) -> Iterator[Attempt]:
    record = msgspec.json.decode(line, type=_Record)
    for number, (before, stamp) in enumerate(pairwise(record.trail), start=2):
        yield Attempt(
            request=record.request,
            number=number,
            workers_before=_workers(before.route),
            began_at=stamp.began_at,
            first_token_at=stamp.first_token_at,
            computed_tokens=stamp.computed_tokens,
        )


def _workers(route: str) -> tuple[str, ...]:
    """Those of "prefill-0 > decode-1: why" or "mixed-0: why"."""
    names, _, _ = route.partition(":")
    return tuple(name.strip() for name in names.split(">"))


def attached(url: str, *, api_key: str | None = None) -> LocalTarget:
    """The server of this user at `url` on this machine. Raises as `find_server`."""
    client = find_server(url, None)
    place = next(place for place in running_servers() if same_place(place.url, url))
    return LocalTarget(place, client, api_key=api_key)


@contextlib.asynccontextmanager
async def started(
    arguments: Sequence[str], *, store_disk: str | None = None, timeout_s: Seconds = 600.0
) -> AsyncIterator[LocalTarget]:
    """A cluster of its own (`antiphon serve ARGUMENTS` on a free port), gone afterwards, also if
    this process is killed. `store_disk`: its store keeps so much in a folder of its own, gone too.

    Raises `UsageError` with its message if it refuses the arguments, `PeerError` with the end of
    its log if it does not come up.
    """
    with own_folder() as folder:
        records, log = folder / _RECORDS, folder / _LOG
        command = tied_to_caller([sys.executable, "-m", "antiphon", "serve", *arguments])
        command += ["--port", "0", "--request-log", str(records)]
        if store_disk:
            command += ["--store-disk", store_disk, "--store-dir", str(folder / "store")]
        with log.open("wb") as output:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            place = await _found(server, log, timeout_s)
            target = LocalTarget(place, find_server(place.url, None), records=records)
            await _ready_or_over(target, server, log, timeout_s)
            yield target
        finally:
            await asyncio.shield(asyncio.to_thread(_end, server))


async def _found(server: subprocess.Popen[bytes], log: Path, timeout_s: Seconds) -> LocalServer:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while server.poll() is None:
                for place in running_servers():
                    if place.pid == server.pid:
                        return place
                await asyncio.sleep(_POLL_S)
    raise _did_not_start(log, server.poll())


async def _ready_or_over(
    target: LocalTarget, server: subprocess.Popen[bytes], log: Path, timeout_s: Seconds
) -> None:
    """Wait until it is ready. Raises `PeerError` if it is not in time, or has ended."""
    ready = asyncio.create_task(target.ready(timeout_s))
    try:
        while not ready.done():
            await asyncio.wait((ready,), timeout=_POLL_S)
            if server.poll() is not None:
                raise _did_not_start(log, server.poll())
        await ready
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)


def _did_not_start(log: Path, code: int | None) -> UsageError | PeerError:
    """A server that ends with 2 was given what can't be, and says so in its last line."""
    tail = log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARS:]
    if code == _USAGE:
        said = tail.rstrip().rpartition("antiphon: ")[2]
        return UsageError(f"the cluster did not start: {_STORE_OPTION.sub('', said)}")
    return PeerError(f"the cluster did not start; the end of its log:\n{tail}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL for one that does not listen."""
    server.terminate()
    try:
        server.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
