"""The cluster of this machine in virtual time: SmolLM2-135M in int8, KV in bf16."""

from antiphon.perf import DEFAULT_LINK_TIME, FittedPhaseTime
from antiphon.sim.fleet import FleetSpec, Pool
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import Config

from .result import RESULTS

PROFILE = RESULTS / "profile.json"
"""Step times of one core, as `antiphon profile` measured them."""
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
_CONTEXT = 8192


def host_fleet(pools: tuple[Pool, ...], config: Config, phases: FittedPhaseTime) -> FleetSpec:
    """`phases`: what its router expects."""
    return FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(phases, DEFAULT_LINK_TIME),
        transfer=DEFAULT_LINK_TIME,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        max_model_len=_CONTEXT,
    )
