"""What the routes work with, and how they get it."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from antiphon.errors import ClientError, PeerError
from antiphon.types import HttpConfig, ModelInfo, Seconds

from .gateway import Gateway, State
from .intake import Served
from .metrics import Metrics
from .prompts import Prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One served model: its gateway and the text side. `created` is in Unix seconds."""

    gateway: Gateway
    prompts: Prompts
    metrics: Metrics
    served: Served
    served_name: str
    config: HttpConfig
    clock: Callable[[], Seconds]
    created: int

    @property
    def healthy(self) -> bool:
        """False: this process can't do its work any more. A worker's death is no reason."""
        return self.gateway.state is not State.UNHEALTHY

    @property
    def model(self) -> ModelInfo:
        """Facts of the model."""
        return self.served.model

    @property
    def max_model_len(self) -> int:
        """The longest prompt with its output."""
        return self.served.max_model_len

    def check_model(self, name: str) -> None:
        """Raises `ClientError` 404 for any model but the one that is served."""
        if name != self.served_name:
            raise ClientError(
                f"The model {name[:128]!r} does not exist; this server has {self.served_name!r}",
                field="model",
                status=404,
                code="model_not_found",
            )


def service_of(request: Request) -> Service:
    """The service, or `PeerError` (503) while the model is loading."""
    service: Service | None = request.app.state.service
    if service is None:
        raise PeerError("the model is still loading")
    return service
