"""The table [store] of a scenario."""

from collections.abc import Mapping
from typing import Any

from antiphon.core.config import LEASE_TO_FETCH
from antiphon.core.faults import Table, WrongValueError
from antiphon.perf import LinkTime
from antiphon.types import StoreConfig

from .scenario import LinkPlan
from .store_plan import Reach, StorePlan

_GIGABYTE = 10**9
_MOST_GIGABYTES = 10**6


def read_store(
    fields: Mapping[str, Any], link: LinkPlan
) -> tuple[StorePlan | None, Mapping[str, Any]]:
    """The stores, None without the table, and what of it is configuration (`Config.store`).

    `link`: of hand-overs, which holds for stores where the table says nothing else. Raises
    `WrongValueError`.
    """
    if not fields:
        return None, {}
    table, default = Table(fields), StorePlan(host_bytes=0)
    gigabytes = table.number("gigabytes", None, 0.0, _MOST_GIGABYTES)
    workers_per_host = table.count("workers-per-host", 1, 1, 4096)
    reach = Reach(table.choice("reach", list(Reach)))
    to_worker = _link(table, "", LinkTime(setup_s=link.setup_s, bytes_per_s=link.bytes_per_s))
    ssd_gigabytes = table.number("ssd-gigabytes", 0.0, 0.0, _MOST_GIGABYTES)
    ssd = _link(table, "ssd-", default.ssd)
    network = _link(table, "network-", default.network)
    config = _config(table)
    table.finish()
    if gigabytes is None:
        raise WrongValueError("gigabytes", "it is missing: what memory does each host give?")
    assert workers_per_host is not None
    assert ssd_gigabytes is not None
    plan = StorePlan(
        host_bytes=round(gigabytes * _GIGABYTE),
        workers_per_host=workers_per_host,
        reach=reach,
        link=to_worker,
        ssd_bytes=round(ssd_gigabytes * _GIGABYTE),
        ssd=ssd,
        network=network,
    )
    return plan, config


def _link(table: Table, prefix: str, default: LinkTime) -> LinkTime:
    gigabytes = table.number(f"{prefix}gigabytes-per-s", None, 0.001, 100_000)
    setup_s = table.seconds(f"{prefix}setup")
    return LinkTime(
        setup_s=default.setup_s if setup_s is None else setup_s,
        bytes_per_s=default.bytes_per_s if gigabytes is None else gigabytes * _GIGABYTE,
    )


def _config(table: Table) -> Mapping[str, Any]:
    """Keys of `Config.store`, which says what they may be."""
    given: dict[str, Any] = {
        "policy": table.text("policy"),
        "tenant_share": table.number("tenant-share", None, 0.0, 1.0),
    }
    timeout_s = table.seconds("fetch-timeout")
    if timeout_s is not None:
        given["fetch_timeout_s"] = timeout_s
        given["lease_ttl_s"] = max(StoreConfig().lease_ttl_s, LEASE_TO_FETCH * timeout_s)
    return {key: value for key, value in given.items() if value is not None}
