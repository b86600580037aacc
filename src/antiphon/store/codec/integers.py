"""int8 and int4: whole numbers between the least and the largest value, per channel or per token.

Keys have channels that are large for all tokens, values do not (Liu et al. 2024, "KIVI", §3): a key
is x ≈ low + step · q with low and step of its head's channel over the block, a value with those of
its head's token. Both are bfloat16, rounded outwards, so that no value lies beyond the range.

    scales of keys [layers, heads, 2, width], of values [layers, heads, 2, tokens], bfloat16
    codes [layers, 2, heads, tokens, width] bytes; int4: two channels a byte, c below c + width / 2
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import overload

from .block_shape import BlockShape
from .elements import above, as_element, as_float, below, not_finite, whole
from .kernel import kernel, reducing_kernel

_TINY = np.float32(1e-30)
"""Steps are 0 or at least this: their inverses are finite."""
_HALF = np.float32(0.5)


def sizes(shape: BlockShape, bits: int) -> tuple[int, int, int]:
    """Bytes of the keys' scales, of the values' scales, of the codes."""
    rows = shape.layers * shape.heads
    return rows * 4 * shape.width, rows * 4 * shape.tokens, shape.elements * bits // 8


def encode(block: npt.NDArray, shape: BlockShape, bits: int) -> bytes | None:
    """None: something is not finite, or the range of a channel or token is no float32."""
    data = np.empty(sum(sizes(shape, bits)), np.uint8)
    top = np.float32((1 << bits) - 1)
    if not _encode(block.reshape(-1), shape.numbers, top, *_parts(data, shape, bits)):
        return None
    return data.tobytes()


def decode(data: memoryview, shape: BlockShape, bits: int, into: npt.NDArray) -> None:
    """Fill `into` from `data`, which has just the bytes that `sizes` says."""
    parts = _parts(np.frombuffer(data, np.uint8), shape, bits)
    _decode(into.reshape(-1), shape.numbers, *parts)


def _parts(
    data: npt.NDArray[np.uint8], shape: BlockShape, bits: int
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Scales of keys, scales of values, codes."""
    first, second, _ = sizes(shape, bits)
    sides = shape.layers, shape.heads, 2
    row_bytes = shape.width * bits // 8
    return (
        data[:first].view(np.uint16).reshape(*sides, shape.width),
        data[first : first + second].view(np.uint16).reshape(*sides, shape.tokens),
        data[first + second :].reshape(shape.layers, 2, shape.heads, shape.tokens, row_bytes),
    )


@njit(inline="always")
def _step(least, most, top):
    """The distance of neighbours, as bfloat16."""
    step = (most - least) / top
    return above(max(step, _TINY)) if most > least else np.uint16(0)


@njit(inline="always")
def _code(element, low, inverse, top):
    """The nearest whole number."""
    return np.int32(min((as_float(element) - low) * inverse + _HALF, top))


def nth(values, c):
    """Of one for each channel, or of one for all."""
    raise NotImplementedError


def behind(values, first):
    """Those from channel `first` on."""
    raise NotImplementedError


@overload(nth, inline="always")
def _nth(values, c):
    if isinstance(values, types.Array):
        return lambda values, c: values[c]
    return lambda values, c: values


@overload(behind, inline="always")
def _behind(values, first):
    if isinstance(values, types.Array):
        return lambda values, first: values[first:]
    return lambda values, first: values


# Rows are slices of a flat array, their elements counted from 0: where numba can't know that they
# follow each other, or that an index is not below 0, nothing is done in vectors. One head's keys or
# values are `at`: the element that they begin with, and how far pages are apart.


@reducing_kernel
def _widen_range(row, low, high):
    """Least and largest of each channel so far; whether anything is not finite."""
    odd = np.uint32(0)
    for c in range(len(low)):
        x = as_float(row[c])
        odd |= np.uint32(not_finite(x))
        low[c] = min(low[c], x)
        high[c] = max(high[c], x)
    return odd


@reducing_kernel
def _write_codes(row, low, inverse, top, codes):
    """A row's codes: bytes, or, if `top` is 15, halves of bytes. `low` and `inverse`: of each
    channel, or one for all."""
    if top > np.float32(15):
        for c in range(len(codes)):
            codes[c] = np.uint8(_code(row[c], nth(low, c), nth(inverse, c), top))
    else:
        half = len(codes)
        upper, upper_low, upper_inverse = row[half:], behind(low, half), behind(inverse, half)
        for c in range(half):
            x = _code(row[c], nth(low, c), nth(inverse, c), top)
            y = _code(upper[c], nth(upper_low, c), nth(upper_inverse, c), top)
            codes[c] = np.uint8(x | y << 4)


@reducing_kernel
def _encode_keys(elements, at, sizes, top, scales, codes):
    """One head's keys; False: see `encode`.

    `sizes`: pages, page_tokens, width. `scales` [2, width], `codes` [tokens, row_bytes].
    """
    pages, page_tokens, width = sizes
    low, high = np.empty(width, np.float32), np.empty(width, np.float32)
    inverse = np.empty(width, np.float32)
    for c in range(width):
        low[c] = high[c] = as_float(elements[at[0] + c])
    odd = np.uint32(0)
    for page in range(pages):
        for t in range(page_tokens):
            first = at[0] + page * at[1] + t * width
            odd |= _widen_range(elements[first : first + width], low, high)
    if odd:
        return False
    for c in range(width):
        scales[0, c] = below(low[c])
        low[c] = whole(scales[0, c])
        scales[1, c] = _step(low[c], high[c], top)
        step = whole(scales[1, c])
        odd |= np.uint32(not_finite(step)) | np.uint32(not_finite(low[c]))
        inverse[c] = np.float32(1) / step if step > 0 else np.float32(0)
    if odd:
        return False
    for page in range(pages):
        for t in range(page_tokens):
            first = at[0] + page * at[1] + t * width
            row = elements[first : first + width]
            _write_codes(row, low, inverse, top, codes[page * page_tokens + t])
    return True


@reducing_kernel
def _range_of(row):
    """Least and largest; whether anything is not finite."""
    least = most = as_float(row[0])
    odd = np.uint32(0)
    for c in range(len(row)):
        x = as_float(row[c])
        odd |= np.uint32(not_finite(x))
        least = min(least, x)
        most = max(most, x)
    return odd, least, most


@reducing_kernel
def _encode_values(elements, at, sizes, top, scales, codes):
    """One head's values, likewise. `scales` [2, tokens]."""
    pages, page_tokens, width = sizes
    for page in range(pages):
        for t in range(page_tokens):
            token = page * page_tokens + t
            first = at[0] + page * at[1] + t * width
            row = elements[first : first + width]
            odd, least, most = _range_of(row)
            if odd:
                return False
            scales[0, token] = below(least)
            low = whole(scales[0, token])
            scales[1, token] = _step(low, most, top)
            step = whole(scales[1, token])
            if not_finite(step) or not_finite(low):
                return False
            inverse = np.float32(1) / step if step > 0 else np.float32(0)
            _write_codes(row, low, inverse, top, codes[token])
    return True


@kernel
def _encode(elements, numbers, top, keys, values, codes):
    """Fills the three; False: see `encode`."""
    pages, layers, heads, page_tokens, width = numbers
    sizes, tile = (pages, page_tokens, width), page_tokens * width
    for layer in range(layers):
        for head in range(heads):
            at = ((2 * layer * heads + head) * tile, 2 * layers * heads * tile)
            mine = codes[layer, 0, head]
            if not _encode_keys(elements, at, sizes, top, keys[layer, head], mine):
                return False
            at = (at[0] + heads * tile, at[1])
            mine = codes[layer, 1, head]
            if not _encode_values(elements, at, sizes, top, values[layer, head], mine):
                return False
    return True


@kernel
def _read_codes(codes, low, step, row):
    """A row's numbers."""
    like = row[0]
    if len(codes) == len(row):
        for c in range(len(codes)):
            row[c] = as_element(np.float32(np.int32(codes[c])) * step[c] + low[c], like)
    else:
        half = len(codes)
        upper, upper_low, upper_step = row[half:], low[half:], step[half:]
        for c in range(half):
            both = np.int32(codes[c])
            row[c] = as_element(np.float32(both & 15) * step[c] + low[c], like)
            upper[c] = as_element(np.float32(both >> 4) * upper_step[c] + upper_low[c], like)


@kernel
def _decode_rows(elements, at, sizes, scales, codes, of_tokens):
    """One head's keys or values (`of_tokens`: a scale a token), as they were encoded."""
    pages, page_tokens, width = sizes
    low, step = np.empty(width, np.float32), np.empty(width, np.float32)
    for c in range(0 if of_tokens else width):
        low[c], step[c] = whole(scales[0, c]), whole(scales[1, c])
    for page in range(pages):
        for t in range(page_tokens):
            token = page * page_tokens + t
            if of_tokens:
                low[:] = whole(scales[0, token])
                step[:] = whole(scales[1, token])
            first = at[0] + page * at[1] + t * width
            _read_codes(codes[token], low, step, elements[first : first + width])


@kernel
def _decode(elements, numbers, keys, values, codes):
    """Fills `elements`."""
    pages, layers, heads, page_tokens, width = numbers
    sizes, tile = (pages, page_tokens, width), page_tokens * width
    for layer in range(layers):
        for head in range(heads):
            at = ((2 * layer * heads + head) * tile, 2 * layers * heads * tile)
            _decode_rows(elements, at, sizes, keys[layer, head], codes[layer, 0, head], False)
            at = (at[0] + heads * tile, at[1])
            _decode_rows(elements, at, sizes, values[layer, head], codes[layer, 1, head], True)
