"""Virtual users: they call when they are due, whatever the cluster is busy with, and remember it.

What a call came to is read off the gateway's own commands, so a record says what a client saw.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from antiphon.core.faults import Node
from antiphon.types import (
    CallError,
    CallRecord,
    Deliver,
    DeliverRun,
    Drained,
    Outcome,
    Request,
    RequestId,
    RequestRecord,
    SamplingParams,
    Seconds,
    Settle,
    Slo,
    TokenGenerated,
    TokenId,
    TokensGenerated,
    TokenSource,
)
from antiphon.workload import AnswerOf

from ..cluster_gateway import ClusterGateway
from ..cluster_log import Arrived, ClusterLog, Entry, LifeBegan, LifeEnded, Turned
from ..cluster_setup import GATEWAY
from ..virtual_loop import VirtualLoop
from .token_sessions import EOS, TokenSession, TokenTurn, answer_tokens, packed

_ERRORS = {
    Outcome.REJECTED: CallError.OVERLOADED,
    Outcome.FAILED: CallError.SERVER_ERROR,
    Outcome.DEADLINE: CallError.TIMEOUT,
    Outcome.CANCELLED: CallError.TIMEOUT,
}
_SEEN = frozenset((Deliver, DeliverRun, Settle, Arrived, Drained, LifeBegan, Turned, LifeEnded))
"""What users look at, of all that a log is told."""
_KEPT_S: Seconds = 60.0
"""How long the answer of a call that failed is kept; who computes it even then gets end marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRules:
    """How users call.

    `max_tokens`: the longest answer that a request allows for, whatever it will be: schedulers and
    routers never see how long an answer really is. None: they see it, as they do where a benchmark
    asks for answers of fixed length. `patience_s`: None, they wait for ever. `all_stamps`: keep the
    time of each token, not of the first and the last only. `front_s`: what a call takes besides its
    steps, from being sent until the gateway's book has it as tokens, and its answer's way back.
    """

    slos: tuple[tuple[str, Slo], ...] = ()
    max_tokens: int | None = None
    patience_s: Seconds | None = None
    all_stamps: bool = True
    front_s: Seconds = 0.0


@dataclass(slots=True)
class _Session:
    plan: TokenSession
    answers: list[tuple[TokenId, ...] | None]
    left: list[int]
    """Turns that each turn still waits for."""


@dataclass(slots=True)
class _Call:
    number: int
    session: _Session
    turn: int
    due_at_s: Seconds
    stamps: list[Seconds] = field(default_factory=list)
    tokens: int = 0


class Users(ClusterLog):
    """Plays sessions against a gateway. `observe` gets each call's record when it is over.

    It is the cluster's log, so it hears of every command of the gateway; `attach` tells it where to
    call. `answers` are what engines answer open requests with.
    """

    def __init__(
        self,
        sessions: Iterator[TokenSession],
        rules: UserRules,
        observe: Callable[[CallRecord], None],
    ) -> None:
        super().__init__()
        self.answers: dict[RequestId, tuple[TokenId, ...]] = {}
        self.begun = self.open_calls = 0
        self.tried_again = self.wasted_tokens = 0
        """Calls of several attempts, and what the later ones computed again."""
        self.last_at: Seconds = 0.0
        """When the last session began."""
        self.all_begun = False
        self._sessions = sessions
        self._rules = rules
        self.slos = rules.slos
        self.on_drained: Callable[[Drained], None] = lambda _: None
        self.on_arrived: Callable[[Request], None] = lambda _: None
        self.on_began: Callable[[Node], None] = lambda _: None
        """Told of each new life of a process."""
        self._slos = dict(rules.slos)
        self._watchers: list[Callable[[CallRecord], None]] = [observe]
        self._open: dict[RequestId, _Call] = {}
        self._origin_s: Seconds = 0.0
        self._loop: VirtualLoop
        self._gateway: ClusterGateway

    def watch(self, observe: Callable[[CallRecord], None]) -> None:
        """One more who gets each record."""
        self._watchers.append(observe)

    def _observe(self, record: CallRecord) -> None:
        for watcher in self._watchers:
            watcher(record)

    def late(self, ttft_s: Seconds) -> Iterator[CallRecord]:
        """Open calls that have missed that target for the first token: each as if it had that
        token by now, and no other, so that nothing else is said of it."""
        now = self.now
        for id, call in self._open.items():
            first_at = call.stamps[0] if call.stamps else now
            if first_at - call.due_at_s > ttft_s:
                yield CallRecord(
                    number=call.number,
                    session=call.session.plan.number,
                    turn=call.turn,
                    slo_class=call.session.plan.slo_class,
                    due_at_s=call.due_at_s,
                    sent_at_s=call.due_at_s,
                    token_at_s=(first_at,),
                    ended_at_s=now,
                    output_tokens=1,
                    request_id=id,
                )

    def give_up(self) -> None:
        """Whoever still waits ends its call now, as one that took too long. Mutates."""
        for id in list(self._open):
            self._over(id, CallError.TIMEOUT, None)

    @property
    def now(self) -> Seconds:
        """Seconds since users began."""
        return self._loop.now - self._origin_s

    def attach(self, loop: VirtualLoop, gateway: ClusterGateway) -> None:
        """From now on sessions begin: this is their second 0. Called once."""
        self._loop, self._gateway, self._origin_s = loop, gateway, loop.now
        self._await_session()

    # ── sessions ─────────────────────────────────────────────────────────────────────────────

    def _await_session(self) -> None:
        plan = next(self._sessions, None)
        if plan is None:
            self.all_begun = True
            return
        self._at(max(plan.at_s, self.now), lambda: self._begin(plan))

    def _at(self, at: Seconds, action: Callable[[], None]) -> None:
        self._loop.call_at(self._origin_s + at, action)

    def _begin(self, plan: TokenSession) -> None:
        self.last_at = self.now
        turns = plan.turns
        session = _Session(plan, [None] * len(turns), [len(turn.after) for turn in turns])
        for number, turn in enumerate(turns):
            if not turn.after:
                self._plan_call(session, number, turn.pause_s)
        self._await_session()

    def _plan_call(self, session: _Session, turn: int, pause_s: Seconds) -> None:
        self.open_calls += 1
        at = self.now + pause_s
        if pause_s:
            self._at(at, lambda: self._call(session, turn, at))
        else:
            self._call(session, turn, at)

    def _call(self, session: _Session, number: int, due_at_s: Seconds) -> None:
        rules, turn = self._rules, session.plan.turns[number]
        call = _Call(self.begun, session, number, due_at_s)
        id = RequestId(f"c{self.begun}")
        self.begun += 1
        answer = answer_tokens(session.plan.number, number, max(0, turn.output_tokens - 1))
        session.answers[number] = answer
        self.answers[id] = (*answer, EOS)
        self._open[id] = call
        slos = self._slos
        request = Request(
            id=id,
            prompt=_prompt(session, turn),
            sampling=SamplingParams(
                max_tokens=turn.output_tokens if rules.max_tokens is None else rules.max_tokens,
                seed=0,
            ),
            eos_token_ids=(EOS,),
            slo=slos.get(session.plan.slo_class) or slos.get(""),
            priority=session.plan.priority,
            tenant_salt=session.plan.tenant.encode(),
        )
        if rules.front_s:
            at = self.now + rules.front_s
            self._at(at, lambda: self._gateway.submit(request, rules.patience_s))
        else:
            self._gateway.submit(request, rules.patience_s)

    def _over(self, id: RequestId, error: CallError | None, told: RequestRecord | None) -> None:
        call = self._open.pop(id)
        if error is None:
            del self.answers[id]
        else:  # a worker may go on with it before it hears that nobody waits any more
            self._at(self.now + _KEPT_S, lambda: self._forget(id))
        self.open_calls -= 1
        session, now = call.session, self.now
        plan = session.plan
        self._count_attempts(told)
        self._observe(
            CallRecord(
                number=call.number,
                session=plan.number,
                turn=call.turn,
                slo_class=plan.slo_class,
                model=plan.turns[call.turn].model,
                due_at_s=call.due_at_s,
                sent_at_s=call.due_at_s,
                token_at_s=tuple(call.stamps),
                only_ends=not self._rules.all_stamps,
                ended_at_s=now,
                prompt_tokens=None if told is None else told.prompt_tokens,
                output_tokens=call.tokens,
                cached_tokens=None if told is None else told.cached_tokens,
                counted_by=TokenSource.SIMULATION,
                status=200 if error is None else 503,
                error=error,
                message="" if told is None else told.message,
                request_id=id,
            )
        )
        if error is None:
            self._follow(session, call.turn)
        else:
            self._abandon(session, call.turn)

    def _count_attempts(self, told: RequestRecord | None) -> None:
        if told is not None and told.attempts > 1:
            kept = told.trail[1:] if len(told.trail) == told.attempts else told.trail
            self.tried_again += 1
            self.wasted_tokens += sum(one.computed_tokens for one in kept)

    def _forget(self, id: RequestId) -> None:
        self.answers.pop(id, None)

    def _follow(self, session: _Session, ended: int) -> None:
        for number, turn in enumerate(session.plan.turns):
            if ended in turn.after:
                session.left[number] -= 1
                if not session.left[number]:
                    self._plan_call(session, number, turn.pause_s)

    def _abandon(self, session: _Session, failed: int) -> None:
        """What comes after a call that failed is never sent, and missed all the same."""
        gone = {failed}
        now = self.now
        for number, turn in enumerate(session.plan.turns):
            if gone.isdisjoint(turn.after) or session.left[number] < 0:
                continue
            gone.add(number)
            session.left[number] = -len(session.plan.turns)
            self._observe(
                CallRecord(
                    number=self.begun,
                    session=session.plan.number,
                    turn=number,
                    slo_class=session.plan.slo_class,
                    due_at_s=now,
                    sent_at_s=now,
                    ended_at_s=now,
                    error=CallError.ABANDONED,
                )
            )
            self.begun += 1

    # ── what the gateway does ────────────────────────────────────────────────────────────────

    def note(self, at: Seconds, node: Node, what: Entry) -> None:
        """See `ClusterLog`: nothing is kept but what users see."""
        if type(what) not in _SEEN:
            return  # most of what happens
        match what:
            case Deliver(said) | DeliverRun(said):
                self._hear(said)
            case Settle(record):
                self._over(record.request, _ERRORS.get(record.outcome), record)
            case Arrived(request):
                self.on_arrived(request)
            case Drained():
                self.on_drained(what)
            case LifeBegan():
                self.on_began(node)
            case Turned(request):
                self._over(request.id, CallError.UNREACHABLE, None)
            case LifeEnded() if node == GATEWAY:
                for id in list(self._open):
                    self._over(id, CallError.CUT_SHORT, None)
            case _:
                pass

    def _hear(self, said: TokenGenerated | TokensGenerated) -> None:
        call, now = self._open[said.request], self.now
        if isinstance(said, TokenGenerated):
            call.tokens += 1
            self._stamp(call, (now,))
            return
        passes = len(said.tokens)
        call.tokens += passes
        if not self._rules.all_stamps or passes == 1:
            self._stamp(call, (now,))
            return
        step_s = said.seconds / (passes - 1)
        self._stamp(call, tuple(now - step_s * left for left in range(passes - 1, -1, -1)))

    def _stamp(self, call: _Call, times: tuple[Seconds, ...]) -> None:
        if self._rules.all_stamps or len(call.stamps) < 2:
            call.stamps += times
        else:
            call.stamps[-1] = times[-1]


def _prompt(session: _Session, turn: TokenTurn) -> tuple[TokenId, ...]:
    """Packed: whoever reads it does so by position and in slices, as of a tuple."""
    tokens = packed()
    for part in turn.parts:
        tokens.extend((session.answers[part.turn] or ()) if isinstance(part, AnswerOf) else part)
    return cast("tuple[TokenId, ...]", tokens or packed((EOS + 1,)))
