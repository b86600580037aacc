"""A flood of failures is a few tracebacks and a number."""

import logging

from antiphon.live.gateway.failure_log import MOST_A_WINDOW, WINDOW_S, FailureLog


def test_a_flood_is_counted_and_the_next_window_begins_anew(caplog):
    now = 0.0
    log = FailureLog(lambda: now)
    with caplog.at_level(logging.ERROR):
        for number in range(1000):
            log.write(f"r{number}", ValueError("broken"))
        assert len(caplog.records) == MOST_A_WINDOW
        assert all(record.exc_info for record in caplog.records)
        assert "request r0 failed" in caplog.text
        now = WINDOW_S
        log.write("later", ValueError("broken"))
    assert [record.getMessage() for record in caplog.records[MOST_A_WINDOW:]] == [
        f"{1000 - MOST_A_WINDOW} more requests failed",
        "request later failed",
    ]
