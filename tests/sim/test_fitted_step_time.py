"""The simulator takes a profile's step times: virtual time passes as the profile says."""

from antiphon.perf import FittedStepTime, Ramp
from antiphon.sim import ScriptedEngine, Submit, hashed_script, run_worker
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    TokenGenerated,
)

SETUP = WorkerSetup(
    config=SchedulerConfig(max_num_seqs=4, max_batched_tokens=16),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=200,
)
STEP_TIME = FittedStepTime(
    fixed_s=0.5,
    token=Ramp(starts=(0, 8), slopes_s=(0.25, 0.125)),
    sampled=Ramp(starts=(0,), slopes_s=(0.0625,)),
    chunk_s=0.03125,
    context_s=2**-10,
    attention_s=2**-12,
)


def request(id: str, prompt_len: int, max_tokens: int) -> Request:
    """Prompts share nothing, so that no prefix hit saves work."""
    sampling = SamplingParams(max_tokens=max_tokens, seed=0)
    return Request(id=RequestId(id), prompt=(ord(id) % 16,) * prompt_len, sampling=sampling)


def test_a_virtual_worker_takes_the_time_of_the_profile() -> None:
    engine = ScriptedEngine(hashed_script(16), STEP_TIME)
    stimuli = [Submit(0.0, request("a", 24, 3)), Submit(0.1, request("b", 12, 2))]
    log = run_worker(SETUP.build(), engine, stimuli)
    assert [at for at, _ in log.views] == [at + STEP_TIME.seconds(plan) for at, plan in log.plans]
    first = {
        what.request: at
        for at, what in reversed(log.happenings)
        if isinstance(what, TokenGenerated)
    }
    # The prompt of 24 takes two steps. 16 tokens: 0.5 + 8/4 + 8/8, a chunk, 16 of context, 136
    # pairs. Then its last 8 beside 8 of the other's: the same tokens, two chunks, a sample.
    one = 0.5 + 2 + 1 + 0.03125 + 16 / 1024 + 136 / 4096
    two = 0.5 + 2 + 1 + 0.0625 + 2 * 0.03125 + (24 + 8) / 1024 + (8 * 16 + 36 + 36) / 4096
    assert first[RequestId("a")] == one + two


def test_more_load_means_longer_steps() -> None:
    """What a scheduler that watches its step time will go by."""
    engine = ScriptedEngine(hashed_script(16), STEP_TIME)
    alone = run_worker(SETUP.build(), engine, [Submit(0.0, request("a", 8, 8))])
    crowd = [Submit(0.0, request(name, 8, 8)) for name in "abcd"]
    together = run_worker(SETUP.build(), engine, crowd)
    assert together.views[-1][0] > alone.views[-1][0]
    assert together.views[-1][0] < 4 * alone.views[-1][0]
