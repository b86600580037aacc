"""Each worker publishes on ports of its own, under its own number."""

import socket

import msgspec
import pytest
import zmq

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.kv_followers import followed
from antiphon.live.kv_listeners import KvListeners
from antiphon.testing.free_ports import free_ports
from antiphon.types import BlockStored, WorkerId


def test_nobody_follows_unless_it_is_configured() -> None:
    with followed(build({}), WorkerId("mixed-0"), KvListeners()) as events:
        assert events is None


def test_workers_of_all_roles_have_different_ports_and_ranks() -> None:
    first = free_ports(6)
    config = build(
        {
            "kv": {
                "events": f"tcp://127.0.0.1:{first}",
                "events_replay": f"tcp://127.0.0.1:{first + 3}",
                "events_format": "map",
            },
            "cluster": {"prefill": 1, "decode": 1, "mixed": 1},
        }
    )
    with zmq.Context() as context:
        for number, name in enumerate(("prefill-0", "decode-0", "mixed-0")):
            heard = KvListeners()
            with followed(config, WorkerId(name), heard) as events:
                assert events is not None
                assert events.endpoint == f"tcp://127.0.0.1:{first + number}"
                heard(BlockStored(b"k" * 32, None, (0,), (1, 2)))
                rank, said = replayed(context, first + 3 + number)
                assert rank == number
                assert said[0] == {"type": "AllBlocksCleared"}


def replayed(context: "zmq.Context[zmq.Socket[bytes]]", port: int) -> tuple[int, list[object]]:
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(f"tcp://127.0.0.1:{port}")
        while True:
            dealer.send_multipart([b"", bytes(8)])
            said = []
            while len(payload := dealer.recv_multipart()[2]):
                _, events, rank = msgspec.msgpack.decode(payload)
                said += events
            if said:
                return rank, said


def test_a_port_that_is_taken_is_a_usage_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        config = build({"kv": {"events": where}})
        with (
            pytest.raises(UsageError, match=r"kv\.events"),
            followed(config, WorkerId("mixed-0"), KvListeners()),
        ):
            raise AssertionError("it was taken")
