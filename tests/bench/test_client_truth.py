"""What the records say against what the scripted server really did, on one clock."""

import asyncio
import math
from collections.abc import Sequence

import pytest
import uvloop

from antiphon.bench import Client, LoadResult, Server, run_load
from antiphon.bench.incoming import Incoming
from antiphon.bench.record import RecordMaker
from antiphon.bench.server import LoadLimits
from antiphon.testing.scripted_calls import Behaviour, Script, ServedCall
from antiphon.testing.scripted_server import scripted_server
from antiphon.types import CallRecord
from antiphon.workload import Ask, Session, TimedSession, Turn

MODEL = "m"
TRIES = 6
"""A machine that is busy with other things delays a client as well; it is not so all the time."""


def ask(max_tokens: int = 8) -> Ask:
    return Ask(number=0, text="hi", max_tokens=max_tokens, temperature=0.0, seed=1)


def at_even_times(count: int, interval_s: float, one: Ask) -> list[TimedSession]:
    return [
        TimedSession(number * interval_s, Session(number=number, turns=(Turn(ask=one),)))
        for number in range(count)
    ]


def measured(
    script: Script, sessions: Sequence[TimedSession]
) -> tuple[LoadResult, list[CallRecord], list[ServedCall]]:
    """The records of a load, and beside each what the server did."""
    records: list[CallRecord] = []
    with scripted_server(script) as server:
        load = run_load(Server(url=server.url, model=MODEL), sessions, observe=records.append)
        result = uvloop.run(load)
    served = {call.request_id: call for call in server.calls}
    records.sort(key=lambda record: record.number)
    return result, records, [served[record.request_id] for record in records]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def ttfts(records: Sequence[CallRecord]) -> list[float]:
    return [record.token_at_s[0] - record.due_at_s for record in records]


def tpots(stamps: Sequence[Sequence[float]]) -> list[float]:
    return [(one[-1] - one[0]) / (len(one) - 1) for one in stamps]


def true_ttfts(
    result: LoadResult, records: Sequence[CallRecord], served: Sequence[ServedCall]
) -> list[float]:
    """From when each call was due until the server wrote its first piece."""
    pairs = zip(records, served, strict=True)
    return [call.piece_at[0] - result.started_at - record.due_at_s for record, call in pairs]


def test_percentiles_are_the_servers_own() -> None:
    """Within 1 % or 1 ms, of a server whose times are spread over half a second."""
    script = Script(
        models={
            MODEL: Behaviour(
                ttft_s=tuple(0.05 + 0.005 * (number * 37 % 100) for number in range(100)),
                gap_s=(0.01, 0.03, 0.02),
            )
        }
    )
    sessions = at_even_times(100, 0.01, ask(16))
    off: list[float] = []
    for _ in range(TRIES):
        result, records, served = measured(script, sessions)
        for record, call in zip(records, served, strict=True):
            stamps = [at + result.started_at for at in record.token_at_s]
            assert len(stamps) == len(call.piece_at) == record.output_tokens == 16
            # Causality: nothing is seen before it is written. The same clock counts for both.
            assert all(seen > wrote for seen, wrote in zip(stamps, call.piece_at, strict=True))
        own = (ttfts(records), tpots([record.token_at_s for record in records]))
        true = (true_ttfts(result, records, served), tpots([call.piece_at for call in served]))
        off = [
            abs(quantile(a, share) - quantile(b, share)) / max(0.1, quantile(b, share))
            for a, b in zip(own, true, strict=True)
            for share in (0.5, 0.9, 0.99)
        ]
        if max(off) < 0.01:  # of 0.1 s at least: 1 ms
            return
    pytest.fail(f"percentiles are off by {off}")


async def test_with_an_exact_clock_records_are_exact() -> None:
    """The server's times are told to the client's code: not a microsecond is lost or added."""
    times = [10.25 + 0.5 * number for number in range(8)]
    incoming = Incoming(1, LoadLimits(), asyncio.get_running_loop().create_future(), streamed=True)
    incoming.head(200, {"content-type": "text/event-stream"}, 10.0)
    for now in times:
        incoming.body(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', now)
    incoming.body(b"data: [DONE]\n\n", 15.0)
    records: list[CallRecord] = []
    maker = RecordMaker("m", records.append, None)
    maker.started_at = 8.0
    answer = incoming.answer(0, due_at=9.0, sent_at=9.5)
    await maker.ended(Session(number=3, turns=(Turn(ask=ask()),)), 0, 5, answer, ())
    [record] = records
    assert record.token_at_s == tuple(now - 8.0 for now in times)
    assert (record.due_at_s, record.sent_at_s, record.ended_at_s) == (1.0, 1.5, 7.0)
    assert (record.number, record.session, record.model) == (5, 3, "m")


# A stall of a second, in the middle of two seconds of load.

STALLED = Script(models={MODEL: Behaviour(ttft_s=0.01)}, stalls=((0.5, 1.5),))
LONG_S = 0.4


def test_a_stall_is_seen_by_all_that_was_due_meanwhile() -> None:
    """No coordinated omission: 50 calls a second are due, so 50 calls see the stalled second."""
    result, records, served = measured(STALLED, at_even_times(100, 0.02, ask(2)))
    begin_s = served[0].received_at - result.started_at + 0.5
    meanwhile = [one for one in records if begin_s <= one.due_at_s < begin_s + 1.0]
    assert len(meanwhile) >= 49
    for record in meanwhile:
        assert record.token_at_s[0] - record.due_at_s >= begin_s + 1.0 - record.due_at_s
    assert sum(ttft > LONG_S for ttft in ttfts(records)) >= 25


def test_a_user_who_waits_for_answers_misses_the_stall() -> None:
    """The negative control: a closed loop counts the stall once, whatever it lasted."""

    async def closed_loop(url: str) -> list[float]:
        async with Client(Server(url=url, model=MODEL)) as client:
            answers = [await client.send(ask(2)) for _ in range(100)]
        return [answer.token_at[0] - answer.sent_at for answer in answers]

    with scripted_server(STALLED) as server:
        waits = uvloop.run(closed_loop(server.url))
    assert max(waits) > LONG_S
    assert sum(wait > LONG_S for wait in waits) < 5


def test_a_client_that_falls_behind_says_so() -> None:
    """Whoever observes takes 30 ms a call: too much for a call each 10 ms."""
    seen: list[CallRecord] = []

    def observe(record: CallRecord) -> None:
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 0.03:
            pass
        seen.append(record)

    with scripted_server(Script(models={MODEL: Behaviour()})) as server:
        target = Server(url=server.url, model=MODEL)
        load = run_load(target, at_even_times(40, 0.01, ask()), observe=observe)
        result = uvloop.run(load)
    assert result.lateness_p99_s > 0.1
    assert any("went out" in note for note in result.notes)
    assert max(ttfts(seen)) > 0.1  # and it counts the delay, as a user would
