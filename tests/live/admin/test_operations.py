"""What an operator asks is done in order, once, or refused with a reason."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from scripted_fleet import ScriptedFleet, child

from antiphon.errors import ClientError, PeerError
from antiphon.live.admin.operations import Operations
from antiphon.live.admin.status import StoreNow, StoreStatus, TierUse, WorkerStatus
from antiphon.live.supervisor.messages import (
    ChildState,
    EndWorker,
    KeepDrained,
    KeepRole,
    Restart,
)
from antiphon.types import Role, Tier, TierStats

STATS = (TierStats(tier=Tier.HOST, blocks=3, used_bytes=20, limit_bytes=40),)


def made(fleet: ScriptedFleet, start_timeout_s: float = 60.0) -> tuple[Operations, list[Any]]:
    told: list[Any] = []
    operations = Operations("tiny", told.append, start_timeout_s)
    operations.attach(fleet)
    return operations, told


async def test_status_joins_what_gateway_and_supervisor_know() -> None:
    fleet = ScriptedFleet(**{"decode-0": Role.DECODE, "prefill-10": Role.PREFILL})
    operations, _ = made(fleet)
    operations.children(
        [
            child("prefill-10", Role.PREFILL),
            child("prefill-2", Role.PREFILL, "waiting", "killed by SIGKILL"),
            child("decode-1", Role.DECODE),
        ]
    )
    status = operations.status()
    assert (status.model, status.state, status.open_requests) == ("tiny", "ready", 3)
    rows = {worker.id: worker for worker in status.workers}
    assert list(rows) == ["prefill-2", "prefill-10", "decode-0", "decode-1"]
    joined, dead, lost = rows["prefill-10"], rows["prefill-2"], rows["decode-1"]
    assert (joined.pid, joined.running, joined.waiting, joined.kv_used) == (1001, 2, 1, 0.3)
    assert (joined.health, joined.incarnation, joined.life) == ("joined", "prefill-10.1", 2)
    assert (dead.health, dead.problem, dead.running) == ("waiting", "killed by SIGKILL", None)
    assert (lost.health, lost.incarnation) == ("lost", None)


async def test_a_drained_worker_stays_drained() -> None:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, told = made(fleet)
    assert (await operations.drain("a", 7)).health == "draining"
    assert fleet.calls == ["drain a 7"]
    assert told == [KeepDrained("a", True)]


async def test_a_drain_that_goes_wrong_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object) -> None:
        raise PeerError("it was lost")

    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    monkeypatch.setattr(fleet, "drain", lost)
    operations, told = made(fleet)
    with pytest.raises(PeerError, match="it was lost"):
        await operations.drain("a", 7)
    assert told == [KeepDrained("a", True), KeepDrained("a", False)]


async def test_a_flip_drains_flips_and_resumes_and_is_kept_over_restarts() -> None:
    fleet = ScriptedFleet(a=Role.DECODE, b=Role.MIXED)
    operations, told = made(fleet)
    worker = await operations.set_role("a", Role.PREFILL, 5)
    assert (worker.role, worker.health) == (Role.PREFILL, "joined")
    assert fleet.calls == ["drain a 5", "role a prefill", "resume a"]
    assert told == [KeepRole("a", Role.PREFILL), KeepDrained("a", False)]


async def test_a_flip_that_goes_wrong_leaves_no_worker_drained() -> None:
    fleet = ScriptedFleet(a=Role.DECODE, b=Role.MIXED)
    fleet.fails = PeerError("no answer")
    operations, told = made(fleet)
    with pytest.raises(PeerError, match="no answer"):
        await operations.set_role("a", Role.PREFILL, 5)
    assert fleet.calls == ["drain a 5", "role a prefill", "resume a"]
    assert told == [KeepDrained("a", False)]


async def test_a_flip_that_is_given_up_leaves_no_worker_drained() -> None:
    fleet = ScriptedFleet(a=Role.DECODE, b=Role.MIXED)
    fleet.gate.clear()
    operations, told = made(fleet)
    flipping = asyncio.create_task(operations.set_role("a", Role.PREFILL, 5))
    await asyncio.sleep(0)
    flipping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flipping
    assert fleet.calls == ["drain a 5", "resume a"]
    assert told == [KeepDrained("a", False)]


async def test_the_role_that_it_has_ends_a_drain() -> None:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, told = made(fleet)
    await operations.drain("a", 1)
    assert (await operations.set_role("a", Role.MIXED, 1)).health == "joined"
    assert fleet.calls == ["drain a 1", "resume a"]
    assert told == [KeepDrained("a", True), KeepDrained("a", False)]


async def test_a_restart_drains_and_waits_for_the_new_life() -> None:
    fleet = ScriptedFleet(a=Role.MIXED)
    operations, told = made(fleet)
    operations.children([child("a", Role.MIXED)])
    worker = await operations.restart("a", 9)
    assert isinstance(worker, WorkerStatus)
    assert worker.incarnation == "a.2"
    assert fleet.calls == ["drain a 9", "joined a a.1"]
    assert told == [Restart("a", 2)]


async def test_a_restart_means_the_life_that_it_drained() -> None:
    """It died meanwhile, and its next life serves: that one is not to be ended."""
    fleet = ScriptedFleet(a=Role.MIXED)
    operations, told = made(fleet)
    operations.children([child("a", Role.MIXED)])
    fleet.gate.clear()
    restarting = asyncio.create_task(operations.restart("a", 9))
    await asyncio.sleep(0)
    operations.children([msgspec.structs.replace(child("a", Role.MIXED), life=3)])
    fleet.gate.set()
    await restarting
    assert told == [Restart("a", 2)]


async def test_a_worker_that_does_not_come_back_is_said() -> None:
    fleet = ScriptedFleet(a=Role.MIXED)
    fleet.comes_back = False
    operations, _ = made(fleet, start_timeout_s=0.01)
    operations.children([child("a", Role.MIXED)])
    with pytest.raises(PeerError, match="did not join within"):
        await operations.restart("a", 0)


@pytest.mark.parametrize("role", [Role.DECODE, Role.MIXED])
async def test_the_last_worker_that_decodes_goes_on_decoding(role: Role) -> None:
    fleet = ScriptedFleet(a=role, p=Role.PREFILL)
    operations, _ = made(fleet)
    for refused in (operations.drain("a", 1), operations.set_role("a", Role.PREFILL, 1)):
        with pytest.raises(ClientError, match="last worker that decodes") as caught:
            await refused
        assert caught.value.status == 409
    assert fleet.calls == []
    other = Role.MIXED if role is Role.DECODE else Role.DECODE
    await operations.set_role("a", other, 1)


async def test_one_thing_at_a_time_is_done_with_a_worker() -> None:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, _ = made(fleet)
    fleet.gate.clear()
    first = asyncio.create_task(operations.drain("a", 1))
    await asyncio.sleep(0)
    with pytest.raises(ClientError, match="a is being drained"):
        await operations.set_role("a", Role.DECODE, 1)
    fleet.gate.set()
    await first
    await operations.set_role("a", Role.DECODE, 1)


async def test_who_is_not_there_is_named_with_who_is() -> None:
    operations, _ = made(ScriptedFleet(a=Role.MIXED))
    operations.children([child("z", Role.MIXED, "starting")])
    with pytest.raises(ClientError, match="no worker 'q': known are a, z") as caught:
        await operations.drain("q", 1)
    assert caught.value.status == 404
    with pytest.raises(ClientError, match="z has not joined"):
        await operations.drain("z", 1)
    with pytest.raises(ClientError, match="not started by this server"):
        await operations.restart("a", 1)


async def test_before_any_worker_is_there() -> None:
    operations = Operations("tiny", lambda message: None, 60.0)
    operations.children([child("a", Role.MIXED, "starting")])
    status = operations.status()
    assert (status.state, status.open_requests) == ("loading", 0)
    assert [(worker.id, worker.health) for worker in status.workers] == [("a", "starting")]
    with pytest.raises(ClientError, match="a has not joined"):
        await operations.drain("a", 1)
    with pytest.raises(PeerError):
        await operations.restart("a", 1)


# ── the store ────────────────────────────────────────────────────────────────────────────────────


def store(life: int, state: str = "ready", problem: str = "") -> ChildState:
    return msgspec.structs.replace(
        child("store", Role.MIXED, state, problem), life=life, pid=500 + life
    )


async def test_status_has_the_store_that_was_started_here() -> None:
    operations, _ = made(ScriptedFleet(a=Role.MIXED))
    assert operations.status().store is None
    operations.children([], store(2, "waiting", "killed by SIGKILL"))
    now = operations.status().store
    assert now is not None
    assert (now.health, now.pid, now.life, now.problem) == (
        *("waiting", 502, 2),
        "killed by SIGKILL",
    )


async def test_a_restarted_store_is_back_when_its_next_life_is_ready() -> None:
    operations, told = made(ScriptedFleet(a=Role.MIXED))
    operations.children([], store(1))
    restarting = asyncio.create_task(operations.restart("store", 5))
    await asyncio.sleep(0)
    assert told == [Restart("store", 1)]
    with pytest.raises(ClientError, match="being restarted"):
        await operations.restart("store", 5)
    for news in (store(1, "stopping"), store(2, "starting")):
        operations.children([], news)
        await asyncio.sleep(0)
        assert not restarting.done()
    operations.children([], store(2))
    back = await restarting
    assert (back.health, back.pid) == ("ready", 502)


async def test_a_restarted_store_is_back_when_the_gateway_sees_that_life_of_it() -> None:
    fleet = ScriptedFleet(a=Role.MIXED)
    operations, _ = made(fleet)
    seen = StoreNow(socket=None, present=True, pid=501, stats=())
    operations.attach(fleet, lambda: seen)
    operations.children([], store(1))
    restarting = asyncio.create_task(operations.restart("store", 5))
    await asyncio.sleep(0)
    operations.children([], store(2))
    for present, pid in ((True, 501), (False, None), (True, 502)):
        assert not restarting.done()
        seen = replace(seen, present=present, pid=pid)
        operations.store_changed()
        await asyncio.sleep(0)
    assert (await restarting).pid == 502


async def test_a_store_that_can_not_start_again_is_said_with_its_problem() -> None:
    operations, _ = made(ScriptedFleet(a=Role.MIXED))
    operations.children([], store(1, "waiting", "the problem before"))
    restarting = asyncio.create_task(operations.restart("store", 5))
    await asyncio.sleep(0)
    operations.children([], store(2, "starting", "the problem before"))
    await asyncio.sleep(0)
    assert not restarting.done()
    operations.children([], store(2, "waiting", "others can enter it"))
    with pytest.raises(PeerError, match=r"did not start.*: others can enter it"):
        await restarting
    operations.children([], store(3))


async def test_a_store_that_is_not_there_or_does_not_come_back_is_said() -> None:
    operations, told = made(ScriptedFleet(a=Role.MIXED), start_timeout_s=0.01)
    with pytest.raises(ClientError, match="has started no store") as refused:
        await operations.restart("store", 5)
    assert (refused.value.status, told) == (409, [])
    operations.children([], store(1))
    with pytest.raises(PeerError, match=r"not ready within 0\.01 s"):
        await operations.restart("store", 5)


async def test_a_store_that_was_started_elsewhere_is_shown_as_the_gateway_sees_it() -> None:
    fleet = ScriptedFleet(a=Role.MIXED)
    operations, _ = made(fleet)
    assert operations.status().store is None
    now = StoreNow(socket="/kv/store.sock", present=True, pid=12, stats=STATS)
    operations.attach(fleet, lambda: now)
    use = TierUse(tier="host", blocks=3, used_bytes=20, limit_bytes=40)
    assert operations.status().store == StoreStatus(
        health="ready", pid=12, life=None, socket="/kv/store.sock", tiers=(use,)
    )
    with pytest.raises(ClientError, match=r"restart the one at /kv/store\.sock where"):
        await operations.restart("store", 1)
    now = replace(now, present=False, pid=None, stats=())
    assert operations.status().store == StoreStatus(
        health="away", life=None, socket="/kv/store.sock"
    )


async def test_a_store_of_this_server_is_shown_with_its_process_and_its_tiers() -> None:
    fleet = ScriptedFleet(a=Role.MIXED)
    operations, _ = made(fleet)
    now = StoreNow(socket=None, present=True, pid=12, stats=STATS)
    operations.attach(fleet, lambda: now)
    assert operations.status().store is None
    operations.children([], child("store", Role.MIXED))
    store = operations.status().store
    assert store is not None
    assert (store.health, store.life, store.socket) == ("ready", 2, None)
    assert [tier.tier for tier in store.tiers] == ["host"]


async def test_a_worker_is_ended_when_it_has_been_drained_and_waited_for_until_it_is_gone() -> None:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, told = made(fleet)
    operations.children([child("a", Role.MIXED), child("b", Role.MIXED)])
    fleet.gate.clear()
    ending = asyncio.create_task(operations.end("a", 7))
    await asyncio.sleep(0)
    assert told == [], "it is not empty yet"
    with pytest.raises(ClientError, match="a is being ended"):
        await operations.restart("a", 7)
    fleet.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert fleet.calls == ["drain a 7", "leaves a"]
    assert told == [EndWorker("a", 2)]
    operations.children([child("a", Role.MIXED, "stopping"), child("b", Role.MIXED)])
    await asyncio.sleep(0)
    assert not ending.done()
    operations.children([child("b", Role.MIXED)])
    await ending


async def test_an_end_is_for_the_life_that_was_drained() -> None:
    """It died when it was empty, and its next life serves: that is not waited for."""
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, told = made(fleet)
    drained, other = child("a", Role.MIXED), child("b", Role.MIXED)
    operations.children([drained, other])
    fleet.gate.clear()
    ending = asyncio.create_task(operations.end("a", 7))
    await asyncio.sleep(0)
    operations.children([msgspec.structs.replace(drained, life=3), other])
    fleet.gate.set()
    with pytest.raises(PeerError, match="a died before it could be ended, and starts again"):
        async with asyncio.timeout(5):
            await ending
    assert told == [EndWorker("a", drained.life)]


async def test_an_end_that_is_given_up_leaves_no_worker_drained() -> None:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations, told = made(fleet)
    operations.children([child("a", Role.MIXED), child("b", Role.MIXED)])
    fleet.gate.clear()
    ending = asyncio.create_task(operations.end("a", 7))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert fleet.calls == ["drain a 7", "resume a"]
    assert told == []


async def test_only_workers_of_this_supervisor_are_ended_and_never_the_last_that_decodes() -> None:
    fleet = ScriptedFleet(a=Role.DECODE, b=Role.PREFILL, c=Role.PREFILL)
    operations, told = made(fleet)
    operations.children([child("a", Role.DECODE), child("b", Role.PREFILL)])
    with pytest.raises(ClientError, match="a can't end: it is the last worker that decodes"):
        await operations.end("a", 7)
    with pytest.raises(ClientError, match="c was not started by this server's supervisor"):
        await operations.end("c", 7)
    with pytest.raises(ClientError, match="there is no worker 'd'"):
        await operations.end("d", 7)
    assert told == []


async def test_a_planners_flip_pins_nothing() -> None:
    fleet = ScriptedFleet(a=Role.DECODE, b=Role.DECODE)
    operations, told = made(fleet)
    await operations.set_role("a", Role.PREFILL, 5, pinned=False)
    assert told == [KeepRole("a", Role.PREFILL, pinned=False), KeepDrained("a", False)]
