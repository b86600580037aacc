"""The tables [[pool]] of a scenario."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from antiphon.core.config import build
from antiphon.core.faults import Table, WrongValueError, toml_text
from antiphon.errors import UsageError
from antiphon.types import Role, SchedulerConfig

from .scenario import PoolPlan, PoolTimes, ProfiledTimes, PublishedTimes, RooflineTimes

_MOST_POOLS, _MOST_WORKERS = 64, 4096
_SOURCES = ("device", "profile", "published")
_BITS = (16, 8, 4)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,40}", re.ASCII)


def read_pools(
    tables: Sequence[Mapping[str, Any]],
    where: str,
    folder: Path,
    scheduler: Mapping[str, Any],
) -> tuple[PoolPlan, ...]:
    """All pools; `scheduler` is what holds for those that say nothing else.

    Raises `UsageError` that begins with `where`, also for pools that can't serve anybody together.
    """
    if not 1 <= len(tables) <= _MOST_POOLS:
        raise UsageError(f"{where}pool: 1 to {_MOST_POOLS} tables [[pool]] are needed")
    pools: list[PoolPlan] = []
    for number, fields in enumerate(tables, start=1):
        try:
            pools.append(_pool(Table(fields), folder, scheduler))
        except (WrongValueError, UsageError) as error:
            raise UsageError(f"{where}pool {number}: {error}") from None
    names = [pool.name for pool in pools]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'{where}pool: two are called "{name}": give each a name of its own')
    roles = {pool.role for pool in pools}
    if Role.MIXED not in roles:
        for needed, does in ((Role.PREFILL, "computes prompts"), (Role.DECODE, "decodes")):
            if needed not in roles:
                raise UsageError(
                    f'{where}pool: nobody {does}: add one of role "{needed}", or of "mixed"'
                )
    return tuple(pools)


def _pool(table: Table, folder: Path, scheduler: Mapping[str, Any]) -> PoolPlan:
    role = table.choice("role", ("mixed", "prefill", "decode"))
    name = table.text("name", role) or ""
    if not _NAME.fullmatch(name):
        raise WrongValueError(
            "name", f"{toml_text(name)} must be letters, digits, and . _ - between"
        )
    workers = table.count("workers", 1, 1, _MOST_WORKERS)
    kv_tokens = table.count("kv-tokens", None, 1024, 2**40)
    own = table.table("scheduler")
    times = _times(table, folder)
    table.finish()
    if isinstance(times, ProfiledTimes) and kv_tokens is None:
        raise WrongValueError("kv-tokens", "a profile does not say how much KV fits: give it")
    assert workers is not None
    return PoolPlan(
        name=name,
        role=Role(role),
        workers=workers,
        times=times,
        kv_tokens=kv_tokens,
        scheduler=_scheduler({**scheduler, **own}),
    )


def _scheduler(values: Mapping[str, Any]) -> SchedulerConfig:
    return build({"scheduler": values}).scheduler


def _times(table: Table, folder: Path) -> PoolTimes:
    device, profile, published = (table.text(key) for key in _SOURCES)
    given = [
        key
        for key, value in zip(_SOURCES, (device, profile, published), strict=True)
        if value is not None
    ]
    if len(given) != 1:
        what = " and ".join(given) or "none"
        raise WrongValueError(
            "device", f"exactly one of {', '.join(_SOURCES)} says how fast it is, not {what}"
        )
    if profile is not None:
        return ProfiledTimes(file=folder / profile)
    tensor, pipeline = _split(table, "tensor"), _split(table, "pipeline")
    if published is not None:
        if published != "distserve":
            raise WrongValueError("published", f'{toml_text(published)} must be "distserve"')
        return PublishedTimes(tensor=tensor, pipeline=pipeline)
    return RooflineTimes(
        device=device or "",
        tensor=tensor,
        pipeline=pipeline,
        weight_bits=_bits(table, "weight-bits"),
        kv_bits=_bits(table, "kv-bits"),
    )


def _split(table: Table, key: str) -> int:
    value = table.count(key, 1, 1, 1024)
    assert value is not None
    return value


def _bits(table: Table, key: str) -> int:
    value = table.count(key, _BITS[0], 1, 64)
    if value not in _BITS:
        raise WrongValueError(key, f"{value} must be one of {', '.join(map(str, _BITS))}")
    return value
