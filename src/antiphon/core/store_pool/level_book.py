"""At which level the next blocks of a chain are read from peers, or whether to leave them.

    fixed level   always that one, for whoever may be given it; else as they are
    adaptive      `codec_choice.choose_level`, over what was measured: bytes a block takes at each
                  level, how long it takes to encode and to decode one, how fast the peer sends,
                  how long it takes to answer

How long a block takes to be encoded is each peer's own word, and counts for what that peer sends.

What a peer can't encode, as it is set, is not asked of it (`read_level`).

Until a peer's speed was measured one block is read, to measure it; computing is no choice yet. Were
the peer as slow as is likely (`Sources.least_bytes_per_s`), that block may take a part of the time
that there is for all of them, and no more: it comes at the best level at which it keeps to that, to
the bit if one does, else at the level that is soonest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from antiphon.core.codec_choice import FetchLevel, FetchState, choose_level
from antiphon.core.kv.lineage import ADAPTIVE, EXACT_LEVELS
from antiphon.core.tiers import BLOCKS_A_TURN
from antiphon.types import LevelStats, Seconds, StoreName

from .fetch_terms import FetchTerms
from .read_level import RAW, LevelSetting, ReadLevel, read_level
from .sender import NOBODY, Sender

_FIRST_SHARE = 0.25
"""Of the time that there is, for the block that measures a peer."""
_WEIGHT = 0.5
"""Of the newest chunk: what a machine does for others changes within seconds."""
_NO_TIME_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelGuess:
    """A level and what to expect of it until it was seen. `rank`: 0 is exact, larger is worse.
    Seconds are of a block, on one thread."""

    name: str
    rank: int
    block_bytes: float
    encode_s: Seconds
    decode_s: Seconds


@dataclass(frozen=True, slots=True)
class Chosen:
    """Read the next `blocks` (0: none, they are better computed) at that level."""

    level: str
    blocks: int
    rank: int = 0


class LevelBook:
    """Of one store. Mutable, pure. `levels` has `raw`; `level` is one of them, or `adaptive`.

    `lineage`: of what comes at a lossy level; `due_s`: when who says nothing wants it, from asking;
    `profile`: the id of the profile by which entropy levels are decoded.
    """

    def __init__(
        self,
        level: str,
        levels: Sequence[LevelGuess],
        *,
        block_tokens: int,
        lineage: bytes = b"",
        due_s: Seconds = 2.0,
        profile: bytes = b"",
    ) -> None:
        self.level = level
        self.setting = LevelSetting(level, profile)
        """As peers are told it."""
        self.lineage = lineage
        self.computed_blocks = 0
        """How many were left to be computed."""
        self._latest: dict[StoreName, str] = {}
        """The level that was chosen last for each peer."""
        self._seen = {one.name: one for one in levels}
        self._encode_s: dict[tuple[str, StoreName], Seconds] = {}
        """Of a level and who encodes; the guess holds for those that have said nothing."""
        self._stats = {one.name: LevelStats(level=one.name) for one in levels}
        self._read_levels: dict[StoreName, ReadLevel] = {}
        self._block_tokens = block_tokens
        self._due_s = due_s

    @property
    def adapts(self) -> bool:
        """Whether the level is chosen, chunk by chunk."""
        return self.level == ADAPTIVE

    def names(self) -> Sequence[str]:
        """All levels that there are here."""
        return list(self._seen)

    def stats(self) -> tuple[LevelStats, ...]:
        """Of those that were used."""
        return tuple(one for one in self._stats.values() if one != LevelStats(level=one.level))

    # ── who lends what ───────────────────────────────────────────────────────────────────────────

    def meets(self, peer: StoreName, there: LevelSetting) -> ReadLevel:
        """The peer is set like that: at which level it is read from now on. Mutates."""
        self._read_levels[peer] = found = read_level(self.setting, there)
        return found

    def level_for(self, peer: StoreName, level: str) -> str:
        """That level, or raw if the peer can't encode so."""
        return level if self._lends(peer, level) else RAW

    def latest(self, peer: StoreName = NOBODY) -> str:
        """The level that was chosen last for that peer, if it lends so; as is set, or raw, if none
        was."""
        first = RAW if self.adapts else self.level
        return self.level_for(peer, self._latest.get(peer, first))

    def forget(self, peer: StoreName) -> None:
        """That peer is not known any more. Mutates."""
        self._read_levels.pop(peer, None)
        self._latest.pop(peer, None)
        self._encode_s = {of: one for of, one in self._encode_s.items() if of[1] != peer}

    def _lends(self, peer: StoreName, level: str) -> bool:
        known = self._read_levels.get(peer)
        return known is None or known.allows(level)

    # ── what to do ───────────────────────────────────────────────────────────────────────────

    def choose(
        self, blocks: int, terms: FetchTerms, here_rank: int, sender: Sender, now: Seconds
    ) -> Chosen:
        """What to do about the next of `blocks` (at least 1) that `sender` has. `here_rank`: of the
        worst that was read for the same; `now`: when what was asked for before has come. Mutates
        only what it counts, and `latest`."""
        chosen = self._choose(blocks, terms, here_rank, sender, now)
        if chosen.blocks:
            self._count(chosen.level, chosen_total=1)
            self._latest[sender.name] = chosen.level
        return chosen

    def _choose(
        self, blocks: int, terms: FetchTerms, here_rank: int, sender: Sender, now: Seconds
    ) -> Chosen:
        chunk = min(blocks, BLOCKS_A_TURN)
        if not self.adapts:
            may_have = self._may_have(terms, self.level)
            level = self.level_for(sender.name, self.level) if may_have else RAW
            return Chosen(level, chunk, self._seen[level].rank)
        levels = [
            self._fetch_level(one, sender.name)
            for name, one in self._seen.items()
            if self._may_have(terms, name) and self._lends(sender.name, name)
        ]
        state = self._state(blocks, terms, here_rank, sender, now)
        if not sender.measured:
            state, chunk = self._first_of(state), 1
        level = choose_level(state, levels).level
        return Chosen(RAW, 0) if level is None else Chosen(level.name, chunk, level.rank)

    def _state(
        self, blocks: int, terms: FetchTerms, here_rank: int, sender: Sender, now: Seconds
    ) -> FetchState:
        sizes = [min(BLOCKS_A_TURN, blocks - at) for at in range(0, blocks, BLOCKS_A_TURN)]
        return FetchState(
            tokens=tuple(size * self._block_tokens for size in sizes),
            compute_s=None if terms.compute_s is None else blocks * terms.compute_s,
            bytes_per_s=sender.bytes_per_s,
            left_s=terms.due - now,
            setup_s=sender.answer_s,
            here_rank=here_rank,
        )

    def _first_of(self, state: FetchState) -> FetchState:
        """One block of all that, for its share of the time until that is due, or, if it is too
        late or computing is sooner, until it could be computed."""
        most_s = state.left_s
        if state.compute_s is not None:
            most_s = min(most_s, state.compute_s) if most_s > 0 else state.compute_s
        return replace(
            state, tokens=(self._block_tokens,), compute_s=None, left_s=_FIRST_SHARE * most_s
        )

    def terms(self, said: FetchTerms, now: Seconds) -> FetchTerms:
        """With what holds where nothing was said."""
        return said if said.due != float("inf") else replace(said, due=now + self._due_s)

    def _may_have(self, terms: FetchTerms, level: str) -> bool:
        """Lossy KV is for those only whose KV is all named after it."""
        return level in EXACT_LEVELS or (bool(self.lineage) and terms.lineage == self.lineage)

    def lineage_of(self, level: str) -> bytes:
        """Of a block that came at that level."""
        return b"" if level in EXACT_LEVELS else self.lineage

    def block_s(self, bytes_per_s: float, peer: StoreName = NOBODY) -> Seconds:
        """About how long each block of many takes to come from that peer, which is so fast, at the
        level that was chosen last for it: the longest of moving, encoding and decoding it."""
        seen = self._seen[self.latest(peer)]
        moving_s = seen.block_bytes / bytes_per_s
        return max(moving_s, self.encode_s(seen.name, 1, peer), seen.decode_s)

    def _fetch_level(self, seen: LevelGuess, peer: StoreName) -> FetchLevel:
        slower_s = max(self.encode_s(seen.name, 1, peer), seen.decode_s, _NO_TIME_S)
        return FetchLevel(
            name=seen.name,
            rank=seen.rank,
            bytes_per_token=seen.block_bytes / self._block_tokens,
            tokens_per_s=self._block_tokens / slower_s,
        )

    # ── what came of it ──────────────────────────────────────────────────────────────────────

    def encode_s(self, level: str, blocks: int, peer: StoreName = NOBODY) -> Seconds:
        """How long so many take that peer to encode, on one thread."""
        return blocks * self._encode_s.get((level, peer), self._seen[level].encode_s)

    def decode_s(self, level: str, blocks: int) -> Seconds:
        """How long so many take to be decoded here, on one thread."""
        return blocks * self._seen[level].decode_s

    def block_bytes(self, level: str) -> int:
        """What a block takes at that level, about."""
        return int(self._seen[level].block_bytes)

    def came(self, level: str, blocks: int, size_bytes: int) -> None:
        """So many came, of so many bytes together. Mutates."""
        self._count(level, read_blocks_total=blocks, read_bytes_total=size_bytes)
        if blocks and level != RAW:
            self._see(level, block_bytes=size_bytes / blocks)

    def encoded_there(self, level: str, blocks: int, seconds: Seconds, peer: StoreName) -> None:
        """That peer says that it has encoded so many, in so long (a number that can be: at least
        0, finite). What it had encoded before is not among them. Mutates."""
        if blocks:
            before_s = self.encode_s(level, 1, peer)
            mixed_s = before_s + _WEIGHT * (seconds / blocks - before_s)
            self._encode_s[level, peer] = mixed_s

    def decoded(self, level: str, blocks: int, seconds: Seconds) -> None:
        """So long a thread took. Mutates."""
        self._count(level, decode_s_total=seconds)
        if blocks:
            self._see(level, decode_s=seconds / blocks)

    def damaged(self, level: str, blocks: int) -> None:
        """They came, and were not what they should be. Mutates."""
        self._count(level, damaged_blocks_total=blocks)

    def encoded(self, level: str, size_bytes: int, seconds: Seconds) -> None:
        """A block was encoded here, for a peer. Mutates."""
        self._count(
            level, encoded_blocks_total=1, encoded_bytes_total=size_bytes, encode_s_total=seconds
        )

    def _see(self, level: str, **news: float) -> None:
        seen = self._seen[level]
        mixed = {
            name: getattr(seen, name) + _WEIGHT * (max(0.0, value) - getattr(seen, name))
            for name, value in news.items()
        }
        self._seen[level] = replace(seen, **mixed)

    def _count(self, level: str, **more: float) -> None:
        stats = self._stats[level]
        self._stats[level] = replace(
            stats, **{name: getattr(stats, name) + value for name, value in more.items()}
        )
