"""CPU time of the gateway: per request and per streamed token, workers scripted.

    PYTHONPATH=src python benchmarks/gateway.py            measure, write results/gateway.json
    PYTHONPATH=src python benchmarks/gateway.py --quick    fewer requests; writes nothing
    PYTHONPATH=src python benchmarks/gateway.py --profile  where the time goes (cProfile)

The gateway is `antiphon.live.gateway_process`, as `antiphon serve` starts it, alone on one core:
HTTP, tokenizer and chat template, book, router, and two or four workers over Unix sockets. Those
are scripted (`support/scripted_workers.py`) and share the other core with the load: keep-alive
connections that each send the next request when they have the whole answer. CPU time is the gateway
process's, all threads, user and system, from /proc/PID/stat. Rows "inside" have the same workers
within the gateway's process: the rest is what the wire costs.
"""

import argparse
import asyncio
import contextlib
import cProfile
import json
import os
import pstats
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import uvloop
from support import result
from support.scripted_workers import STEP_S, WORDS, scripted_links

from antiphon.core.config import as_mapping
from antiphon.live.gateway import Keyring
from antiphon.live.gateway_process import GatewayProcess
from antiphon.live.listener import listen
from antiphon.live.loaded_text import load_text
from antiphon.live.router_times import router_times
from antiphon.live.socket_folder import private_folder
from antiphon.live.supervisor.child_process import ChildProcess, command_of
from antiphon.live.supervisor.messages import Drain, Drained, Launch, Ready, Stop
from antiphon.live.supervisor.parent import Parent, run_child
from antiphon.types import ClusterConfig, Config, HttpConfig, ModelConfig, Role, RouterConfig

CONNECTIONS = 32
ROUNDS = 5
SHORT_CHARS = 107
"""About 60 tokens, with the chat template's own."""
CORES = sorted(os.sched_getaffinity(0))
GATEWAY_CORE, OTHER_CORE = CORES[0], CORES[-1]
CONFIG = Config(
    model=ModelConfig(name="smollm2-135m", served_name="scripted"),
    http=HttpConfig(port=0),
    # Workers that another program keeps from running for seconds are not to be lost.
    cluster=ClusterConfig(lost_after_s=60.0),
    # Targets of which no prompt is short enough for a decode worker: all are handed over.
    router=RouterConfig(ttft_s=3600.0, tpot_s=0.001),
)


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request. `goal_ms` of CPU time a request is Dynamo's front end."""

    name: str
    prompt_chars: int
    max_tokens: int
    stream: bool
    requests: int
    goal_ms: float | None = None

    def body(self, number: int) -> bytes:
        """The JSON of request `number`: no two prompts begin alike."""
        text = f"{number:08d}" + WORDS * (self.prompt_chars // len(WORDS) + 1)
        message = {"role": "user", "content": text[: self.prompt_chars]}
        return json.dumps(
            {
                "model": "scripted",
                "messages": [message],
                "max_tokens": self.max_tokens,
                "stream": self.stream,
                "temperature": 0,
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers of one gateway, and what is asked of it."""

    roles: tuple[Role, ...]
    loads: tuple[Load, ...]
    inside: bool = False


ONE = Load("1 token out", SHORT_CHARS, 1, False, 8000, 1.4)
STREAMED = Load("16 tokens streamed", SHORT_CHARS, 16, True, 4000, 2.0)
LONG_STREAMED = Load("256 tokens streamed", SHORT_CHARS, 256, True, 500)
LONG_PROMPT = Load("4 KB prompt, 1 token out", 4096, 1, False, 3000, 4.9)

MIXED = (Role.MIXED, Role.MIXED)
INSIDE = "two mixed, inside"
FLEETS = {
    "two mixed": Fleet(MIXED, (ONE, STREAMED, LONG_PROMPT, LONG_STREAMED)),
    "two prefill, two decode": Fleet(
        (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE), (replace(STREAMED, goal_ms=2.3),)
    ),
    INSIDE: Fleet(MIXED, (ONE, STREAMED, LONG_STREAMED), inside=True),
}


# The gateway and its workers


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Whatever is started here runs on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class GatewayWithWorkers(GatewayProcess):
    """A gateway with workers of these roles in its own process."""

    roles: tuple[Role, ...] = ()

    async def run(self, listener: socket.socket, token: bytes | None) -> int:
        """See `GatewayProcess`."""
        for link in scripted_links(self.roles, self._text):
            self._joined(link)
        return await super().run(listener, token)


def gate(parent: Parent, *, roles: tuple[Role, ...], profile: str | None) -> int:
    """In place of `gateway_process.gate`: with workers inside, or with the CPU time of all
    functions written to a file. CPU time, as others may use the core meanwhile."""
    text = load_text(CONFIG)
    times = router_times(CONFIG, text.identity)
    process = GatewayWithWorkers(parent, text, times, Keyring(), None, None)
    process.roles = roles
    with socket.socket(fileno=parent.launch.listener) as listener:
        if profile is None:
            return uvloop.run(process.run(listener, None))
        profiler = cProfile.Profile(time.process_time)
        try:
            return profiler.runcall(uvloop.run, process.run(listener, None))
        finally:
            profiler.dump_stats(profile)


def gateway_command(fleet: Fleet, profile: Path | None) -> list[str]:
    """The supervisor's, but for what is measured otherwise."""
    if not fleet.inside and profile is None:
        return command_of("antiphon.live.gateway_process", "gateway")
    command = [sys.executable, __file__, "--gateway", *(fleet.roles if fleet.inside else ())]
    return command if profile is None else [*command, "--into", str(profile)]


@dataclass(frozen=True, slots=True)
class Server:
    """A gateway that serves, with all its workers there."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """User and system time of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def metric(self, name: str) -> int:
        """What `/metrics` says, summed over labels; 0 while no worker is there."""
        _, body = await call(self.port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", body.decode(), re.MULTILINE)
        return round(sum(map(float, found)))


@contextlib.asynccontextmanager
async def serving(fleet: Fleet, profile: Path | None = None) -> AsyncIterator[Server]:
    """Start a gateway and its workers; stop both at the end, by force if need be."""
    with tempfile.TemporaryDirectory() as name, listen(CONFIG.http) as listener:
        folder = private_folder(Path(name) / "sockets")
        launch = Launch(
            name="gateway",
            config=as_mapping(CONFIG),
            sockets=str(folder),
            listener=listener.fileno(),
        )
        with pinned(GATEWAY_CORE):
            command = gateway_command(fleet, profile)
            gateway = await ChildProcess.start(command, launch, print, time.monotonic)
        workers = None
        try:
            await said(gateway, Ready)
            if not fleet.inside:
                workers = await start_workers(fleet, folder)
            server = Server(gateway.pid, listener.getsockname()[1])
            await all_there(server, len(fleet.roles))
            yield server
            gateway.tell(Drain(timeout_s=1.0))
            await said(gateway, Drained)
        finally:
            if workers is not None:
                with contextlib.suppress(ProcessLookupError):
                    workers.kill()
                await workers.wait()
            gateway.tell(Stop())
            await gateway.ended()


async def start_workers(fleet: Fleet, folder: Path) -> asyncio.subprocess.Process:
    """All in one process."""
    script = Path(__file__).parent / "support" / "scripted_workers.py"
    arguments = (script, folder, OTHER_CORE, *(role.value for role in fleet.roles))
    return await asyncio.create_subprocess_exec(sys.executable, *map(str, arguments))


async def said(child: ChildProcess, kind: type) -> None:
    """Return when the child has said this."""
    async with asyncio.timeout(60):
        async for message in child.messages():
            if isinstance(message, kind):
                return
    raise RuntimeError("the gateway has ended")


async def all_there(server: Server, workers: int) -> None:
    """Return when so many workers have joined."""
    async with asyncio.timeout(60):
        while await server.metric("antiphon_worker_health") < workers:
            await asyncio.sleep(0.05)


# The load


async def call(port: int, request: bytes) -> tuple[bytes, bytes]:
    """One request on a connection of its own; head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        return head, await reader.readexactly(content_length(head))
    finally:
        writer.close()


def content_length(head: bytes) -> int:
    """Bytes of the body after this head."""
    return int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


def posted(body: bytes) -> bytes:
    """The HTTP request."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


async def one_connection(port: int, load: Load, numbers: Iterator[int]) -> int:
    """Send requests until `numbers` is used up; returns how many event-stream writes were seen."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    parts = 0
    for number in numbers:
        writer.write(posted(load.body(number)))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        if load.stream:
            parts += await read_chunks(reader)
        else:
            await reader.readexactly(content_length(head))
    writer.close()
    return parts


async def read_chunks(reader: asyncio.StreamReader) -> int:
    """Read one chunked body; returns how many chunks it had."""
    chunks = 0
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        await reader.readexactly(size + 2)
        chunks += 1
    await reader.readexactly(2)
    return chunks


async def run_load(port: int, load: Load, start: int, count: int) -> int:
    """All of it, over `CONNECTIONS` connections."""
    numbers = iter(range(start, start + count))
    connections = (one_connection(port, load, numbers) for _ in range(CONNECTIONS))
    return sum(await asyncio.gather(*connections))


async def prompt_tokens(port: int, load: Load) -> int:
    """How long the prompts of this load are."""
    body = replace(load, stream=False, max_tokens=1).body(0)
    _, answer = await call(port, posted(body))
    return json.loads(answer)["usage"]["prompt_tokens"]


# Measuring


async def measure(server: Server, load: Load) -> dict[str, float]:
    """One row: the median of `ROUNDS` rounds, and the lowest one."""
    count = load.requests // ROUNDS
    await run_load(server.port, load, 10**7, max(CONNECTIONS, count // 2))
    offers = await server.metric("antiphon_offers_total")
    began, parts, used = time.monotonic(), 0, list[float]()
    for round_ in range(ROUNDS):
        before = server.cpu_s()
        parts += await run_load(server.port, load, round_ * count, count)
        used.append((server.cpu_s() - before) / count)
    took = time.monotonic() - began
    offers = await server.metric("antiphon_offers_total") - offers
    row: dict[str, float] = {"cpu_ms_per_request": round(median(used) * 1e3, 3)}
    if load.goal_ms is not None:
        row["goal_ms"] = load.goal_ms
    row["lowest_ms"] = round(min(used) * 1e3, 3)
    row["prompt_tokens"] = await prompt_tokens(server.port, load)
    row["requests"] = count * ROUNDS
    row["requests_per_s"] = round(count * ROUNDS / took)
    row["core_used"] = round(sum(used) * count / took, 2)
    row["handed_over"] = round(offers / (count * ROUNDS), 3)
    if load.stream:
        row["writes_per_request"] = round(parts / (count * ROUNDS), 2)
    return row


async def measure_fleet(fleet: Fleet, share: float) -> dict[str, object]:
    """All rows of one gateway, with this share of the requests."""
    rows: dict[str, dict[str, float]] = {}
    async with serving(fleet) as server:
        for load in fleet.loads:
            rows[load.name] = await measure(
                server, replace(load, requests=int(load.requests * share))
            )
            print(f"    {load.name}: {rows[load.name]}", flush=True)
    if LONG_STREAMED not in fleet.loads:
        return dict(rows)
    long, short = (rows[load.name]["cpu_ms_per_request"] for load in (LONG_STREAMED, STREAMED))
    tokens = LONG_STREAMED.max_tokens - STREAMED.max_tokens
    return {**rows, "cpu_us_per_streamed_token": round((long - short) / tokens * 1e3, 2)}


async def measure_all(share: float) -> dict[str, object]:
    """All fleets, one after another."""
    results: dict[str, object] = {"connections": CONNECTIONS, "step_ms": STEP_S * 1e3}
    for name, fleet in FLEETS.items():
        print(name, flush=True)
        results[name] = await measure_fleet(fleet, share)
    return results


async def profile(fleet: Fleet, load: Load, requests: int) -> pstats.Stats:
    """One load under cProfile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile"
        async with serving(fleet, path) as server:
            await run_load(server.port, load, 0, requests)
        return pstats.Stats(str(path))


async def profile_all(names: Sequence[str], requests: int) -> None:
    """Print each row's functions: own time, time with callees (both inflated), calls a request."""
    for name in names:
        for load in FLEETS[name].loads:
            stats = await profile(FLEETS[name], load, requests)
            print(f"\n{name}, {load.name}: us own, us with callees, calls")
            print(*profile_lines(stats, requests), sep="\n", flush=True)


def profile_lines(stats: pstats.Stats, requests: int) -> list[str]:
    """The costliest first; what is called for less than every other request is left out."""
    rows = [
        (own_s, all_s, calls, f"{Path(file).name}:{line} {function}")
        for (file, line, function), (_, calls, own_s, all_s, _) in stats.stats.items()  # type: ignore[attr-defined]
        if calls >= requests / 2
    ]
    scale = 1e6 / requests
    return [
        f"{own_s * scale:8.1f} {all_s * scale:8.1f} {calls / requests:8.2f}  {function}"
        for own_s, all_s, calls, function in sorted(rows, reverse=True)[:60]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--quick", action="store_true", help="a fifth of the requests; keep nothing"
    )
    parser.add_argument("--profile", nargs="*", choices=tuple(FLEETS), help="where the time goes")
    parser.add_argument("--gateway", nargs="*", type=Role, help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gateway is not None:
        run_child(partial(gate, roles=tuple(arguments.gateway), profile=arguments.into))
    os.sched_setaffinity(0, {OTHER_CORE})
    if arguments.profile is not None:
        asyncio.run(profile_all(arguments.profile or tuple(FLEETS), 1000))
        return
    results = asyncio.run(measure_all(0.2 if arguments.quick else 1.0))
    if not arguments.quick:
        print(result.write("gateway", results))


if __name__ == "__main__":
    main()
