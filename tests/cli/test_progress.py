"""What a person sees while a server loads."""

import io
import sys

import pytest

from antiphon.cli.progress import Progress


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.say("one")
        progress.say("two")
    assert capsys.readouterr() == ("", "one\ntwo\n")


def test_a_spinner_on_a_terminal_that_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        progress.say("loading weights")
        progress.done()
        shown = terminal.getvalue()
        progress.done()
    assert "\x1b[" in shown
    assert "loading weights\n" not in shown.rpartition("\x1b[2K")[2]
