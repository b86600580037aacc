"""`python -m antiphon` is the same as `antiphon`."""

from antiphon.cli import main

main()
