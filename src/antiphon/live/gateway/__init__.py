"""The gateway: the OpenAI-compatible HTTP side of a served model."""

from .app import create_app
from .auth import Keyring
from .gateway import Gateway, State
from .metrics import Metrics
from .prompts import Prompts
from .service import Service

__all__ = ["Gateway", "Keyring", "Metrics", "Prompts", "Service", "State", "create_app"]
