"""Prefill on one worker and decode on another, in one process: what goes well and what does not."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from exchange_kit import ID, KV, ExchangePair, Side
from live_kit import Clock, Engine, request, turns, worker

from antiphon.core.handover import LEASES
from antiphon.core.recorder import Entry, replay
from antiphon.core.scheduler import SCHEDULER
from antiphon.errors import PeerError
from antiphon.types import (
    Aborted,
    Admitted,
    AttemptFailed,
    FinishReason,
    Incarnation,
    LeaseRefusal,
    LeaseRefused,
    Offer,
    Rejected,
    RejectReason,
    Role,
    SequenceEnded,
    Stage,
    TokenGenerated,
    Unknown,
)

PROMPT = tuple(range(1, 23))
"""Two blocks and a part of a third: six pages."""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("n", [1, 3])
async def test_a_prompt_computed_here_goes_on_there(n: int) -> None:
    asked = request("r", PROMPT, max_tokens=8, n=n)
    async with ExchangePair() as pair:
        offer = await pair.adopted(asked)
        pulled = await pair.finish(asked)
        assert (pulled.missing_tokens, pulled.problem) == (0, "")
        assert pulled.pulled_tokens == len(PROMPT) + (n - 1) * (len(PROMPT) % 8)
        assert (offer.owner, offer.incarnation) == ("p", "p-1") and offer.kv == KV
        await pair.rest()
        assert pair.decode.worker.view().busy_s_total >= 0


async def test_tokens_do_not_wait_for_pages_to_be_sealed() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.prefill.pages.gate.clear()
        await pair.prefill.worker.add(asked, Stage.PREFILL)
        await pair.prefill.until(TokenGenerated)
        await pair.prefill.worker.add(request("whole", max_tokens=3))
        await pair.prefill.until(SequenceEnded)
        assert not any(isinstance(one, Offer) for one in pair.prefill.events)
        pair.prefill.pages.gate.set()
        assert (await pair.prefill.until(Offer)).request == "r"


async def test_an_abort_while_pages_are_sealed_ends_the_sequences_and_keeps_the_pages() -> None:
    """They return when nobody reads them any more, and no offer comes."""
    asked = request("r", PROMPT, max_tokens=8, n=2)
    async with ExchangePair() as pair:
        link = pair.prefill.worker
        pair.prefill.pages.gate.clear()
        await link.add(asked, Stage.PREFILL)
        await pair.prefill.until(TokenGenerated)
        await turns()
        assert await link.abort(ID, 1, 1) == Aborted(request=ID, sequences=(1,))
        assert await link.abort(ID, 1, 1) == Unknown(request=ID)
        assert await link.abort(ID, 2) == Unknown(request=ID)
        assert await link.abort(ID, 1) == Aborted(request=ID, sequences=(0,))
        assert (link.view().leases, link.view().held_pages) == (0, 6)
        pair.prefill.pages.gate.set()
        await pair.rest()
        assert not any(isinstance(one, Offer) for one in pair.prefill.events)


async def test_a_sequence_that_ends_while_pages_are_sealed_is_not_offered() -> None:
    asked = request("r", PROMPT, max_tokens=8, n=2)
    async with ExchangePair() as pair:
        pair.prefill.pages.gate.clear()
        await pair.prefill.worker.add(asked, Stage.PREFILL)
        await pair.prefill.until(TokenGenerated)
        await turns()
        await pair.prefill.worker.abort(ID, 1, 0)
        pair.prefill.pages.gate.set()
        offer = await pair.prefill.until(Offer)
        assert [one.sequence for one in offer.sequences] == [1]


async def test_a_later_attempt_ends_the_earlier_one_and_its_pull() -> None:
    """Its abort was lost, or comes later and then finds nothing."""
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.decode.copy_gate.clear()
        await pair.adopted(asked)
        link = pair.decode.worker
        await until(lambda: link.view().pulling == 1 and link.view().held_pages > 0)
        again = replace(asked, attempt=2)
        assert isinstance(await link.add(again), Admitted)
        assert await link.abort(ID, 1) == Unknown(request=ID)
        answer = await link.add(asked)
        assert isinstance(answer, Rejected) and answer.reason is RejectReason.DUPLICATE
        pair.decode.copy_gate.set()
        while len([e for e in pair.decode.events if isinstance(e, SequenceEnded)]) < 2:
            pair.decode.events += await asyncio.wait_for(anext(pair.decode.reader), 30)
        ends = [e for e in pair.decode.events if isinstance(e, SequenceEnded)]
        assert [(end.attempt, end.reason) for end in ends] == [
            (1, FinishReason.ABORTED),
            (2, FinishReason.LENGTH),
        ]
        tokens = [e for e in pair.decode.events if isinstance(e, TokenGenerated)]
        assert [(token.attempt, token.index) for token in tokens] == [(2, k) for k in range(8)]
        await pair.prefill.worker.abort(ID, 1)
        await pair.rest()


async def test_an_abort_after_the_offer_ends_the_lease() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        offer = await pair.offered(asked)
        link = pair.prefill.worker
        assert await link.abort(ID, 2) == Unknown(request=ID)
        assert await link.abort(ID, 1) == Aborted(request=ID, sequences=())
        gone = LeaseRefused(offer.lease, LeaseRefusal.GONE)
        assert await link.grant(offer.lease, Incarnation("d-1"), 1) == gone
        await link.renew([offer.lease])
        await link.release(offer.lease)
        await pair.rest()


async def test_pages_that_cannot_be_sealed_end_the_attempt() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.prefill.pages.broken = True
        await pair.prefill.worker.add(asked, Stage.PREFILL)
        failed = await pair.prefill.until(AttemptFailed)
        assert failed == AttemptFailed(request=ID, attempt=1, message="its pages can't be sealed")
        await pair.rest()


async def test_a_dead_owner_costs_a_recomputation_and_nothing_else() -> None:
    """SGLang 13657: a dead prefill worker made a healthy decode worker look dead."""
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        del pair.owners[pair.prefill.worker.info.incarnation]
        await pair.adopted(asked)
        pulled = await pair.finish(asked)
        assert pulled.missing_tokens == len(PROMPT) and "gone" in pulled.problem
        assert pair.decode.worker.healthy


async def test_bad_pages_are_computed_and_the_log_says_why(caplog) -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.decode.bad = {3}
        await pair.adopted(asked)
        pulled = await pair.finish(asked)
        assert (pulled.pulled_tokens, pulled.missing_tokens) == (12, 10)
        await pair.rest()
    (line,) = caplog.messages
    assert line == "the KV of 10 tokens of request r can't be pulled and is computed here: bad"


async def test_memory_that_cannot_be_mapped_is_a_problem_of_its_owner_alone() -> None:
    asked = request("r", PROMPT, max_tokens=8)

    def fails(_pull: object) -> tuple[bool, ...]:
        raise PeerError("not a region")

    async with ExchangePair() as pair:
        pair.decode.path.copy_pages = fails
        await pair.adopted(asked)
        pulled = await pair.finish(asked)
        assert (pulled.pulled_tokens, pulled.problem) == (0, "not a region")


async def test_an_abort_while_pages_are_copied_frees_them_when_the_copy_is_over() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.decode.copy_gate.clear()
        offer = await pair.adopted(asked)
        link = pair.decode.worker
        await until(lambda: link.view().held_pages > 0)
        assert await link.abort(ID, 1) == Aborted(request=ID, sequences=(0,))
        assert link.view().held_pages == 6
        pair.decode.copy_gate.set()
        await until(lambda: link.view().held_pages == 0)
        assert pair.prefill.worker.view().leases == 1, "it is the gateway's to decide about"
        await pair.prefill.worker.release(offer.lease)
        await pair.rest()


async def test_an_offer_that_nobody_wants_runs_out_by_itself() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair(ttl_s=0.05) as pair:
        await pair.offered(asked)
        await pair.rest()
        assert pair.prefill.worker.view().cached_pages > 0


async def test_a_worker_whose_gateway_is_gone_keeps_nothing_and_is_somebody_else() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        pair.decode.copy_gate.clear()
        offer = await pair.adopted(asked)
        await until(lambda: pair.decode.worker.view().held_pages > 0)
        await pair.prefill.worker.add(request("other", (7,) * 40, max_tokens=90))
        for side in (pair.prefill, pair.decode):
            await side.worker.new_life(Incarnation(side.worker.info.id + "-2"))
        assert pair.prefill.worker.info.incarnation == "p-2"
        gone = LeaseRefused(offer.lease, LeaseRefusal.GONE)
        assert pair.prefill.worker.leases.take(offer.lease, Incarnation("d-1"), 1) == gone
        pair.decode.copy_gate.set()
        await pair.rest()


async def test_a_drain_waits_for_offers_to_be_taken() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        offer = await pair.offered(asked)
        draining = asyncio.create_task(pair.prefill.worker.drain())
        await turns()
        assert not draining.done()
        await pair.prefill.worker.release(offer.lease)
        await asyncio.wait_for(draining, 30)
        answer = await pair.prefill.worker.add(asked)
        assert isinstance(answer, Rejected) and answer.reason is RejectReason.DRAINING


async def test_a_worker_alone_refuses_to_exchange() -> None:
    async with worker(Engine()) as link, ExchangePair() as pair:
        answer = await link.add(request("a"), Stage.PREFILL)
        assert isinstance(answer, Rejected) and answer.reason is RejectReason.INVALID
        assert "exchanges no KV" in answer.message
        offer = await pair.offered(request("r", PROMPT))
        answer = await link.adopt(request("r", PROMPT), offer)
        assert isinstance(answer, Rejected) and answer.reason is RejectReason.INVALID
        assert isinstance(await link.add(request("a")), Admitted)


async def test_pages_of_another_layout_are_not_read() -> None:
    asked = request("r", PROMPT, max_tokens=8)
    async with ExchangePair() as pair:
        offer = await pair.offered(asked)
        other = replace(offer, kv=replace(KV, layout="other"))
        await pair.prefill.worker.grant(offer.lease, pair.decode.worker.info.incarnation, 1)
        await pair.decode.worker.adopt(pair.continued(asked), other)
        pulled = await pair.finish(asked)
        assert (pulled.pulled_tokens, pulled.missing_tokens) == (0, len(PROMPT))
        await pair.rest()


async def test_a_role_changes_while_the_worker_runs() -> None:
    async with worker(Engine()) as link:
        await link.set_role(Role.DECODE)
        assert link.info.role is Role.DECODE


async def test_the_decisions_of_both_workers_replay() -> None:
    logs: list[list[Entry]] = [[], []]
    asked = request("r", PROMPT, max_tokens=8, n=2)
    async with ExchangePair(
        logs=tuple({"log_decision": entries.append} for entries in logs)
    ) as pair:
        pair.decode.bad = {1}
        await pair.adopted(asked)
        await pair.finish(asked)
        await pair.rest()
        fresh = [Side(pair, side.worker.info.id, clock=Clock()) for side in (pair.prefill,) * 2]
        for entries, side in zip(logs, fresh, strict=True):
            machine = side.worker._scheduler
            machines = {SCHEDULER: machine, LEASES: machine.leases}
            assert entries and list(replay(entries, machines)) == []
            await side.worker.close() if side.worker._task else None
        methods = {entry.method for entries in logs for entry in entries}
        assert {"adopt", "pulled", "grant", "take", "acknowledge", "hold", "let_go"} <= methods
