"""One worker computes a prompt, another goes on: KV is handed over through the gateway."""

import asyncio

import pytest
from gateway_kit import MODEL
from puppet_cluster import LEASE, TEXT, client_of, offer_of

from antiphon.types import LeaseRefusal, Pulled, Stage


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
                Pulled(
                    request=request.id,
                    attempt=1,
                    pulled_tokens=3,
                    cached_tokens=0,
                    seconds=0.5,
                    moved_bytes=2048,
                )
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
            'antiphon_pulled_bytes_total{model_name="scripted",role="decode",worker="d"} 2048.0',
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
