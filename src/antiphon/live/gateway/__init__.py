"""The gateway: the OpenAI-compatible HTTP side of a served model."""

from .app import create_app
from .auth import Keyring
from .fleet import Fleet
from .fleet_control import FleetControl
from .gateway import Gateway, State
from .intake import Served
from .kv_metrics import KvSeen
from .metrics import Metrics
from .ports import Ports
from .prompts import Prompts
from .request_log import RequestLog
from .service import Service

__all__ = [
    "Fleet",
    "FleetControl",
    "Gateway",
    "Keyring",
    "KvSeen",
    "Metrics",
    "Ports",
    "Prompts",
    "RequestLog",
    "Served",
    "Service",
    "State",
    "create_app",
]
