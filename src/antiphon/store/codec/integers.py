"""int8 and int4: whole numbers between the least and the largest value, per channel or per token.

Keys have channels that are large for all tokens, values do not (Liu et al. 2024, "KIVI", §3): a key
is x ≈ low + step · q with low and step of its head's channel over the block, a value with those of
its head's token. Both are bfloat16, rounded outwards, so that no value lies beyond the range.

    scales of keys [layers, heads, 2, width], of values [layers, heads, 2, tokens], bfloat16
    codes [layers, 2, heads, tokens, width] bytes; int4: two channels a byte, c below c + width / 2
"""

import numpy as np
import numpy.typing as npt
from numba import njit

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
    keys, values, codes = (np.empty(size, np.uint8) for size in sizes(shape, bits))
    ends = keys.view(np.uint16), values.view(np.uint16)
    if not _encode(block.reshape(-1), *shape.numbers, bits, *ends, codes):
        return None
    return b"".join((keys.data, values.data, codes.data))


def decode(data: memoryview, shape: BlockShape, bits: int, into: npt.NDArray) -> None:
    """Fill `into` from `data`, which has just the bytes that `sizes` says."""
    first, second, _ = sizes(shape, bits)
    keys = np.frombuffer(data[:first], "<u2")
    values = np.frombuffer(data[first : first + second], "<u2")
    codes = np.frombuffer(data[first + second :], np.uint8)
    _decode(into.reshape(-1), *shape.numbers, bits, keys, values, codes)


@njit(inline="always")
def _step(least, most, top):
    """The distance of neighbours, as bfloat16."""
    step = (most - least) / top
    return above(max(step, _TINY)) if most > least else np.uint16(0)


@njit(inline="always")
def _code(element, low, inverse, top):
    """The nearest whole number."""
    return np.int32(min((as_float(element) - low) * inverse + _HALF, top))


@reducing_kernel
def _key_scales(elements, at, stride, sizes, top, scales, low, inverse):
    """Fills `scales`, and with what they are `low` and the steps' inverses [width]; False: see
    `encode`."""
    pages, page_tokens, width = sizes
    high = np.empty(width, np.float32)
    for c in range(width):
        low[c] = high[c] = as_float(elements[at + c])
    odd = np.uint32(0)
    for page in range(pages):
        for row in range(at + page * stride, at + page * stride + page_tokens * width, width):
            for c in range(width):
                x = as_float(elements[row + c])
                odd |= np.uint32(not_finite(x))
                low[c] = min(low[c], x)
                high[c] = max(high[c], x)
    if odd:
        return False
    for c in range(width):
        scales[c] = below(low[c])
        low[c] = whole(scales[c])
        scales[width + c] = _step(low[c], high[c], top)
        step = whole(scales[width + c])
        odd |= np.uint32(not_finite(step)) | np.uint32(not_finite(low[c]))
        inverse[c] = np.float32(1) / step if step > 0 else np.float32(0)
    return odd == 0


@reducing_kernel
def _encode_keys(elements, at, stride, sizes, top, scales, codes):
    """One head's keys, from element `at` on, pages `stride` apart; False: see `encode`.

    `sizes`: pages, page_tokens, width. `scales` [2 · width], `codes` [tokens · row_bytes].
    """
    pages, page_tokens, width = sizes
    low, inverse = np.empty(width, np.float32), np.empty(width, np.float32)
    if not _key_scales(elements, at, stride, sizes, top, scales, low, inverse):
        return False
    out, half = 0, width // 2
    for page in range(pages):
        for row in range(at + page * stride, at + page * stride + page_tokens * width, width):
            if top > np.float32(15):
                for c in range(width):
                    codes[out + c] = np.uint8(_code(elements[row + c], low[c], inverse[c], top))
                out += width
            else:
                for c in range(half):
                    x = _code(elements[row + c], low[c], inverse[c], top)
                    y = _code(elements[row + half + c], low[half + c], inverse[half + c], top)
                    codes[out + c] = np.uint8(x | y << 4)
                out += half
    return True


@reducing_kernel
def _token_scale(elements, row, width, top, scales, token, tokens):
    """Fills the scale of a token's values; what it is: its least and the inverse of its step.

    The first is False: see `encode`.
    """
    least = most = as_float(elements[row])
    odd = np.uint32(0)
    for c in range(width):
        x = as_float(elements[row + c])
        odd |= np.uint32(not_finite(x))
        least = min(least, x)
        most = max(most, x)
    if odd:
        return False, np.float32(0), np.float32(0)
    scales[token] = below(least)
    low = whole(scales[token])
    scales[tokens + token] = _step(low, most, top)
    step = whole(scales[tokens + token])
    if not_finite(step) or not_finite(low):
        return False, np.float32(0), np.float32(0)
    return True, low, np.float32(1) / step if step > 0 else np.float32(0)


@reducing_kernel
def _encode_values(elements, at, stride, sizes, top, scales, codes):
    """One head's values, likewise. `scales` [2 · tokens]."""
    pages, page_tokens, width = sizes
    token, tokens = 0, pages * page_tokens
    out, half = 0, width // 2
    for page in range(pages):
        for row in range(at + page * stride, at + page * stride + page_tokens * width, width):
            good, low, inverse = _token_scale(elements, row, width, top, scales, token, tokens)
            if not good:
                return False
            if top > np.float32(15):
                for c in range(width):
                    codes[out + c] = np.uint8(_code(elements[row + c], low, inverse, top))
                out += width
            else:
                for c in range(half):
                    x = _code(elements[row + c], low, inverse, top)
                    y = _code(elements[row + half + c], low, inverse, top)
                    codes[out + c] = np.uint8(x | y << 4)
                out += half
            token += 1
    return True


@kernel
def _encode(elements, pages, layers, heads, page_tokens, width, bits, keys, values, codes):
    """Fills the three; False: see `encode`."""
    tokens, tile = pages * page_tokens, page_tokens * width
    stride = layers * 2 * heads * tile
    top = np.float32((1 << bits) - 1)
    size = tokens * width * bits // 8
    each = (pages, page_tokens, width)
    for layer in range(layers):
        for head in range(heads):
            row = layer * heads + head
            first, second = (layer * 2) * heads + head, (layer * 2 + 1) * heads + head
            scales = keys[row * 2 * width : (row + 1) * 2 * width]
            part = codes[first * size : (first + 1) * size]
            if not _encode_keys(elements, first * tile, stride, each, top, scales, part):
                return False
            scales = values[row * 2 * tokens : (row + 1) * 2 * tokens]
            part = codes[second * size : (second + 1) * size]
            if not _encode_values(elements, second * tile, stride, each, top, scales, part):
                return False
    return True


@kernel
def _decode_rows(elements, at, stride, sizes, bits, scales, codes, of_tokens):
    """One head's keys or values (`of_tokens`: a scale a token), as they were encoded."""
    pages, page_tokens, width = sizes
    like, half = elements[0], width // 2
    low, step = np.empty(width, np.float32), np.empty(width, np.float32)
    for c in range(0 if of_tokens else width):
        low[c], step[c] = whole(scales[c]), whole(scales[width + c])
    token, read = 0, 0
    for page in range(pages):
        for row in range(at + page * stride, at + page * stride + page_tokens * width, width):
            if of_tokens:
                low[:] = whole(scales[token])
                step[:] = whole(scales[pages * page_tokens + token])
            if bits == 8:
                for c in range(width):
                    x = np.float32(np.int32(codes[read + c])) * step[c] + low[c]
                    elements[row + c] = as_element(x, like)
                read += width
            else:
                for c in range(half):
                    both = np.int32(codes[read + c])
                    x = np.float32(both & 15) * step[c] + low[c]
                    y = np.float32(both >> 4) * step[half + c] + low[half + c]
                    elements[row + c] = as_element(x, like)
                    elements[row + half + c] = as_element(y, like)
                read += half
            token += 1


@kernel
def _decode(elements, pages, layers, heads, page_tokens, width, bits, keys, values, codes):
    """Fills `elements`."""
    tokens, tile = pages * page_tokens, page_tokens * width
    stride = layers * 2 * heads * tile
    size = tokens * width * bits // 8
    each = (pages, page_tokens, width)
    for layer in range(layers):
        for head in range(heads):
            row = layer * heads + head
            first, second = (layer * 2) * heads + head, (layer * 2 + 1) * heads + head
            scales = keys[row * 2 * width : (row + 1) * 2 * width]
            part = codes[first * size : (first + 1) * size]
            _decode_rows(elements, first * tile, stride, each, bits, scales, part, False)
            scales = values[row * 2 * tokens : (row + 1) * 2 * tokens]
            part = codes[second * size : (second + 1) * size]
            _decode_rows(elements, second * tile, stride, each, bits, scales, part, True)
