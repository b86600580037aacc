"""Tenants that wait at one worker: a flood of one holds up another by little, and no longer.

Law: between its arrival and its start a request sees start, of each other tenant, less than what
its own tenant had waiting (itself included) and twice a quantum and the largest request.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler import Parts
from antiphon.core.scheduler.history import History
from antiphon.core.scheduler.roster import Roster
from antiphon.core.scheduler.sequence_memory import SequenceMemory
from antiphon.core.turns import TenantRounds
from antiphon.sim import ConstantStepTime, RunLog, ScriptedEngine, Submit, hashed_script, run_worker
from antiphon.testing.strategies import VOCAB_SIZE, WorkerSetup
from antiphon.types import (
    Admitted,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    Started,
    TokenGenerated,
)

STEP, LARGEST = 8, 20
LEAD = STEP + LARGEST
TENANTS = (b"a", b"b", b"c")


def worker(roster: type[Roster] = Roster) -> WorkerSetup:
    """Three sequences at a time, and memory for about four."""
    return WorkerSetup(
        config=SchedulerConfig(max_num_seqs=3, max_batched_tokens=STEP, max_queue=2000),
        kv=KvConfig(page_tokens=4, block_tokens=4, prefix_cache=False),
        pages=24,
        parts=Parts(roster=roster),
    )


def submits(comings: list[tuple[int, bytes, int, int]]) -> list[Submit]:
    """Of each: when it comes, of whom, and its tokens of prompt and output."""
    return [
        Submit(
            float(at),
            Request(
                id=RequestId(f"r{number}"),
                prompt=(1,) * prompt,
                sampling=SamplingParams(max_tokens=output, seed=number),
                tenant_salt=tenant,
            ),
        )
        for number, (at, tenant, prompt, output) in enumerate(comings)
    ]


def play(coming: list[Submit], roster: type[Roster] = Roster) -> RunLog:
    engine = ScriptedEngine(hashed_script(VOCAB_SIZE), ConstantStepTime(1.0))
    log = run_worker(worker(roster).build(), engine, coming)
    check(coming, log)
    return log


def check(coming: list[Submit], log: RunLog) -> None:
    asked = {one.request.id: one.request for one in coming}
    waiting: dict[RequestId, tuple[int, Counter[bytes]]] = {}
    """What its tenant had waiting when it came, and what of each had started by then."""
    started: Counter[bytes] = Counter()
    for _, what in log.happenings:
        one = asked[what.request]
        match what:
            case Admitted():
                own = sum(
                    len(asked[id].prompt)
                    for id in (*waiting, one.id)
                    if asked[id].tenant_salt == one.tenant_salt
                )
                waiting[one.id] = (own, started.copy())
            case Started():
                own, before = waiting.pop(one.id)
                for tenant in TENANTS:
                    more = started[tenant] - before[tenant]
                    if tenant != one.tenant_salt:
                        assert more < own + 2 * LEAD, f"{one.id} waited for {more} of {tenant!r}"
                started[one.tenant_salt] += len(one.prompt)
            case _:
                pass
    assert not waiting, "all start"
    assert sum(started.values()) == sum(len(one.prompt) for one in asked.values())


comings = st.lists(
    st.tuples(
        st.integers(0, 30), st.sampled_from(TENANTS), st.integers(1, LARGEST), st.integers(1, 6)
    ),
    min_size=5,
    max_size=60,
).map(lambda many: sorted(many, key=lambda one: one[0]))


@settings(deadline=None, max_examples=100)
@given(comings)
def test_nobody_waits_for_more_than_its_own_and_a_turn_of_each_other(
    coming: list[tuple[int, bytes, int, int]],
) -> None:
    play(submits(coming))


def flood() -> list[Submit]:
    """Sixty of one tenant at once; a moment later now and then one of another."""
    many = [(0, b"a", LARGEST, 4)] * 60
    few = [(5 + 30 * number, b"b", 4, 2) for number in range(5)]
    return submits(sorted([*many, *few], key=lambda one: one[0]))


def test_a_flood_is_passed_by_whoever_comes_now_and_then() -> None:
    log = play(flood())
    asked = {one.request.id: one.request.prompt for one in flood()}
    at = {what.request: at for at, what in log.happenings if isinstance(what, Started)}
    waits = [
        at[one.request.id] - one.at for one in flood() if one.request.tenant_salt == TENANTS[1]
    ]
    assert max(waits) <= 2 * LEAD / STEP + 4, "so many steps, of a run of hundreds"
    assert max(at.values()) > 150
    computed = [
        token_at - at[what.request]
        for token_at, what in log.happenings
        if isinstance(what, TokenGenerated) and not what.index and len(asked[what.request]) == 4
    ]
    assert len(computed) == 5
    assert max(computed) <= 2, "nobody who starts later is computed before it"


class ByArrival(Roster):
    """All turns are one turn."""

    def __init__(self, memory: SequenceMemory, history: History, turn_tokens: int) -> None:
        super().__init__(memory, history, 2**30)


class NeverCharges(TenantRounds):
    def serve(self, tenant: bytes, tokens: int) -> None:
        pass


class Forgetful(Roster):
    def __init__(self, memory: SequenceMemory, history: History, turn_tokens: int) -> None:
        super().__init__(memory, history, turn_tokens)
        self.queue = type(self.queue)(turn_tokens, NeverCharges)


@pytest.mark.parametrize("roster", [ByArrival, Forgetful])
def test_the_law_finds(roster: type[Roster]) -> None:
    with pytest.raises(AssertionError, match="waited for"):
        play(flood(), roster)


def test_one_tenant_is_served_as_if_there_were_no_turns() -> None:
    """By urgency and arrival, whatever a quantum is."""
    alone = submits([(number // 3, b"a", 1 + number % LARGEST, 3) for number in range(40)])
    turns, without = (
        [what.request for _, what in play(alone, kind).happenings if isinstance(what, Started)]
        for kind in (Roster, ByArrival)
    )
    assert turns == without == [one.request.id for one in alone]


# ── what a tenant that has most leaves to others ─────────────────────────────────────────────


def crowded(*later: tuple[int, str, int]) -> dict[RequestId, float]:
    """When each starts where 7/8 of 80 pages are taken at first: six parts by a, one by b.

    Of who comes later, for the last part: when, its name (its tenant's first), and its class.
    """
    setup = WorkerSetup(
        config=SchedulerConfig(max_num_seqs=32, max_batched_tokens=512, reserve_fraction=0.0),
        kv=KvConfig(page_tokens=4, block_tokens=4, prefix_cache=False),
        pages=80,
    )
    first = [(0, name, 0) for name in ("a0", "a1", "a2", "a3", "a4", "a5", "b0")]
    coming = [
        Submit(
            float(at),
            Request(
                id=RequestId(name),
                prompt=(1,) * 4,
                sampling=SamplingParams(max_tokens=36, min_tokens=36, seed=1),
                tenant_salt=name[:1].encode(),
                priority=priority,
            ),
        )
        for at, name, priority in [*first, *later]
    ]
    engine = ScriptedEngine(hashed_script(VOCAB_SIZE), ConstantStepTime(1.0))
    log = run_worker(setup.build(), engine, coming)
    return {what.request: at for at, what in log.happenings if isinstance(what, Started)}


def test_room_that_is_left_to_others_is_theirs_at_once() -> None:
    at = crowded((1, "a6", 0), (1, "a7", 0), (3, "b1", 0))
    assert at[RequestId("b1")] == 3.0, "nobody holds it up who may not have that room"
    assert at[RequestId("a6")] >= 36.0, "it leaves the last eighth"
    assert at[RequestId("a5")] == 0.0


def test_those_that_wait_already_get_it_too() -> None:
    at = crowded((1, "a6", 0), (1, "a7", 0), (1, "b1", 0))
    assert at[RequestId("b1")] == 1.0
    assert min(at[RequestId("a6")], at[RequestId("a7")]) >= 36.0


def test_room_is_not_left_to_a_class_that_comes_later() -> None:
    at = crowded((1, "a6", 0), (3, "b1", 1))
    assert at[RequestId("b1")] >= at[RequestId("a6")]


def test_a_tenant_that_is_alone_has_all() -> None:
    at = crowded((37, "a6", 0), *((37, f"a{number}", 0) for number in range(7, 14)))
    assert [at[RequestId(f"a{number}")] for number in range(6, 14)] == [37.0] * 8


def test_what_was_served_beyond_a_share_is_not_forgotten_when_nobody_waits() -> None:
    coming = submits([(0, b"a", LARGEST, 4), (8, b"a", 4, 2), (8, b"b", 4, 2)])
    order = [what.request for _, what in play(coming).happenings if isinstance(what, Started)]
    assert order == ["r0", "r2", "r1"]
