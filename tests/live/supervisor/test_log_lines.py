"""Lines that a child writes are passed on whole, however they arrive, but not without bound."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.live.supervisor.log_lines import BURST_LINES, LINES_PER_S, MAX_LINE_BYTES, LogLines

TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), max_size=30)


@given(st.lists(TEXT, max_size=20), TEXT, st.data())
@settings(deadline=None, max_examples=200)
def test_any_cut_into_reads_gives_the_same_lines(
    lines: list[str], rest: str, data: st.DataObject
) -> None:
    whole = "".join(f"{line}\n" for line in lines).encode() + rest.encode()
    reader, got, at = LogLines(0.0), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, len(whole) - at))
        got += reader.feed(whole[at : at + size], 0.0)
        at += size
    assert got == lines
    assert reader.end() == ([rest] if rest else [])


@given(st.lists(st.integers(0, 3 * MAX_LINE_BYTES), max_size=4), st.integers(1, MAX_LINE_BYTES))
@settings(deadline=None, max_examples=50)
def test_a_line_of_any_length_is_one_line_and_bounded(lengths: list[int], read: int) -> None:
    whole = b"".join(b"x" * length + b"\n" for length in lengths)
    reader, got = LogLines(0.0), []
    for at in range(0, len(whole), read):
        got += reader.feed(whole[at : at + read], 0.0)
    assert [len(line) for line in got] == [
        length if length <= MAX_LINE_BYTES else MAX_LINE_BYTES + 2 for length in lengths
    ]
    assert reader.end() == []


def test_too_many_lines_are_counted_and_the_rate_comes_back() -> None:
    reader = LogLines(0.0)
    burst = int(BURST_LINES)
    assert len(reader.feed(b"a\n" * (burst + 40), 0.0)) == burst
    later = reader.feed(b"b\n", 1.0 / LINES_PER_S)
    assert later == ["(40 lines left out: too many at once)", "b"]
    assert reader.feed(b"c\n", 1.0 / LINES_PER_S) == []
    assert reader.end() == ["(1 lines left out: too many at once)"]


def test_a_terminal_is_not_controlled() -> None:
    assert LogLines(0.0).feed(b"a\x1b[2J\xffb\r\n", 0.0) == ["a\ufffd[2J\ufffdb"]
