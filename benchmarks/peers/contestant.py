"""The side of a competitor: a process of its own that measures when it is told to.

Runs in each competitor's own virtualenv, so it needs the standard library alone. The benchmark
starts `python PEER.py '{"model": …}'` (the fields of `Setup`), then writes one command a line to
its standard input, and gets one JSON object a line back.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

QUESTION = "What is the capital of France?"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a process is asked to prepare. It may use `threads` threads on the cores it is on.

    `kind` is what it will be asked for: "prefill", "decode" or "start" (an answer, then a prefill).
    A prefill computes `tokens` prompt tokens behind `context` tokens that are in the KV memory
    already. A decode computes `tokens` steps of `sequences` sequences that hold `context` tokens
    at first. `passes` says how often that will be asked for, warm-up included.
    """

    model: str
    kind: str
    threads: int
    sequences: int
    context: int
    tokens: int
    passes: int
    quantize: str = ""
    cache: str = ""

    @property
    def capacity(self) -> int:
        """Tokens that a sequence may have in the end."""
        return self.context + self.tokens * (self.passes + 1) + 64


class Contestant(Protocol):
    """One engine with the model loaded."""

    def prefill(self) -> float:
        """Compute `tokens` prompt tokens, other ones in each call, up to the first sampled token.

        Returns the seconds it took; so does `decode`.
        """
        ...

    def decode(self) -> float:
        """Compute `tokens` steps of all sequences."""
        ...

    def answer(self) -> float:
        """Answer `QUESTION`, put through the chat template, with one token; returns 0."""
        ...


def serve(contestant: Callable[[Setup], Contestant]) -> None:
    """Do as standard input says until it ends."""
    # Libraries print what they like: the replies get a pipe of their own.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ready = contestant(Setup(**json.loads(sys.argv[1])))
    commands = {"prefill": ready.prefill, "decode": ready.decode, "answer": ready.answer}
    for line in sys.stdin:
        cpu_s = time.process_time()
        seconds = commands[line.strip()]()
        cpu_s = time.process_time() - cpu_s
        print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), file=replies)


class Prompts:
    """Prompts of random ordinary tokens: `base` is the same in all, what follows never is."""

    def __init__(self, context: int) -> None:
        self._chance = random.Random(0)
        self.base = self.fresh(context)

    def fresh(self, tokens: int) -> list[int]:
        return [self._chance.randrange(100, 49_000) for _ in range(tokens)]

    def next(self, tokens: int) -> Sequence[int]:
        return [*self.base, *self.fresh(tokens)]
