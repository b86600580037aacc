"""The KV store of a real server: what is reused, what operators see, what its death costs."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e_process import Metrics, Served, at_rest, joined, standing_still

from command_here import run_here

BLOCK = 64
LONG = "It was the best of times, it was the worst of times. " * 30


@pytest.fixture(scope="module")
def pair(tiny: Path) -> Iterator[Served]:
    """Two workers beside a store. Each test asks what nobody else does."""
    room = ("--kv-memory", "8MiB", "--store-memory", "64MiB")
    served = Served("serve", str(tiny), "--port", "0", "--mixed", "2", *room)
    served.until(joined)
    yield served
    assert served.stop() == 0, "".join(served.output)


def ask(served: Served, prompt: str = LONG, key: str | None = None) -> dict[str, Any]:
    """The choice, and how many tokens of the prompt needed no computing."""
    body = {
        "model": httpx.get(f"{served.url}/v1/models", headers=bearer(key)).json()["data"][0]["id"],
        "prompt": prompt,
        "max_tokens": 8,
        "temperature": 0,
        "logprobs": 3,
    }
    answer = httpx.post(f"{served.url}/v1/completions", json=body, headers=bearer(key), timeout=60)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    return {
        "choice": answer.json()["choices"][0],
        "prompt": usage["prompt_tokens"],
        "cached": usage["prompt_tokens_details"]["cached_tokens"],
    }


def whole(answer: dict[str, Any]) -> int:
    """Tokens of the prompt's complete blocks."""
    return answer["prompt"] // BLOCK * BLOCK


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def kv(served: Served, *arguments: str) -> Any:
    done = run_here("kv", *arguments, "--json", "--url", served.url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tokens_at(lookup: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(place["holder"], place["tier"]): place["tokens"] for place in lookup["places"]}


def stored(served: Served, prompt: str = LONG) -> None:
    """Wait until the store has it, and the router knows what the store has."""

    def missing() -> int:
        found = kv(served, "lookup", "--text", prompt)
        return found["blocks"] * BLOCK - tokens_at(found)["store", "any"]

    served._until(missing, lambda tokens: tokens == 0)
    served.until_metrics(
        lambda seen: seen("antiphon_kv_index_held") >= seen("antiphon_store_blocks")
    )


def computed_by(served: Served, prompt: str = LONG) -> str:
    """The one worker that has it."""
    places = tokens_at(kv(served, "lookup", "--text", prompt))
    [worker] = [holder for (holder, tier), tokens in places.items() if tier == "device" and tokens]
    return worker


def kill_store(served: Served) -> int:
    """Its pid, now dead."""
    pid = served.status()["store"]["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid


def test_operators_find_pin_and_forget_what_a_request_left(pair: Served) -> None:
    prompt = "What operators see. " + LONG
    first = ask(pair, prompt)
    blocks = first["prompt"] // BLOCK
    stored(pair, prompt)
    found = kv(pair, "lookup", "--text", prompt)
    assert (found["tokens"], found["blocks"], found["store"]) == (first["prompt"], blocks, "ready")
    there = {(computed_by(pair, prompt), "device"), ("store", "host"), ("store", "any")}
    assert {place: tokens for place, tokens in tokens_at(found).items() if tokens} == (
        dict.fromkeys(there, blocks * BLOCK)
    )
    assert kv(pair, "pin", "--text", prompt)["blocks"] == blocks
    [tier] = kv(pair, "stats")["tiers"]
    assert tier["pinned_blocks"] == blocks <= tier["blocks"]
    assert kv(pair, "unpin", "--text", prompt)["blocks"] == blocks
    assert kv(pair, "verify")["blocks"] == 0
    assert kv(pair, "clear", "--text", prompt, "--yes")["blocks"] == blocks
    gone = tokens_at(kv(pair, "lookup", "--text", prompt))
    assert gone == {**tokens_at(found), ("store", "host"): 0, ("store", "any"): 0}
    refused = run_here("kv", "pin", "--text", prompt, "--url", pair.url)
    assert refused.returncode == 1
    assert "none of the prompt's" in refused.stderr


def test_another_worker_fetches_what_one_has_computed(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    log = tmp_path / "requests.jsonl"
    decisions = tmp_path / "decisions.jsonl"
    served = serve(
        "--mixed",
        "2",
        "--store-memory",
        "64MiB",
        "--request-log",
        str(log),
        "--decision-log",
        str(decisions),
    )
    served.until(joined)
    first = ask(served)
    stored(served)
    assert run_here("drain", computed_by(served), "--url", served.url).returncode == 0
    again = ask(served)
    assert again["choice"] == first["choice"]
    assert (first["cached"], again["cached"]) == (0, whole(first))
    metrics = served.until_metrics(lambda seen: seen("antiphon_fetches_total") > 0)
    assert metrics("vllm:external_prefix_cache_hits_total") == whole(first)
    assert metrics("antiphon_failed_fetches_total") == 0
    assert metrics("antiphon_recomputed_tokens_total") == 0
    served.until_metrics(at_rest)
    assert served.stop() == 0
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["fetched_tokens"] for record in records] == [0, whole(first)]
    assert records[1]["trail"][0]["fetched_at"] is not None
    logs = sorted(tmp_path.glob("decisions*"))
    assert len(logs) == 3, "the gateway's, which heard of all blocks, and two workers'"
    for file in logs:
        replayed = run_here("replay", str(file))
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_a_killed_store_fails_nothing_and_comes_back(pair: Served) -> None:
    prompt, another, third = (f"{name} beside a killed store. " + LONG for name in "ABC")
    first = ask(pair, prompt)
    stored(pair, prompt)
    connections = pair.metrics()("antiphon_store_connections_total")
    life = pair.status()["store"]["life"]
    kill_store(pair)
    assert ask(pair, prompt)["choice"] == first["choice"]
    other = ask(pair, another)
    pair.until_metrics(lambda seen: seen("antiphon_store_connections_total") == connections + 1)
    pair.until_metrics(lambda seen: seen("antiphon_store_up") == 1)
    stored(pair, prompt)  # what it had is gone, but a worker that has it offers it again
    assert pair.status()["store"]["life"] == life + 1
    assert ask(pair, another)["choice"] == other["choice"]
    ask(pair, third)
    stored(pair, third)
    pair.until_metrics(at_rest)


def test_blocks_go_to_disk_and_outlive_store_and_worker(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """LMCache 1788: a disk tier that nobody read after a restart."""
    folder = tmp_path / "blocks"
    folder.mkdir(mode=0o700)
    disk = ("--store-disk", "64MiB", "--store-dir", str(folder))
    served = serve("--store-memory", "64MiB", *disk)
    served.until(joined)
    first = ask(served)
    blocks = first["prompt"] // BLOCK
    stored(served)
    named = ("--text", LONG)
    assert kv(served, "move", "--to", "disk", *named)["blocks"] == blocks
    places = tokens_at(kv(served, "lookup", *named))
    assert (places["store", "host"], places["store", "disk"]) == (0, whole(first))
    kill_store(served)
    served.until_metrics(lambda seen: seen("antiphon_store_connections_total") == 2)
    served._until(
        lambda: tokens_at(kv(served, "lookup", *named)).get(("store", "disk"), 0),
        lambda tokens: tokens == whole(first),
    )
    assert kv(served, "prefetch", *named)["blocks"] == blocks
    assert tokens_at(kv(served, "lookup", *named))["store", "host"] == whole(first)
    assert kv(served, "verify")["blocks"] == 0
    assert run_here("restart", "mixed-0", "--url", served.url).returncode == 0
    stored(served)
    again = ask(served)
    assert again["choice"] == first["choice"]
    assert again["cached"] == whole(first)
    assert served.stop() == 0


def test_a_stopped_store_costs_no_more_than_its_deadline(pair: Served) -> None:
    """Mooncake 1088: a store that hung made every call wait for a minute."""
    prompt = "Beside a store that stands still. " + LONG
    first = ask(pair, prompt)
    stored(pair, prompt)
    computed = computed_by(pair, prompt)
    assert run_here("drain", computed, "--url", pair.url).returncode == 0
    with standing_still(pair.status()["store"]["pid"]):
        assert ask(pair, prompt)["choice"] == first["choice"]
        again = ask(pair, prompt)  # this worker has it now, whatever the store does
        assert (again["choice"], again["cached"]) == (first["choice"], whole(first))
        pair.until_metrics(lambda seen: seen("antiphon_store_up") == 0)
        away = run_here("kv", "clear", "--all", "--yes", "--url", pair.url)
        assert away.returncode == 1
        assert "KV store" in away.stderr
    pair.until_metrics(lambda seen: seen("antiphon_store_up") == 1)
    assert tokens_at(kv(pair, "lookup", "--text", prompt))["store", "any"] == whole(first)
    assert run_here("role", computed, "mixed", "--url", pair.url).returncode == 0
    pair.until_metrics(at_rest)


def test_tenants_do_not_find_each_others_blocks(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """LMCache 4825, SGLang 37160: the salt was dropped, and a hit told what others had asked.

    Paired: the second tenant's first call is treated like the first one's, in what is cached, in
    what is put and in what the page of metrics says.
    """
    keys = tmp_path / "keys"
    keys.write_text("sk-alice\nsk-bob\n")
    keys.chmod(0o600)
    log = tmp_path / "decisions.jsonl"
    served = serve(
        "--store-memory", "64MiB", "--api-key-file", str(keys), "--decision-log", str(log)
    )

    def look(name: str) -> float:
        page = httpx.get(f"{served.url}/metrics", headers=bearer("sk-bob"), timeout=60).text
        return Metrics(page)(name)

    def until_put(blocks: int) -> None:
        served._until(lambda: look("antiphon_store_put_blocks_total"), lambda put: put == blocks)

    served.until(joined)
    alice = ask(served, key="sk-alice")
    blocks = alice["prompt"] // BLOCK
    until_put(blocks)
    bob = ask(served, key="sk-bob")
    until_put(2 * blocks)
    assert (alice["cached"], bob["cached"]) == (0, 0)
    assert alice["choice"] == bob["choice"]
    assert look("antiphon_fetches_total") == 0
    assert ask(served, key="sk-bob")["cached"] == blocks * BLOCK
    for tenant in ("1", "2"):
        places = tokens_at(kv(served, "lookup", "--text", LONG, "--tenant", tenant))
        assert places["store", "any"] == blocks * BLOCK
    assert kv(served, "clear", "--tenant", "1", "--yes")["blocks"] == blocks
    left = kv(served, "lookup", "--text", LONG, "--all-tenants")
    have = {place["tenant"]: place["tokens"] for place in left["places"] if place["tier"] == "any"}
    assert have == {1: 0, 2: blocks * BLOCK}
    whose = run_here("kv", "lookup", "--text", LONG, "--url", served.url)
    assert whose.returncode == 2
    assert "2 API keys" in whose.stderr
    assert served.stop() == 0
    for file in tmp_path.glob("decisions*"):
        replayed = run_here("replay", str(file))
        assert replayed.returncode == 0, replayed.stdout


def test_without_a_store_everything_else_works(serve: Callable[..., Served]) -> None:
    served = serve("--store", "off")
    served.until(joined)
    first = ask(served)
    assert ask(served)["cached"] == first["prompt"] // BLOCK * BLOCK
    found = kv(served, "lookup", "--text", LONG)
    assert found["store"] == "off"
    assert tokens_at(found) == {("mixed-0", "device"): first["prompt"] // BLOCK * BLOCK}
    refused = run_here("kv", "clear", "--all", "--yes", "--url", served.url)
    assert refused.returncode == 1
    assert "--store on" in refused.stderr
    assert served.metrics()("antiphon_store_up") == 0
    assert served.stop() == 0
