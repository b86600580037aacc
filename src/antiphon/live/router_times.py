"""What a gateway's router expects of devices: the shipped times, or those of a measured profile."""

from pathlib import Path

from antiphon.errors import ConfigError
from antiphon.perf import DEFAULT_LINK_TIME, read_profile, write_times
from antiphon.types import Config


def router_times(config: Config, identity: bytes) -> str:
    """The times as the head of a decision log holds them; "": the shipped ones.

    `identity` is that of the model that is served. Raises `UsageError`: the file of
    `router.profile` can't be used, or was measured for another model or other arithmetic. Another
    number of cores will do: routers correct how fast a worker is as a whole.
    """
    file = config.router.profile
    if file is None:
        return ""
    profile = read_profile(Path(file))
    measured = profile.engine
    if measured.identity != identity.hex():
        raise ConfigError(
            f"router.profile {file}: was measured for another model ({measured.model}): "
            "measure this one (antiphon profile)"
        )
    if measured.dtype != config.model.dtype:
        raise ConfigError(
            f"router.profile {file}: was measured with {measured.dtype} arithmetic, but "
            f"model.dtype is {config.model.dtype}: measure it so (antiphon profile --dtype)"
        )
    return write_times(profile.step_time, DEFAULT_LINK_TIME)
