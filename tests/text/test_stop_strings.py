"""The first stop string is found however the text is cut into pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import ClientError
from antiphon.text.stop_strings import StopStrings

LETTERS = st.text("ab😀", max_size=12)
STOPS = st.lists(st.text("ab😀", min_size=1, max_size=4), min_size=1, max_size=4)


def by_definition(text, stops):
    """(text before the first match, which stop string): earliest start, then shortest."""
    matches = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    if not matches:
        return text, None
    start, _, stop = min(matches)
    return text[:start], stop


def run(pieces, stops):
    """(texts of all scans, stop string, pieces fed)"""
    finder = StopStrings(stops)
    texts = []
    for fed, piece in enumerate(pieces, 1):
        scan = finder.feed(piece)
        texts.append(scan.text)
        if scan.stopped is not None:
            return texts, scan.stopped, fed
    scan = finder.finish()
    return [*texts, scan.text], scan.stopped, len(pieces)


@given(pieces=st.lists(LETTERS, max_size=8), stops=STOPS)
@settings(max_examples=1000, deadline=None)
def test_cuts_where_the_definition_says(pieces, stops):
    texts, stopped, _ = run(pieces, stops)
    assert ("".join(texts), stopped) == by_definition("".join(pieces), stops)


@given(pieces=st.lists(LETTERS, max_size=8), stops=STOPS)
@settings(max_examples=500, deadline=None)
def test_holds_back_only_what_could_begin_a_stop_string(pieces, stops):
    """Before a stop: what was sent plus the longest end that begins a stop string is all text."""
    texts, _, fed = run(pieces, stops)
    for count in range(1, fed):
        text = "".join(pieces[:count])
        sent = "".join(texts[:count])
        held = text[len(sent) :]
        possible = [
            text[at:]
            for at in range(len(text))
            if any(stop.startswith(text[at:]) and stop != text[at:] for stop in stops)
        ]
        assert held == max(possible, key=len, default="")


@given(pieces=st.lists(LETTERS, max_size=8), stops=STOPS)
@settings(max_examples=500, deadline=None)
def test_stops_with_the_piece_that_decides_it(pieces, stops):
    """No later than when the match is complete and no earlier start is possible any more."""
    _, stopped, fed = run(pieces, stops)
    text = "".join(pieces[:fed])
    if stopped is not None:
        assert by_definition(text, stops)[1] == stopped
        earlier = "".join(pieces[: fed - 1])
        if stopped in earlier:  # then an earlier start was still possible
            start = by_definition(earlier, stops)[0]
            assert any(stop.startswith(earlier[at:]) for at in range(len(start)) for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["hello wor", "ld!"], ["world"], ("hello ", "world")),
        (["a", "b", "c", "d"], ["bc", "abcd"], ("", "abcd")),
        (["a", "b", "c", "x"], ["bc", "abcd"], ("a", "bc")),
        (["a", "b", "c"], ["bc", "abcd"], ("a", "bc")),
        (["ab", "c"], ["abc", "ab"], ("", "ab")),
        (["aab"], ["ab"], ("a", "ab")),
        (["\n", "\n"], ["\n\n"], ("", "\n\n")),
        (["x\n", "y\n"], ["\n\n"], ("x\ny\n", None)),
    ],
)
def test_examples(pieces, stops, expected):
    texts, stopped, _ = run(pieces, stops)
    assert ("".join(texts), stopped) == expected


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ClientError) as raised:
        StopStrings(["a", ""])
    assert raised.value.field == "stop"


def test_a_long_repetitive_stop_string_costs_no_more_a_character():
    """The classic worst case: each character must not go through the whole stop string again."""
    finder = StopStrings(["a" * 20_000 + "b"])
    texts = [finder.feed("a").text for _ in range(30_000)]
    assert len("".join(texts)) == 10_000
    assert finder.feed("b").stopped is not None
