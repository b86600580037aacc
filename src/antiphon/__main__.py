"""`python -m antiphon` is the same as `antiphon`."""

import sys

try:
    from antiphon.cli import main

    main()
except KeyboardInterrupt:  # while it was still being loaded
    sys.exit(130)
