"""Scenarios as people write them: TOML, one table a pool, one a fault.

model = "llama-3-70b"
[load]
workload = "chat"
rate = 4
[[pool]]
role = "mixed"
device = "h100"
tensor = 4
workers = 2

docs/reference/scenario.md has every key. Errors name the file, the table, the key and a remedy.
"""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon.core.config import build
from antiphon.core.draws import LARGEST_SEED
from antiphon.core.faults import FaultSchedule, Table, WrongValueError, read_entries
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.perf.hardware import shape_of
from antiphon.runs import slos_of
from antiphon.types import Config
from antiphon.workload import JsonLines, Trace, Workload, parse_workload

from .pool_toml import read_pools
from .scenario import LinkPlan, PoolPlan, RooflineTimes, Scenario, UserPlan
from .scenario_fleet import fleet_spec, is_whole_trace, load_plan
from .scheduled_faults import ACTIONS, scheduled
from .store_plan import StorePlan
from .store_toml import read_store

_MOST_BYTES = 2**20
_TABLES = ("router", "scheduler", "kv", "cluster")
_WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "router": ("profile",),
    "kv": ("memory_bytes", "dtype", "events", "events_replay", "events_format", "events_exposed"),
    "cluster": (
        *("prefill", "decode", "mixed", "start_timeout_s"),
        *("hung_after_s", "restart_backoff_s", "socket_dir"),
    ),
}
"""Keys of the configuration that say nothing about a fleet in virtual time."""
_DEFAULT_DURATION_S, _DEFAULT_START_S, _WARMUP_SHARE = 60.0, 30.0, 0.1


def read_scenario(file: Path, seed: int | None = None) -> Scenario:
    """The scenario in `file`; `seed` goes over the file's own. Paths in it count from its folder.

    Raises `UsageError` for whatever could not be run.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UsageError(f"{file}: can't be read: {reason}") from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{file}: longer than {_MOST_BYTES} bytes: that is no scenario")
    return parse_scenario(text, file, seed)


def parse_scenario(text: str, file: Path, seed: int | None = None) -> Scenario:
    """The scenario in `text`, which was read from `file`. Raises as `read_scenario` does."""
    try:
        top = Table(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: no TOML: {error}") from None
    scenario = _scenario(top, file, seed)
    with _within(f"{file}: [load] "):
        load_plan(scenario, scenario.seed)
    with _within(f"{file}: "):
        fleet_spec(scenario)
    with _within(f"{file}: "):
        scheduled(scenario)
    return scenario


@contextmanager
def _within(where: str) -> Iterator[None]:
    """Errors begin with `where`."""
    try:
        yield
    except (WrongValueError, UsageError) as error:
        raise UsageError(f"{where}{error}") from None


def _scenario(top: Table, file: Path, seed: int | None) -> Scenario:
    with _within(f"{file}: "):
        title = top.text("title", file.stem)
        model = top.text("model")
        own_seed = top.count("seed", 0, 0, LARGEST_SEED)
        duration_s = top.seconds("duration", low=1.0) or _DEFAULT_DURATION_S
        warmup_s = top.seconds("warmup")
        warmup_s = duration_s * _WARMUP_SHARE if warmup_s is None else warmup_s
        if warmup_s >= duration_s:
            raise WrongValueError(
                "warmup",
                f"takes all of the {number_text(duration_s)} s that load lasts",
            )
        start_s = top.seconds("start")
        kv_bytes = top.count("kv-bytes-per-token", None, 1, 2**30)
        context = top.count("context", None, 128, 2**21)
        load, link, store = top.table("load"), top.table("link"), top.table("store")
        pools, faults = top.tables("pool"), top.tables("fault")
        tables = {name: top.table(name) for name in _TABLES}
        top.finish()
        if model is None:
            raise WrongValueError("model", 'it is missing, such as "llama-3-8b"')
        hand_over = _link(link, "[link] ")
        stores, store_keys = _store(store, hand_over)
        config = _config({**tables, "store": store_keys})
    plans = read_pools(pools, f"{file}: ", file.parent, tables["scheduler"])
    with _within(f"{file}: "):
        kv_bytes, context = _of_model(model, plans, kv_bytes, context)
    seed = own_seed or 0 if seed is None else seed
    return Scenario(
        title=title or file.stem,
        model=model,
        seed=seed,
        duration_s=duration_s,
        warmup_s=warmup_s,
        users=_users(load, f"{file}: [load] ", file.parent, context),
        pools=plans,
        link=hand_over,
        store=stores,
        config=config,
        faults=FaultSchedule(seed, read_entries(faults, str(file), actions=ACTIONS)),
        start_s=_DEFAULT_START_S if start_s is None else start_s,
        kv_bytes_per_token=kv_bytes,
        context=context,
    )


def _config(tables: Mapping[str, Mapping[str, Any]]) -> Config:
    for table, names in _WITHOUT_EFFECT.items():
        for name in names:
            if name in tables[table]:
                raise WrongValueError(
                    f"{table}.{name}", "has no effect on a fleet in virtual time: leave it out"
                )
    return build(tables)


def _of_model(
    model: str, pools: tuple[PoolPlan, ...], kv_bytes: int | None, context: int | None
) -> tuple[int, int]:
    """KV bytes of a token, and the longest prompt plus output."""
    bits = {pool.times.kv_bits for pool in pools if isinstance(pool.times, RooflineTimes)}
    if len(bits) > 1:
        raise WrongValueError("kv-bits", "must be the same in all pools: KV moves between them")
    if kv_bytes is not None and context is not None:
        return kv_bytes, context
    try:
        shape = shape_of(model)
    except UsageError as error:
        raise UsageError(
            f"{error}; or give kv-bytes-per-token and context, and a profile to each pool"
        ) from None
    own_bytes = shape.layers * shape.kv_values_per_token * (bits.pop() if bits else 16) / 8
    return kv_bytes or round(own_bytes), context or shape.context


def _link(fields: Mapping[str, Any], where: str) -> LinkPlan:
    with _within(where):
        table, default = Table(fields), LinkPlan()
        gigabytes = table.number("gigabytes-per-s", None, 0.001, 100_000)
        setup_s = table.seconds("setup")
        layerwise = table.flag("layerwise", default.layerwise)
        table.finish()
    return LinkPlan(
        bytes_per_s=default.bytes_per_s if gigabytes is None else gigabytes * 1e9,
        setup_s=default.setup_s if setup_s is None else setup_s,
        layerwise=layerwise,
    )


def _store(fields: Mapping[str, Any], link: LinkPlan) -> tuple[StorePlan | None, Mapping[str, Any]]:
    with _within("[store] "):
        return read_store(fields, link)


def _users(fields: Mapping[str, Any], where: str, folder: Path, context: int) -> UserPlan:
    with _within(where):
        table = Table(fields)
        workload = _workload(table.text("workload", "chat") or "", folder, context)
        copies = table.count("copies", 1, 1, 10_000)
        assert copies is not None
        if copies > 1 and not is_whole_trace(workload):
            raise WrongValueError(
                "copies", "is for traces in their full size: for other loads, raise the rate"
            )
        users = UserPlan(
            workload=workload,
            arrivals=table.text("arrivals"),
            rate_per_s=table.number("rate", None, 1e-4, 1e6),
            copies=copies,
            slos=slos_of(
                table.texts("slo"), table.texts("slo-preset"), names=("slo", "slo-preset")
            ),
            max_tokens=table.count("max-tokens", None, 1, 2**20),
            patience_s=table.seconds("patience", low=0.001),
            all_stamps=table.choice("token-times", ("all", "ends")) == "all",
            front_s=table.seconds("front") or 0.0,
        )
        table.finish()
    return users


def _workload(text: str, folder: Path, context: int) -> Workload:
    workload = parse_workload(text, max_context=context)
    if isinstance(workload, Trace | JsonLines):
        return replace(workload, file=folder / workload.file)
    return workload
