"""The life of a request as its gateway sees it."""

from .request_book import BOOK, BOOK_METHODS, DropReason, RequestBook

__all__ = ["BOOK", "BOOK_METHODS", "DropReason", "RequestBook"]
