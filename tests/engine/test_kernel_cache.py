"""Kernels are compiled once a machine: the next process finds them on disk."""

import json
import os
import subprocess
import sys

CODE = """
import json
from engine_driver import Driver, request_of
from tiny_llama import EVEN_SPEC, ODD_SPEC, model_of
from antiphon.engine import attention, row_kernels
for spec in (EVEN_SPEC, ODD_SPEC):
    for page_tokens in (1, 16):
        Driver(model_of(spec), page_tokens=page_tokens).run([request_of("r", range(20), n=2)])
kernels = [attention.attend, row_kernels.rms_norm, row_kernels.gated_silu,
           row_kernels.rotate_and_store]
print(json.dumps([[sum(k.stats.cache_hits.values()), sum(k.stats.cache_misses.values())]
                  for k in kernels]))
"""


def hits_and_misses() -> list[list[int]]:
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(result.stdout)


def test_a_second_process_compiles_nothing() -> None:
    """One signature a kernel, whatever the model and the page size."""
    assert [sum(looks) for looks in hits_and_misses()] == [1] * 4
    assert hits_and_misses() == [[1, 0]] * 4
