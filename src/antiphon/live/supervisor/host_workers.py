"""The parent of workers whose gateway is on another host, and of the store beside them: it starts
them, keeps them running, and sees them off.

first SIGTERM or Ctrl-C   the gateway gives the workers nothing new; what they have finishes, or
                          goes on elsewhere; then they end, and the store after them
second                    all end at once
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from antiphon.core.config import as_mapping
from antiphon.core.worker_spec import WorkerSpec
from antiphon.errors import PeerError
from antiphon.types import STORE, Config, Role, Seconds

from .ending import Ending
from .kept_child import KeptChild, State
from .messages import Alive, Drain, Drained, FromChild, Launch, Ready, Say
from .supervisor import Voice

_DRAIN_MARGIN_S = 10.0
"""How much longer than it was told to a gateway may take to let a worker go."""


class HostWorkers:
    """Runs `specs` of this host, and a store if the configuration has one that is not named.
    `sockets` is the folder where they reach each other.

    Nobody waits for the store, and its end is nobody's: without one, prompts are computed.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[WorkerSpec],
        *,
        sockets: str,
        command: Callable[[str], Sequence[str]],
        voice: Voice,
        clock: Callable[[], Seconds],
    ) -> None:
        self._config = config
        self._voice = voice

        def child(name: str, role: Role, cores: tuple[int, ...]) -> KeptChild:
            return KeptChild(
                command(name),
                Launch(
                    name=name,
                    config=as_mapping(config),
                    sockets=sockets,
                    role=role,
                    cores=cores,
                ),
                config=config.cluster,
                clock=clock,
                log=self._logger(name),
                hear=self._hear,
                changed=self._changed,
            )

        self._workers = [child(spec.id, spec.role, spec.cores) for spec in specs]
        own_store = config.store.enabled and config.store.socket is None
        self._store = child(STORE, Role.MIXED, ()) if own_store else None
        self._joined = False
        self._undrained: set[KeptChild] = set()
        self._drained = asyncio.Event()
        self._end = Ending(is_up=lambda: self._joined, farewell=self._farewell, stop=self._stop)

    def _logger(self, name: str) -> Callable[[str], None]:
        return lambda line: self._voice.log(f"{name} | {line}")

    async def run(self) -> int:
        """Until a signal comes; returns the exit code. Nothing runs any more then.

        Raises `UsageError` if the gateway refuses a worker that has never joined, or something here
        is not right; `PeerError` if a process can't be started.
        """
        children = [*self._workers, *([self._store] if self._store is not None else [])]
        keeping = [asyncio.create_task(child.keep(), name=child.launch.name) for child in children]
        for task in keeping:
            task.add_done_callback(self._kept)
        return await self._end.reached(lambda: keeping)

    # ── what they say ────────────────────────────────────────────────────────────────────────

    def _hear(self, worker: KeptChild, message: FromChild) -> None:
        match message:
            case Say(line) if worker is not self._store:
                alone = len(self._workers) == 1
                self._voice.say(line if alone else f"{worker.launch.name}: {line}")
            case Ready():
                self._greet()
            case Alive() if worker.state is State.READY:
                worker.alive()
            case Drained():
                self._rid_of(worker)
            case _:
                pass

    def _greet(self) -> None:
        if not self._joined and all(worker.was_ready for worker in self._workers):
            self._joined = True
            names = ", ".join(worker.launch.name for worker in self._workers)
            where = " or ".join(self._config.network.join)
            self._voice.announce(f"Joined the gateway at {where}: {names}")

    def _changed(self) -> None:
        """One that died has nothing to drain."""
        for worker in [one for one in self._undrained if one.state is not State.READY]:
            self._rid_of(worker)

    def _rid_of(self, worker: KeptChild) -> None:
        self._undrained.discard(worker)
        if not self._undrained:
            self._drained.set()

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _kept(self, task: asyncio.Task[int]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.get_name() == STORE and isinstance(error, PeerError):
            self._voice.log(f"{STORE} | given up, this host goes on without it: {error}")
            self._store = None
            return
        if error is not None:
            self._end.failed(error)

    def _farewell(self) -> None:
        self._voice.announce("Leaving: what runs here is finished (again: stop at once)")

    async def _stop(self) -> None:
        timeout_s = self._config.http.drain_timeout_s
        self._undrained = {one for one in self._workers if one.state is State.READY}
        for worker in self._undrained:
            worker.tell(Drain(timeout_s=timeout_s))
        if self._undrained:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s + _DRAIN_MARGIN_S):
                    await self._drained.wait()
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        if self._store is not None:
            await self._store.stop()
