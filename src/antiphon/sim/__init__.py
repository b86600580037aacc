"""Virtual time: an event loop and a scripted engine that drive the live decision code."""

from .scripted_engine import ConstantStepTime, Script, ScriptedEngine, ShadowKv, hashed_script

__all__ = ["ConstantStepTime", "Script", "ScriptedEngine", "ShadowKv", "hashed_script"]
