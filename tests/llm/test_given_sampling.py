"""What the API takes in JSON, `SamplingParams` take too."""

from typing import Any

import pytest

from antiphon.core.validation import check_sampling
from antiphon.errors import ClientError
from antiphon.llm.given_sampling import normal
from antiphon.types import SamplingParams


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"stop": "a"}, {"stop": ("a",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": None, "logit_bias": None}, {}),
        ({"stop_token_ids": [1, 2]}, {"stop_token_ids": (1, 2)}),
        ({"logit_bias": {3: 1.5, "4": -2}}, {"logit_bias": ((3, 1.5), (4, -2))}),
        ({"logit_bias": [(3, 1.5)]}, {"logit_bias": ((3, 1.5),)}),
    ],
)
def test_forms_of_the_api(given: dict[str, Any], same: dict[str, Any]) -> None:
    found = normal(SamplingParams(**given))
    assert found == SamplingParams(**same)
    check_sampling(found, vocab_size=9)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"stop": 3}, "stop"),
        ({"stop": [3]}, "stop"),
        ({"logit_bias": {"x": 1.0}}, "logit_bias"),
        ({"stop_token_ids": "12"}, "stop_token_ids"),
    ],
)
def test_what_is_wrong_is_still_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ClientError) as caught:
        check_sampling(normal(SamplingParams(**given)), vocab_size=9)
    assert caught.value.field == field
