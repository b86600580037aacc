"""Pages that an owner has sealed and offered, for those who test how they are taken."""

import time

import numpy as np
from link_kit import KV

from antiphon.core.handover import LeaseBook
from antiphon.store.transfer import OwnedRegion
from antiphon.types import LeaseId, Offer, PagePull, Pull, RequestId, WorkerInfo

LEASE, R = LeaseId("l"), RequestId("r")


def granted_pull(
    region: OwnedRegion, book: LeaseBook, owner: WorkerInfo, taker: WorkerInfo
) -> Pull:
    """Three pages of the owner's, to be had by `taker`, who takes the lease."""
    region.begin_write([2, 5, 3])
    content = region.content.reshape(KV.pages, -1)
    for number in (2, 5, 3):
        content[number][:] = np.random.default_rng(number).integers(0, 256, KV.page_bytes)
    pages = region.seal([2, 5, 3])
    book.offer(LEASE, R, 1, (2, 5, 3), time.monotonic())
    book.grant(LEASE, taker.incarnation, 1, time.monotonic())
    offer = Offer(
        request=R,
        attempt=1,
        lease=LEASE,
        ttl_s=60.0,
        owner=owner.id,
        incarnation=owner.incarnation,
        kv=KV,
        numerics="script",
        pages=pages,
        sequences=(),
        at=owner.at,
    )
    targets = tuple(PagePull(*pair) for pair in zip(pages, (1, 0, 7), strict=True))
    return Pull(request=R, attempt=1, offer=offer, pages=targets)
