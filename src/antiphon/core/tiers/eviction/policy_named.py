"""From the names of `store.policy` to orders of eviction."""

from .policy import PolicyFactory


def policy_named(name: str) -> PolicyFactory:
    """The order that the configuration calls so ("lru", "s3-fifo", "cost")."""
    raise NotImplementedError
