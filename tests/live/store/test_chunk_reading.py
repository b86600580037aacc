"""Which level the next blocks of one caller come at, while others are on their way."""

from antiphon.core.kv.lineage import lineage_of
from antiphon.core.store_pool import FetchTerms, LevelBook, LevelGuess
from antiphon.live.store.pool.chunk_reading import ChunkReading, Sender
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
    speed: float | None = BYTES_PER_S,
    *,
    old: bool = False,
    compute_s: float | None = None,
) -> ChunkReading:
    book = LevelBook("adaptive", GUESSES, block_tokens=64, lineage=LINEAGE)
    terms = FetchTerms(lineage=LINEAGE, due=left_s, compute_s=compute_s)
    peer = Sender(StoreName("peer"), speed, old)
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
    mine = reading(1.2, None)
    assert (mine.choose(KEYS).blocks, mine.choose(KEYS, 8).blocks) == (1, 1)


def test_a_peer_that_was_too_slow_long_ago_is_measured_anew() -> None:
    """Else it would never be read from again."""
    slow = {"speed": 1e3, "compute_s": 0.01}
    assert reading(1.0, **slow).choose(KEYS).blocks == 0
    again = reading(1.0, old=True, **slow).choose(KEYS)
    assert (again.level, again.blocks) == ("raw", 1)
    assert reading(1.3, old=True).choose(KEYS).blocks == 8, "what is quick is read as ever"
