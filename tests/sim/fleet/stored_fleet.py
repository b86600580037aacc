"""Small fleets beside KV stores, and users who read documents over and over."""

from collections.abc import Iterator

from small_fleet import Ran, pool

from antiphon.core.goodput import ttft_s
from antiphon.perf import LinkTime
from antiphon.sim.fleet import Reach, StorePlan, TokenSession, TokenTurn
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.types import Role

BLOCK_BYTES = 64 * 1000
MIXED = (pool(Role.MIXED, 2, kv_tokens=1536),)
APART = (pool(Role.PREFILL, 2, kv_tokens=2048), pool(Role.DECODE, 1, kv_tokens=2048))
LINK = LinkTime(setup_s=0.001, bytes_per_s=1e9)


def plan(blocks: int, *, reach: Reach = Reach.FLEET, workers_per_host: int = 1, ssd: int = 0):
    return StorePlan(
        host_bytes=blocks * BLOCK_BYTES,
        workers_per_host=workers_per_host,
        reach=reach,
        link=LINK,
        ssd_bytes=ssd * BLOCK_BYTES,
        ssd=LinkTime(setup_s=0.0001, bytes_per_s=5e8),
    )


def document(number: int, tokens: int = 512) -> tuple[int, ...]:
    return answer_tokens(100 + number, 1, tokens)


def readers(
    rounds: int, documents: int, every_s: float = 0.3, tenants: int = 1
) -> Iterator[TokenSession]:
    """Each document is asked about in turn, round after round: more than workers keep."""
    for number in range(rounds * documents):
        which = number % documents
        question = answer_tokens(5000 + number, 2, 20)
        turn = TokenTurn((document(which), question), 10)
        tenant = str(number // documents % tenants)
        yield TokenSession(number * every_s, number, (turn,), tenant=tenant)


def cached(run: Ran) -> int:
    return sum(record.cached_tokens or 0 for record in run.records)


def mean_ttft_s(run: Ran) -> float:
    times = [ttft_s(record) or 0.0 for record in run.records]
    return sum(times) / len(times)


def all_answered(run: Ran) -> bool:
    return all(one.error is None and one.output_tokens == 10 for one in run.records)
