"""A store's dealings with encoded blocks: whoever encodes, decodes, chooses and counts.

In a pool whose blocks cross the network as they are there is a book of one level, and no more.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from antiphon.core.store_joining import Tenancy, block_bytes
from antiphon.core.store_pool import RAW, LevelBook, LevelGuess, LevelSetting, ReadLevel
from antiphon.live.store.host_memory import HostBlocks, HostMemory
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import DataAccess, PoolWelcome, Seconds, StoreName, Tier, TierStats

from .block_coder import BlockCoder, Coding
from .encoded_lender import EncodedLender
from .encoded_pages import PAGE_BYTES, EncodedInbox
from .encoded_pull import EncodedPull

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class CodedBlocks:
    """Of one tenancy. `coder` None: blocks are read and lent as they are. `lender` is there from
    `open` to `close`."""

    book: LevelBook
    coder: BlockCoder | None = None
    inbox: EncodedInbox | None = None
    lender: EncodedLender | None = None
    _told: dict[StoreName, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tenancy: Tenancy, coding: Coding, due_s: Seconds) -> Self:
        """Raises `UsageError`: blocks that can't be encoded, or a profile of another model."""
        block_tokens = tenancy.kv.block_tokens
        if coding.level == RAW:
            size = block_bytes(tenancy.kv)
            raw = LevelGuess(name=RAW, rank=0, block_bytes=size, encode_s=0, decode_s=0)
            return cls(LevelBook(RAW, [raw], block_tokens=block_tokens))
        coder = BlockCoder(tenancy, coding)
        book = LevelBook(
            coding.level,
            coder.guesses(),
            block_tokens=block_tokens,
            lineage=coding.lineage(),
            due_s=due_s,
            profile=b"" if coding.profile is None else coding.profile.id,
        )
        return cls(book, coder, EncodedInbox(coder.block_bytes))

    def open(
        self,
        host: HostBlocks,
        endpoints: Sequence[str],
        *,
        must_seal: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        """Lend from these. Raises `UsageError` if pages can't be served there."""
        if self.coder is not None:
            self.lender = EncodedLender(
                self.coder,
                self.book,
                host,
                endpoints,
                must_seal=must_seal,
                spawn=spawn,
            )

    def admit(self) -> DataAccess | None:
        """A key for one more taker; None: blocks are lent as they are."""
        return None if self.lender is None else self.lender.admit()

    def dismiss(self, access: DataAccess | None) -> None:
        """The taker is gone."""
        if self.lender is not None and access is not None:
            self.lender.dismiss(access)

    async def close(self) -> None:
        """Nothing is lent any more."""
        if self.lender is not None:
            await self.lender.close()

    def pull(self, welcome: PoolWelcome, memory: HostMemory) -> EncodedPull | None:
        """What reads encoded blocks from the store that said this; None: it lends none, or none
        that can be read here. Raises `PeerError`: it has no address that can be used."""
        access = welcome.encoded
        if self.coder is None or self.inbox is None or access is None:
            return None
        if welcome.encoded_page_bytes != PAGE_BYTES:
            return None
        client = PageClient(access, self.inbox.region)
        return EncodedPull(client, self.inbox, self.coder, self.book, memory)

    def meets(self, welcome: PoolWelcome) -> ReadLevel:
        """At which level the store that said this is read. One that is set otherwise is logged,
        once for each way in which it is."""
        found = self.book.meets(welcome.name, LevelSetting(welcome.level, welcome.profile))
        if self._told.get(welcome.name, "") != found.problem:
            self._told[welcome.name] = found.problem
            if found.problem:
                text = "blocks of the store %s are read at %s: %s"
                _log.warning(text, welcome.name, found.level, found.problem)
        return found

    def forget(self, name: StoreName) -> None:
        """That store is not known any more."""
        self._told.pop(name, None)
        self.book.forget(name)

    def stats(self, pooled_blocks: int, speeds: Mapping[StoreName, float | None]) -> TierStats:
        """What came and went, by level. `speeds`: bytes a second of each peer, None: nothing has
        come from it yet."""
        seen = [self.book.block_s(speed, name) for name, speed in speeds.items() if speed]
        return TierStats(
            tier=Tier.PEER,
            blocks=pooled_blocks,
            used_bytes=0,
            limit_bytes=0,
            levels=self.book.stats(),
            computed_blocks_total=self.book.computed_blocks,
            block_s=sum(seen) / len(seen) if seen else None,
        )
