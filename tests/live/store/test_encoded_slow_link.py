"""Two store processes of two hosts that a slow link joins: what comes is right, takes as many bytes
as its level says, and the level follows from the link."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from encoded_kit import (
    BLOCK_BYTES,
    MEMORY,
    beside,
    content_at,
    error_of,
    meet,
    numerics,
    profile_file,
)
from test_pool_over_tls import make_keys

from netns_kit import Link, Net, Side, joined_hosts

pytestmark = pytest.mark.timeout(180)
BLOCKS = 40
RATE_MBIT = 20
PATIENT = """
[cluster]
lost_after_s = 60.0
[store]
fetch_timeout_s = 20.0
lease_ttl_s = 60.0
"""
"""A machine that tests keep busy is not slow because of a link."""


@contextmanager
def stores(net: Net, folder: Path, level: str) -> Iterator[dict[str, Path]]:
    """One on each host, started as people start them; where each is reached."""
    make_keys(folder / "keys", "left", "right")
    profile, patient = profile_file(folder), folder / "patient.toml"
    patient.write_text(PATIENT)
    with ExitStack() as stack:
        paths = {}
        sides: tuple[tuple[Side, Side], ...] = (("left", "right"), ("right", "left"))
        for side, other in sides:
            own = folder / side
            own.mkdir(mode=0o700)
            command = [sys.executable, "-m", "antiphon", "store", "--socket-dir", str(own)]
            command += ["--store-memory", str(MEMORY), "--keys", str(folder / "keys" / side)]
            command += ["--pool-listen", f"{net.addresses(side)[0]}:7420"]
            command += ["--peer", f"{other}@{net.addresses(other)[0]}:7420"]
            command += [
                "--config",
                str(patient),
                "--pool-level",
                level,
                "--kv-profile",
                str(profile),
            ]
            process: Popen = net.start(side, command, stdout=PIPE, stdin=DEVNULL)
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            assert process.stdout is not None
            assert b"is reached at" in process.stdout.readline(), "it says why above"
            paths[side] = own / "store.sock"
        yield paths


async def test_a_slow_link_is_spared(folder: Path) -> None:
    """20 Mbit/s: a megabyte takes 0.4 s. A near deadline takes a small level; with a far one what
    is exact will do."""
    with (
        joined_hosts(Link(rate_mbit=RATE_MBIT)) as net,
        stores(net, folder, "adaptive") as paths,
    ):
        known = numerics("adaptive", profiled=True)
        async with (
            beside("l", paths["left"], known) as here,
            beside("r", paths["right"], known) as there,
        ):
            await meet(here, there)
            for seed, left_s in ((1, 0.05), (2, 30.0)):
                keys = await here.worker.put(BLOCKS, seed=seed)
                await there.knows(keys)
                got, lossy = await there.worker.get_all(keys, left_s=left_s)
                for position, content in enumerate(got):
                    assert content is not None
                    error = error_of(content, content_at(position, seed))
                    assert error < 0.5 if keys[position] in lossy else error == 0.0
                assert bool(lossy) == (left_s < 1.0)
            read = {one.level: one for one in (await there.peers()).levels}
            exact = sum(read[one].read_blocks_total for one in ("raw", "lossless") if one in read)
            small = sum(one.read_blocks_total for one in read.values()) - exact
            size = sum(
                one.read_bytes_total
                for name, one in read.items()
                if name not in ("raw", "lossless")
            )
            assert small > 0
            assert size < small * BLOCK_BYTES
