"""A peer that errs without end does not fill the disk."""

import logging

from antiphon.wire.quiet_log import MOST_A_WINDOW, REPEAT_S, WINDOW_S, QuietLog


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


def test_what_lasts_is_said_once_and_again_much_later(caplog) -> None:
    now = 0.0
    log = QuietLog(logging.getLogger("test"), lambda: now)
    with caplog.at_level(logging.WARNING, "test"):
        for second in range(int(REPEAT_S)):
            now = float(second)
            log.trouble("%s is away", "it")
        assert caplog.messages == ["it is away"]
        log.trouble("%s refuses", "it")
        now = REPEAT_S
        log.trouble("%s is away", "it")
        log.recovered()
        log.trouble("%s is away", "it")
    assert caplog.messages == ["it is away", "it refuses", "it is away", "it is away"]


def test_lines_that_are_all_different_are_a_flood_and_take_no_memory(caplog) -> None:
    log = QuietLog(logging.getLogger("test"), lambda: 0.0)
    with caplog.at_level(logging.WARNING, "test"):
        for number in range(1000):
            log.trouble("problem %d", number)
    assert len(caplog.messages) == len(log._said) == MOST_A_WINDOW
