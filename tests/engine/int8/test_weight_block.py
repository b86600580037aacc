"""Moving weights together changes their addresses and nothing else."""

import numpy as np

from antiphon.engine.int8 import matmul, pack, place_together


def _weights():
    rng = np.random.default_rng(4)
    shapes = ((17, 24), (1, 3), (64, 80))
    return [pack(rng.standard_normal(shape, np.float32)) for shape in shapes]


def test_products_keep_their_bits():
    for before, after in zip(_weights(), place_together(_weights()), strict=True):
        x = np.random.default_rng(5).standard_normal((3, before.inputs), np.float32)
        expected, found = (np.empty((3, before.channels), np.float32) for _ in range(2))
        matmul(x, before, expected)
        matmul(x, after, found)
        assert expected.tobytes() == found.tobytes()
        assert (after.channels, after.inputs) == (before.channels, before.inputs)


def test_weights_follow_each_other_on_cache_lines():
    originals = _weights()
    together = place_together(originals)
    arrays = [array for weight in together for array in (weight.panels, weight.channel_scale)]
    addresses = [array.ctypes.data for array in arrays]
    assert all(address % 64 == 0 for address in addresses)
    for array, address, following in zip(arrays, addresses, addresses[1:], strict=False):
        assert 0 <= following - (address + array.nbytes) < 64
    together[0].panels[...] = 0
    assert originals[0].panels.any()


def test_nothing_to_place():
    assert place_together([]) == []
