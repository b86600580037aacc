"""Two workers and a gateway in a nutshell: one computes prompts, the other goes on with them.

Nothing happens by itself: the test says who steps, which pull ends how, and what goes wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from test_scheduler_laws import SCRIPT, alone

from antiphon.core.scheduler import Parts
from antiphon.sim import ScriptedEngine, ShadowStore, StoreSide
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    NO_PAGE,
    Aborted,
    Admitted,
    Fetch,
    Fetched,
    FinishReason,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    Offer,
    OfferedPage,
    Prefilled,
    Pull,
    Pulled,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SequenceEnded,
    Stage,
    StepPlan,
    TokenGenerated,
    WorkerId,
)

TTL_S = 1.0
TAKER = Incarnation("taker")
GARBAGE = (-1,)


class Side:
    """A scheduler, an engine that checks its KV, the outstanding plan, and a store that both share.

    What is put is copied at once.
    """

    def __init__(self, setup: WorkerSetup, store: ShadowStore) -> None:
        self.setup = setup
        self.shadow = setup.shadow()
        self.lost: frozenset[int] = frozenset()
        self.store = StoreSide(store, self.shadow, lost=lambda _: self.lost)
        self.scheduler = setup.build(self.store.listen)
        self.faulty = False
        self.engine = ScriptedEngine(self._say, shadow=self.shadow)
        self.plan: StepPlan | None = None

    def put(self) -> None:
        for block in self.store.seal_fresh():
            assert self.store.put(block)

    def _say(self, request: Request, sequence: int, index: int) -> int | str:
        return "logits are not finite" if self.faulty else SCRIPT(request, sequence, index)


@dataclass
class Entry:
    """What the gateway knows of a request."""

    request: Request
    side: Side
    tokens: list[list[int]]
    ends: dict[int, FinishReason] = field(default_factory=dict)
    offer: Offer | None = None
    adopted: bool = False
    pulled: Pulled | None = None


class Pair:
    """A prefill worker, a decode worker, and the book of what both have said."""

    def __init__(
        self,
        setup: WorkerSetup,
        *,
        prefill: Parts | None = None,
        decode: Parts | None = None,
        bad: Iterable[frozenset[int]] = (),
    ) -> None:
        """`bad`: the pages, by number, that are lost in the first pulls, one set a pull."""
        store = ShadowStore()
        self.prefill = Side(replace(setup, parts=prefill or setup.parts), store)
        self.decode = Side(replace(setup, parts=decode or setup.parts), store)
        self.prefill.scheduler.leases.ttl_s = TTL_S
        self._bad = list(bad)
        self.now = 0.0
        self.book: dict[RequestId, Entry] = {}
        self.pulls: list[Pull] = []
        self.fetches: list[tuple[Side, Fetch]] = []
        self.sealed: dict[LeaseId, dict[int, tuple[int, ...]]] = {}

    # ── requests ──

    def submit(self, request: Request, fetch: int = 0) -> Entry | None:
        """To be computed on one side and continued on the other."""
        lease = LeaseId(f"lease-{request.id}-{request.attempt}")
        answer = self.prefill.scheduler.add(request, self.now, Stage.PREFILL, lease, fetch)
        return self._enter(request, self.prefill, answer)

    def submit_whole(self, request: Request, side: Side, fetch: int = 0) -> Entry | None:
        return self._enter(request, side, side.scheduler.add(request, self.now, fetch=fetch))

    def _enter(self, request: Request, side: Side, answer) -> Entry | None:
        assert (answer.request, answer.attempt) == (request.id, request.attempt)
        if not isinstance(answer, Admitted):
            return None
        resumed = request.resumed or ((),) * request.sampling.n
        entry = Entry(request, side, [list(part) for part in resumed])
        entry.ends = dict.fromkeys(request.done, FinishReason.STOP)
        self.book[request.id] = entry
        return entry

    def adopt(self, entry: Entry) -> bool:
        """Grant the lease and hand the request over; False if one of them said no."""
        offer = entry.offer
        assert offer is not None
        attempt = entry.request.attempt
        held = self.prefill.scheduler.leases.grant(offer.lease, TAKER, attempt, self.now)
        if not isinstance(held, LeaseHeld):
            entry.offer = None  # nobody has it any more: see `recompute`
            return False
        request = replace(
            entry.request,
            resumed=tuple(tuple(tokens) for tokens in entry.tokens),
            done=tuple(sorted(entry.ends)),
        )
        answer = self.decode.scheduler.adopt(request, offer, self.now)
        if isinstance(answer, Rejected):
            if answer.reason is not RejectReason.QUEUE_FULL:
                self.prefill.scheduler.leases.release(offer.lease, self.now)
                self._give_up(entry)
            return False
        entry.side, entry.adopted = self.decode, True
        return True

    def recompute(self, entry: Entry, fetch: int = 0) -> None:
        """The next attempt, from what was delivered, all on one worker."""
        entry.request = replace(
            entry.request,
            attempt=entry.request.attempt + 1,
            resumed=tuple(tuple(tokens) for tokens in entry.tokens),
            done=tuple(sorted(entry.ends)),
        )
        answer = self.decode.scheduler.add(entry.request, self.now, fetch=fetch)
        if isinstance(answer, Admitted):
            entry.side, entry.offer, entry.adopted = self.decode, None, True
        else:
            self._give_up(entry)

    def _give_up(self, entry: Entry) -> None:
        for sequence in range(entry.request.sampling.n):
            entry.ends.setdefault(sequence, FinishReason.ERROR)

    def abort(self, entry: Entry, sequence: int | None = None) -> None:
        answer = entry.side.scheduler.abort(entry.request.id, self.now, sequence)
        if isinstance(answer, Aborted):
            for one in answer.sequences:
                assert one not in entry.ends
                entry.ends[one] = FinishReason.ABORTED
        if sequence is None and entry.offer is not None and not entry.adopted:
            self._give_up(entry)

    # ── steps ──

    def step(self, side: Side) -> StepPlan | None:
        assert side.plan is None
        side.plan = side.scheduler.step(self.now)
        self.pulls += self.decode.scheduler.pulls()
        self.fetches += ((side, fetch) for fetch in side.scheduler.fetches())
        return side.plan

    def complete(self, side: Side, faulty: bool = False) -> None:
        assert side.plan is not None
        side.faulty = faulty
        result = side.engine.forward(side.plan)  # a fault found leaves it outstanding
        plan, side.plan = side.plan, None
        self.hear(side, side.scheduler.complete(plan, result, self.now))
        side.put()

    def fail(self, side: Side) -> None:
        plan, side.plan = side.plan, None
        assert plan is not None
        self.hear(side, side.scheduler.fail(plan, "out of memory", self.now))

    def expire(self) -> None:
        for side in (self.prefill, self.decode):
            self.hear(side, side.scheduler.expire(self.now))

    def end_pull(self, pull: Pull) -> None:
        """Copy what is what was offered, but for those pages that are lost; acknowledge; go on."""
        self.pulls.remove(pull)
        bad = self._bad.pop() if self._bad else frozenset()
        good: list[bool] = []
        for number, one in enumerate(pull.pages):
            content = self.prefill.shadow.content(one.source.page)
            whole = hash(content) == one.source.checksum and number not in bad
            garbage = GARBAGE * len(content)
            self.decode.shadow.pull(one.target, content if whole else garbage)
            good.append(whole)
        leases = self.prefill.scheduler.leases
        leases.acknowledge(pull.offer.lease, TAKER, pull.attempt, self.now)
        events = self.decode.scheduler.pulled(
            pull.request, pull.attempt, tuple(good), self.now, "bad luck" if bad else ""
        )
        self.hear(self.decode, events)
        self.decode.put()

    def end_fetch(self, which: int, lost: frozenset[int] = frozenset()) -> None:
        side, fetch = self.fetches.pop(which % len(self.fetches))
        side.lost = lost
        good = side.store.copy(fetch)
        self.hear(side, side.scheduler.fetched(fetch.request, fetch.attempt, good, self.now))
        side.put()

    def hear(self, side: Side, events) -> None:
        for event in events:
            entry = self.book[event.request]
            if event.attempt < entry.request.attempt:
                news = TokenGenerated | Prefilled | Pulled | Fetched
                assert not isinstance(event, news), "an attempt that is over goes on"
                continue
            assert event.attempt == entry.request.attempt
            match event:
                case TokenGenerated():
                    tokens = entry.tokens[event.sequence]
                    assert event.index == len(tokens) and event.sequence not in entry.ends
                    tokens.append(event.token)
                case SequenceEnded():
                    assert event.sequence not in entry.ends
                    entry.ends[event.sequence] = event.reason
                case Prefilled():
                    self._offer(side, entry, event)
                case Pulled():
                    entry.pulled = event
                case _:
                    pass

    def _offer(self, side: Side, entry: Entry, said: Prefilled) -> None:
        pages = sorted({page for one in said.sequences for page in one.table} - {NO_PAGE})
        content = {page: side.shadow.content(page) for page in pages}
        self.sealed[said.lease] = content
        kv = side.setup.kv
        entry.offer = Offer(
            request=said.request,
            attempt=said.attempt,
            lease=said.lease,
            ttl_s=side.scheduler.leases.ttl_s,
            owner=WorkerId("prefill"),
            incarnation=Incarnation("owner"),
            kv=KvShape(
                layout="shadow",
                page_tokens=kv.page_tokens,
                block_tokens=kv.block_tokens,
                page_bytes=1,
                pages=side.setup.pages,
            ),
            numerics="scripted",
            pages=tuple(OfferedPage(page, 0, hash(content[page])) for page in pages),
            sequences=said.sequences,
        )

    def finish(self) -> None:
        """Let everything that can go on do so, until nothing can."""
        for _ in range(5000):
            moved = False
            for side in (self.prefill, self.decode):
                if side.plan is None:
                    self.step(side)
                if side.plan is not None:
                    self.complete(side)
                    moved = True
            self.expire()
            for entry in list(self.book.values()):
                if entry.offer is not None and not entry.adopted and self.open_of(entry):
                    moved = self.adopt(entry) or moved
                    if entry.offer is None:
                        self.recompute(entry)
                        moved = True
            for pull in list(self.pulls):
                self.end_pull(pull)
                moved = True
            while self.fetches:
                self.end_fetch(0)
                moved = True
            if not moved and not self.step(self.prefill) and not self.step(self.decode):
                return
        raise AssertionError("this does not end")

    # ── what must hold ──

    def open_of(self, entry: Entry) -> bool:
        return len(entry.ends) < entry.request.sampling.n

    def check_sealed(self) -> None:
        """No page under a lease is written or given to somebody else."""
        leases = self.prefill.scheduler.leases
        for lease, pages in self.sealed.items():
            if lease in leases:
                for page, content in pages.items():
                    assert self.prefill.shadow.content(page) == content, "a sealed page changed"

    def check_tokens(self, entry: Entry) -> None:
        """Whoever was not disturbed has the tokens that one worker would have given it."""
        request = entry.request
        for sequence in range(request.sampling.n):
            if sequence in request.done:
                continue
            begin = len(request.resumed[sequence]) if request.resumed else 0
            wanted = [token for _, token in alone(self.prefill.setup, request, sequence)]
            got = entry.tokens[sequence][begin:]
            assert got == wanted[: len(got)], f"{request.id}/{sequence}"
            if entry.ends[sequence] in (FinishReason.STOP, FinishReason.LENGTH):
                assert got == wanted, f"{request.id}/{sequence} is short"


def adopted(pair: Pair, one: Request) -> Entry:
    """The entry of a request whose prompt is computed and whose KV is granted to the other."""
    entry = pair.submit(one)
    assert entry is not None
    while entry.offer is None:
        pair.step(pair.prefill)
        pair.complete(pair.prefill)
    assert pair.adopt(entry)
    return entry
