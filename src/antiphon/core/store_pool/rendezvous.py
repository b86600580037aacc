"""Which node of a pool is a block's home: the same answer everywhere, without anybody to ask.

Highest random weight (Thaler and Ravishankar, IEEE/ACM ToN 6(1), 1998): each node draws a number
for the key, the highest wins. Weighted by the logarithmic method (Schindelhauer and Schomaker,
"Weighted Distributed Hash Tables", SPAA 2005): a node with weight w of a sum W is home to w / W of
the keys. Two laws follow, whatever the weights:

* a node that comes takes keys from the others, and moves none between them: w / W of all;
* a node that goes leaves its keys to the others, and moves none of theirs.

A draw is BLAKE2b keyed with the node's name, so that it is the same in every process and release.
"""

from collections.abc import Mapping
from hashlib import blake2b
from math import log

from antiphon.types import BlockKey, StoreName

MOST_NAME_BYTES = 64
"""What BLAKE2b takes as a key."""


def score(key: BlockKey, name: StoreName, weight: float) -> float:
    """What the node draws for the key: higher for larger weights; 0 for none."""
    if weight <= 0:
        return 0.0
    digest = blake2b(key, digest_size=8, key=name.encode()).digest()
    drawn = ((int.from_bytes(digest, "big") >> 12) + 0.5) * 2.0**-52
    return weight / -log(drawn)


def home_of(key: BlockKey, weights: Mapping[StoreName, float]) -> StoreName:
    """The key's home among nodes with these weights, of which there is one at least."""
    return max(weights, key=lambda name: (score(key, name, weights[name]), name))
