"""Of a life that is over nothing stays: not with its gateway, not with the workers it spoke to."""

import gc
from collections.abc import Callable, Iterator
from itertools import cycle

from antiphon.core.faults import Node
from antiphon.sim import ClusterSetup, VirtualCluster, WorkerSpec
from antiphon.sim.cluster_log import ClusterLog, Entry
from antiphon.types import (
    ClusterConfig,
    KvConfig,
    Request,
    RequestId,
    Role,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    Settle,
    WorkerId,
)

PREFILL, DECODE = WorkerId("p"), WorkerId("d")


class Settled(ClusterLog):
    """Keeps nothing but how many requests were settled."""

    count = 0

    def note(self, at: Seconds, node: Node, what: Entry) -> None:
        self.count += isinstance(what, Settle)


def cluster() -> VirtualCluster:
    """A prompt is computed on one worker, and its answer on the other."""
    setup = ClusterSetup(
        workers=(
            WorkerSpec(id=PREFILL, role=Role.PREFILL, pages=64),
            WorkerSpec(id=DECODE, role=Role.DECODE, pages=64),
        ),
        stimuli=(),
        cluster=ClusterConfig(heartbeat_s=0.02, lost_after_s=0.1),
        scheduler=SchedulerConfig(max_num_seqs=8, max_batched_tokens=32),
        kv=KvConfig(page_tokens=4, block_tokens=4),
    )
    return VirtualCluster(setup, log=Settled())


def requests() -> Iterator[Request]:
    number = 0
    while True:
        number += 1
        yield Request(
            id=RequestId(f"r{number}"),
            prompt=(1, 2, 3, 4, 5, number % 7),
            sampling=SamplingParams(max_tokens=6, seed=1, ignore_eos=True),
        )


def nothing(_: VirtualCluster) -> None:
    """Nobody keeps anything."""


def growth(
    deaths: int, victims: tuple[Node, ...], keep: Callable[[VirtualCluster], None] = nothing
) -> int:
    """How many objects more there are after so many deaths, at work, of these by turns."""
    world, calls, turns = cluster(), requests(), cycle(victims)

    def die(times: int) -> None:
        for _ in range(times):
            for request in (next(calls), next(calls)):
                world.gateway.submit(request, 2.0)
            world.run_until(world.loop.now + 0.013)
            keep(world)
            process = world.processes[next(turns)]
            process.crash()
            world.run_until(world.loop.now + 0.005)
            process.start()
            world.run_until(world.loop.now + 0.04)

    def at_rest() -> int:
        world.run_to_rest(limit_s=world.loop.now + 10.0)
        world.run_until(world.loop.now + 11.0)  # what the dead had planned has its time, in vain
        return len(gc.get_objects())

    world.run_until(0.1)
    die(20)
    gc.collect()
    gc.disable()  # what only a search for cycles finds stays in memory for long
    try:
        before = at_rest()
        die(deaths)
        return at_rest() - before
    finally:
        gc.enable()


def test_a_thousand_deaths_leave_no_growth() -> None:
    assert growth(1000, (PREFILL, DECODE, PREFILL, "gateway", DECODE)) < 100


def test_control_what_somebody_keeps_of_each_life_is_seen() -> None:
    kept: list[object] = []

    def keep(world: VirtualCluster) -> None:
        life = world.workers[PREFILL].life
        assert life is not None
        kept.append(life.scheduler)

    assert growth(100, (PREFILL,), keep) > 1000


def test_a_process_forgets_whom_a_stream_no_longer_needs_to_tell() -> None:
    told: list[int] = []
    world = cluster()
    process = world.processes["gateway"]

    def first() -> None:
        told.append(1)

    process.at_crash(first)
    process.at_crash(lambda: told.append(2))
    process.not_at_crash(first)
    process.not_at_crash(first)
    process.crash()
    assert told == [2]
