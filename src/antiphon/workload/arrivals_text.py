"""Arrivals as one writes them: `poisson`, `bursts:cv=2`, `sine:low=1,high=5,period=60s`."""

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.errors import UsageError

from .arrivals import Arrivals, Constant, GammaBursts, OnOff, OwnTimes, Poisson, Sine
from .number_text import shown
from .options import OptionLine, build, option_lines, split_name

AnyArrivals: TypeAlias = Arrivals | OwnTimes


@dataclass(frozen=True, slots=True)
class ArrivalKind:
    """A kind of arrivals, by what it is called."""

    name: str
    example: str
    summary: str
    kind: type

    @property
    def options(self) -> tuple[OptionLine, ...]:
        """What can be said about it."""
        return option_lines(self.kind, {})


ARRIVALS = (
    ArrivalKind("poisson", "poisson", "independent users: exponential gaps", Poisson),
    ArrivalKind("constant", "constant", "equal gaps", Constant),
    ArrivalKind("bursts", "bursts:cv=2", "gamma-distributed gaps", GammaBursts),
    ArrivalKind("bursts", "bursts:on=5s,off=10s", "Poisson, then silence, and so on", OnOff),
    ArrivalKind("sine", "sine:low=1,high=5,period=60s", "a rate that swings", Sine),
    ArrivalKind("trace", "trace:speed=2", "the times of the trace or file itself", OwnTimes),
)


def parse_arrivals(text: str, rate_per_s: float | None = None) -> AnyArrivals:
    """Arrivals from their text form, scaled to `rate_per_s` sessions a second if it is given.

    Raises `UsageError` for what is unknown or out of range, and for a kind that needs a rate if
    none is named.
    """
    name, options = split_name(text)
    kinds = [kind for kind in ARRIVALS if kind.name == name]
    if not kinds:
        examples = ", ".join(kind.example for kind in ARRIVALS)
        raise UsageError(f"arrivals: must be one of {examples}, not {shown(name)}")
    kind = next((kind for kind in kinds if _names_all(kind, options)), kinds[0])
    if rate_per_s is not None:
        Poisson(rate_per_s)
    defaults: dict[str, object] = {}
    if any(line.key == "rate" for line in kind.options) and kind.kind is not OwnTimes:
        if rate_per_s is None and "rate=" not in options:
            raise UsageError(f"arrivals {name}: there is no rate: give --rate, or {name}:rate=…")
        defaults["rate_per_s"] = rate_per_s
    parsed = build(kind.kind, f"arrivals {name}", options, defaults)
    return parsed if rate_per_s is None else parsed.at_rate(rate_per_s)


def _names_all(kind: ArrivalKind, options: str) -> bool:
    """Whether one of the options is only of this kind."""
    keys = {part.partition("=")[0].strip() for part in options.split(",")}
    return bool(keys & {line.key for line in kind.options if line.key != "rate"})
