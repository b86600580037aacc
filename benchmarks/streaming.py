"""Time to the first token of a context whose KV another host has, over links from slow to fast.

    .venv/bin/python benchmarks/streaming.py            root; write results/streaming.json and .svg
    .venv/bin/python benchmarks/streaming.py --quick    fewer links, levels, tokens; writes nothing

Two network namespaces with a veth pair between them, whose rate `tc tbf` bounds. On the far one a
store has contexts of 3,000 tokens, which a worker has computed and put there; on the near one a
store of the same pool beside a worker with SmolLM2-135M, both new, which have fetched one other,
short prompt, so that connections stand and the link's speed is known. Then the worker is handed the
context. What is measured is the time until its first token: the blocks come over the link, at the
pool's level, into the near store, from there into the worker's pages, and it computes the rest.
`recompute` fetches nothing. All processes share this machine's cores.

Each level is measured on each link, then `adaptive`, which chooses chunk by chunk: as soon as can
be (target 0), and for each of a few targets of time to the first token. Beside each stands what
`core/codec_choice.py` predicts from what the link carries (one TCP connection, measured), what the
codec takes on one core and what computing takes. Goals: adaptive never takes more than 1.1 times
what the best fixed choice takes, and misses no target that one of them meets.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from support import result

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
from support.link_rate import carried  # noqa: E402
from support.streamed_stores import FAR_BYTES, Store, StreamedStores, near_name  # noqa: E402
from support.streamed_worker import (  # noqa: E402
    Asked,
    StreamedWorker,
    checkpoint_of,
    read_blocks,
    streamed_worker,
    until_on,
    watched,
)
from support.streaming_cells import (  # noqa: E402
    ADAPTIVE,
    RECOMPUTE,
    Cell,
    line_of,
    ratios,
    table,
    violations,
)
from support.streaming_plot import plot  # noqa: E402
from support.streaming_prediction import PrefillTime, fetch_level, predicted_s  # noqa: E402

from antiphon.core.codec_choice import FetchLevel  # noqa: E402
from antiphon.core.config import build  # noqa: E402
from antiphon.store.codec import parse_level, read_kv_profile  # noqa: E402
from antiphon.text import Tokenizer  # noqa: E402
from antiphon.types import BlockKey, Config, Tier, TokenId  # noqa: E402
from netns_kit import Link, Net, joined_hosts, unmade  # noqa: E402

MODEL = "smollm2-135m"
TOKENS, BLOCK_TOKENS = 3000, 64
GBITS = (0.1, 0.3, 1.0, 3.0, 10.0)
FIXED = ("raw", "lossless", "int8", "int4", *(f"entropy-{n}" for n in range(1, 6)))
EXACT = ("raw", "lossless")
SLO_SHARES = (0.15, 0.3, 0.6)
"""Targets, as shares of what computing all takes."""
TRIES = 3
FIRST_TOKENS = 10 * BLOCK_TOKENS
GOAL = 1.1
WORKER_KV, NEAR_BYTES = "160MiB", 96 << 20
FETCH_S = 60.0
CACHE = Path("~/.cache/antiphon").expanduser()


@dataclass
class Study:
    """What is measured once, before any level: contexts, what computing takes, what links carry."""

    options: argparse.Namespace
    net: Net
    stores: StreamedStores
    contexts: list[tuple[TokenId, ...]]
    first: tuple[TokenId, ...]
    """The prompt that is fetched before."""
    carried: dict[float, float] = field(default_factory=dict)
    """Gbit/s of a link → bytes a second."""
    recomputed: list[Asked] = field(default_factory=list)
    prefill: PrefillTime = field(default_factory=lambda: PrefillTime(0.0, 0.0))
    levels: list[FetchLevel] = field(default_factory=list)

    @property
    def prefix(self) -> int:
        """Tokens that whole blocks have; one is computed always."""
        return (self.options.tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS

    @property
    def recompute_s(self) -> float:
        return statistics.median(one.ttft_s for one in self.recomputed)

    @property
    def slos_s(self) -> list[float]:
        return [share * self.recompute_s for share in SLO_SHARES]

    def predicted(self, choice: str, gbit: float, slo_s: float = 0.0) -> float:
        return predicted_s(
            choice,
            self.levels,
            prefix=self.prefix,
            prompt=self.options.tokens,
            prefill=self.prefill,
            bytes_per_s=self.carried[gbit],
            slo_s=slo_s,
        )


# ── before any level ─────────────────────────────────────────────────────────────────────────────


def contexts(options: argparse.Namespace) -> tuple[list[tuple[TokenId, ...]], tuple[TokenId, ...]]:
    """Of this project's documentation, none over another; and a short one."""
    pages = sorted((HERE.parent / "docs").rglob("*.md"))
    text = "\n\n".join(page.read_text() for page in pages)
    tokens = Tokenizer.load(checkpoint_of(MODEL).tokenizer).encode(text)
    starts = range(0, len(tokens) - options.tokens, options.tokens)
    all_of_them = [tuple(tokens[at : at + options.tokens]) for at in starts]
    return all_of_them[: options.tries], all_of_them[options.tries][: FIRST_TOKENS + 1]


async def know(study: Study, profile: Path | None) -> None:
    """What links carry, what computing takes, and the codec on one core."""
    left, right = study.net.command("left", []), study.net.command("right", [])
    for gbit in study.options.gbits:
        study.net.limit(0, 1e3 * gbit)
        size = int(min(1 << 30, max(8 << 20, gbit * 1e9 / 8)))
        study.carried[gbit] = carried(left, right, study.net.addresses("left")[0], size)
        said(f"a link of {gbit:g} Gbit/s carries {8 * study.carried[gbit] / 1e9:.2f} Gbit/s")
    config = config_of(None, None)
    half, halves = study.options.tokens // 2, list[float]()
    for number, context in enumerate(study.contexts):
        async with streamed_worker(config, study.stores.folder) as worker:
            halves.append((await worker.ask(context[:half], fetch=0)).ttft_s)
        async with streamed_worker(config, study.stores.folder) as worker:
            study.recomputed.append(await worker.ask(context, fetch=0))
            blocks = blocks_of(worker) if number == 0 else ()
        for level in study.options.levels if blocks else ():
            made = read_kv_profile(profile) if profile else None
            rank = 0 if level in EXACT else len(study.levels)
            study.levels.append(fetch_level(parse_level(level), rank, blocks, made))
    study.prefill = PrefillTime.through(
        (half, statistics.median(halves)), (study.options.tokens, study.recompute_s)
    )
    said(f"recompute: {study.recompute_s:.3f} s")


def blocks_of(worker: StreamedWorker, most: int = 8) -> list[np.ndarray]:
    """The first blocks that a worker has computed, as the codec takes them."""
    region, spec = worker.loaded.region, checkpoint_of(MODEL).spec
    assert region is not None
    width = spec.head_dim
    pages = region.content.view(np.uint16).reshape(
        region.shape.pages, spec.layers, 2, spec.kv_heads, region.shape.page_tokens, width
    )
    return [np.ascontiguousarray(pages[list(block)]) for block in worker.blocks[:most]]


# ── one level ────────────────────────────────────────────────────────────────────────────────────


async def measure_level(study: Study, level: str, profile: Path | None) -> list[Cell]:
    """A level, or adaptive, on all links, all contexts."""
    targets = [0.0, *study.slos_s] if level == ADAPTIVE else [0.0]
    cells = []
    with study.stores.far(tables_of(level, profile, max(study.carried.values()))) as far:
        first = await filled(far, study.first, level, profile)
        keys = [await filled(far, context, level, profile) for context in study.contexts]
        for gbit in study.options.gbits:
            study.net.limit(0, 1e3 * gbit)
            for slo_s in targets:
                cell = Cell(level, gbit, slo_s, study.predicted(level, gbit, slo_s))
                for number in range(len(study.contexts)):
                    both = first, keys[number]
                    asked = await fetched(study, cell, far, both, number, profile)
                    cell.add(asked)
                    exact = study.recomputed[number].tokens
                    if level in EXACT and asked.tokens != exact:
                        raise SystemExit(f"{level}: {asked.tokens} instead of {exact}")
                cells.append(cell)
                said(line_of(cell))
    return cells


async def filled(
    far: Store, context: Sequence[TokenId], level: str, profile: Path | None
) -> list[BlockKey]:
    """Have the far store hold the context's KV; its blocks' keys."""
    config = config_of(level, profile)
    async with streamed_worker(config, far.folder) as worker:
        await worker.ask(context, fetch=0)
        async with watched(far.socket, config) as store:
            await until_on(store, worker.keys, Tier.HOST)
        return list(worker.keys)


async def fetched(
    study: Study,
    cell: Cell,
    far: Store,
    keys: tuple[Sequence[BlockKey], Sequence[BlockKey]],
    number: int,
    profile: Path | None,
) -> Asked:
    """The context asked of a worker beside a store that is new in the pool. `keys`: of the short
    prompt, which is asked before it, and of the context."""
    config = config_of(cell.choice, profile)
    block_bytes = BLOCK_TOKENS * study.options.token_bytes
    wanted = [*keys[0], *keys[1]]
    name, _ = near_name(wanted, NEAR_BYTES // block_bytes, FAR_BYTES // block_bytes)
    values = tables_of(cell.choice, profile, study.carried[cell.gbit])
    with study.stores.near(name, far, NEAR_BYTES, values) as near:
        async with (
            streamed_worker(config, near.folder) as worker,
            watched(near.socket, config) as store,
        ):
            await until_on(store, wanted, Tier.PEER)
            await worker.ask(study.first, fetch=FIRST_TOKENS)
            before = await read_blocks(store)
            context = study.contexts[number]
            asked = await worker.ask(context, fetch=study.prefix, slo_s=cell.slo_s)
            return replace(asked, levels=await read_blocks(store) - before)


def config_of(level: str | None, profile: Path | None) -> Config:
    """A worker's. None: there is no store."""
    tables: dict[str, dict[str, object]] = {
        "model": {"name": MODEL},
        "kv": {"memory_bytes": WORKER_KV},
        **tables_of(level or "raw", profile, 1e9),
    }
    tables["store"]["enabled"] = level is not None
    return build(tables)


def tables_of(level: str, profile: Path | None, bytes_per_s: float) -> dict[str, dict[str, object]]:
    """A store's, and what a worker must have alike."""
    pool: dict[str, object] = {"link_bytes_per_s": bytes_per_s}
    if level != "raw":
        pool["level"] = level
    if profile is not None and (level == ADAPTIVE or level.startswith("entropy")):
        pool["profile"] = str(profile)
    store = {"fetch_timeout_s": FETCH_S, "lease_ttl_s": 2 * FETCH_S, "policy": "lru"}
    return {"store": store, "store_pool": pool}


# ── what came of it ──────────────────────────────────────────────────────────────────────────────


def kept(study: Study, cells: Sequence[Cell]) -> dict[str, object]:
    return {
        "model": MODEL,
        "tokens": study.options.tokens,
        "fetched_tokens": study.prefix,
        "token_bytes": study.options.token_bytes,
        "loaded": study.options.loaded,
        "links": [
            {"gbit_per_s": gbit, "carried_gbit_per_s": round(8 * rate / 1e9, 3)}
            for gbit, rate in study.carried.items()
        ],
        "levels": [
            {
                "name": one.name,
                "bytes_per_token": round(one.bytes_per_token),
                "codec_tokens_per_s": round(one.tokens_per_s),
            }
            for one in study.levels
        ],
        "cells": [
            {
                "choice": cell.choice,
                "gbit_per_s": cell.gbit,
                "slo_s": round(cell.slo_s, 3),
                "ttft_s": [round(ttft, 4) for ttft in cell.ttft_s],
                "median_s": round(cell.median_s, 4),
                "predicted_s": round(cell.predicted_s, 4),
                "fetched": cell.fetched,
                "levels": cell.levels,
                "problems": cell.problems,
            }
            for cell in cells
        ],
        "adaptive_to_best": {f"{gbit:g}": round(r, 3) for gbit, r in ratios(cells).items()},
        "goal": GOAL,
        "violations": violations(cells, study.slos_s),
    }


def said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def measured(study: Study, profile: Path | None) -> list[Cell]:
    await know(study, profile)
    cells = []
    for gbit in study.options.gbits:
        cell = Cell(RECOMPUTE, gbit, 0.0, study.predicted(RECOMPUTE, gbit))
        for asked in study.recomputed:
            cell.add(asked)
        cells.append(cell)
    for level in [*study.options.levels, *([] if study.options.no_adaptive else [ADAPTIVE])]:
        cells += await measure_level(study, level, profile)
    return cells


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces and processes go
    if (why := unmade()) is not None or os.geteuid() != 0:
        raise SystemExit(why or "network namespaces need root")
    needs_profile = not options.no_adaptive or any("entropy" in one for one in options.levels)
    profile = _profile(options.profile) if needs_profile else None
    spec = checkpoint_of(MODEL).spec
    options.token_bytes = 2 * 2 * spec.layers * spec.kv_heads * spec.head_dim
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-streaming-") as folder,
        joined_hosts(Link(rate_mbit=1000)) as net,
    ):
        study = Study(options, net, StreamedStores(net, Path(folder)), *contexts(options))
        cells = asyncio.run(measured(study, profile))
    print(table(cells, options.gbits))
    for gbit, ratio in ratios(cells).items():
        print(f"{gbit:g} Gbit/s: adaptive takes {ratio:.2f} times the best fixed choice")
    for one in violations(cells, study.slos_s):
        print(f"TTFT ≤ {one['slo_s']} s: {one['choice']} misses {one['missed']:.0%}")
    found = kept(study, cells)
    if not options.quick:
        print(result.write(options.name, found))
        print(plot(found, result.RESULTS / f"{options.name}.svg"))
    worst = max(ratios(cells).values(), default=0.0)
    if worst > GOAL:
        raise SystemExit(f"adaptive takes {worst:.2f} times the best fixed choice; goal {GOAL}")


def _profile(given: Path | None) -> Path:
    """The one that was named, or one of Python's reference, made once."""
    if given is not None:
        return given
    made = CACHE / "streaming.kvprofile"
    if not made.exists():
        command = [sys.executable, "-m", "antiphon", "kv", "profile", MODEL, "-o", str(made)]
        subprocess.run(command, check=True)
    return made


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gbits", type=float, nargs="+", help="links, Gbit/s")
    parser.add_argument("--levels", nargs="+", choices=FIXED, metavar="LEVEL", help="fixed ones")
    parser.add_argument("--no-adaptive", action="store_true", help="fixed levels only")
    parser.add_argument("--tokens", type=int, help="of a context")
    parser.add_argument("--tries", type=int, help="contexts")
    parser.add_argument("--profile", type=Path, help="of the model; without it one is made")
    parser.add_argument("--quick", action="store_true", help="a look; writes nothing")
    parser.add_argument("--loaded", action="store_true", help="others use the machine: say so")
    parser.add_argument("--name", default="streaming", help="of the results")
    options = parser.parse_args()
    quick = options.quick
    options.gbits = options.gbits or ([0.1, 1.0, 10.0] if quick else list(GBITS))
    options.levels = options.levels or (["raw", "int8", "entropy-3"] if quick else list(FIXED))
    options.tokens = options.tokens or (1024 if quick else TOKENS)
    options.tries = options.tries or (1 if quick else TRIES)
    return options


if __name__ == "__main__":
    main()
