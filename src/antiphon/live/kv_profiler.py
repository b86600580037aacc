"""Makes a model's KV profile: samples of its KV and gradients, then what fits them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from antiphon.checkpoint import Checkpoint, open_checkpoint, resolve
from antiphon.core.number_text import plural
from antiphon.engine import layout_of, load_weights, rotary_frequencies, use_cores
from antiphon.engine.kv_gradients import KvGradients, KvSample
from antiphon.engine.reference import rotate
from antiphon.errors import UsageError
from antiphon.store.codec import (
    KvProfile,
    Moments,
    Part,
    Transform,
    fit_levels,
    rotation,
    transform_of,
)
from antiphon.text import Tokenizer
from antiphon.types import Config, TokenId

from .cache_folder import cache_folder
from .model_name import model_name
from .text_windows import spread_windows

BITS = (4.0, 3.2, 2.5, 2.0, 1.5)
"""An element, of entropy-1 … entropy-5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizes:
    """How much is looked at: `prompts` of so many tokens, each with `following` after it."""

    prompts: int = 24
    prompt_tokens: int = 1024
    following: int = 128

    def within(self, context_len: int) -> "SampleSizes":
        """The same, but no longer than a model's context."""
        following = min(self.following, max(context_len // 4, 1))
        prompt = min(self.prompt_tokens, context_len - following)
        return replace(self, prompt_tokens=prompt, following=following)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a profile is fitted. The defaults are what measurements left
    (docs/decisions/0018-kv-as-coefficients.md)."""

    section_layers: int = 2
    before_rope: bool = True
    kept_tokens: int = 1
    rounding: float = 0.5
    bits: tuple[float, ...] = BITS


def profile_kv(
    config: Config,
    text: str,
    *,
    sizes: SampleSizes,
    say: Callable[[str], None],
    advance: Callable[[float], None],
    fit: Fit | None = None,
) -> KvProfile:
    """The profile of the model of `config`, by what it makes of `text`.

    Every fourth prompt is kept from the transforms and makes the distributions. Same model, text,
    sizes and fit give the same profile on one machine. Raises `UsageError`: no such model, or a
    text that is too short.
    """
    use_cores(config.engine.cores)
    say(f"Opening {config.model.name}")
    checkpoint = open_checkpoint(resolve(config.model.name))
    sizes = sizes.within(checkpoint.spec.context_len)
    tokens = Tokenizer.load(checkpoint.tokenizer).encode(text)
    windows = windows_of(tokens, sizes)
    say("Loading weights (the first time converts them)")
    weights = load_weights(checkpoint, cache_dir=cache_folder(config.engine))
    model = KvGradients(checkpoint.spec, weights)
    say(f"Looking at {plural(len(windows), 'prompt')} of {sizes.prompt_tokens} tokens")
    samples = (
        model.sample(window[: sizes.prompt_tokens], window[sizes.prompt_tokens :], number)
        for number, window in enumerate(windows)
    )
    name = model_name(checkpoint, config)
    return fitted(checkpoint, name, samples, len(windows), sizes, fit or Fit(), say, advance)


def fitted(  # noqa: PLR0913 - what to fit, how, and whom to tell
    checkpoint: Checkpoint,
    name: str,
    samples: Iterable[KvSample],
    count: int,
    sizes: SampleSizes,
    fit: Fit,
    say: Callable[[str], None] = lambda _: None,
    advance: Callable[[float], None] = lambda _: None,
    transform: Callable[[Moments], Transform] = transform_of,
) -> KvProfile:
    """The profile of samples, which are taken one by one. Raises `UsageError` if they hold numbers
    that nothing can be fitted to."""
    spec = checkpoint.spec
    width = layout_of(spec, 1).head_width
    frequencies = rotary_frequencies(spec).numpy() if fit.before_rope else np.empty(0, np.float32)
    empty = KvProfile(
        identity=checkpoint.identity,
        model=name,
        layers=spec.layers,
        heads=spec.kv_heads,
        width=width,
        section_layers=fit.section_layers,
        frequencies=frequencies,
        kept_tokens=fit.kept_tokens,
        rounding=fit.rounding,
        transforms=(),
        levels=(),
    )
    parts = list(empty.parts())
    moments = [Moments.none(part.layers * spec.kv_heads * width) for part in parts]
    unseen: list[list[np.ndarray]] = [[] for _ in parts]
    for number, sample in enumerate(samples):
        if not (np.isfinite(sample.values).all() and np.isfinite(sample.gradients).all()):
            raise UsageError(
                f"{name}: prompt {number + 1} makes KV, or gradients of it, that are not finite: "
                "is its file whole?"
            )
        if not fit.before_rope:
            sample = turned(sample, rotary_frequencies(spec).numpy())
        for part, sums, runs in zip(parts, moments, unseen, strict=True):
            vectors = rows_of(sample.values, part, width)[fit.kept_tokens :]
            if number % 4 == 3:
                runs.append(vectors)
            else:
                slopes = rows_of(sample.gradients, part, width)[fit.kept_tokens :]
                sums.add(vectors, slopes, sizes.following)
        advance(0.8 * (number + 1) / count)
    say("Fitting")
    try:
        transforms = tuple(map(transform, moments))
        levels = fit_levels(fit.bits, transforms, parts, unseen, fit.rounding)
    except ValueError as problem:
        raise UsageError(f"{name}: no profile fits its KV: {problem}: take another text") from None
    advance(1.0)
    return replace(empty, transforms=transforms, levels=levels, coders={})


def turned(sample: KvSample, frequencies: np.ndarray) -> KvSample:
    """With keys as they are after the rotary embedding, and the gradients of those."""
    angles = map(torch.from_numpy, rotation(frequencies, 0, sample.values.shape[3]))
    cosines, sines = angles
    both = []
    for array in (sample.values, sample.gradients):
        array = array.copy()
        for layer in array:  # [2, heads, tokens, head_dim]
            keys = torch.from_numpy(layer[0]).transpose(0, 1)
            layer[0] = rotate(keys, cosines, sines).transpose(0, 1).numpy()
        both.append(array)
    return KvSample(values=both[0], gradients=both[1])


def rows_of(values: np.ndarray, part: Part, width: int) -> np.ndarray:
    """[tokens, layers · heads · width] of one part of [layers, 2, heads, tokens, head_dim]."""
    mine = values[part.first : part.first + part.layers, part.side]
    mine = np.pad(mine, ((0, 0), (0, 0), (0, 0), (0, width - mine.shape[-1])))
    return np.ascontiguousarray(mine.transpose(2, 0, 1, 3)).reshape(mine.shape[2], -1)


def windows_of(tokens: Sequence[TokenId], sizes: SampleSizes) -> list[Sequence[TokenId]]:
    """Prompts and what follows them, spread evenly over the text, none over another."""
    size = sizes.prompt_tokens + sizes.following
    windows = spread_windows(tokens, size, sizes.prompts)
    if len(windows) < 4:
        raise UsageError(
            f"the text has {plural(len(tokens), 'token')}: a profile needs at least {4 * size} "
            f"(four prompts of {sizes.prompt_tokens} and {sizes.following} after each): give more"
        )
    return windows
