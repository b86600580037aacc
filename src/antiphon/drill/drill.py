"""A drill: what users get while workers die, beside what they get when nobody does.

reference (no faults) ─► load with faults ─► quiet ─► verdict
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from antiphon.bench import Answer, Client, Server, run_open_loop
from antiphon.errors import PeerError
from antiphon.workload import ask

from .drained import held_by, held_in, leftovers
from .injector import Injector
from .plan import DrillPlan
from .report import DrillReport, recoveries
from .resources import Resources, growth, resources_of
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
    async with Client(Server(url=target.url, model=target.model, api_key=api_key)) as client:
        say(f"Asking {plan.asks} questions without faults")
        reference = await _reference(client, plan)
        before = await _resources(target)
        injector = Injector(target, plan, say)
        say(f"Load with faults for {plan.duration_s:g} s")
        answers = await _load(client, plan, injector)
        say("Waiting for quiet")
        held = await _quiet(target)
    attempts = target.attempts()
    faults = sorted(injector.injected, key=lambda fault: fault.at_s)
    return DrillReport(
        asks=len(answers),
        faults=tuple(faults),
        findings=judge(answers, reference),
        leftovers=tuple(leftovers(held)),
        growth=tuple(growth(before, await _resources(target), slack=_SLACK)),
        recoveries=None if attempts is None else recoveries(attempts, faults, injector.began_at),
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
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(injector.run(over))
            answers = await run_open_loop(client, plan.arrivals())
            over.set()
    except ExceptionGroup as group:
        raise _first(group) from group
    return answers


def _first(error: Exception) -> Exception:
    """What went wrong first, out of the groups that it is in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _quiet(target: Target) -> Counter[str]:
    """What is held once nothing is left and all workers are there, or after a minute."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_TIMEOUT_S):
            while any((held := await _held(target)).values()):
                await asyncio.sleep(_POLL_S)
            return held
    return await _held(target)


async def _held(target: Target) -> Counter[str]:
    """What has to be zero when nobody asks for anything."""
    gauges = await target.gauges()
    return held_in(await target.status()) + held_by(gauges)


async def _resources(target: Target) -> dict[int, Resources]:
    status = await target.status()
    workers = [worker.pid for worker in status.workers if worker.pid]
    pids = [target.supervisor_pid, status.gateway_pid, *workers]
    found = {pid: resources_of(pid) for pid in pids}
    return {pid: resources for pid, resources in found.items() if resources is not None}
