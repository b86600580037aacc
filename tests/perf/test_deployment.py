"""The roofline's laws: more work never takes less, more devices never more but for collectives."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import chunk, decodes, plan

from antiphon.errors import UsageError
from antiphon.perf import StepWork
from antiphon.perf.hardware import (
    DEVICES,
    MODELS,
    Deployment,
    Experts,
    ModelShape,
    Parallelism,
    device_of,
    shape_of,
)
from antiphon.types import StepPlan

H100 = device_of("h100")
FEW_BITS = 0.25
"""Weights small enough that every model fits eight of the devices with large memory."""


def deployment(
    model: str = "llama-3-8b", device: str = "h100", tensor: int = 1, pipeline: int = 1
) -> Deployment:
    return Deployment(
        model=shape_of(model),
        device=device_of(device),
        parallelism=Parallelism(tensor=tensor, pipeline=pipeline),
    )


SPLITS = [(1, 1), (2, 1), (4, 2), (8, 1), (1, 3), (2, 4)]


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    model = draw(st.sampled_from(MODELS))
    tensor, pipeline = draw(st.sampled_from(SPLITS))
    if model.heads % tensor:
        tensor = 1
    device = draw(st.sampled_from(DEVICES))
    return Deployment(
        model=model,
        device=replace(device, memory_bytes=4e12),
        parallelism=Parallelism(tensor=tensor, pipeline=pipeline),
        weight_bytes=draw(st.sampled_from((0.5, 1.0, 2.0))),
        kv_bytes=draw(st.sampled_from((1.0, 2.0))),
    )


prompts = st.tuples(st.integers(0, 9000), st.integers(2, 4000))
contexts = st.integers(1, 9000)
"""Of decodes."""
ROUND_OFF = 1 - 1e-9


def mixed(parts: list[tuple[int, int]], others: list[int]) -> StepPlan:
    return plan(*(chunk(*part) for part in parts), *decodes(others).chunks)


@given(deployments(), st.lists(prompts, max_size=3), st.lists(contexts, max_size=6), st.data())
@settings(deadline=None, max_examples=300)
def test_more_work_never_takes_less_time(
    made: Deployment, parts: list[tuple[int, int]], others: list[int], data: st.DataObject
) -> None:
    base = made.seconds(mixed(parts, others))
    assert base >= 0
    least = base * ROUND_OFF
    if made.parallelism.pipeline == 1:
        # A pipeline spreads one more over its batches, and may gain by it.
        assert made.seconds(mixed(parts, [*others, data.draw(contexts)])) >= least
    if parts:
        (start, length), rest = parts[0], parts[1:]
        assert made.seconds(mixed([(start, length + 1), *rest], others)) >= least
        assert made.seconds(mixed([(start + 1, length), *rest], others)) >= least
    if others:
        assert made.seconds(mixed(parts, [others[0] + 1, *others[1:]])) >= least
    if not others or made.parallelism.pipeline == 1:
        assert made.seconds(mixed([*parts, data.draw(prompts)], others)) >= least


@given(deployments(), st.integers(1, 200), st.integers(0, 100_000), st.integers(1, 20_000))
@settings(deadline=None, max_examples=200)
def test_whole_phases_grow_with_their_sizes(
    made: Deployment, sequences: int, context: int, tokens: int
) -> None:
    step_s = made.decode_step_s(sequences, context)
    assert made.decode_step_s(sequences, context + 1) >= step_s * ROUND_OFF
    if made.parallelism.pipeline == 1:
        assert made.decode_step_s(sequences + 1, context) >= step_s * ROUND_OFF
    prefill_s = made.prefill_s(tokens, context)
    assert made.prefill_s(tokens, context + 1) >= prefill_s * ROUND_OFF
    assert made.prefill_s(0) == made.decode_step_s(0, 0) == 0.0
    # A chunk that begins reads the weights again: more tokens in as many chunks, at least.
    if tokens % made.step_tokens:
        assert made.prefill_s(tokens + 1, context) >= prefill_s * ROUND_OFF


@given(deployments(), st.lists(contexts, min_size=1, max_size=20), st.integers(1, 200))
@settings(deadline=None, max_examples=80)
def test_a_run_takes_as_long_as_its_passes(
    made: Deployment, others: list[int], passes: int
) -> None:
    single = sum(made.seconds(decodes(one + more for one in others)) for more in range(passes))
    assert made.repeated_s(decodes(others), passes) == pytest.approx(single, rel=0.01)


@given(deployments(), contexts, contexts)
@settings(deadline=None, max_examples=100)
def test_a_decode_step_without_a_plan_is_that_of_its_plan(
    made: Deployment, one: int, other: int
) -> None:
    assert made.decode_step_s(2, one + other) == pytest.approx(made.seconds(decodes([one, other])))


@given(st.integers(1, 20_000), st.integers(0, 50_000), st.integers(1, 5000))
@settings(deadline=None, max_examples=100)
def test_a_prefill_takes_as_long_as_its_steps(tokens: int, start: int, size: int) -> None:
    made = replace(deployment(), step_tokens=size)
    total, at = 0.0, start
    while at < start + tokens:
        length = min(size, start + tokens - at)
        total += made.seconds_of(StepWork().plus(at, length, sampled=at + length == start + tokens))
        at += length
    assert made.prefill_s(tokens, start) == pytest.approx(total)


FAST_LINKS = replace(device_of("h200"), memory_bytes=4e12, peer_bytes_per_s=1e18)


@given(st.sampled_from(MODELS), st.lists(prompts, max_size=2), st.lists(contexts, max_size=6))
@settings(deadline=None, max_examples=200)
def test_but_for_collectives_more_tensor_parallel_devices_never_take_longer(
    model: ModelShape, parts: list[tuple[int, int]], others: list[int]
) -> None:
    """Links of no width leave latencies only: two a layer."""
    step = mixed(parts, others)
    times: list[float] = []
    for tensor in (1, 2, 4, 8):
        if model.heads % tensor:
            break
        made = Deployment(
            model=model,
            device=FAST_LINKS,
            parallelism=Parallelism(tensor=tensor),
        )
        latencies_s = 2 * made.model.layers * 10e-6 if tensor > 1 and step.chunks else 0.0
        times.append(made.seconds(step) - latencies_s)
    assert all(more <= fewer / ROUND_OFF + 1e-9 for fewer, more in pairwise(times))


def test_collectives_cost_what_rings_move() -> None:
    one, two = deployment("llama-3-8b"), deployment("llama-3-8b", tensor=2)
    prompt = plan(chunk(0, 2048, sampled=False))
    compute_s = (one.seconds(prompt) - 32 * H100.launch_s) / 2
    moved = 2 * 32 * 2 * (1 / 2) * 2048 * 4096 * 2
    expected = compute_s + 32 * H100.launch_s + 64 * 10e-6 + moved / H100.peer_bytes_per_s
    assert two.seconds(prompt) == pytest.approx(expected)


def test_collectives_beyond_a_node_go_over_its_network() -> None:
    inside = Deployment(
        model=shape_of("llama-3-70b"), device=H100, parallelism=Parallelism(tensor=8)
    )
    small_nodes = replace(inside, device=replace(H100, node_devices=4))
    prompt = plan(chunk(0, 2048))
    moved = 2 * 80 * 2 * (7 / 8) * 2048 * 8192 * 2
    slower_s = moved / H100.network_bytes_per_s - moved / H100.peer_bytes_per_s
    assert small_nodes.seconds(prompt) - inside.seconds(prompt) == pytest.approx(slower_s)


# ── experts ──────────────────────────────────────────────────────────────────────────────────────


def test_a_token_reads_its_own_experts_and_many_tokens_read_all() -> None:
    made = deployment("mixtral-8x7b", "h200")
    one = made.model.sparse_layers * made.model.ffn_parameters(14336) * 2.0
    byte_s = 1 / (made.device.memory_bytes_per_s * made.device.memory_efficiency)
    plain = replace(made, model=replace(made.model, experts=replace(_experts(made), routed=2)))
    alone_s, many_s = made.decode_step_s(1, 0), made.decode_step_s(64, 64)
    # Of two experts that all tokens go to, both are read: as of eight by one token.
    router_s = made.model.layers * made.model.hidden * 6 * 2.0 * byte_s
    assert alone_s - plain.decode_step_s(1, 0) == pytest.approx(router_s)
    # 64 tokens of which each goes to two of eight leave one unread once in a hundred million.
    assert many_s - plain.decode_step_s(64, 64) == pytest.approx(router_s + 6 * one * byte_s)


def test_in_between_experts_are_met_by_chance() -> None:
    made = deployment("mixtral-8x7b", "h200")
    one_s = made.model.sparse_layers * made.model.ffn_parameters(14336) * 2.0
    one_s /= made.device.memory_bytes_per_s * made.device.memory_efficiency
    entry_s = made.kv_bytes_per_token / (made.device.memory_bytes_per_s * 0.8)
    more_s = made.decode_step_s(2, 0) - made.decode_step_s(1, 0)
    met = 8 * (1 - (6 / 8) ** 2) - 2
    assert more_s == pytest.approx(met * one_s + entry_s)


def _experts(made: Deployment) -> Experts:
    assert made.model.experts is not None
    return made.model.experts


@pytest.mark.parametrize(
    ("start", "length", "operations"),
    [
        (0, 4096, 2 * (192 + 128)),  # keys and values of each head
        (100_000, 1, 2 * (576 + 512)),  # in the latent space
    ],
)
def test_latent_attention_takes_the_cheaper_form(start: int, length: int, operations: int) -> None:
    """The operations of a pair and head, as the difference to a model with half the heads."""
    whole = replace(shape_of("deepseek-v3"), experts=None)
    device = replace(H100, memory_bytes_per_s=1e18, memory_bytes=1e13)
    work = StepWork().plus(start, length, sampled=False)

    def seconds(heads: int) -> float:
        model = replace(whole, heads=heads)
        flops = device.flops_16 * device.compute_efficiency
        matrices_s = 2.0 * model.dense_parameters * length / flops
        return Deployment(model=model, device=device).seconds_of(work) - matrices_s

    pair_s = (seconds(128) - seconds(64)) / (61 * 64 * work.attention)
    assert pair_s * H100.flops_16 * H100.compute_efficiency == pytest.approx(operations, rel=1e-3)


# ── pipelines ────────────────────────────────────────────────────────────────────────────────────


def test_prompts_follow_each_other_through_stages() -> None:
    whole, split = deployment(), deployment(pipeline=4)
    prompt = plan(chunk(0, 2048, sampled=False))
    occupied_s, lag_s = split.seconds(prompt), split.lag_s(prompt)
    assert occupied_s == pytest.approx(whole.seconds(prompt) / 4)
    hop_s = 10e-6 + 2048 * 4096 * 2 / H100.peer_bytes_per_s
    assert occupied_s + lag_s == pytest.approx(whole.seconds(prompt) + 3 * hop_s)
    assert whole.lag_s(prompt) == 0.0


@pytest.mark.parametrize("pipeline", [2, 4, 8])
@pytest.mark.parametrize("sequences", [1, 2, 7, 64])
def test_a_sequence_goes_through_all_stages_before_its_next_token(
    pipeline: int, sequences: int
) -> None:
    """Decodes of few sequences are no faster for more stages, however many those are."""
    whole, split = deployment(), deployment(pipeline=pipeline)
    alone_s = whole.decode_step_s(1, 1000)
    assert split.decode_step_s(sequences, sequences * 1000) >= alone_s
    step = decodes([1000] * sequences)
    assert split.lag_s(step) == 0.0
    assert split.seconds(step) == split.decode_step_s(sequences, sequences * 1000)


def test_with_many_sequences_stages_work_at_once() -> None:
    """Where KV is all that is read, two stages make as many tokens in half the time."""
    whole, split = deployment(), deployment(pipeline=2)
    many = 4096, 4096 * 8000
    assert split.decode_step_s(*many) == pytest.approx(whole.decode_step_s(*many) / 2, rel=0.05)


def test_the_longest_stage_decides() -> None:
    uneven = deployment("qwen3-8b", pipeline=5)
    assert uneven.parallelism.stage_share(36) == 8 / 36
    prompt = plan(chunk(0, 2048, sampled=False))
    whole_s = deployment("qwen3-8b").seconds(prompt)
    assert uneven.seconds(prompt) == pytest.approx(whole_s * 8 / 36)
    even = 5 * (H100.memory_bytes * 0.92) - uneven.weights_bytes
    assert uneven.kv_tokens < even / uneven.kv_bytes_per_token


def test_a_prompt_of_several_chunks_lags_once() -> None:
    split = replace(deployment(pipeline=4), step_tokens=1024)
    chunks = [StepWork().plus(at, 1024, sampled=at == 3072) for at in range(0, 4096, 1024)]
    occupied_s = sum(split.seconds_of(one) for one in chunks)
    lag_s = split.lag_s(plan(chunk(3072, 1024)))
    assert split.prefill_s(4096) == pytest.approx(occupied_s + lag_s)
    assert split.occupied_s(4096) == pytest.approx(occupied_s)
    assert replace(split, parallelism=Parallelism()).occupied_s(4096) == pytest.approx(
        deployment().prefill_s(4096), rel=0.01
    )


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


def test_what_the_weights_leave_is_for_kv() -> None:
    made = deployment("llama-3-70b", tensor=4)
    left = 4 * 80e9 * 0.92 - made.weights_bytes
    assert made.kv_tokens == int(left / (320 * 1024))
    assert replace(made, kv_bytes=1.0).kv_tokens == pytest.approx(2 * made.kv_tokens, abs=1)


def test_kv_heads_are_copied_once_there_are_more_devices() -> None:
    eight, sixteen = (deployment("llama-3-70b", tensor=tensor) for tensor in (8, 16))
    left = 16 * 80e9 * 0.92 - sixteen.weights_bytes
    assert sixteen.kv_tokens == int(left / (2 * 320 * 1024))
    left = 8 * 80e9 * 0.92 - eight.weights_bytes
    assert eight.kv_tokens == int(left / (320 * 1024))


def test_latent_kv_is_on_every_device() -> None:
    made = deployment("deepseek-v3", "h200", tensor=16)
    left = 16 * 141e9 * 0.92 - made.weights_bytes
    assert made.kv_tokens == int(left / (16 * 70_272))


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "device", "tensor", "pipeline", "said"),
    [
        ("opt-13b", "a100", 3, 1, "3 does not divide the 40 heads .* use one of 1, 2, 4, 5, 8, 10"),
        ("opt-13b", "a100", 0, 1, "tensor parallelism 0 .* use one of 1, 2"),
        ("opt-13b", "a100", 1, 41, "opt-13b has 40 layers, use 1 to 40 stages"),
        ("opt-13b", "a100", 1, 0, "pipeline parallelism 0"),
        ("llama-3-70b", "h100", 1, 1, "take 141 GB of 1 × 80 GB, .* more devices, or fewer bits"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(
    model: str, device: str, tensor: int, pipeline: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        deployment(model, device, tensor, pipeline)


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight_bytes", 0), ("kv_bytes", -1), ("kv_bytes", 16), ("step_tokens", 0)],
)
def test_numbers_have_limits(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        replace(deployment(), **{field: value})


def test_fewer_bits_make_it_fit() -> None:
    made = Deployment(model=shape_of("llama-3-70b"), device=H100, weight_bytes=0.5)
    assert made.kv_tokens > 10_000
