"""KV that another worker offers: whether it is the KV of this request, and where each page lies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from antiphon.core.kv import PageGroups
from antiphon.types import Offer, OfferedPage, OfferedSequence, Request


@dataclass(slots=True, eq=False)
class Adoption:
    """What an adopted request may pull: its sequences' pages, in order of their positions."""

    offer: Offer
    sources: Mapping[int, tuple[OfferedPage, ...]] = field(default_factory=dict)
    """By sequence. Empty if nothing of the offer can be used: then all is computed here."""
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
    sources: dict[int, tuple[OfferedPage, ...]] = {}
    for sequence in alive:
        tokens = len(request.prompt) + len(request.resumed[sequence]) - 1
        one = offered.get(sequence)
        if one is None or not _covers(one, tokens, groups, pages):
            return Adoption(offer, problem=f"it does not cover sequence {sequence}")
        sources[sequence] = tuple(map(pages.__getitem__, one.table))
    return Adoption(offer, sources)


def _covers(
    offered: OfferedSequence, tokens: int, groups: PageGroups, pages: Mapping[int, OfferedPage]
) -> bool:
    """Whether it is the KV of exactly so many tokens, each in a page that the offer has."""
    table = offered.table
    named = set(table)
    return (
        offered.tokens == tokens
        and len(table) == groups.whole_pages(tokens)
        and len(named) == len(table)
        and named <= pages.keys()
    )
