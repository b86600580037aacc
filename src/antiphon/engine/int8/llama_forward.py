"""The whole forward pass with int8 weights: one call a step on every thread.

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

import numpy as np
from numba.np.numpy_support import carray

from ..attention import attend
from ..kernel_cache import kernel
from ..row_kernels import normalise_heads, rms_norm, rotate_and_store
from .addresses import floats_at
from .expert_forward import add_up, choose, run_experts
from .forward_room import Room, Rows
from .mlp_steps import gate_round, meet, project, share_of
from .quantize import quantize_row

_ROWS_APART = 32
"""From so many rows a thread on, each thread streams all weights: cheaper than waiting."""


@kernel
def _apart(rows, threads):
    """Whether each thread takes its own rows through a layer. All decide alike, by the smallest
    share: one that waits for others that do not come would wait forever."""
    return rows // threads >= _ROWS_APART


@kernel
def _add_norm_round(
    stream, delta, delta_gain_at, gain_at, sizes, epsilon, limit, values, scale, normed, team
):
    """stream += delta, normalised if it has a gain; rounded rows ← norm(stream): this thread's."""
    gain = carray(floats_at(gain_at), (sizes.hidden,))
    delta_gain = carray(floats_at(delta_gain_at), (sizes.hidden,))
    first, last = share_of(len(stream), team)
    for row in range(first, last):
        if delta_gain_at != 0:
            mine = delta[row : row + 1]
            rms_norm(mine, delta_gain, epsilon, sizes.mean_count, mine)
        for i in range(sizes.hidden):
            stream[row, i] += delta[row, i]
        rms_norm(stream[row : row + 1], gain, epsilon, sizes.mean_count, normed)
        scale[row] = quantize_row(normed[0], values[row], limit)


@kernel
def _keys_values(
    weight, before, layer, sizes, geometry, epsilon, limits, rows, room, memory, rotation, team
):
    """From the stream to rotated queries in `room.qkv`, keys and values in `memory`.

    `before`: address of the gain for what the MLP of the layer before gave; 0: none.
    """
    limit, values, scale = limits[0], room.values, room.scale
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        room.hidden,
        room.delta,
        before,
        weight[0],
        sizes,
        epsilon,
        limit,
        values,
        scale,
        normed,
        team,
    )
    meet(team)
    project(values, scale, (weight[2], weight[3]), weight[4], room.qkv, team)
    meet(team)
    first, last = share_of(len(room.qkv), team)
    mine = room.qkv[first:last]
    if weight[14] != 0:
        gains = carray(floats_at(weight[14]), (2, geometry.head_width))
        normalise_heads(mine, gains, epsilon, geometry)
    page, place = rows.homes[layer]
    positions, places = rows.positions[first:last], rows.places[first:last, page]
    rotate_and_store(mine, positions, places, rotation[0], rotation[1], memory, geometry, place)


@kernel
def _out_and_mlp(weight, experts, counts, sizes, rules, epsilon, limits, room, team):
    """From `room.attended` to the MLP's `room.delta`, which is yet to be added to the stream."""
    scale, delta = room.scale, room.delta
    first, last = share_of(len(scale), team)
    for row in range(first, last):
        scale[row] = quantize_row(room.attended[row], room.attended_values[row], limits[1])
    meet(team)
    project(room.attended_values, scale, (weight[5], weight[6]), weight[7], delta, team)
    meet(team)
    values, inner, gate_up = room.values, room.inner_values, room.gate_up
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        room.hidden,
        delta,
        weight[15],
        weight[1],
        sizes,
        epsilon,
        limits[0],
        values,
        scale,
        normed,
        team,
    )
    meet(team)
    if weight[17] != 0:
        choose(weight[1], weight[17], weight[18], sizes, rules, epsilon, room, team)
        meet(team)
        run_experts(experts, sizes, limits, counts, room, team)
        meet(team)
        add_up(room, team)
        meet(team)
        return
    project(values, scale, (weight[8], weight[9]), weight[10], gate_up, team)
    meet(team)
    gated = np.empty((1, sizes.inner), np.float32)
    gate_round(gate_up, sizes.gelu, limits[2], inner, scale, gated, team)
    meet(team)
    project(inner, scale, (weight[11], weight[12]), weight[13], delta, team)
    meet(team)


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
        room.chosen[first:last],
        room.shares[first:last],
        room.given[first * room.chosen.shape[1] : last * room.chosen.shape[1]],
    )


@kernel
def _gather(rows, room, target, team):
    """The sampled rows' stream and attention, one after another in `target`."""
    first, last = share_of(len(rows.sampled), team)
    for i in range(first, last):
        target.hidden[i] = room.hidden[rows.sampled[i]]
        target.attended[i] = room.attended[rows.sampled[i]]


@kernel
def _own_part(rows, room, team):
    """Rows and room that this thread takes through the layers, and with whom: see `_apart`."""
    count = len(rows.tokens)
    if not _apart(count, team[1]):
        return rows, room, team
    first, last = share_of(count, team)
    mine = Rows(
        rows.tokens[first:last],
        rows.positions[first:last],
        rows.places[first:last],
        rows.tables,
        rows.homes,
        rows.blocks,
        rows.sampled,
    )
    return mine, _part(room, first, last), (0, 1, 0)


@kernel
def _embed(pointers, sizes, rows, room, team):
    """The stream before the first layer: the tokens' rows of the embedding."""
    embedding = carray(floats_at(pointers.rest[0]), (sizes.vocabulary, sizes.hidden))
    first, last = share_of(len(rows.tokens), team)
    for row in range(first, last):
        room.hidden[row] = embedding[rows.tokens[row]] * sizes.embedding_scale
        room.delta[row] = np.float32(0.0)


@kernel
def _head(pointers, sizes, epsilon, limit, room, logits, team):
    """Logits of the rows in `room`, whose last MLP's output is yet to be added."""
    values, scale = room.values, room.scale
    normed = np.empty((1, sizes.hidden), np.float32)
    _add_norm_round(
        room.hidden,
        room.delta,
        pointers.layers[len(pointers.layers) - 1][16],
        pointers.rest[1],
        sizes,
        epsilon,
        limit,
        values,
        scale,
        normed,
        team,
    )
    meet(team)
    project(values, scale, (pointers.rest[2], pointers.rest[3]), 0, logits, team)


@kernel
def forward(
    pointers,
    sizes,
    rules,
    geometry,
    epsilon,
    rows,
    rooms,
    memory,
    rotations,
    scratch,
    counts,
    logits,
    span,
    team,
):
    """One thread's part of a step: write keys and values to `memory`, logits of the sampled rows.

    `span`: the first layer of this call, and the one after its last; between calls all is in
    `rooms`. `rules`: `ChoiceRules`; `geometry`: `Geometry`; `rooms`: a `Room` for all rows, and
    one for the sampled ones; `memory`, `scratch`: see `attention.attend`; `rotations`: see
    `rope.Rotations`; `counts`: this thread's, see `ExpertCounts`; `logits` float32 [sampled,
    vocabulary]; `team` = (this thread, threads, address of the barrier).
    """
    limits = pointers.limits
    room, sampled_room = rooms
    # With many rows each thread takes its own through all products: it meets the others only
    # around attention. With few, all rows share one pass over the weights.
    my_rows, mine, crew = _own_part(rows, room, team)
    if span[0] == 0:
        _embed(pointers, sizes, my_rows, mine, crew)
    layers = len(pointers.layers)
    for layer in range(span[0], span[1]):
        weight, window = pointers.layers[layer], pointers.windows[layer]
        before = pointers.layers[layer - 1][16] if layer > 0 else 0
        rotation = (rotations[2], rotations[3]) if window else (rotations[0], rotations[1])
        _keys_values(
            weight,
            before,
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
        meet(team)
        page, place = rows.homes[layer]
        attend(
            room.qkv,
            room.attended,
            memory,
            rows.tables[page],
            rows.blocks,
            geometry,
            place,
            window,
            scratch,
            (team[0], team[1]),
        )
        meet(team)
        if layer < layers - 1:
            experts = pointers.experts[layer]
            _out_and_mlp(weight, experts, counts[layer], sizes, rules, epsilon, limits, mine, crew)
    if span[1] < layers:
        return
    _gather(rows, room, sampled_room, team)
    meet(team)
    _out_and_mlp(
        pointers.layers[layers - 1],
        pointers.experts[layers - 1],
        counts[layers - 1],
        sizes,
        rules,
        epsilon,
        limits,
        sampled_room,
        team,
    )
    _head(pointers, sizes, epsilon, limits[0], sampled_room, logits, team)
