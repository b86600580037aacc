"""A batch gives back the same events in the same order, or is refused."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.typed_values import values
from antiphon.types import (
    AttemptFailed,
    EventBatch,
    Offer,
    Preempted,
    Pulled,
    RequestId,
    SequenceEnded,
    Started,
    TokenGenerated,
)
from antiphon.wire import FrameError, pack_events, unpack_events

KINDS = (Started, TokenGenerated, SequenceEnded, Preempted, Offer, Pulled, AttemptFailed)
events = st.lists(st.one_of(*map(values, KINDS)), max_size=12)


def token(index: int) -> TokenGenerated:
    return TokenGenerated(
        request=RequestId("r"), attempt=1, sequence=0, index=index, token=index + 100
    )


@settings(deadline=None)
@given(events)
def test_events_keep_their_order(happened) -> None:
    assert list(unpack_events(pack_events(happened))) == happened


def test_a_step_of_tokens_is_one_run() -> None:
    batch = pack_events([token(0), token(1), token(2)])
    assert batch.runs == ((1, 3),)


@pytest.mark.parametrize(
    "runs",
    [
        (),
        ((1, 1),),
        ((1, 3),),
        ((1, 2), (1, 1)),
        ((2, 1), (1, 2)),
        ((7, 2),),
        ((-1, 2),),
        ((1, -2), (1, 4)),
        ((1, 0), (1, 2)),
        ((1, 2**63),),
    ],
)
def test_runs_that_are_not_those_of_the_events_are_refused(runs) -> None:
    batch = replace(pack_events([token(0), token(1)]), runs=runs)
    with pytest.raises(FrameError):
        unpack_events(batch)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 8), st.integers(-2, 4)), max_size=5).map(tuple))
def test_no_runs_lose_or_repeat_an_event(runs) -> None:
    batch = EventBatch(tokens=(token(0), token(1)), runs=runs)
    with suppress(FrameError):
        assert list(unpack_events(batch)) == [token(0), token(1)]
