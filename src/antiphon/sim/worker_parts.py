"""What a virtual worker is put together from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.core.scheduler.parts import Parts

from .cluster_setup import ClusterSetup, WorkerSpec
from .page_owner import PageOwner
from .page_taker import PageTaker
from .scripted_engine import ConstantStepTime, ScriptedEngine, hashed_script
from .shadow_kv import ShadowKv
from .shadow_store import ShadowStore, StoreSide
from .step_run import PassEngine
from .store_user import store_user
from .worker_host import WorkerHost
from .worker_store import WorkerStore


def scripted_engine(spec: WorkerSpec, setup: ClusterSetup, memory: ShadowKv) -> ScriptedEngine:
    """What the standard worker computes with: every pass takes the same time."""
    return ScriptedEngine(hashed_script(setup.vocab_size), ConstantStepTime(spec.step_s), memory)


MakeEngine: TypeAlias = Callable[[WorkerSpec, ClusterSetup, ShadowKv], PassEngine]
MakeStore: TypeAlias = Callable[[WorkerHost, ShadowStore, type[StoreSide]], WorkerStore | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The kind of each part. Tests put in faulty ones, and demand that a law finds them."""

    scheduler: Parts = STANDARD_PARTS
    engine: MakeEngine = scripted_engine
    memory: Callable[[int], ShadowKv] = ShadowKv
    owner: type[PageOwner] = PageOwner
    taker: Callable[[WorkerHost], PageTaker] = PageTaker
    store: type[StoreSide] = StoreSide
    beside: MakeStore = store_user
    """What puts and fetches for a worker; None: nothing does."""


STANDARD_WORKER_PARTS = WorkerParts()
