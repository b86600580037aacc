"""What one call of the forward pass works on: sizes, addresses, rows, and room for them."""

from typing import NamedTuple

import numpy as np

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
    expert_inner: int
    """Of one expert; 0: there are none."""
    embedding_scale: np.float32
    """What rows of the embedding are multiplied by."""
    gelu: bool
    """Whether the gate's activation is GELU; else it is SiLU."""


class Pointers(NamedTuple):
    """Addresses of the weights, int64; their owner must outlive the call.

    `layers` [layers, 19]: attention norm, MLP norm, then for each of `PROJECTIONS` panels, channel
    scales and bias (0: none), then the norms of heads, of what attention and of what the MLP gives
    (0: none), then a router and its correction (0: the layer has no experts). `rest` [4]: embedding
    float32, final norm, the head's panels and scales. `limits` float32 [4]: largest activation of
    rows of width hidden, attended, inner, inner of an expert. `windows` [layers]: how many
    positions a row sees, 0 for all. `experts` [layers, experts, 4]: panels and scales of gate with
    up, and of down.
    """

    layers: np.ndarray
    rest: np.ndarray
    limits: np.ndarray
    windows: np.ndarray
    experts: np.ndarray


class Rows(NamedTuple):
    """What a step computes: see `batch.Batch`; `homes`: see `KvLayout`. All int64."""

    tokens: np.ndarray
    positions: np.ndarray
    places: np.ndarray
    tables: np.ndarray
    homes: np.ndarray
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
    chosen: np.ndarray
    """Experts of each row, int64 [rows, slots]; no slots without experts."""
    shares: np.ndarray
    """What each counts for, float32 [rows, slots]."""
    given: np.ndarray
    """What each gave, float32 [rows · slots, hidden]."""
