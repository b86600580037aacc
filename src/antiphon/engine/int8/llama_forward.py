"""The whole forward pass of a Llama with int8 weights: one call a step on every thread.

    embed ─► for each layer: norm·round ─► QKV ─► rotate, write KV ─► attend ─► round
             ─► out ─► add·norm·round ─► gate, up ─► SiLU·round ─► down ─► add … ─► head

A step of one token takes a few milliseconds; hundreds of calls from Python would cost as much
again. Threads share the work: with many rows each thread takes its part of them; with few, threads
share the rows of a row-wise phase and the panels of a product, and meet at a barrier between
phases. The units of attention, whose length differs, are always shared by all. A row's numbers are
computed by the same operations whichever thread does them and whatever rows are beside it, so
results depend on neither.

In the last layer only the keys and values of all rows are needed; what follows is computed for the
sampled rows alone.

Nothing here checks bounds, and nothing may raise: a thread that left would keep the others waiting.
"""

from typing import NamedTuple

import numpy as np
from numba.np.numpy_support import carray

from ..attention import attend
from ..cpu_level import cpu_levels
from ..kernel_cache import kernel
from ..row_kernels import gated_silu, rms_norm, rotate_and_store
from .addresses import bytes_at, call, floats_at
from .gemm import KERNELS
from .microkernel import PANEL_CHANNELS
from .quantize import quantize_row

_multiply = KERNELS[cpu_levels()[0]]

_ROWS_APART = 32
"""From so many rows a thread on, each thread streams all weights: cheaper than waiting."""

PROJECTIONS = ("qkv", "attention_out", "gate_up", "down")
"""Of a layer, in the order of `Pointers.layers`."""


class Sizes(NamedTuple):
    """Widths in elements, all but `vocabulary` and `mean_count` whole vectors."""

    hidden: int
    mean_count: int
    """The model's own hidden size: zeros behind it are not part of a row's mean."""
    qkv: int
    attended: int
    inner: int
    vocabulary: int


class Pointers(NamedTuple):
    """Addresses of the weights, int64; their owner must outlive the call.

    `layers` [layers, 14]: attention norm, MLP norm, then for each of `PROJECTIONS` panels, channel
    scales and bias (0: none). `rest` [4]: embedding float32, final norm, the head's panels and
    scales. `limits` float32 [3]: largest activation of rows of width hidden, attended, inner.
    """

    layers: np.ndarray
    rest: np.ndarray
    limits: np.ndarray


class Rows(NamedTuple):
    """What a step computes: see `batch.Batch`. All int64."""

    tokens: np.ndarray
    positions: np.ndarray
    places: np.ndarray
    tables: np.ndarray
    blocks: np.ndarray
    sampled: np.ndarray


class Room(NamedTuple):
    """Buffers of a step; [rows, width] unless said otherwise. All are overwritten."""

    hidden: np.ndarray
    """The residual stream, float32."""
    delta: np.ndarray
    """What a block adds to the stream, float32."""
    qkv: np.ndarray
    attended: np.ndarray
    gate_up: np.ndarray
    values: np.ndarray
    """Rounded rows of width hidden, int16."""
    attended_values: np.ndarray
    inner_values: np.ndarray
    scale: np.ndarray
    """Of the rounded rows, float32 [rows]; NaN marks a row that can't be rounded."""


@kernel
def _meet(team):
    """Wait for the other threads."""
    if team[1] > 1:
        call(team[2])


@kernel
def _share(count, team):
    """This thread's part of 0 … count − 1: first, one past the last."""
    return count * team[0] // team[1], count * (team[0] + 1) // team[1]


@kernel
def _apart(rows, threads):
    """Whether each thread takes its own rows through a layer. All decide alike, by the smallest
    share: one that waits for others that do not come would wait forever."""
    return rows // threads >= _ROWS_APART


@kernel
def _project(values, scale, weight, bias_at, out, team):
    """out ← rows · weightᵀ + bias for this thread's panels; `weight`: panels and scales."""
    rows, channels = out.shape
    panel_count = -(-channels // PANEL_CHANNELS)
    panels = carray(bytes_at(weight[0]), (panel_count, values.shape[1] // 2, 2 * PANEL_CHANNELS))
    scales = carray(floats_at(weight[1]), (panel_count * PANEL_CHANNELS,))
    first, last = _share(panel_count, team)
    _multiply(values, scale, panels, scales, out, first, last)
    if bias_at != 0:
        bias = carray(floats_at(bias_at), (channels,))
        for row in range(rows):
            for channel in range(first * PANEL_CHANNELS, min(last * PANEL_CHANNELS, channels)):
                out[row, channel] += bias[channel]


@kernel
def _add_norm_round(stream, delta, gain_at, sizes, epsilon, limit, values, scale, normed, team):
    """stream += delta; rounded rows ← norm(stream): this thread's rows."""
    gain = carray(floats_at(gain_at), (sizes.hidden,))
    first, last = _share(len(stream), team)
    for row in range(first, last):
        for i in range(sizes.hidden):
            stream[row, i] += delta[row, i]
        rms_norm(stream[row : row + 1], gain, epsilon, sizes.mean_count, normed)
        scale[row] = quantize_row(normed[0], values[row], limit)


@kernel
def _silu_round(gate_up, limit, values, scale, gated, team):
    first, last = _share(len(gate_up), team)
    for row in range(first, last):
        gated_silu(gate_up[row : row + 1], gated)
        scale[row] = quantize_row(gated[0], values[row], limit)


@kernel
def _keys_values(
    weight, layer, sizes, geometry, epsilon, limits, rows, room, memory, rotation, team
):
    """From the stream to rotated queries in `room.qkv`, keys and values in `memory`."""
    limit, values, scale = limits[0], room.values, room.scale
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        room.hidden, room.delta, weight[0], sizes, epsilon, limit, values, scale, normed, team
    )
    _meet(team)
    _project(values, scale, (weight[2], weight[3]), weight[4], room.qkv, team)
    _meet(team)
    first, last = _share(len(room.qkv), team)
    mine = room.qkv[first:last]
    positions, places = rows.positions[first:last], rows.places[first:last]
    rotate_and_store(mine, positions, places, rotation[0], rotation[1], memory, geometry, layer)


@kernel
def _out_and_mlp(weight, sizes, epsilon, limits, room, team):
    """From `room.attended` to the MLP's `room.delta`, which is yet to be added to the stream."""
    scale, delta = room.scale, room.delta
    first, last = _share(len(scale), team)
    for row in range(first, last):
        scale[row] = quantize_row(room.attended[row], room.attended_values[row], limits[1])
    _meet(team)
    _project(room.attended_values, scale, (weight[5], weight[6]), weight[7], delta, team)
    _meet(team)
    values, inner, gate_up = room.values, room.inner_values, room.gate_up
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        room.hidden, delta, weight[1], sizes, epsilon, limits[0], values, scale, normed, team
    )
    _meet(team)
    _project(values, scale, (weight[8], weight[9]), weight[10], gate_up, team)
    _meet(team)
    gated = np.empty((1, sizes.inner), np.float32)
    _silu_round(gate_up, limits[2], inner, scale, gated, team)
    _meet(team)
    _project(inner, scale, (weight[11], weight[12]), weight[13], delta, team)
    _meet(team)


@kernel
def _part(room, first, last):
    """The same buffers for the rows `first` to `last`, shared."""
    return Room(
        room.hidden[first:last],
        room.delta[first:last],
        room.qkv[first:last],
        room.attended[first:last],
        room.gate_up[first:last],
        room.values[first:last],
        room.attended_values[first:last],
        room.inner_values[first:last],
        room.scale[first:last],
    )


@kernel
def _gather(rows, room, target, team):
    """The sampled rows' stream and attention, one after another in `target`."""
    first, last = _share(len(rows.sampled), team)
    for i in range(first, last):
        target.hidden[i] = room.hidden[rows.sampled[i]]
        target.attended[i] = room.attended[rows.sampled[i]]


@kernel
def forward(
    pointers, sizes, geometry, epsilon, rows, rooms, memory, rotation, scratch, logits, span, team
):
    """One thread's part of a step: write keys and values to `memory`, logits of the sampled rows.

    `span`: the first layer of this call, and the one after its last; between calls all is in
    `rooms`. `geometry`: `Geometry`; `rooms`: a `Room` for all rows, and one for the sampled ones;
    `memory`, `scratch`: see `attention.attend`; `rotation`: cosines and sines float32 [context,
    head_dim/2]; `logits` float32 [sampled, vocabulary]; `team` = (this thread, threads, address of
    the barrier).
    """
    limits = pointers.limits
    room, sampled_room = rooms
    count = len(rows.tokens)
    first, last = _share(count, team)
    # With many rows each thread takes its own through all products: it meets the others only
    # around attention. With few, all rows share one pass over the weights.
    crew = team
    mine, my_rows = room, rows
    if _apart(count, team[1]):
        crew = (0, 1, 0)
        mine = _part(room, first, last)
        my_rows = Rows(
            rows.tokens[first:last],
            rows.positions[first:last],
            rows.places[first:last],
            rows.tables,
            rows.blocks,
            rows.sampled,
        )
    if span[0] == 0:
        embedding = carray(floats_at(pointers.rest[0]), (sizes.vocabulary, sizes.hidden))
        begin, end = _share(len(my_rows.tokens), crew)
        for row in range(begin, end):
            mine.hidden[row] = embedding[my_rows.tokens[row]]
            mine.delta[row] = np.float32(0.0)
    layers = len(pointers.layers)
    for layer in range(span[0], span[1]):
        weight = pointers.layers[layer]
        _keys_values(
            weight,
            layer,
            sizes,
            geometry,
            epsilon,
            limits,
            my_rows,
            mine,
            memory,
            rotation,
            crew,
        )
        if layer == layers - 1 and len(rows.sampled) == 0:
            return
        _meet(team)
        attend(
            room.qkv,
            room.attended,
            memory,
            rows.tables,
            rows.blocks,
            geometry,
            layer,
            scratch,
            (team[0], team[1]),
        )
        _meet(team)
        if layer < layers - 1:
            _out_and_mlp(weight, sizes, epsilon, limits, mine, crew)
    if span[1] < layers:
        return
    _gather(rows, room, sampled_room, team)
    _meet(team)
    _out_and_mlp(pointers.layers[layers - 1], sizes, epsilon, limits, sampled_room, team)
    values, scale = sampled_room.values, sampled_room.scale
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        sampled_room.hidden,
        sampled_room.delta,
        pointers.rest[1],
        sizes,
        epsilon,
        limits[0],
        values,
        scale,
        normed,
        team,
    )
    _meet(team)
    _project(values, scale, (pointers.rest[2], pointers.rest[3]), 0, logits, team)
