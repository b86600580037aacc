"""`cluster.toml`: every host builds its part, and what is wrong is named."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core import cluster_file
from antiphon.core.config import build
from antiphon.core.host_names import format_host_port, parse_host_port
from antiphon.core.store_pool.peer_address import parse_peer
from antiphon.core.worker_spec import worker_specs
from antiphon.errors import ConfigError

FILE = """
[model]
name = "m.gguf"

[network]
keys = "keys"

[hosts.box1]
gateway = true
addresses = ["10.0.0.1", "10.1.0.1"]
prefill = 1

[hosts.box2]
addresses = ["10.0.0.2"]
cores = [2, 3]
decode = 2
worker_port = 7500

[[links]]
between = ["box1", "box2"]
gbit_per_s = 1
delay_ms = 2
"""


def changed(old: str, new: str) -> dict[str, Any]:
    assert old in FILE
    return tomllib.loads(FILE.replace(old, new))


def test_stores_of_hosts_are_one_pool_over_all_addresses() -> None:
    text = FILE.replace("prefill = 1", "prefill = 1\nstore_port = 7420")
    text = text.replace("decode = 2", "decode = 2\nstore_port = 7421")
    cluster = cluster_file.parse(tomllib.loads(text))
    assert cluster is not None
    one, two = (build(cluster.on_host(name)) for name in ("box1", "box2"))
    assert one.store_pool.listen == "10.0.0.1:7420"
    assert one.store_pool.peers == ("box2@10.0.0.2:7421",)
    assert two.store_pool.peers == ("box1@10.0.0.1:7420,10.1.0.1:7420",)
    (spelled,) = two.store_pool.peers
    peer = parse_peer(spelled)
    assert peer is not None
    assert str(peer) == spelled
    assert peer.paths == (("10.0.0.1", 7420), ("10.1.0.1", 7420))
    for wrong in ("box1@", "box1@a:1,", "box1@,a:1", "box1@a:1,b:x", "Box@a:1"):
        assert parse_peer(wrong) is None


def test_each_host_has_its_part() -> None:
    cluster = cluster_file.parse(tomllib.loads(FILE))
    assert cluster is not None
    one, two = (build(cluster.on_host(name)) for name in ("box1", "box2"))
    assert [spec.id for spec in worker_specs(one.cluster, ())] == ["prefill-0"]
    assert [spec.id for spec in worker_specs(two.cluster, ())] == ["decode-0", "decode-1"]
    assert one.network.expected == ("box2.decode-0", "box2.decode-1")
    assert two.network.join == ("10.0.0.1:7400", "10.1.0.1:7400")
    assert (one.network.join, two.network.expected) == ((), ())
    assert (two.engine.cores, two.network.worker_port) == ((2, 3), 7500)
    assert one.model == two.model
    for config in (one, two):
        assert config.network.link_bytes_per_s == 1e9 / 8
        assert config.network.link_delay_s == 0.002


def test_a_file_about_one_host_is_left_alone() -> None:
    assert cluster_file.parse({"model": {"name": "m"}}) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("prefill = 1", "prefil = 1", "did you mean prefill?"),
        ("gateway = true", "gateway = false", "one must have gateway = true"),
        ("decode = 2", "decode = 2\ngateway = true", "here box1, box2 has it"),
        ("decode = 2", "prefill = 2", "nobody would decode"),
        ('["10.0.0.2"]', '"10.0.0.2"', "hosts.box2.addresses: must be a list"),
        ('["10.0.0.2"]', "[]", "has 0, from 1 to 8"),
        ('["10.0.0.2"]', '["10.0.0.2:7"]', "hosts.box2.addresses"),
        ('["10.0.0.2"]', '["10.1.0.1"]', "10.1.0.1 is an address of hosts.box1, too"),
        ("prefill = 1", "prefill = 1\nstore_port = 7400", "hosts.box1.store_port = 7400: is its"),
        (
            "prefill = 1",
            "prefill = 1\nworker_port = 7500\nstore_port = 7501",
            "hosts.box1.store_port = 7501: is one of its workers'",
        ),
        (
            "delay_ms = 2",
            "[[links]]\nbetween = ['box2', 'box1']\ngbit_per_s = 2",
            "links[1].between: links[0] is about box2 and box1 already",
        ),
        ("[network]", "[network]\nlink_delay_s = 1", "network.link_delay_s: follows from"),
        ("[hosts.box2]", "[hosts.Box_2]", "lower-case letters"),
        ('between = ["box1", "box2"]', 'between = ["box1", "box3"]', "did you mean box"),
        ("gbit_per_s = 1", "gbit_per = 1", "did you mean gbit_per_s?"),
        ("gbit_per_s = 1", "gbit_per_s = nan", "must be a number"),
        ("decode = 2", "decode = 200000", "from 0 to 256"),
        ("[network]", "[cluster]\nprefill = 3\n[network]", "cluster.prefill: follows from"),
        ("[network]", "[network]\njoin = []", "network.join: follows from"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        cluster_file.parse(changed(old, new))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('keys = "keys"', "", "network.keys is not"),
        ("[network]", '[planner]\nmode = "act"\n[network]', "the planner"),
        ("prefill = 1", "prefill = 1\nworker_port = 7400", "network.port = 7400"),
        ("cores = [2, 3]", "cores = [2, 2]", "engine.cores"),
    ],
)
def test_what_can_not_be_of_a_host_is_named_when_it_is_built(old: str, new: str, says: str) -> None:
    cluster = cluster_file.parse(changed(old, new))
    assert cluster is not None
    with pytest.raises(ConfigError) as raised:
        for name in cluster.hosts:
            build(cluster.on_host(name))
    assert says in str(raised.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["box1", "box2", "gateway", "addresses", "decode", "between", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["hosts", "links", "cluster", "model"]), values))
def test_whatever_a_file_holds_is_a_cluster_or_one_clear_error(content: dict[str, Any]) -> None:
    try:
        cluster = cluster_file.parse(content)
        for name in cluster.hosts if cluster is not None else ():
            assert cluster is not None
            build(cluster.on_host(name))
    except ConfigError as error:
        assert str(error)


@given(st.ip_addresses().map(str), st.integers(1, 2**16 - 1))
def test_addresses_are_read_as_they_are_written(host: str, port: int) -> None:
    assert parse_host_port(format_host_port(host, port)) == (host, port)


@pytest.mark.parametrize("address", ["300.1.1.1", "10.0.0", "9130", "box.1", "10.0.0.1:7400"])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts\.box2\.addresses has .*without a port"):
        cluster_file.parse(changed('["10.0.0.2"]', f'["{address}"]'))
    assert parse_host_port(address) is None or address.endswith(":7400")
