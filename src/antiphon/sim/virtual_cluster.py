"""A whole cluster in virtual time: the live decision code over virtual links, under faults."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.costs import FetchTime, PhaseTime, TransferTime
from antiphon.core.faults import Node
from antiphon.core.requests import RequestBook, book_of
from antiphon.core.router import STANDARD_PARTS, Router, RouterLimits
from antiphon.core.router import Parts as RouterParts
from antiphon.errors import BugError
from antiphon.types import Seconds, WorkerId, WorkerView

from .cluster_gateway import ClusterGateway
from .cluster_log import ClusterLog
from .cluster_setup import GATEWAY, Call, ClusterSetup, Empty, GiveUp, Stimulus, WorkerSpec
from .cluster_worker import ClusterWorker, WorkerLife
from .fault_injector import FaultInjector, FaultyStore
from .network import Network
from .shadow_store import ShadowStore
from .virtual_loop import VirtualLoop
from .virtual_process import VirtualProcess
from .worker_parts import STANDARD_WORKER_PARTS, WorkerParts

MakeBook = Callable[[Router], RequestBook]


@dataclass(frozen=True, slots=True)
class SteadyTimes:
    """Predictions for scripted engines: what a token of a prompt takes, and a decode step."""

    token_s: Seconds = 0.0002
    step_s: Seconds = 0.002

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`."""
        return self.step_s + tokens * self.token_s

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        return self.step_s


@dataclass(frozen=True, slots=True)
class SteadyTransfer:
    """A prediction: the same for any number of bytes."""

    transfer_s: Seconds = 0.002

    def seconds(self, size_bytes: int) -> Seconds:
        """See `core.costs.TransferTime`."""
        return self.transfer_s


@dataclass(frozen=True, slots=True)
class Expected:
    """What the router expects of devices and links. Without `fetch` nothing is fetched."""

    phases: PhaseTime
    transfer: TransferTime
    fetch: FetchTime | None = None


STEADY = Expected(SteadyTimes(), SteadyTransfer())
_STUCK_AFTER_S: Seconds = 6.0
"""No lease, no wait for an answer and no stall lasts so long."""


class VirtualCluster:
    """Built from values alone: equal set-ups give equal logs."""

    def __init__(
        self,
        setup: ClusterSetup,
        *,
        make_book: MakeBook | None = None,
        parts: WorkerParts = STANDARD_WORKER_PARTS,
        router: RouterParts = STANDARD_PARTS,
        expected: Expected = STEADY,
        log: ClusterLog | None = None,
        stores: FaultyStore | None = None,
    ) -> None:
        """`make_book`: None, the book that the configuration asks for. `log` hears of all.

        `stores`: what faults of the store hit; None, the one that `setup.store` is about."""
        self.setup = setup
        self.loop = VirtualLoop()
        self.log = log or ClusterLog()
        self.network = Network(
            self.loop, seed=setup.faults.seed, times=setup.times, hostility=setup.hostility
        )
        self.router: Router
        """That of the gateway's present life, or of its last one."""
        self.store = ShadowStore()
        self._make_book, self._router, self._expected = make_book, router, expected
        self.gateway = ClusterGateway(
            VirtualProcess(GATEWAY, self.loop),
            self.network,
            setup.cluster,
            make_book=self._new_book,
            hear_kv=lambda *said: self.router.heard_kv(*said),
            log=self.log,
            stops=setup.stops,
        )
        self._parts = parts
        self.workers = {spec.id: self._worker(spec) for spec in setup.workers}
        self.processes: dict[Node, VirtualProcess] = {
            GATEWAY: self.gateway.process,
            **{worker.process.name: worker.process for worker in self.workers.values()},
        }
        hit = self.store if stores is None else stores
        self.faults = FaultInjector(setup.faults, self.network, self.processes, hit)
        for process in self.processes.values():
            process.start()
        for stimulus in setup.stimuli:
            self.loop.call_at(stimulus.at, lambda stimulus=stimulus: self._happen(stimulus))

    def add_worker(self, spec: WorkerSpec) -> None:
        """One more worker starts now. Its id must be new."""
        if spec.id in self.workers:
            raise BugError(f"there is a worker {spec.id} already")
        worker = self.workers[spec.id] = self._worker(spec)
        self.processes[worker.process.name] = worker.process
        worker.process.start()

    def end_worker(self, name: WorkerId) -> None:
        """It ends, with whatever it still does, and is no part of the cluster any more."""
        worker = self.workers.pop(name)
        del self.processes[worker.process.name]
        worker.process.crash()

    def _worker(self, spec: WorkerSpec) -> ClusterWorker:
        return ClusterWorker(
            VirtualProcess(spec.id, self.loop, clock_offset_s=spec.clock_offset_s),
            self.network,
            spec,
            self.setup,
            log=self.log,
            store=self.store,
            parts=self._parts,
            crossed=lambda boundary, sender, receiver: self.faults.crossed(
                boundary, sender, receiver
            ),
        )

    def _new_book(self) -> RequestBook:
        setup = self.setup
        router = self.router = Router(
            setup.router,
            times=self._expected.phases,
            transfer=self._expected.transfer,
            fetch=self._expected.fetch,
            kv_bytes_per_token=setup.kv_bytes_per_token,
            seed=setup.faults.seed,
            limits=RouterLimits(
                step_tokens=setup.scheduler.max_batched_tokens,
                max_sequences=setup.scheduler.max_num_seqs,
                prefix_cache=setup.kv.prefix_cache,
                usable_share=1 - setup.scheduler.reserve_fraction,
            ),
            parts=self._router,
        )
        if self._make_book is None:
            return book_of(setup.router, router)
        return self._make_book(router)

    def _happen(self, stimulus: Stimulus) -> None:
        match stimulus:
            case Call(request=request, patience_s=patience_s):
                self.gateway.submit(request, patience_s)
            case GiveUp(request=request, sequence=sequence):
                self.gateway.cancel(request, sequence)
            case Empty(worker=worker, timeout_s=timeout_s):
                self.gateway.drain(worker, timeout_s)

    # ── running ──────────────────────────────────────────────────────────────────────────────

    def run_until(self, at: Seconds, *, max_actions: int = 2_000_000) -> None:
        """Let the world go on until then."""
        self.loop.run_until(at, max_actions=max_actions)

    def run_to_rest(self, *, limit_s: Seconds, slice_s: Seconds = 0.25) -> Seconds:
        """Until nothing is open anywhere for two slices; returns when that was.

        Raises `BugError` if that does not come within `limit_s`, or nothing changes any more though
        nobody asks for anything: something is stuck or leaks.
        """
        last = max((stimulus.at for stimulus in self.setup.stimuli), default=0.0)
        self.run_until(last)
        rested, left, changed_at = 0, self.unrest(), self.loop.now
        while rested < 2:
            stuck = self.loop.now >= changed_at + _STUCK_AFTER_S and not self.gateway_leftovers()
            if stuck or self.loop.now > limit_s:
                at = limit_s if not stuck else self.loop.now
                raise BugError(f"I24: after {at} s there is still {', '.join(left)}")
            self.run_until(self.loop.now + slice_s)
            before, left = left, self.unrest()
            changed_at = changed_at if left == before else self.loop.now
            rested = 0 if left else rested + 1
        return self.loop.now

    def unrest(self) -> list[str]:
        """What is not at rest: for people. Empty: every process lives and has nothing to do."""
        found = [f"{name} is dead" for name, one in self.processes.items() if not one.alive]
        found += [f"{name} is stopped" for name, one in self.processes.items() if one.stopped]
        found += [f"{what} at the gateway" for what in self.gateway_leftovers()]
        for name in self.workers:
            found += [f"{what} at {name}" for what in self.worker_leftovers(name)]
        return found

    def gateway_leftovers(self) -> list[str]:
        """What the gateway's present life has not finished."""
        life = self.gateway.life
        if life is None or not self.gateway.process.alive:
            return []
        open_ = (
            (len(life.book), "open requests"),
            (life.book.offers, "live offers"),
            (sum(life.book.held), "held requests"),
            (self.router.open_requests, "requests in the router"),
            (len(self.workers) - len(life.membership.workers()), "workers missing"),
        )
        return [f"{count} {what}" for count, what in open_ if count]

    def worker_leftovers(self, name: WorkerId) -> list[str]:
        """What a worker's present life has not finished."""
        worker = self.workers[name]
        life = worker.life
        if life is None or not worker.process.alive:
            return []
        view = life.scheduler.view(life.now)
        open_ = (
            (view.running, "running requests"),
            (view.waiting, "waiting requests"),
            (view.held_pages, "held pages"),
            (view.leases, "leases"),
            (view.offered_pages, "offered pages"),
            (view.pulling, "pulling requests"),
            (len(life.taker), "pulls"),
            (0 if life.store is None else len(life.store), "fetches"),
        )
        return [f"{count} {what}" for count, what in open_ if count]

    def misbelieved(self) -> list[WorkerId]:
        """Workers of which the router believes that they have other blocks than they have."""
        index = self.router.kv_index
        return [
            name
            for name, worker in self.workers.items()
            if (life := _living(worker)) is not None
            and index.held_by(name) != life.teller.held.keys()
        ]

    def views(self) -> dict[WorkerId, WorkerView]:
        """The counts of each living worker."""
        return {
            name: life.scheduler.view(life.now)
            for name, worker in self.workers.items()
            if (life := _living(worker)) is not None
        }


def _living(worker: ClusterWorker) -> WorkerLife | None:
    return worker.life if worker.process.alive else None
