"""Who sends a block, and what is known of the way from there."""

from dataclasses import dataclass

from antiphon.types import Seconds, StoreName

NOBODY = StoreName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A peer that would be asked (`name` empty: nobody would be). `bytes_per_s`: as measured, or,
    where `measured` is False, the least that is likely. `old`: measured long ago. `answer_s`: how
    long passes at least until it has said what it lends (0: not known)."""

    bytes_per_s: float
    measured: bool
    name: StoreName = NOBODY
    old: bool = False
    answer_s: Seconds = 0.0
