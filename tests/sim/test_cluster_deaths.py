"""Which requests a worker's death speaks against: those it had begun with."""

from collections.abc import Sequence

from antiphon.sim import Call, ClusterSetup, ShadowKv, VirtualCluster, WorkerParts, WorkerSpec
from antiphon.sim.explore.cluster_laws import (
    check_drained,
    check_ended,
    check_nothing_failed,
    check_tokens,
)
from antiphon.sim.explore.stories import stories_of
from antiphon.types import (
    ClusterConfig,
    KvConfig,
    Outcome,
    Request,
    RequestId,
    RequestRecord,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    StepPlan,
    WorkerId,
)

POISON, NEIGHBOUR, WAITING = map(RequestId, ("poison", "neighbour", "waiting"))
PATIENCE_S: Seconds = 60.0


def call(id: RequestId, at: Seconds, *, output: int = 8) -> Call:
    sampling = SamplingParams(max_tokens=output, seed=1, ignore_eos=True)
    request = Request(id=id, prompt=(1, 2, 3, 4), sampling=sampling)
    return Call(at=at, request=request, patience_s=PATIENCE_S)


def world(*calls: Call, places: int) -> ClusterSetup:
    """One worker, with room for so many sequences at a time."""
    return ClusterSetup(
        workers=(WorkerSpec(id=WorkerId("w"), pages=400),),
        stimuli=calls,
        cluster=ClusterConfig(heartbeat_s=0.02, lost_after_s=0.1),
        scheduler=SchedulerConfig(max_num_seqs=places, max_batched_tokens=32, max_queue=50),
        kv=KvConfig(page_tokens=4, block_tokens=4),
        max_model_len=1000,
    )


def records(cluster: VirtualCluster) -> dict[RequestId, RequestRecord]:
    """Of all requests, once all laws of the run are checked."""
    cluster.run_to_rest(limit_s=PATIENCE_S)
    check_drained(cluster)
    stories = stories_of(cluster.log)
    check_tokens(cluster.setup, stories)
    check_ended(stories)
    check_nothing_failed(cluster.log, stories)
    return {id: s.settle.record for id, s in stories.items() if s.settle is not None}


def test_a_request_that_waits_while_ten_workers_die_is_answered() -> None:
    """A chaos drill lost requests that had done nothing but wait for three dying workers."""
    cluster = VirtualCluster(world(call(NEIGHBOUR, 0.1, output=800), call(WAITING, 0.2), places=1))
    process = cluster.workers[WorkerId("w")].process
    for death in range(10):
        cluster.run_until(0.5 + 0.1 * death)
        assert cluster.views()[WorkerId("w")].waiting == 1
        process.crash()
        process.start()
    done = records(cluster)
    assert (done[WAITING].outcome, done[WAITING].attempts) == (Outcome.FINISHED, 11)
    assert done[NEIGHBOUR].outcome is Outcome.FINISHED, "it had a token from each that died"


def deadly(calls: Sequence[Call], places: int) -> VirtualCluster:
    """A cluster whose workers die of computing the poison, and start anew at once."""

    class Deadly(ShadowKv):
        def run(self, plan: StepPlan) -> None:
            super().run(plan)
            if any(chunk.request.id == POISON for chunk in plan.chunks):
                cluster.loop.call_at(cluster.loop.now, self.die)

        def die(self) -> None:
            (worker,) = cluster.workers.values()
            assert worker.life is not None and worker.life.memory is self
            worker.process.crash()
            worker.process.start()

    cluster = VirtualCluster(world(*calls, places=places), parts=WorkerParts(memory=Deadly))
    return cluster


def test_a_request_that_kills_its_workers_ends_after_three_and_who_waits_behind_it_lives() -> None:
    cluster = deadly([call(POISON, 0.1), call(WAITING, 0.1)], places=1)
    done = records(cluster)
    assert (done[POISON].outcome, done[POISON].attempts) == (Outcome.FAILED, 3)
    assert done[POISON].message == "3 attempts in a row broke off before a token came"
    assert (done[WAITING].outcome, done[WAITING].attempts) == (Outcome.FINISHED, 4)
    assert cluster.workers[WorkerId("w")].process.crashes == 3


def test_a_neighbour_with_a_token_outlives_the_poison() -> None:
    """It is in the same passes, but had a token before, and gets one in an attempt of its own."""
    cluster = deadly([call(NEIGHBOUR, 0.1, output=200), call(POISON, 0.3)], places=2)
    done = records(cluster)
    assert done[POISON].outcome is Outcome.FAILED
    assert done[NEIGHBOUR].output_tokens == 200
