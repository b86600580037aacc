"""The families of models that the engine runs: a new one is a file, and a line in `FAMILIES`."""

from .dots1 import DOTS1
from .family import Family
from .gemma3 import GEMMA3
from .llama import LLAMA
from .mistral import MISTRAL
from .mixtral import MIXTRAL
from .phi3 import PHI3
from .qwen import QWEN2, QWEN3
from .qwen3_moe import QWEN3_MOE

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    PHI3,
    GEMMA3,
    MIXTRAL,
    QWEN3_MOE,
    DOTS1,
)

__all__ = ["FAMILIES", "LLAMA", "Family"]
