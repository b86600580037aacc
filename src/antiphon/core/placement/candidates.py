"""Ways to place a model's phases on devices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Instance:
    """One worker: a model split over `tensor × pipeline` devices of a kind."""

    device: str
    tensor: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        """How many it takes."""
        return self.tensor * self.pipeline

    @property
    def text(self) -> str:
        """Such as "h100 TP2 PP1"."""
        return f"{self.device} TP{self.tensor} PP{self.pipeline}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Colocated:
    """Workers that do both phases; a step has up to `step_tokens` of prompts beside decodes."""

    instance: Instance
    workers: int
    step_tokens: int

    @property
    def devices(self) -> int:
        """Of all workers."""
        return self.workers * self.instance.devices

    @property
    def text(self) -> str:
        """Such as "4 mixed of h100 TP1 PP1, 512 tokens a step"."""
        return f"{self.workers} mixed of {self.instance.text}, {self.step_tokens} tokens a step"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Split:
    """Prefill and decode apart. `conditional`: decode workers compute short prompts themselves."""

    prefill: Instance
    prefill_workers: int
    decode: Instance
    decode_workers: int
    conditional: bool = False

    @property
    def devices(self) -> int:
        """Of all workers."""
        return (
            self.prefill_workers * self.prefill.devices + self.decode_workers * self.decode.devices
        )

    @property
    def text(self) -> str:
        """Such as "2 prefill of h100 TP2 PP1, 1 decode of h20 TP1 PP1"."""
        rest = ", conditional" if self.conditional else ""
        return (
            f"{self.prefill_workers} prefill of {self.prefill.text}, "
            f"{self.decode_workers} decode of {self.decode.text}{rest}"
        )


Candidate: TypeAlias = Colocated | Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What may be chosen from.

    `instances`: those that fit in memory, each of at most one node unless it is a pipeline.
    `node_devices`: devices of a node. `low_affinity`: KV must stay within a node, so that prefill
    and decode share one (DistServe §4.2): then both kinds are the same. `most_devices`: in all.
    """

    instances: tuple[Instance, ...]
    node_devices: int = 8
    most_devices: int = 16
    low_affinity: bool = False
    step_tokens: tuple[int, ...] = (512, 2048)

    def splits(self) -> Iterator[tuple[Instance, Instance]]:
        """Pairs of a prefill and a decode instance, without their numbers."""
        for prefill in self.instances:
            for decode in self.instances:
                if not self.low_affinity or self._share_a_node(prefill, decode):
                    yield prefill, decode

    def _share_a_node(self, prefill: Instance, decode: Instance) -> bool:
        """Segments of one stage lie in one node: as many stages, and room for both beside."""
        return (
            prefill.device == decode.device
            and prefill.pipeline == decode.pipeline
            and prefill.tensor + decode.tensor <= self.node_devices
        )


def matched(
    prefill_per_s: float,
    prefill_devices: int,
    decode_per_s: float,
    decode_devices: int,
    most_devices: int,
) -> tuple[int, int] | None:
    """Numbers of workers that serve most a device, within `most_devices`; None: they do not fit.

    Rate matching: max over (x, y) of min(x·P, y·D) / (x·p + y·d). Of equal ones the fewest devices.
    """
    options = (
        (x, y)
        for x in range(1, most_devices // prefill_devices + 1)
        for y in range(1, (most_devices - x * prefill_devices) // decode_devices + 1)
    )

    def worth(option: tuple[int, int]) -> tuple[float, int, int]:
        x, y = option
        devices = x * prefill_devices + y * decode_devices
        return min(x * prefill_per_s, y * decode_per_s) / devices, -devices, -x

    return max(options, key=worth, default=None)


def powers_of_two(most: int) -> Sequence[int]:
    """1, 2, 4, … up to `most`."""
    return [1 << shift for shift in range(most.bit_length()) if 1 << shift <= most]
