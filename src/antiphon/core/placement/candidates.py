"""Ways to place a model's phases on devices."""

from dataclasses import dataclass, replace
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
        """Such as "h100 TP2"."""
        stages = f" PP{self.pipeline}" if self.pipeline > 1 else ""
        return f"{self.device} TP{self.tensor}{stages}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Colocated:
    """Workers that do both phases; a step has up to `step_tokens` tokens.

    `prefill_first`: prompts have steps to themselves and decodes wait; else they share steps
    (chunked prefill, Sarathi).
    """

    instance: Instance
    workers: int
    step_tokens: int
    prefill_first: bool = False

    @property
    def devices(self) -> int:
        """Of all workers."""
        return self.workers * self.instance.devices

    @property
    def pools(self) -> tuple[tuple[Instance, int], ...]:
        """Each kind of worker, and how many."""
        return ((self.instance, self.workers),)

    @property
    def kind(self) -> str:
        """What it has in common with others."""
        how = "prefill first" if self.prefill_first else "chunked"
        return f"colocated, {how}, {self.instance.device}"

    @property
    def text(self) -> str:
        """Such as "4 mixed h100 TP1, chunks of 512"."""
        how = "prefill first" if self.prefill_first else f"chunks of {self.step_tokens}"
        return f"{self.workers} mixed {self.instance.text}, {how}"

    def times(self, copies: int) -> "Colocated":
        """So many times as many workers."""
        return replace(self, workers=copies * self.workers)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Split:
    """Prefill and decode apart. `conditional`: decode workers compute short prompts themselves."""

    prefill: Instance
    prefill_workers: int
    decode: Instance
    decode_workers: int
    step_tokens: int
    conditional: bool = False

    @property
    def devices(self) -> int:
        """Of all workers."""
        return sum(workers * instance.devices for instance, workers in self.pools)

    @property
    def pools(self) -> tuple[tuple[Instance, int], ...]:
        """Each kind of worker, and how many."""
        return ((self.prefill, self.prefill_workers), (self.decode, self.decode_workers))

    @property
    def kind(self) -> str:
        """What it has in common with others."""
        how = "conditional split" if self.conditional else "split"
        return f"{how}, {self.prefill.device} and {self.decode.device}"

    @property
    def text(self) -> str:
        """Such as "2 prefill h100 TP2 + 1 decode h20 TP1"."""
        rest = ", conditional" if self.conditional else ""
        return (
            f"{self.prefill_workers} prefill {self.prefill.text} + "
            f"{self.decode_workers} decode {self.decode.text}{rest}"
        )

    def times(self, copies: int) -> "Split":
        """So many times as many workers."""
        return replace(
            self,
            prefill_workers=copies * self.prefill_workers,
            decode_workers=copies * self.decode_workers,
        )


Candidate: TypeAlias = Colocated | Split
