"""The book that a configuration asks for: alike in a gateway, in virtual time and in a replay."""

from antiphon.types import RouterConfig

from .held_requests import FairShares
from .request_book import RequestBook
from .routing import Routing


def book_of(config: RouterConfig, router: Routing) -> RequestBook:
    """An empty book over `router`."""
    shares = FairShares(quantum_tokens=config.quantum_tokens, ttft_s=config.ttft_s)
    return RequestBook(router, max_held=config.max_held, shares=shares)
