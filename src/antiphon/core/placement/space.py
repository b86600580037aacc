"""What may be chosen from, and every candidate of it with what it can serve at best."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .candidates import Candidate, Colocated, Instance, Split
from .rate_matching import Side, matched, shared_per_s


class Bounds(Protocol):
    """What workers serve at best, in requests a second (0: nothing in time), and their price."""

    def prefill_per_s(self, instance: Instance, step_tokens: int, workers: int = 1) -> float:
        """Prompts of so many together, if they do nothing else: many even out who waits."""
        ...

    def decode_per_s(self, instance: Instance) -> float:
        """Answers of one, if it does nothing else."""
        ...

    def mixed_per_s(self, instance: Instance, step_tokens: int, *, prefill_first: bool) -> float:
        """Requests of one, from prompt to end."""
        ...

    def price_per_hour(self, instance: Instance) -> float:
        """Of one."""
        ...


class Objective(StrEnum):
    """What the ranking is by."""

    DEVICES = "devices"
    """Goodput per device."""
    MONEY = "money"
    """Requests within targets per unit of money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What may be chosen from.

    `instances`: those that fit in memory. `most_devices`: of a candidate in all. `node_devices`: in
    one node. `low_affinity`: KV must stay within a node, so prefill and decode segments of a stage
    share one (DistServe §4.2): then both are of a kind and have equally many stages.
    `step_tokens`: budgets of chunked prefill; prefill workers and `prefill_first` have the largest.
    `ratios`: so many numbers of workers for each pair of instances. `cell_devices`: a ratio is
    repeated until it has so many, so that candidates are compared at about one size: large pools
    even out bursts that small ones can't.
    """

    instances: tuple[Instance, ...]
    most_devices: int = 16
    node_devices: int = 8
    low_affinity: bool = False
    step_tokens: tuple[int, ...] = (512, 2048)
    ratios: int = 3
    cell_devices: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A candidate before it is simulated. `bound_per_s`: more than that it can't serve."""

    candidate: Candidate
    bound_per_s: float
    price_per_hour: float

    def worth(self, per_s: float, objective: Objective) -> float:
        """Requests a second per device, or per unit of money, if it serves so many."""
        match objective:
            case Objective.DEVICES:
                return per_s / self.candidate.devices
            case Objective.MONEY:
                return per_s * 3600 / self.price_per_hour


def promises(space: Space, bounds: Bounds, objective: Objective) -> Iterator[Promise]:
    """Every candidate that can serve anything within its targets."""
    for candidate in _candidates(space, bounds, objective):
        if bound_per_s := bound_of(bounds, candidate):
            price = sum(bounds.price_per_hour(kind) * count for kind, count in candidate.pools)
            yield Promise(candidate=candidate, bound_per_s=bound_per_s, price_per_hour=price)


def bound_of(bounds: Bounds, candidate: Candidate) -> float:
    """What a candidate serves at best: its first tokens are a limit of their own."""
    tokens = candidate.step_tokens
    match candidate:
        case Colocated(instance=instance, workers=workers, prefill_first=first):
            mixed = workers * bounds.mixed_per_s(instance, tokens, prefill_first=first)
            return min(mixed, bounds.prefill_per_s(instance, tokens, workers))
        case Split(decode=decode, decode_workers=workers):
            prompts = bounds.prefill_per_s(candidate.prefill, tokens, candidate.prefill_workers)
            answers = workers * bounds.decode_per_s(decode)
            if not (candidate.conditional and prompts and answers):
                return min(prompts, answers)
            return shared_per_s(prompts, answers, bounds.prefill_per_s(decode, tokens, workers))


def _candidates(space: Space, bounds: Bounds, objective: Objective) -> Iterator[Candidate]:
    yield from _colocated(space)
    for prefill in space.instances:
        for decode in space.instances:
            if not space.low_affinity or _share_a_node(space, prefill, decode):
                yield from _split(space, bounds, objective, prefill, decode)


def _colocated(space: Space) -> Iterator[Candidate]:
    ways = [(tokens, False) for tokens in space.step_tokens]
    ways.append((max(space.step_tokens), True))
    for instance in space.instances:
        if instance.devices > space.most_devices:
            continue
        for tokens, first in ways:
            yield _grown(
                space,
                Colocated(instance=instance, workers=1, step_tokens=tokens, prefill_first=first),
            )


def _split(
    space: Space, bounds: Bounds, objective: Objective, prefill: Instance, decode: Instance
) -> Iterator[Candidate]:
    tokens = max(space.step_tokens)
    # Of a worker among as many as are usual: alone it could not be as busy.
    usual = max(1, space.cell_devices // 2 // prefill.devices)
    prefill_per_s = bounds.prefill_per_s(prefill, tokens, usual) / usual
    decode_per_s = bounds.decode_per_s(decode)
    if not (prefill_per_s and decode_per_s):
        return
    most = space.most_devices
    if space.low_affinity:  # each stage lies in a node of its own
        most = min(most, space.node_devices * prefill.pipeline)
    by_devices = objective is Objective.DEVICES
    sides = tuple(
        Side(
            per_s=per_s,
            devices=instance.devices,
            cost=instance.devices if by_devices else bounds.price_per_hour(instance),
        )
        for per_s, instance in ((prefill_per_s, prefill), (decode_per_s, decode))
    )
    for x, y in matched(sides[0], sides[1], most, keep=space.ratios):
        for conditional in (False, True):
            candidate = Split(
                prefill=prefill,
                prefill_workers=x,
                decode=decode,
                decode_workers=y,
                step_tokens=tokens,
                conditional=conditional,
            )
            yield _grown(space, candidate)


def _grown(space: Space, candidate: Candidate) -> Candidate:
    """As many copies as fit into a cell, at least one. With low affinity a cell is one node's."""
    room = min(space.cell_devices, space.most_devices)
    if space.low_affinity and isinstance(candidate, Split):
        room = min(room, space.node_devices * candidate.prefill.pipeline)
    return candidate.times(max(1, room // candidate.devices))


def _share_a_node(space: Space, prefill: Instance, decode: Instance) -> bool:
    """Segments of one stage lie in one node: as many stages, and room for both beside."""
    return (
        prefill.device == decode.device
        and prefill.pipeline == decode.pipeline
        and prefill.tensor + decode.tensor <= space.node_devices
    )
