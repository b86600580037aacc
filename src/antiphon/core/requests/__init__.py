"""The life of a request as its gateway sees it."""

from .book_of import book_of
from .facts import DropReason
from .held_requests import FairShares
from .request_book import BOOK, BOOK_METHODS, RequestBook
from .routing import Routing, SoleWorker

__all__ = [
    "BOOK",
    "BOOK_METHODS",
    "DropReason",
    "FairShares",
    "RequestBook",
    "Routing",
    "SoleWorker",
    "book_of",
]
