"""Which level the next blocks of one caller come at, while others are on their way."""

from antiphon.core.kv.lineage import lineage_of
from antiphon.core.store_pool import FetchTerms, LevelBook, LevelGuess, Sender
from antiphon.live.store.pool.chunk_reading import ChunkReading
from antiphon.types import BlockKey, StoreName

LINEAGE = lineage_of("adaptive")
GUESSES = [
    LevelGuess(name="raw", rank=0, block_bytes=1e6, encode_s=0.0, decode_s=0.0),
    LevelGuess(name="int8", rank=1, block_bytes=5e5, encode_s=0.0, decode_s=0.0),
    LevelGuess(name="int4", rank=5, block_bytes=2e5, encode_s=0.0, decode_s=0.0),
]
KEYS = [BlockKey(bytes([number] * 32)) for number in range(16)]
BYTES_PER_S = 1e7
"""Ten blocks a second as they are, twenty at int8, fifty at int4."""


def reading(
    left_s: float,
    speed: float = BYTES_PER_S,
    *,
    measured: bool = True,
    old: bool = False,
    answer_s: float = 0.0,
    compute_s: float | None = None,
    level: str = "adaptive",
) -> ChunkReading:
    book = LevelBook(level, GUESSES, block_tokens=64, lineage=LINEAGE)
    terms = FetchTerms(lineage=LINEAGE, due=left_s, compute_s=compute_s)
    peer = Sender(
        bytes_per_s=speed,
        measured=measured,
        name=StoreName("peer"),
        old=old,
        answer_s=answer_s,
    )
    return ChunkReading(book, terms, sender=lambda key: peer, clock=lambda: 0.0)


def test_what_is_on_its_way_takes_its_part_of_the_time() -> None:
    """1.3 s for sixteen blocks: eight as they are leave 0.5 s, in which eight more come at int8."""
    mine = reading(1.3)
    mine.choose(KEYS[:8])
    assert mine.choose(KEYS[8:]).level == "raw", "if the first were here at once"
    assert mine.choose(KEYS[8:], 8).level == "int8"


def test_it_counts_at_the_level_that_it_comes_at() -> None:
    mine = reading(0.9)
    assert mine.choose(KEYS).level == "int8", "1.6 s as they are"
    assert mine.choose(KEYS[8:], 8).level == "int8", "0.4 s for what is on its way, 0.4 s for these"


def test_of_a_peer_whose_speed_nobody_knows_it_counts_nothing() -> None:
    mine = reading(1.2, measured=False)
    assert (mine.choose(KEYS).blocks, mine.choose(KEYS, 8).blocks) == (1, 1)


def test_an_answer_that_comes_while_others_move_takes_no_time() -> None:
    """0.8 s for eight blocks that are on their way; the answer takes 0.5 s."""
    slow = {"answer_s": 0.5}
    assert reading(1.2, **slow).choose(KEYS[8:]).level == "int8", "0.8 s as they are, and 0.5 s"
    assert reading(1.7, **slow).choose(KEYS[8:], 8).level == "raw", "0.8 s behind 0.8 s"
    assert reading(1.7, answer_s=1.2).choose(KEYS[8:], 8).level == "int8"


def test_at_a_fixed_level_a_slow_peer_is_read_turn_by_turn() -> None:
    """A turn is eight blocks: of 1 MB as they are, of 0.5 MB at int8."""
    for level, turn_bytes in (("raw", 8e6), ("int8", 4e6)):
        assert reading(1.0, 2.1 * turn_bytes, level=level).keeps_up(KEYS[0]), level
        assert not reading(1.0, 1.9 * turn_bytes, level=level).keeps_up(KEYS[0]), level
    assert reading(1.0, 1e3).keeps_up(KEYS[0]), "whoever chooses by time sees it itself"


def test_a_peer_that_was_too_slow_long_ago_is_measured_anew() -> None:
    """Else it would never be read from again."""
    slow = {"speed": 1e3, "compute_s": 0.01}
    assert reading(1.0, **slow).choose(KEYS).blocks == 0
    again = reading(1.0, old=True, **slow).choose(KEYS)
    assert (again.level, again.blocks) == ("int4", 1), "by what is soonest: it was very slow"
    assert reading(1.3, old=True).choose(KEYS).blocks == 8, "what is quick is read as ever"
