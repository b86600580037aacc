"""A hand-over takes what its transfer time says: all of it, or what overlap leaves exposed."""

import pytest

from antiphon.core.config import build
from antiphon.core.costs import TransferTime
from antiphon.perf import LinkTime, OverlappedTransfer
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role

DEVICE = Deployment(
    model=shape_of("llama-3-70b"), device=device_of("h100"), parallelism=Parallelism(tensor=8)
)
KV_BYTES = round(DEVICE.kv_bytes_per_token)
LINK = LinkTime(setup_s=0.001, bytes_per_s=25e9)
PAGE_TOKENS = 64


def first_gap_s(transfer: TransferTime, prompt: int) -> float:
    """From the first token, of a prefill worker, to the second, of a decode worker."""
    config = build(
        {
            "kv": {"page_tokens": PAGE_TOKENS, "block_tokens": PAGE_TOKENS},
            "scheduler": {"max_batched_tokens": 8192},
            "router": {"policy": "round-robin"},
        }
    )
    pools = tuple(
        Pool(
            name=role.value,
            role=role,
            workers=1,
            step_time=DEVICE,
            phases=DEVICE,
            kv_tokens=DEVICE.kv_tokens,
            devices=8,
        )
        for role in (Role.PREFILL, Role.DECODE)
    )
    spec = FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(DEVICE, transfer),
        transfer=transfer,
        kv_bytes_per_token=KV_BYTES,
        max_model_len=8192,
    )
    turn = TokenTurn((answer_tokens(0, 1, prompt),), 4)
    records: list[CallRecord] = []
    Fleet(spec, iter([TokenSession(0.0, 0, (turn,))]), UserRules(), records.append).run()
    (record,) = records
    assert record.error is None
    return record.token_at_s[1] - record.token_at_s[0]


@pytest.mark.parametrize("prompt", [640, 2048, 6144])
def test_overlap_saves_in_a_fleet_what_it_says(prompt: int) -> None:
    assert prompt % PAGE_TOKENS == 0
    overlapped = OverlappedTransfer(
        link=LINK, prefill=DEVICE, layers=80, kv_bytes_per_token=KV_BYTES
    )
    size = prompt * KV_BYTES
    saved_s = LINK.seconds(size) - overlapped.seconds(size)
    assert saved_s > 0.5 * LINK.seconds(size)
    gaps = first_gap_s(LINK, prompt), first_gap_s(overlapped, prompt)
    assert gaps[0] - gaps[1] == pytest.approx(saved_s, rel=0.01)
    others_s = gaps[1] - overlapped.seconds(size)
    assert others_s == pytest.approx(DEVICE.decode_step_s(1, prompt), abs=0.006)  # and messages
