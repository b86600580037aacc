"""What a book is made of: the places where tests put in faulty parts, and nobody else."""

from collections.abc import Callable
from dataclasses import dataclass

from .dispatcher import Dispatcher
from .facts import DropReason, Fact, why_unusable
from .handovers import Handovers
from .open_request import OpenRequest


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that decide what the laws of the book depend on."""

    why_unusable: Callable[[OpenRequest, Fact], DropReason | None] = why_unusable
    open_request: type[OpenRequest] = OpenRequest
    dispatcher: type[Dispatcher] = Dispatcher
    handovers: type[Handovers] = Handovers


STANDARD_PARTS = Parts()
