"""Which few of many workers are worth a prediction: the least loaded, some by chance, some by name.

    all workers, in groups of equal role and KV ─┬─ least loaded of each: LoadOrder
                                                 ├─ some of each, by numbered draws
                                                 └─ those that have most of the prompt

The power of d choices (Mitzenmacher 2001): the best of a few that are drawn is nearly as good as
the best of all. The order of loads is by what is believed, which a slow worker or a late report
belies; what is drawn finds those that are better than they look.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.costs import PhaseTime
from antiphon.core.draws import Draws
from antiphon.types import Health, Role, WorkerId

from .load_order import LoadOrder, Rank
from .worker_belief import Exchange, WorkerBelief

_LEAST = 4
_DRAWN = 4
"""Of each group. One draw of 64 bits gives all of them."""
NAMED = 8
"""Workers that have most of a prompt."""

Group: TypeAlias = tuple[Role, Exchange | None]


@dataclass(slots=True, eq=False)
class _Members:
    """Workers of one group that are well."""

    ids: list[WorkerId] = field(default_factory=list)
    order: LoadOrder = field(default_factory=LoadOrder)


class ShortList:
    """Mutable: it is told of each change, and puts it in order when it is asked."""

    def __init__(self, times: PhaseTime, seed: int) -> None:
        self._times, self._draws = times, Draws(seed)
        self._groups: dict[Group, _Members] = {}
        self._group_of: dict[WorkerId, Group] = {}
        self._changed: dict[WorkerId, WorkerBelief] = {}
        self._drawn = 0

    def changed(self, worker: WorkerBelief) -> None:
        """Its load, health or role is not what it was, or it is new. Mutates, in O(1)."""
        self._changed[worker.info.id] = worker

    def left(self, worker: WorkerId) -> None:
        """It is lost. Mutates."""
        self._changed.pop(worker, None)
        self._leave_group(worker)

    def draw(self, wanted: Exchange | None = None) -> list[WorkerId]:
        """Some of each group; if `wanted`, of the groups that decode and can read that KV.

        Mutates: counts draws. The order means nothing, and no worker comes twice from one source.
        """
        self._put_in_order()
        bits = self._draws.bits("short list", self._drawn)
        self._drawn += 1
        found: list[WorkerId] = []
        for (role, exchange), members in self._groups.items():
            if wanted is None or (role is not Role.PREFILL and exchange == wanted):
                found += members.order.least(_LEAST)
                found += _some(members.ids, bits)
        return found

    @property
    def turn(self) -> int:
        """Whose turn it is among those that are equally good: goes round and round."""
        return self._drawn % max(1, len(self._group_of))

    def _put_in_order(self) -> None:
        for worker in self._changed.values():
            id = worker.info.id
            group = (worker.role, worker.exchange)
            known = self._group_of.get(id)
            if worker.health is not Health.JOINED:
                self._leave_group(id)
                continue
            if known != group:
                self._leave_group(id)
                self._group_of[id] = group
                insort(self._groups.setdefault(group, _Members()).ids, id)
            self._groups[group].order.put(self._rank(worker))
        self._changed.clear()

    def _leave_group(self, worker: WorkerId) -> None:
        group = self._group_of.pop(worker, None)
        if group is None:
            return
        members = self._groups[group]
        del members.ids[bisect_left(members.ids, worker)]
        members.order.remove(worker)
        if not members.ids:
            del self._groups[group]

    def _rank(self, worker: WorkerBelief) -> Rank:
        load = worker.load
        step_s = self._times.decode_step_s(load.sequences, load.context_tokens)
        return Rank(
            worker.pace.factor * (load.queued_s + step_s),
            load.requests,
            worker.chosen,
            worker.info.id,
        )


def _some(ids: Sequence[WorkerId], bits: int) -> Iterable[WorkerId]:
    for place in range(_DRAWN):
        share = bits >> (64 // _DRAWN) * place & (1 << 64 // _DRAWN) - 1
        yield ids[share * len(ids) >> 64 // _DRAWN]
