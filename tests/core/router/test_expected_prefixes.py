"""What is being computed, worker by worker: a count of who brings each block."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.kv import BlockKeys
from antiphon.core.router.expected_prefixes import ExpectedPrefixes
from antiphon.core.router.prompt_keys import KeySpace, PromptKeys
from antiphon.types import BlockKey, RequestId, WorkerId

KEYS = [bytes([number]) * 32 for number in range(6)]
WORKERS = [WorkerId(name) for name in "abc"]
REQUESTS = [RequestId(f"r{number}") for number in range(5)]

acts = st.one_of(
    st.tuples(
        st.just("add"), st.sampled_from(REQUESTS), st.sampled_from(WORKERS), st.integers(0, 6)
    ),
    st.tuples(st.just("drop"), st.sampled_from(REQUESTS)),
    st.tuples(st.just("left"), st.sampled_from(WORKERS)),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(acts, max_size=30), st.permutations(KEYS))
def test_a_worker_will_have_what_any_of_its_requests_brings(
    done: list[tuple[object, ...]], other: list[BlockKey]
) -> None:
    made, open_ = ExpectedPrefixes(), dict[RequestId, tuple[WorkerId, Sequence[BlockKey]]]()
    for act in done:
        match act:
            case ("add", request, worker, int(blocks)):
                chain = KEYS if blocks % 2 else other
                made.add(request, worker, chain[:blocks])  # pyright: ignore
                open_.pop(request, None)  # pyright: ignore
                if blocks:
                    open_[request] = (worker, chain[:blocks])  # pyright: ignore
            case ("drop", request):
                made.drop(request)  # pyright: ignore
                open_.pop(request, None)  # pyright: ignore
            case (_, worker):
                made.left(worker)  # pyright: ignore
                open_ = {one: at for one, at in open_.items() if at[0] != worker}
            case _:
                raise AssertionError(act)
    assert bool(made) == bool(open_)
    for keys in (KEYS, other):
        found = made.match(keys)
        for worker in WORKERS:
            there = {key for where, brought in open_.values() if where == worker for key in brought}
            depth = next((n for n, key in enumerate(keys) if key not in there), len(keys))
            assert found.get(worker, 0) == depth


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=60), st.integers(1, 8), st.integers(0, 9))
def test_keys_are_those_of_core_kv_however_they_are_asked_for(
    prompt: list[int], size: int, first: int
) -> None:
    """But for a block with the last token: that is always computed."""
    expected: list[BlockKey] = []
    maker = BlockKeys(identity=b"m", numerics="n", salt=b"s", block_tokens=size)
    maker.extend(expected, prompt, (len(prompt) - 1) // size)
    keys = PromptKeys(prompt, b"s", KeySpace(b"m", "n", size))
    assert len(keys) == len(expected)
    assert keys.first(first) == expected[:first]
    walk = iter(keys)
    half = [key for key, _ in zip(walk, range(first), strict=False)]
    assert half == expected[:first]
    assert list(keys) == expected
