"""How long the parts of a model take on tensor-parallel devices, by a roofline.

Each part takes as long as the slower of its arithmetic and its memory traffic (Williams et al.
2009), at what kernels get of the device's peaks:

    matrices     2·parameters·rows operations          parameters are read once a step
    experts      2·parameters·active·tokens            routed·(1 − (1 − active/routed)^tokens) are
                                                       read: those that at least one token goes to
    attention    4·pairs·heads·head_dim operations     KV of the context is read once
    collectives  two all-reduces a layer, as rings, of one activation row a token

Tokens choose experts independently and evenly, and experts are spread evenly over devices.
"""

from antiphon.types import Seconds

from .devices import Device
from .model_shapes import ModelShape
from .parallelism import Parallelism

_HOP_S: Seconds = 10e-6
"""Latency of one collective, or of one hop between stages."""
_ACTIVATION_BYTES = 2
"""Of one number that devices send each other."""


class Roofline:
    """Times of the whole model, of all layers in a row; a pipeline divides them among its stages.

    `weight_bytes`, `kv_bytes`: of one number. Weights of one byte use the device's 8-bit
    arithmetic; smaller ones are unpacked, and computed with in 16 bits.
    """

    def __init__(
        self,
        model: ModelShape,
        device: Device,
        split: Parallelism,
        *,
        weight_bytes: float,
        kv_bytes: float,
    ) -> None:
        tensor = split.tensor
        flops = device.flops_8 if weight_bytes == 1 else device.flops_16
        operation_s = 1 / (flops * device.compute_efficiency * tensor)
        byte_s = 1 / (device.memory_bytes_per_s * device.memory_efficiency)
        weight_s = weight_bytes * byte_s / tensor
        # Of a row, then of reading the weights.
        self._dense = _times(model.dense_parameters, 2 * operation_s, weight_s)
        self._head = _times(model.head_parameters, 2 * operation_s, weight_s)
        self._launches_s = model.layers * device.launch_s
        self._set_experts(model, 2 * operation_s, weight_s)
        self._set_attention(model, device, tensor, kv_bytes * byte_s)
        self._set_links(model, device, split)

    def layers_s(self, tokens: float, context: float, attention: float) -> Seconds:
        """All layers for so many rows, which read so much KV and attend to so many pairs."""
        row_s, read_s = self._dense
        seconds = self._launches_s + max(tokens * row_s, read_s)
        if self._routed:
            row_s, one_s = self._expert
            met = self._routed * (1 - self._missed**tokens)
            seconds += max(tokens * row_s, met * one_s)
        seconds += max(self._pairs_s(tokens, context, attention), context * self._entry_s)
        return seconds + self._reductions_s + tokens * self._reduced_row_s

    def head_s(self, sampled: float) -> Seconds:
        """The output head for so many rows; 0 for none."""
        row_s, read_s = self._head
        return max(sampled * row_s, read_s) if sampled else 0.0

    def hop_s(self, tokens: float) -> Seconds:
        """Activations from one stage to the next."""
        return _HOP_S + tokens * self._sent_row_s

    def _pairs_s(self, tokens: float, context: float, attention: float) -> Seconds:
        """Of latent attention, the cheaper of its two forms."""
        pair_s = attention * self._pair_s
        if not self._expand_s:
            return pair_s
        expanded_s = attention * self._expanded_pair_s + (context - tokens) * self._expand_s
        return min(pair_s, expanded_s)

    def _set_experts(self, model: ModelShape, row_s: Seconds, weight_s: Seconds) -> None:
        experts = model.experts
        self._routed, self._missed, self._expert = 0, 0.0, (0.0, 0.0)
        if experts is not None:
            one = model.sparse_layers * model.ffn_parameters(experts.ffn)
            self._routed = experts.routed
            self._missed = 1 - experts.active / experts.routed
            self._expert = _times(one, row_s * experts.active, weight_s)

    def _set_attention(
        self, model: ModelShape, device: Device, tensor: int, number_s: Seconds
    ) -> None:
        """A pair takes `2·(key + value)` operations of each head, of their widths.

        Latent attention (DeepSeek-V2 §2.1) has two forms. Absorbed: all in the latent space, best
        for decode. Expanded: keys and values of the context are computed from it first (those of
        the step's own tokens are among the matrices), best for long chunks.
        """
        operation_s = 1 / (device.flops_16 * device.compute_efficiency * tensor)
        operation_s *= model.layers * model.heads
        self._entry_s = model.layers * model.kv_values_per_token * number_s
        self._entry_s *= kv_copies(model, tensor) / tensor
        self._expanded_pair_s = self._expand_s = 0.0
        if (latent := model.latent) is None:
            self._pair_s = 4.0 * model.head_dim * operation_s
            return
        both = model.head_dim + latent.value_dim
        self._pair_s = 2.0 * (2 * latent.rank + latent.rope_dim) * operation_s
        self._expanded_pair_s = 2.0 * (both + latent.rope_dim) * operation_s
        self._expand_s = 2.0 * latent.rank * both * operation_s

    def _set_links(self, model: ModelShape, device: Device, split: Parallelism) -> None:
        tensor, row_bytes = split.tensor, model.hidden * _ACTIVATION_BYTES
        reductions = 2 * model.layers if tensor > 1 else 0
        link = device.link_bytes_per_s(one_node=tensor <= device.node_devices)
        self._reductions_s = reductions * _HOP_S
        self._reduced_row_s = reductions * 2 * (tensor - 1) / tensor * row_bytes / link
        link = device.link_bytes_per_s(one_node=split.devices <= device.node_devices)
        self._sent_row_s = row_bytes / link


def _times(parameters: float, row_s: Seconds, weight_s: Seconds) -> tuple[Seconds, Seconds]:
    return parameters * row_s, parameters * weight_s


def kv_copies(model: ModelShape, tensor: int) -> float:
    """How often a token's KV is kept on so many tensor-parallel devices, as the fullest needs it.

    Latent KV is not split by heads; KV heads are, down to one a device.
    """
    if model.latent is not None:
        return tensor
    return tensor * -(-model.kv_heads // tensor) / model.kv_heads
