"""How a model is spread over devices."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Tensor-parallel devices in each of so many pipeline stages.

    Experts are spread over the tensor-parallel devices of their stage, whole ones (expert
    parallelism): what a device reads of them shrinks likewise.
    """

    tensor: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        """All together."""
        return self.tensor * self.pipeline

    @property
    def text(self) -> str:
        """Such as "TP2 PP1"."""
        return f"TP{self.tensor} PP{self.pipeline}"

    def stage_share(self, layers: int) -> float:
        """The share of so many layers that the longest stage has."""
        return -(-layers // self.pipeline) / layers
