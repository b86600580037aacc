"""Token ids → text, one token at a time."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import TokenId

from .stop_strings import StopStrings
from .tokenizer import Tokenizer

_Utf8 = getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one token added to the text.

    `text` may go to the client now: whole characters, no part of a stop string. `stopped` is the
    stop string that ended the text, if one did. `offset` is where the pushed token's characters
    begin, counted from the start of the sequence's text (for `logprobs.text_offset`): all
    characters before it count, those still held back too. Of a character that several tokens make
    up, all count from where it begins. After a stop, tokens whose offset is at or behind the end
    of the text that was sent are no part of it.
    """

    text: str
    stopped: str | None
    offset: int


class TextStream:
    """The text of one sequence. Mutable: one object a sequence; constant time a token.

    The texts of all deltas joined are `tokenizer.decode(ids)`, cut before the first stop string
    (see `StopStrings` for which one is first). Bytes that are no UTF-8 become U+FFFD. With
    `continues` the text goes on from a prompt, so a SentencePiece model's leading space is kept.
    After a stop, further tokens add nothing.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        skip_specials: bool = True,
        continues: bool = False,
    ) -> None:
        self._pieces = tokenizer.visible_pieces if skip_specials else tokenizer.pieces
        self._decode = _Utf8("replace").decode
        self._drop_space = tokenizer.strips_leading_space and not continues
        self._stops = StopStrings(stop) if stop else None
        self._offset = 0
        self._stopped: str | None = None

    def push(self, token_id: TokenId) -> TextDelta:
        """Take the next token."""
        if self._stopped is not None:
            return TextDelta("", self._stopped, self._offset)
        piece = self._pieces[token_id]
        if self._drop_space and piece:
            piece = piece.removeprefix(b" ")
            self._drop_space = False
        return self._deliver(self._decode(piece))

    def finish(self) -> TextDelta:
        """The sequence is over: what was held back goes out, half a character as U+FFFD."""
        if self._stopped is not None:
            return TextDelta("", self._stopped, self._offset)
        last = self._deliver(self._decode(b"", True))
        if self._stops is None or last.stopped is not None:
            return last
        scan = self._stops.finish()
        self._stopped = scan.stopped
        return TextDelta(last.text + scan.text, scan.stopped, last.offset)

    def _deliver(self, text: str) -> TextDelta:
        offset = self._offset
        self._offset += len(text)
        if self._stops is None or not text:
            return TextDelta(text, None, offset)
        scan = self._stops.feed(text)
        self._stopped = scan.stopped
        return TextDelta(scan.text, scan.stopped, offset)
