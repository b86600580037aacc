"""What the experts of a real model compute, from the engine to the page that Prometheus reads."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from link_kit import (
    IDENTITY,
    WELCOME,
    Door,
    PuppetWorker,
    port,
    request,
    token,
    until,
    worker_info,
)

from antiphon.checkpoint import open_checkpoint
from antiphon.core.config import build
from antiphon.live import worker_port
from antiphon.live.gateway.cluster_metrics import worker_families
from antiphon.live.gateway.fleet import Fleet
from antiphon.live.loaded_engine import load_engine
from antiphon.live.worker import Worker
from antiphon.live.worker_port import WorkerPort
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder
from antiphon.types import (
    MOST_EXPERT_COUNTS,
    ClusterConfig,
    ExpertTokens,
    FleetEvent,
    Health,
    Hello,
    Incarnation,
    Member,
    SamplingParams,
    SequenceEnded,
    WorkerReported,
    WorkerView,
)
from antiphon.wire import Kind, decode, encode
from antiphon.wire.frame import Frame, FrameReader

pytestmark = pytest.mark.timeout(120)
SPEC = FAMILY_SPECS["qwen3_moe"]
VIEW = PuppetWorker(worker_info()).view()


def shown(*views: WorkerView) -> dict[tuple[str, str, str], float]:
    """(worker, layer, expert) → what the metrics say."""
    members = [
        Member(worker_info(f"w{number}"), Health.JOINED, view) for number, view in enumerate(views)
    ]
    (family,) = (one for one in worker_families("m", members) if one.name.endswith("expert_tokens"))
    return {
        (one.labels["worker"], one.labels["layer"], one.labels["expert"]): one.value
        for one in family.samples
    }


@asynccontextmanager
async def joined(worker: Worker, gateway: Path) -> AsyncIterator[None]:
    """The worker's end of its stream to a gateway, until the block is left."""

    async def new_life() -> None:
        await worker.new_life(Incarnation("life-2"))

    running = asyncio.create_task(
        WorkerPort(worker, gateway, new_life=new_life, clock=time.monotonic).run()
    )
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_live_workers_experts_are_on_the_page(tmp_path: Path) -> None:
    write_hf_folder(tmp_path / "moe", SPEC, random_tensors(SPEC, seed=1))
    values = {
        "model": {"name": str(tmp_path / "moe"), "quantize": "none"},
        "kv": {"memory_bytes": "4MiB"},
        "engine": {"cache_dir": str(tmp_path / "cache")},
    }
    loaded = load_engine(open_checkpoint(tmp_path / "moe"), build(values), lambda line: None)
    info = replace(
        worker_info(),
        model=replace(loaded.info, identity=IDENTITY),
        max_model_len=loaded.max_model_len,
    )
    worker = Worker(info, loaded.scheduler, loaded.engine, clock=time.monotonic)
    assert SPEC.experts is not None
    each = SPEC.experts.active * SPEC.layers
    async with Door(tmp_path) as door, worker, joined(worker, door.path):
        link = await door.link()
        assert set(shown(link.view()).values()) == {0}, "warming up was for nobody"
        for name, prompt in (("a", range(2, 40)), ("b", range(20, 29))):
            sampling = SamplingParams(max_tokens=4, seed=0)
            await link.add(request(name, prompt=tuple(prompt), sampling=sampling))
        ends = 0
        async for events in link.events():
            ends += sum(isinstance(event, SequenceEnded) for event in events)
            if ends == 2:
                break
        tokens = loaded.scheduler.view(0.0).computed_tokens_total
        assert tokens == 38 + 9 + 2 * 3
        await until(lambda: sum(shown(link.view()).values()) == tokens * each)
        assert shown(link.view()) == shown(worker.view())
        assert len(shown(link.view())) == SPEC.layers * SPEC.experts.count


class Mixture(PuppetWorker):
    """Its first expert has computed as many tokens as there were steps."""

    def view(self) -> WorkerView:
        view = super().view()
        totals = (view.steps_total, 7)
        return replace(view, expert_tokens=ExpertTokens(experts=2, layers=(0,), totals=totals))


async def test_only_heartbeats_carry_counts_and_no_decision_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_port, "REPORT_EVERY_S", 0.0)
    decided: list[FleetEvent] = []
    failures: list[BaseException] = []
    quiet = replace(WELCOME, heartbeat_s=500.0, lost_after_s=1000.0)
    worker = Mixture(worker_info())
    async with Door(tmp_path, welcome=quiet) as door, port(worker, door.path):
        link = await door.link()
        fleet = Fleet(
            ClusterConfig(),
            clock=time.monotonic,
            on_events=lambda info, events: None,
            on_change=decided.append,
            on_failure=failures.append,
        )
        fleet.join(link)
        one = request()
        await link.add(one)
        worker.say(token(one, 0))
        await until(lambda: link.view().steps_total > 0)
        (member,) = fleet.members()
        assert shown(member.view) == {("w0", "0", "0"): 0, ("w0", "0", "1"): 7}, (
            "those of its hello"
        )
        fleet._watch()
        views = [change.view for change in decided if isinstance(change, WorkerReported)]
        assert [view.steps_total > 0 for view in views] == [False, True]
        assert {view.expert_tokens for view in views} == {None}
        fleet.lose(link, "the test is over")
    assert not failures


def test_counts_are_shown_by_layer_and_expert_or_by_expert_alone() -> None:
    whole = ExpertTokens(experts=2, layers=(1, 3), totals=(4, 5, 6, 7))
    sums = ExpertTokens(experts=2, layers=(), totals=(10, 12))
    found = shown(replace(VIEW, expert_tokens=whole), replace(VIEW, expert_tokens=sums), VIEW)
    assert found == {
        ("w0", "1", "0"): 4,
        ("w0", "1", "1"): 5,
        ("w0", "3", "0"): 6,
        ("w0", "3", "1"): 7,
        ("w1", "all", "0"): 10,
        ("w1", "all", "1"): 12,
    }


def test_as_many_counts_as_may_be_fit_into_a_report_and_a_hello() -> None:
    most = ExpertTokens(
        experts=2, layers=tuple(range(63488, 65536)), totals=(2**48,) * MOST_EXPERT_COUNTS
    )
    view = replace(VIEW, expert_tokens=most)
    for kind, message in ((Kind.REPORT, view), (Kind.HELLO, Hello(worker_info(), view))):
        frame = FrameReader({int(kind): 64 * 2**10}).feed_one(encode(kind, message))
        assert isinstance(frame, Frame)
        assert decode(frame) == message
