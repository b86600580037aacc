"""An engine on the one thread that may use it."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from antiphon.types import (
    ComingKv,
    CountingEngine,
    Engine,
    LayeredEngine,
    StepPlan,
    StepResult,
    WorkerView,
)

_log = logging.getLogger(__name__)


class EngineThread:
    """Computes one plan after the other, and counts those that failed: ever, and in a row."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.faults_total = 0
        self.faults_in_a_row = 0
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def layered(self) -> bool:
        """Whether it takes plans with KV that is still coming."""
        return isinstance(self._engine, LayeredEngine)

    async def forward(self, plan: StepPlan, coming: ComingKv | None = None) -> StepResult | None:
        """The result; None if the engine raised anything, which the log has then.

        `coming`: the KV that the plan awaits, if it does, and the engine is `layered`.
        """
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._thread, self._compute, plan, coming)
        if isinstance(result, Exception):
            _log.error("forward pass %d failed", plan.number, exc_info=result)
            self.faults_total += 1
            self.faults_in_a_row += 1
            return None
        self.faults_in_a_row = 0
        return result

    def counted(self, view: WorkerView) -> WorkerView:
        """The view with what the engine counts."""
        if not isinstance(self._engine, CountingEngine):
            return view
        experts = self._engine.expert_tokens()
        return view if experts is None else replace(view, expert_tokens=experts)

    def shutdown(self) -> None:
        """Wait for the running pass, and end the thread."""
        self._thread.shutdown()

    def _compute(self, plan: StepPlan, coming: ComingKv | None) -> StepResult | Exception:
        """Errors are returned: a future can't carry all of them."""
        try:
            if coming is None:
                return self._engine.forward(plan)
            assert isinstance(self._engine, LayeredEngine)
            return self._engine.forward_as_it_comes(plan, coming)
        except Exception as error:  # noqa: BLE001  whatever fails here, the others must be served
            return error
