"""Entropy-coded levels: rotate back, transform, predict, round, code; section by section.

    rows − mean ──► coefficients / step ──► minus what the token before says ──► whole numbers
                                                                                     │
                        stream of the section (keys and values of its layers) ◄──────┘

    payload  the tokens that are kept as they are [layers, 2, heads, tokens, width]
             a section: uint32 bytes of its stream, of its keys' escapes, of its values'
             a section: its stream, then its escapes (see `escapes.py`)

What a distribution has no symbol for is an escape: its value stands behind the stream. What a level
does not keep is small in blocks like those it was made for; a block in which it is large is not
encoded at all. Sections follow each other as layers do, so that a reader may begin with the first
before the last is there.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import rans
from .block_shape import BlockShape
from .coefficients import ESCAPE, ZERO, Coded, Rule, escape_places, restore, whole_numbers
from .escapes import pack_escapes, unpack_escapes
from .matrix_product import PackedMatrix
from .profile import MOST_LOW_BITS, SKIPPED, KvProfile, ProfileLevel, Transform, padded
from .rows import Floats, Part, Rotation, read_rows, rotation, write_rows

_ROW = struct.Struct("<3I")
MOST_SKIPPED = np.float32(16.0)
"""Steps: how long what is not kept of a token's keys or values of a section may be. Of texts of any
kind it is 4 to 8 (docs/decisions/0018-kv-as-coefficients.md)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Columns:
    """A transform at a level, cut to the coefficients that it keeps, in units of its step."""

    part: Part
    mean: Floats
    forward: PackedMatrix
    """[channels, columns, and behind them what the level does not keep]"""
    inverse: PackedMatrix
    """[columns, channels], from the mean on."""
    rule: Rule
    classes: npt.NDArray[np.uint8]
    low_classes: npt.NDArray[np.uint8]
    """Of the low parts, whole lanes of them."""


class EntropyCoder:
    """One level of one profile, its tables made. Holds no state between calls."""

    def __init__(self, profile: KvProfile, level: ProfileLevel) -> None:
        self.profile = profile
        self.tables = rans.Distributions(level.frequencies)
        parts = zip(profile.parts(), profile.transforms, level.classes, level.low_bits, strict=True)
        columns = [_columns(*one, level, self.tables) for one in parts]
        self._sections = list(zip(columns[::2], columns[1::2], strict=True))

    def fits(self, shape: BlockShape) -> bool:
        """Whether such blocks are of the profile's model."""
        profile = self.profile
        sizes = (shape.layers, shape.heads, shape.width)
        return sizes == (profile.layers, profile.heads, profile.width)

    def encode(self, block: npt.NDArray, shape: BlockShape, start: int, kept: int) -> bytes | None:
        """The payload; None: a number is not finite, or far out of what is possible, or so large
        in directions that the level does not keep that it would be lost."""
        table, data = [], []
        profile = self.profile
        turn = rotation(profile.frequencies, start, shape.tokens)
        for section in self._sections:
            symbols, escapes = [], []
            for columns in section:
                rows = read_rows(block, shape, columns.part, turn, columns.mean)
                rows[:kept] = 0
                scaled = columns.forward.product(rows)
                coded = whole_numbers(scaled, columns.rule, profile.rounding)
                if coded is None or not _all_short(scaled[:, len(columns.classes) :]):
                    return None
                symbols += [coded.symbols, _in_lanes(coded.lows, len(columns.low_classes))]
                limits = _limits(coded.places, columns.rule.limit)
                escapes.append(pack_escapes(coded.escapes, limits))
            stream = rans.encode(np.concatenate(symbols, 1), _classes(section), self.tables)
            table.append(_ROW.pack(len(stream), *map(len, escapes)))
            data += [stream, *escapes]
        return b"".join([_kept(block, kept).tobytes(), *table, *data])

    def decode(
        self, payload: memoryview, shape: BlockShape, start: int, kept: int, into: npt.NDArray
    ) -> bool:
        """Fill `into`; False: this is no such payload, and `into` holds anything."""
        head = _kept(into, kept)
        table_end = head.nbytes + len(self._sections) * _ROW.size
        if len(payload) < table_end:
            return False
        sizes = list(_ROW.iter_unpack(payload[head.nbytes : table_end]))
        if len(payload) != table_end + sum(map(sum, sizes)):
            return False
        turn = rotation(self.profile.frequencies, start, shape.tokens)
        at = table_end
        for section, row in zip(self._sections, sizes, strict=True):
            parts = []
            for size in row:
                parts.append(payload[at : at + size])
                at += size
            if not self._decode_section(section, parts, into, shape, turn):
                return False
        raw = np.frombuffer(payload[: head.nbytes], into.dtype).reshape(head.shape)
        by_token = into.transpose(0, 4, 1, 2, 3, 5)
        for token in range(kept):
            place = divmod(token, shape.page_tokens)
            by_token[place] = raw[:, :, :, token]
        return True

    def _decode_section(
        self,
        section: tuple[_Columns, _Columns],
        parts: Sequence[memoryview],
        into: npt.NDArray,
        shape: BlockShape,
        turn: Rotation,
    ) -> bool:
        """Fill the layers of one section from its stream and its escapes."""
        classes = _classes(section)
        symbols = np.empty((shape.tokens, len(classes)), np.uint8)
        if not rans.decode(parts[0], classes, self.tables, symbols):
            return False
        at = 0
        for columns, extra in zip(section, parts[1:], strict=True):
            mine = symbols[:, at : at + len(columns.classes)]
            at += len(columns.classes)
            lows = symbols[:, at : at + len(columns.rule.wide)]
            at += len(columns.low_classes)
            places = escape_places(mine)
            numbers = unpack_escapes(extra, _limits(places, columns.rule.limit))
            if numbers is None:
                return False
            scaled = restore(Coded(mine, lows, places, numbers), columns.rule)
            write_rows(columns.inverse.product(scaled), into, shape, columns.part, turn)
        return True


def _classes(section: tuple[_Columns, _Columns]) -> npt.NDArray[np.uint8]:
    """Of all columns of a section's stream."""
    both = [(columns.classes, columns.low_classes) for columns in section]
    return np.concatenate([classes for pair in both for classes in pair])


def _all_short(lost: Floats) -> bool:
    """Whether no token [tokens, not kept] has more than may be left out; False if not finite."""
    squares = np.einsum("tc,tc->t", lost, lost)
    return bool((squares <= MOST_SKIPPED * MOST_SKIPPED).all())


def _in_lanes(lows: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.uint8]:
    """Low parts with columns behind them that take nothing."""
    wide = np.full((len(lows), columns), ZERO, np.uint8)
    wide[:, : lows.shape[1]] = lows
    return wide


def _limits(places: npt.NDArray[np.int64], limit: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The limit of each escape's column, in the order of the escapes."""
    return limit[places % len(limit)]


def coder_of(profile: KvProfile, number: int) -> EntropyCoder | None:
    """The coder of a level, made once; None: the profile has no such level."""
    if not 1 <= number <= len(profile.levels):
        return None
    coder = profile.coders.get(number)
    if coder is None:
        coder = profile.coders[number] = EntropyCoder(profile, profile.levels[number - 1])
    return coder


def _kept(block: npt.NDArray, tokens: int) -> npt.NDArray:
    """[layers, 2, heads, tokens, width] of the first tokens: a copy."""
    page_tokens = block.shape[4]
    pages = block[: -(-tokens // page_tokens)]
    layers, sides, heads, width = (block.shape[axis] for axis in (1, 2, 3, 5))
    joined = pages.transpose(1, 2, 3, 0, 4, 5).reshape(layers, sides, heads, -1, width)
    return np.ascontiguousarray(joined[:, :, :, :tokens])


def prediction(transform: Transform, step: float) -> Floats:
    """How much of the token before is part of a coefficient, as far as it is known.

    What is known of it has been rounded: of a variance v within an error of step² / 12 the best
    prediction takes (v − step² / 12) / v of the correlation, and none where that is below 0.
    """
    variance = np.maximum(transform.spread.astype(np.float64) ** 2, 1e-30)
    known = np.clip(1 - step * step / 12 / variance, 0, 1)
    return (transform.following * known).astype(np.float32)


def _columns(
    part: Part,
    transform: Transform,
    classes: npt.NDArray[np.uint8],
    low_bits: npt.NDArray[np.uint8],
    level: ProfileLevel,
    tables: rans.Distributions,
) -> _Columns:
    kept = np.flatnonzero(classes != SKIPPED)
    count = int(kept[-1]) + 1 if len(kept) else 0
    columns, channels = padded(count), len(classes)
    used = min(columns, channels)
    mine = np.full(columns, SKIPPED, np.uint8)
    mine[:used] = classes[:used]
    skipped = transform.forward[classes == SKIPPED]
    forward = np.zeros((channels, columns + len(skipped)), np.float32)
    forward[:, :used] = transform.forward[:used].T / np.float32(level.step)
    forward[:, columns:] = skipped.T / np.float32(level.step)
    inverse = np.zeros((columns, channels), np.float32)
    inverse[:used] = transform.inverse[:, :used].T * np.float32(level.step)
    following = np.zeros(columns, np.float32)
    following[:used] = prediction(transform, level.step)[:used]
    following[mine == SKIPPED] = 0
    limits = [_limit(row) for row in tables.frequencies]
    limits[SKIPPED] = -1
    low = np.zeros(columns, np.uint8)
    low[:used] = low_bits[:used]
    low[mine == SKIPPED] = 0
    rule = Rule(
        following=following,
        shift=level.shift[mine],
        limit=np.array(limits, np.int32)[mine],
        low_bits=low,
    )
    low_classes = np.full(padded(len(rule.wide)), SKIPPED, np.uint8)
    first = tables.classes - MOST_LOW_BITS
    low_classes[: len(rule.wide)] = first + low[rule.wide] - 1
    return _Columns(
        part=part,
        mean=transform.mean,
        forward=PackedMatrix(forward),
        inverse=PackedMatrix(inverse, transform.mean),
        rule=rule,
        classes=mine,
        low_classes=low_classes,
    )


def _limit(frequencies: npt.NDArray[np.uint16]) -> int:
    """The largest m such that −m … m all have a symbol."""
    from_zero = np.minimum(frequencies[127:ESCAPE], frequencies[127::-1])
    missing = np.flatnonzero(from_zero == 0)
    return int(missing[0]) - 1 if len(missing) else 127
