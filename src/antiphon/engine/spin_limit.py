"""How long torch's threads spin while they wait for each other; imported before torch is loaded.

GNU OpenMP spins for milliseconds by default. If anything else wants one of their cores (our own
event loop does), each of the hundreds of meetings in a step then lasts until the operating system
takes the core away: with two threads on two busy cores a step took four to six times as long. So
they wait briefly, then sleep. A value that the user has set stays.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")
