"""Who may be in the midst of a handshake: places that the silent lose to those who come after.

A taker that knows a key needs its place for a few round trips, a stranger wants it for as long as
it gets. So nobody is turned away because others wait: the one that has been there longest goes, of
the newcomer's address first, then of the address that has the most places.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

Guest = TypeVar("Guest")


class HandshakePlaces(Generic[Guest]):
    """At most `places` guests, `of_one_address` of them from one. Mutable; for one lock."""

    def __init__(self, places: int, of_one_address: int) -> None:
        self._places = places
        self._of_one_address = of_one_address
        self._guests: dict[Guest, str] = {}
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many places are taken."""
        return len(self._guests)

    def __contains__(self, guest: object) -> bool:
        """Whether it has a place."""
        return guest in self._guests

    def __iter__(self) -> Iterator[Guest]:
        """Those who have one, the longest there first."""
        return iter(self._guests)

    def enter(self, guest: Guest, address: str) -> Guest | None:
        """Give a place to a new guest; returns who has lost its place for that, if anybody has."""
        goes = self._who_goes(address)
        if goes is not None:
            self.leave(goes)
        self._guests[guest] = address
        self._of_address[address] += 1
        return goes

    def leave(self, guest: Guest) -> bool:
        """Its place is free; False: it had none (any more)."""
        address = self._guests.pop(guest, None)
        if address is None:
            return False
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
        return True

    def _who_goes(self, address: str) -> Guest | None:
        if self._of_address[address] < self._of_one_address:
            if len(self._guests) < self._places:
                return None
            most = max(self._of_address.values())
            crowded = {one for one, count in self._of_address.items() if count == most}
        else:
            crowded = {address}
        return next(guest for guest, at in self._guests.items() if at in crowded)
