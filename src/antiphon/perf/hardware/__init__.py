"""Devices and models by their numbers, and a roofline of their steps."""

from .deployment import Deployment
from .devices import DEVICES, Device, device_of
from .model_shapes import MODELS, Experts, LatentKv, ModelShape, shape_of
from .parallelism import Parallelism

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
