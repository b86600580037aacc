"""A door for processes of other hosts: TCP, TLS, and a certificate of the cluster.

    accept ──► TLS handshake, a task each ──► a stream that nobody has introduced yet

Before the handshake nothing that comes is looked at. It must be over within `HANDSHAKE_TIMEOUT_S`;
only so many are made at once, in all and from one address: whoever opens connections and says
nothing keeps few others waiting, and none for long. Until somebody has introduced himself the
stream answers probes (`antiphon cluster check --dial`).
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from antiphon.core.host_names import format_host_port
from antiphon.errors import UsageError
from antiphon.host import taken_port
from antiphon.live.failure import why
from antiphon.types import Seconds
from antiphon.wire import FrameStream, QuietLog, owned_by_loop

from .dial import expect_signs_of_life
from .probe import answer_probes

HANDSHAKE_TIMEOUT_S: Seconds = 3.0
MAX_HANDSHAKES = 64
MAX_OF_ONE_ADDRESS = 16
_BACKLOG = 128
_ACCEPT_AGAIN_S: Seconds = 0.1

_log = logging.getLogger(__name__)


def bound(addresses: Sequence[str], port: int, key: str) -> list[socket.socket]:
    """Listening sockets, one for each address, all on one port; 0: any that is free on all.

    Raises `UsageError`, which names the configuration `key`, and who has a port that is taken.
    """
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listeners.append(_bound(address, port))
            port = listeners[0].getsockname()[1]
    except (OSError, UnicodeError) as error:
        for listener in listeners:
            listener.close()
        address = addresses[len(listeners)]
        if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"{key}: {address} is not an address of this host: give one that it has (`ip "
                f"address` shows them): addresses of its [hosts.…], or "
                f"network.addresses (--address)"
            ) from None
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(f"{key}: {taken_port(address, port)}") from None
        where = format_host_port(address, port)
        what = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{key}: can't listen on {where}: {what}") from None
    return listeners


def _bound(address: str, port: int) -> socket.socket:
    family, *_, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class TlsDoor:
    """Open from `start` to `close`. `listeners` are its own from `start` on.

    `stranger` makes the stream of a connection that begins its handshake. It is connected, and can
    be heard, when the other side has shown a certificate of this cluster (`FrameStream.peer_names`
    says which); it is ended if that does not happen.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        context: ssl.SSLContext,
        stranger: Callable[[], FrameStream],
        *,
        clock: Callable[[], Seconds],
    ) -> None:
        self._listeners = listeners
        self._context = context
        self._stranger = stranger
        self._quiet = QuietLog(_log, clock)
        self._places = asyncio.Semaphore(MAX_HANDSHAKES)
        self._of_address: Counter[str] = Counter()
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return len(self._handshakes)

    def start(self) -> None:
        """Open it."""
        self._accepting = [
            asyncio.create_task(self._accept(listener), name="tls door")
            for listener in self._listeners
        ]

    async def close(self) -> None:
        """Let nobody in any more; who is in the midst of a handshake is sent away."""
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                connection, where = await loop.sock_accept(listener)
            except OSError as error:
                self._places.release()
                self._quiet.trouble("no connection from another host was taken: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            except BaseException:
                self._places.release()
                raise
            self._begin(connection, where[0])

    def _begin(self, connection: socket.socket, address: str) -> None:
        if self._of_address[address] >= MAX_OF_ONE_ADDRESS:
            connection.close()
            self._places.release()
            self._quiet.warning("too many handshakes with %s at once", address)
            return
        self._of_address[address] += 1
        task = asyncio.create_task(self._handshake(connection, address), name="tls handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _handshake(self, connection: socket.socket, address: str) -> None:
        stream = self._stranger()
        answer_probes(stream)
        try:
            with suppress(OSError):
                expect_signs_of_life(connection)
            with owned_by_loop(connection):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: stream,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                )
        except OSError as error:
            problem = why(error)
            self._quiet.warning("a connection from %s did not get in: %s", address, problem)
            stream.end(f"no handshake: {problem}")
            connection.close()
        except BaseException:
            stream.end("the door was closed")
            connection.close()
            raise
        finally:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
