"""Where the configuration comes from: a TOML file, then the command's options over it."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from antiphon.core import cluster_file
from antiphon.core.cluster_file import ClusterFile
from antiphon.core.config import build
from antiphon.errors import ConfigError
from antiphon.types import Config, HostName

_CORES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)

Options = Mapping[tuple[str, str], object]
"""(table, key) → the value of a command-line option; None: the option was not given."""


def load(
    file: Path | None,
    options: Options | None = None,
    host: HostName | None = None,
    *,
    reaches_hosts: bool = True,
) -> Config:
    """The configuration of `file` with `options` over it: of a file about several hosts, that of
    `host`, or else of the gateway's. Its keys may be missing if it `reaches_hosts` not.

    Raises `ConfigError`: the file can't be read, is no TOML, or a key or value is wrong.
    """
    values: dict[str, object] = dict(_read(file)) if file else {}
    try:
        if (cluster := cluster_file.parse(values)) is not None:
            host = host or cluster.gateway.name
            values = dict(cluster.on_host(host))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    given = {where: value for where, value in (options or {}).items() if value is not None}
    for table, name in given:
        content = values.get(table, {})
        if isinstance(content, Mapping):
            values[table] = {**content, name: given[table, name]}
    network = values.get("network", {})
    if cluster is None or not isinstance(network, Mapping) or network.get("keys") is not None:
        network = None
    if network is not None and reaches_hosts:
        raise ConfigError(
            f"{file}: has hosts, and --keys FOLDER is missing: give this one's keys, of "
            f"`antiphon cluster keys`, such as --keys keys/{host}"
        )
    try:
        if network is None:
            return build(values)
        config = build({**values, "network": {**network, "keys": "not needed"}})
        return replace(config, network=replace(config.network, keys=None))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if file else str(error)) from None


ENGINE_OPTIONS = (
    "quantize",
    "dtype",
    "max_model_len",
    "kv_memory",
    "page_tokens",
    "kv_dtype",
    "cores",
    "device",
)
"""Of `engine_options`, besides the model."""


def engine_options(
    model: str | None,
    quantize: str | None,
    dtype: str | None,
    max_model_len: int | None,
    kv_memory: str | None,
    page_tokens: int | None,
    kv_dtype: str | None,
    cores: str | None,
    device: str | None,
) -> Options:
    """What commands that run an engine have in common. Raises `ConfigError`."""
    return {
        ("model", "name"): model,
        ("model", "quantize"): quantize,
        ("model", "dtype"): dtype,
        ("model", "max_model_len"): max_model_len,
        ("kv", "memory_bytes"): kv_memory,
        ("kv", "page_tokens"): page_tokens,
        ("kv", "dtype"): kv_dtype,
        ("engine", "cores"): parse_cores(cores),
        ("engine", "device"): device,
    }


def read_cluster(file: Path) -> ClusterFile:
    """The hosts of a file. Raises `ConfigError`, as `load` does, or if it has none."""
    values = _read(file)
    try:
        cluster = cluster_file.parse(values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if cluster is None:
        raise ConfigError(f"{file}: has no [hosts.…]: it is about one host")
    for name in cluster.hosts:
        load(file, None, name, reaches_hosts=False)
    return cluster


def file_or_model(argument: str | None, file: Path | None) -> tuple[Path | None, str | None]:
    """The configuration file and the model that `antiphon serve ARGUMENT --config FILE` name.

    An argument that ends in .toml is a configuration file. Raises `ConfigError` for two of them.
    """
    if argument is None or not argument.endswith(".toml"):
        return file, argument
    if file is not None:
        raise ConfigError(f"{argument} and --config {file}: give one configuration file")
    return Path(argument), None


def parse_cores(text: str | None) -> tuple[int, ...] | None:
    """Core numbers of a list such as "0,1" or "0-3,6". Raises `ConfigError`."""
    if text is None:
        return None
    cores: list[int] = []
    for part in text.split(","):
        match = _CORES.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f'--cores "{text}": must be a list such as 0,1 or 0-3,6')
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise ConfigError(f'--cores "{text}": {part.strip()} is an empty range')
        cores.extend(range(low, high + 1))
    return tuple(cores)


def _read(file: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from None
