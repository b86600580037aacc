"""The gateway's process stays small: no tensors, no engine."""

import subprocess
import sys


def test_importing_the_gateway_loads_no_torch():
    code = (
        "import sys, antiphon.live.gateway; "
        "print(sorted({'torch', 'numba', 'transformers', 'antiphon.engine', "
        "'antiphon.core.scheduler'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
