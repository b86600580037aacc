"""A child's program is a module of ours, which is loaded without searches for cycles.

`python -P -m antiphon.live.supervisor.child_program MODULE NAME` runs MODULE as `-m MODULE` would.
Nothing of what is being loaded is garbage, but each search walks through all of it, and there are
many: an eighth of the time that a worker's modules take. `parent.run_child` allows them again.
"""

import gc
import runpy
import sys

if __name__ == "__main__":
    gc.disable()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
