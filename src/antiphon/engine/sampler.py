"""From logits to tokens: adjust, filter, draw.

The order is vLLM's: log-probabilities of the raw logits; then logit bias, the ban on ending before
`min_tokens`, penalties; then temperature, min_p, top_k, top_p, each on what the one before left.
All of it is float64, one sequence at a time, in an order that is fixed, so that a token depends on
nothing but its own logits, parameters, history and counters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.types import Logprobs, Request, Sample, SamplingParams, SequenceFault, TokenId

from .chance import uniform

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_FIRST_LOOK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One token to be drawn: output number `index` of a sequence, after `outputs` (length index).

    `row` is the row of the logits that it is drawn from.
    """

    request: Request
    sequence: int
    index: int
    row: int
    outputs: Sequence[TokenId]


def sample(logits: npt.NDArray[np.float32], draws: Sequence[Draw]) -> list[Sample | SequenceFault]:
    """Draw a token for each of `draws`, in order, from logits float32 [rows, vocabulary].

    A row with a NaN or an infinity faults its own sequences and no others. Does not mutate.
    """
    finite: npt.NDArray[np.bool_] = np.all(np.isfinite(logits), axis=1)
    likeliest = logits.argmax(axis=1)
    results: list[Sample | SequenceFault] = []
    for draw in draws:
        if not finite[draw.row]:
            results.append(_fault(draw, "the model's logits are not finite"))
        elif _plain_greedy(draw):
            token = int(likeliest[draw.row])
            results.append(Sample(draw.request.id, draw.sequence, token))
        else:
            results.append(_draw(logits[draw.row].astype(np.float64), draw))
    return results


def _plain_greedy(draw: Draw) -> bool:
    params = draw.request.sampling
    return (
        params.temperature == 0
        and params.logprobs is None
        and not params.logit_bias
        and draw.index >= params.min_tokens
        and not _penalised(params)
    )


def _penalised(params: SamplingParams) -> bool:
    return (
        params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.repetition_penalty != 1
    )


def _fault(draw: Draw, message: str) -> SequenceFault:
    return SequenceFault(draw.request.id, draw.sequence, message)


def _draw(raw: Floats, draw: Draw) -> Sample | SequenceFault:
    params = draw.request.sampling
    scores = raw.copy()
    _adjust(scores, draw)
    if np.isneginf(scores.max()):
        return _fault(draw, "logit_bias and min_tokens leave no token to draw")
    token = int(scores.argmax()) if params.temperature == 0 else _pick(scores, draw)
    return Sample(draw.request.id, draw.sequence, token, log_probabilities(raw, token, params))


def _adjust(scores: Floats, draw: Draw) -> None:
    """Apply bias, the ban on ending, and penalties to `scores` in place."""
    request, params = draw.request, draw.request.sampling
    for token, bias in params.logit_bias:
        if token < len(scores):
            scores[token] += bias
    if draw.index < params.min_tokens:
        enders = (*request.eos_token_ids, *params.stop_token_ids)
        scores[[token for token in enders if token < len(scores)]] = -np.inf
    if not _penalised(params):
        return
    seen = np.unique(np.asarray((*request.prompt, *draw.outputs), np.int64))
    factor = params.repetition_penalty
    scores[seen] = np.where(scores[seen] > 0, scores[seen] / factor, scores[seen] * factor)
    tokens, counts = np.unique(np.asarray(draw.outputs, np.int64), return_counts=True)
    scores[tokens] -= params.frequency_penalty * counts + params.presence_penalty


def _pick(scores: Floats, draw: Draw) -> TokenId:
    """Inverse of the cumulative distribution over the kept tokens, in order of their ids."""
    params = draw.request.sampling
    if params.seed is None:
        raise BugError(f"{draw.request.id} came without a seed")
    with np.errstate(over="ignore"):  # a tiny temperature: −∞, as it should be
        scaled = (scores - scores.max()) / params.temperature
    kept = filtered(scaled, params)
    cumulative = np.cumsum(np.exp(scaled[kept]))
    point = uniform(params.seed, draw.sequence, draw.index) * cumulative[-1]
    at = np.searchsorted(cumulative, point, side="right")
    # A product that rounds up to the whole would point past the end: take the last likely token.
    at = min(at, np.searchsorted(cumulative, cumulative[-1], side="left"))
    return int(kept[at])


def filtered(scaled: Floats, params: SamplingParams) -> Ids:
    """The ids that min_p, top_k and top_p keep, ascending; never none.

    `scaled` are logits after temperature, with maximum 0. min_p keeps what is at least that share
    as likely as the likeliest token; top_k the k likeliest (of equals the lower ids); top_p the
    fewest likeliest whose probabilities, among those kept so far, sum up to at least top_p.
    """
    kept = np.arange(len(scaled))
    if params.min_p > 0:
        kept = np.flatnonzero(scaled >= np.log(params.min_p))
    if 0 < params.top_k < len(kept):
        kept = np.sort(kept[largest(scaled[kept], params.top_k)])
    if params.top_p < 1:
        kept = np.sort(kept[_nucleus(scaled[kept], params.top_p)])
    return kept


def _nucleus(scaled: Floats, top_p: float) -> Ids:
    """Indexes of the smallest set of likeliest tokens with probability `top_p` together.

    Looks at the likeliest few first: sorting a whole vocabulary is slow and seldom needed.
    """
    goal = top_p * np.exp(scaled).sum()
    look = _FIRST_LOOK
    while True:
        ranked = largest(scaled, look)
        reached = np.cumsum(np.exp(scaled[ranked])) >= goal
        if reached.any():
            return ranked[: int(reached.argmax()) + 1]
        if look >= len(scaled):
            return ranked
        look *= 8


def largest(values: Floats, count: int) -> Ids:
    """Indexes of the `count` largest values (or of all), largest first, of equals the lower one."""
    if count >= len(values):
        candidates = np.arange(len(values))
    else:
        threshold = np.partition(values, len(values) - count)[len(values) - count]
        candidates = np.flatnonzero(values >= threshold)
    return candidates[np.lexsort((candidates, -values[candidates]))][:count]


def log_probabilities(raw: Floats, token: TokenId, params: SamplingParams) -> Logprobs | None:
    """Natural logs of the raw logits' softmax: the token's, and the likeliest `logprobs` ones."""
    if params.logprobs is None:
        return None
    highest = raw.max()
    whole = highest + np.log(np.exp(raw - highest).sum())
    top = largest(raw, params.logprobs) if params.logprobs else ()
    return Logprobs(
        chosen=float(raw[token] - whole),
        top=tuple((int(other), float(raw[other] - whole)) for other in top),
    )
