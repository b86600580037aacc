"""Which workers serve a request: filter, then predict, then pick.

    facts ──► Beliefs: what is believed of each worker, and where each open request is
                 │
    choose ──► filter: well, long enough, right numerics, room ──► options with predicted latency
                 │  nobody can now: Hold, nobody ever: Rejected        │
                 └──────────────────────── Route ◄── scorer ◄──────────┘

Laws:

* decisions depend on the facts and their order alone, not on the order of joining;
* no route to a worker that is lost, suspect or draining, nor to a full one while another has room;
* what was decided counts as load until a report shows it or the request is settled;
* nothing is kept of settled requests and of lost workers.
"""

from collections.abc import Mapping, Sequence

from antiphon.core.costs import FetchTime, PhaseTime, TransferTime
from antiphon.core.host_names import is_store, store_of
from antiphon.core.turns import TenantLoads
from antiphon.types import (
    BlockKey,
    FleetEvent,
    Health,
    HealthChanged,
    Hold,
    Incarnation,
    KvDump,
    KvEvents,
    KvReplay,
    Offer,
    Rejected,
    Request,
    RequestId,
    Route,
    RouterConfig,
    Seconds,
    Slo,
    WorkerId,
    WorkerJoined,
)

from .beliefs import Beliefs
from .candidates import Candidates
from .demand import Demand, demand_of
from .early_rejection import Ahead
from .eligibility import of_numerics
from .fetch_pace import FetchPace
from .forecast import Forecast
from .option import Option, reused
from .parts import STANDARD_PARTS, Parts
from .placement import Phase, Placement, decoding_at
from .prefix_index import PrefixIndex
from .prompt_keys import KeySpace
from .route_choice import NoRoom, RouteChoice
from .router_limits import RouterLimits
from .short_list import ShortList
from .turnover import Turnover
from .worker_belief import WorkerBelief

ROUTER = "router"
"""The router's name in a record of decisions."""
KV_METHODS = ("heard_kv", "heard_peer_time", "kv_holder_left")
"""Those that a gateway calls itself: its book calls the others, and they are in its record."""
ROUTER_METHODS = (
    "observe",
    "choose",
    "choose_decode",
    "prefilled",
    "fetched",
    "refused",
    "settled",
    *KV_METHODS,
)
"""The methods of `Router` whose calls make up its record."""

STANDARD_LIMITS = RouterLimits()


class Router:
    """Routes the requests of one gateway. `seed` matters where chance does: see `ShortList` and
    the policy "random".

    Without `fetch` nothing is fetched from the store, whatever it has.
    """

    def __init__(  # noqa: PLR0913  all that decisions depend on
        self,
        config: RouterConfig,
        *,
        times: PhaseTime,
        transfer: TransferTime,
        fetch: FetchTime | None = None,
        kv_bytes_per_token: int,
        seed: int = 0,
        limits: RouterLimits = STANDARD_LIMITS,
        parts: Parts = STANDARD_PARTS,
    ) -> None:
        self._config, self._limits, self._parts = config, limits, parts
        self._times, self._transfer = times, transfer
        self._kv_bytes_per_token = kv_bytes_per_token
        self._scorer = parts.scorer(config.policy, seed)
        self._slo = Slo(ttft_s=config.ttft_s, tpot_s=config.tpot_s)
        short = ShortList(times, seed)
        self._beliefs = Beliefs(times, parts.belief, short)
        self._candidates = Candidates(
            self._beliefs,
            short,
            limits,
            hold_s=config.hold_s,
            narrow=self._scorer.by_prediction,
        )
        self._prefixes = parts.prefixes(parts.index(), follow=limits.prefix_cache)
        self._fetches = FetchPace(fetch) if fetch is not None else None
        self._turnover = Turnover()
        self._loads = TenantLoads()
        self._rejection = parts.rejection(config, limits, self._turnover)

    @property
    def open_requests(self) -> int:
        """How many requests something is kept of."""
        known, decoding = self._beliefs.open_requests, self._turnover.requests()
        return len(known | decoding | self._prefixes.requests() | self._loads.requests())

    @property
    def workers(self) -> Sequence[WorkerBelief]:
        """What is believed of each worker, in the order of ids: to read, not to change."""
        return self._beliefs.workers

    def paces(self) -> Mapping[WorkerId, float]:
        """Of each worker, what its steps take over what the step times say: see `Pace`."""
        return {worker.info.id: worker.pace.factor for worker in self.workers}

    @property
    def kv_index(self) -> PrefixIndex:
        """What is believed of who holds which blocks: to read, not to change."""
        return self._prefixes.index

    def names_of(self, request: RequestId, space: KeySpace) -> Sequence[BlockKey]:
        """The keys of an open request's first blocks, as far as routing it needed them: to read.

        For whoever would compute the same again in this process.
        """
        return self._prefixes.names_of(request, space)

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """Take in what happened to a worker. Mutates."""
        self._beliefs.observe(event, now)
        match event:
            case WorkerJoined(info):
                self._prefixes.left(info.id)
                self._prefixes.index.begin(info.id, info.incarnation)
            case HealthChanged(worker, Health.LOST):
                self._prefixes.left(worker)
            case _:
                pass

    def heard_kv(
        self,
        holder: WorkerId,
        incarnation: Incarnation,
        message: KvDump | KvEvents,
        now: Seconds,
    ) -> KvReplay | None:
        """Take in which blocks a worker, or a store (`STORE`, or another host's), has. Mutates.

        Returns what the holder must be asked to say again, if something is missing. Messages of a
        worker that has not joined, or of another life of it, change nothing. A store's life that is
        not known begins with its first message.
        """
        if not is_store(holder):
            belief = self._beliefs.find(holder)
            if belief is None or belief.info.incarnation != incarnation:
                return None
        return self._prefixes.index.apply(holder, incarnation, message, now)

    def heard_peer_time(self, store: WorkerId, token_s: Seconds | None, now: Seconds) -> None:
        """A store says how long a token's KV takes that it reads from others; None: it says so no
        more. Mutates."""
        if self._fetches is not None:
            byte_s = None if token_s is None else token_s / self._kv_bytes_per_token
            self._fetches.told(store, byte_s, now)

    def kv_holder_left(self, holder: WorkerId, now: Seconds) -> None:
        """What this holder had is out of reach. Mutates.

        Workers that are lost leave by `observe`: this is for the store, and for a worker that has
        stopped telling what it has.
        """
        self._prefixes.left(holder)
        if self._fetches is not None and is_store(holder):
            self._fetches.told(holder, None, now)

    def prefilled(self, request: RequestId, now: Seconds) -> None:
        """Its first token is there: load moves from prefill to decode. Mutates, once."""
        self._beliefs.prefilled(request)
        self._turnover.began(request, now)

    def fetched(
        self, request: RequestId, missing_tokens: int, seconds: Seconds, now: Seconds
    ) -> None:
        """Its fetch from the store is over. Mutates, once: what is missing is load, and how long it
        took is learned from."""
        placement = self._beliefs.fetched(request, missing_tokens, self._times)
        if placement is not None and self._fetches is not None and placement.fetch_tier is not None:
            self._fetches.observed(
                placement.fetch_tier,
                placement.fetch_s,
                seconds,
                whole=not missing_tokens,
                now=now,
                store=placement.fetch_store,
            )

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """The worker had no room after all: it gets nothing new for `hold_s`. Mutates."""
        if belief := self._beliefs.find(worker):
            belief.closed_until = now + self._config.hold_s

    def settled(self, request: RequestId, now: Seconds, *, again: bool = False) -> None:
        """The attempt is over. Mutates. `again`: another follows, so its numerics id is kept.

        `choose` and `choose_decode` do this themselves for a request that is still open.
        """
        self._loads.drop(request)
        if again:
            self._beliefs.lift(request)
            self._prefixes.moved(request)
            self._turnover.broke_off(request)
        else:
            self._turnover.ended(request, now)
            self._beliefs.settle(request)
            self._prefixes.forget(request)

    # ── decisions ────────────────────────────────────────────────────────────────────────────

    def in_vain(
        self, request: Request, now: Seconds, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        """Why it should be refused at once: see `early_rejection`. Places nothing."""
        if not self._rejection.sheds(request):
            return None
        demand = demand_of(request)
        forecast = self._forecast(request, demand, now)
        workers = self._candidates.few(request, demand, forecast.held, now)
        workers = workers or self._candidates.every(request, demand, now)
        if isinstance(workers, Hold | Rejected):
            return None
        share = self._share(request, demand)
        overtaken = self._loads.overtaken(request.tenant_salt)
        ahead = Ahead(
            requests=ahead_requests, tokens=ahead_tokens, share=share, overtaken=overtaken
        )
        return self._rejection.refusal(request, forecast, workers, ahead, now)

    def choose(
        self, request: Request, now: Seconds, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        """Who serves this attempt. Mutates: a route counts as load from now on.

        `whole`: one worker does all of it, for a part of it was too long for one.
        """
        self._beliefs.lift(request.id)
        self._prefixes.moved(request.id)
        demand = demand_of(request)
        forecast = self._forecast(request, demand, now)
        few = self._candidates.few(request, demand, forecast.held, now)
        if few:
            answer = self._route_among(few, request, forecast, whole, now)
            if isinstance(answer, Route):
                return answer
        workers = self._candidates.every(request, demand, now)
        if isinstance(workers, Hold | Rejected):
            return workers
        answer = self._route_among(workers, request, forecast, whole, now)
        if isinstance(answer, NoRoom):
            return self._candidates.hold(request, answer.reason, now)
        return answer

    def choose_decode(
        self, offer: Offer, request: Request, now: Seconds
    ) -> WorkerId | Hold | Rejected:
        """Who goes on with an offer, by present load. Mutates as `choose` does.

        The offer's owner itself if it is mixed, or if nobody else is left who can read its pages.
        `Rejected`: nobody can, now or soon, so the offer is of no use; its load is forgotten.
        """
        before = self._beliefs.lift(request.id)
        self._prefixes.moved(request.id)
        demand = demand_of(request)
        choice = self._choice(request, self._forecast(request, demand, now))
        few = self._candidates.few_takers(offer, request, demand, now)
        best = choice.best_decode(few) if few else None
        if not isinstance(best, Option):
            takers = self._candidates.takers(offer, request, demand, now)
            best = takers if isinstance(takers, Hold | Rejected) else choice.best_decode(takers)
            if isinstance(best, NoRoom):
                best = self._candidates.hold(request, best.reason, now)
        if not isinstance(best, Option):
            if isinstance(best, Hold):
                self._beliefs.put_back(before)
            return best
        (worker,) = best.workers
        self._beliefs.place(decoding_at(worker, demand))
        self._loads.put(request.id, request.tenant_salt, demand.tokens)
        self._turnover.began(request.id, now)
        return worker

    def _route_among(
        self,
        workers: Sequence[WorkerBelief],
        request: Request,
        forecast: Forecast,
        whole: bool,
        now: Seconds,
    ) -> Route | NoRoom:
        """The best of these, which are all that matter."""
        earlier = self._beliefs.numerics_of(request.id) if request.attempt > 1 else None
        equal = of_numerics(workers, earlier)
        exact = request.attempt == 1 or bool(equal) or (earlier is None and _all_equal(workers))
        choice = self._choice(request, forecast).best(equal or workers, whole=whole)
        if isinstance(choice, NoRoom):
            return choice
        self._place(choice, forecast, request)
        return self._route(choice, request, exact)

    def _forecast(self, request: Request, demand: Demand, now: Seconds) -> Forecast:
        if self._fetches is not None:
            self._fetches.fade(now)
        arrived = now if request.arrived_at is None else request.arrived_at
        return Forecast(
            demand=demand,
            times=self._times,
            held=self._prefixes.of(request),
            fetches=self._fetches,
            slo=request.slo or self._slo,
            waited_s=max(0.0, now - arrived),
            transfer_s=self._transfer.seconds(demand.tokens * self._kv_bytes_per_token),
            step_tokens=self._limits.step_tokens,
            kv_bytes_per_token=self._kv_bytes_per_token,
        )

    def _share(self, request: Request, demand: Demand) -> float:
        return self._loads.share(request.id, request.tenant_salt, demand.tokens)

    def _choice(self, request: Request, forecast: Forecast) -> RouteChoice:
        return RouteChoice(
            forecast=forecast,
            scorer=self._scorer,
            max_sequences=self._limits.max_sequences,
            hold_s=self._config.hold_s,
            conditional=self._config.conditional_split,
            queue_s=self._config.queue_s,
            share=self._share(request, forecast.demand),
        )

    def _place(self, choice: Option, forecast: Forecast, request: Request) -> None:
        first, after = choice.workers[0], choice.workers[1:]
        worker = self._beliefs.find(first)
        assert worker is not None
        plan = forecast.plan(worker)
        self._turnover.placed(forecast.demand.tokens, plan.uncached)
        self._beliefs.place(
            Placement(
                demand=forecast.demand,
                phase=Phase.PREFILL if after else Phase.WHOLE,
                here=first,
                next=after[0] if after else None,
                uncached=plan.uncached,
                left=plan.uncached,
                occupied_s=plan.occupied_s,
                fetch=plan.fetch,
                fetch_s=plan.fetch_s,
                fetch_tier=plan.fetch_tier,
                fetch_store=store_of(first),
            )
        )
        self._prefixes.expect(request, worker.info)
        self._loads.put(request.id, request.tenant_salt, forecast.demand.tokens)

    def _route(self, choice: Option, request: Request, exact: bool) -> Route:
        return Route(
            request=request.id,
            prefill=choice.workers[0] if len(choice.workers) == 2 else None,
            decode=choice.workers[-1],
            reason=f"{self._config.policy}: TTFT {choice.ttft_s * 1e3:.0f} ms, "
            f"TPOT {choice.tpot_s * 1e3:.1f} ms predicted{reused(choice)}",
            predicted_ttft_s=choice.ttft_s,
            exact=exact,
            fetch=choice.fetch,
        )


def _all_equal(workers: Sequence[WorkerBelief]) -> bool:
    """They can't compute anything but what any of them computes."""
    return all(worker.info.model.numerics == workers[0].info.model.numerics for worker in workers)
