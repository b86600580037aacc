"""A planned fault on whom it hits."""

from antiphon.core.faults import (
    Corrupt,
    Crash,
    Cut,
    CutKv,
    Drain,
    FillDisk,
    Garble,
    GarbleKv,
    Lag,
    Restart,
    Resume,
    Slow,
    Stall,
)

from .link import harm_link
from .order import do_drain, do_restart
from .process import do_kill, do_resume, do_slow, do_stop
from .scene import Hit, Scene, Seen
from .store import do_corrupt, do_fill_disk


async def carry_out(scene: Scene, hit: Hit, seed: int) -> Seen | None:
    """See the fault through, until all is as before. None: it could not be done, as its victim was
    gone or there was nothing to be hit.

    Raises `PeerError` if it was done and had no effect. If it fails or is cancelled, nobody stands
    still, is late or full because of it any more.
    """
    match hit.fault.action:
        case Crash():
            return await do_kill(scene, hit)
        case Stall() as stall:
            return await do_stop(scene, hit, stall)
        case Resume():
            return await do_resume(scene, hit)
        case Slow() as slow:
            return await do_slow(scene, hit, slow)
        case Cut() | Garble() | CutKv() | GarbleKv() | Lag() as harm:
            return await harm_link(scene, hit, harm)
        case Corrupt():
            return await do_corrupt(scene, hit, seed)
        case FillDisk() as full:
            return await do_fill_disk(scene, hit, full)
        case Drain() as drain:
            return await do_drain(scene, hit, drain)
        case Restart():
            return await do_restart(scene, hit)
