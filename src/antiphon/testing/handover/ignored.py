"""What decides nothing: stamps, counts and words for people, by the type that has them."""

from collections.abc import Collection, Mapping

from antiphon.core.handover import LeaseBook
from antiphon.core.handover.puller import _Pulling  # pyright: ignore[reportPrivateUsage]
from antiphon.core.requests.attempt import Attempt
from antiphon.core.requests.open_request import OpenRequest
from antiphon.core.requests.request_book import RequestBook

IGNORED: Mapping[type, Collection[str]] = {
    OpenRequest: frozenset(
        {
            "started_at",
            *("_first_token_at", "_last_token_at", "_arrived_at"),
            *("preemptions", "pulled_tokens", "recomputed_tokens", "exact", "numerics"),
            *("_trail", "_earlier", "_message", "_cached_tokens"),
        }
    ),
    Attempt: frozenset({"began_at", "record"}),
    RequestBook: frozenset({"_dropped"}),
    LeaseBook: frozenset({"expired_total"}),
    _Pulling: frozenset({"began_at"}),
}
