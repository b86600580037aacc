"""Records of requests, as tests have them."""

from typing import Any

from antiphon.types import FinishReason, Outcome, RequestId, RequestRecord


def request_record(name: str = "r", **other: Any) -> RequestRecord:
    """One that came to its end after a second, whose stages nobody has stamped; but for `other`."""
    return RequestRecord(
        **{
            "request": RequestId(name),
            "outcome": Outcome.FINISHED,
            "finish_reasons": (FinishReason.STOP,),
            "prompt_tokens": 8,
            "cached_tokens": 0,
            "output_tokens": 4,
            "attempts": 1,
            "preemptions": 0,
            "arrived_at": 0.0,
            "started_at": None,
            "first_token_at": None,
            "last_token_at": None,
            "ended_at": 1.0,
            **other,
        }
    )
