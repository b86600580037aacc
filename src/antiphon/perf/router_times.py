"""What a router expects of devices, as text in the head of a decision log."""

import msgspec

from antiphon.core.recorded_run import Times
from antiphon.errors import UsageError

from .default_profile import DEFAULT_FETCH_TIME, DEFAULT_LINK_TIME, DEFAULT_STEP_TIME
from .fetch_time import TierFetchTime
from .phase_time import FittedPhaseTime
from .step_time import FittedStepTime
from .transfer_time import LinkTime


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    step_time: FittedStepTime
    link_time: LinkTime
    fetch_time: TierFetchTime = DEFAULT_FETCH_TIME


def write_times(
    step_time: FittedStepTime,
    link_time: LinkTime,
    fetch_time: TierFetchTime = DEFAULT_FETCH_TIME,
) -> str:
    """One line of JSON."""
    return msgspec.json.encode(_Written(step_time, link_time, fetch_time)).decode()


def read_times(text: str, *, step_tokens: int) -> Times:
    """Inverts `write_times`; an empty text means the defaults. Raises `UsageError` for any other.

    `step_tokens`: how much of a prompt a step computes.
    """
    try:
        written = (
            msgspec.json.decode(text, type=_Written)
            if text
            else _Written(DEFAULT_STEP_TIME, DEFAULT_LINK_TIME)
        )
        phases = FittedPhaseTime(step_time=written.step_time, step_tokens=step_tokens)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(f"the times of a router can't be read: {error}") from None
    return Times(phases, written.link_time, written.fetch_time)
