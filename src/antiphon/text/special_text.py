"""Special tokens as text: where a text spells them, and how to keep users from spelling them.

`Disguise` replaces such spellings in what users wrote by lone surrogates. These are code points
that no valid text has (it is checked), so a template can carry them through unharmed and the
rendered text shows which spellings are the template's own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import AddedToken

from antiphon.errors import BugError, ClientError
from antiphon.types import TokenId

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_BLANKS = re.compile(r"\s*")
"""Some special tokens swallow these beside them."""
_SURROGATES = range(0xD800, 0xE000)
_SURROGATE = re.compile("[\ud800-\udfff]")


class SpecialText:
    """The spellings of a model's special tokens."""

    def __init__(self, tokens: Mapping[TokenId, AddedToken]) -> None:
        self.ids: dict[str, TokenId] = {
            token.content: token_id for token_id, token in sorted(tokens.items())
        }
        longest_first = sorted(tokens.values(), key=lambda t: (-len(t.content), t.content))
        self.written = re.compile("|".join(re.escape(t.content) for t in longest_first) or "(?!)")
        """Any spelling, as it stands."""
        self._lstrip = frozenset(t.content for t in tokens.values() if t.lstrip)
        self._rstrip = frozenset(t.content for t in tokens.values() if t.rstrip)
        self._beginnings = {s[:cut] for s in self.ids for cut in range(1, len(s))}
        self._endings = {s[cut:] for s in self.ids for cut in range(1, len(s))}
        self._longest = max(map(len, self.ids), default=0)

    def split(self, text: str) -> Iterator[str | TokenId]:
        """The text between special tokens, and the special tokens, in order."""
        at = 0
        for found in self.written.finditer(text):
            spelling, start = found[0], found.start()
            if start < at:  # its own first blank belongs to the token before
                continue
            before = text[at:start]
            if spelling in self._lstrip:
                before = before.rstrip()
            if before:
                yield before
            yield self.ids[spelling]
            at = found.end()
            if spelling in self._rstrip:
                blanks = _BLANKS.match(text, at)
                at = blanks.end() if blanks else at
        if at < len(text):
            yield text[at:]

    def edges(self, text: str) -> tuple[int, int]:
        """How many characters at the start and at the end could be a part of a spelling.

        What stands beside them (a template's text, the next part of the message) could complete
        it. A text that lies whole inside a spelling counts whole, as (length, 0).
        """
        if len(text) < self._longest and any(text in spelling for spelling in self.ids):
            return len(text), 0
        sizes = range(min(self._longest - 1, len(text)), 0, -1)
        head = next((size for size in sizes if text[:size] in self._endings), 0)
        tail = next((size for size in sizes if text[-size:] in self._beginnings), 0)
        return (head, tail) if head + tail <= len(text) else (len(text), 0)


class Disguise:
    """Hides special tokens in one request's messages, and restores them after rendering."""

    def __init__(self, special: SpecialText) -> None:
        self._special = special
        self._stand_ins: dict[str, str] = {}

    @property
    def used(self) -> bool:
        """Whether anything was hidden."""
        return bool(self._stand_ins)

    def hide(self, value: Any, key: str = "") -> Any:
        """A copy of `value` (JSON data) in which no text spells a special token or part of one.

        Roles that everybody uses stay: templates compare them and build special tokens from them.
        Raises `ClientError` for a lone surrogate.
        """
        match value:
            case str():
                if key == "role" and value in _ROLES:
                    return value
                return self._hide_text(value, edges=key != "type")
            case Mapping():
                return {self._hide_text(k): self.hide(v, k) for k, v in value.items()}
            case list() | tuple():
                return [self.hide(item, key) for item in value]
            case None | bool() | int() | float():
                return value
        raise BugError(f"messages hold a {type(value).__name__}, which JSON does not have")

    def reveal(self, text: str) -> str:
        """`text` with everything hidden back in place."""
        return text.translate({ord(s): original for original, s in self._stand_ins.items()})

    def _hide_text(self, text: str, *, edges: bool = False) -> str:
        if _SURROGATE.search(text):
            raise ClientError("the text has a lone surrogate: not valid Unicode", field="messages")
        inner = text.strip()  # as templates do, which brings the edges next to other text
        head, tail = self._special.edges(inner) if edges and inner else (0, 0)
        if not head and not tail:
            return self._special.written.sub(self._found, text)
        start = text.index(inner)
        end = start + len(inner)
        return (
            text[:start]
            + self._stand_in(text[start : start + head])
            + self._special.written.sub(self._found, text[start + head : end - tail])
            + self._stand_in(text[end - tail : end])
            + text[end:]
        )

    def _found(self, found: re.Match[str]) -> str:
        return self._stand_in(found[0])

    def _stand_in(self, original: str) -> str:
        if not original:
            return ""
        if original not in self._stand_ins:
            if len(self._stand_ins) == len(_SURROGATES):
                raise ClientError("too many texts that look like special tokens", field="messages")
            self._stand_ins[original] = chr(_SURROGATES[len(self._stand_ins)])
        return self._stand_ins[original]
