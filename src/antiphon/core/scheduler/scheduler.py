"""One worker's continuous batching: what is computed in each step, and what came of it.

    add ─▶ waiting ──step──▶ running ──complete──▶ ended          events: complete, expire
              ▲                 │
              └──── preempted ◀─┘  (memory ran out against prediction)

The driver's loop: `expire`, `step`, run the plan, `complete`. One plan is outstanding at a time;
`add`, `abort` and `expire` may come at any moment.
"""

from collections.abc import Sequence

from antiphon.core.end_marks import EndMarks
from antiphon.core.kv import KvListener, ignore
from antiphon.errors import BugError
from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    FinishReason,
    KvConfig,
    ModelInfo,
    Preempted,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SchedulerConfig,
    Seconds,
    SequenceKey,
    Started,
    StepPlan,
    StepResult,
    Unknown,
    WorkerView,
)

from .admission import Crowd, Hold, HoldReason
from .batching import Flight
from .intake import limits_of, refusal
from .parts import STANDARD_PARTS, Parts
from .sequence import RequestState, SequenceState, ended_event, ending

SCHEDULER = "scheduler"
"""The scheduler's name in a record of decisions."""
SCHEDULER_METHODS = ("add", "abort", "expire", "step", "complete", "fail")
"""The methods of `Scheduler` whose calls make up its record."""


class Scheduler:
    """Continuous batching with chunked prefill, predicted-peak admission and a prefix cache.

    Every request taken ends exactly once for each of its sequences: by a `SequenceEnded` event or
    in the answer to `abort`. Decisions depend on the arguments alone.
    """

    def __init__(
        self,
        *,
        config: SchedulerConfig,
        kv: KvConfig,
        pages: int,
        model: ModelInfo,
        max_model_len: int,
        listen: KvListener = ignore,
        parts: Parts = STANDARD_PARTS,
    ) -> None:
        self._limits = limits_of(config, kv, pages, model, max_model_len)
        self._config, self._kv, self._model = config, kv, model
        self._parts = parts
        self._pool = parts.pool(
            pages,
            kv.block_tokens // kv.page_tokens,
            prefix_cache=kv.prefix_cache,
            listen=listen,
        )
        self._memory = parts.memory(self._pool, page_tokens=kv.page_tokens)
        self._history = parts.history(size=config.output_history, quantile=config.output_quantile)
        self._admission = parts.admission(
            config,
            self._pool,
            self._history,
            page_tokens=kv.page_tokens,
            max_sequences=self._limits.max_sequences,
        )
        self._roster = parts.roster(self._memory, self._history)
        self._completion = parts.completion(self._roster, self._memory, self._history)
        self._arrivals = 0
        self._flight: Flight | None = None
        self._steps = 0
        self._events: list[Event] = []
        """Said by the next `complete` or `expire`."""
        self._events_at: Seconds | None = None
        """Set while events wait though no step may follow."""
        self.hold: Hold | None = None
        """Why the head of the queue did not start when it was last looked at; None: it did."""
        self._queried = self._hits = self._preemptions = self._computed = 0

    @property
    def max_model_len(self) -> int:
        """Most tokens of prompt and output together: as asked for, or less if memory ends first.

        Whoever resolves `max_tokens` for this scheduler has to go by it, or outputs are cut short.
        """
        return self._limits.max_len

    def add(self, request: Request, now: Seconds) -> Admitted | Rejected:
        """Take the request into the queue, or say why not; then nothing is kept."""
        refused = refusal(request, self._limits) or self._refusal_now(request, now)
        if refused is not None:
            return refused
        state = self._state_of(request, now)
        self._arrivals += 1
        self._roster.take(state)
        self._end_resumed(state, now)
        ahead = self._roster.enter(state) if state.alive else 0
        return Admitted(request=request.id, ahead=ahead)

    def abort(self, id: RequestId, now: Seconds, sequence: int | None = None) -> Aborted | Unknown:
        """End one sequence, or all of the request. Its pages return now, or when the step ends."""
        state = self._roster.requests.get(id)
        alive = state.alive if state is not None else []
        ends = [one for one in alive if sequence is None or one.key.sequence == sequence]
        if not ends:
            return Unknown(request=id)
        self._roster.end(ends, now)
        return Aborted(request=id, sequences=tuple(one.key.sequence for one in ends))

    def expire(self, now: Seconds) -> Sequence[Event]:
        """End the requests whose deadline has come; also says what no step would say."""
        events = self._take_events()
        for id in self._roster.deadlines.pop_due(now):
            ends = self._roster.requests[id].alive
            self._roster.end(ends, now)
            message = "the request's deadline has passed"
            events += (ended_event(one, FinishReason.DEADLINE, message) for one in ends)
        return events

    def next_deadline(self) -> Seconds | None:
        """When `expire` has something to do, if nothing else happens; None: never."""
        if self._events_at is not None:
            return self._events_at
        return self._roster.deadlines.next()

    def step(self, now: Seconds) -> StepPlan | None:
        """Choose what is computed next and reserve its memory. None: nothing waits or runs."""
        if self._flight is not None:
            raise BugError("a step was asked for while another is outstanding")
        roster = self._roster
        preempted = self._secure_decodes()
        if preempted and roster.running:
            self.hold = Hold(HoldReason.PAGES, "memory ran out: a running sequence gave way")
        else:
            self._start_waiting(now)
        self._flight = self._parts.batch(
            roster.running.values(),
            self._memory,
            number=self._steps,
            budget=self._config.max_batched_tokens,
            ended=tuple(roster.forgotten),
        )
        if self._flight is None:
            return None
        roster.forgotten.clear()
        self._steps += 1
        self._computed += self._flight.tokens
        return self._flight.plan

    def complete(self, plan: StepPlan, result: StepResult, now: Seconds) -> Sequence[Event]:
        """Take in what the outstanding plan computed; returns everything that happened.

        Raises `BugError` if the plan is not the outstanding one or the result does not answer it.
        """
        flight = self._flight
        if flight is None or flight.plan is not plan or result.number != plan.number:
            raise BugError(f"step {plan.number} is completed but is not outstanding")
        events = self._take_events()
        self._completion.take(flight, result, now, events)
        self._flight = None
        return events

    def fail(self, plan: StepPlan, message: str, now: Seconds) -> Sequence[Event]:
        """The outstanding plan broke off: ends all that it works for; returns what happened.

        Raises `BugError` if the plan is not the outstanding one.
        """
        flight = self._flight
        if flight is None or flight.plan is not plan:
            raise BugError(f"step {plan.number} fails but is not outstanding")
        events = self._take_events()
        self._completion.fail(flight, message, now, events)
        self._flight = None
        return events

    def view(self, now: Seconds) -> WorkerView:
        """Counts of this moment. Does not mutate."""
        pool, running = self._pool, self._roster.running_requests
        return WorkerView(
            running=running,
            waiting=len(self._roster.requests) - running,
            free_pages=pool.free_pages,
            held_pages=pool.held_pages,
            cached_pages=pool.cached_pages,
            total_pages=pool.total_pages,
            peak_pages=self._admission.peak(self._roster.running.values()),
            prefix_queried_tokens_total=self._queried,
            prefix_hit_tokens_total=self._hits,
            preemptions_total=self._preemptions,
            steps_total=self._steps,
            computed_tokens_total=self._computed,
        )

    # ── taking requests ──────────────────────────────────────────────────────────────────────

    def _refusal_now(self, request: Request, now: Seconds) -> Rejected | None:
        if request.id in self._roster.requests:
            return Rejected(
                request=request.id,
                reason=RejectReason.DUPLICATE,
                message=f"a request with id {request.id} is already here",
                field="id",
            )
        if request.deadline is not None and request.deadline <= now:
            return Rejected(
                request=request.id,
                reason=RejectReason.DEADLINE,
                message="the deadline passed before the request could be taken",
                field="deadline",
            )
        if (waiting := self._full_queue(request.sampling.n)) is not None:
            return Rejected(
                request=request.id,
                reason=RejectReason.QUEUE_FULL,
                message=f"{waiting} requests wait already; try again later",
                retry_after_s=self._history.retry_after_s(now),
            )
        return None

    def _full_queue(self, n: int) -> int | None:
        """How many requests wait, if that is too many for one more of n sequences; else None.

        Who finds a place among the running ones in the next step does not count as waiting.
        """
        roster = self._roster
        if roster.fresh < self._config.max_queue:
            return None
        running = sum(1 + len(one.followers) for one in roster.running.values())
        starting, places = roster.starting(self._limits.max_sequences - running)
        waiting = roster.fresh - starting
        full = waiting >= self._config.max_queue and (waiting > 0 or places < n)
        return waiting if full else None

    def _state_of(self, request: Request, now: Seconds) -> RequestState:
        sampling, length = request.sampling, len(request.prompt)
        max_tokens = min(sampling.max_tokens or 0, self._limits.max_len - length)
        state = RequestState(
            request=request,
            arrival=self._arrivals,
            arrived_at=now,
            block_keys=self._parts.block_keys(
                identity=self._model.identity,
                numerics=self._model.numerics,
                salt=request.tenant_salt,
                block_tokens=self._kv.block_tokens,
            ),
            marks=EndMarks.of(request),
            max_tokens=max_tokens,
            worst_pages=self._memory.pages_for(length + max_tokens),
        )
        state.sequences = [
            SequenceState(
                owner=state,
                key=SequenceKey(request.id, index),
                tokens=[*request.prompt, *(request.resumed[index] if request.resumed else ())],
                prompt_len=length,
            )
            for index in range(sampling.n)
        ]
        return state

    def _end_resumed(self, state: RequestState, now: Seconds) -> None:
        """End at once those whose earlier attempts already said everything."""
        for sequence in state.sequences:
            reason = ending(sequence)
            if reason is not None:
                self._events.append(ended_event(sequence, reason))
                self._events_at = now
                self._roster.mark_ended(sequence, now)

    # ── starting, growing, giving way ────────────────────────────────────────────────────────

    def _secure_decodes(self) -> bool:
        """Room for every decode's next token, at the cost of others if need be: True then."""
        running = self._roster.running
        preempted = False
        while True:
            full = [one for one in running.values() if one.computed == one.capacity]
            if not full or self._memory.grow(full) is None:
                return preempted
            self._preempt(max(running.values(), key=lambda one: one.expendable))
            preempted = True

    def _preempt(self, sequence: SequenceState) -> None:
        self._roster.preempt(sequence)
        self._preemptions += 1
        request = sequence.owner.request
        self._events.append(
            Preempted(request=request.id, attempt=request.attempt, sequence=sequence.key.sequence)
        )

    def _start_waiting(self, now: Seconds) -> None:
        """Start waiting sequences in order until one has to wait."""
        roster = self._roster
        if not roster.changed:
            return
        crowd = Crowd()
        for sequence in roster.running.values():
            crowd.join(sequence)
        self.hold = None
        while (head := roster.queue.head) is not None:
            self.hold = self._admission.crowded(head, crowd) or self._take_pages(head, crowd)
            if self.hold is not None:
                break
            roster.start(head)
            crowd.join(head)
            if not head.owner.started:
                self._note_started(head, now)
        roster.changed = self.hold is not None and self.hold.reason is HoldReason.BUDGET

    def _take_pages(self, head: SequenceState, crowd: Crowd) -> Hold | None:
        """Reserve what the head of the queue needs, or say why it has to wait."""
        running = self._roster.running.values()
        match = self._memory.match(head)
        hold = self._admission.short_of_memory(head, match, running, crowd)
        short = self._memory.start(head, match) if hold is None else None
        if short is None:
            return hold
        message = f"{short.needed} pages are needed and {short.available} are available"
        if not running:
            raise BugError(f"{message}, yet nothing runs")
        return Hold(HoldReason.PAGES, message)

    def _note_started(self, sequence: SequenceState, now: Seconds) -> None:
        owner = sequence.owner
        owner.started = True
        self._roster.fresh -= 1
        self._queried += len(sequence.tokens)
        self._hits += sequence.computed
        self._events.append(
            Started(
                request=owner.request.id,
                attempt=owner.request.attempt,
                cached_tokens=min(sequence.computed, sequence.prompt_len),
                queued_s=now - owner.arrived_at,
            )
        )

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        self._events_at = None
        return events
