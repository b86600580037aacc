"""KV that is damaged while it is copied is found; what befalls the store is a miss, no more."""

from dataclasses import replace

import pytest

from antiphon.core.faults import (
    At,
    Boundary,
    CopyFault,
    Corrupt,
    Crash,
    Damage,
    Fault,
    FaultPlan,
    FillDisk,
    LinkFault,
    LoseBlocks,
    PartialWrite,
    Partition,
    Party,
    ProcessFault,
    StaleGeneration,
    StoreFault,
    When,
)
from antiphon.sim import Call, ClusterSetup, StoreSpec, VirtualCluster, WorkerSpec
from antiphon.sim.cluster_log import BadCopy
from antiphon.types import (
    Deliver,
    Fetched,
    KvConfig,
    Request,
    RequestId,
    Role,
    RouterConfig,
    SamplingParams,
    WorkerId,
)

DAMAGES = (Corrupt(), PartialWrite(), StaleGeneration())
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)


def handed_over(*faults: Fault, far: bool = False) -> VirtualCluster:
    workers = (
        WorkerSpec(id=WorkerId("p"), role=Role.PREFILL),
        WorkerSpec(id=WorkerId("d"), role=Role.DECODE),
    )
    stimuli = (call("r", 0.2),)
    setup = ClusterSetup(workers=workers, stimuli=stimuli, faults=plan(faults), far=far)
    return _rested(setup)


def fetched(*faults: Fault) -> VirtualCluster:
    """One worker computes and puts; then another one, which has nothing, fetches."""
    workers = (WorkerSpec(id=WorkerId("a")), WorkerSpec(id=WorkerId("b")))
    stimuli = (call("first", 0.2), call("other", 1.0), call("second", 1.0))
    return _rested(
        ClusterSetup(
            workers=workers,
            stimuli=stimuli,
            faults=plan(faults),
            store=StoreSpec(believed_tokens=8, lost_share=0.0),
        )
    )


def plan(faults: tuple[Fault, ...]) -> FaultPlan:
    return FaultPlan(0, faults, spared=("gateway",))


def call(name: str, at: float) -> Call:
    return Call(
        at=at,
        patience_s=30.0,
        request=Request(
            id=RequestId(name), prompt=(*PROMPT, 9), sampling=SamplingParams(max_tokens=4, seed=1)
        ),
    )


def _rested(setup: ClusterSetup) -> VirtualCluster:
    kv = KvConfig(page_tokens=2, block_tokens=4)
    router = RouterConfig(policy="round-robin")
    cluster = VirtualCluster(replace(setup, kv=kv, router=router))
    cluster.run_to_rest(limit_s=60.0)
    return cluster


def answers(cluster: VirtualCluster) -> int:
    return sum(1 for _ in cluster.log.of_type(Deliver))


def fetched_tokens(cluster: VirtualCluster) -> int:
    return sum(one.fetched_tokens for one in cluster.log.of_type(Fetched))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_page_that_is_damaged_between_two_workers_is_found(damage: Damage) -> None:
    cluster = handed_over(CopyFault(When(Boundary.READ, 2), damage))
    assert [one.hit for one in cluster.faults.injected] == [("d",)]
    assert sum(1 for _ in cluster.log.of_type(BadCopy)) == 1
    assert answers(cluster) == answers(handed_over())


def test_a_partition_keeps_pages_of_another_host_and_none_of_this_one() -> None:
    """One that is shorter than a lease is waited for; of a longer one the rest is computed."""
    whole = handed_over(far=True)
    assert computed(whole) == computed(handed_over())

    def parted(for_s: float, *, far: bool) -> VirtualCluster:
        return handed_over(LinkFault(When(Boundary.READ, 2), ("p", "d"), Partition(for_s)), far=far)

    assert computed(parted(0.5, far=False)) == computed(whole)
    for for_s in (0.5, 30.0):
        cluster = parted(for_s, far=True)
        assert cluster.faults.counts()["partition"] == 1
        assert answers(cluster) == answers(whole)
        assert (computed(cluster) == computed(whole)) is (for_s < 1.0)
        assert computed(cluster) >= computed(whole)


def test_pages_of_a_dead_owner_come_from_this_host_only() -> None:
    dies = ProcessFault(When(Boundary.READ, 2), "p", Crash(0.1))
    assert computed(handed_over(dies)) == computed(handed_over())
    far = handed_over(dies, far=True)
    assert computed(far) > computed(handed_over())
    assert answers(far) == answers(handed_over())


def computed(cluster: VirtualCluster) -> int:
    """Tokens that whoever decodes had to compute."""
    return cluster.views()[WorkerId("d")].computed_tokens_total


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("boundary", [Boundary.PUT, Boundary.FETCH])
def test_a_block_that_is_damaged_on_its_way_is_a_miss(boundary: Boundary, damage: Damage) -> None:
    quiet = fetched()
    cluster = fetched(CopyFault(When(boundary, 1), damage))
    assert len(cluster.faults.injected) == 1
    assert cluster.store.bad + cluster.store.damaged >= 1
    assert fetched_tokens(cluster) < fetched_tokens(quiet)
    assert answers(cluster) == answers(quiet) == 12


def test_nothing_is_put_while_the_disk_is_full() -> None:
    cluster = fetched(StoreFault(At(0.0), FillDisk(30.0)))
    assert cluster.store.fills == 1
    assert len(cluster.store) == 0
    assert fetched_tokens(cluster) == 0
    assert answers(cluster) == 12


def test_a_store_that_was_full_takes_blocks_again() -> None:
    assert len(fetched(StoreFault(At(0.0), FillDisk(0.1))).store) == len(fetched().store) > 0


def test_blocks_that_were_lost_are_computed_again() -> None:
    cluster = fetched(StoreFault(At(0.9), LoseBlocks()))
    assert cluster.faults.counts()["lose-blocks"] == cluster.store.losses == 1
    assert fetched_tokens(cluster) < fetched_tokens(fetched())
    assert answers(cluster) == 12


def test_an_empty_store_has_nothing_to_lose() -> None:
    assert fetched(StoreFault(At(0.0), LoseBlocks())).faults.injected == []


def test_whoever_dies_while_it_puts_leaves_no_block() -> None:
    """I26: what is not whole is not there."""
    cluster = fetched(ProcessFault(When(Boundary.PUT, 1), Party.SENDER, Crash(0.1)))
    assert cluster.faults.counts()["crash"] == 1
    assert cluster.store.bad >= 1
    assert answers(cluster) >= 12


def test_the_store_itself_is_no_process_that_could_die() -> None:
    cluster = fetched(ProcessFault(When(Boundary.PUT, 1), Party.RECEIVER, Crash(0.1)))
    assert cluster.faults.injected == []
