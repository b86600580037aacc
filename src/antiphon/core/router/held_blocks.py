"""How much of one prompt each of many holders has, without a look at any that nobody asks for."""

from collections.abc import Iterator, Mapping

from antiphon.types import WorkerId


class HeldBlocks(Mapping[WorkerId, int]):
    """Blocks by holder, of those that have any. Costs as much as there are different lengths.

    `ends`: (blocks, bits), as `BlockTable.walk` gives them. `bit_of` and `holder_of` are the
    table's: good until they change.
    """

    def __init__(
        self,
        ends: list[tuple[int, int]],
        bit_of: Mapping[WorkerId, int],
        holder_of: Mapping[int, WorkerId],
    ) -> None:
        self._ends, self._bit_of, self._holder_of = ends, bit_of, holder_of

    def get(self, key: WorkerId, default: int = 0) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]  a count has a zero
        """How many of the prompt's first blocks this holder has."""
        bit = self._bit_of.get(key, 0)
        for blocks, bits in self._ends:
            if bits & bit:
                return blocks
        return default

    @property
    def most(self) -> int:
        """Blocks of whoever has most; 0: nobody has any."""
        return self._ends[-1][0] if self._ends else 0

    def __getitem__(self, key: WorkerId) -> int:
        if blocks := self.get(key):
            return blocks
        raise KeyError(key)

    def __iter__(self) -> Iterator[WorkerId]:
        for _, bits in self._ends:
            while bits:
                lowest = bits & -bits
                yield self._holder_of[lowest]
                bits ^= lowest

    def __len__(self) -> int:
        return sum(bits.bit_count() for _, bits in self._ends)

    def longest(self, most: int, turn: int) -> list[tuple[int, WorkerId]]:
        """(blocks, holder) of at most so many, most blocks first.

        Of those that have equally much, whoever comes after bit number `turn`, round and round:
        so that many holders of the same are found by turns.
        """
        found: list[tuple[int, WorkerId]] = []
        for blocks, bits in reversed(self._ends):
            after = bits >> turn << turn
            for part in (after, bits ^ after):
                while part and len(found) < most:
                    lowest = part & -part
                    found.append((blocks, self._holder_of[lowest]))
                    part ^= lowest
        return found


NOTHING_HELD = HeldBlocks([], {}, {})
