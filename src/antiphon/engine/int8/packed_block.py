"""A packed weight as one block of bytes: how it lies in a file, and is used from there in place.

    panels int8 │ channel scales float32 │ activation limit int32 │ zeros up to 64 bytes

Its size follows from the matrix's shape alone, so a file can be checked before it is read.
"""

import numpy as np

from .microkernel import INPUT_MULTIPLE, PANEL_CHANNELS
from .quantize import PackedWeight

_ALIGNMENT_BYTES = 64


def block_bytes(channels: int, inputs: int) -> int:
    """Size of the block of a weight [channels, inputs]."""
    panel_bytes, scale_bytes = _parts(channels, inputs)
    return _round_up(panel_bytes + scale_bytes + 4, _ALIGNMENT_BYTES)


def to_block(weight: PackedWeight) -> np.ndarray:
    """The weight as uint8 [block_bytes]: new memory."""
    block = np.zeros(block_bytes(weight.channels, weight.inputs), np.uint8)
    panel_bytes, scale_bytes = _parts(weight.channels, weight.inputs)
    block[:panel_bytes] = weight.panels.reshape(-1).view(np.uint8)
    block[panel_bytes : panel_bytes + scale_bytes] = weight.channel_scale.view(np.uint8)
    limit = np.array([weight.activation_limit], np.int32)
    block[panel_bytes + scale_bytes :][:4] = limit.view(np.uint8)
    return block


def from_block(block: np.ndarray, channels: int, inputs: int) -> PackedWeight:
    """The weight that `to_block` wrote, sharing the block's memory: nothing is copied."""
    panel_bytes, scale_bytes = _parts(channels, inputs)
    end = panel_bytes + scale_bytes
    panels = block[:panel_bytes].view(np.int8)
    return PackedWeight(
        panels=panels.reshape(_round_up(channels, PANEL_CHANNELS) // PANEL_CHANNELS, -1, 32),
        channel_scale=block[panel_bytes:end].view(np.float32),
        channels=channels,
        inputs=inputs,
        activation_limit=int(block[end : end + 4].view(np.int32)[0]),
        nonfinite_channels=0,
    )


def _parts(channels: int, inputs: int) -> tuple[int, int]:
    """Bytes of the panels and of the scales."""
    padded_channels = _round_up(channels, PANEL_CHANNELS)
    return padded_channels * _round_up(inputs, INPUT_MULTIPLE), 4 * padded_channels


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
