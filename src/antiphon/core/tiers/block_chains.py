"""How the blocks of the host tier continue each other, and which of them may go."""

from collections.abc import Collection, Sequence

from antiphon.types import BlockKey

from .held_block import BlockState, HeldBlock


class BlockChains:
    """All blocks that are visible or being written, by key, and how many continue each.

    Tells a block's policy whenever it has changed whether the block may go: it may if it is
    visible, nobody reads it, nobody pinned it and no block continues it.
    """

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, HeldBlock] = {}
        self._children: dict[BlockKey, int] = {}
        """How many blocks name this one as their parent; it may be missing itself."""

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, key: BlockKey | None) -> HeldBlock | None:
        """The block of this key, visible or being written."""
        return self._blocks.get(key) if key is not None else None

    def keys(self) -> Collection[BlockKey]:
        """All blocks, oldest first. Valid until the next change."""
        return self._blocks.keys()

    def prefix(self, keys: Sequence[BlockKey]) -> list[HeldBlock]:
        """The longest run of visible blocks that the keys begin with."""
        found: list[HeldBlock] = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None or block.state is not BlockState.VISIBLE:
                break
            found.append(block)
        return found

    def would_loop(self, key: BlockKey, parent: BlockKey | None) -> bool:
        """Whether a new block would be its own ancestor.

        Only a block that others continue already can be: then its ancestors are looked at.
        """
        if key == parent:
            return True
        if key not in self._children:
            return False
        while parent is not None and parent != key:
            before = self._blocks.get(parent)
            parent = before.parent if before is not None else None
        return parent is not None

    def link(self, parent: BlockKey | None) -> None:
        """One more block continues this one, or is about to: it can't go."""
        if parent is not None:
            self._children[parent] = self._children.get(parent, 0) + 1
            self.weigh(self._blocks.get(parent))

    def unlink(self, parent: BlockKey | None) -> None:
        """One block less continues this one."""
        if parent is None:
            return
        self._children[parent] -= 1
        if not self._children[parent]:
            del self._children[parent]
            self.weigh(self._blocks.get(parent))

    def add(self, block: HeldBlock) -> None:
        """A new block, whose parent has been linked."""
        self._blocks[block.key] = block

    def remove(self, block: HeldBlock) -> None:
        """The block is not found any more, and continues nothing."""
        del self._blocks[block.key]
        self.unlink(block.parent)

    def weigh(self, block: HeldBlock | None) -> None:
        """See whether the block may go, after something about it has changed."""
        if block is None or block.state is not BlockState.VISIBLE:
            return
        idle = not (block.leases or block.pinned or block.key in self._children)
        if idle == block.idle:
            return
        block.idle = idle
        if idle:
            block.account.policy.idle(block.key)
        else:
            block.account.policy.busy(block.key)
