"""Calls as drawn, laws that any yardstick must keep, and servers whose knee is known exactly."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Attainment, Goodput, GoodputSearch, RunAt, Slos
from antiphon.core.goodput.estimate import in_batches
from antiphon.types import CallError, CallRecord, Slo

Yardstick = Callable[[Sequence[CallRecord], Slos], Attainment]
Server = Callable[[random.Random, float, float], Attainment]
"""A run's attainment at (chance, rate, seconds)."""

TIMES_S = st.integers(0, 40).map(lambda quarters: quarters / 4)
"""Coarse, so that targets are hit exactly, and missed by a little, often enough."""
LAW_SETTINGS = settings(
    deadline=None,
    max_examples=200,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
"""A control has to be found, not to be made small."""


def call(
    *,
    due: float = 0.0,
    ttft: float | None = 0.1,
    gaps: Sequence[float] = (0.02, 0.02, 0.02),
    tokens: int | None = None,
    error: CallError | None = None,
    slo_class: str = "",
    late: float = 0.0,
) -> CallRecord:
    """A call by its latencies; by default one token a piece. `ttft` None: no content came."""
    stamps: list[float] = []
    if ttft is not None:
        stamps.append(due + ttft)
        for gap in gaps:
            stamps.append(stamps[-1] + gap)
    return CallRecord(
        number=0,
        session=0,
        turn=0,
        slo_class=slo_class,
        due_at_s=due,
        sent_at_s=due + late,
        token_at_s=tuple(stamps),
        ended_at_s=stamps[-1] if stamps else due + 1.0,
        output_tokens=len(stamps) if tokens is None else tokens,
        error=error,
    )


@st.composite
def calls(draw: st.DrawFn) -> CallRecord:
    """Any call: served, of one token, without content, or failed before or after content."""
    gaps = draw(st.lists(st.floats(0.0, 1.0), max_size=4))
    ttft = draw(st.none() | TIMES_S)
    pieces = 0 if ttft is None else 1 + len(gaps)
    return call(
        due=draw(st.floats(0.0, 100.0)),
        ttft=ttft,
        gaps=gaps,
        tokens=draw(st.integers(pieces, 3 * pieces)),
        error=draw(st.none() | st.none() | st.sampled_from(CallError)),
        slo_class=draw(st.sampled_from(["", "chat", "code"])),
        late=draw(TIMES_S),
    )


slos = st.builds(
    Slo,
    ttft_s=st.floats(0.001, 10.0) | TIMES_S.filter(bool) | st.just(math.inf),
    tpot_s=st.floats(0.001, 2.0) | st.just(math.inf),
)
tables = st.lists(
    st.tuples(st.sampled_from(["", "chat", "code"]), slos), unique_by=lambda row: row[0]
)


def law_failing_helps_nobody(yardstick: Yardstick) -> None:
    """Whatever call fails, with whatever error: no share rises."""

    @given(st.lists(calls(), min_size=1, max_size=8), tables, st.data())
    @LAW_SETTINGS
    def check(records: list[CallRecord], table: Slos, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(records) - 1))
        failed = replace(records[place], error=data.draw(st.sampled_from(CallError)))
        before = yardstick(records, table)
        after = yardstick([*records[:place], failed, *records[place + 1 :]], table)
        assert after.both().value <= before.both().value
        assert after.ttft().value <= before.ttft().value
        assert after.tpot().value <= before.tpot().value

    check()


def law_a_late_client_changes_nothing(yardstick: Yardstick) -> None:
    """When calls were sent is no matter: they count from when they were due."""

    @given(st.lists(calls(), max_size=8), tables, TIMES_S)
    @LAW_SETTINGS
    def check(records: list[CallRecord], table: Slos, late: float) -> None:
        delayed = [replace(record, sent_at_s=record.sent_at_s + late) for record in records]
        assert yardstick(delayed, table) == yardstick(records, table)

    check()


def law_waiting_longer_helps_nobody(yardstick: Yardstick) -> None:
    """A call whose tokens and end all come later raises no share."""

    @given(st.lists(calls(), min_size=1, max_size=8), tables, st.data())
    @LAW_SETTINGS
    def check(records: list[CallRecord], table: Slos, data: st.DataObject) -> None:
        place, wait = data.draw(st.integers(0, len(records) - 1)), data.draw(st.floats(0.0, 100.0))
        slower = replace(
            records[place],
            token_at_s=tuple(at + wait for at in records[place].token_at_s),
            ended_at_s=records[place].ended_at_s + wait,
        )
        before = yardstick(records, table).ttft().value
        after = yardstick([*records[:place], slower, *records[place + 1 :]], table).ttft().value
        assert after <= before

    check()


LAWS = (
    law_failing_helps_nobody,
    law_a_late_client_changes_nothing,
    law_waiting_longer_helps_nobody,
)


def counted(met: int, of: int) -> Attainment:
    """So many calls, of which so many met both targets."""
    return Attainment(calls=of, met=met, ttft_met=met, tpot_met=met)


def in_order(met: Sequence[bool]) -> Attainment:
    """These calls, in order, as `Attainment.of` would count them."""
    batches = tuple(counted(sum(part), len(part)) for part in in_batches(met))
    return replace(counted(sum(met), len(met)), batches=batches)


def waits_at_most(rate: float, wait: float) -> float:
    """P(W <= wait) in an M/D/1 queue with a service time of 1 (Erlang 1909; Crommelin 1932)."""
    terms = 0.0
    for k in range(math.floor(wait) + 1):
        x = rate * (k - wait)
        terms += math.exp(-x) * x**k / math.factorial(k)
    return (1 - rate) * terms


def queue_knee(wait: float, goal: float) -> float:
    """The rate at which the share `goal` of calls waits at most so long."""
    low, high = 0.001, 0.999
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(middle, wait) >= goal else (low, middle)
    return low


def queue(wait: float, warmup_s: float = 100.0) -> Server:
    """An M/D/1 queue, call by call (Lindley's recursion), that starts empty."""

    def run(chance: random.Random, rate: float, duration_s: float) -> Attainment:
        gaps, end_s = chance.expovariate, warmup_s + duration_s
        now, waiting, met = gaps(rate), 0.0, list[bool]()
        while now < end_s:
            if now >= warmup_s:
                met.append(waiting <= wait)
            gap = gaps(rate)
            now += gap
            waiting = waiting + 1.0 - gap if gap < waiting + 1.0 else 0.0
        return in_order(met)

    return run


def logistic(knee: float, width: float, goal: float) -> Server:
    """Independent calls; their chance falls with log rate, and is `goal` at the knee."""

    def run(chance: random.Random, rate: float, duration_s: float) -> Attainment:
        of = round(rate * duration_s)
        odds = math.log(goal / (1 - goal)) - math.log(rate / knee) / width
        likely = 1 / (1 + math.exp(-max(-500.0, min(500.0, odds))))
        return counted(sum(chance.random() < likely for _ in range(of)), of)

    return run


def cliff(knee: float) -> Server:
    """Every call meets its targets up to the knee, none above it."""

    def run(_chance: random.Random, rate: float, duration_s: float) -> Attainment:
        of = max(1, round(rate * duration_s))
        return counted(of if rate <= knee else 0, of)

    return run


def searched(search: GoodputSearch, server: Server, seed: int = 0) -> tuple[Goodput, list[RunAt]]:
    """The result of a search against that server, and every run that it asked for."""
    chance, runs = random.Random(seed), list[RunAt]()
    while isinstance(step := search.next(), RunAt):
        runs.append(step)
        assert len(runs) <= 10_000, "it does not end"
        search.observe(step.rate_per_s, server(chance, step.rate_per_s, step.duration_s))
    return step, runs
