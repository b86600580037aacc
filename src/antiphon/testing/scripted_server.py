"""An HTTP server with exactly known delays, for tests of whoever measures servers.

A process of its own, with one thread and a heap of what is due when; the last
millisecond is waited for with open eyes. It tells afterwards when it really wrote what. Tests
compare with that, not with the script: so a machine that is busy with other things breaks none.

    with scripted_server(Script(models={"m": Behaviour(ttft_s=0.2, gap_s=0.01)})) as server:
        ...  # load on server.url
    server.calls  # what happened
"""

import contextlib
import heapq
import multiprocessing
import os
import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection as Pipe

import httptools
import msgspec

from antiphon.types import Seconds

from .scripted_answer import Step, Then, answer_steps, json_page, refusal_page
from .scripted_calls import Behaviour, CallSays, Script, ServedCall

_SPIN_S: Seconds = 0.001
"""epoll's timeouts are whole milliseconds, rounded up."""
_BACKLOG = 4096
_RECV_BYTES = 2**18
_STOP_TIMEOUT_S: Seconds = 30.0


@dataclass(slots=True)
class ScriptedServer:
    """The test's side. `calls` are there once the server has stopped, in order of arrival."""

    url: str
    calls: list[ServedCall] = field(default_factory=list)

    def call(self, request_id: str) -> ServedCall:
        """The one that was answered under this id."""
        return next(call for call in self.calls if call.request_id == request_id)


@contextlib.contextmanager
def scripted_server(script: Script, core: int | None = None) -> Iterator[ScriptedServer]:
    """A server in a process of its own (on this core, if one is named), until the context ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(script, theirs, core), daemon=True)
    process.start()
    theirs.close()
    try:
        server = ScriptedServer(f"http://127.0.0.1:{ours.recv()}")
        yield server
        ours.send("stop")
        server.calls += ours.recv()
    finally:
        ours.close()
        process.join(_STOP_TIMEOUT_S)
        process.kill()


def _serve(script: Script, pipe: Pipe, core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        server = _Loop(script, listener)
        pipe.send(listener.getsockname()[1])
        with contextlib.suppress(EOFError):  # the test has ended early
            server.run(pipe)
            pipe.send(server.calls)


class _Loop:
    """Sockets, the heap, and who has a slot."""

    def __init__(self, script: Script, listener: socket.socket) -> None:
        self.script = script
        self.calls: list[ServedCall] = []
        self.numbers: Counter[str] = Counter()
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._due: list[tuple[Seconds, int, Callable[[Seconds], None]]] = []
        self._order = count()
        self._waiting: deque[_Answer] = deque()
        self._served = 0

    def run(self, pipe: Pipe) -> None:
        """Until the pipe brings something, or its end, which raises `EOFError`."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(pipe, selectors.EVENT_READ, None)
        while True:
            for key, mask in self._selector.select(self._timeout()):
                if key.data is None:
                    pipe.recv()
                    return
                key.data(mask)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                due_at, _, act = heapq.heappop(self._due)
                act(due_at)

    def at(self, due_at: Seconds, act: Callable[[Seconds], None]) -> None:
        """Call `act` with that time, at that time or after the stall that it falls into."""
        for begin_s, end_s in self.script.stalls:
            begin_at, end_at = (self.calls[0].received_at + one for one in (begin_s, end_s))
            if begin_at <= due_at < end_at:
                due_at = end_at
        heapq.heappush(self._due, (due_at, next(self._order), act))

    def watch(self, peer: "_Peer", *, writes: bool) -> None:
        """Call `peer.ready` when its socket can be read, or written as well."""
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        self._selector.modify(peer.socket, mask, peer.ready)

    def forget(self, peer: "_Peer") -> None:
        """Its socket is about to be closed."""
        self._selector.unregister(peer.socket)

    def begin(self, answer: "_Answer") -> None:
        """At once, or when a slot is free."""
        slots = self.script.slots
        if slots is None or self._served < slots:
            self._served += 1
            answer.go_on(time.monotonic())
        else:
            self._waiting.append(answer)

    def ended(self, at: Seconds) -> None:
        """A slot is free from this moment on."""
        if self._waiting:
            self._waiting.popleft().go_on(at)
        else:
            self._served -= 1

    def _timeout(self) -> Seconds | None:
        return max(0.0, self._due[0][0] - time.monotonic() - _SPIN_S) if self._due else None

    def _accept(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                peer = _Peer(self, self._listener.accept()[0])
                self._selector.register(peer.socket, selectors.EVENT_READ, peer.ready)


class _Answer:
    """One call, from its slot to its end."""

    def __init__(self, loop: _Loop, peer: "_Peer", call: ServedCall, steps: Iterator[Step]) -> None:
        self._loop = loop
        self._peer = peer
        self._call = call
        self._steps = steps

    def go_on(self, since: Seconds) -> None:
        """Mutates: do the next step, so long after `since` as it says."""
        step = next(self._steps, None)
        if step is None or self._peer.is_closed:
            self._call.is_cut_off = step is not None
            self._loop.ended(since)
            return
        self._loop.at(since + step.after_s, lambda due_at: self._do(step, due_at))

    def _do(self, step: Step, due_at: Seconds) -> None:
        if step.is_content:
            self._call.piece_at.append(time.monotonic())
        self._peer.write(step.data)
        if step.then is not Then.HANG:
            if step.then is not Then.GO_ON:
                self._peer.close(reset=step.then is Then.RESET)
            self.go_on(due_at)


class _Peer:
    """One client's connection."""

    def __init__(self, loop: _Loop, connected: socket.socket) -> None:
        self.socket = connected
        self.is_closed = False
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body = "", bytearray()
        self._unsent = bytearray()
        self._watches_writes = False
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ready(self, mask: int) -> None:
        """See `selectors`."""
        if mask & selectors.EVENT_WRITE and self._unsent:
            self._flush()
        if mask & selectors.EVENT_READ and not self.is_closed:
            try:
                data = self.socket.recv(_RECV_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data or not self._parsed(data):
                self.close()

    def _parsed(self, data: bytes) -> bool:
        """Whether it was HTTP: TLS where none is spoken is not."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            return False
        return True

    def write(self, data: bytes) -> None:
        """Mutates: now, or as soon as the socket takes it."""
        if not self.is_closed and data:
            was_empty = not self._unsent
            self._unsent += data
            if was_empty:
                self._flush()

    def close(self, *, reset: bool = False) -> None:
        """Mutates: after this nothing is written."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.forget(self)
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _flush(self) -> None:
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._watches_writes != bool(self._unsent):
            self._watches_writes = bool(self._unsent)
            self._loop.watch(self, writes=self._watches_writes)

    # httptools

    def on_url(self, url: bytes) -> None:
        """See `httptools`."""
        self._path += url.decode()

    def on_body(self, body: bytes) -> None:
        """See `httptools`."""
        self._body += body

    def on_message_complete(self) -> None:
        """See `httptools`."""
        path, body = self._path, bytes(self._body)
        self._path, self._body = "", bytearray()
        if path.endswith("/v1/models"):
            self.write(json_page({"data": [{"id": name} for name in self._loop.script.models]}))
        elif path.endswith("/health"):
            self.write(json_page({}))
        elif path.endswith(("/v1/chat/completions", "/v1/completions")):
            self._called(body)
        else:
            self.write(refusal_page(404, f"nothing at {path}"))

    def _called(self, body: bytes) -> None:
        loop = self._loop
        try:
            says = msgspec.json.decode(body, type=CallSays)
        except msgspec.DecodeError as error:
            self.write(refusal_page(400, str(error)))
            return
        behaviour = loop.script.models.get(says.model)
        refused = _refused(behaviour, body)
        if behaviour is None or refused:
            status = 400 if behaviour else 404
            self.write(refusal_page(status, refused or f"no model {says.model!r}"))
            return
        number = loop.numbers[says.model]
        loop.numbers[says.model] += 1
        call = ServedCall(f"call-{len(loop.calls)}", says.model, time.monotonic())
        loop.calls.append(call)
        loop.begin(_Answer(loop, self, call, answer_steps(behaviour, says, call, number)))


def _refused(behaviour: Behaviour | None, body: bytes) -> str:
    """Why the body is refused; empty: it is not."""
    if behaviour is None or not behaviour.refuses:
        return ""
    names = sorted(behaviour.refuses.intersection(msgspec.json.decode(body)))
    return f"unknown fields: {', '.join(names)}" if names else ""
