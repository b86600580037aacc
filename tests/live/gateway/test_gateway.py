"""The gateway with several workers: deaths, hand-overs, drains, and what it leaves on record."""

import asyncio
import io
import json

import httpx
import pytest
from gateway_kit import MODEL, events_of, serving_fleet
from puppet_link import KV, PuppetLink, worker_info

from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import replay
from antiphon.core.requests import BOOK, RequestBook
from antiphon.errors import PeerError
from antiphon.live.gateway import FleetControl, Keyring, RequestLog, create_app
from antiphon.types import (
    Config,
    FinishReason,
    Health,
    HealthChanged,
    Hold,
    Incarnation,
    LeaseId,
    LeaseRefusal,
    Offer,
    OfferedPage,
    OfferedSequence,
    Pulled,
    Rejected,
    RejectReason,
    Request,
    Role,
    Route,
    Stage,
    WorkerId,
    WorkerJoined,
)
from antiphon.wire import DecisionLogWriter, read_decision_log

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

    def in_vain(
        self, request: Request, now: float, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
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
    return Offer(
        request=request.id,
        attempt=request.attempt,
        lease=LEASE,
        ttl_s=0.3,
        owner=owner.info.id,
        incarnation=owner.info.incarnation,
        kv=KV,
        numerics=owner.info.model.numerics,
        pages=(OfferedPage(0, 2, 1),),
        sequences=tuple(OfferedSequence(k, len(request.prompt), (0,)) for k in sequences),
    )


def text_of(stream: str, choice: int = 0) -> str:
    return "".join(
        part["text"]
        for event in events_of(stream)
        for part in event.get("choices", ())
        if part["index"] == choice
    )


@pytest.fixture
def pair(tokenizer, template, config) -> Cluster:
    """Two mixed workers; `a` is chosen while it lives."""
    cluster = Cluster(tokenizer, template, config, Chosen("a", "b"))
    cluster.puppet("a")
    cluster.puppet("b")
    return cluster


@pytest.fixture
def split(tokenizer, template, config) -> Cluster:
    """One prefill worker, two that decode; `d` is chosen while it lives."""
    cluster = Cluster(tokenizer, template, config, Chosen("d", "e", prefill=("p",)))
    cluster.puppet("p", Role.PREFILL)
    cluster.puppet("d", Role.DECODE)
    cluster.puppet("e", Role.DECODE)
    return cluster


async def test_a_stream_survives_the_death_of_its_worker(pair, tokenizer):
    """No token is lost or repeated, what is done stays done, and usage counts each token once."""
    a, b = pair.puppets["a"], pair.puppets["b"]
    words = tokenizer.encode("one two three four five six")
    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            request = await a.request()
            a.start(request)
            a.tokens(request, words[:3], sequence=0)
            a.tokens(request, words[:2], sequence=1)
            a.end(request, FinishReason.STOP, sequence=1)
            await a.read()
            a.die()
            again = await b.request()
            assert again.attempt == 2
            assert again.resumed == (tuple(words[:3]), tuple(words[:2]))
            assert again.done == (1,)
            a.tokens(request, words[3:4], sequence=0, first=3)  # of no use any more
            b.start(again)
            b.tokens(again, words[3:], sequence=0, first=3)
            b.end(again, FinishReason.LENGTH, sequence=0)

        body = {"model": MODEL, "prompt": [5, 6, 7], "n": 2, "stream": True, "max_tokens": 6}
        body["stream_options"] = {"include_usage": True}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.status_code == 200
        assert text_of(response.text, 0) == "one two three four five six"
        assert text_of(response.text, 1) == "one two"
        usage = events_of(response.text)[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, len(words) + 2)
        assert (await client.get("/ready")).status_code == 200
        page = (await client.get("/metrics")).text
        assert 'antiphon_retries_total{model_name="scripted"} 1.0' in page
        assert 'worker="b"' in page
        assert 'worker="a"' not in page


async def test_kv_is_handed_over(split, tokenizer):
    p, d = split.puppets["p"], split.puppets["d"]
    words = tokenizer.encode("one two three")
    async with split.serving() as service, client_of(service) as client:

        async def workers() -> None:
            request = await p.request()
            assert p.stages == [Stage.PREFILL]
            p.start(request)
            p.tokens(request, words[:1])
            p.say(offer_of(request, p))
            await d.until(lambda: d.adopted)
            adopted, _ = d.adopted[0]
            assert p.grants == [(LEASE, d.info.incarnation, 1)]
            assert (adopted.attempt, adopted.resumed) == (1, (tuple(words[:1]),))
            await p.until(lambda: len(p.renewed) > 1)  # the taker takes its time
            assert set(p.renewed) == {LEASE}
            d.say(
                Pulled(request=request.id, attempt=1, pulled_tokens=3, cached_tokens=0, seconds=0.5)
            )
            d.tokens(adopted, words[1:], first=1)
            d.end(adopted)

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.json()["choices"][0]["text"] == "one two three"
        assert p.released == []
        page = (await client.get("/metrics")).text
        for line in (
            'antiphon_offers_total{model_name="scripted",role="prefill",worker="p"} 1.0',
            'antiphon_pulls_total{model_name="scripted",role="decode",worker="d"} 1.0',
            'antiphon_pulled_tokens_total{model_name="scripted",role="decode",worker="d"} 3.0',
            'antiphon_pulled_bytes_total{model_name="scripted",role="decode",worker="d"} 3.0',
            'antiphon_pull_seconds_total{model_name="scripted",role="decode",worker="d"} 0.5',
            'antiphon_leases{model_name="scripted"} 0.0',
            'antiphon_held_requests{model_name="scripted",stage="decode"} 0.0',
            'vllm:num_requests_running{model_name="scripted",role="prefill",worker="p"} 1.0',
        ):
            assert line in page, line


@pytest.mark.parametrize(
    ("gone", "chosen", "role", "reason"),
    [
        ("", "d", "decode", "chosen"),
        ("p", "d", "decode", "no_prefill_worker"),
        ("de", "p", "prefill", "no_decode_worker"),
    ],
)
async def test_who_serves_whole_beside_a_split_is_counted(
    split, tokenizer, gone: str, chosen: str, role: str, reason: str
):
    split.router.prefill = ()
    split.router.prefer = (chosen,)
    split.puppets[chosen].script = lambda request, sequence: tokenizer.encode("one")
    async with split.serving() as service, client_of(service) as client:
        for name in gone:
            service.gateway.fleet.lose(split.puppets[name], "for a test")
        body = {"model": MODEL, "prompt": [5, 6, 7]}
        assert (await client.post(TEXT, json=body)).status_code == 200
        page = (await client.get("/metrics")).text
    rows = [row for row in page.splitlines() if row.startswith("antiphon_local_prefills_total")]
    labels = f'model_name="scripted",reason="{reason}",role="{role}",worker="{chosen}"'
    assert rows == [f"antiphon_local_prefills_total{{{labels}}} 1.0"]


async def test_a_decode_worker_dies_while_it_pulls_and_another_takes_the_offer(split, tokenizer):
    p, d, e = (split.puppets[name] for name in "pde")
    words = tokenizer.encode("one two")
    async with split.serving() as service, client_of(service) as client:

        async def workers() -> None:
            request = await p.request()
            p.tokens(request, words[:1])
            p.say(offer_of(request, p))
            await d.until(lambda: d.adopted)
            d.die()
            await e.until(lambda: e.adopted)
            adopted, _ = e.adopted[0]
            assert adopted.attempt == 2
            assert p.grants[-1] == (LEASE, e.info.incarnation, 2)
            assert len(p.requests) == 1, "nothing is computed again"
            e.say(Pulled(request=request.id, attempt=2, pulled_tokens=3, cached_tokens=0))
            e.tokens(adopted, words[1:], first=1)
            e.end(adopted)

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.json()["choices"][0]["text"] == "one two"


async def test_a_refused_grant_computes_again(split, tokenizer):
    p, e = split.puppets["p"], split.puppets["e"]
    words = tokenizer.encode("one two")
    p.refuse_grant = LeaseRefusal.GONE
    async with split.serving() as service, client_of(service) as client:

        async def workers() -> None:
            request = await p.request()
            p.tokens(request, words[:1])
            split.router.prefill = ()
            split.router.prefer = ("e",)
            p.say(offer_of(request, p))
            again = await e.request()
            assert (again.attempt, again.resumed) == (2, (tuple(words[:1]),))
            e.tokens(again, words[1:], first=1)
            e.end(again)

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.json()["choices"][0]["text"] == "one two"
        page = (await client.get("/metrics")).text
        labels = 'model_name="scripted",role="prefill",worker="p"'
        assert f"antiphon_refused_grants_total{{{labels}}} 1.0" in page


async def test_a_client_that_leaves_while_kv_waits_frees_the_owner(split):
    p = split.puppets["p"]
    split.router.prefer = ()
    async with split.serving() as service, client_of(service) as client:
        split.router.prefer = ("d",)
        asking = asyncio.create_task(
            client.post(TEXT, json={"model": MODEL, "prompt": [5, 6, 7], "timeout": 0.3})
        )
        request = await p.request()
        split.router.prefer = ()
        p.tokens(request, [9])
        p.say(offer_of(request, p))
        assert (await asking).status_code == 504
        await p.until(lambda: p.released)
        assert p.released == [LEASE]


async def test_when_every_worker_died_with_it_the_request_is_an_error(pair):
    """It may be what kills them: after three, nobody else gets it."""
    pair.router.prefer = ("a", "b", "c", "d")
    pair.puppet("c")
    pair.puppet("d")

    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            for name in "abc":
                request = await pair.puppets[name].request()
                pair.puppets[name].start(request)
                await pair.puppets[name].read()
                pair.puppets[name].die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.status_code == 500
        assert "3 attempts in a row" in response.json()["error"]["message"]
        assert pair.puppets["d"].requests == []
        assert (await client.get("/ready")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_with_the_last_worker_gone_a_request_that_had_begun_is_503(pair, tokenizer, stream):
    a, b = pair.puppets["a"], pair.puppets["b"]
    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            b.die()
            request = await a.request()
            a.tokens(request, tokenizer.encode("one"))
            await a.read()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7], "stream": stream}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        if stream:
            error = events_of(response.text)[-1]["error"]
        else:
            assert response.status_code == 503
            error = response.json()["error"]
        assert error["code"] == "no_worker"


async def test_a_worker_that_leaves_a_call_unanswered_is_lost(pair, monkeypatch):
    a, b = pair.puppets["a"], pair.puppets["b"]
    lost = []

    async def silent(request, stage=Stage.WHOLE, fetch=0):
        raise PeerError("no answer within 10 s")

    monkeypatch.setattr(a, "add", silent)
    b.script = lambda request, sequence: [5]
    ports = {"on_lost": lambda link, reason: lost.append((link.info.id, reason))}
    async with pair.serving(**ports) as service, client_of(service) as client:
        response = await client.post(TEXT, json={"model": MODEL, "prompt": [5, 6, 7]})
        assert response.status_code == 200
    assert lost == [("a", "a call was not answered: no answer within 10 s")]
    assert b.requests[0].attempt == 2


async def test_a_life_that_is_over_can_not_join_again(pair):
    a = pair.puppets["a"]
    async with pair.serving() as service:
        service.gateway.fleet.lose(a, "for a test")
        refused = service.gateway.join(a)
        assert refused is not None
        assert "given up as lost" in refused.message
        assert service.gateway.join(pair.puppet("a", life="2")) is None


# ── what operators do ────────────────────────────────────────────────────────────────────────────


async def test_a_drained_worker_finishes_gets_nothing_new_and_changes_its_role(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: tokenizer.encode("b")
    body = {"model": MODEL, "prompt": [5, 6, 7]}
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)
        running = asyncio.create_task(client.post(TEXT, json=body))
        request = await a.request()
        draining = asyncio.create_task(control.drain(WorkerId("a"), 30.0))
        await asyncio.sleep(0)
        assert (await client.post(TEXT, json=body)).json()["choices"][0]["text"] == "b"
        assert not draining.done()
        a.tokens(request, tokenizer.encode("a"))
        a.end(request)
        await asyncio.wait_for(draining, 5)
        assert (await running).json()["choices"][0]["text"] == "a"
        members = {member.info.id: member for member in control.members()}
        assert members[WorkerId("a")].health is Health.DRAINING
        await control.set_role(WorkerId("a"), Role.DECODE)
        control.resume(WorkerId("a"))
        members = {member.info.id: member for member in control.members()}
        assert members[WorkerId("a")].health is Health.JOINED
        assert members[WorkerId("a")].info.role is Role.DECODE
        a.script = b.script
        assert (await client.post(TEXT, json=body)).status_code == 200
        assert len(a.requests) == 2
        assert (control.state, control.open_requests) == ("ready", 0)


async def test_a_worker_that_does_not_answer_a_flip_is_lost(pair, monkeypatch):
    """Nobody knows which role it has."""

    async def silent(role):
        raise PeerError("no answer within 10 s")

    monkeypatch.setattr(pair.puppets["a"], "set_role", silent)
    async with pair.serving() as service:
        control = FleetControl(service.gateway, MODEL)
        await control.drain(WorkerId("a"), 1.0)
        with pytest.raises(PeerError, match="no answer"):
            await control.set_role(WorkerId("a"), Role.DECODE)
        control.resume(WorkerId("a"))
        assert [member.info.id for member in control.members()] == ["b"]


async def test_what_a_drain_does_not_wait_for_goes_on_elsewhere(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    words = tokenizer.encode("one two")
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)

        async def workers() -> None:
            request = await a.request()
            a.tokens(request, words[:1])
            await a.read()
            await asyncio.wait_for(control.drain(WorkerId("a"), 0.05), 5)
            assert a.aborts == [(request.id, None)]
            again = await b.request()
            assert again.resumed == (tuple(words[:1]),)
            b.tokens(again, words[1:], first=1)
            b.end(again)

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.json()["choices"][0]["text"] == "one two"


async def test_operators_hear_when_the_worker_is_not_there(pair):
    a = pair.puppets["a"]
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)
        with pytest.raises(PeerError, match="is not there"):
            await control.drain(WorkerId("x"), 1.0)
        with pytest.raises(PeerError, match="is not there"):
            await control.set_role(WorkerId("x"), Role.MIXED)
        asking = asyncio.create_task(client.post(TEXT, json={"model": MODEL, "prompt": [5]}))
        await a.request()
        draining = asyncio.create_task(control.drain(WorkerId("a"), 30.0))
        await asyncio.sleep(0)
        a.die()
        with pytest.raises(PeerError, match="was lost"):
            await asyncio.wait_for(draining, 5)
        waiting = asyncio.create_task(control.joined(WorkerId("a"), Incarnation("a-1")))
        await asyncio.sleep(0)
        service.gateway.join(pair.puppet("a", life="2"))
        await asyncio.wait_for(waiting, 5)
        asking.cancel()


# ── records ──────────────────────────────────────────────────────────────────────────────────────


async def test_each_request_leaves_a_line(pair, tokenizer):
    file = io.BytesIO()
    log = RequestLog(file)
    log.start()
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: [5, 5]
    async with pair.serving(log_request=log) as service, client_of(service) as client:

        async def workers() -> None:
            await a.request()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        await asyncio.gather(client.post(TEXT, json=body), workers())
        b.reject = RejectReason.QUEUE_FULL
        assert (await client.post(TEXT, json=body)).status_code == 429
    log.close()
    first, second = map(json.loads, file.getvalue().splitlines())
    assert (first["outcome"], first["attempts"], first["output_tokens"]) == ("finished", 2, 2)
    assert [one["route"] for one in first["trail"]] == ["a: chosen", "b: chosen"]
    stamps = [first[f"{name}_at"] for name in ("arrived", "started", "first_token", "ended")]
    assert stamps == sorted(stamps)
    assert (second["outcome"], second["rejected"]) == ("rejected", "queue_full")


async def test_what_a_gateway_with_two_workers_decided_replays(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: tokenizer.encode("two")
    setup = Setup(
        program="test",
        config=Config(),
        pages=10,
        model=a.info.model,
        max_model_len=a.info.max_model_len,
        worker=WorkerId("a"),
    )
    file = io.BytesIO()
    writer = DecisionLogWriter(file)
    writer.begin(setup)
    async with pair.serving(log_decision=writer) as service, client_of(service) as client:

        async def workers() -> None:
            await a.request()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        await asyncio.gather(client.post(TEXT, json=body), workers())
    run = read_decision_log(io.BytesIO(file.getvalue()))
    again = {BOOK: RequestBook(Chosen("a", "b"))}
    entries = list(run.entries)
    assert {entry.method for entry in entries} >= {"start", "heard", "observe"}
    assert list(replay(entries, again)) == []
    assert list(replay(entries, fresh_machines(setup))), "another router decides otherwise"
