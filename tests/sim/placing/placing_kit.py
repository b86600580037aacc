"""A small case: slow, linear devices, calls of equal length."""

from antiphon.core.placement import Instance
from antiphon.perf import FittedStepTime, Ramp
from antiphon.perf.phase_time import FittedPhaseTime
from antiphon.sim.placing import (
    PlacementCase,
    TrialEffort,
    WorkerKind,
    WorkloadUsers,
    call_shape,
)
from antiphon.types import Seconds, Slo, StepPlan
from antiphon.workload import parse_workload

STEP_S, TOKEN_S = 0.02, 0.001


class LinearTime:
    """A step takes 20 ms and 1 ms a token, whatever is in it."""

    def __init__(self, pace: float = 1.0) -> None:
        steps = FittedStepTime(
            fixed_s=STEP_S * pace,
            token=Ramp(starts=(0,), slopes_s=(TOKEN_S * pace,)),
            sampled=Ramp(starts=(0,), slopes_s=(0.0,)),
            chunk_s=0.0,
            context_s=0.0,
            attention_s=0.0,
        )
        self._steps, self._phases = steps, FittedPhaseTime(step_time=steps, step_tokens=512)

    def seconds(self, plan: StepPlan) -> Seconds:
        return self._steps.seconds(plan)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        return self._steps.repeated_s(plan, passes)

    def lag_s(self, plan: StepPlan) -> Seconds:
        return 0.0

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return self._phases.prefill_s(tokens, start)

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return self._phases.decode_step_s(sequences, context_tokens)


def kind(device: str, pace: float = 1.0, kv_tokens: int = 40_000) -> WorkerKind:
    instance = Instance(device=device)
    return WorkerKind(instance, LinearTime(pace), kv_tokens, 1.0, 1e9, 1e9)


SLOW, FAST = kind("slow"), kind("fast", 0.5)


def case(
    workload: str = "fixed:input=200,output=8", slo: Slo | None = None, calls: int = 40
) -> PlacementCase:
    users = WorkloadUsers(parse_workload(workload))
    return PlacementCase(
        users=users,
        shape=call_shape(users),
        slo=slo or Slo(ttft_s=1.0, tpot_s=0.3),
        kinds=(SLOW, FAST),
        kv_bytes_per_token=1000,
        effort=TrialEffort(run_s=5.0, least_calls=calls, tolerance=0.25),
    )
