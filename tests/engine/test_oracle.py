"""SmolLM2 against transformers: greedy tokens of 50 prompts, checked in one teacher-forced pass."""

import warnings

import pytest
import torch
from engine_driver import Driver, request_of
from smollm2 import model, oracle, prompts

from antiphon.checkpoint import ModelSpec
from antiphon.engine.batch import Batch
from antiphon.engine.kv_memory import KvMemory
from antiphon.types import SequenceKey

OUTPUTS = 24
TIE = 1e-4
CLOSE = 1e-3


class Recorder:
    """A model that keeps the logits of every pass."""

    def __init__(self) -> None:
        self._model = model()
        self.logits: list[torch.Tensor] = []

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    @property
    def context_len(self) -> int:
        return self._model.context_len

    def forward(self, batch: Batch, memory: KvMemory) -> torch.Tensor:
        self.logits.append(self._model.forward(batch, memory).clone())
        return self.logits[-1]


def test_the_prompts_are_varied() -> None:
    lengths = sorted(map(len, prompts()))
    assert len(set(prompts())) >= 49
    assert (len(lengths), lengths[0], lengths[-1]) == (50, 1, 2000)


@pytest.mark.parametrize("half", [0, 1])
def test_every_greedy_token_is_the_oracles_argmax(half: int) -> None:
    mine = prompts()[half::2]
    requests = [
        request_of(f"r{number:02}", prompt, max_tokens=OUTPUTS)
        for number, prompt in enumerate(mine)
    ]
    recorder = Recorder()
    driver = Driver(recorder, pages=600)  # type: ignore[arg-type]
    tracks = driver.run(requests, chunk=max(map(len, mine)))
    # One chunk a prompt and all of them in each step: step k made everyone's output k.
    ours = torch.stack(recorder.logits)
    assert ours.shape[:2] == (OUTPUTS, len(mine))
    ties = 0
    for row, request in enumerate(requests):
        outputs = tracks[SequenceKey(request.id, 0)].outputs
        ids = torch.tensor([[*request.prompt, *outputs[:-1]]])
        with torch.inference_mode():
            expected = oracle()(ids, logits_to_keep=OUTPUTS, use_cache=False).logits[0]
        torch.testing.assert_close(ours[:, row], expected, atol=CLOSE, rtol=0)
        behind = expected.amax(1) - expected.gather(1, torch.tensor(outputs)[:, None])[:, 0]
        assert (behind <= TIE).all(), f"prompt {row}: not the argmax at {behind.argmax()}"
        ties += int((behind > 0).sum())
    if ties:
        warnings.warn(f"{ties} tokens were chosen in ties within {TIE}", stacklevel=1)
