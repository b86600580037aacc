"""Addresses such as tcp://127.0.0.1:5557: one for each worker, on ports that follow each other."""

import re
from dataclasses import dataclass, replace

_ENDPOINT = re.compile(r"tcp://(\[[0-9a-fA-F:.]{2,45}\]|[^\s/:@\[\]]{1,253}):(\d{1,5})", re.ASCII)
_PORTS = 2**16


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """A host (an IPv6 address without its brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    def of_worker(self, number: int) -> "TcpEndpoint":
        """The one that worker `number`, from 0, has; port 0 (any free one) is everybody's."""
        return replace(self, port=self.port + number) if self.port else self


def parse_endpoint(text: str, workers: int = 1) -> TcpEndpoint | None:
    """The endpoint that `text` spells; None if it is none, or has no port for some worker."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 <= int(match[2]) < _PORTS:
        return None
    endpoint = TcpEndpoint(match[1].strip("[]"), int(match[2]))
    return endpoint if endpoint.of_worker(workers - 1).port < _PORTS else None
