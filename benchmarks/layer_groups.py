"""Time to first token of a prompt whose beginning is fetched: at once, or layer by layer.

    .venv/bin/python benchmarks/layer_groups.py            write results/layer_groups.json
    .venv/bin/python benchmarks/layer_groups.py --quick    one try of each; writes nothing

One worker in this process, without HTTP, and a store's memory beside it. Two prompts begin with so
many tokens that the worker's KV memory holds only one of them, so each is fetched again whenever it
is asked. What the link between store and worker gives is set by sleeping after each piece that was
copied: it costs no processor time, as a network card's work does. `memory` is the copy as it is.

What is compared is the time from handing the request to the worker to its first token, with
`store.layer_groups` 1 and as configured, in turn. `load` is the fetch alone, as the worker saw it.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from support import result

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.config import build
from antiphon.live.kv_exchange import Exchange
from antiphon.live.loaded_engine import LoadedEngine, load_engine
from antiphon.live.store_session import StoreAccess, StoreSession
from antiphon.live.worker import Worker
from antiphon.store.transfer import MappedRegion, OwnedRegion, Part
from antiphon.types import (
    BlockKey,
    Fetched,
    Incarnation,
    LeaseId,
    Locate,
    Located,
    OfferedPage,
    PagePull,
    Put,
    Request,
    RequestId,
    SamplingParams,
    Stage,
    StepPlan,
    TokenGenerated,
    WorkerId,
    WorkerInfo,
)

LINKS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9, "memory": float("inf")}
"""Bytes a second."""
BLOCK = 64
PREFIX = 46 * BLOCK
"""2,944 tokens: what a document of 3,000 has in whole blocks."""
RESTS = (56, 512)
"""Tokens behind it: the document's end, or a long question."""
PROMPTS = 2


class Link(MappedRegion):
    """The store's memory at the end of a link. Its speed is set from outside."""

    bytes_per_s = float("inf")

    def pull(self, pages: Sequence[PagePull]) -> tuple[bool, ...]:
        began = time.monotonic()
        good: list[bool] = []
        for start in range(0, len(pages), 8):
            some = pages[start : start + 8]
            good += super().pull(some)
            self._sleep(began, (start + len(some)) * self.header.page_bytes)
        return tuple(good)

    def pull_part(self, pages: Sequence[PagePull], part: Part) -> tuple[bool, ...]:
        began = time.monotonic()
        good = super().pull_part(pages, part)
        self._sleep(began, len(pages) * (part.end - part.start))
        return good

    def _sleep(self, began: float, size: int) -> None:
        left_s = began + size / self.bytes_per_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)


class Session(StoreSession):
    """A store without a process: it copies what is put, and knows where it lies."""

    def __init__(self, own: OwnedRegion, threads: ThreadPoolExecutor) -> None:
        shape = replace(own.shape, pages=PROMPTS * own.shape.pages)
        self.region = OwnedRegion(shape)
        self.link = Link(self.region.fd, own)
        self._from_worker = MappedRegion(own.fd, self.region)
        self._kept: dict[BlockKey, tuple[OfferedPage, ...]] = {}
        nothing: Any = None
        super().__init__(nothing, nothing, self.link, threads)

    alive = True
    unsent_bytes = 0

    def put(self, put: Put) -> None:
        for block in put.blocks:
            if block.key in self._kept:
                continue
            first = len(self._kept) * len(block.pages)
            if first + len(block.pages) > self.region.shape.pages:
                raise SystemExit("the store is full")
            targets = range(first, first + len(block.pages))
            assert all(self._from_worker.pull([*map(PagePull, block.pages, targets)]))
            self._kept[block.key] = self.region.seal(targets)

    async def locate(self, locate: Locate) -> Located:
        blocks = tuple(self._kept[key] for key in locate.keys)
        return Located(lease=LeaseId("lease"), ttl_s=60.0, blocks=blocks)

    def release(self, lease: LeaseId) -> None:
        pass

    def __len__(self) -> int:
        return len(self._kept)


class Side:
    """A worker beside that store. `early` counts steps that began before all was here."""

    def __init__(self, loaded: LoadedEngine, session: Session, groups: int) -> None:
        assert loaded.region is not None
        self.early = 0
        forward = loaded.engine.forward_as_it_comes

        def counted(plan: StepPlan, coming: Any) -> Any:
            self.early += 1
            return forward(plan, coming)

        loaded.engine.forward_as_it_comes = counted  # type: ignore[method-assign]
        info = WorkerInfo(
            id=WorkerId("w"),
            incarnation=Incarnation("w-1"),
            model=loaded.info,
            max_model_len=loaded.max_model_len,
            kv=loaded.region.shape,
        )
        access = StoreAccess(
            session=lambda: session,
            settled=_at_once,
            heard=loaded.heard,
            on_session=lambda began: None,
            fetch_timeout_s=60.0,
            pace_s=1.0,
            layers=loaded.layers,
            layer_groups=groups,
        )
        path: Any = None
        self.worker = Worker(
            info,
            loaded.scheduler,
            loaded.engine,
            clock=time.monotonic,
            exchange=Exchange(pages=loaded.region, path=path, store=access),
        )
        self._events = self.worker.events()
        self._numbers = iter(range(10**9))

    async def ask(self, tokens: Sequence[int], fetch: int) -> tuple[float, float, int]:
        """Time to first token, time of the fetch (0: none), the token."""
        request = Request(
            id=RequestId(f"r{next(self._numbers)}"),
            prompt=tuple(tokens),
            sampling=SamplingParams(max_tokens=1, temperature=0.0, seed=0),
        )
        began, load_s = time.monotonic(), 0.0
        await self.worker.add(request, Stage.WHOLE, fetch)
        async for events in self._events:
            for event in events:
                if isinstance(event, Fetched):
                    assert event.missing_tokens == 0, event.problem
                    load_s = event.seconds
                if isinstance(event, TokenGenerated):
                    return time.monotonic() - began, load_s, event.token
        raise SystemExit("the worker ended")


async def _at_once() -> None:
    return


def prompt(number: int, rest: int) -> list[int]:
    begin = [100 + (number * 7919 + at * 31 + at // 7) % 20000 for at in range(PREFIX)]
    return begin + [200 + (number * 13 + at * 17) % 20000 for at in range(rest)]


def opened(options: argparse.Namespace, rest: int, groups: int) -> tuple[LoadedEngine, Session]:
    """An engine whose memory holds one prompt, and a store that holds both."""
    checkpoint = open_checkpoint(resolve("smollm2-135m"))
    token_bytes = 2 * 2 * checkpoint.spec.layers * checkpoint.spec.kv_heads * 64
    config = build(
        {
            "model": {"name": "smollm2-135m"},
            "kv": {"memory_bytes": (PREFIX + rest + BLOCK) * token_bytes},
            "engine": {"cores": options.cores},
            "store": {"layer_groups": groups},
        }
    )
    loaded = load_engine(checkpoint, config, lambda line: None, shares_kv=True)
    assert loaded.region is not None and loaded.commit is not None
    loaded.commit.done.result()
    return loaded, Session(loaded.region, ThreadPoolExecutor(1))


async def measure(options: argparse.Namespace, rest: int) -> list[dict[str, Any]]:
    """All links with prompts of `PREFIX` and `rest` tokens."""
    groups = {"at once": 1, "layer by layer": options.groups}
    sides, found = {}, {}
    for name, count in groups.items():
        loaded, session = opened(options, rest, count)
        sides[name] = Side(loaded, session, count), session
    said = {}
    async with sides["at once"][0].worker, sides["layer by layer"][0].worker:
        for side, session in sides.values():
            for number in range(PROMPTS):
                *_, said[number] = await side.ask(prompt(number, rest), 0)
            assert len(session) >= PROMPTS * PREFIX // BLOCK
        for link, bytes_per_s in LINKS.items():
            for one in range(options.tries + 1):
                for name, (side, session) in sides.items():
                    session.link.bytes_per_s = bytes_per_s
                    for number in range(PROMPTS):
                        ttft_s, load_s, token = await side.ask(prompt(number, rest), PREFIX)
                        if token != said[number]:
                            raise SystemExit(f"{name}: another token over {link}")
                        if one:  # the first shows the session how fast the link is
                            found.setdefault((link, name), []).append((ttft_s, load_s))
        print(f"early steps: {sides['layer by layer'][0].early}", file=sys.stderr)
    return [row(link, rest, found) for link in LINKS]


def row(link: str, rest: int, found: dict[tuple[str, str], list[tuple[float, float]]]) -> dict:
    once, layered = found[link, "at once"], found[link, "layer by layer"]
    return {
        "link": link,
        "prefix_tokens": PREFIX,
        "rest_tokens": rest,
        "load_s": statistics.median(load_s for _, load_s in once),
        "ttft_at_once_s": statistics.median(ttft_s for ttft_s, _ in once),
        "ttft_layer_by_layer_s": statistics.median(ttft_s for ttft_s, _ in layered),
        "least_ttft_at_once_s": min(ttft_s for ttft_s, _ in once),
        "least_ttft_layer_by_layer_s": min(ttft_s for ttft_s, _ in layered),
        "tries": len(once),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", default="", help="of the engine (all)")
    parser.add_argument("--groups", type=int, default=8, help="most groups of layers (8)")
    parser.add_argument("--tries", type=int, default=5, help="of each prompt and link (5)")
    parser.add_argument("--quick", action="store_true", help="one try of each; no result")
    options = parser.parse_args()
    options.cores = [int(core) for core in options.cores.split(",") if core]
    if options.quick:
        options.tries = 1
    rows = [one for rest in RESTS for one in asyncio.run(measure(options, rest))]
    for one in rows:
        once, layered = one["ttft_at_once_s"], one["ttft_layer_by_layer_s"]
        print(
            f"{one['link']:10} {one['rest_tokens']:4} tokens behind  load {one['load_s']:.3f} s  "
            f"TTFT {once:.3f} s → {layered:.3f} s  {layered / once:.2f}×, least "
            f"{one['least_ttft_at_once_s']:.3f} s → {one['least_ttft_layer_by_layer_s']:.3f} s",
            file=sys.stderr,
        )
    if not options.quick:
        print(result.write("layer_groups", {"rows": rows}))


if __name__ == "__main__":
    main()
