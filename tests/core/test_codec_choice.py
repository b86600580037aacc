"""Which level is fetched: laws over drawn links, levels and contexts, then cases by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.codec_choice import (
    FetchChoice,
    FetchLevel,
    FetchState,
    choose_level,
    fetch_s,
)

rates = st.floats(1.0, 1e9)
times = st.floats(0.0, 100.0)


@st.composite
def levels(draw: st.DrawFn) -> list[FetchLevel]:
    return [
        FetchLevel(
            name=f"level {number}",
            rank=draw(st.integers(0, 4)),
            bytes_per_token=draw(st.floats(0.0, 1e5)),
            tokens_per_s=draw(rates),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


@st.composite
def states(draw: st.DrawFn) -> FetchState:
    tokens = draw(st.lists(st.integers(1, 2000), max_size=6))
    return FetchState(
        tokens=tuple(tokens),
        compute_s=draw(st.none() | times),
        bytes_per_s=draw(rates),
        left_s=draw(st.floats(-1.0, 100.0)),
        setup_s=draw(st.floats(0.0, 1.0)),
        here_rank=draw(st.integers(0, 4)),
    )


def fixed(state: FetchState, known: list[FetchLevel]) -> list[tuple[float, int]]:
    """(seconds, rank) of each choice that a reader who never adapts may make: a level, or text."""
    made = [(fetch_s(state, one), max(one.rank, state.here_rank)) for one in known]
    if state.compute_s is not None:
        made.append((state.compute_s, state.here_rank))
    return made


@given(states(), levels())
def test_no_fixed_choice_is_better(state: FetchState, known: list[FetchLevel]) -> None:
    chosen = choose_level(state, known)
    for seconds, rank in fixed(state, known):
        if chosen.in_time:
            assert seconds > state.left_s or (chosen.rank, chosen.seconds) <= (rank, seconds)
        else:
            assert seconds > state.left_s
            assert chosen.seconds <= seconds


@given(states(), levels(), st.floats(1.0, 10.0), st.floats(0.0, 10.0))
def test_more_room_never_makes_it_worse(
    state: FetchState, known: list[FetchLevel], faster: float, later: float
) -> None:
    before = choose_level(state, known)
    roomier = replace(state, bytes_per_s=state.bytes_per_s * faster, left_s=state.left_s + later)
    after = choose_level(roomier, known)
    assert after.in_time >= before.in_time
    if before.in_time:
        assert after.rank <= before.rank


@given(states(), levels())
def test_what_was_lossy_stays_lossy(state: FetchState, known: list[FetchLevel]) -> None:
    chosen = choose_level(state, known)
    assert chosen.rank >= state.here_rank
    assert chosen.rank >= (0 if chosen.level is None else chosen.level.rank)
    assert chosen.level is not None or state.compute_s is not None


RAW = FetchLevel(name="raw", rank=0, bytes_per_token=23_040, tokens_per_s=1e6)
INT4 = FetchLevel(name="int4", rank=2, bytes_per_token=6_480, tokens_per_s=150_000)
SMALL = FetchLevel(name="entropy-4", rank=4, bytes_per_token=2_880, tokens_per_s=8_000)
LEVELS = [RAW, INT4, SMALL]


def chosen_at(bits_per_s: float, left_s: float, compute_s: float = 1e9) -> FetchChoice:
    state = FetchState(
        tokens=(1000,) * 3,
        compute_s=3 * compute_s,
        bytes_per_s=bits_per_s / 8,
        left_s=left_s,
    )
    return choose_level(state, LEVELS)


@pytest.mark.parametrize(
    ("gbit_per_s", "left_s", "name"),
    [
        (10, 1.0, "raw"),  # 0.06 s
        (0.3, 1.0, "int4"),  # raw 1.8 s, int4 0.52 s
        (0.3, 0.1, "entropy-4"),  # nothing is in time: the soonest, decoding included
        (10, 0.02, "int4"),  # a core decodes entropy-4 in 0.38 s: the larger int4 is sooner
    ],
)
def test_of_three_thousand_tokens(gbit_per_s: float, left_s: float, name: str) -> None:
    chosen = chosen_at(gbit_per_s * 1e9, left_s)
    assert chosen.level is not None
    assert chosen.level.name == name
    assert chosen.in_time == (left_s == 1.0)


def test_text_if_computing_it_is_in_time() -> None:
    assert chosen_at(0.01e9, 5.0, compute_s=1.0) == FetchChoice(
        level=None, seconds=3.0, rank=0, in_time=True
    )


def test_a_long_way_costs_a_fetch_what_computing_does_not_pay() -> None:
    # Raw: 0.06 s for all chunks. An answer that is away for 0.5 s makes 0.1 s of computing better.
    near = FetchState(tokens=(1000,) * 3, compute_s=0.1, bytes_per_s=1.25e9, left_s=1.0)
    far = replace(near, setup_s=0.5)
    assert choose_level(near, LEVELS).level == RAW
    assert choose_level(far, LEVELS).level is None
    gone = choose_level(replace(far, compute_s=None), LEVELS)
    assert gone.seconds == pytest.approx(choose_level(near, LEVELS).seconds + 0.5)


def test_nothing_to_choose_from_is_an_error() -> None:
    state = FetchState(tokens=(1,), compute_s=None, bytes_per_s=1.0, left_s=1.0)
    with pytest.raises(ValueError, match="neither"):
        choose_level(state, [])
    wrong = [
        {"bytes_per_s": 0.0},
        {"bytes_per_s": float("nan")},
        {"tokens": (-1,)},
        {"compute_s": float("nan")},
        {"setup_s": -1.0},
        {"here_rank": -1},
        {"left_s": float("nan")},
    ]
    for said in wrong:
        with pytest.raises(ValueError, match=next(iter(said))):
            replace(state, **said)
    with pytest.raises(ValueError, match="level"):
        FetchLevel(name="level", rank=0, bytes_per_token=1.0, tokens_per_s=0.0)
