"""Times that hold until something is measured: `antiphon serve` needs no `antiphon profile` first.

The numbers describe SmolLM2-135M with int8 arithmetic on one AVX-512 core. They follow from five
medians of benchmarks/results/engine.json, and a test holds them to these:

* 512 tokens of a prompt from its beginning, and from token 3,584 on: 262 ms and 650 ms. The
  difference is 1.84 million pairs of attention: 0.21 µs each. The rest of the first is 0.45 ms a
  token.
* steps of 1, 8 and 32 sequences at a context of 540: 4.4, 10.9 and 42.6 ms, so about 1.12 ms a
  sequence over 2.9 ms that each step takes. Of the 1.12 ms, 0.45 are its token and 0.11 its
  attention; the head is about a third of the other products; what is left is reading its KV.

Another model or machine is faster or slower as a whole: routers correct these times by the busy
time that each worker reports. Measure with `antiphon profile` where proportions matter.
"""

from .fetch_time import TierFetchTime
from .step_time import FittedStepTime, Ramp
from .transfer_time import LinkTime

DEFAULT_STEP_TIME = FittedStepTime(
    fixed_s=2.9e-3,
    token=Ramp(starts=(0,), slopes_s=(0.45e-3,)),
    sampled=Ramp(starts=(0,), slopes_s=(0.16e-3,)),
    chunk_s=0.0,
    context_s=0.74e-6,
    attention_s=0.21e-6,
)

DEFAULT_LINK_TIME = LinkTime(setup_s=2e-3, bytes_per_s=2e9)
"""One copy through shared memory on a busy host, checksums included, and the messages before it:
an assumption on the slow side (NIXL over UCX reaches 1.2 to 5.3 GB/s between two processes)."""

DEFAULT_FETCH_TIME = TierFetchTime(
    host=LinkTime(setup_s=2e-3, bytes_per_s=2e9),
    disk=LinkTime(setup_s=5e-3, bytes_per_s=4e8),
    remote=LinkTime(setup_s=10e-3, bytes_per_s=1e8),
)
"""From the host tier a fetch is the same verified copy as between workers, after a call to the
store. Disk and network: assumptions on the slow side (a SATA disk, a gigabit link). A router
corrects them by the fetches that it sees."""
