"""Whom a cluster can do without for a while."""

from collections.abc import Mapping

from antiphon.types import Role

from .fault import Node

_PHASES = {
    Role.PREFILL: (Role.PREFILL,),
    Role.DECODE: (Role.DECODE,),
    Role.MIXED: (Role.PREFILL, Role.DECODE),
}


def can_be_spared(worker: Node, role: Role, workers: Mapping[Node, Role]) -> bool:
    """Each phase that it serves is left with another of the workers."""
    others = [its for name, its in workers.items() if name != worker]
    return all(any(phase in _PHASES[its] for its in others) for phase in _PHASES[role])
