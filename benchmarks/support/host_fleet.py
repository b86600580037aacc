"""The cluster of this machine in virtual time: SmolLM2-135M in int8, KV in bf16.

What it needs to know of the machine was measured by other benchmarks: `antiphon profile` (steps),
`transfer.py` (KV from one worker to another) and `store.py` (a message and its answer: 0.1 ms).
"""

import json

from antiphon.perf import DEFAULT_LINK_TIME, FittedPhaseTime, LinkTime
from antiphon.sim.fleet import FleetSpec, Pool
from antiphon.sim.network import LinkTimes
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import Config

from .result import RESULTS

PROFILE = RESULTS / "profile.json"
"""Step times of one core, as `antiphon profile` measured them."""
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
_CONTEXT = 8192
_ONE_WAY_S = 0.05e-3


def host_fleet(pools: tuple[Pool, ...], config: Config, phases: FittedPhaseTime) -> FleetSpec:
    """`phases`: what its router expects, beside the live router's assumption of links."""
    return FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(phases, DEFAULT_LINK_TIME),
        transfer=_measured_link(),
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        max_model_len=_CONTEXT,
        times=LinkTimes(least_s=_ONE_WAY_S, most_s=_ONE_WAY_S),
    )


def _measured_link() -> LinkTime:
    """Sealing and pulling a prompt; messages are the network's."""
    found = json.loads((RESULTS / "transfer.json").read_text())["results"]["request"]
    took_s = found["seal_s"] + found["pull_s"]
    return LinkTime(setup_s=0.0, bytes_per_s=found["tokens"] * KV_BYTES_PER_TOKEN / took_s)
