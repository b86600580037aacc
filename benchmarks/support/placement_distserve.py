"""DistServe's own table: OPT-13B on A100 with its coefficients, as its simulator asks and as we do.

Its simulator tests both P90s apart, moves KV in no time, and lets a worker decode 50,000 tokens at
once, whatever its memory. Each of these can be had by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from antiphon.core.goodput import Attainment
from antiphon.core.placement import Candidate, Instance
from antiphon.perf.hardware import shape_of
from antiphon.sim.placing import PlacementCase, WorkloadUsers, jointly
from antiphon.types import CallRecord, Seconds, Slo
from antiphon.workload import parse_workload

from . import result
from .placements import Effort, case_of, find, kv_bytes, opt_13b, pair, side_by_side

CONTEXT = "max_context=2048"
LENGTHS = {
    "ShareGPT-like": f"chat:{CONTEXT}",
    "narrower": f"chat:input=lognormal:mean=756,sd=400,output=lognormal:mean=200,sd=90,{CONTEXT}",
    "shorter prompts": "chat:input=lognormal:mean=350,sd=370,min=4,"
    f"output=lognormal:mean=200,sd=180,min=4,{CONTEXT}",
    "fixed": f"fixed:input=756,output=200,{CONTEXT}",
}
"""Mean lengths of DistServe's figure 7; its paper gives no deviation, so that is varied."""
PLENTY = 2_000_000
"""Tokens of KV that no run here needs."""
THEIR_CAP = 50_000


def separately(records: tuple[CallRecord, ...], slo: Slo, warmup_s: Seconds) -> Attainment:
    """DistServe's search: 90 % in time for the first token, and 90 % per token, each by itself."""
    both = jointly(records, slo, warmup_s)
    return replace(both, met=min(both.ttft_met, both.tpot_met), batches=())


@dataclass(frozen=True)
class Mode:
    """How a goodput is found. `kv_tokens`: of each worker; None: what fits."""

    name: str
    joint: bool
    transfer: bool
    kv_tokens: int | None

    def case(self, lengths: str, effort: Effort) -> PlacementCase:
        case = case_of(
            WorkloadUsers(parse_workload(LENGTHS[lengths])),
            Slo(ttft_s=0.2, tpot_s=0.1),
            opt_13b(self.kv_tokens),
            kv_bytes(shape_of("opt-13b")),
            effort.trial,
        )
        judge = jointly if self.joint else separately
        return replace(case, transfer_free=not self.transfer, judge=judge)


THEIRS = Mode("theirs: separate P90, no transfer, 50,000 tokens", False, False, THEIR_CAP)
OURS = Mode("joint 90 %, transfer over NVLink, KV that fits", True, True, None)
BETWEEN = (
    Mode("separate P90, no transfer, no KV limit", False, False, PLENTY),
    Mode("joint 90 %, no transfer, 50,000 tokens", True, False, THEIR_CAP),
    Mode("joint 90 %, no transfer, KV that fits", True, False, None),
)


def rows_of(effort: Effort) -> Iterator[tuple[str, Mode, Candidate]]:
    """`effort.full`: what each difference does by itself, other lengths, more prefill workers."""
    one, two = (Instance(device="a100", tensor=tensor) for tensor in (1, 2))
    best = pair(two, one)
    for mode in (THEIRS, OURS):
        for candidate in (best, pair(one, one), pair(two, two), pair(one, two)):
            yield "ShareGPT-like", mode, candidate
    if effort.full:
        for mode in BETWEEN:
            yield "ShareGPT-like", mode, best
        for lengths in list(LENGTHS)[1:]:
            yield lengths, THEIRS, best
        for workers in (2, 3):
            yield "ShareGPT-like", OURS, pair(one, one, workers, 1)


def distserve(effort: Effort) -> dict[str, object]:
    what = list(rows_of(effort))
    jobs = [
        partial(find, mode.case(lengths, effort), candidate, effort.seeds)
        for lengths, mode, candidate in what
    ]
    rows: list[dict[str, object]] = []
    kept = {"lengths": LENGTHS, "claim": "1.56 per GPU at prefill TP2, decode TP1", "rows": rows}
    for (lengths, mode, _), found in zip(what, side_by_side(jobs, effort.processes), strict=True):
        print(f"{lengths:16} {mode.name:50} {found.candidate.text:42} {found.text}", flush=True)
        rows.append({"lengths": lengths, "mode": mode.name, **found.row()})
        result.write("placement_distserve", {**effort.row(), **kept})
    return kept
