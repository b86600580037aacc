"""The configuration: any mapping becomes a Config or a ConfigError that names the key."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.config import (
    as_mapping,
    build,
    entries,
    format_size,
    is_loopback,
    parse_size,
)
from antiphon.core.worker_spec import MAX_WORKERS
from antiphon.errors import ConfigError
from antiphon.types import ClusterConfig, Config

ENTRIES = list(entries())
TABLES = sorted({entry.table for entry in ENTRIES})
NAMES = sorted({entry.name for entry in ENTRIES})

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.sampled_from(["2GiB", "127.0.0.1", "0.0.0.0", "fp32", 10**80, "9" * 400 + "GiB", set()]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
near_misses = st.dictionaries(
    st.sampled_from(TABLES) | st.text(max_size=8),
    st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8) | st.integers(), anything)
    | anything,
    max_size=4,
)


def within(entry: Any) -> st.SearchStrategy[Any]:
    low, high = entry.key.low, entry.key.high
    if entry.key.choices:
        return st.sampled_from(entry.key.choices)
    if entry.name == "host":
        return st.sampled_from(["127.0.0.1", "::1", "localhost", "127.8.9.1"])
    if entry.name == "events":
        return st.none() | st.sampled_from(["tcp://127.0.0.1:5557", "tcp://[::1]:0"])
    if entry.name == "events_replay":
        return st.none() | st.sampled_from(["tcp://localhost:9000", "tcp://127.0.0.1:0"])
    values = {
        str: st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
            lambda text: text.strip() != ""
        ),
        bool: st.booleans(),
        int: st.integers(low, high),
        float: st.floats(low, high),
        tuple: st.lists(st.integers(0, 99), unique=True, max_size=5),
        list: st.lists(st.sampled_from(["a", "10.0.0.1", "b.decode-0"]), unique=True),
    }[entry.kind]
    return values | st.none() if entry.optional else values


def networks(*, alone: bool) -> st.SearchStrategy[dict[str, Any]]:
    """What may stand in [network] together."""
    addresses = st.lists(st.sampled_from(["10.0.0.1", "::1", "box1.lan"]), min_size=1, unique=True)
    fixed = {"keys": st.just("keys"), "addresses": addresses}
    others = {
        "join": st.lists(st.sampled_from(["10.0.0.1", "[::1]:7", "box1:1"]), unique=True),
        "expected": st.lists(st.sampled_from(["a.decode-0", "b-c.mixed-12"]), max_size=1),
    }
    free = {"port": st.integers(0, 65535), "encrypt_kv": st.booleans()}
    tables = st.fixed_dictionaries(fixed, optional=free if alone else free | others)
    by_nixl = {"kv_transport": "nixl", "encrypt_kv": False}
    return tables | tables.map(lambda table: {**table, **by_nixl})


@st.composite
def valid_values(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Every key is absent or in its range, and those that must agree do."""
    values: dict[str, dict[str, Any]] = {}
    for entry in ENTRIES:
        if draw(st.booleans()):
            values.setdefault(entry.table, {})[entry.name] = draw(within(entry))
    if values.get("kv", {}).get("events") is None:
        values.get("kv", {}).pop("events_replay", None)
    pages = draw(st.integers(1, 64))
    blocks = pages * draw(st.integers(1, 4096 // 64))
    values.setdefault("kv", {}).update(page_tokens=pages, block_tokens=blocks)
    sequences = draw(st.integers(1, 65536))
    budget = draw(st.integers(sequences, 2**20))
    values.setdefault("scheduler", {}).update(max_num_seqs=sequences, max_batched_tokens=budget)
    workers = st.integers(0, MAX_WORKERS // 3)
    values.setdefault("cluster", {}).update(
        prefill=draw(workers), decode=draw(workers), mixed=draw(st.integers(1, MAX_WORKERS // 3))
    )
    device = draw(st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:255"]))
    values.setdefault("engine", {})["device"] = device
    model = values.setdefault("model", {})
    if model.get("quantize") == "int8" and (device != "cpu" or "dtype" in model):
        model["quantize"] = "none"
    fetch_s = draw(st.floats(0.001, 60.0))
    values.setdefault("store", {}).update(
        fetch_timeout_s=fetch_s, lease_ttl_s=draw(st.floats(max(0.1, 1.5 * fetch_s), 3600.0))
    )
    if values["store"].get("socket"):
        values["store"]["socket"] = "/run/" + values["store"]["socket"]
    if not values["store"].get("disk_bytes"):
        values["store"].pop("dir", None)
    beat = draw(st.floats(0.01, 60.0))
    values["cluster"].update(
        heartbeat_s=beat, lost_after_s=draw(st.floats(max(0.05, 2 * beat), 600.0))
    )
    planner = values.setdefault("planner", {})
    if planner.get("mode", "off") != "off":
        values["cluster"].update(prefill=0, decode=0)
        values.get("kv", {}).pop("events", None)
        values.get("kv", {}).pop("events_replay", None)
        least = max(values["cluster"]["mixed"], planner.get("least", 1))
        planner["budget"] = draw(st.none() | st.integers(least, MAX_WORKERS))
    values.pop("network", None)
    if draw(st.booleans()):
        values["network"] = draw(networks(alone=planner.get("mode") == "act"))
    pool = values.setdefault("store_pool", {})
    pool.update(name="box1", peers=draw(st.sampled_from([(), ("box2@127.0.0.1:7421",)])))
    pool["listen"] = "127.0.0.1:7420"
    if str(pool.get("level")).startswith("entropy"):
        pool["profile"] = "kv.profile"
    if values.get("network", {}).get("keys") and draw(st.booleans()):
        pool.update(listen="10.0.0.1:7420", peers=("box2@10.0.0.2:7420",))
    remotes = st.sampled_from(["redis://host:6379/0", "unix:///path?db=1"])
    values.setdefault("store", {})["remote"] = draw(remotes)
    return values


@pytest.mark.no_cover
@given(near_misses)
@settings(max_examples=500, deadline=None)
def test_any_mapping_is_a_config_or_a_config_error(values: Any) -> None:
    try:
        config = build(values)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 600
    else:
        assert build(as_mapping(config)) == config


@given(valid_values())
@settings(max_examples=100, deadline=None)
def test_what_is_in_range_is_taken_and_survives_the_round_trip(values: Any) -> None:
    config = build(values)
    for table, names in values.items():
        for name, value in names.items():
            taken = getattr(getattr(config, table), name)
            assert taken == (tuple(value) if isinstance(value, list) else value)
    assert build(as_mapping(config)) == config


def sizes_beyond(entry: Any) -> list[str]:
    """Texts that are no size, or one out of range: a plain number is a size, too."""
    above, below = entry.key.high + 1, entry.key.low - 1
    return ["", "GiB", "1.5GiB", "7QB", "0x7", str(above), f"{above}B", str(below), f"{below}B"]


@given(st.sampled_from(ENTRIES), st.data())
@settings(max_examples=200, deadline=None)
def test_one_bad_value_is_named_with_what_is_allowed(entry: Any, data: st.DataObject) -> None:
    beyond = [object(), {}, b"x"]
    if entry.key.high is not None and entry.kind is not tuple:
        beyond += [entry.key.high + 1, entry.key.low - 1, float("nan"), float("inf"), True]
        beyond += sizes_beyond(entry) if entry.key.size else ["7"]
    if entry.kind is tuple:
        beyond += [[-1], [1, 1], [True], ["0"], [1.0], 3]
    if entry.kind is list:
        beyond += [[1], ["a", "a"], [""], ["a\0"], "a", [["a"]], ["x" * 300]]
    if entry.kind is str:
        beyond += ["", "  ", "a\0b", 3, ["a"]]
    if entry.kind is bool:
        beyond += [0, 1, "true"]
    if not entry.optional:
        beyond.append(None)
    value = data.draw(st.sampled_from(beyond))
    with pytest.raises(ConfigError) as caught:
        build({entry.table: {entry.name: value}})
    assert f"{entry.table}.{entry.name} = " in str(caught.value)
    assert entry.allowed in str(caught.value)


def test_the_defaults_are_the_dataclasses_defaults() -> None:
    assert build({}) == Config()
    assert build({table: {} for table in TABLES}) == Config()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kv": {"page_token": 1}}, 'unknown key "page_token" in [kv]: did you mean page_tokens'),
        ({"kvs": {}}, 'unknown table "kvs": did you mean [kv]?'),
        ({"page_tokens": 1}, 'unknown table "page_tokens": did you mean page_tokens in [kv]?'),
        ({"model": {"prt": 1}}, "did you mean port in [http]?"),
        ({"http": {"zzzzz": 1}}, "known are host, port"),
        ({"zzzzz": {}}, "known are [model], [kv]"),
        ({"kv": 3}, "[kv] = 3: must be a table"),
        ({"http": {"port": 65536}}, "http.port = 65536: must be an integer from 0 to 65535"),
        ({"http": {"port": "80"}}, 'http.port = "80": must be an integer'),
        ({"model": {"quantize": "fp8"}}, 'model.quantize = "fp8": must be one of "int8", "none"'),
        ({"model": {"dtype": "int8"}}, 'model.dtype = "int8": write model.quantize = "int8" now'),
        ({"model": {"dtype": "f16"}}, 'model.dtype = "f16": must be one of "fp32", "bf16", "fp16"'),
        ({"kv": {"memory_bytes": "lots"}}, 'a size such as "512MB" or "2GiB"'),
        ({"kv": {"memory_bytes": "1KB"}}, 'kv.memory_bytes = "1KB"'),
        ({"kv": {"page_tokens": 48}}, "kv.block_tokens = 64: must be a multiple of"),
        ({"scheduler": {"max_num_seqs": 513}}, "scheduler.max_batched_tokens = 512: must be at"),
        ({"cluster": {"prefill": 1}}, "cluster.prefill = 1, cluster.decode = 0, cluster.mixed = 0"),
        ({"cluster": {"mixed": 0}}, "nobody would decode: set cluster.decode (--decode)"),
        ({"cluster": {"prefill": 200, "decode": 100}}, "300 workers are too many: at most 256"),
        ({"cluster": {"lost_after_s": 0.3}}, "at least twice cluster.heartbeat_s = 0.25"),
        (
            {"store": {"lease_ttl_s": 2, "fetch_timeout_s": 1.5}},
            "store.lease_ttl_s = 2: must be at least 1.5 times store.fetch_timeout_s = 1.5",
        ),
        (
            {"network": {"kv_transport": "nixl"}},
            'network.kv_transport = "nixl": NIXL encrypts nothing',
        ),
        (
            {"network": {"kv_transport": "nixl", "encrypt_kv": False}},
            "network.kv_transport is set, but network.keys is not",
        ),
        ({"network": {"kv_transport": "rdma"}}, 'must be one of "tcp", "nixl"'),
        ({"store": {"socket": "maybe"}}, 'store.socket = "maybe": must be the path of a socket'),
        ({"store": {"dir": "/kv"}}, "store.disk_bytes = 0: say how much"),
        ({"store": {"fetch_timeout_s": 60}}, "store.lease_ttl_s = 5: must be at least 1.5 times"),
        ({"kv": {"events": "5557"}}, 'kv.events = "5557": must be tcp://HOST:PORT'),
        ({"kv": {"events": "tcp://*:5557"}}, "others can reach this address, and events hold"),
        (
            {"kv": {"events": "tcp://127.0.0.1:65535"}, "cluster": {"mixed": 2}},
            "with a port for each of 2 workers",
        ),
        ({"kv": {"events_replay": "tcp://127.0.0.1:1"}}, "it needs kv.events"),
        (
            {
                "kv": {"events": "tcp://127.0.0.1:5557", "events_replay": "tcp://127.0.0.1:5558"},
                "cluster": {"mixed": 2},
            },
            "leave room between them",
        ),
        (
            {"cluster": {"prefill": 1, "mixed": 1}, "planner": {"mode": "advise"}},
            "planner.mode: mixed workers beside others share their work",
        ),
        (
            {"cluster": {"decode": 2}, "planner": {"mode": "advise"}},
            "planner.mode: cluster.prefill = 0, cluster.decode = 2: the planner needs at least one",
        ),
        (
            {
                "cluster": {"prefill": 1, "decode": 1},
                "planner": {"mode": "advise", "budget": 3, "least": 2},
            },
            "planner.budget = 3: planner.least = 2 workers of 2 roles are more",
        ),
        (
            {"cluster": {"mixed": 3}, "planner": {"mode": "act", "budget": 2}},
            "planner.budget = 2: the server starts with 3 workers",
        ),
        (
            {"kv": {"events": "tcp://127.0.0.1:5557"}, "planner": {"mode": "act"}},
            "kv.events: followers know workers by their port",
        ),
        ({"planner": {"mode": "on"}}, 'planner.mode = "on": must be one of "off", "advise"'),
        (
            {
                "store_pool": {
                    "name": "a",
                    "listen": "127.0.0.1:7420",
                    "peers": ("b@10.0.0.2:7420",),
                }
            },
            "store_pool.peers has b@10.0.0.2:7420: stores on other hosts need keys",
        ),
        ({"http": {"host": "0.0.0.0"}}, 'http.host = "0.0.0.0": others can reach this address'),
    ],
)
def test_messages(values: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "cluster", [{"decode": 1}, {"prefill": 1, "decode": 1}, {"prefill": 2, "mixed": 1}]
)
def test_clusters_that_can_serve(cluster: dict[str, int]) -> None:
    assert build({"cluster": cluster}).cluster == ClusterConfig(**cluster)


def test_events_may_be_exposed_by_who_says_so() -> None:
    told = {"events": "tcp://0.0.0.0:5557", "events_replay": "tcp://0.0.0.0:6557"}
    assert build({"kv": {**told, "events_exposed": True}}).kv.events == told["events"]


def test_another_host_is_fine_with_keys() -> None:
    config = build({"http": {"host": "0.0.0.0", "api_key_file": "keys.txt"}})
    assert config.http.api_key_file == "keys.txt"


@given(st.integers(0, 2**50))
@settings(deadline=None)
def test_sizes_round_trip(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("2GiB", 2 * 1024**3),
        ("512MB", 512 * 1000**2),
        ("7 kB", 7000),
        ("4096", 4096),
        ("1.5GiB", None),
    ]
    + [(text, None) for text in ("", "GiB", "-1GiB", "2gib", "2 G", "٣GiB", "9" * 19 + "B")],
)
def test_sizes(text: str, size_bytes: int | None) -> None:
    assert parse_size(text) == size_bytes


def test_only_addresses_that_stay_on_this_machine_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "box", "127.1"))


@pytest.mark.parametrize(
    "remote",
    [
        "redis://u:hunter2@h:1/0",
        "redis://:hunter/2@h",
        "unix://hunter2@/a.sock",
        "redis://h/0?password=hunter2",
    ],
)
def test_a_password_is_no_configuration(remote: str) -> None:
    """It was shown by `antiphon config show`, and went into launch messages and decision logs."""
    with pytest.raises(ConfigError, match=r"set store\.remote_password_file") as raised:
        build({"store": {"remote": remote}})
    assert "hunter" not in str(raised.value)
    assert build({"store": {"remote": "redis://h:1/0", "remote_password_file": "/a"}})
