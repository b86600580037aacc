"""What a worker, live or virtual, needs of an engine."""

from typing import Protocol, runtime_checkable

from .expert_tokens import ExpertTokens
from .plan import StepPlan, StepResult


class Engine(Protocol):
    """Computes plans, one after the other, always on the same thread."""

    def forward(self, plan: StepPlan) -> StepResult:
        """Run one pass and answer every sample that the plan asks for. Blocks until it is done.

        Whatever it raises ends the sequences of this plan, and no KV that it wrote is used.
        """
        ...


class ComingKv(Protocol):
    """KV that comes from the first layers to the last while a pass computes."""

    @property
    def starts(self) -> tuple[int, ...]:
        """The first layer of each group of layers that comes at once, ascending from 0."""
        ...

    def wait(self, group: int) -> bool:
        """Block until that group is here; False: it does not come, or not in time.

        The last one is here only when all pages, over all layers, are known to be right.
        """
        ...


@runtime_checkable
class LayeredEngine(Engine, Protocol):
    """An engine that can begin a pass while KV that it reads is still on its way."""

    def forward_as_it_comes(self, plan: StepPlan, coming: ComingKv) -> StepResult:
        """Like `forward`, but waits for each group before it computes its first layer.

        If one does not come the result is `broken_off`: what the plan writes means nothing then.
        """
        ...


@runtime_checkable
class CountingEngine(Engine, Protocol):
    """An engine that says which experts of its model had how much to do."""

    def expert_tokens(self) -> ExpertTokens | None:
        """What they have computed so far, from any thread, also during a pass; None: the model
        has no experts. A pass that broke off counts as far as it came."""
        ...
