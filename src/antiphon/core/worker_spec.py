"""Which workers a configuration asks for: their names, roles and cores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from antiphon.errors import BugError, ConfigError
from antiphon.types import ClusterConfig, Config, Role, WorkerId

MAX_WORKERS = 256
"""More than a host has cores for; bounds what the gateway keeps."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker that is to run. `cores` empty: all that the process may use."""

    id: WorkerId
    role: Role
    cores: tuple[int, ...]


def worker_specs(
    cluster: ClusterConfig, cores: Sequence[int], most: int = 0
) -> tuple[WorkerSpec, ...]:
    """The configured workers in order: prefill, decode, mixed; each role counts from 0.

    `cores` are split by `split_cores` among them, or among `most` workers if these are more: then
    the parts that are left are `spare_cores`.
    """
    roles = [
        *[Role.PREFILL] * cluster.prefill,
        *[Role.DECODE] * cluster.decode,
        *[Role.MIXED] * mixed_workers(cluster),
    ]
    if not roles:
        return ()
    parts = split_cores(cores, max(most, len(roles)))[: len(roles)]
    counted = [f"{role}-{roles[:place].count(role)}" for place, role in enumerate(roles)]
    return tuple(
        WorkerSpec(WorkerId(name), role, part)
        for name, role, part in zip(counted, roles, parts, strict=True)
    )


def spare_cores(
    cluster: ClusterConfig, cores: Sequence[int], most: int
) -> tuple[tuple[int, ...], ...]:
    """The parts of `cores` for workers beyond the configured ones, up to `most` in all."""
    first = worker_count(cluster)
    return split_cores(cores, max(most, first))[first:] if max(most, first) else ()


def mixed_workers(cluster: ClusterConfig) -> int:
    """How many workers do both; unless it is said, one where there are no others."""
    if cluster.mixed is not None:
        return cluster.mixed
    return 0 if cluster.prefill or cluster.decode else 1


def worker_count(cluster: ClusterConfig) -> int:
    """How many workers there are in all. One alone has nobody to exchange KV with."""
    return cluster.prefill + cluster.decode + mixed_workers(cluster)


def most_workers(config: Config) -> int:
    """How many workers there may be in all, at any time."""
    if config.planner.mode != "act":
        return worker_count(config.cluster)
    return config.planner.budget or worker_count(config.cluster)


def planned_roles(cluster: ClusterConfig) -> tuple[Role, ...]:
    """The roles that a planner counts workers of."""
    return (Role.MIXED,) if mixed_workers(cluster) else (Role.PREFILL, Role.DECODE)


def with_budget(config: Config, cores: Sequence[int]) -> Config:
    """`config` with a planner that knows its budget: one worker a core, if none is set.

    Raises `ConfigError` if it is to act and nobody can tell how many cores there are.
    """
    planner = config.planner
    if planner.mode == "off" or planner.budget is not None:
        return config
    if planner.mode == "act" and not cores:
        raise ConfigError(
            "planner.budget: this system can't pin threads to cores, so say how many workers "
            "there may be (--budget)"
        )
    least = planner.least * len(planned_roles(config.cluster))
    budget = min(MAX_WORKERS, max(len(cores), worker_count(config.cluster), least))
    return replace(config, planner=replace(planner, budget=budget))


def split_cores(cores: Sequence[int], workers: int) -> tuple[tuple[int, ...], ...]:
    """`cores` in order, in equal parts: the first ones get one more if it does not come out even.

    Each core is in some part. With fewer cores than workers each part is one core, and neighbours
    share it, equally again. No cores: empty parts.
    """
    if workers < 1:
        raise BugError(f"cores were to be split among {workers} workers")
    if not cores:
        return ((),) * workers
    if len(cores) < workers:
        return tuple((cores[place * len(cores) // workers],) for place in range(workers))
    size, larger = divmod(len(cores), workers)
    starts = [place * size + min(place, larger) for place in range(workers + 1)]
    return tuple(tuple(cores[start:end]) for start, end in pairwise(starts))
