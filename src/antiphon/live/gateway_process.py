"""The gateway's process: HTTP, text, routing. It loads no torch.

    HTTP (inherited socket) ──┐                           ┌── join socket ◄── workers
                              ├──► Gateway ◄── Operations ┤
    /admin with a token ──────┘                           └── admin socket ◄── antiphon status, …

Started by the supervisor (`child_process.command_of`). It knows its model's text from the start;
all else about the model it hears from the first worker that joins, and until then it says that the
model is loading.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from antiphon import __version__
from antiphon.core.joining import judge_join
from antiphon.core.recorded_run import Setup, Times, router_of
from antiphon.core.worker_spec import MAX_WORKERS
from antiphon.errors import PeerError
from antiphon.host import give_back_freed_memory
from antiphon.perf import read_times
from antiphon.types import (
    Config,
    JoinRefused,
    Seconds,
    WorkerId,
    WorkerInfo,
)
from antiphon.wire import DecisionLogWriter

from .admin.app import AdminGate, admin_app, read_token
from .admin.client import SOCKET
from .admin.ended_by_stop import EndedByStop
from .admin.kv_desk import KvDesk
from .admin.operations import Operations
from .decision_log import DecisionLog, opened_log
from .gateway import (
    FleetControl,
    Gateway,
    Keyring,
    Metrics,
    Ports,
    Prompts,
    RequestLog,
    Served,
    Service,
    create_app,
)
from .gateway_door import gateway_door
from .gateway_kv import GatewayKv
from .http_server import HttpServer
from .loaded_text import LoadedText, load_text
from .loop_guard import guard_loop
from .private_file import private_file
from .remote_worker import RemoteWorker
from .router_times import router_times
from .socket_folder import listen
from .steering import Steering, steering_of
from .supervisor.messages import (
    Alive,
    Children,
    Drain,
    Drained,
    NotAdded,
    Present,
    Ready,
    Stop,
    ToRunning,
)
from .supervisor.parent import Parent, run_child
from .worker_link import WorkerLink

_MAX_OPERATORS = 64
"""Connections to the admin socket."""


def gate(parent: Parent) -> int:
    """Be the gateway of the parent's configuration; returns the exit code."""
    config, launch = parent.config, parent.launch
    keys = _keys(config)
    token = read_token(config.http.admin_token_file) if config.http.admin_token_file else None
    with (
        opened_log(config.log.decisions, life=launch.life) as decisions,
        _request_log(config) as requests,
        socket.socket(fileno=launch.listener) as listener,
    ):
        text = load_text(config)
        times = router_times(config, text.identity)
        process = GatewayProcess(parent, text, times, keys, decisions, requests)
        return uvloop.run(process.run(listener, token))


class GatewayProcess:
    """Puts the gateway together: the parts that wait for a worker when the first one has joined."""

    def __init__(
        self,
        parent: Parent,
        text: LoadedText,
        times: str,
        keys: Keyring,
        decisions: DecisionLogWriter | None,
        requests: RequestLog | None,
    ) -> None:
        self._parent = parent
        self._config = parent.config
        self._text = text
        self._times = times
        self._keys = keys
        self._decisions = decisions
        self._requests = requests
        self._served_name = self._config.model.served_name or text.name
        self._app = create_app(None, keys)
        self._operations = Operations(
            self._served_name, parent.tell, self._config.cluster.start_timeout_s
        )
        self._operations.expected = self._config.network.expected
        self._admin = EndedByStop(
            admin_app(
                self._operations,
                lambda: self._desk,
                max_body_bytes=self._config.http.max_body_bytes,
            )
        )
        self._gateway: Gateway | None = None
        self._kv: GatewayKv | None = None
        self._desk: KvDesk | None = None
        self._steering: Steering | None = None
        self._planning: asyncio.Task[None] | None = None
        self._max_model_len: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained = set(parent.launch.drained)
        """Workers that have not joined this gateway yet, and get nothing new when they do."""
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self, listener: socket.socket, token: bytes | None) -> int:
        """Serve until the supervisor says stop; raises what broke the gateway.

        Raises `UsageError`: a port or a socket that can't be had; then nothing is left open.
        """
        guard_loop(self._fail)
        folder = Path(self._parent.launch.sockets)
        http = HttpServer(
            AdminGate(self._app, self._admin, token),
            max_connections=self._config.http.max_connections,
            on_started=self._ready,
        )
        inside = HttpServer(self._admin, max_connections=_MAX_OPERATORS, on_started=lambda: None)
        async with contextlib.AsyncExitStack() as until_end:
            until_end.push_async_callback(self._end_tasks)
            door = gateway_door(
                self._config, folder, judge=self._judge, on_join=self._joined, clock=time.monotonic
            )
            until_end.push_async_callback(door.close)
            door.on_leave = lambda worker, timeout_s: self._spawn(self._see_off(worker, timeout_s))
            await door.start()
            operators = listen(folder / SOCKET)
            self._parent.listen(self._told)
            serving = [
                asyncio.create_task(inside.serve(sockets=[operators])),
                asyncio.create_task(http.serve(sockets=[listener])),
            ]
            await self._stop.wait()
            self._admin.stop()
            http.should_exit = inside.should_exit = True
            await asyncio.gather(*serving)
        if self._failure is not None:
            raise self._failure
        return 0

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ── the supervisor ───────────────────────────────────────────────────────────────────────

    def _ready(self) -> None:
        give_back_freed_memory()
        self._parent.tell(Ready(serves=self._served_name, needs_key=len(self._keys) > 0))
        self._say_who_is_there()
        self._spawn(self._keep_saying_that_it_lives())

    async def _keep_saying_that_it_lives(self) -> None:
        while True:
            self._parent.tell_if_read(Alive())
            await asyncio.sleep(self._config.cluster.heartbeat_s)

    def _say_who_is_there(self) -> None:
        members = self._gateway.fleet.members() if self._gateway is not None else ()
        store = None if self._kv is None else self._kv.store_present
        self._parent.tell(Present(tuple(member.info.id for member in members), store))
        self._operations.store_changed()

    async def _keep_saying_who_is_there(self, gateway: Gateway) -> None:
        """The first worker joins before this runs, and nobody says so again."""
        while True:
            self._say_who_is_there()
            if self._kv is not None:
                self._kv.follow(gateway.fleet.members())
            await gateway.fleet.changed()

    def _told(self, message: ToRunning) -> None:
        match message:
            case Drain(timeout_s=timeout_s):
                self._admin.stop()
                if self._planning is not None:
                    self._planning.cancel()
                self._spawn(self._drain(timeout_s))
            case Stop():
                self._stop.set()
            case Children(workers, store):
                self._drained &= {one.name for one in workers if one.state == "ready"}
                self._operations.children(workers, store)
            case NotAdded(_, why, order):
                if self._steering is not None:
                    self._steering.not_added(order, why)

    async def _drain(self, timeout_s: Seconds) -> None:
        """From here on workers leave because they are told to, which is nothing to report."""
        if self._gateway is not None:
            await self._gateway.drain(timeout_s)
        logging.getLogger("antiphon.live").setLevel(logging.ERROR)
        self._parent.tell(Drained())

    # ── workers ──────────────────────────────────────────────────────────────────────────────

    def _judge(
        self, info: WorkerInfo, present: Mapping[WorkerId, WorkerInfo]
    ) -> JoinRefused | None:
        return judge_join(
            info,
            present,
            identity=self._text.identity,
            max_workers=MAX_WORKERS,
            max_model_len=self._max_model_len,
        )

    def _joined(self, worker: WorkerLink) -> None:
        if self._gateway is None:
            self._gateway = self._begin(worker.info)
        refused = self._gateway.join(worker)
        if refused is not None:
            self._let_go(worker, refused.message)
        elif worker.info.id in self._drained:
            self._drained.discard(worker.info.id)
            self._gateway.fleet.drain(worker.info.id, True)

    async def _see_off(self, worker: RemoteWorker, timeout_s: Seconds) -> None:
        """A worker on another host is to end: it leaves with nothing that anybody waits for."""
        if self._gateway is not None:
            with contextlib.suppress(PeerError):
                await FleetControl(self._gateway, self._served_name).drain(
                    worker.info.id, timeout_s
                )
            self._gateway.fleet.leaves(worker.info.id)
        worker.let_leave()

    def _let_go(self, link: WorkerLink, reason: str) -> None:
        if isinstance(link, RemoteWorker):
            self._spawn(link.close(reason))

    # ── the gateway ──────────────────────────────────────────────────────────────────────────

    def _begin(self, info: WorkerInfo) -> Gateway:
        """The first worker is there, and with it all that is to be known of the model."""
        config = self._config
        log = self._decision_log(info)
        times = read_times(self._times, step_tokens=config.scheduler.max_batched_tokens)
        self._max_model_len = info.max_model_len
        served = Served(model=info.model, max_model_len=info.max_model_len)
        metrics = Metrics(self._served_name)
        router = router_of(config, info.model, times)
        metrics.watch_paces(router.paces)
        sockets = Path(self._parent.launch.sockets)
        self._kv = kv = GatewayKv(
            router,
            config,
            sockets,
            clock=time.monotonic,
            log_decision=log,
            on_presence=self._say_who_is_there,
        )
        ports = Ports(
            clock=time.monotonic, log_decision=log, on_lost=self._let_go, heard_kv=kv.heard
        )
        if self._requests is not None:
            ports = replace(ports, log_request=self._requests)
        ports = self._steered(ports, info, times, metrics)
        gateway = Gateway(router, served, self._text.tokenizer, metrics, ports, config)
        self._operations.attach(
            FleetControl(gateway, self._served_name), kv.store_now, kv.host_stores_now
        )
        prompts = Prompts(self._text.tokenizer, self._text.template)
        members = gateway.fleet.members
        self._desk = kv.desk(prompts, info.model, self._keys.tenants, members)
        metrics.watch_kv(kv.seen)
        self._app.state.service = Service(
            gateway=gateway,
            prompts=prompts,
            metrics=metrics,
            served=served,
            served_name=self._served_name,
            config=config.http,
            clock=time.monotonic,
            created=int(time.time()),
        )
        self._spawn(gateway.run())
        self._spawn(kv.watch())
        self._spawn(self._keep_saying_who_is_there(gateway))
        return gateway

    def _steered(self, ports: Ports, info: WorkerInfo, times: Times, metrics: Metrics) -> Ports:
        """Begin to plan, if that is configured; `ports` of a gateway that the planner watches."""
        steering = steering_of(
            self._config,
            info.model,
            times,
            self._operations,
            tell=self._parent.tell,
            clock=ports.clock,
            log_decision=ports.log_decision,
        )
        if steering is None:
            return ports
        self._steering = steering
        self._planning = self._spawn(steering.run())
        metrics.watch_planner(steering.counts)
        return steering.watched(ports)

    def _decision_log(self, info: WorkerInfo) -> DecisionLog | None:
        if self._decisions is None:
            return None
        self._decisions.begin(
            Setup(
                program=__version__,
                config=self._config,
                pages=0,
                model=info.model,
                max_model_len=info.max_model_len,
                worker=None,
                times=self._times,
            )
        )
        return DecisionLog(self._decisions)

    def _fail(self, error: BaseException) -> None:
        """A broken law ends this process, and the supervisor starts another."""
        self._failure = self._failure or error
        if self._gateway is not None:
            self._gateway.fail(error)
        self._stop.set()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task


def _keys(config: Config) -> Keyring:
    file = config.http.api_key_file
    return Keyring.from_file(Path(file)) if file else Keyring()


@contextlib.contextmanager
def _request_log(config: Config) -> Iterator[RequestLog | None]:
    """Writes to the configured file, or None. A file that is there is written on."""
    if config.log.requests is None:
        yield None
        return
    with private_file(Path(config.log.requests), key="log.requests", append=True) as file:
        log = RequestLog(file)
        log.start()
        try:
            yield log
        finally:
            log.close()


if __name__ == "__main__":
    run_child(gate)
