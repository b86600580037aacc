"""Loads on a scripted server: what is sent when, and what the records say of it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from antiphon.bench import Client, LoadLimits, LoadResult, Server, run_load
from antiphon.errors import UsageError
from antiphon.testing.scripted_calls import Behaviour, Ending, Script
from antiphon.testing.scripted_server import ScriptedServer, scripted_server
from antiphon.types import CallError, CallRecord, TokenSource
from antiphon.workload import AnswerOf, Api, Ask, Message, Session, TimedSession, Turn

QUICK = "quick"
ERRORS = {
    Ending.NO_REASON: CallError.CUT_SHORT,
    Ending.HALF: CallError.CUT_SHORT,
    Ending.RESET: CallError.CUT_SHORT,
    Ending.ERROR_EVENT: CallError.SERVER_ERROR,
    Ending.BAD_JSON: CallError.GARBAGE,
    Ending.ENDLESS_LINE: CallError.GARBAGE,
    Ending.CLOSED: CallError.UNREACHABLE,
    Ending.NOT_HTTP: CallError.GARBAGE,
    Ending.WRONG_TYPE: CallError.GARBAGE,
    Ending.COMPRESSED: CallError.GARBAGE,
    Ending.STATUS_400: CallError.REFUSED,
    Ending.STATUS_401: CallError.REFUSED,
    Ending.STATUS_429: CallError.OVERLOADED,
    Ending.STATUS_500: CallError.SERVER_ERROR,
    Ending.STATUS_503: CallError.OVERLOADED,
}
"""What each way to fail is to be called."""
NEVER_END = (Ending.HANGS, Ending.SILENT)
HALVES = (Ending.HALF, Ending.RESET, Ending.ERROR_EVENT, Ending.BAD_JSON, Ending.ENDLESS_LINE)
PIECES = dict.fromkeys(HALVES, 2) | dict.fromkeys(
    (Ending.WHOLE, Ending.NO_DONE, Ending.NO_REASON), 4
)
"""Content that comes all the same."""


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    models = {ending.value: Behaviour(ending=ending) for ending in Ending}
    models |= {
        QUICK: Behaviour(gap_s=0.001),
        "uncounted": Behaviour(usage=False, tokens_a_piece=3),
        "brief": Behaviour(details=False),
        "reasons": Behaviour(usage=False, reasoning=True),
        "pauses": Behaviour(ttft_s=0.2, head_s=0.02, keep_alive_s=0.03),
    }
    with scripted_server(Script(models=models)) as server:
        yield server


def ask(
    model: str = QUICK, *, max_tokens: int = 4, stream: bool = True, api: Api = Api.CHAT
) -> Ask:
    return Ask(
        number=0,
        text="hi",
        max_tokens=max_tokens,
        temperature=0.0,
        seed=1,
        stream=stream,
        model=model,
        api=api,
    )


def single(number: int, at_s: float, one: Ask, slo_class: str = "") -> TimedSession:
    turns = (Turn(ask=one),)
    return TimedSession(at_s, Session(number=number, turns=turns, slo_class=slo_class))


async def loaded(
    url: str, sessions: Iterable[TimedSession], **limits: float
) -> tuple[LoadResult, list[CallRecord]]:
    """The records in order of their numbers."""
    records: list[CallRecord] = []
    result = await run_load(
        Server(url=url, model=QUICK),
        sessions,
        observe=records.append,
        limits=LoadLimits(**limits),  # pyright: ignore[reportArgumentType]
    )
    assert result.calls == len(records)
    assert result.failed == sum(record.error is not None for record in records)
    return result, sorted(records, key=lambda record: record.number)


async def test_each_way_to_fail_has_its_name(server: ScriptedServer) -> None:
    assert {*ERRORS, *NEVER_END, Ending.WHOLE, Ending.NO_DONE} == {*Ending}
    endings = [ending for ending in Ending if ending not in NEVER_END]
    sessions = [single(number, 0.0, ask(ending)) for number, ending in enumerate(endings)]
    _, records = await loaded(server.url, sessions)
    assert [record.error for record in records] == [ERRORS.get(ending) for ending in endings]
    for ending, record in zip(endings, records, strict=True):
        assert bool(record.message) == (record.error is not None)
        assert len(record.token_at_s) == PIECES.get(ending, 0)
        assert ending.status is None or record.status == ending.status


async def test_answers_without_an_end(server: ScriptedServer) -> None:
    sessions = [single(number, 0.0, ask(one)) for number, one in enumerate(NEVER_END)]
    _, records = await loaded(server.url, sessions, timeout_s=1.0)
    assert [record.error for record in records] == [CallError.TIMEOUT] * len(NEVER_END)
    assert all(record.ended_at_s >= record.sent_at_s + 1.0 for record in records)


async def test_nobody_there() -> None:
    _, [record] = await loaded("http://127.0.0.1:1", [single(0, 0.0, ask())])
    assert record.error is CallError.UNREACHABLE
    assert record.status == 0
    _, [record] = await loaded("http://no-such-host.invalid", [single(0, 0.0, ask())])
    assert record.error is CallError.UNREACHABLE


async def test_who_counted_the_tokens(server: ScriptedServer) -> None:
    kinds = [
        ask(QUICK),
        ask("uncounted"),
        ask(QUICK, api=Api.COMPLETION),
        ask(QUICK, stream=False),
        ask("uncounted", stream=False),
        ask("reasons"),
    ]
    sessions = [single(number, 0.0, one, "gold") for number, one in enumerate(kinds)]
    result, records = await loaded(server.url, sessions)
    counts = [(len(r.token_at_s), r.output_tokens, r.counted_by) for r in records]
    assert counts == [
        (4, 4, TokenSource.USAGE),
        (2, 2, TokenSource.PIECES),
        (4, 4, TokenSource.USAGE),
        (1, 4, TokenSource.USAGE),
        (1, 1, TokenSource.PIECES),
        (4, 4, TokenSource.PIECES),
    ]
    assert (records[0].prompt_tokens, records[0].cached_tokens) == (7, 3)
    assert (records[1].prompt_tokens, records[1].cached_tokens) == (None, None)
    _, [brief] = await loaded(server.url, [single(0, 0.0, ask("brief"))])
    assert (brief.prompt_tokens, brief.cached_tokens) == (7, None)
    assert {record.slo_class for record in records} == {"gold"}
    assert any("3 answers" in note for note in result.notes)

    counted: list[CallRecord] = []
    await run_load(
        Server(url=server.url, model=QUICK),
        sessions,
        observe=counted.append,
        count_tokens=lambda text: len(text.split()),
    )
    counted.sort(key=lambda record: record.number)
    assert [r.output_tokens for r in counted] == [4] * 6
    assert [r.counted_by for r in counted].count(TokenSource.TOKENIZER) == 3
    assert counted[1].prompt_tokens == 1


async def test_head_and_keep_alives_are_no_tokens(server: ScriptedServer) -> None:
    _, [record] = await loaded(server.url, [single(0, 0.0, ask("pauses"))])
    assert len(record.token_at_s) == 4
    assert record.token_at_s[0] >= 0.2


async def test_a_session_is_a_graph(server: ScriptedServer) -> None:
    """plan ─► two searches ─► write, with gaps; answers are quoted where they are wanted."""
    said = Message("assistant", ("Plan: ", AnswerOf(0)))
    turns = (
        Turn(ask=ask(), pause_s=0.02),
        Turn(ask=ask(), after=(0,)),
        Turn(ask=ask(max_tokens=8), after=(0,), pause_s=0.03),
        Turn(ask=ask(), history=(said, Message("tool", (AnswerOf(2),))), after=(1,), pause_s=0.01),
    )
    sessions = [TimedSession(0.1, Session(number=n, turns=turns)) for n in range(3)]
    _, records = await loaded(server.url, sessions)
    assert [(r.session, r.turn) for r in records] == [(n, t) for n in range(3) for t in range(4)]
    for plan, first, second, write in zip(*[iter(records)] * 4, strict=True):
        assert plan.due_at_s == pytest.approx(0.12)
        assert first.due_at_s == plan.ended_at_s
        assert second.due_at_s == pytest.approx(plan.ended_at_s + 0.03)
        assert write.due_at_s == pytest.approx(max(first.ended_at_s, second.ended_at_s) + 0.01)
        assert all(one.sent_at_s >= one.due_at_s for one in (plan, first, second, write))


async def test_what_is_quoted_was_said(
    monkeypatch: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    histories: list[tuple[Message, ...]] = []
    send = Client.send

    async def spy(self: Client, one: Ask, due_at: float | None = None, history=()):
        histories.append(tuple(history))
        return await send(self, one, due_at, history)

    monkeypatch.setattr(Client, "send", spy)
    said = Message("assistant", ("I say:", AnswerOf(0), "!"))
    turns = (Turn(ask=ask(max_tokens=2)), Turn(ask=ask(), history=(said,), after=(0,)))
    await loaded(server.url, [TimedSession(0.0, Session(number=0, turns=turns))])
    assert histories == [(), (Message("assistant", ("I say:", " word word", "!")),)]


async def test_who_follows_a_failure_is_abandoned(server: ScriptedServer) -> None:
    turns = (
        Turn(ask=ask(Ending.STATUS_500)),
        Turn(ask=ask()),
        Turn(ask=ask(), after=(0, 1), pause_s=60.0),
        Turn(ask=ask(), after=(2,)),
        Turn(ask=ask(), after=(1,)),
    )
    _, records = await loaded(server.url, [TimedSession(0.0, Session(number=0, turns=turns))])
    abandoned = CallError.ABANDONED
    assert [r.error for r in records] == [
        CallError.SERVER_ERROR,
        None,
        abandoned,
        abandoned,
        None,
    ]
    assert records[2].due_at_s == max(records[0].ended_at_s, records[1].ended_at_s)


async def test_the_last_wait_ends_what_is_open(server: ScriptedServer) -> None:
    """An open call is late, who follows it is abandoned, and what is not due yet has no record."""
    late = (Turn(ask=ask(Ending.HANGS)), Turn(ask=ask(), after=(0,)))
    pausing = (Turn(ask=ask()), Turn(ask=ask(), after=(0,), pause_s=600.0))
    sessions = [
        TimedSession(0.0, Session(number=0, turns=late)),
        TimedSession(0.0, Session(number=1, turns=pausing)),
    ]
    result, records = await loaded(server.url, sessions, drain_s=2.0)
    assert [(r.session, r.turn, r.error) for r in records] == [
        (0, 0, CallError.TIMEOUT),
        (0, 1, CallError.ABANDONED),
        (1, 0, None),
    ]
    assert len(records[0].token_at_s) == 2
    assert result.unfinished == 1


async def test_a_full_client_says_so_and_sends_nothing_late(server: ScriptedServer) -> None:
    sessions = [single(number, 0.0, ask(Ending.SILENT)) for number in range(5)]
    result, records = await loaded(server.url, sessions, max_open=3, timeout_s=0.5)
    assert [r.error for r in records] == [CallError.TIMEOUT] * 3 + [CallError.UNSENT] * 2
    assert "max_open" in records[4].message
    assert any("Not sent for want of room at the client: 2 calls." in note for note in result.notes)


async def test_stopped_in_the_middle(server: ScriptedServer) -> None:
    """What has ended is kept; nothing is left open."""
    records: list[CallRecord] = []
    stop = asyncio.Event()

    def observe(record: CallRecord) -> None:
        records.append(record)
        stop.set()

    def sessions() -> Iterator[TimedSession]:
        yield single(0, 0.0, ask(Ending.SILENT))
        yield single(1, 0.0, ask())
        yield single(2, 3600.0, ask())

    result = await run_load(
        Server(url=server.url), sessions(), observe=observe, limits=LoadLimits(), stop=stop
    )
    assert result.is_stopped
    assert [record.number for record in records] == [1]
    assert result.unfinished == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_in_the_middle(server: ScriptedServer) -> None:
    records: list[CallRecord] = []
    came = asyncio.Event()

    def observe(record: CallRecord) -> None:
        records.append(record)
        came.set()

    sessions = [single(0, 0.0, ask(Ending.SILENT)), single(1, 0.0, ask())]
    load = asyncio.ensure_future(run_load(Server(url=server.url), sessions, observe=observe))
    await came.wait()
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert [record.number for record in records] == [1]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_observe_raises_ends_the_load(server: ScriptedServer) -> None:
    class Full(Exception):
        pass

    def observe(_: CallRecord) -> None:
        raise Full

    with pytest.raises(Full):
        await run_load(
            Server(url=server.url),
            [single(0, 0.0, ask()), single(1, 3600.0, ask())],
            observe=observe,
        )
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_sessions_that_come_one_by_one(server: ScriptedServer) -> None:
    async def sessions() -> AsyncIterator[TimedSession]:
        for number in range(3):
            yield single(number, 0.01 * number, ask())

    records: list[CallRecord] = []
    await run_load(Server(url=server.url), sessions(), observe=records.append)
    assert sorted(record.due_at_s for record in records) == pytest.approx([0.0, 0.01, 0.02])


async def test_times_that_go_back(server: ScriptedServer) -> None:
    with pytest.raises(UsageError, match="comes after"):
        await loaded(server.url, [single(0, 0.2, ask()), single(1, 0.1, ask())])
    with pytest.raises(UsageError, match="nan"):
        await loaded(server.url, [single(0, float("nan"), ask())])


async def test_no_sessions_at_all(server: ScriptedServer) -> None:
    result, records = await loaded(server.url, [])
    assert (result.calls, records, result.unfinished) == (0, [], 0)
