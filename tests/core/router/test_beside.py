"""What lies beside a worker is for that worker alone; what a store has is for its host's."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from kv_holder import Holder

from antiphon.core.router import PrefixIndex
from antiphon.types import STORE, BlockKey, Tier, WorkerId

WORKERS = [WorkerId("w0"), WorkerId("w1"), WorkerId("box2.w0"), WorkerId("box3.w0")]
STORES = {
    WorkerId("w0"): STORE,
    WorkerId("w1"): STORE,
    WorkerId("box2.w0"): WorkerId("box2.store"),
    WorkerId("box3.w0"): WorkerId("box3.store"),
}
EVERYBODY = [*WORKERS, *dict.fromkeys(STORES.values())]
KEYS = [bytes([number]) * 32 for number in range(6)]
TIERS = [Tier.HOST, Tier.DISK]
HOLDINGS = st.dictionaries(
    st.tuples(st.sampled_from(EVERYBODY), st.sampled_from([Tier.DEVICE, *TIERS])),
    st.frozensets(st.sampled_from(KEYS)),
)
Held = dict[tuple[WorkerId, Tier], frozenset[BlockKey]]


def told(held: Held) -> PrefixIndex:
    """An index that has heard of all of it; stores have no device."""
    index = PrefixIndex()
    for name in EVERYBODY:
        holder = Holder(name)
        for (who, tier), keys in held.items():
            if who == name and not (who not in WORKERS and tier is Tier.DEVICE):
                for key in sorted(keys):
                    holder.change(key, tier, True)
        for message in holder.dump():
            assert index.apply(name, holder.incarnation, message, 0.0) is None
    return index


def fastest(key: BlockKey, tiers: dict[Tier, frozenset[BlockKey]]) -> Tier | None:
    return next((tier for tier in TIERS if key in tiers[tier]), None)


def prefix(keys: Sequence[BlockKey], tiers: dict[Tier, frozenset[BlockKey]]) -> list[Tier]:
    """The tier of each block of the longest prefix, by definition."""
    found: list[Tier] = []
    for key in keys:
        tier = fastest(key, tiers)
        if tier is None:
            break
        found.append(tier)
    return found


@settings(deadline=None, max_examples=200)
@given(HOLDINGS, st.permutations(KEYS))
def test_a_worker_reaches_its_hosts_store_and_what_lies_beside_it(
    held: Held, keys: list[BlockKey]
) -> None:
    index = told(held)
    nothing: frozenset[BlockKey] = frozenset()
    for worker in WORKERS:
        tiers = {
            tier: held.get((worker, tier), nothing) | held.get((STORES[worker], tier), nothing)
            for tier in TIERS
        }
        runs = index.reached(index.reach_of(worker), keys)
        assert [run.tier for run in runs for _ in range(run.blocks)] == prefix(keys, tiers)
    shared = {tier: held.get((STORE, tier), nothing) for tier in TIERS}
    found = index.match(keys)
    assert [run.tier for run in found.store for _ in range(run.blocks)] == prefix(keys, shared)
    own = {worker: held.get((worker, Tier.DEVICE), nothing) for worker in WORKERS}
    assert dict(found.workers) == {
        worker: blocks
        for worker in WORKERS
        if (blocks := next((n for n, key in enumerate(keys) if key not in own[worker]), len(keys)))
    }


@settings(deadline=None, max_examples=100)
@given(HOLDINGS, st.permutations(KEYS))
def test_whoever_has_most_beside_it_is_named(held: Held, keys: list[BlockKey]) -> None:
    index = told(held)
    reach = {
        worker: max(
            next((n for n, key in enumerate(keys) if key not in there), len(keys))
            for tier in TIERS
            for there in [held.get((worker, tier), frozenset())]
        )
        for worker in WORKERS
    }
    named = index.beside(keys).longest(8, 0)
    assert {worker for _, worker in named} == {one for one, blocks in reach.items() if blocks}
    if named:
        assert named[0][0] == max(reach.values())
    assert index.reach_differs, "there are workers on other hosts"
