"""What a plan knows of one kind of worker: how fast it is, what fits into it, what it costs."""

from dataclasses import dataclass
from typing import Protocol

from antiphon.core.costs import PhaseTime
from antiphon.core.number_text import number_text
from antiphon.core.placement import Instance
from antiphon.errors import UsageError
from antiphon.perf.hardware import Deployment, Device, ModelShape, Parallelism

from ..fleet.timed_engine import DeviceTime

_TENSOR = (1, 2, 4, 8)
_PIPELINE = (1, 2)


class WorkerTime(DeviceTime, PhaseTime, Protocol):
    """Steps as they will be, and phases as a router expects them."""


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """One worker of `instance`. `kv_tokens`: how many tokens' KV it has memory for.

    `link_bytes_per_s`: to a worker of another node, over all its devices; `node_bytes_per_s`: to
    one of its own node.
    """

    instance: Instance
    times: WorkerTime
    kv_tokens: int
    price_per_hour: float
    link_bytes_per_s: float
    node_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A model, the devices that it may be placed on, and how it is kept there.

    `most_devices`: in all; `node_devices`: of a node. `weight_bytes`, `kv_bytes`: of one number.
    `step_tokens`: how much of a prompt is computed at once.
    """

    model: ModelShape
    devices: tuple[Device, ...]
    most_devices: int = 16
    node_devices: int = 8
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    step_tokens: int = 2048

    @property
    def kv_bytes_per_token(self) -> int:
        """Of all layers."""
        model = self.model
        return round(model.layers * model.kv_values_per_token * self.kv_bytes)

    def kinds(self, least_context: int) -> tuple[WorkerKind, ...]:
        """Every way to split the model over devices of one kind that fits, by `perf`'s roofline.

        Tensor-parallel devices share a node. `least_context`: tokens whose KV must fit beside the
        weights. Raises `UsageError` if nothing fits.
        """
        found: list[WorkerKind] = []
        for device in self.devices:
            for tensor in _TENSOR:
                for pipeline in _PIPELINE:
                    times = self._fitting(device, Parallelism(tensor=tensor, pipeline=pipeline))
                    if times is not None and times.kv_tokens >= least_context:
                        found.append(_kind(times))
        if not found:
            names = ", ".join(device.name for device in self.devices)
            raise UsageError(
                f"{self.model.name} with {number_text(self.weight_bytes)} bytes a weight and "
                f"{least_context} tokens of KV does not fit into {self.most_devices} of {names}: "
                f"give more devices, larger ones, or fewer bytes a weight"
            )
        return tuple(found)

    def _fitting(self, device: Device, split: Parallelism) -> Deployment | None:
        if split.tensor > self.node_devices or split.devices > self.most_devices:
            return None
        try:
            return Deployment(
                model=self.model,
                device=device,
                parallelism=split,
                step_tokens=self.step_tokens,
                weight_bytes=self.weight_bytes,
                kv_bytes=self.kv_bytes,
            )
        except UsageError:  # it can't be split so, or its weights don't fit
            return None


def _kind(times: Deployment) -> WorkerKind:
    device, split = times.device, times.parallelism
    return WorkerKind(
        Instance(device=device.name, tensor=split.tensor, pipeline=split.pipeline),
        times,
        times.kv_tokens,
        split.devices * device.price_per_hour,
        split.devices * device.network_bytes_per_s,
        split.devices * device.peer_bytes_per_s,
    )
