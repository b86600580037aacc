"""Virtual time: an event loop and a scripted engine that drive the live decision code."""

from .network import Hostility, LinkTimes, Network
from .scripted_engine import ConstantStepTime, Script, ScriptedEngine, hashed_script
from .shadow_kv import ShadowKv
from .stream import End, Stream, Traffic
from .virtual_loop import VirtualLoop
from .virtual_process import VirtualProcess
from .virtual_worker import Cancel, RunLog, Submit, VirtualWorker, run_worker

__all__ = [
    "Cancel",
    "ConstantStepTime",
    "End",
    "Hostility",
    "LinkTimes",
    "Network",
    "RunLog",
    "Script",
    "ScriptedEngine",
    "ShadowKv",
    "Stream",
    "Submit",
    "Traffic",
    "VirtualLoop",
    "VirtualProcess",
    "VirtualWorker",
    "hashed_script",
    "run_worker",
]
