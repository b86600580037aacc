"""Another router's follower learns which prompts a real cluster's workers have."""

import signal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import zmq
from e2e_process import Served, config_file, joined

from antiphon.testing.free_ports import free_ports

BLOCK = 64
END = (-1).to_bytes(8, "big", signed=True)


def everything(context: "zmq.Context[Any]", port: int) -> list[list[Any]]:
    """All events that the worker at this replay port has published."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send_multipart([b"", bytes(8)])
        events: list[list[Any]] = []
        while dealer.poll(10_000):
            _, number, payload = dealer.recv_multipart()
            if number == END:
                return events
            events += msgspec.msgpack.decode(payload)[1]
        raise AssertionError("the worker does not answer")


def test_followers_see_the_blocks_of_a_prompt_where_it_ran(tiny: Path, tmp_path: Path) -> None:
    first = free_ports(4)
    file = config_file(
        tmp_path / "followed.toml",
        model={"name": str(tiny)},
        http={"port": 0},
        cluster={"mixed": 2},
        kv={
            "memory_bytes": "8MiB",
            "events": f"tcp://127.0.0.1:{first}",
            "events_replay": f"tcp://127.0.0.1:{first + 2}",
        },
    )
    served = Served("serve", str(file))
    try:
        served.until(joined)
        prompt = [number % 97 + 3 for number in range(3 * BLOCK + 5)]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
        assert httpx.post(f"{served.url}/v1/completions", json=body, timeout=60).is_success
        with zmq.Context() as context:
            seen = [everything(context, first + 2 + number) for number in range(2)]
    finally:
        code = served.stop(signal.SIGTERM)
    assert code == 0, "".join(served.output)
    assert all(events[0] == ["AllBlocksCleared"] for events in seen)
    (blocks,) = [events[1:] for events in seen if len(events) > 1]
    assert [block[0] for block in blocks] == ["BlockStored"] * 3
    assert [token for block in blocks for token in block[3]] == prompt[: 3 * BLOCK]
    hashes = [block[1][0] for block in blocks]
    assert [block[2] for block in blocks] == [None, *hashes[:-1]]
