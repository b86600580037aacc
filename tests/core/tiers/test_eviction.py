"""Orders of eviction: what any of them promises, then each by itself."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers import EvictionPolicy, policy_named
from antiphon.core.tiers.eviction import HitDensity, LeastRecent, RecomputeCost, S3Fifo
from antiphon.core.tiers.eviction.ranked_keys import RankedKeys
from antiphon.errors import BugError
from antiphon.types import StoreConfig

NAMES = ("hit-density", "lru", "s3-fifo", "cost")

EVERYTHING = (HitDensity, LeastRecent, RecomputeCost, S3Fifo, RankedKeys)

keys = st.integers(0, 11).map(lambda number: bytes([number]))
calls = st.lists(
    st.tuples(st.sampled_from(("add", "use", "idle", "busy", "evict", "remove")), keys),
    max_size=120,
)


def run(policy: EvictionPolicy, steps: Sequence[tuple[str, bytes]]) -> list[bytes]:
    """Make the calls that are allowed; returns who was evicted, in order."""
    here: dict[bytes, bool] = {}
    evicted: list[bytes] = []
    for position, (call, key) in enumerate(steps):
        idle = {one for one, may_go in here.items() if may_go}
        if call == "evict":
            victim = policy.victim()
            assert (victim in idle) if idle else victim is None, "an idle block, if there is one"
            assert policy.victim() == victim, "asking again changes nothing"
            if victim is not None:
                policy.remove(victim, evicted=True)
                del here[victim]
                evicted.append(victim)
        elif call == "add" and key not in here:
            policy.add(key, position % 5)
            here[key] = False
        elif key not in here:
            continue
        elif call == "use":
            policy.use(key)
        elif call == "remove":
            policy.remove(key, evicted=False)
            del here[key]
        elif call == "idle" and not here[key]:
            policy.idle(key)
            here[key] = True
        elif call == "busy" and here[key]:
            policy.busy(key)
            here[key] = False
    return evicted


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=150)
@given(steps=calls)
def test_a_victim_is_idle_and_the_same_calls_give_the_same_victims(
    name: str, steps: list[tuple[str, bytes]]
) -> None:
    assert run(policy_named(name)(), steps) == run(policy_named(name)(), steps)


@settings(deadline=None, max_examples=150)
@given(steps=calls)
def test_least_recent_is_the_order_of_last_uses(steps: list[tuple[str, bytes]]) -> None:
    class Slow:
        """The same, by searching."""

        def __init__(self) -> None:
            self.order: list[bytes] = []
            self.idle_keys: set[bytes] = set()

        def add(self, key: bytes, position: int) -> None:
            self.order.append(key)

        def use(self, key: bytes) -> None:
            self.order.remove(key)
            self.order.append(key)

        def idle(self, key: bytes) -> None:
            self.idle_keys.add(key)

        def busy(self, key: bytes) -> None:
            self.idle_keys.discard(key)

        def victim(self) -> bytes | None:
            return next((key for key in self.order if key in self.idle_keys), None)

        def remove(self, key: bytes, *, evicted: bool) -> None:
            self.order.remove(key)
            self.idle_keys.discard(key)

    assert run(LeastRecent(), steps) == run(Slow(), steps)


def put(policy: EvictionPolicy, key: bytes, *, limit: int, here: list[bytes]) -> None:
    """An unchained block into a memory of `limit` blocks."""
    if len(here) >= limit:
        victim = policy.victim()
        assert victim is not None
        policy.remove(victim, evicted=True)
        here.remove(victim)
    policy.add(key, 0)
    policy.idle(key)
    here.append(key)


@pytest.mark.parametrize("make", [HitDensity, S3Fifo, RecomputeCost])
def test_blocks_that_are_wanted_once_do_not_push_out_those_wanted_again(
    make: Callable[[], EvictionPolicy],
) -> None:
    """Three quarters of the blocks of real traces are never wanted again."""
    policy, here = make(), []
    hot = [b"hot%d" % number for number in range(10)]
    for key in hot:
        put(policy, key, limit=20, here=here)
    for number in range(200):
        for key in hot:
            policy.use(key)
        put(policy, b"once%d" % number, limit=20, here=here)
    assert set(hot) <= set(here)


def test_least_recent_lets_a_long_scan_push_out_everything() -> None:
    """Why it is not the default."""
    policy, here = LeastRecent(), []
    for number in range(10):
        put(policy, b"hot%d" % number, limit=20, here=here)
        policy.use(b"hot%d" % number)
    for number in range(20):
        put(policy, b"once%d" % number, limit=20, here=here)
    assert all(key.startswith(b"once") for key in here)


@pytest.mark.parametrize("name", NAMES)
def test_memory_follows_the_blocks(name: str) -> None:
    policy, here = policy_named(name)(), []
    for number in range(20_000):
        put(policy, b"%d" % number, limit=50, here=here)
        policy.use(here[number % len(here)])
        policy.busy(here[0])
        policy.idle(here[0])
    assert things_in(policy) < 50 * 40
    assert things_in(policy) > 50, "it has been looked at"


def things_in(thing: object) -> int:
    """Entries of all containers that a policy is made of."""
    if isinstance(thing, dict | list):
        nested = thing.values() if isinstance(thing, dict) else thing
        return len(thing) + sum(map(things_in, nested))
    if isinstance(thing, EVERYTHING):
        return sum(map(things_in, vars(thing).values()))
    return 0


def test_what_comes_back_soon_is_kept_longer() -> None:
    policy, here = S3Fifo(), []
    for number in range(20):
        put(policy, b"%d" % number, limit=20, here=here)
    put(policy, b"new", limit=20, here=here)
    assert b"0" not in here
    put(policy, b"0", limit=20, here=here)
    for number in range(30):
        put(policy, b"once%d" % number, limit=20, here=here)
    assert b"0" in here and b"new" not in here


def test_a_block_that_costs_more_stays_longer() -> None:
    policy = RecomputeCost()
    for key, position in ((b"late", 1000), (b"early", 0)):
        policy.add(key, position)
        policy.idle(key)
    assert policy.victim() == b"early"


def test_what_costs_much_goes_when_it_is_not_used_for_long() -> None:
    policy, here = RecomputeCost(), [b"late"]
    policy.add(b"late", 1000)
    policy.idle(b"late")
    for number in range(500):
        put(policy, b"%d" % number, limit=20, here=here)
    assert b"late" not in here


def test_each_choice_of_the_configuration_has_its_order() -> None:
    choices = StoreConfig.__annotations__["policy"].__metadata__[0].choices
    assert set(choices) == set(NAMES)
    assert [type(policy_named(name)()) for name in NAMES] == [
        HitDensity,
        LeastRecent,
        S3Fifo,
        RecomputeCost,
    ]
    with pytest.raises(BugError, match="'arc'"):
        policy_named("arc")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(keys, st.none() | st.integers(0, 9).map(float)), max_size=80))
def test_ranked_keys_are_a_sorted_list(steps: list[tuple[bytes, float | None]]) -> None:
    ranked, model = RankedKeys(), {}
    for key, rank in steps:
        if rank is None:
            ranked.discard(key)
            model.pop(key, None)
        else:
            ranked.put(key, rank)
            model[key] = rank
        assert ranked.lowest() == min(model, key=lambda one: (model[one], one), default=None)
        assert len(ranked) == len(model) and all(one in ranked for one in model)
