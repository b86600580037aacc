"""Policies against each other on a fleet in virtual time, with reports as late as real ones.

Workers compute prompts one after the other and decode for a while; a report comes every 250 ms.
"""

import heapq
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest
from router_kit import LinearTimes, info, offer_of, report, request, router

from antiphon.core.router import Router
from antiphon.types import Hold, Request, Role, Route, WorkerInfo

REPORT_S = 0.25
DECODE_S = 0.5


@dataclass
class Worker:
    info: WorkerInfo
    speed: float = 1.0
    queue: list[tuple[Request, float]] = field(default_factory=list)
    """(request, when its prompt is done), first come first served."""
    decoding: int = 0
    computed_tokens: int = 0
    """Of prompts that are done, 100 tokens a step."""

    def add(self, one: Request, now: float) -> float:
        begin = max([now, *(end for _, end in self.queue)])
        end = begin + LinearTimes().prefill_s(len(one.prompt)) * self.speed
        self.queue.append((one, end))
        return end

    def left_tokens(self, now: float) -> int:
        return sum(
            min(len(one.prompt), int((end - now) / self.speed * 1e3)) for one, end in self.queue
        )


def first_token_waits(
    fleet: list[Worker], policy: str, arrivals: list[tuple[float, int]]
) -> list[float]:
    """TTFT of each request. Every request is served; what is held is asked again."""
    made = router(*(worker.info for worker in fleet), policy=policy, ttft_s=1.0)
    return run(made, fleet, arrivals)


def run(made: Router, fleet: list[Worker], arrivals: list[tuple[float, int]]) -> list[float]:
    workers = {worker.info.id: worker for worker in fleet}
    order = count()
    events: list[tuple[float, int, str, object]] = []
    waits: list[float] = []

    def at(when: float, kind: str, what: object) -> None:
        heapq.heappush(events, (when, next(order), kind, what))

    for number, (when, tokens) in enumerate(arrivals):
        at(when, "arrive", request(f"r{number}", tokens, arrived_at=when))
    for number, worker in enumerate(fleet):
        at(number * REPORT_S / len(fleet), "report", worker)
    unsettled = len(arrivals)
    while unsettled:
        now, _, kind, what = heapq.heappop(events)
        if kind == "report":
            assert isinstance(what, Worker)
            report(
                made,
                what.info.id,
                now,
                running=what.decoding + min(1, len(what.queue)),
                waiting=max(0, len(what.queue) - 1),
                waiting_tokens=what.left_tokens(now),
                running_sequences=what.decoding,
                context_tokens=300 * what.decoding,
                steps_total=what.computed_tokens // 100,
                computed_tokens_total=what.computed_tokens,
                busy_s_total=what.computed_tokens * what.speed * 1e-3,
            )
            at(now + REPORT_S, "report", what)
        elif kind == "arrive":
            assert isinstance(what, Request)
            match made.choose(what, now):
                case Route(prefill=first, decode=other):
                    place = first or other
                    at(workers[place].add(what, now), "prefilled", (what, place, first is not None))
                case Hold(ask_again_at=again):
                    at(again, "arrive", what)
                case answer:
                    raise AssertionError(answer)
        elif kind == "prefilled":
            one, place, split = what  # pyright: ignore[reportGeneralTypeIssues]
            assert one.arrived_at is not None
            waits.append(now - one.arrived_at)
            workers[place].queue = [entry for entry in workers[place].queue if entry[0] is not one]
            workers[place].computed_tokens += len(one.prompt)
            made.prefilled(one.id, now)
            if split:
                place = made.choose_decode(offer_of(workers[place].info, one), one, now)
                assert isinstance(place, str)
            workers[place].decoding += 1
            at(now + DECODE_S, "settled", (one, place))
        else:
            one, place = what  # pyright: ignore[reportGeneralTypeIssues]
            workers[place].decoding -= 1
            made.settled(one.id, now)
            unsettled -= 1
    assert made.open_requests == 0
    return sorted(waits)


def arrivals(seed: int, rate: float, count: int) -> list[tuple[float, int]]:
    """Poisson arrivals; nine prompts in ten are short, the tenth is long."""
    draw, now, made = Random(seed), 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate)
        made.append(
            (now, draw.randint(1500, 2500) if draw.random() < 0.1 else draw.randint(20, 200))
        )
    return made


def met(waits: list[float]) -> float:
    """The share of requests with their first token within the target of 1 s."""
    return sum(wait <= 1.0 for wait in waits) / len(waits)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_prediction_meets_more_targets_than_any_baseline(seed: int) -> None:
    """Also sglang 21199: a clever policy that loses to round-robin. 75 % of four workers' time."""
    share = {
        policy: met(
            first_token_waits(
                [Worker(info(f"w{number}")) for number in range(4)], policy, arrivals(seed, 10, 800)
            )
        )
        for policy in ("slo", "least-loaded", "round-robin", "random")
    }
    assert share["slo"] > share["least-loaded"] + 0.05
    assert share["slo"] > share["round-robin"] + 0.2
    assert share["slo"] > share["random"] + 0.2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decode_workers_help_where_the_prefill_pool_is_too_small(seed: int) -> None:
    """One prefill worker at 105 % of what it can do, two decode workers beside it."""

    def fleet() -> list[Worker]:
        return [
            Worker(info("p0", Role.PREFILL)),
            Worker(info("d0", Role.DECODE)),
            Worker(info("d1", Role.DECODE)),
        ]

    load = arrivals(seed, 3.5, 600)
    assert met(first_token_waits(fleet(), "slo", load)) > 0.85
    assert met(first_token_waits(fleet(), "least-loaded", load)) < 0.6


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slow_worker_is_found_by_its_busy_time_and_gets_less(seed: int) -> None:
    def fleet() -> list[Worker]:
        return [Worker(info(f"w{number}"), 3.0 if number == 0 else 1.0) for number in range(4)]

    load = arrivals(seed, 7, 600)
    workers = fleet()
    made = router(*(worker.info for worker in workers), ttft_s=1.0)
    waits = run(made, workers, load)
    slow, *quick = [worker.pace.factor for worker in made.workers]
    assert slow == pytest.approx(3.0, rel=0.15)
    assert all(factor == pytest.approx(1.0, rel=0.15) for factor in quick)
    assert met(waits) > met(first_token_waits(fleet(), "least-loaded", load)) + 0.05
    assert workers[0].computed_tokens < min(worker.computed_tokens for worker in workers[1:])
