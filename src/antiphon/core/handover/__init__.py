"""How computed KV changes hands: promises on the owner's side, pulls on the taker's."""

from .lease_book import LEASES, LEASES_METHODS, LeaseBook
from .puller import (
    Acknowledge,
    Copy,
    Owner,
    PullCommand,
    PullEnded,
    Puller,
    RenewTaken,
    StopCopy,
    Take,
)

__all__ = [
    "LEASES",
    "LEASES_METHODS",
    "Acknowledge",
    "Copy",
    "LeaseBook",
    "Owner",
    "PullCommand",
    "PullEnded",
    "Puller",
    "RenewTaken",
    "StopCopy",
    "Take",
]
