"""What int8 costs on the real model; `benchmarks/quality.py` measures it on more text."""

import pytest
from smollm2 import model, prompts

from antiphon.engine import KvDtype, compare


@pytest.mark.parametrize("kv_dtype", KvDtype)
def test_int8_predicts_what_fp32_predicts(kv_dtype: KvDtype) -> None:
    """A thousand tokens of prose."""
    found = compare(model(), model("int8"), [prompts()[48]], kv_dtype=kv_dtype)
    assert found.positions == 999
    assert found.mean_kl_nats < 0.008
    assert found.top1 > 0.94
    assert abs(found.perplexity_change) < 0.02


def test_the_measure_sees_a_difference() -> None:
    text = prompts()[44]
    same = compare(model(), model(), [text])
    assert (same.mean_kl_nats, same.top1, same.perplexity_change) == (0, 1, 0)
