"""Users at any rate: the same sessions, sooner or later after each other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from math import ceil, inf
from typing import Protocol

from antiphon.errors import UsageError
from antiphon.types import Seconds
from antiphon.workload import (
    AnswerOf,
    AnyArrivals,
    OwnTimes,
    Workload,
    calls_per_session,
    parse_arrivals,
    timed,
)

from ..fleet.token_sessions import TokenSession, TokenTurn, answer_tokens, token_sessions

_SAMPLE_CALLS = 400
_BLOCK_TOKENS = 64
_LATE = 0.9


class UsersAtRate(Protocol):
    """What users do, at any rate of calls a second. Equal arguments give equal sessions."""

    def sessions(
        self, calls_per_s: float, seed: int, duration_s: Seconds
    ) -> Iterator[TokenSession]:
        """Sessions that begin before `duration_s`, in order of time."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadUsers:
    """A workload of `antiphon bench`, with arrivals of the kind that `arrivals` names."""

    workload: Workload
    arrivals: str = "poisson"

    def sessions(
        self, calls_per_s: float, seed: int, duration_s: Seconds
    ) -> Iterator[TokenSession]:
        """See `UsersAtRate`."""
        calls = _calls_per_session(self.workload)
        arrivals: AnyArrivals = parse_arrivals(self.arrivals, calls_per_s / calls)
        if isinstance(arrivals, OwnTimes):
            return token_sessions(timed(self.workload, arrivals, seed=seed, duration_s=duration_s))
        # Who comes when depends on the rate, what they say does not: it is made once a process.
        times = takewhile(lambda at_s: at_s < duration_s, arrivals.times(seed))
        said = _said(self.workload, seed)
        return (replace(said(place), at_s=at_s) for place, at_s in enumerate(times))


class _Said:
    """The sessions of a workload as tokens, made as they are asked for, each once."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._source = token_sessions(timed(workload, parse_arrivals("constant", 1.0), seed=seed))
        self._made: list[TokenSession] = []

    def __call__(self, place: int) -> TokenSession:
        while len(self._made) <= place:
            session = next(self._source, None)
            if session is None:
                raise UsageError(
                    f"{self._workload.description}: has only {len(self._made)} sessions, too few "
                    f"to find a rate by: let it repeat, or use its own times (trace)"
                )
            self._made.append(session)
        return self._made[place]


@lru_cache(maxsize=4)
def _calls_per_session(workload: Workload) -> float:
    return calls_per_session(workload, seed=0)


@lru_cache(maxsize=4)
def _said(workload: Workload, seed: int) -> _Said:
    return _Said(workload, seed)


@dataclass(frozen=True, slots=True)
class CallShape:
    """Calls as closed forms see them, in tokens; means but for what is said.

    `uncached`: of a prompt, what no cache that is large enough would have. `late_input`: one
    prompt in ten is longer. `longest`: prompt and answer of the longest call.
    """

    input: float
    output: float
    uncached: float
    late_input: int
    late_uncached: int
    late_output: int
    longest: int
    longest_output: int

    @property
    def context(self) -> float:
        """Half way through an answer."""
        return self.input + self.output / 2


def call_shape(users: UsersAtRate, seed: int = 0) -> CallShape:
    """Of the first calls. Raises `UsageError` if there is none."""
    inputs: list[int] = []
    outputs: list[int] = []
    uncached: list[int] = []
    seen = set[int]()
    for session in users.sessions(1.0, seed, inf):
        for turn in session.turns:
            prompt = _prompt(session, turn)
            inputs.append(len(prompt))
            outputs.append(max(1, turn.output_tokens))
            uncached.append(_not_seen(prompt, seen))
        if len(inputs) >= _SAMPLE_CALLS:
            break
    if not inputs:
        raise UsageError("the workload has no calls: there is nothing to plan for")
    calls = len(inputs)
    return CallShape(
        input=sum(inputs) / calls,
        output=sum(outputs) / calls,
        uncached=sum(uncached) / calls,
        late_input=_late(inputs),
        late_uncached=_late(uncached),
        late_output=_late(outputs),
        longest=max(map(sum, zip(inputs, outputs, strict=True))),
        longest_output=max(outputs),
    )


def _late(lengths: list[int]) -> int:
    return sorted(lengths)[max(0, ceil(_LATE * len(lengths)) - 1)]


def _prompt(session: TokenSession, turn: TokenTurn) -> tuple[int, ...]:
    prompt: list[int] = []
    for part in turn.parts:
        if isinstance(part, AnswerOf):
            tokens = session.turns[part.turn].output_tokens
            prompt += answer_tokens(session.number, part.turn, max(0, tokens - 1))
        else:
            prompt += part
    return tuple(prompt) or (1,)


def _not_seen(prompt: tuple[int, ...], seen: set[int]) -> int:
    """Tokens beyond the whole blocks that an earlier prompt began with; at least 1. Mutates."""
    known = path = 0
    matching = True
    for begin in range(0, len(prompt) - _BLOCK_TOKENS + 1, _BLOCK_TOKENS):
        path = hash((path, prompt[begin : begin + _BLOCK_TOKENS]))
        if path not in seen:
            matching = False
            seen.add(path)
        elif matching:
            known = begin + _BLOCK_TOKENS
    return max(1, len(prompt) - known)
