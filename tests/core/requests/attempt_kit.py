"""One request on a fleet: what workers say of it, and where it is after they have said so."""

from collections.abc import Sequence

from fleet_kit import ScriptedRouter, book_of, offer_of, worker_info

from antiphon.core.requests import RequestBook
from antiphon.types import (
    AttemptFailed,
    Command,
    Deliver,
    FinishReason,
    Grant,
    GrantAnswered,
    Health,
    HealthChanged,
    LeaseId,
    LeaseRefusal,
    Offer,
    Pulled,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Started,
    TokenGenerated,
    WorkerId,
)

ID = RequestId("r1")
LEASE = LeaseId("lease-1")
EOS = 2
P, Q, D, E = map(WorkerId, ("p", "q", "d", "e"))


def request(n: int = 1, **shape: object) -> Request:
    sampling = SamplingParams(n=n, max_tokens=100, seed=0)
    facts = {"eos_token_ids": (EOS,)} | shape
    return Request(id=ID, prompt=(1, 2, 3), sampling=sampling, **facts)  # pyright: ignore


def token(index: int, sequence: int = 0, attempt: int = 1, token: int | None = None):
    return TokenGenerated(
        request=ID,
        attempt=attempt,
        sequence=sequence,
        index=index,
        token=10 + index if token is None else token,
    )


def ended(sequence: int = 0, attempt: int = 1, reason: FinishReason = FinishReason.STOP):
    return SequenceEnded(request=ID, attempt=attempt, sequence=sequence, reason=reason)


def finish(
    book: RequestBook, index: int, at: float, sequence: int = 0, attempt: int = 1
) -> Sequence[Command]:
    """The last token of a sequence, and word of its end."""
    last = token(index, sequence, attempt, token=EOS)
    assert book.heard(last, at) == (Deliver(last),)
    return book.heard(ended(sequence, attempt), at)


def refusal(reason: RejectReason = RejectReason.QUEUE_FULL, attempt: int = 1) -> Rejected:
    return Rejected(request=ID, reason=reason, message="full", attempt=attempt)


def answer(attempt: int = 1, refused: LeaseRefusal | None = None) -> GrantAnswered:
    return GrantAnswered(request=ID, attempt=attempt, lease=LEASE, refused=refused)


def pulled(attempt: int = 1, missing: int = 0) -> Pulled:
    return Pulled(
        request=ID, attempt=attempt, pulled_tokens=3, cached_tokens=0, missing_tokens=missing
    )


def lose(book: RequestBook, worker: str, now: float):
    return book.observe(HealthChanged(WorkerId(worker), Health.LOST), now)


def grant(owner: str, taker: str, attempt: int = 1) -> Grant:
    return Grant(
        request=ID,
        attempt=attempt,
        owner=WorkerId(owner),
        lease=LEASE,
        taker=WorkerId(taker),
    )


def split_router(*takers) -> ScriptedRouter:
    return ScriptedRouter(routes=[("p", "d")], takers=list(takers or ("d",)))


class Split:
    """A request of `n` sequences that P has computed and D is to go on with."""

    def __init__(self, router: ScriptedRouter | None = None, n: int = 1, **shape: object) -> None:
        self.router = router or split_router()
        self.book = book_of(self.router, "p", "q", "d", "e")
        self.request = request(n, **shape)
        self.start = self.book.start(self.request, 1.0)
        for sequence in range(n):
            self.book.heard(token(0, sequence), 2.0)
        self.offer: Offer = offer_of(self.request, worker_info("p"))

    def offered(self) -> "Split":
        self.commands = self.book.heard(self.offer, 3.0)
        return self

    def adopted(self) -> "Split":
        self.offered()
        self.commands = self.book.heard(answer(), 4.0)
        return self

    def decoding(self) -> "Split":
        self.adopted()
        assert self.book.heard(pulled(), 5.0) == ()
        return self


def started(attempt: int = 1) -> Started:
    return Started(request=ID, attempt=attempt, cached_tokens=0, queued_s=0.0)


def given_up(attempt: int = 1) -> AttemptFailed:
    return AttemptFailed(request=ID, attempt=attempt, message="the engine failed 3 times in a row")
