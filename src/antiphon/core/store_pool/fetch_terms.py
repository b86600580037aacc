"""On which terms somebody looks for blocks: what it may be given, and by when it is wanted."""

import math
from dataclasses import dataclass, replace
from typing import Self

from antiphon.types import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """`lineage`: of the asker's KV (`core.kv.lineage`); empty: it takes exact KV only. `position`:
    how many blocks are before the first in their chain. `due`: when it is to be there (inf: nobody
    has said). `compute_s`: what the asker takes to compute a block (None: it is not known)."""

    lineage: bytes = b""
    position: int = 0
    due: Seconds = math.inf
    compute_s: Seconds | None = None

    def after(self, blocks: int) -> Self:
        """The terms of what lies so many blocks behind."""
        return replace(self, position=self.position + blocks)


EXACT = FetchTerms()
"""Of whoever has said nothing: exact KV, whatever it takes."""
