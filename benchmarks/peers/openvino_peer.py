"""OpenVINO GenAI: its continuous-batching pipeline on the CPU, step by step, from the same GGUF.

Everything that it chooses by itself stays as it is: KV in 8 bits, dynamic quantisation of
activations, bfloat16 where the CPU has it.
"""

import time

import numpy as np
import openvino as ov
import openvino_genai as genai
from contestant import QUESTION, Prompts, Setup, serve

BLOCK_TOKENS = 32
BATCHED_TOKENS = 512


class OpenVino:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._prompts = Prompts(setup.context)
        self._pipeline = genai.ContinuousBatchingPipeline(
            setup.model, scheduling(setup), "CPU", properties(setup)
        )
        self._requests = 0
        self._running = []

    def prefill(self) -> float:
        if self._setup.context and not self._requests:
            # From now on the prefix cache has the context.
            self._first_token(self._prompts.next(1))
        return self._first_token(self._prompts.next(self._setup.tokens))

    def decode(self) -> float:
        if not self._running:
            self._start()
        return timed(lambda: [self._pipeline.step() for _ in range(self._setup.tokens)])

    def answer(self) -> float:
        asked = genai.GenerationConfig(max_new_tokens=1, do_sample=False)
        asked.apply_chat_template = True
        if not self._pipeline.generate([QUESTION], [asked])[0].m_generation_ids:
            raise RuntimeError("OpenVINO GenAI gave no answer")
        return 0.0

    def _first_token(self, prompt) -> float:
        handle = self._add(prompt, 1)
        seconds = timed(self._finish)
        if len(handle.read_all()[0].generated_ids) != 1:
            raise RuntimeError("OpenVINO GenAI made no token")
        return seconds

    def _finish(self) -> None:
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    def _start(self) -> None:
        """All prompts computed: from here on, each step has all sequences in it."""
        setup = self._setup
        most = setup.capacity - setup.context
        self._running = [
            self._add(self._prompts.fresh(setup.context), most) for _ in range(setup.sequences)
        ]
        while not all(handle.can_read() for handle in self._running):
            self._pipeline.step()

    def _add(self, prompt, tokens: int):
        ids = ov.Tensor(np.array([prompt], np.int64))
        asked = genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        self._requests += 1
        return self._pipeline.add_request(self._requests, ids, asked)


def scheduling(setup: Setup) -> genai.SchedulerConfig:
    found = genai.SchedulerConfig()
    blocks = -(-setup.capacity // BLOCK_TOKENS) + 1
    found.num_kv_blocks = setup.sequences * blocks
    found.max_num_batched_tokens = BATCHED_TOKENS
    found.max_num_seqs = setup.sequences
    # Only for a context that is not to be measured: what is measured is never in the cache.
    found.enable_prefix_caching = setup.kind == "prefill" and setup.context > 0
    return found


def properties(setup: Setup) -> dict[str, object]:
    found: dict[str, object] = {"INFERENCE_NUM_THREADS": setup.threads}
    if setup.cache:
        found["CACHE_DIR"] = setup.cache
    return found


def timed(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    serve(OpenVino)
