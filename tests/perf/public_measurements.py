"""What others measured and published of models and devices in the catalogue, or near it."""

from dataclasses import dataclass

from antiphon.perf.hardware import Deployment, ModelShape, Parallelism, device_of, shape_of

LLAMA_2_7B = ModelShape(
    name="llama-2-7b",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_dim=128,
    ffn=11008,
    vocab=32000,
    context=4096,
)
LLAMA_2_70B = ModelShape(
    name="llama-2-70b",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    ffn=28672,
    vocab=32000,
    context=4096,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One sequence on an idle server. `prompt`: 0 for a decode step behind some 100 tokens."""

    model: ModelShape
    device: str
    tensor: int
    bits: int
    prompt: int
    ms: float
    source: str

    @property
    def deployment(self) -> Deployment:
        """What was measured."""
        return Deployment(
            model=self.model,
            device=device_of(self.device),
            parallelism=Parallelism(tensor=self.tensor),
            weight_bytes=self.bits / 8,
        )

    @property
    def ours_ms(self) -> float:
        """What the roofline says."""
        made = self.deployment
        return 1e3 * (made.prefill_s(self.prompt) if self.prompt else made.decode_step_s(1, 100))

    @property
    def row(self) -> str:
        """A line of the table in docs/reference/performance-models.md."""
        what = f"prompt of {self.prompt}" if self.prompt else "one decode step"
        return (
            f"| {self.model.name} | {self.tensor} × {self.device} | {self.bits} | {what} | "
            f"{self.ms:.1f} ms | {self.ours_ms:.1f} ms | {self.ours_ms / self.ms:.2f} | "
            f"{self.source} |"
        )


GPT_FAST = "gpt-fast"
TENSORRT_LLM = "TensorRT-LLM 0.5"


def _decode(model: ModelShape, device: str, tensor: int, tokens_per_s: float) -> Published:
    return Published(
        model=model,
        device=device,
        tensor=tensor,
        bits=16,
        prompt=0,
        ms=1e3 / tokens_per_s,
        source=GPT_FAST,
    )


def _prompt(
    model: ModelShape, device: str, tensor: int, bits: int, prompt: int, ms: float
) -> Published:
    return Published(
        model=model,
        device=device,
        tensor=tensor,
        bits=bits,
        prompt=prompt,
        ms=ms,
        source=TENSORRT_LLM,
    )


PUBLISHED = (
    # pytorch-labs/gpt-fast: README.md, "Tensor Parallelism" (A100 80 GB, limited to 330 W), and
    # pull request 158 for Llama 3 on an H100: tokens a second at batch size 1.
    _decode(shape_of("llama-3-8b"), "h100", 1, 165),
    _decode(LLAMA_2_7B, "a100", 1, 104.9),
    _decode(LLAMA_2_7B, "a100", 2, 168.84),
    _decode(LLAMA_2_7B, "a100", 4, 254.02),
    _decode(LLAMA_2_7B, "a100", 8, 328.43),
    _decode(LLAMA_2_70B, "a100", 2, 21.32),
    _decode(LLAMA_2_70B, "a100", 4, 38.01),
    _decode(LLAMA_2_70B, "a100", 8, 62.5),
    # NVIDIA/TensorRT-LLM: docs/source/performance.md of version 0.5, "Low Latency": first token.
    _prompt(LLAMA_2_7B, "a100", 1, 16, 128, 16),
    _prompt(LLAMA_2_7B, "a100", 1, 16, 2048, 133),
    _prompt(LLAMA_2_70B, "a100", 4, 16, 128, 47),
    _prompt(LLAMA_2_70B, "a100", 4, 16, 2048, 377),
    _prompt(LLAMA_2_7B, "h100", 1, 8, 128, 7),
    _prompt(LLAMA_2_7B, "h100", 1, 8, 2048, 36),
    _prompt(LLAMA_2_70B, "h100", 4, 8, 128, 26),
    _prompt(LLAMA_2_70B, "h100", 4, 8, 2048, 109),
    _prompt(LLAMA_2_7B, "l40s", 1, 8, 128, 14),
    _prompt(LLAMA_2_7B, "l40s", 1, 8, 2048, 73),
)
