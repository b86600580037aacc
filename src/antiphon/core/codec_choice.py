"""At which level to fetch the next chunks of a context's KV, or whether to compute them instead.

Liu et al. 2024 ("CacheGen", §6) take for each chunk the best level at which all that is left
arrives in time, and text if computing does. Two things are done otherwise:

* What a level takes is the longer of moving its bytes and of decoding them, chunk by chunk: on a
  fast link a smaller level may be the slower one, since it takes longer to decode.
* KV that is computed on top of lossy KV is lossy too: it counts as no better than what is there.

Ask again before each chunk, with what was measured meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from antiphon.types import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLevel:
    """What a chunk's KV may come as. `rank`: 0 is exact, and each larger number is worse.

    Bytes of a token; tokens that this machine decodes in a second. Raises `ValueError` for a rate
    that is not above 0, or a number below 0.
    """

    name: str
    rank: int
    bytes_per_token: float
    tokens_per_s: float

    def __post_init__(self) -> None:
        if not (self.tokens_per_s > 0 and self.bytes_per_token >= 0 and self.rank >= 0):
            raise ValueError(f"{self.name}: rank, bytes or rate are below what they can be")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchState:
    """What is left to do, in order of position.

    `tokens`: of each chunk. `compute_s`: what computing all of them takes once what is before them
    is here; None: they can't be computed. `left_s`: until the SLO's end (below 0: it is over; then
    what is soonest is best). `setup_s`: until the first byte of what is asked for now can be here:
    a question's way, and its answer's. `here_rank`: of the worst KV that is here already. Raises
    `ValueError` for a rate that is not above 0, or a number below 0.
    """

    tokens: tuple[int, ...]
    compute_s: Seconds | None
    bytes_per_s: float
    left_s: Seconds
    setup_s: Seconds = 0.0
    here_rank: int = 0

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise ValueError(f"bytes_per_s is {self.bytes_per_s}: a link carries more than nothing")
        for name in ("tokens", "compute_s", "setup_s", "here_rank"):
            value = getattr(self, name)
            numbers = value if isinstance(value, tuple) else (0 if value is None else value,)
            if not all(one >= 0 for one in numbers):
                raise ValueError(f"{name} is below 0, or no number: {value}")
        if isnan(self.left_s):
            raise ValueError("left_s is no number")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchChoice:
    """Fetch all at `level`; None: compute all.

    `seconds`: until all are here, as predicted. `rank`: of the worst of it, and of what was here.
    `in_time`: within `left_s`.
    """

    level: FetchLevel | None
    seconds: Seconds
    rank: int
    in_time: bool


def choose_level(state: FetchState, levels: Sequence[FetchLevel]) -> FetchChoice:
    """The best that is in time, of those the soonest; if nothing is, the soonest of all.

    Of equals: what stands first in `levels`, then computing. Raises `ValueError` if there is
    neither a level nor a way to compute. Does not mutate.
    """
    options = [
        _option(state, level, fetch_s(state, level), max(state.here_rank, level.rank))
        for level in levels
    ]
    if state.compute_s is not None:
        options.append(_option(state, None, state.compute_s, state.here_rank))
    if not options:
        raise ValueError("there is neither a level to fetch nor a way to compute")
    timely = [option for option in options if option.in_time]
    if timely:
        best = min(option.rank for option in timely)
        options = [option for option in timely if option.rank == best]
    return min(options, key=lambda option: option.seconds)


def fetch_s(state: FetchState, level: FetchLevel) -> Seconds:
    """Until all chunks are moved and decoded, each once it is moved."""
    moved = decoded = state.setup_s
    for tokens in state.tokens:
        moved += tokens * level.bytes_per_token / state.bytes_per_s
        decoded = max(moved, decoded) + tokens / level.tokens_per_s
    return decoded


def _option(
    state: FetchState, level: FetchLevel | None, seconds: Seconds, rank: int
) -> FetchChoice:
    return FetchChoice(level=level, seconds=seconds, rank=rank, in_time=seconds <= state.left_s)
