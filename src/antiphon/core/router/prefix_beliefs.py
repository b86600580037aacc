"""What is believed of where the beginning of each open request's prompt is.

    PrefixIndex ────────► what is there  ─┐
    ExpectedPrefixes ───► what is coming ─┴─► HeldPrefix of each worker, and of the store for it

All of it is computed once a request and kind of worker, and nothing while nobody tells what it has.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple, Protocol

from antiphon.types import BlockKey, Request, RequestId, Tier, WorkerId, WorkerInfo

from .expected_prefixes import ExpectedPrefixes
from .held_blocks import HeldBlocks
from .prefix_index import PrefixIndex, Reach, StoredRun
from .prompt_keys import KeySpace, PromptKeys, space_of

_EXPECTED_BLOCKS = 256
"""Blocks that a request is expected to bring: more would cost more hashing than they save."""


class StoredTokens(NamedTuple):
    """So many consecutive tokens of a prompt, and the fastest tier of the store that has them."""

    tier: Tier
    tokens: int


class HeldPrefix(NamedTuple):
    """How much of a prompt a worker need not compute: `own` tokens are, or soon will be, in its own
    memory; `store` is the longest prefix in what it can fetch from, run by run."""

    own: int
    store: tuple[StoredTokens, ...]
    sharing: int = 0
    """Other open requests with the longest prefix of it that any worker has: they would use it,
    too, wherever it is computed again."""


NOTHING = HeldPrefix(0, ())


class HeldPrefixes:
    """One request's, at one moment: good until the next fact. Looks as late as it can."""

    def __init__(self, look: Callable[[KeySpace], "Found"]) -> None:
        self._look = look
        self._found: dict[KeySpace, Found] = {}
        self._reached: dict[WorkerId, tuple[StoredTokens, ...]] = {}

    def of(self, worker: WorkerInfo) -> HeldPrefix:
        """What is there for this worker."""
        space = space_of(worker)
        if space is None:
            return NOTHING
        found = self._of(space)
        own = found.own.get(worker.id, 0)
        return HeldPrefix(own, self._reached_by(worker.id, found), found.sharing)

    def _reached_by(self, worker: WorkerId, found: "Found") -> tuple[StoredTokens, ...]:
        if found.reached_by is None:
            return found.store
        reached = self._reached.get(worker)
        if reached is None:
            reached = self._reached[worker] = found.reached_by(worker)
        return reached

    def longest(self, kinds: Iterable[WorkerInfo], most: int, turn: int) -> list[WorkerId]:
        """Those of these kinds of workers that have most of the prompt: of each at most so many."""
        spaces = dict.fromkeys(map(space_of, kinds))
        found = [self._of(space).own.longest(most, turn) for space in spaces if space is not None]
        return [worker for some in found for worker in some]

    def _of(self, space: KeySpace) -> "Found":
        found = self._found.get(space)
        if found is None:
            found = self._found[space] = self._look(space)
        return found


class Own(Protocol):
    """Tokens of a prompt by worker."""

    def get(self, worker: WorkerId, default: int, /) -> int:
        """So many has this one."""
        ...

    def longest(self, most: int, turn: int) -> Sequence[WorkerId]:
        """Those that have most: at most so many, by turns where many have equally much."""
        ...


class OwnTokens:
    """What workers have, and what they will have."""

    def __init__(
        self,
        parts: tuple[HeldBlocks, ...],
        block_tokens: int,
        beside: Callable[[], HeldBlocks] | None = None,
    ) -> None:
        """`beside`: what lies beside workers makes them worth a look, too; None: nothing does."""
        self._parts, self._block_tokens = parts, block_tokens
        self._beside = beside

    def get(self, worker: WorkerId, default: int, /) -> int:
        """See `Own`."""
        most = 0
        for part in self._parts:
            blocks = part.get(worker)
            if blocks > most:
                most = blocks
        return most * self._block_tokens or default

    def longest(self, most: int, turn: int) -> Sequence[WorkerId]:
        """See `Own`."""
        parts = self._parts if self._beside is None else (*self._parts, self._beside())
        found = [one for part in parts for one in part.longest(most, turn)]
        found.sort(key=lambda one: -one[0])
        return list(dict.fromkeys(worker for _, worker in found))[:most]


class Found(NamedTuple):
    """What workers of one key space have of a prompt, in tokens, and the store for them."""

    own: Own
    store: tuple[StoredTokens, ...]
    sharing: int = 0
    """Other open requests that begin with the longest prefix that some worker has."""
    reached_by: Callable[[WorkerId], tuple[StoredTokens, ...]] | None = None
    """What one worker can fetch from; None: the same for all, `store`."""


class PrefixBeliefs:
    """Mutable. `follow`: workers keep what they compute, so that others may follow a request."""

    def __init__(self, index: PrefixIndex, *, follow: bool = True) -> None:
        self.index = index
        self._follow = follow
        self._expected = ExpectedPrefixes()
        self._keys: dict[RequestId, dict[KeySpace, PromptKeys]] = {}

    def requests(self) -> Set[RequestId]:
        """Those that something is kept of."""
        return self._keys.keys()

    def of(self, request: Request) -> HeldPrefixes | None:
        """Where the request's prompt is; None: nobody tells what it has. Mutates: keeps its keys
        until `forget`."""
        if not self.index:
            return None
        return HeldPrefixes(lambda space: self._look(self._keys_of(request, space)))

    def expect(self, request: Request, worker: WorkerInfo) -> None:
        """The worker is going to compute the prompt. Mutates."""
        space = space_of(worker)
        if self._follow and space is not None and self.index.hears(worker.id):
            keys = self._keys_of(request, space).first(_EXPECTED_BLOCKS)
            self._expected.add(request.id, worker.id, keys)

    def names_of(self, request: RequestId, space: KeySpace) -> Sequence[BlockKey]:
        """The keys of an open request's first blocks, as far as they were needed so far."""
        keys = self._keys.get(request, {}).get(space)
        return () if keys is None else keys.known

    def moved(self, request: RequestId) -> None:
        """The request is not where it was: it may not have been computed there. Mutates."""
        self._expected.drop(request)

    def forget(self, request: RequestId) -> None:
        """The request is over. Mutates."""
        self._expected.drop(request)
        self._keys.pop(request, None)

    def left(self, holder: WorkerId) -> None:
        """What the holder has or would have is out of reach. Mutates."""
        self.index.left(holder)
        self._expected.left(holder)

    def _keys_of(self, request: Request, space: KeySpace) -> PromptKeys:
        spaces = self._keys.setdefault(request.id, {})
        keys = spaces.get(space)
        if keys is None:
            keys = spaces[space] = PromptKeys(request.prompt, request.tenant_salt, space)
        return keys

    def _look(self, keys: PromptKeys) -> Found:
        held, size = self.index.match(keys), keys.block_tokens
        parts, sharing = (held.workers,), 0
        if self._expected:
            parts = (held.workers, self._expected.match(keys))
            longest = min(max(part.most for part in parts), _EXPECTED_BLOCKS)
            sharing = self._expected.sharing(keys.first(longest)[-1]) if longest else 0
        store = _in_tokens(held.store, size)
        if not self.index.reach_differs:
            return Found(OwnTokens(parts, size), store, sharing)
        reached: dict[Reach, tuple[StoredTokens, ...]] = {}

        def reached_by(worker: WorkerId) -> tuple[StoredTokens, ...]:
            reach = self.index.reach_of(worker)
            if reach not in reached:
                reached[reach] = _in_tokens(self.index.reached(reach, keys), size)
            return reached[reach]

        own = OwnTokens(parts, size, lambda: self.index.beside(keys))
        return Found(own, store, sharing, reached_by)


def _in_tokens(runs: tuple[StoredRun, ...], block_tokens: int) -> tuple[StoredTokens, ...]:
    return tuple(StoredTokens(run.tier, run.blocks * block_tokens) for run in runs)
