"""The laws of a link find the fault that each is there for: faulty parts, put in where made."""

from collections.abc import Sequence

import pytest
import test_remote_worker_faults as laws

from antiphon.live import join_gateway, join_socket, worker_calls
from antiphon.live.life import Life
from antiphon.types import Event
from antiphon.wire import FrameStream

pytestmark = pytest.mark.timeout(60)
FOUND = (AssertionError, pytest.fail.Exception, TimeoutError)


class Talkative(Life):
    """Passes on whatever happens, in whichever life it was asked for."""

    def own(self, events: Sequence[Event]) -> list[Event]:
        super().own(events)
        return list(events)


class Forgetful(Life):
    """Does not know what it has when its life is over."""

    @property
    def runs(self):
        return []


class Sleepwalker(FrameStream):
    """Goes on as if it had not stood still."""

    def alive(self) -> bool:
        return self.ending is None


async def test_old_lives_that_talk_are_found(folder, worker, monkeypatch) -> None:
    monkeypatch.setattr(worker_calls, "Life", Talkative)
    with pytest.raises(FOUND):
        await laws.test_what_an_old_life_still_says_reaches_nobody(folder, worker)


async def test_requests_that_outlive_their_life_are_found(folder, worker, monkeypatch) -> None:
    monkeypatch.setattr(worker_calls, "Life", Forgetful)
    with pytest.raises(FOUND):
        await laws.test_a_gateway_that_goes_ends_all_it_gave_and_the_next_finds_a_new_life(
            folder, worker
        )


async def test_a_worker_that_acts_after_a_stop_is_found(folder, worker, monkeypatch) -> None:
    monkeypatch.setattr(join_gateway, "FrameStream", Sleepwalker)
    with pytest.raises(FOUND):
        await laws.test_a_worker_that_was_stopped_too_long_acts_on_nothing_it_finds(folder, worker)


async def test_a_gateway_that_believes_after_a_stop_is_found(folder, worker, monkeypatch) -> None:
    monkeypatch.setattr(join_socket, "FrameStream", Sleepwalker)
    with pytest.raises(FOUND):
        await laws.test_a_gateway_that_was_stopped_too_long_believes_nothing_it_finds(
            folder, worker
        )
