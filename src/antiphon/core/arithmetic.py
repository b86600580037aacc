"""In what a model computes, of what its weights are rounded to."""

from antiphon.errors import BugError

QUANTIZATIONS = ("int8", "none")
"""What `model.quantize` may be: 8-bit weights with 12-bit activations, or float32."""


def dtype_of(quantize: str) -> str:
    """The engine's arithmetic for weights that `model.quantize` rounds: "int8" or "fp32"."""
    match quantize:
        case "int8":
            return "int8"
        case "none":
            return "fp32"
        case other:
            raise BugError(f"no quantisation: {other}")
