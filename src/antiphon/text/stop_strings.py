"""Finding stop strings in text that arrives piece by piece.

The Aho–Corasick automaton ("Efficient string matching: an aid to bibliographic search", 1975):
after each character it knows the longest end of the text that begins some stop string, so each
character is looked at once, however the text is cut into pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.errors import ClientError


@dataclass(frozen=True, slots=True)
class Scan:
    """What is decided so far: `text` is free to go; `stopped` is the stop string that ended it."""

    text: str
    stopped: str | None


@dataclass(slots=True)
class _Node:
    depth: int
    next: dict[str, "_Node"]
    shorter: "_Node | None" = None
    """The node of the longest proper end of this node's text that begins a stop string."""
    longest_stop: str | None = None
    """The longest stop string that ends here."""


class StopStrings:
    """Cuts one text before the first stop string. Mutable: one object a text.

    Which match is first does not depend on how the text is cut into pieces: the one that starts
    earliest; of those that start together the shortest, whose end comes first (so that it is
    decided at once, and the text before it is the same anyway). Raises `ClientError` (field
    "stop") for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ClientError("a stop string is empty", field="stop")
        self._root = _automaton(stops)
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._node = self._root
        self._held = ""
        """Text that is not free yet. All of it lies at or behind the start of `_node`'s text."""
        self._found: tuple[int, str] | None = None
        """The best match so far, by its start in `_held`; an earlier one may still complete."""

    def feed(self, piece: str) -> Scan:
        """Take the next piece of the text. Do not feed after a stop."""
        if self._node is self._root and self._first_characters.isdisjoint(piece):
            return Scan(piece, None)
        at = len(self._held)
        self._held += piece
        for character in piece:
            at += 1
            self._step(character)
            start = at - self._node.depth
            stop = self._node.longest_stop
            if stop is not None and (self._found is None or at - len(stop) < self._found[0]):
                self._found = (at - len(stop), stop)
            if self._found is not None and self._found[0] <= start:
                return self._cut(*self._found)
        return self._release(at - self._node.depth)

    def finish(self) -> Scan:
        """The text is over: what was held back is decided now."""
        if self._found is not None:
            return self._cut(*self._found)
        return self._release(len(self._held))

    def _step(self, character: str) -> None:
        node = self._node
        while character not in node.next and node.shorter is not None:
            node = node.shorter
        self._node = node.next.get(character, self._root)

    def _cut(self, start: int, stop: str) -> Scan:
        text = self._held[:start]
        self._held = ""
        return Scan(text, stop)

    def _release(self, end: int) -> Scan:
        text, self._held = self._held[:end], self._held[end:]
        if self._found is not None:
            self._found = (self._found[0] - end, self._found[1])
        return Scan(text, None)


def _automaton(stops: Sequence[str]) -> _Node:
    root = _Node(0, {})
    for stop in stops:
        node = root
        for character in stop:
            node = node.next.setdefault(character, _Node(node.depth + 1, {}))
        node.longest_stop = stop
    level = [root]
    while level:  # by depth, so that what a node looks up in `shorter` is complete
        for node in level:
            for character, child in node.next.items():
                child.shorter = _shorter(node, character, root)
                child.longest_stop = child.longest_stop or child.shorter.longest_stop
        level = [child for node in level for child in node.next.values()]
    return root


def _shorter(parent: _Node, character: str, root: _Node) -> _Node:
    node = parent.shorter
    while node is not None and character not in node.next:
        node = node.shorter
    return root if node is None else node.next[character]
