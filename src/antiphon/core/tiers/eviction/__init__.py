"""What goes first when memory is short: orders of eviction behind one interface."""

from .policy import EvictionPolicy, PolicyFactory
from .policy_named import policy_named

__all__ = ["EvictionPolicy", "PolicyFactory", "policy_named"]
