"""What a plan is asked for, and the search that answers it."""

from dataclasses import dataclass, field

from antiphon.core.placement import Objective, PlacementSearch, SearchEffort, Space
from antiphon.errors import UsageError
from antiphon.types import Slo

from .phase_bounds import PhaseBounds
from .placement_case import MAX_SEQUENCES, PlacementCase, TrialEffort
from .search_run import SearchRun
from .users_at_rate import UsersAtRate, call_shape
from .worker_times import Hardware

_CELL_DEVICES = 4
_LARGEST_CELL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrder:
    """Where the model may be placed, who calls, and what is best.

    `rate_per_s`: calls a second that are to be served; None: as many as can be. `low_affinity`:
    KV must not leave a node (see `core.placement.Space`).
    """

    hardware: Hardware
    users: UsersAtRate
    slo: Slo
    objective: Objective = Objective.DEVICES
    rate_per_s: float | None = None
    low_affinity: bool = False
    step_tokens: tuple[int, ...] = (512, 2048)
    search: SearchEffort = field(default_factory=SearchEffort)
    trial: TrialEffort = field(default_factory=TrialEffort)

    def search_run(self) -> SearchRun:
        """A search that has not begun.

        Candidates are judged in cells of at most eight devices, or of two of the smallest workers:
        as many cells as there are devices for serve as many times as much. Raises `UsageError` if
        the model does not fit, or nothing is ever in time.
        """
        shape = call_shape(self.users)
        context = self.hardware.model.context
        if shape.longest > context:
            raise UsageError(
                f"the workload has calls of {shape.longest} tokens, and {self.hardware.model.name} "
                f"has a context of {context}: add max_context={context} to the workload"
            )
        # Prefill workers may offer half of their memory.
        kinds = self.hardware.kinds(2 * shape.longest)
        case = PlacementCase(
            users=self.users,
            shape=shape,
            slo=self.slo,
            kinds=kinds,
            kv_bytes_per_token=self.hardware.kv_bytes_per_token,
            within_node=self.low_affinity,
            effort=self.trial,
        )
        smallest = min(kind.instance.devices for kind in kinds)
        most = self.hardware.most_devices
        search = PlacementSearch(
            Space(
                instances=tuple(kind.instance for kind in kinds),
                most_devices=min(most, max(_LARGEST_CELL, 2 * smallest)),
                node_devices=self.hardware.node_devices,
                low_affinity=self.low_affinity,
                step_tokens=self.step_tokens,
                cell_devices=min(most, _CELL_DEVICES),
            ),
            PhaseBounds(kinds, shape, self.slo, max_sequences=MAX_SEQUENCES),
            objective=self.objective,
            rate_per_s=self.rate_per_s,
            effort=self.search,
        )
        if not search.promises:
            names = ", ".join(device.name for device in self.hardware.devices)
            raise UsageError(
                f"no way to place {self.hardware.model.name} on {most} of {names} is ever in time, "
                f"even without load: a prompt of {shape.late_uncached} tokens, or one token more, "
                f"takes longer than the targets allow: relax --slo, or give faster devices"
            )
        return SearchRun(search, case)
