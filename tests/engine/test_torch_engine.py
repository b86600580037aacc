"""Plans through the engine: the same tokens whatever happens around them, and nothing kept."""

from dataclasses import replace

import pytest
import torch
from engine_driver import Driver, Track, request_of, resumed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import DTYPES, EVEN_SPEC, ODD_SPEC, model_from, model_of, tensors_of

from antiphon.engine.kv_memory import KvDtype
from antiphon.errors import BugError
from antiphon.types import Chunk, PageCopy, Request, RequestId, SequenceKey, StepPlan

MODELS = {dtype: model_of(EVEN_SPEC, dtype=dtype) for dtype in DTYPES}
MODEL = MODELS["int8"]
VOCABULARY = EVEN_SPEC.vocab_size
TOKENS = st.integers(0, VOCABULARY - 1)
PROMPTS = st.lists(TOKENS, min_size=1, max_size=100)
SAMPLING = st.sampled_from(
    [
        {},
        {"temperature": 1.0},
        {"temperature": 1.5, "top_p": 0.8, "top_k": 50, "min_p": 0.001},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 1.0, "repetition_penalty": 1.3, "logprobs": 2},
    ]
)


def outputs_of(tracks: dict[SequenceKey, Track], request: Request) -> list[list[int]]:
    return [track.outputs for key, track in sorted(tracks.items()) if key.request == request.id]


def alone(
    request: Request, dtype: str = "int8", kv_dtype: KvDtype = KvDtype.FP32
) -> list[list[int]]:
    driver = Driver(MODELS[dtype], kv_dtype=kv_dtype)
    tracks = driver.run([request])
    assert driver.engine.held == 0
    return outputs_of(tracks, request)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_tokens_depend_on_neither_neighbours_nor_chunks_nor_pages(
    dtype: str, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 4), "requests")
    requests = [
        request_of(
            f"r{number}",
            data.draw(PROMPTS, "prompt"),
            seed=number,
            n=data.draw(st.integers(1, 3), "n"),
            max_tokens=data.draw(st.integers(1, 10), "max_tokens"),
            **data.draw(SAMPLING, "sampling"),
        )
        for number in range(count)
    ]
    page_tokens = data.draw(st.sampled_from([1, 16, 64]), "page_tokens")
    pages = 2000 if page_tokens == 1 else 200
    kv_dtype = data.draw(st.sampled_from(KvDtype), "kv_dtype")
    driver = Driver(MODELS[dtype], page_tokens=page_tokens, pages=pages, kv_dtype=kv_dtype)
    tracks = driver.run(requests, chunk=data.draw(st.sampled_from([1, 7, 64, 1000]), "chunk"))
    for request in requests:
        assert outputs_of(tracks, request) == alone(request, dtype, kv_dtype)
    assert driver.engine.held == 0


@settings(deadline=None, max_examples=30)
@given(PROMPTS, SAMPLING, st.integers(1, 2), st.data())
def test_a_resumed_sequence_goes_on_as_if_nothing_had_happened(
    prompt: list[int], sampling: dict[str, object], n: int, data: st.DataObject
) -> None:
    request = request_of("r", prompt, n=n, max_tokens=12, **sampling)
    whole = alone(request)
    cuts = [data.draw(st.integers(1, 11), "cut") for _ in range(n)]
    again = resumed(request, *(said[:cut] for said, cut in zip(whole, cuts, strict=True)))
    assert alone(again) == whole


@settings(deadline=None, max_examples=30)
@given(PROMPTS, SAMPLING, st.integers(1, 11), st.integers(0, 6))
def test_a_preempted_sequence_counts_no_output_twice_and_loses_none(
    prompt: list[int], sampling: dict[str, object], steps: int, keep_pages: int
) -> None:
    """Recomputed in the same attempt, with or without a prefix hit that skips known outputs."""
    request = request_of("r", prompt, max_tokens=12, **sampling)
    driver = Driver(MODEL, page_tokens=16)
    [track] = driver.start(request)
    tracks = {track.key: track}
    while not track.finished:
        if len(track.outputs) == steps and track.computed > len(prompt):
            driver.preempt(track, min(keep_pages, track.computed // 16))
            steps = -1
        driver.step([track], tracks)
    driver.end([track])
    assert [track.outputs] == alone(request)
    assert driver.engine.held == 0


@pytest.mark.parametrize("kv_dtype", KvDtype)
def test_a_fork_does_not_write_into_its_siblings_page(kv_dtype: KvDtype) -> None:
    request = request_of("r", range(20), n=3, temperature=2.0, max_tokens=20)
    tracks = Driver(MODEL, kv_dtype=kv_dtype).run([request])
    assert len({tuple(track.outputs) for track in tracks.values()}) == 3
    for number in range(3):
        single = resumed(request, *(track.outputs[:1] for track in tracks.values()))
        assert (
            alone(single, kv_dtype=kv_dtype)[number]
            == tracks[SequenceKey(request.id, number)].outputs
        )


def test_logprobs_come_with_the_samples() -> None:
    request = request_of("r", [1, 2, 3], logprobs=3, max_tokens=4)
    driver = Driver(MODEL)
    [track] = driver.run([request]).values()
    for index, token in enumerate(track.outputs):
        logprobs = driver.samples[track.key, index].logprobs
        assert logprobs is not None
        assert logprobs.top[0] == (token, logprobs.chosen)
        assert len(logprobs.top) == 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flaw", [torch.nan, torch.inf, -torch.inf])
def test_a_poisoned_sequence_faults_alone(dtype: str, flaw: float) -> None:
    tensors = tensors_of(EVEN_SPEC)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    spec = replace(EVEN_SPEC, tied_embeddings=False)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.embed_tokens.weight"][99, 7] = flaw
    model = model_from(spec, tensors, dtype)
    good, bad = request_of("good", range(50)), request_of("bad", [5, 99, 6], n=2)
    driver = Driver(model)
    tracks = driver.run([good])
    assert not any(track.fault for track in tracks.values())
    mixed = driver.start(good) + driver.start(bad)
    by_key = {track.key: track for track in mixed}
    by_key[SequenceKey(bad.id, 1)] = Track(bad, 1, list(bad.prompt))
    result = driver.step(mixed, by_key)
    assert [(fault.request, fault.sequence) for fault in result.faults] == [("bad", 0), ("bad", 1)]
    good_key = SequenceKey(good.id, 0)
    assert [sample.token for sample in result.samples] == tracks[good_key].outputs[:1]
    driver.end(by_key.values())
    assert driver.engine.held == 0


def test_elapsed_time_is_reported() -> None:
    driver = Driver(MODEL)
    driver.run([request_of("r", range(50), max_tokens=2)])
    assert all(result.elapsed_s > 0 for result in driver.results)


def test_an_ended_id_can_be_used_again() -> None:
    driver = Driver(MODEL)
    first, second = request_of("r", [1, 2, 3]), request_of("r", [4, 5], presence_penalty=1.0)
    driver.run([first])
    assert outputs_of(driver.run([second]), second) == alone(second)


REQUEST = request_of("r", [1, 2, 3])
BAD_CHUNKS = {
    "token id outside": Chunk(request=REQUEST, sequence=0, tokens=(VOCABULARY,), start=0),
    "token id outside the": Chunk(request=REQUEST, sequence=0, tokens=(-1,), start=0),
    "page 200 does not exist": Chunk(
        request=REQUEST, sequence=0, tokens=(1,), start=0, new_pages=(200,)
    ),
    "do not fit": Chunk(request=REQUEST, sequence=0, tokens=(1,) * 17, start=0, new_pages=(1,)),
    "0 tokens": Chunk(request=REQUEST, sequence=0, tokens=(), start=0, new_pages=(1,)),
    "can't go on at 2": Chunk(
        request=REQUEST, sequence=0, tokens=(1,), start=0, page_start=2, new_pages=(1,)
    ),
    "beyond the context": Chunk(
        request=REQUEST, sequence=0, tokens=(1,), start=EVEN_SPEC.context_len, new_pages=(1,)
    ),
    "of a sequence are unknown": Chunk(
        request=REQUEST, sequence=0, tokens=(1,), start=5, new_pages=(1,)
    ),
    "only 0 earlier ones are known": Chunk(
        request=REQUEST,
        sequence=0,
        tokens=(1, 2, 3),
        start=0,
        new_pages=(1,),
        samples=(0,),
        index=1,
    ),
}


@pytest.mark.parametrize("message", BAD_CHUNKS)
def test_a_plan_that_breaks_a_promise_is_a_bug(message: str) -> None:
    engine = Driver(MODEL).engine
    with pytest.raises(BugError, match=message):
        engine.forward(StepPlan(number=1, chunks=(BAD_CHUNKS[message],)))


def test_copying_a_page_that_does_not_exist_is_a_bug() -> None:
    with pytest.raises(BugError, match="page 999"):
        Driver(MODEL).engine.forward(StepPlan(number=1, chunks=(), copies=(PageCopy(999, 0),)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_odd_model_serves_too(dtype: str) -> None:
    tracks = Driver(model_of(ODD_SPEC, dtype=dtype), page_tokens=3).run(
        [request_of("r", range(30), n=2)]
    )
    assert all(len(track.outputs) == 8 for track in tracks.values())


@pytest.mark.parametrize("sampling", [{}, {"presence_penalty": 2.0, "repetition_penalty": 1.5}])
def test_a_prefix_hit_over_resumed_outputs_loses_none_of_them(sampling: dict[str, float]) -> None:
    """The next attempt lands where the pages still lie: known outputs are never fed again."""
    request = request_of("r", range(30), max_tokens=40, **sampling)
    [whole] = alone(request)
    driver = Driver(MODEL, page_tokens=16)
    [before] = driver.start(replace(request, id=RequestId("before")))
    tracks = {before.key: before}
    while len(before.outputs) < 25:
        driver.step([before], tracks)
    driver.end([before])
    again = resumed(request, before.outputs)
    [track] = driver.start(again)
    track.table, track.computed = before.table[:3], 48
    while not track.finished:
        driver.step([track], {track.key: track})
    assert track.outputs == whole
