"""Memory that a kernel makes for itself is its own until it ends, whoever asks for some meanwhile.

Attention walks its own tables by bare pointers, which numba doesn't count. Here all threads share
one heap, which overwrites what is freed: a table that died too soon is soon another thread's.
"""

import os
import subprocess
import sys

import pytest

HEAP = "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0:glibc.malloc.perturb=165"
"""Other C libraries don't read it: there the law is checked with the heap as it is."""

CODE = """
import sys
import numpy as np
import torch
from antiphon.engine import KvDtype, KvLayout, KvMemory
from antiphon.engine.attention import Geometry, attend, scratch_floats
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.thread_team import ThreadTeam

torch.manual_seed(3)
torch.set_num_threads(3)

def wrong(width, window, rounds):
    dtype = KvDtype(sys.argv[1])
    layout = KvLayout(layers=1, kv_heads=4, head_width=width, page_tokens=5, dtype=dtype)
    memory = KvMemory(layout, 60)
    memory.flat.normal_()
    table = PageTable()
    table.extend(0, np.random.default_rng(3).permutation(60).tolist())
    runs = [Run(tokens=[0], start=start, table=table, sampled=True) for start in range(99, 299, 5)]
    batch = Batch.of(runs, layout)
    geometry = Geometry(8, 4, width, width, 5, layout.page_stride, width**-0.5)
    qkv = torch.randn(len(runs), 16 * width).numpy()
    scratch = [torch.empty(scratch_floats(geometry)).numpy() for _ in range(3)]

    def attended(run):
        out = np.zeros((len(runs), 8 * width), np.float32)
        def share(thread, threads):
            attend(qkv, out, memory.elements, batch.tables[0], batch.blocks, geometry, 0, window,
                   scratch[thread], (thread, threads))
        run(share)
        return out

    alone = attended(lambda share: share(0, 1))
    assert np.isfinite(alone).all()
    return sum(not np.array_equal(attended(ThreadTeam().run), alone) for _ in range(rounds))

print(*(wrong(width, window, 150) for width in (16, 128) for window in (0, 40)))
"""


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_threads_that_share_a_heap_attend_as_one_alone(dtype: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", CODE, dtype],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLIBC_TUNABLES": HEAP},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["0"] * 4
