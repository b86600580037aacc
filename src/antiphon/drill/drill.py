"""A drill: what users get while workers die, beside what they get when nobody does.

reference (no faults) ─► load with faults ─► quiet ─► verdict
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from antiphon.bench import Answer, Client, run_open_loop
from antiphon.errors import PeerError
from antiphon.live.admin.status import ClusterStatus
from antiphon.types import Health
from antiphon.workload import ask

from .injector import Injector
from .plan import DrillPlan
from .report import DrillReport, recoveries
from .resources import Resources, growth, leftovers, resources_of
from .target import Target
from .verdict import judge

_REFERENCE_AT_ONCE = 4
_QUIET_TIMEOUT_S = 60.0
_POLL_S = 0.05
_SLACK = Resources(memory_bytes=64 * 2**20, descriptors=4, sockets=4)
"""Growth that is no leak: allocators keep some memory, logs and pools some descriptors."""


async def run_drill(
    target: Target,
    plan: DrillPlan,
    *,
    say: Callable[[str], None],
    api_key: str | None = None,
) -> DrillReport:
    """Put `target` through `plan`. `say` gets a line when something happens.

    Raises `PeerError` if the cluster answers wrongly before any fault, or a fault has no effect.
    """
    async with Client(target.url, target.model, api_key=api_key) as client:
        say(f"Asking {plan.asks} questions without faults")
        reference = await _reference(client, plan)
        before = await _resources(target)
        injector = Injector(target, plan, say)
        say(f"Load with faults for {plan.duration_s:g} s")
        answers = await _load(client, plan, injector)
        say("Waiting for quiet")
        status = await _quiet(target)
    return DrillReport(
        asks=len(answers),
        faults=tuple(injector.injected),
        findings=judge(answers, reference),
        leftovers=tuple(leftovers(_held(status))),
        growth=tuple(growth(before, await _resources(target), slack=_SLACK)),
        recoveries=recoveries(target.attempts(), injector.hit_at),
        longest_gap_s=max((gap for answer in answers for gap in answer.gaps_s), default=0.0),
    )


async def _reference(client: Client, plan: DrillPlan) -> Mapping[int, Answer]:
    """Each ask's answer when nothing is wrong."""
    turns = asyncio.Semaphore(_REFERENCE_AT_ONCE)

    async def one(number: int) -> Answer:
        async with turns:
            return await client.send(ask(plan.mix, plan.seed, number))

    answers = await asyncio.gather(*(one(number) for number in range(plan.asks)))
    for answer in answers:
        if not answer.ok:
            raise PeerError(
                f"ask {answer.number} failed before any fault: "
                f"{answer.error or answer.status}: the cluster must be in order first"
            )
    return {answer.number: answer for answer in answers}


async def _load(client: Client, plan: DrillPlan, injector: Injector) -> Sequence[Answer]:
    """The load, with faults beside it until its last ask has been answered."""
    over = asyncio.Event()
    injecting = asyncio.create_task(injector.run(over))
    try:
        return await run_open_loop(client, plan.arrivals())
    finally:
        over.set()
        try:
            await injecting
        finally:
            injector.release()


async def _quiet(target: Target) -> ClusterStatus:
    """The status once nothing is left and all workers are there, or after a minute."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_TIMEOUT_S):
            while True:
                status = await target.status()
                if not any(_held(status).values()):
                    return status
                await asyncio.sleep(_POLL_S)
    return await target.status()


def _held(status: ClusterStatus) -> Counter[str]:
    """What has to be zero when nobody asks for anything. KV under a lease counts as used."""
    held = Counter({"open requests": status.open_requests})
    for worker in status.workers:
        held[f"{worker.id}: requests that run"] = worker.running or 0
        held[f"{worker.id}: requests that wait"] = worker.waiting or 0
        held[f"{worker.id}: used share of KV, in ten thousandths"] = round(
            (worker.kv_used or 0.0) * 10_000
        )
        held[f"{worker.id}: lives that have not joined"] = int(worker.health != Health.JOINED)
    return held


async def _resources(target: Target) -> dict[int, Resources]:
    status = await target.status()
    pids = [status.gateway_pid, *(worker.pid for worker in status.workers if worker.pid)]
    found = {pid: resources_of(pid) for pid in pids}
    return {pid: resources for pid, resources in found.items() if resources is not None}
