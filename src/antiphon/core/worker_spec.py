"""Which workers a configuration asks for: their names, roles and cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from antiphon.errors import BugError
from antiphon.types import ClusterConfig, Role, WorkerId


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker that is to run. `cores` empty: all that the process may use."""

    id: WorkerId
    role: Role
    cores: tuple[int, ...]


def worker_specs(cluster: ClusterConfig, cores: Sequence[int]) -> tuple[WorkerSpec, ...]:
    """The configured workers in order: prefill, decode, mixed; each role counts from 0.

    `cores` are split among them by `split_cores`.
    """
    roles = [
        *[Role.PREFILL] * cluster.prefill,
        *[Role.DECODE] * cluster.decode,
        *[Role.MIXED] * mixed_workers(cluster),
    ]
    parts = split_cores(cores, len(roles))
    counted = [f"{role}-{roles[:place].count(role)}" for place, role in enumerate(roles)]
    return tuple(
        WorkerSpec(WorkerId(name), role, part)
        for name, role, part in zip(counted, roles, parts, strict=True)
    )


def mixed_workers(cluster: ClusterConfig) -> int:
    """How many workers do both; unless it is said, one where there are no others."""
    if cluster.mixed is not None:
        return cluster.mixed
    return 0 if cluster.prefill or cluster.decode else 1


def worker_count(cluster: ClusterConfig) -> int:
    """How many workers there are in all. One alone has nobody to exchange KV with."""
    return cluster.prefill + cluster.decode + mixed_workers(cluster)


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
