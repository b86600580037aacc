"""KV that another worker offers: whether it is the KV of this request, and where each page lies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from antiphon.core.kv import PageGroups
from antiphon.types import NO_PAGE, Offer, OfferedPage, OfferedSequence, Request


@dataclass(slots=True, eq=False)
class Adoption:
    """What an adopted request may pull: its sequences' pages, as in the tables that are offered."""

    offer: Offer
    sources: Mapping[int, tuple[OfferedPage | None, ...]] = field(default_factory=dict)
    """By sequence; None where a window has passed. Empty if nothing of the offer can be used: then
    all is computed here."""
    problem: str = ""
    """Why nothing can be used."""


def examine(
    request: Request, alive: Iterable[int], offer: Offer, *, groups: PageGroups, numerics: str
) -> Adoption:
    """Take an offer apart for the sequences in `alive`, each of which has resumed tokens.

    It is used as a whole or not at all: whatever does not fit makes all of it missing.
    """
    if offer.numerics != numerics:
        return Adoption(offer, problem=f"it was computed as {offer.numerics}, not as {numerics}")
    if not 0 < offer.ttl_s < inf:
        return Adoption(offer, problem=f"it lives for {offer.ttl_s} s")
    if offer.kv.page_tokens != groups.page_tokens:
        return Adoption(
            offer, problem=f"its pages have {offer.kv.page_tokens} tokens, not {groups.page_tokens}"
        )
    if offer.request != request.id:
        return Adoption(offer, problem=f"it is of request {offer.request}")
    pages = {page.page: page for page in offer.pages}
    if len(pages) != len(offer.pages):
        return Adoption(offer, problem="it names a page twice")
    offered = {one.sequence: one for one in offer.sequences}
    sources: dict[int, tuple[OfferedPage | None, ...]] = {}
    wanted = list(alive)
    for sequence in wanted:
        tokens = len(request.prompt) + len(request.resumed[sequence]) - 1
        one = offered.get(sequence)
        alone = len(wanted) == 1
        if one is None or not _covers(one, tokens, groups, pages, alone=alone):
            return Adoption(offer, problem=f"it does not cover sequence {sequence}")
        sources[sequence] = tuple(map(pages.get, one.table))
    return Adoption(offer, sources)


def _covers(
    offered: OfferedSequence,
    tokens: int,
    groups: PageGroups,
    pages: Mapping[int, OfferedPage],
    *,
    alone: bool,
) -> bool:
    """Whether it is the KV of exactly so many tokens, each in a page that the offer has.

    `alone`: but for what the token after them does not see.
    """
    table = offered.table
    if offered.tokens != tokens or len(table) != groups.whole_pages(tokens):
        return False
    held = [page for page in table if page != NO_PAGE]
    named = set(held)
    if len(named) < len(held) or not named <= pages.keys():
        return False
    if len(held) == len(table):
        return True
    first = groups.first_places(tokens) if alone else [0] * groups.entry_pages
    each = groups.entry_pages
    return all(NO_PAGE not in table[begin + place :: each] for place, begin in enumerate(first))
