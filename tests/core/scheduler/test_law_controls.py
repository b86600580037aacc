"""Negative controls: each law finds a part that breaks it, by its own number."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from test_scheduler_laws import (
    SCRIPT,
    SETTINGS,
    Workload,
    check_alone,
    checks,
    digest,
    foreseen,
    run,
)

from antiphon.core.kv import BlockKeys, PagePool
from antiphon.core.scheduler import Parts, Scheduler, batching, completion, sequence_memory
from antiphon.core.scheduler.history import History
from antiphon.errors import BugError
from antiphon.sim import (
    ConstantStepTime,
    ScriptedEngine,
    ShadowKv,
    ShadowStore,
    StoreSide,
    Submit,
    run_worker,
)
from antiphon.testing import laws
from antiphon.testing.strategies import WorkerSetup, worker_setups, workloads
from antiphon.types import (
    FinishReason,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    SchedulerEvent,
    SequenceEnded,
    Started,
)

pytestmark = pytest.mark.no_cover
"""They run what the laws run, and longer."""


class Deaf(completion.Completion):
    """Reports no end."""

    def take(self, flight, result, now, events) -> None:
        super().take(flight, result, now, events)
        events[:] = [event for event in events if not isinstance(event, SequenceEnded)]


class Stutters(completion.Completion):
    """Says everything twice."""

    def take(self, flight, result, now, events) -> None:
        super().take(flight, result, now, events)
        events += events


class Tardy:
    """A scheduler that says who starts when the first step for it is over."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._late: list[SchedulerEvent] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def expire(self, now) -> list[SchedulerEvent]:
        said = self._scheduler.expire(now)
        self._late += (event for event in said if isinstance(event, Started))
        return [event for event in said if not isinstance(event, Started)]

    def complete(self, plan, result, now) -> list[SchedulerEvent]:
        late, self._late = self._late, []
        return [*late, *self._scheduler.complete(plan, result, now)]


def test_i6_finds_who_says_too_late_who_starts() -> None:
    setup = WorkerSetup(
        config=SchedulerConfig(), kv=KvConfig(page_tokens=4, block_tokens=4), pages=8
    )
    asked = Request(id=RequestId("r"), prompt=(1, 2), sampling=SamplingParams(max_tokens=2, seed=0))
    for worker, late in ((setup.build(), False), (Tardy(setup.build()), True)):
        engine = ScriptedEngine(SCRIPT, ConstantStepTime(0.02), ShadowKv(setup.kv.page_tokens))
        log = run_worker(cast(Scheduler, worker), engine, [Submit(0.0, asked)])
        with pytest.raises(laws.LawBroken, match="I6: r was computed") if late else nullcontext():
            laws.check_started(log, [asked])


class ForgetfulPool(PagePool):
    """Loses a page of every release."""

    def release(self, pages) -> None:
        super().release(pages[1:])


class Hoards(sequence_memory.SequenceMemory):
    """Keeps a page of whoever leaves."""

    def release(self, sequence) -> None:
        sequence.table = sequence.table[:-1]
        super().release(sequence)


class ParentlessKeys(BlockKeys):
    """Names a block by its own tokens only."""

    def key(self, parent, tokens, extra=b"") -> bytes:
        return super().key(None, tokens, extra)


class SharesIncompleteBlocks(sequence_memory.SequenceMemory):
    """A fork reads, and writes, the incomplete block of its source."""

    def fork(self, leader, follower) -> None:
        super().fork(leader, follower)
        first = leader.prompt_len // self.block_tokens * self.pool.pages_per_block
        follower.table[first:], tail = (
            leader.table[first : len(follower.table)],
            follower.table[first:],
        )
        self.pool.share(follower.table[first:])
        self.pool.release(tail)
        self.copied(follower)
        follower.next_commit = sequence_memory.NEVER  # the pool would notice a second name


class ForgetsCopies(sequence_memory.SequenceMemory):
    """A fork has pages of its own that nobody fills."""

    def copies(self, sequence) -> list:
        return []


class CountsTooMuch(sequence_memory.SequenceMemory):
    """After a prefix hit it takes more for computed than was found."""

    def start(self, sequence, match):
        answer = super().start(sequence, match)
        sequence.computed = min(sequence.length - 1, sequence.computed + len(match.pages))
        return answer


def spendthrift(running, memory, *, budget, **others):
    return batching.batch(running, memory, budget=budget + 8, **others)


MUTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "reports no end": ("I1", {"completion": Deaf}),
    "says tokens twice": ("I2", {"completion": Stutters}),
    "loses pages": ("I3", {"pool": ForgetfulPool}),
    "keeps pages": ("I4", {"memory": Hoards}),
    "keys without parent": ("I5", {"block_keys": ParentlessKeys}),
    "shares incomplete blocks": ("I5", {"memory": SharesIncompleteBlocks}),
    "forgets copies": ("I5", {"memory": ForgetsCopies}),
    "counts too much as computed": ("I5", {"memory": CountsTooMuch}),
    "ignores the budget": ("I10", {"batch": spendthrift}),
}


def broken_laws(setup: WorkerSetup, workload: Workload) -> set[str]:
    """The numbers of all laws that one run breaks; not what the parts themselves noticed."""
    worker = setup.build()
    engine = ScriptedEngine(SCRIPT, ConstantStepTime(0.02), ShadowKv(setup.kv.page_tokens))
    try:
        log = run_worker(worker, engine, workload, max_actions=20_000)
    except BugError as error:
        return {"I5"} & {broken_law(error)}
    broken: set[str] = set()
    for check in checks(setup, workload, log, worker.view(1e9)):
        try:
            check()
        except laws.LawBroken as error:
            broken.add(broken_law(error))
    return broken


def broken_law(error: BugError) -> str:
    """The number that it begins with; any other text if it is not of a law."""
    return str(error).partition(":")[0]


@pytest.mark.parametrize("name", MUTANTS)
def test_the_law_of_that_number_finds(name: str) -> None:
    law, mutant = MUTANTS[name]

    @settings(
        SETTINGS,
        max_examples=4000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(worker_setups(), workloads())
    def search(setup: WorkerSetup, workload: Workload) -> None:
        faulty = replace(setup, parts=replace(setup.parts, **mutant))
        assert law not in broken_laws(faulty, workload), f"{law} is broken"

    with pytest.raises(AssertionError, match=f"^{law} is broken"):
        search()


class PutsUnfenced(StoreSide):
    """Copies what lies in a block's pages by then, whosever it is."""

    def put(self, block) -> bool:
        self._store.put(block.key, tuple(self._memory.content(one.page) for one in block.pages))
        return True


class TakesLostForGood(StoreSide):
    """Says of each block that it has come."""

    def copy(self, fetch) -> tuple[bool, ...]:
        return (True,) * len(super().copy(fetch))


@pytest.mark.parametrize("side", [PutsUnfenced, TakesLostForGood])
def test_i5_finds_a_store_that_gives_other_kv(side: type[StoreSide]) -> None:
    """LMCache 4385, vLLM 45704: what was stored while it changed came back as somebody's text."""

    @settings(SETTINGS, max_examples=4000, derandomize=True, database=None, phases=[Phase.generate])
    @given(worker_setups(), workloads(fetching=True))
    def search(setup: WorkerSetup, workload: Workload) -> None:
        store = ShadowStore()
        for _ in range(2):
            try:
                run(setup, workload, store=store, store_side=side, put_s=1.0)
            except BugError as error:
                assert broken_law(error) != "I5", "I5 is broken"

    with pytest.raises(AssertionError, match=r"^I5 is broken"):
        search()


def test_i7_finds_a_part_that_remembers_an_earlier_run() -> None:
    class Moody(History):
        asked = 0

        def predict(self, generated: int, cap: int) -> int:
            Moody.asked += 1
            return max(generated + 1, cap if Moody.asked % 3 else 1)

    @settings(SETTINGS, max_examples=4000, derandomize=True, database=None, phases=[Phase.generate])
    @given(worker_setups(), workloads())
    def search(setup: WorkerSetup, workload: Workload) -> None:
        faulty = replace(setup, parts=replace(setup.parts, history=Moody))
        assert digest(faulty, workload) == digest(faulty, workload)

    with pytest.raises(AssertionError):
        search()


def test_i9_finds_an_end_that_comes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(sequence) -> FinishReason:
        """Forgets min_tokens."""
        stopped = sequence.newest in sequence.owner.marks.ids
        return FinishReason.STOP if stopped else FinishReason.LENGTH

    monkeypatch.setattr(completion, "ending", hasty)

    @settings(SETTINGS, max_examples=4000, derandomize=True, database=None, phases=[Phase.generate])
    @given(worker_setups(), workloads(patient=True))
    def search(setup: WorkerSetup, workload: Workload) -> None:
        check_alone(setup, workload)

    with pytest.raises(AssertionError):
        search()


def test_i11_finds_a_scheduler_that_knows_the_future() -> None:
    @settings(
        SETTINGS,
        max_examples=2000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    @given(worker_setups(), workloads())
    def search(setup: WorkerSetup, workload: Workload) -> None:
        worlds = iter([2, 24])

        class Clairvoyant(History):
            def __init__(self, **facts) -> None:
                super().__init__(**facts)
                self.truth = next(worlds)

            def predict(self, generated: int, cap: int) -> int:
                return max(generated + 1, min(cap, self.truth))

        knowing = replace(setup, parts=Parts(history=Clairvoyant))
        assert not foreseen(knowing, workload, ends_at=2)

    with pytest.raises(AssertionError):
        search()
