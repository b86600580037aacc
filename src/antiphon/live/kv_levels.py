"""Levels of the codec tried on a model and a text: size, quality of the next tokens, speed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.arithmetic import kernel_dtype
from antiphon.core.number_text import plural
from antiphon.engine import kv_dtype_of, load_llama, use_cores
from antiphon.errors import BugError, UsageError
from antiphon.store.codec import RAW, Blob, KvProfile, Level, decode, encode, read_blob
from antiphon.text import Tokenizer
from antiphon.types import Config, TokenId

from .cache_folder import cache_folder
from .kv_trial import PAGE_TOKENS, CodecSpeed, KvTrial, Trial, speed_of
from .text_windows import spread_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSizes:
    """So many contexts of so many tokens are encoded; quality is that of the tokens after them."""

    contexts: int = 8
    tokens: int = 1024
    following: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTrial:
    """What came of a level. `raw_blocks`: that it could not encode, and which stay as they are."""

    trial: Trial
    speed: CodecSpeed | None
    raw_blocks: int = 0


def try_levels(
    config: Config,
    text: str,
    levels: Sequence[Level],
    profile: KvProfile | None,
    *,
    sizes: TrialSizes,
    say: Callable[[str], None],
    advance: Callable[[float], None],
) -> list[LevelTrial]:
    """Each level on contexts that are spread over `text`, in the model's own KV memory.

    Raises `UsageError`: no such model, a profile of another one, one that is needed and not there
    or does not have the level, or a text that is too short.
    """
    dtype = kernel_dtype(config)
    use_cores(config.engine.cores)
    say(f"Opening {config.model.name}")
    checkpoint = open_checkpoint(resolve(config.model.name))
    check_profile(profile, levels, checkpoint.identity)
    if sizes.tokens + sizes.following > checkpoint.spec.context_len:
        raise UsageError(
            f"--tokens {sizes.tokens} and --following {sizes.following} are more than the context "
            f"of {checkpoint.name}: {checkpoint.spec.context_len} tokens"
        )
    tokens = Tokenizer.load(checkpoint.tokenizer).encode(text)
    contexts = contexts_of(tokens, sizes)
    say("Loading weights (the first time converts them)")
    cache_dir = cache_folder(config.engine)
    model = load_llama(checkpoint, dtype=dtype, cache_dir=cache_dir)
    say(f"Computing {plural(len(contexts), 'context')} of {sizes.tokens} tokens")
    kv_dtype = kv_dtype_of(config.kv.dtype, dtype)
    share = 1 / (len(levels) + 1)
    tried = KvTrial(model, kv_dtype, contexts, sizes.following, lambda done: advance(done * share))
    say("Preparing the codec (the first time compiles it, which takes up to a minute)")
    sample = tried.blocks(0)[0]
    for level in levels:
        _LevelCodec(level, profile).through([sample.copy()])
    found = []
    for number, level in enumerate(levels, 1):
        say(f"Trying {level.name}")
        found.append(try_level(tried, level, profile))
        advance((number + 1) * share)
    return found


def try_level(
    tried: KvTrial, level: Level, profile: KvProfile | None, *, speed: bool = True
) -> LevelTrial:
    """One level on contexts that have been computed; `speed`: how fast it is, too."""
    codec = _LevelCodec(level, profile)
    measured = speed_of(codec.encoded, codec.decode, tried.blocks(0)) if speed else None
    trial = tried.run(level.name, codec.through)
    return LevelTrial(trial=trial, speed=measured, raw_blocks=codec.raw_blocks)


class _LevelCodec:
    """A level as stores would have it: what it can't encode stays raw, and is counted."""

    def __init__(self, level: Level, profile: KvProfile | None) -> None:
        self._level, self._profile = level, profile
        self.raw_blocks = 0
        """That went `through`."""

    def encoded(self, block: np.ndarray, start: int) -> bytes:
        """At the level, or raw."""
        data = encode(block, self._level, start=start, profile=self._profile)
        data = encode(block, RAW) if data is None else data
        if data is None:
            raise BugError("a raw block is always encoded")
        return data

    def decode(self, data: bytes, block: np.ndarray) -> None:
        """Fill `block` with what was encoded."""
        problem = decode(data, block, profile=self._profile)
        if problem is not None:
            raise BugError(f"{self._level.name}: what was encoded can't be decoded: {problem}")

    def through(self, blocks: Sequence[np.ndarray]) -> int:
        """A context's blocks, in place; the bytes that they take."""
        taken = 0
        for number, block in enumerate(blocks):
            data = self.encoded(block, number * PAGE_TOKENS)
            blob = read_blob(data)
            self.raw_blocks += isinstance(blob, Blob) and blob.level != self._level
            self.decode(data, block)
            taken += len(data)
        return taken


def check_profile(profile: KvProfile | None, levels: Sequence[Level], identity: bytes) -> None:
    """Raise `UsageError` unless `profile` is of this model and has these levels, if need be."""
    for level in levels:
        if not level.needs_profile:
            continue
        if profile is None:
            raise UsageError(
                f"{level.name} needs the model's profile: make it with `antiphon kv profile` and "
                f"name it with --profile"
            )
        if level.number > len(profile.levels):
            raise UsageError(
                f"{level.name}: the profile has entropy-1 … entropy-{len(profile.levels)}"
            )
    if profile is not None and profile.identity != identity:
        raise UsageError(
            f"the profile is of {profile.model}, or of another version of it: make one of this "
            f"model with `antiphon kv profile`"
        )


def contexts_of(tokens: Sequence[TokenId], sizes: TrialSizes) -> list[Sequence[TokenId]]:
    """Contexts and what follows them, spread evenly over a text, none over another."""
    whole = sizes.tokens // PAGE_TOKENS * PAGE_TOKENS
    size = whole + sizes.following
    contexts = spread_windows(tokens, size, sizes.contexts)
    if not whole or not contexts:
        raise UsageError(
            f"the text has {plural(len(tokens), 'token')}: a context takes {size} of them "
            f"(whole blocks of {PAGE_TOKENS}, and {sizes.following} after them): give more text"
        )
    return contexts
