"""The life of a request as its gateway sees it."""

from .facts import DropReason
from .request_book import BOOK, BOOK_METHODS, RequestBook
from .routing import Routing, SoleWorker

__all__ = ["BOOK", "BOOK_METHODS", "DropReason", "RequestBook", "Routing", "SoleWorker"]
