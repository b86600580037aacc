"""Virtual time: an event loop and a scripted engine that drive the live decision code."""

from .cluster_log import ClusterLog
from .cluster_setup import GATEWAY, Call, ClusterSetup, Empty, GiveUp, StoreSpec, WorkerSpec
from .fault_injector import FaultInjector, Injected
from .network import Hostility, LinkTimes, Network
from .scripted_engine import ConstantStepTime, Script, ScriptedEngine, hashed_script
from .shadow_kv import ShadowKv
from .shadow_store import ShadowStore, StoreSide
from .stream import End, Stream, Traffic
from .virtual_cluster import VirtualCluster
from .virtual_loop import VirtualLoop
from .virtual_process import VirtualProcess
from .virtual_worker import Cancel, RunLog, Submit, VirtualWorker, run_worker
from .worker_parts import STANDARD_WORKER_PARTS, WorkerParts

__all__ = [
    "GATEWAY",
    "STANDARD_WORKER_PARTS",
    "Call",
    "Cancel",
    "ClusterLog",
    "ClusterSetup",
    "ConstantStepTime",
    "Empty",
    "End",
    "FaultInjector",
    "GiveUp",
    "Hostility",
    "Injected",
    "LinkTimes",
    "Network",
    "RunLog",
    "Script",
    "ScriptedEngine",
    "ShadowKv",
    "ShadowStore",
    "StoreSide",
    "StoreSpec",
    "Stream",
    "Submit",
    "Traffic",
    "VirtualCluster",
    "VirtualLoop",
    "VirtualProcess",
    "VirtualWorker",
    "WorkerParts",
    "WorkerSpec",
    "hashed_script",
    "run_worker",
]
