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
    Sender,
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


def sent(speed: float, name: str = "", *, measured: bool = True, answer_s: float = 0.0) -> Sender:
    peer = StoreName(name)
    return Sender(bytes_per_s=speed, measured=measured, name=peer, answer_s=answer_s)


def choose(
    book: LevelBook,
    speed: float,
    *,
    left_s: float = 2.0,
    compute_s: float | None = None,
    measured: bool = True,
    answer_s: float = 0.0,
    lineage: bytes = LINEAGE,
) -> Chosen:
    terms = FetchTerms(lineage=lineage, due=left_s, compute_s=compute_s)
    sender = sent(speed, measured=measured, answer_s=answer_s)
    return book.choose(40, terms, 0, sender, 0.0)


@given(
    level=st.sampled_from(["adaptive", *(one.name for one in GUESSES)]),
    own=st.sampled_from([b"", LINEAGE, lineage_of("int8")]),
    asked=st.sampled_from([b"", lineage_of("int4"), LINEAGE]),
    speed=st.floats(1.0, 1e12),
    measured=st.booleans(),
    due=st.floats(-10, 10) | st.just(inf),
    compute_s=st.none() | st.floats(0, 100),
    blocks=st.integers(1, 200),
)
def test_lossy_kv_is_for_its_lineage_only(
    level: str,
    own: bytes,
    asked: bytes,
    speed: float,
    measured: bool,
    due: float,
    compute_s: float | None,
    blocks: int,
) -> None:
    terms = FetchTerms(lineage=asked, due=due, compute_s=compute_s)
    mine = book(level, own)
    sender = sent(speed, measured=measured)
    chosen = mine.choose(blocks, mine.terms(terms, 0.0), 0, sender, 0.0)
    assert 0 <= chosen.blocks <= blocks
    if chosen.level not in EXACT_LEVELS:
        assert asked == own != b""
        assert mine.lineage_of(chosen.level) == own
    else:
        assert mine.lineage_of(chosen.level) == b""


def test_the_first_block_of_a_peer_tells_how_fast_it_is() -> None:
    """It is one, at the best level that takes no more than its share of the time there is, at the
    least speed that is likely: 0.5 s of 2 s."""

    def first(speed: float, **said: float) -> tuple[str, int]:
        chosen = choose(book(), speed * MEGABYTE, measured=False, **said)
        return chosen.level, chosen.blocks

    assert first(125) == ("raw", 1), "0.008 s"
    assert first(12.5) == ("lossless", 1), "exact as well, and sooner"
    assert first(1.5) == ("lossless", 1), "0.67 s as it is"
    assert first(1.1) == ("int8", 1)
    assert first(0.1) == ("entropy-3", 1), "late at any level"
    assert first(12.5, left_s=-1.0) == ("entropy-3", 1), "it was due already"
    assert first(12.5, compute_s=0.001) == ("entropy-3", 1), "40 could be computed in 0.04 s"
    assert first(12.5, left_s=-1.0, compute_s=0.01) == ("lossless", 1), "in 0.4 s"
    assert first(12.5, answer_s=0.45) == ("int8", 1)
    exact = choose(book(), 0.1 * MEGABYTE, measured=False, lineage=b"")
    assert exact == Chosen("lossless", 1), "who takes exact KV only gets no other"
    fixed = book("int8").choose(40, EXACT, 0, sent(1.0, measured=False), 0.0)
    assert fixed == Chosen("raw", 8), "a level is a level"


@given(
    speed=st.floats(1.0, 1e12),
    left_s=st.floats(-10.0, 100.0),
    compute_s=st.none() | st.floats(0.0, 10.0),
)
def test_the_first_block_takes_its_share_or_is_the_soonest(
    speed: float, left_s: float, compute_s: float | None
) -> None:
    mine = book()
    chosen = choose(mine, speed, left_s=left_s, compute_s=compute_s, measured=False)
    assert chosen.blocks == 1, "else a peer would never be measured"
    took = {one.name: one.block_bytes / speed + max(one.encode_s, one.decode_s) for one in GUESSES}
    times = [left_s] if compute_s is None else [left_s, 40 * compute_s]
    most_s = min((one for one in times if one > 0), default=0.0)
    share = 0.25 * most_s * (1 + 1e-9)
    assert took[chosen.level] <= max(share, min(took.values()) * (1 + 1e-9))


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
        return mine.choose(40, terms, 0, sent(12 * MEGABYTE, peer), 0.0).level

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


def test_a_peer_that_is_long_in_answering_is_read_where_that_is_worth_it() -> None:
    """40 blocks take 1.1 s to the bit; after 1 s they are in time at a smaller level alone."""
    assert choose(book(), 25 * MEGABYTE, answer_s=0.3) == Chosen("lossless", 8)
    assert choose(book(), 25 * MEGABYTE, answer_s=1.0) == Chosen("int8", 8, 1)
    assert choose(book(), 1000 * MEGABYTE, left_s=0.0, compute_s=0.005).blocks == 8
    assert choose(book(), 1000 * MEGABYTE, left_s=0.0, compute_s=0.005, answer_s=0.5).blocks == 0


def test_counts_are_of_what_was_done() -> None:
    mine = book("int8", lineage_of("int8"))
    mine.choose(20, FetchTerms(lineage=mine.lineage), 0, sent(1e6), 0.0)
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
            mine.choose(40, terms, 0, sent(10 * MEGABYTE, peer), 0.0)
        assert (mine.block_s(10 * MEGABYTE, raw), mine.block_s(10 * MEGABYTE, good)) == (0.1, 0.05)


def test_an_adaptive_store_reads_each_peer_at_its_own_level() -> None:
    mine, slow, fast = book(), StoreName("slow"), StoreName("fast")
    terms = FetchTerms(lineage=LINEAGE, due=2.0)
    for peer, speed in ((slow, 2), (fast, 1000)):
        mine.choose(40, terms, 0, sent(speed * MEGABYTE, peer), 0.0)
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
        mine.choose(40, terms, 0, sent(2 * MEGABYTE, peer), 0.0)
        mine.encoded_there("int8", 8, 1.0, peer)
        assert mine.level_for(peer, "int8") == "raw"
        mine.forget(peer)
        assert mine.level_for(peer, "int8") == "int8"
        assert kept() == before
