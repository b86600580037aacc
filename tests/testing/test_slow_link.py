"""The link that stands in for netem: it delays, bounds and loses, and does nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.testing.slow_link import MOST_WAITING_BYTES, Direction

RATE, DELAY_S = 1e6, 0.01


@given(
    st.lists(
        st.tuples(st.integers(1, 1500), st.floats(0, 0.01), st.floats(0, 1, exclude_max=True))
    ),
    st.sampled_from([0.0, 0.3]),
)
def test_packets_come_in_order_not_early_and_no_faster_than_the_rate(
    packets: list[tuple[int, float, float]], loss: float
) -> None:
    way, now, sent, came = Direction(RATE, DELAY_S, loss), 0.0, [], []
    for number, (size, pause, draw) in enumerate(packets):
        now += pause
        packet = number.to_bytes(4, "big") * (size // 4 + 1)
        way.sent(packet, now, draw)
        if draw >= loss:
            sent.append((now, packet))
    carried, began = 0, None
    while (at := way.next_at()) is not None:
        for packet in way.due(at):
            came.append((at, packet))
            began = at if began is None else began
            carried += len(packet)
            assert carried - len(packet) <= (at - began) * RATE + 1e-3 * RATE + 1500
    assert [packet for _, packet in came] == [packet for _, packet in sent]
    assert (way.carried, way.lost) == (len(sent), len(packets) - len(sent))
    for (left, packet), (arrived, _) in zip(sent, came, strict=True):
        assert arrived >= left + DELAY_S + len(packet) / RATE - 1e-9


def test_what_comes_on_top_of_a_full_queue_is_lost() -> None:
    way = Direction(RATE, DELAY_S, 0.0)
    packet = bytes(1000)
    for _ in range(2 * MOST_WAITING_BYTES // len(packet)):
        way.sent(packet, 0.0, 0.5)
    assert len(way.due(1e9)) == MOST_WAITING_BYTES // len(packet)
