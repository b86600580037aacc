"""Row-wise CPU kernels: normalisation, rotary embedding with the KV write, gated activation.

One row, one result: a row's bits depend on its own numbers alone, never on how many rows or threads
there are, because all arithmetic is done in `lanes` of fixed order or in single IEEE operations.
Row lengths are multiples of `LANES`: see `llama_weights`. Arrays are C-contiguous.
"""

import numpy as np

from . import lanes as simd
from .kernel_cache import kernel
from .lanes import LANES

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_GELU_LINEAR = np.float32(-2.0 * np.sqrt(2.0 / np.pi))
_GELU_CUBIC = np.float32(-2.0 * np.sqrt(2.0 / np.pi) * 0.044715)


@kernel
def rms_norm(source, gain, epsilon, count, target):
    """target ← source / √(mean(source²) + epsilon) · gain (Zhang & Sennrich 2019).

    `source`, `target` float32 [rows, hidden]; `gain` float32 [hidden]; `epsilon` float32; the mean
    is over the first `count` columns, the others are zero.
    """
    rows, hidden = source.shape
    values, results = source.reshape(-1), target.reshape(-1)
    for start in range(0, rows * hidden, hidden):
        squares = simd.splat(_ZERO)
        for at in range(start, start + hidden, LANES):
            value = simd.load(values, at)
            squares = simd.fma(value, value, squares)
        mean = simd.total(squares) / np.float32(count)
        factor = simd.splat(_ONE / np.sqrt(mean + epsilon))
        for at in range(0, hidden, LANES):
            value = simd.mul(simd.load(values, start + at), factor)
            simd.store(results, start + at, simd.mul(value, simd.load(gain, at)))


@kernel
def gated_silu(gate_up, target):
    """target ← silu(gate) · up, silu(x) = x / (1 + e⁻ˣ).

    `gate_up` float32 [rows, 2·intermediate]: gate, then up; `target` float32 [rows, intermediate].
    """
    rows, width = target.shape
    values, results = gate_up.reshape(-1), target.reshape(-1)
    one, zero = simd.splat(_ONE), simd.splat(_ZERO)
    for row in range(rows):
        for at in range(0, width, LANES):
            gate = simd.load(values, 2 * row * width + at)
            up = simd.load(values, (2 * row + 1) * width + at)
            silu = simd.div(gate, simd.add(one, simd.exp(simd.sub(zero, gate))))
            simd.store(results, row * width + at, simd.mul(silu, up))


@kernel
def gated_gelu(gate_up, target):
    """target ← gelu(gate) · up, gelu(x) = x / (1 + e^(−2u)), u = √(2/π)·(x + 0.044715·x³).

    That is GELU's tanh approximation (Hendrycks & Gimpel 2016). Shapes: see `gated_silu`.
    """
    rows, width = target.shape
    values, results = gate_up.reshape(-1), target.reshape(-1)
    one, linear, cubic = simd.splat(_ONE), simd.splat(_GELU_LINEAR), simd.splat(_GELU_CUBIC)
    for row in range(rows):
        for at in range(0, width, LANES):
            gate = simd.load(values, 2 * row * width + at)
            up = simd.load(values, (2 * row + 1) * width + at)
            bend = simd.fma(simd.mul(gate, gate), cubic, linear)
            gelu = simd.div(gate, simd.add(one, simd.exp(simd.mul(gate, bend))))
            simd.store(results, row * width + at, simd.mul(gelu, up))


@kernel
def normalise_heads(qkv, gains, epsilon, geometry):
    """Each head of queries and keys in `qkv` ← `rms_norm` of it, in place.

    `qkv`: see `rotate_and_store`; `gains` float32 [2, head_width]: of queries, of keys, zeros
    behind head_dim; `epsilon` float32. The mean is over a head's own elements.
    """
    width = geometry.head_width
    values, factors = qkv.reshape(-1), gains.reshape(-1)
    count = np.float32(geometry.head_dim)
    for row in range(len(qkv)):
        for head in range(geometry.heads + geometry.kv_heads):
            start = row * qkv.shape[1] + head * width
            gain_at = 0 if head < geometry.heads else width
            squares = simd.splat(_ZERO)
            for at in range(start, start + width, LANES):
                value = simd.load(values, at)
                squares = simd.fma(value, value, squares)
            factor = simd.splat(_ONE / np.sqrt(simd.total(squares) / count + epsilon))
            for at in range(0, width, LANES):
                value = simd.mul(simd.load(values, start + at), factor)
                simd.store(values, start + at, simd.mul(value, simd.load(factors, gain_at + at)))


@kernel
def rotate_and_store(qkv, positions, places, cosines, sines, memory, geometry, layer):
    """Rotate queries and keys in `qkv`, then write keys and values to KV memory.

    Rotary embedding (Su et al. 2021) in the half-split form of Llama: elements i and i + n, n the
    width of the tables, turn by angle position·frequency(i), for i < n; the others, of which there
    are none where n is head_dim/2, stay. `qkv` float32 [≥ rows, (heads + 2·kv_heads)·head_width] is
    changed in place; `positions` int64 [rows]; `places` int64 [rows]: first element of the row's
    slot in KV memory, less the layer; `cosines`, `sines` float32 [context, n]; `memory`,
    `geometry`, `layer`: see `attention.attend`; bfloat16 memory is rounded to nearest even.
    """
    heads, kv_heads = geometry.heads, geometry.kv_heads
    head_width, page_tokens = geometry.head_width, geometry.page_tokens
    half = cosines.shape[1]
    head_stride = page_tokens * head_width
    layer_at = layer * 2 * kv_heads * head_stride
    values = qkv.reshape(-1)
    for row in range(len(positions)):
        cosine, sine = cosines[positions[row]], sines[positions[row]]
        for head in range(heads + kv_heads):
            begin = head * head_width
            first = qkv[row, begin : begin + half]
            second = qkv[row, begin + half : begin + 2 * half]
            for i in range(half):
                x, y = first[i], second[i]
                first[i] = x * cosine[i] - y * sine[i]
                second[i] = y * cosine[i] + x * sine[i]
        for head in range(2 * kv_heads):
            slot = places[row] + layer_at + head * head_stride
            begin = row * qkv.shape[1] + (heads + head) * head_width
            for at in range(0, head_width, LANES):
                simd.store(memory, slot + at, simd.load(values, begin + at))
