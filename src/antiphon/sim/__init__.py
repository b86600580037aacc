"""Virtual time: an event loop and a scripted engine that drive the live decision code."""

from .scripted_engine import ConstantStepTime, Script, ScriptedEngine, hashed_script
from .shadow_kv import ShadowKv
from .virtual_loop import VirtualLoop
from .virtual_worker import Cancel, RunLog, Submit, VirtualWorker, run_worker

__all__ = [
    "Cancel",
    "ConstantStepTime",
    "RunLog",
    "Script",
    "ScriptedEngine",
    "ShadowKv",
    "Submit",
    "VirtualLoop",
    "VirtualWorker",
    "hashed_script",
    "run_worker",
]
