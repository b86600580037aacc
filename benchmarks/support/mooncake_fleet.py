"""Mooncake's fleet in virtual time: Llama-3 70B on nodes of several devices, under its trace.

Its own nodes have 8 A800, which compute as A100 do, and links of 87 GB/s as it measured (Qin et
al., FAST 2025); their memory is a terabyte here, three million tokens' KV.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.config import build
from antiphon.perf import LinkTime
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of
from antiphon.sim.fleet import (
    Fleet,
    FleetSpec,
    Pool,
    Reach,
    StorePlan,
    TraceLoad,
    UserRules,
    trace_sessions,
)
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Slo
from antiphon.workload import read_mooncake

from .trace_replay import TRACES

TRACE = TRACES / "conversation_trace.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one worker runs on."""

    device: str
    devices: int
    link: LinkTime
    host_bytes: int = 10**12

    def store(self, reach: Reach) -> StorePlan:
        """The memory of each node, for all of them or for its own worker."""
        return StorePlan(host_bytes=self.host_bytes, reach=reach, link=self.link)


H800_NODE = Node(device="h800", devices=4, link=LinkTime(setup_s=0.002, bytes_per_s=50e9))
A800_NODE = Node(device="a100", devices=8, link=LinkTime(setup_s=0.002, bytes_per_s=87e9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How a fleet is run: router, scheduler, and whether nodes' memory keeps KV, and for whom."""

    policy: str = "slo"
    reach: Reach | None = None
    conditional_split: bool = True
    prefill_first: bool = False


STANDARD = Variant()


def mooncake_fleet(
    workers: Mapping[Role, int],
    trace: Path,
    load: TraceLoad,
    slo: Slo,
    *,
    node: Node = H800_NODE,
    variant: Variant = STANDARD,
    seed: int = 1,
) -> tuple[Fleet, list[CallRecord]]:
    """A fleet with so many workers of each role, whose records come as calls end."""
    model = Deployment(
        model=shape_of("llama-3-70b"),
        device=device_of(node.device),
        parallelism=Parallelism(tensor=node.devices),
        step_tokens=8192,
    )
    config = build(
        {
            "kv": {"block_tokens": 512, "page_tokens": 64},
            "scheduler": {
                "max_batched_tokens": 8192,
                "max_num_seqs": 256,
                "max_queue": 100_000,
                "prefill_first": variant.prefill_first,
            },
            "cluster": {"heartbeat_s": 1.0, "lost_after_s": 5.0},
            "router": {
                "policy": variant.policy,
                "ttft_s": slo.ttft_s,
                "tpot_s": slo.tpot_s,
                "conditional_split": variant.conditional_split,
            },
            "store": {"fetch_timeout_s": 10.0, "lease_ttl_s": 15.0},
        }
    )
    pools = tuple(
        Pool(
            name=role.value,
            role=role,
            workers=count,
            step_time=model,
            phases=model,
            kv_tokens=model.kv_tokens,
            devices=node.devices,
        )
        for role, count in workers.items()
    )
    spec = FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(model, node.link),
        transfer=node.link,
        kv_bytes_per_token=round(model.kv_bytes_per_token),
        max_model_len=131_072,
        store=None if variant.reach is None else node.store(variant.reach),
    )
    records: list[CallRecord] = []
    rules = UserRules(slos=(("", slo),), max_tokens=4096, all_stamps=False)
    sessions = trace_sessions(read_mooncake(trace), load, seed=seed)
    return Fleet(spec, sessions, rules, records.append), records


def fetched_tokens(fleet: Fleet) -> int:
    """Tokens that came from stores so far, into all workers that live."""
    return sum(view.fetched_tokens_total for view in fleet.views().values())
