"""Builds the configuration: the one function that live, sim, replay, tests and `LLM` share.

    values ──►  unknown key?  ──►  type, range, choice  ──►  keys that must agree  ──►  Config
                nearest key        of each key               (block and page, …)

Types and limits of single keys are stated once, in `types.config`; only the rules that tie
several keys together are here. Every refusal is a `ConfigError` that names the key.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from antiphon.errors import BugError, ConfigError
from antiphon.types import Config, Key, KvConfig, Role, StoreConfig

from .arithmetic import with_arithmetic
from .cluster_rules import check_cluster
from .host_names import is_loopback
from .number_text import number_text
from .pool_rules import check_store_pool
from .tcp_endpoint import TcpEndpoint, parse_endpoint
from .worker_spec import (
    mixed_workers,
    most_workers,
    planned_roles,
    worker_count,
)

LEASE_TO_FETCH = 1.5
"""Least ratio of the store's `lease_ttl_s` to `fetch_timeout_s`."""
_SIZE = re.compile(r"(\d{1,18})(?: ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB))?", re.ASCII)
_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4} | {
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_LISTS: dict[Any, type] = {tuple[int, ...]: tuple, tuple[str, ...]: list}
_MOVED: Mapping[tuple[str, str, object], str] = {
    ("model", "dtype", "int8"): 'write model.quantize = "int8" now (--quantize int8)'
}
"""Values of earlier versions, and what to write instead."""
_MOST_STRINGS, _LONGEST_STRING = 1024, 256
_SHOWN = 60
"""Longest quoted value in a message: a file may hold anything."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the configuration tree, as reference and error messages need it."""

    table: str
    name: str
    kind: type
    """str, int, float, bool, tuple (of ints) or list (a tuple of strings)."""
    optional: bool
    default: Any
    key: Key

    @property
    def allowed(self) -> str:
        """What the value may be, in words."""
        if self.key.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.key.choices)
        span = ""
        if self.key.low is not None:
            low, high = (_plain(bound, self) for bound in (self.key.low, self.key.high))
            span = f" from {low} to {high}"
        if self.key.size:
            return f'a number of bytes or a size such as "512MB" or "2GiB",{span}'
        noun = {
            str: "a string that is not empty",
            bool: "true or false",
            int: "an integer",
            float: "a number",
            tuple: "a list of different integers",
            list: "a list of different strings",
        }
        return noun[self.kind] + span


def entries() -> Iterator[Entry]:
    """All keys, table by table, in the order of `types.config`."""
    for table in fields(Config):
        part = table.type
        assert isinstance(part, type)
        assert is_dataclass(part)
        hints = get_type_hints(part, include_extras=True)
        for item in fields(part):
            shape, key = get_args(hints[item.name])
            optional = type(None) in get_args(shape)
            plain = get_args(shape)[0] if optional else shape
            kind = _LISTS.get(plain) or plain
            yield Entry(table.name, item.name, kind, optional, item.default, key)


_TABLES: dict[str, dict[str, Entry]] = {table.name: {} for table in fields(Config)}
for _entry in entries():
    _TABLES[_entry.table][_entry.name] = _entry


_HOST_TABLES = ("hosts", "links")
"""Of a file about several hosts: `core.cluster_file` reads them."""


def check_tables(values: Mapping[str, object]) -> None:
    """Raises `ConfigError` for a table that no file can have, with the nearest that it can."""
    for table in values:
        if table not in _TABLES and table not in _HOST_TABLES:
            raise ConfigError(_unknown(None, table))


def build(values: Mapping[str, object]) -> Config:
    """The configuration of nested `values`; a key that is absent (or None) has its default.

    Raises `ConfigError`, and nothing else, whatever `values` holds.
    """
    parts: dict[str, Any] = {}
    for table, content in values.items():
        if table not in _TABLES:
            raise ConfigError(_unknown(None, table))
        if not isinstance(content, Mapping):
            raise ConfigError(f"[{table}] = {_show(content)}: must be a table of keys")
        parts[table] = _part(table, content)
    config = Config(**parts)
    model = values.get("model")
    config = with_arithmetic(config, model if isinstance(model, Mapping) else {})
    _check_agreement(config)
    return config


def as_mapping(config: Config) -> dict[str, dict[str, Any]]:
    """The nested values of `config`, without the keys that are None. `build` inverts it."""
    return {
        table: {
            name: value
            for name in names
            if (value := getattr(getattr(config, table), name)) is not None
        }
        for table, names in _TABLES.items()
    }


def parse_size(text: str) -> int | None:
    """Bytes of a size such as "512MB" or "2GiB", or of a plain number; None if it is neither."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[match[2] or "B"] if match else None


def format_size(size_bytes: int) -> str:
    """The shortest exact size in binary units; `parse_size` inverts it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return f"{size_bytes}B"


def _part(table: str, content: Mapping[object, object]) -> object:
    known = _TABLES[table]
    checked: dict[str, Any] = {}
    for name, value in content.items():
        if not isinstance(name, str) or name not in known:
            raise ConfigError(_unknown(table, name))
        entry = known[name]
        if value is None and entry.optional:
            continue
        checked[name] = _value(entry, value)
    part = type(getattr(Config(), table))
    return part(**checked)


def _value(entry: Entry, value: object) -> object:
    """`value` as the key's type, or `ConfigError`. Strict: "8000" is no port, true is no number."""
    key = entry.key
    match entry.kind, value:
        case (_, bool()):
            good = entry.kind is bool
        case (kind, str()) if kind is str:
            good = bool(value.strip()) and "\0" not in value
            good = good and (not key.choices or value in key.choices)
        case (kind, str()) if kind is int and key.size:
            size = parse_size(value)
            good = size is not None and _within(key, size)
            value = size if good else value
        case (kind, int()) if kind is int:
            good = _within(key, value)
        case (kind, int() | float()) if kind is float:
            good = _within(key, value)
            value = float(value) if good else value
        case (kind, list() | tuple()) if kind is tuple:
            good = all(type(item) is int and _within(key, item) for item in value)
            good = good and len(set(value)) == len(value)
            value = tuple(value)
        case (kind, list() | tuple()) if kind is list:
            good = len(value) <= _MOST_STRINGS and all(map(_is_text, value))
            good = good and len(set(value)) == len(value)
            value = tuple(value)
        case _:
            good = False
    if not good:
        if isinstance(value, str) and (now := _MOVED.get((entry.table, entry.name, value))):
            raise ConfigError(f"{entry.table}.{entry.name} = {_show(value)}: {now}")
        raise ConfigError(f"{entry.table}.{entry.name} = {_show(value)}: must be {entry.allowed}")
    return value


def _is_text(item: object) -> bool:
    if type(item) is not str:
        return False
    return bool(item.strip()) and len(item) <= _LONGEST_STRING and "\0" not in item


def _within(key: Key, number: float) -> bool:
    """NaN is in no range."""
    if key.low is None or key.high is None:
        raise BugError(f"a number without limits: {key.meaning}")
    return key.low <= number <= key.high


def _check_agreement(config: Config) -> None:
    """The rules that tie keys together."""
    kv, scheduler, http = config.kv, config.scheduler, config.http
    check_cluster(config)
    check_store_pool(config)
    _check_store(config.store)
    _check_remote(config.store)
    _check_kv_events(kv, max(1, worker_count(config.cluster)))
    _check_planner(config)
    if kv.block_tokens % kv.page_tokens:
        raise ConfigError(
            f"kv.block_tokens = {kv.block_tokens}: must be a multiple of "
            f"kv.page_tokens = {kv.page_tokens}"
        )
    if scheduler.max_batched_tokens < scheduler.max_num_seqs:
        raise ConfigError(
            f"scheduler.max_batched_tokens = {scheduler.max_batched_tokens}: must be at least "
            f"scheduler.max_num_seqs = {scheduler.max_num_seqs}, since each running sequence "
            f"takes a token of every step"
        )
    if http.api_key_file is None and not is_loopback(http.host):
        raise ConfigError(
            f"http.host = {_show(http.host)}: others can reach this address, so it needs API keys: "
            f"set http.api_key_file (--api-key-file), or listen on 127.0.0.1"
        )


def _check_store(store: StoreConfig) -> None:
    """What was found stays while the rest is waited for; what is said of places has an effect."""
    if store.lease_ttl_s < LEASE_TO_FETCH * store.fetch_timeout_s:
        raise ConfigError(
            f"store.lease_ttl_s = {number_text(store.lease_ttl_s)}: must be at least "
            f"{number_text(LEASE_TO_FETCH)} times store.fetch_timeout_s = "
            f"{number_text(store.fetch_timeout_s)}, or blocks go while they are "
            f"fetched"
        )
    if store.socket is not None and "/" not in store.socket:
        raise ConfigError(
            f"store.socket = {_show(store.socket)}: must be the path of a socket, with a / in it "
            f"(--store on, off, or that path)"
        )
    if store.dir is not None and not store.disk_bytes:
        raise ConfigError(
            f"store.dir = {_show(store.dir)}: of no use while store.disk_bytes = 0: say how much "
            f"may be kept there (--store-disk)"
        )
    if store.at_rest_key_file is not None and not store.disk_bytes and store.remote is None:
        raise ConfigError(
            f"store.at_rest_key_file = {_show(store.at_rest_key_file)}: of no use without a disk "
            f"tier or a remote one: set store.disk_bytes (--store-disk) or store.remote"
        )


def _check_remote(store: StoreConfig) -> None:
    """Its address holds no secret: configurations are shown, logged and handed on. The message does
    not repeat it."""
    remote = store.remote or ""
    if "@" in remote or "password" in remote.lower():
        raise ConfigError(
            "store.remote: holds a user or a password, and would be shown and logged: leave "
            "only host, port and database there, and set store.remote_password_file"
        )


def _check_planner(config: Config) -> None:
    """It has something to decide, within limits that can be kept."""
    cluster, planner = config.cluster, config.planner
    if planner.mode == "off":
        return
    roles = planned_roles(cluster)
    if mixed_workers(cluster) and cluster.prefill + cluster.decode:
        raise ConfigError(
            "planner.mode: mixed workers beside others share their work, and the planner can't "
            "tell how: set cluster.mixed = 0, or have mixed workers only"
        )
    if Role.MIXED not in roles and not (cluster.prefill and cluster.decode):
        raise ConfigError(
            f"planner.mode: cluster.prefill = {cluster.prefill}, cluster.decode = "
            f"{cluster.decode}: the planner needs at least one of both (--prefill, --decode), or "
            f"mixed workers only"
        )
    if planner.budget is not None and planner.budget < planner.least * len(roles):
        raise ConfigError(
            f"planner.budget = {planner.budget}: planner.least = {planner.least} workers of "
            f"{len(roles)} roles are more"
        )
    if planner.mode == "act" and most_workers(config) < worker_count(cluster):
        raise ConfigError(
            f"planner.budget = {planner.budget}: the server starts with "
            f"{worker_count(cluster)} workers (cluster.prefill, cluster.decode, cluster.mixed)"
        )
    if planner.mode == "act" and config.kv.events is not None:
        raise ConfigError(
            'kv.events: followers know workers by their port, and those of planner.mode = "act" '
            "come and go: leave one of them out, or let the planner advise"
        )


def _check_kv_events(kv: KvConfig, workers: int) -> None:
    """There is an address for each worker, and others see prompts only where that was allowed."""
    places = [
        _kv_endpoint(name, text, workers, exposed=kv.events_exposed)
        for name, text in (("events", kv.events), ("events_replay", kv.events_replay))
        if text is not None
    ]
    if kv.events_replay is not None and kv.events is None:
        raise ConfigError("kv.events_replay is set: it needs kv.events, whose events it repeats")
    ports = [place.port for place in places if place.port]
    if len(ports) > 1 and abs(ports[0] - ports[1]) < workers:
        raise ConfigError(
            f"kv.events_replay = {_show(kv.events_replay)}: {workers} workers use as many ports "
            f"from there on, and some of them are those of kv.events: leave room between them"
        )


def _kv_endpoint(name: str, text: str, workers: int, *, exposed: bool) -> TcpEndpoint:
    endpoint = parse_endpoint(text, workers)
    if endpoint is None:
        raise ConfigError(
            f"kv.{name} = {_show(text)}: must be tcp://HOST:PORT, such as "
            f"tcp://127.0.0.1:5557, with a port for each of {workers} workers"
        )
    if not (exposed or is_loopback(endpoint.host)):
        raise ConfigError(
            f"kv.{name} = {_show(text)}: others can reach this address, and events hold the "
            f"tokens of all prompts: listen on 127.0.0.1, or set kv.events_exposed"
        )
    return endpoint


def _unknown(table: str | None, name: object) -> str:
    """Names the nearest known key, in the same table if there is one there, and its table."""
    where = f"unknown key {_show(name)} in [{table}]" if table else f"unknown table {_show(name)}"
    text = name[:_SHOWN] if isinstance(name, str) else ""
    if table is None and (near := get_close_matches(text, (*_TABLES, *_HOST_TABLES), n=1)):
        return f"{where}: did you mean [{near[0]}]?"
    for candidate in [table, *_TABLES] if table else _TABLES:
        cutoff = 0.6 if candidate == table else 0.75
        if near := get_close_matches(text, _TABLES[candidate], n=1, cutoff=cutoff):
            return f"{where}: did you mean {near[0]} in [{candidate}]?"
    known = ", ".join(_TABLES[table]) if table else ", ".join(f"[{known}]" for known in _TABLES)
    return f"{where}: known are {known}"


def _show(value: object) -> str:
    """A value as one short line."""
    match value:
        case str():
            text = '"' + value.encode("unicode_escape").decode()[:_SHOWN] + '"'
        case bool():
            text = str(value).lower()
        case int() if abs(value) >= 10**_SHOWN:
            text = "a huge integer"
        case int() | float() | None:
            text = str(value)
        case list() | tuple():
            shown = [_show(item) for item in value[:5] if not isinstance(item, list | tuple)]
            text = "[" + ", ".join(shown) + ("]" if len(shown) == len(value) else ", …]")
        case _:
            text = f"a {type(value).__name__}"
    return text


def _plain(bound: float | None, entry: Entry) -> str:
    if entry.key.size:
        return format_size(int(bound or 0))
    return number_text(bound or 0.0) if entry.kind is float else str(bound)
