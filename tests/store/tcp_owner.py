"""An owner's process that serves its pages over TCP, and reassigns them on demand.

    python tcp_owner.py PAGES PAGE_BYTES CORRUPT_EVERY SEALED ENDPOINT...

Prints its access as one line of JSON. Content follows from page and generation, as in
`owner_process`. Then, a line each: "go" reassigns pages without end; "counts" prints the server's.
"""

import json
import sys
import threading
from itertools import count

from owner_process import reassign, shape_of

from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageServer


def restless(owner: OwnedRegion, corrupt_every: int) -> None:
    for turn in count():
        corrupt = bool(corrupt_every) and turn % corrupt_every == 0
        reassign(owner, turn % owner.shape.pages, corrupt=corrupt)


def main() -> None:
    pages, page_bytes, corrupt_every, sealed = map(int, sys.argv[1:5])
    owner = OwnedRegion(shape_of(pages, page_bytes))
    for page in range(pages):
        reassign(owner, page, corrupt=False)
    server = PageServer(owner, sys.argv[5:], must_seal=bool(sealed))
    access = server.admit()
    told = {"endpoints": access.endpoints, "id": access.key_id.hex(), "key": access.key.hex()}
    print(json.dumps(told), flush=True)  # noqa: T201 - its answer
    for line in sys.stdin:
        if line == "go\n":
            work = threading.Thread(target=restless, args=(owner, corrupt_every), daemon=True)
            work.start()
        elif line == "counts\n":
            print(json.dumps(server.counts()), flush=True)  # noqa: T201 - its answer
    server.close()


if __name__ == "__main__":
    main()
