"""What holds for all tests."""

import os

# As `antiphon serve` does: on shared cores torch's threads must not spin for long (see cli/serve).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
