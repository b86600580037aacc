"""A crowd on real server processes: every stream ends once, and nothing is left behind."""

import asyncio
import json
import random
from pathlib import Path

import httpx
from completions import Lines
from e2e_process import SHAPES, Metrics, config_file
from e2e_process import at_rest as is_at_rest

STREAMS = 200
ROUNDS = 3
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
        lines = Lines()
        async for line in (
            line async for part in response.aiter_bytes() for line in lines.of(part)
        ):
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
    async with asyncio.timeout(60):
        while not is_at_rest(Metrics((await client.get("/metrics")).text)):
            await asyncio.sleep(0.02)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) * 1024


async def test_200_streams_with_random_leavers_leave_nothing(serve, tiny, tmp_path):
    """SGLang 10110, Dynamo 1074: under many requests at once everything stood still, and after a
    crowd had left some were still there. Split, hand-overs and leavers meet all the time."""
    file = config_file(
        tmp_path / "crowd.toml",
        model={"name": str(tiny), "served_name": "tiny"},
        scheduler={"max_num_seqs": 32},
        router={"tpot_s": 0.0001},
    )
    server = serve(*SHAPES["1P1D"], model=file)
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
        pulls = server.metrics()("antiphon_pulls_total")
    assert pulls > STREAMS
    assert server.stop() == 0
