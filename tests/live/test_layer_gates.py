"""Where layers are cut, and who waits for them."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from antiphon.live.layer_gates import LayerGates, group_starts, parts_of
from antiphon.store.transfer import LEAST_BYTES, STRIPE_BYTES


@given(st.integers(1, 80), st.integers(1, 40), st.integers(1, 64))
def test_groups_cover_each_layer_once_in_parts_that_can_be_copied(
    layers: int, layer_stripes: int, most: int
) -> None:
    page_bytes = layers * layer_stripes * STRIPE_BYTES
    starts = group_starts(layers, page_bytes, most)
    assert starts[0] == 0 and list(starts) == sorted(set(starts))
    assert len(starts) <= min(most, layers)
    parts = parts_of(starts, layers, page_bytes)
    assert parts[0].start == 0 and parts[-1].end == page_bytes
    assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    if len(parts) > 1:
        assert all(part.end - part.start >= LEAST_BYTES for part in parts)
        assert all(part.start % STRIPE_BYTES == 0 for part in parts)


def test_what_cannot_be_cut_comes_at_once() -> None:
    assert group_starts(3, 4096, 8) == (0,), "no whole layers"
    assert group_starts(4, 4 * 100, 8) == (0,), "no whole stripes"
    assert group_starts(4, 4 * 64, 8) == (0,), "too small"
    assert group_starts(4, 4096, 1) == (0,)
    assert group_starts(30, 368_640, 32) == tuple(range(30))


def test_whoever_waits_goes_on_when_the_gate_opens() -> None:
    gates = LayerGates((0, 1, 2))
    wait, passed = gates.waiting(60.0), []

    def engine() -> None:
        passed.extend([wait.wait(group) for group in range(3)])

    thread = threading.Thread(target=engine)
    thread.start()
    for here in (1, 2, 3):
        gates.open(here)
    thread.join(30)
    assert passed == [True] * 3 and wait.starts == (0, 1, 2)


def test_nobody_waits_for_what_will_not_come() -> None:
    gates = LayerGates((0, 1))
    gates.open(1)
    gates.close()
    wait = gates.waiting(60.0)
    assert [wait.wait(0), wait.wait(1)] == [True, False]


def test_the_waits_of_a_step_are_bounded_together() -> None:
    """On a clock of its own: each wait is said to have taken as long as is left."""
    times = iter([0.0, 0.03, 1.0, 1.0])
    gates = LayerGates((0, 1, 2), clock=lambda: next(times))
    gates.open(2)
    wait = gates.waiting(0.03)
    assert wait.wait(1) and not wait.wait(2)
