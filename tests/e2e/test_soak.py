"""A crowd on a real server process: every stream ends once, and nothing is left behind."""

import asyncio
import json
import random
from pathlib import Path

import httpx

STREAMS = 200
ROUNDS = 4
GROWTH_BYTES = 16 * 1024**2
"""Less than a tenth of a megabyte a stream: what a leaked stream or sequence would exceed."""


async def one_stream(client: httpx.AsyncClient, chance: random.Random) -> str:
    """Read a stream to its end, or walk away after some events; says how it ended."""
    patience = chance.choice([None, None, 1, 2, 5])
    body = {
        "model": "tiny",
        "prompt": [chance.randrange(3, 60) for _ in range(chance.randrange(1, 60))],
        "max_tokens": chance.randrange(1, 24),
        "n": chance.choice([1, 1, 2]),
        "seed": chance.randrange(1000),
        "ignore_eos": True,
        "stream": True,
    }
    finished = events = 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                assert finished == body["n"], "each sequence ends exactly once"
                return "finished"
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            finished += sum(1 for choice in event["choices"] if choice["finish_reason"])
            events += 1
            if patience is not None and events > patience:
                return "left"
    raise AssertionError("a stream ended without [DONE]")


async def at_rest(client: httpx.AsyncClient) -> None:
    """Wait until nothing runs, waits or holds memory; a server that never gets there fails."""
    idle = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}
    async with asyncio.timeout(30):
        while {name: await gauge(client, f"vllm:{name}") for name in idle} != idle:
            await asyncio.sleep(0.02)


async def gauge(client: httpx.AsyncClient, name: str) -> float:
    """One sample of /metrics."""
    lines = (await client.get("/metrics")).text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name}{{")).rpartition(" ")[2])


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) * 1024


async def test_200_streams_with_random_leavers_leave_nothing(serve):
    server = serve("--max-num-seqs", "32", "--served-model-name", "tiny")
    chance = random.Random(7)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        resident: list[int] = []
        for _ in range(ROUNDS):
            ends = await asyncio.gather(*(one_stream(client, chance) for _ in range(STREAMS)))
            assert ends.count("finished") > STREAMS // 4
            assert ends.count("left") > STREAMS // 10
            await at_rest(client)
            resident.append(sum(map(resident_bytes, server.pids())))
        assert resident[-1] - resident[1] < GROWTH_BYTES, resident
    assert server.stop() == 0
