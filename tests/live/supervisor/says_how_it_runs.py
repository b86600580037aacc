"""A child that tells its parent how it was loaded, and how it runs."""

import gc
import sys

from antiphon.live.supervisor.parent import Parent, run_child

SEARCHED = gc.isenabled()
"""Whether there were searches for cycles while this was loaded."""


def tell(parent: Parent) -> int:
    mine = gc.is_tracked(parent) and any(one is parent for one in gc.get_objects())
    loaded = any(one is sys.modules for one in gc.get_objects())
    parent.say(f"{SEARCHED} {gc.isenabled()} {mine} {loaded} {sys.argv[1:]}")
    return 0


if __name__ == "__main__":
    run_child(tell)
