"""A sparse layer with int8 weights: which experts rows take, each expert's products, their sum.

Experts that anybody chose take turns with the threads; a thread computes its experts whole, with
the rows that chose them gathered, so it waits for nobody until all are done. A row's outputs are
added in the order of the experts' numbers. Neither who computes an expert nor which rows are
gathered beside a row changes its bits.
"""

import numpy as np
from numba.np.numpy_support import carray

from ..expert_choice import choose_experts
from ..kernel_cache import kernel
from ..row_kernels import rms_norm
from .addresses import floats_at
from .mlp_steps import ALONE, gate_round, project, share_of

_MOST_ROWS = 64
"""Rows of an expert that are computed at a time."""


@kernel
def choose(gain_at, router_at, correction_at, sizes, rules, epsilon, room, team):
    """Fill `room.chosen` and `room.shares` for this thread's rows of the stream."""
    gain = carray(floats_at(gain_at), (sizes.hidden,))
    router = carray(floats_at(router_at), (rules.routed, sizes.hidden))
    correction = carray(floats_at(correction_at), (rules.routed,))
    normed = np.empty((1, sizes.hidden), np.float32)
    first, last = share_of(len(room.hidden), team)
    for row in range(first, last):
        rms_norm(room.hidden[row : row + 1], gain, epsilon, sizes.mean_count, normed)
        one, shares = room.chosen[row : row + 1], room.shares[row : row + 1]
        choose_experts(normed, router, correction, rules, one, shares)


@kernel
def run_experts(experts, sizes, limits, counts, room, team):
    """Fill `room.given` for this thread's experts: `experts` int64 [experts, 4] addresses.

    `counts` int64 [routed]: of each of them that is routed, its rows are added.
    """
    rows, slots = room.chosen.shape
    most = min(rows, _MOST_ROWS)
    taken = np.empty(rows, np.int64)
    values = np.empty((most, room.values.shape[1]), np.int16)
    inner = np.empty((most, sizes.expert_inner), np.int16)
    scale, inner_scale = np.empty(most, np.float32), np.empty(most, np.float32)
    gate_up = np.empty((most, 2 * sizes.expert_inner), np.float32)
    gated = np.empty((1, sizes.expert_inner), np.float32)
    given = np.empty((most, sizes.hidden), np.float32)
    turn = 0
    for expert in range(len(experts)):
        found = 0
        for row in range(rows):
            for slot in range(slots):
                if room.chosen[row, slot] == expert:
                    taken[found] = row * slots + slot
                    found += 1
        if found == 0:
            continue
        turn += 1
        if turn % team[1] != team[0]:
            continue
        if expert < len(counts):
            counts[expert] += found
        weight = experts[expert]
        for begin in range(0, found, most):
            count = min(most, found - begin)
            for i in range(count):
                row = taken[begin + i] // slots
                values[i] = room.values[row]
                scale[i] = room.scale[row]
            project(
                values[:count], scale[:count], (weight[0], weight[1]), 0, gate_up[:count], ALONE
            )
            gate_round(
                gate_up[:count],
                sizes.gelu,
                limits[3],
                inner[:count],
                inner_scale[:count],
                gated,
                ALONE,
            )
            project(
                inner[:count], inner_scale[:count], (weight[2], weight[3]), 0, given[:count], ALONE
            )
            for i in range(count):
                room.given[taken[begin + i]] = given[i]


@kernel
def add_up(room, team):
    """`room.delta` ← the sum of what each row's experts gave, times their weights."""
    rows, slots = room.chosen.shape
    first, last = share_of(rows, team)
    for row in range(first, last):
        room.delta[row] = np.float32(0.0)
        for slot in range(slots):
            given, weight = room.given[row * slots + slot], room.shares[row, slot]
            for i in range(len(given)):
                room.delta[row, i] += given[i] * weight
