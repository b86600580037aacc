"""A drill: what users get while workers die, beside what they get when nobody does.

reference (no faults) ─► load with faults ─► quiet ─► verdict
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from antiphon.bench import Answer, Client, Server
from antiphon.core.faults import Boundary
from antiphon.errors import PeerError
from antiphon.workload import ask

from .drained import held_by, held_in, leftovers
from .events import EventCounts
from .feasible import check_feasible
from .goodput_cost import cost_of_faults, outcomes
from .here import is_here
from .http_proxy import HttpProxy
from .injector import Injector
from .lives import lives_in
from .open_loop import run_open_loop
from .plan import DrillPlan
from .report import DrillReport, recoveries, repeats
from .resources import Resources, growth, resources_of
from .target import Attempt, Target
from .verdict import Finding, Flaw, judge

_REFERENCE_AT_ONCE = 4
_QUIET_TIMEOUT_S = 60.0
_POLL_S = 0.05
_SLACK = Resources(memory_bytes=64 * 2**20, descriptors=4, sockets=4)
"""Growth that is no leak: allocators keep some memory, logs and pools some descriptors."""


class _Findings(NamedTuple):
    """Answers with which something is wrong: what must not be, and what a fault explains that left
    them without a connection or a gateway."""

    wrong: list[Finding]
    broken: list[Finding]


class _After(NamedTuple):
    """What is left when all is quiet."""

    leftovers: Sequence[str]
    growth: Sequence[str]


async def run_drill(
    target: Target,
    plan: DrillPlan,
    *,
    say: Callable[[str], None],
    api_key: str | None = None,
) -> DrillReport:
    """Put `target` through `plan`. `say` gets a line when something happens.

    Raises `UsageError` if a fault can hit nobody, `PeerError` if the cluster answers wrongly before
    any fault, or a fault has no effect.
    """
    status = await target.status()
    check_feasible(
        plan.faults(),
        [(worker.id, worker.role) for worker in status.workers],
        has_store=status.store is not None,
    )
    async with contextlib.AsyncExitStack() as held:
        proxy = await held.enter_async_context(HttpProxy(target.url)) if plan.needs_proxy else None
        events = EventCounts(target)
        url = proxy.url if proxy else target.url
        client = Client(
            Server(url=url, model=target.model, api_key=api_key),
            on_first_content=lambda: events.count(Boundary.TOKEN),
        )
        await held.enter_async_context(client)
        say(f"Asking {plan.load.asks} questions without faults")
        reference = await _reference(client, plan)
        undisturbed = await _undisturbed(client, plan, say)
        before = await _resources(target)
        injector = Injector(
            target, plan.faults(), plan.seed, say, events=events, send=client.send, proxy=proxy
        )
        say(f"Load with faults for {plan.load.duration_s:g} s")
        answers = await _load(client, plan, injector, events)
        say("Waiting for quiet")
        held_after = await _quiet(target)
    after = await _resources(target)
    return _report(
        plan,
        injector,
        answers,
        undisturbed=undisturbed,
        findings=_findings(answers, reference, injector),
        attempts=target.attempts(),
        after=_After(leftovers(held_after), growth(before, after, slack=_SLACK)),
    )


def _report(
    plan: DrillPlan,
    injector: Injector,
    answers: Sequence[Answer],
    *,
    undisturbed: Sequence[Answer],
    findings: _Findings,
    attempts: Sequence[Attempt] | None,
    after: _After,
) -> DrillReport:
    faults = sorted(injector.injected, key=lambda fault: (fault.at_s, fault.target))
    calls = outcomes(answers, plan.load.slo, injector.began_at)
    return DrillReport(
        asks=len(answers),
        faults=tuple(faults),
        not_injected=tuple(injector.not_injected),
        findings=tuple(findings.wrong),
        broken=tuple(findings.broken),
        leftovers=tuple(after.leftovers),
        growth=tuple(after.growth),
        recoveries=None if attempts is None else recoveries(attempts, faults, injector.began_at),
        repeats=None if attempts is None else repeats(attempts, injector.began_at),
        longest_gap_s=max((gap for answer in answers for gap in answer.gaps_s), default=0.0),
        resilience=cost_of_faults(
            calls, faults, plan.load, outcomes(undisturbed, plan.load.slo, 0.0)
        ),
        calls=calls,
    )


def _findings(
    answers: Sequence[Answer], reference: Mapping[int, Answer], injector: Injector
) -> _Findings:
    found = _Findings([], [])
    for answer in answers:
        for finding in judge([answer], reference):
            excused = finding.flaw is Flaw.FAILED and _had_no_gateway(answer, injector)
            (found.broken if excused else found.wrong).append(finding)
    return found


def _had_no_gateway(answer: Answer, injector: Injector) -> bool:
    """It was open while a fault broke connections, and broke, or was told to come again."""
    times = [
        (injector.began_at + fault.at_s, fault.breaks_for_s)
        for fault in injector.injected
        if fault.breaks_for_s is not None
    ]
    open_then = any(answer.sent_at <= at + for_s and answer.ended_at >= at for at, for_s in times)
    return open_then and answer.status in (0, 200, 503)


async def _reference(client: Client, plan: DrillPlan) -> Mapping[int, Answer]:
    """Each ask's answer when nothing is wrong."""
    turns = asyncio.Semaphore(_REFERENCE_AT_ONCE)

    async def one(number: int) -> Answer:
        async with turns:
            return await client.send(ask(plan.load.mix, plan.seed, number))

    answers = await asyncio.gather(*(one(number) for number in range(plan.load.asks)))
    for answer in answers:
        if not answer.ok:
            raise PeerError(
                f"ask {answer.number} failed before any fault: "
                f"{answer.error or answer.status}: the cluster must be in order first"
            )
    return {answer.number: answer for answer in answers}


async def _undisturbed(
    client: Client, plan: DrillPlan, say: Callable[[str], None]
) -> Sequence[Answer]:
    """The load without faults, if the plan wants it."""
    if not plan.load.undisturbed:
        return ()
    say(f"Load without faults for {plan.load.duration_s:g} s")
    return await run_open_loop(client, plan.arrivals())


async def _load(
    client: Client, plan: DrillPlan, injector: Injector, events: EventCounts
) -> Sequence[Answer]:
    """The load, with faults beside it until its last ask has been answered."""
    over = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(injector.run(over))
            answers = await run_open_loop(
                client, plan.arrivals(), on_answer=lambda _: events.count(Boundary.END)
            )
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
    lives = lives_in(status)
    here = [one for one in status.workers if is_here(lives[one.id], lives)]
    workers = [worker.pid for worker in here if worker.pid]
    store = [status.store.pid] if status.store is not None and status.store.pid else []
    pids = [target.supervisor_pid, status.gateway_pid, *store, *workers]
    found = {pid: resources_of(pid) for pid in pids}
    return {pid: resources for pid, resources in found.items() if resources is not None}
