"""What overlap leaves exposed is what a simulation of layer after layer leaves."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import chunk, plan

from antiphon.core.costs import TransferTime
from antiphon.perf import LinkTime, OverlappedTransfer
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of

KV_BYTES = 1000


class Even:
    """So much for each token of a prompt."""

    def __init__(self, token_s: float) -> None:
        self.token_s = token_s

    def prefill_s(self, tokens: int, start: int = 0) -> float:
        return tokens * self.token_s

    def decode_step_s(self, sequences: int, context_tokens: int) -> float:
        raise AssertionError("a transfer knows of no decode")


def layer_by_layer(link: LinkTime, prefill_s: float, layers: int, size_bytes: int) -> float:
    """When the last layer is over the link, counted from the end of the prefill."""
    free_at = 0.0
    for layer in range(1, layers + 1):
        computed_at = prefill_s * layer / layers
        free_at = max(free_at, computed_at) + size_bytes / layers / link.bytes_per_s
    return link.setup_s + free_at - prefill_s


links = st.builds(LinkTime, setup_s=st.floats(0, 0.1), bytes_per_s=st.floats(1e4, 1e11))
transfers = st.builds(
    OverlappedTransfer,
    link=links,
    prefill=st.floats(1e-7, 1e-2).map(Even),
    layers=st.integers(1, 100),
    kv_bytes_per_token=st.just(KV_BYTES),
    serial_tokens=st.just(0),
)
prompts = st.integers(0, 100_000)


@given(transfers, prompts)
@settings(deadline=None, max_examples=300)
def test_what_is_exposed_is_what_is_left_when_the_last_layer_is_computed(
    transfer: OverlappedTransfer, tokens: int
) -> None:
    expected = layer_by_layer(
        transfer.link, transfer.prefill.prefill_s(tokens), transfer.layers, tokens * KV_BYTES
    )
    assert transfer.seconds(tokens * KV_BYTES) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(transfers, prompts)
@settings(deadline=None, max_examples=200)
def test_overlap_hides_all_but_a_layer_at_best_and_nothing_at_worst(
    transfer: OverlappedTransfer, tokens: int
) -> None:
    size = tokens * KV_BYTES
    serial_s, exposed_s = transfer.link.seconds(size), transfer.seconds(size)
    last_s = size / transfer.layers / transfer.link.bytes_per_s
    assert transfer.link.setup_s + last_s <= exposed_s * (1 + 1e-9)
    assert exposed_s <= serial_s * (1 + 1e-9)
    at_once = replace(transfer, prefill=Even(0.0))
    assert at_once.seconds(size) == pytest.approx(serial_s)
    one_layer = replace(transfer, layers=1)
    assert one_layer.seconds(size) == pytest.approx(serial_s)


@given(transfers, prompts, prompts)
@settings(deadline=None, max_examples=200)
def test_more_bytes_never_take_less(transfer: OverlappedTransfer, one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert transfer.seconds(less * KV_BYTES) <= transfer.seconds(more * KV_BYTES) * (1 + 1e-9)


@given(transfers, prompts, st.integers(1, 50_000))
@settings(deadline=None, max_examples=100)
def test_small_prompts_are_sent_as_a_whole(
    transfer: OverlappedTransfer, tokens: int, serial_tokens: int
) -> None:
    careful = replace(transfer, serial_tokens=serial_tokens)
    expected = transfer.link if tokens < serial_tokens else transfer
    assert careful.seconds(tokens * KV_BYTES) == expected.seconds(tokens * KV_BYTES)


def test_on_splitwises_machines_almost_all_of_a_long_prompt_is_hidden() -> None:
    """Llama-2-70B-like KV from 8 H100 over 400 Gb/s: its simulator takes 90 % for hidden."""
    phases = Deployment(
        model=shape_of("llama-3-70b"),
        device=device_of("h100"),
        parallelism=Parallelism(tensor=8),
    )
    size = 1500 * phases.kv_bytes_per_token
    link = LinkTime(setup_s=0.0, bytes_per_s=50e9)
    transfer = OverlappedTransfer(
        link=link, prefill=phases, layers=80, kv_bytes_per_token=phases.kv_bytes_per_token
    )
    assert phases.seconds(plan(chunk(0, 1500))) > link.seconds(size)
    assert transfer.seconds(size) == pytest.approx(link.seconds(size) / 80)
    small = 400 * phases.kv_bytes_per_token
    assert transfer.seconds(small) == link.seconds(small)


def test_it_is_a_transfer_time() -> None:
    time: TransferTime = OverlappedTransfer(
        link=LinkTime(setup_s=0.5, bytes_per_s=1.0),
        prefill=Even(1.0),
        layers=2,
        kv_bytes_per_token=1.0,
        serial_tokens=0,
    )
    assert time.seconds(0) == time.seconds(-1) == 0.5
    assert time.seconds(4) == 0.5 + 2.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("kv_bytes_per_token", 0),
        ("kv_bytes_per_token", float("nan")),
        ("serial_tokens", -1),
    ],
)
def test_impossible_numbers_are_refused(field: str, value: float) -> None:
    made = OverlappedTransfer(
        link=LinkTime(setup_s=0, bytes_per_s=1), prefill=Even(1), layers=1, kv_bytes_per_token=1
    )
    with pytest.raises(ValueError, match=field):
        replace(made, **{field: value})
