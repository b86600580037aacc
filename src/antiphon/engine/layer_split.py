"""Which layers lie in which page: layers that see through a window have pages that pass with it.

    layers  0w 1w 2  3w 4w 5        w: a sliding window
    entry   [ 2 5 ] [ 0 1 ] [ 3 4 ]     pages of two layers each: one lasts, two pass

All pages have one size, so that one memory serves all: what a window gives back may next hold
another sequence's full attention (as in vLLM's hybrid KV cache manager). A page has as many layers
as divide the smallest group, which so has no gaps; the last page of another group may.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from antiphon.types import KvGroup

_PAGE_COST = 0.5
"""What a page costs beside its bytes, in layers: an entry of tables, a hash, a copy of its own."""


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """How the layers of a model are spread over the pages of an entry.

    `windows`: of each page, which positions its layers see back (0: all), those without a window
    first. `homes`: of each layer, its page and its place there. A page has room for `page_layers`.
    """

    windows: tuple[int, ...]
    homes: tuple[tuple[int, int], ...]
    page_layers: int

    @property
    def groups(self) -> tuple[KvGroup, ...]:
        """The groups of layers in the order of their pages."""
        sizes = sorted(set(self.windows))
        return tuple(KvGroup(size, self.windows.count(size)) for size in sizes)

    @property
    def name(self) -> str:
        """Equal names, equal order of layers. Of one length, for names of layouts are limited."""
        order = repr((self.windows, self.homes, self.page_layers)).encode()
        return f"{len(self.windows)} an entry, {blake2b(order, digest_size=8).hexdigest()}"


def split_of(windows: Sequence[int]) -> LayerSplit | None:
    """The split of layers with these windows (0: none); None if no layer has one."""
    if not any(windows):
        return None
    layers: dict[int, list[int]] = {size: [] for size in sorted(set(windows))}
    for layer, size in enumerate(windows):
        layers[size].append(layer)
    counts = [len(some) for some in layers.values()]
    smallest = min(counts)
    room = min(
        (size for size in range(1, smallest + 1) if smallest % size == 0),
        key=lambda size: (_pages(counts, size) * (size + _PAGE_COST), -size),
    )
    of_pages: list[int] = []
    homes = [(0, 0)] * len(windows)
    for size, some in layers.items():
        for number, layer in enumerate(some):
            homes[layer] = (len(of_pages) + number // room, number % room)
        of_pages += [size] * -(-len(some) // room)
    return LayerSplit(tuple(of_pages), tuple(homes), room)


def _pages(counts: Sequence[int], room: int) -> int:
    """Pages of an entry if each holds `room` layers."""
    return sum(-(-count // room) for count in counts)
