"""An answer while it comes, with the time as an argument: what is content, and how it ended."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bench import Answer
from antiphon.bench.incoming import Incoming
from antiphon.bench.server import LoadLimits
from antiphon.types import CallError

SSE = {"content-type": "text/event-stream; charset=utf-8"}


class Heard:
    """An `Incoming` that needs no loop to be waited for."""

    def __init__(self, *, choices: int = 1, streamed: bool = True, **limits: int) -> None:
        self.loop = asyncio.new_event_loop()
        done = self.loop.create_future()
        self.incoming = Incoming(choices, LoadLimits(**limits), done, streamed=streamed)

    def says(self, *chunks: object, now: float = 0.0) -> "Heard":
        for chunk in chunks:
            data = chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()
            self.incoming.body(b"data: " + data + b"\n\n", now)
        return self

    def answer(self) -> Answer:
        self.loop.close()
        assert self.incoming.done.done()
        return self.incoming.answer(0, due_at=0.0, sent_at=0.0)

    def outcome(self) -> tuple[CallError | None, str]:
        answer = self.answer()
        return answer.failure, answer.error


def heard(**options: int) -> Heard:
    one = Heard(**options)
    one.incoming.head(200, SSE, 0.0)
    return one


def piece(index: int = 0, reason: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def test_only_content_gets_a_stamp() -> None:
    one = heard()
    one.says(piece(role="assistant", content=""), now=1.0)
    one.incoming.body(b": keep-alive\n\n", 2.0)
    one.says(piece(reasoning_content="hm"), now=3.0)
    one.says(piece(reasoning="hm"), now=4.0)
    one.says(piece(content="yes"), now=5.0)
    one.says(piece(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]), now=6.0)
    one.says(piece(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), now=7.0)
    one.says({"choices": [{"index": 0, "text": " more"}]}, now=8.0)
    one.says(piece(reason="stop"), {"choices": [], "usage": {"completion_tokens": 6}}, now=9.0)
    one.says(b"", b"[DONE]", now=10.0)
    assert one.outcome() == (None, "")
    assert one.answer().token_at == (3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    assert one.incoming.ended_at == 10.0
    [choice] = one.answer().choices
    assert (choice.text, choice.aside) == ("yes more", "hmhmf{}")


def test_done_may_be_left_out_but_not_with_the_reason() -> None:
    one = heard().says(piece(content="a"), now=1.0).says(piece(reason="length"), now=2.0)
    one.incoming.end(9.0)
    assert one.outcome() == (None, "")
    assert one.incoming.ended_at == 2.0

    one = heard().says(piece(content="a"), now=1.0)
    one.incoming.end(9.0)
    assert one.outcome()[0] is CallError.CUT_SHORT
    assert one.answer().token_at == (1.0,)


def test_each_choice_has_to_end() -> None:
    one = heard(choices=2).says(piece(0, "stop", content="a"), piece(1, content="b"))
    one.incoming.end(1.0)
    assert one.outcome()[0] is CallError.CUT_SHORT


def test_a_server_that_never_closes_is_not_waited_for() -> None:
    """All was there; what came late was only the end of HTTP's message."""
    one = heard().says(piece(0, "stop", content="a"), now=1.0)
    one.incoming.give_up(CallError.TIMEOUT, "too late", 600.0)
    assert one.outcome() == (None, "")
    assert one.incoming.ended_at == 1.0


@pytest.mark.parametrize("reason", ["error", "abort", "deadline"])
def test_a_server_that_gives_up_has_failed(reason: str) -> None:
    one = heard().says(piece(content="a"), piece(reason=reason), b"[DONE]")
    assert one.outcome()[0] is CallError.SERVER_ERROR


@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        ({"error": {"message": "lost"}}, CallError.SERVER_ERROR, "lost"),
        ({"error": "lost"}, CallError.SERVER_ERROR, "lost"),
        ({"error": {}}, CallError.SERVER_ERROR, "without a message"),
        (b"[1, 2", CallError.GARBAGE, "[1, 2"),
        (b"[" * 100_000, CallError.GARBAGE, "[["),
        (b'{"choices": 7}', CallError.GARBAGE, "choices"),
        (b'{"choices": [{"delta": {"content": "\xff"}}]}', CallError.GARBAGE, "choices"),
        (piece(1, content="a"), CallError.GARBAGE, "index 1"),
        (piece(-1, content="a"), CallError.GARBAGE, "index -1"),
    ],
)
def test_a_chunk_that_is_none_ends_the_answer(said: object, kind: CallError, part: str) -> None:
    one = heard().says(piece(content="a"), said, piece(content="b"), b"[DONE]")
    failure, message = one.outcome()
    assert failure is kind
    assert part in message
    assert one.answer().choices[0].text == "a"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, CallError.OVERLOADED),
        (503, CallError.OVERLOADED),
        (400, CallError.REFUSED),
        (404, CallError.REFUSED),
        (500, CallError.SERVER_ERROR),
        (502, CallError.SERVER_ERROR),
        (302, CallError.GARBAGE),
        (204, CallError.GARBAGE),
    ],
)
def test_statuses(status: int, kind: CallError) -> None:
    one = Heard()
    one.incoming.head(status, {}, 0.0)
    one.incoming.body(b'{"error": {"message": "not now"}}', 1.0)
    one.incoming.end(2.0)
    assert one.outcome() == (kind, f"HTTP {status}: not now")


def test_what_is_long_is_cut_off() -> None:
    one = heard(max_answer_bytes=1000)
    for _ in range(100):
        one.says(piece(content="x" * 50))
    failure, message = one.outcome()
    assert failure is CallError.GARBAGE
    assert "1000 bytes" in message

    one = Heard()
    one.incoming.head(500, {}, 0.0)
    for _ in range(100):
        one.incoming.body(b"x" * 10_000, 1.0)
    one.incoming.end(2.0)
    assert len(one.outcome()[1]) <= 500


def test_other_kinds_of_pages() -> None:
    one = Heard()
    one.incoming.head(200, SSE | {"content-encoding": "gzip"}, 0.0)
    assert one.outcome()[0] is CallError.GARBAGE

    one = Heard()
    one.incoming.head(200, {"content-type": "text/html"}, 0.0)
    one.incoming.body(b"<html>", 1.0)
    one.incoming.end(2.0)
    assert one.outcome()[0] is CallError.GARBAGE

    one = Heard()
    one.incoming.head(200, {"content-type": "application/json"}, 0.0)
    one.incoming.body(b'{"error": {"message": "no"}}', 1.0)
    one.incoming.end(2.0)
    assert one.outcome() == (CallError.SERVER_ERROR, "no")

    one = Heard(streamed=False)
    one.incoming.head(200, {"content-type": "application/json"}, 0.0)
    one.incoming.body(b'{"choices": []}', 1.0)
    one.incoming.end(2.0)
    assert one.outcome()[0] is CallError.GARBAGE


def test_a_connection_that_is_lost() -> None:
    one = Heard()
    one.incoming.lost("reset", 1.0)
    assert one.outcome() == (CallError.UNREACHABLE, "reset")
    one = heard().says(piece(content="a"))
    one.incoming.lost("reset", 1.0)
    assert one.outcome() == (CallError.CUT_SHORT, "reset")


STEPS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b"data: [DONE]\n\n",
            b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n',
            b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n',
            b'data: {"usage": null, "choices": null, "error": null}\n\n',
            b"data: {}\n\ndata: [DONE",
            b"data: 1e999999\n\n",
        ]
    ),
)


@settings(deadline=None)
@given(
    status=st.sampled_from([200, 200, 200, 0, 404, 500]),
    streamed=st.booleans(),
    steps=st.lists(STEPS, max_size=12),
    is_lost=st.booleans(),
)
def test_whatever_comes_the_answer_ends_once(
    status: int, streamed: bool, steps: list[bytes], is_lost: bool
) -> None:
    one = Heard(streamed=streamed)
    if status:
        one.incoming.head(status, SSE, 0.0)
        for number, step in enumerate(steps):
            one.incoming.body(step, float(number))
    ended_at = one.incoming.ended_at
    if is_lost or not status:
        one.incoming.lost("reset", 99.0)
    else:
        one.incoming.end(99.0)
    failure, message = one.outcome()
    assert bool(message) == (failure is not None)
    assert ended_at is None or one.incoming.ended_at == ended_at
    stamps = one.answer().token_at
    assert list(stamps) == sorted(stamps)
    if failure is None and streamed:
        assert b"[DONE]" in b"".join(steps) or b"finish_reason" in b"".join(steps)
