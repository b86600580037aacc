"""A worker in virtual time: the live scheduler and puller, a scripted engine, virtual streams."""

from collections.abc import Callable, Sequence

from antiphon.core.faults import Boundary, Damage, Node
from antiphon.core.scheduler import Scheduler
from antiphon.types import (
    Abort,
    Admitted,
    Awaited,
    Fetched,
    GrantAnswered,
    Incarnation,
    KvReplay,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    ModelInfo,
    Offer,
    Prefilled,
    Rejected,
    Release,
    Renew,
    Request,
    RequestId,
    SchedulerEvent,
    Seconds,
    SequenceEnded,
    Stage,
    Started,
    StepPlan,
    StepResult,
    WorkerInfo,
)

from .cluster_log import AbortHeard, ClusterLog, LeaseGranted, LifeBegan, LifeEnded, Note
from .cluster_messages import (
    Add,
    ClusterMessage,
    GrantTo,
    Heartbeat,
    Join,
    TakeOver,
    ToWorker,
    boundary_of,
    with_deadline,
)
from .cluster_setup import GATEWAY, ClusterSetup, WorkerSpec
from .delay_line import DelayLine
from .known_attempts import KnownAttempts
from .kv_teller import KvTeller
from .network import Network
from .shadow_store import ShadowStore
from .step_run import StepRun
from .stream import End
from .virtual_process import VirtualProcess
from .worker_parts import STANDARD_WORKER_PARTS, WorkerParts


class ClusterWorker:
    """A worker's process through all its lives."""

    def __init__(  # noqa: PLR0913  the world that it lives in
        self,
        process: VirtualProcess,
        network: Network,
        spec: WorkerSpec,
        setup: ClusterSetup,
        *,
        log: ClusterLog,
        store: ShadowStore,
        crossed: Callable[[Boundary, Node, Node], Damage | None],
        parts: WorkerParts = STANDARD_WORKER_PARTS,
    ) -> None:
        self.process = process
        self.network = network
        self.spec = spec
        self.setup = setup
        self.model = ModelInfo(
            name="scripted",
            identity=bytes(32),
            numerics=spec.numerics,
            vocab_size=setup.vocab_size,
            context_len=setup.max_model_len,
            eos_token_ids=(0,),
            kv_bytes_per_token=setup.kv_bytes_per_token,
        )
        self.log = log
        self.store = store
        self.crossed = crossed
        """Told of what passes a boundary and is no message."""
        self.parts = parts
        self.life: WorkerLife | None = None
        process.on_start = self._begin

    def _begin(self) -> None:
        self.note(LifeBegan(self.process.incarnation))
        self.process.at_crash(lambda: self.note(LifeEnded(self.process.incarnation)))
        self.life = WorkerLife(self)

    def note(self, what: object) -> None:
        """Into the log, with the time of the world."""
        self.log.note(self.network.loop.now, self.process.name, what)


class WorkerLife:
    """One life of a worker's process. Within it, each time it joins it is another incarnation."""

    def __init__(self, worker: ClusterWorker) -> None:
        setup, spec, parts = worker.setup, worker.spec, worker.parts
        self.setup, self.network, self.process = setup, worker.network, worker.process
        self.note, self.crossed = worker.note, worker.crossed
        self._spec, self._model = spec, worker.model
        self.memory = parts.memory(setup.kv.page_tokens)
        self.store = parts.beside(self, worker.store, parts.store)
        also = None if self.store is None else self.store.listen
        self.teller = KvTeller(also, setup.kept_changes)
        if self.store is not None:
            self.store.tell_by(self.teller)
        self.scheduler = Scheduler(
            config=spec.scheduler or setup.scheduler,
            kv=setup.kv,
            pages=spec.pages,
            model=worker.model,
            max_model_len=setup.max_model_len,
            lease_ttl_s=setup.cluster.lease_ttl_s,
            listen=self.teller.listen,
            most_repeats=setup.most_repeats,
            parts=parts.scheduler,
        )
        self._engine = parts.engine(spec, setup, self.memory)
        self._joins = 0
        self._offers = 0
        self._control: End | None = None
        self._heard_at: Seconds = 0.0
        self._attempts = KnownAttempts(self.scheduler)
        self._saying = DelayLine(self.process)
        self._run: StepRun | None = None
        self._computing = False
        self._awake_at: Seconds | None = None
        worker.process.on_disturbed = self._break_off
        worker.process.at_crash(self._end)
        self.owner = parts.owner(self)
        self.taker = parts.taker(self)
        self._join()
        self._beat()

    @property
    def incarnation(self) -> Incarnation:
        """The name under which it joined last, or is about to."""
        return Incarnation(f"{self.process.incarnation}.{self._joins}")

    @property
    def now(self) -> Seconds:
        """What the process's clock shows."""
        return self.process.now

    @property
    def info(self) -> WorkerInfo:
        """What it says when it joins."""
        setup, spec, model, kv = self.setup, self._spec, self._model, self.setup.kv
        return WorkerInfo(
            id=spec.id,
            incarnation=self.incarnation,
            model=model,
            max_model_len=setup.max_model_len,
            role=spec.role,
            kv=KvShape(
                layout="shadow",
                page_tokens=kv.page_tokens,
                block_tokens=kv.block_tokens,
                page_bytes=kv.page_tokens * model.kv_bytes_per_token,
                pages=spec.pages,
            ),
        )

    def _end(self) -> None:
        loop = self.network.loop
        loop.call_at(loop.now, self._let_go)  # it may have died in the midst of what it does

    def _let_go(self) -> None:
        """Nobody asks a dead life for anything: its parts, which know it, must not keep it."""
        self.scheduler.dismantle()
        vars(self).clear()

    # ── joining ──────────────────────────────────────────────────────────────────────────────

    def _join(self) -> None:
        self._joins += 1
        self._heard_at = self.now
        self.network.dial(self.process, GATEWAY, self._opened, self._not_opened)

    def _not_opened(self) -> None:
        self.process.call_at(self.now + self.setup.cluster.heartbeat_s, self._join)

    def _opened(self, end: End) -> None:
        self._control = end
        self._heard_at = self.now
        end.heard = self._hear
        end.closed = self._leave
        self.tell(Join(self.info))
        self.tell(self.teller.dump())

    def _leave(self) -> None:
        """The gateway is gone, or has given this life up: end all of its work, and join anew."""
        self.note(Note(f"{self.incarnation} ends all its work"))
        if self._control is not None:
            self._control.close()
            self._control = None
        for request, attempt in self._attempts.take_all():
            self._abort_here(request, attempt, None)
        self.owner.end_all()
        self.taker.end_all()
        self._wake(self.now)
        self._join()

    def _beat(self) -> None:
        cluster = self.setup.cluster
        if self._control is not None:
            if self.now - self._heard_at >= cluster.lost_after_s:
                self._leave()
            else:
                self.tell(Heartbeat(self.scheduler.view(self.now)))
                self.tell(self.teller.news())
        self.process.call_at(self.now + cluster.heartbeat_s, self._beat)

    def tell(self, message: ClusterMessage) -> None:
        """To the gateway, if there is one."""
        if self._control is not None:
            self._control.send(message, boundary_of(message))

    # ── what the gateway says ────────────────────────────────────────────────────────────────

    def _hear(self, message: ToWorker) -> None:
        self._heard_at = self.now
        match message:
            case Heartbeat():
                return
            case Add(request, left_s, stage, fetch):
                self._add(with_deadline(request, left_s, self.now), stage, fetch)
            case KvReplay():
                self.tell(self.teller.again(message))
                return
            case TakeOver(request, left_s, offer):
                self._take_over(with_deadline(request, left_s, self.now), offer)
            case Abort(request, attempt, _, sequence):
                self._abort(request, attempt, sequence)
            case GrantTo():
                self._grant(message)
            case Renew(leases=leases):
                self.scheduler.leases.renew(leases, None, self.now)
            case Release(lease=lease):
                self.scheduler.leases.release(lease, self.now)
        self.wake()

    def _add(self, request: Request, stage: Stage, fetch: int) -> None:
        lease = None
        if stage is Stage.PREFILL:
            self._offers += 1
            lease = LeaseId(f"{self.incarnation}/{self._offers}")
        if self.setup.store is not None:
            fetch = max(fetch, self.setup.store.believed_tokens)
        self._answer(request, self.scheduler.add(request, self.now, stage, lease, fetch))

    def _take_over(self, request: Request, offer: Offer) -> None:
        self._answer(request, self.scheduler.adopt(request, offer, self.now))

    def _answer(self, request: Request, answer: Admitted | Rejected) -> None:
        if isinstance(answer, Admitted):
            self._attempts.came(request.id, request.attempt)
        self.tell(answer)

    def _abort(self, request: RequestId, attempt: int, sequence: int | None) -> None:
        if self._attempts.is_last(request, attempt):
            self._abort_here(request, attempt, sequence)

    def _abort_here(self, request: RequestId, attempt: int, sequence: int | None) -> None:
        if sequence is None:
            self.taker.cancel(request, attempt)
        self.note(AbortHeard(request, attempt, sequence))
        self.note(self.scheduler.abort(request, self.now, sequence))

    def _grant(self, order: GrantTo) -> None:
        match self.scheduler.leases.grant(order.lease, order.taker, order.attempt, self.now):
            case LeaseHeld():
                refused = None
                self.note(LeaseGranted(order.lease, order.taker, order.attempt))
            case LeaseRefused(reason=reason):
                refused = reason
        self.tell(
            GrantAnswered(
                request=order.request, attempt=order.attempt, lease=order.lease, refused=refused
            )
        )

    # ── computing ────────────────────────────────────────────────────────────────────────────

    def say(self, events: Sequence[SchedulerEvent], lag_s: Seconds = 0.0) -> None:
        """Pass on what happened, `lag_s` from now and after all that was said before."""
        beside = self.store is not None or self.teller.has_news
        if not (events or lag_s or beside) and self._saying.idle:
            return  # nothing to say, as in most turns
        self._saying.after(lag_s, lambda: self._say(events))

    def _say(self, events: Sequence[SchedulerEvent]) -> None:
        """What is offered, and what is to be put, is sealed first."""
        if self.store is not None:
            self.store.put()
        if self.teller.has_news:
            self.tell(self.teller.news())
        for event in events:
            match event:
                case Prefilled():
                    self.tell(self.owner.offer(event))
                    continue
                case SequenceEnded(request=request, attempt=attempt):
                    if not self.scheduler.has(request, attempt):
                        self.taker.cancel(request, attempt)
                case Started() | Fetched():
                    self.note(event)
                case _:
                    pass
            self.tell(event)

    def wake(self) -> None:
        """Look for work as soon as all that is due now is done."""
        self._wake(self.now)

    def _wake(self, at: Seconds) -> None:
        at = max(at, self.now)
        if self._awake_at is None or at < self._awake_at:
            self._awake_at = at
            self.process.call_at(at, lambda: self._turn(at))

    def _turn(self, at: Seconds) -> None:
        if self._awake_at != at:
            return
        self._awake_at, now = None, self.now
        self.say(self.scheduler.expire(now))
        if self._run is not None and self._run.cut(now):
            self._await_end(self._run)
        elif not self._computing:
            self._compute()
        self.taker.begin(self.scheduler.pulls())
        if self.store is not None:
            self.store.fetch()
        deadline = self.scheduler.next_deadline()
        if deadline is not None:
            self._wake(deadline)

    def _compute(self) -> None:
        now = self.now
        plan = self.scheduler.step(now)
        self.say(self.scheduler.expire(now))
        if plan is None:
            return
        self.note(plan)
        self._computing = True
        if plan.awaits is not None:
            self._compute_early(plan, plan.awaits)
            return
        self._run = StepRun(self._engine, plan, now, self.process.slow_factor)
        self._await_end(self._run)

    def _await_end(self, run: StepRun) -> None:
        """A run that is cut meanwhile has another end."""
        at = run.ends_at
        self.process.call_at(at, lambda: self._ended(run) if run.ends_at == at else None)

    def _ended(self, run: StepRun) -> None:
        if self._run is run:
            self._run = None
            self._complete(run.plan, run.result())

    def _break_off(self) -> None:
        """The worker is about to die, to stand still or to change its pace: what is over counts."""
        run = self._run
        if run is not None and run.passes > 1 and run.break_off(self.now):
            self._ended(run)

    def _compute_early(self, plan: StepPlan, awaits: Awaited) -> None:
        """KV that the plan reads is still on its way: what comes of it is known at its end."""
        assert self.store is not None
        coming, engine = self.store.coming, self._engine
        self.note(awaits)

        def ended() -> None:
            self._complete(plan, coming.result(plan, awaits, engine, self.now))

        took_s = engine.passes_s(plan, 1) * self.process.slow_factor
        self.process.call_at(coming.step_ends_at(awaits, self.now, took_s), ended)

    def _complete(self, plan: StepPlan, result: StepResult) -> None:
        self._computing = False
        self.say(self.scheduler.complete(plan, result, self.now), self._engine.lag_s(plan))
        self.wake()
