"""How computed KV changes hands: promises on the owner's side, pulls on the taker's."""

from .lease_book import LEASES, LEASES_METHODS, LeaseBook

__all__ = ["LEASES", "LEASES_METHODS", "LeaseBook"]
