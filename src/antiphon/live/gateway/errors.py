"""Every failure as the client sees it: an OpenAI error object with the right HTTP status.

| what happened | status | type |
|---|---|---|
| wrong request | 400, 404, 405, 408, 413, 415, 421 | invalid_request_error |
| no or wrong key | 401 | invalid_request_error |
| full queue, targets out of reach, too many calls | 429 + Retry-After | rate_limit_error |
| our fault | 500 | server_error |
| draining, loading, no worker | 503 + Retry-After | service_unavailable_error |
| deadline passed | 504 | timeout_error |
"""

import math
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from antiphon.errors import ClientError
from antiphon.types import Outcome, Rejected, RejectReason, RequestRecord

CLIENT_GONE = 499
RETRY_AFTER_S = 1
"""Said with 429 and 503 when nobody knows better."""

_TYPES = {
    429: "rate_limit_error",
    499: "client_closed_request",
    503: "service_unavailable_error",
    504: "timeout_error",
}


@dataclass(frozen=True, slots=True)
class HttpError:
    """What goes back in place of an answer."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None

    def body(self) -> bytes:
        """The OpenAI error object in JSON."""
        kind = _TYPES.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        error = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }
        return msgspec.json.encode({"error": error})

    def response(self) -> Response:
        """The error as a whole response."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(self.body(), self.status, headers, "application/json")


INTERNAL = HttpError(500, "The server failed to process this request", code="internal_error")
"""Says nothing of the inside: the log has the details, under the request's id."""


def from_client_error(error: ClientError) -> HttpError:
    """The caller's mistake."""
    return HttpError(error.status, error.message, error.field, error.code)


def unavailable(message: str) -> HttpError:
    """Nothing is wrong with the request; it can be sent again, here later or elsewhere now."""
    return HttpError(503, message, None, "unavailable", RETRY_AFTER_S)


def too_many_streams(limit: int) -> HttpError:
    """One API key has all the calls open that it may have."""
    message = f"{limit} calls of this API key are being answered: wait until one of them is over"
    return HttpError(429, message, None, "too_many_streams", RETRY_AFTER_S)


def from_rejected(rejected: Rejected) -> HttpError:
    """A refusal by the book or the worker."""
    wait = max(1, math.ceil(min(rejected.retry_after_s or RETRY_AFTER_S, 3600.0)))
    message, param = rejected.message, rejected.field
    match rejected.reason:
        case RejectReason.TOO_LONG:
            return HttpError(400, message, param, "context_length_exceeded")
        case RejectReason.INVALID:
            return HttpError(400, message, param, "invalid_value")
        case RejectReason.QUEUE_FULL:
            return HttpError(429, message, param, "queue_full", wait)
        case RejectReason.TTFT_UNREACHABLE | RejectReason.TPOT_UNREACHABLE:
            return HttpError(429, message, param, rejected.reason.value, wait)
        case RejectReason.DRAINING:
            return HttpError(503, message, param, "draining", wait)
        case RejectReason.NO_WORKER:
            return HttpError(503, message, param, "no_worker", wait)
        case RejectReason.DEADLINE:
            return HttpError(504, message, param, "deadline_exceeded")
        case RejectReason.DUPLICATE:
            return HttpError(500, INTERNAL.message, None, "internal_error")


def from_record(record: RequestRecord) -> HttpError | None:
    """Why a request that was taken did not finish; None: it did."""
    match record.outcome:
        case Outcome.FINISHED:
            return None
        case Outcome.DEADLINE:
            return HttpError(504, record.message or "The request's time ran out", None, "timeout")
        case Outcome.CANCELLED if record.message:
            return unavailable(record.message)
        case Outcome.CANCELLED:
            return HttpError(CLIENT_GONE, "The request was cancelled", None, "cancelled")
        case Outcome.REJECTED | Outcome.FAILED:
            return HttpError(500, record.message or INTERNAL.message, None, "internal_error")
