"""Failures that other systems had, by name, and a death or stall at every boundary."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from antiphon.core.faults import (
    At,
    Boundary,
    Crash,
    Cut,
    Fault,
    FaultPlan,
    LinkFault,
    Partition,
    Party,
    ProcessFault,
    Stall,
    When,
)
from antiphon.sim import GATEWAY, Call, ClusterSetup, GiveUp, VirtualCluster, WorkerSpec
from antiphon.sim.cluster_setup import Stimulus
from antiphon.sim.explore.cluster_laws import (
    check_drained,
    check_ended,
    check_leases,
    check_tokens,
)
from antiphon.sim.explore.stories import Story, stories_of
from antiphon.types import (
    ClusterConfig,
    Health,
    HealthChanged,
    KvConfig,
    Outcome,
    Request,
    RequestId,
    RequestRecord,
    Role,
    RouterConfig,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    WorkerId,
)

PREFILL, DECODE = WorkerId("prefill-0"), WorkerId("decode-0")
TTL_S: Seconds = 0.15


def call(number: int, at: Seconds = 0.1, *, prompt: int = 24, output: int = 8) -> Call:
    """No two prompts have a block in common."""
    request = Request(
        id=RequestId(f"r{number}"),
        prompt=(number % 16, *(1 + i % 7 for i in range(prompt - 1))),
        sampling=SamplingParams(max_tokens=output, seed=number),
    )
    return Call(at=at, request=request, patience_s=30.0)


def setup(
    stimuli: Sequence[Stimulus], *faults: Fault, prefill: int = 1, decode: int = 1, **changes
) -> ClusterSetup:
    """Prefill and decode apart; pages of 4 tokens; room for half a dozen requests each."""
    names = [(Role.PREFILL, n) for n in range(prefill)] + [(Role.DECODE, n) for n in range(decode)]
    plain = ClusterSetup(
        workers=tuple(
            WorkerSpec(id=WorkerId(f"{role.value}-{n}"), role=role, pages=64) for role, n in names
        ),
        stimuli=tuple(stimuli),
        faults=FaultPlan(1, faults),
        cluster=ClusterConfig(heartbeat_s=0.02, lost_after_s=0.1, lease_ttl_s=TTL_S),
        # Always apart: prefill first, then decode.
        router=RouterConfig(policy="round-robin", hold_s=0.02),
        scheduler=SchedulerConfig(max_num_seqs=8, max_batched_tokens=32, max_queue=50),
        kv=KvConfig(page_tokens=4, block_tokens=4),
    )
    return replace(plain, **changes)


def run(
    world: ClusterSetup, *, dead: Sequence[str] = ()
) -> tuple[VirtualCluster, dict[str, Story]]:
    """To rest, with all laws checked. `dead`: processes that don't come back."""
    cluster = VirtualCluster(world)
    if dead:
        cluster.run_until(20.0)
        for name in cluster.workers:
            assert cluster.worker_leftovers(name) == []
    else:
        cluster.run_to_rest(limit_s=60.0)
        check_drained(cluster)
    stories = stories_of(cluster.log)
    check_tokens(world, stories)
    check_ended(stories)
    check_leases(cluster.log)
    assert len(cluster.faults.injected) == len(world.faults.faults), "each fault really happened"
    return cluster, {str(id): story for id, story in stories.items()}


def record(story: Story) -> RequestRecord:
    assert story.settle is not None
    return story.settle.record


def all_finished(stories: dict[str, Story]) -> bool:
    return all(record(story).outcome is Outcome.FINISHED for story in stories.values())


def first(boundary: Boundary, whom: Party | str, action: Crash | Stall) -> ProcessFault:
    return ProcessFault(When(boundary, 1), whom, action)


def test_the_worlds_of_this_file_do_prefill_and_decode_apart() -> None:
    _, stories = run(setup([call(1)]))
    assert record(stories["r1"]).pulled_tokens == 24
    assert record(stories["r1"]).recomputed_tokens == 0
    assert record(stories["r1"]).trail[0].route.startswith("prefill-0 > decode-0")


# ── the lifetime of a transfer ───────────────────────────────────────────────────────────────


def test_decode_that_has_no_room_strands_no_prefill_blocks() -> None:
    """vllm 41269: decode rejects before admission, prefill's blocks are stranded."""
    crowded = SchedulerConfig(max_num_seqs=1, max_batched_tokens=32, max_queue=1)
    calls = [call(n, 0.1 + n / 20) for n in range(8)]
    _, stories = run(setup(calls, scheduler=crowded))
    refused = [record(s).outcome for s in stories.values()]
    assert Outcome.FINISHED in refused
    assert set(refused) <= {Outcome.FINISHED, Outcome.REJECTED}


@pytest.mark.parametrize("after_s", [0.045, 0.06, 0.1, 0.14])
def test_cancel_while_kv_moves_and_prefill_is_gone(after_s: Seconds) -> None:
    """vllm 46283, 46289: aborted in WAITING_FOR_REMOTE_KVS with the peer gone: leaks for ever."""
    fault = first(Boundary.READ, Party.SENDER, Crash(0.5))
    stimuli = [call(1), GiveUp(at=0.1 + after_s, request=RequestId("r1"))]
    _, stories = run(setup(stimuli, fault, page_pull_s=0.03))
    assert record(stories["r1"]).outcome is Outcome.CANCELLED


def test_pages_that_are_freed_and_used_anew_while_they_are_read() -> None:
    """vllm 21570: prefill frees on a timeout, decode reads recycled blocks: wrong tokens."""
    stall = ProcessFault(When(Boundary.READ, 2), DECODE, Stall(3 * TTL_S))
    calls = [call(1), *(call(n, 0.1 + 2 * TTL_S) for n in range(2, 7))]
    small = tuple(
        WorkerSpec(id=name, role=role, pages=40)
        for name, role in ((PREFILL, Role.PREFILL), (DECODE, Role.DECODE))
    )
    _, stories = run(setup(calls, stall, page_pull_s=0.01, workers=small))
    assert all_finished(stories)
    r1 = record(stories["r1"])
    assert r1.recomputed_tokens > 0 or r1.attempts > 1


def test_a_pull_that_takes_longer_than_the_lease_is_renewed() -> None:
    """vllm 35764, 38027: a static timeout is too short for some and too long for others."""
    world = setup([call(1)], page_pull_s=TTL_S / 2)
    _, stories = run(world)
    assert record(stories["r1"]).recomputed_tokens == 0
    assert record(stories["r1"]).pulled_tokens == 24


def test_a_cancel_at_every_moment() -> None:
    """vllm 25067: abort races with finish. dynamo 13088: a cancel before the first token."""
    outcomes = set()
    for step in range(60):
        at = 0.1 + step * 0.001
        stimuli = [call(1), call(2), GiveUp(at=at, request=RequestId("r1"))]
        _, stories = run(setup(stimuli))
        outcomes.add(record(stories["r1"]).outcome)
        assert record(stories["r2"]).outcome is Outcome.FINISHED
    assert outcomes == {Outcome.CANCELLED, Outcome.FINISHED}


def test_the_gateway_dies_between_offer_and_grant() -> None:
    """llm-d 1138: a window in the proxy in which nobody owns the blocks. Here leases run out."""
    cluster, stories = run(setup([call(1)], first(Boundary.OFFER, GATEWAY, Crash(0.3))))
    assert stories["r1"].broken
    assert cluster.gateway.process.lives == 2


def test_what_was_recomputed_is_on_record() -> None:
    """vllm 26896: decode silently computes the prompt again."""
    _, stories = run(setup([call(1)], first(Boundary.TAKE, PREFILL, Crash(0.5))))
    r1 = record(stories["r1"])
    assert r1.outcome is Outcome.FINISHED
    assert (r1.pulled_tokens, r1.recomputed_tokens) == (0, 24)


# ── death, hang, restart ─────────────────────────────────────────────────────────────────────


def test_decode_needs_no_restart_when_prefill_dies() -> None:
    """sglang 16903, 6215: decode needs a restart after prefill died."""
    death = first(Boundary.TAKE, PREFILL, Crash(None))
    world = setup([call(1), call(2, 1.0), call(3, 2.0)], death)
    cluster, stories = run(world, dead=[PREFILL])
    assert all_finished(stories)
    assert cluster.processes[DECODE].lives == 1


def test_a_peers_death_is_no_illness() -> None:
    """sglang 13657: a prefill crash fails decode's health check, and a healthy worker is killed."""
    cluster, stories = run(setup([call(1)], first(Boundary.READ, PREFILL, Crash(0.5))))
    assert all_finished(stories)
    changes = list(cluster.log.of_type(HealthChanged))
    assert [change for change in changes if change.worker == DECODE] == []
    assert HealthChanged(PREFILL, Health.LOST) in changes


@pytest.mark.parametrize("back_after_s", [0.0, 0.002, 0.01, 0.05])
def test_a_restarted_owner_is_somebody_else(back_after_s: Seconds) -> None:
    """vllm 49238: stale metadata after a restart under the same identity."""
    for boundary in (Boundary.GRANT_ANSWER, Boundary.ADOPT, Boundary.TAKE, Boundary.READ):
        world = setup([call(1), call(2, 0.12)], first(boundary, PREFILL, Crash(back_after_s)))
        _, stories = run(world)
        assert all_finished(stories)


def test_a_long_idle_pair_still_works() -> None:
    """sglang 9926: an idle pair of workers fails, its connections are stale."""
    cluster, stories = run(setup([call(1), call(2, 12.0)]))
    assert [record(stories[name]).pulled_tokens for name in ("r1", "r2")] == [24, 24]
    assert list(cluster.log.of_type(HealthChanged)) == []


@pytest.mark.parametrize("party", Party)
def test_a_prefill_that_never_starts_leaves_nobody_waiting(party: Party) -> None:
    """aibrix 2289: prefill fails, and decode waits for it."""
    fault = ProcessFault(When(Boundary.ADD, 1), PREFILL, Crash(0.3))
    cut = LinkFault(When(Boundary.ANSWER, 1), (PREFILL, GATEWAY), Cut())
    _, stories = run(setup([call(1)], fault if party is Party.RECEIVER else cut))
    assert all_finished(stories)


def test_workers_that_come_and_go_all_the_time() -> None:
    """dynamo 13088, 1074: worker churn; some requests hang until the client hangs up."""
    names = [f"{role}-{n}" for role in ("prefill", "decode") for n in range(2)]
    deaths = [
        ProcessFault(At(0.2 + 0.11 * number), names[number * 3 % 4], Crash(0.05))
        for number in range(24)
    ]
    calls = [call(n, 0.1 + n * 0.12, output=16) for n in range(20)]
    world = setup(calls, *deaths, prefill=2, decode=2)
    slow = tuple(replace(worker, step_s=0.01) for worker in world.workers)
    _, stories = run(replace(world, workers=slow))
    assert all_finished(stories)
    assert sum(record(story).attempts for story in stories.values()) >= 25


def test_a_worker_that_comes_back_from_a_stop_does_no_harm() -> None:
    """It was given up meanwhile: it ends all it has and joins under another name."""
    stop = first(Boundary.PULLED, DECODE, Stall(1.0))
    cluster, stories = run(setup([call(1, output=16)], stop, decode=2))
    assert all_finished(stories)
    assert record(stories["r1"]).attempts > 1
    life = cluster.workers[DECODE].life
    assert life is not None
    assert life.incarnation == "decode-0#1.2"


def test_an_owner_that_is_cut_off_from_the_gateway_alone() -> None:
    """Its streams to takers live on; what it offered is gone with the life that offered it."""
    cut = LinkFault(When(Boundary.READ, 1), (PREFILL, GATEWAY), Cut())
    _, stories = run(setup([call(1), call(2, 0.11)], cut, page_pull_s=0.01))
    assert all_finished(stories)


def test_ten_cancelled_long_prompts_do_not_delay_the_next() -> None:
    """dynamo 14775: ten cancelled prefills block the next request for a minute."""

    def wait_s(cancelled: int) -> Seconds:
        stimuli: list[Stimulus] = []
        for number in range(1, cancelled + 1):
            stimuli.append(call(number, 0.1, prompt=48))
            stimuli.append(GiveUp(at=0.1045, request=RequestId(f"r{number}")))
        roomy = tuple(
            WorkerSpec(id=name, role=role, pages=640, step_s=0.004)
            for name, role in ((PREFILL, Role.PREFILL), (DECODE, Role.DECODE))
        )
        _, stories = run(setup([*stimuli, call(15, 0.105)], workers=roomy))
        done = record(stories["r15"])
        assert done.first_token_at is not None
        return done.first_token_at - done.arrived_at

    one_chunk_s = 0.004
    assert wait_s(10) <= wait_s(0) + one_chunk_s + 0.004  # and the cancels' time on the way


# ── everywhere ───────────────────────────────────────────────────────────────────────────────

BUSY = [call(n, 0.1 + n * 0.004, output=6) for n in range(4)]
EVERYWHERE = [one for one in Boundary if one not in (Boundary.RELEASE, Boundary.ABORT)]


@pytest.mark.parametrize("party", Party)
@pytest.mark.parametrize("boundary", EVERYWHERE)
def test_a_worker_dies_or_stops_at_every_boundary(boundary: Boundary, party: Party) -> None:
    """Whoever of the two is a worker, at the first and a later crossing, for short and long."""
    for occurrence in (1, 3):
        for action in (Crash(0.01), Crash(0.4), Stall(0.05), Stall(0.4)):
            fault = ProcessFault(When(boundary, occurrence), party, action)
            world = setup(BUSY, fault, prefill=2, decode=2, page_pull_s=0.004)
            spared = replace(world, faults=FaultPlan(1, (fault,), spared=(GATEWAY,)))
            cluster = VirtualCluster(spared)
            cluster.run_to_rest(limit_s=60.0)
            check_drained(cluster)
            stories = stories_of(cluster.log)
            check_tokens(spared, stories)
            check_leases(cluster.log)
            assert all_finished({str(id): story for id, story in stories.items()})


@pytest.mark.parametrize("boundary", EVERYWHERE)
def test_a_link_breaks_or_falls_silent_at_every_boundary(boundary: Boundary) -> None:
    for occurrence in (1, 3):
        for action in (Cut(), Partition(0.02), Partition(0.4)):
            fault = LinkFault(When(boundary, occurrence), None, action)
            world = setup(BUSY, fault, prefill=2, decode=2, page_pull_s=0.004)
            cluster = VirtualCluster(world)
            cluster.run_to_rest(limit_s=60.0)
            check_drained(cluster)
            stories = stories_of(cluster.log)
            check_tokens(world, stories)
            check_leases(cluster.log)
            assert all_finished({str(id): story for id, story in stories.items()})
