"""Several puppets as one cluster, whose router chooses as a test says."""

import httpx
from gateway_kit import events_of, serving_fleet
from puppet_link import PuppetLink, worker_info

from antiphon.live.gateway import Keyring, create_app
from antiphon.testing.honest_offer import honest_offer
from antiphon.types import (
    Health,
    HealthChanged,
    Hold,
    LeaseId,
    Offer,
    Rejected,
    RejectReason,
    Request,
    Role,
    Route,
    WorkerId,
    WorkerJoined,
)

TEXT = "/v1/completions"
LEASE = LeaseId("lease-1")


class Chosen:
    """Implements `Routing`: the first of `prefer` that is well, whole or split."""

    def __init__(self, *prefer: str, prefill: tuple[str, ...] = ()) -> None:
        self.prefer = prefer
        self.prefill = prefill
        self.well: set[WorkerId] = set()

    def observe(self, event, now) -> None:
        match event:
            case WorkerJoined(info):
                self.well.add(info.id)
            case HealthChanged(worker, Health.JOINED):
                self.well.add(worker)
            case HealthChanged(worker, _):
                self.well.discard(worker)
            case _:
                pass

    def first(self, names: tuple[str, ...]) -> WorkerId | None:
        return next((WorkerId(name) for name in names if name in self.well), None)

    def in_vain(self, request: Request, now: float, **_: object) -> Rejected | None:
        return None

    def choose(
        self, request: Request, now: float, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        decode = self.first(self.prefer)
        if decode is None:
            return Rejected(request=request.id, reason=RejectReason.NO_WORKER, message="all gone")
        prefill = None if whole else self.first(self.prefill)
        return Route(request=request.id, prefill=prefill, decode=decode, reason="chosen")

    def choose_decode(self, offer: Offer, request: Request, now: float):
        decode = self.first(self.prefer)
        if decode is None:
            return Hold(request=request.id, reason="nobody decodes", ask_again_at=now + 0.05)
        return decode

    def prefilled(self, request, now) -> None: ...

    def fetched(self, request, missing_tokens, seconds, now) -> None: ...

    def refused(self, worker, now) -> None: ...

    def settled(self, request, now, *, again=False) -> None: ...


class Cluster:
    """Puppets by name, and a service before them."""

    def __init__(self, tokenizer, template, config, router: Chosen) -> None:
        self.tokenizer = tokenizer
        self.router = router
        self.parts = (tokenizer, template, config)
        self.puppets: dict[str, PuppetLink] = {}

    def puppet(self, name: str, role: Role = Role.MIXED, life: str = "1") -> PuppetLink:
        info = worker_info(
            vocab_size=self.tokenizer.vocab_size,
            eos=self.tokenizer.eos_token_ids,
            name=name,
            life=f"{name}-{life}",
            role=role,
        )
        self.puppets[name] = PuppetLink(info)
        return self.puppets[name]

    def serving(self, **ports):
        return serving_fleet(list(self.puppets.values()), self.router, *self.parts, **ports)


def client_of(service) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(service, Keyring()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def offer_of(request: Request, owner: PuppetLink, sequences: tuple[int, ...] = (0,)) -> Offer:
    return honest_offer(request, owner.info, lease=LEASE, ttl_s=0.3, sequences=sequences)


def text_of(stream: str, choice: int = 0) -> str:
    return "".join(
        part["text"]
        for event in events_of(stream)
        for part in event.get("choices", ())
        if part["index"] == choice
    )
