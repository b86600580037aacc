"""How many tokens: a distribution, drawn once a call.

    512                              always so many
    100-900                          each of these equally likely
    64/128/512                       each of these equally likely
    normal:mean=512,sd=100           min= and max= bound both (default: 1 and 2^20)
    lognormal:mean=512,sd=600        the shape that lengths of prompts have: many short, some long
    lognormal:mean=512,p99=4000      the same by its 99th percentile

What falls outside the bounds of a normal or lognormal distribution becomes the bound, so its mean
is the one that was asked for only if the bounds are wide.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

from .chance import STANDARD_NORMAL, standard_normal
from .number_text import parse_number, parse_whole, shown

MOST_TOKENS = 2**20
_MOST_CHOICES = 1000
_MOST_CHARS = 16384
_Z99 = STANDARD_NORMAL.inv_cdf(0.99)
_REMEDY = (
    "must be a length such as 512, 100-900, 64/128/512, normal:mean=512,sd=100 or "
    "lognormal:mean=512,p99=4000"
)


@runtime_checkable
class Lengths(Protocol):
    """A distribution of numbers of tokens, at least `low` and at most `high`."""

    @property
    def low(self) -> int:
        """The least that is ever drawn."""
        ...

    @property
    def high(self) -> int:
        """The most that is ever drawn."""
        ...

    @property
    def text(self) -> str:
        """As `parse_lengths` reads it."""
        ...

    def draw(self, draws: Draws, *purpose: str | int) -> int:
        """The length for that purpose: always the same for the same seed and purpose."""
        ...


@dataclass(frozen=True, slots=True)
class UniformLength:
    """From `low` to `high`, both included, each equally likely. One value if they are equal."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    @property
    def text(self) -> str:
        """As `parse_lengths` reads it."""
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"

    def draw(self, draws: Draws, *purpose: str | int) -> int:
        """See `Lengths`."""
        return self.low + draws.below(self.high - self.low + 1, *purpose)


def fixed_length(tokens: int) -> UniformLength:
    """Always so many tokens."""
    return UniformLength(tokens, tokens)


@dataclass(frozen=True, slots=True)
class ListedLength:
    """One of a list, each place equally likely: name a length twice to double its share."""

    choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.choices) <= _MOST_CHOICES:
            raise UsageError(
                f"lengths: a list must have from 1 to {_MOST_CHOICES} of them, "
                f"not {len(self.choices)}"
            )
        for tokens in self.choices:
            _check_bounds(tokens, tokens)

    @property
    def low(self) -> int:
        """The least of the list."""
        return min(self.choices)

    @property
    def high(self) -> int:
        """The most of the list."""
        return max(self.choices)

    @property
    def text(self) -> str:
        """As `parse_lengths` reads it."""
        return "/".join(map(str, self.choices))

    def draw(self, draws: Draws, *purpose: str | int) -> int:
        """See `Lengths`."""
        return draws.choice(self.choices, *purpose)


@dataclass(frozen=True, slots=True)
class NormalLength:
    """A normal distribution, rounded; what is outside `low` … `high` becomes the bound."""

    mean: float
    sd: float
    low: int = 1
    high: int = MOST_TOKENS

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        _check_moments(self.mean, self.sd)

    @property
    def text(self) -> str:
        """As `parse_lengths` reads it."""
        return f"normal:{_parameters(self)}"

    def draw(self, draws: Draws, *purpose: str | int) -> int:
        """See `Lengths`."""
        return _bounded(self.mean + self.sd * standard_normal(draws, *purpose), self.low, self.high)


@dataclass(frozen=True, slots=True)
class LognormalLength:
    """A lognormal distribution of this mean and deviation (of the lengths, not of their logs)."""

    mean: float
    sd: float
    low: int = 1
    high: int = MOST_TOKENS

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        _check_moments(self.mean, self.sd)

    @property
    def text(self) -> str:
        """As `parse_lengths` reads it."""
        return f"lognormal:{_parameters(self)}"

    def draw(self, draws: Draws, *purpose: str | int) -> int:
        """See `Lengths`."""
        sigma = math.sqrt(math.log1p((self.sd / self.mean) ** 2))
        mu = math.log(self.mean) - sigma**2 / 2
        return _bounded(
            math.exp(mu + sigma * standard_normal(draws, *purpose)), self.low, self.high
        )


def lognormal_by_p99(
    mean: float, p99: float, low: int = 1, high: int = MOST_TOKENS
) -> LognormalLength:
    """The lognormal distribution with this mean and 99th percentile.

    With mean = exp(μ + σ²/2) and p99 = exp(μ + zσ), σ is the lesser root of σ²/2 − zσ +
    log(p99/mean) = 0: there is none if p99 is over 14.9 times the mean. Raises `UsageError`.
    """
    _check_moments(mean, 0.0)
    ratio = math.log(p99 / mean) if p99 > 0 else -1.0
    if not 0 <= ratio <= _Z99**2 / 2:
        most = math.exp(_Z99**2 / 2)
        raise UsageError(
            f"p99 must be from the mean to {most:.1f} times the mean, not {number_text(p99)}"
        )
    sigma = _Z99 - math.sqrt(_Z99**2 - 2 * ratio)
    return LognormalLength(mean, mean * math.sqrt(math.expm1(sigma**2)), low, high)


def parse_lengths(text: str, what: str = "lengths") -> Lengths:
    """A distribution from its text form, at the top of this file.

    Raises `UsageError`; `what` begins its message.
    """
    if len(text) > _MOST_CHARS:
        raise UsageError(f"{what}: must have at most {_MOST_CHARS} characters")
    name, _, rest = text.partition(":")
    try:
        if name in ("normal", "lognormal"):
            return _parse_shape(name, rest)
        if "/" in text:
            return ListedLength(tuple(_tokens(part, text) for part in text.split("/")))
        low, dash, high = text.partition("-")
        return UniformLength(_tokens(low, text), _tokens(high if dash else low, text))
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


def _parse_shape(name: str, text: str) -> Lengths:
    given: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = (side.strip() for side in part.partition("="))
        if key not in ("mean", "sd", "p99", "min", "max") or key in given:
            raise UsageError(f"{shown(part)} is no parameter of {name}: {_REMEDY}")
        number = parse_number(value)
        if number is None:
            raise UsageError(f"{key} must be a number, not {shown(value)}")
        given[key] = number
    low, high = (_whole(given, key, other) for key, other in (("min", 1), ("max", MOST_TOKENS)))
    match sorted(given.keys() - {"min", "max"}):
        case ["mean", "sd"] if name == "normal":
            return NormalLength(given["mean"], given["sd"], low, high)
        case ["mean", "sd"]:
            return LognormalLength(given["mean"], given["sd"], low, high)
        case ["mean", "p99"] if name == "lognormal":
            return lognormal_by_p99(given["mean"], given["p99"], low, high)
    either = "mean and sd" if name == "normal" else "mean and either sd or p99"
    raise UsageError(f"{name} needs {either}: {_REMEDY}")


def _tokens(part: str, whole: str) -> int:
    tokens = parse_whole(part.strip())
    if tokens is None:
        raise UsageError(f"{shown(whole)} {_REMEDY}")
    return tokens


def _whole(given: Mapping[str, float], key: str, default: int) -> int:
    value = given.get(key, default)
    if value != int(value):
        raise UsageError(f"{key} must be a whole number of tokens, not {number_text(value)}")
    return int(value)


def _check_bounds(low: int, high: int) -> None:
    for tokens in (low, high):
        if not 1 <= tokens <= MOST_TOKENS:
            raise UsageError(f"a length must be from 1 to {MOST_TOKENS} tokens, not {tokens}")
    if low > high:
        raise UsageError(f"{low} to {high} is an empty range: the smaller number comes first")


def _check_moments(mean: float, sd: float) -> None:
    if not 1 <= mean <= MOST_TOKENS:
        raise UsageError(f"mean must be from 1 to {MOST_TOKENS} tokens, not {number_text(mean)}")
    if not 0 <= sd <= MOST_TOKENS:
        raise UsageError(f"sd must be from 0 to {MOST_TOKENS} tokens, not {number_text(sd)}")


def _bounded(value: float, low: int, high: int) -> int:
    return low if value <= low else high if value >= high else round(value)


def _parameters(shape: NormalLength | LognormalLength) -> str:
    text = f"mean={number_text(shape.mean)},sd={number_text(shape.sd)}"
    if shape.low != 1:
        text += f",min={shape.low}"
    if shape.high != MOST_TOKENS:
        text += f",max={shape.high}"
    return text
