"""A taker in a process of its own: pulls all pages of an owner as often as it is told.

    python tcp_taker.py PAGES PAGE_BYTES STREAMS

The owner's access is the first line of its standard input (JSON). Then each line is a time limit in
seconds; it prints one line of JSON: how many pages were good, and wrong, and how the paths are.
"""

import json
import sys

from owner_process import shape_of
from tcp_kit import offered, wrong

from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageClient, StreamLimits
from antiphon.types import DataAccess


def main() -> None:
    pages, page_bytes, streams = map(int, sys.argv[1:4])
    told = json.loads(sys.stdin.readline())
    access = DataAccess(
        endpoints=tuple(told["endpoints"]),
        key_id=bytes.fromhex(told["id"]),
        key=bytes.fromhex(told["key"]),
    )
    own = OwnedRegion(shape_of(pages, page_bytes))
    limits = StreamLimits(connect_s=0.5, stall_s=0.5)
    client = PageClient(access, own, streams=streams, limits=limits)
    pulls = offered(range(pages), page_bytes=page_bytes)
    for line in sys.stdin:
        good = client.pull(pulls, float(line))
        paths = [
            {"bytes": path.bytes_total, "state": path.state, "problem": path.problem}
            for path in client.paths()
        ]
        told = {"good": sum(good), "wrong": wrong(own, pulls, good), "paths": paths}
        print(json.dumps(told), flush=True)  # noqa: T201 - its answer
    client.close()


if __name__ == "__main__":
    main()
