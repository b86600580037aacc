"""Sampling parameters as the API accepts them: a string, a list or a mapping for a tuple."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from antiphon.types import SamplingParams


def normal(params: SamplingParams) -> SamplingParams:
    """The same with tuples, as `check_sampling` wants them; what is wrong stays for it to name."""
    stop: Any = params.stop
    bias: Any = params.logit_bias
    tokens: Any = params.stop_token_ids
    if isinstance(bias, Mapping):
        bias = tuple((_token(token), value) for token, value in bias.items())
    return replace(
        params,
        stop=(stop,) if isinstance(stop, str) else _tuple(stop),
        stop_token_ids=_tuple(tokens),
        logit_bias=_tuple(bias),
    )


def _tuple(value: Any) -> Any:
    """None says what an empty tuple does, as in the API."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else value


def _token(name: Any) -> Any:
    """JSON's keys are strings."""
    is_number = isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 10
    return int(name) if is_number else name
