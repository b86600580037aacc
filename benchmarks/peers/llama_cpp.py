"""llama.cpp, through the server that the `xllamacpp` wheel carries, called in-process.

Times are the server's own (`timings`), so neither JSON nor Python counts. Decode goes to all slots
at once: one prompt with `n_cmpl` completions is computed once, its KV copied into each slot, and
from then on each step has all of them in one batch.
"""

import xllamacpp
from contestant import QUESTION, Prompts, Setup, serve

SLACK = 8
"""The server may compute a few tokens of a cached beginning again."""


class LlamaCpp:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._prompts = Prompts(setup.context)
        self._server = xllamacpp.Server(parameters(setup))
        if setup.context:
            self._complete(self._prompts.base, 1)

    def prefill(self) -> float:
        tokens = self._setup.tokens
        timings = self._complete(self._prompts.next(tokens), 1)
        if not tokens <= timings["prompt_n"] <= tokens + SLACK:
            raise RuntimeError(f"{timings['prompt_n']} tokens were computed, not {tokens}")
        return timings["prompt_ms"] / 1e3 * tokens / timings["prompt_n"]

    def decode(self) -> float:
        setup = self._setup
        several = {"n_cmpl": setup.sequences} if setup.sequences > 1 else {}
        # The first token belongs to the prompt.
        timings = self._complete(self._prompts.base, setup.tokens + 1, **several)
        return timings["predicted_ms"] / 1e3 * setup.tokens / (timings["predicted_n"] - 1)

    def answer(self) -> float:
        messages = [{"role": "user", "content": QUESTION}]
        body = {"messages": messages, "max_tokens": 1, "temperature": 0}
        checked(self._server.handle_chat_completions(body))
        return 0.0

    def _complete(self, prompt, tokens: int, **more) -> dict:
        body = {
            "prompt": list(prompt),
            "n_predict": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": True,
        }
        return checked(self._server.handle_completions(body | more))["timings"]


def parameters(setup: Setup) -> xllamacpp.CommonParams:
    found = xllamacpp.CommonParams()
    found.model.path = setup.model
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = setup.threads
    found.n_parallel = setup.sequences
    found.n_ctx = setup.sequences * (setup.context + setup.tokens + 64)
    found.warmup = found.fit_params = False
    found.cache_ram_mib = found.n_ctx_checkpoints = 0
    found.n_threads_http = 1
    found.port = 0
    found.verbosity = 0
    if setup.kind == "decode":
        # The default, flash attention, is the faster one for prompts, but not for single tokens.
        found.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Copies of one prompt would share memory otherwise, and so be read once for all sequences.
    found.kv_unified = False
    return found


def checked(reply: dict) -> dict:
    if "error" in reply:
        raise RuntimeError(f"llama.cpp: {reply['error']}")
    return reply


if __name__ == "__main__":
    serve(LlamaCpp)
