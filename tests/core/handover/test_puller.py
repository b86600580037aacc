"""The taker's side: each path by example, and against a real owner on another clock."""

import heapq
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.handover import (
    Acknowledge,
    Copy,
    LeaseBook,
    PullEnded,
    Puller,
    RenewTaken,
    StopCopy,
    Take,
)
from antiphon.errors import BugError
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Offer,
    OfferedPage,
    Pull,
    RequestId,
    WorkerId,
)

TTL_S, MARGIN_S, ANSWER_S = 3.0, 0.5, 1.0
OWNER, TAKER = Incarnation("owner"), Incarnation("taker")


def pull(name: str = "r", pages: int = 2, attempt: int = 1) -> Pull:
    offered = tuple(OfferedPage(page, 0, 0) for page in range(pages))
    offer = Offer(
        request=RequestId(name),
        attempt=attempt,
        lease=LeaseId(f"lease-{name}"),
        ttl_s=TTL_S,
        owner=WorkerId("p"),
        incarnation=OWNER,
        kv=KvShape(layout="", page_tokens=1, block_tokens=1, page_bytes=1, pages=9),
        numerics="",
        pages=offered,
        sequences=(),
    )
    targets = tuple(page.page + 10 for page in offered)
    return Pull(
        request=RequestId(name), attempt=attempt, offer=offer, sources=offered, targets=targets
    )


def puller() -> Puller:
    return Puller(answer_s=ANSWER_S, margin_s=MARGIN_S)


def held(name: str = "r") -> LeaseHeld:
    return LeaseHeld(LeaseId(f"lease-{name}"))


def refused(reason: LeaseRefusal, name: str = "r") -> LeaseRefused:
    return LeaseRefused(LeaseId(f"lease-{name}"), reason)


R = RequestId("r")


def kinds(commands) -> list[type]:
    return [type(one) for one in commands]


def copying(one: Puller) -> None:
    assert kinds(one.begin(pull(), 0.0)) == [Take]
    assert kinds(one.taken(R, 1, held(), 0.1)) == [Copy]


def test_take_copy_acknowledge() -> None:
    one = puller()
    copying(one)
    acknowledge, ended = one.copied(R, 1, (True, True), "", 0.4)
    assert isinstance(acknowledge, Acknowledge) and acknowledge.owner.incarnation == OWNER
    assert ended == PullEnded(request=R, attempt=1, good=(True, True), problem="", seconds=0.4)
    assert len(one) == 0 and one.next_deadline() is None


def test_a_pull_of_nothing_is_acknowledged_at_once() -> None:
    assert kinds(puller().begin(pull(pages=0), 0.0)) == [Acknowledge, PullEnded]


@pytest.mark.parametrize(
    ("reason", "said"), [(LeaseRefusal.GONE, "was gone"), (LeaseRefusal.FOREIGN, "another")]
)
def test_a_refused_take_means_that_all_is_missing(reason: LeaseRefusal, said: str) -> None:
    one = puller()
    one.begin(pull(), 0.0)
    ended = one.taken(R, 1, refused(reason), 0.1)[-1]
    assert isinstance(ended, PullEnded) and ended.good == (False, False) and said in ended.problem


def test_an_owner_that_does_not_answer_is_waited_for_so_long_and_no_longer() -> None:
    """vLLM 50754, Dynamo 13088: a side that never answers must not be waited for without end."""
    one = puller()
    one.begin(pull(), 0.0)
    assert one.next_deadline() == ANSWER_S and list(one.due(0.9)) == []
    acknowledge, ended = one.due(ANSWER_S)
    assert isinstance(acknowledge, Acknowledge), "it may have been taken after all"
    assert isinstance(ended, PullEnded) and ended.problem == "no answer in 1 s"
    assert list(one.taken(R, 1, held(), 1.5)) == []


def test_bad_pages_keep_their_place_and_the_problem_is_said() -> None:
    one = puller()
    copying(one)
    ended = one.copied(R, 1, (True, False), "page 1: its generation is 4, not 2", 0.4)[-1]
    assert isinstance(ended, PullEnded)
    assert ended.good == (True, False) and "generation" in ended.problem


def test_a_copy_that_outlives_the_lease_is_worth_nothing() -> None:
    """vLLM 21570: blocks that were read after their time gave wrong tokens."""
    one = puller()
    copying(one)
    ended = one.copied(R, 1, (True, True), "", TTL_S - MARGIN_S)[-1]
    assert isinstance(ended, PullEnded) and ended.good == (False, False)
    assert "ran out" in ended.problem


def test_when_the_lease_runs_out_the_copy_is_stopped_but_waited_for() -> None:
    one = puller()
    copying(one)
    assert kinds(one.due(1.0)) == [RenewTaken]
    assert one.next_deadline() == TTL_S - MARGIN_S, "the renewal is not answered"
    assert kinds(one.due(TTL_S - MARGIN_S)) == [StopCopy]
    assert one.next_deadline() is None and len(one) == 1
    assert one.copied(R, 1, (True, True), "", 9.0)[-1].good == (False, False)


def test_renewals_are_batched_and_count_from_sending() -> None:
    one = puller()
    for name in ("r", "s"):
        one.begin(pull(name), 0.0)
        one.taken(RequestId(name), 1, held(name), 0.1)
    (renewal,) = one.due(1.25)
    assert isinstance(renewal, RenewTaken) and renewal.leases == ("lease-r", "lease-s")
    assert list(one.renewed([held("r"), held("s")], 2.0)) == []
    assert one.next_deadline() == 1.25 + TTL_S / 3
    ended = one.copied(R, 1, (True, True), "", 3.7)[-1]
    assert isinstance(ended, PullEnded) and ended.good == (True, True)
    ended = one.copied(RequestId("s"), 1, (True, True), "", 1.25 + TTL_S - MARGIN_S)[-1]
    assert isinstance(ended, PullEnded) and ended.good == (False, False)


def test_a_refused_renewal_stops_the_copy_of_that_lease_alone() -> None:
    one = puller()
    for name in ("r", "s"):
        one.begin(pull(name), 0.0)
        one.taken(RequestId(name), 1, held(name), 0.1)
    one.due(1.0)
    (stop,) = one.renewed([refused(LeaseRefusal.FOREIGN), held("s")], 1.1)
    assert stop == StopCopy(request=R, attempt=1)


def test_an_owner_that_dies_fails_its_own_pulls_alone_and_not_those_being_copied() -> None:
    """SGLang 16903: one dead peer took the healthy ones with it."""
    one = puller()
    copying(one)
    one.begin(pull("s"), 0.2)
    assert list(one.lost(Incarnation("other"), 0.3)) == []
    ended = one.lost(OWNER, 0.3)[-1]
    assert isinstance(ended, PullEnded) and ended.request == "s" and "gone" in ended.problem
    assert one.copied(R, 1, (True, True), "", 0.4)[-1].good == (True, True)


def test_a_cancelled_pull_leaves_the_lease_to_the_gateway() -> None:
    one = puller()
    one.begin(pull(), 0.0)
    assert kinds(one.cancel(R, 1, 0.1)) == [PullEnded]
    copying(one)
    assert kinds(one.cancel(R, 1, 0.2)) == [StopCopy]
    assert list(one.cancel(R, 1, 0.2)) == []
    assert kinds(one.copied(R, 1, (False, False), "", 0.3)) == [PullEnded]
    assert list(one.cancel(R, 1, 0.4)) == []


def test_what_nobody_asked_for_is_a_bug() -> None:
    one = puller()
    with pytest.raises(BugError, match="unasked"):
        one.copied(R, 1, (True, True), "", 0.0)
    copying(one)
    with pytest.raises(BugError, match="twice"):
        one.begin(pull(), 0.2)
    with pytest.raises(BugError, match="unasked"):
        one.copied(R, 1, (True,), "", 0.3)


# ── against an owner's book, with messages that take their time or get lost ───────────────────


class Exchange:
    """A puller, the owner's book, and a slow and lossy way between them; one pull a run."""

    kind: ClassVar[type[Puller]] = Puller

    def __init__(self, delays: list[float | None], copy_s: float) -> None:
        self.now = 0.0
        self.agenda: list[tuple[float, int, object]] = []
        self.entries = 0
        self.delays = list(delays)
        self.copy_s = copy_s
        self.dropped: list[int] = []
        self.book = LeaseBook(self.dropped.extend, ttl_s=TTL_S)
        self.puller = self.kind(answer_s=ANSWER_S, margin_s=MARGIN_S)
        self.ended: list[PullEnded] = []
        self.live_when_copied: list[bool] = []

    def at(self, delay: float | None, action) -> None:
        if delay is not None:
            self.entries += 1
            heapq.heappush(self.agenda, (self.now + delay, self.entries, action))

    def delay(self) -> float | None:
        return self.delays.pop() if self.delays else 0.01

    def send(self, question, answer) -> None:
        """Over and back again; each way may take long or lose the message."""

        def arrive() -> None:
            said = question()
            self.at(self.delay(), lambda: answer(said))

        self.at(self.delay(), arrive)

    def run(self) -> None:
        self.book.offer(LeaseId("lease-r"), R, 1, (1, 2), 0.0)
        self.book.grant(LeaseId("lease-r"), TAKER, 1, 0.0)
        self.obey(self.puller.begin(pull(), 0.0))
        for _ in range(1000):
            times = [self.puller.next_deadline(), self.book.next_deadline()]
            times += [self.agenda[0][0]] if self.agenda else []
            times = [at for at in times if at is not None]
            if not times:
                return
            self.now = max(self.now, min(times))
            self.book.expire(self.now)
            if self.agenda and self.agenda[0][0] <= self.now:
                heapq.heappop(self.agenda)[2]()
            self.obey(self.puller.due(self.now))
        raise AssertionError("this does not end")

    def obey(self, commands) -> None:
        for one in commands:
            match one:
                case Take(lease=lease):
                    self.send(
                        lambda lease=lease: self.book.take(lease, TAKER, 1, self.now),
                        lambda said: self.obey(self.puller.taken(R, 1, said, self.now)),
                    )
                case RenewTaken(leases=leases):
                    self.send(
                        lambda leases=leases: self.book.renew(leases, TAKER, self.now),
                        lambda said: self.obey(self.puller.renewed(said, self.now)),
                    )
                case Acknowledge(lease=lease):
                    self.send(
                        lambda lease=lease: self.book.acknowledge(lease, TAKER, 1, self.now),
                        lambda said: None,
                    )
                case Copy():
                    self.at(self.copy_s, self.copied)
                case PullEnded():
                    self.ended.append(one)
                case _:
                    pass

    def copied(self) -> None:
        self.live_when_copied.append(len(self.book) > 0)
        self.obey(self.puller.copied(R, 1, (True, True), "", self.now))


def check(delays: list[float | None], copy_s: float, kind: type[Exchange] = Exchange) -> None:
    exchange = kind(delays, copy_s)
    exchange.run()
    assert len(exchange.ended) == 1, "each pull ends once"
    assert len(exchange.puller) == 0 and exchange.dropped == [1, 2]
    if all(exchange.ended[0].good):
        assert exchange.live_when_copied == [True], "pages were read after their lease"


DELAYS = st.lists(
    st.sampled_from([None, 0.0, 0.01, 0.3, 0.9, 2.0, 3.5]) | st.floats(0, 4), max_size=8
)


@settings(max_examples=400, deadline=None)
@given(DELAYS, st.floats(0, 12))
def test_whatever_messages_do_a_pull_ends_once_and_counts_only_what_was_kept(
    delays: list[float | None], copy_s: float
) -> None:
    check(delays, copy_s)


class CountsFromTheAnswer(Puller):
    """Believes that the lease begins when it hears of it."""

    def renewed(self, answers, now):
        for one in self._pulls.values():
            one.asked_at = now
        return super().renewed(answers, now)


def test_finds_a_taker_that_counts_from_the_answer() -> None:
    class Faulty(Exchange):
        kind = CountsFromTheAnswer

    # The answer to the first renewal is slow, and the second renewal is lost.
    delays, copy_s = [None, 1.4, 0.01, 0.01, 0.01], 4.6
    check(delays, copy_s)
    with pytest.raises(AssertionError, match="after their lease"):
        check(delays, copy_s, Faulty)
