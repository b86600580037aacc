"""Our engine: `TorchEngine`, given the plans that the scheduler would give it."""

import time
from itertools import count
from pathlib import Path

from contestant import Prompts, Setup, serve

from antiphon.checkpoint import open_checkpoint
from antiphon.core.config import build
from antiphon.engine import use_cores
from antiphon.live.loaded_model import load_model
from antiphon.types import Chunk, PageCopy, Request, RequestId, SamplingParams, StepPlan

FLOAT_BYTES = 4
STEP_TOKENS = 512
"""Prompt tokens of a step, as `antiphon serve` has them by default."""


class Antiphon:
    def __init__(self, setup: Setup) -> None:
        if use_cores(()) != setup.threads:
            raise RuntimeError("the process is not on as many cores as it is to have threads")
        self._setup = setup
        self._prompts = Prompts(setup.context)
        config = build(
            {
                "model": {"name": setup.model, "quantize": setup.quantize},
                "kv": {"memory_bytes": kv_bytes(setup)},
            }
        )
        self._engine = load_model(config, lambda line: None).engine
        self._page_tokens = config.kv.page_tokens
        self._free = count()
        self._numbers = count()
        self._computed = self._pages(setup.context)
        self._compute(self._request("context", self._prompts.base), 0, self._computed)
        self._sequences: list[tuple[Request, tuple[int, ...]]] = []
        self._own = self._pages(setup.tokens)

    def prefill(self) -> float:
        context, prompt = self._setup.context, self._prompts.next(self._setup.tokens)
        request = self._request(f"prefill {next(self._numbers)}", prompt)
        return timed(lambda: self._compute(request, context, (*self._computed, *self._own)))

    def decode(self) -> float:
        if not self._sequences:
            self._start()
        return timed(lambda: [self._step() for _ in range(self._setup.tokens)])

    def answer(self) -> float:
        raise NotImplementedError("the whole server is what is started and asked")

    def _compute(self, request: Request, start: int, pages: tuple[int, ...]) -> None:
        """Compute the prompt from `start` on, in steps, and sample the token behind it."""
        prompt, told = request.prompt, 0
        for begin in range(start, len(prompt), STEP_TOKENS):
            end = min(begin + STEP_TOKENS, len(prompt))
            chunk = Chunk(
                request=request,
                sequence=0,
                tokens=prompt[begin:end],
                start=begin,
                page_start=told,
                new_pages=pages[told:],
                samples=(0,) if end == len(prompt) else (),
            )
            told = len(pages)
            self._forward((chunk,))

    def _start(self) -> None:
        """Each sequence gets a copy of the context's pages, as memory of its own."""
        setup = self._setup
        copies = []
        for number in range(setup.sequences):
            pages = self._pages(setup.capacity)
            copies += map(PageCopy, self._computed, pages)
            self._sequences.append((self._request(f"decode {number}", self._prompts.base), pages))
        self._forward((), tuple(copies))
        # The prompt's last token is computed once more, as after a prefix hit.
        self._tokens = [self._prompts.base[-1]] * setup.sequences
        self._index = 0
        self._step()

    def _step(self) -> None:
        chunks = tuple(
            Chunk(
                request=request,
                sequence=0,
                tokens=(token,),
                start=len(request.prompt) - 1 + self._index,
                page_start=len(pages) if self._index else 0,
                new_pages=() if self._index else pages,
                samples=(0,),
                index=self._index,
            )
            for (request, pages), token in zip(self._sequences, self._tokens, strict=True)
        )
        samples = self._forward(chunks).samples
        token_of = {sample.request: sample.token for sample in samples}
        self._tokens = [token_of[request.id] for request, _ in self._sequences]
        self._index += 1

    def _forward(self, chunks: tuple[Chunk, ...], copies: tuple[PageCopy, ...] = ()):
        plan = StepPlan(number=next(self._numbers), chunks=chunks, copies=copies)
        result = self._engine.forward(plan)
        if result.faults:
            raise RuntimeError(f"the engine reports {result.faults}")
        return result

    def _pages(self, tokens: int) -> tuple[int, ...]:
        return tuple(next(self._free) for _ in range(-(-tokens // self._page_tokens)))

    def _request(self, name: str, prompt) -> Request:
        sampling = SamplingParams(temperature=0.0, seed=1, max_tokens=self._setup.capacity)
        return Request(id=RequestId(name), prompt=tuple(prompt), sampling=sampling)


def kv_bytes(setup: Setup) -> int:
    """Enough for the shared context and for what each sequence gets, in fp32."""
    spec = open_checkpoint(Path(setup.model)).spec
    token = 2 * spec.layers * spec.kv_heads * spec.head_dim * FLOAT_BYTES
    return token * (setup.context + setup.tokens + (setup.sequences + 1) * (setup.capacity + 16))


def timed(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    serve(Antiphon)
