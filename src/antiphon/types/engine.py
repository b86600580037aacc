"""What a worker, live or virtual, needs of an engine: one method."""

from typing import Protocol

from .plan import StepPlan, StepResult


class Engine(Protocol):
    """Computes plans, one after the other, always on the same thread."""

    def forward(self, plan: StepPlan) -> StepResult:
        """Run one pass and answer every sample that the plan asks for. Blocks until it is done.

        Whatever it raises ends the sequences of this plan, and no KV that it wrote is used.
        """
        ...
