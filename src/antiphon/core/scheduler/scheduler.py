"""One worker's continuous batching: what is computed in each step, and what came of it.

    add ─▶ waiting ──step──▶ running ──complete──▶ ended          events: complete, expire
              ▲                 │ │
              │                 │ └──▶ offered (prefill: pages under a lease, the rest forgotten)
              └──── preempted ◀─┘  (memory ran out against prediction)

    adopt ─▶ waiting ──step──▶ receiving ──pulled──▶ running …    (a prompt computed elsewhere)
    add ──▶ waiting ──step──▶ receiving ──fetched──▶ running …    (its beginning is in the store)
                                  └─ a step that `awaits` the rest may begin before `fetched`

The driver's loop: `expire`, `step`, `expire` again, carry out `pulls` and `fetches`, run the plan,
`complete`. One plan is outstanding at a time; all else, the methods of `leases` too, may come at
any moment. What a step decided (`Started`, `Preempted`) is said by the `expire` after it, so that
others know it before the plan is run: should the worker die of it, they know whose plan it was.
"""

from collections.abc import Sequence

from antiphon.core.kv import KvListener, ignore
from antiphon.errors import BugError
from antiphon.types import (
    Aborted,
    Admitted,
    BlockKey,
    BlockStored,
    Fetch,
    FinishReason,
    KvConfig,
    LeaseId,
    ModelInfo,
    Offer,
    Pull,
    Rejected,
    Request,
    RequestId,
    SchedulerConfig,
    SchedulerEvent,
    Seconds,
    Stage,
    StepPlan,
    StepResult,
    Unknown,
    WorkerView,
)

from .admission import DeferReason, Deferred
from .early_start import Arrival
from .growth import Growth
from .intake import Intake
from .limits import limits_of
from .offering import Offering
from .parts import STANDARD_PARTS, Parts
from .repeating import Repeating
from .sequence import RequestState, ended_event, ending
from .starting import Starting
from .stepping import Stepping

SCHEDULER = "scheduler"
"""The scheduler's name in a record of decisions."""
SCHEDULER_METHODS = (
    "add",
    "adopt",
    "pulled",
    "arriving",
    "fetched",
    "abort",
    "expire",
    "step",
    "complete",
    "fail",
)
"""The methods of `Scheduler` whose calls make up its record, beside that of its `leases`.

`pulls` and `fetches` decide nothing; keys of blocks depend on a salt that a record may not have.
"""


class Scheduler:
    """Continuous batching with chunked prefill, predicted-peak admission and a prefix cache.

    Every request taken ends exactly once for each of its sequences that is not done: by a
    `SequenceEnded` event, in the answer to `abort`, or by being part of `Prefilled`. Of a request
    one attempt is here at a time: a later one ends an earlier one, and not the other way round.
    Decisions depend on the arguments alone.
    """

    def __init__(  # noqa: PLR0913  all that decisions depend on
        self,
        *,
        config: SchedulerConfig,
        kv: KvConfig,
        pages: int,
        model: ModelInfo,
        max_model_len: int,
        lease_ttl_s: Seconds = 10.0,
        listen: KvListener = ignore,
        most_repeats: int = 1,
        parts: Parts = STANDARD_PARTS,
    ) -> None:
        """`most_repeats`: see `StepPlan.repeat`."""
        self._limits = limits_of(config, kv, pages, model, max_model_len)
        self._history = parts.history(size=config.output_history, quantile=config.output_quantile)
        self._pool, self._memory, self._admission = parts.of_memory(
            config, kv, self._limits, self._history, listen
        )
        self._roster = parts.roster(self._memory, self._history, config.max_batched_tokens)
        self._completion = parts.completion(self._roster, self._memory, self._history)
        self._intake = Intake(config, kv, model, self._limits, parts)
        self.leases = parts.lease_book(self._roster.give_back, ttl_s=lease_ttl_s)
        self._offering = Offering(self._roster, self._memory, self.leases)
        self._receiving = parts.receiving(self._roster, self._memory)
        self._growth = Growth(self._roster, self._memory)
        self._repeating = Repeating(self._roster, self._memory, most_repeats)
        self._stepping = Stepping(
            self._roster,
            self._memory,
            self._receiving,
            self._completion,
            parts.batch,
            budget=config.max_batched_tokens,
            prefill_first=config.prefill_first,
        )
        self._events: list[SchedulerEvent] = []
        """Said by the next `complete` or `expire`."""
        self._events_at: Seconds | None = None
        """Set while events wait that should not wait for a step to be completed."""
        self._starting = Starting(
            self._roster, self._memory, self._admission, self.leases, self._receiving
        )
        self.deferred: Deferred | None = None
        """Why the head of the queue did not start when it was last looked at; None: it did."""

    @property
    def max_model_len(self) -> int:
        """Most tokens of prompt and output together: as asked for, or less if memory ends first.

        Whoever resolves `max_tokens` for this scheduler has to go by it, or outputs are cut short.
        """
        return self._limits.max_len

    def add(
        self,
        request: Request,
        now: Seconds,
        stage: Stage = Stage.WHOLE,
        lease: LeaseId | None = None,
        fetch: int = 0,
    ) -> Admitted | Rejected:
        """Take the request into the queue, or say why not; then nothing is kept.

        `PREFILL` comes with an unused lease id, and ends with `Prefilled` for what is left after
        the next token of each sequence. `fetch`: so many tokens that it begins with are believed
        to be in the store. Whole blocks of them that are not here when it starts are said by
        `fetches`; all else, the last token always, is computed.
        """
        if (lease is not None) != (stage is Stage.PREFILL):
            raise BugError(f"{request.id} is added as {stage} with lease {lease}")
        self._supersede(request, now)
        return self._take(
            self._intake.take(request, now, self._roster, self._history, lease=lease, fetch=fetch)
        )

    def adopt(self, request: Request, offer: Offer, now: Seconds) -> Admitted | Rejected:
        """Like `add`, for a request whose prompt another worker has computed.

        What it lacks of the offer is said by `pulls` once there is room for all of it. Whatever is
        wrong with the offer makes it worthless, not the request: then all is computed here.
        """
        self._supersede(request, now)
        return self._take(self._intake.take(request, now, self._roster, self._history, offer=offer))

    def pulls(self) -> Sequence[Pull]:
        """What is to be pulled, each said once. The room is reserved until `pulled`."""
        return self._receiving.take_pulls()

    def pulled(
        self,
        request: RequestId,
        attempt: int,
        good: tuple[bool, ...],
        now: Seconds,
        problem: str = "",
        seconds: Seconds = 0.0,
    ) -> Sequence[SchedulerEvent]:
        """A pull is over, and nothing writes to its pages any more.

        `good` says of each page of it, in order, whether it is what was offered; what is not is
        computed here. Says nothing of a request that has ended meanwhile. Raises `BugError` if no
        such pull is under way.
        """
        event = self._receiving.pulled(request, attempt, good, problem, seconds)
        return [] if event is None else [event]

    def fetches(self) -> Sequence[Fetch]:
        """What is to be fetched, each said once. The room is reserved until `fetched`."""
        return self._receiving.take_fetches()

    def arriving(
        self, request: RequestId, attempt: int, here: int, groups: int, group_s: Seconds
    ) -> None:
        """All blocks of a fetch come, and of `groups` groups of their layers `here` are here.

        Each took `group_s`. A step that needs the fetch may begin before its last layers are here.
        Of a fetch that has ended it may still be said.
        """
        arrival = Arrival(here=here, groups=groups, group_s=group_s)
        self._receiving.arriving(request, attempt, arrival)

    def fetched(
        self,
        request: RequestId,
        attempt: int,
        good: tuple[bool, ...],
        now: Seconds,
        problem: str = "",
        seconds: Seconds = 0.0,
    ) -> Sequence[SchedulerEvent]:
        """A fetch is over, and nothing writes to its pages any more.

        `good` says of each block of it, in order, whether it is the block of that key. Whole blocks
        up to the first that is not are computed, and named; the rest is computed here. Says nothing
        of a request that has ended meanwhile. Raises `BugError` if no such fetch is under way.
        """
        return self._receiving.fetched(request, attempt, good, problem, seconds, now)

    def abort(self, id: RequestId, now: Seconds, sequence: int | None = None) -> Aborted | Unknown:
        """End one sequence, or all of the request. Its pages return now, or when the step ends.

        Those that a pull or a fetch fills return when that is over. With the request go the leases
        that it has here; a sequence that is offered can't be ended alone.
        """
        state = self._roster.requests.get(id)
        alive = state.alive if state is not None else []
        ends = [one for one in alive if sequence is None or one.key.sequence == sequence]
        released = self.leases.release_of(id) if sequence is None else 0
        if not ends and not released:
            return Unknown(request=id)
        self._roster.end(ends, now)
        if self._offering.ready():
            self._events_at = now
        return Aborted(request=id, sequences=tuple(one.key.sequence for one in ends))

    def expire(self, now: Seconds) -> Sequence[SchedulerEvent]:
        """End requests and leases whose time has come; also says what has happened so far."""
        events = self._take_events()
        self.leases.expire(now)
        for id in self._roster.deadlines.pop_due(now):
            ends = self._roster.requests[id].alive
            self._roster.end(ends, now)
            message = "the request's deadline has passed"
            events += (ended_event(one, FinishReason.DEADLINE, message) for one in ends)
        events += self._offering.take_ready(now)
        return events

    def next_deadline(self) -> Seconds | None:
        """When `expire` has something to do, if nothing else happens; None: never."""
        if self._events_at is not None:
            return self._events_at
        times = (self._roster.deadlines.next(), self.leases.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def step(self, now: Seconds) -> StepPlan | None:
        """Choose what is computed next and reserve its memory.

        None: nothing can be computed until something is added, pulled, fetched, released or
        expires. What it decided about requests is said by `expire`, for which it is time at once.
        """
        if self._stepping.outstanding:
            raise BugError("a step was asked for while another is outstanding")
        roster = self._roster
        preempted = self._growth.run(self._events)
        if preempted and roster.running:
            self.deferred = Deferred(
                DeferReason.PAGES, "memory ran out: a running sequence gave way"
            )
        elif roster.changed:
            self.deferred = self._starting.run(now, self._events)
        plan = self._stepping.begin(now, self._events, self._repeating.steps())
        if self._events:
            self._events_at = now
        return plan

    def complete(
        self, plan: StepPlan, result: StepResult, now: Seconds
    ) -> Sequence[SchedulerEvent]:
        """Take in what the outstanding plan computed; returns everything that happened.

        If the plan awaits a fetch that came well, that was said (`fetched`) before this. Raises
        `BugError` if it was not, or the plan is not the outstanding one or the result does not
        answer it.
        """
        events = self._take_events()
        self._stepping.complete(plan, result, now, events)
        events += self._offering.take_ready(now)
        return events

    def fail(self, plan: StepPlan, message: str, now: Seconds) -> Sequence[SchedulerEvent]:
        """The outstanding plan broke off: ends all that it works for; returns what happened.

        Raises `BugError` if the plan is not the outstanding one.
        """
        events = self._take_events()
        self._stepping.fail(plan, message, now, events)
        events += self._offering.take_ready(now)
        return events

    def view(self, now: Seconds) -> WorkerView:
        """Counts of this moment. Does not mutate."""
        pool, roster = self._pool, self._roster
        running, arriving = roster.running_requests, roster.arriving
        sequences = [one for one in roster.running.values() if not one.ended]
        return WorkerView(
            running=running,
            waiting=len(roster.requests) - running - arriving,
            free_pages=pool.free_pages,
            held_pages=pool.held_pages,
            cached_pages=pool.cached_pages,
            total_pages=pool.total_pages,
            peak_pages=self._admission.peak(roster.present()),
            prefix_queried_tokens_total=self._starting.queried_tokens,
            prefix_hit_tokens_total=self._starting.hit_tokens,
            preemptions_total=self._growth.preemptions,
            steps_total=self._stepping.steps,
            computed_tokens_total=self._stepping.computed_tokens,
            waiting_tokens=roster.tokens_to_prefill(),
            running_sequences=len(sequences),
            context_tokens=sum(one.computed for one in sequences),
            pulling=arriving,
            roomless=roster.roomless,
            offered_pages=len(self.leases.pages),
            leases=len(self.leases),
            busy_s_total=self._stepping.busy_s,
            fetched_tokens_total=self._receiving.fetched_tokens,
        )

    def named_blocks(self) -> Sequence[BlockKey]:
        """The keys of all blocks in the prefix cache, first named first. Does not mutate."""
        return self._pool.named()

    def named_block(self, key: BlockKey) -> BlockStored | None:
        """Where a block of the prefix cache lies now; its tokens are not said. Does not mutate."""
        return self._pool.block(key)

    def has(self, id: RequestId, attempt: int) -> bool:
        """Whether this attempt of the request waits, runs or is on its way here."""
        state = self._roster.requests.get(id)
        return state is not None and state.request.attempt == attempt

    def dismantle(self) -> None:
        """Nothing may be called any more: without a search for cycles, all of it can be freed."""
        self._roster.dismantle()

    # ── taking requests ──────────────────────────────────────────────────────────────────────

    def _supersede(self, request: Request, now: Seconds) -> None:
        """End an earlier attempt: its gateway has given it up, though no abort came so far."""
        earlier = self._roster.requests.get(request.id)
        if earlier is None or earlier.request.attempt >= request.attempt:
            return
        message = f"attempt {request.attempt} has come"
        ends = earlier.alive
        self._events += (ended_event(one, FinishReason.ABORTED, message) for one in ends)
        self._events_at = now
        self._roster.end(ends, now)

    def _take(self, taken: RequestState | Rejected) -> Admitted | Rejected:
        """Let the sequences of a new request wait."""
        if isinstance(taken, Rejected):
            return taken
        self._roster.take(taken)
        self._end_resumed(taken, taken.arrived_at)
        ahead = self._roster.enter(taken) if taken.alive else 0
        request = taken.request
        return Admitted(request=request.id, ahead=ahead, attempt=request.attempt)

    def _end_resumed(self, state: RequestState, now: Seconds) -> None:
        """End at once those whose earlier attempts already said everything."""
        for sequence in state.alive:
            reason = ending(sequence)
            if reason is not None:
                self._events.append(ended_event(sequence, reason))
                self._events_at = now
                self._roster.end_new(sequence, now)

    def _take_events(self) -> list[SchedulerEvent]:
        events, self._events = self._events, []
        self._events_at = None
        return events
