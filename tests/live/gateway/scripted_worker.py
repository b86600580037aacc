"""A real worker, scheduler and KV books and all, whose model says what a test chose."""

import asyncio
import threading
import time

from puppet_link import worker_info

from antiphon.core.scheduler import Scheduler
from antiphon.live.worker import Worker
from antiphon.sim import Script, ScriptedEngine, ShadowKv
from antiphon.types import KvConfig, SchedulerConfig, StepPlan, StepResult, WorkerInfo

KV = KvConfig(page_tokens=16, block_tokens=64)


class CountingEngine:
    """Counts its passes, and can be held before each of them."""

    def __init__(self, script: Script) -> None:
        self._inner = ScriptedEngine(script, shadow=ShadowKv(KV.page_tokens))
        self.passes = 0
        self.free = threading.Event()
        """Cleared: the next pass waits, having been counted, until this is set."""
        self.free.set()
        self.held = threading.Event()
        """A pass waits, or has waited, for `free`."""

    def forward(self, plan: StepPlan) -> StepResult:
        self.passes += 1
        if not self.free.is_set():
            self.held.set()
            if not self.free.wait(30):
                raise TimeoutError("the test never let this pass go on")
        return self._inner.forward(plan)


def scripted_worker(
    tokenizer, script: Script, *, pages: int = 2048, scheduler: SchedulerConfig | None = None
) -> tuple[Worker, CountingEngine]:
    """Not started; use it as `async with`."""
    info: WorkerInfo = worker_info(
        vocab_size=tokenizer.vocab_size, eos=tokenizer.eos_token_ids, max_model_len=4096
    )
    engine = CountingEngine(script)
    decisions = Scheduler(
        config=scheduler or SchedulerConfig(max_num_seqs=64),
        kv=KV,
        pages=pages,
        model=info.model,
        max_model_len=info.max_model_len,
    )
    return Worker(info, decisions, engine, clock=time.monotonic), engine


async def at_rest(worker: Worker, within_s: float = 20.0) -> None:
    """Return when no page is held and nothing waits or runs."""
    async with asyncio.timeout(within_s):
        while True:
            view = worker.view()
            if (view.running, view.waiting, view.held_pages) == (0, 0, 0):
                assert view.free_pages + view.cached_pages == view.total_pages
                return
            await asyncio.sleep(0.002)
