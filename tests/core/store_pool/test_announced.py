"""What a node says to its peers, over random histories (I51): never a copy of lossy KV, and what it
says is what a new peer would be told."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.store_pool import Announced
from antiphon.types import BlockKey, KvChange, Tier

KEYS = [BlockKey(bytes([n]) * 32) for n in range(3)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "decoded", "declined", "gone", "written", "unwritten")),
        st.sampled_from(KEYS),
    ),
    max_size=40,
)


class Node:
    """A host tier and a disk, of which peers hear."""

    def __init__(self) -> None:
        self.told: set[tuple[BlockKey, Tier]] = set()
        self.announced = Announced(self.heard)
        self.memory: dict[BlockKey, bool] = {}
        """Whether what is there is exact."""
        self.disk: set[BlockKey] = set()

    def heard(self, change: KvChange) -> None:
        where = (change.key, change.tier)
        assert (where in self.told) != change.stored, "said twice"
        (self.told.add if change.stored else self.told.remove)(where)

    def step(self, what: str, key: BlockKey) -> None:
        match what:
            case "put" | "decoded" if key not in self.memory:
                exact = what == "put"
                if not exact:
                    self.announced.inexact(key, True)
                self.memory[key] = exact
                self.announced.changed(KvChange(key, Tier.HOST, True))
            case "declined" if key not in self.memory:
                self.announced.inexact(key, True)
                self.announced.inexact(key, False)
            case "gone" if key in self.memory:
                del self.memory[key]
                self.announced.changed(KvChange(key, Tier.HOST, False))
            case "written" if self.memory.get(key) and key not in self.disk:
                self.disk.add(key)
                self.announced.changed(KvChange(key, Tier.DISK, True))
            case "unwritten" if key in self.disk:
                self.disk.remove(key)
                self.announced.changed(KvChange(key, Tier.DISK, False))
            case _:
                pass


@given(STEPS)
def test_peers_hear_of_exact_blocks_and_of_no_other(steps: list[tuple[str, BlockKey]]) -> None:
    node = Node()
    for what, key in steps:
        node.step(what, key)
        exact = {(key, Tier.HOST) for key, good in node.memory.items() if good}
        there = exact | {(key, Tier.DISK) for key in node.disk}
        assert node.told == there
        held = {
            *((key, Tier.HOST) for key in node.memory),
            *((key, Tier.DISK) for key in node.disk),
        }
        assert {one for one in held if node.announced.says(*one)} == there
