"""The values that a set-up is made of, by the names under which tests import them."""

from types import ModuleType

from antiphon import types as vocabulary
from antiphon.core import faults
from antiphon.errors import UsageError

from .. import cluster_setup, network
from . import drawn_cluster

_MODULES: tuple[ModuleType, ...] = (vocabulary, faults, network, cluster_setup, drawn_cluster)


def module_of(name: str) -> str:
    """Where a class of that name is imported from. Raises `UsageError` if it is part of no
    set-up."""
    for module in _MODULES:
        if isinstance(getattr(module, name, None), type):
            return module.__name__
    raise UsageError(f'"{name}" is no part of a cluster or of a fault')


def class_of(name: str) -> type:
    """The class of that name. Raises `UsageError` if it is part of no set-up."""
    wanted = module_of(name)
    return next(getattr(one, name) for one in _MODULES if one.__name__ == wanted)
