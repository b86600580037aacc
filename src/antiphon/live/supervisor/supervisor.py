"""The parent of the server's processes: starts them, keeps them running, ends them in order.

first SIGTERM or Ctrl-C   the gateway refuses what is new and finishes what runs, then all end
second                    all end at once
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.core.config import as_mapping
from antiphon.core.worker_places import NoPlace, WorkerPlaces
from antiphon.core.worker_spec import WorkerSpec
from antiphon.errors import PeerError, UsageError
from antiphon.types import STORE, Config, Role, Seconds

from .ending import Ending
from .kept_child import MOST_FAILED_STARTS, KeptChild, State
from .messages import (
    AddWorker,
    Alive,
    Children,
    ChildState,
    Drain,
    Drained,
    EndWorker,
    FromChild,
    KeepDrained,
    KeepRole,
    Launch,
    NotAdded,
    Present,
    Ready,
    Restart,
    Say,
)

GATEWAY = "gateway"
_DRAIN_MARGIN_S = 10.0
"""How much longer than it was told to a gateway may take to be drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """How the supervisor speaks to people.

    `say`: what happens now, while they wait. `log`: a line of the log. `ready`: all is there.
    """

    say: Callable[[str], None]
    log: Callable[[str], None]
    ready: Callable[[Ready], None]
    announce: Callable[[str], None]


class Supervisor:
    """Runs the gateway, `specs`, and a store if the configuration has one that is not named.
    `commands` gives the command line of a child by its name.

    Nobody waits for the store, and its end is nobody's: without one, prompts are computed.

    `listener` is the server's socket: it belongs to the supervisor and every gateway inherits it,
    so that connections wait while a gateway starts anew. `sockets` is the cluster's own folder.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[WorkerSpec],
        *,
        listener: socket.socket,
        sockets: str,
        commands: Callable[[str], Sequence[str]],
        voice: Voice,
        clock: Callable[[], Seconds],
    ) -> None:
        self._config = config
        self._listener = listener
        self._sockets = sockets
        self._commands = commands
        self._voice = voice
        self._clock = clock
        self._places = WorkerPlaces((), each_bytes=0)
        self._available: Callable[[], int] = lambda: 0
        self._gateway = self._child(GATEWAY, Role.MIXED, config.engine.cores)
        self._workers: dict[str, KeptChild] = {
            spec.id: self._child(spec.id, spec.role, spec.cores) for spec in specs
        }
        self._awaited = set(self._workers)
        """Workers that are to be there before the server is ready: not those that come later."""
        self._ending: set[str] = set()
        self._pinned: set[str] = set()
        self._lives: dict[str, int] = {}
        """Of workers that are gone: whoever gets the name next counts on."""
        own_store = config.store.enabled and config.store.socket is None
        self._orders: dict[str, tuple[int, int]] = {}
        """Of workers that were added: which order asked for them, of which life of the gateway:
        each counts its orders anew."""
        self._store = self._child(STORE, Role.MIXED, ()) if own_store else None
        self._present: Present | None = None
        self._drained_lives: dict[str, int] = {}
        """Workers that get nothing new, and in which life: another one is not meant."""
        self._greeting: Ready | None = None
        self._greeted = False
        self._drained = asyncio.Event()
        self._keeping: set[asyncio.Task[int]] = set()
        self._end = Ending(is_up=lambda: self._greeted, farewell=self._farewell, stop=self._stop)

    def let_grow(self, places: WorkerPlaces, available: Callable[[], int]) -> None:
        """Workers that the gateway asks for run there: without places there are none. `available`:
        how many bytes are free now."""
        self._places, self._available = places, available

    async def run(self) -> int:
        """Serve until a signal comes; returns the exit code. Nothing runs any more then.

        Raises `UsageError` if something is not right at the start, `PeerError` if a process can't
        be started.
        """
        store = [self._store] if self._store is not None else []
        children = [*store, self._gateway, *self._workers.values()]
        for child in children:
            self._keep(child)
        return await self._end.reached(lambda: self._keeping)

    def _keep(self, child: KeptChild, tries: int = MOST_FAILED_STARTS) -> None:
        task = asyncio.create_task(child.keep(tries), name=child.launch.name)
        self._keeping.add(task)
        task.add_done_callback(self._kept)

    def _child(
        self,
        name: str,
        role: Role,
        cores: tuple[int, ...],
        life: int = 1,
    ) -> KeptChild:
        launch = Launch(
            name=name,
            config=as_mapping(self._config),
            sockets=self._sockets,
            role=role,
            cores=cores,
            listener=self._listener.fileno() if name == GATEWAY else None,
            life=life,
        )
        return KeptChild(
            self._commands(name),
            launch,
            config=self._config.cluster,
            clock=self._clock,
            log=lambda line: self._voice.log(f"{name} | {line}"),
            hear=self._hear,
            changed=self._report,
        )

    # ── what children say ────────────────────────────────────────────────────────────────────

    def _hear(self, child: KeptChild, message: FromChild) -> None:
        match message:
            case Say(line) if child is not self._gateway and child is not self._store:
                alone = len(self._workers) == 1
                self._voice.say(line if alone else f"{child.launch.name}: {line}")
            case Ready():
                if child is self._gateway:
                    self._greeting = message
                self._report()
                self._greet()
            case _ if child is self._gateway:
                self._hear_gateway(message)
            case _:
                pass

    def _hear_gateway(self, message: FromChild) -> None:
        match message:
            case Drained():
                self._drained.set()
            case Alive():
                self._gateway.alive()
            case Present():
                self._present = message
                self._watch()
            case Restart(name, life) if name == STORE and self._store:
                self._restart(self._store, life)
            case AddWorker():
                self._add(message)
            case Restart() | KeepRole() | KeepDrained() | EndWorker() if (
                message.worker in self._workers
            ):
                self._change(self._workers[message.worker], message)
            case _:
                pass

    def _change(
        self, worker: KeptChild, order: Restart | KeepRole | KeepDrained | EndWorker
    ) -> None:
        name = worker.launch.name
        match order:
            case Restart(_, life):
                self._restart(worker, life)
            case KeepRole(_, role, pinned):
                worker.keep_role(role)
                if pinned:
                    self._pinned.add(name)
                self._report()
            case KeepDrained(_, on):
                self._drained_lives.pop(name, None)
                if on:
                    self._drained_lives[name] = worker.launch.life
                self._keep_drained()
            case EndWorker(_, life):
                if life == worker.launch.life:
                    self._ending.add(name)
                    worker.end()

    def _restart(self, child: KeptChild, life: int) -> None:
        """Unless that life is over by now: the next one has begun, or is about to, by itself."""
        if life == child.launch.life:
            child.restart()

    def _report(self) -> None:
        """Tell the gateway about the others' processes; one that died has nothing to drain."""
        if self._end.has_begun and self._gateway.state is not State.READY:
            self._drained.set()
        self._keep_drained()
        store = None if self._store is None else _state_of(self._store)
        workers = tuple(
            _state_of(worker, pinned=name in self._pinned) for name, worker in self._workers.items()
        )
        self._gateway.tell(Children(workers, store))
        self._watch()

    def _keep_drained(self) -> None:
        for worker, life in list(self._drained_lives.items()):
            child = self._workers[worker]
            if child.launch.life != life or child.state is not State.READY:
                del self._drained_lives[worker]
        self._gateway.keep_drained(tuple(self._drained_lives))

    def _watch(self) -> None:
        """Nobody is missed while there is no gateway, or it has not said yet who is there."""
        if self._gateway.state is not State.READY:
            self._present = None
        present = self._present
        for name, worker in self._workers.items():
            worker.miss(present is not None and name not in present.workers)
        if self._store is not None:
            self._store.miss(present is not None and present.store is False)

    def _greet(self) -> None:
        """Once, when the gateway and all workers are there."""
        everybody = all(
            worker.was_ready for name, worker in self._workers.items() if name in self._awaited
        )
        if everybody and self._greeting is not None and not self._greeted:
            self._greeted = True
            self._voice.ready(self._greeting)

    # ── workers that come and go ─────────────────────────────────────────────────────────────

    def _add(self, wanted: AddWorker) -> None:
        """Start one more worker, or say once why not. One that can't start is not tried again."""
        name = wanted.worker
        if name in self._workers or self._end.has_begun:
            return
        self._orders[name] = (wanted.order, self._gateway.launch.life)
        starting = sum(
            worker.state is not State.READY and other not in self._ending
            for other, worker in self._workers.items()
        )
        place = self._places.take(starting, self._available())
        if isinstance(place, NoPlace):
            self._not_added(name, place.why)
            return
        life = self._lives.get(name, 0) + 1
        child = self._workers[name] = self._child(name, wanted.role, place, life)
        self._keep(child, tries=1)
        self._report()

    def _not_added(self, name: str, why: str) -> None:
        self._voice.log(f"{name} | could not be added: {why}")
        order, life = self._orders.pop(name)
        asked = life == self._gateway.launch.life
        self._gateway.tell(NotAdded(name, why, order if asked else 0))

    def _forget(self, name: str) -> None:
        """Its process is gone, for good."""
        launch = self._workers.pop(name).launch
        self._lives[name] = launch.life
        self._ending.discard(name)
        self._pinned.discard(name)
        self._awaited.discard(name)
        self._drained_lives.pop(name, None)
        self._places.give_back(launch.cores)
        self._report()

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _kept(self, task: asyncio.Task[int]) -> None:
        """A child is not kept any more: it was stopped, or it is the end of all."""
        self._keeping.discard(task)
        name = task.get_name()
        error = None if task.cancelled() else task.exception()
        if name in self._ending:
            self._forget(name)
            return
        later = name in self._workers and name not in self._awaited
        if later and isinstance(error, PeerError | UsageError):
            self._forget(name)
            self._not_added(name, str(error))
            return
        if name == STORE and isinstance(error, PeerError):
            self._voice.log(f"{STORE} | given up, the server goes on without it: {error}")
            self._store = None
            self._report()
            return
        if error is not None:
            self._end.failed(error)

    def _farewell(self) -> None:
        self._voice.announce("Stopping: what runs is finished (again: stop at once)")

    async def _stop(self) -> None:
        """The gateway ends last: while workers leave, it still says why nobody is served. The store
        ends after the workers, who may have something for it."""
        timeout_s = self._config.http.drain_timeout_s
        if self._gateway.state is State.READY:
            self._gateway.tell(Drain(timeout_s=timeout_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s + _DRAIN_MARGIN_S):
                    await self._drained.wait()
        self._listener.close()
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        if self._store is not None:
            await self._store.stop()
        await self._gateway.stop()


def _state_of(child: KeptChild, *, pinned: bool = False) -> ChildState:
    launch = child.launch
    return ChildState(
        name=launch.name,
        role=launch.role,
        cores=launch.cores,
        state=child.state.value,
        pid=child.pid,
        life=launch.life,
        problem=child.problem,
        pinned=pinned,
    )
