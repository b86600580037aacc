"""Explore the hand-over exhaustively: two prefill and two decode workers, two requests, two deaths.

python -m antiphon.testing.handover [--prefill 2 --decode 2 --requests 2 --crashes 2 --waits 1]
"""

import sys
from argparse import ArgumentParser
from dataclasses import fields

from antiphon.testing.explore import Explored, Violation, explore

from .model import Bounds, HandoverModel


def main(arguments: list[str]) -> int:
    """Print how many states there are, or a shortest way to one that breaks a law."""
    parser = ArgumentParser(prog="python -m antiphon.testing.handover", description=__doc__)
    for bound in fields(Bounds):
        parser.add_argument(f"--{bound.name}", type=int, default=bound.default)
    result = explore(HandoverModel(Bounds(**vars(parser.parse_args(arguments)))))
    sys.stdout.write(f"{result}\n")
    if isinstance(result, Violation):
        sys.stdout.writelines(f"{' '.join(move)}\n" for move in result.trace)
    return 0 if isinstance(result, Explored) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
