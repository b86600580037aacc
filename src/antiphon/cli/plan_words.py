"""What `antiphon plan` was told, checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.runs import slos_of

if TYPE_CHECKING:
    from antiphon.perf.hardware import Device
    from antiphon.sim.placing import PlanOrder
    from antiphon.types import Slo

_MOST_DEVICES = 256
_BITS = (4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWords:
    """As it was written on the command line; None: it was not."""

    model: str
    devices: str
    count: int
    node: int
    workload: str
    arrivals: str
    slo: str | None
    slo_preset: str | None
    by: str
    prices: Sequence[str]
    rate: float | None
    low_affinity: bool
    weight_bits: int
    kv_bits: int
    seeds: int
    trials: int

    def order(self) -> "PlanOrder":
        """What is to be planned. Raises `UsageError` that names the option and the remedy."""
        from antiphon.core.placement import Objective, SearchEffort
        from antiphon.perf.hardware import shape_of
        from antiphon.sim.placing import Hardware, PlanOrder, WorkloadUsers
        from antiphon.workload import parse_arrivals, parse_workload

        self._check_numbers()
        if self.by not in tuple(Objective):
            raise UsageError(f'--by "{self.by}": must be devices or money')
        parse_arrivals(self.arrivals, 1.0)
        return PlanOrder(
            hardware=Hardware(
                model=shape_of(self.model),
                devices=self._devices(),
                most_devices=self.count,
                node_devices=self.node,
                weight_bytes=self.weight_bits / 8,
                kv_bytes=self.kv_bits / 8,
            ),
            users=WorkloadUsers(parse_workload(self.workload), self.arrivals),
            slo=self._slo(),
            objective=Objective(self.by),
            rate_per_s=self.rate,
            low_affinity=self.low_affinity,
            search=SearchEffort(seeds=self.seeds, most_trials=self.trials),
        )

    def _check_numbers(self) -> None:
        for name, value, most in (
            ("--count", self.count, _MOST_DEVICES),
            ("--node", self.node, _MOST_DEVICES),
            ("--seeds", self.seeds, 100),
            ("--trials", self.trials, 1000),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"{name} {value}: must be from 1 to {most}")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise UsageError(f"--rate {number_text(self.rate)}: must be above 0 calls a second")
        for name, bits in (("--weight-bits", self.weight_bits), ("--kv-bits", self.kv_bits)):
            if bits not in _BITS:
                raise UsageError(f"{name} {bits}: must be one of {', '.join(map(str, _BITS))}")

    def _devices(self) -> "tuple[Device, ...]":
        from antiphon.perf.hardware import device_of

        names = [name.strip() for name in self.devices.split(",")]
        if not all(names):
            raise UsageError(f'--devices "{self.devices}": name kinds such as h800,h20')
        if len(set(names)) < len(names):
            raise UsageError(f'--devices "{self.devices}": names a kind of device twice')
        prices = self._prices(names)
        devices = [device_of(name) for name in names]
        return tuple(
            replace(one, price_per_hour=prices.get(one.name, one.price_per_hour)) for one in devices
        )

    def _prices(self, names: Sequence[str]) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for text in self.prices:
            name, equals, number = (part.strip() for part in text.partition("="))
            try:
                price = float(number)
            except ValueError:
                price = math.nan
            if not equals or not 0 < price < math.inf:
                raise UsageError(f'--price "{text}": must be such as h800=2.5, an hour of one')
            if name not in names:
                raise UsageError(f'--price "{text}": --devices names no {name}')
            found[name] = price
        return found

    def _slo(self) -> "Slo":
        texts = [] if self.slo is None else [self.slo]
        presets = [] if self.slo_preset is None else [self.slo_preset]
        if not texts and not presets:
            raise UsageError("--slo: say what is in time, such as ttft=500ms,tpot=50ms")
        found = dict(slos_of(texts, presets))
        slo = found.get("")
        if slo is None or len(found) > 1:
            raise UsageError("--slo: a plan is for one pair of targets: leave the class out")
        if math.inf in (slo.ttft_s, slo.tpot_s):
            raise UsageError("--slo: give both, such as ttft=500ms,tpot=50ms")
        return slo
