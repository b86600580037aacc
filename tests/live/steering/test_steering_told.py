"""What a live planner advises, tells and sees; and that the plant of these tests notices."""

import pytest
from live_plant import LivePlant, Scripted, config, moves, until

from antiphon.core.planner import Add, Flip, Take, planner_of
from antiphon.live.gateway import Ports
from antiphon.live.supervisor.messages import AddWorker, EndWorker
from antiphon.perf import read_times
from antiphon.testing.request_records import request_record
from antiphon.types import (
    Health,
    Outcome,
    Request,
    RequestId,
    RequestRecord,
    Role,
    SamplingParams,
)

PREFILL, DECODE = Role.PREFILL, Role.DECODE
pytestmark = pytest.mark.timeout(60)


async def test_advice_moves_nothing_and_says_what_it_would_do() -> None:
    plant = LivePlant(config(mode="advise"), Scripted())
    moves(plant, Add(DECODE, 1), Take(PREFILL, 1), Flip(DECODE, PREFILL, 1))
    await plant.step()
    await plant.step()
    assert plant.told == []
    assert plant.names() == ["decode-0", "prefill-0"]
    newest, advice = plant.steering.status().decisions
    assert newest.moves == ()
    assert advice.moves == ("add 1 decode", "end 1 prefill", "flip 1 decode to prefill")
    assert (newest.ago_s, advice.ago_s) == (0.0, 1.0)
    assert plant.counts.decisions == 2
    assert not plant.counts.moves


async def test_the_status_has_the_newest_decision_and_the_last_moves(plant: LivePlant) -> None:
    assert plant.operations.status().planner == plant.steering.status()
    assert plant.steering.status().decisions == ()
    for _ in range(12):
        moves(plant, Take(DECODE, 1))
        await plant.step()
    await plant.step()
    status = plant.steering.status()
    assert (status.mode, status.budget, len(status.decisions)) == ("act", 4, 11)
    first = status.decisions[0]
    assert first.target == {"prefill": 1, "decode": 2}
    assert first.needed == {"prefill": 1, "decode": 3}
    assert (first.expected_per_s, first.reason) == (2.5, "it is in the script")
    assert [one.ago_s for one in status.decisions] == [float(ago) for ago in range(11)]


async def test_requests_are_counted_as_they_come_and_end(plant: LivePlant) -> None:
    logged: list[RequestRecord] = []
    ports = plant.steering.watched(
        Ports(clock=lambda: plant.now, log_request=lambda record, rejected: logged.append(record))
    )
    for length in (2, 4):
        ports.heard_request(
            Request(id=RequestId("r"), prompt=tuple(range(length)), sampling=SamplingParams(seed=1))
        )
    for outcome in (Outcome.FINISHED, Outcome.CANCELLED):
        ports.log_request(request_record(outcome=outcome, cached_tokens=4, output_tokens=6), None)
    assert len(logged) == 2, "the request log is still written"
    plant.held = (5, 7)
    plant.load("decode-0", running=1, running_sequences=3, waiting=2, pulling=1, waiting_tokens=9)
    await plant.step(2.0)
    assert isinstance(plant.planner, Scripted)
    [seen] = plant.planner.seen
    assert (seen.requests, seen.input_tokens, seen.output_tokens) == (2, 3.0, 6.0)
    assert (seen.seconds, seen.hit_rate) == (2.0, 0.5)
    decode, prefill = seen.pool(DECODE), seen.pool(PREFILL)
    assert (decode.held, prefill.held) == (7, 5)
    assert (decode.queued, decode.queued_tokens, decode.running) == (3, 9, 3.0)


async def test_the_planner_of_virtual_fleets_grows_this_one_for_a_queue_and_shrinks_it_again() -> (
    None
):
    """The same class, not a stand-in: sequences that have no place ask for a worker."""
    given = config(ready_s=1.0, clear_s=1.0, cool_down_s=5.0, least=1)
    times = read_times("", step_tokens=given.scheduler.max_batched_tokens)
    plant = LivePlant(given, planner_of(given, times.phases, 8))
    ports = plant.steering.watched(Ports(clock=lambda: plant.now))
    request = Request(id=RequestId("r"), prompt=tuple(range(64)), sampling=SamplingParams(seed=1))

    def busy() -> bool:
        for _ in range(4):
            ports.heard_request(request)
            ports.log_request(request_record(cached_tokens=4, output_tokens=200), None)
        plant.load("decode-0", running=64, running_sequences=64, waiting=400)
        return len(plant.members()) > 2

    await until(plant, busy)
    assert plant.orders(AddWorker)[0].startswith("decode-")
    assert "queued" in plant.steering.status().decisions[-1].reason
    plant.load("decode-0", running=0, running_sequences=0, waiting=0)
    await until(plant, lambda: len(plant.names()) == 2, most=300)
    await plant.close()


# ── negative controls: the plant notices what it is there to notice ──────────────────────────────


async def test_a_hand_without_a_limit_is_noticed(plant: LivePlant) -> None:
    plant.book._budget = 99
    moves(plant, Add(DECODE, 3))
    with pytest.raises(AssertionError):
        await plant.step()


async def test_ending_a_worker_that_is_not_empty_is_noticed(plant: LivePlant) -> None:
    plant.load("decode-0", running=1)
    plant._change("decode-0", health=Health.DRAINING)
    with pytest.raises(AssertionError, match="it was not empty"):
        plant._tell(EndWorker("decode-0", 1))
