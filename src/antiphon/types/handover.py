"""How the KV of a computed prompt passes from the worker that has it to the one that goes on.

    prefill ── Offer ──► gateway ── grant ──► prefill
                            └────── offer ──► decode ── take, acknowledge ──► prefill

The owner keeps the offered pages under a lease. Generations fence: whoever read a page whose
generation is not the offered one before and after has read something else.
"""

from dataclasses import dataclass
from enum import StrEnum

from .fleet import HostPort, KvShape
from .ids import Incarnation, LeaseId, PageId, RequestId, Seconds, WorkerId


@dataclass(frozen=True, slots=True)
class OfferedPage:
    """One sealed page. `generation` is even; `checksum` is XXH3-64 over the page's bytes."""

    page: PageId
    generation: int
    checksum: int


@dataclass(frozen=True, slots=True)
class OfferedSequence:
    """One unfinished sequence: KV of its positions 0 ... `tokens` - 1 lies in `table`, in order.

    Empty (`NO_PAGE`) are entries of layers whose window does not reach back to them from `tokens`.

    `tokens` is the length of prompt and resumed tokens; the token drawn after them has no KV yet.
    Tables of one offer may share pages. The last page may be partly filled.
    """

    sequence: int
    tokens: int
    table: tuple[PageId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """A scheduler's word to its own driver: these pages are held under `lease` from now on.

    The driver seals them and makes an `Offer` of it. It comes after the tokens that were drawn.
    """

    request: RequestId
    attempt: int
    lease: LeaseId
    sequences: tuple[OfferedSequence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """KV that waits for somebody to decode with it, until `ttl_s` after the last renewal.

    `pages` names each page of the tables once.
    """

    request: RequestId
    attempt: int
    lease: LeaseId
    ttl_s: Seconds
    owner: WorkerId
    incarnation: Incarnation
    kv: KvShape
    numerics: str
    pages: tuple[OfferedPage, ...]
    sequences: tuple[OfferedSequence, ...]
    at: HostPort | None = None
    """Where takers on other hosts ask the owner; None: there can be none."""


@dataclass(frozen=True, slots=True)
class PagePull:
    """Copy one offered page into a page of the taker's own. A source may have several targets."""

    source: OfferedPage
    target: PageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What a taker lacks of an offer, all of it with room reserved: maybe nothing.

    Each of `sources` goes into the page of `targets` at its place.
    """

    request: RequestId
    attempt: int
    offer: Offer
    sources: tuple[OfferedPage, ...]
    targets: tuple[PageId, ...]

    @property
    def pages(self) -> tuple[PagePull, ...]:
        """Page by page, made when asked for."""
        return tuple(map(PagePull, self.sources, self.targets))


class LeaseRefusal(StrEnum):
    """Why an owner did not do what was asked with a lease."""

    GONE = "gone"
    """Expired, released, acknowledged, or never there."""
    FOREIGN = "foreign"
    """Granted to somebody else, or to another attempt."""


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """Done; the lease lives for its time to live from now on."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """Not done; nothing was changed."""

    lease: LeaseId
    reason: LeaseRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantAnswered:
    """What the owner of an offer said to a `Grant`; None: granted."""

    request: RequestId
    attempt: int
    lease: LeaseId
    refused: LeaseRefusal | None = None
