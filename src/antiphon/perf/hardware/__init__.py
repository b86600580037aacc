"""Devices and models by their numbers, and a roofline of their steps."""

from .deployment import Deployment, Parallelism
from .devices import DEVICES, Device, device_of
from .model_shapes import MODELS, Experts, LatentKv, ModelShape, shape_of

__all__ = [
    "DEVICES",
    "MODELS",
    "Deployment",
    "Device",
    "Experts",
    "LatentKv",
    "ModelShape",
    "Parallelism",
    "device_of",
    "shape_of",
]
