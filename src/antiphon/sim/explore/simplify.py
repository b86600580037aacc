"""What is a little simpler than a set-up: one thing less drawn, shorter, rounder, or as usual.

Only what keeps a set-up fair: whoever has memory for a request keeps it, clients stay as patient as
they are, and each role keeps a worker.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from antiphon.core.faults import (
    At,
    Crash,
    Delay,
    Duplicate,
    Fault,
    FillDisk,
    Partition,
    Reorder,
    Slow,
    Stall,
    When,
)
from antiphon.types import Request, Seconds

from ..cluster_setup import Call, ClusterSetup, Empty, GiveUp, Stimulus, WorkerSpec

_AS_USUAL = ClusterSetup(workers=(), stimuli=())
_WHOLE = ("hostility", "store", "stops", "router", "scheduler", "kv", "page_pull_s")


def simpler(setup: ClusterSetup) -> Iterator[ClusterSetup]:
    """Set-ups that differ from this one in one thing, the greatest differences first. Pure."""
    for name in _WHOLE:
        usual = getattr(_AS_USUAL, name)
        if getattr(setup, name) != usual:
            yield replace(setup, **{name: usual})
    for workers in _one_simpler(setup.workers, _simpler_worker):
        yield replace(setup, workers=workers)
    for stimuli in _one_simpler(setup.stimuli, _simpler_stimulus):
        yield replace(setup, stimuli=stimuli)
    for faults in _one_simpler(setup.faults.faults, _simpler_fault):
        yield replace(setup, faults=replace(setup.faults, faults=faults))


def _one_simpler(items: tuple[Any, ...], of: Any) -> Iterator[tuple[Any, ...]]:
    for place, item in enumerate(items):
        for other in of(item):
            yield (*items[:place], other, *items[place + 1 :])


def _simpler_worker(worker: WorkerSpec) -> Iterator[WorkerSpec]:
    if worker.clock_offset_s:
        yield replace(worker, clock_offset_s=0.0)
    usual = WorkerSpec(id=worker.id)
    if worker.step_s != usual.step_s:
        yield replace(worker, step_s=usual.step_s)


def _simpler_stimulus(stimulus: Stimulus) -> Iterator[Stimulus]:
    for at in _rounder(stimulus.at):
        yield replace(stimulus, at=at)
    match stimulus:
        case Call(request=request):
            for other in _simpler_request(request):
                yield replace(stimulus, request=other)
        case GiveUp() | Empty():
            pass


def _simpler_request(request: Request) -> Iterator[Request]:
    prompt, sampling = request.prompt, request.sampling
    usual = Request(id=request.id, prompt=prompt, sampling=sampling)
    for name in ("eos_token_ids", "priority", "tenant_salt"):
        if getattr(request, name) != getattr(usual, name):
            yield replace(request, **{name: getattr(usual, name)})
    for name, plain in (("n", 1), ("min_tokens", 0), ("stop_token_ids", ()), ("seed", 0)):
        if getattr(sampling, name) != plain:
            yield replace(request, sampling=replace(sampling, **{name: plain}))
    for length in _shorter(len(prompt)):
        yield replace(request, prompt=prompt[:length])
    for most in _shorter(sampling.max_tokens or 0):
        if most >= (sampling.min_tokens or 0):
            yield replace(request, sampling=replace(sampling, max_tokens=most))


def _simpler_fault(fault: Fault) -> Iterator[Fault]:
    match fault.trigger:
        case At(seconds):
            for at in _rounder(seconds):
                yield replace(fault, trigger=At(at))
        case When(boundary, occurrence):
            for number in _shorter(occurrence):
                yield replace(fault, trigger=When(boundary, number))
    for action in _simpler_action(fault.action):
        yield replace(fault, action=action)


def _simpler_action(action: Any) -> Iterator[Any]:
    match action:
        case Crash(restart_after_s=float(after_s)):
            yield from (Crash(one) for one in _rounder(after_s))
        case Slow(factor, for_s):
            if factor > 2:
                yield Slow(2.0, for_s)
            yield from (Slow(factor, one) for one in _rounder(for_s))
        case Stall(for_s) | Partition(for_s) | FillDisk(for_s):
            yield from (type(action)(one) for one in _rounder(for_s))
        case Delay(by_s) | Duplicate(by_s) | Reorder(by_s):
            yield from (type(action)(one) for one in _rounder(by_s))
        case _:
            pass


def _rounder(seconds: Seconds) -> Iterator[Seconds]:
    """Rounder numbers; none for one that is round."""
    for digits in range(4):
        rounded = round(seconds, digits)
        if rounded == seconds:
            return
        yield rounded


def _shorter(length: int) -> Iterator[int]:
    """Smaller numbers from 1 on, the smallest first."""
    yield from dict.fromkeys(one for one in (1, length // 2, length - 1) if 1 <= one < length)
