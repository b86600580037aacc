"""The scripted server keeps to its script, and tells the truth where it could not."""

import asyncio
from collections.abc import Sequence

import pytest

from antiphon.bench import Answer, Client, Server
from antiphon.testing.scripted_answer import Then, answer_steps
from antiphon.testing.scripted_calls import Behaviour, CallSays, Ending, Script, ServedCall
from antiphon.testing.scripted_server import scripted_server
from antiphon.workload import Ask

EVERYTHING = Behaviour(ttft_s=(0.5, 0.7), gap_s=(9.0, 0.1, 0.2), head_s=0.1, keep_alive_s=0.15)


def script_of(behaviour: Behaviour, number: int = 0) -> tuple[list[float], bytes]:
    """When what has content is written, and all bytes."""
    says = CallSays(model="m", max_tokens=3, stream=True, messages=[])
    at, times, data = 0.0, [], b""
    for step in answer_steps(behaviour, says, ServedCall("r", "m", 0.0), number):
        at += step.after_s
        data += step.data
        if step.is_content:
            times.append(at)
    return times, data


def test_heads_and_keep_alives_do_not_shift_the_pieces() -> None:
    times, data = script_of(EVERYTHING)
    assert times == pytest.approx([0.5, 0.6, 0.8])
    assert data.count(b": keep-alive") == 2
    assert script_of(EVERYTHING, number=1)[0] == pytest.approx([0.7, 0.8, 1.0])
    assert script_of(EVERYTHING, number=2)[0] == times


def test_several_tokens_a_piece() -> None:
    times, data = script_of(Behaviour(tokens_a_piece=2))
    assert len(times) == 2
    assert data.count(b" word") == 3


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_ends(ending: Ending) -> None:
    says = CallSays(model="m", max_tokens=4, stream=True, messages=[])
    behaviour = Behaviour(ending=ending)
    steps = list(answer_steps(behaviour, says, ServedCall("r", "m", 0.0), 0))
    assert all(step.then is Then.GO_ON for step in steps[:-1])


def calls_of(script: Script, count: int) -> tuple[Sequence[Answer], list[ServedCall]]:
    ask = Ask(number=0, text="hi", max_tokens=4, temperature=0.0, seed=1)

    async def send_all(url: str) -> Sequence[Answer]:
        async with Client(Server(url=url, model="m")) as client:
            return await asyncio.gather(*(client.send(ask) for _ in range(count)))

    with scripted_server(script) as server:
        answers = asyncio.run(send_all(server.url))
    return answers, server.calls


def test_nothing_is_written_before_its_time() -> None:
    behaviour = Behaviour(ttft_s=0.05, gap_s=0.01)
    answers, calls = calls_of(Script(models={"m": behaviour}), 5)
    assert sorted(a.request_id for a in answers) == sorted(c.request_id for c in calls)
    for call in calls:
        assert len(call.piece_at) == 4
        for piece, at in enumerate(call.piece_at):
            assert at >= call.received_at + 0.05 + 0.01 * piece


def test_who_has_no_slot_waits_his_turn() -> None:
    """Two slots, 0.08 s a call: the known capacity is 25 calls a second."""
    behaviour = Behaviour(ttft_s=0.05, gap_s=0.01)
    _, calls = calls_of(Script(models={"m": behaviour}, slots=2), 6)
    ends = [call.piece_at[-1] for call in calls]
    assert ends == sorted(ends)
    for before, after in zip(calls, calls[2:], strict=False):
        assert after.piece_at[0] >= before.received_at + 0.08 + 0.05
    assert calls[-1].piece_at[-1] >= calls[0].received_at + 3 * 0.08


def test_nothing_is_written_during_a_stall() -> None:
    behaviour = Behaviour(ttft_s=0.05, gap_s=0.04)
    script = Script(models={"m": behaviour}, stalls=((0.1, 0.4),))
    _, [call] = calls_of(script, 1)
    since = [at - call.received_at for at in call.piece_at]
    assert since[0] >= 0.05
    assert since[1] >= 0.09
    assert since[2] >= 0.4
    assert since[3] >= 0.44


def test_a_client_that_goes_away_is_noticed() -> None:
    def ask(max_tokens: int) -> Ask:
        return Ask(number=0, text="hi", max_tokens=max_tokens, temperature=0.0, seed=1)

    async def leave(url: str) -> None:
        async with Client(Server(url=url, model="m")) as client:
            call = asyncio.ensure_future(client.send(ask(2000)))
            await asyncio.sleep(0.1)
            call.cancel()
        async with Client(Server(url=url, model="last")) as client:
            await client.send(ask(10))

    models = {"m": Behaviour(gap_s=0.01), "last": Behaviour(gap_s=0.001, ttft_s=0.1)}
    with scripted_server(Script(models=models)) as server:
        asyncio.run(leave(server.url))
    gone, last = server.calls
    assert gone.is_cut_off
    assert len(gone.piece_at) < 2000
    assert not last.is_cut_off
