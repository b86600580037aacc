"""What a gateway's router expects of devices: the shipped times, or those of a measured profile."""

from pathlib import Path

from antiphon.core.arithmetic import dtype_of
from antiphon.errors import ConfigError
from antiphon.perf import (
    DEFAULT_LINK_TIME,
    DEFAULT_STEP_TIME,
    LinkTime,
    read_profile,
    write_times,
)
from antiphon.types import Config, NetworkConfig


def router_times(config: Config, identity: bytes) -> str:
    """The times as the head of a decision log holds them; "": the shipped ones.

    `identity` is that of the model that is served. Raises `UsageError`: the file of
    `router.profile` can't be used, or was measured for another model or other arithmetic. Another
    number of cores will do: routers correct how fast a worker is as a whole.
    """
    file = config.router.profile
    link_time = _link_time(config.network)
    if file is None:
        return "" if link_time is DEFAULT_LINK_TIME else write_times(DEFAULT_STEP_TIME, link_time)
    profile = read_profile(Path(file))
    measured = profile.engine
    if measured.identity != identity.hex():
        raise ConfigError(
            f"router.profile {file}: was measured for another model ({measured.model}): "
            "measure this one (antiphon profile)"
        )
    dtype = dtype_of(config.model.quantize, config.model.dtype)
    if measured.dtype != dtype:
        raise ConfigError(
            f"router.profile {file}: was measured with {measured.dtype} arithmetic, but "
            f"workers compute in {dtype} (model.quantize, model.dtype): measure it so (antiphon "
            f"profile {'--quantize' if dtype == 'int8' else '--dtype'} {dtype})"
        )
    return write_times(profile.step_time, link_time)


def _link_time(network: NetworkConfig) -> LinkTime:
    """How long KV takes from worker to worker: in a cluster of several hosts as between them, for
    the router does not tell pairs apart. Three messages go before the bytes."""
    if network.link_bytes_per_s is None:
        return DEFAULT_LINK_TIME
    slowest = min(network.link_bytes_per_s, DEFAULT_LINK_TIME.bytes_per_s)
    return LinkTime(
        setup_s=DEFAULT_LINK_TIME.setup_s + 6 * network.link_delay_s, bytes_per_s=slowest
    )
