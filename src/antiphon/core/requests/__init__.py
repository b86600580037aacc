"""The life of a request as its gateway sees it."""

from .request_book import DropReason, RequestBook

__all__ = ["DropReason", "RequestBook"]
