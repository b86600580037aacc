"""A peer that errs without end does not fill the disk."""

import logging

from antiphon.wire.quiet_log import MOST_A_WINDOW, WINDOW_S, QuietLog


def test_a_flood_is_cut_and_counted(caplog) -> None:
    now = 0.0
    log = QuietLog(logging.getLogger("test"), lambda: now)
    with caplog.at_level(logging.WARNING, "test"):
        for number in range(1000):
            log.warning("line %d", number)
        assert len(caplog.messages) == MOST_A_WINDOW
        now = WINDOW_S
        log.warning("later")
    assert caplog.messages[-2:] == [f"{1000 - MOST_A_WINDOW} more lines left out", "later"]
