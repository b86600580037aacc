"""How many drawn examples a law is tried on: a share of them by default, all by night.

    @settings(max_examples=examples(200))        make test: 50       make test-thorough: 200

Each run draws others, so what a share misses today comes up within days. Tests that show that a
fault is found (mutants, controls) keep their numbers: it must be found each time.
"""

import os

THOROUGH = "ANTIPHON_THOROUGH"
"""Set in the environment: all examples."""
SHARE, LEAST = 4, 10
"""One of so many, but so many at least."""


def examples(count: int) -> int:
    """Of `count` examples those that this run takes."""
    return count if os.environ.get(THOROUGH) else min(count, max(LEAST, count // SHARE))
