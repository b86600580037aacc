"""At which level blocks are read: nobody gets lossy KV who has not the lineage, whatever was
measured; and the choice follows from what was."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.kv.lineage import EXACT_LEVELS, lineage_of
from antiphon.core.store_pool import (
    EXACT,
    Chosen,
    FetchTerms,
    LevelBook,
    LevelGuess,
    LevelSetting,
)
from antiphon.types import StoreName

TOKENS = 64
LINEAGE = lineage_of("adaptive")
MEGABYTE = 1e6
GUESSES = [
    LevelGuess(name="raw", rank=0, block_bytes=1e6, encode_s=0.0, decode_s=0.0),
    LevelGuess(name="lossless", rank=0, block_bytes=7e5, encode_s=0.004, decode_s=0.002),
    LevelGuess(name="int8", rank=1, block_bytes=5e5, encode_s=0.001, decode_s=0.0005),
    LevelGuess(name="entropy-3", rank=4, block_bytes=1.5e5, encode_s=0.02, decode_s=0.02),
]


def book(level: str = "adaptive", lineage: bytes = LINEAGE) -> LevelBook:
    return LevelBook(level, GUESSES, block_tokens=TOKENS, lineage=lineage)


def choose(
    book: LevelBook, speed: float | None, *, left_s: float = 2.0, compute_s: float | None = None
) -> Chosen:
    terms = FetchTerms(lineage=LINEAGE, due=left_s, compute_s=compute_s)
    return book.choose(40, terms, 0, speed, 0.0)


@given(
    level=st.sampled_from(["adaptive", *(one.name for one in GUESSES)]),
    own=st.sampled_from([b"", LINEAGE, lineage_of("int8")]),
    asked=st.sampled_from([b"", lineage_of("int4"), LINEAGE]),
    speed=st.none() | st.floats(1.0, 1e12),
    due=st.floats(-10, 10) | st.just(inf),
    compute_s=st.none() | st.floats(0, 100),
    blocks=st.integers(1, 200),
)
def test_lossy_kv_is_for_its_lineage_only(
    level: str,
    own: bytes,
    asked: bytes,
    speed: float | None,
    due: float,
    compute_s: float | None,
    blocks: int,
) -> None:
    terms = FetchTerms(lineage=asked, due=due, compute_s=compute_s)
    mine = book(level, own)
    chosen = mine.choose(blocks, mine.terms(terms, 0.0), 0, speed, 0.0)
    assert 0 <= chosen.blocks <= blocks
    if chosen.level not in EXACT_LEVELS:
        assert asked == own != b""
        assert mine.lineage_of(chosen.level) == own
    else:
        assert mine.lineage_of(chosen.level) == b""


def test_the_first_block_of_a_peer_tells_how_fast_it_is() -> None:
    assert choose(book(), None) == Chosen("raw", 1)
    assert book("int8").choose(40, EXACT, 0, None, 0.0) == Chosen("raw", 8), "a level is a level"


def test_the_best_that_is_in_time() -> None:
    seen = {speed: choose(book(), speed * MEGABYTE).level for speed in (1000, 25, 12, 2)}
    assert seen == {1000: "raw", 25: "lossless", 12: "int8", 2: "entropy-3"}


def test_what_is_measured_counts() -> None:
    """The decoder turns out to be slow: on a link that is fast enough for either, raw is sooner."""
    slow = book()
    assert choose(slow, 12 * MEGABYTE).level == "int8"
    for _ in range(10):
        slow.decoded("int8", 8, 8.0)
    assert choose(slow, 12 * MEGABYTE).level == "entropy-3"
    for _ in range(10):
        slow.came("int8", 8, 400)
        slow.decoded("int8", 8, 0.0)
    assert choose(slow, 12 * MEGABYTE).level == "int8"


def test_how_long_a_peer_encodes_counts_for_that_peer() -> None:
    """Whatever it says; and what it had on its shelf says nothing of how long encoding takes."""
    mine, slow, good = book(), StoreName("slow"), StoreName("good")
    terms = FetchTerms(lineage=LINEAGE, due=2.0)

    def level(peer: StoreName) -> str:
        return mine.choose(40, terms, 0, 12 * MEGABYTE, 0.0, peer).level

    for _ in range(10):
        mine.encoded_there("int8", 8, 1e12, slow)
    assert (level(slow), level(good)) == ("entropy-3", "int8")
    before_s = mine.encode_s("int8", 1, slow)
    mine.encoded_there("int8", 0, 0.0, slow)
    assert mine.encode_s("int8", 1, slow) == before_s
    mine.encoded_there("int8", 1, 0.0, slow)
    assert mine.encode_s("int8", 1, slow) == before_s / 2


def test_computing_is_a_choice_where_it_is_better() -> None:
    """40 blocks: at 0.1 MB/s each takes more than a second at any level."""
    assert choose(book(), 0.1 * MEGABYTE, compute_s=0.04) == Chosen("raw", 0)
    assert choose(book(), 0.1 * MEGABYTE, compute_s=30.0).level == "entropy-3"
    assert choose(book(), 0.1 * MEGABYTE).level == "entropy-3", "who can't compute must wait"
    assert choose(book(), 1000 * MEGABYTE, compute_s=0.04).level == "raw"


def test_counts_are_of_what_was_done() -> None:
    mine = book("int8", lineage_of("int8"))
    mine.choose(20, FetchTerms(lineage=mine.lineage), 0, 1e6, 0.0)
    mine.came("int8", 8, 4096)
    mine.decoded("int8", 8, 0.25)
    mine.damaged("int8", 2)
    mine.encoded("int8", 512, 0.125)
    [stats] = mine.stats()
    assert (stats.level, stats.chosen_total, stats.read_blocks_total) == ("int8", 1, 8)
    assert (stats.read_bytes_total, stats.decode_s_total) == (4096, 0.25)
    assert (stats.damaged_blocks_total, stats.encoded_blocks_total) == (2, 1)
    assert (stats.encoded_bytes_total, stats.encode_s_total) == (512, 0.125)


def test_a_block_takes_what_is_slowest_at_the_level_that_was_chosen_last() -> None:
    mine, slow = book(), StoreName("slow")
    assert mine.block_s(10 * MEGABYTE) == 0.1, "nothing was chosen yet: as it is"
    assert choose(mine, 12 * MEGABYTE).level == "int8"
    assert mine.block_s(10 * MEGABYTE) == 0.05
    assert mine.block_s(10_000 * MEGABYTE) == 0.001, "as long as encoding takes"
    mine.encoded_there("int8", 1, 0.199, slow)
    assert (mine.block_s(10 * MEGABYTE, slow), mine.block_s(10 * MEGABYTE)) == (0.1, 0.05)
    for _ in range(40):
        mine.decoded("int8", 1, 0.5)
    assert abs(mine.block_s(10 * MEGABYTE) - 0.5) < 1e-6
    assert book("int8").block_s(10 * MEGABYTE) == 0.05


def test_a_block_takes_what_it_does_at_its_own_peer_s_level() -> None:
    mine, raw, good = book("int8", lineage_of("int8")), StoreName("b"), StoreName("c")
    mine.meets(raw, LevelSetting("raw"))
    mine.meets(good, LevelSetting("int8"))
    terms = FetchTerms(lineage=mine.lineage, due=2.0)
    for peer in (None, raw, good, raw):
        if peer is not None:
            mine.choose(40, terms, 0, 10 * MEGABYTE, 0.0, peer)
        assert (mine.block_s(10 * MEGABYTE, raw), mine.block_s(10 * MEGABYTE, good)) == (0.1, 0.05)


def test_an_adaptive_store_reads_each_peer_at_its_own_level() -> None:
    mine, slow, fast = book(), StoreName("slow"), StoreName("fast")
    terms = FetchTerms(lineage=LINEAGE, due=2.0)
    for peer, speed in ((slow, 2), (fast, 1000)):
        mine.choose(40, terms, 0, speed * MEGABYTE, 0.0, peer)
    assert (mine.latest(slow), mine.latest(fast)) == ("entropy-3", "raw")
    assert mine.block_s(2 * MEGABYTE, slow) == 0.075
    mine.meets(slow, LevelSetting("raw"))
    assert mine.latest(slow) == "raw", "it was set otherwise since"


def test_of_a_peer_that_is_forgotten_nothing_is_left() -> None:
    def kept() -> int:
        return sum(len(one) for one in vars(mine).values() if isinstance(one, dict))

    mine = book()
    before = kept()
    terms = FetchTerms(lineage=LINEAGE, due=2.0)
    for number in range(100):
        peer = StoreName(f"p{number}")
        mine.meets(peer, LevelSetting("raw"))
        mine.choose(40, terms, 0, 2 * MEGABYTE, 0.0, peer)
        mine.encoded_there("int8", 8, 1.0, peer)
        assert mine.level_for(peer, "int8") == "raw"
        mine.forget(peer)
        assert mine.level_for(peer, "int8") == "int8"
        assert kept() == before
