"""Endpoints of workers: what is written is what is used, and each worker has its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tcp_endpoint import TcpEndpoint, parse_endpoint

hosts = st.sampled_from(["127.0.0.1", "localhost", "::1", "fe80::1", "*", "gpu-box.example"])


@settings(deadline=None)
@given(hosts, st.integers(0, 65535))
def test_what_is_printed_is_read_again(host: str, port: int) -> None:
    endpoint = TcpEndpoint(host, port)
    assert parse_endpoint(str(endpoint)) == endpoint


@settings(deadline=None)
@given(hosts, st.integers(1, 65535), st.integers(1, 256))
def test_each_worker_has_a_port_of_its_own_or_nobody_has(
    host: str, port: int, workers: int
) -> None:
    endpoint = parse_endpoint(str(TcpEndpoint(host, port)), workers)
    assert (endpoint is None) == (port + workers > 65536)
    if endpoint is not None:
        ports = [endpoint.of_worker(number).port for number in range(workers)]
        assert ports == list(range(port, port + workers))


def test_any_free_port_is_for_everybody() -> None:
    endpoint = parse_endpoint("tcp://127.0.0.1:0", 256)
    assert endpoint is not None
    assert endpoint.of_worker(7) == endpoint


@settings(deadline=None)
@given(st.text(max_size=30))
def test_anything_else_is_none(text: str) -> None:
    if not text.startswith("tcp://"):
        assert parse_endpoint(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "tcp://h",
        "tcp://h:",
        "tcp://h:x",
        "tcp://h:65536",
        "tcp://:1",
        "tcp://h:-1",
        "udp://h:1",
        "tcp://a b:1",
        "tcp://h:1/x",
        "tcp://[::1:1",
        "tcp://::1:1",
        "tcp://h:\uff11",
    ],
)
def test_what_is_nearly_an_endpoint_is_none(text: str) -> None:
    assert parse_endpoint(text) is None
