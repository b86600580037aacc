"""Operators name prompts as callers do, and are told, or get done, what they asked for."""

import httpx
import pytest
from gateway_kit import MODEL

from antiphon.core.kv import BlockKeys, tenant_of
from antiphon.core.router import PrefixIndex
from antiphon.live.admin.app import admin_app
from antiphon.live.admin.kv_desk import KvDesk
from antiphon.live.admin.kv_naming import MAX_KEYS, KvNaming
from antiphon.live.admin.operations import Operations
from antiphon.live.gateway import Keyring, Prompts
from antiphon.types import (
    BlockKey,
    Health,
    KvConfig,
    KvDump,
    Member,
    Request,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    Tier,
    TierStats,
    WorkerView,
)

BLOCK = 64
LONG = "It was the best of times, it was the worst of times. " * 40
MESSAGES = [{"role": "user", "content": LONG}]
FORBIDDEN = {"model": MODEL, "messages": MESSAGES, "chat_template_kwargs": {"messages": 1}}
VIEW = WorkerView(
    running=0,
    waiting=0,
    free_pages=4,
    held_pages=2,
    cached_pages=4,
    total_pages=10,
    peak_pages=2,
    prefix_queried_tokens_total=100,
    prefix_hit_tokens_total=50,
    preemptions_total=0,
    steps_total=0,
    computed_tokens_total=0,
)
STATS = (
    TierStats(tier=Tier.HOST, blocks=5, used_bytes=10, limit_bytes=20, dropped=(("full", 2),)),
)


class Store:
    """Has the first blocks of whatever is asked for; `asked` lists the asks."""

    def __init__(self) -> None:
        self.present = True
        self.connections = 1
        self.asked: list[StoreAsk] = []
        self.has: dict[Tier, int] = {Tier.HOST: 1, Tier.DISK: 2}
        self.problem = ""

    async def ask(self, ask: StoreAsk, timeout_s: float) -> StoreAnswer:
        self.asked.append(ask)
        if self.problem:
            return StoreAnswer(problem=self.problem)
        tiers = tuple(
            tuple(tier for tier, blocks in self.has.items() if place < blocks)
            for place in range(len(ask.keys))
        )
        return StoreAnswer(tiers=tiers, blocks=max(self.has.values()), stats=STATS)


@pytest.fixture
def keys() -> Keyring:
    return Keyring(("sk-alice", "sk-bob"))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex()


@pytest.fixture
def desk(puppet, tokenizer, template, keys, store, index) -> KvDesk:
    return made(puppet, tokenizer, template, keys, store, index)


def made(puppet, tokenizer, template, keys, store, index) -> KvDesk:
    model = puppet.info.model
    naming = KvNaming(
        Prompts(tokenizer, template), model, BLOCK, keys.tenants, lambda: [model.numerics]
    )
    member = Member(puppet.info, Health.JOINED, VIEW)
    return KvDesk(naming, KvConfig(), members=lambda: [member], index=index, store=store)


@pytest.fixture
async def admin(desk):
    transport = httpx.ASGITransport(admin_app(Operations("m", lambda _: None, 1.0), lambda: desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client


async def post(admin, deed: str, status: int = 200, **order):
    answer = await admin.post(f"/admin/kv/{deed}", json={"timeout_s": 5.0, **order})
    assert answer.status_code == status, answer.text
    return answer.json()


def keys_of(request: Request, numerics: str = "script-v1") -> tuple[BlockKey, ...]:
    naming = BlockKeys(
        identity=b"\x01" * 32, numerics=numerics, salt=request.tenant_salt, block_tokens=BLOCK
    )
    keys: list[BlockKey] = []
    naming.extend(keys, request.prompt, len(request.prompt) // BLOCK)
    return tuple(keys)


@pytest.mark.parametrize(
    ("path", "body", "prompt"),
    [
        (
            "/v1/chat/completions",
            {"messages": MESSAGES},
            {"chat": {"model": MODEL, "messages": MESSAGES, "temperature": 0.5}},
        ),
        ("/v1/completions", {"prompt": LONG}, {"text": LONG}),
        ("/v1/completions", {"prompt": list(range(5, 300))}, {"tokens": list(range(5, 300))}),
    ],
)
@pytest.mark.parametrize(("key", "place"), [("sk-alice", 1), ("sk-bob", 2)])
async def test_the_blocks_that_are_looked_for_are_those_of_a_request(
    client, puppet, admin, store, path, body, prompt, key, place
) -> None:
    """LMCache 1728: the keys that were looked for were not those that were put."""
    puppet.script = lambda request, sequence: [5]
    answer = await client.post(
        path, json={"model": MODEL, **body}, headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 200, answer.text
    [request] = puppet.requests
    await post(admin, "lookup", prompt=prompt, tenant=place)
    [ask] = store.asked
    assert len(ask.keys) > 2
    assert ask.keys == keys_of(request)
    assert ask.tenant == tenant_of(request.tenant_salt)


async def test_lookup_shows_each_worker_and_each_tier(admin, puppet, index, store) -> None:
    found = await post(admin, "lookup", prompt={"text": LONG}, tenant=1)
    [ask] = store.asked
    blocks = tuple((key, Tier.DEVICE) for key in ask.keys[:3])
    dump = KvDump(next=0, begins=True, ends=True, blocks=blocks)
    index.apply(puppet.info.id, puppet.info.incarnation, dump, 0.0)
    again = await post(admin, "lookup", prompt={"text": LONG}, tenant=1)
    assert (found["blocks"], found["block_tokens"], found["store"]) == (len(ask.keys), 64, "ready")
    for answer, on_worker in ((found, 0), (again, 3)):
        places = {(one["holder"], one["tier"]): one["tokens"] for one in answer["places"]}
        assert places == {
            ("w0", "device"): on_worker * 64,
            ("store", "host"): 64,
            ("store", "disk"): 128,
            ("store", "any"): 128,
        }
        assert {one["tenant"] for one in answer["places"]} == {1}


async def test_all_tenants_are_asked_for_one_by_one_and_salts_stay_here(admin, store) -> None:
    answer = await post(admin, "lookup", prompt={"text": LONG}, all_tenants=True)
    one, other = store.asked
    assert set(one.keys).isdisjoint(other.keys)
    assert {place["tenant"] for place in answer["places"]} == {1, 2}
    salts = [tenant.salt for tenant in Keyring(("sk-alice", "sk-bob")).tenants]
    assert [one.tenant, other.tenant] == [tenant_of(salt) for salt in salts]
    assert not any(salt.hex() in str(answer) for salt in salts)


async def test_orders_reach_the_store(admin, store) -> None:
    for deed in ("pin", "unpin", "prefetch", "clear", "verify"):
        done = await post(admin, deed, prompt={"text": LONG}, tenant=2)
        assert (done["op"], done["blocks"], done["tokens"]) == (deed, 2, 128)
        assert done["asked"] == len(store.asked[-1].keys)
    await post(admin, "move", prompt={"text": LONG}, tenant=2, tier="disk")
    assert [(ask.op.value, ask.tier) for ask in store.asked] == [
        ("pin", None),
        ("unpin", None),
        ("prefetch", None),
        ("clear", None),
        ("verify", None),
        ("move", Tier.DISK),
    ]


async def test_what_is_cleared_without_a_prompt(admin, store) -> None:
    await post(admin, "clear", everything=True)
    await post(admin, "clear", tenant=2)
    await post(admin, "clear", all_tenants=True)
    await post(admin, "verify")
    alice, bob = (tenant_of(one.salt) for one in Keyring(("sk-alice", "sk-bob")).tenants)
    assert [(ask.op, ask.keys, ask.tenant) for ask in store.asked] == [
        (StoreOp.CLEAR, (), None),
        (StoreOp.CLEAR, (), bob),
        (StoreOp.CLEAR, (), alice),
        (StoreOp.CLEAR, (), bob),
        (StoreOp.VERIFY, (), None),
    ]


@pytest.mark.parametrize(
    ("deed", "order", "status", "message"),
    [
        ("clear", {"prompt": {"tokens": [5]}, "tenant": 1}, 400, "has 1 token, less than a block"),
        ("clear", {"prompt": {"text": "short"}, "tenant": 1}, 400, "less than a block of 64"),
        ("clear", {}, 400, "a prompt, a tenant, or everything"),
        ("clear", {"everything": True, "tenant": 1}, 400, "leave the tenant out"),
        ("clear", {"everything": True, "prompt": {"text": LONG}}, 400, "without a prompt"),
        ("verify", {"tenant": 1}, 400, "leave the tenant out"),
        ("pin", {"everything": True}, 400, "pin needs a prompt"),
        ("pin", {"prompt": {}, "tenant": 1}, 400, "text, tokens, chat"),
        ("pin", {"prompt": {"text": "a", "tokens": [1]}, "tenant": 1}, 400, "text, tokens, chat"),
        ("pin", {"prompt": {"tokens": [-1] * 64}, "tenant": 1}, 400, "0 or more"),
        ("pin", {"prompt": {"tokens": [10**9] * 64}, "tenant": 1}, 400, "vocabulary's size"),
        ("pin", {"prompt": {"chat": {"messages": []}}, "tenant": 1}, 400, "model is required"),
        ("pin", {"prompt": {"chat": [1]}, "tenant": 1}, 400, "JSON object"),
        ("pin", {"prompt": {"chat": FORBIDDEN}, "tenant": 1}, 400, "not the caller's to set"),
        ("pin", {"prompt": {"text": LONG}}, 400, "2 API keys"),
        ("pin", {"prompt": {"text": LONG}, "tenant": 3}, 400, "has 2 keys"),
        ("pin", {"prompt": {"text": LONG}, "tenant": 1, "all_tenants": True}, 400, "not both"),
        ("pin", {"prompt": {"text": LONG}, "tenant": 1, "tier": "disk"}, 400, "only move"),
        ("move", {"prompt": {"text": LONG}, "tenant": 1}, 400, "host or disk"),
        ("move", {"prompt": {"text": LONG}, "tenant": 1, "tier": "device"}, 400, "host or disk"),
        ("lookup", {"tenant": 1}, 400, "needs a prompt"),
        ("lookup", {"prompt": {"text": LONG}, "tenant": 1, "timeout_s": 0}, 400, "timeout_s"),
        ("lookup", {"prompt": {"txt": LONG}}, 400, "unknown field"),
        ("stats", {}, 405, "Not Allowed"),
        ("explode", {}, 404, "Not Found"),
    ],
)
async def test_bad_orders_change_nothing(admin, store, deed, order, status, message) -> None:
    answer = await admin.post(f"/admin/kv/{deed}", json={"timeout_s": 5.0, **order})
    assert answer.status_code == status
    assert message in answer.text
    assert store.asked == []


async def test_more_than_can_be_meant_is_refused(desk, admin, monkeypatch) -> None:
    monkeypatch.setattr("antiphon.live.admin.kv_naming.MAX_KEYS", 3)
    assert MAX_KEYS > 128 * 1024 // BLOCK
    answer = await post(admin, "pin", 400, prompt={"text": LONG}, all_tenants=True)
    assert "name one tenant" in answer["error"]["message"]


async def test_why_the_store_did_not_do_it_reaches_the_operator(admin, store) -> None:
    store.problem = "there is no disk tier: store.disk_bytes is 0"
    answer = await post(admin, "move", 409, prompt={"text": LONG}, tenant=1, tier="disk")
    assert "no disk tier" in answer["error"]["message"]


async def test_stats(admin) -> None:
    stats = (await admin.get("/admin/kv/stats")).json()
    assert stats["store"] == "ready"
    [tier] = stats["tiers"]
    assert (tier["tier"], tier["blocks"], tier["dropped"]) == ("host", 5, {"full": 2})
    [worker] = stats["workers"]
    assert (worker["cached_tokens"], worker["held_tokens"], worker["limit_tokens"]) == (64, 32, 160)
    assert stats["index"]["holders"] == 0


async def test_a_store_that_is_away_is_said_and_workers_are_shown(admin, store) -> None:
    store.present = False
    answer = await post(admin, "lookup", prompt={"text": LONG}, tenant=1)
    assert answer["store"] == "away"
    store.connections = 0
    assert (await admin.get("/admin/kv/stats")).json()["store"] == "starting"
    assert [place["holder"] for place in answer["places"]] == ["w0"]
    assert (await admin.get("/admin/kv/stats")).json()["tiers"] == []


async def test_without_a_store_workers_are_shown_and_nothing_else_is_done(
    puppet, tokenizer, template, index
) -> None:
    desk = made(puppet, tokenizer, template, Keyring(), None, index)
    transport = httpx.ASGITransport(admin_app(Operations("m", lambda _: None, 1.0), lambda: desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
        answer = await post(admin, "lookup", prompt={"text": LONG})
        assert (answer["store"], len(answer["places"])) == ("off", 1)
        refused = await post(admin, "pin", 409, prompt={"text": LONG})
        assert "--store on" in refused["error"]["message"]
        keyless = await post(admin, "lookup", 400, prompt={"text": LONG}, tenant=1)
        assert "no API keys" in keyless["error"]["message"]


async def test_while_the_model_is_loading_there_is_nothing_to_ask() -> None:
    transport = httpx.ASGITransport(admin_app(Operations("m", lambda _: None, 1.0)))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
        for call in (
            admin.get("/admin/kv/stats"),
            admin.post("/admin/kv/verify", json={"timeout_s": 1}),
        ):
            answer = await call
            assert answer.status_code == 503
            assert "loading" in answer.text


async def test_a_body_beyond_the_limit_is_413(desk) -> None:
    app = admin_app(Operations("m", lambda _: None, 1.0), lambda: desk, max_body_bytes=1000)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
        answer = await post(admin, "lookup", 413, prompt={"text": LONG}, tenant=1)
        assert "at most 1000 bytes" in answer["error"]["message"]
