"""Faults, each carried out and shown to have happened."""

from .deed import carry_out
from .scene import Hit, Scene, Seen

__all__ = ["Hit", "Scene", "Seen", "carry_out"]
