"""Mooncake's fleet in virtual time: Llama-3 70B, 4 H800 a worker, its conversation trace."""

from collections.abc import Mapping
from pathlib import Path

from antiphon.core.config import build
from antiphon.perf import LinkTime
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TraceLoad, UserRules, trace_sessions
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Slo
from antiphon.workload import read_mooncake

from .trace_replay import TRACES

TRACE = TRACES / "conversation_trace.jsonl"
_DEVICES = 4
_LINK = LinkTime(setup_s=0.002, bytes_per_s=50e9)


def mooncake_fleet(
    workers: Mapping[Role, int], trace: Path, load: TraceLoad, slo: Slo, *, policy: str = "slo"
) -> tuple[Fleet, list[CallRecord]]:
    """A fleet with so many workers of each role, whose records come as calls end."""
    model = Deployment(
        model=shape_of("llama-3-70b"),
        device=device_of("h800"),
        parallelism=Parallelism(tensor=_DEVICES),
        step_tokens=8192,
    )
    config = build(
        {
            "kv": {"block_tokens": 512, "page_tokens": 64},
            "scheduler": {"max_batched_tokens": 8192, "max_num_seqs": 256, "max_queue": 100_000},
            "cluster": {"heartbeat_s": 1.0, "lost_after_s": 5.0},
            "router": {"policy": policy, "ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s},
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
            devices=_DEVICES,
        )
        for role, count in workers.items()
    )
    spec = FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(model, _LINK),
        transfer=_LINK,
        kv_bytes_per_token=round(model.kv_bytes_per_token),
        max_model_len=131_072,
    )
    records: list[CallRecord] = []
    rules = UserRules(slos=(("", slo),), max_tokens=4096, all_stamps=False)
    sessions = trace_sessions(read_mooncake(trace), load, seed=1)
    return Fleet(spec, sessions, rules, records.append), records
